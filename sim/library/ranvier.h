/* libranvier: what training runs of language models would take, predicted from within a program.
 *
 * It has what `ranvier simulate` and `ranvier price` are made of, and reads the same profiles, platforms,
 * models and flags of plans. A batch is run on paper: the scheduler that also trains, on a virtual clock,
 * with messages and collectives by closed form. `ranvier simulate` runs it in SimGrid instead, where messages
 * and collectives that share links slow each other down; where none do, the two agree to about 0.1 to 1 %.
 * Where they do (large expert or tensor groups across nodes, several collectives at once) take `ranvier
 * simulate`. A prediction takes a millisecond or less, and its interval some ten times as long.
 *
 * Errors. Functions return RANVIER_OK, or one of the negative codes, and write a sentence for the user into
 * `message`, of `size` bytes, which always ends with a NUL; RANVIER_MESSAGE is enough for all of them, and
 * NULL with 0 is allowed. Functions that return a pointer return NULL then.
 *
 * Nothing is printed, and nothing is kept between calls but in handles, which are the caller's to close. A
 * handle may be used by one thread at a time, and so may the library: its first calls build tables.
 *
 * Data (presets, profiles, platforms) are looked for where the library was installed, in
 * ../share/ranvier, and before that in the folder that the environment variable RANVIER_DATA names; a
 * program that links the static library needs the latter unless it is installed beside them. */
#ifndef RANVIER_H
#define RANVIER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
        RANVIER_OK = 0,
        RANVIER_EINPUT = -1,   /* a name, a file or a flag is wrong */
        RANVIER_EPLAN = -2,    /* the plan cannot run: its grid or its sizes do not fit together */
        RANVIER_ESYSTEM = -3,  /* no memory, or the operating system refused */
        RANVIER_ENOTBUILT = -4 /* it makes sense, but ranvier cannot do it yet */
};
enum { RANVIER_MESSAGE = 1024 };

/* The version of the library that is loaded, such as "0.1.0"; static. */
const char *ranvier_version(void);

/* ---- machines ---- */

/* GPUs with what their kernels take, and the network that joins them. */
struct ranvier_machine;

/* Opens a machine of `gpus` GPUs. `name` is what `ranvier machines` lists ("h100", or "8xh100" for a node),
 * or NULL; `profile` and `platform` are names or files as for --profile and --platform, and each may be NULL
 * where `name` says it. The texts are copied. */
struct ranvier_machine *ranvier_machine_open(const char *name, const char *profile, const char *platform,
                                             int gpus, char *message, size_t size);

/* Frees a machine; NULL is allowed. */
void ranvier_machine_close(struct ranvier_machine *machine);

/* ---- a batch ---- */

struct ranvier_prediction {
        double batch_seconds;             /* of one batch */
        double low_seconds, high_seconds; /* nine batches in ten lie between them; 0 and 0: not known */
        double tokens_per_second;         /* of all GPUs */
        double flops_per_gpu_per_second;  /* floating-point operations, recomputed ones included */
        double percent_of_peak;           /* these, in percent of the GPU's peak; 0: its peak is not known */
        int64_t device_bytes;             /* memory of the rank that needs most of it on its GPU */
        int64_t device_capacity_bytes;    /* what such a rank has; 0: not known */
        int32_t fits;                     /* 1: every rank has the memory that it needs; 0: one has not */
        int32_t ranks;                    /* GPUs that work */
};

/* Predicts one batch of a plan. `plan` is an array that ends with NULL, of the words of a command line: the
 * model (a preset, a config.json or a folder with one) and the flags of a plan that `ranvier simulate` takes,
 * as in
 *
 *     {"llama3-8b", "--tp", "2", "--dp", "4", "--zero", "1", "--micro-batch-size", "1", "--batch-size", "64",
 * NULL}
 *
 * or {"--from", FILE, NULL}: the plan of another tool's launch script or configuration, before which flags
 * beside it come, for as many replicas as the machine's GPUs leave.
 *
 * P x D x T must be the machine's number of GPUs. A plan that does not fit the memory is predicted all the
 * same, with fits 0. `prediction` is written whole, or after an error not at all. --report and --trace are
 * refused. */
int ranvier_predict(const struct ranvier_machine *machine, const char *const *plan,
                    struct ranvier_prediction *prediction, char *message, size_t size);

/* ---- kernels ---- */

enum ranvier_kernel_kind {
        RANVIER_GEMM,      /* y (m,n) = x (m,k) w^T, w (n,k) */
        RANVIER_ATTENTION, /* causal attention forward: `batch` sequences of m tokens, heads of k columns */
        RANVIER_ATTENTION_BACKWARD /* its backward */
};
/* What tensors are stored as. RANVIER_FP8 and RANVIER_NVFP4: bf16, with products in that format. */
enum ranvier_dtype { RANVIER_FP32, RANVIER_FP16, RANVIER_BF16, RANVIER_FP8, RANVIER_NVFP4 };

struct ranvier_kernel {
        int32_t kind;            /* enum ranvier_kernel_kind */
        int32_t dtype;           /* enum ranvier_dtype */
        int64_t m, n, k;         /* of attention, m and k; n is not looked at */
        int64_t batch;           /* of attention, sequences; of a product not looked at */
        int32_t heads, kv_heads; /* of attention: query heads, and key and value heads, which divide them */
};

struct ranvier_price {
        double seconds;        /* of one launch, in a training run */
        double relative_error; /* its standard error, relative to it; 0: not known */
};

/* Prices `count` kernels of the machine's first kind of GPU into `prices`. At the first that the profile does
 * not know it ends with RANVIER_EINPUT and a sentence that names it; the prices before it are written. */
int ranvier_price(const struct ranvier_machine *machine, const struct ranvier_kernel *kernels, int count,
                  struct ranvier_price *prices, char *message, size_t size);

#ifdef __cplusplus
}
#endif

#endif
