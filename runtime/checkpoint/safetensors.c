#include "runtime/checkpoint/safetensors.h"

#include "runtime/base/fp16.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors have this machine's byte order");
enum { LENGTH_BYTES = 8 };

/* The dtypes of safetensors and their bytes; those that can be read are in the order of the enum. */
static const struct {
        const char *name;
        int bytes;
} dtypes[] = {
        {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
        {"U64", 8}, {"I32", 4}, {"U32", 4},  {"I16", 2},     {"U16", 2},
        {"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

static int dtype_of(const json_t *tensor)
{
        const char *name = json_string_value(json_object_get(tensor, "dtype"));
        int dtype = 0;
        while (dtype < DTYPES && (!name || strcmp(name, dtypes[dtype].name) != 0))
                dtype++;
        return dtype;
}

enum safetensors_dtype safetensors_dtype(const json_t *tensor)
{
        const int dtype = dtype_of(tensor);
        return dtype < SAFETENSORS_OTHER ? (enum safetensors_dtype)dtype : SAFETENSORS_OTHER;
}

int64_t safetensors_offset(const json_t *tensor)
{
        return json_integer_value(json_array_get(json_object_get(tensor, "data_offsets"), 0));
}

static int map_file(struct safetensors *file, struct rv_error_info *err)
{
        struct stat info;
        const int descriptor = open(file->path, O_RDONLY | O_CLOEXEC);
        if (descriptor < 0 || fstat(descriptor, &info) != 0) {
                const int reason = errno;
                if (descriptor >= 0)
                        close(descriptor);
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", file->path, strerror(reason));
        }
        int rc = RV_OK;
        if (!S_ISREG(info.st_mode))
                rc = rv_fail(err, RV_EINPUT, "%s: is not a file, safetensors were expected", file->path);
        else if (info.st_size < LENGTH_BYTES)
                rc = rv_fail(err, RV_EINPUT, "%s: not a safetensors file: it has only %lld bytes", file->path,
                             (long long)info.st_size);
        if (rc == RV_OK) {
                file->map_bytes = info.st_size;
                file->map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
                if (file->map == MAP_FAILED) {
                        file->map = NULL;
                        rc = rv_fail(err, RV_ESYSTEM, "%s: its %lld bytes cannot be mapped: %s", file->path,
                                     (long long)info.st_size, strerror(errno));
                }
        }
        close(descriptor);
        return rc;
}

static int read_header(struct safetensors *file, struct rv_error_info *err)
{
        uint64_t length;
        const int64_t rest = file->map_bytes - LENGTH_BYTES;
        const char *text = (const char *)file->map + LENGTH_BYTES;
        memcpy(&length, file->map, sizeof length);
        if (length > SAFETENSORS_MAX_HEADER)
                return rv_fail(err, RV_EINPUT,
                               "%s: not a safetensors file: its first 8 bytes are not the length of a header",
                               file->path);
        if ((int64_t)length > rest)
                return rv_fail(err, RV_EINPUT,
                               "%s: truncated, or not a safetensors file: a header of %llu bytes was "
                               "announced, %lld follow",
                               file->path, (unsigned long long)length, (long long)rest);
        file->tensors = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        if (!json_is_object(file->tensors))
                return rv_fail(err, RV_EINPUT, "%s: not a safetensors file: its header is not a JSON object",
                               file->path);
        file->metadata = json_incref(json_object_get(file->tensors, "__metadata__"));
        json_object_del(file->tensors, "__metadata__");
        file->elements = (const unsigned char *)text + length;
        return RV_OK;
}

/* The bytes that a tensor's shape needs, -1 if it is no shape or needs more than there can be; `bytes` of one
 * element. */
static int64_t bytes_of_shape(const json_t *shape, int64_t bytes)
{
        size_t i;
        const json_t *extent;
        json_array_foreach((json_t *)(uintptr_t)shape, i, extent)
        {
                if (!json_is_integer(extent) || json_integer_value(extent) < 0 ||
                    __builtin_mul_overflow(bytes, (int64_t)json_integer_value(extent), &bytes))
                        return -1;
        }
        return json_is_array(shape) ? bytes : -1;
}

/* Adds to `bytes` those of the tensor. */
static int check_tensor(const struct safetensors *file, const char *name, const json_t *tensor,
                        int64_t *bytes, struct rv_error_info *err)
{
        const int64_t there = file->map_bytes - (file->elements - (const unsigned char *)file->map);
        const int dtype = dtype_of(tensor);
        if (dtype == DTYPES)
                return rv_fail(err, RV_EINPUT,
                               "%s: tensor %.100s has dtype %.16s, which safetensors have not", file->path,
                               name,
                               json_is_string(json_object_get(tensor, "dtype"))
                                       ? json_string_value(json_object_get(tensor, "dtype"))
                                       : "(none)");
        const int64_t needed = bytes_of_shape(json_object_get(tensor, "shape"), dtypes[dtype].bytes);
        if (needed < 0)
                return rv_fail(err, RV_EINPUT, "%s: tensor %.100s has no shape, whole numbers were expected",
                               file->path, name);
        const json_t *offsets = json_object_get(tensor, "data_offsets");
        const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
        const int64_t begin = json_integer_value(first), end = json_integer_value(last);
        if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last) || begin < 0 ||
            end < begin || end - begin != needed)
                return rv_fail(err, RV_EINPUT,
                               "%s: tensor %.100s: its data_offsets do not span its %lld bytes", file->path,
                               name, (long long)needed);
        if (end > there)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: truncated: tensor %.100s ends at byte %lld of the elements, there are %lld",
                        file->path, name, (long long)end, (long long)there);
        *bytes += needed;
        return RV_OK;
}

static int check_tensors(const struct safetensors *file, struct rv_error_info *err)
{
        const int64_t there = file->map_bytes - (file->elements - (const unsigned char *)file->map);
        int64_t bytes = 0;
        const char *name;
        json_t *tensor;
        json_object_foreach(file->tensors, name, tensor)
        {
                if (check_tensor(file, name, tensor, &bytes, err) != RV_OK)
                        return RV_EINPUT;
                /* Tensors that share bytes could add up to anything. */
                if (bytes > there)
                        break;
        }
        if (bytes != there)
                return rv_fail(err, RV_EINPUT, "%s: has %lld bytes of elements, its tensors need %s%lld",
                               file->path, (long long)there, bytes > there ? "at least " : "",
                               (long long)bytes);
        return RV_OK;
}

struct safetensors *safetensors_open(const char *path, struct rv_error_info *err)
{
        struct safetensors *file = calloc(1, sizeof *file);
        if (!file || !(file->path = strdup(path))) {
                free(file);
                rv_fail(err, RV_ESYSTEM, "%s: no memory to read it", path);
                return NULL;
        }
        if (map_file(file, err) == RV_OK && read_header(file, err) == RV_OK &&
            check_tensors(file, err) == RV_OK)
                return file;
        safetensors_close(file);
        return NULL;
}

void safetensors_close(struct safetensors *file)
{
        if (!file)
                return;
        if (file->map)
                munmap(file->map, (size_t)file->map_bytes);
        json_decref(file->metadata);
        json_decref(file->tensors);
        free(file->path);
        free(file);
}

/* Nothing says that elements are aligned. */
static void gather(unsigned char *to, const unsigned char *from, int64_t bytes, int64_t stride, int64_t count)
{
        if (stride == 1)
                memcpy(to, from, (size_t)(count * bytes));
        else if (bytes == 4)
                for (int64_t i = 0; i < count; i++)
                        memcpy(to + i * 4, from + i * stride * 4, 4);
        else
                for (int64_t i = 0; i < count; i++)
                        memcpy(to + i * 2, from + i * stride * 2, 2);
}

void safetensors_read(const struct safetensors *file, const json_t *tensor, int64_t first, int64_t stride,
                      int64_t count, float *out)
{
        enum { PIECE = 4096 };
        const enum safetensors_dtype dtype = safetensors_dtype(tensor);
        const int64_t bytes = dtypes[dtype].bytes;
        const unsigned char *from = file->elements + safetensors_offset(tensor) + first * bytes;
        if (dtype == SAFETENSORS_F32) {
                gather((unsigned char *)out, from, bytes, stride, count);
                return;
        }
        for (int64_t at = 0; at < count; at += PIECE) {
                uint16_t piece[PIECE];
                const int64_t n = count - at < PIECE ? count - at : PIECE;
                gather((unsigned char *)piece, from + at * stride * bytes, bytes, stride, n);
                (dtype == SAFETENSORS_F16 ? fp16_to_floats : bf16_to_floats)(out + at, piece, n);
        }
}
