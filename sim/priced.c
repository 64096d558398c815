#include "sim/priced.h"

#include <assert.h>
#include <simgrid/actor.h>
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

static void allreduce(const struct platform *platform, const struct sim_rank *rank, const struct op *op)
{
        struct sim_group group = sim_group_of(rank, op->group);
        struct platform_collective beside = platform_collective(platform, group.size, op->bytes);
        struct collective_costs costs = {beside.step_seconds, beside.reduce_seconds_per_byte,
                                         platform->collective_segments};
        collective_allreduce(&group, op->bytes, &costs);
}

static void perform(void *context, struct sim_lane *lane, struct sim_op *op)
{
        struct priced *priced = context;
        const struct platform *p = priced->platform;
        switch (op->op.kind) {
        case OP_LOAD:
                if (p->host_link_bytes_per_second > 0)
                        sg_actor_sleep_for(p->host_link_seconds +
                                           (double)op->op.bytes / p->host_link_bytes_per_second);
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
                allreduce(p, lane->rank, &op->op);
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
