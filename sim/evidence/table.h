/* A table of training runs that somebody measured: comma separated values, one run a line. */
#ifndef RANVIER_SIM_EVIDENCE_TABLE_H
#define RANVIER_SIM_EVIDENCE_TABLE_H

#include "runtime/base/error.h"
#include "runtime/sched/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* What `measured` counts. */
enum table_unit {
        TABLE_SECONDS,
        TABLE_MILLISECONDS,
        TABLE_TFLOPS_PER_GPU,
        TABLE_PERCENT_OF_PEAK,
        TABLE_UNITS
};
const char *table_unit_name(enum table_unit unit); /* "batch_seconds", ... */

enum { TABLE_TEXT = 96 };

/* One run. Texts are "" and numbers 0 where the table says nothing. */
struct table_row {
        int line; /* of the file, from 1 */
        char source[TABLE_TEXT], model[TABLE_TEXT], gpu[TABLE_TEXT];
        char recompute[TABLE_TEXT], schedule[TABLE_TEXT];
        char plan[4 * TABLE_TEXT]; /* more flags of a plan, as on a command line */
        int64_t gpus, batch, micro_batch, layers, hidden, heads, seq, vocab, interleave;
        int64_t sizes[GRID_AXES]; /* of the grid */
        double low, high;         /* measured; the same number but where a range was published */
        enum table_unit unit;
};

struct table {
        char path[256];
        struct table_row *rows;
        int count;
};

/* Reads a table. The first line that is neither empty nor a comment names the columns, in any order and in
 * either spelling that table.c lists (ours, or that of the tables which vTrain's authors published); columns
 * whose names begin with "note" are left alone, others are refused; lines that begin with # are comments.
 * Errors name file and line. The caller frees, not after an error. */
int table_read(struct table *table, const char *path, struct rv_error_info *err);
void table_free(struct table *table);

/* The columns, for help: one line each. */
extern const char table_help[];

#endif
