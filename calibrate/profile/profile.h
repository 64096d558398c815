/* A profile: what a machine's kernels, copies, messages and all-reduces take, measured (points) and fitted.
 * The only thing that sim takes from calibrate. */
#ifndef RANVIER_CALIBRATE_PROFILE_PROFILE_H
#define RANVIER_CALIBRATE_PROFILE_PROFILE_H

#include "calibrate/profile/model.h"

#include <jansson.h>

struct kernel_point {
        struct kernel kernel;
        double seconds, p10, p90; /* mean of the samples without a tenth at each end, and their spread */
        int samples;
        double error; /* relative standard error, as of what another run would take; 0: not known */
};

/* Hockney's line: seconds = latency + bytes x seconds_per_byte. */
struct line_fit {
        double latency_seconds, seconds_per_byte;
        double error; /* relative standard error of what it says; 0: not known */
        struct fit_quality quality;
        bool present;
};

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
        /* Operations of an offloaded optimizer phase, measured while all three run at once, as they do; bytes
         * are 12 a parameter (plan_offloaded_bytes). */
        LINE_FETCH,
        LINE_OFFLOADED_UPDATE,
        LINE_WRITE_BACK,
        LINE_LAYER_GATHER, /* ZeRO-3: a layer's weights gathered, or gradients reduced; never measured here */
        PROFILE_LINES
};
const char *profile_line_name(enum profile_line line); /* "copy", "copy_back", ..., "write_back" */
enum profile_line profile_allreduce_line(enum dtype dtype);

/* A kernel's name in a profile: "matmul"; "matmul_half" where its tensors are fp16, "matmul_bf16" where they
 * are that. */
enum { PROFILE_NAME = 48 };
void profile_kernel_name(char name[PROFILE_NAME], enum kernel_kind kind, enum dtype dtype);

struct profile_curve {
        struct line_fit fit;
        struct line_point *points; /* by bytes, ascending */
        int count;
};

/* What it costs to hand kernels to a device, each by itself or together as a graph: seconds a kernel. */
struct profile_launch {
        double host_seconds; /* of the thread that launches, which cannot launch the next one sooner */
        double lane_seconds; /* from one kernel that has nothing to do to the next on the device */
};

/* Everything measured while `ranks` ranks of a node worked at once. */
struct profile_load {
        int ranks;
        struct kernel_point *points;
        int point_count;
        struct kernel_model models[DTYPES][KERNEL_KINDS];
        struct profile_curve lines[PROFILE_LINES];
        double op_overhead_seconds; /* from an operation's end to the start of the next one on the compute
                                       lane */
        double error; /* relative standard error that all kernels share: the machine's speed drifts, and
                         kernels do not quite add up to passes; 0: not known */
        struct profile_launch launch,
                graph; /* zeros: not known, and an operation takes what its kernels take */
};

/* What a device says of itself (runtime/device/device.h); empty or 0: not known. */
struct profile_device {
        char name[96]; /* "cpu", or the name of a GPU */
        char driver[64];
        int processors;
        double clock_hertz, memory_clock_hertz;
        int64_t overhead_bytes; /* of its memory, taken by its context and libraries beside what is allocated
                                 */
};

struct profile {
        char path[256];
        struct profile_device device;
        char source[256]; /* "measured by ranvier calibrate ..." or "datasheet: ..." */
        bool measured;
        json_t *machine;   /* description: cpu, cores, memory, compiler, BLAS, date; may be NULL */
        json_t *sources;   /* datasheet: where each figure comes from, kept as it is; may be NULL */
        json_t *fitted_on; /* measured runs that figures were fitted on: what validate calls the run, and
                              where it stands; kept as it is; may be NULL */
        json_t *warnings;  /* sentences about what was doubtful when it was measured, which whoever uses it
                              repeats; NULL: none */
        double peak_flops_per_second; /* of one device; 0: not known */
        double peaks[DTYPES];         /* the same of a precision, where they differ; 0: that one */
        bool unfused; /* "fusion": "off": there are fused kernels, and --fusion auto leaves them alone */
        int64_t device_memory_bytes;       /* that a rank may allocate; 0: not known */
        double host_link_bytes_per_second; /* that copies were paced to (calibrate --host-link); 0: not */
        struct profile_load *loads;
        int load_count;
};

/* The day that the profile was measured, "2026-11-21", from its machine; "" if it does not say. */
const char *profile_date(const struct profile *, char text[16]);

/* Adds a warning about a load if something else seems to have run beside what was measured: `least` to `most`
 * are the sums of kernels over the passes that they were timed in, more than a twentieth off on either side,
 * or the error that all its kernels share is above 15 %. Returns whether there was anything to warn of. */
bool profile_warn(struct profile *, const struct profile_load *load, double min, double max);

/* Reads a profile: a preset's name (calibrate/profiles) or a path. Checks everything: a missing, misspelt or
 * impossible value is RV_EINPUT with a sentence that says where. On failure there is nothing to free. */
int profile_load(struct profile *, const char *name_or_path, struct rv_error_info *err);
/* Writes the file that profile_load reads, whole or not at all. */
int profile_save(const struct profile *, const char *path, struct rv_error_info *err);
void profile_free(struct profile *);

/* "NOT measured; " to be shown before the source of a profile that was not measured and does not say so
 * itself; else "". */
const char *profile_caution(const struct profile *profile);

/* The load measured with the number of ranks nearest to `ranks_per_node`. */
const struct profile_load *profile_load_for(const struct profile *, int ranks_per_node);

/* Seconds of `bytes` on a line: between two measured sizes in proportion, beyond them by the fit; by the fit
 * everywhere if fits_only. NAN if the load has no such line. */
double profile_line_seconds(const struct profile_load *, enum profile_line line, int64_t bytes,
                            bool fits_only);

/* Relative standard error of these seconds: the point's, of the less certain neighbour between two, or the
 * fit's. 0: not known. */
double profile_line_error(const struct profile_load *, enum profile_line line, int64_t bytes, bool fits_only);

/* The error of a prediction that needs a line which this load has not: names the line, the profile and the
 * cure. Returns RV_EINPUT. */
int profile_no_line(const struct profile *, const struct profile_load *, enum profile_line line,
                    struct rv_error_info *err);

/* Whether any load has kernels in a precision, beside the products that are measured in any. */
bool profile_has_precision(const struct profile *, enum dtype dtype);

/* Whether the load has fused attention in that format, in points or a model: then calibrate measured the
 * fused kernels. */
bool profile_has_fused(const struct profile_load *, enum dtype dtype);

enum profile_source { PROFILE_POINT, PROFILE_MODEL };

/* Seconds of one kernel: a measured point of exactly this shape if there is one, else by the model of its
 * kind, else the sum of what kernel_parts says that it is made of. A kind with none of these is an error that
 * names the kernel, the profile and the cure. */
int profile_kernel_seconds(const struct profile *, const struct profile_load *, const struct kernel *,
                           bool fits_only, double *seconds, enum profile_source *source,
                           struct rv_error_info *err);

/* How much the model that these seconds come from misses its own points by in the median; of several parts
 * the worst of theirs. 0: not known, or there are points for all of it. */
double profile_fit_error(const struct profile_load *, const struct kernel *, bool fits_only);

/* Relative standard error of these seconds, without what all kernels of the load share. 0: not known. */
double profile_kernel_error(const struct profile_load *, const struct kernel *, bool fits_only);

#endif
