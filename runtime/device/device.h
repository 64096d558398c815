/* A device: memory counted by category, lanes that run kernels and copies in order, events that are polled.
 * This is all that the rest of the program knows of a CPU or a GPU that trains. runtime/nn allocates a
 * stage's memory and launches its kernels, runtime/optim the optimizer's, runtime/real drives the
 * operations of the scheduling core through it, and calibration measures it.
 *
 * A device is opened with device_open, used through its table of functions (struct device_ops, `ops`) and
 * freed with ops->close. One thread, the one that opened it, makes all calls. Work is queued and runs
 * later: a launch or a copy goes to the end of its lane and the call returns; lanes run beside each other,
 * so what must wait for another lane is queued by the caller when an event recorded there was reached.
 * Kernels are named by struct kernel, with operands packed as kernels.h says. Sending messages between
 * ranks is not a device's work (runtime/net). */
#ifndef RANVIER_RUNTIME_DEVICE_DEVICE_H
#define RANVIER_RUNTIME_DEVICE_DEVICE_H

#include "models/memory.h"
#include "models/workload.h"
#include "runtime/base/words.h"
#include "runtime/device/real.h"

/* The lanes of a device. Each runs its commands one after the other, in the order in which they were
 * queued. */
enum device_lane { DEVICE_COMPUTE, DEVICE_HOST_TO_DEVICE, DEVICE_DEVICE_TO_HOST, DEVICE_LANES };

/* Operands of a kernel; what each means is said in runtime/device/kernels.h, kernel by kernel. Pointers are
 * device pointers and must stay valid until the kernel has run. Every byte counts: CUDA graphs are found
 * again by comparing them, so unused members are 0. */
struct kernel_args {
        void *p[9];
        /* matmul: leading dimensions, and strides of batch = outer x inner, in elements; other kinds have
         * other uses for them. */
        int64_t ld[3], stride[3][2];
        int64_t inner; /* matmul: size of the inner batch dimension (heads) */
        double scalar[8];
};

/* A recorder is told of every kernel that ran: what it was, its seconds on the lane, and when it ended on
 * device_seconds' clock. It is called in the order of the launches: on the lane's thread (cpu), or from
 * poll or synchronize once the times are known (cuda). */
typedef void device_record_fn(void *context, const struct kernel *kernel, double seconds, double end);

/* What a kind of device implements. Functions that may be NULL say so. */
struct device;
struct device_ops {
        const char *name; /* of --device: "cpu", "cuda" */
        /* Sets aside what alloc will be asked for in each space, every allocation rounded up to
         * MEMORY_ALIGNMENT, in one piece that alloc then carves; once, before the first alloc. RV_OK, or a
         * negative rv_error with a sentence. May be NULL: then alloc takes memory as it is asked. */
        int (*reserve)(struct device *, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err);
        /* Returns `bytes` of the device's memory, or of host memory such that copies to and from it run
         * beside kernels (pinned on a GPU); zeroed, aligned to MEMORY_ALIGNMENT, counted under `space` and
         * `category`. It is the device's until close; there is no way to free it earlier. NULL: out of
         * memory, or beyond limit_bytes or, on a GPU, beyond what was reserved. Host code reaches
         * MEMORY_HOST alone; kernels reach both (for a few numbers that both sides need: a GPU reads host
         * memory over its link). */
        void *(*alloc)(struct device *, enum memory_space space, enum memory_category category,
                       int64_t bytes);
        /* Queues a kernel on the compute lane; shapes in `kernel`. Does not block; args are copied. */
        void (*launch)(struct device *, const struct kernel *kernel, const struct kernel_args *args);
        /* Between the two calls kernels alone are launched; they may be held back until the second and handed
         * to the device together, as one CUDA graph. May be NULL. */
        void (*begin_group)(struct device *);
        void (*end_group)(struct device *);
        /* Queues a copy between host and device memory on a copy lane. Does not block, if the host memory is
         * alloc's or pinned; outside the batch it may be any. */
        void (*copy)(struct device *, enum device_lane lane, void *to, const void *from, int64_t bytes);
        /* Queues an event behind everything on `lane`; device_poll returns `token` (>= 0) once it is
         * reached. */
        void (*record)(struct device *, enum device_lane lane, int token);
        /* Returns a token whose event was reached and that was not returned before, or -1. Does not block. */
        int (*poll)(struct device *);
        /* Blocks until a token is there for poll, `seconds` have passed, or no event is queued: for a host
         * that shares its processors with the lanes, which polling takes from them. Returns at once for
         * awake_seconds after an event was queued. May be NULL: poll instead. */
        void (*wait)(struct device *, double seconds);
        /* Pins host memory of the caller's, whose pages were touched, so that copies to and from it run at
         * the link's rate and do not block; unpin, before the memory is freed and the device closed, ends
         * that. Memory that CUDA will not pin stays as it is. Both may be NULL: there is nothing to pin for.
         */
        void (*pin)(struct device *, void *memory, int64_t bytes);
        void (*unpin)(struct device *, void *memory);
        /* Blocks until every lane is empty. For outside the batch: set-up, checkpoint, tests. */
        void (*synchronize)(struct device *);
        /* Stores how many bytes of the device's memory are free, and how many it has, as the driver counts
         * them: what other processes and the device itself take is not free. May be NULL. */
        void (*memory)(struct device *, int64_t *free_bytes, int64_t *total_bytes);
        /* Returns the algorithms of products that were timed, as JSON for device_request.products, which the
         * caller frees; NULL: none. May be NULL. */
        char *(*products)(struct device *);
        /* Waits for what is queued, then frees the device and all memory that alloc gave. */
        void (*close)(struct device *);
};

/* What a device says of itself, for reports and profiles; empty or 0: not known. */
struct device_description {
        char name[96], driver[64]; /* "NVIDIA H200", "580.159 (CUDA 13.0)" */
        int processors;            /* multiprocessors of a GPU, or threads that kernels run on */
        double clock_hertz, memory_clock_hertz;
        const char *cpu_kernels; /* cpu: which variant of its kernels runs, such as "avx2"; else NULL */
        /* cuda, when it was last synchronized: shapes of products that ran, and of how many of these the
         * library has nothing for that is fused, so that they are two kernels, and of how many the algorithm
         * was timed. */
        int products, refused_products, timed_products;
        /* cuda, when it was last synchronized: the library that attention may be of ("cuDNN 9.19.0"; empty:
         * none), shapes of causal attention in 16 bits that it was asked for, and how many of these it ran.
         */
        char attention[32];
        int attention_shapes, library_attention_shapes;
};

/* An open device. Its members are set when it is opened; those of which it is said may be changed by
 * whoever opened it. A kind of device has more of its own behind these. */
struct device {
        const struct device_ops *ops;
        struct device_description description;
        /* What the tensors that kernels.h is given are stored as. To be set before the first launch; fp32 at
         * first. */
        enum dtype dtype;
        /* What all allocations in each space may take. Whoever opened the device may set other limits,
         * lower or higher. */
        int64_t limit_bytes[MEMORY_SPACES];
        /* What allocations in both spaces may take together, where they are the same memory; else 0. */
        int64_t shared_limit_bytes;
        struct memory_bytes bytes; /* allocated, rounded up to MEMORY_ALIGNMENT: the measured memory */
        /* Of the device's memory: what the device takes for itself (context, libraries, the kernels'
         * workspace) beside what alloc counts and limit_bytes allow. */
        int64_t overhead_bytes;
        /* Of overhead_bytes: what is not taken yet when the device has been opened, but as it runs. */
        int64_t later_bytes;
        int sharing; /* ranks of this machine that share the device's memory, this one too; 0: not known */
        int gpu;     /* cuda: which of the GPUs that this process sees */
        /* The most columns of a head that fused attention has kernels for; 0: any number. */
        int widest_head;
        /* Called with a sentence if the device fails later than a call could say (a kernel's bad access);
         * it does not return. May be set; NULL: the sentence goes to stderr and the process ends with
         * status 1. */
        void (*fail)(void *context, const char *sentence);
        void *fail_context;
        /* cpu: copies take as long as over a link of this rate; 0: as long as they take. */
        double host_link_bytes_per_second;
        /* cpu: for so many seconds after the host queued the last event, `wait` returns at once, so that
         * the host goes on looking, on a processor of its own; 0: it has none, and sleeps. */
        double awake_seconds;
        bool reserved; /* device_reserve was called */
        /* Told of every kernel that ran; NULL: nobody. To be set while nothing is queued. */
        device_record_fn *recorder;
        void *recorder_context;
};

/* Calls ops->reserve, if there is one and nothing was reserved yet. Whoever opens the device and knows of
 * more than one stage's memory calls it before nn_open, which otherwise reserves what its stage needs.
 * Returns RV_OK, also if there was nothing to do, or what ops->reserve returns. */
int device_reserve(struct device *, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err);

/* Returns `bytes` of host memory for large copies to and from the device, on huge pages, zeroed, and pinned
 * where the device can; not of what the device counts and limits. The caller gives it back by
 * device_host_free, before the device is closed. NULL: there is not so much. */
void *device_host_alloc(struct device *, int64_t bytes);
/* `memory` may be NULL. */
void device_host_free(struct device *, void *memory);

/* Lets the host rest while it waits for the device, so that it takes no processor from the lanes. Returns
 * when there may be a token to poll, or after 2 ms if `network` (messages are under way and must be looked
 * after), else after 1 s. Without ops->wait it only yields the processor. */
void device_rest(struct device *, bool network);
/* The same with messages under way of which there is news at the moment `due` of device_seconds: no longer
 * than until then. */
void device_rest_until(struct device *, double due);

/* Returns the bytes of this machine's physical memory. */
int64_t device_cpu_memory_bytes(void);

/* Returns how many processors a rank has for itself: those that it may use, and no more than its share of
 * the machine's among its `local_ranks`: mpirun may bind several to the same ones, such as a socket. At
 * least 1. */
int device_cpu_share(int local_ranks);
/* Returns how many threads a rank's kernels run on unless it is told: as many as OMP_NUM_THREADS says, else
 * its share of the processors; 1 to DEVICE_MAX_THREADS. RV_EINPUT with a sentence if the variable is no
 * number of threads. */
enum { DEVICE_MAX_THREADS = 4096 };
int device_cpu_threads(int local_ranks, struct rv_error_info *err);
/* Returns how many processors this process may use. */
int device_cpu_processors(void);

/* Writes the name of this machine's processor into `name`, an array of `size` bytes, cut short if it is
 * longer; or "unknown". */
void device_cpu_name(char *name, size_t size);

/* What the CPU device computes with here. */
struct device_cpu_about {
        char blas[128], blas_kernels[32]; /* OpenBLAS's words for itself and for the kernels that it chose */
        const char *kernels[8]; /* of --cpu-kernels: those that this processor runs, slowest first */
        int kernel_count;
};
void device_cpu_about(struct device_cpu_about *);

/* Returns the seconds of the host's monotonic clock: what lanes, runs and calibrations are timed with. */
double device_seconds(void);

/* Whose kernels of causal attention, fused and in 16 bits, a GPU runs: the device's own; a library's, where
 * what it does not do is a failure; or a library's where it is there and does the shape, else the device's
 * own. */
enum attention_source { ATTENTION_OURS, ATTENTION_CUDNN, ATTENTION_AUTO };
/* The words that device_parse_attention and --cpu-kernels take. */
extern const struct option_words device_attention_words, device_cpu_kernels_words;
/* Parses "ours", "cudnn" or "auto" into an enum attention_source; another text is RV_EINPUT with a sentence
 * that begins with `option`. As a row of options calls it (base/setting.h). */
int device_parse_attention(void *source, const char *option, const char *text, struct rv_error_info *err);
/* Returns RV_OK, or RV_EINPUT with a sentence where the option means nothing: without a GPU; or, of a library
 * that must do it, where attention is not `fused` or some is in fp32. */
int device_check_attention(enum attention_source source, bool gpu, bool fused, bool fp32,
                           struct rv_error_info *err);

/* How a device is opened. A member that is for the other device is ignored, but that "cuda" refuses
 * cpu_kernels. */
struct device_request {
        int threads;                       /* cpu: that a kernel is split over, at least 1 */
        double host_link_bytes_per_second; /* cpu: see struct device */
        /* Which of how many ranks on this machine this one is. cuda: it chooses the GPU, and the rank's
         * share of it where there are fewer GPUs than ranks. cpu: `local_ranks` tells whether kernels leave
         * the host a processor (awake_seconds). */
        int local_rank, local_ranks;
        bool no_graphs; /* cuda: launch every kernel by itself, not in CUDA graphs */
        /* cuda: algorithms of products, as ops->products returned them in some run, on the same kind of GPU;
         * NULL: none. And whether those of other products are timed when they are first met, which takes some
         * hundredths of a second each and writes what the product writes; else the library's first proposal
         * is taken. */
        const char *products;
        bool time_products;
        enum attention_source attention; /* cuda */
        /* cpu: which variant of its kernels, by name; NULL or "auto": the fastest that the processor runs. */
        const char *cpu_kernels;
};

/* Opens the device `name`, "cpu" or "cuda"; ops->close frees it. NULL with a sentence: RV_EINPUT if there
 * is no such device or the request is not for it, RV_ENOTBUILT if it was not built or this machine has
 * none, RV_ESYSTEM if the system does not give what it needs. */
struct device *device_open(const char *name, const struct device_request *request, struct rv_error_info *err);

/* Opens the CPU device: its memory is host memory; a worker thread for each lane, queues that grow as
 * needed. A kernel is split over `threads` threads, the compute lane's worker among them. NULL with a
 * sentence, as device_open. Programs call device_open, which also sets the members of a request. */
struct device *device_cpu_open(int threads, struct rv_error_info *err);

/* The same with the variant of its kernels that is called `kernels`: see struct device_request. */
struct device *device_cpu_open_with(int threads, const char *kernels, struct rv_error_info *err);

/* The function that the plugin device_cuda.so exports, under this name, to open the CUDA device.
 * device_open loads the plugin and calls it. */
typedef struct device *device_plugin_fn(const struct device_request *request, struct rv_error_info *err);
#define DEVICE_CUDA_SYMBOL "device_cuda_open"

#endif
