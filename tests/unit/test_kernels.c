/* Every kernel of the CPU device against a plain reference in double arithmetic, on random data and odd
 * shapes. Outputs that a kernel writes begin as NaN. Bounds count the rounded operations: u is one rounding,
 * a sum of n terms adds up to n u times the sum of their sizes, the exponential brings 2 u and its argument's
 * error. */
#include "runtime/device/cpu_math.h"
#include "runtime/device/kernels.h"
#include "tests/unit/numbers.h"

#include <string.h>

static const double u = FLT_EPSILON / 2.0;
static const uint64_t seed = 20240611;
#define FLUSHED exp(-87) /* smaller exponentials are zero */

struct shape {
        int64_t m, n;
};
static const struct shape shapes[] = {{1, 1},  {1, 7},  {7, 1},   {3, 17},   {5, 16},
                                      {4, 33}, {8, 64}, {13, 97}, {31, 101}, {6, 256}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int open_device(void **state)
{
        print_message("seed %llu\n", (unsigned long long)seed);
        struct rv_error_info err = {0};
        *state = device_cpu_open(1, &err);
        return *state ? 0 : -1;
}

static int close_device(void **state)
{
        struct device *device = *state;
        device->ops->close(device);
        return 0;
}

static void finish(struct device *device)
{
        device->ops->synchronize(device);
}

static void the_exponential_is_accurate_over_its_whole_range(void **state)
{
        (void)state;
        double worst = 0;
        for (double x = -87; x <= 88.3; x += 0.00037) {
                const float argument = (float)x;
                const double expected = exp((double)argument);
                worst = fmax(worst, fabs((double)real_exp(argument) - expected) / expected);
        }
        print_message("worst relative error %.3g\n", worst);
        assert_true(worst < 2 * u);
        assert_true(real_exp(0) == 1);
        assert_true(real_exp(-88) == 0 && real_exp(-INFINITY) == 0);
        assert_true(isfinite(real_exp(1e30F)));
        assert_true(isnan(real_exp(NAN)));
}

/* One product of a batch: row i, column j of c, and the bound of its error. */
static void check_product(const struct matmul *mm, const real *a, const real *b, const real *before,
                          const real *c, int64_t lda, int64_t ldb, int64_t ldc)
{
        for (int64_t i = 0; i < mm->m; i++) {
                for (int64_t j = 0; j < mm->n; j++) {
                        double sum = mm->accumulate ? (double)before[i * ldc + j] : 0, size = fabs(sum);
                        for (int64_t k = 0; k < mm->k; k++) {
                                const double x = (double)(mm->transpose_a ? a[k * lda + i] : a[i * lda + k]);
                                const double y = (double)(mm->transpose_b ? b[j * ldb + k] : b[k * ldb + j]);
                                sum += x * y;
                                size += fabs(x * y);
                        }
                        assert_within(c[i * ldc + j], sum, (double)(mm->k + 2) * u * size, "c", i * ldc + j);
                }
        }
}

/* A batch of 2 x 3 products whose matrices lie with gaps in larger buffers. */
static void check_batch(struct device *device, uint64_t *random, int variant, int64_t m, int64_t n, int64_t k)
{
        struct matmul mm = {.m = m,
                            .n = n,
                            .k = k,
                            .transpose_a = variant & 1,
                            .transpose_b = variant & 2,
                            .accumulate = variant & 4,
                            .outer = 2,
                            .inner = 3};
        mm.lda = (mm.transpose_a ? m : k) + 3;
        mm.ldb = (mm.transpose_b ? k : n) + 1;
        mm.ldc = n + 2;
        const int64_t a_each = (mm.transpose_a ? k : m) * mm.lda, b_each = (mm.transpose_b ? n : k) * mm.ldb;
        const int64_t c_each = m * mm.ldc;
        for (int i = 0; i < 2; i++) {
                mm.stride_a[i] = i == 0 ? 3 * a_each : a_each;
                mm.stride_b[i] = i == 0 ? b_each : 2 * b_each; /* the outer one varies faster here */
                mm.stride_c[i] = i == 0 ? 3 * c_each : c_each;
        }
        real *a = random_reals(random, 6 * a_each, 1), *b = random_reals(random, 6 * b_each, 1);
        real *c = mm.accumulate ? random_reals(random, 6 * c_each, 1) : poisoned_reals(6 * c_each);
        real *before = copied_reals(c, 6 * c_each);
        kernels_matmul(device, &mm, a, b, c);
        finish(device);
        for (int64_t i = 0; i < 6; i++) {
                const int64_t at_a = i * a_each, at_b = i / 3 * b_each + i % 3 * 2 * b_each,
                              at_c = i * c_each;
                check_product(&mm, a + at_a, b + at_b, before + at_c, c + at_c, mm.lda, mm.ldb, mm.ldc);
                for (int64_t row = 0; row < m; row++) /* the gap after a row is left alone */
                        assert_memory_equal(c + at_c + row * mm.ldc + n, before + at_c + row * mm.ldc + n,
                                            2 * sizeof *c);
        }
        free(a);
        free(b);
        free(c);
        free(before);
}

static void a_batch_of_strided_products_is_right_in_every_variant(void **state)
{
        uint64_t random = seed;
        const int64_t sizes[][3] = {{1, 1, 1}, {1, 5, 3}, {7, 1, 2}, {3, 4, 1}, {13, 11, 17}, {32, 8, 33}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int variant = 0; variant < 8; variant++)
                        check_batch(*state, &random, variant, sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void a_product_without_strides_is_dense_and_single(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int variant = 0; variant < 8; variant++) {
                const struct matmul mm = {.m = 19,
                                          .n = 23,
                                          .k = 29,
                                          .transpose_a = variant & 1,
                                          .transpose_b = variant & 2,
                                          .accumulate = variant & 4};
                real *a = random_reals(&random, 19 * 29, 1), *b = random_reals(&random, 23 * 29, 1);
                real *c = mm.accumulate ? random_reals(&random, 19 * 23, 1) : poisoned_reals(19 * 23);
                real *before = copied_reals(c, 19 * 23);
                kernels_matmul(device, &mm, a, b, c);
                finish(device);
                check_product(&mm, a, b, before, c, mm.transpose_a ? 19 : 29, mm.transpose_b ? 29 : 23, 23);
                free(a);
                free(b);
                free(c);
                free(before);
        }
}

static void embeddings_add_token_and_position(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        const int64_t sizes[][3] = {{1, 1, 1}, {2, 5, 7}, {3, 1, 16}, {2, 9, 33}}; /* B, T, C */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const int64_t B = sizes[s][0], T = sizes[s][1], C = sizes[s][2], V = 6, N = B * T;
                real *wte = random_reals(&random, V * C, 1), *wpe = random_reals(&random, T * C, 1);
                real *x = poisoned_reals(N * C);
                int32_t tokens[32];
                for (int64_t n = 0; n < N; n++)
                        tokens[n] = (int32_t)random_below(&random, V);
                kernels_embedding(device, x, tokens, wte, wpe, B, T, C);
                finish(device);
                for (int64_t i = 0; i < N * C; i++) {
                        const double expected =
                                (double)wte[tokens[i / C] * C + i % C] + (double)wpe[i / C % T * C + i % C];
                        assert_within(x[i], expected, u * fabs(expected), "x", i);
                }
                free(wte);
                free(wpe);
                free(x);
        }
}

static void embedding_gradients_add_up_where_a_token_occurs_twice(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        const int64_t sizes[][3] = {{1, 1, 1}, {2, 5, 7}, {3, 1, 16}, {2, 9, 33}}; /* B, T, C */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const int64_t B = sizes[s][0], T = sizes[s][1], C = sizes[s][2], V = 3, N = B * T;
                real *dx = random_reals(&random, N * C, 1);
                real *dwte = random_reals(&random, V * C, 1), *dwpe = random_reals(&random, T * C, 1);
                real *wte_before = copied_reals(dwte, V * C), *wpe_before = copied_reals(dwpe, T * C);
                int32_t tokens[32];
                for (int64_t n = 0; n < N; n++)
                        tokens[n] = (int32_t)random_below(&random, V);
                kernels_embedding_backward(device, dwte, dwpe, dx, tokens, B, T, C);
                finish(device);
                for (int64_t i = 0; i < V * C; i++) {
                        double sum = (double)wte_before[i], size = fabs(sum);
                        for (int64_t n = 0; n < N; n++)
                                if (tokens[n] == i / C) {
                                        sum += (double)dx[n * C + i % C];
                                        size += fabs((double)dx[n * C + i % C]);
                                }
                        assert_within(dwte[i], sum, (double)N * u * size, "dwte", i);
                }
                for (int64_t i = 0; i < T * C; i++) {
                        double sum = (double)wpe_before[i], size = fabs(sum);
                        for (int64_t n = i / C; n < N; n += T) {
                                sum += (double)dx[n * C + i % C];
                                size += fabs((double)dx[n * C + i % C]);
                        }
                        assert_within(dwpe[i], sum, (double)B * u * size, "dwpe", i);
                }
                free(dx);
                free(dwte);
                free(dwpe);
                free(wte_before);
                free(wpe_before);
        }
}

/* Mean, 1 / sqrt(variance + 1e-5) and the largest size of a row. */
struct row {
        double mean, rstd, most;
};
static struct row row_of(const real *x, int64_t C)
{
        double mean = 0, variance = 0, most = 0;
        for (int64_t c = 0; c < C; c++) {
                mean += (double)x[c] / (double)C;
                most = fmax(most, fabs((double)x[c]));
        }
        for (int64_t c = 0; c < C; c++)
                variance += ((double)x[c] - mean) * ((double)x[c] - mean) / (double)C;
        return (struct row){mean, 1 / sqrt(variance + 1e-5), most};
}

/* The mean is off by at most (C + 1) u most, so x - mean by one u more; rstd, a sum of C squares of that, by
 * about (C + 4) u relative and what the mean's error brings; the three products and the sum round once each.
 */
static void layernorm_normalises_rows(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t N = shapes[s].m, C = shapes[s].n;
                real *x = random_reals(&random, N * C, 2), *w = random_reals(&random, C, 1);
                real *b = random_reals(&random, C, 1), *y = poisoned_reals(N * C),
                     *stats = poisoned_reals(2 * N);
                kernels_layernorm(device, y, stats, x, w, b, N, C);
                finish(device);
                for (int64_t n = 0; n < N; n++) {
                        const struct row r = row_of(x + n * C, C);
                        const double mean_bound = (double)(C + 1) * u * r.most;
                        assert_within(stats[n], r.mean, mean_bound, "mean", n);
                        assert_within(stats[N + n], r.rstd,
                                      (double)(2 * C + 8) * u * r.rstd * (1 + r.rstd * r.most), "rstd", n);
                        for (int64_t c = 0; c < C; c++) {
                                const int64_t i = n * C + c;
                                const double h = ((double)x[i] - r.mean) * r.rstd, weight = (double)w[c];
                                const double size = fabs(weight) * (fabs(h) + 1) * (1 + r.rstd * r.most);
                                assert_within(y[i], h * weight + (double)b[c],
                                              (double)(2 * C + 8) * u * (size + fabs((double)b[c])), "y", i);
                        }
                }
                free(x);
                free(w);
                free(b);
                free(y);
                free(stats);
        }
}

struct layernorm_case {
        int64_t N, C;
        bool accumulate;
        real *x, *w, *dy, *stats, *dx, *dw, *db, *dx_before, *dw_before, *db_before;
};

static struct layernorm_case new_layernorm_case(uint64_t *random, int64_t N, int64_t C, bool accumulate)
{
        struct layernorm_case k = {.N = N, .C = C, .accumulate = accumulate};
        k.x = random_reals(random, N * C, 2);
        k.w = random_reals(random, C, 1);
        k.dy = random_reals(random, N * C, 1);
        k.stats = new_reals(2 * N);
        for (int64_t n = 0; n < N; n++) {
                const struct row r = row_of(k.x + n * C, C);
                k.stats[n] = (real)r.mean;
                k.stats[N + n] = (real)r.rstd;
        }
        k.dx = accumulate ? random_reals(random, N * C, 1) : poisoned_reals(N * C);
        k.dw = random_reals(random, C, 1);
        k.db = random_reals(random, C, 1);
        k.dx_before = copied_reals(k.dx, N * C);
        k.dw_before = copied_reals(k.dw, C);
        k.db_before = copied_reals(k.db, C);
        return k;
}

static void free_layernorm_case(struct layernorm_case *k)
{
        real *all[] = {k->x,  k->w,  k->dy,        k->stats,     k->dx,
                       k->dw, k->db, k->dx_before, k->dw_before, k->db_before};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
}

static double normalised(const struct layernorm_case *k, int64_t i)
{
        const int64_t n = i / k->C;
        return ((double)k->x[i] - (double)k->stats[n]) * (double)k->stats[k->N + n];
}

/* dx = rstd (g - mean(g) - h mean(g h)): two sums of C terms, each of a few roundings. */
static void check_layernorm_dx(const struct layernorm_case *k, int64_t n)
{
        const int64_t C = k->C;
        double g_sum = 0, gh_sum = 0, g_size = 0, gh_size = 0;
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double g = (double)k->dy[i] * (double)k->w[i % C], h = normalised(k, i);
                g_sum += g / (double)C;
                gh_sum += g * h / (double)C;
                g_size += fabs(g) / (double)C;
                gh_size += fabs(g * h) / (double)C;
        }
        const double rstd = (double)k->stats[k->N + n], mean_size = fabs((double)k->stats[n]);
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double g = (double)k->dy[i] * (double)k->w[i % C], h = normalised(k, i);
                const double before = k->accumulate ? (double)k->dx_before[i] : 0;
                const double h_size = fabs(h) + mean_size * rstd;
                const double size = rstd * (fabs(g) + g_size + (h_size + 1) * gh_size + h_size * g_size);
                assert_within(k->dx[i], before + rstd * (g - g_sum - h * gh_sum),
                              (double)(C + 8) * u * (size + fabs(before)), "dx", i);
        }
}

static void check_layernorm_parameters(const struct layernorm_case *k)
{
        for (int64_t c = 0; c < k->C; c++) {
                double dw = (double)k->dw_before[c], db = (double)k->db_before[c], dw_size = fabs(dw),
                       db_size = fabs(db);
                for (int64_t i = c; i < k->N * k->C; i += k->C) {
                        const double dy = (double)k->dy[i], h = normalised(k, i),
                                     n_mean = (double)k->stats[i / k->C];
                        dw += dy * h;
                        db += dy;
                        dw_size += fabs(dy) * (fabs(h) + fabs(n_mean) * (double)k->stats[k->N + i / k->C]);
                        db_size += fabs(dy);
                }
                assert_within(k->dw[c], dw, (double)(k->N + 4) * u * dw_size, "dw", c);
                assert_within(k->db[c], db, (double)(k->N + 1) * u * db_size, "db", c);
        }
}

static void layernorm_backward_writes_or_adds_dx_and_adds_to_parameters(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < 2 * SHAPES; s++) {
                struct layernorm_case k =
                        new_layernorm_case(&random, shapes[s / 2].m, shapes[s / 2].n, s % 2 == 1);
                kernels_layernorm_backward(device, k.dx, k.dw, k.db, k.dy, k.x, k.stats, k.w, k.N, k.C,
                                           k.accumulate);
                finish(device);
                for (int64_t n = 0; n < k.N; n++)
                        check_layernorm_dx(&k, n);
                check_layernorm_parameters(&k);
                free_layernorm_case(&k);
        }
}

static void biases_are_added_to_every_row(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *y = random_reals(&random, m * n, 1), *b = random_reals(&random, n, 1);
                real *x = random_reals(&random, m * n, 1), *z = copied_reals(y, m * n),
                     *before = copied_reals(y, m * n);
                kernels_bias(device, y, b, m, n);
                kernels_bias_residual(device, z, b, x, m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const double biased = (double)before[i] + (double)b[i % n];
                        assert_within(y[i], biased, u * fabs(biased), "y", i);
                        assert_within(z[i], biased + (double)x[i], 2 * u * 3, "z",
                                      i); /* partial sums are under 3 */
                }
                free(y);
                free(b);
                free(x);
                free(z);
                free(before);
        }
}

static void bias_gradients_are_column_sums(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *dy = random_reals(&random, m * n, 1), *db = random_reals(&random, n, 1);
                real *before = copied_reals(db, n);
                kernels_bias_backward(device, db, dy, m, n);
                finish(device);
                for (int64_t j = 0; j < n; j++) {
                        double sum = (double)before[j], size = fabs(sum);
                        for (int64_t i = 0; i < m; i++) {
                                sum += (double)dy[i * n + j];
                                size += fabs((double)dy[i * n + j]);
                        }
                        assert_within(db[j], sum, (double)m * u * size, "db", j);
                }
                free(dy);
                free(db);
                free(before);
        }
}

/* Twice GELU's inner argument: 2 sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_argument(double x)
{
        return 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}
static double gelu(double x)
{
        return x * 0.5 * (1 + tanh(gelu_argument(x) / 2));
}
static double gelu_slope(double x)
{
        const double t = tanh(gelu_argument(x) / 2);
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

/* Small and large arguments, and ones far out where the logistic is 0 or 1. */
static real gelu_input(uint64_t *random, int64_t i)
{
        static const real special[] = {0, 30, -30, 1e4F, -1e4F, 1e-20F, -5, 5};
        return i % 11 == 3 ? special[i / 11 % 8] : (real)(4 * random_number(random));
}

/* The exponential's argument v has 5 roundings, so the logistic s is off by (5 |v| + 4) u relative, |v|
 * e^-|v| of which matters where s is near 1; the product with x rounds once. Below e^-87 the result may be 0.
 */
static void gelu_is_right_for_small_and_huge_arguments(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *h = new_reals(m * n), *b = random_reals(&random, n, 1), *g = poisoned_reals(m * n);
                for (int64_t i = 0; i < m * n; i++)
                        h[i] = gelu_input(&random, i);
                real *before = copied_reals(h, m * n);
                kernels_bias_gelu(device, g, h, b, m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const double sum = (double)before[i] + (double)b[i % n];
                        assert_within(h[i], sum, u * fabs(sum), "h", i);
                        const double x = (double)h[i], v = fabs(gelu_argument(x)),
                                     slow = x < 0 ? v : v * exp(-v);
                        assert_within(g[i], gelu(x),
                                      (5 * slow + 8) * u * fabs(x) / (x < 0 ? 1 + exp(v) : 1) + 1e-33, "g",
                                      i);
                }
                free(h);
                free(b);
                free(g);
                free(before);
        }
}

static void gelu_backward_is_its_slope(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *h = new_reals(m * n), *dh = random_reals(&random, m * n, 1);
                for (int64_t i = 0; i < m * n; i++)
                        h[i] = gelu_input(&random, i);
                real *dg = copied_reals(dh, m * n);
                kernels_gelu_backward(device, dh, h, m, n);
                finish(device);
                for (int64_t i = 0; i < m * n;
                     i++) { /* |x| s (1 - s) (2u)' and |v| of its factor are under 4 */
                        const double expected = (double)dg[i] * gelu_slope((double)h[i]);
                        assert_within(dh[i], expected, 40 * u * fabs((double)dg[i]), "dh", i);
                }
                free(h);
                free(dh);
                free(dg);
        }
}

/* Row t of a causal softmax in double; the exponent's bound for its error. */
static void softmax_row(const real *s, int64_t t, double scale, double *p, double *exponent)
{
        double most = -INFINITY, sum = 0, size = 0;
        for (int64_t j = 0; j <= t; j++)
                most = fmax(most, scale * (double)s[j]);
        for (int64_t j = 0; j <= t; j++) {
                p[j] = exp(scale * (double)s[j] - most);
                sum += p[j];
                size = fmax(size, fabs(scale * (double)s[j]));
        }
        for (int64_t j = 0; j <= t; j++)
                p[j] /= sum;
        *exponent = size;
}

/* An exponent scale s - max is off by 4 u times the largest scale |s| (scale, two products, a difference);
 * numerator and sum both. Columns after the diagonal hold NaN before and 0 after. */
static void check_softmax(struct device *device, uint64_t *random, int64_t batch, int64_t T, double size)
{
        const double scale = 0.37;
        real *s = random_reals(random, batch * T * T, size);
        for (int64_t i = 0; i < batch * T * T; i++)
                if (i % T > i / T % T)
                        s[i] = (real)NAN;
        real *before = copied_reals(s, batch * T * T);
        double *p = malloc((size_t)T * sizeof *p), exponent;
        assert_non_null(p);
        kernels_softmax(device, s, batch, T, scale);
        finish(device);
        for (int64_t row = 0; row < batch * T; row++) {
                const int64_t t = row % T;
                softmax_row(before + row * T, t, scale, p, &exponent);
                for (int64_t j = 0; j < T; j++)
                        if (j <= t)
                                assert_within(s[row * T + j], p[j],
                                              (8 * exponent + (double)t + 8) * u * p[j] + FLUSHED, "p",
                                              row * T + j);
                        else
                                assert_true(s[row * T + j] == 0);
        }
        free(s);
        free(before);
        free(p);
}

static void softmax_is_causal_and_survives_large_scores(void **state)
{
        uint64_t random = seed;
        const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 64, 67};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check_softmax(*state, &random, 3, sizes[i], 5);
                check_softmax(*state, &random, 2, sizes[i], 1e4);
        }
}

static void check_softmax_backward(struct device *device, uint64_t *random, int64_t batch, int64_t T)
{
        const double scale = 0.37;
        real *p = random_reals(random, batch * T * T, 1), *dp = random_reals(random, batch * T * T, 1);
        for (int64_t i = 0; i < batch * T * T; i++)
                if (i % T > i / T % T) {
                        p[i] = 0;
                        dp[i] = (real)NAN;
                }
        real *before = copied_reals(dp, batch * T * T);
        kernels_softmax_backward(device, dp, p, batch, T, scale);
        finish(device);
        for (int64_t row = 0; row < batch * T; row++) {
                const real *x = before + row * T, *y = p + row * T;
                const int64_t t = row % T;
                double sum = 0, size = 0;
                for (int64_t j = 0; j <= t; j++) {
                        sum += (double)x[j] * (double)y[j];
                        size += fabs((double)x[j] * (double)y[j]);
                }
                for (int64_t j = 0; j < T; j++) {
                        const double expected = j <= t ? scale * (double)y[j] * ((double)x[j] - sum) : 0;
                        const double bound = scale * fabs((double)y[j]) * (fabs((double)x[j]) + size);
                        assert_within(dp[row * T + j], expected, j <= t ? (double)(t + 6) * u * bound : 0,
                                      "ds", row * T + j);
                }
        }
        free(p);
        free(dp);
        free(before);
}

static void softmax_backward_is_right_and_zero_after_the_diagonal(void **state)
{
        uint64_t random = seed;
        const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 64, 67};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check_softmax_backward(*state, &random, 3, sizes[i]);
}

/* Softmax of a row of logits in double; returns log(sum e^x). */
static double logits_row(const real *x, int64_t V, double *p)
{
        double most = -INFINITY, sum = 0;
        for (int64_t v = 0; v < V; v++)
                most = fmax(most, (double)x[v]);
        for (int64_t v = 0; v < V; v++)
                sum += p[v] = exp((double)x[v] - most);
        for (int64_t v = 0; v < V; v++)
                p[v] /= sum;
        return most + log(fmax(sum, 1)); /* the largest term is 1 */
}

/* A difference x - max rounds once; the sum of V exponentials adds V u, as relative error of p and absolute
 * of the logarithm. */
static void check_cross_entropy(struct device *device, uint64_t *random, int64_t N, int64_t V, double size)
{
        const double scale = 0.125;
        real *raw = random_reals(random, N * V, size), *x = copied_reals(raw, N * V),
             *y = copied_reals(raw, N * V);
        int32_t targets[32];
        for (int64_t n = 0; n < N; n++)
                targets[n] = (int32_t)random_below(random, V);
        double loss = 3, loss_alone = 3, expected = 3, *p = malloc((size_t)V * sizeof *p);
        assert_non_null(p);
        kernels_cross_entropy(device, &loss, x, targets, N, V, scale, false);
        kernels_cross_entropy(device, &loss_alone, y, targets, N, V, scale, true);
        finish(device);
        const double relative = (2 * size + (double)V + 8) * u;
        for (int64_t n = 0; n < N; n++) {
                expected += logits_row(raw + n * V, V, p) - (double)raw[n * V + targets[n]];
                for (int64_t v = 0; v < V; v++) {
                        const double slope = scale * (p[v] - (v == targets[n]));
                        assert_within(x[n * V + v], slope,
                                      relative * scale * p[v] + u * fabs(slope) + FLUSHED, "dlogits",
                                      n * V + v);
                }
        }
        assert_within(loss, expected, (double)N * relative, "loss", 0);
        assert_within(loss_alone, expected, (double)N * relative, "loss alone", 0);
        assert_memory_equal(y, raw, (size_t)(N * V) * sizeof *y); /* raw logits stay */
        free(raw);
        free(x);
        free(y);
        free(p);
}

static void cross_entropy_adds_the_loss_and_leaves_its_gradient(void **state)
{
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                check_cross_entropy(*state, &random, shapes[s].m, shapes[s].n, 5);
                check_cross_entropy(*state, &random, shapes[s].m, shapes[s].n, 1e4);
        }
}

static void the_squared_norm_is_summed_in_double(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int64_t n = 1; n < 100000; n = 3 * n + 2) {
                real *x = random_reals(&random, n, 1);
                double expected = 0, sum = NAN, added = 5;
                for (int64_t i = 0; i < n; i++)
                        expected += (double)x[i] * (double)x[i];
                kernels_squared_norm(device, &sum, x, n, false);
                kernels_squared_norm(device, &added, x, n, true);
                finish(device);
                assert_within(sum, expected, (double)n * DBL_EPSILON * expected, "sum", n);
                assert_within(added, expected + 5, (double)n * DBL_EPSILON * (expected + 5), "sum", n);
                free(x);
        }
}

/* One AdamW step on elements [offset, offset + n) of flat buffers with three ranges, decayed or not. The
 * moments round 3 times, the quotient about 8 times relative, the decayed parameter twice. */
static void check_adamw(struct device *device, uint64_t *random, int64_t offset, int64_t n, int64_t step)
{
        enum { TOTAL = 300 };
        const struct adamw_range ranges[] = {{37, 1}, {150, 0}, {TOTAL, 1}};
        const struct adamw a = {
                .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = step};
        const double factor = 0.3;
        real *p = random_reals(random, TOTAL, 1), *g = random_reals(random, TOTAL, 1);
        real *m = random_reals(random, TOTAL, 1), *v = random_reals(random, TOTAL, 1);
        for (int i = 0; i < TOTAL; i++)
                v[i] = (real)fabs((double)v[i]);
        real *p0 = copied_reals(p, TOTAL), *g0 = copied_reals(g, TOTAL), *m0 = copied_reals(m, TOTAL),
             *v0 = copied_reals(v, TOTAL);
        kernels_adamw(device, p + offset, g + offset, m + offset, v + offset, ranges, &factor, offset, n, &a);
        finish(device);
        for (int64_t i = 0; i < TOTAL; i++) {
                if (i < offset || i >= offset + n) {
                        assert_true(p[i] == p0[i] && g[i] == g0[i] && m[i] == m0[i] && v[i] == v0[i]);
                        continue;
                }
                const double gradient = factor * (double)g0[i];
                const double first = a.beta1 * (double)m0[i] + (1 - a.beta1) * gradient;
                const double second = a.beta2 * (double)v0[i] + (1 - a.beta2) * gradient * gradient;
                const double root = sqrt(second / (1 - pow(a.beta2, (double)step))) + a.epsilon;
                const double rate = a.lr / (1 - pow(a.beta1, (double)step));
                const double kept = (double)p0[i] * (i < 37 || i >= 150 ? 1 - a.lr * a.weight_decay : 1);
                const double first_size = fabs((double)m0[i]) + fabs(gradient);
                assert_within(m[i], first, 4 * u * first_size, "m", i);
                assert_within(v[i], second, 5 * u * second, "v", i);
                assert_within(p[i], kept - rate * first / root,
                              3 * u * fabs(kept) + 16 * u * rate * first_size / root, "p", i);
                assert_true(g[i] == 0);
        }
        real *all[] = {p, g, m, v, p0, g0, m0, v0};
        for (int i = 0; i < 8; i++)
                free(all[i]);
}

static void adamw_decays_by_ranges_and_leaves_gradients_zero(void **state)
{
        uint64_t random = seed;
        const int64_t buckets[][2] = {{0, 300}, {0, 1}, {36, 2}, {37, 113}, {140, 40}, {299, 1}, {151, 149}};
        for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++)
                for (int64_t step = 1; step < 100; step += 33)
                        check_adamw(*state, &random, buckets[i][0], buckets[i][1], step);
}

static void a_nan_stays_visible(void **state)
{
        struct device *device = *state;
        for (int at = 0; at < 19; at++) {
                real h[19] = {0}, b[19] = {0}, g[19], s[19 * 19] = {0}, x[19] = {0};
                const int32_t target = 4;
                double loss = 0, norm = 0;
                h[at] = x[at] = (real)NAN;
                s[18 * 19 + at] = (real)NAN;
                kernels_bias_gelu(device, g, h, b, 1, 19);
                kernels_softmax(device, s, 1, 19, 1);
                kernels_squared_norm(device, &norm, x, 19, false);
                kernels_cross_entropy(device, &loss, x, &target, 1, 19, 1, false);
                finish(device);
                assert_true(isnan(g[at]) && isnan(s[18 * 19]) && isnan(norm) && isnan(loss));
                assert_true(g[(at + 1) % 19] == 0);
                assert_true(s[17 * 19] > 0);
        }
}

static void the_same_input_gives_the_same_bits(void **state)
{
        struct device *device = *state;
        enum { N = 67, C = 131 };
        real *results[2];
        for (int run = 0; run < 2; run++) {
                uint64_t random = seed;
                real *x = random_reals(&random, N * C, 1), *w = random_reals(&random, C * C, 1);
                real *y = results[run] = poisoned_reals(3 * N * C);
                real stats[2 * N], zeros[2 * C] = {0};
                kernels_matmul(device, &(struct matmul){.m = N, .n = C, .k = C, .transpose_b = true}, x, w,
                               y);
                kernels_layernorm(device, y + N * C, stats, y, w, w + C, N, C);
                kernels_layernorm_backward(device, y + 2 * N * C, zeros, zeros + C, x, y, stats, w, N, C,
                                           false);
                kernels_bias_gelu(device, y, y + N * C, w, N, C);
                finish(device);
                free(x);
                free(w);
        }
        assert_memory_equal(results[0], results[1], 3 * N * C * sizeof(real));
        free(results[0]);
        free(results[1]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_exponential_is_accurate_over_its_whole_range),
                cmocka_unit_test(a_batch_of_strided_products_is_right_in_every_variant),
                cmocka_unit_test(a_product_without_strides_is_dense_and_single),
                cmocka_unit_test(embeddings_add_token_and_position),
                cmocka_unit_test(embedding_gradients_add_up_where_a_token_occurs_twice),
                cmocka_unit_test(layernorm_normalises_rows),
                cmocka_unit_test(layernorm_backward_writes_or_adds_dx_and_adds_to_parameters),
                cmocka_unit_test(biases_are_added_to_every_row),
                cmocka_unit_test(bias_gradients_are_column_sums),
                cmocka_unit_test(gelu_is_right_for_small_and_huge_arguments),
                cmocka_unit_test(gelu_backward_is_its_slope),
                cmocka_unit_test(softmax_is_causal_and_survives_large_scores),
                cmocka_unit_test(softmax_backward_is_right_and_zero_after_the_diagonal),
                cmocka_unit_test(cross_entropy_adds_the_loss_and_leaves_its_gradient),
                cmocka_unit_test(the_squared_norm_is_summed_in_double),
                cmocka_unit_test(adamw_decays_by_ranges_and_leaves_gradients_zero),
                cmocka_unit_test(a_nan_stays_visible),
                cmocka_unit_test(the_same_input_gives_the_same_bits),
        };
        return cmocka_run_group_tests(tests, open_device, close_device);
}
