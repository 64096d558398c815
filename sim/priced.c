#include "sim/priced.h"

#include <assert.h>
#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>

/* The mailbox of a message lane's receiving end, looked up once a lane. */
static sg_mailbox_t mailbox(struct sim_lane *lane, int receiver, const char *what)
{
        if (!lane->box) {
                char name[48];
                snprintf(name, sizeof name, "%s to %d", what, receiver);
                lane->box = sg_mailbox_by_name(name);
        }
        return lane->box;
}

/* The payload is the micro-batch's number; SimGrid takes no NULL, so it counts from 1. */
static void send(struct sim_lane *lane, const struct op *op, const char *what)
{
        int receiver = sim_peer(lane->rank, lane->lane)->rank;
        sg_mailbox_put(mailbox(lane, receiver, what), (void *)(intptr_t)(op->micro_batch + 1),
                       (long)op->bytes);
}

static void receive(struct sim_lane *lane, struct op *op, const char *what)
{
        op->micro_batch = (int)(intptr_t)sg_mailbox_get(mailbox(lane, lane->rank->rank, what)) - 1;
}

static void allreduce(const struct priced *priced, const struct sim_rank *rank, const struct op *op)
{
        const struct platform *platform = priced->platform;
        struct sim_group group = sim_group_of(rank, op->group);
        const enum half half = op->kind == OP_ALLREDUCE ? priced->half : HALF_NONE; /* scalars are double */
        struct platform_collective beside = platform_collective(platform, group.size, op->bytes, half);
        struct collective_costs costs = {beside.step_seconds, beside.reduce_seconds_per_byte,
                                         platform->collective_segments};
        collective_allreduce(&group, op->bytes, &costs);
}

/* The profile's line of an operation that copies. */
static enum profile_line line_of(enum op_kind kind)
{
        switch (kind) {
        case OP_FETCH:
                return LINE_FETCH;
        case OP_WRITE_BACK:
                return LINE_WRITE_BACK;
        case OP_STORE_ACTIVATIONS:
        case OP_STAGE_OUT:
                return LINE_COPY_BACK;
        default:
                assert(kind == OP_LOAD || kind == OP_FETCH_ACTIVATIONS || kind == OP_STAGE_IN);
                return LINE_COPY;
        }
}

/* Seconds that all of a copy takes now. */
static double copy_rate(const struct sim_host_link *link, int way)
{
        const struct sim_copy *copy = &link->copies[way];
        return link->copies[!way].copying ? copy->both : copy->alone;
}

/* Both directions as far as they have come by now. */
static void advance(struct sim_host_link *link)
{
        const double elapsed = simgrid_get_clock() - link->since;
        const double rates[] = {copy_rate(link, 0), copy_rate(link, 1)};
        for (int way = 0; way < 2; way++)
                if (link->copies[way].copying)
                        link->copies[way].left -= elapsed / rates[way];
        link->since += elapsed;
}

/* Copies, all of it in `alone` seconds while the other direction is idle and in `both` while it copies too;
 * what is done when that changes stays done. The other direction can begin at any time, which makes this copy
 * longer: so the lane looks again when it would have ended, and when the other one ends. */
static void copy_both_ways(struct sim_lane *lane, double alone, double both)
{
        const double nothing = 1e-9; /* seconds: SimGrid's own precision */
        struct sim_host_link *link = &lane->rank->host_link;
        const int way = lane->lane == LANE_DEVICE_TO_HOST;
        struct sim_copy *mine = &link->copies[way], *other = &link->copies[!way];
        advance(link);
        *mine = (struct sim_copy){.copying = true, .left = 1, .alone = alone, .both = both};
        for (;;) {
                double seconds = mine->left * copy_rate(link, way), others = other->left * other->both;
                if (seconds <= nothing)
                        break;
                sg_actor_sleep_for(other->copying && others > nothing ? fmin(seconds, others) : seconds);
                advance(link);
        }
        mine->copying = false;
}

/* As it was measured; without a measurement of both directions at once, one is as fast as alone. */
static void copy_measured(const struct priced *priced, struct sim_lane *lane, const struct op *op)
{
        const struct profile_load *measured = priced->platform->copies;
        const enum profile_line line = line_of(op->kind);
        const double alone = profile_line_seconds(measured, line, op->bytes, priced->fits_only);
        double both = alone; /* fetches and write backs were measured while both directions copied */
        if (line == LINE_COPY)
                both = profile_line_seconds(measured, LINE_COPY_BOTH, op->bytes, priced->fits_only);
        else if (line == LINE_COPY_BACK)
                both = profile_line_seconds(measured, LINE_COPY_BACK_BOTH, op->bytes, priced->fits_only);
        if (measured->lines[LINE_COPY_BOTH].fit.present)
                copy_both_ways(lane, alone, isnan(both) ? alone : fmax(alone, both));
        else
                sg_actor_sleep_for(alone);
}

/* Between host and device: as it was measured, or a flow over the links between them. */
static void copy(const struct priced *priced, struct sim_lane *lane, const struct op *op)
{
        const struct network_place *place = &lane->rank->place;
        if (priced->platform->copies)
                copy_measured(priced, lane, op);
        else if (place->memory && lane->lane == LANE_HOST_TO_DEVICE)
                sg_host_sendto(place->memory, place->device, (double)op->bytes);
        else if (place->memory)
                sg_host_sendto(place->device, place->memory, (double)op->bytes);
}

int priced_check_lines(const struct platform *platform, const struct options *options,
                       const struct profile *profile, struct rv_error_info *err)
{
        const struct profile_load *load = platform->copies;
        const struct plan plan = options_plan(options, false);
        const struct {
                bool needed;
                enum profile_line line;
        } needs[] = {
                {true, LINE_COPY},
                {options->offload_activations || plan.stage_messages || plan.stage_allreduce, LINE_COPY_BACK},
                {options->offload, LINE_FETCH},
                {options->offload, LINE_WRITE_BACK}};
        for (size_t i = 0; load && i < sizeof needs / sizeof *needs; i++)
                if (needs[i].needed && !load->lines[needs[i].line].fit.present)
                        return profile_no_line(profile, load, needs[i].line, err);
        bool sums = plan.dp > 1 || plan.tied;
        const enum half half = options_format(options);
        if (load && half && sums && !platform->allreduces[half])
                return profile_no_line(profile, load, profile_allreduce_line(half), err);
        return 0;
}

static void perform(void *context, struct sim_lane *lane, struct sim_op *op)
{
        struct priced *priced = context;
        switch (op->op.kind) {
        case OP_LOAD:
        case OP_FETCH:
        case OP_WRITE_BACK:
        case OP_STORE_ACTIVATIONS:
        case OP_FETCH_ACTIVATIONS:
        case OP_STAGE_OUT:
        case OP_STAGE_IN:
                copy(priced, lane, &op->op);
                break;
        case OP_SEND_ACTIVATION:
                send(lane, &op->op, "activations");
                break;
        case OP_SEND_GRADIENT:
                send(lane, &op->op, "gradients");
                break;
        case OP_RECEIVE_ACTIVATION:
                receive(lane, &op->op, "activations");
                break;
        case OP_RECEIVE_GRADIENT:
                receive(lane, &op->op, "gradients");
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCALARS:
        case OP_REDUCE_OVERFLOW: /* there is none: op.overflow stays false */
                allreduce(priced, lane->rank, &op->op);
                break;
        default:
                assert(lane->lane == LANE_COMPUTE);
                sg_actor_sleep_for(price_operation(priced->prices, lane->rank->stage, &op->op));
        }
}

struct sim_physics priced_physics(struct priced *priced)
{
        return (struct sim_physics){.perform = perform, .context = priced};
}
