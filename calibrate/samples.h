/* Collects samples while `ranvier calibrate` measures, and makes a load of a profile of them.
 *
 * Each rank has a struct samples for each load (one rank at work, all ranks). Bench, links, overhead and
 * phase add to it; after each round samples_end_round closes the round; at the end samples_gather brings all
 * ranks' samples to the first rank, which calls samples_load. Without memory these functions abort the
 * program. All times are in seconds. */
#ifndef RANVIER_CALIBRATE_SAMPLES_H
#define RANVIER_CALIBRATE_SAMPLES_H

#include "calibrate/profile/profile.h"
#include "runtime/net/net.h"

/* A growing array of numbers. Zeros are an empty one; whoever has it frees `values`. */
struct series {
        double *values;
        int count, capacity;
};

/* The samples of one shape of kernel. `rounds` has one mean for each round; when the ranks' samples are
 * gathered, those of one rank stand behind those of another. A sample that something else on the machine
 * disturbed is negative, and so is the mean of a round that has no other samples: they are left out as long
 * as there are others. */
struct kernel_series {
        struct kernel kernel;
        struct series seconds, rounds, ends; /* ends: how many of the seconds there were after each round */
};

/* The same of one size of copy, message, all-reduce or operation of an optimizer phase. */
struct line_series {
        int64_t bytes;
        struct series seconds, rounds;
        int counted;
};
/* All sizes of one line of the profile. */
struct line_set {
        struct line_series *lines;
        int count;
};

/* All that is measured under one load. */
struct samples {
        int ranks; /* that are at work at once */
        struct kernel_series *kernels;
        int kernel_count;
        /* From an operation's last kernel to the next operation's first. */
        struct series gaps;
        /* Seconds a kernel: [launched by itself, in a graph][of the host, of the lane]. */
        struct series launches[2][2];
        /* What the recorder says of such a kernel; samples_timing_cost. */
        struct series recorded;
        struct line_set lines[PROFILE_LINES];
        /* [run_count] of each run of the family: what the compute lane spent in a forward and backward; on a
         * GPU, what the host saw them take without a recorder. */
        struct series *passes;
        int run_count;
};

void series_add(struct series *series, double value);
/* Returns the q-quantile, 0 <= q <= 1, or 0 if there are no values. It sorts the values. */
double series_quantile(struct series *series, double q);

/* Begins with no samples; samples_free ends. The first kernel or size of its kind adds an entry, later ones
 * add to it. */
void samples_init(struct samples *samples, int ranks, int run_count);
void samples_add_kernel(struct samples *samples, const struct kernel *kernel, double seconds, bool disturbed);
void samples_add_line(struct samples *samples, enum profile_line line, int64_t bytes, double seconds);
void samples_free(struct samples *samples);

/* Ends a round, in which everything was visited once more: what each kernel and size took in this round is
 * kept beside what it takes in all rounds. Differences between rounds tell the errors of a profile. */
void samples_end_round(struct samples *samples);

/* Returns whether the last round changed what the kernels take together by no more than a hundredth. */
bool samples_settled(const struct samples *samples);

/* Counts as disturbed what was sampled in rounds in which all kernels were slower than in most rounds, by
 * more than rounds differ and a twentieth at least. Must be called before samples are gathered; does nothing
 * with less than four rounds. Returns how many rounds these are. */
int samples_leave_out_rounds(struct samples *samples);
/* Returns which part of the kernels' samples was disturbed. */
double samples_disturbed(const struct samples *samples);

/* Appends all ranks' samples to the first rank's; all ranks of `net` call it. Every rank must have taken the
 * same samples in the same order. Messages, and what checkpoints take, are not gathered: the first rank keeps
 * its own. */
void samples_gather(struct samples *samples, struct net *net);

/* Returns the relative standard error of `value` as a prediction of another run's. `rounds` are what `count`
 * single rounds found: their standard deviation over `value`, with the value's own share sqrt(1 + 1/count).
 * Less than two rounds give 0, not known. */
double samples_error(const double *rounds, int count, double value);

/* Returns the seconds that a GPU's recorder adds to every kernel: what it says of one that has nothing to do,
 * beyond what such a kernel takes in a graph, where nobody times it. 0: not known, or nothing. */
double samples_timing_cost(struct samples *samples);
/* Takes that off what every kernel took: once, when all was measured. */
void samples_take_off_timing(struct samples *samples);

/* Multiplies what kernels took, but for the optimizer's and for `apart`. */
void samples_stretch(struct samples *samples, double factor, const struct kernel *apart);

/* Makes a load of a profile: trimmed means of kernels and of operations of
 * optimizer phases, medians of the links, their errors, and fitted models, for a device of `processors`
 * multiprocessors (0: a CPU). It sorts the samples. The arrays of the result belong to the load; profile_free
 * frees them. */
struct profile_load samples_load(struct samples *samples, int processors);

#endif
