/* The kernels of the CPU device, one function a kind. Shapes are in `kernel`, operands in `args` as kernels.h
 * packs them. They run on the compute lane, one at a time; they allocate nothing and keep nothing. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_KERNELS_H
#define RANVIER_RUNTIME_DEVICE_CPU_KERNELS_H

#include "runtime/device/device.h"

typedef void cpu_kernel_fn(const struct kernel *kernel, const struct kernel_args *args);

cpu_kernel_fn cpu_matmul;
cpu_kernel_fn cpu_embedding, cpu_embedding_backward;
cpu_kernel_fn cpu_layernorm, cpu_layernorm_backward;
cpu_kernel_fn cpu_bias, cpu_bias_backward, cpu_bias_residual;
cpu_kernel_fn cpu_bias_gelu, cpu_gelu_backward;
cpu_kernel_fn cpu_softmax, cpu_softmax_backward;
cpu_kernel_fn cpu_cross_entropy, cpu_cross_entropy_loss;
cpu_kernel_fn cpu_squared_norm, cpu_adamw;

/* c (m,n) = op(a) op(b), or added to c, by BLAS; `of` says m, n, k, the transposes and accumulate. */
void cpu_gemm(const struct kernel *of, const real *a, int64_t lda, const real *b, int64_t ldb, real *c,
              int64_t ldc);

#endif
