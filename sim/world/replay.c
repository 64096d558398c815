#include "sim/world/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the recorded batch ---- */

static int by_identity(const void *left, const void *right)
{
        const struct trace_record *a = left, *b = right;
        const int order[][2] = {{a->rank, b->rank},
                                {(int)a->kind, (int)b->kind},
                                {(int)a->of, (int)b->of},
                                {a->chunk, b->chunk},
                                {a->micro_batch, b->micro_batch},
                                {a->bucket, b->bucket},
                                {a->segment, b->segment},
                                {a->range, b->range},
                                {a->parts, b->parts}};
        for (size_t i = 0; i < sizeof order / sizeof *order; i++)
                if (order[i][0] != order[i][1])
                        return order[i][0] < order[i][1] ? -1 : 1;
        return 0;
}

static void find_batches(const struct trace *trace, int *first, int *last)
{
        *first = *last = trace->count ? trace->records[0].batch : -1;
        for (int64_t i = 1; i < trace->count; i++) {
                const int batch = trace->records[i].batch;
                *first = batch < *first ? batch : *first;
                *last = batch > *last ? batch : *last;
        }
}

/* A step that an overflow skipped took decisions that depend on the gradients, which a replay does not have.
 * It cleared gradients and updated nothing (with zero, steps that are not skipped clear too). */
static int check_no_skip(const struct replay *replay, const char *path, struct rv_error_info *err)
{
        bool cleared = false, updated = false;
        for (int64_t i = 0; i < replay->recorded.count; i++) {
                cleared = cleared || replay->recorded.records[i].kind == OP_CLEAR;
                updated = updated || replay->recorded.records[i].kind == OP_UPDATE;
        }
        if (!cleared || updated)
                return 0;
        return rv_fail(
                err, RV_EINPUT,
                "%s: batch %d was skipped because a gradient overflowed, and a replay has no gradients: "
                "choose another with --replay-batch",
                path, replay->batch);
}

/* Keeps only the records of one batch, and checks that they are of `ranks` ranks. */
static int keep_batch(struct replay *replay, const char *path, struct rv_error_info *err)
{
        struct trace *trace = &replay->recorded;
        int64_t kept = 0;
        int max = -1, first, last;
        if (trace->count == 0)
                return rv_fail(err, RV_EINPUT, "%s: is a trace without operations", path);
        find_batches(trace, &first, &last);
        if (replay->batch < 0)
                replay->batch = last;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].batch == replay->batch) {
                        trace->records[kept++] = trace->records[i];
                        if (trace->records[i].rank > max)
                                max = trace->records[i].rank;
                }
        if (kept == 0)
                return rv_fail(err, RV_EINPUT, "%s: has no batch %d; its batches go from %d to %d", path,
                               replay->batch, first, last);
        if (max + 1 != replay->ranks)
                return rv_fail(err, RV_EPLAN, "%s: the trace is of %d rank%s, --gpus is %d", path, max + 1,
                               max ? "s" : "", replay->ranks);
        trace->count = kept;
        qsort(trace->records, (size_t)kept, sizeof *trace->records, by_identity);
        return check_no_skip(replay, path, err);
}

static double first_issue(const struct replay *replay, int rank)
{
        double first = INFINITY;
        for (int64_t i = 0; i < replay->recorded.count; i++) {
                const struct trace_record *record = &replay->recorded.records[i];
                if ((rank < 0 || record->rank == rank) && record->issued < first)
                        first = record->issued;
        }
        return first;
}

int replay_open(struct replay *replay, const char *path, int batch, int ranks, struct rv_error_info *err)
{
        *replay = (struct replay){.batch = batch, .ranks = ranks};
        int rc = trace_read(&replay->recorded, path, err);
        if (rc)
                return rc;
        rc = keep_batch(replay, path, err);
        if (rc)
                return rc;
        replay->origin = first_issue(replay, -1);
        replay->rank = calloc((size_t)ranks, sizeof *replay->rank);
        return replay->rank ? 0 : rv_fail(err, RV_ESYSTEM, "no memory to replay %d ranks", ranks);
}

static bool has_staged(const struct replay *replay, bool allreduces)
{
        for (int64_t i = 0; i < replay->recorded.count; i++) {
                const struct trace_record *record = &replay->recorded.records[i];
                const bool sums = record->of == OP_ALLREDUCE || record->of == OP_REDUCE_SCATTER ||
                                  record->of == OP_ALL_GATHER;
                const bool staged = record->kind == OP_STAGE_OUT || record->kind == OP_STAGE_IN;
                if (staged && sums == allreduces)
                        return true;
        }
        return false;
}

static int wrong_route(const char *path, const char *option, bool staged, struct rv_error_info *err)
{
        return rv_fail(err, RV_EPLAN, "%s: the trace is of a run with %s %s, not %s: leave that out", path,
                       option, route_name(staged ? ROUTE_STAGED : ROUTE_DIRECT),
                       route_name(staged ? ROUTE_DIRECT : ROUTE_STAGED));
}

int replay_settle(const struct replay *replay, const char *path, struct options *o, struct rv_error_info *err)
{
        const bool messages = has_staged(replay, false), allreduces = has_staged(replay, true);
        if (o->messages == ROUTE_AUTO)
                o->messages = messages ? ROUTE_STAGED : ROUTE_DIRECT;
        if (o->allreduce == ROUTE_AUTO)
                o->allreduce = allreduces ? ROUTE_STAGED : ROUTE_DIRECT;
        const struct plan plan = options_plan(o, false);
        if (plan.stage_messages != messages)
                return wrong_route(path, "--messages", messages, err);
        if (plan.stage_allreduce != allreduces)
                return wrong_route(path, "--allreduce", allreduces, err);
        return 0;
}

void replay_close(struct replay *replay)
{
        for (int i = 0; replay->rank && i < replay->ranks; i++) {
                for (int j = 0; j < LANES; j++)
                        free(replay->rank[i].arrivals[j].entries);
                for (int j = 0; j < SIM_GROUPS; j++)
                        free(replay->rank[i].issues[j].entries);
        }
        free(replay->rank);
        trace_free(&replay->recorded);
        *replay = (struct replay){0};
}

double replay_start(const struct replay *replay, int rank)
{
        return first_issue(replay, rank) - replay->origin;
}

/* The record of an operation. One that the trace lacks is noted, and takes no time: the run then ends, and
 * replay_compare says what was missing. */
static const struct trace_record *look(const struct replay *replay, const struct trace_record *key)
{
        return bsearch(key, replay->recorded.records, (size_t)replay->recorded.count, sizeof *key,
                       by_identity);
}

/* As the trace has them. */
static int parts_of(const struct op *op)
{
        return op->deferred >= 0 ? op->parts : 0;
}

static struct trace_record find_op(struct replay *replay, int rank, const struct op *op)
{
        struct trace_record key = {.rank = rank,
                                   .kind = op->kind,
                                   .of = op->of,
                                   .chunk = op->chunk,
                                   .micro_batch = op->micro_batch,
                                   .bucket = op->bucket,
                                   .segment = op->segment,
                                   .range = op->range,
                                   .parts = parts_of(op)};
        const struct trace_record *found = look(replay, &key);
        if (found)
                return *found;
        if (!replay->any_missing)
                replay->missing = key;
        replay->any_missing = true;
        return key;
}

/* Whether the trace has the part that follows this one of a forward or backward, and, if that is a
 * collective, its group: see runtime/sched/tensor.c. */
static bool more(const struct replay *replay, int rank, struct op *op)
{
        if (op->kind != OP_FORWARD && op->kind != OP_BACKWARD && op->kind != OP_TENSOR)
                return false;
        const bool computed = op->kind != OP_TENSOR;
        struct trace_record next = {.rank = rank,
                                    .kind = computed ? OP_TENSOR : op->of,
                                    .of = op->of,
                                    .chunk = op->chunk,
                                    .micro_batch = op->micro_batch,
                                    .bucket = op->bucket,
                                    .segment = op->segment + !computed,
                                    .range = op->range,
                                    .parts = parts_of(op)};
        const struct trace_record *found = look(replay, &next);
        if (found && computed) {
                op->group = found->group;
                op->beside = found->beside;
        }
        if (found || !computed)
                return found != NULL;
        next.kind = op->of; /* a part behind a part, without a collective between them */
        next.segment++;
        op->joins = look(replay, &next) != NULL;
        return op->joins;
}

/* ---- the physics ---- */

static void append(struct replay_list *list, double seconds, int number)
{
        if (list->count == list->capacity) {
                int capacity = list->capacity ? 2 * list->capacity : 8;
                list->entries = realloc(list->entries, (size_t)capacity * sizeof *list->entries);
                if (!list->entries)
                        abort(); /* a driver cannot fail */
                list->capacity = capacity;
        }
        list->entries[list->count++] = (struct replay_entry){seconds, number};
}

/* A message arrives as long after its send was issued as it did in the real run. */
static void send_issued(struct replay *replay, struct sim_rank *rank, const struct sim_op *op)
{
        struct sim_rank *peer = sim_peer(rank, op->op.lane);
        enum op_lane lane = op_lane_opposite(op->op.lane);
        struct trace_record sent = find_op(replay, rank->rank, &op->op);
        enum op_kind receive =
                op->op.kind == OP_SEND_ACTIVATION ? OP_RECEIVE_ACTIVATION : OP_RECEIVE_GRADIENT;
        struct op arrival = {.kind = receive, .of = receive, .bucket = -1};
        const int vmb = core_message_vmb(&rank->world->plan, rank->stage, &op->op);
        core_set_vmb(&rank->world->plan, &arrival, vmb);
        struct trace_record received = find_op(replay, peer->rank, &arrival);
        append(&replay->rank[peer->rank].arrivals[lane], op->issued + (received.end - sent.issued), vmb);
        sim_lane_mark(peer->lanes[lane]);
}

/* A decision reaches each of the other shards likewise. */
static void decision_issued(struct replay *replay, struct sim_rank *rank, const struct sim_op *op)
{
        const struct sim_world *world = rank->world;
        const struct sim_group shards = sim_group_of(rank, GROUP_TENSOR);
        const struct trace_record sent = find_op(replay, rank->rank, &op->op);
        for (int i = 1; i < shards.ranks.size; i++) {
                const int member = sim_group_member(&shards, i);
                const struct trace_record received = find_op(replay, member, &op->op);
                append(&replay->rank[member].arrivals[LANE_DECISION],
                       op->issued + (received.end - sent.issued),
                       core_decision_number(&world->plan, &op->op));
                sim_lane_mark(world->rank[member].lanes[LANE_DECISION]);
        }
}

static bool decides(const struct sim_rank *rank, const struct op *op)
{
        return op->kind == OP_DECISION && plan_shard(&rank->world->plan, rank->rank) == 0;
}

static void issued(void *context, struct sim_rank *rank, struct sim_op *op)
{
        struct replay *replay = context;
        if (decides(rank, &op->op))
                decision_issued(replay, rank, op);
        if (op->op.kind == OP_SEND_ACTIVATION || op->op.kind == OP_SEND_GRADIENT)
                send_issued(replay, rank, op);
        if (!sim_lane_collects(op->op.lane))
                return;
        append(&replay->rank[rank->rank].issues[op->op.group], op->issued, -1);
        struct sim_group group = sim_group_of(rank, op->op.group);
        for (int i = 0; i < group.ranks.size; i++)
                sim_lane_mark(rank->world->rank[sim_group_member(&group, i)].lanes[op->op.lane]);
}

static bool receive(struct replay *replay, struct sim_lane *lane)
{
        struct replay_list *arrivals = &replay->rank[lane->rank->rank].arrivals[lane->lane];
        if (arrivals->taken == arrivals->count)
                return false;
        struct replay_entry message = arrivals->entries[arrivals->taken++];
        if (lane->lane == LANE_DECISION)
                core_set_decision(&lane->rank->world->plan, &lane->now.op, message.number);
        else
                core_set_vmb(&lane->rank->world->plan, &lane->now.op, message.number);
        lane->now.ends = message.seconds;
        return true;
}

/* Ends as long after the last member of the group issued it as it did in the real run. */
static bool collect(struct replay *replay, struct sim_lane *lane)
{
        struct sim_op *op = &lane->now;
        struct sim_group group = sim_group_of(lane->rank, op->op.group);
        double last = 0, recorded_last = 0;
        for (int i = 0; i < group.ranks.size; i++) {
                int member = sim_group_member(&group, i);
                const struct replay_list *issues = &replay->rank[member].issues[op->op.group];
                if (issues->count <= op->collective)
                        return false;
                last = fmax(last, issues->entries[op->collective].seconds);
                recorded_last = fmax(recorded_last, find_op(replay, member, &op->op).issued);
        }
        op->ends = last + (find_op(replay, lane->rank->rank, &op->op).end - recorded_last);
        return true;
}

/* How far a part of a last backward brings gradients follows from the model's layers. */
static void find_span(const struct replay *replay, const struct sim_lane *lane, struct op *op)
{
        const struct stage stage = options_stage(replay->options, lane->rank->stage);
        const int64_t end = op->offset + op->count;
        const struct partition_span span = partition_span(&replay->options->gpt, &stage, op->chunk,
                                                          options_deferred_layers(replay->options, &stage),
                                                          (enum kernel_part)op->parts, end, op->offset);
        op->offset = span.offset;
        op->count = end - span.offset;
        op->further = span.more;
}

static bool begin(void *context, struct sim_lane *lane)
{
        struct replay *replay = context;
        struct sim_op *op = &lane->now;
        op->op.more = more(replay, lane->rank->rank, &op->op);
        if (op->op.kind == OP_BACKWARD && op->op.count > 0)
                find_span(replay, lane, &op->op);
        if (op->op.kind == OP_RECEIVE_ACTIVATION || op->op.kind == OP_RECEIVE_GRADIENT ||
            (op->op.kind == OP_DECISION && !decides(lane->rank, &op->op)))
                return receive(replay, lane);
        if (sim_lane_collects(lane->lane))
                return collect(replay, lane);
        struct trace_record record = find_op(replay, lane->rank->rank, &op->op);
        op->ends = op->issued + (record.end - record.issued);
        return true;
}

struct sim_physics replay_physics(struct replay *replay, const struct options *options)
{
        replay->options = options;
        return (struct sim_physics){.issued = issued, .begin = begin, .overlaps = true, .context = replay};
}

/* ---- the comparison ---- */

static int by_decision(const void *left, const void *right)
{
        const struct trace_record *a = left, *b = right;
        if (a->rank != b->rank)
                return a->rank < b->rank ? -1 : 1;
        return (a->order > b->order) - (a->order < b->order);
}

/* The compute operations of a trace, rank by rank in the order in which they were issued. */
static int64_t decisions(const struct trace *trace, struct trace_record *out)
{
        int64_t count = 0;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].lane == LANE_COMPUTE)
                        out[count++] = trace->records[i];
        qsort(out, (size_t)count, sizeof *out, by_decision);
        return count;
}

static void describe(char *text, size_t text_size, const struct trace_record *record)
{
        int length = snprintf(text, text_size, "%s", op_name(record->kind));
        if (record->of != record->kind)
                length += snprintf(text + length, text_size - (size_t)length, " for %s", op_name(record->of));
        if (record->micro_batch >= 0)
                length += snprintf(text + length, text_size - (size_t)length, " of micro-batch %d",
                                   record->micro_batch);
        if (record->chunk > 0)
                length += snprintf(text + length, text_size - (size_t)length, " in chunk %d", record->chunk);
        if (record->parts)
                length += snprintf(text + length, text_size - (size_t)length, " (%s)",
                                   record->parts == OP_INPUT_GRADIENT ? "input" : "weights");
        if (record->bucket >= 0)
                length +=
                        snprintf(text + length, text_size - (size_t)length, " of bucket %d", record->bucket);
        if (record->segment > 0)
                length += snprintf(text + length, text_size - (size_t)length, " part %d", record->segment);
        if (record->range > 0)
                snprintf(text + length, text_size - (size_t)length, " range %d", record->range);
}

static int compare_decisions(const struct trace_record *real, int64_t real_count,
                             const struct trace_record *simulated, int64_t simulated_count,
                             int64_t *identical, struct rv_error_info *err)
{
        char was[64], is[64];
        int rc = 0;
        *identical = 0;
        if (real_count != simulated_count)
                return rv_fail(err, RV_EINPUT,
                               "the trace has %lld compute operations, this plan has %lld: is it a run of "
                               "the same plan?",
                               (long long)real_count, (long long)simulated_count);
        for (int64_t i = 0; i < real_count; i++) {
                if (by_identity(&real[i], &simulated[i]) == 0) {
                        ++*identical;
                } else if (rc == 0) {
                        describe(was, sizeof was, &real[i]);
                        describe(is, sizeof is, &simulated[i]);
                        rc = rv_fail(err, RV_ESYSTEM,
                                     "rank %d decided differently: %s at %.9f s in the trace, %s at %.9f s "
                                     "in the replay",
                                     real[i].rank, was, real[i].issued, is, simulated[i].issued);
                }
        }
        return rc;
}

int replay_compare(const struct replay *replay, const struct trace *simulated, int64_t *operations,
                   int64_t *identical, struct rv_error_info *err)
{
        if (replay->any_missing) {
                char what[64];
                describe(what, sizeof what, &replay->missing);
                return rv_fail(err, RV_EINPUT,
                               "batch %d of the trace has no %s on rank %d: is it a run of the same plan?",
                               replay->batch, what, replay->missing.rank);
        }
        struct trace_record *real = calloc((size_t)replay->recorded.count + 1, sizeof *real);
        struct trace_record *ours = calloc((size_t)simulated->count + 1, sizeof *ours);
        int rc;
        if (real && ours) {
                *operations = decisions(&replay->recorded, real);
                rc = compare_decisions(real, *operations, ours, decisions(simulated, ours), identical, err);
        } else {
                rc = rv_fail(err, RV_ESYSTEM, "no memory to compare %lld operations",
                             (long long)simulated->count);
        }
        free(real);
        free(ours);
        return rc;
}
