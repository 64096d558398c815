/* A profile from traced steps: points of the kernels that the steps have (layers.h), and a model of every
 * other kernel of a transformer, by what each part of the time grows with (share.h). */
#ifndef RANVIER_CALIBRATE_TRACE_LEARN_H
#define RANVIER_CALIBRATE_TRACE_LEARN_H

#include "calibrate/profile/profile.h"
#include "calibrate/trace/share.h"

/* What steps took, added up. Zeros are none; learn_free frees what it owns. */
struct learned {
        const struct layers *layers;
        struct shared_step *steps;
        int count;
};

/* Adds a step, whose kernels it then owns. */
void learn_add(struct learned *learned, const struct shared_step *step);
void learn_free(struct learned *learned);

/* Leaves out steps that took over a twentieth longer than the quarter that took least: something else was
 * running beside them. Of less than four steps all are kept. Returns how many were left out. */
int learn_leave_out(struct learned *learned);

/* What launches of a GPU's trace take. */
struct learned_launches {
        double host;     /* seconds of the host a kernel; 0: it is a CPU's trace */
        double profiled; /* the same while the profiler ran */
        /* Of a step of the trace: seconds that the host launched forwards and backwards, and that the GPU
         * worked for them. */
        double launching, working;
};

/* Says what launches take. `step_seconds`: of a step while nothing profiles it; 0: not known, and they are as
 * in the trace. RV_EINPUT: it is less than what the GPU works in a step, or the trace is a CPU's. */
int learn_launches(const struct learned *learned, double step_seconds, struct learned_launches *launches,
                   struct rv_error_info *err);

/* Makes the load of a profile, for a device of `processors` multiprocessors (0: a CPU). Points are means
 * without the tails over all steps. Models of products are fitted to all products of the trace together;
 * `products` becomes how well. The caller frees the load (profile_load_free). */
struct profile_load learn_load(const struct learned *learned, int processors,
                               const struct learned_launches *launches, struct fit_quality *products);

/* Returns the fastest product of the trace, in floating-point operations a second. */
double learn_peak(const struct learned *learned);

/* What is in no kernel's points: the median seconds of a step. */
double learn_other(const struct learned *learned);

/* Returns what the kernels of a micro-batch, and an update, take by kind, the caller's:
 *   [{"kernel", "number", "seconds", and of these what grows with what (share.h): "flops", "pairs", "tokens",
 *     "nothing"; "against": what a profile says, unless that is NULL}]
 * NULL, with a sentence: the profile does not know one of the kernels. */
json_t *learn_json(const struct learned *learned, const struct profile *against, struct rv_error_info *err);
/* Prints it. */
void learn_print(const json_t *kinds);

#endif
