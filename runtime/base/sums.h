/* The rule by which a large all-reduce over MPI is shared: each member sums its part of the elements, and all
 * parts are gathered afterwards. Smaller ones are left to MPI. The rule is here because two need it: the real
 * network (runtime/net/mpi.c) follows it, and the simulation (sim/collective) predicts by it. */
#ifndef RANVIER_RUNTIME_BASE_SUMS_H
#define RANVIER_RUNTIME_BASE_SUMS_H

#include <stdbool.h>
#include <stdint.h>

/* The smallest part of a member for which a sum is shared: with smaller ones the additional messages cost
 * more than the bytes that they save. */
enum { SUMS_SHARED_PART_BYTES = 16 << 10 };

/* Returns whether an all-reduce of `bytes` over `members` ranks is shared. `bytes` counts the whole buffer of
 * one member, which all have alike. A reduce-scatter is always shared, whatever its size. */
static inline bool sums_shared(int64_t bytes, int members)
{
        return members > 1 && bytes >= (int64_t)SUMS_SHARED_PART_BYTES * members;
}

#endif
