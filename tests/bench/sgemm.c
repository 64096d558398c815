/* The rate of matrix products on this machine: every product of a training step (models/workload.h), and
 * together as often as the step has them. On several threads each is done both ways, by one call of BLAS with
 * threads of its own and by a call of one thread for each share of the rows; the faster counts. A product of
 * experts is a product for each of them, of an even share of the rows and its own matrix; a share of its rows
 * is then of all experts' rows, so that threads have experts of their own. Prints JSON.
 *
 *     sgemm MODEL MICRO_BATCH SEQ_LEN THREADS
 *
 * A product's seconds are the least of its repetitions, so that the rate is a limit rather than an average.
 */
#include "models/workload.h"

#include "runtime/base/minmax.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEAT = 5, MAX_THREADS = 256 };
static const double SECONDS_ENOUGH = 0.5; /* of a product that is slow; it runs four times at least */

static double now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A product of weights: attention's are many and small, and count in the flops alone. */
static bool is_product(const struct kernel *kernel)
{
        return kernel_descriptor(kernel->kind)->products > 0 && kernel->batch == 1;
}

/* The products that it consists of, and the rows that they write together. */
static int64_t experts_of(const struct kernel *kernel)
{
        return max_int64(kernel->experts, 1);
}

static bool of_gradients(const struct kernel *kernel)
{
        return kernel->kind == KERNEL_GROUPED_MATMUL_BACKWARD;
}

static int64_t rows_of(const struct kernel *kernel)
{
        return of_gradients(kernel) ? experts_of(kernel) * kernel->m : kernel->m;
}

static double product_flops(const struct kernel *kernel)
{
        return 2 * (double)kernel->m * (double)kernel->n * (double)kernel->k;
}

/* Not zero, not constant, and touched. */
static float *numbers(int64_t count)
{
        float *x = malloc((size_t)count * sizeof *x);
        if (!x) {
                fprintf(stderr, "sgemm: no memory for a matrix of %lld elements\n", (long long)count);
                exit(1);
        }
        uint32_t state = 1;
        for (int64_t i = 0; i < count; i++) {
                state = state * 1664525U + 1013904223U;
                x[i] = (float)(state >> 8) / (float)(1 << 24) - 0.5F;
        }
        return x;
}

struct operands {
        float *a, *b, *c;
};

/* Rows [first, end) of all that are written. */
struct share {
        const struct kernel *of;
        const struct operands *x;
        int64_t first, end;
};

static void *multiply(void *argument)
{
        const struct share *share = argument;
        const struct kernel *of = share->of;
        const int64_t experts = experts_of(of), rows = rows_of(of), m = of->m, n = of->n;
        const bool gradients = of_gradients(of);
        for (int64_t e = 0; e < experts; e++) {
                const int64_t first = max_int64(share->first, rows * e / experts);
                const int64_t end = min_int64(share->end, rows * (e + 1) / experts);
                if (first >= end)
                        continue;
                /* Of gradients the rows of tokens are inside the product, [from, from + k); else experts have
                 * matrices of their own. */
                const int64_t from = gradients ? of->k * e / experts : 0;
                const int64_t k = gradients ? of->k * (e + 1) / experts - from : of->k;
                const float *a = share->x->a + (gradients         ? from * m + first - m * e
                                                : of->transpose_a ? first
                                                                  : first * k);
                const float *b = share->x->b + (gradients ? from * n : e * k * n);
                cblas_sgemm(CblasRowMajor, of->transpose_a ? CblasTrans : CblasNoTrans,
                            of->transpose_b ? CblasTrans : CblasNoTrans, (int)(end - first), (int)n, (int)k,
                            1, a, (int)(of->transpose_a ? m : k), b, (int)(of->transpose_b ? k : n),
                            of->accumulate ? 1 : 0, share->x->c + first * n, (int)n);
        }
        return NULL;
}

static void multiply_in_shares(const struct kernel *of, const struct operands *x, int threads)
{
        struct share share[MAX_THREADS] = {{0}};
        pthread_t thread[MAX_THREADS];
        for (int i = 0; i < threads; i++)
                share[i] = (struct share){of, x, rows_of(of) * i / threads, rows_of(of) * (i + 1) / threads};
        for (int i = 1; i < threads; i++)
                if (pthread_create(&thread[i], NULL, multiply, &share[i]))
                        abort();
        multiply(&share[0]);
        for (int i = 1; i < threads; i++)
                pthread_join(thread[i], NULL);
}

static double min_seconds(const struct kernel *kernel, const struct operands *x, int threads)
{
        double min = 1e30, spent = 0;
        struct share whole = {kernel, x, 0, rows_of(kernel)};
        for (int i = 0; i < 2 * REPEAT && (i < 4 || spent < SECONDS_ENOUGH); i++) {
                const bool shares = threads > 1 && i % 2;
                openblas_set_num_threads(shares ? 1 : threads);
                const double start = now();
                if (shares)
                        multiply_in_shares(kernel, x, threads);
                else
                        multiply(&whole);
                const double seconds = now() - start;
                min = seconds < min ? seconds : min;
                spent += seconds;
        }
        return min;
}

/* How often each product runs: the first of equal ones has the count, the others 0. */
static void count_products(const struct kernel *kernels, int *times, int count)
{
        for (int i = 0; i < count; i++) {
                int first = 0;
                while (first < i && !kernel_same(&kernels[first], &kernels[i]))
                        first++;
                times[first] += is_product(&kernels[i]);
        }
}

static struct operands operands_for(const struct kernel *kernels, int count)
{
        int64_t a = 0, b = 0, c = 0;
        for (int i = 0; i < count; i++) {
                if (!is_product(&kernels[i]))
                        continue;
                a = max_int64(a, kernels[i].m * kernels[i].k);
                b = max_int64(b, (of_gradients(&kernels[i]) ? 1 : experts_of(&kernels[i])) * kernels[i].k *
                                         kernels[i].n);
                c = max_int64(c, rows_of(&kernels[i]) * kernels[i].n);
        }
        return (struct operands){numbers(a), numbers(b), numbers(c)};
}

static int measure(const struct gpt *gpt, int micro_batch_size, int seq_len, int threads)
{
        const struct work work = {
                .micro_batch_size = micro_batch_size, .seq_len = seq_len, .fused = true, .tp = 1};
        const struct stage stage = partition_stage(gpt, 1, 0);
        const int forward = workload_forward(gpt, &stage, &work, false, NULL);
        const int count = forward + workload_backward(gpt, &stage, &work, NULL);
        struct kernel *kernels = calloc((size_t)count, sizeof *kernels);
        int *times = calloc((size_t)count, sizeof *times);
        if (!kernels || !times)
                return 1;
        workload_forward(gpt, &stage, &work, false, kernels);
        workload_backward(gpt, &stage, &work, kernels + forward);
        count_products(kernels, times, count);
        const struct operands x = operands_for(kernels, count);
        double flops = 0, seconds = 0;
        for (int i = 0; i < count; i++) {
                if (times[i] == 0)
                        continue;
                flops += times[i] * product_flops(&kernels[i]);
                seconds += times[i] * min_seconds(&kernels[i], &x, threads);
        }
        printf("{\"flops_per_second\": %.6g, \"product_flops\": %.9g, \"threads\": %d, \"blas\": \"%s\"}\n",
               flops / seconds, flops, threads, openblas_get_config());
        free(x.a);
        free(x.b);
        free(x.c);
        free(kernels);
        free(times);
        return 0;
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {0};
        struct gpt gpt;
        if (argc != 5) {
                fprintf(stderr, "usage: sgemm MODEL MICRO_BATCH SEQ_LEN THREADS\n");
                return 2;
        }
        if (gpt_load(&gpt, argv[1], &err)) {
                fprintf(stderr, "sgemm: %s\n", err.sentence);
                return 2;
        }
        const int micro_batch_size = atoi(argv[2]), seq_len = atoi(argv[3]), threads = atoi(argv[4]);
        if (micro_batch_size < 1 || seq_len < 1 || threads < 1 || threads > MAX_THREADS) {
                fprintf(stderr, "sgemm: MICRO_BATCH, SEQ_LEN and THREADS are 1 or more, threads %d at most\n",
                        MAX_THREADS);
                return 2;
        }
        return measure(&gpt, micro_batch_size, seq_len, threads);
}
