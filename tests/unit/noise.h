/* For tests of statistics: noise, the same on every run, and comparison within a relative bound. */
#ifndef RANVIER_TESTS_UNIT_NOISE_H
#define RANVIER_TESTS_UNIT_NOISE_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static inline void check_close(double found, double expected, double relative, const char *file, int line)
{
        if (fabs(found - expected) <= relative * fabs(expected))
                return;
        print_error("found %.17g, expected %.17g within %g\n", found, expected, relative);
        _fail(file, line);
}
#define assert_close(found, expected, relative) check_close(found, expected, relative, __FILE__, __LINE__)

/* Uniform in [-1, 1), the same on every run. */
static inline double noise(uint64_t *state)
{
        *state = *state * 6364136223846793005u + 1442695040888963407u;
        return (double)(*state >> 11) / 4503599627370496.0 - 1;
}

/* Of mean 0 and standard deviation 1: a sum of twelve. */
static inline double normal(uint64_t *state)
{
        double sum = 0;
        for (int i = 0; i < 12; i++)
                sum += noise(state) / 2;
        return sum;
}

#endif
