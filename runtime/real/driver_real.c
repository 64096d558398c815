#include "runtime/real/driver_real.h"

#include "runtime/engine/price.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

_Static_assert((int)OP_SCALARS == (int)NN_SUMMED, "what is summed is in the first scalars");
_Static_assert((int)OP_INPUT_GRADIENT == (int)PART_INPUT && (int)OP_WEIGHT_GRADIENT == (int)PART_WEIGHT,
               "parts of a backward are the same in the core and in its kernels");

static double real_now(void *world)
{
        return device_seconds() - ((struct driver_real *)world)->epoch;
}

static void remember(struct driver_real *d, const struct op *op)
{
        if (op->serial >= d->capacity) {
                d->capacity = 2 * op->serial + 16;
                d->ops = realloc(d->ops, (size_t)d->capacity * sizeof *d->ops);
                d->events = realloc(d->events, (size_t)d->capacity * sizeof *d->events);
                if (!d->ops || !d->events)
                        abort();
        }
        d->ops[op->serial] = *op;
        d->events[op->serial] = 1;
}

/* ---- copies ---- */

/* What a message or collective is about: on the device and, staged, on the host. */
struct buffers {
        void *device, *host;
};

/* Zero: a chunk of gradients or weights, or, where that alone is copied, this replica's share of it. */
static struct buffers shared_buffers(const struct driver_real *d, const struct op *op)
{
        struct nn_stage *nn = d->nn;
        const bool gathers = op->of == OP_ALL_GATHER;
        const bool share = op->kind == (gathers ? OP_STAGE_OUT : OP_STAGE_IN);
        const struct plan_range own =
                plan_own(&d->plan, op->group, plan_replica(&d->plan, d->net->rank), op->count);
        const int64_t begin = share ? own.begin : 0, at = op->offset + begin;
        struct buffers found = {gathers ? nn_at(nn, nn->weights, at) : nn_gradients_at(nn, at), NULL};
        if (d->plan.stage_allreduce && gathers) /* weights, where the chunk's gradients were */
                found.host = nn_at(nn, nn_host_gradients(nn, op->offset), begin);
        else if (d->plan.stage_allreduce)
                found.host = nn_host_gradients(nn, at);
        return found;
}

static struct buffers buffers_of(const struct driver_real *d, const struct op *op)
{
        struct nn_stage *nn = d->nn;
        switch (op->of) {
        case OP_SEND_ACTIVATION:
                return (struct buffers){nn_output(nn, op->chunk, op->slot), nn->host_outputs[op->slot]};
        case OP_RECEIVE_ACTIVATION:
                return (struct buffers){nn->inputs[op->input], nn->host_inputs[op->input]};
        case OP_ALLREDUCE:
                return (struct buffers){nn_gradients_at(nn, op->offset),
                                        d->plan.stage_allreduce ? nn_host_gradients(nn, op->offset) : NULL};
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
                return shared_buffers(d, op);
        default:
                return (struct buffers){nn->gradient_buffers[op->gradient],
                                        nn->host_gradient_buffers[op->gradient]};
        }
}

/* The one that the network works on. */
static void *network_buffer(const struct driver_real *d, const struct op *op)
{
        const struct buffers buffers = buffers_of(d, op);
        bool staged = op_lane_of_replicas(op->lane) ? d->plan.stage_allreduce : d->plan.stage_messages;
        if (op->group == GROUP_TENSOR)
                staged = false;
        return staged ? buffers.host : buffers.device;
}

static void fetch_weights(struct driver_real *d, const struct op *op)
{
        if (op->gathered < 0) {
                nn_fetch_weights(d->nn, op->buffer, op->place, op->count);
                return;
        }
        const struct plan_range own =
                plan_own(&d->plan, op->group, plan_replica(&d->plan, d->net->rank), op->count);
        nn_fetch_share(d->nn, op->gathered, op->offset + own.begin, op->place, own.count);
}

static void issue_copy(struct driver_real *d, const struct op *op)
{
        enum device_lane lane = DEVICE_HOST_TO_DEVICE;
        struct buffers staged;
        switch (op->kind) {
        case OP_STAGE_OUT:
                staged = buffers_of(d, op);
                nn_copy_out(d->nn, staged.host, staged.device, op->bytes);
                lane = DEVICE_DEVICE_TO_HOST;
                break;
        case OP_STAGE_IN:
                staged = buffers_of(d, op);
                nn_copy_in(d->nn, staged.device, staged.host, op->bytes);
                break;
        case OP_LOAD:
                nn_load(d->nn);
                break;
        case OP_FETCH:
                nn_fetch(d->nn, op->buffer, op->place, op->count);
                break;
        case OP_FETCH_WEIGHTS:
                fetch_weights(d, op);
                break;
        case OP_STORE_WEIGHTS:
                nn_store_weights(d->nn, op->buffer, op->place, op->count);
                lane = DEVICE_DEVICE_TO_HOST;
                break;
        case OP_FETCH_ACTIVATIONS:
                nn_fetch_activations(d->nn, op->chunk, op->host_slot, op->slot);
                break;
        case OP_STORE_ACTIVATIONS:
                nn_store_activations(d->nn, op->chunk, op->slot, op->host_slot);
                lane = DEVICE_DEVICE_TO_HOST;
                break;
        case OP_SNAPSHOT:
                d->saver->copy(d->saver->context);
                lane = DEVICE_DEVICE_TO_HOST;
                break;
        default:
                assert(op->kind == OP_WRITE_BACK);
                nn_write_back(d->nn, op->buffer, op->place, op->count);
                lane = DEVICE_DEVICE_TO_HOST;
        }
        d->device->ops->record(d->device, lane, op->serial);
}

/* ---- kernels ---- */

/* The check follows in finish(), when the copy has arrived. */
static void inject_overflow(struct driver_real *d, int token)
{
        static const uint16_t infinities[DTYPES] = {[DTYPE_FP16] = 0x7c00, [DTYPE_BF16] = 0x7f80};
        static const real in_fp32 = INFINITY;
        const bool fp32 = !memory_copies_gradients(&d->nn->plan);
        d->injecting = token;
        d->device->ops->copy(d->device, DEVICE_HOST_TO_DEVICE, nn_gradients_at(d->nn, d->nn->kept - 1),
                             fp32 ? (const void *)&in_fp32 : &infinities[d->nn->plan.work.dtype],
                             fp32 ? sizeof in_fp32 : sizeof *infinities);
        d->device->ops->record(d->device, DEVICE_HOST_TO_DEVICE, token);
}

static void check_gradients(struct driver_real *d, const struct op *op)
{
        /* Zero 2 and 3: they are sums already, of all or of a group, which have overflowed if anything has.
         */
        const int to_sum = d->plan.zero >= 2            ? d->plan.dp / plan_share_ranks(&d->plan)
                           : op->kind == OP_ADD_REPLICA ? d->plan.dp * plan_logical(&d->plan)
                                                        : d->plan.dp;
        optim_check_overflow(d->nn, op->offset, op->count,
                             optim_overflow_limit(to_sum, d->nn->plan.work.dtype));
}

static void check_overflow(struct driver_real *d, int token)
{
        check_gradients(d, &d->ops[token]);
        d->device->ops->record(d->device, DEVICE_COMPUTE, token);
}

/* A range of the last backward: whole layers, as far as asked for or farther. */
static bool issue_span(struct driver_real *d, const struct op *op)
{
        const int64_t end = op->offset + op->count;
        const int parted = memory_deferred_layers(&d->nn->plan, &d->nn->stage);
        const struct partition_span span = partition_span(&d->nn->gpt, &d->nn->stage, op->chunk, parted,
                                                          (enum kernel_part)op->parts, end, op->offset);
        struct op *known = &d->ops[op->serial];
        known->offset = span.offset;
        known->count = end - span.offset;
        known->further = span.more;
        return nn_backward_span(d->nn, op->micro_batch, op->input, op->slot, op->gradient, op->deferred,
                                &span);
}

/* A part of a forward or backward: what follows it is known as soon as it is launched. */
static bool issue_pass(struct driver_real *d, const struct op *op)
{
        if (op->count > 0)
                return issue_span(d, op);
        if (op->kind == OP_FORWARD)
                return nn_forward(d->nn, op->chunk, op->micro_batch, op->input, op->slot,
                                  d->plan.forward_only);
        if (op->deferred < 0)
                return nn_backward(d->nn, op->chunk, op->micro_batch, op->input, op->slot, op->gradient);
        return nn_backward_part(d->nn, op->micro_batch, op->input, op->slot, op->gradient, op->deferred,
                                (enum kernel_part)op->parts);
}

_Static_assert((int)GRADIENTS_CLEAR == (int)NN_CLEAR && (int)GRADIENTS_LOAD == (int)NN_LOAD,
               "what a unit's backward begins with is the same in the core and in nn");

/* What this replica keeps of a unit. */
static void add_shares(const struct driver_real *d, int number, struct nn_unit *unit)
{
        struct core_unit_part parts[CORE_UNIT_PARTS];
        const int replica = plan_replica(&d->plan, d->net->rank);
        unit->shares = core_unit_parts(&d->plan, &d->units, number, parts);
        for (int i = 0; i < unit->shares; i++) {
                const struct plan_range own = plan_own(&d->plan, parts[i].group, replica, parts[i].count);
                unit->share[i] = (struct nn_share){parts[i].offset + own.begin, own.count, parts[i].place};
        }
}

/* Zero 2 and 3: a part of a pass is a unit, or of shards a part of one. */
static bool issue_unit(struct driver_real *d, const struct op *op)
{
        struct nn_stage *nn = d->nn;
        const int last = op->kind == OP_BACKWARD ? core_units_of(&d->plan, &d->units).parts - 1 : 0;
        struct nn_unit unit = {.nth = last ? last - op->range : op->range,
                               .weights = op->gathered,
                               .gradients = op->reduced,
                               .begins = (enum nn_begin)op->begins,
                               .widens = op->widens,
                               .loads = op->loads};
        if (op->kind == OP_FORWARD)
                return nn_forward_unit(nn, &unit, op->micro_batch, op->input, op->slot, d->plan.forward_only);
        add_shares(d, core_unit_nth(&d->plan, &d->units, unit.nth), &unit);
        return nn_backward_unit(nn, &unit, op->micro_batch, op->input, op->slot, op->gradient);
}

static void issue_part(struct driver_real *d, struct op *op)
{
        d->nn->segment = op->segment;
        op->more = d->plan.zero >= 2 ? issue_unit(d, op) : issue_pass(d, op);
        if (!op->more)
                return;
        op->group = price_group(d->nn->collective->kind);
        op->beside = d->nn->collective->beside;
        op->joins = d->nn->collective->kind == KERNEL_JOIN;
}

static void issue_update(struct driver_real *d, const struct op *op)
{
        const int64_t begin = op->gathered < 0 ? 0 : nn_unit_begin(d->nn, op->gathered);
        optim_update(d->nn, d->optim, d->step, begin + op->offset, op->place, op->count, op->buffer);
}

/* What the replica's own rank would have looked through is: sums have no overflow of their own. */
static void add_replica(struct driver_real *d, const struct op *op)
{
        const int sums = core_logical_sums(op->bucket);
        if (memory_copies_gradients(&d->nn->plan))
                check_gradients(d, op);
        for (int level = 0; level < sums; level++)
                optim_add_sum(d->nn, level);
        if (op->bucket < plan_logical(&d->plan) - 1)
                optim_keep_sum(d->nn, sums);
}

static void issue_compute(struct driver_real *d, const struct op *op)
{
        switch (op->kind) {
        case OP_ADD_REPLICA:
                add_replica(d, op);
                break;
        case OP_FORWARD:
        case OP_BACKWARD:
                issue_part(d, &d->ops[op->serial]);
                break;
        case OP_NORM:
                optim_norm(d->nn);
                break;
        case OP_CLEAR:
                optim_clear(d->nn);
                break;
        default:
                assert(op->kind == OP_UPDATE);
                issue_update(d, op);
        }
        d->device->ops->record(d->device, DEVICE_COMPUTE, op->serial);
}

/* ---- the network ---- */

static enum net_type type_of(enum dtype dtype)
{
        static const enum net_type types[DTYPES] = {[DTYPE_FP32] = sizeof(real) == sizeof(float) ? NET_FLOAT
                                                                                                 : NET_DOUBLE,
                                                    [DTYPE_FP16] = NET_FP16,
                                                    [DTYPE_BF16] = NET_BF16};
        return types[dtype];
}

static enum net_type stored_type(const struct driver_real *d)
{
        return type_of(d->nn->plan.work.dtype);
}

static enum net_type gradient_type(const struct driver_real *d)
{
        return memory_copies_gradients(&d->nn->plan) ? stored_type(d) : type_of(DTYPE_FP32);
}

static int64_t rows_for(const struct nn_collective *what, int experts, int member, int expert)
{
        const int32_t *ends = what->all_ends + (int64_t)member * experts;
        return ends[expert] - (expert > 0 ? ends[expert - 1] : 0);
}

/* Notes how uneven the members' loads are. */
static void note_loads(struct driver_real *d, const struct nn_collective *what, int experts, int members)
{
        int64_t all = 0, largest = 0;
        for (int of = 0; of < members; of++) {
                int64_t rows = 0;
                for (int i = 0; i < members * (experts / members); i++)
                        rows += rows_for(what, experts, i / (experts / members),
                                         of * (experts / members) + i % (experts / members));
                all += rows;
                largest = rows > largest ? rows : largest;
        }
        const double load = (double)largest * members / (double)all;
        d->load_sum += load;
        d->load_max = load > d->load_max ? load : d->load_max;
        d->loads++;
}

/* Rows for which nobody has room would be written over others. */
static void check_capacity(const struct driver_real *d, const struct nn_collective *what, int64_t rows)
{
        char sentence[256];
        if (rows <= what->capacity)
                return;
        snprintf(sentence, sizeof sentence,
                 "the experts of rank %d got %lld rows in a layer, and --expert-capacity %g has memory for "
                 "%lld: "
                 "a larger one, or 0, has room",
                 d->net->rank, (long long)rows, d->nn->plan.work.expert_capacity, (long long)what->capacity);
        d->device->fail(d->device->fail_context, sentence);
}

/* Rows that go to the members who have their experts, or come back: sorted by expert where their tokens are,
 * by expert and then by member where their experts are. */
static void exchange_rows(struct driver_real *d, const struct nn_collective *what, int token)
{
        const struct plan_group group = plan_group(&d->plan, d->net->rank, GROUP_EXPERTS);
        const int experts = d->nn->gpt.n_expert, own = experts / group.size, first = own * group.index;
        struct net_rows *home = malloc(2 * (size_t)experts * sizeof *home), *away;
        int64_t begin = 0;
        if (!home)
                abort();
        away = home + experts;
        for (int expert = 0, at = 0; expert < experts; expert++) {
                home[expert] = (struct net_rows){at, rows_for(what, experts, group.index, expert)};
                at += (int)home[expert].rows;
        }
        for (int expert = 0; expert < own; expert++)
                for (int member = 0; member < group.size; member++) {
                        const int64_t rows = rows_for(what, experts, member, first + expert);
                        away[member * own + expert] = (struct net_rows){begin, rows};
                        begin += rows;
                }
        const bool back = what->kind == KERNEL_EXPERT_COMBINE;
        if (!back) {
                check_capacity(d, what, begin);
                note_loads(d, what, experts, group.size);
        }
        const struct net_exchange exchange = {
                .from = what->own,
                .to = what->all,
                .row_bytes = what->width * (what->dtype == DTYPE_FP32 ? (int64_t)sizeof(real) : 2),
                .blocks = own,
                .send = back ? away : home,
                .receive = back ? home : away};
        d->net->ops->iexchange(d->net, &exchange, NET_EXPERTS, token);
        free(home);
}

/* Of a GPU, the host has to know first where rows end. */
static void begin_exchange(struct driver_real *d, const struct nn_collective *what, int token)
{
        const struct plan_group group = plan_group(&d->plan, d->net->rank, GROUP_EXPERTS);
        if (!d->net->sums_device_memory) { /* it can read them where they are */
                exchange_rows(d, what, token);
                return;
        }
        assert(d->counting < 0);
        d->counting = token;
        d->counted = *what;
        d->counted.all_ends = d->nn->host_ends;
        nn_copy_out(d->nn, d->nn->host_ends, what->all_ends,
                    group.size * d->nn->gpt.n_expert * (int64_t)sizeof *what->all_ends);
        d->device->ops->record(d->device, DEVICE_DEVICE_TO_HOST, token);
}

/* The first in memory of one or two matrices. */
static char *first_of(void *one, void *other)
{
        return other && other < one ? other : one;
}

/* One or two matrices to the next rank of those that have parts of the same sequences, from the one before.
 */
static void shift_rows(struct driver_real *d, const struct nn_collective *what, int token)
{
        const struct plan_group group = plan_group(&d->plan, d->net->rank, GROUP_CONTEXT);
        const int count = what->all_too ? 2 : 1, next = (group.index + 1) % group.size,
                  previous = (group.index + group.size - 1) % group.size;
        const int64_t bytes = what->dtype == DTYPE_FP32 ? (int64_t)sizeof(real) : 2;
        const char *from = first_of(what->own, what->own_too);
        char *to = first_of(what->all, what->all_too);
        struct net_rows send[2 * PROGRAM_CONTEXT_RANKS] = {{0}}, receive[2 * PROGRAM_CONTEXT_RANKS] = {{0}};
        for (int i = 0; i < count; i++) {
                const char *own = i ? what->own_too : what->own, *all = i ? what->all_too : what->all;
                send[next * count + i] = (struct net_rows){(own - from) / bytes, what->elements / count};
                receive[previous * count + i] = (struct net_rows){(all - to) / bytes, what->elements / count};
        }
        const struct net_exchange exchange = {.from = from,
                                              .to = to,
                                              .row_bytes = bytes,
                                              .blocks = count,
                                              .send = send,
                                              .receive = receive};
        d->net->ops->iexchange(d->net, &exchange, NET_CONTEXT, token);
}

/* Through host memory, if that is how shards do it; returns whether it is. */
static bool begin_staged(const struct driver_real *d, enum kernel_kind kind, void *all, void *own,
                         int64_t rows, int64_t width, enum net_type type, int token)
{
        const bool halves = type == NET_FP16 || type == NET_BF16;
        if (d->staged)
                staged_begin(d->staged,
                             &(struct staged_request){.kind = kind,
                                                      .all = all,
                                                      .own = own,
                                                      .rows = rows,
                                                      .width = width,
                                                      .type = type,
                                                      .element_bytes = halves ? 2 : (int)sizeof(real),
                                                      .token = token});
        return d->staged != NULL;
}

static void sum_over_shards(const struct driver_real *d, void *buffer, int64_t elements, enum net_type type,
                            int token)
{
        if (!begin_staged(d, KERNEL_TENSOR_ALLREDUCE, buffer, NULL, elements, 1, type, token))
                d->net->ops->iallreduce(d->net, buffer, elements, type, NET_TENSOR, token);
}

/* Rows of tokens that shards gather or scatter: each piece of them is a collective of its own. */
static void issue_rows(struct driver_real *d, const struct nn_collective *what, int token)
{
        const struct net_ops *net = d->net->ops;
        const enum net_type type = type_of(what->dtype);
        const int64_t shards = plan_group(&d->plan, d->net->rank, GROUP_TENSOR).size,
                      rows = what->elements / what->width / shards,
                      bytes = what->width * (what->dtype == DTYPE_FP32 ? (int64_t)sizeof(real) : 2);
        d->events[token] = what->pieces;
        for (int i = 0; i < what->pieces; i++) {
                const int64_t first = rows_before_piece(rows, what->pieces, i),
                              count = rows_before_piece(rows, what->pieces, i + 1) - first;
                char *all = (char *)what->all + shards * first * bytes,
                     *own = what->own ? (char *)what->own + first * bytes : NULL;
                if (begin_staged(d, what->kind, all, own, count, what->width, type, token))
                        continue;
                if (what->kind == KERNEL_TENSOR_ALL_GATHER)
                        net->iall_gather(d->net, all, own, shards * count * what->width, type, NET_TENSOR,
                                         token);
                else
                        net->ireduce_scatter(d->net, all, own, shards * count * what->width, type, NET_TENSOR,
                                             token);
        }
}

/* The collective behind the part of a pass that was computed last: another part always follows. */
static void issue_tensor(struct driver_real *d, const struct op *op)
{
        const struct net_ops *net = d->net->ops;
        const struct nn_collective *what = d->nn->collective;
        const enum net_type type = type_of(what->dtype);
        d->ops[op->serial].more = true;
        switch (what->kind) {
        case KERNEL_TENSOR_ALL_GATHER:
        case KERNEL_TENSOR_REDUCE_SCATTER:
                issue_rows(d, what, op->serial);
                break;
        case KERNEL_CONTEXT_SHIFT:
                shift_rows(d, what, op->serial);
                break;
        case KERNEL_CONTEXT_ALL_GATHER:
                net->iall_gather(d->net, what->all, what->own, what->elements, type, NET_CONTEXT, op->serial);
                break;
        case KERNEL_CONTEXT_REDUCE_SCATTER:
                net->ireduce_scatter(d->net, what->all, what->own, what->elements, type, NET_CONTEXT,
                                     op->serial);
                break;
        case KERNEL_EXPERT_COUNTS:
                net->iall_gather(d->net, what->all, what->own, what->elements, NET_INT32, NET_EXPERTS,
                                 op->serial);
                break;
        case KERNEL_EXPERT_DISPATCH:
        case KERNEL_EXPERT_COMBINE:
                begin_exchange(d, what, op->serial);
                break;
        default:
                assert(what->kind == KERNEL_TENSOR_ALLREDUCE);
                sum_over_shards(d, what->all, what->elements, type, op->serial);
        }
}

/* What is reduced of a unit, from its gradient `offset` on. */
static void *unit_gradients(const struct driver_real *d, const struct op *op, int64_t offset)
{
        if (d->plan.reduce_fp32)
                return (real *)nn_widened_gradients(d->nn, op->reduced) + offset;
        return nn_at(d->nn, nn_unit_gradients(d->nn, op->reduced), offset);
}

/* Zero 2 and 3: a unit's weights, from the replicas' shares of them, which with zero 2 or offloaded
 * parameters are at their place among them, or its gradients, to these; or what shards sum of the gradients
 * before. */
static void issue_unit_collective(struct driver_real *d, const struct op *op)
{
        const struct net_ops *net = d->net->ops;
        struct nn_stage *nn = d->nn;
        const enum net_group group = op->group == GROUP_SHARERS       ? NET_SHARERS
                                     : op->group == GROUP_EXPERT_DATA ? NET_EXPERT_DATA
                                                                      : NET_DATA;
        if (op->kind == OP_ALL_GATHER)
                net->iall_gather(d->net, nn_at(nn, nn_unit_weights(nn, op->gathered), op->offset),
                                 d->plan.zero == 2 || d->plan.offload_parameters
                                         ? NULL
                                         : nn_at(nn, nn->weights, op->place),
                                 op->count, stored_type(d), group, op->serial);
        else if (op->kind == OP_REDUCE_SCATTER)
                net->ireduce_scatter(d->net, unit_gradients(d, op, op->offset),
                                     nn_gradients_at(nn, op->place), op->count, gradient_type(d), group,
                                     op->serial);
        else
                sum_over_shards(d, unit_gradients(d, op, op->offset), op->count, gradient_type(d),
                                op->serial);
}

/* Whether other ranks have the gradients that this one has the norm of, and count them. */
static bool counted_elsewhere(const struct plan *plan, int rank)
{
        if (plan->zero == 1 && !plan_hybrid(plan))
                return false;
        return plan_replica(plan, rank) >=
               (plan->zero >= 1 ? plan_share_ranks(plan) : plan_expert_replicas(plan));
}

static void issue_collective(struct driver_real *d, const struct op *op)
{
        static const enum net_group groups[] = {[GROUP_EMBEDDING] = NET_EMBEDDING,
                                                [GROUP_DATA] = NET_DATA,
                                                [GROUP_SHARERS] = NET_SHARERS,
                                                [GROUP_SHARE_DATA] = NET_SHARE_DATA,
                                                [GROUP_EXPERT_DATA] = NET_EXPERT_DATA};
        const struct net_ops *net = d->net->ops;
        double *scalars = d->nn->scalars;
        assert(op->group != GROUP_TENSOR || op->kind == OP_ALLREDUCE); /* it is not among the groups */
        if (op->gathered >= 0 || op->reduced >= 0) {
                issue_unit_collective(d, op);
                return;
        }
        switch (op->kind) {
        case OP_REDUCE_SCALARS:
                if (counted_elsewhere(&d->plan, d->net->rank))
                        scalars[NN_SQUARED_NORM] = 0;
                if (plan_shard(&d->plan, d->net->rank) > 0)
                        scalars[NN_LOSS] = 0; /* all shards know the same loss */
                if (d->stops)
                        scalars[NN_STOPS] = *d->stops;
                net->iallreduce(d->net, &scalars[NN_LOSS], OP_SCALARS, NET_DOUBLE, NET_WORLD, op->serial);
                break;
        case OP_REDUCE_OVERFLOW:
                scalars[NN_OVERFLOW] = d->found_overflow;
                net->iallreduce(d->net, &scalars[NN_OVERFLOW], 1, NET_DOUBLE, NET_WORLD, op->serial);
                break;
        case OP_REDUCE_SCATTER:
                net->ireduce_scatter(d->net, network_buffer(d, op), NULL, op->count, gradient_type(d),
                                     groups[op->group], op->serial);
                break;
        case OP_ALL_GATHER:
                net->iall_gather(d->net, network_buffer(d, op), NULL, op->count, stored_type(d),
                                 groups[op->group], op->serial);
                break;
        default:
                assert(op->kind == OP_ALLREDUCE);
                if (op->group == GROUP_TENSOR) {
                        sum_over_shards(d, network_buffer(d, op), op->count, gradient_type(d), op->serial);
                        break;
                }
                net->iallreduce(d->net, network_buffer(d, op), op->count, gradient_type(d), groups[op->group],
                                op->serial);
        }
}

/* Shard 0 tells each of the others; the operation is over when the last message has left. */
static void issue_decision(struct driver_real *d, const struct op *op)
{
        const struct net_ops *net = d->net->ops;
        const struct plan_group shards = plan_group(&d->plan, d->net->rank, GROUP_TENSOR);
        if (shards.index > 0) {
                net->ireceive(d->net, NULL, 0, shards.first, NET_TAG_DECISION, op->serial);
                return;
        }
        d->events[op->serial] = shards.size - 1;
        for (int i = 1; i < shards.size; i++)
                net->isend(d->net, NULL, 0, shards.first + i * shards.stride, NET_TAG_DECISION,
                           core_decision_number(&d->plan, op), op->serial);
}

static void real_issue(void *world, const struct op *op)
{
        struct driver_real *d = world;
        const struct net_ops *net = d->net->ops;
        const int rank = d->net->rank, token = op->serial;
        const int peer = op_lane_peer(&d->plan, rank, op->lane); /* of a message */
        remember(d, op);
        if (op_copies(op->kind)) {
                issue_copy(d, op);
                return;
        }
        switch (op->kind) {
        case OP_SEND_ACTIVATION:
                net->isend(d->net, network_buffer(d, op), op->bytes, peer, NET_TAG_ACTIVATION,
                           core_message_vmb(&d->plan, plan_stage(&d->plan, rank), op), token);
                break;
        case OP_SEND_GRADIENT:
                net->isend(d->net, network_buffer(d, op), op->bytes, peer, NET_TAG_GRADIENT,
                           core_message_vmb(&d->plan, plan_stage(&d->plan, rank), op), token);
                break;
        case OP_RECEIVE_ACTIVATION:
                net->ireceive(d->net, network_buffer(d, op), op->bytes, peer, NET_TAG_ACTIVATION, token);
                break;
        case OP_RECEIVE_GRADIENT:
                net->ireceive(d->net, network_buffer(d, op), op->bytes, peer, NET_TAG_GRADIENT, token);
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCATTER:
        case OP_ALL_GATHER:
        case OP_REDUCE_SCALARS:
        case OP_REDUCE_OVERFLOW:
                issue_collective(d, op);
                break;
        case OP_TENSOR:
                issue_tensor(d, op);
                break;
        case OP_DECISION:
                issue_decision(d, op);
                break;
        case OP_WRITE:
                d->writing = token;
                d->saver->write(d->saver->context);
                break;
        case OP_CHECK_OVERFLOW:
                if (d->inject_overflow && op->offset + op->count == d->nn->kept)
                        inject_overflow(d, token);
                else
                        check_overflow(d, token);
                break;
        default:
                issue_compute(d, op);
        }
}

struct driver driver_real(struct driver_real *d)
{
        return (struct driver){.issue = real_issue, .now = real_now, .world = d};
}

void driver_real_free(struct driver_real *d)
{
        free(d->ops);
        free(d->events);
        staged_delete(d->staged);
}

/* ---- completions ---- */

/* Stored gradients are the loss scale times what they mean. */
static void set_gradient_scale(struct driver_real *d)
{
        double *scalars = d->nn->scalars;
        scalars[NN_SQUARED_NORM] /= d->loss_scale * d->loss_scale;
        if (d->plan.clip) /* without clipping, updates may be reading it: it stays as the batch began */
                scalars[NN_GRADIENT_SCALE] =
                        optim_clip_factor(d->optim, scalars[NN_SQUARED_NORM]) / d->loss_scale;
}

static bool overflows(const struct driver_real *d)
{
        return optim_overflows(d->nn, d->nn->scalars[NN_OVERFLOW]);
}

static enum op_kind pass_of_loss(const struct driver_real *d)
{
        return nn_loss_in_backward(d->nn) && !d->plan.forward_only ? OP_BACKWARD : OP_FORWARD;
}

/* Losses are added up as gradients are. Between two passes no kernel adds to the scalar. */
static void add_loss(struct driver_real *d, int micro_batch)
{
        const int each = plan_logical_micro_batches(&d->plan), replica = micro_batch / each,
                  sums = core_logical_sums(replica);
        double *loss = &d->nn->scalars[NN_LOSS];
        if ((micro_batch + 1) % each)
                return;
        for (int level = 0; level < sums; level++)
                *loss += d->losses[level];
        if (replica == plan_logical(&d->plan) - 1)
                return;
        d->losses[sums] = *loss;
        *loss = 0;
}

static void finish(struct driver_real *d, struct engine *engine, int token, int vmb)
{
        if (d->staged && staged_goes_on(d->staged, token))
                return;
        if (token == d->counting) {
                d->counting = -1;
                exchange_rows(d, &d->counted, token);
                return;
        }
        if (token == d->injecting) {
                d->injecting = -1;
                check_overflow(d, token);
                return;
        }
        if (--d->events[token] > 0)
                return;
        struct op done = d->ops[token];
        if (done.kind == OP_DECISION && plan_shard(&d->plan, d->net->rank) > 0)
                core_set_decision(&d->plan, &done, vmb);
        if (done.kind == OP_RECEIVE_ACTIVATION || done.kind == OP_RECEIVE_GRADIENT)
                core_set_vmb(&d->plan, &done, vmb);
        /* Of all gradients, one range after the other, or one logical replica's. */
        if (done.kind == OP_CHECK_OVERFLOW ||
            (done.kind == OP_ADD_REPLICA && memory_copies_gradients(&d->nn->plan)))
                d->found_overflow = d->found_overflow || overflows(d);
        if (plan_logical(&d->plan) > 1 && !done.more && done.kind == pass_of_loss(d))
                add_loss(d, done.micro_batch);
        if (done.kind == OP_REDUCE_SCALARS) {
                set_gradient_scale(d);
                done.more = d->saver && d->saver->due(d->saver->context);
        }
        if (done.kind == OP_REDUCE_OVERFLOW)
                done.overflow = d->overflow = d->nn->scalars[NN_OVERFLOW] > 0;
        engine_complete(engine, &done);
}

void driver_real_start(struct driver_real *d, struct engine *engine)
{
        double *scalars = d->nn->scalars;
        scalars[NN_LOSS] = scalars[NN_SQUARED_NORM] = 0;
        scalars[NN_STOPS] = d->stops ? *d->stops : 0;
        scalars[NN_SAVES] = d->saves;
        scalars[NN_WRITTEN] = d->written;
        scalars[NN_GRADIENT_SCALE] = 1 / d->loss_scale;
        d->overflow = d->found_overflow = false;
        d->injecting = d->counting = -1;
        d->nn->loss_scale = d->mean * d->loss_scale;
        engine_start(engine);
}

bool driver_real_poll(struct driver_real *d, struct engine *engine)
{
        struct net_done message;
        int token = d->device->ops->poll(d->device);
        if (token >= 0) {
                finish(d, engine, token, -1);
                return true;
        }
        if (d->net->ops->test(d->net, &message)) {
                finish(d, engine, message.token, message.micro_batch);
                return true;
        }
        if (core_writing(engine->core) && d->saver->written(d->saver->context)) {
                finish(d, engine, d->writing, -1);
                return true;
        }
        return false;
}

/* The end of a write is no news of the device's: as messages, it is looked after. */
static void rest(struct driver_real *d, bool writing)
{
        if (d->net->due_seconds > 0)
                device_rest_until(d->device, d->net->due_seconds);
        else
                device_rest(d->device, writing || d->net->ops->pending(d->net));
}

void driver_real_rest(struct driver_real *d)
{
        rest(d, false);
}

void driver_real_run(struct driver_real *d, struct engine *engine)
{
        driver_real_start(d, engine);
        while (!engine_done(engine))
                if (!driver_real_poll(d, engine))
                        rest(d, core_writing(engine->core));
}

void driver_real_finish_writing(struct driver_real *d, struct engine *engine)
{
        while (core_writing(engine->core))
                if (!driver_real_poll(d, engine))
                        rest(d, true);
}
