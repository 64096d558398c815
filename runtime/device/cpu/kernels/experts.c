/* Mixture of experts (Shazeer et al. 2017): which experts a token goes to, and its rows in their order. */
#include "runtime/device/cpu/kernels/kernels.h"
#include "runtime/device/cpu/kernels/math.h"
#include "runtime/device/cpu/mixed/mixed.h"

/* How logits become weights, and who is chosen: kernels.h says what the numbers mean. */
struct router {
        bool logistic, normalised;
        real factor;
        int64_t groups, chosen_groups;
        bool best; /* of groups: by their largest number; else by the sum of two */
};

static struct router router_of(const struct kernel_args *args)
{
        return (struct router){args->scalar[0] != 0,     args->scalar[1] != 0,     (real)args->scalar[2],
                               (int64_t)args->scalar[4], (int64_t)args->scalar[5], args->scalar[6] != 0};
}

/* What scores are divided by: their sum, but not 0, which it is of scores too small for a `real`. */
static real divisor(real sum)
{
        return sum + (real)1e-20;
}

/* The scores of one token; `scores` may be `logits`. */
static void score(const struct router *router, const real *logits, real *scores, int64_t E)
{
        real max = logits[0], sum = 0;
        for (int64_t e = 1; e < E; e++)
                max = logits[e] > max ? logits[e] : max;
        for (int64_t e = 0; e < E; e++) {
                scores[e] = router->logistic ? 1 / (1 + real_exp(-logits[e])) : real_exp(logits[e] - max);
                sum += scores[e];
        }
        for (int64_t e = 0; e < E && !router->logistic; e++)
                scores[e] /= sum;
}

static bool is_among(const int32_t *chosen, int64_t count, int64_t e)
{
        bool found = false;
        for (int64_t i = 0; i < count; i++)
                found = found || chosen[i] == e;
        return found;
}

/* The largest of those that no earlier choice of the token is. */
static int32_t choose(const real *scores, int64_t E, const int32_t *chosen, int64_t count)
{
        int32_t best = -1;
        for (int32_t e = 0; e < E; e++)
                if (!is_among(chosen, count, e) && (best < 0 || scores[e] > scores[best]))
                        best = e;
        return best;
}

/* What a group is chosen by: the sum of its two largest, or its largest. */
static real of_group(const struct router *router, const real *x, int64_t n)
{
        real first = x[0] > x[1] ? x[0] : x[1], second = x[0] > x[1] ? x[1] : x[0];
        for (int64_t i = 2; i < n; i++)
                if (x[i] > first) {
                        second = first;
                        first = x[i];
                } else if (x[i] > second) {
                        second = x[i];
                }
        return router->best ? first : first + second;
}

/* What a token's experts are chosen by becomes 0 in the groups that are not. */
static void choose_groups(const struct router *router, real *by, int64_t E)
{
        const int64_t each = E / router->groups;
        real sums[CPU_MAX_EXPERTS];
        int32_t chosen[CPU_MAX_EXPERTS];
        for (int64_t g = 0; g < router->groups; g++)
                sums[g] = of_group(router, by + g * each, each);
        for (int64_t i = 0; i < router->chosen_groups; i++)
                chosen[i] = choose(sums, router->groups, chosen, i);
        for (int64_t g = 0; g < router->groups; g++)
                if (!is_among(chosen, router->chosen_groups, g))
                        memset(by + g * each, 0, (size_t)each * sizeof *by);
}

/* A token's logits become what its experts are chosen by; `correction` is NULL, or reals. */
static void choose_by(const struct router *router, const real *correction, real *logits, int64_t E)
{
        if (!correction && router->groups <= 1)
                return;
        score(router, logits, logits, E);
        for (int64_t e = 0; correction && e < E; e++)
                logits[e] += correction[e];
        if (router->groups > 1)
                choose_groups(router, logits, E);
}

/* A row as reals: where it is, or converted into `to`. */
static const real *reals_of(enum dtype dtype, const void *tensor, int64_t at, int64_t n, real *to)
{
        const void *row = element_of(dtype, tensor, at);
        if (dtype == DTYPE_FP32)
                return row;
        reals_from(dtype, to, row, n);
        return to;
}

/* Counts become the first row of each expert. */
static void counts_to_begins(int32_t *ends, int64_t E)
{
        int32_t begin = 0;
        for (int64_t e = 0; e < E; e++) {
                const int32_t count = ends[e];
                ends[e] = begin;
                begin += count;
        }
}

/* Until all are chosen, `place` has experts and `source` nothing. */
void cpu_route(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        enum { WEIGHTS, PLACE, SOURCE, ENDS, LOGITS, CORRECTION };
        const struct router router = router_of(args);
        const int64_t N = kernel->m, E = kernel->n, K = kernel->k;
        real *weights = args->p[WEIGHTS];
        int32_t *place = args->p[PLACE], *source = args->p[SOURCE], *ends = args->p[ENDS];
        const enum dtype dtype = (enum dtype)kernel->dtype;
        const real *correction =
                args->p[CORRECTION] ? reals_of(dtype, args->p[CORRECTION], 0, E, scratch + E) : NULL;
        memset(ends, 0, (size_t)E * sizeof *ends);
        for (int64_t t = 0; t < N; t++) {
                reals_from(dtype, scratch, element_of(dtype, args->p[LOGITS], t * E), E);
                choose_by(&router, correction, scratch, E);
                for (int64_t i = 0; i < K; i++)
                        ends[place[t * K + i] = choose(scratch, E, place + t * K, i)]++;
        }
        counts_to_begins(ends, E);
        for (int64_t t = 0; t < N; t++) {
                real sum = 0;
                reals_from(dtype, scratch, element_of(dtype, args->p[LOGITS], t * E), E);
                score(&router, scratch, scratch, E);
                for (int64_t i = 0; i < K; i++)
                        sum += scratch[place[t * K + i]];
                const real factor = router.normalised ? router.factor / divisor(sum) : router.factor;
                for (int64_t i = t * K; i < (t + 1) * K; i++) {
                        const int32_t expert = place[i], row = ends[expert]++;
                        weights[row] = factor * scratch[expert];
                        source[row] = (int32_t)i;
                        place[i] = row;
                }
        }
}

/* Whose row it is: the first expert that ends behind it. */
static int32_t expert_of(const int32_t *ends, int64_t E, int32_t row)
{
        int32_t first = 0, last = (int32_t)E - 1;
        while (first < last) {
                const int32_t middle = (first + last) / 2;
                if (ends[middle] > row)
                        last = middle;
                else
                        first = middle + 1;
        }
        return first;
}

void cpu_route_backward(const struct kernel *kernel, const struct kernel_args *args)
{
        enum { DLOGITS, DWEIGHTS, WEIGHTS, PLACE, ENDS, LOGITS };
        const struct router router = router_of(args);
        const int64_t N = kernel->m, E = kernel->n, K = kernel->k;
        const real *dweights = args->p[DWEIGHTS], *weights = args->p[WEIGHTS], *logits = args->p[LOGITS];
        const int32_t *place = args->p[PLACE], *ends = args->p[ENDS];
        const real all = (real)ends[E - 1] / (real)K, balance = (real)args->scalar[3] * (real)E / all;
        real *dlogits = args->p[DLOGITS], scores[CPU_MAX_EXPERTS];
        for (int64_t t = 0; t < N; t++, place += K, logits += E, dlogits += E) {
                real sum = 0, past = 0, inner = 0; /* of chosen scores; of dw w; of p dp */
                score(&router, logits, scores, E);
                for (int64_t i = 0; i < K; i++) {
                        sum += scores[expert_of(ends, E, place[i])];
                        past += dweights[place[i]] * weights[place[i]];
                }
                for (int64_t e = 0; e < E; e++) /* first the gradients of scores */
                        dlogits[e] = balance * (real)(ends[e] - (e > 0 ? ends[e - 1] : 0));
                for (int64_t i = 0; i < K; i++) {
                        const real dw = router.factor * dweights[place[i]];
                        dlogits[expert_of(ends, E, place[i])] +=
                                router.normalised ? (dw - past) / divisor(sum) : dw;
                }
                for (int64_t e = 0; e < E; e++)
                        inner += scores[e] * dlogits[e];
                for (int64_t e = 0; e < E; e++)
                        dlogits[e] = router.logistic ? scores[e] * (1 - scores[e]) * dlogits[e]
                                                     : scores[e] * (dlogits[e] - inner);
        }
}

void cpu_expert_ends(const struct kernel *kernel, const struct kernel_args *args)
{
        int32_t *ends = args->p[0], end = 0;
        const int64_t first = args->ld[0], E = args->ld[1];
        for (int64_t i = 0; i < kernel->m; i++) {
                const int32_t *rank = args->p[1];
                for (int64_t of = 0; of < kernel->k; of++, rank += E)
                        end += rank[first + i] - (first + i > 0 ? rank[first + i - 1] : 0);
                ends[i] = end;
        }
}

void cpu_permute(const struct kernel *kernel, const struct kernel_args *args)
{
        enum { Y, X, SOURCE };
        const int64_t bytes = kernel->n * element_bytes((enum dtype)kernel->dtype);
        const int32_t *source = args->p[SOURCE];
        char *y = args->p[Y];
        for (int64_t r = 0; r < kernel->m; r++, y += bytes)
                memcpy(y, (const char *)args->p[X] + source[r] / kernel->k * bytes, (size_t)bytes);
}

/* y = x, or y += x; and the same of two rows, one after the other. */
static void put(real *restrict y, const real *restrict x, int64_t n, bool add)
{
        if (!add)
                memcpy(y, x, (size_t)n * sizeof *y);
        for (int64_t j = 0; j < n && add; j++)
                y[j] += x[j];
}

static void put_two(real *restrict y, const real *restrict a, const real *restrict b, int64_t n, bool add)
{
        for (int64_t j = 0; j < n && !add; j++)
                y[j] = a[j] + b[j];
        for (int64_t j = 0; j < n && add; j++)
                y[j] = y[j] + a[j] + b[j];
}

void cpu_unpermute(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        enum { Y, X, PLACE };
        const enum dtype dtype = (enum dtype)kernel->dtype;
        const int64_t n = kernel->n, K = kernel->k;
        const int32_t *place = args->p[PLACE];
        for (int64_t t = 0; t < kernel->m; t++, place += K) {
                void *stored = element_of(dtype, args->p[Y], t * n);
                real *y = dtype == DTYPE_FP32 ? stored : scratch;
                if (dtype != DTYPE_FP32 && kernel->accumulate)
                        reals_from(dtype, y, stored, n);
                for (int64_t i = 0; i < K; i += 2) {
                        const bool add = kernel->accumulate || i > 0;
                        const real *a = reals_of(dtype, args->p[X], place[i] * n, n, scratch + n);
                        if (i + 1 == K)
                                put(y, a, n, add);
                        else
                                put_two(y, a,
                                        reals_of(dtype, args->p[X], place[i + 1] * n, n, scratch + 2 * n), n,
                                        add);
                }
                if (dtype != DTYPE_FP32)
                        reals_to(dtype, stored, y, n);
        }
}
