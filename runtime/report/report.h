/* The report of a run: what a training measured or a simulation predicted. Both worlds fill the same struct
 * report, and this module turns it into the table that commands print, into JSON (for `ranvier compare` and
 * `ranvier plot`) and into Markdown. So the two can be compared member by member. The numbers are made by
 * report_figures; this module measures and predicts nothing. */
#ifndef RANVIER_RUNTIME_REPORT_REPORT_H
#define RANVIER_RUNTIME_REPORT_REPORT_H

#include "runtime/base/version.h"
#include "runtime/plan/options.h"
#include "runtime/report/figures.h"

/* What a run found out. Everything that a member points to stays the caller's. */
struct report {
        const char *world;             /* "real" or "simulated" */
        const char *command;           /* the command line; may be NULL */
        const struct options *options; /* resolved */
        /* [batches], at least one: how long each batch took. A training leaves out the first ones, in which
         * memory is touched for the first time, and steps that were skipped. */
        const double *batch_seconds;
        int batches;
        /* Of a prediction: nine batches in ten take so long. 0: not known. */
        double low_seconds, high_seconds;
        /* Of the median batch, as struct phases has them. */
        double pipeline_seconds, allreduce_seconds, optimizer_seconds, busiest_seconds, tensor_seconds,
                bubble_fraction;
        /* Floating-point operations a second that one device could do at most; 0: not known. */
        double peak_flops_per_gpu_per_second;
        int64_t tokens;   /* of the whole training, for training_days */
        bool days_wanted; /* report_print says how many days that takes; see report_days_wanted */
        int ranks;
        const struct memory_bytes *rank_bytes; /* [ranks]: allocated, on the device and on the host */
        /* [ranks]: the most device bytes that were in use at the same time; may be NULL. */
        const int64_t *rank_live_peak;
        /* The most memory that the process of a rank had, of the rank with the most; 0: not known. */
        int64_t host_peak_bytes;
        /* [losses]: of each step of a training, NaN if it was lost in an overflow. NULL for a simulation. */
        const double *loss;
        int losses;
        /* What the first line of the table adds about how far to trust it; NULL or "": nothing. */
        const char *caveat;
        const json_t *remarks; /* an array of sentences, shown above the figures; may be NULL */
        json_t *extra;         /* an object of further members for the JSON; may be NULL */
};

/* Returns the tokens of a whole training, for its days: those that the user gave, or 300 billion if `given`
 * is 0. */
double report_tokens(double given);

/* Returns whether a table should say how many days the whole training takes: the user gave its number
 * of tokens (`given`, else 0), or the model has a billion parameters at least, so that the default of 300
 * billion tokens is likely. */
bool report_days_wanted(const struct gpt *gpt, double given);

/* Computes all figures of a report. Returns 0, or RV_ESYSTEM if there is no memory. */
int report_figures(const struct report *, struct figures *, struct rv_error_info *err);

/* Returns the report as JSON, which the caller owns, or NULL if there is no memory. Figures that are not
 * known are null or left out, as their rows say. In "memory", by_category is the device memory of the rank
 * that has most, whose sum is device_peak_bytes, and host_by_category, whose sum is host_offloaded_bytes, is
 * the host memory that the device of the same rank copies from and to. "ranks" has every rank. Members of
 * `extra` come last and never replace one of the report's own. */
json_t *report_json(const struct report *report);

/* Prints the report as the short table that commands show. Prints nothing if there is no memory. */
void report_print(const struct report *report, FILE *stream);

/* Prints the report as JSON (--json). Returns 0, or a negative rv_error with a sentence. */
int report_print_json(const struct report *report, struct rv_error_info *err);

/* Writes the report to a file, in the form that the end of its name asks for: Markdown for ".md", JSON for
 * anything else (write.c has the list). Returns 0, or a negative rv_error with a sentence. */
int report_write(const struct report *report, const char *path, struct rv_error_info *err);

/* Writes the report to a file as Markdown, with tables of figures, memory and plan. `err` must not be NULL.
 * Returns 0, or a negative rv_error. */
int report_markdown(const struct report *report, const char *path, struct rv_error_info *err);

/* Returns the "plan" of a report, which the caller owns: every option of a resolved plan that says what is
 * computed, under its name with "_" for "-", and "micro_batches", the number of them in a pipeline. */
json_t *report_plan_json(const struct options *options);

/* Compares two JSON objects, such as the plans or models of two ranks. Returns the key of the first member of
 * `a` that is different or missing in `b`, else of the first member of `b` that is not in `a`, else NULL. The
 * key belongs to its object. A member "name" is not compared: of a model, the shape is what counts. */
const char *report_first_difference(const json_t *a, const json_t *b);

#endif
