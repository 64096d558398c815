#include "runtime/checkpoint/checkpoint.h"

#include "runtime/base/file.h"
#include "runtime/checkpoint/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "checkpoints are written in the machine's byte order");
enum { ELEMENT_BYTES = 4 };
/* Lengths of paths: of a folder, of its temporary name, of that with -old behind it, of a file in it. */
enum { FOLDER = 896, TEMPORARY = 944, ASIDE = 960, IN_FOLDER = 1000 };
static const char config_name[] = "config.json", weights_name[] = "model.safetensors";

struct checkpoint_writer {
        struct file_writer file; /* of the tensors */
        struct tensor *tensors;  /* [count], of the whole model */
        int next, count;         /* how many came, and are in all */
        json_t *config;          /* of a folder; NULL: the file is all */
        char folder[FOLDER], temporary[TEMPORARY];
};

/* ---- folders ---- */

bool checkpoint_names_file(const char *path)
{
        static const char suffix[] = ".safetensors";
        const size_t length = strlen(path), tail = strlen(suffix);
        return length >= tail && strcmp(path + length - tail, suffix) == 0;
}

static bool is_folder_name(const char *path)
{
        struct stat info;
        return stat(path, &info) == 0 ? S_ISDIR(info.st_mode) : *path && !checkpoint_names_file(path);
}

static void in_folder(char path[IN_FOLDER], const char *folder, const char *name)
{
        snprintf(path, IN_FOLDER, "%s/%s", folder, name);
}

static bool is_dots(const char *name)
{
        return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Whether ranvier wrote the tensors in the folder. */
static bool is_ours(const char *folder)
{
        char path[IN_FOLDER];
        in_folder(path, folder, weights_name);
        struct safetensors *file = safetensors_open(path, NULL);
        const bool ours = file && json_object_get(file->metadata, "config");
        safetensors_close(file);
        return ours;
}

/* A folder is only replaced where nothing is lost but an older checkpoint. */
static int check_replaceable(const char *path, struct rv_error_info *err)
{
        DIR *stream = opendir(path);
        if (!stream)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        char other[256] = "";
        bool empty = true;
        for (const struct dirent *entry; (entry = readdir(stream));) {
                if (is_dots(entry->d_name))
                        continue;
                empty = false;
                if (strcmp(entry->d_name, config_name) != 0 && strcmp(entry->d_name, weights_name) != 0)
                        snprintf(other, sizeof other, "%s", entry->d_name);
        }
        closedir(stream);
        if (empty || (!other[0] && is_ours(path)))
                return RV_OK;
        return rv_fail(
                err, RV_EINPUT,
                "%s: is a folder that %s%.100s%s: a new name, an empty folder or a checkpoint of ranvier's "
                "was expected",
                path, other[0] ? "has " : "", other[0] ? other : "ranvier did not write",
                other[0] ? " in it" : "");
}

int checkpoint_check_writable(const char *path, struct rv_error_info *err)
{
        struct stat info;
        if (!is_folder_name(path))
                return file_check_writable(path, err);
        const bool there = stat(path, &info) == 0;
        if (there && check_replaceable(path, err) != RV_OK)
                return RV_EINPUT;
        /* Beside one that is there, a new one is written. */
        char beside[FOLDER];
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
                length--;
        if (snprintf(beside, sizeof beside, "%.*s%s", (int)length, path, there ? ".tmp" : "") >=
            (int)sizeof beside)
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %zu bytes", path,
                               sizeof beside - 1);
        return file_check_writable(beside, err);
}

static void remove_folder(const char *folder)
{
        char path[IN_FOLDER];
        in_folder(path, folder, config_name);
        unlink(path);
        in_folder(path, folder, weights_name);
        unlink(path);
        rmdir(folder);
}

/* Makes the folder that will be renamed, of a name that was free. */
static int open_folder(struct checkpoint_writer *writer, const char *path, struct rv_error_info *err)
{
        enum { TRIES = 1000 };
        size_t length = strlen(path);
        while (length > 1 && path[length - 1] == '/')
                length--;
        snprintf(writer->folder, sizeof writer->folder, "%.*s", (int)length, path);
        for (int try = 0; try < TRIES; try++) {
                snprintf(writer->temporary, sizeof writer->temporary, "%s.tmp%d-%d", writer->folder,
                         (int)getpid(), try);
                if (mkdir(writer->temporary, 0777) == 0)
                        return RV_OK;
                if (errno != EEXIST)
                        break;
        }
        const int reason = errno;
        writer->temporary[0] = '\0';
        return rv_fail(err, RV_EINPUT, "%s: cannot be written: %s", path, strerror(reason));
}

/* Gives the folder its name. One that was there is a checkpoint or empty: it steps aside first, so that
 * nobody sees half of either. */
static int rename_folder(const struct checkpoint_writer *writer)
{
        char old[ASIDE];
        struct stat info;
        if (stat(writer->folder, &info) != 0)
                return rename(writer->temporary, writer->folder);
        snprintf(old, sizeof old, "%s-old", writer->temporary);
        if (rename(writer->folder, old) != 0)
                return -1;
        if (rename(writer->temporary, writer->folder) != 0) {
                const int reason = errno;
                rename(old, writer->folder);
                errno = reason;
                return -1;
        }
        remove_folder(old);
        return 0;
}

static int commit_folder(struct checkpoint_writer *writer, struct rv_error_info *err)
{
        char path[IN_FOLDER];
        in_folder(path, writer->temporary, config_name);
        if (file_write_json(path, writer->config, err) != RV_OK)
                return RV_ESYSTEM;
        return rename_folder(writer) == 0 ? RV_OK
                                          : rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s",
                                                    writer->folder, strerror(errno));
}

/* ---- tensors ---- */

static struct tensor *model_tensors(const struct gpt *gpt, int *count)
{
        const struct stage whole = partition_stage(gpt, 1, 0);
        *count = partition_tensors(gpt, &whole, NULL);
        struct tensor *tensors = malloc((size_t)*count * sizeof *tensors);
        if (tensors)
                partition_tensors(gpt, &whole, tensors);
        return tensors;
}

static json_t *tensor_shape(const struct tensor *tensor)
{
        if (!tensor->decay)
                return json_pack("[i]", tensor->cols);
        return tensor->transposed ? json_pack("[ii]", tensor->cols, tensor->rows)
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
        char *config_text = json_dumps(config, JSON_COMPACT | JSON_REAL_PRECISION(17));
        json_t *header = json_pack("{s:{s:s, s:s, s:s, s:s, s:s}}", "__metadata__", "format", "pt", "layout",
                                   "transformers", "step", step, "seq_len", seq_len, "config",
                                   config_text ? config_text : "");
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

static int open_writer(struct checkpoint_writer *writer, const char *path, const struct gpt *gpt,
                       const struct checkpoint_training *training, struct rv_error_info *err)
{
        char weights[IN_FOLDER];
        if (is_folder_name(path)) {
                writer->config = gpt_to_json(gpt);
                gpt_add_architecture(gpt, writer->config);
                if (checkpoint_check_writable(path, err) != RV_OK || open_folder(writer, path, err) != RV_OK)
                        return RV_EINPUT;
                in_folder(weights, writer->temporary, weights_name);
                path = weights;
        }
        if (file_writer_open(&writer->file, path, err) != RV_OK)
                return RV_EINPUT;
        json_t *header = header_json(gpt, training, writer->tensors, writer->count);
        char *text = json_dumps(header, JSON_COMPACT);
        json_decref(header);
        if (!text)
                return rv_fail(err, RV_ESYSTEM, "%s: no memory for the checkpoint's header", path);
        write_header(writer->file.stream, text);
        free(text);
        return RV_OK;
}

static void free_writer(struct checkpoint_writer *writer)
{
        file_writer_abandon(&writer->file);
        if (writer->temporary[0])
                remove_folder(writer->temporary);
        json_decref(writer->config);
        free(writer->tensors);
        free(writer);
}

struct checkpoint_writer *checkpoint_begin(const char *path, const struct gpt *gpt,
                                           const struct checkpoint_training *training,
                                           struct rv_error_info *err)
{
        struct checkpoint_writer *writer = calloc(1, sizeof *writer);
        if (!writer || !(writer->tensors = model_tensors(gpt, &writer->count))) {
                free(writer);
                rv_fail(err, RV_ESYSTEM, "%s: no memory for the list of its tensors", path);
                return NULL;
        }
        if (open_writer(writer, path, gpt, training, err) == RV_OK)
                return writer;
        free_writer(writer);
        return NULL;
}

/* A matrix as (in, out), a row of it at a time. */
static bool write_transposed(FILE *stream, const struct tensor *tensor, const float *elements)
{
        float *row = malloc((size_t)tensor->rows * sizeof *row);
        bool written = row;
        for (int64_t col = 0; written && col < tensor->cols; col++) {
                for (int64_t i = 0; i < tensor->rows; i++)
                        row[i] = elements[i * tensor->cols + col];
                written = fwrite(row, sizeof *row, (size_t)tensor->rows, stream) == (size_t)tensor->rows;
        }
        free(row);
        return written;
}

int checkpoint_append(struct checkpoint_writer *writer, const float *elements, struct rv_error_info *err)
{
        const struct tensor *tensor = &writer->tensors[writer->next];
        FILE *stream = writer->file.stream;
        const size_t count = (size_t)tensor->elements;
        errno = 0;
        if (tensor->transposed ? write_transposed(stream, tensor, elements)
                               : fwrite(elements, sizeof *elements, count, stream) == count) {
                writer->next++;
                return RV_OK;
        }
        return rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s",
                       writer->temporary[0] ? writer->folder : writer->file.final,
                       errno ? strerror(errno) : "no memory for a row");
}

int checkpoint_commit(struct checkpoint_writer *writer, struct rv_error_info *err)
{
        int status = RV_OK;
        if (writer->next < writer->count)
                status = rv_fail(err, RV_ESYSTEM,
                                 "%s: only %d of %d tensors came, so no checkpoint was written",
                                 writer->temporary[0] ? writer->folder : writer->file.final, writer->next,
                                 writer->count);
        else
                status = file_writer_commit(&writer->file, err);
        if (status == RV_OK && writer->temporary[0])
                status = commit_folder(writer, err);
        free_writer(writer);
        return status;
}
