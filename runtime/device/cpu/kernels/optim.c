/* The optimizer's kernels: squared norm of the gradients, AdamW, and gradients cleared. */
#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/device/cpu/kernels/math.h"
#include "runtime/device/kernels.h"

#include <assert.h>
#include <string.h>

void cpu_squared_norm(const struct kernel *kernel, const struct kernel_args *args)
{
        double *sum = args->p[0];
        const real *restrict x = args->p[1];
        const int64_t n = kernel->m;
        double lane[LANES_IN_SUM] = {0};
        int64_t i = 0;
        for (; i + LANES_IN_SUM <= n; i += LANES_IN_SUM)
                for (int j = 0; j < LANES_IN_SUM; j++)
                        lane[j] += (double)x[i + j] * (double)x[i + j];
        for (int j = 0; i + j < n; j++)
                lane[j] += (double)x[i + j] * (double)x[i + j];
        double total = 0;
        for (int j = 0; j < LANES_IN_SUM; j++)
                total += lane[j];
        *sum = kernel->accumulate ? *sum + total : total;
}

void cpu_clear(const struct kernel *kernel, const struct kernel_args *args)
{
        memset(args->p[0], 0, (size_t)kernel->m * sizeof(real));
}

/* AdamW's numbers for one step, in the type of the parameters. */
struct update {
        real gradient_scale, beta1, beta2, rest1, rest2; /* rest = 1 - beta */
        real rate;                                       /* lr / (1 - beta1^step) */
        real root_correction;                            /* 1 / sqrt(1 - beta2^step) */
        enum dtype dtype;                                /* of the weights */
        bool clear;                                      /* gradients of 16-bit weights are left zero */
        real epsilon, shrink; /* shrink: 1 - lr weight_decay, where a range is decayed */
};

static struct update step_of(const struct kernel *kernel, const struct kernel_args *args)
{
        const double lr = args->scalar[0], beta1 = args->scalar[1], beta2 = args->scalar[2];
        const double step = args->scalar[5];
        const double *gradient_scale = args->p[5];
        return (struct update){.gradient_scale = gradient_scale ? (real)*gradient_scale : 1,
                               .beta1 = (real)beta1,
                               .beta2 = (real)beta2,
                               .rest1 = (real)(1 - beta1),
                               .rest2 = (real)(1 - beta2),
                               .rate = (real)(lr / (1 - pow(beta1, step))),
                               .root_correction = (real)(1 / sqrt(1 - pow(beta2, step))),
                               .epsilon = (real)args->scalar[3],
                               .dtype = kernel->dtype,
                               .clear = kernel->wide,
                               .shrink = (real)(1 - lr * args->scalar[4])};
}

/* `clear`: leaves the gradients zero. */
static inline void update(real *restrict p, real *restrict g, real *restrict m, real *restrict v, int64_t n,
                          const struct update *s, real shrink, bool clear)
{
        const struct update k = *s; /* a local copy: the stores below cannot touch it */
        for (int64_t i = 0; i < n; i++) {
                const real gradient = g[i] * k.gradient_scale;
                const real first = k.beta1 * m[i] + k.rest1 * gradient;
                const real second = k.beta2 * v[i] + k.rest2 * gradient * gradient;
                m[i] = first;
                v[i] = second;
#ifdef RANVIER_DOUBLE
                const real root = sqrt(second);
#else
                const real root = sqrtf(second);
#endif
                p[i] = p[i] * shrink - k.rate * first / (root * k.root_correction + k.epsilon);
                if (clear)
                        g[i] = 0;
        }
}

static void update_real(real *const array[4], void *weights, int64_t at, int64_t n, const struct update *step,
                        real shrink)
{
        (void)weights;
        update(array[0] + at, array[1] + at, array[2] + at, array[3] + at, n, step, shrink, true);
}

/* In pieces, whose new parameters are still in the first-level cache when they are rounded. */
static void update_half(real *const array[4], void *weights, int64_t at, int64_t n, const struct update *step,
                        real shrink)
{
        enum { PIECE = 1024 };
        uint16_t *stored = weights;
        for (const int64_t end = at + n; at < end; at += PIECE) {
                const int64_t count = end - at < PIECE ? end - at : PIECE;
                update(array[0] + at, array[1] + at, array[2] + at, array[3] + at, count, step, shrink,
                       step->clear);
                reals_to(step->dtype, stored + at, array[0] + at, count);
        }
}

typedef void update_fn(real *const array[4], void *weights, int64_t at, int64_t n, const struct update *step,
                       real shrink);

/* Calls `update_range` for each range's part of [offset, offset + m). */
static void for_ranges(const struct kernel *kernel, const struct kernel_args *args, update_fn *update_range)
{
        real *const array[4] = {args->p[0], args->p[1], args->p[2], args->p[3]};
        const struct adamw_range *range = args->p[4];
        const int64_t offset = args->ld[0], end = offset + kernel->m;
        const struct update step = step_of(kernel, args);
        for (int64_t at = offset; at < end; range++) {
                const int64_t stop = range->end < end ? range->end : end;
                if (stop <= at)
                        continue;
                update_range(array, args->p[6], at - offset, stop - at, &step,
                             range->decay ? step.shrink : 1);
                at = stop;
        }
}

void cpu_adamw(const struct kernel *kernel, const struct kernel_args *args)
{
        for_ranges(kernel, args, update_real);
}

void cpu_mixed_adamw(const struct kernel *kernel, const struct kernel_args *args)
{
        for_ranges(kernel, args, update_half);
}
