/* Which variant of the CPU device's kernels is chosen, on a processor that is made up. */
#include "runtime/device/cpu/variant.h"
#include "tests/unit/numbers.h"

#include <string.h>

static void nothing(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        (void)kernel;
        (void)args;
        (void)scratch;
}

static bool yes(void)
{
        return true;
}

static bool no(void)
{
        return false;
}

static const struct cpu_variant plain = {"plain", nothing, yes, ""}, wide = {"wide", nothing, yes, "W"},
                                wider = {"wider", nothing, no, "W and X"};

static void the_last_that_runs_is_chosen(void **state)
{
        (void)state;
        const struct cpu_variant all[] = {plain, wide, wider};
        assert_ptr_equal(cpu_variant_choose(all, 3, NULL, NULL), &all[1]);
        assert_ptr_equal(cpu_variant_choose(all, 3, "auto", NULL), &all[1]);
        assert_ptr_equal(cpu_variant_choose(all, 1, NULL, NULL), &all[0]);
}

static void one_that_runs_is_chosen_by_name(void **state)
{
        (void)state;
        const struct cpu_variant all[] = {plain, wide, wider};
        assert_ptr_equal(cpu_variant_choose(all, 3, "plain", NULL), &all[0]);
        assert_ptr_equal(cpu_variant_choose(all, 3, "wide", NULL), &all[1]);
}

static void others_are_refused_in_a_sentence(void **state)
{
        (void)state;
        const struct cpu_variant all[] = {plain, wide, wider};
        struct rv_error_info err;
        assert_null(cpu_variant_choose(all, 3, "wider", &err));
        assert_int_equal(err.code, RV_EINPUT);
        assert_non_null(strstr(err.sentence, "--cpu-kernels wider needs W and X, which this processor ("));
        assert_non_null(strstr(err.sentence, ") has not; it runs auto, plain and wide"));
        assert_null(cpu_variant_choose(all, 3, "wid", &err));
        assert_int_equal(err.code, RV_EINPUT);
        assert_string_equal(
                err.sentence,
                "--cpu-kernels 'wid': there are none of that name, only auto, plain, wide and wider");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_last_that_runs_is_chosen),
                cmocka_unit_test(one_that_runs_is_chosen_by_name),
                cmocka_unit_test(others_are_refused_in_a_sentence),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
