/* What a training reads: tokens, weights and checkpoints. */
#include "tests/fuzz/fuzz.h"

#include "runtime/checkpoint/newest.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/state.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/data/data.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define XXH_INLINE_ALL /* as runtime/checkpoint/state.c has it */
#include <xxhash.h>

enum { MOST = 1 << 16 };

/* The first byte says what the file is called. */
void fuzz_tokens(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct data data;
        const bool text = bytes.size && bytes.at[0] == 't';
        if (bytes.size)
                bytes = (struct fuzz_bytes){bytes.at + 1, bytes.size - 1};
        const char *path = fuzz_file(text ? "tokens.txt" : "tokens.bin", bytes);
        const int rc = data_open(&data, path, text ? 256 : 50257, 4, 0.25, &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        int32_t inputs[4], targets[4];
        data_checksum(&data);
        for (int validation = 0; validation < 2; validation++)
                data_sequence(&data, 1, 2, 3, 0, 4, validation, inputs, targets);
        data_pieces(&data, 1, 2, 3, 0, 4, 0, 2, 1, inputs, targets);
        data_free(&data);
}

static void read_tensors(const struct safetensors *file)
{
        static float out[MOST];
        const char *name;
        json_t *tensor;
        json_object_foreach(file->tensors, name, tensor)
        {
                const json_t *shape = json_object_get(tensor, "shape"), *extent;
                int64_t count = 1;
                size_t i;
                json_array_foreach((json_t *)(uintptr_t)shape, i, extent)
                {
                        count *= json_integer_value(extent);
                }
                if (safetensors_dtype(tensor) != SAFETENSORS_OTHER && count <= MOST)
                        safetensors_read(file, tensor, 0, 1, count, out);
        }
}

void fuzz_safetensors(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct safetensors *file = safetensors_open(fuzz_file("one.safetensors", bytes), &err);
        if (!file)
                fuzz_check((int)err.code, &err);
        else
                read_tensors(file);
        safetensors_close(file);
}

/* ---- files whose sizes and checksums are made right, so that what is behind these is reached ---- */

/* The last byte that the tensors of a header have, at most MOST. */
static int64_t end_of(const json_t *header)
{
        const char *name;
        json_t *tensor;
        int64_t last = 0;
        json_object_foreach((json_t *)(uintptr_t)header, name, tensor)
        {
                const int64_t end =
                        json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 1));
                last = end > last && end <= MOST ? end : last;
        }
        return last;
}

/* Writes a header as a safetensors file, with as many bytes as its tensors have. */
static const char *write_tensors(const char *name, struct fuzz_bytes header)
{
        json_t *parsed = json_loadb((const char *)header.at, header.size, 0, NULL);
        const uint64_t length = header.size;
        const size_t elements = (size_t)end_of(parsed), all = sizeof length + header.size + elements;
        uint8_t *bytes = calloc(1, all);
        if (!bytes)
                exit(99);
        memcpy(bytes, &length, sizeof length);
        if (header.size)
                memcpy(bytes + sizeof length, header.at, header.size);
        const char *path = fuzz_file(name, (struct fuzz_bytes){bytes, all});
        free(bytes);
        json_decref(parsed);
        return path;
}

static void read_weights(struct weight_files *files, const struct gpt *gpt)
{
        static float out[MOST];
        struct rv_error_info err = {0};
        int rc = weight_files_check(files, gpt, &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        const struct stage whole = partition_stage(gpt, 1, 0);
        struct tensor *tensors = calloc((size_t)partition_tensors(gpt, &whole, NULL), sizeof *tensors);
        const int count = tensors ? partition_tensors(gpt, &whole, tensors) : 0;
        for (int i = 0; i < count; i++)
                if (tensors[i].elements <= MOST)
                        fuzz_check(weight_files_read(files, &tensors[i], 0, tensors[i].elements, out, &err),
                                   &err);
        free(tensors);
}

/* Three parts: a config.json, an index, and the header of the file a.safetensors, whose tensors are 0. */
void fuzz_weights(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct gpt gpt;
        fuzz_file("config.json", fuzz_part(&bytes));
        const char *index = fuzz_file("model.safetensors.index.json", fuzz_part(&bytes));
        write_tensors("a.safetensors", bytes);
        struct weight_files *files = weight_files_open(index, &err);
        if (!files) {
                fuzz_check((int)err.code, &err);
                return;
        }
        const int rc = weight_files_model(files, &gpt, &err);
        fuzz_check(rc, &err);
        weight_files_number(files, "step", 0, 1000, 0);
        if (rc == RV_OK)
                read_weights(files, &gpt);
        weight_files_close(files);
}

/* ---- checkpoints ---- */

static void set_checksum(json_t *object, const void *bytes, size_t size)
{
        char text[20];
        snprintf(text, sizeof text, "%016llx", (unsigned long long)XXH3_64bits(bytes, size));
        json_object_set_new(object, "xxh3", json_string(text));
}

/* Makes what an index says of its first file true, and its own checksum right. */
static void mend_index(json_t *index, const char *part)
{
        json_t *file = json_array_get(json_object_get(index, "files"), 0);
        static uint8_t bytes[2 * MOST];
        FILE *stream = fopen(part, "rb");
        const size_t size = stream ? fread(bytes, 1, sizeof bytes, stream) : 0;
        if (stream)
                fclose(stream);
        json_object_set_new(file, "bytes", json_integer((json_int_t)size));
        set_checksum(file, bytes, size);
        json_object_del(index, "xxh3");
        char *all = json_dumps(index, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        if (all)
                set_checksum(index, all, strlen(all));
        free(all);
}

static void write_index(struct fuzz_bytes bytes, const char *part)
{
        json_t *index = json_loadb((const char *)bytes.at, bytes.size, 0, NULL);
        if (!json_is_object(index)) {
                fuzz_file("step-000000000007/checkpoint.json", bytes);
                json_decref(index);
                return;
        }
        mend_index(index, part);
        char *text = json_dumps(index, JSON_REAL_PRECISION(17));
        if (text)
                fuzz_file("step-000000000007/checkpoint.json",
                          (struct fuzz_bytes){(const uint8_t *)text, strlen(text)});
        free(text);
        json_decref(index);
}

static void read_state(struct state *state)
{
        static const struct gpt small = {.name = "small",
                                         .n_layer = 1,
                                         .n_embd = 8,
                                         .n_head = 2,
                                         .vocab_size = 11,
                                         .n_positions = 4,
                                         .tied = true};
        static float out[MOST];
        struct tensor tensors[64];
        struct rv_error_info err = {0};
        const struct stage whole = partition_stage(&small, 1, 0);
        const int count = partition_tensors(&small, &whole, tensors);
        for (int i = 0; i < count; i++)
                for (int kind = 0; kind < STATE_KINDS; kind++)
                        fuzz_check(state_read(state, (enum state_kind)kind, &tensors[i], 0,
                                              tensors[i].elements, out, &err),
                                   &err);
        state_bytes_read(state);
}

/* Two parts: the index of a checkpoint, and the header of its first file. */
void fuzz_checkpoint(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        char name[FOLDER_CHECKPOINT];
        const char *folder = fuzz_path("step-000000000007");
        mkdir(folder, 0777);
        const struct fuzz_bytes index_bytes = fuzz_part(&bytes);
        write_index(index_bytes, write_tensors("step-000000000007/rank-00000.safetensors", bytes));
        struct newest newest = newest_begin(folder, NULL);
        json_t *index = newest_next(&newest, name, &err);
        free(newest.steps);
        if (!index) {
                fuzz_check((int)err.code, &err);
                return;
        }
        for (int i = 0; i < state_files(index); i++)
                fuzz_check(state_verify(name, index, i, &err), &err);
        struct state *state = state_open(name, index, &err);
        if (state)
                read_state(state);
        else
                fuzz_check((int)err.code, &err);
        state_close(state);
        json_decref(index);
}
