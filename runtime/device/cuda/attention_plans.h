/* Which of a run's attention is a library's (attention_library.h), and its plans, one for each shape that was
 * met. For cuda.c. With RANVIER_CUDA_PLANS in the environment each answer is told on stderr. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_PLANS_H
#define RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_PLANS_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

struct cuda_attention;

/* Loads the library, for the GPU that is current. NULL with a sentence in err: RV_ENOTBUILT, RV_ESYSTEM. With
 * ATTENTION_AUTO a library that is not there is no error: NULL, and err is as it was. */
struct cuda_attention *cuda_attention_new(enum attention_source source, struct rv_error_info *err);
/* Tells it where its workspace is, of ATTENTION_WORKSPACE_BYTES, before the first kernel. */
void cuda_attention_work_in(struct cuda_attention *, void *workspace);
/* NULL is allowed. */
void cuda_attention_delete(struct cuda_attention *);
/* Writes the library's name, and how many shapes there were and how many it ran. */
void cuda_attention_count(const struct cuda_attention *, struct device_description *description);

/* Returns whether the kernel is attention that the library could do and of whose shape it was not asked
 * yet. */
bool cuda_attention_is_new(const struct cuda_attention *, const struct kernel *kernel,
                           const struct kernel_args *args);

/* Asks it, which takes a second or so and may wait for the GPU; else the first run does. */
void cuda_attention_prepare(struct cuda_attention *, const struct kernel *kernel,
                            const struct kernel_args *args);

enum attention_outcome {
        ATTENTION_IS_OURS, /* nothing was queued */
        ATTENTION_IS_QUEUED,
        ATTENTION_IS_REFUSED, /* ATTENTION_CUDNN, and the library does not do it */
        ATTENTION_FAILED
};
/* Queues the kernel on `stream` if it is the library's: it does the shape, and operands begin at multiples of
 * 16 bytes. Of the last two outcomes `why` is the reason, valid until the next call. */
enum attention_outcome cuda_attention_run(struct cuda_attention *, cudaStream_t stream,
                                          const struct kernel *kernel, const struct kernel_args *args,
                                          const char **why);

#endif
