/* The one rule of rotary angles, for all devices: how far a pair of columns turns from a position to the
 * next. Without scaling that is theta^(-2 i / columns that turn). A scaling takes away the share `taken` of
 * the angles of slow columns, none of fast ones, and of those between a part that grows with the column's
 * number or with how slow it is. models/families/rope.c makes these numbers of a config.json. */
#ifndef RANVIER_RUNTIME_DEVICE_ROPE_H
#define RANVIER_RUNTIME_DEVICE_ROPE_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ROPE_FUNCTION static __host__ __device__ __forceinline__
#else
#define ROPE_FUNCTION static inline
#endif

struct rope_rule {
        double log2_theta, taken, by_frequency, by_column, constant;
};

/* Returns the rule that a rope kernel's scalars say (runtime/device/kernels.h). */
static inline struct rope_rule rope_rule_of(const double scalar[])
{
        const struct rope_rule rule = {log2(scalar[0]), scalar[2], scalar[3], scalar[4], scalar[5]};
        return rule;
}

/* Returns how many columns of a head of `head_size` turn, by a rope kernel's scalars. */
static inline int64_t rope_columns(const double scalar[], int64_t head_size)
{
        return scalar[6] > 0 ? (int64_t)scalar[6] : head_size;
}

/* Returns the radians that columns i and i + columns / 2, of so many that turn, turn from a position to the
 * next. */
ROPE_FUNCTION double rope_frequency(const struct rope_rule *rule, int64_t columns, int64_t i)
{
        const double frequency = exp2(-2 * (double)i / (double)columns * rule->log2_theta);
        const double slow = rule->by_frequency * frequency + rule->by_column * (double)i + rule->constant;
        return frequency * (1 - rule->taken * fmin(fmax(slow, 0.0), 1.0));
}

#endif
