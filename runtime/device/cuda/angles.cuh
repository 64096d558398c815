/* Sines and cosines of rotary positions. A position times a frequency reaches 1e5 radians, which fp32 rounds
 * by 2^-8. So the angle is made in double, in half turns, and whole turns are taken off it there; what is
 * left, within [-1, 1], is rounded to fp32, which brings at most 2^-25 pi = 9.4e-8 to the sine and the
 * cosine. Their own error is an ulp or two, as sincospif's argument needs no reduction. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ANGLES_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_ANGLES_CUH

#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/rope.h"

/* Returns the half turns of columns i and i + columns / 2 from a position to the next. */
static __device__ __forceinline__ double half_turns(const struct rope_rule *rule, int64_t columns, int64_t i)
{
        return 0.318309886183790671538 * rope_frequency(rule, columns, i);
}

static __device__ __forceinline__ void sine_and_cosine(double half_turns, float *sine, float *cosine)
{
        sincospif((float)(half_turns - 2 * rint(half_turns / 2)), sine, cosine);
}

#endif
