/* What collectives were measured to take on a cluster, as a platform file's "measured_collectives" name
 * tables of them. A table is a CSV: first a comment "# source: ...", then a line of columns,
 *
 *     operation,gpus,nodes,bytes,seconds
 *
 * where the operation is one of nccl-tests (all_reduce, all_gather, reduce_scatter, alltoall), `gpus` takes
 * part on `nodes` nodes (1 if the column is left out), as many on each, `bytes` is nccl-tests' size: the
 * buffer that is summed, that a reduce-scatter begins and an all-gather ends with, or that one member of an
 * all-to-all sends, its own part included. Instead of `seconds` there may be `microseconds`, or
 * `bus_gb_per_second`, nccl-tests' bus bandwidth in 1e9 bytes a second.
 *
 * platform_file.c reads tables; sim/collective/collective_measured.c asks for what was measured and goes on
 * from there where nothing was. This module knows neither links nor closed forms. */
#ifndef RANVIER_SIM_PLATFORM_COLLECTIVE_TABLE_H
#define RANVIER_SIM_PLATFORM_COLLECTIVE_TABLE_H

#include "runtime/base/error.h"

#include <stdint.h>

/* COLLECTIVE_ALL_TO_ALL is the exchange of rows of experts: every member sends a part to each other. */
enum collective_kind {
        COLLECTIVE_ALLREDUCE,
        COLLECTIVE_REDUCE_SCATTER,
        COLLECTIVE_ALL_GATHER,
        COLLECTIVE_ALL_TO_ALL,
        COLLECTIVE_KINDS
};

struct collective_point {
        double bytes, seconds;
};

/* One operation among `gpus` members on `nodes` nodes, by the size of its buffer, ascending. */
struct collective_series {
        enum collective_kind kind;
        int gpus, nodes;
        struct collective_point *points;
        int count;
};

/* All zeros: nothing was measured. It owns its series and their points. */
struct collective_table {
        struct collective_series *series;
        int count;
        /* What the tables say of where they are from, ". " between them. */
        char source[256];
};

/* Adds the series of the table at `path` behind those that `table` has. Where both have the same operation,
 * members and nodes the earlier one counts, and the later one where that has no sizes: so that the few
 * measurements of a cluster can stand before many of nodes like its own. A row that makes no sense, two rows
 * that disagree, or a table without a source is RV_EINPUT with file and line. After a failure, too, the
 * caller must call collective_table_free. */
int collective_table_read(struct collective_table *table, const char *path, struct rv_error_info *err);
void collective_table_free(struct collective_table *table);

/* Returns the series of a later table with the same operation, members and nodes, or NULL. */
const struct collective_series *collective_table_next(const struct collective_table *table,
                                                      const struct collective_series *series);

/* Returns the seconds of a buffer of `bytes`: a line between the measured sizes on both sides, in logarithms
 * of bytes and seconds. Sizes beyond those that were measured are taken as the nearest of them, which is
 * written to `at` (may be NULL). */
double collective_series_seconds(const struct collective_series *series, double bytes, double *at);

/* Returns the bytes that a link of a member must carry at least for each byte of the buffer, by which
 * nccl-tests works out bus bandwidths: 2 (n - 1) / n for an all-reduce, (n - 1) / n for the others. */
double collective_bus_share(enum collective_kind kind, int members);

#endif
