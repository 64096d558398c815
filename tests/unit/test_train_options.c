/* What `ranvier train` refuses because of the MPI that it runs on, and its options for experiments. */
#include "runtime/real/train_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* The command line of 8 micro-batches a pipeline, under an MPI whose largest tag is `most`. */
static int parse(const char *pp, const char *tp, int ranks, int max, struct rv_error_info *err)
{
        struct net net = {.ranks = ranks, .rank = 1, .max_micro_batch = max};
        struct train_settings settings;
        char stages[8], shards[8],
                *argv[] = {"train", "tiny", "--data", "text.txt", "--batch-size", "8", "--micro-batch-size",
                           "1",     "--pp", stages,   "--tp",     shards,         NULL};
        strcpy(stages, pp);
        strcpy(shards, tp);
        *err = (struct rv_error_info){0};
        return train_options_parse(&settings, (int)(sizeof argv / sizeof *argv) - 1, argv, &net, err);
}

static void as_many_micro_batches_as_mpi_tells_apart_are_sent(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("2", "1", 2, 7, &err), 0);
}

static void more_are_refused_in_a_sentence(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("2", "1", 2, 6, &err), RV_EPLAN);
        assert_string_equal(err.sentence, "a pipeline has 8 micro-batches, this MPI tells 7 apart: a larger "
                                          "--micro-batch-size makes fewer");
}

/* What shard 0 decides is about a forward or a backward, and as long a number as twice as many have. */
static void decisions_take_twice_as_many(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("3", "2", 6, 15, &err), 0);
        assert_int_equal(parse("3", "2", 6, 14, &err), RV_EPLAN);
        assert_string_equal(err.sentence, "a pipeline has 8 micro-batches, this MPI tells 7 apart: a larger "
                                          "--micro-batch-size makes fewer");
}

static void a_pipeline_of_one_stage_sends_none(void **state)
{
        (void)state;
        struct rv_error_info err;
        assert_int_equal(parse("1", "1", 1, 6, &err), 0);
}

/* A mixed-precision run of one rank and 10 steps with `option` set to `value`. */
static int parse_experiment(const char *precision, const char *option, const char *value,
                            struct train_settings *settings, struct rv_error_info *err)
{
        struct net net = {.ranks = 1, .rank = 0, .max_micro_batch = 7};
        char *argv[] = {"train",
                        "tiny",
                        "--data",
                        "text.txt",
                        "--batch-size",
                        "1",
                        "--micro-batch-size",
                        "1",
                        "--steps",
                        "10",
                        "--precision",
                        (char *)precision,
                        (char *)option,
                        (char *)value,
                        NULL};
        *err = (struct rv_error_info){0};
        return train_options_parse(settings, (int)(sizeof argv / sizeof *argv) - 1, argv, &net, err);
}

static void an_injected_overflow_names_a_step_and_a_rank_that_there_are(void **state)
{
        (void)state;
        struct rv_error_info err;
        struct train_settings s;
        assert_int_equal(parse_experiment("mixed", "--inject-overflow", "10", &s, &err), 0);
        assert_int_equal(s.inject_step, 9);
        assert_int_equal(s.inject_rank, 0);
        assert_int_equal(parse_experiment("mixed", "--inject-overflow", "3:0", &s, &err), 0);
        assert_int_equal(s.inject_step, 2);
        assert_int_equal(parse_experiment("bf16", "--inject-overflow", "3", &s, &err), 0);
        assert_int_equal(parse_experiment("mixed", "--lr", "0.1", &s, &err), 0);
        assert_int_equal(s.inject_step, -1);
        const char *const wrong[] = {"0",    "-1",           "11",  "x",
                                     "",     "3:",           "3:1", "3:-1",
                                     "3:0x", "3:4294967296", "3 0", "99999999999999999999"};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                assert_true(parse_experiment("mixed", "--inject-overflow", wrong[i], &s, &err) < 0);
                assert_non_null(strstr(err.sentence, "--inject-overflow"));
        }
        assert_int_equal(parse_experiment("fp32", "--inject-overflow", "3", &s, &err), RV_EPLAN);
}

static void a_host_link_is_a_rate(void **state)
{
        (void)state;
        struct rv_error_info err;
        struct train_settings s;
        assert_int_equal(parse_experiment("mixed", "--host-link", "2.5GB/s", &s, &err), 0);
        assert_true(s.host_link_bytes_per_second == 2.5e9);
        assert_int_equal(parse_experiment("mixed", "--lr", "0.1", &s, &err), 0);
        assert_true(s.host_link_bytes_per_second == 0);
        assert_int_equal(parse_experiment("mixed", "--host-link", "fast", &s, &err), RV_EINPUT);
}

static void what_means_nothing_to_the_device_is_refused(void **state)
{
        (void)state;
        struct rv_error_info err;
        struct train_settings s;
        assert_int_equal(parse_experiment("bf16", "--cuda-graphs=off", "--device=cuda", &s, &err), 0);
        assert_true(s.no_graphs);
        assert_int_equal(parse_experiment("bf16", "--cuda-graphs", "on", &s, &err), 0);
        assert_false(s.no_graphs);
        assert_int_equal(parse_experiment("bf16", "--cuda-graphs", "off", &s, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "--cuda-graphs off is for --device cuda"));
        assert_int_equal(parse_experiment("bf16", "--cuda-graphs", "maybe", &s, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "'maybe' is not known; there are off and on"));
        assert_int_equal(parse_experiment("bf16", "--host-link=1GB/s", "--device=cuda", &s, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "--host-link paces the copies of --device cpu"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(as_many_micro_batches_as_mpi_tells_apart_are_sent),
                cmocka_unit_test(more_are_refused_in_a_sentence),
                cmocka_unit_test(decisions_take_twice_as_many),
                cmocka_unit_test(a_pipeline_of_one_stage_sends_none),
                cmocka_unit_test(an_injected_overflow_names_a_step_and_a_rank_that_there_are),
                cmocka_unit_test(a_host_link_is_a_rate),
                cmocka_unit_test(what_means_nothing_to_the_device_is_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
