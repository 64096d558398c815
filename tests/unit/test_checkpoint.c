/* Checkpoints: what is written is read, and a file with any part missing or wrong is refused. */
#include "runtime/base/file.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/weight_files.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/stat.h>

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

enum { TENSORS = 32, ELEMENTS = 4096 };

/* Writes a checkpoint of `gpt`. */
static void write_checkpoint(const char *path, const struct gpt *gpt)
{
        struct rv_error_info err = {0};
        struct tensor tensors[TENSORS];
        const struct stage whole = partition_stage(gpt, 1, 0);
        const int count = partition_tensors(gpt, &whole, tensors);
        struct checkpoint_writer *writer = checkpoint_begin(path, gpt, &trained, &err);
        assert_non_null(writer);
        for (int t = 0; t < count; t++) {
                float elements[ELEMENTS];
                for (int64_t i = 0; i < tensors[t].elements; i++)
                        elements[i] = element(tensors[t].offset + i);
                assert_int_equal(checkpoint_append(writer, elements, &err), RV_OK);
        }
        assert_int_equal(checkpoint_commit(writer, &err), RV_OK);
}

/* Reads all of a checkpoint: the model, and its elements in the order of a partition with one stage. */
static int read_checkpoint(const char *path, struct gpt *gpt, float elements[ELEMENTS],
                           struct rv_error_info *err)
{
        struct tensor tensors[TENSORS];
        struct weight_files *files = weight_files_open(path, err);
        int status = files ? weight_files_model(files, gpt, err) : (int)err->code;
        if (status == RV_OK)
                status = weight_files_check(files, gpt, err);
        if (status == RV_OK) {
                const struct stage whole = partition_stage(gpt, 1, 0);
                const int count = partition_tensors(gpt, &whole, tensors);
                for (int t = 0; t < count && status == RV_OK; t++)
                        status = weight_files_read(files, &tensors[t], 0, tensors[t].elements,
                                                   elements + tensors[t].offset, err);
        }
        weight_files_close(files);
        return status;
}

static void check_same(const struct gpt *found, const struct gpt *expected)
{
        json_t *a = gpt_to_json(found), *b = gpt_to_json(expected);
        assert_true(json_equal(a, b));
        json_decref(a);
        json_decref(b);
}

/* Of a checkpoint that is a folder, and the folder. */
static void remove_files(const char *folder)
{
        char path[700];
        snprintf(path, sizeof path, "%s/config.json", folder);
        assert_int_equal(unlink(path), 0);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

static void how_it_was_trained_is_read(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small);
        struct weight_files *files = weight_files_open(scratch.path, &err);
        assert_non_null(files);
        assert_int_equal(weight_files_number(files, "step", 0, 100, -1), 20);
        assert_int_equal(weight_files_number(files, "seq_len", 1, 100, -1), 2);
        assert_int_equal(weight_files_number(files, "seq_len", 3, 100, -1), -1);
        assert_int_equal(weight_files_number(files, "format", 0, 100, -1), -1);
        weight_files_close(files);
        scratch_close(&scratch);
}

static void what_is_written_is_read(void **state)
{
        (void)state;
        static const char *const names[] = {"a.safetensors", "folder", "folder/"};
        struct scratch scratch;
        scratch_open(&scratch);
        for (int tied = 0; tied < 2; tied++)
                for (size_t name = 0; name < sizeof names / sizeof *names; name++) {
                        const char *path = scratch_path(&scratch, names[name]);
                        struct gpt gpt = small, back;
                        struct rv_error_info err = {0};
                        float elements[ELEMENTS];
                        gpt.tied = tied;
                        write_checkpoint(path, &gpt);
                        assert_int_equal(read_checkpoint(path, &back, elements, &err), RV_OK);
                        check_same(&back, &gpt);
                        for (int64_t i = 0; i < gpt_parameters(&gpt); i++)
                                assert_true(elements[i] == element(i));
                }
        assert_int_equal(scratch_count(&scratch), 2);
        remove_files(scratch_path(&scratch, "folder"));
        scratch_close(&scratch);
}

/* Each shard's part of each tensor is what it is of the whole one, whatever the layout of the file. */
static void shards_read_their_parts(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        struct gpt gpt = small;
        gpt.n_embd = 8; /* of a head more than one column */
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &gpt);
        struct weight_files *files = weight_files_open(scratch.path, &err);
        assert_non_null(files);
        assert_int_equal(weight_files_check(files, &gpt, &err), RV_OK);
        const struct stage whole = partition_stage(&gpt, 1, 0);
        struct tensor tensors[TENSORS], parts[TENSORS];
        partition_tensors(&gpt, &whole, tensors);
        for (int shard = 0; shard < 2; shard++) {
                const struct stage stage = partition_shard(&whole, 2, shard);
                const int count = partition_tensors(&gpt, &stage, parts);
                for (int t = 0; t < count; t++)
                        for (int64_t at = 0; at < parts[t].elements; at += 7) {
                                float elements[7];
                                const int64_t left = parts[t].elements - at, n = left < 7 ? left : 7;
                                assert_int_equal(weight_files_read(files, &parts[t], at, n, elements, &err),
                                                 RV_OK);
                                for (int64_t i = 0; i < n; i++) {
                                        const int64_t of = partition_whole_index(&parts[t], at + i);
                                        assert_true(elements[i] ==
                                                    (of < 0 ? 0 : element(tensors[t].offset + of)));
                                }
                        }
        }
        weight_files_close(files);
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
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small);
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
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small);
        unsigned char *bytes = slurp(scratch.path, &size);
        for (size_t kept = 0; kept < size; kept++) {
                struct gpt gpt;
                struct rv_error_info err = {0};
                float elements[ELEMENTS];
                scratch_write(&scratch, "a.safetensors", bytes, kept);
                assert_int_equal(read_checkpoint(scratch.path, &gpt, elements, &err), RV_EINPUT);
                assert_memory_equal(err.sentence, scratch.path, strlen(scratch.path));
        }
        bytes[size] = 0;
        scratch_write(&scratch, "a.safetensors", bytes, size + 1);
        struct gpt gpt;
        struct rv_error_info err = {0};
        float elements[ELEMENTS];
        assert_int_equal(read_checkpoint(scratch.path, &gpt, elements, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "bytes of elements, its tensors need"));
        free(bytes);
        scratch_close(&scratch);
}

/* Every byte of the header in turn is another: the file is refused in a sentence, or means the same. */
static void damaged_headers_are_answered(void **state)
{
        (void)state;
        static const unsigned char others[] = {1, 2, 4, 16, 64, 128};
        struct scratch scratch;
        size_t size;
        uint64_t header_bytes;
        int refused = 0;
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small);
        unsigned char *bytes = slurp(scratch.path, &size);
        memcpy(&header_bytes, bytes, 8);
        for (size_t at = 0; at < 8 + header_bytes; at++)
                for (size_t other = 0; other < sizeof others; other++) {
                        struct gpt gpt;
                        struct rv_error_info err = {0};
                        float elements[ELEMENTS];
                        bytes[at] ^= others[other];
                        scratch_write(&scratch, "a.safetensors", bytes, size);
                        const int status = read_checkpoint(scratch.path, &gpt, elements, &err);
                        assert_true(status == RV_OK || (status == RV_EINPUT && err.sentence[0]));
                        refused += status == RV_EINPUT;
                        bytes[at] ^= others[other];
                }
        assert_true(refused > 5000);
        free(bytes);
        scratch_close(&scratch);
}

/* What is said after `from` in the header is replaced by `to` of the same length. */
static void check_refused(const char *from, const char *to, const char *expected)
{
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        float elements[ELEMENTS];
        size_t size;
        scratch_open(&scratch);
        write_checkpoint(scratch_path(&scratch, "a.safetensors"), &small);
        unsigned char *bytes = slurp(scratch.path, &size), *at = bytes + 8;
        assert_int_equal(strlen(from), strlen(to));
        while (at < bytes + size && memcmp(at, from, strlen(from)) != 0)
                at++;
        assert_true(at < bytes + size);
        memcpy(at, to, strlen(to));
        scratch_write(&scratch, "a.safetensors", bytes, size);
        assert_int_equal(read_checkpoint(scratch.path, &gpt, elements, &err), RV_EINPUT);
        if (!strstr(err.sentence, expected))
                fail_msg("\"%s\" was expected, found \"%s\"", expected, err.sentence);
        free(bytes);
        scratch_close(&scratch);
}

static void wrong_headers_are_refused(void **state)
{
        (void)state;
        check_refused("{\"__metadata__\"", "<\"__metadata__\"", "its header is not a JSON object");
        check_refused("__metadata__", "__netadata__",
                      "tensor __netadata__ has dtype (none), which safetensors have not");
        check_refused("\\\"n_layer\\\":1", "\\\"n_layer\\\":2",
                      "tensor transformer.h.1.ln_1.weight of the model small is missing");
        check_refused("\\\"n_layer\\\":1", "\\\"n_layer\\\":0", "its config:1: n_layer is 0, a whole number");
        check_refused("\\\"n_embd\\\":4", "\\\"n_embd\\\":6",
                      "tensor transformer.wte.weight has shape [7,4], [7,6]");
        check_refused("\\\"vocab_size\\\":7", "\\\"vocab_size\\\":8",
                      "tensor transformer.wte.weight has shape [7,4], [8,4]");
        check_refused("F32", "F16",
                      "tensor transformer.wte.weight: its data_offsets do not span its 56 bytes");
        check_refused("F32", "I32",
                      "tensor transformer.wte.weight has dtype I32, F32, F16 or BF16 was expected");
        check_refused("F32", "F99",
                      "tensor transformer.wte.weight has dtype F99, which safetensors have not");
        check_refused("[7,4]", "[-7,]", "its header is not a JSON object");
        check_refused("[7,4]", "[7,0]", "its data_offsets do not span its 0 bytes");
        check_refused("[7,4]", "[\"4\"]", "tensor transformer.wte.weight has no shape");
        check_refused("\"transformer.ln_f.bias\"", "\"transformer.ln_f.tias\"",
                      "tensor transformer.ln_f.bias of the model small is missing");
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
        float elements[28] = {0};
        scratch_open(&scratch);
        struct checkpoint_writer *writer =
                checkpoint_begin(scratch_path(&scratch, "a.safetensors"), &small, &trained, &err);
        assert_non_null(writer);
        assert_int_equal(checkpoint_append(writer, elements, &err), RV_OK);
        assert_int_equal(checkpoint_commit(writer, &err), RV_ESYSTEM);
        assert_non_null(strstr(err.sentence, "only 1 of "));
        assert_int_equal(scratch_count(&scratch), 0);
        assert_null(checkpoint_begin(scratch_path(&scratch, "no/a.safetensors"), &small, &trained, &err));
        assert_int_equal(err.code, RV_EINPUT);
        scratch_close(&scratch);
}

/* What is there already is replaced only if it is a checkpoint, or nothing. */
static void folders_of_others_are_left_alone(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        char folder[600];
        scratch_open(&scratch);
        snprintf(folder, sizeof folder, "%s", scratch_path(&scratch, "folder"));
        assert_int_equal(checkpoint_check_writable(folder, &err), RV_OK);
        assert_int_equal(mkdir(folder, 0777), 0);
        assert_int_equal(checkpoint_check_writable(folder, &err), RV_OK);
        write_checkpoint(folder, &small);
        write_checkpoint(folder, &small);
        struct checkpoint_writer *writer = checkpoint_begin(folder, &small, &trained, &err);
        assert_non_null(writer);
        assert_int_equal(checkpoint_commit(writer, &err), RV_ESYSTEM);
        assert_non_null(strstr(err.sentence, "folder: only 0 of "));
        assert_int_equal(scratch_count(&scratch), 1);
        scratch_write(&scratch, "folder/tokenizer.json", "{}", 2);
        assert_int_equal(checkpoint_check_writable(folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is a folder that has tokenizer.json in it"));
        assert_null(checkpoint_begin(folder, &small, &trained, &err));
        assert_int_equal(unlink(scratch_path(&scratch, "folder/tokenizer.json")), 0);
        scratch_write(&scratch, "folder/model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
        assert_int_equal(checkpoint_check_writable(folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is a folder that ranvier did not write"));
        remove_files(folder);
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
                float elements[ELEMENTS];
                write_checkpoint(path, &small);
                FILE *stream = fopen(path, "r+b");
                assert_non_null(stream);
                assert_int_equal(fseek(stream, -4 * (long)wrong[i].from_end, SEEK_END), 0);
                assert_int_equal(fwrite(&wrong[i].value, 4, 1, stream), 1);
                fclose(stream);
                assert_int_equal(read_checkpoint(path, &gpt, elements, &err), RV_EINPUT);
                if (!strstr(err.sentence, wrong[i].expected))
                        fail_msg("'%s' does not say '%s'", err.sentence, wrong[i].expected);
        }
        scratch_close(&scratch);
}

static void other_files_are_refused(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        const char text[] = "Call me Ishmael. Some years ago";
        scratch_write(&scratch, "book.txt", text, sizeof text);
        assert_null(weight_files_open(scratch.path, &err));
        assert_int_equal(err.code, RV_EINPUT);
        assert_non_null(strstr(err.sentence, "not a safetensors file"));
        assert_null(weight_files_open(scratch.folder, &err));
        assert_int_equal(err.code, RV_EINPUT);
        assert_non_null(
                strstr(err.sentence, "has neither model.safetensors nor model.safetensors.index.json"));
        assert_null(weight_files_open("/no/such.safetensors", &err));
        assert_string_equal(err.sentence, "/no/such.safetensors: cannot be read: No such file or directory");
        scratch_close(&scratch);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(how_it_was_trained_is_read),
                cmocka_unit_test(what_is_written_is_read),
                cmocka_unit_test(shards_read_their_parts),
                cmocka_unit_test(the_file_is_safetensors),
                cmocka_unit_test(every_truncation_is_refused),
                cmocka_unit_test(damaged_headers_are_answered),
                cmocka_unit_test(wrong_headers_are_refused),
                cmocka_unit_test(an_unfinished_checkpoint_leaves_nothing),
                cmocka_unit_test(folders_of_others_are_left_alone),
                cmocka_unit_test(weights_that_are_not_finite_are_refused_with_their_tensor),
                cmocka_unit_test(other_files_are_refused),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
