/* Runs a batch on one rank: an operation completed -> record it, tell the core, issue what became ready. Both
 * worlds share this; neither is known here. */
#ifndef RANVIER_RUNTIME_ENGINE_ENGINE_H
#define RANVIER_RUNTIME_ENGINE_ENGINE_H

#include "runtime/engine/driver.h"
#include "runtime/engine/ledger.h"
#include "runtime/engine/phases.h"
#include "runtime/engine/trace.h"
#include "runtime/sched/core.h"

/* An operation that was issued and has not completed. */
struct engine_pending {
        double issued;
        uint64_t order;
        int next_free; /* serial of the next unused entry, or -1 */
};

struct engine {
        struct core *core;
        struct driver driver;
        struct trace *trace;   /* may be NULL: nothing is recorded */
        struct ledger *ledger; /* may be NULL */
        int rank, batch;
        int64_t message_bytes;  /* what a message buffer weighs in the ledger, */
        int64_t deferred_bytes; /* and what a backward in two parts leaves */
        /* Of the current batch: when it started, when its last micro-batch, all-reduce and update ended, and
         * how long the compute lane worked on forward and backward. */
        double started, pipeline_end, allreduce_end, ended, busy_seconds;
        double tensor_seconds;   /* that it waited in between for collectives of shards, */
        double gathered_seconds; /* and, zero 3, for weights and gradients of units */
        double lane_free[LANES];
        uint64_t order;
        struct engine_pending *pending; /* by op.serial */
        int pending_capacity, free_serial;
        bool inside; /* not re-entered */
};

/* `core` and `trace`, `ledger` (which may be NULL) stay the caller's. */
void engine_init(struct engine *engine, struct core *core, struct driver driver, struct trace *trace,
                 struct ledger *ledger, int rank);
void engine_free(struct engine *engine);

/* Begins a batch: core_start, then issues the first operations. */
void engine_start(struct engine *engine);

/* The driver calls this once an operation, from outside issue(); `done` is the op as issued, with micro_batch
 * filled in for receives. */
void engine_complete(struct engine *engine, const struct op *done);

bool engine_done(const struct engine *engine);

/* The moments of the batch that is done. */
struct batch_times engine_times(const struct engine *engine);

#endif
