/* What is kept is found by exactly its key, whatever else is kept. */
#include "runtime/base/memo.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

enum { KEPT = 300, LONGEST = 5 };

/* Different for every `i`; lengths go around. */
static size_t key_of(int i, double key[LONGEST])
{
        const size_t count = 1 + (size_t)i % LONGEST;
        for (size_t k = 0; k < count; k++)
                key[k] = (double)(k + 1) * 0.1;
        key[count - 1] += i * 1e-12;
        return count;
}

static void finds_what_it_keeps(void **state)
{
        (void)state;
        struct memo memo = {0};
        double key[LONGEST];
        for (int i = 0; i < KEPT; i++) {
                const int n = i * 7 % KEPT; /* in no order of keys */
                const double value[] = {n, -n};
                const size_t count = key_of(n, key);
                assert_null(memo_find(&memo, key, count));
                memo_keep(&memo, key, count, value, 2);
        }
        for (int i = 0; i < KEPT; i++) {
                const double *found = memo_find(&memo, key, key_of(i, key));
                assert_non_null(found);
                assert_true(found[0] == i && found[1] == -i);
        }
        memo_free(&memo);
        assert_null(memo_find(&memo, key, 1));
}

static void a_beginning_is_another_key(void **state)
{
        (void)state;
        struct memo memo = {0};
        const double key[] = {1, 2, 3}, negative_zero[] = {-0.0}, zero[] = {0}, value = 4;
        memo_keep(&memo, key, 3, &value, 1);
        memo_keep(&memo, zero, 1, &value, 1);
        assert_null(memo_find(&memo, key, 2));
        assert_null(memo_find(&memo, key + 1, 2));
        assert_null(memo_find(&memo, negative_zero, 1)); /* bit for bit */
        assert_non_null(memo_find(&memo, key, 3));
        memo_free(&memo);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(finds_what_it_keeps),
                cmocka_unit_test(a_beginning_is_another_key),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
