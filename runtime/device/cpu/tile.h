/* Products of small matrices that lie in a cache, in registers: ROWS x some vectors of a result at a time,
 * to which each step of k adds an element of `a`, broadcast, times a row of `b`. A vector is as wide as the
 * processor's registers (GCC's and clang's vector extension, lowered to what there is); how many of them a
 * result takes leaves room for a row of b and a broadcast.
 *
 * Fused attention (kernels/attention.c) is made of these: a call of BLAS would pack the operands of each
 * tile again, and could not stop at the diagonal. The caller packs operands as `real`, with rows padded to
 * whole vectors. Matrices are row-major, `ld` counts elements from row to row, and no alignment beyond an
 * element's is needed. The names are short and common, so the header is for that one file. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_TILE_H
#define RANVIER_RUNTIME_DEVICE_CPU_TILE_H

#include "runtime/device/real.h"

#include <stdbool.h>
#include <stdint.h>

#if defined(CPU_SCALAR) /* the reference build: one number at a time */
enum { VECTOR_BYTES = sizeof(real), ROWS = 4, MAX_VECTORS = 16 };
#elif defined(__AVX512F__)
enum { VECTOR_BYTES = 64, ROWS = 8, MAX_VECTORS = 3 }; /* of 32 registers */
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, ROWS = 4, MAX_VECTORS = 3 }; /* of 16 */
#else
enum { VECTOR_BYTES = 16, ROWS = 4, MAX_VECTORS = 2 };
#endif
/* Elements of a vector, and of as many vectors as a row of a result has at a time. */
enum { LANES = VECTOR_BYTES / (int)sizeof(real), PANEL = MAX_VECTORS * LANES };

/* A vector of reals, at any address of a real; and the integers of the same width that a shuffle is given:
 * which element goes where. */
typedef real vector __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
#ifdef RANVIER_DOUBLE
typedef int64_t lane_number;
#else
typedef int32_t lane_number;
#endif
typedef lane_number lane_numbers __attribute__((vector_size(VECTOR_BYTES)));

/* Functions whose loops must be unrolled for constant arguments, so that sums stay in registers. */
#define INLINE static inline __attribute__((always_inline))

/* Computes c (ROWS, `vectors` vectors) = a b with a (ROWS, k) and b (k, the same columns), or adds that to
 * c if `accumulate`. Element (i, p) of a is a[i a_row + p a_step], so a may be stored either way round.
 * `vectors` is a constant of at most MAX_VECTORS. */
INLINE void block_product(const int vectors, int64_t k, const real *a, int64_t a_row, int64_t a_step,
                          const real *b, int64_t ldb, real *c, int64_t ldc, bool accumulate)
{
        vector sum[ROWS][MAX_VECTORS];
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                        sum[i][v] = accumulate ? *(const vector *)(c + i * ldc + v * LANES) : (vector){0};
        for (int64_t p = 0; p < k; p++, a += a_step, b += ldb) {
                vector row[MAX_VECTORS];
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                        row[v] = *(const vector *)(b + v * LANES);
#pragma GCC unroll 8
                for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
                        for (int v = 0; v < vectors; v++)
                                sum[i][v] += a[i * a_row] * row[v];
        }
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 4
                for (int v = 0; v < vectors; v++)
                        *(vector *)(c + i * ldc + v * LANES) = sum[i][v];
}

/* The same for n columns, a multiple of LANES: block by block, as wide as the columns that are left allow. */
INLINE void blocks_product(int64_t n, int64_t k, const real *a, int64_t a_row, int64_t a_step, const real *b,
                           int64_t ldb, real *c, int64_t ldc, bool accumulate)
{
        int64_t j = 0;
        for (; j + PANEL <= n; j += PANEL)
                block_product(MAX_VECTORS, k, a, a_row, a_step, b + j, ldb, c + j, ldc, accumulate);
        for (; MAX_VECTORS > 2 && j + 2 * LANES <= n; j += 2 * LANES)
                block_product(2, k, a, a_row, a_step, b + j, ldb, c + j, ldc, accumulate);
        if (j < n)
                block_product(1, k, a, a_row, a_step, b + j, ldb, c + j, ldc, accumulate);
}

/* Computes c (ROWS, n) = a b, or adds that to c if `accumulate`, with a (ROWS, k), b (k, n); n is a
 * multiple of LANES. */
static __attribute__((noinline)) void rows_product(int64_t n, int64_t k, const real *a, int64_t lda,
                                                   const real *b, int64_t ldb, real *c, int64_t ldc,
                                                   bool accumulate)
{
        blocks_product(n, k, a, lda, 1, b, ldb, c, ldc, accumulate);
}

/* Computes c (ROWS, n) = a^T b, or adds that to c, with a (k, ROWS); otherwise as rows_product. */
static __attribute__((noinline)) void columns_product(int64_t n, int64_t k, const real *a, int64_t lda,
                                                      const real *b, int64_t ldb, real *c, int64_t ldc,
                                                      bool accumulate)
{
        blocks_product(n, k, a, 1, lda, b, ldb, c, ldc, accumulate);
}

/* Sets to (LANES, LANES) to the transpose of `from`. Interleaving the first half of the rows with the
 * second, element by element, moves each bit of an element's place (row, column) up by one; after
 * log2(LANES) times row and column have changed places. */
INLINE void transpose_block(real *to, int64_t ldto, const real *from, int64_t ldfrom)
{
        lane_numbers low = {0}, high = {0};
#pragma GCC unroll 16
        for (int j = 0; j < LANES; j++) {
                low[j] = (lane_number)(j / 2 + j % 2 * LANES);
                high[j] = low[j] + LANES / 2;
        }
        vector row[LANES], next[LANES];
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
                row[i] = *(const vector *)(from + i * ldfrom);
#pragma GCC unroll 4
        for (int bit = 1; bit < LANES; bit *= 2) {
#pragma GCC unroll 8
                for (int i = 0; i < LANES / 2; i++) {
                        next[2 * i] = __builtin_shuffle(row[i], row[i + LANES / 2], low);
                        next[2 * i + 1] = __builtin_shuffle(row[i], row[i + LANES / 2], high);
                }
#pragma GCC unroll 16
                for (int i = 0; i < LANES; i++)
                        row[i] = next[i];
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++)
                *(vector *)(to + i * ldto) = row[i];
}

#endif
