/* What `ranvier train` refuses because of the MPI that it runs on. */
#include "runtime/train_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The command line of 8 micro-batches a pipeline, under an MPI whose largest tag is `most`. */
static int parse(const char *pp, int ranks, int most, struct rv_error_info *err)
{
        struct net net = {.ranks = ranks, .rank = 1, .most_micro_batch = most};
        struct train_settings settings;
        char stages[8],
                *argv[] = {"train", "tiny", "--data", "text.txt", "--batch-size", "8", "--micro-batch-size",
                           "1",     "--pp", stages,   NULL};
        strcpy(stages, pp);
        *err = (struct rv_error_info){0};
        return train_options_parse(&settings, (int)(sizeof argv / sizeof *argv) - 1, argv, &net, err);
}

static void as_many_micro_batches_as_mpi_tells_apart_are_sent(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("2", 2, 7, &err), 0);
}

static void more_are_refused_in_a_sentence(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("2", 2, 6, &err), RV_EPLAN);
        assert_string_equal(err.sentence, "a pipeline has 8 micro-batches, this MPI tells 7 apart: a larger "
                                          "--micro-batch-size makes fewer");
}

static void a_pipeline_of_one_stage_sends_none(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("1", 1, 6, &err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(as_many_micro_batches_as_mpi_tells_apart_are_sent),
                cmocka_unit_test(more_are_refused_in_a_sentence),
                cmocka_unit_test(a_pipeline_of_one_stage_sends_none),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
