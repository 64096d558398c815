/* For tests of arithmetic: random numbers from a printed seed, and comparison within a stated bound. */
#ifndef RANVIER_TESTS_UNIT_NUMBERS_H
#define RANVIER_TESTS_UNIT_NUMBERS_H

#include "runtime/device/real.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

/* Half the distance from 1 to the next number: the relative error of one rounded operation. */
#define ROUNDOFF ((sizeof(real) == 4 ? (double)FLT_EPSILON : DBL_EPSILON) / 2)

/* Marsaglia's xorshift64*; never 0. */
static inline uint64_t random_bits(uint64_t *state)
{
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        return *state * 2685821657736338717U;
}

/* Uniform in [-1, 1). */
static inline double random_number(uint64_t *state)
{
        return (double)(random_bits(state) >> 11) * 0x1p-52 - 1;
}

static inline int64_t random_below(uint64_t *state, int64_t end)
{
        return (int64_t)(random_bits(state) >> 33) % end;
}

/* `count` elements, or the test ends. */
static inline real *new_reals(int64_t count)
{
        real *x = malloc((size_t)(count > 0 ? count : 1) * sizeof *x);
        assert_non_null(x);
        return x;
}

static inline real *random_reals(uint64_t *state, int64_t count, double size)
{
        real *x = new_reals(count);
        for (int64_t i = 0; i < count; i++)
                x[i] = (real)(size * random_number(state));
        return x;
}

/* What an output buffer holds before a kernel: whoever reads it, or leaves it, is found out. */
static inline real *poisoned_reals(int64_t count)
{
        real *x = new_reals(count);
        for (int64_t i = 0; i < count; i++)
                x[i] = (real)NAN;
        return x;
}

static inline real *copied_reals(const real *from, int64_t count)
{
        real *x = new_reals(count);
        for (int64_t i = 0; i < count; i++)
                x[i] = from[i];
        return x;
}

static inline void check_within(double found, double expected, double bound, const char *what, int64_t index,
                                const char *file, int line)
{
        if (fabs(found - expected) <= bound)
                return;
        char sentence[256];
        snprintf(sentence, sizeof sentence, "%s[%lld] is %.9g, not %.9g: %.3g apart, at most %.3g allowed",
                 what, (long long)index, found, expected, fabs(found - expected), bound);
        print_error("%s\n", sentence);
        _fail(file, line);
}

#define assert_within(found, expected, bound, what, index)                                                   \
        check_within((double)(found), (double)(expected), (bound), (what), (index), __FILE__, __LINE__)

#endif
