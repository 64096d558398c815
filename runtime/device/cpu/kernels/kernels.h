/* The kernels of the CPU device, one serial function for each kind. Shapes are in `kernel`, operands in
 * `args` as runtime/device/kernels.h packs them; both may be those of a part of a kernel (cpu/split.h).
 * They allocate nothing, keep nothing and cannot fail.
 *
 * These files and those of cpu/mixed are built once for each variant (variants.mk), with other
 * instructions; of each build only its cpu_run is seen outside, through the table of cpu/variant.h. The
 * functions here compute with `real`; where tensors are stored in 16 bits, cpu/mixed converts pieces and
 * calls them. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_KERNELS_KERNELS_H
#define RANVIER_RUNTIME_DEVICE_CPU_KERNELS_KERNELS_H

#include "runtime/device/device.h"

typedef void cpu_kernel_fn(const struct kernel *kernel, const struct kernel_args *args);

/* The kinds on tensors of `real`. cpu_matmul_fused is all fused products but the one with LayerNorm, which is
 * cpu_matmul_layernorm. */
cpu_kernel_fn cpu_matmul, cpu_matmul_fused, cpu_matmul_layernorm;
cpu_kernel_fn cpu_embedding, cpu_embedding_backward;
cpu_kernel_fn cpu_layernorm, cpu_layernorm_backward;
cpu_kernel_fn cpu_rmsnorm, cpu_rmsnorm_backward, cpu_head_rmsnorm, cpu_head_rmsnorm_backward;
cpu_kernel_fn cpu_bias, cpu_bias_backward, cpu_bias_residual, cpu_residual;
cpu_kernel_fn cpu_bias_gelu, cpu_gelu_backward, cpu_squared_relu, cpu_squared_relu_backward;
cpu_kernel_fn cpu_swiglu, cpu_swiglu_backward, cpu_weighted_swiglu, cpu_weighted_swiglu_backward;
cpu_kernel_fn cpu_route_backward;
/* The most experts of a model (GPT_MAX_EXPERTS in models/gpt.h), for arrays of a row's scores. */
enum { CPU_MAX_EXPERTS = 1024 };
cpu_kernel_fn cpu_rope;
cpu_kernel_fn cpu_split_columns, cpu_join_columns, cpu_narrow, cpu_widen;
cpu_kernel_fn cpu_last_columns, cpu_set_last_columns;
cpu_kernel_fn cpu_latent_qkv, cpu_latent_qkv_backward;
cpu_kernel_fn cpu_softmax, cpu_softmax_backward;
cpu_kernel_fn cpu_cross_entropy, cpu_cross_entropy_loss;
cpu_kernel_fn cpu_squared_norm, cpu_adamw, cpu_clear;

/* Returns the row of wte that a token has, by the operands of an embedding kernel; -1: it is another
 * shard's. */
static inline int64_t cpu_embedding_row(const struct kernel_args *args, int32_t token)
{
        const int64_t row = token - args->ld[1], rows = args->ld[2];
        return rows == 0 || (row >= 0 && row < rows) ? row : -1;
}

/* Returns the position in its sequence of row n of a rank's tokens, by the operands of a kernel. */
static inline int64_t cpu_position(const struct kernel_args *args, int64_t n)
{
        const int64_t T = args->ld[0], t = n % T;
        return t + args->stride[0][t >= T / 2];
}

/* Elements of the scratch that some kernels work in: what attention's backward needs for the widest head, or
 * group of heads, that models/gpt.c lets a model have, which is more than any other kernel needs at once.
 * Pages that no kernel touches take no memory. It is this device's own, as BLAS has buffers for packing: a
 * GPU has registers and shared memory for that, so it is not counted as device memory. */
enum { CPU_SCRATCH = (1 << 24) + (1 << 12) };
typedef void cpu_scratch_fn(const struct kernel *kernel, const struct kernel_args *args, real *scratch);

/* Runs any kernel, on tensors in any format. Each variant has its own, under another name: see
 * cpu/variant.h. */
cpu_scratch_fn cpu_run;

/* Fused attention, on tensors in any format: heads are packed into the scratch as `real`. */
cpu_scratch_fn cpu_attention, cpu_attention_backward;
cpu_scratch_fn cpu_context_attention, cpu_context_attention_backward;

/* The order of rows by experts, on tensors in any format. Grouped products are not here: cpu/split.c runs
 * each expert's as a product of its own. */
cpu_scratch_fn cpu_route, cpu_unpermute;
cpu_kernel_fn cpu_permute, cpu_expert_ends;

/* The operands of a fused product, whichever of the four kinds it is: sums (m,n) = a op(b), then what
 * follows with the bias (n) or NULL, and with `more` (m,n): r or h, which are read, or g, which is written;
 * NULL with a bias alone. Elements are stored as kernel->dtype says. */
struct fused_product {
        void *sums;
        const void *a, *b, *bias;
        void *more;
};
/* Picks the operands of a fused product out of its packed ones. */
struct fused_product cpu_fused_product(const struct kernel *kernel, const struct kernel_args *args);

/* Does what follows the product, in place; m and n of `kernel` may be a tile's, whose rows, as those of
 * `more`, lie `ld` elements apart. */
void cpu_fused_ending(const struct kernel *kernel, real *sums, const real *bias, real *more, int64_t ld);

/* Computes c (m,n) = op(a) op(b), or adds that to c: by BLAS, but for the reference (variants.mk), whose
 * sums are in double. `of` says m, n, k, the transposes and accumulate; lda, ldb and ldc are elements
 * between stored rows. */
void cpu_gemm(const struct kernel *of, const real *a, int64_t lda, const real *b, int64_t ldb, real *c,
              int64_t ldc);

#endif
