#include "runtime/checkpoint/state.h"

#include "runtime/base/file.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL /* no library to link */
#include <xxhash.h>

enum { PATH = 1100, NAME = 128 };
static const char *const kinds[STATE_KINDS] = {"parameter", "exp_avg", "exp_avg_sq"};

/* `times` runs of `count` elements, each `stride` behind the one before. */
struct runs {
        int64_t first, count, stride, times;
};

/* ---- where a piece is in the whole tensor ---- */

/* The runs of a piece, as few as describe it: rows that are not whole are runs at an even distance. Returns
 * an array [count], NULL: no memory. */
static struct runs *runs_of(const struct state_piece *piece, int *count)
{
        struct runs *list = NULL;
        int capacity = 0;
        *count = 0;
        for (int64_t at = 0, run; at < piece->count; at += run) {
                const int64_t first = partition_whole_run(piece->tensor, piece->first + at, &run);
                run = run < piece->count - at ? run : piece->count - at;
                struct runs *last = *count ? &list[*count - 1] : NULL;
                if (last && last->times == 1 && last->first + last->count == first) {
                        last->count += run;
                        continue;
                }
                if (last && last->count == run &&
                    (last->times == 1 || last->first + last->times * last->stride == first)) {
                        last->stride = last->times == 1 ? first - last->first : last->stride;
                        last->times++;
                        continue;
                }
                if (*count == capacity) {
                        capacity = capacity ? 2 * capacity : 4;
                        struct runs *longer = realloc(list, (size_t)capacity * sizeof *list);
                        if (!longer) {
                                free(list);
                                return NULL;
                        }
                        list = longer;
                }
                list[(*count)++] = (struct runs){first, run, 0, 1};
        }
        return list;
}

static json_t *runs_json(const struct state_piece *piece)
{
        int count;
        struct runs *list = runs_of(piece, &count);
        json_t *json = list ? json_array() : NULL;
        for (int i = 0; i < count && json; i++)
                json_array_append_new(json, json_pack("[I,I,I,I]", (json_int_t)list[i].first,
                                                      (json_int_t)list[i].count, (json_int_t)list[i].stride,
                                                      (json_int_t)list[i].times));
        free(list);
        return json;
}

/* ---- writing ---- */

static json_t *header_json(const struct state_piece *pieces, int count)
{
        json_t *header = json_object(), *runs = json_object();
        int64_t offset = 0;
        char name[NAME + 32];
        for (int kind = 0; kind < STATE_KINDS; kind++)
                for (int i = 0; i < count; i++) {
                        const int64_t end = offset + pieces[i].count * (int64_t)sizeof(float);
                        snprintf(name, sizeof name, "%s:%s:%d", pieces[i].tensor->name, kinds[kind], i);
                        json_object_set_new(header, name,
                                            json_pack("{s:s, s:[I], s:[I,I]}", "dtype", "F32", "shape",
                                                      (json_int_t)pieces[i].count, "data_offsets",
                                                      (json_int_t)offset, (json_int_t)end));
                        offset = end;
                }
        for (int i = 0; i < count; i++) {
                snprintf(name, sizeof name, "%s:%d", pieces[i].tensor->name, i);
                json_object_set_new(runs, name, runs_json(&pieces[i]));
        }
        char *text = json_object_size(runs) == (size_t)count ? json_dumps(runs, JSON_COMPACT) : NULL;
        if (text)
                json_object_set_new(header, "__metadata__",
                                    json_pack("{s:s, s:s}", "format", "ranvier", "pieces", text));
        free(text);
        json_decref(runs);
        return header;
}

static int put_header(struct stream *stream, const struct state_piece *pieces, int count,
                      struct rv_error_info *err)
{
        char blanks[STREAM_BLOCK];
        json_t *header = header_json(pieces, count);
        char *text = json_object_get(header, "__metadata__") ? json_dumps(header, JSON_COMPACT) : NULL;
        json_decref(header);
        if (!text)
                return rv_fail(err, RV_ESYSTEM, "no memory for the header of %d pieces", count);
        memset(blanks, ' ', sizeof blanks);
        const uint64_t length = strlen(text),
                       padded = (sizeof padded + length + STREAM_BLOCK - 1) / STREAM_BLOCK * STREAM_BLOCK -
                                sizeof padded;
        int rc = stream_put(stream, &padded, sizeof padded, err);
        if (rc == RV_OK)
                rc = stream_put(stream, text, (int64_t)length, err);
        if (rc == RV_OK)
                rc = stream_put(stream, blanks, (int64_t)(padded - length), err);
        free(text);
        return rc;
}

int state_write_part(const char *path, const struct state_piece *pieces, int count, const float *elements,
                     struct stream_end *written, struct rv_error_info *err)
{
        struct stream *stream = stream_create(path, err);
        int64_t all = 0;
        if (!stream)
                return err->code;
        for (int i = 0; i < count; i++)
                all += pieces[i].count;
        int rc = put_header(stream, pieces, count, err);
        if (rc == RV_OK)
                rc = stream_put_much(stream, elements, STATE_KINDS * all * (int64_t)sizeof *elements, err);
        return stream_close(stream, rc, written, err);
}

/* ---- the index ---- */

/* As it is written, without its own checksum. */
static char *checksum_of(const json_t *index, char text[20])
{
        json_t *bare = json_copy((json_t *)(uintptr_t)index);
        json_object_del(bare, "xxh3");
        char *all = json_dumps(bare, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
        json_decref(bare);
        if (!all)
                return NULL;
        snprintf(text, 20, "%016llx", (unsigned long long)XXH3_64bits(all, strlen(all)));
        free(all);
        return text;
}

static int write_index(const char *folder, json_t *index, const struct stream_end *files, int count,
                       struct rv_error_info *err)
{
        char path[PATH], checksum[20], name[FOLDER_PART];
        json_t *list = json_array();
        for (int i = 0; i < count; i++) {
                folder_name_part(name, i);
                json_array_append_new(
                        list,
                        json_pack("{s:s, s:I, s:o}", "name", name, "bytes", (json_int_t)files[i].bytes,
                                  "xxh3", json_sprintf("%016llx", (unsigned long long)files[i].checksum)));
        }
        json_object_set_new(index, "files", list);
        if (!checksum_of(index, checksum))
                return rv_fail(err, RV_ESYSTEM, "%s: no memory for its index", folder);
        json_object_set_new(index, "xxh3", json_string(checksum));
        snprintf(path, sizeof path, "%s/%s", folder, STATE_INDEX);
        const int rc = file_write_json(path, index, err);
        return rc != RV_OK ? rc : file_settle(folder, err);
}

int state_complete(const char *temporary, const char *folder, int64_t step, json_t *index,
                   const struct stream_end *files, int count, struct rv_error_info *err)
{
        char name[FOLDER_CHECKPOINT];
        folder_name_step(name, folder, step);
        int rc = write_index(temporary, index, files, count, err);
        if (rc == RV_OK) {
                folder_remove(name);
                if (rename(temporary, name) != 0)
                        rc = rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", name, strerror(errno));
        }
        if (rc == RV_OK)
                rc = file_settle(folder, err);
        else
                folder_remove(temporary);
        return rc;
}

/* A name that stays in its folder. */
static bool is_plain(const char *name)
{
        return name && *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
               strlen(name) < NAME;
}

static int check_file(const char *folder, const json_t *file, struct rv_error_info *err)
{
        char path[PATH];
        struct stat info;
        const char *name = json_string_value(json_object_get(file, "name"));
        const json_t *bytes = json_object_get(file, "bytes");
        const char *checksum = json_string_value(json_object_get(file, "xxh3"));
        if (!is_plain(name))
                return rv_fail(err, RV_EINPUT,
                               "%.700s/" STATE_INDEX
                               ": names a file '%.100s': one of its own folder was expected",
                               folder, name ? name : "");
        if (!json_is_integer(bytes) || !checksum || strlen(checksum) != 16)
                return rv_fail(err, RV_EINPUT,
                               "%.700s/" STATE_INDEX ": file %.100s has no size or no checksum", folder,
                               name);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
                return rv_fail(err, RV_EINPUT, "%s: is missing: the index beside it lists it", path);
        if (info.st_size != json_integer_value(bytes))
                return rv_fail(err, RV_EINPUT, "%s: has %lld bytes, the index says %lld", path,
                               (long long)info.st_size, (long long)json_integer_value(bytes));
        return RV_OK;
}

json_t *state_read_index(const char *folder, struct rv_error_info *err)
{
        char path[PATH], checksum[20];
        if (strlen(folder) > PATH - NAME - 2) {
                rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %d bytes", folder,
                        PATH - NAME - 2);
                return NULL;
        }
        snprintf(path, sizeof path, "%s/%s", folder, STATE_INDEX);
        json_t *index = file_read_json(path, err);
        if (!index)
                return NULL;
        const char *kind = json_string_value(json_object_get(index, "kind")),
                   *own = json_string_value(json_object_get(index, "xxh3"));
        const json_t *files = json_object_get(index, "files"), *file;
        int rc = RV_OK;
        if (!kind || strcmp(kind, "checkpoint") != 0 || !json_is_array(files) || json_array_size(files) == 0)
                rc = rv_fail(err, RV_EINPUT, "%s: is not the index of a checkpoint of ranvier train", path);
        size_t i;
        json_array_foreach((json_t *)(uintptr_t)files, i, file)
        {
                if (rc == RV_OK)
                        rc = check_file(folder, file, err);
        }
        if (rc == RV_OK && (!own || !checksum_of(index, checksum) || strcmp(own, checksum) != 0))
                rc = rv_fail(err, RV_EINPUT, "%s: is damaged: its checksum is another", path);
        if (rc == RV_OK)
                return index;
        json_decref(index);
        return NULL;
}

int state_files(const json_t *index)
{
        return (int)json_array_size(json_object_get(index, "files"));
}

static void file_path(const char *folder, const json_t *index, int file, char path[PATH])
{
        const json_t *entry = json_array_get(json_object_get(index, "files"), (size_t)file);
        snprintf(path, PATH, "%s/%s", folder, json_string_value(json_object_get(entry, "name")));
}

int state_verify(const char *folder, const json_t *index, int file, struct rv_error_info *err)
{
        enum { AT_ONCE = 1 << 20 };
        char path[PATH], found[20];
        const json_t *entry = json_array_get(json_object_get(index, "files"), (size_t)file);
        file_path(folder, index, file, path);
        FILE *stream = fopen(path, "rb");
        char *buffer = malloc(AT_ONCE);
        XXH3_state_t *hash = XXH3_createState();
        int rc = RV_OK;
        if (!stream || !buffer || !hash) {
                rc = rv_fail(err, RV_ESYSTEM, "%s: cannot be read: %s", path, strerror(errno));
        } else {
                size_t bytes;
                XXH3_64bits_reset(hash);
                while ((bytes = fread(buffer, 1, AT_ONCE, stream)) > 0)
                        XXH3_64bits_update(hash, buffer, bytes);
                snprintf(found, sizeof found, "%016llx", (unsigned long long)XXH3_64bits_digest(hash));
                if (ferror(stream))
                        rc = rv_fail(err, RV_ESYSTEM, "%s: cannot be read: %s", path, strerror(errno));
                else if (strcmp(found, json_string_value(json_object_get(entry, "xxh3"))) != 0)
                        rc = rv_fail(err, RV_EINPUT, "%s: is damaged: its checksum is %s, the index says %s",
                                     path, found, json_string_value(json_object_get(entry, "xxh3")));
        }
        if (stream)
                fclose(stream);
        free(buffer);
        XXH3_freeState(hash);
        return rc;
}

/* ---- reading ---- */

/* Elements [first, first + count) of a whole tensor, in one file: of each kind from `at` on. */
struct interval {
        int64_t first, count;
        const unsigned char *at[STATE_KINDS];
};

/* A piece of a file. */
struct entry {
        char name[NAME];
        const struct safetensors *file;
        const json_t *runs, *of[STATE_KINDS];
};

struct state {
        struct safetensors **files;
        json_t **pieces; /* what each file's metadata say of its pieces */
        int file_count;
        struct entry *entries; /* by name */
        int entry_count;
        /* Of one tensor, in the order of elements. */
        char tensor[NAME];
        struct interval *intervals;
        int64_t interval_count;
        int64_t bytes_read;
};

/* The number of elements of the piece's runs; -1: they are none. */
static int64_t count_runs(const json_t *runs)
{
        const json_t *run;
        int64_t all = 0;
        size_t i;
        if (!json_is_array(runs))
                return -1;
        json_array_foreach((json_t *)(uintptr_t)runs, i, run)
        {
                int64_t value[4], last, elements;
                for (size_t k = 0; k < 4; k++) {
                        const json_t *number = json_array_get(run, k);
                        value[k] = json_is_integer(number) ? (int64_t)json_integer_value(number) : -1;
                        if (value[k] < 0)
                                return -1;
                }
                if (value[1] < 1 || value[3] < 1 || (value[3] > 1 && value[2] < value[1]) ||
                    __builtin_mul_overflow(value[2], value[3], &last) ||
                    __builtin_add_overflow(last, value[0], &last) ||
                    __builtin_add_overflow(last, value[1], &last) ||
                    __builtin_mul_overflow(value[1], value[3], &elements) ||
                    __builtin_add_overflow(all, elements, &all))
                        return -1;
        }
        return all;
}

static int by_name(const void *left, const void *right)
{
        const struct entry *a = left, *b = right;
        return strcmp(a->name, b->name);
}

/* `key` is "NAME:N". */
static int add_entry(struct state *state, int file, const char *key, const json_t *runs,
                     struct rv_error_info *err)
{
        struct entry *entry = &state->entries[state->entry_count];
        const char *colon = strrchr(key, ':');
        const struct safetensors *from = state->files[file];
        const int64_t elements = count_runs(runs);
        *entry = (struct entry){.file = from, .runs = runs};
        if (!colon || colon - key >= NAME || elements < 1)
                return rv_fail(err, RV_EINPUT,
                               "%s: what it says of piece %.100s is not what a checkpoint says", from->path,
                               key);
        memcpy(entry->name, key, (size_t)(colon - key));
        for (int kind = 0; kind < STATE_KINDS; kind++) {
                char name[2 * NAME];
                snprintf(name, sizeof name, "%s:%s:%.20s", entry->name, kinds[kind], colon + 1);
                entry->of[kind] = json_object_get(from->tensors, name);
                const json_t *shape = json_object_get(entry->of[kind], "shape");
                if (!entry->of[kind] || safetensors_dtype(entry->of[kind]) != SAFETENSORS_F32 ||
                    json_array_size(shape) != 1 || json_integer_value(json_array_get(shape, 0)) != elements)
                        return rv_fail(err, RV_EINPUT,
                                       "%s: %.200s is missing, or has not the %lld elements of its piece",
                                       from->path, name, (long long)elements);
        }
        state->entry_count++;
        return RV_OK;
}

static int open_file(struct state *state, const char *folder, const json_t *index, int file,
                     struct rv_error_info *err)
{
        char path[PATH];
        file_path(folder, index, file, path);
        struct safetensors *opened = state->files[file] = safetensors_open(path, err);
        if (!opened)
                return (int)err->code;
        const char *text = json_string_value(json_object_get(opened->metadata, "pieces"));
        json_t *pieces = state->pieces[file] = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
        if (!json_is_object(pieces))
                return rv_fail(err, RV_EINPUT, "%s: its metadata do not say which pieces it has", path);
        const size_t more = json_object_size(pieces);
        struct entry *longer =
                realloc(state->entries, ((size_t)state->entry_count + more + 1) * sizeof *longer);
        if (!longer)
                return rv_fail(err, RV_ESYSTEM, "%s: no memory for %zu pieces", path, more);
        state->entries = longer;
        const char *key;
        json_t *runs;
        json_object_foreach(pieces, key, runs)
        {
                const int rc = add_entry(state, file, key, runs, err);
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

struct state *state_open(const char *folder, const json_t *index, struct rv_error_info *err)
{
        struct state *state = calloc(1, sizeof *state);
        int rc = RV_OK;
        if (state) {
                state->file_count = state_files(index);
                state->files = calloc((size_t)state->file_count, sizeof *state->files);
                state->pieces = calloc((size_t)state->file_count, sizeof *state->pieces);
        }
        if (!state || !state->files || !state->pieces)
                rc = rv_fail(err, RV_ESYSTEM, "%s: no memory to read it", folder);
        for (int i = 0; rc == RV_OK && i < state->file_count; i++)
                rc = open_file(state, folder, index, i, err);
        if (rc == RV_OK) {
                qsort(state->entries, (size_t)state->entry_count, sizeof *state->entries, by_name);
                return state;
        }
        state_close(state);
        return NULL;
}

void state_close(struct state *state)
{
        if (!state)
                return;
        for (int i = 0; i < state->file_count; i++) {
                if (state->files)
                        safetensors_close(state->files[i]);
                if (state->pieces)
                        json_decref(state->pieces[i]);
        }
        free(state->files);
        free(state->pieces);
        free(state->entries);
        free(state->intervals);
        free(state);
}

static int by_first(const void *left, const void *right)
{
        const struct interval *a = left, *b = right;
        return (a->first > b->first) - (a->first < b->first);
}

static int64_t run_value(const json_t *run, size_t i)
{
        return json_integer_value(json_array_get(run, i));
}

/* Adds a piece's intervals, in `room` for all of them. */
static void add_intervals(struct state *state, const struct entry *entry)
{
        const json_t *run;
        int64_t at = 0;
        size_t i;
        json_array_foreach((json_t *)(uintptr_t)entry->runs, i, run)
        {
                for (int64_t k = 0; k < run_value(run, 3); k++) {
                        struct interval *interval = &state->intervals[state->interval_count++];
                        *interval = (struct interval){.first = run_value(run, 0) + k * run_value(run, 2),
                                                      .count = run_value(run, 1)};
                        for (int kind = 0; kind < STATE_KINDS; kind++)
                                interval->at[kind] = entry->file->elements +
                                                     safetensors_offset(entry->of[kind]) +
                                                     at * (int64_t)sizeof(float);
                        at += interval->count;
                }
        }
}

/* Lists where the elements of a tensor are. */
static int find_tensor(struct state *state, const char *name, struct rv_error_info *err)
{
        struct entry key = {.file = NULL};
        if (strcmp(state->tensor, name) == 0)
                return RV_OK;
        snprintf(key.name, sizeof key.name, "%s", name);
        const struct entry *end = state->entries + state->entry_count;
        const struct entry *first =
                state->entry_count
                        ? bsearch(&key, state->entries, (size_t)state->entry_count, sizeof key, by_name)
                        : NULL;
        while (first && first > state->entries && strcmp(first[-1].name, name) == 0)
                first--;
        int64_t all = 0;
        for (const struct entry *e = first; e && e < end && strcmp(e->name, name) == 0; e++) {
                const json_t *run;
                size_t i;
                json_array_foreach((json_t *)(uintptr_t)e->runs, i, run)
                {
                        all += run_value(run, 3);
                }
        }
        free(state->intervals);
        state->interval_count = 0;
        state->tensor[0] = '\0';
        state->intervals = malloc((size_t)(all + 1) * sizeof *state->intervals);
        if (!state->intervals)
                return rv_fail(err, RV_ESYSTEM, "no memory for %lld parts of %s", (long long)all, name);
        for (const struct entry *e = first; e && e < end && strcmp(e->name, name) == 0; e++)
                add_intervals(state, e);
        qsort(state->intervals, (size_t)state->interval_count, sizeof *state->intervals, by_first);
        snprintf(state->tensor, sizeof state->tensor, "%s", name);
        return RV_OK;
}

/* The last interval that begins at or before an element; NULL: there is none. */
static const struct interval *interval_at(const struct state *state, int64_t element)
{
        int64_t low = 0, high = state->interval_count;
        while (low < high) {
                const int64_t middle = (low + high) / 2;
                if (state->intervals[middle].first <= element)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low ? &state->intervals[low - 1] : NULL;
}

int state_read(struct state *state, enum state_kind kind, const struct tensor *tensor, int64_t first,
               int64_t count, float *out, struct rv_error_info *err)
{
        if (find_tensor(state, tensor->name, err) != RV_OK)
                return (int)err->code;
        for (int64_t at = 0, run; at < count; at += run) {
                const int64_t whole = partition_whole_run(tensor, first + at, &run);
                run = run < count - at ? run : count - at;
                if (whole < 0) {
                        memset(out + at, 0, (size_t)run * sizeof *out);
                        continue;
                }
                const struct interval *from = interval_at(state, whole);
                const int64_t skip = from ? whole - from->first : 0;
                if (!from || skip >= from->count)
                        return rv_fail(err, RV_EINPUT, "the checkpoint has not element %lld of %s",
                                       (long long)whole, tensor->name);
                run = run < from->count - skip ? run : from->count - skip;
                memcpy(out + at, from->at[kind] + skip * (int64_t)sizeof *out, (size_t)run * sizeof *out);
                state->bytes_read += run * (int64_t)sizeof *out;
        }
        return RV_OK;
}

int64_t state_bytes_read(const struct state *state)
{
        return state->bytes_read;
}
