/* Which sums are shared among their members, each of which sums its part. runtime/net/mpi.c goes by it, and
 * sim/ predicts by it. */
#ifndef RANVIER_RUNTIME_BASE_SUMS_H
#define RANVIER_RUNTIME_BASE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

/* Of a member's part: below, a message more costs more than bytes. */
enum { SUMS_SHARED_PART_BYTES = 16 << 10 };

/* Whether a sum of `bytes` that every one of `members` is to have is shared. */
static inline bool sums_shared(int64_t bytes, int members)
{
        return members > 1 && bytes >= (int64_t)SUMS_SHARED_PART_BYTES * members;
}

#endif
