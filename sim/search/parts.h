/* Jobs shared among the ranks that mpirun started, without MPI (which SimGrid's library would shadow):
 * through files beside the CSV, on a file system that all of them see. Each rank but the first writes one
 * file, again and again and each time whole, with its outcomes so far; the first reads them and removes them.
 */
#ifndef RANVIER_SIM_SEARCH_PARTS_H
#define RANVIER_SIM_SEARCH_PARTS_H

#include "sim/search/jobs.h"

struct parts {
        int rank, size;   /* 0 of 1 without mpirun */
        int local_size;   /* ranks on this host */
        char prefix[900]; /* of the files' names; "" until parts_share */
        double patience;  /* seconds that the first rank waits for a sign of life */
        double written;   /* seconds of the clock when this rank last wrote */
        int64_t beat;     /* counts this rank's writings */
};

/* Reads the environment that mpirun gives (Open MPI's). */
struct parts parts_find(void);

/* The files will be beside `csv`. */
void parts_share(struct parts *parts, const char *csv, double patience);

/* On other ranks than the first: writes the outcomes so far, if the last time is some seconds ago or
 * `complete`. */
int parts_tell(struct parts *parts, const struct jobs *jobs, bool complete, struct rv_error_info *err);

/* On the first rank: waits for the others and takes their outcomes. RV_ESYSTEM if one shows no sign of life.
 */
int parts_gather(const struct parts *parts, struct jobs *jobs, struct rv_error_info *err);

/* Seconds of a clock that only goes forward. */
double parts_clock(void);

#endif
