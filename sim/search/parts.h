/* Jobs shared among the ranks that mpirun started, without MPI (which SimGrid's library would shadow):
 * through files beside the CSV, on a file system that all of them see. Each rank but the first writes one
 * file, again and again and each time whole, with its outcomes so far; the first reads them and removes them.
 * All ranks must have listed the same jobs in the same order. sweep.c is the caller. */
#ifndef RANVIER_SIM_SEARCH_PARTS_H
#define RANVIER_SIM_SEARCH_PARTS_H

#include "sim/search/jobs.h"

struct parts {
        /* Without mpirun rank 0 of 1. */
        int rank, size;
        /* Ranks on this host. */
        int local_size;
        /* Of the files' names, which end with a rank; "" until parts_share. */
        char prefix[900];
        /* Seconds that the first rank waits for a sign of life. */
        double patience;
        /* When this rank last wrote its file (progress_clock), and how often it did. */
        double written;
        int64_t beat;
};

/* Reads the environment that Open MPI's mpirun gives. */
struct parts parts_find(void);

/* Sets the names of the files, which will be beside `csv` (at most 800 characters), and the patience in
 * seconds. */
void parts_share(struct parts *parts, const char *csv, double patience);

/* On other ranks than the first: writes the outcomes so far, if the last time is two seconds ago or longer,
 * or if this rank's share is `complete`. */
int parts_tell(struct parts *parts, const struct jobs *jobs, bool complete, struct rv_error_info *err);

/* On the first rank: waits until all others are complete, takes their outcomes into `jobs` and removes the
 * files. Returns RV_ESYSTEM if a rank shows no sign of life for longer than the patience. */
int parts_gather(const struct parts *parts, struct jobs *jobs, struct rv_error_info *err);

#endif
