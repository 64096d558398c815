/* Samples as they are taken, by shape and by size, on each rank; gathered to the first rank at the end. */
#ifndef RANVIER_CALIBRATE_SAMPLES_H
#define RANVIER_CALIBRATE_SAMPLES_H

#include "calibrate/profile/profile.h"
#include "runtime/net/net.h"

struct series {
        double *values;
        int count, capacity;
};

/* `rounds` are the seconds of each round by itself, of one rank after the other. */
struct kernel_series {
        struct kernel kernel;
        struct series seconds, rounds;
        int counted; /* of the seconds, in rounds that are over */
};

struct line_series {
        int64_t bytes;
        struct series seconds, rounds;
        int counted;
};
struct line_set {
        struct line_series *lines;
        int count;
};

/* All that is measured under one load. */
struct samples {
        int ranks;
        struct kernel_series *kernels;
        int kernel_count;
        struct series gaps; /* from an operation's last kernel to the next operation's first */
        struct series launches[2]
                              [2]; /* seconds a kernel: [by itself, in a graph][of the host, of the lane] */
        struct line_set lines[PROFILE_LINES];
        struct series
                *passes; /* of each run of the family: the compute lane's seconds in forward and backward */
        int run_count;
};

void series_add(struct series *series, double value);
/* Sorts the values; 0 if there are none. */
double series_quantile(struct series *series, double q);

void samples_init(struct samples *samples, int ranks, int run_count);
void samples_add_kernel(struct samples *samples, const struct kernel *kernel, double seconds);
void samples_add_line(struct samples *samples, enum profile_line line, int64_t bytes, double seconds);
void samples_free(struct samples *samples);

/* Everything was visited once more: what it took in this round is kept beside what it takes in all. */
void samples_end_round(struct samples *samples);

/* Appends all ranks' samples to the first rank's. Every rank has taken the same samples in the same order,
 * but for messages, which the first one keeps. */
void samples_gather(struct samples *samples, struct net *net);

/* The relative standard error of a value as a prediction of another run's, where single rounds found `rounds`
 * (count of them): their standard deviation over `value`, with the value's own share sqrt(1 + 1/count). 0
 * with less than two. */
double samples_error(const double *rounds, int count, double value);

/* Trimmed means (kernels, operations of optimizer phases) and medians (links) as a load of a profile, with
 * models of a device of `processors` multiprocessors (0: a CPU); its arrays belong to the load. */
struct profile_load samples_load(struct samples *samples, int processors);

#endif
