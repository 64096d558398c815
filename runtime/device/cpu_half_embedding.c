/* Token and position embeddings of fp16 tensors: sums of two halves, which need no scratch. */
#include "runtime/device/cpu_half.h"

#include <string.h>

/* x (N, C) = wte[tokens] + wpe[n mod T]. */
void cpu_half_embedding(const struct kernel *kernel, const struct kernel_args *args)
{
        uint16_t *x = args->p[0];
        const int32_t *tokens = args->p[1];
        const uint16_t *wte = args->p[2], *wpe = args->p[3];
        const int64_t N = kernel->m, C = kernel->n, T = args->ld[0];
        for (int64_t n = 0; n < N; n++, x += C) {
                memcpy(x, wte + tokens[n] * C, (size_t)C * sizeof *x);
                half_add(x, wpe + n % T * C, C);
        }
}

/* Rows are added in the order of the tokens, and each sum is rounded: to keep sums in fp32 until the last row
 * would take a table of them as large as the vocabulary. */
void cpu_half_embedding_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        uint16_t *dwte = args->p[0], *dwpe = args->p[1];
        const uint16_t *dx = args->p[2];
        const int32_t *tokens = args->p[3];
        const int64_t N = kernel->m, C = kernel->n, T = args->ld[0];
        for (int64_t n = 0; n < N; n++, dx += C) {
                half_add(dwte + tokens[n] * C, dx, C);
                half_add(dwpe + n % T * C, dx, C);
        }
}
