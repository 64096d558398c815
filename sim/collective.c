#include "sim/collective.h"

#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/mailbox.h>
#include <stdio.h>

/* SimGrid wants something that is not NULL; nobody looks at it. */
#define PAYLOAD ((void *)1)

/* Where member `to` of the group looks for messages of member `from`. */
static sg_mailbox_t box(const struct sim_group *group, int from, int to)
{
        char name[64];
        snprintf(name, sizeof name, "group %d.%d: %d to %d", (int)group->kind, group->id, from, to);
        return sg_mailbox_by_name(name);
}

static void sleep_seconds(double seconds)
{
        if (seconds > 0)
                sg_actor_sleep_for(seconds);
}

/* Sends `bytes` to one member while as many arrive from another; `meanwhile` seconds of arithmetic run
 * beside. */
static void exchange(sg_mailbox_t to, sg_mailbox_t from, int64_t bytes, double meanwhile)
{
        void *arrived;
        sg_comm_t both[2] = {sg_mailbox_get_async(from, &arrived),
                             sg_mailbox_put_async(to, PAYLOAD, (long)bytes)};
        sleep_seconds(meanwhile);
        sg_comm_wait_all(both, 2);
}

/* Reduce-scatter, then all-gather: 2 (p - 1) steps, each passes a p-th of the buffer on (Patarasuk & Yuan
 * 2009). */
static void ring(const struct sim_group *group, int64_t bytes, const struct collective_costs *costs)
{
        int p = group->size, segments = costs->segments;
        sg_mailbox_t to = box(group, group->index, (group->index + 1) % p);
        sg_mailbox_t from = box(group, (group->index + p - 1) % p, group->index);
        int64_t block = (bytes + p - 1) / p, segment = (block + segments - 1) / segments;
        for (int step = 0; step < 2 * (p - 1); step++) {
                double reduce = step < p - 1 ? costs->reduce_seconds_per_byte * (double)segment : 0;
                sleep_seconds(costs->step_seconds);
                for (int i = 0; i < segments; i++)
                        exchange(to, from, segment, i > 0 ? reduce : 0);
                sleep_seconds(reduce);
        }
}

/* log2(p) exchanges of the whole buffer; members beyond the largest power of two hand theirs in and wait. */
static void recursive_doubling(const struct sim_group *group, int64_t bytes,
                               const struct collective_costs *costs)
{
        int p = group->size, power = 1, me = group->index;
        double reduce = costs->reduce_seconds_per_byte * (double)bytes;
        while (2 * power <= p)
                power *= 2;
        int extra = p - power; /* members power .. p - 1 are helped by members 0 .. extra - 1 */
        if (me >= power) {
                sleep_seconds(costs->step_seconds);
                sg_mailbox_put(box(group, me, me - power), PAYLOAD, (long)bytes);
                sg_mailbox_get(box(group, me - power, me));
                return;
        }
        if (me < extra) {
                sg_mailbox_get(box(group, me + power, me));
                sleep_seconds(reduce);
        }
        for (int distance = 1; distance < power; distance *= 2) {
                int partner = me ^ distance;
                sleep_seconds(costs->step_seconds);
                exchange(box(group, me, partner), box(group, partner, me), bytes, 0);
                sleep_seconds(reduce);
        }
        if (me < extra) {
                sleep_seconds(costs->step_seconds);
                sg_mailbox_put(box(group, me, me + power), PAYLOAD, (long)bytes);
        }
}

void collective_allreduce(const struct sim_group *group, int64_t bytes, const struct collective_costs *costs)
{
        if (group->size == 1)
                return;
        if (bytes < COLLECTIVE_RING_FROM_BYTES)
                recursive_doubling(group, bytes, costs);
        else
                ring(group, bytes, costs);
}
