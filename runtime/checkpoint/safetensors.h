/* One safetensors file, for reading: 8 bytes of header length, a JSON header, raw little-endian elements. The
 * file is mapped, not read: pages come from the disk when their elements are asked for, so a file may be
 * larger than memory. The header is checked whole before anything else is done with it. weight_files.h puts
 * several files together, and knows which tensors a model needs. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_SAFETENSORS_H
#define RANVIER_RUNTIME_CHECKPOINT_SAFETENSORS_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdint.h>

/* A header may have so many bytes, as in safetensors' own library. */
enum { SAFETENSORS_MAX_HEADER = 100000000 };

struct safetensors {
        char *path;
        json_t *metadata; /* "__metadata__", strings by name; NULL: the file has none */
        json_t *tensors;  /* by name: objects with dtype, shape and data_offsets, which were checked */
        const unsigned char *elements; /* of all tensors, where offset 0 is */
        void *map;                     /* the whole file, map_bytes */
        int64_t map_bytes;
};

/* Maps the file `path` and checks its header: every tensor lies within the file, has as many bytes as its
 * shape needs, and there are no bytes that no tensor has. Returns NULL with a sentence, RV_EINPUT where the
 * file is not such a file. The caller ends it with safetensors_close. */
struct safetensors *safetensors_open(const char *path, struct rv_error_info *err);
void safetensors_close(struct safetensors *); /* NULL is fine */

/* What can be read of a tensor: its elements are fp32, fp16 or bf16. */
enum safetensors_dtype { SAFETENSORS_F32, SAFETENSORS_F16, SAFETENSORS_BF16, SAFETENSORS_OTHER };

/* Return what is said of a tensor, which is a member of `tensors`. The names of the three that can be read
 * are those of safetensors: "F32", "F16" and "BF16". */
enum safetensors_dtype safetensors_dtype(const json_t *tensor);
int64_t safetensors_offset(const json_t *tensor);

/* Copies `count` elements of a tensor in fp32 to `out`: number `first`, and then each `stride` further. The
 * tensor must have them, in a dtype that can be read. */
void safetensors_read(const struct safetensors *, const json_t *tensor, int64_t first, int64_t stride,
                      int64_t count, float *out);

#endif
