/* Files of other tools: what TOML means, and that no file, wherever it is cut short or damaged, is more than
 * an error with a sentence. What plans come of whole ones is in tests/cli/launch.py. */
#include "runtime/base/toml.h"
#include "runtime/launch/launch.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* ---- TOML ---- */

/* All that was taken, as "line:key=value" with blanks between. */
static int note(void *context, const char *key, const char *value, int line, struct rv_error_info *err)
{
        char *text = context;
        (void)err;
        sprintf(text + strlen(text), "%s%d:%s=%s", *text ? " " : "", line, key, value);
        return 0;
}

static void reads_toml(void **state)
{
        (void)state;
        char found[1024] = "";
        static const char text[] = "top = 1 # one\r\n"
                                   "\n"
                                   "[a . b]\n"
                                   "c.\"d e\" = 'as \\n is'\n"
                                   "f = \"\\\"a\\tb\\\"\"\n"
                                   "g = [\n  1_000, # thousand\n  -2.5e3,\n  \"x\", [true],\n]\n"
                                   "[z]\n"
                                   "h=false";
        assert_int_equal(toml_read("t", text, note, found, NULL), 0);
        assert_string_equal(
                found,
                "1:top=1 4:a.b.c.d e=as \\n is 5:a.b.f=\"a\tb\" 6:a.b.g=1000,-2.5e3,x,true 12:z.h=false");
}

static void refuses_what_is_no_toml(void **state)
{
        (void)state;
        static const char *const wrong[][2] = {
                {"a", "t:1: the file ends, = was expected"},
                {"a = ", "t:1: the file ends, a value"},
                {"a = 1 2", "t:1: '2' was found, the end of the line was expected"},
                {"\n[a\nb = 1", "t:2: the end of the line was found, ] was expected"},
                {"a = \"b\n\"", "t:1: the end of the line was found, the end of a string was expected"},
                {"a = [1 2]", "t:1: '2]' was found, a comma or ] was expected"},
                {"a = [1,\n", "t:2: the file ends"},
                {"a = maybe", "t:1: 'maybe' was found, a value"},
                {"a = 0x10", "t:1: '0x10' was found"},
                {"= 1", "t:1: '= 1' was found, a key was expected"},
                {"[[a]]", "arrays of tables are not built"},
                {"a = {b = 1}", "inline tables are not built"},
                {"a = 1979-05-27", "dates are not built"},
                {"a = \"\"\"b\"\"\"", "strings over several lines are not built"},
                {"a = \"\\u0041\"", "escapes other than"},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct rv_error_info err = {.code = RV_OK};
                char found[1024] = "";
                assert_true(toml_read("t", wrong[i][0], note, found, &err) < 0);
                if (!strstr(err.sentence, wrong[i][1]))
                        fail_msg("%s: %s", wrong[i][0], err.sentence);
        }
}

/* ---- files that are cut short, or damaged ---- */

static const char script[] = "#!/bin/bash\n#SBATCH --nodes=2\nA=${B:-\"x y\"}; N=$((2 * (3 + 1)))\nif [[ $A "
                             "== \"x y\" ]]; then F+=(--bf16 'q'); else F=(); fi\n"
                             "case $N in 8) H=64 ;; *) H=1 ;; esac\nfor i in 1 2; do echo $i; done\ncat <<E "
                             ">f\n--bf16\nE\nf() { G=\"--swiglu\"; }\n"
                             "torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES p.py --num-layers 4 "
                             "--hidden-size $H --num-attention-heads 4 \\\n"
                             "  --seq-length 32 --max-position-embeddings 64 --vocab-size ${V:=100} "
                             "--micro-batch-size 1 \"${F[@]}\" --load `date` --save $(pwd)\n";
static const char toml[] =
        "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nlocal_batch_size = 2\n[parallelism]\n"
        "tensor_parallel_degree = 2\ndata_parallel_shard_degree = 4\n[job]\ny = [1, 'z']\n";
static const char json[] = "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2, "
                           "\"offload_optimizer\": {\"device\": \"cpu\"}},"
                           " \"bf16\": {\"enabled\": true}, \"gradient_accumulation_steps\": 2}";
static const char yaml[] = "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n  "
                           "fsdp_sharding_strategy: 1\n"
                           "  fsdp_transformer_layer_cls_to_wrap: [a, [b, c]]\n";

/* Opens a text as a file of --from; it may be wrong, but then says so. */
static int open_text(struct scratch *scratch, const char *text, size_t length)
{
        struct launch launch = {.gpus = 0};
        struct options options;
        struct rv_error_info err = {.code = RV_OK};
        char *argv[] = {"ranvier", "--from", (char *)scratch_write(scratch, "file", text, length), NULL};
        options_init(&options);
        int rc = launch_open(&launch, 3, argv, true, &options, &err);
        if (rc == 0)
                rc = launch_settle(&launch, &options, 16, &err);
        assert_true(rc == 0 || (rc == (int)err.code && err.sentence[0]));
        launch_close(&launch);
        return rc;
}

static const char *const texts[] = {script, toml, json, yaml};
enum { TEXTS = sizeof texts / sizeof *texts };

static void whole_files_are_taken(void **state)
{
        struct scratch *scratch = *state;
        for (int i = 0; i < TEXTS; i++) {
                const int rc = open_text(scratch, texts[i], strlen(texts[i]));
                assert_int_equal(rc, i < 2 ? 0 : RV_EINPUT); /* these name no model */
        }
}

static void files_that_end_early_are_told(void **state)
{
        struct scratch *scratch = *state;
        for (int i = 0; i < TEXTS; i++)
                for (size_t length = 0; length < strlen(texts[i]); length++)
                        open_text(scratch, texts[i], length);
}

/* Each key is looked for among the others. */
static void files_of_too_many_keys_are_told(void **state)
{
        enum { KEYS = 5000, LINE = 16 };
        char *text = calloc(KEYS + 1, LINE), *end = text;
        assert_non_null(text);
        for (int i = 0; i < KEYS; i++)
                end += sprintf(end, "k%d: 1\n", i);
        assert_int_equal(open_text(*state, text, (size_t)(end - text)), RV_EINPUT);
        free(text);
}

/* A character replaced, dropped or repeated, by a fixed sequence of numbers. */
static void damaged_files_are_told(void **state)
{
        struct scratch *scratch = *state;
        static const char put[] = "\"'`$(){}[]\\\n;|&<>=#:, \t-x0";
        uint32_t random = 12345;
        for (int i = 0; i < 1500; i++) {
                const char *text = texts[i % TEXTS];
                const size_t length = strlen(text);
                char copy[2048];
                memcpy(copy, text, length + 1);
                for (int change = 0; change < 3; change++) {
                        random = random * 1664525 + 1013904223;
                        copy[(random >> 8) % length] = put[(random >> 3) % (sizeof put - 1)];
                }
                open_text(scratch, copy, length);
        }
}

static int open_folder(void **state)
{
        static struct scratch scratch;
        scratch_open(&scratch);
        *state = &scratch;
        return 0;
}

static int close_folder(void **state)
{
        scratch_close(*state);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(reads_toml),
                cmocka_unit_test(refuses_what_is_no_toml),
                cmocka_unit_test_setup_teardown(whole_files_are_taken, open_folder, close_folder),
                cmocka_unit_test_setup_teardown(files_that_end_early_are_told, open_folder, close_folder),
                cmocka_unit_test_setup_teardown(files_of_too_many_keys_are_told, open_folder, close_folder),
                cmocka_unit_test_setup_teardown(damaged_files_are_told, open_folder, close_folder),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
