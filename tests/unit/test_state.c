/* The files of a checkpoint: pieces that some layout wrote are found by any other, and what is not whole, or
 * says what cannot be, is refused. */
#include "runtime/base/file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const struct gpt small = {.name = "small",
                                 .n_layer = 2,
                                 .n_embd = 24,
                                 .n_head = 12,
                                 .vocab_size = 29,
                                 .n_positions = 5,
                                 .tied = true};

enum { TENSORS = 64, PIECES = 256, RANKS = 12, PATH = 512 };

/* What an element is, by its tensor and its place in the whole one. */
static float value(int kind, uint32_t id, int64_t whole)
{
        return (float)(kind * 1000003 + (int64_t)id % 1009 * 97 + whole) + 0.25f;
}

/* Writes a checkpoint of `shards` shards, each of which writes `parts` files with an even part of each of its
 * tensors. */
static void write_layout(const char *folder, int shards, int parts)
{
        struct stream_end files[RANKS];
        char name[FOLDER_PART], path[FOLDER_FILE];
        struct rv_error_info err = {0};
        const struct stage whole = partition_stage(&small, 1, 0);
        char temporary[FOLDER_CHECKPOINT];
        mkdir(folder, 0777);
        folder_name_temporary(temporary, folder, 7, (int)getpid());
        mkdir(temporary, 0777);
        for (int rank = 0; rank < shards * parts; rank++) {
                struct tensor tensors[TENSORS];
                struct state_piece pieces[PIECES];
                const struct stage stage = partition_shard(&whole, shards, rank / parts);
                const int count = partition_tensors(&small, &stage, tensors);
                int piece_count = 0;
                float *elements = calloc(3 * 65536, sizeof *elements), *to = elements;
                for (int t = 0; t < count; t++) {
                        int64_t end = tensors[t].elements;
                        while (end > 0 && partition_whole_index(&tensors[t], end - 1) < 0)
                                end--; /* padding */
                        const int64_t from = end * (rank % parts) / parts,
                                      to_element = end * (rank % parts + 1) / parts;
                        if (from < to_element && !(tensors[t].replicated && rank >= parts))
                                pieces[piece_count++] =
                                        (struct state_piece){&tensors[t], from, to_element - from};
                }
                for (int kind = 0; kind < STATE_KINDS; kind++)
                        for (int i = 0; i < piece_count; i++)
                                for (int64_t k = 0; k < pieces[i].count; k++)
                                        *to++ = value(
                                                kind, pieces[i].tensor->id,
                                                partition_whole_index(pieces[i].tensor, pieces[i].first + k));
                folder_name_part(name, rank);
                snprintf(path, sizeof path, "%s/%s", temporary, name);
                assert_int_equal(state_write_part(path, pieces, piece_count, elements, &files[rank], &err),
                                 RV_OK);
                free(elements);
        }
        json_t *index = json_pack("{s:s, s:f}", "kind", "checkpoint", "number", 0.1);
        assert_int_equal(state_complete(temporary, folder, 7, index, files, shards * parts, &err), RV_OK);
        json_decref(index);
}

/* All that a shard has, in pieces of seven. */
static void check_layout(const char *folder, int shards)
{
        struct rv_error_info err = {0};
        json_t *index = state_read_index(folder, &err);
        assert_non_null(index);
        for (int i = 0; i < state_files(index); i++)
                assert_int_equal(state_verify(folder, index, i, &err), RV_OK);
        struct state *state = state_open(folder, index, &err);
        assert_non_null(state);
        const struct stage whole = partition_stage(&small, 1, 0);
        for (int shard = 0; shard < shards; shard++) {
                struct tensor tensors[TENSORS];
                const struct stage stage = partition_shard(&whole, shards, shard);
                const int count = partition_tensors(&small, &stage, tensors);
                for (int t = 0; t < count; t++)
                        for (int kind = 0; kind < STATE_KINDS; kind++)
                                for (int64_t at = 0; at < tensors[t].elements; at += 7) {
                                        float found[7];
                                        const int64_t left = tensors[t].elements - at,
                                                      n = left < 7 ? left : 7;
                                        assert_int_equal(state_read(state, (enum state_kind)kind, &tensors[t],
                                                                    at, n, found, &err),
                                                         RV_OK);
                                        for (int64_t i = 0; i < n; i++) {
                                                const int64_t place =
                                                        partition_whole_index(&tensors[t], at + i);
                                                assert_true(
                                                        found[i] ==
                                                        (place < 0 ? 0 : value(kind, tensors[t].id, place)));
                                        }
                                }
        }
        state_close(state);
        json_decref(index);
}

static void every_layout_reads_what_every_layout_wrote(void **state)
{
        static const int layouts[][2] = {{1, 1}, {1, 5}, {2, 1}, {3, 2}, {4, 3}, {12, 1}};
        for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                char folder[PATH], checkpoint[FOLDER_CHECKPOINT];
                snprintf(folder, sizeof folder, "%s/%zu", (const char *)*state, i);
                write_layout(folder, layouts[i][0], layouts[i][1]);
                folder_name_step(checkpoint, folder, 7);
                for (size_t j = 0; j < sizeof layouts / sizeof *layouts; j++)
                        check_layout(checkpoint, layouts[j][0]);
        }
}

/* Elements that no file has. */
static void what_is_missing_is_said(void **state)
{
        char folder[PATH];
        struct rv_error_info err = {0};
        struct tensor tensors[TENSORS];
        float found[8];
        const struct stage whole = partition_stage(&small, 1, 0);
        partition_tensors(&small, &whole, tensors);
        snprintf(folder, sizeof folder, "%s/missing", (const char *)*state);
        mkdir(folder, 0777);
        char path[FOLDER_FILE], temporary[FOLDER_CHECKPOINT], name[FOLDER_PART],
                checkpoint[FOLDER_CHECKPOINT];
        folder_name_temporary(temporary, folder, 3, (int)getpid());
        folder_name_step(checkpoint, folder, 3);
        folder_name_part(name, 0);
        mkdir(temporary, 0777);
        snprintf(path, sizeof path, "%s/%s", temporary, name);
        const struct state_piece piece = {&tensors[0], 0, 4};
        const float elements[12] = {1, 2, 3, 4};
        struct stream_end file;
        assert_int_equal(state_write_part(path, &piece, 1, elements, &file, &err), RV_OK);
        assert_int_equal(state_write_part(path, &piece, 1, elements, &file, &err),
                         RV_ESYSTEM); /* it is there */
        json_t *index = json_pack("{s:s}", "kind", "checkpoint");
        assert_int_equal(state_complete(temporary, folder, 3, index, &file, 1, &err), RV_OK);
        struct state *read = state_open(checkpoint, index, &err);
        assert_non_null(read);
        assert_int_equal(state_read(read, STATE_PARAMETER, &tensors[0], 0, 4, found, &err), RV_OK);
        assert_int_equal(state_read(read, STATE_PARAMETER, &tensors[0], 2, 4, found, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "has not element 4 of"));
        assert_int_equal(state_read(read, STATE_PARAMETER, &tensors[1], 0, 1, found, &err), RV_EINPUT);
        state_close(read);
        json_decref(index);
}

/* Writes a file with one piece whose runs are `runs`, and its index, and opens it. */
static int open_with(const char *folder, const char *runs, const char *name, struct rv_error_info *err)
{
        char path[PATH + 8], header[1024];
        snprintf(path, sizeof path, "%s/a", folder);
        FILE *stream = fopen(path, "wb");
        assert_non_null(stream);
        snprintf(header, sizeof header,
                 "{\"__metadata__\":{\"pieces\":\"{\\\"%s\\\":%s}\"},"
                 "\"w:parameter:0\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
                 "\"w:exp_avg:0\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]},"
                 "\"w:exp_avg_sq:0\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[32,48]}}",
                 name, runs);
        const uint64_t length = strlen(header);
        const float zeros[12] = {0};
        fwrite(&length, sizeof length, 1, stream);
        fwrite(header, 1, length, stream);
        fwrite(zeros, sizeof zeros, 1, stream);
        fclose(stream);
        json_t *index = json_pack("{s:[{s:s}]}", "files", "name", "a");
        struct state *state = state_open(folder, index, err);
        json_decref(index);
        const int rc = state ? RV_OK : (int)err->code;
        state_close(state);
        return rc;
}

static void runs_that_cannot_be_are_refused(void **state)
{
        static const char *const wrong[] = {"[[0,2,0,1]]",
                                            "[[0,5,0,1]]",
                                            "[[0,0,0,1],[0,4,0,1]]",
                                            "[[-1,4,0,1]]",
                                            "[[0,2,1,2]]",
                                            "[[0,4,0]]",
                                            "[[0,4,0,0]]",
                                            "7",
                                            "[0,4,0,1]",
                                            "[[0,1,9223372036854775807,4]]",
                                            "[[9223372036854775807,4,0,1]]",
                                            "[[0,4611686018427387905,4611686018427387905,4]]",
                                            "[]",
                                            "[[0.5,4,0,1]]"};
        char folder[PATH];
        struct rv_error_info err = {0};
        snprintf(folder, sizeof folder, "%s/runs", (const char *)*state);
        mkdir(folder, 0777);
        assert_int_equal(open_with(folder, "[[0,4,0,1]]", "w:0", &err), RV_OK);
        assert_int_equal(open_with(folder, "[[3,2,5,2]]", "w:0", &err), RV_OK);
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
                assert_int_equal(open_with(folder, wrong[i], "w:0", &err), RV_EINPUT);
        assert_int_equal(open_with(folder, "[[0,4,0,1]]", "w:1", &err), RV_EINPUT);
        assert_int_equal(open_with(folder, "[[0,4,0,1]]", "w", &err), RV_EINPUT);
}

static void names_of_folders_are_steps(void **state)
{
        char folder[PATH], path[PATH + 64];
        static const char *const names[] = {
                "step-000000000010", "step-000000000200", "step-000000000030.tmp77", "step-12", "model",
                "step-000000000010x"};
        int count;
        snprintf(folder, sizeof folder, "%s/steps", (const char *)*state);
        mkdir(folder, 0777);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                snprintf(path, sizeof path, "%s/%s", folder, names[i]);
                mkdir(path, 0777);
        }
        int64_t *steps = folder_steps(folder, true, &count);
        assert_int_equal(count, 2);
        assert_true(steps[0] == 200 && steps[1] == 10);
        free(steps);
        snprintf(path, sizeof path, "%s/%s", folder, names[2]);
        struct stat info;
        assert_int_not_equal(stat(path, &info), 0);
        struct rv_error_info err = {0};
        assert_int_equal(folder_check_new(folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "the newest of step 200"));
}

static int make_folder(void **state)
{
        static char folder[256];
        const char *place = getenv("TMPDIR");
        snprintf(folder, sizeof folder, "%s/ranvier-test-XXXXXX", place ? place : "/tmp");
        *state = folder;
        return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
        char command[300];
        snprintf(command, sizeof command, "rm -r '%s'", (const char *)*state);
        return system(command);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_layout_reads_what_every_layout_wrote),
                cmocka_unit_test(what_is_missing_is_said),
                cmocka_unit_test(runs_that_cannot_be_are_refused),
                cmocka_unit_test(names_of_folders_are_steps),
        };
        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
