/* Sines and cosines of rotary positions. Angles are in double, since a position times a frequency reaches 1e5
 * radians, which fp32 rounds by 2^-8. All is inline and on `real`. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_KERNELS_ANGLES_H
#define RANVIER_RUNTIME_DEVICE_CPU_KERNELS_ANGLES_H

#include "runtime/device/cpu/kernels/math.h"
#include "runtime/device/device.h"
#include "runtime/device/rope.h"

/* Frequencies at a time: those of a head of 256. */
enum { FREQUENCIES = 128 };

struct angles {
        int64_t count;
        double frequency[FREQUENCIES];
        real sine[FREQUENCIES], cosine[FREQUENCIES];
};

#ifdef RANVIER_DOUBLE
static inline void sine_and_cosine(double angle, real *sine, real *cosine)
{
        *sine = sin(angle);
        *cosine = cos(angle);
}
#else
/* Within 1e-9 before they are rounded to fp32, for |angle| < 3e6. angle = n pi + r with |r| <= pi / 2; of
 * both, Taylor's series at r, whose next terms are under 7e-10, and the sign of (-1)^n. Without integers or
 * branches, so that it vectorises. */
static inline void sine_and_cosine(double angle, real *sine, real *cosine)
{
        const double shift =
                6755399441055744.0; /* 1.5 x 2^52: adding it rounds to an integer, ties to even */
        const double pi_high = 0x1.921fb544p+1,
                     pi_low = 1.21542010130123844986e-10; /* n x pi_high is exact for |n| < 2^20 */
        const double n = (angle * 0.318309886183790671538 + shift) - shift;
        const double odd = n - 2 * ((n * 0.5 + shift) - shift); /* 1 or -1 if n is odd, else 0 */
        const double sign = 1 - 2 * odd * odd;
        const double r = (angle - n * pi_high) - n * pi_low, r2 = r * r;
        double s = 1.0 / 6227020800, c = -1.0 / 87178291200;
        s = s * r2 - 1.0 / 39916800;
        s = s * r2 + 1.0 / 362880;
        s = s * r2 - 1.0 / 5040;
        s = s * r2 + 1.0 / 120;
        s = s * r2 - 1.0 / 6;
        s = s * r2 + 1;
        c = c * r2 + 1.0 / 479001600;
        c = c * r2 - 1.0 / 3628800;
        c = c * r2 + 1.0 / 40320;
        c = c * r2 - 1.0 / 720;
        c = c * r2 + 1.0 / 24;
        c = c * r2 - 0.5;
        c = c * r2 + 1;
        *sine = (real)(sign * r * s);
        *cosine = (real)(sign * c);
}
#endif

/* Takes `count` of the frequencies of heads of `columns` columns, from `first` on, by the scalars of a kernel
 * (runtime/device/kernels.h), times `direction`. */
static inline void angles_begin(struct angles *a, const struct kernel_args *args, double direction,
                                int64_t columns, int64_t first, int64_t count)
{
        const struct rope_rule rule = rope_rule_of(args->scalar);
        a->count = count;
        for (int64_t i = 0; i < count; i++)
                a->frequency[i] = direction * rope_frequency(&rule, columns, first + i);
}

/* Makes the sines and cosines of a position. */
static inline void angles_at(struct angles *a, int64_t position)
{
        for (int64_t i = 0; i < a->count; i++)
                sine_and_cosine((double)position * a->frequency[i], &a->sine[i], &a->cosine[i]);
}

#endif
