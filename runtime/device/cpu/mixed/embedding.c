/* Token and position embeddings of 16-bit tensors: sums of two elements, which need no scratch. */
#include "runtime/device/cpu/mixed/mixed.h"

#include <string.h>

typedef void add_fn(uint16_t *sum, const uint16_t *with, int64_t count);

static add_fn *add_of(const struct kernel *kernel)
{
        return kernel->dtype == DTYPE_BF16 ? bf16_add : fp16_add;
}

/* x (N, C) = wte[tokens] + wpe[position of n]. */
void cpu_mixed_embedding(const struct kernel *kernel, const struct kernel_args *args)
{
        uint16_t *x = args->p[0];
        const int32_t *tokens = args->p[1];
        const uint16_t *wte = args->p[2], *wpe = args->p[3];
        const int64_t N = kernel->m, C = kernel->n;
        add_fn *const add = add_of(kernel);
        for (int64_t n = 0; n < N; n++, x += C) {
                const int64_t row = cpu_embedding_row(args, tokens[n]);
                if (row >= 0)
                        memcpy(x, wte + row * C, (size_t)C * sizeof *x);
                else
                        memset(x, 0, (size_t)C * sizeof *x);
                if (wpe)
                        add(x, wpe + cpu_position(args, n) * C, C);
        }
}

/* Adds a row of C elements to that row of a table of gradients. */
static void add_to_row(const struct kernel *kernel, void *table, int64_t row, const uint16_t *dx)
{
        enum { PIECE = 512 };
        real piece[PIECE];
        const int64_t C = kernel->n;
        if (!kernel->wide) {
                add_of(kernel)((uint16_t *)table + row * C, dx, C);
                return;
        }
        real *restrict sum = (real *)table + row * C;
        for (int64_t at = 0; at < C; at += PIECE) {
                const int64_t count = C - at < PIECE ? C - at : PIECE;
                reals_from(kernel->dtype, piece, dx + at, count);
                for (int64_t i = 0; i < count; i++)
                        sum[at + i] += piece[i];
        }
}

/* Rows are added in the order of the tokens, and each sum is rounded, unless it is fp32: to keep sums in fp32
 * until the last row would take a table of them as large as the vocabulary. */
void cpu_mixed_embedding_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        const uint16_t *dx = args->p[2];
        const int32_t *tokens = args->p[3];
        for (int64_t n = 0; n < kernel->m; n++, dx += kernel->n) {
                const int64_t row = cpu_embedding_row(args, tokens[n]);
                if (row >= 0)
                        add_to_row(kernel, args->p[0], row, dx);
                if (args->p[1])
                        add_to_row(kernel, args->p[1], cpu_position(args, n), dx);
        }
}
