/* Arithmetic shared by the CPU kernels: an exponential that vectorises, and reductions of a row in a fixed
 * order. All is inline and on `real`; tensors in 16 bits are converted before (cpu/mixed/mixed.h). The
 * order of a sum is written down here instead of left to the compiler, so that the same input gives the
 * same bits. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_KERNELS_MATH_H
#define RANVIER_RUNTIME_DEVICE_CPU_KERNELS_MATH_H

#include "runtime/device/real.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* A compiler may not reorder floating-point sums, so each reduction keeps this many partial sums itself:
 * element i belongs to lane i mod LANES_IN_SUM, and the lanes are added from the first to the last. */
enum { LANES_IN_SUM = 16 };

#ifdef RANVIER_DOUBLE
/* Returns libm's e^x; e^708 above 708, where the result would soon be infinite. */
static inline real real_exp(real x)
{
        real clamped = x > 708.0 ? 708.0 : x;
        return exp(clamped);
}
#else
/* Returns e^x within 1.2e-7 relative for x in [-87, 88.3]; 0 below (no subnormal numbers), e^88.3 above,
 * NaN for NaN. x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor series (the eighth term is under
 * 6e-9), 2^n by its bits. */
static inline real real_exp(real x)
{
        const float min = -87.0F, max = 88.3F;
        const float shift = 12582912.0F; /* 1.5 x 2^23: adding it rounds to an integer */
        const float ln2_high = 0x1.62ep-1F,
                    ln2_low = 0x1.0bfbe8p-15F; /* n x ln2_high is exact for |n| < 2^10 */
        float clamped = x < min ? min : x;
        clamped = clamped > max ? max : clamped;
        float shifted = clamped * 1.44269504F + shift;
        float n = shifted - shift;
        float r = clamped - n * ln2_high;
        r = r - n * ln2_low;
        float p = 1.0F / 5040.0F;
        p = p * r + 1.0F / 720.0F;
        p = p * r + 1.0F / 120.0F;
        p = p * r + 1.0F / 24.0F;
        p = p * r + 1.0F / 6.0F;
        p = p * r + 0.5F;
        p = p * r + 1.0F;
        p = p * r + 1.0F;
        uint32_t bits; /* of `shifted`: those of `shift` plus n */
        memcpy(&bits, &shifted, sizeof bits);
        bits = (bits - 0x4B400000U + 127U) << 23;
        float power;
        memcpy(&power, &bits, sizeof power);
        return x < min ? 0.0F : p * power;
}
#endif

/* Returns the sum of partial sums, added from the first to the last. */
static inline real lanes_sum(const real lane[LANES_IN_SUM])
{
        real sum = 0;
        for (int j = 0; j < LANES_IN_SUM; j++)
                sum += lane[j];
        return sum;
}

/* Returns the sum of x (n). */
static inline real row_sum(const real *x, int64_t n)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= n; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += x[i + j];
        for (int j = 0; i + j < n; j++)
                lane[j] += x[i + j];
        return lanes_sum(lane);
}

/* Returns the sum of the products of a (n) and b (n), element by element. */
static inline real row_dot(const real *a, const real *b, int64_t n)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= n; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += a[i + j] * b[i + j];
        for (int j = 0; i + j < n; j++)
                lane[j] += a[i + j] * b[i + j];
        return lanes_sum(lane);
}

/* Replaces each element of x (n) by e^(x - max), and returns the sum of the results. `max` is the largest
 * element, or more, so that no result is above 1. */
static inline real row_exp(real *x, int64_t n, real max)
{
        real lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= n; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++) {
                        x[i + j] = real_exp(x[i + j] - max);
                        lane[j] += x[i + j];
                }
        for (int j = 0; i + j < n; j++) {
                x[i + j] = real_exp(x[i + j] - max);
                lane[j] += x[i + j];
        }
        return lanes_sum(lane);
}

/* Returns the largest element of x (n >= 1). A NaN may be passed over: the sums that follow keep it. */
static inline real row_max(const real *x, int64_t n)
{
        real lane[LANES_IN_SUM];
        for (int j = 0; j < LANES_IN_SUM; j++)
                lane[j] = x[0];
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= n; i += LANES_IN_SUM)
#pragma GCC unroll 1 /* unrolled, GCC 12 does not see a vector in the comparisons */
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
        for (; i < n; i++)
                lane[0] = x[i] > lane[0] ? x[i] : lane[0];
        real max = lane[0];
        for (int j = 1; j < LANES_IN_SUM; j++)
                max = lane[j] > max ? lane[j] : max;
        return max;
}

#endif
