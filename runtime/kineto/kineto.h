/* Reads traces of PyTorch's profiler: Chrome trace JSON as Kineto writes it (torch.profiler,
 * export_chrome_trace), plain or compressed by gzip.
 *
 * `ranvier calibrate --from-trace` makes profiles of it, `ranvier compare` holds predictions against it.
 *
 * A file is read event by event, so that memory grows with the events that are kept and not with the file:
 * what the host did (operators, annotations, calls of the CUDA or HIP runtime) and what a GPU did (kernels,
 * copies, memsets). Which call launched what on the GPU is in their "correlation" alone; the arrows (flows)
 * say the same and are passed over. Times are in microseconds from the first event of the file, as Kineto has
 * them, with or without decimals. */
#ifndef RANVIER_RUNTIME_KINETO_KINETO_H
#define RANVIER_RUNTIME_KINETO_KINETO_H

#include "runtime/base/dtype.h"
#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum kineto_kind {
        KINETO_OPERATOR,   /* cpu_op: an operator of ATen, or a function of autograd */
        KINETO_ANNOTATION, /* user_annotation: ProfilerStep#, Optimizer.step#, those of the program */
        KINETO_RUNTIME,    /* cuda_runtime, cuda_driver: a call of the host */
        KINETO_KERNEL,     /* of the GPU */
        KINETO_COPY        /* gpu_memcpy and gpu_memset */
};
/* Whether an event is of the host, and nests with others of its thread. */
static inline bool kineto_of_host(enum kineto_kind kind)
{
        return kind <= KINETO_RUNTIME;
}

struct kineto_event {
        enum kineto_kind kind;
        const char *name; /* of the trace; equal names are one pointer */
        double start, length;
        int file;            /* which of those that were read, from 0 */
        int64_t thread;      /* of the host; of a GPU's events the stream */
        int64_t correlation; /* of a call and of what it launched; -1: none */
        int64_t sequence;    /* by which autograd joins forward and backward; -1: none */
        /* Where the shapes of its inputs begin in kineto.shapes (kineto_inputs reads them); -1: it has
         * none. */
        int64_t shapes;
        int dtype; /* enum dtype of its first input of a floating-point type; -1: none, or another one */
};

/* What was read, of one or several files. Zeros are an empty trace; kineto_free frees what it owns. */
struct kineto {
        struct kineto_event *events;
        int count, files;
        /* What the file of the first event says the time of that was, in microseconds: where `start` is 0. */
        double begin;
        int64_t *shapes;
        int64_t shape_count;
        json_t *names; /* an object whose keys are the names of events */
        /* The first GPU that the trace names; "" and 0: it names none. */
        char gpu[96];
        int64_t gpu_memory_bytes;
        int gpu_processors;
        /* How many events of operators have shapes, and how many of GPUs there are. */
        int shaped, on_gpu;
};

/* Reads a file and adds its events. Those of one file lie behind those of another in time, by a second at
 * least. RV_EINPUT: it cannot be read, is no trace, or ends where more was expected. */
int kineto_read(struct kineto *trace, const char *path, struct rv_error_info *err);
void kineto_free(struct kineto *trace);

/* Whether a file seems to be such a trace: it begins with a list, or its first 64 KiB name one of events, and
 * do not have the mark of a trace that ranvier wrote. False if it cannot be read. */
bool kineto_is(const char *path);

/* Calls `each` with every event of a file as it is there, one at a time, until one call is not 0. Returns
 * that, 0, or an error of kineto_read. */
typedef int kineto_visit(void *context, const json_t *event, struct rv_error_info *err);
int kineto_each(const char *path, kineto_visit *each, void *context, struct rv_error_info *err);

/* The inputs of an operator: how many there are, and the extents of one of them. An input that is no tensor,
 * or one of a single number, has no extents. */
struct kineto_input {
        int axes;
        const int64_t *extent;
};
int kineto_input_count(const struct kineto *trace, const struct kineto_event *event);
struct kineto_input kineto_input(const struct kineto *trace, const struct kineto_event *event, int index);

#endif
