/* Matrix products of 16-bit matrices: tiles of a and b are converted, BLAS adds their products to a tile of c
 * in fp32 over all of k, and that is rounded once; in a fused product, after what follows. A c that is fp32
 * itself is added to where it lies. */
#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/base/minmax.h"
#include "runtime/device/kernels.h"

#include <assert.h>

/* The best of nine that were tried, over shapes from 128 x 3072 x 768 to 2048^3; make bench-mixed measures
 * it.
 */
enum { TILE_M = 384, TILE_N = 768, TILE_K = 768 };
static_assert(TILE_M * TILE_K + TILE_K * TILE_N + 2 * TILE_M * TILE_N + TILE_N <= CPU_SCRATCH,
              "tiles fit the scratch");

/* A stored matrix, and the dense copy of one tile of it. */
struct operand {
        const uint16_t *from;
        int64_t ld;
        bool transpose;
        real *tile;
        int64_t row, column; /* of op(matrix), where the tile begins; -1: it holds nothing yet */
        int64_t tile_ld;
};

/* A whole product c = op(a) op(b) and, if it is fused, the operands of what follows (else NULL). */
struct product {
        const struct kernel *kernel;
        struct operand a, b;
        void *c; /* 16 bits, or fp32 if the kernel is `wide` */
        int64_t ldc;
        const uint16_t *bias;
        uint16_t *more;
        real *sums, *more_tile, *bias_tile; /* the tile of c and what belongs to it, in the scratch */
};

/* Makes `tile` hold rows x columns of op(matrix) from (row, column) on, stored as the matrix is. A tile that
 * is there already stays: for a given begin the size is always the same. */
static void hold(enum dtype dtype, struct operand *x, int64_t row, int64_t column, int64_t rows,
                 int64_t columns)
{
        if (x->row == row && x->column == column)
                return;
        x->row = row;
        x->column = column;
        const int64_t stored_rows = x->transpose ? columns : rows;
        const int64_t at = x->transpose ? column * x->ld + row : row * x->ld + column;
        x->tile_ld = x->transpose ? rows : columns;
        tile_from(dtype, x->tile, x->from, at, x->ld, stored_rows, x->tile_ld);
}

/* What follows a fused product, for the tile of c whose first element is `at`, in column j. */
static void end_tile(const struct product *x, const struct kernel *tile, int64_t at, int64_t j)
{
        const bool more_is_read = tile->kind != KERNEL_MATMUL_BIAS_GELU;
        if (x->bias)
                reals_from(tile->dtype, x->bias_tile, x->bias + j, tile->n);
        if (x->more && more_is_read)
                tile_from(tile->dtype, x->more_tile, x->more, at, x->ldc, tile->m, tile->n);
        cpu_fused_ending(tile, x->sums, x->bias_tile, x->more_tile, tile->n);
        if (x->more && !more_is_read)
                tile_to(tile->dtype, x->more, x->more_tile, at, x->ldc, tile->m, tile->n);
}

/* The tile of c that begins at (i, j); m and n of `tile` are its own. */
static void tile_product(struct product *x, const struct kernel *tile, int64_t i, int64_t j)
{
        const int64_t at = i * x->ldc + j, ld = tile->wide ? x->ldc : tile->n;
        real *sums = tile->wide ? (real *)x->c + at : x->sums;
        struct kernel step = *tile;
        if (tile->accumulate && !tile->wide)
                tile_from(tile->dtype, sums, x->c, at, x->ldc, tile->m, tile->n);
        for (int64_t p = 0; p < tile->k; p += TILE_K) {
                step.k = min_int64(TILE_K, tile->k - p);
                step.accumulate = tile->accumulate || p > 0;
                hold(tile->dtype, &x->a, i, p, step.m, step.k);
                hold(tile->dtype, &x->b, p, j, step.k, step.n);
                cpu_gemm(&step, x->a.tile, x->a.tile_ld, x->b.tile, x->b.tile_ld, sums, ld);
        }
        if (tile->kind != KERNEL_MATMUL)
                end_tile(x, tile, at, j);
        if (!tile->wide)
                tile_to(tile->dtype, x->c, sums, at, x->ldc, tile->m, tile->n);
}

/* All tiles of c; those of b stay in the scratch for all rows of c where k fits one tile. */
static void run_product(struct product *x)
{
        const struct kernel *kernel = x->kernel;
        struct kernel tile = *kernel;
        for (int64_t j = 0; j < kernel->n; j += TILE_N) {
                tile.n = min_int64(TILE_N, kernel->n - j);
                for (int64_t i = 0; i < kernel->m; i += TILE_M) {
                        tile.m = min_int64(TILE_M, kernel->m - i);
                        tile_product(x, &tile, i, j);
                }
        }
}

/* A product whose operands are not known yet, with its places in the scratch. */
static struct product product_of(const struct kernel *kernel, const int64_t ld[3], real *scratch)
{
        struct product x = {.kernel = kernel,
                            .a = {.ld = ld[0], .transpose = kernel->transpose_a, .tile = scratch},
                            .b = {.ld = ld[1], .transpose = kernel->transpose_b},
                            .ldc = ld[2]};
        x.b.tile = x.a.tile + TILE_M * TILE_K;
        x.sums = x.b.tile + TILE_K * TILE_N;
        x.more_tile = x.sums + TILE_M * TILE_N;
        x.bias_tile = x.more_tile + TILE_M * TILE_N;
        return x;
}

static void set_operands(struct product *x, const uint16_t *a, const uint16_t *b, void *c)
{
        x->a.from = a;
        x->b.from = b;
        x->c = c;
        x->a.row = x->b.row = -1;
}

void cpu_mixed_matmul(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const int64_t inner = args->inner, outer = kernel->batch / inner;
        const uint16_t *a = args->p[0], *b = args->p[1];
        const enum dtype of_c = kernel->wide ? DTYPE_FP32 : (enum dtype)kernel->dtype;
        struct product x = product_of(kernel, args->ld, scratch);
        for (int64_t i = 0; i < outer; i++) {
                for (int64_t j = 0; j < inner; j++) {
                        set_operands(&x, a + i * args->stride[0][0] + j * args->stride[0][1],
                                     b + i * args->stride[1][0] + j * args->stride[1][1],
                                     element_of(of_c, args->p[2],
                                                i * args->stride[2][0] + j * args->stride[2][1]));
                        run_product(&x);
                }
        }
}

void cpu_mixed_matmul_fused(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const struct fused_product f = cpu_fused_product(kernel, args);
        struct product x = product_of(kernel, args->ld, scratch);
        set_operands(&x, f.a, f.b, f.sums);
        x.bias = f.bias;
        x.more = f.more;
        run_product(&x);
}

/* In two passes: a tile of y has not got its rows' every column, and what is normalised is y as it is stored.
 */
void cpu_mixed_matmul_layernorm(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        struct kernel parts[KERNEL_PARTS];
        const struct kernel_args layernorm = kernels_layernorm_args(args);
        kernel_parts(kernel, parts);
        cpu_mixed_matmul_fused(&parts[0], args, scratch);
        cpu_mixed_rows(&parts[1], &layernorm, scratch);
}
