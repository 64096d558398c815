#include "runtime/checkpoint/checkpoint.h"

#include "runtime/base/file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* safetensors: 8 bytes of header length, a JSON header, raw elements. All of it little-endian, as this
 * program. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoints are written in the machine's byte order");
enum { LENGTH_BYTES = 8, ELEMENT_BYTES = 4, MAX_HEADER_BYTES = 100000000 };

struct checkpoint_writer {
        struct file_writer file;
        int64_t written, elements; /* so far, and in all */
};

/* The tensors of the whole model (malloc'ed) in the one-stage order. */
static struct tensor *model_tensors(const struct gpt *gpt, int *count, int64_t *elements)
{
        struct stage whole = partition_stage(gpt, 1, 0);
        *count = partition_tensors(gpt, &whole, NULL);
        *elements = partition_parameters(gpt, &whole);
        struct tensor *tensors = malloc((size_t)*count * sizeof *tensors);
        if (tensors)
                partition_tensors(gpt, &whole, tensors);
        return tensors;
}

static json_t *tensor_shape(const struct tensor *tensor)
{
        return tensor->rows == 1 ? json_pack("[i]", tensor->cols)
                                 : json_pack("[ii]", tensor->rows, tensor->cols);
}

/* The file's header. Its metadata may only be strings, so the config.json is one, as text. */
static json_t *header_json(const struct gpt *gpt, const struct checkpoint_training *training,
                           const struct tensor *tensors, int count)
{
        char step[32], seq_len[32];
        snprintf(step, sizeof step, "%lld", (long long)training->step);
        snprintf(seq_len, sizeof seq_len, "%d", training->seq_len);
        json_t *config = gpt_to_json(gpt);
        char *config_text = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(6));
        json_t *header = json_pack("{s:{s:s, s:s, s:s, s:s}}", "__metadata__", "format", "pt", "step", step,
                                   "seq_len", seq_len, "config", config_text ? config_text : "");
        for (int i = 0; i < count; i++) {
                int64_t begin = tensors[i].offset * ELEMENT_BYTES,
                        end = begin + tensors[i].elements * ELEMENT_BYTES;
                json_object_set_new(header, tensors[i].name,
                                    json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape",
                                              tensor_shape(&tensors[i]), "data_offsets", (json_int_t)begin,
                                              (json_int_t)end));
        }
        free(config_text);
        json_decref(config);
        return header;
}

/* Writes the length and the header, padded with spaces so that the elements are aligned. */
static void write_header(FILE *stream, const char *text)
{
        uint64_t length = strlen(text), padded = (length + 7) / 8 * 8;
        fwrite(&padded, sizeof padded, 1, stream);
        fprintf(stream, "%s%*s", text, (int)(padded - length), "");
}

struct checkpoint_writer *checkpoint_begin(const char *path, const struct gpt *gpt,
                                           const struct checkpoint_training *training,
                                           struct rv_error_info *err)
{
        int count;
        struct checkpoint_writer *writer = calloc(1, sizeof *writer);
        int64_t elements = 0;
        struct tensor *tensors = model_tensors(gpt, &count, &elements);
        json_t *header = tensors ? header_json(gpt, training, tensors, count) : NULL;
        char *text = header ? json_dumps(header, JSON_COMPACT) : NULL;
        json_decref(header);
        free(tensors);
        if (!writer || !text)
                rv_fail(err, RV_ESYSTEM, "%s: no memory for the checkpoint's header", path);
        if (!writer || !text || file_writer_open(&writer->file, path, err) != RV_OK) {
                free(writer);
                free(text);
                return NULL;
        }
        writer->elements = elements;
        write_header(writer->file.stream, text);
        free(text);
        return writer;
}

int checkpoint_append(struct checkpoint_writer *writer, const float *elements, int64_t count,
                      struct rv_error_info *err)
{
        size_t written = fwrite(elements, ELEMENT_BYTES, (size_t)count, writer->file.stream);
        writer->written += (int64_t)written;
        if ((int64_t)written != count)
                return rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", writer->file.final,
                               strerror(errno));
        return RV_OK;
}

int checkpoint_commit(struct checkpoint_writer *writer, struct rv_error_info *err)
{
        int status;
        if (writer->written == writer->elements) {
                status = file_writer_commit(&writer->file, err);
        } else {
                file_writer_abandon(&writer->file);
                status = rv_fail(err, RV_ESYSTEM,
                                 "%s: only %lld of %lld elements came, so no checkpoint was written",
                                 writer->file.final, (long long)writer->written, (long long)writer->elements);
        }
        free(writer);
        return status;
}

/* A checkpoint that is being read. */
struct reader {
        const char *path;
        FILE *stream;
        json_t *header;
        int64_t data_begin, data_bytes; /* where the elements lie in the file */
};

static int read_header(struct reader *reader, struct rv_error_info *err)
{
        struct stat info;
        reader->stream = fopen(reader->path, "rb");
        if (!reader->stream || fstat(fileno(reader->stream), &info) != 0)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", reader->path, strerror(errno));
        if (!S_ISREG(info.st_mode))
                return rv_fail(err, RV_EINPUT, "%s: is not a file, a checkpoint (safetensors) was expected",
                               reader->path);
        uint64_t length = 0;
        int64_t max = info.st_size - LENGTH_BYTES;
        if (max < 0 || fread(&length, sizeof length, 1, reader->stream) != 1)
                return rv_fail(err, RV_EINPUT, "%s: not a safetensors file: it has only %lld bytes",
                               reader->path, (long long)info.st_size);
        if (length > MAX_HEADER_BYTES)
                return rv_fail(err, RV_EINPUT,
                               "%s: not a safetensors file: its first 8 bytes are not the length of a header",
                               reader->path);
        if (length > (uint64_t)max)
                return rv_fail(err, RV_EINPUT,
                               "%s: truncated, or not a safetensors file: a header of %llu bytes was "
                               "announced, %lld follow",
                               reader->path, (unsigned long long)length, (long long)max);
        char *text = malloc((size_t)length + 1);
        if (!text || fread(text, 1, (size_t)length, reader->stream) != length) {
                free(text);
                return rv_fail(err, RV_ESYSTEM, "%s: its header of %llu bytes could not be read",
                               reader->path, (unsigned long long)length);
        }
        json_error_t wrong;
        reader->header = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &wrong);
        free(text);
        if (!json_is_object(reader->header))
                return rv_fail(err, RV_EINPUT, "%s: not a safetensors file: its header is not a JSON object",
                               reader->path);
        reader->data_begin = LENGTH_BYTES + (int64_t)length;
        reader->data_bytes = info.st_size - reader->data_begin;
        return RV_OK;
}

/* The model, from the config.json in the metadata. */
static int read_config(const struct reader *reader, struct gpt *gpt, struct rv_error_info *err)
{
        const char *text =
                json_string_value(json_object_get(json_object_get(reader->header, "__metadata__"), "config"));
        if (!text)
                return rv_fail(err, RV_EINPUT,
                               "%s: __metadata__ has no \"config\" (a config.json as text), as ranvier train "
                               "--checkpoint writes it; weights that others saved, such as Hugging Face's, "
                               "cannot be "
                               "read yet",
                               reader->path);
        json_t *config = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        char where[512];
        snprintf(where, sizeof where, "%s: its config", reader->path);
        int status = json_is_object(config) ? gpt_from_json(gpt, where, config, err)
                                            : rv_fail(err, RV_EINPUT, "%s is not a JSON object", where);
        json_decref(config);
        return status;
}

/* A whole number among the metadata, which are strings; `otherwise` if it is not there or not in [least,
 * most]. */
static int64_t read_number(const struct reader *reader, const char *key, int64_t min, int64_t max,
                           int64_t otherwise)
{
        const char *text =
                json_string_value(json_object_get(json_object_get(reader->header, "__metadata__"), key));
        char *end = NULL;
        long long number = text ? strtoll(text, &end, 10) : 0;
        return text && end != text && *end == '\0' && number >= min && number <= max ? number : otherwise;
}

static int check_shape(const struct reader *reader, const struct tensor *tensor, const json_t *found,
                       struct rv_error_info *err)
{
        json_t *right = tensor_shape(tensor);
        int status = RV_OK;
        if (!json_equal(right, found)) {
                char *right_text = json_dumps(right, JSON_COMPACT);
                char *found_text = found ? json_dumps(found, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
                status = rv_fail(err, RV_EINPUT, "%s: tensor %s has shape %.60s, %s was expected",
                                 reader->path, tensor->name, found_text ? found_text : "(none)",
                                 right_text ? right_text : "?");
                free(right_text);
                free(found_text);
        }
        json_decref(right);
        return status;
}

/* Checks that the file has `tensor`, whole and in the right shape; `begin`: its first byte among the
 * elements. */
static int check_tensor(const struct reader *reader, const struct tensor *tensor, int64_t *begin,
                        struct rv_error_info *err)
{
        const json_t *entry = json_object_get(reader->header, tensor->name);
        if (!entry)
                return rv_fail(err, RV_EINPUT, "%s: tensor %s is missing", reader->path, tensor->name);
        const char *dtype = json_string_value(json_object_get(entry, "dtype"));
        if (!dtype || strcmp(dtype, "F32") != 0)
                return rv_fail(err, RV_EINPUT, "%s: tensor %s has dtype %.16s, F32 was expected",
                               reader->path, tensor->name, dtype ? dtype : "(none)");
        if (check_shape(reader, tensor, json_object_get(entry, "shape"), err) != RV_OK)
                return RV_EINPUT;
        const json_t *offsets = json_object_get(entry, "data_offsets");
        const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
        *begin = json_integer_value(first);
        int64_t end = json_integer_value(last);
        if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) ||
            *begin < 0 || end < *begin || end - *begin != tensor->elements * ELEMENT_BYTES)
                return rv_fail(err, RV_EINPUT, "%s: tensor %s: its data_offsets do not span its %lld bytes",
                               reader->path, tensor->name, (long long)tensor->elements * ELEMENT_BYTES);
        if (end > reader->data_bytes)
                return rv_fail(err, RV_EINPUT,
                               "%s: truncated: tensor %s ends at byte %lld of the elements, there are %lld",
                               reader->path, tensor->name, (long long)end, (long long)reader->data_bytes);
        return RV_OK;
}

/* Checks every tensor before anything is allocated for them; fills begins[] with where each begins. */
static int check_tensors(const struct reader *reader, const struct tensor *tensors, int count,
                         int64_t *begins, struct rv_error_info *err)
{
        int64_t bytes = 0;
        for (int i = 0; i < count; i++) {
                if (check_tensor(reader, &tensors[i], &begins[i], err) != RV_OK)
                        return RV_EINPUT;
                bytes += tensors[i].elements * ELEMENT_BYTES;
        }
        if (json_object_size(reader->header) != (size_t)count + 1)
                return rv_fail(err, RV_EINPUT, "%s: has %zu tensors, the model in its config has %d",
                               reader->path, json_object_size(reader->header) - 1, count);
        if (bytes != reader->data_bytes)
                return rv_fail(err, RV_EINPUT, "%s: has %lld bytes of elements, its tensors need %lld",
                               reader->path, (long long)reader->data_bytes, (long long)bytes);
        return RV_OK;
}

/* A training that diverged, or a damaged file: whatever is computed from it would look like a result. */
static int check_finite(const struct reader *reader, const struct tensor *tensor, const float *elements,
                        struct rv_error_info *err)
{
        for (int64_t i = 0; i < tensor->elements; i++)
                if (!isfinite(elements[i]))
                        return rv_fail(err, RV_EINPUT,
                                       "%s: element %lld of tensor %s is %s: finite weights were expected",
                                       reader->path, (long long)i, tensor->name,
                                       isnan(elements[i]) ? "not a number" : "infinite");
        return RV_OK;
}

static int read_tensor(const struct reader *reader, const struct tensor *tensor, int64_t begin,
                       float *elements, struct rv_error_info *err)
{
        const size_t wanted = (size_t)tensor->elements;
        if (fseeko(reader->stream, (off_t)(reader->data_begin + begin), SEEK_SET) != 0 ||
            fread(elements, sizeof *elements, wanted, reader->stream) != wanted)
                return rv_fail(err, RV_ESYSTEM, "%s: tensor %s could not be read", reader->path,
                               tensor->name);
        return check_finite(reader, tensor, elements, err);
}

/* The elements of all tensors, malloc'ed, in the order of `tensors`; NULL if it fails. */
static float *read_elements(const struct reader *reader, const struct tensor *tensors, int count,
                            const int64_t *begins, int64_t elements, struct rv_error_info *err)
{
        float *weights = malloc((size_t)elements * sizeof *weights);
        if (!weights) {
                rv_fail(err, RV_ESYSTEM, "%s: no memory for its %lld elements", reader->path,
                        (long long)elements);
                return NULL;
        }
        for (int i = 0; i < count; i++)
                if (read_tensor(reader, &tensors[i], begins[i], weights + tensors[i].offset, err)) {
                        free(weights);
                        return NULL;
                }
        return weights;
}

int checkpoint_read(const char *path, struct gpt *gpt, struct checkpoint_training *training, float **weights,
                    struct rv_error_info *err)
{
        struct reader reader = {.path = path};
        struct tensor *tensors = NULL;
        int64_t *begins = NULL, elements = 0;
        int count = 0;
        int status = read_header(&reader, err);
        if (status != RV_OK || (status = read_config(&reader, gpt, err)) != RV_OK)
                goto out;
        if (training)
                *training = (struct checkpoint_training){
                        .step = read_number(&reader, "step", 0, INT64_MAX, 0),
                        .seq_len =
                                (int)read_number(&reader, "seq_len", 1, gpt->n_positions, gpt->n_positions),
                };
        tensors = model_tensors(gpt, &count, &elements);
        begins = malloc((size_t)count * sizeof *begins);
        if (!tensors || !begins) {
                status = rv_fail(err, RV_ESYSTEM, "%s: no memory for the list of its tensors", path);
                goto out;
        }
        status = check_tensors(&reader, tensors, count, begins, err);
        if (status == RV_OK && weights) {
                *weights = read_elements(&reader, tensors, count, begins, elements, err);
                status = *weights ? RV_OK : err ? (int)err->code : RV_EINPUT;
        }
out:
        free(begins);
        free(tensors);
        json_decref(reader.header);
        if (reader.stream)
                fclose(reader.stream);
        return status;
}
