#define _GNU_SOURCE /* tdestroy */
#include "runtime/base/memo.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct memo_entry {
        size_t key_count;
        const double *key;
        double values[]; /* then the key, of an entry that is kept */
};

static int compare(const void *left, const void *right)
{
        const struct memo_entry *a = left, *b = right;
        if (a->key_count != b->key_count)
                return a->key_count < b->key_count ? -1 : 1;
        return memcmp(a->key, b->key, a->key_count * sizeof *a->key);
}

const double *memo_find(const struct memo *memo, const double *key, size_t key_count)
{
        const struct memo_entry wanted = {key_count, key};
        struct memo_entry *const *found = tfind(&wanted, &memo->tree, compare);
        return found ? (*found)->values : NULL;
}

void memo_keep(struct memo *memo, const double *key, size_t key_count, const double *value,
               size_t value_count)
{
        struct memo_entry *entry = malloc(sizeof *entry + (value_count + key_count) * sizeof *entry->values);
        if (!entry)
                return;
        memcpy(entry->values, value, value_count * sizeof *value);
        memcpy(entry->values + value_count, key, key_count * sizeof *key);
        entry->key_count = key_count;
        entry->key = entry->values + value_count;
        struct memo_entry *const *kept = tsearch(entry, &memo->tree, compare);
        assert(!kept || *kept == entry);
        if (kept)
                memo->count++;
        else
                free(entry);
}

void memo_free(struct memo *memo)
{
        tdestroy(memo->tree, free);
        *memo = (struct memo){0};
}
