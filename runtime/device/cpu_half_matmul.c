/* Matrix products of fp16 matrices: tiles of a and b are converted, BLAS adds their products to a tile of c
 * in fp32 over all of k, and that is rounded once. */
#include "runtime/device/cpu_half.h"

#include <assert.h>

/* The best of nine that were tried, over shapes from 128 x 3072 x 768 to 2048^3; make bench-half measures it.
 */
enum { TILE_M = 384, TILE_N = 768, TILE_K = 768 };
static_assert(TILE_M * TILE_K + TILE_K * TILE_N + TILE_M * TILE_N <= CPU_HALF_SCRATCH,
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

/* Makes `tile` hold rows x columns of op(matrix) from (row, column) on, stored as the matrix is. A tile that
 * is there already stays: for a given begin the size is always the same. */
static void hold(struct operand *x, int64_t row, int64_t column, int64_t rows, int64_t columns)
{
        if (x->row == row && x->column == column)
                return;
        x->row = row;
        x->column = column;
        const int64_t stored_rows = x->transpose ? columns : rows;
        const uint16_t *from = x->from + (x->transpose ? column * x->ld + row : row * x->ld + column);
        x->tile_ld = x->transpose ? rows : columns;
        for (int64_t i = 0; i < stored_rows; i++)
                reals_from_half(x->tile + i * x->tile_ld, from + i * x->ld, x->tile_ld);
}

static int64_t least(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

/* The tile of c that begins at (i, j). */
static void tile_product(const struct kernel *tile, int64_t k, int64_t i, int64_t j, struct operand *a,
                         struct operand *b, real *sums, uint16_t *c, int64_t ldc)
{
        struct kernel step = *tile; /* m and n are the tile's */
        if (tile->accumulate)
                for (int64_t row = 0; row < tile->m; row++)
                        reals_from_half(sums + row * tile->n, c + row * ldc, tile->n);
        for (int64_t p = 0; p < k; p += TILE_K) {
                step.k = least(TILE_K, k - p);
                step.accumulate = tile->accumulate || p > 0;
                hold(a, i, p, step.m, step.k);
                hold(b, p, j, step.k, step.n);
                cpu_gemm(&step, a->tile, a->tile_ld, b->tile, b->tile_ld, sums, step.n);
        }
        for (int64_t row = 0; row < tile->m; row++)
                reals_to_half(c + row * ldc, sums + row * tile->n, tile->n);
}

/* A whole product; tiles of b stay in the scratch for all rows of c where k fits one tile. */
static void product(const struct kernel *kernel, const struct kernel_args *args, const uint16_t *from_a,
                    const uint16_t *from_b, uint16_t *c, real *scratch)
{
        struct operand a = {.from = from_a,
                            .ld = args->ld[0],
                            .transpose = kernel->transpose_a,
                            .tile = scratch,
                            .row = -1};
        struct operand b = {.from = from_b,
                            .ld = args->ld[1],
                            .transpose = kernel->transpose_b,
                            .tile = a.tile + TILE_M * TILE_K,
                            .row = -1};
        real *sums = b.tile + TILE_K * TILE_N;
        struct kernel tile = *kernel;
        for (int64_t j = 0; j < kernel->n; j += TILE_N) {
                tile.n = least(TILE_N, kernel->n - j);
                for (int64_t i = 0; i < kernel->m; i += TILE_M) {
                        tile.m = least(TILE_M, kernel->m - i);
                        tile_product(&tile, kernel->k, i, j, &a, &b, sums, c + i * args->ld[2] + j,
                                     args->ld[2]);
                }
        }
}

void cpu_half_matmul(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const int64_t inner = args->inner, outer = kernel->batch / inner;
        const uint16_t *a = args->p[0], *b = args->p[1];
        uint16_t *c = args->p[2];
        for (int64_t i = 0; i < outer; i++)
                for (int64_t j = 0; j < inner; j++)
                        product(kernel, args, a + i * args->stride[0][0] + j * args->stride[0][1],
                                b + i * args->stride[1][0] + j * args->stride[1][1],
                                c + i * args->stride[2][0] + j * args->stride[2][1], scratch);
}
