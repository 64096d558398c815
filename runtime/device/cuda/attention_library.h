/* Causal attention by a library in the place of our kernels (attention.cu): cuDNN's, whose half is a plugin,
 * attention_cudnn.so (attention_cudnn.cpp), so that the device also opens where cuDNN is not.
 * attention_plans.c calls it.
 *
 * Operands are packed as runtime/device/kernels.h says of attention and attention_backward, in fp16 or bf16;
 * forward and backward may each be the library's or ours, since y and lse mean the same. The library does not
 * write `rows` (cuda_attention_rows does). Backward adds in an order that depends on shapes alone, as our
 * kernels do. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_LIBRARY_H
#define RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_LIBRARY_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct attention_shape {
        bool backward, bf16;         /* else forward, fp16 */
        int64_t sequences, T;        /* tokens of each */
        int64_t heads, kv_heads, hs; /* of queries; of keys and values; columns of one */
        float scale;
};

/* Device memory that the library may work in; a shape that needs more stays ours. cuDNN's backward, whose
 * sums are to be made in one order, keeps the derivative of each score, in 16 bits, of queries and keys
 * rounded up to 64 and 128: 403 MB for 16 sequences of 1024 tokens of 12 heads. */
enum { ATTENTION_WORKSPACE_BYTES = 512 << 20 };

/* One shape, ready to run on the GPU that was current when it was made. */
struct attention_library_plan;

enum { ATTENTION_WHY = 384 }; /* bytes of a sentence */

struct attention_library {
        char name[32]; /* "cuDNN 9.19.0" */
        /* Makes a plan, which the caller frees; takes a second or so, and may wait for the GPU. NULL: the
         * library does not do the shape on this GPU; `why` says what it said. */
        struct attention_library_plan *(*plan)(const struct attention_shape *shape, char why[ATTENTION_WHY]);
        /* Returns the bytes of device memory that a run works in. */
        int64_t (*workspace_bytes)(const struct attention_library_plan *);
        /* Queues attention, p: y, lse, qkv; or its backward, p: dqkv, rows (not used), dy, y, lse, qkv.
         * `workspace` is aligned to 256. Returns NULL, or what failed, valid until the next run. */
        const char *(*run)(struct attention_library_plan *, cudaStream_t stream, void *const p[],
                           void *workspace);
        void (*free)(struct attention_library_plan *); /* NULL is allowed */
};

/* The function that the plugin exports under this name. Returns the library, for the GPU that is current at
 * the first call, which is never unloaded; NULL: `why` says what is missing. */
typedef const struct attention_library *attention_library_fn(char why[ATTENTION_WHY]);
#define ATTENTION_LIBRARY_SYMBOL "attention_library_open"

#ifdef __cplusplus
}
#endif
#endif
