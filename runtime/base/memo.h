/* A memo: a table from one vector of doubles to another, in which the predictions keep what they have
 * computed, so that the same inputs are not priced or simulated twice. Keys are compared bit for bit, by
 * length and content. Entries are never replaced or removed one by one. It is a search tree, so a look-up
 * takes a logarithmic number of comparisons, and it is not made for several threads. */
#ifndef RANVIER_RUNTIME_BASE_MEMO_H
#define RANVIER_RUNTIME_BASE_MEMO_H

#include <stddef.h>
#include <stdint.h>

/* Begins as all zeros, which is an empty memo. */
struct memo {
        void *tree; /* a search tree of struct memo_entry (memo.c); NULL if empty */
        int count;  /* of entries */
};

/* Returns the value that was kept for exactly this key, or NULL if there is none. It belongs to the memo and
 * stays valid until memo_free. The caller knows how many elements it has. */
const double *memo_find(const struct memo *memo, const double *key, size_t key_count);

/* Keeps a copy of a key and its value. The key must not be in the memo. Without memory nothing is kept, and a
 * later memo_find does not find the key. */
void memo_keep(struct memo *memo, const double *key, size_t key_count, const double *value,
               size_t value_count);

/* Returns a hash of a key. */
uint64_t memo_hash(const double *key, size_t key_count);

/* Frees all entries and leaves an empty memo, which can be used again. */
void memo_free(struct memo *memo);

#endif
