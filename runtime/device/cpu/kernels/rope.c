/* Rotary position embedding (Su et al. 2021), in the layout of Hugging Face's Llama: of a head's r columns
 * that turn, i turns with i + r / 2. Sines and cosines are made once a row, for all heads. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/angles.h"

/* `count` columns of every head of a row, each with the one `half` behind it. */
static void rotate(real *x, int64_t columns, int64_t head_size, int64_t half, int64_t count,
                   const real *restrict sine, const real *restrict cosine)
{
        for (int64_t head = 0; head < columns; head += head_size) {
                real *restrict low = x + head, *restrict high = low + half;
                for (int64_t i = 0; i < count; i++) {
                        const real a = low[i], b = high[i];
                        low[i] = a * cosine[i] - b * sine[i];
                        high[i] = b * cosine[i] + a * sine[i];
                }
        }
}

void cpu_rope(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t N = kernel->m, turned = rope_columns(args->scalar, kernel->k), half = turned / 2;
        struct angles angles;
        for (int64_t first = 0; first < half; first += FREQUENCIES) {
                const int64_t count = half - first < FREQUENCIES ? half - first : FREQUENCIES;
                angles_begin(&angles, args, args->scalar[1], turned, first, count);
                for (int64_t n = 0; n < N; n++) {
                        angles_at(&angles, cpu_position(args, args->ld[1] + n));
                        rotate((real *)args->p[0] + n * kernel->n + first, args->inner, kernel->k, half,
                               count, angles.sine, angles.cosine);
                }
        }
}
