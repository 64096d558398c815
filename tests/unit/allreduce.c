/* All-reduces over Open MPI, started by tests/cli/allreduce.sh with several ranks. Of fp16 and bf16, every
 * rank gets the same bits, and each sum is one that fp16_add or bf16_add gives in some order. Those that are
 * issued together complete in order. Of fp32 and fp64, sums have the bits of the binomial tree, whatever
 * their size, summed for all or for each its part. Prints TAP on rank 0. */
#include "runtime/base/fp16.h"
#include "runtime/net/net.h"
#include "tests/unit/numbers.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_RANKS = 5 };

static void wait(struct net *net)
{
        struct net_done done;
        while (!net->ops->test(net, &done))
                sched_yield();
        assert_int_equal(done.token, 5);
}

/* A 16-bit format; `large`: two of these are hardly held any more. */
struct format {
        const char *name;
        enum net_type type;
        uint16_t (*from)(float);
        float (*to)(uint16_t);
        void (*add)(uint16_t *, const uint16_t *, int64_t);
        double large;
};

/* Numbers of very different sizes, so that the order of a sum shows; every eleventh near the largest. */
static void fill(const struct format *format, uint16_t *x, int64_t count, int rank)
{
        for (int64_t i = 0; i < count; i++) {
                uint64_t random = 77 + 1000003 * (uint64_t)(rank + 1) + 17 * (uint64_t)i;
                random_bits(&random);
                double size = i % 11 == 0 ? format->large : ldexp(1, (int)random_below(&random, 20) - 14);
                x[i] = format->from((float)(size * random_number(&random)));
        }
}

static uint16_t add(const struct format *format, uint16_t a, uint16_t b)
{
        format->add(&a, &b, 1);
        return a;
}

static bool same(const struct format *format, uint16_t a, uint16_t b)
{
        return a == b || (isnan(format->to(a)) && isnan(format->to(b)));
}

/* Whether `sum` is that of x[0..n) in any order of pairs: any two are summed, then one fewer remain. */
static bool reachable(const struct format *format, uint16_t sum, const uint16_t *x, int n)
{
        if (n == 1)
                return same(format, sum, x[0]);
        for (int i = 0; i < n; i++)
                for (int j = i + 1; j < n; j++) {
                        uint16_t rest[MAX_RANKS];
                        int kept = 0;
                        for (int k = 0; k < n; k++)
                                if (k != i && k != j)
                                        rest[kept++] = x[k];
                        rest[kept++] = add(format, x[i], x[j]);
                        if (reachable(format, sum, rest, kept))
                                return true;
                }
        return false;
}

static uint64_t hash(const uint16_t *x, int64_t count)
{
        uint64_t h = 14695981039346656037U;
        for (int64_t i = 0; i < count; i++)
                h = (h ^ x[i]) * 1099511628211U;
        return h;
}

/* Ranks whose sums have other bits than rank 0's, and elements of rank 0's that no order of sums gives.
 */
static void check(struct net *net, const struct format *format, int64_t count, int *other_bits,
                  int64_t *wrong)
{
        uint16_t *sums = malloc((size_t)count * sizeof *sums), *parts[MAX_RANKS] = {0};
        assert_non_null(sums);
        for (int r = 0; r < net->ranks; r++) {
                parts[r] = malloc((size_t)count * sizeof *parts[r]);
                assert_non_null(parts[r]);
                fill(format, parts[r], count, r);
        }
        memcpy(sums, parts[net->rank], (size_t)count * sizeof *sums);
        net->ops->iallreduce(net, sums, count, format->type, NET_WORLD, 5);
        wait(net);
        uint64_t mine = hash(sums, count), all[MAX_RANKS];
        net->ops->gather(net, &mine, sizeof mine, all);
        *other_bits = 0;
        *wrong = 0;
        for (int r = 0; net->rank == 0 && r < net->ranks; r++)
                *other_bits += all[r] != mine;
        for (int64_t i = 0; net->rank == 0 && i < count; i++) {
                uint16_t x[MAX_RANKS];
                for (int r = 0; r < net->ranks; r++)
                        x[r] = parts[r][i];
                *wrong += !reachable(format, sums[i], x, net->ranks);
        }
        for (int r = 0; r < net->ranks; r++)
                free(parts[r]);
        free(sums);
}

/* ---- the order of sums ---- */

static double term(int64_t i, int rank)
{
        uint64_t random = 99 + 1000003 * (uint64_t)(rank + 1) + 31 * (uint64_t)i;
        random_bits(&random);
        return ldexp(random_number(&random) - 0.5, (int)random_below(&random, 30) - 15);
}

/* Neighbours first, then pairs of them. */
static double tree_sum(int64_t i, int ranks, bool fp32)
{
        double x[MAX_RANKS] = {0};
        for (int r = 0; r < ranks; r++)
                x[r] = fp32 ? (float)term(i, r) : term(i, r);
        for (int distance = 1; distance < ranks; distance *= 2)
                for (int r = 0; r + distance < ranks; r += 2 * distance)
                        x[r] = fp32 ? (float)x[r] + (float)x[r + distance] : x[r] + x[r + distance];
        return x[0];
}

enum way { SUM_ALL, SUM_PART, SUM_PART_ELSEWHERE, WAYS };

static double at(const void *x, int64_t i, bool fp32)
{
        return fp32 ? ((const float *)x)[i] : ((const double *)x)[i];
}

/* Elements of all ranks that are not the tree's. */
static double count_wrong(struct net *net, int64_t count, bool fp32, enum way way)
{
        const size_t size = fp32 ? sizeof(float) : sizeof(double);
        const int64_t each = (count + net->ranks - 1) / net->ranks, mine = each * net->rank;
        const int64_t begin = way == SUM_ALL ? 0 : mine < count ? mine : count;
        const int64_t end = way == SUM_ALL || begin + each > count ? count : begin + each;
        char *x = malloc((size_t)count * size), *own = malloc((size_t)each * size);
        double wrong = 0;
        assert_non_null(x);
        assert_non_null(own);
        for (int64_t i = 0; i < count; i++)
                if (fp32)
                        ((float *)(void *)x)[i] = (float)term(i, net->rank);
                else
                        ((double *)(void *)x)[i] = term(i, net->rank);
        const enum net_type type = fp32 ? NET_FLOAT : NET_DOUBLE;
        if (way == SUM_ALL)
                net->ops->iallreduce(net, x, count, type, NET_WORLD, 5);
        else
                net->ops->ireduce_scatter(net, x, way == SUM_PART ? NULL : own, count, type, NET_WORLD, 5);
        wait(net);
        const char *sums = way == SUM_PART_ELSEWHERE ? own : x + (size_t)begin * size;
        for (int64_t i = begin; i < end; i++) {
                const double sum = at(sums, i - begin, fp32), tree = tree_sum(i, net->ranks, fp32);
                wrong += sum < tree || sum > tree;
        }
        free(x);
        free(own);
        net->ops->iallreduce(net, &wrong, 1, NET_DOUBLE, NET_WORLD, 5);
        wait(net);
        return wrong;
}

/* From one element to parts of several pieces, among them parts that are shorter or empty. */
static int check_trees(struct net *net, int *tests)
{
        static const int64_t counts[] = {1, 5, 4096, 8193, 12289, 16385, 100003, 1500001};
        static const char *const ways[WAYS] = {"for all", "for each its part", "for each its part elsewhere"};
        int failed = 0;
        for (int way = 0; way < WAYS; way++)
                for (int fp32 = 0; fp32 <= 1; fp32++) {
                        double wrong = 0;
                        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
                                wrong += count_wrong(net, counts[i], fp32, (enum way)way);
                        failed += wrong > 0;
                        ++*tests;
                        if (net->rank == 0)
                                printf("%s %d - sums of %s over %d ranks %s are the tree's: %.0f are not\n",
                                       wrong > 0 ? "not ok" : "ok", *tests, fp32 ? "fp32" : "fp64",
                                       net->ranks, ways[way], wrong);
                }
        return failed;
}

/* Many at once, some issued while others complete: each is summed, and they complete in the order of issue.
 * Returns how many were wrong on any rank. */
static double check_order(struct net *net)
{
        enum { AT_ONCE = 50, LATER = 30, ELEMENTS = 20000, FEW = 1000 }; /* few: by another route */
        static float x[AT_ONCE + LATER][ELEMENTS];
        double wrong = 0;
        int issued = 0;
        for (int i = 0; i < AT_ONCE + LATER; i++)
                for (int j = 0; j < ELEMENTS; j++)
                        x[i][j] = (float)(i + j + net->rank);
        for (; issued < AT_ONCE; issued++)
                net->ops->iallreduce(net, x[issued], issued % 2 ? FEW : ELEMENTS, NET_FLOAT, NET_WORLD,
                                     issued);
        for (int i = 0; i < AT_ONCE + LATER; i++) {
                struct net_done done;
                wrong += !net->ops->pending(net);
                while (!net->ops->test(net, &done))
                        sched_yield();
                wrong += done.token != i;
                for (int j = 0; j < (i % 2 ? FEW : ELEMENTS); j++)
                        wrong += x[i][j] != (float)(net->ranks * (i + j) + net->ranks * (net->ranks - 1) / 2);
                if (issued < AT_ONCE + LATER) {
                        net->ops->iallreduce(net, x[issued], issued % 2 ? FEW : ELEMENTS, NET_FLOAT,
                                             NET_WORLD, issued);
                        issued++;
                }
        }
        wrong += net->ops->pending(net);
        net->ops->iallreduce(net, &wrong, 1, NET_DOUBLE, NET_WORLD, 5);
        wait(net);
        return wrong;
}

static const struct format formats[] = {
        {"fp16", NET_FP16, fp16_from_float, fp16_to_float, fp16_add, 60000},
        {"bf16", NET_BF16, bf16_from_float, bf16_to_float, bf16_add, 3e38},
};

/* One format, in different lengths; returns how many of them were wrong. */
static int check_format(struct net *net, const struct format *format, int *tests)
{
        static const int64_t counts[] = {1, 3, 1000, 300001};
        int failed = 0;
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                int other_bits;
                int64_t wrong;
                check(net, format, counts[i], &other_bits, &wrong);
                failed += other_bits || wrong;
                ++*tests;
                if (net->rank == 0)
                        printf("%s %d - %lld numbers of %s summed over %d ranks: %lld no order of sums "
                               "gives, "
                               "%d ranks with other bits\n",
                               other_bits || wrong ? "not ok" : "ok", *tests, (long long)counts[i],
                               format->name, net->ranks, (long long)wrong, other_bits);
        }
        return failed;
}

int main(int argc, char **argv)
{
        struct rv_error_info err;
        struct net *net = net_mpi_open(&argc, &argv, &err);
        int failed = 0, tests = 0;
        if (!net || net->ranks > MAX_RANKS)
                return 2;
        for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
                failed += check_format(net, &formats[i], &tests);
        failed += check_trees(net, &tests);
        double disorder = check_order(net);
        failed += disorder > 0;
        if (net->rank == 0)
                printf("%s %d - all-reduces over %d ranks that wait for each other complete in "
                       "order\n1..%d\n",
                       disorder > 0 ? "not ok" : "ok", tests + 1, net->ranks, tests + 1);
        net->ops->close(net);
        return failed > 0;
}
