#include "runtime/device/cpu/mixed/mixed.h"

#include <assert.h>

/* Those that do not work on rows; with a scratch or without. */
static cpu_kernel_fn *const kernels[KERNEL_KINDS] = {
        [KERNEL_EMBEDDING] = cpu_mixed_embedding, [KERNEL_EMBEDDING_BACKWARD] = cpu_mixed_embedding_backward,
        [KERNEL_ADAMW] = cpu_mixed_adamw,         [KERNEL_OVERFLOW] = cpu_mixed_overflow,
        [KERNEL_UNSCALE] = cpu_mixed_unscale,     [KERNEL_CLEAR] = cpu_mixed_clear,
        [KERNEL_PERMUTE] = cpu_permute,           [KERNEL_EXPERT_ENDS] = cpu_expert_ends,
};

static cpu_scratch_fn *const kernels_with_scratch[KERNEL_KINDS] = {
        [KERNEL_MATMUL] = cpu_mixed_matmul,
        [KERNEL_SQUARED_NORM] = cpu_mixed_squared_norm,
        [KERNEL_MATMUL_BIAS] = cpu_mixed_matmul_fused,
        [KERNEL_MATMUL_BIAS_GELU] = cpu_mixed_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL] = cpu_mixed_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM] = cpu_mixed_matmul_layernorm,
        [KERNEL_MATMUL_GELU_BACKWARD] = cpu_mixed_matmul_fused,
        [KERNEL_ROUTE] = cpu_route,
        [KERNEL_UNPERMUTE] = cpu_unpermute,
        [KERNEL_ATTENTION] = cpu_attention,
        [KERNEL_ATTENTION_BACKWARD] = cpu_attention_backward,
        [KERNEL_CONTEXT_ATTENTION] = cpu_context_attention,
        [KERNEL_CONTEXT_ATTENTION_BACKWARD] = cpu_context_attention_backward,
};

void cpu_mixed(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        assert(!kernel_collective(kernel->kind));
        if (kernels_with_scratch[kernel->kind]) {
                kernels_with_scratch[kernel->kind](kernel, args, scratch);
        } else if (kernels[kernel->kind]) {
                kernels[kernel->kind](kernel, args);
        } else {
                assert(kernel_descriptor(kernel->kind)->split == SPLIT_ROWS);
                cpu_mixed_rows(kernel, args, scratch);
        }
}
