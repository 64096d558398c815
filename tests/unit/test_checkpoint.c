/* Checkpoints: what is written is read, and a file with any part missing or wrong is refused. */
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static const struct gpt small = {.name = "small",
                                 .n_layer = 1,
                                 .n_embd = 4,
                                 .n_head = 2,
                                 .vocab_size = 7,
                                 .n_positions = 3,
                                 .tied = true};

static const struct checkpoint_training trained = {.step = 20, .seq_len = 2};

static float element(int64_t i)
{
        return (float)i * 0.5f - 3;
}

/* Writes a checkpoint of `gpt` in pieces of `piece` elements. */
static void write_checkpoint(const char *path, const struct gpt *gpt, int64_t piece)
{
        struct rv_error_info err = {0};
        struct checkpoint_writer *writer = checkpoint_begin(path, gpt, &trained, &err);
        assert_non_null(writer);
        int64_t count = gpt_parameters(gpt);
        for (int64_t at = 0; at < count; at += piece) {
                float elements[4096];
                int64_t n = count - at < piece ? count - at : piece;
                for (int64_t i = 0; i < n; i++)
                        elements[i] = element(at + i);
                assert_int_equal(checkpoint_append(writer, elements, n, &err), RV_OK);
        }
        assert_int_equal(checkpoint_commit(writer, &err), RV_OK);
}

static void check_same(const struct gpt *found, const struct gpt *expected)
{
        json_t *a = gpt_to_json(found), *b = gpt_to_json(expected);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
}

static void what_is_written_is_read(void **state)
{
        (void)state;
        struct scratch scratch;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "a.safetensors");
        for (int tied = 0; tied < 2; tied++)
                for (int64_t piece = 1; piece <= 1000; piece *= 10) {
                        struct gpt gpt = small, back;
                        struct rv_error_info err = {0};
                        float *weights = NULL;
                        struct checkpoint_training training = {0};
                        gpt.tied = tied;
                        write_checkpoint(path, &gpt, piece);
                        assert_int_equal(checkpoint_read(path, &back, &training, &weights, &err), RV_OK);
                        check_same(&back, &gpt);
                        assert_int_equal(training.step, 20);
                        assert_int_equal(training.seq_len, 2);
                        for (int64_t i = 0; i < gpt_parameters(&gpt); i++)
                                assert_true(weights[i] == element(i));
                        free(weights);
                        assert_int_equal(checkpoint_read(path, &back, NULL, NULL, &err), RV_OK);
                }
        assert_int_equal(scratch_count(&scratch), 1);
        scratch_close(&scratch);
}

/* The whole file in memory (malloc'ed). */
static unsigned char *slurp(const char *path, size_t *size)
{
        FILE *stream = fopen(path, "rb");
        assert_non_null(stream);
        unsigned char *bytes = malloc(1 << 16);
        *size = fread(bytes, 1, 1 << 16, stream);
        assert_in_range(*size, 16, (1 << 16) - 1);
        fclose(stream);
        return bytes;
}

static void the_file_is_safetensors(void **state)
{
        (void)state;
        struct scratch scratch;
        size_t size;
        uint64_t header_bytes;
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small, 100);
        unsigned char *bytes = slurp(scratch.path, &size);
        memcpy(&header_bytes, bytes, 8);
        assert_int_equal(header_bytes % 8, 0);
        assert_int_equal(size, 8 + header_bytes + 4 * (uint64_t)gpt_parameters(&small));
        json_t *header = json_loadb((char *)bytes + 8, header_bytes, 0, NULL);
        assert_non_null(header);
        assert_null(json_object_get(header, "lm_head.weight")); /* tied: stored once */
        const char *dtype;
        int rows, cols, begin, end;
        assert_int_equal(json_unpack(json_object_get(header, "transformer.wpe.weight"),
                                     "{s:s, s:[ii!], s:[ii!]!}", "dtype", &dtype, "shape", &rows, &cols,
                                     "data_offsets", &begin, &end),
                         0);
        assert_string_equal(dtype, "F32");
        assert_int_equal(rows, 3);
        assert_int_equal(cols, 4);
        assert_int_equal(begin, 4 * 7 * 4);
        assert_int_equal(end, begin + 4 * 3 * 4);
        assert_int_equal(
                json_unpack(json_object_get(header, "transformer.ln_f.bias"), "{s:[i!]}", "shape", &cols), 0);
        assert_int_equal(cols, 4);
        const char *step;
        assert_int_equal(json_unpack(header, "{s:{s:s}}", "__metadata__", "step", &step), 0);
        assert_string_equal(step, "20");
        json_decref(header);
        free(bytes);
        scratch_close(&scratch);
}

static void every_truncation_is_refused(void **state)
{
        (void)state;
        struct scratch scratch;
        size_t size;
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small, 100);
        unsigned char *bytes = slurp(scratch.path, &size);
        for (size_t kept = 0; kept < size; kept++) {
                struct gpt gpt;
                struct rv_error_info err = {0};
                float *weights = NULL;
                scratch_write(&scratch, "a.safetensors", bytes, kept);
                assert_int_equal(checkpoint_read(scratch.path, &gpt, NULL, &weights, &err), RV_EINPUT);
                assert_null(weights);
                assert_memory_equal(err.sentence, scratch.path, strlen(scratch.path));
        }
        bytes[size] = 0;
        scratch_write(&scratch, "a.safetensors", bytes, size + 1);
        struct gpt gpt;
        struct rv_error_info err = {0};
        assert_int_equal(checkpoint_read(scratch.path, &gpt, NULL, NULL, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "bytes of elements, its tensors need"));
        free(bytes);
        scratch_close(&scratch);
}

/* What checkpoint_read says after `from` in the header is replaced by `to` of the same length. */
static void check_refused(const char *from, const char *to, const char *expected)
{
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        float *weights = NULL;
        size_t size;
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small, 100);
        unsigned char *bytes = slurp(scratch.path, &size), *at = bytes + 8;
        assert_int_equal(strlen(from), strlen(to));
        while (at < bytes + size && memcmp(at, from, strlen(from)) != 0)
                at++;
        assert_true(at < bytes + size);
        memcpy(at, to, strlen(to));
        scratch_write(&scratch, "a.safetensors", bytes, size);
        assert_int_equal(checkpoint_read(scratch.path, &gpt, NULL, &weights, &err), RV_EINPUT);
        assert_null(weights);
        if (!strstr(err.sentence, expected))
                fail_msg("\"%s\" was expected, found \"%s\"", expected, err.sentence);
        free(bytes);
        scratch_close(&scratch);
}

static void wrong_headers_are_refused(void **state)
{
        (void)state;
        check_refused("{\"__metadata__\"", "<\"__metadata__\"", "its header is not a JSON object");
        check_refused("__metadata__", "__netadata__", "__metadata__ has no \"config\"");
        check_refused("\\\"n_layer\\\":1", "\\\"n_layer\\\":2",
                      "tensor transformer.h.1.ln_1.weight is missing");
        check_refused("\\\"n_layer\\\":1", "\\\"n_layer\\\":0", "its config:1: n_layer is 0, a whole number");
        check_refused("\\\"n_embd\\\":4", "\\\"n_embd\\\":6",
                      "tensor transformer.wte.weight has shape [7,4], [7,6]");
        check_refused("\\\"vocab_size\\\":7", "\\\"vocab_size\\\":8",
                      "tensor transformer.wte.weight has shape [7,4], [8,4]");
        check_refused("F32", "F16", "tensor transformer.wte.weight has dtype F16, F32 was expected");
        check_refused("\"transformer.ln_f.bias\"", "\"transformer.ln_f.tias\"",
                      "tensor transformer.ln_f.bias is missing");
        check_refused("[0,112]", "[4,112]",
                      "transformer.wte.weight: its data_offsets do not span its 112 bytes");
        check_refused("[1152,1168]", "[1156,1172]",
                      "tensor transformer.ln_f.bias ends at byte 1172 of the elements");
        check_refused("[0,112]", "[-1,11]", "its data_offsets do not span");
        check_refused("[0,112]", "[0,\"x\"]", "its data_offsets do not span");
}

/* A writer that got too little was interrupted: another rank died, or the disk is full. */
static void an_unfinished_checkpoint_leaves_nothing(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        float elements[10] = {0};
        scratch_open(&scratch);
        struct checkpoint_writer *writer =
                checkpoint_begin(scratch_path(&scratch, "a.safetensors"), &small, &trained, &err);
        assert_non_null(writer);
        assert_int_equal(checkpoint_append(writer, elements, 10, &err), RV_OK);
        assert_int_equal(checkpoint_commit(writer, &err), RV_ESYSTEM);
        assert_non_null(strstr(err.sentence, "only 10 of "));
        assert_int_equal(scratch_count(&scratch), 0);
        assert_null(checkpoint_begin(scratch_path(&scratch, "no/a.safetensors"), &small, &trained, &err));
        assert_int_equal(err.code, RV_EINPUT);
        scratch_close(&scratch);
}

/* A training that diverged leaves them; they would be sampled from as if they were a model. */
static void weights_that_are_not_finite_are_refused_with_their_tensor(void **state)
{
        (void)state;
        static const struct {
                float value;
                int64_t from_end; /* elements of the file */
                const char *expected;
        } wrong[] = {
                {NAN, 1,
                 "a.safetensors: element 3 of tensor transformer.ln_f.bias is not a number: finite weights"},
                {-INFINITY, 5,
                 "a.safetensors: element 3 of tensor transformer.ln_f.weight is infinite: finite"},
        };
        struct scratch scratch;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "a.safetensors");
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct gpt gpt;
                struct rv_error_info err = {0};
                float *weights = NULL;
                write_checkpoint(path, &small, 1000);
                FILE *stream = fopen(path, "r+b");
                assert_non_null(stream);
                assert_int_equal(fseek(stream, -4 * (long)wrong[i].from_end, SEEK_END), 0);
                assert_int_equal(fwrite(&wrong[i].value, 4, 1, stream), 1);
                fclose(stream);
                assert_int_equal(checkpoint_read(path, &gpt, NULL, &weights, &err), RV_EINPUT);
                assert_null(weights);
                if (!strstr(err.sentence, wrong[i].expected))
                        fail_msg("'%s' does not say '%s'", err.sentence, wrong[i].expected);
                assert_int_equal(checkpoint_read(path, &gpt, NULL, NULL, &err), RV_OK);
        }
        scratch_close(&scratch);
}

static void other_files_are_refused(void **state)
{
        (void)state;
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        const char text[] = "Call me Ishmael. Some years ago";
        scratch_write(&scratch, "book.txt", text, sizeof text);
        assert_int_equal(checkpoint_read(scratch.path, &gpt, NULL, NULL, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "not a safetensors file"));
        assert_int_equal(checkpoint_read(scratch.folder, &gpt, NULL, NULL, &err), RV_EINPUT);
        assert_int_equal(checkpoint_read("/no/such.safetensors", &gpt, NULL, NULL, &err), RV_EINPUT);
        assert_string_equal(err.sentence, "/no/such.safetensors: cannot be read: No such file or directory");
        scratch_close(&scratch);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_written_is_read),
                cmocka_unit_test(the_file_is_safetensors),
                cmocka_unit_test(every_truncation_is_refused),
                cmocka_unit_test(wrong_headers_are_refused),
                cmocka_unit_test(an_unfinished_checkpoint_leaves_nothing),
                cmocka_unit_test(weights_that_are_not_finite_are_refused_with_their_tensor),
                cmocka_unit_test(other_files_are_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
