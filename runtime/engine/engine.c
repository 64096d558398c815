#include "runtime/engine/engine.h"

#include <assert.h>
#include <stdlib.h>

void engine_init(struct engine *engine, struct core *core, struct driver driver, struct trace *trace,
                 struct ledger *ledger, int rank)
{
        *engine = (struct engine){
                .core = core,
                .driver = driver,
                .trace = trace,
                .ledger = ledger,
                .rank = rank,
                .batch = -1,
                .free_serial = -1,
        };
}

void engine_free(struct engine *engine)
{
        free(engine->pending);
}

static int take_serial(struct engine *engine)
{
        if (engine->free_serial < 0) {
                int old = engine->pending_capacity, new = old ? 2 * old : 16;
                engine->pending = realloc(engine->pending, (size_t) new * sizeof *engine->pending);
                if (!engine->pending)
                        abort();
                for (int i = old; i < new; i++)
                        engine->pending[i].next_free = i + 1 < new ? i + 1 : -1;
                engine->pending_capacity = new;
                engine->free_serial = old;
        }
        int serial = engine->free_serial;
        engine->free_serial = engine->pending[serial].next_free;
        return serial;
}

/* What the core counts as in use now, where it lies and as what. */
struct use {
        enum memory_space space;
        enum memory_category category;
        int64_t bytes;
};

/* Stored activations and messages in use now, as the core counts them. What fell comes first, so that the sum
 * never holds what was freed and what replaced it at once. */
static void update_ledger(struct engine *engine, double now)
{
        if (!engine->ledger)
                return;
        struct core_limits used = core_in_use(engine->core);
        const struct use uses[] = {
                {MEMORY_DEVICE, MEMORY_ACTIVATIONS,
                 core_stored_bytes(engine->core, false) + used.deferred * engine->deferred_bytes},
                {MEMORY_DEVICE, MEMORY_MESSAGES, (used.inputs + used.gradients) * engine->message_bytes},
                {MEMORY_HOST, MEMORY_ACTIVATIONS, core_stored_bytes(engine->core, true)},
        };
        bool changed = false;
        for (int rising = 0; rising <= 1; rising++)
                for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
                        const struct use *use = &uses[i];
                        int64_t change = use->bytes - engine->ledger->bytes.in[use->space][use->category];
                        if (change == 0 || (change > 0) != rising)
                                continue;
                        ledger_add(engine->ledger, use->space, use->category, change);
                        changed = true;
                }
        if (changed && engine->trace)
                trace_add_memory(engine->trace, &(struct trace_memory){engine->rank, now, uses[0].bytes,
                                                                       uses[1].bytes, uses[2].bytes});
}

static void issue_ready(struct engine *engine, double now)
{
        struct op op;
        while (core_next(engine->core, &op)) {
                op.serial = take_serial(engine);
                engine->pending[op.serial].issued = now;
                engine->pending[op.serial].batch = engine->batch;
                engine->pending[op.serial].order = engine->order++;
                engine->computing |= op.kind == OP_FORWARD || op.kind == OP_BACKWARD;
                engine->driver.issue(engine->driver.world, &op);
        }
        update_ledger(engine, now);
}

void engine_start(struct engine *engine)
{
        assert(!engine->inside && core_in_flight(engine->core) == 0);
        engine->inside = true;
        double now = engine->driver.now(engine->driver.world);
        engine->batch++;
        engine->started = engine->pipeline_end = engine->allreduce_end = engine->ended = engine->saved = now;
        engine->computed = now;
        engine->busy_seconds = engine->tensor_seconds = engine->gathered_seconds = 0;
        core_start(engine->core);
        issue_ready(engine, now);
        engine->inside = false;
}

/* A part of a forward or backward, or a sum between two, has ended at `now`. Between the parts of a pass
 * something is always under way, so what goes by from each part's end to the next one's, and is not work, is
 * a wait for weights or gradients. */
static void account_pass(struct engine *engine, const struct op *done, double start, double now)
{
        const double issued = engine->pending[done->serial].issued;
        const double since = issued > engine->pipeline_end ? issued : engine->pipeline_end;
        const bool gathers = done->kind == OP_ALL_GATHER || done->kind == OP_REDUCE_SCATTER ||
                             done->kind == OP_FETCH_WEIGHTS,
                   computes = done->kind == OP_FORWARD || done->kind == OP_BACKWARD,
                   of_shards = done->lane == LANE_TENSOR || done->lane == LANE_TENSOR_Z;
        if (of_shards && engine->computing) /* beside a part, which counts */
                return;
        if (of_shards && start < engine->computed)
                start = engine->computed;
        if (computes)
                engine->computing = false;
        if (computes || of_shards)
                engine->computed = now;
        const double worked = gathers ? 0 : now - start;
        *(of_shards ? &engine->tensor_seconds : &engine->busy_seconds) += worked;
        engine->gathered_seconds += now - since - worked;
        engine->pipeline_end = now;
}

/* Notes the time and writes the record of an operation that ended at `now`. */
static void account(struct engine *engine, const struct op *done, double now)
{
        const struct engine_pending *pending = &engine->pending[done->serial];
        double start = pending->issued > engine->lane_free[done->lane] ? pending->issued
                                                                       : engine->lane_free[done->lane];
        engine->lane_free[done->lane] = now;
        if (done->kind != OP_WRITE) { /* which is of no batch */
                engine->saved = now;
                if (done->kind != OP_SNAPSHOT)
                        engine->ended = now;
        }
        if (op_of_pass(done) || done->kind == OP_ADD_REPLICA)
                account_pass(engine, done, start, now);
        if (done->of == OP_ALLREDUCE || done->of == OP_REDUCE_SCATTER) /* staged, until it is copied in */
                engine->allreduce_end = now;
        if (!engine->trace)
                return;
        trace_add(engine->trace, &(struct trace_record){
                                         .rank = engine->rank,
                                         .batch = pending->batch,
                                         .kind = done->kind,
                                         .of = done->of,
                                         .lane = done->lane,
                                         .chunk = done->chunk,
                                         .micro_batch = done->micro_batch,
                                         .bucket = done->bucket,
                                         .segment = done->segment,
                                         .range = done->range,
                                         .group = done->kind == OP_TENSOR ? done->group : GROUP_TENSOR,
                                         .beside = done->kind == OP_TENSOR && done->beside,
                                         .parts = done->deferred >= 0 ? done->parts : 0,
                                         .bytes = done->bytes,
                                         .issued = pending->issued,
                                         .start = start,
                                         .end = now,
                                         .order = pending->order,
                                 });
}

void engine_complete(struct engine *engine, const struct op *done)
{
        assert(!engine->inside); /* a driver completes operations from outside issue() */
        engine->inside = true;
        double now = engine->driver.now(engine->driver.world);
        account(engine, done, now);
        engine->pending[done->serial].next_free = engine->free_serial;
        engine->free_serial = done->serial;
        core_complete(engine->core, done);
        issue_ready(engine, now);
        engine->inside = false;
}

bool engine_done(const struct engine *engine)
{
        return core_done(engine->core);
}

struct batch_times engine_times(const struct engine *engine)
{
        return (struct batch_times){
                .started = engine->started,
                .pipeline_end = engine->pipeline_end,
                .allreduce_end = engine->allreduce_end,
                .ended = engine->ended,
                .saved = engine->saved,
                .busy_seconds = engine->busy_seconds,
                .tensor_seconds = engine->tensor_seconds,
                .gathered_seconds = engine->gathered_seconds,
        };
}
