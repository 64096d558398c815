/* A table of training runs that somebody measured: comma separated values, one run a line. This module reads
 * and checks the cells; measured.h makes plans of the rows. */
#ifndef RANVIER_SIM_EVIDENCE_TABLE_H
#define RANVIER_SIM_EVIDENCE_TABLE_H

#include "runtime/base/error.h"
#include "runtime/sched/plan.h"

#include <stdbool.h>
#include <stdint.h>

/* What the measured figure of a row counts. The first two are times of a batch. */
enum table_unit {
        TABLE_SECONDS,
        TABLE_MILLISECONDS,
        TABLE_TFLOPS_PER_GPU,
        TABLE_PERCENT_OF_PEAK,
        TABLE_TOKENS_PER_SECOND_PER_GPU,
        TABLE_UNITS
};
/* Returns the name that the column unit uses: "batch_seconds", ... */
const char *table_unit_name(enum table_unit unit);

enum { TABLE_TEXT = 96, TABLE_LONG_TEXT = 1024 };

/* One run. Texts are "" and numbers 0 where the table says nothing. */
struct table_row {
        /* Of the file, from 1. */
        int line;
        char source[2 * TABLE_TEXT], model[TABLE_TEXT], gpu[TABLE_TEXT];
        /* A model by name; "" means that layers, hidden and heads are those of a GPT-2. */
        char preset[TABLE_TEXT];
        /* "" means that `gpu` says which. */
        char profile[TABLE_TEXT], platform[TABLE_TEXT];
        char recompute[TABLE_TEXT], schedule[TABLE_TEXT];
        /* What flags of their names take. */
        char zero[TABLE_TEXT], shard_replicas[TABLE_TEXT], cp[TABLE_TEXT], precision[TABLE_TEXT];
        char like[TABLE_TEXT];    /* the framework, as --like takes it */
        char tp_grid[TABLE_TEXT]; /* X times Y times Z; "": the shards are no grid */
        /* More flags of a plan, as on a command line. */
        char plan[4 * TABLE_TEXT];
        /* `batch` and `micro_batch` are in sequences, `seq` in tokens; `interleave` is the number of virtual
         * stages. */
        int64_t gpus, batch, micro_batch, layers, hidden, heads, seq, vocab, interleave;
        /* Of the grid, by enum grid_axis. */
        int64_t sizes[GRID_AXES];
        /* The measured figure in `unit`; the two are equal unless a range was published. */
        double low, high;
        enum table_unit unit;
        /* Of a form whose columns are words of others (table_help): what the source says besides, and why the
         * row cannot be expressed as a plan; "": it can. */
        char notes[TABLE_LONG_TEXT], metric[TABLE_TEXT], reason[3 * TABLE_TEXT];
        /* The framework that trained, and the GPU, by short names; "": of the other forms. */
        char framework[32], gpu_name[32];
        /* Parts of a sequence, and replicas over which experts are spread. And what of the model is not its
         * preset's: layers that were kept of it, layers without experts, heads of keys; 0: as the preset has
         * them. */
        int64_t context, experts_over, kept_layers, dense_layers, kv_heads;
        /* The most bytes that were allocated on a device at once. */
        double memory_bytes;
};

struct table {
        char path[256];
        struct table_row *rows;
        int count;
};

/* Reads a table. The first line that is neither empty nor a comment names the columns, in any order and in
 * a form that table.c lists: our columns, in either spelling (the other is of the tables which vTrain's
 * authors published), where those whose names begin with "note" are left alone; or those of others, whose
 * words glossary.h translates. Other columns are refused; lines that begin with # are comments. RV_EINPUT
 * names file and line, RV_ESYSTEM means that memory ran out. The caller calls table_free; after an error
 * there is nothing to free. */
int table_read(struct table *table, const char *path, struct rv_error_info *err);
void table_free(struct table *table);

/* A paragraph about the columns, for help. */
extern const char table_help[];

#endif
