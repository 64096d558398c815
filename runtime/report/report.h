/* The report: the same JSON from both worlds. */
#ifndef RANVIER_RUNTIME_REPORT_REPORT_H
#define RANVIER_RUNTIME_REPORT_REPORT_H

#include "runtime/base/version.h"
#include "runtime/plan/options.h"
#include "runtime/report/figures.h"

struct report {
        const char *world; /* "real" or "simulated" */
        const char *command;
        const struct options *options;
        const double *batch_seconds; /* of each measured batch */
        int batches;
        double low_seconds, high_seconds; /* predicted: nine batches in ten take so long; 0: not known */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, busiest_seconds, tensor_seconds,
                bubble_fraction;              /* of the median batch, as struct phases has them */
        double peak_flops_per_gpu_per_second; /* 0: not known */
        int64_t tokens;                       /* to train on, for training_days */
        bool days_wanted;                     /* whether report_print says how many these are */
        int ranks;
        const struct memory_bytes *rank_bytes; /* [ranks] allocated, on the device and on the host */
        const int64_t *rank_live_peak;         /* [ranks] most device bytes in use at once; may be NULL */
        int64_t host_peak_bytes;               /* of the whole process, largest rank; 0 if not known */
        const double *loss;                    /* real only; NULL otherwise */
        int losses;
        const char *caveat;    /* what the first line says of how far to trust it; NULL or "": nothing */
        const json_t *remarks; /* sentences for the lines above the figures; may be NULL; borrowed */
        json_t *extra;         /* further members (profile, platform, notes), may be NULL; borrowed */
};

/* Whether a table should say how many days the training takes: its tokens were `given`, or the model has a
 * billion parameters at least, so that the default of 300 billion tokens is likely. */
bool report_days_wanted(const struct gpt *gpt, bool given);

/* What a report says in figures; RV_ESYSTEM if out of memory. */
int report_figures(const struct report *, struct figures *, struct rv_error_info *err);

/* The report as JSON (caller owns; NULL if out of memory) and as the short table that commands print. In the
 * JSON, memory.by_category is the rank with the most device bytes, which are device_peak_bytes;
 * host_by_category, whose sum is host_offloaded_bytes, is what the same rank has in host memory that its
 * device copies from and to. "ranks" has every rank. What is not known is null. Members of `extra` come last
 * and never replace one of the report's own. */
json_t *report_json(const struct report *report);
void report_print(const struct report *report, FILE *stream);

/* Writes it to a file, in the form that the file's name ends in: JSON, which ranvier compare and plot read,
 * unless write.c has another. */
int report_write(const struct report *report, const char *path, struct rv_error_info *err);

/* As Markdown. */
int report_markdown(const struct report *report, const char *path, struct rv_error_info *err);

/* The report's "plan": every option of a resolved plan that says what is computed, by its name ("-" is "_").
 * The caller owns it. */
json_t *report_plan_json(const struct options *options);

/* The first member of `a` that is another one in `b`, or of `b` that is not in `a`; NULL if there is none. A
 * model may have another "name": its shape is what counts. */
const char *report_first_difference(const json_t *a, const json_t *b);

#endif
