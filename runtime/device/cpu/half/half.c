#include "runtime/device/cpu/half/half.h"

#include <assert.h>

/* Those that do not work on rows; with a scratch or without. */
static cpu_kernel_fn *const kernels[KERNEL_KINDS] = {
        [KERNEL_EMBEDDING] = cpu_half_embedding, [KERNEL_EMBEDDING_BACKWARD] = cpu_half_embedding_backward,
        [KERNEL_ADAMW] = cpu_half_adamw,         [KERNEL_OVERFLOW] = cpu_half_overflow,
        [KERNEL_UNSCALE] = cpu_half_unscale,     [KERNEL_CLEAR] = cpu_half_clear,
};

static cpu_scratch_fn *const kernels_with_scratch[KERNEL_KINDS] = {
        [KERNEL_MATMUL] = cpu_half_matmul,
        [KERNEL_SQUARED_NORM] = cpu_half_squared_norm,
        [KERNEL_MATMUL_BIAS] = cpu_half_matmul_fused,
        [KERNEL_MATMUL_BIAS_GELU] = cpu_half_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL] = cpu_half_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM] = cpu_half_matmul_layernorm,
        [KERNEL_MATMUL_GELU_BACKWARD] = cpu_half_matmul_fused,
        [KERNEL_ATTENTION] = cpu_attention,
        [KERNEL_ATTENTION_BACKWARD] = cpu_attention_backward,
};

void cpu_half(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        assert(!kernel_collective(kernel->kind));
        if (kernel_descriptor(kernel->kind)->split == SPLIT_ROWS) {
                cpu_half_rows(kernel, args, scratch);
        } else if (kernels_with_scratch[kernel->kind]) {
                kernels_with_scratch[kernel->kind](kernel, args, scratch);
        } else {
                assert(kernels[kernel->kind]);
                kernels[kernel->kind](kernel, args);
        }
}
