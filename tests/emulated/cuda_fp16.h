/* CUDA's header of the 16-bit format with a 5-bit exponent. */
#ifndef RANVIER_TESTS_EMULATED_CUDA_FP16_H
#define RANVIER_TESTS_EMULATED_CUDA_FP16_H

#include "cuda_runtime.h"
#ifdef __cplusplus
#include "tests/emulated/fp16.hpp"
typedef __half half;
typedef __half2 half2;
#endif

#endif
