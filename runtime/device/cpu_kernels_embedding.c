/* Token and position embeddings. */
#include "runtime/device/cpu_kernels.h"

/* x (N, C) = wte[tokens] + wpe[n mod T]. */
void cpu_embedding(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict x = args->p[0];
        const int32_t *restrict tokens = args->p[1];
        const real *restrict wte = args->p[2], *restrict wpe = args->p[3];
        const int64_t N = kernel->m, C = kernel->n, T = args->ld[0];
        for (int64_t n = 0; n < N; n++) {
                const real *token = wte + tokens[n] * C, *position = wpe + n % T * C;
                for (int64_t c = 0; c < C; c++)
                        x[n * C + c] = token[c] + position[c];
        }
}

/* Rows are added in the order of the tokens, so that a token that occurs twice has a fixed sum. */
void cpu_embedding_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        real *restrict dwte = args->p[0], *restrict dwpe = args->p[1];
        const real *restrict dx = args->p[2];
        const int32_t *restrict tokens = args->p[3];
        const int64_t N = kernel->m, C = kernel->n, T = args->ld[0];
        for (int64_t n = 0; n < N; n++) {
                real *restrict token = dwte + tokens[n] * C, *restrict position = dwpe + n % T * C;
                for (int64_t c = 0; c < C; c++) {
                        token[c] += dx[n * C + c];
                        position[c] += dx[n * C + c];
                }
        }
}
