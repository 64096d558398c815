/* A profile: what a machine's kernels, copies, messages and all-reduces take, measured (points) and fitted.
 * The only thing that sim takes from calibrate. */
#ifndef RANVIER_CALIBRATE_PROFILE_H
#define RANVIER_CALIBRATE_PROFILE_H

#include "models/workload.h"

#include <jansson.h>

/* Fit of one kernel kind: seconds = overhead + flops x seconds_per_flop + bytes x seconds_per_byte. */
struct kernel_fit {
        double overhead_seconds, seconds_per_flop, seconds_per_byte;
        int points;
        double median_error, worst_error; /* relative residuals over the points */
        bool present;
};

struct kernel_point {
        struct kernel kernel;
        double seconds, p10, p90; /* mean of the samples without a tenth at each end, and their spread */
        int samples;
};

/* Hockney's line: seconds = latency + bytes x seconds_per_byte. */
struct line_fit {
        double latency_seconds, seconds_per_byte;
        int points;
        double median_error, worst_error;
        bool present;
};

struct line_point {
        int64_t bytes;
        double seconds;
};

/* Everything measured while `ranks` ranks of a node worked at once. */
struct profile_load {
        int ranks;
        struct kernel_point *points;
        int point_count;
        struct kernel_fit fits[KERNEL_KINDS];
        struct line_fit copy, message,
                allreduce; /* allreduce: between `ranks` ranks; bytes are the buffer's */
        struct line_point *copy_points, *message_points, *allreduce_points;
        int copy_count, message_count, allreduce_count;
        double op_overhead_seconds; /* from an operation's end to the start of the next one on the compute
                                       lane */
};

struct profile {
        char path[256];
        char device[64];  /* "cpu", or the name of a GPU */
        char source[256]; /* "measured by ranvier calibrate ..." or "datasheet: ..." */
        bool measured;
        json_t *machine; /* description: cpu, cores, memory, compiler, BLAS, date; may be NULL */
        json_t *sources; /* datasheet: where each figure comes from, kept as it is; may be NULL */
        double peak_flops_per_second; /* of one device; 0: not known */
        int64_t device_memory_bytes;  /* 0: not known */
        int element_bytes;
        struct profile_load *loads;
        int load_count;
};

/* Reads a profile: a preset's name (calibrate/profiles) or a path. Checks everything: a missing, misspelt or
 * impossible value is RV_EINPUT with a sentence that says where. On failure there is nothing to free. */
int profile_load(struct profile *, const char *name_or_path, struct rv_error_info *err);
/* Writes the file that profile_load reads, whole or not at all. */
int profile_save(const struct profile *, const char *path, struct rv_error_info *err);
void profile_free(struct profile *);

/* The load measured with the number of ranks nearest to `ranks_per_node`. */
const struct profile_load *profile_load_for(const struct profile *, int ranks_per_node);

enum profile_source { PROFILE_POINT, PROFILE_FIT };

/* Seconds of one kernel: a measured point of exactly this shape if there is one, else the fit of its kind. A
 * kind with neither is an error that names the kernel, the profile and the cure. */
int profile_kernel_seconds(const struct profile *, const struct profile_load *, const struct kernel *,
                           bool fits_only, double *seconds, enum profile_source *source,
                           struct rv_error_info *err);

#endif
