/* A device: memory by category, lanes that run kernels and copies in order, events that are polled. */
#ifndef RANVIER_RUNTIME_DEVICE_DEVICE_H
#define RANVIER_RUNTIME_DEVICE_DEVICE_H

#include "models/memory.h"
#include "models/workload.h"
#include "runtime/device/real.h"

enum device_lane { DEVICE_COMPUTE, DEVICE_HOST_TO_DEVICE, DEVICE_DEVICE_TO_HOST, DEVICE_LANES };

/* Operands of a kernel; what each means is said in runtime/device/kernels.h, kernel by kernel. Pointers are
 * device pointers and must stay valid until the kernel has run. */
struct kernel_args {
        void *p[8];
        int64_t ld[3], stride[3][2]; /* matmul: leading dimensions, and strides of batch = outer x inner */
        int64_t inner;               /* matmul: size of the inner batch dimension (heads) */
        double scalar[8];
};

/* A kernel that ran, for the recorder: what it was, and its seconds on the lane. */
typedef void device_record_fn(void *context, const struct kernel *kernel, double seconds);

struct device;
struct device_ops {
        const char *name;
        /* Memory of the device, or of the host such that copies to and from it run beside kernels (pinned on
         * a GPU); zeroed, aligned to MEMORY_ALIGNMENT, counted under `space` and `category`. NULL: out of
         * memory, or beyond the limit. */
        void *(*alloc)(struct device *, enum memory_space space, enum memory_category category,
                       int64_t bytes);
        /* Queues a kernel on the compute lane; shapes in `kernel`. Does not block; args are copied. */
        void (*launch)(struct device *, const struct kernel *kernel, const struct kernel_args *args);
        /* Queues a copy between host and device memory on a copy lane. Does not block. */
        void (*copy)(struct device *, enum device_lane lane, void *to, const void *from, int64_t bytes);
        /* Queues an event behind everything on `lane`; device_poll returns `token` (>= 0) once it is reached.
         */
        void (*record)(struct device *, enum device_lane lane, int token);
        /* A token whose event was reached and that was not returned before, or -1. Does not block. */
        int (*poll)(struct device *);
        /* Blocks until every lane is empty. For outside the batch: set-up, checkpoint, tests. */
        void (*synchronize)(struct device *);
        /* Frees everything. */
        void (*close)(struct device *);
};

struct device {
        const struct device_ops *ops;
        bool half; /* tensors that kernels.h is given are stored as fp16; set before the first launch */
        int64_t limit_bytes[MEMORY_SPACES]; /* that all allocations may take; whoever opened the device may
                                               set others, lower or higher. Where both are the same memory,
                                               their sum is held too */
        int64_t shared_limit_bytes;         /* host and device together; 0: they are not the same memory */
        struct memory_bytes bytes; /* allocated, rounded up to MEMORY_ALIGNMENT: the measured memory */
        double host_link_bytes_per_second; /* cpu: copies take as long as over a link of this rate; 0: as long
                                              as they take */
        device_record_fn *recorder;        /* may be NULL; called on the lane after each kernel */
        void *recorder_context;
};

/* Bytes of this machine's physical memory. */
int64_t device_cpu_memory_bytes(void);

/* Seconds of the host's monotonic clock: what lanes, runs and calibrations are timed with. */
double device_seconds(void);

/* The CPU device: its memory is host memory; a worker thread a lane, queues that grow as needed. `threads`:
 * BLAS threads of the compute lane. */
struct device *device_cpu_open(int threads, struct rv_error_info *err);

#endif
