/* Token and position embeddings. */
#include "runtime/device/cpu/kernels/kernels.h"

/* x (N, C) = wte[tokens] + wpe[position of n]. */
void cpu_embedding(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict x = args->p[0];
        const int32_t *restrict tokens = args->p[1];
        const real *restrict wte = args->p[2], *restrict wpe = args->p[3];
        const int64_t N = kernel->m, C = kernel->n;
        for (int64_t n = 0; n < N; n++) {
                const int64_t row = cpu_embedding_row(args, tokens[n]);
                const real *token = row >= 0 ? wte + row * C : NULL,
                           *position = wpe ? wpe + cpu_position(args, n) * C : NULL;
                for (int64_t c = 0; c < C; c++)
                        x[n * C + c] = (token ? token[c] : 0) + (position ? position[c] : 0);
        }
}

/* Rows are added in the order of the tokens, so that a token that occurs twice has a fixed sum. */
void cpu_embedding_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dwte = args->p[0], *restrict dwpe = args->p[1];
        const real *restrict dx = args->p[2];
        const int32_t *restrict tokens = args->p[3];
        const int64_t N = kernel->m, C = kernel->n;
        for (int64_t n = 0; n < N; n++) {
                const int64_t row = cpu_embedding_row(args, tokens[n]);
                for (int64_t c = 0; dwpe && c < C; c++)
                        dwpe[cpu_position(args, n) * C + c] += dx[n * C + c];
                for (int64_t c = 0; row >= 0 && c < C; c++)
                        dwte[row * C + c] += dx[n * C + c];
        }
}
