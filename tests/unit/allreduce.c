/* All-reduces over Open MPI, started by tests/cli/allreduce.sh with several ranks. Of fp16, every rank gets
 * the same bits, and each sum is one that half_add gives in some order. Those that are issued together
 * complete in order. Prints TAP on rank 0. */
#include "models/half.h"
#include "runtime/net/net.h"
#include "tests/unit/numbers.h"

#include <sched.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_RANKS = 4 };

static void wait(struct net *net)
{
        struct net_done done;
        while (!net->ops->test(net, &done))
                sched_yield();
        assert_int_equal(done.token, 5);
}

/* Numbers of very different sizes, so that the order of a sum shows; every eleventh beyond what fp16 holds.
 */
static void fill(uint16_t *x, int64_t count, int rank)
{
        for (int64_t i = 0; i < count; i++) {
                uint64_t random = 77 + 1000003 * (uint64_t)(rank + 1) + 17 * (uint64_t)i;
                random_bits(&random);
                double size = i % 11 == 0 ? 60000 : ldexp(1, (int)random_below(&random, 20) - 14);
                x[i] = half_from_float((float)(size * random_number(&random)));
        }
}

static uint16_t add(uint16_t a, uint16_t b)
{
        half_add(&a, &b, 1);
        return a;
}

static bool same(uint16_t a, uint16_t b)
{
        return a == b || (isnan(half_to_float(a)) && isnan(half_to_float(b)));
}

/* Whether `sum` is that of x[0..n) in any order of pairs: any two are summed, then one fewer remain. */
static bool reachable(uint16_t sum, const uint16_t *x, int n)
{
        if (n == 1)
                return same(sum, x[0]);
        for (int i = 0; i < n; i++)
                for (int j = i + 1; j < n; j++) {
                        uint16_t rest[MOST_RANKS];
                        int kept = 0;
                        for (int k = 0; k < n; k++)
                                if (k != i && k != j)
                                        rest[kept++] = x[k];
                        rest[kept++] = add(x[i], x[j]);
                        if (reachable(sum, rest, kept))
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

/* Ranks whose sums have other bits than rank 0's, and elements of rank 0's that no order of half_add gives.
 */
static void check(struct net *net, int64_t count, int *other_bits, int64_t *wrong)
{
        uint16_t *sums = malloc((size_t)count * sizeof *sums), *parts[MOST_RANKS] = {0};
        assert_non_null(sums);
        for (int r = 0; r < net->ranks; r++) {
                parts[r] = malloc((size_t)count * sizeof *parts[r]);
                assert_non_null(parts[r]);
                fill(parts[r], count, r);
        }
        memcpy(sums, parts[net->rank], (size_t)count * sizeof *sums);
        net->ops->iallreduce(net, sums, count, NET_HALF, NET_WORLD, 5);
        wait(net);
        uint64_t mine = hash(sums, count), all[MOST_RANKS];
        net->ops->gather(net, &mine, sizeof mine, all);
        *other_bits = 0;
        *wrong = 0;
        for (int r = 0; net->rank == 0 && r < net->ranks; r++)
                *other_bits += all[r] != mine;
        for (int64_t i = 0; net->rank == 0 && i < count; i++) {
                uint16_t x[MOST_RANKS];
                for (int r = 0; r < net->ranks; r++)
                        x[r] = parts[r][i];
                *wrong += !reachable(sums[i], x, net->ranks);
        }
        for (int r = 0; r < net->ranks; r++)
                free(parts[r]);
        free(sums);
}

/* Many at once, some issued while others complete: each is summed, and they complete in the order of issue.
 * Returns how many were wrong on any rank. */
static double check_order(struct net *net)
{
        enum { AT_ONCE = 50, LATER = 30, ELEMENTS = 1000 };
        static float x[AT_ONCE + LATER][ELEMENTS];
        double wrong = 0;
        int issued = 0;
        for (int i = 0; i < AT_ONCE + LATER; i++)
                for (int j = 0; j < ELEMENTS; j++)
                        x[i][j] = (float)(i + j + net->rank);
        for (; issued < AT_ONCE; issued++)
                net->ops->iallreduce(net, x[issued], ELEMENTS, NET_FLOAT, NET_WORLD, issued);
        for (int i = 0; i < AT_ONCE + LATER; i++) {
                struct net_done done;
                while (!net->ops->test(net, &done))
                        sched_yield();
                wrong += done.token != i;
                for (int j = 0; j < ELEMENTS; j++)
                        wrong += x[i][j] != (float)(net->ranks * (i + j) + net->ranks * (net->ranks - 1) / 2);
                if (issued < AT_ONCE + LATER) {
                        net->ops->iallreduce(net, x[issued], ELEMENTS, NET_FLOAT, NET_WORLD, issued);
                        issued++;
                }
        }
        net->ops->iallreduce(net, &wrong, 1, NET_DOUBLE, NET_WORLD, 5);
        wait(net);
        return wrong;
}

int main(int argc, char **argv)
{
        static const int64_t counts[] = {1, 3, 1000, 300001};
        struct rv_error_info err;
        struct net *net = net_mpi_open(&argc, &argv, &err);
        int failed = 0, tests = sizeof counts / sizeof *counts;
        if (!net || net->ranks > MOST_RANKS)
                return 2;
        for (int i = 0; i < tests; i++) {
                int other_bits;
                int64_t wrong;
                check(net, counts[i], &other_bits, &wrong);
                failed += other_bits || wrong;
                if (net->rank == 0)
                        printf("%s %d - %lld numbers summed over %d ranks: %lld not a sum of half_add, %d "
                               "ranks "
                               "with other bits\n",
                               other_bits || wrong ? "not ok" : "ok", i + 1, (long long)counts[i], net->ranks,
                               (long long)wrong, other_bits);
        }
        double disorder = check_order(net);
        failed += disorder > 0;
        if (net->rank == 0)
                printf("%s %d - all-reduces over %d ranks that wait for each other complete in "
                       "order\n1..%d\n",
                       disorder > 0 ? "not ok" : "ok", tests + 1, net->ranks, tests + 1);
        net->ops->close(net);
        return failed > 0;
}
