/* What ranks bring together, over a network that only notes what it is asked for. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "runtime/real/collect.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

/* A network of one rank, which expects sums of adjacent pieces from `next` on. */
struct noting {
        struct net net;
        float *next;
        int64_t largest;
        int under_way;
};

static void note_sum(struct net *net, void *buffer, int64_t elements, enum net_type type,
                     enum net_group group, int token)
{
        struct noting *noting = (struct noting *)net;
        assert_true(type == NET_FLOAT && group == NET_DATA && token == 0);
        assert_ptr_equal(buffer, noting->next);
        noting->next += elements;
        noting->largest = elements > noting->largest ? elements : noting->largest;
        noting->under_way++;
}

static int complete(struct net *net, struct net_done *done)
{
        struct noting *noting = (struct noting *)net;
        assert_int_equal(noting->under_way, 1);
        noting->under_way = 0;
        *done = (struct net_done){0};
        return 1;
}

/* The tensor is never touched, and takes no memory. */
static void a_tensor_of_more_elements_than_mpi_counts_is_summed_in_pieces(void **state)
{
        (void)state;
        static const struct net_ops ops = {.iallreduce = note_sum, .test = complete};
        const int64_t counts[] = {0, 1, INT64_C(1) << 26, (INT64_C(1) << 26) + 1, INT64_C(5000000000)};
        const size_t bytes = (size_t)INT64_C(5000000000) * sizeof(float);
        float *values = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(values != MAP_FAILED);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                struct noting noting = {.net = {.ops = &ops, .ranks = 1}, .next = values};
                collect_sum(&noting.net, values, counts[i], NET_DATA);
                assert_ptr_equal(noting.next, values + counts[i]);
                assert_true(noting.largest <= INT_MAX / (int64_t)sizeof(float));
                assert_int_equal(noting.under_way, 0);
        }
        munmap(values, bytes);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_tensor_of_more_elements_than_mpi_counts_is_summed_in_pieces),
        };
        return cmocka_run_group_tests_name("together", tests, NULL, NULL);
}
