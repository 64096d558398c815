/* CUDA's header of the 16-bit format with an 8-bit exponent. */
#ifndef RANVIER_TESTS_EMULATED_CUDA_BF16_H
#define RANVIER_TESTS_EMULATED_CUDA_BF16_H

#include "cuda_runtime.h"
#ifdef __cplusplus
#include "tests/emulated/bf16.hpp"
#endif

#endif
