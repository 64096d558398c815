/* A profile: what a machine's kernels, copies, messages and all-reduces take, measured (points) and fitted
 * (models, lines). `ranvier calibrate` writes one, and sim reads it; it is the only thing that sim takes
 * from calibrate. Presets in calibrate/profiles are written from datasheets or fitted on published runs.
 * calibrate/README.md describes the file.
 *
 * A caller loads a profile, picks the load of its number of ranks a node (profile_load_for), and asks that
 * for seconds of kernels (profile_kernel_seconds) and of moved bytes (profile_line_seconds). Points of
 * exactly the shape come first, then models. All times are in seconds, all errors are relative standard
 * errors. */
#ifndef RANVIER_CALIBRATE_PROFILE_PROFILE_H
#define RANVIER_CALIBRATE_PROFILE_PROFILE_H

#include "calibrate/profile/model.h"
#include "calibrate/profile/tables.h"
#include "runtime/base/words.h"

#include <jansson.h>

/* A kernel of one shape, measured. */
struct kernel_point {
        struct kernel kernel;
        /* The mean of the samples without a tenth at each end, and the tenth and ninetieth percentile. */
        double seconds, p10, p90;
        int samples;
        /* How much another run would differ; 0: not known. */
        double error;
};

/* Hockney's line: seconds = latency + bytes x seconds_per_byte. */
struct line_fit {
        double latency_seconds, seconds_per_byte;
        /* The error of what it says; 0: not known. */
        double error;
        struct fit_quality quality;
        bool present; /* there is a line; false: the other members say nothing */
};

/* One size of a line, measured. */
struct line_point {
        int64_t bytes;
        double seconds;
        double error; /* as a kernel's */
};

/* What takes time by its bytes. */
enum profile_line {
        LINE_COPY,           /* host to device */
        LINE_COPY_BACK,      /* device to host */
        LINE_COPY_BOTH,      /* host to device, while the other direction is copying too */
        LINE_COPY_BACK_BOTH, /* device to host, likewise */
        LINE_MESSAGE,        /* between two ranks */
        LINE_ALLREDUCE,      /* between `ranks` ranks, of fp32; bytes are the buffer's */
        LINE_ALLREDUCE_FP16, /* the same of fp16 */
        LINE_ALLREDUCE_BF16,
        /* Operations of an offloaded optimizer phase, measured while all three run at once, as they do;
         * bytes are 12 a parameter (plan_offloaded_bytes). */
        LINE_FETCH,
        LINE_OFFLOADED_UPDATE,
        LINE_WRITE_BACK,
        /* ZeRO-3: a layer's weights gathered, or its gradients reduced. It is only in profiles that are
         * written by hand; calibrate does not measure it. */
        LINE_LAYER_GATHER,
        /* A rank's state for a checkpoint, device to host. */
        LINE_SNAPSHOT,
        /* A file that is written until it is on the disk, and what a processor has to do for that. */
        LINE_FILE,
        LINE_FILE_WORK,
        PROFILE_LINES
};
/* A line's name in the file: "copy", "copy_back", ..., "file_work". */
const char *profile_line_name(enum profile_line line);
/* Returns the line of all-reduces in a format. */
enum profile_line profile_allreduce_line(enum dtype dtype);

/* The formats that a profile tells apart: those of tensors, by enum dtype, and behind them the others that
 * products have, by enum product_format. profile_format returns the one of a kernel that has such a dtype and
 * format.
 */
enum { PROFILE_FORMATS = DTYPES + FORMATS - 1 };
static inline int profile_format(enum dtype dtype, enum product_format format)
{
        return format == FORMAT_STORED ? (int)dtype : DTYPES - 1 + (int)format;
}

/* Writes a kernel's name in the file: "matmul"; "matmul_half" where its tensors are fp16, "matmul_bf16"
 * where they are bf16, "matmul_fp8" where it reads copies in fp8. `format` is as profile_format has it. */
enum { PROFILE_NAME = 48 };
void profile_kernel_name(char name[PROFILE_NAME], enum kernel_kind kind, int format);

/* A line's fit, and its points by bytes, ascending. */
struct profile_curve {
        struct line_fit fit;
        struct line_point *points;
        int count;
};

/* What it costs to hand kernels to a device, in seconds a kernel. */
struct profile_launch {
        /* Of the thread that launches, which cannot launch the next one sooner. */
        double host_seconds;
        /* From one kernel that has nothing to do to the next, on the device. */
        double lane_seconds;
};

/* Everything measured while `ranks` ranks of a node worked at once. */
struct profile_load {
        int ranks;
        struct kernel_point *points;
        int point_count;
        struct kernel_model models[PROFILE_FORMATS][KERNEL_KINDS]; /* by profile_format */
        /* What a kernel takes in this 16-bit dtype is what it takes in the other one, where that alone is
         * known: a GPU's tensor cores multiply both alike. */
        bool lent[DTYPES];
        /* Products and attention of which many shapes were measured; they go before models. */
        struct profile_tables tables;
        struct profile_curve lines[PROFILE_LINES];
        /* From an operation's end to the start of the next one on the compute lane. */
        double op_overhead_seconds;
        /* The error that all kernels share: the machine's speed drifts, and kernels do not quite add up to
         * passes. 0: not known. */
        double error;
        /* Kernels launched one by one, and together as a graph. Zeros: not known, and an operation takes
         * what its kernels take. */
        struct profile_launch launch, graph;
};

/* What a device says of itself (runtime/device/device.h); empty or 0: not known. */
struct profile_device {
        char name[96]; /* "cpu", or the name of a GPU */
        char driver[64];
        int processors; /* multiprocessors of a GPU */
        double clock_hertz, memory_clock_hertz;
        /* Of its memory, what its context and libraries take beside what is allocated. */
        int64_t overhead_bytes;
};

/* It owns its JSON objects, its loads and their arrays; profile_free frees them. */
struct profile {
        /* Where it was read from, or is to be written. */
        char path[256];
        struct profile_device device;
        /* Where the figures come from, for the user: "measured by ranvier calibrate ..." or "datasheet:
         * ...". */
        char source[256];
        bool measured;
        /* The machine that it was measured on (machine.h); may be NULL. */
        json_t *machine;
        /* Of one written from datasheets: where each figure comes from, kept as it is; may be NULL. */
        json_t *sources;
        /* The measured runs that figures were fitted on: what validate calls the run, and where it stands.
         * Kept as it is; may be NULL. */
        json_t *fitted_on;
        /* Algorithms of products that were timed (runtime/device/cuda/choices.h), kept as they are; may be
         * NULL. */
        json_t *products;
        /* An array of sentences about what was doubtful when it was measured, which whoever uses it repeats;
         * NULL: none. */
        json_t *warnings;
        /* Floating-point operations a second that one device reaches at most; 0: not known. */
        double peak_flops_per_second;
        /* The same by profile_format, where they differ; 0: the one above holds. */
        double peaks[PROFILE_FORMATS];
        /* "fusion": "off": --fusion auto leaves its fused kernels alone. */
        bool unfused;
        /* "logits": "all": measured with a micro-batch's logits at once, as --logits auto takes them on its
         * device where they fit. */
        bool whole_logits;
        /* Bytes that a rank may allocate; 0: not known. */
        int64_t device_memory_bytes;
        /* Where ranks share processors: which part of one that computes a rank takes that waits; 0: none, or
         * not known. */
        double waiting;
        /* The rate that copies were paced to (calibrate --host-link); 0: they were not. */
        double host_link_bytes_per_second;
        struct profile_load *loads;
        int load_count;
};

/* Writes the day on which the profile was measured, "2026-11-21", to `text` and returns it; "" if its
 * machine does not say. */
const char *profile_date(const struct profile *, char text[16]);

/* Adds a warning about a load if something else seems to have run beside what was measured. `min` and `max`
 * are the smallest and largest sum of kernels over the pass that they were timed in: there is a warning if
 * either is more than 5 % off, or if the error that all the load's kernels share is above 15 %. Returns
 * whether there was one. */
bool profile_warn(struct profile *, const struct profile_load *load, double min, double max);
/* Adds to its warnings that this part of the samples of kernels was disturbed, and left out. */
void profile_warn_of_company(struct profile *, const struct profile_load *load, double disturbed);

/* The words that profile_load takes, and several of them where a platform has several kinds of GPUs. */
extern const struct option_words profile_words;

/* Reads a profile: a preset's name (calibrate/profiles) or a path. It checks everything: a missing, misspelt
 * or impossible value is RV_EINPUT with a sentence that says where. The profile has at least one load then.
 * On failure there is nothing to free. */
int profile_load(struct profile *, const char *name_or_path, struct rv_error_info *err);
/* Writes the file that profile_load reads, whole or not at all, and with `print` the same to standard output.
 * RV_EINPUT where the device's name or the
 * source is not UTF-8; else RV_OK, or what file_write_json says. */
int profile_save(const struct profile *, const char *path, bool print, struct rv_error_info *err);
/* Frees what a profile owns, and leaves zeros; and what a load alone does. */
void profile_free(struct profile *);
void profile_load_free(struct profile_load *);

/* Returns "NOT measured; ", to be shown before the source of a profile that was not measured and does not
 * say so itself; else "". */
const char *profile_caution(const struct profile *profile);

/* Returns the load whose number of ranks is nearest to `ranks_per_node`; of two that are equally near the
 * one with more, so that a prediction errs on the slow side. It stays the profile's. */
const struct profile_load *profile_load_for(const struct profile *, int ranks_per_node);

/* Returns the seconds of `bytes` on a line: at and between measured sizes by these, in proportion, beyond
 * them by the fit; everywhere by the fit if `fits_only`. NAN if the load has no such line. */
double profile_line_seconds(const struct profile_load *, enum profile_line line, int64_t bytes,
                            bool fits_only);

/* Returns the error of these seconds: the point's, between two that of the less certain one, or the fit's.
 * 0: not known. */
double profile_line_error(const struct profile_load *, enum profile_line line, int64_t bytes, bool fits_only);

/* Fills `err` for a prediction that needs a line which this load has not: the sentence names the line, the
 * profile and what to do. Returns RV_EINPUT. */
int profile_no_line(const struct profile *, const struct profile_load *, enum profile_line line,
                    struct rv_error_info *err);

/* Whether any load has kernels in a precision. Products do not count: that of the peak is measured even in a
 * precision that was not asked for (fp32 on the processor). */
bool profile_has_precision(const struct profile *, enum dtype dtype);

/* Whether the load has fused attention in a format, as a point or a model, which is taken to mean that it
 * has the fused kernels: --fusion auto asks this. */
bool profile_has_fused(const struct profile_load *, enum dtype dtype);

/* Whether the load prices products that read copies in a format. */
bool profile_has_products(const struct profile_load *, enum product_format format);

/* What a price comes from: a measured point of its shape, a table of many measured shapes, a fitted or stated
 * model. */
enum profile_source { PROFILE_POINT, PROFILE_TABLE, PROFILE_MODEL };

/* Writes the seconds of one kernel: a measured point of exactly this shape if there is one (and not
 * `fits_only`), else by the table of its kind (tables.h), else by the model of its kind, else the sum of its
 * parts (kernel_parts). A GPU's prices of fp16 stand for bf16 where it has none of that, and the other way
 * around, unless the profile's sources say why it has none. What quantizes moves its bytes by the model that
 * its kind has for the dtype, or as a SwiGLU does; a product in a format of its own with something behind it
 * is priced by the model of the product alone. `source` (may be NULL) becomes the last of these that any
 * part of it comes from. A kind with none of these is RV_EINPUT, with a sentence that names the kernel, the
 * profile and what to do. */
int profile_kernel_seconds(const struct profile *, const struct profile_load *, const struct kernel *,
                           bool fits_only, double *seconds, enum profile_source *source,
                           struct rv_error_info *err);

/* Returns by how much the model that these seconds come from misses its own points in the median; of several
 * parts the worst of theirs. 0: not known, or there are points for all of it. */
double profile_fit_error(const struct profile_load *, const struct kernel *, bool fits_only);

/* Returns the error of these seconds, without the one that all kernels of the load share. 0: not known. */
double profile_kernel_error(const struct profile_load *, const struct kernel *, bool fits_only);

#endif
