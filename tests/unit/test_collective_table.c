/* Tables of measured collectives: what is read, what is refused, and how well one measured size stands for
 * those beside it, on the NCCL measurements of six kinds of GPUs where they lie beside the source tree. */
#include "sim/platform/collective_table.h"
#include "runtime/base/number.h"
#include "tests/unit/numbers.h"
#include "tests/unit/scratch.h"

#include <string.h>

/* ---- what is read ---- */

static int read_text(struct collective_table *table, const char *text, struct rv_error_info *err)
{
        struct scratch scratch;
        scratch_open(&scratch);
        const int rc =
                collective_table_read(table, scratch_write(&scratch, "t.csv", text, strlen(text)), err);
        scratch_close(&scratch);
        return rc;
}

static void test_rows_become_series_by_size_in_seconds(void **state)
{
        (void)state;
        struct collective_table table = {0};
        struct rv_error_info err;
        assert_int_equal(
                read_text(&table,
                          "# source: a test\n# another comment\noperation,gpus,nodes,bytes,microseconds\n"
                          "all_gather,16,2,2048,30\nall_gather,16,2,1024,20\n\nalltoall,8,1,1024,10\n",
                          &err),
                0);
        assert_string_equal(table.source, "a test");
        assert_int_equal(table.count, 2);
        const struct collective_series *gather = &table.series[0];
        assert_int_equal(gather->kind, COLLECTIVE_ALL_GATHER);
        assert_int_equal(gather->gpus, 16);
        assert_int_equal(gather->nodes, 2);
        assert_int_equal(gather->count, 2);
        assert_within(gather->points[0].bytes, 1024, 0, "first size", 0);
        assert_within(gather->points[1].seconds, 30e-6, 1e-12, "second time", 0);
        assert_int_equal(table.series[1].kind, COLLECTIVE_ALL_TO_ALL);
        collective_table_free(&table);
}

/* A row is looked for among all groups, and all sizes of its group. */
static void test_tables_of_too_many_groups_or_sizes_are_refused(void **state)
{
        (void)state;
        enum { ROWS = 4097, ROW = 48 };
        static char text[(ROWS + 2) * ROW];
        for (int sizes = 0; sizes < 2; sizes++) {
                struct collective_table table = {0};
                struct rv_error_info err;
                char *end = text + sprintf(text, "# source: a test\noperation,gpus,bytes,seconds\n");
                for (int i = 0; i < ROWS; i++)
                        end += sprintf(end, "all_reduce,%d,%d,1e-5\n", sizes ? 8 : 2 + i, sizes ? 1 + i : 8);
                assert_int_equal(read_text(&table, text, &err), RV_EINPUT);
                assert_non_null(strstr(err.sentence, sizes ? "t.csv:4099: is size number 4097 of all_reduce"
                                                           : "t.csv:4099: is of group number 4097"));
                collective_table_free(&table);
        }
}

/* nccl-tests: the bytes that a link of a member carries, a second. */
static void test_bus_bandwidths_are_those_of_nccl_tests(void **state)
{
        (void)state;
        struct collective_table table = {0};
        struct rv_error_info err;
        assert_int_equal(read_text(&table,
                                   "# source: a test\noperation,gpus,bytes,bus_gb_per_second\n"
                                   "all_reduce,8,8000000000,100\nreduce_scatter,8,8000000000,100\n",
                                   &err),
                         0);
        assert_within(table.series[0].points[0].seconds, 0.14, 1e-12, "all-reduce", 0);
        assert_within(table.series[1].points[0].seconds, 0.07, 1e-12, "reduce-scatter", 0);
        collective_table_free(&table);
}

static void test_a_later_table_stands_behind_an_earlier_one(void **state)
{
        (void)state;
        struct collective_table table = {0};
        struct rv_error_info err;
        static const char first[] = "# source: mine\noperation,gpus,bytes,seconds\nall_reduce,8,1024,1e-5\n";
        static const char second[] =
                "# source: others'\noperation,gpus,bytes,seconds\nall_reduce,8,1024,2e-5\n"
                "all_reduce,4,1024,1e-5\n";
        assert_int_equal(read_text(&table, first, &err), 0);
        assert_int_equal(read_text(&table, second, &err), 0);
        assert_int_equal(table.count, 3);
        assert_within(table.series[0].points[0].seconds, 1e-5, 1e-15, "the first", 0);
        assert_ptr_equal(collective_table_next(&table, &table.series[0]), &table.series[1]);
        assert_null(collective_table_next(&table, &table.series[1]));
        assert_string_equal(table.source, "mine. others'");
        collective_table_free(&table);
}

static void test_what_makes_no_sense_is_refused_with_its_line(void **state)
{
        (void)state;
#define HEAD "# source: a test\noperation,gpus,nodes,bytes,seconds\n"
        static const struct {
                const char *text, *sentence;
        } cases[] = {
                {"operation,gpus,bytes,seconds\n", "t.csv:1: a comment must come first that says where"},
                {"# source: \noperation,gpus,bytes,seconds\n", "t.csv:2: a comment must come first"},
                {"# source: a test\n", "t.csv: the table of measured collectives has no rows"},
                {HEAD, "t.csv: the table of measured collectives has no rows"},
                {"# source: a test\noperation,gpus,bytes\n", "needs one column of seconds, microseconds or"},
                {"# source: a test\noperation,gpus,bytes,seconds,microseconds\n",
                 "needs one column of seconds"},
                {"# source: a test\noperation,gpu,bytes,seconds\n",
                 "\"gpu\" is not known, the nearest is \"gpus\""},
                {"# source: a test\noperation,gpus,gpus,seconds\n", "the column \"gpus\" is there twice"},
                {"# source: a test\ngpus,bytes,seconds\n", "needs the columns operation, gpus and bytes"},
                {HEAD "broadcast,8,1,1024,1e-5\n",
                 "t.csv:3: the operation \"broadcast\" is not known, must be"},
                {HEAD "all_reduce,8,1,1024,0\n", "seconds is \"0\", must be a number greater than 0"},
                {HEAD "all_reduce,8,1,1024,-1\n", "seconds is \"-1\", must be a number greater than 0"},
                {HEAD "all_reduce,8,1,1024,nan\n", "seconds is \"nan\", must be"},
                {HEAD "all_reduce,8,1,10.5,1e-5\n",
                 "bytes is \"10.5\", must be a whole number greater than 0"},
                {HEAD "all_reduce,8,1,1024,12000\n", "the row says 1.2e+04 s, must be from 1e-9 to 3600 s"},
                {HEAD "all_reduce,1,1,1024,1e-5\n", "gpus is 1, must be at least 2"},
                {HEAD "all_reduce,8,3,1024,1e-5\n", "8 GPUs on 3 nodes are not as many on each"},
                {HEAD "all_reduce,8,1,1024\n", "the line has 4 cells, must have 5"},
                {HEAD "all_reduce,8,1,1024,1e-5\nall_reduce,8,1,1024,2e-5\n",
                 "t.csv:4: all_reduce of 1024 bytes among 8 GPUs of 1 node is there twice, with 1e-05 s and "
                 "2e-05"},
        };
#undef HEAD
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct collective_table table = {0};
                struct rv_error_info err = {.sentence = ""};
                assert_int_equal(read_text(&table, cases[i].text, &err), RV_EINPUT);
                if (!strstr(err.sentence, cases[i].sentence))
                        fail_msg("case %zu says: %s", i, err.sentence);
                collective_table_free(&table);
        }
}

/* ---- how far a size stands for others ---- */

enum { SIZES = 64, SERIES = 128 };

/* All measurements of one operation of one kind of GPU. */
struct truth {
        char gpu[32];
        struct collective_series series;
        struct collective_point points[SIZES];
};

static const char COLLECTIVES[] = "../shared/data/gpu-kernels/collectives.csv";

/* Returns how many series the published table has; 0 if it is not there. */
static int read_truth(struct truth *all)
{
        static const char *const names[] = {"all_reduce", "reduce_scatter", "all_gather", "alltoall"};
        FILE *stream = fopen(COLLECTIVES, "r");
        char line[256], gpu[32], operation[32];
        int count = 0, gpus;
        double elements, seconds;
        while (stream && fgets(line, sizeof line, stream)) {
                if (sscanf(line, "%31[^,],%31[^,],%d,%lf,%lf", gpu, operation, &gpus, &elements, &seconds) !=
                    5)
                        continue;
                int kind = 0;
                while (strcmp(names[kind], operation) != 0)
                        kind++;
                struct truth *t = &all[count - 1];
                if (count == 0 || strcmp(t->gpu, gpu) != 0 || (int)t->series.kind != kind ||
                    t->series.gpus != gpus) {
                        assert_true(count < SERIES);
                        t = &all[count++];
                        *t = (struct truth){.series = {(enum collective_kind)kind, gpus, 1, NULL, 0}};
                        memcpy(t->gpu, gpu, sizeof gpu);
                }
                assert_true(t->series.count < SIZES);
                t->points[t->series.count++] = (struct collective_point){2 * elements, seconds};
        }
        if (stream)
                fclose(stream);
        return count;
}

static void test_every_second_size_is_found_from_those_beside_it(void **state)
{
        (void)state;
        static struct truth all[SERIES];
        static double errors[SERIES * SIZES];
        const int count = read_truth(all);
        int n = 0;
        if (!count)
                skip();
        for (int i = 0; i < count; i++) {
                struct collective_point kept[SIZES];
                struct collective_series series = all[i].series;
                series.points = kept;
                series.count = 0;
                for (int j = 0; j < all[i].series.count; j += 2)
                        kept[series.count++] = all[i].points[j];
                for (int j = 1; j < all[i].series.count - 1; j += 2)
                        errors[n++] = fabs(collective_series_seconds(&series, all[i].points[j].bytes, NULL) /
                                                   all[i].points[j].seconds -
                                           1);
        }
        const double median = quantile(errors, n, 0.5), most = quantile(errors, n, 0.9);
        printf("# %d sizes from those beside them: median %.1f %%, nine in ten within %.1f %%\n", n,
               100 * median, 100 * most);
        assert_true(n > 500);
        assert_true(median <= 0.05);
        assert_true(most <= 0.15);
}

/* The tables that come with the program are these, without sizes that the others tell within 2 % (and the
 * four digits that they are written with). */
static void test_the_tables_that_come_with_the_program_are_the_published_ones(void **state)
{
        (void)state;
        static const struct {
                const char *gpu, *path;
        } tables[] = {{"A100-SXM4-80GB", "sim/platforms/collectives/a100-sxm.csv"},
                      {"H100-SXM5-80GB", "sim/platforms/collectives/h100-sxm.csv"},
                      {"H200-SXM-141GB", "sim/platforms/collectives/h200-sxm.csv"},
                      {"B200-SXM-180GB", "sim/platforms/collectives/b200-sxm.csv"},
                      {"GB200", "sim/platforms/collectives/gb200.csv"},
                      {"L40S", "sim/platforms/collectives/l40s-pcie.csv"}};
        static struct truth all[SERIES];
        const int count = read_truth(all);
        int found = 0;
        if (!count)
                skip();
        for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
                struct collective_table table = {0};
                struct rv_error_info err;
                assert_int_equal(collective_table_read(&table, tables[t].path, &err), 0);
                for (int i = 0; i < count; i++)
                        for (int k = 0; k < table.count; k++) {
                                const struct collective_series *series = &table.series[k],
                                                               *truth = &all[i].series;
                                if (strcmp(all[i].gpu, tables[t].gpu) != 0 || series->kind != truth->kind ||
                                    series->gpus != truth->gpus)
                                        continue;
                                found++;
                                for (int j = 0; j < truth->count; j++)
                                        assert_within(collective_series_seconds(
                                                              series, all[i].points[j].bytes, NULL) /
                                                              all[i].points[j].seconds,
                                                      1, 0.0205, tables[t].gpu, j);
                        }
                collective_table_free(&table);
        }
        assert_int_equal(found, count);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_rows_become_series_by_size_in_seconds),
                cmocka_unit_test(test_tables_of_too_many_groups_or_sizes_are_refused),
                cmocka_unit_test(test_bus_bandwidths_are_those_of_nccl_tests),
                cmocka_unit_test(test_a_later_table_stands_behind_an_earlier_one),
                cmocka_unit_test(test_what_makes_no_sense_is_refused_with_its_line),
                cmocka_unit_test(test_every_second_size_is_found_from_those_beside_it),
                cmocka_unit_test(test_the_tables_that_come_with_the_program_are_the_published_ones),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
