#include "runtime/device/cpu_half.h"

#include <assert.h>

void cpu_half(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        switch (kernel->kind) {
        case KERNEL_MATMUL:
                cpu_half_matmul(kernel, args, scratch);
                return;
        case KERNEL_EMBEDDING:
                cpu_half_embedding(kernel, args);
                return;
        case KERNEL_EMBEDDING_BACKWARD:
                cpu_half_embedding_backward(kernel, args);
                return;
        case KERNEL_LAYERNORM:
        case KERNEL_LAYERNORM_BACKWARD:
        case KERNEL_BIAS:
        case KERNEL_BIAS_BACKWARD:
        case KERNEL_BIAS_GELU:
        case KERNEL_GELU_BACKWARD:
        case KERNEL_BIAS_RESIDUAL:
        case KERNEL_SOFTMAX:
        case KERNEL_SOFTMAX_BACKWARD:
        case KERNEL_CROSS_ENTROPY:
        case KERNEL_CROSS_ENTROPY_LOSS:
                cpu_half_rows(kernel, args, scratch);
                return;
        case KERNEL_SQUARED_NORM:
                cpu_half_squared_norm(kernel, args, scratch);
                return;
        case KERNEL_ADAMW:
                cpu_half_adamw(kernel, args);
                return;
        case KERNEL_OVERFLOW:
                cpu_half_overflow(kernel, args);
                return;
        case KERNEL_UNSCALE:
                cpu_half_unscale(kernel, args);
                return;
        case KERNEL_CLEAR:
                cpu_half_clear(kernel, args);
                return;
        case KERNEL_MATMUL_BIAS:
        case KERNEL_MATMUL_BIAS_GELU:
        case KERNEL_MATMUL_BIAS_RESIDUAL:
        case KERNEL_MATMUL_GELU_BACKWARD:
                cpu_half_matmul_fused(kernel, args, scratch);
                return;
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM:
                cpu_half_matmul_layernorm(kernel, args, scratch);
                return;
        case KERNEL_ATTENTION:
                cpu_attention(kernel, args, scratch);
                return;
        case KERNEL_ATTENTION_BACKWARD:
                cpu_attention_backward(kernel, args, scratch);
                return;
        case KERNEL_TENSOR_ALLREDUCE: /* the network's */
        case KERNEL_TENSOR_ALL_GATHER:
        case KERNEL_TENSOR_REDUCE_SCATTER:
        case KERNEL_ENTRIES:
                break;
        }
        assert(!"a kernel that exists");
}
