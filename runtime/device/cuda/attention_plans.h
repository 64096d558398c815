/* Which of a run's attention is a library's (attention_library.h), and its plans, one for each shape that was
 * met. For cuda.c. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_PLANS_H
#define RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_PLANS_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

/* Device memory that the library may work in; a shape that needs more stays ours. cuDNN's backward keeps a
 * part of dq for each 128 keys, to add them in order: 403 MB for 16 sequences of 1024 tokens of 12 heads of
 * 64. */
enum { CUDA_ATTENTION_WORKSPACE_BYTES = 512 << 20 };

struct cuda_attention;

/* Loads the library, for the GPU that is current. NULL with a sentence in err: RV_ENOTBUILT, RV_ESYSTEM. With
 * ATTENTION_AUTO a library that is not there is no error: NULL, and err is as it was. */
struct cuda_attention *cuda_attention_new(enum attention_source source, struct rv_error_info *err);
/* Tells it where its workspace is, of as many bytes as said above, before the first kernel. */
void cuda_attention_work_in(struct cuda_attention *, void *workspace);
/* NULL is allowed. */
void cuda_attention_delete(struct cuda_attention *);
/* Returns the library's name, valid as long as this. */
const char *cuda_attention_name(const struct cuda_attention *);

/* Returns whether the kernel is attention that the library could do and of whose shape it was not asked
 * yet. */
bool cuda_attention_is_new(const struct cuda_attention *, const struct kernel *kernel,
                           const struct kernel_args *args);
/* Asks it, which may take seconds and wait for the GPU; else the first run does. */
void cuda_attention_prepare(struct cuda_attention *, const struct kernel *kernel,
                            const struct kernel_args *args);
/* Queues the kernel on `stream` if it is the library's, and then sets *done: the library does the shape, and
 * operands begin at multiples of 16 bytes. Returns NULL, or why it failed, valid until the next call: with
 * ATTENTION_CUDNN also that the library does not do the shape. */
const char *cuda_attention_run(struct cuda_attention *, cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, bool *done);

#endif
