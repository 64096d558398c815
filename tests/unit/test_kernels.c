/* Every kernel of the CPU device against a plain reference in double arithmetic, on random data and odd
 * shapes. Outputs that a kernel writes begin as NaN. Bounds count the rounded operations: u is one rounding,
 * a sum of n terms adds up to n u times the sum of their sizes, the exponential brings 2 u and its argument's
 * error. Every test runs with tensors of reals, of fp16 and of bf16; elements of the latter two are rounded
 * once more as they are stored; and with each variant of the kernels that this processor runs. */
#include "runtime/device/cpu/kernels/math.h"
#include "tests/unit/launches.h"
#include "tests/unit/tensors.h"

#include <string.h>

struct shape {
        int64_t m, n;
};
static const struct shape shapes[] = {{1, 1},  {1, 7},   {7, 1},    {3, 17},  {5, 16},  {4, 33},
                                      {8, 64}, {13, 97}, {31, 101}, {6, 256}, {2, 513}, {131, 513}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

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
static void check_product(const struct device *device, const struct matmul *mm, const real *a, const real *b,
                          const real *before, const real *c, int64_t lda, int64_t ldb, int64_t ldc)
{
        const int64_t a_row = mm->transpose_a ? 1 : lda, a_column = mm->transpose_a ? lda : 1,
                      b_row = mm->transpose_b ? 1 : ldb, b_column = mm->transpose_b ? ldb : 1;
        for (int64_t i = 0; i < mm->m; i++) {
                for (int64_t j = 0; j < mm->n; j++) {
                        const real *x = a + i * a_row, *y = b + j * b_column;
                        double sum = mm->accumulate ? (double)before[i * ldc + j] : 0, size = fabs(sum);
                        for (int64_t k = 0; k < mm->k; k++, x += a_column, y += b_row) {
                                const double term = (double)*x * (double)*y;
                                sum += term;
                                size += fabs(term);
                        }
                        assert_stored(device, c[i * ldc + j], sum, (double)(mm->k + 2) * u * size, "c",
                                      i * ldc + j);
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
        real *a = random_tensor(device, random, 6 * a_each, 1),
             *b = random_tensor(device, random, 6 * b_each, 1);
        real *c = mm.accumulate ? random_tensor(device, random, 6 * c_each, 1) : poisoned_reals(6 * c_each);
        real *before = copied_reals(c, 6 * c_each);
        kernels_matmul(device, &mm, lend(device, a, 6 * a_each), lend(device, b, 6 * b_each),
                       lend(device, c, 6 * c_each));
        finish(device);
        for (int64_t i = 0; i < 6; i++) {
                const int64_t at_a = i * a_each, at_b = i / 3 * b_each + i % 3 * 2 * b_each,
                              at_c = i * c_each;
                check_product(device, &mm, a + at_a, b + at_b, before + at_c, c + at_c, mm.lda, mm.ldb,
                              mm.ldc);
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
        const int64_t sizes[][3] = {{1, 1, 1},    {1, 5, 3},   {7, 1, 2},   {3, 4, 1},
                                    {13, 11, 17}, {32, 8, 33}, {386, 2, 3}, {2, 770, 3},
                                    {3, 2, 770},  {1, 3, 1600}}; /* the last ones: longer than a tile of
                                                                    halves */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
                for (int variant = 0; variant < 8; variant++)
                        check_batch(*state, &random, variant, sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void check_dense(struct device *device, uint64_t *random, int variant, int64_t m, int64_t n, int64_t k)
{
        const struct matmul mm = {.m = m,
                                  .n = n,
                                  .k = k,
                                  .transpose_a = variant & 1,
                                  .transpose_b = variant & 2,
                                  .accumulate = variant & 4};
        real *a = random_tensor(device, random, m * k, 1), *b = random_tensor(device, random, n * k, 1);
        real *c = mm.accumulate ? random_tensor(device, random, m * n, 1) : poisoned_reals(m * n);
        real *before = copied_reals(c, m * n);
        kernels_matmul(device, &mm, lend(device, a, m * k), lend(device, b, n * k), lend(device, c, m * n));
        finish(device);
        check_product(device, &mm, a, b, before, c, mm.transpose_a ? m : k, mm.transpose_b ? k : n, n);
        free(a);
        free(b);
        free(c);
        free(before);
}

static void a_product_without_strides_is_dense_and_single(void **state)
{
        uint64_t random = seed;
        for (int variant = 0; variant < 8; variant++)
                check_dense(*state, &random, variant, 19, 23, 29);
        for (int variant = 0; variant < 8; variant += 7) /* several tiles of halves each way */
                check_dense(*state, &random, variant, 400, 780, 790);
}

static void embeddings_add_token_and_position(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        const int64_t sizes[][3] = {{1, 1, 1}, {2, 5, 7}, {3, 1, 16}, {2, 9, 33}, {1, 3, 513}}; /* B, T, C */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const int64_t B = sizes[s][0], T = sizes[s][1], C = sizes[s][2], V = 6, N = B * T;
                real *wte = random_tensor(device, &random, V * C, 1),
                     *wpe = random_tensor(device, &random, T * C, 1);
                real *x = poisoned_reals(N * C);
                int32_t tokens[32];
                for (int64_t n = 0; n < N; n++)
                        tokens[n] = (int32_t)random_below(&random, V);
                kernels_embedding(device, lend(device, x, N * C), tokens, lend(device, wte, V * C),
                                  lend(device, wpe, T * C), B, T, C);
                finish(device);
                for (int64_t i = 0; i < N * C; i++) {
                        const double expected =
                                (double)wte[tokens[i / C] * C + i % C] + (double)wpe[i / C % T * C + i % C];
                        assert_within(x[i], expected, unit(device) * fabs(expected), "x", i);
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
        const int64_t sizes[][3] = {{1, 1, 1}, {2, 5, 7}, {3, 1, 16}, {2, 9, 33}, {1, 3, 513}}; /* B, T, C */
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const int64_t B = sizes[s][0], T = sizes[s][1], C = sizes[s][2], V = 3, N = B * T;
                real *dx = random_tensor(device, &random, N * C, 1);
                real *dwte = random_tensor(device, &random, V * C, 1),
                     *dwpe = random_tensor(device, &random, T * C, 1);
                real *wte_before = copied_reals(dwte, V * C), *wpe_before = copied_reals(dwpe, T * C);
                int32_t tokens[32];
                for (int64_t n = 0; n < N; n++)
                        tokens[n] = (int32_t)random_below(&random, V);
                kernels_embedding_backward(device, lend(device, dwte, V * C), lend(device, dwpe, T * C),
                                           lend(device, dx, N * C), tokens, B, T, C);
                finish(device);
                for (int64_t i = 0; i < V * C; i++) {
                        double sum = (double)wte_before[i], size = fabs(sum);
                        for (int64_t n = 0; n < N; n++)
                                if (tokens[n] == i / C) {
                                        sum += (double)dx[n * C + i % C];
                                        size += fabs((double)dx[n * C + i % C]);
                                }
                        assert_within(dwte[i], sum, (double)N * unit(device) * size, "dwte", i);
                }
                for (int64_t i = 0; i < T * C; i++) {
                        double sum = (double)wpe_before[i], size = fabs(sum);
                        for (int64_t n = i / C; n < N; n += T) {
                                sum += (double)dx[n * C + i % C];
                                size += fabs((double)dx[n * C + i % C]);
                        }
                        assert_within(dwpe[i], sum, (double)B * unit(device) * size, "dwpe", i);
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
        double mean, rstd, max;
};
static struct row row_of(const real *x, int64_t C)
{
        double mean = 0, variance = 0, max = 0;
        for (int64_t c = 0; c < C; c++) {
                mean += (double)x[c] / (double)C;
                max = fmax(max, fabs((double)x[c]));
        }
        for (int64_t c = 0; c < C; c++)
                variance += ((double)x[c] - mean) * ((double)x[c] - mean) / (double)C;
        return (struct row){mean, 1 / sqrt(variance + 1e-5), max};
}

/* The mean is off by at most (C + 1) u most, so x - mean by one u more; rstd, a sum of C squares of that, by
 * about (C + 4) u relative and what the mean's error brings; the three products and the sum round once each.
 */
static void layernorm_normalises_rows(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < 2 * SHAPES; s++) {
                const int64_t N = shapes[s / 2].m, C = shapes[s / 2].n, more = s % 2;
                real *x = random_tensor(device, &random, N * C, 2), *w = random_tensor(device, &random, C, 1);
                real *b = random_tensor(device, &random, C, 1), *y = poisoned_reals(N * C),
                     *stats = poisoned_reals(2 * N);
                kernels_layernorm(device, lend(device, y, N * C), stats, lend(device, x, N * C),
                                  lend(device, w, C), lend(device, b, C), (double)more, N, C);
                finish(device);
                for (int64_t n = 0; n < N; n++) {
                        const struct row r = row_of(x + n * C, C);
                        const double mean_bound = (double)(C + 1) * u * r.max;
                        assert_within(stats[n], r.mean, mean_bound, "mean", n);
                        assert_within(stats[N + n], r.rstd,
                                      (double)(2 * C + 8) * u * r.rstd * (1 + r.rstd * r.max), "rstd", n);
                        for (int64_t c = 0; c < C; c++) {
                                const int64_t i = n * C + c;
                                const double h = ((double)x[i] - r.mean) * r.rstd,
                                             weight = (double)w[c] + (double)more;
                                const double size = fabs(weight) * (fabs(h) + 1) * (1 + r.rstd * r.max);
                                assert_stored(device, y[i], h * weight + (double)b[c],
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
        double more; /* added to w */
        real *x, *w, *dy, *stats, *dx, *dw, *db, *dx_before, *dw_before, *db_before;
};

static struct layernorm_case new_layernorm_case(struct device *device, uint64_t *random, int64_t N, int64_t C,
                                                bool accumulate, double more)
{
        struct layernorm_case k = {.N = N, .C = C, .accumulate = accumulate, .more = more};
        k.x = random_tensor(device, random, N * C, 2);
        k.w = random_tensor(device, random, C, 1);
        k.dy = random_tensor(device, random, N * C, 1);
        k.stats = new_reals(2 * N);
        for (int64_t n = 0; n < N; n++) {
                const struct row r = row_of(k.x + n * C, C);
                k.stats[n] = (real)r.mean;
                k.stats[N + n] = (real)r.rstd;
        }
        k.dx = accumulate ? random_tensor(device, random, N * C, 1) : poisoned_reals(N * C);
        k.dw = random_tensor(device, random, C, 1);
        k.db = random_tensor(device, random, C, 1);
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
static void check_layernorm_dx(const struct device *device, const struct layernorm_case *k, int64_t n)
{
        const int64_t C = k->C;
        double g_sum = 0, gh_sum = 0, g_size = 0, gh_size = 0;
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double g = (double)k->dy[i] * ((double)k->w[i % C] + k->more), h = normalised(k, i);
                g_sum += g / (double)C;
                gh_sum += g * h / (double)C;
                g_size += fabs(g) / (double)C;
                gh_size += fabs(g * h) / (double)C;
        }
        const double rstd = (double)k->stats[k->N + n], mean_size = fabs((double)k->stats[n]);
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double g = (double)k->dy[i] * ((double)k->w[i % C] + k->more), h = normalised(k, i);
                const double before = k->accumulate ? (double)k->dx_before[i] : 0;
                const double h_size = fabs(h) + mean_size * rstd;
                const double size = rstd * (fabs(g) + g_size + (h_size + 1) * gh_size + h_size * g_size);
                assert_stored(device, k->dx[i], before + rstd * (g - g_sum - h * gh_sum),
                              (double)(C + 8) * u * (size + fabs(before)), "dx", i);
        }
}

static void check_layernorm_parameters(const struct device *device, const struct layernorm_case *k)
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
                assert_stored(device, k->dw[c], dw, (double)(k->N + 4) * u * dw_size, "dw", c);
                assert_stored(device, k->db[c], db, (double)(k->N + 1) * u * db_size, "db", c);
        }
}

static void layernorm_backward_writes_or_adds_dx_and_adds_to_parameters(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < 4 * SHAPES; s++) {
                struct layernorm_case k = new_layernorm_case(device, &random, shapes[s / 4].m,
                                                             shapes[s / 4].n, s % 2 == 1, s / 2 % 2);
                kernels_layernorm_backward(device, lend(device, k.dx, k.N * k.C), lend(device, k.dw, k.C),
                                           lend(device, k.db, k.C), lend(device, k.dy, k.N * k.C),
                                           lend(device, k.x, k.N * k.C), k.stats, lend(device, k.w, k.C),
                                           k.more, k.N, k.C, k.accumulate);
                finish(device);
                for (int64_t n = 0; n < k.N; n++)
                        check_layernorm_dx(device, &k, n);
                check_layernorm_parameters(device, &k);
                free_layernorm_case(&k);
        }
}

static const double rms_epsilon = 1e-6;

static double rms_rstd(const real *x, int64_t C)
{
        double squares = 0;
        for (int64_t c = 0; c < C; c++)
                squares += (double)x[c] * (double)x[c];
        return 1 / sqrt(squares / (double)C + rms_epsilon);
}

/* rstd has a sum of C positive terms, half of whose relative error it keeps; two products follow. */
static void rmsnorm_scales_rows(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t N = shapes[s].m, C = shapes[s].n;
                real *x = random_tensor(device, &random, N * C, 2), *w = random_tensor(device, &random, C, 1);
                real *y = poisoned_reals(N * C), *rstd = poisoned_reals(N);
                kernels_rmsnorm(device, lend(device, y, N * C), rstd, lend(device, x, N * C),
                                lend(device, w, C), N, C, rms_epsilon);
                finish(device);
                const double relative = (0.5 * (double)C + 5) * u;
                for (int64_t n = 0; n < N; n++)
                        assert_within(rstd[n], rms_rstd(x + n * C, C), relative * (double)rstd[n], "rstd", n);
                for (int64_t i = 0; i < N * C; i++) {
                        const double expected = (double)x[i] * rms_rstd(x + i / C * C, C) * (double)w[i % C];
                        assert_stored(device, y[i], expected, relative * fabs(expected), "y", i);
                }
                free(x);
                free(w);
                free(y);
                free(rstd);
        }
}

struct rmsnorm_case {
        int64_t N, C;
        real *x, *w, *dy, *rstd, *dx, *dw, *dx_before, *dw_before;
};

static struct rmsnorm_case new_rmsnorm_case(struct device *device, uint64_t *random, int64_t N, int64_t C,
                                            bool accumulate)
{
        struct rmsnorm_case k = {.N = N, .C = C};
        k.x = random_tensor(device, random, N * C, 2);
        k.w = random_tensor(device, random, C, 1);
        k.dy = random_tensor(device, random, N * C, 1);
        k.rstd = new_reals(N);
        for (int64_t n = 0; n < N; n++)
                k.rstd[n] = (real)rms_rstd(k.x + n * C, C);
        k.dx = accumulate ? random_tensor(device, random, N * C, 1) : poisoned_reals(N * C);
        k.dw = random_tensor(device, random, C, 1);
        k.dx_before = copied_reals(k.dx, N * C);
        k.dw_before = copied_reals(k.dw, C);
        return k;
}

static void free_rmsnorm_case(struct rmsnorm_case *k)
{
        real *all[] = {k->x, k->w, k->dy, k->rstd, k->dx, k->dw, k->dx_before, k->dw_before};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
}

/* dx = rstd (g - h mean(g h)): a sum of C terms, each of a few roundings. */
static void check_rmsnorm_dx(const struct device *device, const struct rmsnorm_case *k, int64_t n,
                             bool accumulate)
{
        const int64_t C = k->C;
        const double rstd = (double)k->rstd[n];
        double gh_mean = 0, gh_size = 0;
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double gh = (double)k->dy[i] * (double)k->w[i % C] * (double)k->x[i] * rstd;
                gh_mean += gh / (double)C;
                gh_size += fabs(gh) / (double)C;
        }
        for (int64_t i = n * C; i < (n + 1) * C; i++) {
                const double g = (double)k->dy[i] * (double)k->w[i % C], h = (double)k->x[i] * rstd;
                const double before = accumulate ? (double)k->dx_before[i] : 0;
                const double size = rstd * (fabs(g) + fabs(h) * gh_size) + fabs(before);
                assert_stored(device, k->dx[i], before + rstd * (g - h * gh_mean), (double)(C + 8) * u * size,
                              "dx", i);
        }
}

static void check_rmsnorm_dw(const struct device *device, const struct rmsnorm_case *k)
{
        for (int64_t c = 0; c < k->C; c++) {
                double dw = (double)k->dw_before[c], size = fabs(dw);
                for (int64_t i = c; i < k->N * k->C; i += k->C) {
                        const double term = (double)k->dy[i] * (double)k->x[i] * (double)k->rstd[i / k->C];
                        dw += term;
                        size += fabs(term);
                }
                assert_stored(device, k->dw[c], dw, (double)(k->N + 4) * u * size, "dw", c);
        }
}

static void rmsnorm_backward_writes_or_adds_dx_and_adds_to_its_weight(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < 2 * SHAPES; s++) {
                const int64_t N = shapes[s / 2].m, C = shapes[s / 2].n;
                const bool accumulate = s % 2 == 1;
                struct rmsnorm_case k = new_rmsnorm_case(device, &random, N, C, accumulate);
                kernels_rmsnorm_backward(device, lend(device, k.dx, N * C), lend(device, k.dw, C),
                                         lend(device, k.dy, N * C), lend(device, k.x, N * C), k.rstd,
                                         lend(device, k.w, C), N, C, accumulate);
                finish(device);
                for (int64_t n = 0; n < N; n++)
                        check_rmsnorm_dx(device, &k, n, accumulate);
                check_rmsnorm_dw(device, &k);
                free_rmsnorm_case(&k);
        }
}

/* Of position t, with the angle in double; columns that are not rotated stay as they are. An fp32 sine is off
 * by 2 u at most; two products and a sum follow. */
static void check_rope(struct device *device, const struct rope *rope, int64_t B, int64_t T,
                       const real *before, const real *x)
{
        const int64_t turned = rope->turned ? rope->turned : rope->head_size, half = turned / 2;
        for (int64_t at = 0; at < B * T * rope->columns; at++) {
                const int64_t t = at / rope->columns % T, column = at % rope->columns;
                const int64_t i = column % rope->head_size;
                if (column >= rope->rotated || i >= turned) {
                        assert_true(x[at] == before[at]);
                        continue;
                }
                const double f = pow(rope->theta, -2 * (double)(i % half) / (double)turned);
                const double slow =
                        rope->scaling[1] * f + rope->scaling[2] * (double)(i % half) + rope->scaling[3];
                const double angle = (double)t * f * (1 - rope->scaling[0] * fmin(1, fmax(0, slow)));
                const double sine = (i < half) == rope->inverse ? sin(angle) : -sin(angle);
                const double with = (double)before[i < half ? at + half : at - half];
                const double expected = (double)before[at] * cos(angle) + with * sine;
                assert_stored(device, x[at], expected, 4 * u * (fabs((double)before[at]) + fabs(with)), "x",
                              at);
        }
}

static void rope_rotates_heads_by_their_position(void **state)
{
        static const struct {
                int64_t B, T;
                struct rope rope;
        } cases[] = {{1, 1, {2, 2, 2, 10000, false, {0}, 0, {0}}},
                     {3, 5, {12, 8, 4, 10000, false, {0}, 0, {0}}},
                     {2, 33, {97, 72, 24, 500000, false, {0}, 0, {0}}},
                     {2, 131, {192, 128, 64, 500000, true, {0}, 0, {0}}},
                     {1, 1300, {20, 16, 16, 500000, false, {0}, 0, {0}}},
                     {2, 3, {1040, 1036, 518, 10000, true, {0}, 0, {0}}},
                     {1, 40, {30, 24, 8, 10000, false, {0.75, 0, 0, 1}, 0, {0}}},
                     {1, 70, {64, 48, 16, 500000, true, {0.875, -2.1, 0, 1.33}, 0, {0}}},
                     {2, 50, {64, 64, 32, 10000, false, {0.75, 0, 0.25, -0.5}, 0, {0}}},
                     {2, 50, {96, 64, 32, 10000, false, {0}, 16, {0}}},
                     {1, 70, {44, 33, 11, 10000, true, {0.875, -2.1, 0, 1.33}, 6, {0}}},
                     {2, 5, {1560, 1040, 520, 10000, false, {0}, 260, {0}}}};
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                const int64_t B = cases[c].B, T = cases[c].T, count = B * T * cases[c].rope.columns;
                real *x = random_tensor(device, &random, count, 1), *before = copied_reals(x, count);
                kernels_rope(device, &cases[c].rope, lend(device, x, count), B, T);
                finish(device);
                check_rope(device, &cases[c].rope, B, T, before, x);
                free(x);
                free(before);
        }
}

/* To positions of 262,144, of which the fastest column turns by as many radians. */
static void rope_is_accurate_at_far_positions(void **state)
{
        enum { T = 262144, HEAD = 6 };
        const struct rope rope = {HEAD, HEAD, HEAD, 500000, false, {0}, 0, {0}};
        struct device *device = *state;
        uint64_t random = seed;
        real *x = random_tensor(device, &random, T * HEAD, 1), *before = copied_reals(x, T * HEAD);
        kernels_rope(device, &rope, lend(device, x, T * HEAD), 1, T);
        finish(device);
        check_rope(device, &rope, 1, T, before, x);
        free(x);
        free(before);
}

/* Of element `at` of rows of n + k columns, that of the n first ones, or of the k others. */
static const real *part_of_row(const real *first, const real *last, int64_t n, int64_t k, int64_t at)
{
        const int64_t row = at / (n + k), column = at % (n + k);
        return column < n ? &first[row * n + column] : &last[row * k + column - n];
}

static void last_columns_are_taken_and_put_back(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n, k = n + 3;
                real *x = random_tensor(device, &random, m * k, 1), *y = poisoned_reals(m * n),
                     *to = random_tensor(device, &random, m * k, 1), *before = poisoned_reals(m * k);
                memcpy(before, to, (size_t)(m * k) * sizeof *to);
                void *between = lend(device, y, m * n);
                kernels_last_columns(device, between, lend(device, x, m * k), m, n, k);
                kernels_set_last_columns(device, lend(device, to, m * k), between, m, n, k);
                finish(device);
                for (int64_t i = 0; i < m * k; i++)
                        assert_true(i % k < 3 ? to[i] == before[i]
                                              : to[i] == x[i] && y[i / k * n + i % k - 3] == x[i]);
                real *tensors[] = {x, y, to, before};
                for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
                        free(tensors[i]);
        }
}

static void columns_are_split_and_joined_narrowed_and_widened(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        static const int64_t others[] = {1, 3, 64};
        for (int s = 0; s < 3 * SHAPES; s++) {
                const int64_t m = shapes[s / 3].m, n = shapes[s / 3].n, k = others[s % 3], all = m * (n + k);
                real *x = random_tensor(device, &random, all, 1), *a = poisoned_reals(m * n),
                     *b = poisoned_reals(m * k), *back = poisoned_reals(all),
                     *narrowed = poisoned_reals(m * n), *widened = poisoned_reals(all),
                     *zeros = calloc((size_t)(m * k), sizeof *zeros);
                kernels_split_columns(device, lend(device, a, m * n), lend(device, b, m * k),
                                      lend(device, x, all), m, n, k);
                kernels_narrow(device, lend(device, narrowed, m * n), lend(device, x, all), m, n, n + k);
                finish(device);
                kernels_join_columns(device, lend(device, back, all), lend(device, a, m * n),
                                     lend(device, b, m * k), m, n, k);
                kernels_widen(device, lend(device, widened, all), lend(device, a, m * n), m, n, n + k);
                finish(device);
                for (int64_t i = 0; i < all; i++) {
                        assert_true(*part_of_row(a, b, n, k, i) == x[i] && back[i] == x[i]);
                        assert_true(widened[i] == *part_of_row(a, zeros, n, k, i));
                }
                assert_memory_equal(narrowed, a, (size_t)(m * n) * sizeof *a);
                real *tensors[] = {x, a, b, back, narrowed, widened, zeros};
                for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
                        free(tensors[i]);
        }
}

/* Multi-head latent attention's: what is given, what is made of it, and gradients. */
struct latent_case {
        const struct latent *of;
        int64_t B, T, width, l; /* columns of a head of queries, and of what its key and value are made of */
        real *q, *kv, *shared, *qkv, *dqkv, *dq, *dkv, *dshared;
};

/* The angle, in double, by which pair i of token t is turned. */
static double latent_angle(const struct latent_case *k, int64_t t, int64_t i)
{
        const struct latent *of = k->of;
        const double f = pow(of->theta, -2 * (double)i / (double)of->rotated);
        const double slow = of->scaling[1] * f + of->scaling[2] * (double)i + of->scaling[3];
        return (double)t * f * (1 - of->scaling[0] * fmin(1, fmax(0, slow)));
}

/* The rotated columns of a head of queries or keys, and the gradients that these leave: a pair of `from` is
 * turned to a pair of `to`; `back` are the sums of the gradients of `from`, and of their sizes. */
static void check_turned(const struct device *device, const struct latent_case *k, int64_t t,
                         const real *from, const real *to, const real *dto, double (*back)[2])
{
        const struct latent *of = k->of;
        const int64_t half = of->rotated / 2;
        for (int64_t i = 0; i < half; i++) {
                const int64_t one = of->interleaved ? 2 * i : i,
                              other = of->interleaved ? 2 * i + 1 : i + half;
                const double c = of->length * cos(latent_angle(k, t, i)),
                             s = of->length * sin(latent_angle(k, t, i));
                const double x = (double)from[one], y = (double)from[other], dx = (double)dto[i],
                             dy = (double)dto[i + half];
                const double size = of->length * (fabs(x) + fabs(y)),
                             dsize = of->length * (fabs(dx) + fabs(dy));
                assert_stored(device, to[i], x * c - y * s, 6 * u * size, "turned", i);
                assert_stored(device, to[i + half], y * c + x * s, 6 * u * size, "turned", i + half);
                back[one][0] += dx * c + dy * s;
                back[other][0] += dy * c - dx * s;
                back[one][1] += dsize;
                back[other][1] += dsize;
        }
}

static void check_latent_row(const struct device *device, const struct latent_case *k, int64_t row)
{
        const struct latent *of = k->of;
        const int64_t H = of->heads, n = H * k->width, turned = of->rotated;
        double shared[64][2] = {{0}};
        for (int64_t h = 0; h < H; h++) {
                const int64_t q = row * n + h * k->width, kv = (row * H + h) * k->l;
                const real *query = k->qkv + row * 3 * n + h * k->width, *key = query + n, *value = key + n;
                const real *dquery = k->dqkv + (query - k->qkv), *dkey = dquery + n, *dvalue = dkey + n;
                double own[64][2] = {{0}};
                for (int64_t i = 0; i < of->copied; i++) {
                        assert_true(query[i] == k->q[q + i] && k->dq[q + i] == dquery[i]);
                        assert_true(key[i] == k->kv[kv + i] && k->dkv[kv + i] == dkey[i]);
                }
                for (int64_t i = 0; i < k->width; i++) {
                        assert_true(value[i] == (i < of->values ? k->kv[kv + of->copied + i] : 0));
                        assert_true(i >= of->values || k->dkv[kv + of->copied + i] == dvalue[i]);
                }
                check_turned(device, k, row % k->T, k->q + q + of->copied, query + of->copied,
                             dquery + of->copied, own);
                check_turned(device, k, row % k->T, k->shared + row * turned, key + of->copied,
                             dkey + of->copied, shared);
                for (int64_t i = 0; i < turned; i++)
                        assert_stored(device, k->dq[q + of->copied + i], own[i][0], 6 * u * own[i][1], "dq",
                                      i);
        }
        for (int64_t i = 0; i < turned; i++)
                assert_stored(device, k->dshared[row * turned + i], shared[i][0],
                              (double)(H + 6) * u * shared[i][1], "dshared", i);
}

static void queries_keys_and_values_are_made_of_latent_rows_and_go_back(void **state)
{
        static const struct {
                int64_t B, T;
                struct latent of;
        } cases[] = {{1, 1, {1, 1, 2, 1, false, 1, 10000, {0}, {0}}},
                     {2, 5, {3, 6, 4, 10, true, 1, 10000, {0}, {0}}},
                     {2, 37, {4, 16, 8, 16, true, 1.2, 500, {0.75, 0, 0.25, -0.5}, {0}}},
                     {1, 70, {2, 5, 64, 7, false, 0.9, 500000, {0.875, -2.1, 0, 1.33}, {0}}}};
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                const struct latent *of = &cases[c].of;
                struct latent_case k = {.of = of,
                                        .B = cases[c].B,
                                        .T = cases[c].T,
                                        .width = of->copied + of->rotated,
                                        .l = of->copied + of->values};
                const int64_t N = k.B * k.T, n = N * of->heads * k.width, l = N * of->heads * k.l,
                              shared = N * of->rotated;
                k.q = random_tensor(device, &random, n, 1);
                k.kv = random_tensor(device, &random, l, 1);
                k.shared = random_tensor(device, &random, shared, 1);
                k.dqkv = random_tensor(device, &random, 3 * n, 1);
                k.qkv = poisoned_reals(3 * n);
                k.dq = poisoned_reals(n);
                k.dkv = poisoned_reals(l);
                k.dshared = poisoned_reals(shared);
                kernels_latent_qkv(device, of, lend(device, k.qkv, 3 * n), lend(device, k.q, n),
                                   lend(device, k.kv, l), lend(device, k.shared, shared), k.B, k.T);
                finish(device);
                kernels_latent_qkv_backward(device, of, lend(device, k.dq, n), lend(device, k.dkv, l),
                                            lend(device, k.dshared, shared), lend(device, k.dqkv, 3 * n), k.B,
                                            k.T);
                finish(device);
                for (int64_t row = 0; row < N; row++)
                        check_latent_row(device, &k, row);
                real *all[] = {k.q, k.kv, k.shared, k.qkv, k.dqkv, k.dq, k.dkv, k.dshared};
                for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                        free(all[i]);
        }
}

/* Rows of `heads` heads of queries, `kv` of keys and `kv` of values, and what is computed of them. */
struct head_case {
        int64_t N, heads, kv, hs, n;
        real *x, *w, *y, *rstd, *dy, *dx, *dw, *dw_before;
};

/* The weight of a head; NULL: it is one of values. */
static const real *head_weight(const struct head_case *k, int64_t head)
{
        return head < k->heads ? k->w : head < k->heads + k->kv ? k->w + k->hs : NULL;
}

static void check_head(const struct device *device, const struct head_case *k, int64_t at, int64_t head,
                       double *dw, double *dw_size)
{
        const real *w = head_weight(k, head), *x = k->x + at, *dy = k->dy + at;
        const double relative = (0.5 * (double)k->hs + 5) * u, rstd = rms_rstd(x, k->hs);
        double mean = 0, size = 0;
        for (int64_t i = 0; i < k->hs && w; i++) {
                const double gh = (double)dy[i] * (double)w[i] * (double)x[i] * rstd;
                mean += gh / (double)k->hs;
                size += fabs(gh) / (double)k->hs;
        }
        for (int64_t i = 0; i < k->hs; i++) {
                if (!w) {
                        assert_true(k->y[at + i] == x[i] && k->dx[at + i] == dy[i]);
                        continue;
                }
                const double h = (double)x[i] * rstd, g = (double)dy[i] * (double)w[i];
                assert_stored(device, k->y[at + i], h * (double)w[i], relative * fabs(h * (double)w[i]), "y",
                              i);
                assert_stored(device, k->dx[at + i], rstd * (g - h * mean),
                              2 * (double)(k->hs + 8) * u * rstd * (fabs(g) + fabs(h) * size), "dx", i);
                dw[(w - k->w) + i] += (double)dy[i] * h;
                dw_size[(w - k->w) + i] += fabs((double)dy[i] * h);
        }
}

static void norms_of_heads_scale_each_by_itself_and_go_back(void **state)
{
        static const int64_t shapes_of[][4] = {
                {1, 1, 1, 2}, {7, 3, 1, 6}, {33, 4, 2, 64}, {19, 8, 8, 20}, {70, 2, 1, 128}};
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t s = 0; s < sizeof shapes_of / sizeof *shapes_of; s++) {
                const int64_t N = shapes_of[s][0], H = shapes_of[s][1], KV = shapes_of[s][2],
                              hs = shapes_of[s][3];
                const int64_t heads = H + 2 * KV, n = heads * hs;
                struct head_case k = {.N = N, .heads = H, .kv = KV, .hs = hs, .n = n};
                k.x = random_tensor(device, &random, N * n, 2);
                k.w = random_tensor(device, &random, 2 * hs, 1);
                k.dy = random_tensor(device, &random, N * n, 1);
                k.dx = copied_reals(k.dy, N * n);
                k.dw = random_tensor(device, &random, 2 * hs, 1);
                k.dw_before = copied_reals(k.dw, 2 * hs);
                k.y = poisoned_reals(N * n);
                k.rstd = poisoned_reals(N * heads);
                kernels_head_rmsnorm(device, lend(device, k.y, N * n), k.rstd, lend(device, k.x, N * n),
                                     lend(device, k.w, 2 * hs), N, H, KV, hs, rms_epsilon);
                kernels_head_rmsnorm_backward(device, lend(device, k.dx, N * n), lend(device, k.dw, 2 * hs),
                                              lend(device, k.x, N * n), k.rstd, lend(device, k.w, 2 * hs), N,
                                              H, KV, hs);
                finish(device);
                double *dw = calloc(4 * (size_t)hs, sizeof *dw), *dw_size = dw + 2 * hs;
                for (int64_t i = 0; i < N * heads; i++)
                        check_head(device, &k, i * hs, i % heads, dw, dw_size);
                for (int64_t i = 0; i < 2 * hs; i++)
                        assert_stored(device, k.dw[i], (double)k.dw_before[i] + dw[i],
                                      ((double)(N * H + hs) + 8) * u *
                                              (dw_size[i] + fabs((double)k.dw_before[i])),
                                      "dw", i);
                real *all[] = {k.x, k.w, k.y, k.rstd, k.dy, k.dx, k.dw, k.dw_before};
                for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                        free(all[i]);
                free(dw);
        }
}

/* Small and large arguments, and ones far out where the logistic is 0 or 1. */
static real gelu_input(const struct device *device, uint64_t *random, int64_t i)
{
        static const real special[] = {0, 30, -30, 1e4F, -1e4F, 1e-20F, -5, 5};
        const real x = i % 11 == 3 ? special[i / 11 % 8] : (real)(4 * random_number(random));
        return rounded(device, x);
}

static double logistic(double x)
{
        return 1 / (1 + exp(-x));
}

/* The exponential's argument is exact, so that a logistic has the errors of an exponential, a sum and a
 * quotient. Below e^-87 the result may be 0. */
static void swiglu_multiplies_by_the_gate(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *gu = random_tensor(device, &random, m * 2 * n, 2), *y = poisoned_reals(m * n);
                for (int64_t i = 0; i < m * n; i++)
                        gu[i / n * 2 * n + i % n] = gelu_input(device, &random, i);
                kernels_swiglu(device, lend(device, y, m * n), lend(device, gu, m * 2 * n), m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const real *gate = gu + i / n * 2 * n + i % n;
                        const double expected = (double)gate[0] * logistic((double)gate[0]) * (double)gate[n];
                        assert_stored(device, y[i], expected, 8 * u * fabs(expected) + 1e-33, "y", i);
                }
                free(gu);
                free(y);
        }
}

/* A product of exact factors, rounded once; backward, once more. What is not a number stays so. */
static void squared_relu_is_the_square_of_what_is_above_zero(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *h = random_tensor(device, &random, m * n, 4), *y = poisoned_reals(m * n);
                real *dh = random_tensor(device, &random, m * n, 1), *dy = copied_reals(dh, m * n);
                h[0] = NAN;
                kernels_squared_relu(device, lend(device, y, m * n), lend(device, h, m * n), m, n);
                kernels_squared_relu_backward(device, lend(device, dh, m * n), lend(device, h, m * n), m, n);
                finish(device);
                assert_true(isnan(y[0]) && isnan(dh[0]));
                for (int64_t i = 1; i < m * n; i++) {
                        const double above = fmax((double)h[i], 0), slope = 2 * above * (double)dy[i];
                        assert_stored(device, y[i], above * above, u * above * above, "y", i);
                        assert_stored(device, dh[i], slope, 2 * u * fabs(slope), "dh", i);
                }
                free(h);
                free(y);
                free(dh);
                free(dy);
        }
}

static void swiglu_backward_is_its_slopes(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *gu = random_tensor(device, &random, m * 2 * n, 2), *dgu = poisoned_reals(m * 2 * n);
                real *dy = random_tensor(device, &random, m * n, 1);
                for (int64_t i = 0; i < m * n; i++)
                        gu[i / n * 2 * n + i % n] = gelu_input(device, &random, i);
                kernels_swiglu_backward(device, lend(device, dgu, m * 2 * n), lend(device, dy, m * n),
                                        lend(device, gu, m * 2 * n), m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const int64_t at = i / n * 2 * n + i % n;
                        const double g = (double)gu[at], up = (double)gu[at + n], d = (double)dy[i];
                        const double s_g = logistic(g), silu = g * s_g, rest = logistic(-g);
                        const double size = s_g + fabs(silu) * rest;
                        assert_stored(device, dgu[at], d * up * (s_g + silu * rest),
                                      20 * u * fabs(d * up) * size + 1e-33, "dgate", i);
                        assert_stored(device, dgu[at + n], d * silu, 8 * u * fabs(d * silu) + 1e-33, "dup",
                                      i);
                }
                free(gu);
                free(dgu);
                free(dy);
        }
}

static void the_residual_is_added(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t count = shapes[s].m * shapes[s].n;
                real *y = random_tensor(device, &random, count, 1),
                     *x = random_tensor(device, &random, count, 1);
                real *before = copied_reals(y, count);
                kernels_residual(device, lend(device, y, count), lend(device, x, count), shapes[s].m,
                                 shapes[s].n);
                finish(device);
                for (int64_t i = 0; i < count; i++) {
                        const double expected = (double)before[i] + (double)x[i];
                        assert_stored(device, y[i], expected, u * fabs(expected), "y", i);
                }
                free(y);
                free(x);
                free(before);
        }
}

static void biases_are_added_to_every_row(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *y = random_tensor(device, &random, m * n, 1), *b = random_tensor(device, &random, n, 1);
                real *x = random_tensor(device, &random, m * n, 1), *z = copied_reals(y, m * n),
                     *before = copied_reals(y, m * n);
                kernels_bias(device, lend(device, y, m * n), lend(device, b, n), m, n);
                kernels_bias_residual(device, lend(device, z, m * n), lend(device, b, n),
                                      lend(device, x, m * n), m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const double biased = (double)before[i] + (double)b[i % n];
                        assert_stored(device, y[i], biased, u * fabs(biased), "y", i);
                        assert_stored(device, z[i], biased + (double)x[i], 2 * u * 3, "z",
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
                real *dy = random_tensor(device, &random, m * n, 1),
                     *db = random_tensor(device, &random, n, 1);
                real *before = copied_reals(db, n);
                kernels_bias_backward(device, lend(device, db, n), lend(device, dy, m * n), m, n);
                finish(device);
                for (int64_t j = 0; j < n; j++) {
                        double sum = (double)before[j], size = fabs(sum);
                        for (int64_t i = 0; i < m; i++) {
                                sum += (double)dy[i * n + j];
                                size += fabs((double)dy[i * n + j]);
                        }
                        assert_stored(device, db[j], sum, (double)m * u * size, "db", j);
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

/* The bound of gelu(x) for an x that is off by `x_bound`, where the slope is under 1.2. The exponential's
 * argument v has 5 roundings, so the logistic s is off by (5 |v| + 4) u relative, |v| e^-|v| of which matters
 * where s is near 1; the product with x rounds once. Below e^-87 the result may be 0. */
static double gelu_bound(double x, double x_bound)
{
        const double v = fabs(gelu_argument(x)), slow = x < 0 ? v : v * exp(-v);
        return (5 * slow + 8) * u * fabs(x) / (x < 0 ? 1 + exp(v) : 1) + 1.2 * x_bound + 1e-33;
}

static void gelu_is_right_for_small_and_huge_arguments(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < SHAPES; s++) {
                const int64_t m = shapes[s].m, n = shapes[s].n;
                real *h = new_reals(m * n), *b = random_tensor(device, &random, n, 1),
                     *g = poisoned_reals(m * n);
                for (int64_t i = 0; i < m * n; i++)
                        h[i] = gelu_input(device, &random, i);
                real *before = copied_reals(h, m * n);
                kernels_bias_gelu(device, lend(device, g, m * n), lend(device, h, m * n), lend(device, b, n),
                                  m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const double sum = (double)before[i] + (double)b[i % n];
                        assert_stored(device, h[i], sum, u * fabs(sum), "h", i);
                        const double x = device->dtype ? sum : (double)h[i];
                        assert_stored(device, g[i], gelu(x),
                                      gelu_bound(x, device->dtype != DTYPE_FP32 ? u * fabs(sum) : 0), "g", i);
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
                real *h = new_reals(m * n), *dh = random_tensor(device, &random, m * n, 1);
                for (int64_t i = 0; i < m * n; i++)
                        h[i] = gelu_input(device, &random, i);
                real *dg = copied_reals(dh, m * n);
                kernels_gelu_backward(device, lend(device, dh, m * n), lend(device, h, m * n), m, n);
                finish(device);
                for (int64_t i = 0; i < m * n;
                     i++) { /* |x| s (1 - s) (2u)' and |v| of its factor are under 4 */
                        const double expected = (double)dg[i] * gelu_slope((double)h[i]);
                        assert_stored(device, dh[i], expected, 40 * u * fabs((double)dg[i]), "dh", i);
                }
                free(h);
                free(dh);
                free(dg);
        }
}

/* A fused product's operands and, in double, its sum without a bias and the sum of its terms' sizes. */
struct fused_case {
        int64_t m, n, k;
        real *x, *w, *b, *more, *out, *h;
};

static struct fused_case new_fused_case(const struct device *device, uint64_t *random, const int64_t size[3])
{
        struct fused_case c = {.m = size[0], .n = size[1], .k = size[2]};
        c.x = random_tensor(device, random, c.m * c.k, 1);
        c.w = random_tensor(device, random, c.n * c.k, 1);
        c.b = random_tensor(device, random, c.n, 1);
        c.more = random_tensor(device, random, c.m * c.n, 2);
        c.out = poisoned_reals(c.m * c.n);
        c.h = poisoned_reals(c.m * c.n);
        return c;
}

static void free_fused_case(struct fused_case *c)
{
        real *all[] = {c->x, c->w, c->b, c->more, c->out, c->h};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
}

static double fused_sum(const struct fused_case *c, int64_t at, bool transposed, double *size)
{
        const int64_t i = at / c->n, j = at % c->n;
        double sum = *size = 0;
        for (int64_t k = 0; k < c->k; k++) {
                const double term = (double)c->x[i * c->k + k] *
                                    (double)(transposed ? c->w[j * c->k + k] : c->w[k * c->n + j]);
                sum += term;
                *size += fabs(term);
        }
        return sum;
}

/* The last ones: several tiles of 16 bits in each direction. */
static const int64_t fused_sizes[][3] = {{1, 1, 1},    {1, 5, 3},   {7, 1, 2},   {3, 17, 1},   {13, 11, 33},
                                         {32, 64, 16}, {386, 3, 5}, {2, 770, 3}, {3, 2, 1600}, {390, 773, 7}};
enum { FUSED_SIZES = sizeof fused_sizes / sizeof *fused_sizes };

static void products_end_with_bias_and_residual(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < FUSED_SIZES; s++) {
                struct fused_case c = new_fused_case(device, &random, fused_sizes[s]);
                const int64_t m = c.m, n = c.n, k = c.k;
                void *x = lend(device, c.x, m * k), *w = lend(device, c.w, n * k), *b = lend(device, c.b, n);
                kernels_matmul_bias(device, lend(device, c.h, m * n), x, w, b, m, n, k);
                kernels_matmul_bias_residual(device, lend(device, c.out, m * n), x, w, b,
                                             lend(device, c.more, m * n), m, n, k);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        double size;
                        const double y = fused_sum(&c, i, true, &size) + (double)c.b[i % n];
                        size += fabs((double)c.b[i % n]);
                        assert_stored(device, c.h[i], y, (double)(k + 3) * u * size, "y", i);
                        assert_stored(device, c.out[i], y + (double)c.more[i],
                                      (double)(k + 4) * u * (size + fabs((double)c.more[i])), "y + r", i);
                }
                free_fused_case(&c);
        }
}

/* The sum as without LayerNorm; and LayerNorm, to the bit, of what was stored of it. */
static void check_products_with_layernorm(struct device *device)
{
        uint64_t random = seed;
        for (int s = 0; s < FUSED_SIZES; s++) {
                struct fused_case c = new_fused_case(device, &random, fused_sizes[s]);
                const int64_t m = c.m, n = c.n, k = c.k;
                real *ln_w = random_tensor(device, &random, n, 1),
                     *ln_b = random_tensor(device, &random, n, 1);
                real *stats = poisoned_reals(2 * m), *expected = poisoned_reals(m * n),
                     *expected_stats = poisoned_reals(2 * m);
                kernels_matmul_bias_residual_layernorm(
                        device, lend(device, c.out, m * n), lend(device, c.h, m * n), stats,
                        lend(device, c.x, m * k), lend(device, c.w, n * k), lend(device, c.b, n),
                        lend(device, c.more, m * n), lend(device, ln_w, n), lend(device, ln_b, n), m, n, k);
                finish(device);
                kernels_layernorm(device, lend(device, expected, m * n), expected_stats,
                                  lend(device, c.out, m * n), lend(device, ln_w, n), lend(device, ln_b, n), 0,
                                  m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        double size;
                        const double y = fused_sum(&c, i, true, &size) + (double)c.b[i % n];
                        size += fabs((double)c.b[i % n]) + fabs((double)c.more[i]);
                        assert_stored(device, c.out[i], y + (double)c.more[i], (double)(k + 4) * u * size,
                                      "y + r", i);
                }
                assert_memory_equal(c.h, expected, (size_t)(m * n) * sizeof *expected);
                assert_memory_equal(stats, expected_stats, (size_t)(2 * m) * sizeof *stats);
                real *mine[] = {ln_w, ln_b, stats, expected, expected_stats};
                for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
                        free(mine[i]);
                free_fused_case(&c);
        }
}

static void products_end_with_layernorm(void **state)
{
        check_products_with_layernorm(*state);
}

static void products_with_layernorm_are_split_over_threads_by_rows(void **state)
{
        struct rv_error_info err;
        struct device *device = device_cpu_open(3, &err);
        assert_non_null(device);
        device->dtype = ((struct device *)*state)->dtype;
        check_products_with_layernorm(device);
        device->ops->close(device);
}

static void products_end_with_gelu(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < FUSED_SIZES; s++) {
                struct fused_case c = new_fused_case(device, &random, fused_sizes[s]);
                const int64_t m = c.m, n = c.n, k = c.k;
                kernels_matmul_bias_gelu(device, lend(device, c.out, m * n), lend(device, c.h, m * n),
                                         lend(device, c.x, m * k), lend(device, c.w, n * k),
                                         lend(device, c.b, n), m, n, k);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        double size;
                        const double h = fused_sum(&c, i, true, &size) + (double)c.b[i % n];
                        const double bound = (double)(k + 3) * u * (size + fabs((double)c.b[i % n]));
                        assert_stored(device, c.h[i], h, bound, "h", i);
                        assert_stored(device, c.out[i], gelu(h), gelu_bound(h, bound), "g", i);
                }
                free_fused_case(&c);
        }
}

static void products_end_with_the_slope_of_gelu(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (int s = 0; s < FUSED_SIZES; s++) {
                struct fused_case c = new_fused_case(device, &random, fused_sizes[s]);
                const int64_t m = c.m, n = c.n, k = c.k;
                for (int64_t i = 0; i < m * n; i++)
                        c.more[i] = gelu_input(device, &random, i);
                kernels_matmul_gelu_backward(device, lend(device, c.out, m * n), lend(device, c.x, m * k),
                                             lend(device, c.w, n * k), lend(device, c.more, m * n), m, n, k);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        double size;
                        const double dg = fused_sum(&c, i, false, &size);
                        assert_stored(device, c.out[i], dg * gelu_slope((double)c.more[i]),
                                      (1.2 * (double)(k + 2) * size + 40 * fabs(dg)) * u, "dh", i);
                }
                free_fused_case(&c);
        }
}

/* Row t of a causal softmax in double; the exponent's bound for its error. */
static void softmax_row(const real *s, int64_t t, double scale, double *p, double *exponent)
{
        double max = -INFINITY, sum = 0, size = 0;
        for (int64_t j = 0; j <= t; j++)
                max = fmax(max, scale * (double)s[j]);
        for (int64_t j = 0; j <= t; j++) {
                p[j] = exp(scale * (double)s[j] - max);
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
        real *s = random_tensor(device, random, batch * T * T, size);
        for (int64_t i = 0; i < batch * T * T; i++)
                if (i % T > i / T % T)
                        s[i] = (real)NAN;
        real *before = copied_reals(s, batch * T * T);
        double *p = malloc((size_t)T * sizeof *p), exponent;
        assert_non_null(p);
        kernels_softmax(device, lend(device, s, batch * T * T), batch, T, scale);
        finish(device);
        for (int64_t row = 0; row < batch * T; row++) {
                const int64_t t = row % T;
                softmax_row(before + row * T, t, scale, p, &exponent);
                for (int64_t j = 0; j < T; j++)
                        if (j <= t)
                                assert_stored(device, s[row * T + j], p[j],
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
        const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 64, 67, 513};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check_softmax(*state, &random, 3, sizes[i], 5);
                check_softmax(*state, &random, 2, sizes[i], 1e4);
        }
}

/* A sum of products, and of their sizes. */
struct sum {
        double value, size;
};

static struct sum sum_of_products(const real *a, const real *b, int64_t count)
{
        struct sum sum = {0, 0};
        for (int64_t i = 0; i < count; i++) {
                const double term = (double)a[i] * (double)b[i];
                sum.value += term;
                sum.size += fabs(term);
        }
        return sum;
}

static void check_softmax_backward(struct device *device, uint64_t *random, int64_t batch, int64_t T)
{
        const double scale = 0.37;
        real *p = random_tensor(device, random, batch * T * T, 1),
             *dp = random_tensor(device, random, batch * T * T, 1);
        for (int64_t i = 0; i < batch * T * T; i++)
                if (i % T > i / T % T) {
                        p[i] = 0;
                        dp[i] = (real)NAN;
                }
        real *before = copied_reals(dp, batch * T * T);
        kernels_softmax_backward(device, lend(device, dp, batch * T * T), lend(device, p, batch * T * T),
                                 batch, T, scale);
        finish(device);
        for (int64_t row = 0; row < batch * T; row++) {
                const real *x = before + row * T, *y = p + row * T;
                const int64_t t = row % T;
                const struct sum sum = sum_of_products(x, y, t + 1);
                for (int64_t j = 0; j < T; j++) {
                        if (j > t) {
                                assert_true(dp[row * T + j] == 0);
                                continue;
                        }
                        const double expected = scale * (double)y[j] * ((double)x[j] - sum.value);
                        const double bound = scale * fabs((double)y[j]) * (fabs((double)x[j]) + sum.size);
                        assert_stored(device, dp[row * T + j], expected, (double)(t + 6) * u * bound, "ds",
                                      row * T + j);
                }
        }
        free(p);
        free(dp);
        free(before);
}

static void softmax_backward_is_right_and_zero_after_the_diagonal(void **state)
{
        uint64_t random = seed;
        const int64_t sizes[] = {1, 2, 7, 16, 17, 31, 64, 67, 513};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                check_softmax_backward(*state, &random, 3, sizes[i]);
}

/* Attention in double, from tensors as a device stores them: `p` (B,H,T,T) and the bound of each element's
 * relative error, y and lse. */
struct attention_case {
        int64_t B, T, H, KV, hs;
        int64_t y_elements, qkv_elements;
        double scale;
        real *qkv, *y, *lse, *dy, *dqkv, *rows;
        double *p, *relative;
};

static double *new_doubles(int64_t count)
{
        double *x = calloc((size_t)count, sizeof *x);
        assert_non_null(x);
        return x;
}

/* Where the row of part 0, 1 or 2 (q, k, v) of a head begins in qkv; and in y. */
static int64_t qkv_at(const struct attention_case *a, int64_t head, int64_t t, int part)
{
        const int64_t h = head % a->H, kv = h / (a->H / a->KV), heads[] = {h, a->H + kv, a->H + a->KV + kv};
        return ((head / a->H * a->T + t) * (a->H + 2 * a->KV) + heads[part]) * a->hs;
}
static int64_t y_at(const struct attention_case *a, int64_t head, int64_t t)
{
        return (head / a->H * a->T + t) * a->H * a->hs + head % a->H * a->hs;
}
static int64_t p_at(const struct attention_case *a, int64_t head, int64_t t, int64_t j)
{
        return (head * a->T + t) * a->T + j;
}

/* scale q k of a query and a key, and the bound of its error: hs products and their sum, the scale, and a
 * difference with the maximum or with lse, which are no larger than the largest score or the logarithm of T
 * more. */
static double score(const struct attention_case *a, int64_t head, int64_t t, int64_t j, double *bound)
{
        const real *q = a->qkv + qkv_at(a, head, t, 0), *k = a->qkv + qkv_at(a, head, j, 1);
        const struct sum sum = sum_of_products(q, k, a->hs);
        *bound = (double)(a->hs + 4) * u * a->scale * sum.size;
        return a->scale * sum.value;
}

/* p's row of a query; returns lse, and the largest bound of a score's error. */
static double attention_row(const struct attention_case *a, int64_t head, int64_t t, double *worst)
{
        double *p = a->p + p_at(a, head, t, 0), *relative = a->relative + p_at(a, head, t, 0);
        double max = -INFINITY, sum = 0, size = 0;
        *worst = 0;
        for (int64_t j = 0; j <= t; j++) {
                p[j] = score(a, head, t, j, &relative[j]);
                max = fmax(max, p[j]);
                size = fmax(size, fabs(p[j]));
                *worst = fmax(*worst, relative[j]);
        }
        for (int64_t j = 0; j <= t; j++)
                sum += exp(p[j] - max);
        const double lse = max + log(fmax(sum, 1)); /* the largest term is 1 */
        *worst += 4 * u * (size + fabs(lse));
        for (int64_t j = 0; j <= t; j++) {
                p[j] = exp(p[j] - lse);
                relative[j] += 4 * u * (size + fabs(lse)) + 4 * u;
        }
        return lse;
}

static struct attention_case new_attention_case(const struct device *device, uint64_t *random,
                                                const int64_t shape[5], double size)
{
        struct attention_case a = {
                .B = shape[0], .T = shape[1], .H = shape[2], .KV = shape[3], .hs = shape[4]};
        const int64_t rows = a.B * a.H * a.T;
        a.y_elements = a.B * a.T * a.H * a.hs;
        a.qkv_elements = a.B * a.T * (a.H + 2 * a.KV) * a.hs;
        a.scale = 1 / sqrt((double)a.hs);
        a.qkv = random_tensor(device, random, a.qkv_elements, size);
        a.dy = random_tensor(device, random, a.y_elements, 1);
        a.y = poisoned_reals(a.y_elements);
        a.lse = poisoned_reals(rows);
        a.dqkv = poisoned_reals(a.qkv_elements);
        a.rows = poisoned_reals(rows);
        a.p = new_doubles(rows * a.T);
        a.relative = new_doubles(rows * a.T);
        return a;
}

static void free_attention_case(struct attention_case *a)
{
        real *all[] = {a->qkv, a->y, a->lse, a->dy, a->dqkv, a->rows};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
        free(a->p);
        free(a->relative);
}

/* y of a query's row in double, and, behind it, the sums of the sizes of its terms. */
static void attention_y(const struct attention_case *a, int64_t head, int64_t t, double *y)
{
        const double *p = a->p + p_at(a, head, t, 0);
        memset(y, 0, 2 * (size_t)a->hs * sizeof *y);
        for (int64_t j = 0; j <= t; j++) {
                const real *v = a->qkv + qkv_at(a, head, j, 2);
                for (int64_t c = 0; c < a->hs; c++) {
                        const double term = p[j] * (double)v[c];
                        y[c] += term;
                        y[a->hs + c] += fabs(term);
                }
        }
}

/* Numerator and denominator of y have t + 1 terms each, and a few roundings each time that the maximum grows.
 */
static void check_attention(struct device *device, uint64_t *random, const int64_t shape[5], double size)
{
        struct attention_case a = new_attention_case(device, random, shape, size);
        kernels_attention(device, lend(device, a.y, a.y_elements), a.lse, lend(device, a.qkv, a.qkv_elements),
                          a.B, a.T, a.H, a.KV, a.hs, a.scale);
        finish(device);
        double *y = new_doubles(2 * a.hs);
        for (int64_t row = 0; row < a.B * a.H * a.T; row++) {
                const int64_t head = row / a.T, t = row % a.T, at = y_at(&a, head, t);
                double worst;
                const double lse = attention_row(&a, head, t, &worst);
                assert_within(a.lse[row], lse, worst + (double)(t + 8) * u, "lse", row);
                attention_y(&a, head, t, y);
                for (int64_t c = 0; c < a.hs; c++)
                        assert_stored(device, a.y[at + c], y[c],
                                      (2 * worst + (double)(4 * t + 16) * u) * y[a.hs + c] +
                                              (double)(t + 1) * size * FLUSHED,
                                      "y", at + c);
        }
        free(y);
        free_attention_case(&a);
}

/* B, T, H, KV, hs: several tiles of queries and keys, heads so large that tiles get fewer rows, and groups of
 * heads that share keys, also so large that not all of their queries' gradients are summed at a time. */
static const int64_t attention_shapes[][5] = {
        {1, 1, 1, 1, 1},   {2, 7, 3, 3, 5},    {1, 16, 2, 2, 16},  {3, 33, 1, 1, 64},  {1, 127, 2, 2, 8},
        {1, 128, 1, 1, 8}, {1, 129, 2, 2, 17}, {2, 261, 2, 2, 33}, {1, 513, 1, 1, 3},  {1, 60, 1, 1, 5000},
        {2, 33, 2, 1, 16}, {2, 77, 4, 2, 8},   {1, 129, 4, 1, 17}, {2, 131, 6, 2, 33}, {1, 140, 2, 1, 1400}};
enum { ATTENTION_SHAPES = sizeof attention_shapes / sizeof *attention_shapes };

static void attention_is_causal_and_survives_large_scores(void **state)
{
        uint64_t random = seed;
        for (int s = 0; s < ATTENTION_SHAPES; s++) {
                check_attention(*state, &random, attention_shapes[s], 1);
                check_attention(*state, &random, attention_shapes[s], 30);
        }
}

/* y, lse and p of a case, as forward would leave them. */
static void attention_forward(const struct device *device, struct attention_case *a)
{
        double *y = new_doubles(2 * a->hs);
        for (int64_t row = 0; row < a->B * a->H * a->T; row++) {
                const int64_t head = row / a->T, t = row % a->T;
                double worst;
                a->lse[row] = (real)attention_row(a, head, t, &worst);
                attention_y(a, head, t, y);
                for (int64_t c = 0; c < a->hs; c++)
                        a->y[y_at(a, head, t) + c] = rounded(device, (real)y[c]);
        }
        free(y);
}

/* ds of a query and a key, and the bound of its error: that of p, those of dp and of `dy_y`, the row's sum of
 * dy y, which have hs terms each, and four roundings. */
static double score_slope(const struct attention_case *a, int64_t head, int64_t t, int64_t j, struct sum dy_y,
                          double *bound)
{
        const int64_t at = p_at(a, head, t, j);
        const struct sum dp =
                sum_of_products(a->dy + y_at(a, head, t), a->qkv + qkv_at(a, head, j, 2), a->hs);
        *bound = a->scale * (dp.size + dy_y.size) *
                 (a->p[at] * (2 * a->relative[at] + (double)(a->hs + 6) * u) + FLUSHED);
        return a->scale * a->p[at] * (dp.value - dy_y.value);
}

/* A gradient's expected value, the bound of what its terms are off by, and the sum of their sizes. */
struct gradient {
        double value, bound, size;
};

static void add_term(struct gradient *g, double factor, double factor_bound, double other)
{
        g->value += factor * other;
        g->bound += factor_bound * fabs(other);
        g->size += fabs(factor * other);
}

/* `rounds`: how often sums over queries are stored, at most; that of a part of them is no larger than `size`.
 */
static void check_gradients(const struct device *device, const struct attention_case *a,
                            const struct gradient *expected, int rounds)
{
        const int64_t max_terms = a->T * (a->H / a->KV);
        for (int64_t i = 0; i < a->qkv_elements; i++) {
                const struct gradient *g = &expected[i];
                const double sums = (double)(max_terms + 6) * u * g->size + (double)max_terms * FLUSHED;
                const double partial = device->dtype ? (rounds - 1) * unit(device) * g->size : 0;
                assert_stored(device, a->dqkv[i], g->value, 1.01 * g->bound + sums + partial, "dqkv", i);
        }
}

static void check_rows(const struct attention_case *a)
{
        for (int64_t row = 0; row < a->B * a->H * a->T; row++) {
                const int64_t at = y_at(a, row / a->T, row % a->T);
                const struct sum sum = sum_of_products(a->dy + at, a->y + at, a->hs);
                assert_within(a->rows[row], sum.value, (double)(a->hs + 2) * u * sum.size, "rows", row);
        }
}

static void add_gradients(const struct attention_case *a, struct gradient *g, int64_t head, int64_t t,
                          int64_t j, struct sum dy_y)
{
        const int64_t at = p_at(a, head, t, j);
        double ds_bound;
        const double ds = score_slope(a, head, t, j, dy_y, &ds_bound), p = a->p[at];
        const double p_bound = 2 * p * a->relative[at] + FLUSHED;
        const int64_t q = qkv_at(a, head, t, 0), k = qkv_at(a, head, j, 1), v = qkv_at(a, head, j, 2);
        const real *qkv = a->qkv, *dy = a->dy + y_at(a, head, t);
        for (int64_t c = 0; c < a->hs; c++) {
                add_term(&g[q + c], ds, ds_bound, (double)qkv[k + c]);
                add_term(&g[k + c], ds, ds_bound, (double)qkv[q + c]);
                add_term(&g[v + c], p, p_bound, (double)dy[c]);
        }
}

static void check_attention_backward(struct device *device, uint64_t *random, const int64_t shape[5],
                                     double size)
{
        struct attention_case a = new_attention_case(device, random, shape, size);
        attention_forward(device, &a);
        kernels_attention_backward(device, lend(device, a.dqkv, a.qkv_elements), a.rows,
                                   lend(device, a.dy, a.y_elements), lend(device, a.y, a.y_elements), a.lse,
                                   lend(device, a.qkv, a.qkv_elements), a.B, a.T, a.H, a.KV, a.hs, a.scale);
        finish(device);
        struct gradient *expected = calloc((size_t)a.qkv_elements, sizeof *expected);
        assert_non_null(expected);
        for (int64_t row = 0; row < a.B * a.H * a.T; row++) {
                const int64_t head = row / a.T, t = row % a.T, at = y_at(&a, head, t);
                const struct sum dy_y = sum_of_products(a.dy + at, a.y + at, a.hs);
                for (int64_t j = 0; j <= t; j++)
                        add_gradients(&a, expected, head, t, j, dy_y);
        }
        check_gradients(device, &a, expected, a.hs < 1024 ? 1 : 3);
        check_rows(&a);
        free(expected);
        free_attention_case(&a);
}

static void attention_backward_writes_all_gradients(void **state)
{
        uint64_t random = seed;
        for (int s = 0; s < ATTENTION_SHAPES; s++) {
                check_attention_backward(*state, &random, attention_shapes[s], 1);
                check_attention_backward(*state, &random, attention_shapes[s], 30);
        }
}

/* Softmax of a row of logits in double; returns log(sum e^x). */
static double logits_row(const real *x, int64_t V, double *p)
{
        double max = -INFINITY, sum = 0;
        for (int64_t v = 0; v < V; v++)
                max = fmax(max, (double)x[v]);
        for (int64_t v = 0; v < V; v++)
                sum += p[v] = exp((double)x[v] - max);
        for (int64_t v = 0; v < V; v++)
                p[v] /= sum;
        return max + log(fmax(sum, 1)); /* the largest term is 1 */
}

/* A difference x - max rounds once; the sum of V exponentials adds V u, as relative error of p and absolute
 * of the logarithm. */
static void check_cross_entropy(struct device *device, uint64_t *random, int64_t N, int64_t V, double size)
{
        const double scale = 0.125;
        real *raw = random_tensor(device, random, N * V, size), *x = copied_reals(raw, N * V),
             *y = copied_reals(raw, N * V);
        int32_t targets[131];
        for (int64_t n = 0; n < N; n++)
                targets[n] = (int32_t)random_below(random, V);
        double loss = 3, loss_alone = 3, expected = 3, *p = malloc((size_t)V * sizeof *p);
        assert_non_null(p);
        kernels_cross_entropy(device, &loss, lend(device, x, N * V), targets, N, V, V, scale, false);
        kernels_cross_entropy(device, &loss_alone, lend(device, y, N * V), targets, N, V, V, scale, true);
        finish(device);
        const double relative = (2 * size + (double)V + 8) * u;
        for (int64_t n = 0; n < N; n++) {
                expected += logits_row(raw + n * V, V, p) - (double)raw[n * V + targets[n]];
                for (int64_t v = 0; v < V; v++) {
                        const double slope = scale * (p[v] - (v == targets[n]));
                        assert_stored(device, x[n * V + v], slope,
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
                real *x = random_tensor(device, &random, n, 1);
                double expected = 0, sum = NAN, added = 5;
                for (int64_t i = 0; i < n; i++)
                        expected += (double)x[i] * (double)x[i];
                kernels_squared_norm(device, &sum, lend(device, x, n), n, false);
                kernels_squared_norm(device, &added, lend(device, x, n), n, true);
                finish(device);
                assert_within(sum, expected, (double)n * DBL_EPSILON * expected, "sum", n);
                assert_within(added, expected + 5, (double)n * DBL_EPSILON * (expected + 5), "sum", n);
                free(x);
        }
}

enum { FLAT = 3000 };
static const struct adamw_range ranges[] = {{37, 1}, {150, 0}, {FLAT, 1}};

/* One AdamW step on elements [offset, offset + n) of flat buffers with three ranges, decayed or not. The
 * moments round 3 times, the quotient about 8 times relative, the decayed parameter twice. With tensors of
 * halves the gradients are unscaled already and stay, and there are weights besides the parameters. */
static void check_adamw(struct device *device, uint64_t *random, int64_t offset, int64_t n, int64_t step)
{
        const struct adamw a = {
                .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .step = step};
        const double factor = device->dtype ? 1 : 0.3;
        real *p = random_reals(random, FLAT, 1), *g = random_reals(random, FLAT, 1);
        real *m = random_reals(random, FLAT, 1), *v = random_reals(random, FLAT, 1);
        for (int i = 0; i < FLAT; i++)
                v[i] = (real)fabs((double)v[i]);
        real *p0 = copied_reals(p, FLAT), *g0 = copied_reals(g, FLAT), *m0 = copied_reals(m, FLAT),
             *v0 = copied_reals(v, FLAT);
        real *weights = poisoned_reals(n);
        kernels_adamw(device, p + offset, g + offset, m + offset, v + offset,
                      device->dtype != DTYPE_FP32 ? lend(device, weights, n) : NULL, ranges,
                      device->dtype != DTYPE_FP32 ? NULL : &factor, offset, n, &a);
        finish(device);
        for (int64_t i = 0; i < FLAT; i++) {
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
                assert_true(g[i] == (device->dtype != DTYPE_FP32 ? g0[i] : 0));
                if (device->dtype != DTYPE_FP32)
                        assert_true(weights[i - offset] == rounded(device, p[i]));
        }
        real *all[] = {p, g, m, v, p0, g0, m0, v0, weights};
        for (int i = 0; i < 9; i++)
                free(all[i]);
}

static void adamw_decays_by_ranges(void **state)
{
        uint64_t random = seed;
        const int64_t buckets[][2] = {{0, FLAT}, {0, 1},        {36, 2},     {37, 113},
                                      {140, 40}, {FLAT - 1, 1}, {151, 1500}, {151, FLAT - 151}};
        for (size_t i = 0; i < sizeof buckets / sizeof *buckets; i++)
                for (int64_t step = 1; step < 100; step += 33)
                        check_adamw(*state, &random, buckets[i][0], buckets[i][1], step);
}

static void a_nan_stays_visible(void **state)
{
        struct device *device = *state;
        for (int at = 0; at < 19; at++) {
                real h[19] = {0}, b[19] = {0}, g[19] = {0}, s[19 * 19] = {0}, x[19] = {0}, gu[38] = {0},
                     y[19];
                const int32_t target = 4;
                double loss = 0, norm = 0;
                h[at] = x[at] = gu[at] = (real)NAN;
                s[18 * 19 + at] = (real)NAN;
                kernels_bias_gelu(device, lend(device, g, 19), lend(device, h, 19), lend(device, b, 19), 1,
                                  19);
                kernels_softmax(device, lend(device, s, 19 * 19), 1, 19, 1);
                kernels_squared_norm(device, &norm, lend(device, x, 19), 19, false);
                kernels_swiglu(device, lend(device, y, 19), lend(device, gu, 38), 1, 19);
                finish(device);
                kernels_cross_entropy(device, &loss, lend(device, x, 19), &target, 1, 19, 19, 1, false);
                finish(device);
                assert_true(isnan(g[at]) && isnan(s[18 * 19]) && isnan(norm) && isnan(loss));
                assert_true(isnan(y[at]) && y[(at + 1) % 19] == 0);
                assert_true(g[(at + 1) % 19] == 0);
                assert_true(s[17 * 19] > 0);
        }
}

static void a_nan_in_a_query_stays_in_its_row_of_attention(void **state)
{
        struct device *device = *state;
        enum { T = 150, HS = 5 };
        for (int64_t at = 0; at < T; at += 13) {
                uint64_t random = seed;
                real *qkv = random_tensor(device, &random, T * 3 * HS, 1), *y = poisoned_reals(T * HS),
                     lse[T];
                qkv[at * 3 * HS + 2] = (real)NAN;
                kernels_attention(device, lend(device, y, T * HS), lse, lend(device, qkv, T * 3 * HS), 1, T,
                                  1, 1, HS, 0.4);
                finish(device);
                for (int64_t t = 0; t < T; t++) {
                        assert_true((isnan(lse[t]) != 0) == (t == at));
                        for (int64_t c = 0; c < HS; c++)
                                assert_true((isnan(y[t * HS + c]) != 0) == (t == at));
                }
                free(qkv);
                free(y);
        }
}

static void the_same_input_gives_the_same_bits(void **state)
{
        struct device *device = *state;
        enum { N = 67, C = 131 };
        const size_t element = device->dtype ? sizeof(uint16_t) : sizeof(real);
        real *results[2];
        for (int run = 0; run < 2; run++) {
                uint64_t random = seed;
                real *x = random_tensor(device, &random, N * C, 1),
                     *w = random_tensor(device, &random, C * C, 1);
                real *y = results[run] = poisoned_reals(3 * N * C);
                real stats[2 * N], zeros[2 * C] = {0};
                char *tx = lend(device, x, N * C), *tw = lend(device, w, C * C),
                     *ty = lend(device, y, 3 * N * C);
                char *ty1 = ty + N * C * element, *ty2 = ty1 + N * C * element,
                     *tz = lend(device, zeros, 2 * C);
                kernels_matmul(device, &(struct matmul){.m = N, .n = C, .k = C, .transpose_b = true}, tx, tw,
                               ty);
                kernels_layernorm(device, ty1, stats, ty, tw, tw + C * element, 0, N, C);
                kernels_layernorm_backward(device, ty2, tz, tz + C * element, tx, ty, stats, tw, 0, N, C,
                                           false);
                kernels_bias_gelu(device, ty, ty1, tw, N, C);
                finish(device);
                free(x);
                free(w);
        }
        assert_memory_equal(results[0], results[1], 3 * N * C * sizeof(real));
        free(results[0]);
        free(results[1]);
}

static void attention_gives_the_same_bits(void **state)
{
        struct device *device = *state;
        enum { B = 2, T = 141, H = 6, KV = 2, HS = 20, N = B * T * H * HS, QKV = B * T * (H + 2 * KV) * HS };
        real *results[2];
        for (int run = 0; run < 2; run++) {
                uint64_t random = seed;
                real *qkv = random_tensor(device, &random, QKV, 1),
                     *dy = random_tensor(device, &random, N, 1);
                real *y = poisoned_reals(N), lse[B * H * T], rows[B * H * T];
                real *dqkv = results[run] = poisoned_reals(QKV);
                void *tqkv = lend(device, qkv, QKV), *ty = lend(device, y, N);
                kernels_attention(device, ty, lse, tqkv, B, T, H, KV, HS, 0.2);
                kernels_attention_backward(device, lend(device, dqkv, QKV), rows, lend(device, dy, N), ty,
                                           lse, tqkv, B, T, H, KV, HS, 0.2);
                finish(device);
                free(qkv);
                free(dy);
                free(y);
        }
        assert_memory_equal(results[0], results[1], QKV * sizeof(real));
        free(results[0]);
        free(results[1]);
}

/* ---- sequences of which several ranks have two pieces each ---- */

/* A sequence's row that is row t of a rank's T. */
static int64_t row_of_rank(const struct context_place *place, int64_t T, int64_t t)
{
        const int64_t piece = T / 2;
        const int64_t which = t < piece ? place->rank : 2 * place->ranks - 1 - place->rank;
        return which * piece + t % piece;
}

/* Rows of `width` elements of B sequences: those that a rank has of all; and back. */
static void take_rows(const struct context_place *place, int64_t B, int64_t T, int64_t width, real *own,
                      real *all, bool back)
{
        for (int64_t row = 0; row < B * T; row++) {
                real *mine = own + row * width,
                     *whole = all + (row / T * T * place->ranks + row_of_rank(place, T, row % T)) * width;
                for (int64_t c = 0; c < width && back; c++)
                        whole[c] = mine[c];
                for (int64_t c = 0; c < width && !back; c++)
                        mine[c] = whole[c];
        }
}

/* Of B T rows of queries, keys and values the last columns, or those that they get. */
static void move_keys(int64_t rows, int64_t width, int64_t columns, real *qkv, real *kv, bool add)
{
        for (int64_t row = 0; row < rows; row++)
                for (int64_t c = 0; c < columns; c++)
                        if (add)
                                qkv[row * width + width - columns + c] += kv[row * columns + c];
                        else
                                kv[row * columns + c] = qkv[row * width + width - columns + c];
}

/* What one rank makes of its rows, and of the keys of all. */
static void attend_by_parts(struct device *device, const struct attention_case *whole,
                            struct context_place place, real *y, real *dqkv)
{
        const int64_t B = whole->B, H = whole->H, KV = whole->KV, hs = whole->hs, T = whole->T / place.ranks;
        const int64_t width = (H + 2 * KV) * hs, keys = 2 * KV * hs, rows = B * T;
        real *qkv = poisoned_reals(rows * width), *dy = poisoned_reals(rows * H * hs),
             *lse = poisoned_reals(B * H * T), *sums = poisoned_reals(B * H * T);
        real *other = poisoned_reals(rows * width);
        real *kv[16], *dkv[16];
        void *there[16], *back[16];
        take_rows(&place, B, T, width, qkv, whole->qkv, false);
        take_rows(&place, B, T, H * hs, dy, whole->dy, false);
        void *tqkv = lend(device, qkv, rows * width), *ty = lend(device, y, rows * H * hs),
             *tdqkv = lend(device, dqkv, rows * width), *tdy = lend(device, dy, rows * H * hs);
        kernels_attention(device, ty, lse, tqkv, B, T, H, KV, hs, whole->scale);
        for (place.distance = 1; place.distance < place.ranks; place.distance++) {
                struct context_place from = place;
                from.rank = (place.rank - place.distance + place.ranks) % place.ranks;
                kv[place.distance] = poisoned_reals(rows * keys);
                dkv[place.distance] = poisoned_reals(rows * keys);
                take_rows(&from, B, T, width, other, whole->qkv, false);
                move_keys(rows, width, keys, other, kv[place.distance], false);
                there[place.distance] = lend(device, kv[place.distance], rows * keys);
                back[place.distance] = lend(device, dkv[place.distance], rows * keys);
                kernels_context_attention(device, &place, ty, lse, tqkv, there[place.distance], B, T, H, KV,
                                          hs, whole->scale);
        }
        kernels_attention_backward(device, tdqkv, sums, tdy, ty, lse, tqkv, B, T, H, KV, hs, whole->scale);
        for (place.distance = 1; place.distance < place.ranks; place.distance++)
                kernels_context_attention_backward(device, &place, tdqkv, back[place.distance], sums, tdy,
                                                   lse, tqkv, there[place.distance], B, T, H, KV, hs,
                                                   whole->scale);
        finish(device);
        take_rows(&place, B, T, H * hs, y, whole->y, true);
        for (int64_t i = 0; i < rows * width; i++)
                other[i] = 0;
        for (place.distance = 0; place.distance < place.ranks; place.distance++) {
                struct context_place from = place;
                from.rank = (place.rank - place.distance + place.ranks) % place.ranks;
                take_rows(&from, B, T, width, other, whole->dqkv, false);
                if (place.distance > 0) {
                        move_keys(rows, width, keys, other, dkv[place.distance], true);
                        free(kv[place.distance]);
                        free(dkv[place.distance]);
                } else {
                        for (int64_t i = 0; i < rows * width; i++)
                                other[i] += dqkv[i];
                }
                take_rows(&from, B, T, width, other, whole->dqkv, true);
        }
        real *all[] = {qkv, dy, lse, sums, other};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
}

/* All ranks' results put together are those of whole sequences. */
static void check_parts(struct device *device, uint64_t *random, const int64_t shape[5], int ranks)
{
        struct attention_case a = new_attention_case(device, random, shape, 1);
        const double unit = device->dtype == DTYPE_BF16   ? 0x1p-8
                            : device->dtype == DTYPE_FP16 ? 0x1p-11
                            : sizeof(real) == 8           ? 0x1p-48
                                                          : 0x1p-20;
        void *qkv = lend(device, a.qkv, a.qkv_elements), *y = lend(device, a.y, a.y_elements);
        real *whole_y = poisoned_reals(a.y_elements), *whole = poisoned_reals(a.qkv_elements);
        real *own_y = poisoned_reals(a.y_elements / ranks), *own = poisoned_reals(a.qkv_elements / ranks);
        kernels_attention(device, y, a.lse, qkv, a.B, a.T, a.H, a.KV, a.hs, a.scale);
        kernels_attention_backward(device, lend(device, a.dqkv, a.qkv_elements), a.rows,
                                   lend(device, a.dy, a.y_elements), y, a.lse, qkv, a.B, a.T, a.H, a.KV, a.hs,
                                   a.scale);
        finish(device);
        memcpy(whole_y, a.y, (size_t)a.y_elements * sizeof(real));
        memcpy(whole, a.dqkv, (size_t)a.qkv_elements * sizeof(real));
        memset(a.dqkv, 0, (size_t)a.qkv_elements * sizeof(real));
        for (int rank = 0; rank < ranks; rank++)
                attend_by_parts(device, &a, (struct context_place){ranks, rank, 0}, own_y, own);
        for (int64_t i = 0; i < a.y_elements; i++)
                assert_within(a.y[i], (double)whole_y[i], 4 * ranks * unit * 4, "y", i);
        for (int64_t i = 0; i < a.qkv_elements; i++)
                assert_within(a.dqkv[i], (double)whole[i], 4 * ranks * unit * (8 + fabs((double)whole[i])),
                              "dqkv", i);
        real *all[] = {whole_y, whole, own_y, own};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
        free_attention_case(&a);
}

static void attention_by_parts_is_that_of_whole_sequences(void **state)
{
        /* B, T, H, KV, hs and ranks: pieces of a row; of odd lengths; more than a tile, and a block, of each.
         */
        static const int64_t sequences[][6] = {
                {1, 4, 1, 1, 3, 2},    {2, 24, 2, 1, 16, 4},   {1, 42, 3, 3, 8, 3}, {1, 516, 4, 2, 17, 2},
                {1, 1240, 2, 2, 9, 2}, {1, 64, 2, 1, 1400, 2}, {2, 80, 2, 2, 8, 8}};
        uint64_t random = seed;
        for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
                check_parts(*state, &random, sequences[i], (int)sequences[i][5]);
}

static void softmax_over_4096_positions_needs_no_square_of_scratch(void **state)
{
        uint64_t random = seed;
        check_softmax(*state, &random, 1, 4096, 5);
        check_softmax_backward(*state, &random, 1, 4096);
}

static void elements_below_the_smallest_normal_fp16_number_add_up(void **state)
{
        struct device *device = *state;
        enum { N = 37, C = 19 };
        const float min = 0x1p-24F;
        real dx[N * C], wte[C] = {0}, wpe[N * C] = {0}, db[C] = {0}, ones[N], out[N * C];
        for (int i = 0; i < N * C; i++)
                dx[i] = min * (float)(i % 5);
        for (int i = 0; i < N; i++)
                ones[i] = 1;
        const int32_t tokens[N] = {0};
        double scale = 0x1p20, norm = 0;
        void *g = lend(device, dx, N * C);
        kernels_embedding_backward(device, lend(device, wte, C), lend(device, wpe, N * C), g, tokens, 1, N,
                                   C);
        kernels_matmul(device, &(struct matmul){.m = 1, .n = C, .k = N, .accumulate = true},
                       lend(device, ones, N), g, lend(device, db, C));
        kernels_squared_norm(device, &norm, g, N * C, false);
        kernels_unscale(device, out, g, &scale, N * C);
        finish(device);
        double squares = 0;
        for (int c = 0; c < C; c++) {
                double sum = 0;
                for (int i = c; i < N * C; i += C) {
                        const double each = (double)min * (i % 5);
                        sum += each;
                        squares += each * each;
                        assert_true((double)wpe[i] == each);
                        assert_true((double)out[i] == each * 0x1p20);
                        assert_true(dx[i] == 0); /* unscaled gradients are cleared */
                }
                assert_true(sum > 0 && sum < 0x1p-14 && (double)wte[c] == sum && (double)db[c] == sum);
        }
        assert_true(norm == squares); /* small integers times 2^-48 */
}

/* Whether `value`, at element `at` of n, is found to be beyond the limit. */
static bool overflows(struct device *device, double value, int64_t at, int64_t n, double limit)
{
        uint64_t random = seed;
        double found = NAN;
        real *g = random_tensor(device, &random, n, 0.5);
        g[at] = (real)value;
        kernels_overflow(device, &found, lend(device, g, n), n, limit);
        finish(device);
        free(g);
        assert_true(found == 0 || found == 1);
        return found == 1;
}

static void an_overflow_is_found_wherever_it_is(void **state)
{
        struct device *device = *state;
        const int64_t places[][2] = {{0, 1}, {6, 7}, {0, 513}, {300, 513}, {512, 513}, {99999, 100000}};
        const bool bf16 = device->dtype == DTYPE_BF16;
        const double max = bf16 ? 0x1.fep127 : 65504, power = bf16 ? 0x1p127 : 0x1p15;
        const struct {
                double value, limit;
                bool beyond;
        } cases[] = {{NAN, 1e9, true},
                     {INFINITY, 1e9, true},
                     {-INFINITY, max, true},
                     {INFINITY, INFINITY, true},
                     {NAN, INFINITY, true},
                     {max, max, false},
                     {-max, max, false},
                     {max, INFINITY, false},
                     {max, nextafter(max, 0), true},
                     {-max, nextafter(max, 0), true},
                     {max / 2, max / 2, false},
                     {-power, max / 2, true},
                     {1, 1, false},
                     {-1.01, 1, true},
                     {1.01, 1 - 1e-9, true},
                     {1, 1 - 1e-9, true},
                     {1, 1 + 1e-9, false},
                     {0.9, 1 + 1e-9, false},
                     {-0.7, 0.69, true},
                     {0.6, 0.69, false}};
        for (size_t p = 0; p < sizeof places / sizeof *places; p++)
                for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
                        assert_int_equal(
                                overflows(device, cases[c].value, places[p][0], places[p][1], cases[c].limit),
                                cases[c].beyond);
}

static void unscaled_gradients_are_reals_and_the_halves_cleared(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        double scale = 0; /* read when the kernel runs */
        for (int64_t n = 1; n < 100000; n = 3 * n + 2) {
                real *g = random_tensor(device, &random, n, 60000), *before = copied_reals(g, n);
                real *out = poisoned_reals(n);
                scale = 0.7 / 65536;
                kernels_unscale(device, out, lend(device, g, n), &scale, n);
                finish(device);
                for (int64_t i = 0; i < n; i++) {
                        const double expected = scale * (double)before[i];
                        assert_within(out[i], expected, 2.1 * u * fabs(expected), "out", i);
                        assert_true(g[i] == 0);
                }
                kernels_clear(device, lend(device, before, n), n);
                finish(device);
                for (int64_t i = 0; i < n; i++)
                        assert_true(before[i] == 0);
                free(g);
                free(before);
                free(out);
        }
}

/* Sums over the rows are rounded once: 20,000 rows of 0.1 would stop at 256 if each sum were a half. */
static void parameter_gradients_are_rounded_once_a_kernel(void **state)
{
        struct device *device = *state;
        enum { N = 20000, C = 9 };
        real *dy = new_reals(N * C), db[C] = {0}, dw[C] = {0}, scale[C] = {0}, shift[C] = {0},
             ones[C] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
        real *stats = new_reals(2 * N), *dx = poisoned_reals(N * C);
        for (int i = 0; i < N * C; i++)
                dy[i] = rounded(device, 0.1F);
        for (int i = 0; i < 2 * N; i++)
                stats[i] = i >= N; /* mean 0, rstd 1 */
        const double sum = N * (double)dy[0], square = sum * (double)dy[0];
        void *rows = lend(device, dy, N * C), *out = lend(device, dx, N * C), *w = lend(device, ones, C);
        kernels_bias_backward(device, lend(device, db, C), rows, N, C);
        kernels_layernorm_backward(device, out, lend(device, dw, C), lend(device, shift, C), rows, rows,
                                   stats, w, 0, N, C, false);
        kernels_rmsnorm_backward(device, out, lend(device, scale, C), rows, rows, stats + N, w, N, C, false);
        finish(device);
        for (int c = 0; c < C; c++) {
                assert_stored(device, db[c], sum, N * u * sum, "db", c);
                assert_stored(device, shift[c], sum, N * u * sum, "shift", c);
                assert_stored(device, dw[c], square, (N + 2) * u * square, "dw", c);
                assert_stored(device, scale[c], square, (N + 2) * u * square, "scale", c);
        }
        free(dy);
        free(dx);
        free(stats);
}

/* Of every kind of tensors. */
#define TESTS_OF_ANY                                                                                         \
        cmocka_unit_test(a_batch_of_strided_products_is_right_in_every_variant),                             \
                cmocka_unit_test(a_product_without_strides_is_dense_and_single),                             \
                cmocka_unit_test(embeddings_add_token_and_position),                                         \
                cmocka_unit_test(embedding_gradients_add_up_where_a_token_occurs_twice),                     \
                cmocka_unit_test(layernorm_normalises_rows),                                                 \
                cmocka_unit_test(layernorm_backward_writes_or_adds_dx_and_adds_to_parameters),               \
                cmocka_unit_test(biases_are_added_to_every_row),                                             \
                cmocka_unit_test(bias_gradients_are_column_sums), cmocka_unit_test(the_residual_is_added),   \
                cmocka_unit_test(rmsnorm_scales_rows),                                                       \
                cmocka_unit_test(rmsnorm_backward_writes_or_adds_dx_and_adds_to_its_weight),                 \
                cmocka_unit_test(norms_of_heads_scale_each_by_itself_and_go_back),                           \
                cmocka_unit_test(rope_rotates_heads_by_their_position),                                      \
                cmocka_unit_test(rope_is_accurate_at_far_positions),                                         \
                cmocka_unit_test(columns_are_split_and_joined_narrowed_and_widened),                         \
                cmocka_unit_test(last_columns_are_taken_and_put_back),                                       \
                cmocka_unit_test(queries_keys_and_values_are_made_of_latent_rows_and_go_back),               \
                cmocka_unit_test(swiglu_multiplies_by_the_gate),                                             \
                cmocka_unit_test(swiglu_backward_is_its_slopes),                                             \
                cmocka_unit_test(squared_relu_is_the_square_of_what_is_above_zero),                          \
                cmocka_unit_test(gelu_is_right_for_small_and_huge_arguments),                                \
                cmocka_unit_test(gelu_backward_is_its_slope),                                                \
                cmocka_unit_test(softmax_is_causal_and_survives_large_scores),                               \
                cmocka_unit_test(softmax_backward_is_right_and_zero_after_the_diagonal),                     \
                cmocka_unit_test(cross_entropy_adds_the_loss_and_leaves_its_gradient),                       \
                cmocka_unit_test(the_squared_norm_is_summed_in_double),                                      \
                cmocka_unit_test(adamw_decays_by_ranges), cmocka_unit_test(a_nan_stays_visible),             \
                cmocka_unit_test(the_same_input_gives_the_same_bits),                                        \
                cmocka_unit_test(products_end_with_bias_and_residual),                                       \
                cmocka_unit_test(products_end_with_layernorm), cmocka_unit_test(products_end_with_gelu),     \
                cmocka_unit_test(products_with_layernorm_are_split_over_threads_by_rows),                    \
                cmocka_unit_test(products_end_with_the_slope_of_gelu),                                       \
                cmocka_unit_test(attention_is_causal_and_survives_large_scores),                             \
                cmocka_unit_test(attention_backward_writes_all_gradients),                                   \
                cmocka_unit_test(a_nan_in_a_query_stays_in_its_row_of_attention),                            \
                cmocka_unit_test(attention_by_parts_is_that_of_whole_sequences),                             \
                cmocka_unit_test(attention_gives_the_same_bits)

int main(void)
{
        const struct CMUnitTest of_reals[] = {
                cmocka_unit_test(the_exponential_is_accurate_over_its_whole_range),
                TESTS_OF_ANY,
        };
        const struct CMUnitTest of_halves[] = {
                TESTS_OF_ANY,
                cmocka_unit_test(softmax_over_4096_positions_needs_no_square_of_scratch),
                cmocka_unit_test(elements_below_the_smallest_normal_fp16_number_add_up),
                cmocka_unit_test(an_overflow_is_found_wherever_it_is),
                cmocka_unit_test(unscaled_gradients_are_reals_and_the_halves_cleared),
                cmocka_unit_test(parameter_gradients_are_rounded_once_a_kernel),
        };
        int failed = 0;
        for (int i = 0; i < cpu_variant_count; i++) {
                if (!is_tested(&cpu_variants[i]))
                        continue;
                built_for = cpu_variants[i].name;
                failed += cmocka_run_group_tests(of_reals, open_real, close_device) +
                          cmocka_run_group_tests_name("of_fp16", of_halves, open_fp16, close_device) +
                          cmocka_run_group_tests_name("of_bf16", of_halves, open_bf16, close_device);
        }
        return failed;
}
