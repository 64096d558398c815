/* What was computed before: vectors of doubles, found by the vectors that they follow from. */
#ifndef RANVIER_RUNTIME_BASE_MEMO_H
#define RANVIER_RUNTIME_BASE_MEMO_H

#include <stddef.h>

struct memo {
        void *tree; /* of struct memo_entry; NULL: empty */
        int count;  /* of entries */
};

/* The value of exactly this key, bit for bit; NULL: none is known. It stays the memo's. */
const double *memo_find(const struct memo *memo, const double *key, size_t key_count);

/* Copies both. The key must not be known. Without memory nothing is kept. */
void memo_keep(struct memo *memo, const double *key, size_t key_count, const double *value,
               size_t value_count);

/* Leaves an empty one. */
void memo_free(struct memo *memo);

#endif
