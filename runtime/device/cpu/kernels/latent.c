/* Queries, keys and values of multi-head latent attention (DeepSeek-AI 2024): most columns are copied, the
 * last ones of queries and keys are rotated by their positions. Sines and cosines are made once a row. */
#include "runtime/device/cpu/kernels/angles.h"
#include "runtime/device/cpu/kernels/kernels.h"

#include <string.h>

/* What a row is made of. Columns of a head: all of them, those that turn, which are the last, and those that
 * are copied, which are the first; and those of a value. */
struct latent {
        int64_t heads, width, turned, copied, values;
        bool interleaved;
        real length;
};

static struct latent latent_of(const struct kernel *kernel, const struct kernel_args *args)
{
        struct latent of = {.heads = args->inner,
                            .width = kernel->n / args->inner,
                            .turned = kernel->k,
                            .interleaved = args->scalar[6] != 0,
                            .length = (real)args->scalar[1]};
        of.copied = of.width - of.turned;
        of.values = kernel->l / args->inner - of.copied;
        return of;
}

static void copy(real *to, const real *from, int64_t columns)
{
        memcpy(to, from, (size_t)columns * sizeof *to);
}

/* Where pair i of what turns lies before it has turned: its first column, and from there to the second. */
static int64_t first_of(const struct latent *of, int64_t i)
{
        return of->interleaved ? 2 * i : i;
}

static int64_t second_of(const struct latent *of)
{
        return of->interleaved ? 1 : of->turned / 2;
}

/* Pairs of columns from `first` on. */
static void turn(const struct latent *of, const struct angles *a, int64_t first, real *restrict to,
                 const real *restrict from)
{
        const int64_t apart = second_of(of);
        real *restrict low = to + first, *restrict high = low + of->turned / 2;
        for (int64_t i = 0; i < a->count; i++) {
                const real *pair = from + first_of(of, first + i);
                const real x = of->length * pair[0], y = of->length * pair[apart];
                low[i] = x * a->cosine[i] - y * a->sine[i];
                high[i] = y * a->cosine[i] + x * a->sine[i];
        }
}

/* And back; by angles in the other direction. It writes to `to`, or adds to it. */
static void turn_back(const struct latent *of, const struct angles *a, int64_t first, real *restrict to,
                      const real *restrict from, bool add)
{
        const int64_t apart = second_of(of);
        const real *restrict low = from + first, *restrict high = low + of->turned / 2;
        for (int64_t i = 0; i < a->count; i++) {
                real *pair = to + first_of(of, first + i);
                const real x = of->length * (low[i] * a->cosine[i] - high[i] * a->sine[i]);
                const real y = of->length * (high[i] * a->cosine[i] + low[i] * a->sine[i]);
                pair[0] = add ? pair[0] + x : x;
                pair[apart] = add ? pair[apart] + y : y;
        }
}

/* What is copied of a row. */
static void copy_row(const struct latent *of, real *qkv, const real *q, const real *kv)
{
        const int64_t all = of->heads * of->width, zeros = of->width - of->values;
        for (int64_t h = 0; h < of->heads; h++, qkv += of->width, q += of->width) {
                real *value = qkv + 2 * all;
                copy(qkv, q, of->copied);
                copy(qkv + all, kv, of->copied);
                copy(value, kv + of->copied, of->values);
                memset(value + of->values, 0, (size_t)zeros * sizeof *value);
                kv += of->copied + of->values;
        }
}

static void copy_row_back(const struct latent *of, real *dq, real *dkv, const real *dqkv)
{
        const int64_t all = of->heads * of->width;
        for (int64_t h = 0; h < of->heads; h++, dqkv += of->width, dq += of->width) {
                copy(dq, dqkv, of->copied);
                copy(dkv, dqkv + all, of->copied);
                copy(dkv + of->copied, dqkv + 2 * all, of->values);
                dkv += of->copied + of->values;
        }
}

static void turn_row(const struct latent *of, const struct angles *a, int64_t first, real *qkv, const real *q,
                     const real *shared)
{
        real *query = qkv + of->copied, *key = query + of->heads * of->width;
        for (int64_t h = 0; h < of->heads; h++) {
                turn(of, a, first, query + h * of->width, q + h * of->width + of->copied);
                turn(of, a, first, key + h * of->width, shared);
        }
}

static void turn_row_back(const struct latent *of, const struct angles *a, int64_t first, real *dq,
                          real *dshared, const real *dqkv)
{
        const real *query = dqkv + of->copied, *key = query + of->heads * of->width;
        for (int64_t h = 0; h < of->heads; h++) {
                turn_back(of, a, first, dq + h * of->width + of->copied, query + h * of->width, false);
                turn_back(of, a, first, dshared, key + h * of->width, h > 0);
        }
}

void cpu_latent_qkv(const struct kernel *kernel, const struct kernel_args *args)
{
        const struct latent of = latent_of(kernel, args);
        const int64_t n = kernel->n, half = of.turned / 2;
        real *qkv = args->p[0];
        const real *q = args->p[1], *kv = args->p[2], *shared = args->p[3];
        struct angles angles;
        for (int64_t row = 0; row < kernel->m; row++)
                copy_row(&of, qkv + row * 3 * n, q + row * n, kv + row * kernel->l);
        for (int64_t first = 0; first < half; first += FREQUENCIES) {
                const int64_t left = half - first;
                angles_begin(&angles, args, 1, of.turned, first, left < FREQUENCIES ? left : FREQUENCIES);
                for (int64_t row = 0; row < kernel->m; row++) {
                        angles_at(&angles, cpu_position(args, args->ld[1] + row));
                        turn_row(&of, &angles, first, qkv + row * 3 * n, q + row * n,
                                 shared + row * of.turned);
                }
        }
}

void cpu_latent_qkv_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        const struct latent of = latent_of(kernel, args);
        const int64_t n = kernel->n, half = of.turned / 2;
        real *dq = args->p[0], *dkv = args->p[1], *dshared = args->p[2];
        const real *dqkv = args->p[3];
        struct angles angles;
        for (int64_t row = 0; row < kernel->m; row++)
                copy_row_back(&of, dq + row * n, dkv + row * kernel->l, dqkv + row * 3 * n);
        for (int64_t first = 0; first < half; first += FREQUENCIES) {
                const int64_t left = half - first;
                angles_begin(&angles, args, -1, of.turned, first, left < FREQUENCIES ? left : FREQUENCIES);
                for (int64_t row = 0; row < kernel->m; row++) {
                        angles_at(&angles, cpu_position(args, args->ld[1] + row));
                        turn_row_back(&of, &angles, first, dq + row * n, dshared + row * of.turned,
                                      dqkv + row * 3 * n);
                }
        }
}
