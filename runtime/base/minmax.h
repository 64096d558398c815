/* The smaller and the larger of two numbers, as functions, so that an argument is evaluated once and has the
 * type that the name says. For doubles, callers use fmin and fmax. */
#ifndef RANVIER_RUNTIME_BASE_MINMAX_H
#define RANVIER_RUNTIME_BASE_MINMAX_H

#include <stdint.h>

static inline int min_int(int a, int b)
{
        return a < b ? a : b;
}

static inline int max_int(int a, int b)
{
        return a > b ? a : b;
}

static inline int64_t min_int64(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

static inline int64_t max_int64(int64_t a, int64_t b)
{
        return a > b ? a : b;
}

#endif
