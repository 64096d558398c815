/* What a .cu file gets from CUDA, for g++: the runtime, and in C++ the language of kernels. */
#ifndef RANVIER_TESTS_EMULATED_CUDA_RUNTIME_H
#define RANVIER_TESTS_EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#ifdef __cplusplus
#include "tests/emulated/kernel.hpp"
#endif

#endif
