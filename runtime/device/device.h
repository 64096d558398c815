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
        void *p[9];
        int64_t ld[3], stride[3][2]; /* matmul: leading dimensions, and strides of batch = outer x inner */
        int64_t inner;               /* matmul: size of the inner batch dimension (heads) */
        double scalar[8];
};

/* A kernel that ran, for the recorder: what it was, its seconds on the lane, and when it ended on
 * device_seconds' clock. Called in the order of the launches: on the lane (cpu), or from launch, poll or
 * synchronize once it is known (cuda). */
typedef void device_record_fn(void *context, const struct kernel *kernel, double seconds, double end);

struct device;
struct device_ops {
        const char *name;
        /* Sets aside what alloc will be asked for in each space, every allocation rounded up to
         * MEMORY_ALIGNMENT, in one piece that alloc then carves; once, before the first alloc. RV_OK, or a
         * negative rv_error with a sentence. May be NULL: then alloc takes memory as it is asked. */
        int (*reserve)(struct device *, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err);
        /* Memory of the device, or of the host such that copies to and from it run beside kernels (pinned on
         * a GPU); zeroed, aligned to MEMORY_ALIGNMENT, counted under `space` and `category`. NULL: out of
         * memory, or beyond the limit or, where that is the device's own, what was reserved. Host code
         * reaches MEMORY_HOST alone; kernels reach both (for a few numbers that both sides need: a GPU reads
         * host memory over its link). */
        void *(*alloc)(struct device *, enum memory_space space, enum memory_category category,
                       int64_t bytes);
        /* Queues a kernel on the compute lane; shapes in `kernel`. Does not block; args are copied. */
        void (*launch)(struct device *, const struct kernel *kernel, const struct kernel_args *args);
        /* Between the two calls kernels alone are launched; they may be held back until the second and handed
         * to the device together, as one CUDA graph. May be NULL. */
        void (*begin_group)(struct device *);
        void (*end_group)(struct device *);
        /* Queues a copy between host and device memory on a copy lane. Does not block, if the host memory is
         * alloc's; outside the batch it may be any. */
        void (*copy)(struct device *, enum device_lane lane, void *to, const void *from, int64_t bytes);
        /* Queues an event behind everything on `lane`; device_poll returns `token` (>= 0) once it is reached.
         */
        void (*record)(struct device *, enum device_lane lane, int token);
        /* A token whose event was reached and that was not returned before, or -1. Does not block. */
        int (*poll)(struct device *);
        /* Blocks until a token is there for poll, `seconds` have passed, or no event is queued: for a host
         * that shares its processors with the lanes, which polling takes from them. May be NULL: poll
         * instead. */
        void (*wait)(struct device *, double seconds);
        /* Blocks until every lane is empty. For outside the batch: set-up, checkpoint, tests. */
        void (*synchronize)(struct device *);
        /* Bytes of the device's memory that are free, and all of them, as the driver counts: with what other
         * processes and the device itself take. May be NULL. */
        void (*memory)(struct device *, int64_t *free_bytes, int64_t *total_bytes);
        /* Frees everything. */
        void (*close)(struct device *);
};

/* What a device says of itself, for reports and profiles; empty or 0: not known. */
struct device_description {
        char name[96], driver[64]; /* "NVIDIA H200", "580.159 (CUDA 13.0)" */
        int processors;            /* multiprocessors, or cores that kernels run on */
        double clock_hertz, memory_clock_hertz;
        const char *cpu_kernels; /* cpu: which variant of its kernels runs, such as "avx2"; else NULL */
};

struct device {
        const struct device_ops *ops;
        struct device_description description;
        enum dtype
                dtype; /* what tensors that kernels.h is given are stored as; set before the first launch */
        int64_t limit_bytes[MEMORY_SPACES]; /* that all allocations may take; whoever opened the device may
                                               set others, lower or higher. Where both are the same memory,
                                               their sum is held too */
        int64_t shared_limit_bytes;         /* host and device together; 0: they are not the same memory */
        struct memory_bytes bytes; /* allocated, rounded up to MEMORY_ALIGNMENT: the measured memory */
        int64_t overhead_bytes;    /* of the device's memory, taken by itself (context, libraries, kernels'
                                      workspace) beside what alloc counts and limit_bytes allow */
        int64_t later_bytes; /* of overhead_bytes: not taken yet when the device is open, but as it runs */
        int sharing; /* ranks of this machine that share the device's memory, this one too; 0: not known */
        int gpu;     /* cuda: which of the GPUs that this process sees */
        /* A device that fails later than a call could say (a kernel's bad access) ends here; NULL: the
         * sentence goes to stderr and the process ends with status 1. Does not return. */
        void (*fail)(void *context, const char *sentence);
        void *fail_context;
        double host_link_bytes_per_second; /* cpu: copies take as long as over a link of this rate; 0: as long
                                              as they take */
        double awake_seconds;              /* cpu: for so long after the host launched something it rests by
                                              looking again, on a processor of its own; 0: it has none */
        bool reserved;                     /* device_reserve was called */
        device_record_fn *recorder;        /* may be NULL; set while nothing is queued */
        void *recorder_context;
};

/* ops->reserve, if there is one and nothing was reserved yet: who opens the device and knows of more than one
 * stage's memory calls it before nn_open, which reserves what it needs. RV_OK, or as ops->reserve. */
int device_reserve(struct device *, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err);

/* What a host does that waits for the device: it gives way to the lanes, until there may be a token to poll
 * or, if `network`, it is time to look after messages. */
void device_rest(struct device *, bool network);

/* Bytes of this machine's physical memory. */
int64_t device_cpu_memory_bytes(void);

/* Processors that a rank has for itself: those that it may use, and no more than its share of the machine's
 * among its `local_ranks`: mpirun may bind several to the same ones, such as a socket. At least 1. */
int device_cpu_share(int local_ranks);
/* Threads that a rank's kernels run on unless it is told: as many as OMP_NUM_THREADS says, else its share of
 * the processors. RV_EINPUT with a sentence if the variable is no number of threads. */
enum { DEVICE_MAX_THREADS = 4096 };
int device_cpu_threads(int local_ranks, struct rv_error_info *err);
/* Processors that this process may use. */
int device_cpu_processors(void);

/* The name of this machine's processor, or "unknown". */
void device_cpu_name(char *name, size_t size);

/* Seconds of the host's monotonic clock: what lanes, runs and calibrations are timed with. */
double device_seconds(void);

/* How a device is opened; a field means something to the device it names, or to all. */
struct device_request {
        int threads;                       /* cpu: of the compute lane */
        double host_link_bytes_per_second; /* cpu: see struct device */
        int local_rank, local_ranks; /* cuda: which of how many ranks on this machine: chooses the GPU, and
                                        the rank's share of it where there are fewer GPUs than ranks */
        bool no_graphs;              /* cuda: launch every kernel by itself */
        const char *cpu_kernels;     /* cpu: which variant of its kernels, by name; NULL or "auto": the
                                        fastest that the processor runs */
};

/* The device `name`, "cpu" or "cuda". NULL with a sentence: RV_EINPUT if there is no such device,
 * RV_ENOTBUILT if it was not built or this machine has none. */
struct device *device_open(const char *name, const struct device_request *request, struct rv_error_info *err);

/* The CPU device: its memory is host memory; a worker thread a lane, queues that grow as needed. `threads`:
 * those that a kernel is split over, the compute lane's worker among them. */
struct device *device_cpu_open(int threads, struct rv_error_info *err);

/* With the variant of its kernels that is called so: see struct device_request. */
struct device *device_cpu_open_with(int threads, const char *kernels, struct rv_error_info *err);

/* What the plugin device_cuda.so exports, under this name. */
typedef struct device *device_plugin_fn(const struct device_request *request, struct rv_error_info *err);
#define DEVICE_CUDA_SYMBOL "device_cuda_open"

#endif
