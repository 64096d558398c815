#include "calibrate/phase.h"

#include "runtime/engine/engine.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The first fetch and update find the other lanes empty, and so do the last update and write back; one more
 * at each end, because what they overtake has to settle. */
enum { UPDATES = 8, FILL = 2, MAX_OPERATIONS = 64 };

struct phase {
        struct device *device;
        struct nn_stage *stage;
        int64_t next; /* parameter behind the last run's */
        /* Of the run under way: */
        int64_t begin, wrap; /* where its first update lies; where updates begin again at 0 */
        struct op ops[MAX_OPERATIONS];
        int past[MAX_OPERATIONS]; /* a ring of serials: what ends as soon as it is issued */
        int past_head, past_count;
};

struct phase *phase_open(const struct family_phase *family_phase, const struct request *request,
                         struct rv_error_info *err)
{
        struct phase *phase = calloc(1, sizeof *phase);
        if (!phase) {
                rv_fail(err, RV_ESYSTEM, "no memory to measure the optimizer of %s", family_phase->gpt.name);
                return NULL;
        }
        phase->device = bench_device(request, true, err);
        if (phase->device)
                phase->stage = nn_open(phase->device, &family_phase->gpt, &family_phase->stage,
                                       &family_phase->plan, true, err);
        if (phase->stage) {
                phase->stage->scalars[NN_GRADIENT_SCALE] = 1;
                return phase;
        }
        phase_close(phase);
        return NULL;
}

void phase_close(struct phase *phase)
{
        nn_close(phase->stage);
        if (phase->device)
                phase->device->ops->close(phase->device);
        free(phase);
}

/* ---- the world of the engine ---- */

static double now(void *world)
{
        (void)world;
        return device_seconds();
}

/* Moves are real; all that comes before them in a batch is none of this phase. */
static void issue(void *world, const struct op *op)
{
        struct phase *phase = world;
        const struct device_ops *device = phase->device->ops;
        const int64_t offset = (phase->begin + op->offset) % phase->wrap;
        assert(op->serial < MAX_OPERATIONS);
        phase->ops[op->serial] = *op;
        switch (op->kind) {
        case OP_FETCH:
                nn_fetch(phase->stage, op->buffer, offset, op->count);
                device->record(phase->device, DEVICE_HOST_TO_DEVICE, op->serial);
                break;
        case OP_UPDATE:
                optim_update(phase->stage, &bench_optim, 0, offset, offset, op->count, op->buffer);
                device->record(phase->device, DEVICE_COMPUTE, op->serial);
                break;
        case OP_WRITE_BACK:
                nn_write_back(phase->stage, op->buffer, offset, op->count);
                device->record(phase->device, DEVICE_DEVICE_TO_HOST, op->serial);
                break;
        default:
                phase->past[(phase->past_head + phase->past_count++) % MAX_OPERATIONS] = op->serial;
        }
}

/* The serial of an operation that ended, or -1. */
static int next_end(struct phase *phase)
{
        if (phase->past_count == 0)
                return phase->device->ops->poll(phase->device);
        int serial = phase->past[phase->past_head];
        phase->past_head = (phase->past_head + 1) % MAX_OPERATIONS;
        phase->past_count--;
        return serial;
}

/* Polls as a run does. */
static void run_batch(struct phase *phase, struct engine *engine, struct net *net)
{
        struct net_done done;
        engine_start(engine);
        while (!engine_done(engine)) {
                int token = next_end(phase);
                if (token >= 0) {
                        const struct op op = phase->ops[token]; /* its place may be taken at once */
                        engine_complete(engine, &op);
                } else if (!net->ops->test(net, &done)) {
                        device_rest(phase->device, net->ranks > 1);
                }
        }
}

static void keep(const struct trace_record *record, int64_t bytes, struct samples *samples)
{
        static const enum profile_line lines[OP_KINDS] = {[OP_FETCH] = LINE_FETCH,
                                                          [OP_UPDATE] = LINE_OFFLOADED_UPDATE,
                                                          [OP_WRITE_BACK] = LINE_WRITE_BACK};
        const bool moves = lines[record->kind] != 0;
        if (moves && record->bucket >= FILL && record->bucket < UPDATES - FILL)
                samples_add_line(samples, lines[record->kind], bytes, record->end - record->start);
}

/* A batch of one rank with nothing to do but its optimizer. Each run goes on where the last one ended, so
 * that it finds as little in the caches as a run that comes from its backward passes. */
static struct plan plan_updates(struct phase *phase, int64_t parameters)
{
        phase->wrap = phase->stage->parameters / parameters * parameters;
        assert(phase->wrap >= PLAN_UPDATE_BUFFERS * parameters);
        phase->begin = (phase->next + parameters - 1) / parameters * parameters % phase->wrap;
        phase->next = (phase->begin + UPDATES * parameters) % phase->wrap;
        return (struct plan){.pp = 1,
                             .dp = 1,
                             .tp = 1,
                             .virtual_stages = 1,
                             .micro_batches = 1,
                             .policy = POLICY_AXONN,
                             .mixed = true,
                             .offload = true,
                             .bucket_parameters = PLAN_UPDATE_BUFFERS * parameters,
                             .allreduce_buckets = 1,
                             .element_bytes = 2};
}

void phase_run(struct phase *phase, struct net *net, int ranks, int64_t parameters, struct samples *samples)
{
        const struct plan plan = plan_updates(phase, parameters);
        const struct core_stage stage = {.parameters = UPDATES * parameters};
        const struct driver driver = {.issue = issue, .now = now, .world = phase};
        struct engine engine;
        struct trace trace;
        void *memory = malloc(core_bytes(&plan, &stage));
        if (!memory)
                abort();
        trace_init(&trace);
        engine_init(&engine, core_init(memory, &plan, &stage), driver, &trace, NULL, net->rank);
        if (ranks > 1)
                net->ops->barrier(net);
        run_batch(phase, &engine, net);
        for (int64_t i = 0; samples && i < trace.count; i++)
                keep(&trace.records[i], plan_offloaded_bytes(parameters), samples);
        engine_free(&engine);
        trace_free(&trace);
        free(memory);
}
