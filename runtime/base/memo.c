#define _GNU_SOURCE /* tdestroy */
#include "runtime/base/memo.h"

#include <assert.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

struct memo_entry {
        uint64_t hash; /* entries are in its order, which takes one comparison where keys are long */
        size_t key_count;
        const double *key;
        double values[]; /* then the key, of an entry that is kept */
};

uint64_t memo_hash(const double *key, size_t key_count)
{
        uint64_t hash = key_count, bits;
        for (size_t i = 0; i < key_count; i++) {
                memcpy(&bits, &key[i], sizeof bits);
                hash = (hash ^ bits) * 0x9e3779b97f4a7c15u;
                hash ^= hash >> 32;
        }
        return hash;
}

static int compare(const void *left, const void *right)
{
        const struct memo_entry *a = left, *b = right;
        if (a->hash != b->hash)
                return a->hash < b->hash ? -1 : 1;
        if (a->key_count != b->key_count)
                return a->key_count < b->key_count ? -1 : 1;
        return memcmp(a->key, b->key, a->key_count * sizeof *a->key);
}

const double *memo_find(const struct memo *memo, const double *key, size_t key_count)
{
        const struct memo_entry wanted = {memo_hash(key, key_count), key_count, key};
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
        entry->hash = memo_hash(key, key_count);
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
