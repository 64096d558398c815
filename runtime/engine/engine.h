/* Runs batches on one rank. When the world says that an operation has completed, the engine records it,
 * tells the core (runtime/sched/core.h), and issues what has become ready; that is the whole loop. The core
 * decides what to do, a driver does it, and neither is known here, so that real, simulated and paper worlds
 * share this code. It also notes the times of the batch (phases.h), and keeps the ledger of memory.
 *
 * A caller sets it up by engine_init, then for each batch calls engine_start and lets its world run until
 * engine_done. */
#ifndef RANVIER_RUNTIME_ENGINE_ENGINE_H
#define RANVIER_RUNTIME_ENGINE_ENGINE_H

#include "runtime/engine/driver.h"
#include "runtime/engine/ledger.h"
#include "runtime/engine/phases.h"
#include "runtime/engine/trace.h"
#include "runtime/sched/core.h"

/* An operation that was issued and has not completed; or an unused entry. */
struct engine_pending {
        double issued;  /* when, in seconds of the driver's clock */
        int batch;      /* in which */
        uint64_t order; /* its number among all operations that the rank issued */
        int next_free;  /* unused: the serial of the next unused entry, or -1 */
};

struct engine {
        struct core *core;
        struct driver driver;
        struct trace *trace;   /* NULL: nothing is recorded */
        struct ledger *ledger; /* NULL: memory is not counted */
        int rank, batch;       /* batch: -1 before the first one */
        /* The bytes that one message buffer, and one deferred buffer of a backward in two parts, weigh in
         * the ledger. engine_init leaves them 0; a caller with a ledger sets them. */
        int64_t message_bytes;
        int64_t deferred_bytes;
        /* Of the current batch, in seconds of the driver's clock: when it started, when its last
         * micro-batch, all-reduce and operation ended, when the snapshot of a checkpoint behind it did; and
         * how long the compute lane worked on forward and backward, and on sums of logical replicas. */
        double started, pipeline_end, allreduce_end, ended, saved, busy_seconds;
        /* How long it waited in between for collectives of shards, and, zero 3, for weights and gradients of
         * units. */
        double tensor_seconds;
        double gathered_seconds;
        bool computing;  /* a part of a forward or backward is under way */
        double computed; /* when the last such part, or a collective of shards that no part ran beside, ended
                          */
        double lane_free[LANES]; /* when the last operation of each lane ended */
        uint64_t order;
        /* [pending_capacity], by op.serial; free_serial is the first unused entry, or -1. */
        struct engine_pending *pending;
        int pending_capacity, free_serial;
        bool inside; /* one of its functions is running: it must not be entered again */
};

/* Sets up an engine with a core that has been initialised. `core`, `trace` and `ledger` stay the caller's
 * and must outlive the engine; the last two may be NULL. */
void engine_init(struct engine *engine, struct core *core, struct driver driver, struct trace *trace,
                 struct ledger *ledger, int rank);
/* Frees what the engine allocated itself. */
void engine_free(struct engine *engine);

/* Begins a batch: starts the core, and issues the first operations. No operation may be under way. */
void engine_start(struct engine *engine);

/* The world calls this once an operation, from outside issue(). `done` is the op as it was issued, with what
 * the driver fills in (op.h): the micro-batch of a receive, whether another part follows, an overflow. */
void engine_complete(struct engine *engine, const struct op *done);

/* Whether everything of the batch has completed. */
bool engine_done(const struct engine *engine);

/* Returns the moments of the batch that is done. */
struct batch_times engine_times(const struct engine *engine);

#endif
