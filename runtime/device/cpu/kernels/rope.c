/* Rotary position embedding (Su et al. 2021), in the layout of Hugging Face's Llama: of a head's columns, i
 * turns with i + k / 2. Angles are in double, since a position times a frequency reaches 1e5 radians, which
 * fp32 rounds by 2^-8; sines and cosines are made once a row, for all heads. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"
#include "runtime/device/rope.h"

/* Frequencies at a time: those of a head of 256. */
enum { FREQUENCIES = 128 };

#ifdef RANVIER_DOUBLE
static inline void sine_and_cosine(double angle, real *sine, real *cosine)
{
        *sine = sin(angle);
        *cosine = cos(angle);
}
#else
/* Within 1e-9 before they are rounded to fp32, for |angle| < 3e6. angle = n pi + r with |r| <= pi / 2; of
 * both, Taylor's series at r, whose next terms are under 7e-10, and the sign of (-1)^n. Without integers or
 * branches, so that it vectorises. */
static inline void sine_and_cosine(double angle, real *sine, real *cosine)
{
        const double shift =
                6755399441055744.0; /* 1.5 x 2^52: adding it rounds to an integer, ties to even */
        const double pi_high = 0x1.921fb544p+1,
                     pi_low = 1.21542010130123844986e-10; /* n x pi_high is exact for |n| < 2^20 */
        const double n = (angle * 0.318309886183790671538 + shift) - shift;
        const double odd = n - 2 * ((n * 0.5 + shift) - shift); /* 1 or -1 if n is odd, else 0 */
        const double sign = 1 - 2 * odd * odd;
        const double r = (angle - n * pi_high) - n * pi_low, r2 = r * r;
        double s = 1.0 / 6227020800, c = -1.0 / 87178291200;
        s = s * r2 - 1.0 / 39916800;
        s = s * r2 + 1.0 / 362880;
        s = s * r2 - 1.0 / 5040;
        s = s * r2 + 1.0 / 120;
        s = s * r2 - 1.0 / 6;
        s = s * r2 + 1;
        c = c * r2 + 1.0 / 479001600;
        c = c * r2 - 1.0 / 3628800;
        c = c * r2 + 1.0 / 40320;
        c = c * r2 - 1.0 / 720;
        c = c * r2 + 1.0 / 24;
        c = c * r2 - 0.5;
        c = c * r2 + 1;
        *sine = (real)(sign * r * s);
        *cosine = (real)(sign * c);
}
#endif

/* `count` columns of every head of a row. */
static void rotate(real *x, int64_t columns, int64_t head_size, int64_t count, const real *restrict sine,
                   const real *restrict cosine)
{
        for (int64_t head = 0; head < columns; head += head_size) {
                real *restrict low = x + head, *restrict high = low + head_size / 2;
                for (int64_t i = 0; i < count; i++) {
                        const real a = low[i], b = high[i];
                        low[i] = a * cosine[i] - b * sine[i];
                        high[i] = b * cosine[i] + a * sine[i];
                }
        }
}

void cpu_rope(const struct kernel *kernel, const struct kernel_args *args)
{
        const int64_t N = kernel->m, half = kernel->k / 2, T = args->ld[0];
        const struct rope_rule rule = rope_rule_of(args->scalar);
        double frequency[FREQUENCIES];
        real sine[FREQUENCIES], cosine[FREQUENCIES];
        for (int64_t first = 0; first < half; first += FREQUENCIES) {
                const int64_t count = half - first < FREQUENCIES ? half - first : FREQUENCIES;
                for (int64_t i = 0; i < count; i++)
                        frequency[i] = args->scalar[1] * rope_frequency(&rule, kernel->k, first + i);
                for (int64_t n = 0; n < N; n++) {
                        const double position = (double)((args->ld[1] + n) % T);
                        for (int64_t i = 0; i < count; i++)
                                sine_and_cosine(position * frequency[i], &sine[i], &cosine[i]);
                        rotate((real *)args->p[0] + n * kernel->n + first, args->inner, kernel->k, count,
                               sine, cosine);
                }
        }
}
