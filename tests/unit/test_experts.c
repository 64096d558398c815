/* The kernels of a mixture of experts on the CPU device against a plain reference in double arithmetic, as
 * test_kernels has it for the others: in every format of tensors and with every variant of the kernels that
 * this processor runs. Which rows an expert has, and their order, must be exact; gradients of the routes are
 * compared with finite differences of the reference. */
#include "tests/unit/launches.h"
#include "tests/unit/tensors.h"

#include <string.h>

static int32_t *new_indices(int64_t count)
{
        int32_t *x = malloc((size_t)(count > 0 ? count : 1) * sizeof *x);
        assert_non_null(x);
        memset(x, 0xff, (size_t)count * sizeof *x);
        return x;
}

static double *new_doubles(int64_t count)
{
        double *x = calloc((size_t)count, sizeof *x);
        assert_non_null(x);
        return x;
}

/* ---- routes ---- */

/* Of logits: any; of three values, so that many are equal; one expert's far above all others; all so far
 * below 0 that the logistic function is 0. */
enum logits { RANDOM, EQUAL, ONE_EXPERT, TINY, LOGITS };

/* N tokens, with the K of E experts that the reference chooses for each. */
struct route_case {
        struct routing routing;
        real *logits, *correction; /* (E), or NULL */
        int64_t *chosen;           /* (N, K) experts */
        int32_t *place, *source, *ends;
        double *weights;
        double relative; /* error of a score */
        bool vanishes;   /* scores, weights and their slopes, but for what is flushed to 0 or from it */
};

static double score_of(const struct routing *r, const double *logits, int64_t e)
{
        double sum = 0;
        if (r->logistic)
                return 1 / (1 + exp(-logits[e]));
        for (int64_t i = 0; i < r->E; i++)
                sum += exp(logits[i] - logits[e]);
        return 1 / sum;
}

static double chosen_sum(const struct routing *r, const double *logits, const int64_t *chosen)
{
        double sum = 1e-20;
        for (int64_t i = 0; i < r->K; i++)
                sum += score_of(r, logits, chosen[i]);
        return sum;
}

static double weight_of(const struct routing *r, const double *logits, const int64_t *chosen, int64_t which)
{
        const double score = r->factor * score_of(r, logits, chosen[which]);
        return r->normalised ? score / chosen_sum(r, logits, chosen) : score;
}

/* How many of n come before the i-th: larger ones, and of equal ones the first. */
static int64_t rank_of(const double *x, int64_t n, int64_t i)
{
        int64_t before = 0;
        for (int64_t other = 0; other < n; other++)
                before += x[other] > x[i] || (other < i && x[other] == x[i]);
        return before;
}

/* Of two numbers that experts are chosen by, more than a kernel may change: a difference that counts. */
#define SAFE 4e-6

/* The least difference of two of n that are not equal. */
static double least_difference(const double *x, int64_t n)
{
        double least = INFINITY;
        for (int64_t i = 0; i < n; i++)
                for (int64_t other = 0; other < i; other++)
                        if (x[i] != x[other])
                                least = fmin(least, fabs(x[i] - x[other]));
        return least;
}

/* The sums of the two largest of each group, or its largest. */
static void add_largest(const struct routing *r, const double *by, double *sums)
{
        const int64_t each = r->E / r->groups;
        for (int64_t e = 0; e < r->E; e++)
                if (rank_of(by + e / each * each, each, e % each) < (r->best_of_group ? 1 : 2))
                        sums[e / each] += by[e];
}

/* Returns whether no choice of groups hangs on a rounding. */
static bool choose_groups(const struct routing *r, double *by)
{
        double *sums = new_doubles(r->groups);
        add_largest(r, by, sums);
        const bool sure = least_difference(sums, r->groups) > SAFE;
        for (int64_t e = 0; e < r->E; e++)
                if (rank_of(sums, r->groups, e / (r->E / r->groups)) >= r->chosen_groups)
                        by[e] = 0;
        free(sums);
        return sure;
}

/* What experts are chosen by. Returns whether no choice hangs on a rounding, which none of logits does. */
static bool choose_by(const struct routing *r, const double *logits, const real *correction, double *by)
{
        memcpy(by, logits, (size_t)r->E * sizeof *by);
        if (!correction && r->groups <= 1)
                return true;
        for (int64_t e = 0; e < r->E; e++)
                by[e] = score_of(r, logits, e) + (correction ? (double)correction[e] : 0);
        const bool sure = least_difference(by, r->E) > SAFE;
        return (r->groups <= 1 || choose_groups(r, by)) && sure;
}

/* The K largest. Returns whether that does not hang on a rounding. */
static bool choose(const struct routing *r, const double *logits, const real *correction, int64_t *chosen)
{
        double *by = new_doubles(r->E);
        const bool sure = choose_by(r, logits, correction, by);
        for (int64_t e = 0; e < r->E; e++)
                if (rank_of(by, r->E, e) < r->K)
                        chosen[rank_of(by, r->E, e)] = e;
        free(by);
        return sure;
}

/* Rows by expert, then by token. */
static void order_rows(struct route_case *c)
{
        const struct routing *r = &c->routing;
        int32_t row = 0;
        for (int64_t e = 0; e < r->E; e++) {
                for (int64_t i = 0; i < r->N * r->K; i++) {
                        if (c->chosen[i] != e)
                                continue;
                        c->source[row] = (int32_t)i;
                        c->place[i] = row++;
                }
                c->ends[e] = row;
        }
}

static void token_logits(const struct route_case *c, int64_t t, double *logits)
{
        for (int64_t e = 0; e < c->routing.E; e++)
                logits[e] = (double)c->logits[t * c->routing.E + e];
}

/* Draws the logits of a token, which are of size 6 and less, until its choice hangs on no rounding. */
static void draw_token(const struct device *device, uint64_t *random, struct route_case *c, enum logits kind,
                       int64_t t)
{
        const struct routing *r = &c->routing;
        const double size = kind == RANDOM ? 2 : 6;
        double *logits = new_doubles(r->E);
        do {
                for (int64_t e = 0; e < r->E; e++) {
                        const double number = size * random_number(random);
                        logits[e] = kind == EQUAL                         ? (double)random_below(random, 3)
                                    : kind == TINY                        ? number - 200
                                    : kind == ONE_EXPERT && e == r->E / 2 ? 2 * size
                                                                          : number;
                        c->logits[t * r->E + e] = rounded(device, (real)logits[e]);
                }
                token_logits(c, t, logits);
        } while (!choose(r, logits, c->correction, c->chosen + t * r->K));
        free(logits);
}

/* Corrections that differ, up to 64, below 0 too, in every format. */
static real *new_correction(int64_t E)
{
        real *correction = new_reals(E);
        for (int64_t e = 0; e < E; e++)
                correction[e] = (real)(2 * (e * 37 % 64) - 39) / 128;
        return correction;
}

static struct route_case new_route_case(const struct device *device, uint64_t *random,
                                        const struct routing *r, enum logits kind, bool corrected)
{
        struct route_case c = {.routing = *r, .weights = new_doubles(r->N * r->K)};
        double *logits = new_doubles(r->E);
        c.logits = new_reals(r->N * r->E);
        c.correction = corrected ? new_correction(r->E) : NULL;
        c.vanishes = kind == TINY && r->logistic;
        c.chosen = calloc((size_t)(r->N * r->K), sizeof *c.chosen);
        assert_non_null(c.chosen);
        c.place = new_indices(r->N * r->K);
        c.source = new_indices(r->N * r->K);
        c.ends = new_indices(r->E);
        for (int64_t t = 0; t < r->N; t++)
                draw_token(device, random, &c, kind, t);
        order_rows(&c);
        for (int64_t i = 0; i < r->N * r->K; i++) {
                token_logits(&c, i / r->K, logits);
                c.weights[c.place[i]] = weight_of(r, logits, c.chosen + i / r->K * r->K, i % r->K);
        }
        free(logits);
        /* A difference of logits rounds once, and the exponentials, their sum and quotients after it. */
        c.relative = (8 * 6 + (double)(r->E + r->K) + 16) * u;
        return c;
}

static void free_route_case(struct route_case *c)
{
        void *all[] = {c->logits, c->correction, c->chosen, c->place, c->source, c->ends, c->weights};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                free(all[i]);
}

/* What a weight of token t may have of a score that is flushed. */
static double flushed_weight(const struct route_case *c, int64_t t)
{
        const struct routing *r = &c->routing;
        double *logits = new_doubles(r->E);
        token_logits(c, t, logits);
        const double sum = chosen_sum(r, logits, c->chosen + t * r->K);
        free(logits);
        return r->factor * FLUSHED / (r->normalised ? sum : 1);
}

static void check_route(struct device *device, const struct route_case *c)
{
        const struct routing *r = &c->routing;
        const int64_t rows = r->N * r->K;
        int32_t *place = new_indices(rows), *source = new_indices(rows), *ends = new_indices(r->E);
        real *weights = poisoned_reals(rows);
        kernels_route(device, r, weights, place, source, ends, lend(device, c->logits, r->N * r->E),
                      c->correction ? lend(device, c->correction, r->E) : NULL);
        finish(device);
        assert_memory_equal(place, c->place, (size_t)rows * sizeof *place);
        assert_memory_equal(source, c->source, (size_t)rows * sizeof *source);
        assert_memory_equal(ends, c->ends, (size_t)r->E * sizeof *ends);
        for (int64_t i = 0; i < rows; i++)
                assert_within(weights[c->place[i]], c->weights[c->place[i]],
                              c->relative * c->weights[c->place[i]] + flushed_weight(c, i / r->K), "weight",
                              i);
        free(place);
        free(source);
        free(ends);
        free(weights);
}

/* What a token's logits add to a loss: its weights times their gradients, and the balancing loss's scores,
 * whose rows of experts are held fixed. */
static double token_loss(const struct route_case *c, const real *dweights, int64_t t, const double *logits)
{
        const struct routing *r = &c->routing;
        const int64_t *chosen = c->chosen + t * r->K;
        double loss = 0;
        for (int64_t i = 0; i < r->K; i++)
                loss += (double)dweights[c->place[t * r->K + i]] * weight_of(r, logits, chosen, i);
        for (int64_t e = 0; e < r->E && r->balance != 0; e++) {
                const double f = (double)(c->ends[e] - (e > 0 ? c->ends[e - 1] : 0)) / (double)r->N;
                loss += r->balance * (double)r->E * f * score_of(r, logits, e);
        }
        return loss;
}

/* The sum of the sizes of what the slope of a score is made of, at most; a chosen score's, and any's. */
static double slope_size(const struct route_case *c, const real *dweights, int64_t t, const double *logits)
{
        const struct routing *r = &c->routing;
        const int64_t *chosen = c->chosen + t * r->K;
        double size = 0;
        for (int64_t i = 0; i < r->K; i++)
                size += 2 * r->factor * fabs((double)dweights[c->place[t * r->K + i]]);
        if (r->normalised)
                size /= chosen_sum(r, logits, chosen);
        return size + fabs(r->balance) * (double)(r->E * r->K);
}

/* Differences over 2e-5 are good to 1e-10 of the loss; the kernel's are sums of K terms for a score, and of E
 * for softmax's mean. */
static void check_route_gradient(const struct device *device, const struct route_case *c,
                                 const real *dweights, const real *dlogits, int64_t t, double *logits)
{
        const struct routing *r = &c->routing;
        const double step = 1e-5;
        token_logits(c, t, logits);
        const double size = slope_size(c, dweights, t, logits);
        const double loss = fabs(token_loss(c, dweights, t, logits));
        const double precise = c->vanishes ? 0 : 1e-9 * (1 + size) * (1 + loss);
        for (int64_t e = 0; e < r->E; e++) {
                const double x = logits[e], score = score_of(r, logits, e);
                logits[e] = x + step;
                const double above = token_loss(c, dweights, t, logits);
                logits[e] = x - step;
                const double slope = (above - token_loss(c, dweights, t, logits)) / (2 * step);
                logits[e] = x;
                assert_stored(device, dlogits[t * r->E + e], slope,
                              2 * c->relative * score * size + size * FLUSHED + precise, "dlogits",
                              t * r->E + e);
        }
}

static void check_route_backward(struct device *device, uint64_t *random, const struct route_case *c)
{
        const struct routing *r = &c->routing;
        const int64_t rows = r->N * r->K;
        real *dweights = random_reals(random, rows, 1), *weights = new_reals(rows);
        real *dlogits = poisoned_reals(r->N * r->E);
        double *logits = new_doubles(r->E);
        for (int64_t i = 0; i < rows; i++)
                weights[i] = (real)c->weights[i];
        kernels_route_backward(device, r, lend(device, dlogits, r->N * r->E), dweights, weights, c->place,
                               c->ends, lend(device, c->logits, r->N * r->E));
        finish(device);
        for (int64_t t = 0; t < r->N; t++)
                check_route_gradient(device, c, dweights, dlogits, t, logits);
        free(dweights);
        free(weights);
        free(dlogits);
        free(logits);
}

/* N, E, K, groups, chosen groups: experts without rows, all experts of a token, as many as a few dozen; with
 * a correction and one group, whole groups and parts of them, and so few that a token has experts of others.
 */
static const int64_t routes[][5] = {{1, 1, 1},        {1, 7, 2},        {5, 3, 1},         {7, 4, 4},
                                    {33, 8, 2},       {64, 5, 3},       {3, 61, 8},        {131, 16, 5},
                                    {257, 8, 1},      {16, 17, 17},     {33, 8, 2, 1, 1},  {5, 3, 1, 1, 1},
                                    {33, 8, 2, 4, 2}, {64, 8, 4, 2, 1}, {17, 24, 6, 3, 2}, {9, 24, 16, 6, 3}};

static void check_routes(struct device *device, uint64_t *random, const int64_t size[5], enum logits kind,
                         void check(struct device *, uint64_t *, struct route_case *))
{
        for (int variant = 0; variant < (size[3] > 1 ? 8 : 4); variant++) {
                const struct routing r = {.N = size[0],
                                          .E = size[1],
                                          .K = size[2],
                                          .logistic = variant & 1,
                                          .normalised = variant & 2,
                                          .factor = kind == EQUAL ? 2.5 : 1,
                                          .balance = variant & 1 ? 0 : 0.03,
                                          .groups = size[3],
                                          .chosen_groups = size[4],
                                          .best_of_group = variant & 4};
                struct route_case c = new_route_case(device, random, &r, kind, r.groups > 0 && kind != EQUAL);
                check(device, random, &c);
                free_route_case(&c);
        }
}

static void each_route(struct device *device, void check(struct device *, uint64_t *, struct route_case *))
{
        uint64_t random = seed;
        for (size_t s = 0; s < sizeof routes / sizeof *routes; s++)
                for (int kind = 0; kind < LOGITS; kind++)
                        if (routes[s][3] == 0 || kind != ONE_EXPERT) /* beside which all sums are equal */
                                check_routes(device, &random, routes[s], (enum logits)kind, check);
}

static void check_order(struct device *device, uint64_t *random, struct route_case *c)
{
        (void)random;
        check_route(device, c);
}

static void the_largest_logits_are_chosen_and_rows_sorted(void **state)
{
        each_route(*state, check_order);
}

static void check_slopes(struct device *device, uint64_t *random, struct route_case *c)
{
        check_route_backward(device, random, c);
}

static void route_backward_is_the_slope_of_weights_and_balance(void **state)
{
        each_route(*state, check_slopes);
}

/* ---- permutations ---- */

/* n, N, K: with rows of no whole vectors, and of one element. */
static const int64_t widths[][3] = {{1, 1, 1},  {7, 5, 2},    {16, 33, 1},
                                    {33, 8, 3}, {513, 13, 8}, {64, 131, 2}};

/* A random order of `count` rows. */
static int32_t *random_order(uint64_t *random, int64_t count)
{
        int32_t *order = new_indices(count);
        for (int64_t i = 0; i < count; i++) {
                const int64_t other = random_below(random, i + 1);
                order[i] = order[other];
                order[other] = (int32_t)i;
        }
        return order;
}

static void rows_are_permuted(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t s = 0; s < sizeof widths / sizeof *widths; s++) {
                const int64_t n = widths[s][0], N = widths[s][1], K = widths[s][2];
                int32_t *source = random_order(&random, N * K);
                real *x = random_tensor(device, &random, N * n, 1), *y = poisoned_reals(N * K * n);
                kernels_permute(device, lend(device, y, N * K * n), lend(device, x, N * n), source, N, K, n);
                finish(device);
                for (int64_t i = 0; i < N * K * n; i++)
                        assert_true(y[i] == x[source[i / n] / K * n + i % n]);
                free(source);
                free(x);
                free(y);
        }
}

/* Added in one order, so that not a bit is left open. */
static void a_token_s_rows_are_added_in_order(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t s = 0; s < 2 * sizeof widths / sizeof *widths; s++) {
                const int64_t n = widths[s / 2][0], N = widths[s / 2][1], K = widths[s / 2][2];
                const bool accumulate = s % 2;
                int32_t *place = random_order(&random, N * K);
                real *x = random_tensor(device, &random, N * K * n, 1);
                real *y = accumulate ? random_tensor(device, &random, N * n, 1) : poisoned_reals(N * n);
                real *before = copied_reals(y, N * n);
                kernels_unpermute(device, lend(device, y, N * n), lend(device, x, N * K * n), place, N, K, n,
                                  accumulate);
                finish(device);
                for (int64_t i = 0; i < N * n; i++) {
                        const int32_t *rows = place + i / n * K;
                        real sum = accumulate ? before[i] + x[rows[0] * n + i % n] : x[rows[0] * n + i % n];
                        for (int64_t which = 1; which < K; which++)
                                sum += x[rows[which] * n + i % n];
                        assert_true(y[i] == rounded(device, sum));
                }
                free(place);
                free(x);
                free(y);
                free(before);
        }
}

/* ---- products ---- */

/* Where the rows of each of 5 experts end: of none, of all, of single rows. */
enum { EXPERTS = 5 };
static const int32_t all_ends[][EXPERTS] = {
        {0, 0, 1, 1, 1}, {7, 7, 7, 7, 7}, {0, 0, 0, 0, 13}, {1, 4, 4, 17, 29}, {64, 65, 130, 131, 200}};

static int expert_of_row(const int32_t ends[EXPERTS], int64_t row)
{
        int expert = 0;
        while (ends[expert] <= row)
                expert++;
        return expert;
}

static void check_grouped(struct device *device, uint64_t *random, const int32_t ends[EXPERTS], int64_t n,
                          int64_t k, bool transpose_b)
{
        const int64_t m = ends[EXPERTS - 1];
        struct grouped g = {.m = m, .n = n, .k = k, .experts = EXPERTS, .transpose_b = transpose_b};
        g.lda = k + 3;
        g.ldb = (transpose_b ? k : n) + 1;
        g.ldc = n + 2;
        g.each = (transpose_b ? n : k) * g.ldb + 5;
        real *a = random_tensor(device, random, m * g.lda, 1);
        real *b = random_tensor(device, random, EXPERTS * g.each, 1), *c = poisoned_reals(m * g.ldc);
        kernels_grouped_matmul(device, &g, lend(device, a, m * g.lda), lend(device, b, EXPERTS * g.each),
                               lend(device, c, m * g.ldc), ends);
        finish(device);
        for (int64_t i = 0; i < m * g.ldc; i++) {
                const int64_t row = i / g.ldc, j = i % g.ldc;
                const real *of = b + expert_of_row(ends, row) * g.each;
                double sum = 0, size = 0;
                if (j >= n) { /* the gap after a row is left alone */
                        assert_true(isnan(c[i]));
                        continue;
                }
                for (int64_t l = 0; l < k; l++) {
                        const double x = (double)a[row * g.lda + l] *
                                         (double)(transpose_b ? of[j * g.ldb + l] : of[l * g.ldb + j]);
                        sum += x;
                        size += fabs(x);
                }
                assert_stored(device, c[i], sum, (double)(k + 2) * u * size, "c", i);
        }
        free(a);
        free(b);
        free(c);
}

static void check_grouped_backward(struct device *device, uint64_t *random, const int32_t ends[EXPERTS],
                                   int64_t m, int64_t n)
{
        const int64_t k = ends[EXPERTS - 1];
        struct grouped g = {.m = m, .n = n, .k = k, .experts = EXPERTS};
        g.lda = m + 1;
        g.ldb = n + 3;
        g.ldc = n + 2;
        g.each = m * g.ldc + 5;
        real *a = random_tensor(device, random, k * g.lda, 1),
             *b = random_tensor(device, random, k * g.ldb, 1);
        real *c = random_tensor(device, random, EXPERTS * g.each, 1);
        real *before = copied_reals(c, EXPERTS * g.each);
        kernels_grouped_matmul_backward(device, &g, lend(device, a, k * g.lda), lend(device, b, k * g.ldb),
                                        lend(device, c, EXPERTS * g.each), ends);
        finish(device);
        for (int64_t i = 0; i < EXPERTS * g.each; i++) {
                const int64_t e = i / g.each, row = i % g.each / g.ldc, j = i % g.each % g.ldc;
                double sum = (double)before[i], size = fabs(sum);
                const int64_t begin = e > 0 ? ends[e - 1] : 0;
                if (row >= m || j >= n || begin == ends[e]) {
                        assert_true(c[i] == before[i]);
                        continue;
                }
                for (int64_t l = begin; l < ends[e]; l++) {
                        const double x = (double)a[l * g.lda + row] * (double)b[l * g.ldb + j];
                        sum += x;
                        size += fabs(x);
                }
                assert_stored(device, c[i], sum, (double)(ends[e] - begin + 2) * u * size, "c", i);
        }
        free(a);
        free(b);
        free(c);
        free(before);
}

static void each_expert_s_rows_have_its_own_matrix(void **state)
{
        static const int64_t sizes[][2] = {{1, 1}, {5, 3}, {16, 64}, {33, 17}, {70, 130}};
        uint64_t random = seed;
        for (size_t e = 0; e < sizeof all_ends / sizeof *all_ends; e++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                        check_grouped(*state, &random, all_ends[e], sizes[s][0], sizes[s][1], false);
                        check_grouped(*state, &random, all_ends[e], sizes[s][0], sizes[s][1], true);
                        check_grouped_backward(*state, &random, all_ends[e], sizes[s][0], sizes[s][1]);
                }
}

/* ---- weighted SwiGLU ---- */

static const int64_t gated[][2] = {{1, 1}, {3, 7}, {7, 16}, {33, 97}, {5, 513}, {131, 64}};

static double logistic(double x)
{
        return 1 / (1 + exp(-x));
}

/* As swiglu's in test_kernels, and one rounding more for the weight. */
static void each_row_is_weighted(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t s = 0; s < sizeof gated / sizeof *gated; s++) {
                const int64_t m = gated[s][0], n = gated[s][1];
                real *gu = random_tensor(device, &random, m * 2 * n, 5), *y = poisoned_reals(m * n);
                real *w = random_reals(&random, m, 1);
                kernels_weighted_swiglu(device, lend(device, y, m * n), lend(device, gu, m * 2 * n), w, m, n);
                finish(device);
                for (int64_t i = 0; i < m * n; i++) {
                        const real *gate = gu + i / n * 2 * n + i % n;
                        const double expected = (double)gate[0] * logistic((double)gate[0]) *
                                                (double)gate[n] * (double)w[i / n];
                        assert_stored(device, y[i], expected, 9 * u * fabs(expected) + 1e-33, "y", i);
                }
                free(gu);
                free(y);
                free(w);
        }
}

/* More rows than were planned, fewer, and none: those beyond stay as they are. */
static void rows_beyond_the_last_end_stay(void **state)
{
        enum { ROWS = 40, N = 19, PLANNED = 24, SHARED = 3 };
        static const int32_t cases[][SHARED] = {{7, 30, 37}, {0, 5, 9}, {0, 0, 0}, {24, 24, 24}};
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t e = 0; e < sizeof cases / sizeof *cases; e++) {
                real *gu = random_tensor(device, &random, ROWS * 2 * N, 5),
                     *w = random_reals(&random, ROWS, 1);
                real *all = random_tensor(device, &random, ROWS * N, 1), *y = malloc(ROWS * N * sizeof *y);
                assert_non_null(y);
                memcpy(y, all, ROWS * N * sizeof *y);
                kernels_weighted_swiglu(device, lend(device, all, ROWS * N), lend(device, gu, ROWS * 2 * N),
                                        w, cases[e][SHARED - 1] ? cases[e][SHARED - 1] : 1, N);
                kernels_weighted_swiglu_of(device, lend(device, y, ROWS * N), lend(device, gu, ROWS * 2 * N),
                                           w, cases[e], SHARED, PLANNED, N);
                finish(device);
                for (int i = cases[e][SHARED - 1] ? 0 : N; i < ROWS * N; i++)
                        assert_true(y[i] == all[i]);
                free(gu);
                free(w);
                free(all);
                free(y);
        }
}

/* Ranks 0 and 1 send 2, 0, 3, 1 and 4, 1, 0, 2 rows to four experts. */
static void ends_of_spread_experts_count_every_rank_s_rows(void **state)
{
        static const int32_t of_ranks[] = {2, 2, 5, 6, 4, 5, 5, 7};
        int32_t ends[2];
        kernels_expert_ends(*state, ends, of_ranks, 2, 2, 0, 4);
        finish(*state);
        assert_true(ends[0] == 2 + 4 && ends[1] == 6 + 0 + 1);
        kernels_expert_ends(*state, ends, of_ranks, 2, 2, 2, 4);
        finish(*state);
        assert_true(ends[0] == 3 + 0 && ends[1] == 3 + 1 + 2);
}

/* Row i of gradients: of its weight a sum of n terms. */
static void check_weighted_row(const struct device *device, const real *dgu, const real *dy, const real *gu,
                               double w, double found_dw, int64_t n)
{
        double dw = 0, dw_size = 0;
        for (int64_t j = 0; j < n; j++) {
                const double g = (double)gu[j], up = (double)gu[j + n], d = (double)dy[j] * w;
                const double s = logistic(g), silu = g * s, rest = logistic(-g);
                assert_stored(device, dgu[j], d * up * (s + silu * rest),
                              21 * u * fabs(d * up) * (s + fabs(silu) * rest) + 1e-33, "dgate", j);
                assert_stored(device, dgu[j + n], d * silu, 9 * u * fabs(d * silu) + 1e-33, "dup", j);
                dw += (double)dy[j] * silu * up;
                dw_size += fabs((double)dy[j] * silu * up);
        }
        assert_within(found_dw, dw, (double)(n + 9) * u * dw_size + 1e-33, "dw", 0);
}

static void weighted_backward_is_its_slopes(void **state)
{
        struct device *device = *state;
        uint64_t random = seed;
        for (size_t s = 0; s < sizeof gated / sizeof *gated; s++) {
                const int64_t m = gated[s][0], n = gated[s][1];
                real *gu = random_tensor(device, &random, m * 2 * n, 5), *dgu = poisoned_reals(m * 2 * n);
                real *dy = random_tensor(device, &random, m * n, 1), *w = random_reals(&random, m, 1);
                real *dw = poisoned_reals(m);
                kernels_weighted_swiglu_backward(device, lend(device, dgu, m * 2 * n), dw,
                                                 lend(device, dy, m * n), lend(device, gu, m * 2 * n), w, m,
                                                 n);
                finish(device);
                for (int64_t i = 0; i < m; i++)
                        check_weighted_row(device, dgu + i * 2 * n, dy + i * n, gu + i * 2 * n, (double)w[i],
                                           (double)dw[i], n);
                free(gu);
                free(dgu);
                free(dy);
                free(w);
                free(dw);
        }
}

int main(void)
{
        const struct CMUnitTest of_any[] = {
                cmocka_unit_test(the_largest_logits_are_chosen_and_rows_sorted),
                cmocka_unit_test(route_backward_is_the_slope_of_weights_and_balance),
                cmocka_unit_test(rows_are_permuted),
                cmocka_unit_test(a_token_s_rows_are_added_in_order),
                cmocka_unit_test(each_expert_s_rows_have_its_own_matrix),
                cmocka_unit_test(each_row_is_weighted),
                cmocka_unit_test(rows_beyond_the_last_end_stay),
                cmocka_unit_test(ends_of_spread_experts_count_every_rank_s_rows),
                cmocka_unit_test(weighted_backward_is_its_slopes),
        };
        int failed = 0;
        for (int i = 0; i < cpu_variant_count; i++) {
                if (!is_tested(&cpu_variants[i]))
                        continue;
                built_for = cpu_variants[i].name;
                failed += cmocka_run_group_tests_name("of_reals", of_any, open_real, close_device) +
                          cmocka_run_group_tests_name("of_fp16", of_any, open_fp16, close_device) +
                          cmocka_run_group_tests_name("of_bf16", of_any, open_bf16, close_device);
        }
        return failed;
}
