#include "sim/world/collective.h"

#include "sim/world/flow.h"

#include <assert.h>
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdio.h>
#include <stdlib.h>

/* SimGrid wants something that is not NULL; nobody looks at it. */
#define PAYLOAD ((void *)1)

/* One member at work. */
struct run {
        const struct sim_group *group;
        const struct collective_shape *shape;
        const struct collective_phase *phase;
};

/* Where member `to` of the group looks for messages of member `from`. */
static sg_mailbox_t box(const struct run *run, const char *kind, int from, int to)
{
        char name[80];
        snprintf(name, sizeof name, "group %d.%d %s: %d to %d", (int)run->group->kind,
                 run->group->ranks.first, kind, from, to);
        return sg_mailbox_by_name(name);
}

static void sleep_seconds(double seconds)
{
        if (seconds > 0)
                sg_actor_sleep_for(seconds);
}

/* ---- messages that are under way at once ---- */

enum { MAX_MESSAGES = 8 };

struct messages {
        sg_comm_t comms[MAX_MESSAGES];
        void *arrived[MAX_MESSAGES];
        size_t count;
};

static void receive(struct messages *m, sg_mailbox_t from)
{
        assert(m->count < MAX_MESSAGES);
        m->comms[m->count] = sg_mailbox_get_async(from, &m->arrived[m->count]);
        m->count++;
}

static void send(struct messages *m, sg_mailbox_t to, int64_t bytes)
{
        assert(m->count < MAX_MESSAGES);
        m->comms[m->count++] = sg_mailbox_put_async(to, PAYLOAD, (long)bytes);
}

static void wait_all(struct messages *m)
{
        if (m->count > 0)
                sg_comm_wait_all(m->comms, m->count);
}

/* ---- steps of equal messages ---- */

/* A neighbour in a ring, or the pair's other one. */
struct link_ends {
        sg_mailbox_t to, from;
        int64_t bytes;
};

static struct link_ends ends(const struct run *run, const char *kind, int to, int from, int64_t bytes)
{
        const int me = run->group->ranks.index;
        return (struct link_ends){box(run, kind, me, to), box(run, kind, from, me), bytes};
}

static struct link_ends near_ring(const struct run *run)
{
        const int k = run->shape->per_node, me = run->group->ranks.index, first = me - me % k;
        return ends(run, "near", first + (me + 1 - first) % k, first + (me + k - 1 - first) % k,
                    run->phase->near_bytes / run->phase->segments);
}

static struct link_ends far_ring(const struct run *run)
{
        const int p = run->group->ranks.size, k = run->shape->per_node, me = run->group->ranks.index;
        return ends(run, "far", (me + k) % p, (me + p - k) % p, run->phase->far_bytes / run->phase->segments);
}

static struct link_ends whole_ring(const struct run *run)
{
        const int p = run->group->ranks.size, me = run->group->ranks.index;
        return ends(run, "ring", (me + 1) % p, (me + p - 1) % p,
                    (run->phase->far ? run->phase->far_bytes : run->phase->near_bytes) /
                            run->phase->segments);
}

/* `steps` exchanges with all neighbours at once. A step's arithmetic on one segment runs beside the next
 * one's messages. */
static void exchange(const struct run *run, const struct link_ends *neighbours, int count)
{
        const struct collective_phase *phase = run->phase;
        const double arithmetic = phase->arithmetic_seconds / phase->segments;
        for (int step = 0; step < phase->steps; step++) {
                sleep_seconds(phase->software_seconds);
                for (int segment = 0; segment < phase->segments; segment++) {
                        struct messages m = {.count = 0};
                        for (int i = 0; i < count; i++) {
                                receive(&m, neighbours[i].from);
                                send(&m, neighbours[i].to, neighbours[i].bytes);
                        }
                        if (segment > 0)
                                sleep_seconds(arithmetic);
                        wait_all(&m);
                }
                sleep_seconds(arithmetic);
        }
}

static int64_t phase_bytes(const struct run *run)
{
        return run->phase->far ? run->phase->far_bytes : run->phase->near_bytes;
}

/* One message. Whoever is there in the next step too starts it. */
static void send_to(const struct run *run, int to, bool starts)
{
        struct messages m = {.count = 0};
        sleep_seconds(starts ? run->phase->software_seconds : 0);
        send(&m, box(run, "pair", run->group->ranks.index, to), phase_bytes(run));
        wait_all(&m);
}

static void receive_from(const struct run *run, int from, bool starts)
{
        struct messages m = {.count = 0};
        sleep_seconds(starts ? run->phase->software_seconds : 0);
        receive(&m, box(run, "pair", from, run->group->ranks.index));
        wait_all(&m);
        sleep_seconds(run->phase->arithmetic_seconds);
}

static void pairs(const struct run *run)
{
        const int me = run->group->ranks.index;
        if (me >= collective_power(run->group->ranks.size)) /* another stands for it */
                return;
        const int partner = me ^ run->phase->distance;
        const struct link_ends pair = ends(run, "pair", partner, partner, phase_bytes(run));
        exchange(run, &pair, 1);
}

/* Members beyond the largest power of two send to those that many before them, or get back from them. */
static void join(const struct run *run, bool leave)
{
        const int me = run->group->ranks.index, distance = run->phase->distance;
        const bool outside = me >= distance, helps = !outside && me + distance < run->group->ranks.size;
        if (outside && !leave)
                send_to(run, me - distance, false);
        if (helps && !leave)
                receive_from(run, me + distance, true);
        if (helps && leave)
                send_to(run, me + distance, true);
        if (outside && leave)
                receive_from(run, me - distance, false);
}

/* A round of the binomial tree. */
static void binomial(const struct run *run, bool down)
{
        const int me = run->group->ranks.index, distance = run->phase->distance, place = me % (2 * distance);
        const bool child = place == distance, parent = place == 0 && me + distance < run->group->ranks.size;
        if (child && !down)
                send_to(run, me - distance, false);
        if (parent && !down)
                receive_from(run, me + distance, true);
        if (parent && down)
                send_to(run, me + distance, true);
        if (child && down)
                receive_from(run, me - distance, false);
}

/* ---- the two trees ---- */

/* A member's place in one of them; members are those in its place of all nodes. */
struct tree {
        int depth, children;
        sg_mailbox_t to_parent, from_parent, to_child[2], from_child[2];
};

struct forest {
        struct tree trees[2];
        int depth; /* of the deepest members */
};

static struct forest grow(const struct run *run)
{
        const int k = run->shape->nodes > 1 && run->shape->per_node > 0 ? run->shape->per_node : 1;
        const int me = run->group->ranks.index, index = me / k, count = run->group->ranks.size / k;
        struct forest forest = {.depth = run->phase->steps - run->phase->distance + 1};
        for (int t = 0; t < 2; t++) {
                struct tree *tree = &forest.trees[t];
                const char *kind = t ? "tree 1" : "tree 0";
                int children[2], parent = collective_tree_parent(t, index, count);
                tree->depth = collective_tree_depth(t, index, count);
                tree->children = collective_tree_children(t, index, count, children);
                if (parent >= 0) {
                        int there = parent * k + me % k;
                        tree->to_parent = box(run, kind, me, there);
                        tree->from_parent = box(run, kind, there, me);
                }
                for (int i = 0; i < tree->children; i++) {
                        int there = children[i] * k + me % k;
                        tree->to_child[i] = box(run, kind, me, there);
                        tree->from_child[i] = box(run, kind, there, me);
                }
        }
        return forest;
}

/* Whether, in that round, members so deep send a part up (are sent one down). */
static bool is_on(const struct run *run, const struct forest *forest, int depth, int round, bool down)
{
        const int part = round - (down ? depth - 1 : forest->depth - depth);
        return depth > 0 && part >= 0 && part < run->phase->distance;
}

static void trees(const struct run *run, bool down)
{
        const struct forest forest = grow(run);
        const int64_t bytes = phase_bytes(run);
        for (int round = 0; round < run->phase->steps; round++) {
                struct messages m = {.count = 0};
                bool reduces = false;
                sleep_seconds(run->phase->software_seconds);
                for (int t = 0; t < 2; t++) {
                        const struct tree *tree = &forest.trees[t];
                        const bool with_parent =
                                tree->to_parent && is_on(run, &forest, tree->depth, round, down);
                        const bool with_children = is_on(run, &forest, tree->depth + 1, round, down);
                        for (int i = 0; with_children && i < tree->children; i++)
                                if (down)
                                        send(&m, tree->to_child[i], bytes);
                                else
                                        receive(&m, tree->from_child[i]);
                        if (with_parent && down)
                                receive(&m, tree->from_parent);
                        else if (with_parent)
                                send(&m, tree->to_parent, bytes);
                        reduces |= with_children && tree->children > 0;
                }
                wait_all(&m);
                sleep_seconds(reduces ? run->phase->arithmetic_seconds : 0);
        }
}

/* ---- members ---- */

static void work(const struct run *run)
{
        struct link_ends neighbours[2];
        switch (run->phase->pattern) {
        case PATTERN_RING:
                neighbours[0] = whole_ring(run);
                exchange(run, neighbours, 1);
                break;
        case PATTERN_NEAR_RING:
                neighbours[0] = near_ring(run);
                exchange(run, neighbours, 1);
                break;
        case PATTERN_FAR_RING:
                neighbours[0] = far_ring(run);
                exchange(run, neighbours, 1);
                break;
        case PATTERN_BOTH_RINGS:
                neighbours[0] = near_ring(run);
                neighbours[1] = far_ring(run);
                exchange(run, neighbours, 2);
                break;
        case PATTERN_PAIRS:
                pairs(run);
                break;
        case PATTERN_JOIN:
        case PATTERN_LEAVE:
                join(run, run->phase->pattern == PATTERN_LEAVE);
                break;
        case PATTERN_UP:
        case PATTERN_DOWN:
                binomial(run, run->phase->pattern == PATTERN_DOWN);
                break;
        default:
                trees(run, run->phase->pattern == PATTERN_TREES_DOWN);
        }
}

/* ---- folded: this member's messages go to its twins, and what it is sent are its own ---- */

/* Its own messages of one segment, which begin now. */
static struct messages send_to_twins(const struct run *run)
{
        const struct collective_phase *phase = run->phase;
        const struct network_place *here = run->group->twins;
        const bool both = phase->pattern == PATTERN_BOTH_RINGS;
        struct messages m = {.count = 0};
        if (both || phase->far)
                m.comms[m.count++] = flow_start_in_actor(sg_host_self(), here->far,
                                                         (double)(phase->far_bytes / phase->segments));
        if (both || !phase->far)
                m.comms[m.count++] = flow_start_in_actor(sg_host_self(), here->near,
                                                         (double)(phase->near_bytes / phase->segments));
        return m;
}

static void work_folded(const struct run *run)
{
        const struct collective_phase *phase = run->phase;
        const double arithmetic = phase->arithmetic_seconds / phase->segments;
        for (int step = 0; step < phase->steps; step++) {
                sleep_seconds(phase->software_seconds);
                for (int segment = 0; segment < phase->segments; segment++) {
                        struct messages m = send_to_twins(run);
                        if (segment > 0)
                                sleep_seconds(arithmetic);
                        wait_all(&m);
                }
                sleep_seconds(arithmetic);
        }
}

/* In a tree a member sends or receives two parts at a time. */
static struct collective_phase folded_phase(const struct collective_phase *phase)
{
        struct collective_phase folded = *phase;
        if (phase->pattern == PATTERN_TREES_UP || phase->pattern == PATTERN_TREES_DOWN) {
                folded.near_bytes *= 2;
                folded.far_bytes *= 2;
        }
        return folded;
}

/* ---- many steps ---- */

static bool is_ring(enum collective_pattern pattern)
{
        return pattern == PATTERN_RING || pattern == PATTERN_NEAR_RING || pattern == PATTERN_FAR_RING ||
               pattern == PATTERN_BOTH_RINGS;
}

/* `steps` steps, each of which is `times` steps of the phase at once: as long as they would take one after
 * another, with the latency of each message. */
static struct collective_phase several_at_once(const struct collective_shape *shape,
                                               const struct collective_phase *phase, int steps, int times)
{
        struct collective_phase several = *phase;
        const double latency = phase->far ? shape->far_seconds : shape->near_seconds;
        several.steps = steps;
        several.near_bytes *= times;
        several.far_bytes *= times;
        several.software_seconds = times * phase->software_seconds + (times - 1) * phase->segments * latency;
        several.arithmetic_seconds *= times;
        return several;
}

static void run_phase(const struct sim_group *group, const struct collective_shape *shape,
                      const struct collective_phase *phase)
{
        const struct run run = {group, shape, phase};
        if (phase->steps == 0)
                return;
        if (group->twins)
                work_folded(&run);
        else
                work(&run);
}

/* Many steps of a ring are taken several at a time, so that it does not take a flow for each of many members.
 * Folded, all patterns are rings of the member and its twins. */
static void run_steps(const struct sim_group *group, const struct collective_shape *shape,
                      const struct collective_phase *phase)
{
        enum { MAX_STEPS = 128 }; /* more than a ring of 64 members has */
        if (phase->steps <= MAX_STEPS || !(group->twins || is_ring(phase->pattern))) {
                run_phase(group, shape, phase);
                return;
        }
        const int times = (phase->steps + MAX_STEPS - 1) / MAX_STEPS;
        const struct collective_phase most = several_at_once(shape, phase, phase->steps / times, times);
        const struct collective_phase rest = several_at_once(shape, phase, phase->steps % times, 1);
        run_phase(group, shape, &most);
        run_phase(group, shape, &rest);
}

void collective_run(const struct sim_group *group, const struct collective_shape *shape,
                    const struct collective_costs *costs, enum collective_kind kind, int64_t bytes)
{
        struct collective_phase phases[COLLECTIVE_PHASES];
        const double began = simgrid_get_clock();
        const int count = collective_phases(shape, costs, kind, bytes, phases);
        if (count == 0)
                return;
        sleep_seconds(costs->start_seconds +
                      costs->copy_seconds_per_byte *
                              (double)((bytes + group->ranks.size - 1) / group->ranks.size));
        for (int i = 0; i < count; i++) {
                const struct collective_phase phase = group->twins ? folded_phase(&phases[i]) : phases[i];
                run_steps(group, shape, &phase);
        }
        sleep_seconds(began + costs->min_seconds - simgrid_get_clock());
}
