#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/device/cpu/kernels/kernels.h"

static cpu_kernel_fn *const kernels[KERNEL_KINDS] = {
        [KERNEL_MATMUL] = cpu_matmul,
        [KERNEL_EMBEDDING] = cpu_embedding,
        [KERNEL_EMBEDDING_BACKWARD] = cpu_embedding_backward,
        [KERNEL_LAYERNORM] = cpu_layernorm,
        [KERNEL_LAYERNORM_BACKWARD] = cpu_layernorm_backward,
        [KERNEL_BIAS] = cpu_bias,
        [KERNEL_BIAS_BACKWARD] = cpu_bias_backward,
        [KERNEL_BIAS_GELU] = cpu_bias_gelu,
        [KERNEL_GELU_BACKWARD] = cpu_gelu_backward,
        [KERNEL_BIAS_RESIDUAL] = cpu_bias_residual,
        [KERNEL_RESIDUAL] = cpu_residual,
        [KERNEL_RMSNORM] = cpu_rmsnorm,
        [KERNEL_RMSNORM_BACKWARD] = cpu_rmsnorm_backward,
        [KERNEL_HEAD_RMSNORM] = cpu_head_rmsnorm,
        [KERNEL_HEAD_RMSNORM_BACKWARD] = cpu_head_rmsnorm_backward,
        [KERNEL_ROPE] = cpu_rope,
        [KERNEL_SPLIT_COLUMNS] = cpu_split_columns,
        [KERNEL_JOIN_COLUMNS] = cpu_join_columns,
        [KERNEL_LATENT_QKV] = cpu_latent_qkv,
        [KERNEL_LATENT_QKV_BACKWARD] = cpu_latent_qkv_backward,
        [KERNEL_NARROW] = cpu_narrow,
        [KERNEL_WIDEN] = cpu_widen,
        [KERNEL_LAST_COLUMNS] = cpu_last_columns,
        [KERNEL_SET_LAST_COLUMNS] = cpu_set_last_columns,
        [KERNEL_SWIGLU] = cpu_swiglu,
        [KERNEL_SWIGLU_BACKWARD] = cpu_swiglu_backward,
        [KERNEL_SQUARED_RELU] = cpu_squared_relu,
        [KERNEL_SQUARED_RELU_BACKWARD] = cpu_squared_relu_backward,
        [KERNEL_ROUTE_BACKWARD] = cpu_route_backward,
        [KERNEL_PERMUTE] = cpu_permute,
        [KERNEL_EXPERT_ENDS] = cpu_expert_ends,
        [KERNEL_WEIGHTED_SWIGLU] = cpu_weighted_swiglu,
        [KERNEL_WEIGHTED_SWIGLU_BACKWARD] = cpu_weighted_swiglu_backward,
        [KERNEL_SOFTMAX] = cpu_softmax,
        [KERNEL_SOFTMAX_BACKWARD] = cpu_softmax_backward,
        [KERNEL_CROSS_ENTROPY] = cpu_cross_entropy,
        [KERNEL_CROSS_ENTROPY_LOSS] = cpu_cross_entropy_loss,
        [KERNEL_SQUARED_NORM] = cpu_squared_norm,
        [KERNEL_ADAMW] = cpu_adamw,
        [KERNEL_CLEAR] = cpu_clear,
        [KERNEL_MATMUL_BIAS] = cpu_matmul_fused,
        [KERNEL_MATMUL_BIAS_GELU] = cpu_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL] = cpu_matmul_fused,
        [KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM] = cpu_matmul_layernorm,
        [KERNEL_MATMUL_GELU_BACKWARD] = cpu_matmul_fused,
};

static cpu_scratch_fn *const kernels_with_scratch[KERNEL_KINDS] = {
        [KERNEL_ROUTE] = cpu_route,
        [KERNEL_UNPERMUTE] = cpu_unpermute,
        [KERNEL_ATTENTION] = cpu_attention,
        [KERNEL_ATTENTION_BACKWARD] = cpu_attention_backward,
        [KERNEL_CONTEXT_ATTENTION] = cpu_context_attention,
        [KERNEL_CONTEXT_ATTENTION_BACKWARD] = cpu_context_attention_backward,
};

void cpu_run(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        if (kernel->dtype != DTYPE_FP32)
                cpu_mixed(kernel, args, scratch);
        else if (kernels_with_scratch[kernel->kind])
                kernels_with_scratch[kernel->kind](kernel, args, scratch);
        else
                kernels[kernel->kind](kernel, args);
}
