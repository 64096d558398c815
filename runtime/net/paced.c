#include "runtime/net/paced.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* When a message began on its sender's link, and when it had left. */
struct stamp {
        double began, left;
};

/* A request of the caller's. Two requests of the net below belong to each: what it moves, and ahead of that
 * the stamp of a message, or when each member of a collective came to it. */
struct transfer {
        struct transfer *next;
        int number, token, micro_batch;
        bool collective, receives;
        enum net_group group; /* of a collective */
        int members;          /* likewise */
        double seconds;       /* on a link */
        bool told, moved;     /* the two requests have completed */
        bool begun;           /* on the link, */
        double ends;          /* and when that has carried it */
        struct stamp stamp;   /* of a message */
        double came[];        /* [members] */
};

struct net_paced {
        struct net_ops ops; /* first: a net's ops lead here */
        const struct net_ops *rest;
        double bytes_per_second;
        int members[NET_GROUPS], index[NET_GROUPS]; /* of this rank's groups */
        double out_free, in_free;                   /* when the link has carried what has begun on it */
        double group_free[NET_GROUPS];              /* when the last collective that began there is over */
        struct transfer *first, **last;             /* in the order in which they were posted */
        int posted;
};

static struct net_paced *paced_of(struct net *net)
{
        return (struct net_paced *)net->ops;
}

static double now_seconds(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- posting ---- */

static struct transfer *post(struct net_paced *paced, int members, double bytes, int token)
{
        struct transfer *t = calloc(1, sizeof *t + (size_t)members * sizeof *t->came);
        if (!t)
                abort(); /* a net cannot fail */
        t->number = paced->posted++ & 0xffffff;
        t->token = token;
        t->members = members;
        t->seconds = bytes / paced->bytes_per_second;
        *paced->last = t;
        paced->last = &t->next;
        return t;
}

/* The tokens of a transfer's two requests. */
static int stamp_token(const struct transfer *t)
{
        return 2 * t->number;
}

static int payload_token(const struct transfer *t)
{
        return 2 * t->number + 1;
}

static void paced_isend(struct net *net, const void *buffer, int64_t bytes, int peer, int channel,
                        int micro_batch, int token)
{
        struct net_paced *paced = paced_of(net);
        struct transfer *t = post(paced, 0, (double)bytes, token);
        t->stamp.began = fmax(now_seconds(), paced->out_free);
        t->stamp.left = t->ends = paced->out_free = t->stamp.began + t->seconds;
        t->begun = true;
        paced->rest->isend(net, &t->stamp, sizeof t->stamp, peer, channel, micro_batch, stamp_token(t));
        paced->rest->isend(net, buffer, bytes, peer, channel, micro_batch, payload_token(t));
}

/* Messages keep their order, so a stamp meets the receive of a stamp. */
static void paced_ireceive(struct net *net, void *buffer, int64_t bytes, int peer, int channel, int token)
{
        struct net_paced *paced = paced_of(net);
        struct transfer *t = post(paced, 0, (double)bytes, token);
        t->receives = true;
        paced->rest->ireceive(net, &t->stamp, sizeof t->stamp, peer, channel, stamp_token(t));
        paced->rest->ireceive(net, buffer, bytes, peer, channel, payload_token(t));
}

/* Members tell each other when they came. `bytes` cross each member's link. */
static struct transfer *post_collective(struct net *net, enum net_group group, double bytes, int token)
{
        struct net_paced *paced = paced_of(net);
        const int members = paced->members[group];
        struct transfer *t = post(paced, members, bytes, token);
        t->collective = true;
        t->group = group;
        t->came[paced->index[group]] = fmax(now_seconds(), fmax(paced->out_free, paced->in_free));
        paced->rest->iall_gather(net, t->came, NULL, members, NET_DOUBLE, group, stamp_token(t));
        return t;
}

/* What a member sends of a buffer that is scattered or gathered in a ring. */
static double ring_bytes(struct net *net, int64_t elements, enum net_type type, enum net_group group)
{
        const int members = paced_of(net)->members[group];
        const int size = type == NET_DOUBLE ? 8 : type == NET_FLOAT || type == NET_INT32 ? 4 : 2;
        return (double)elements * size * (members - 1) / members;
}

static void paced_iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                             enum net_group group, int token)
{
        const double bytes = 2 * ring_bytes(net, elements, type, group);
        const struct transfer *t = post_collective(net, group, bytes, token);
        paced_of(net)->rest->iallreduce(net, buffer, elements, type, group, payload_token(t));
}

static void paced_ireduce_scatter(struct net *net, void *buffer, void *own, int64_t elements,
                                  enum net_type type, enum net_group group, int token)
{
        const double bytes = ring_bytes(net, elements, type, group);
        const struct transfer *t = post_collective(net, group, bytes, token);
        paced_of(net)->rest->ireduce_scatter(net, buffer, own, elements, type, group, payload_token(t));
}

static void paced_iall_gather(struct net *net, void *buffer, const void *own, int64_t elements,
                              enum net_type type, enum net_group group, int token)
{
        const double bytes = ring_bytes(net, elements, type, group);
        const struct transfer *t = post_collective(net, group, bytes, token);
        paced_of(net)->rest->iall_gather(net, buffer, own, elements, type, group, payload_token(t));
}

/* Rows that go to, or come from, members other than `me`. */
static int64_t rows_of_others(const struct net_rows *rows, int members, int blocks, int me)
{
        int64_t sum = 0;
        for (int i = 0; i < members * blocks; i++)
                sum += i / blocks == me ? 0 : rows[i].rows;
        return sum;
}

static void paced_iexchange(struct net *net, const struct net_exchange *x, enum net_group group, int token)
{
        const int members = paced_of(net)->members[group], me = paced_of(net)->index[group];
        const double out = (double)rows_of_others(x->send, members, x->blocks, me);
        const double in = (double)rows_of_others(x->receive, members, x->blocks, me);
        const double bytes = fmax(out, in) * (double)x->row_bytes;
        const struct transfer *t = post_collective(net, group, bytes, token);
        paced_of(net)->rest->iexchange(net, x, group, payload_token(t));
}

/* ---- the link ---- */

static void begin_collective(struct net_paced *paced, struct transfer *t)
{
        double begins = fmax(paced->group_free[t->group], fmax(paced->out_free, paced->in_free));
        for (int i = 0; i < t->members; i++)
                begins = fmax(begins, t->came[i]);
        t->ends = begins + t->seconds;
        paced->group_free[t->group] = paced->out_free = paced->in_free = t->ends;
}

static void begin_receive(struct net_paced *paced, struct transfer *t)
{
        t->ends = fmax(t->stamp.left, fmax(t->stamp.began, paced->in_free) + t->seconds);
        paced->in_free = t->ends;
}

/* Begins what can begin by now: a collective behind those before it in its group. */
static void begin_transfers(struct net_paced *paced, double now)
{
        bool before[NET_GROUPS] = {false};
        for (struct transfer *t = paced->first; t; t = t->next) {
                if (!t->begun && t->told && !(t->collective && before[t->group])) {
                        if (t->collective)
                                begin_collective(paced, t);
                        else
                                begin_receive(paced, t);
                        t->begun = true;
                }
                if (t->collective && (!t->begun || t->ends > now))
                        before[t->group] = true;
        }
}

/* What the net below has brought. */
static void note(struct net_paced *paced, const struct net_done *done)
{
        struct transfer *t = paced->first;
        while (t && t->number != done->token / 2)
                t = t->next;
        assert(t);
        if (done->token % 2) {
                t->moved = true;
                t->micro_batch = done->micro_batch;
        } else {
                t->told = true;
        }
}

static void forget(struct net_paced *paced, struct transfer **at)
{
        struct transfer *t = *at;
        *at = t->next;
        if (!t->next)
                paced->last = at;
        free(t);
}

static int paced_test(struct net *net, struct net_done *done)
{
        struct net_paced *paced = paced_of(net);
        while (paced->rest->test(net, done))
                note(paced, done);
        net->due_seconds = 0;
        const double now = paced->first ? now_seconds() : 0;
        begin_transfers(paced, now);
        for (struct transfer **at = &paced->first; *at; at = &(*at)->next) {
                const struct transfer *t = *at;
                const bool complete = t->told && t->moved && t->begun;
                if (complete && t->ends <= now) {
                        *done = (struct net_done){.token = t->token, .micro_batch = t->micro_batch};
                        forget(paced, at);
                        return 1;
                }
                if (complete && (net->due_seconds <= 0 || t->ends < net->due_seconds))
                        net->due_seconds = t->ends;
        }
        return 0;
}

static bool paced_pending(struct net *net)
{
        return paced_of(net)->first || paced_of(net)->rest->pending(net);
}

static void paced_close(struct net *net)
{
        struct net_paced *paced = paced_of(net);
        assert(!paced->first);
        net->ops = paced->rest;
        free(paced);
        net->ops->close(net);
}

/* ---- taking over ---- */

/* How many ranks each of this one's groups has, and which of them it is. */
static void count_members(struct net *net, struct net_paced *paced)
{
        typedef int colours[NET_WORLD];
        colours *all = calloc((size_t)net->ranks, sizeof *all);
        if (!all)
                abort(); /* others wait in the gathering */
        net->ops->gather(net, net->colours, sizeof *all, all);
        net->ops->broadcast(net, all, (int64_t)sizeof *all * net->ranks, 0);
        for (int group = 0; group < NET_WORLD; group++)
                for (int i = 0; i < net->ranks; i++) {
                        const bool member = all[i][group] == net->colours[group];
                        paced->members[group] += member;
                        paced->index[group] += member && i < net->rank;
                }
        paced->members[NET_WORLD] = net->ranks;
        paced->index[NET_WORLD] = net->rank;
        free(all);
}

int net_pace(struct net *net, double bytes_per_second, struct rv_error_info *err)
{
        int rc = 0;
        if (net->local_ranks != net->ranks)
                rc = rv_fail(
                        err, RV_EPLAN,
                        "--net-link paces the ranks of one machine, %d of %d are here: a network between "
                        "machines takes what it takes",
                        net->local_ranks, net->ranks);
        rc = net_agree(net, rc, err);
        if (rc)
                return rc;
        struct net_paced *paced = calloc(1, sizeof *paced);
        if (!paced)
                abort(); /* others wait in the gathering */
        count_members(net, paced);
        paced->rest = net->ops;
        paced->ops = *net->ops;
        paced->bytes_per_second = bytes_per_second;
        paced->last = &paced->first;
        paced->ops.isend = paced_isend;
        paced->ops.ireceive = paced_ireceive;
        paced->ops.iallreduce = paced_iallreduce;
        paced->ops.ireduce_scatter = paced_ireduce_scatter;
        paced->ops.iall_gather = paced_iall_gather;
        paced->ops.iexchange = paced_iexchange;
        paced->ops.test = paced_test;
        paced->ops.pending = paced_pending;
        paced->ops.close = paced_close;
        net->ops = &paced->ops;
        return 0;
}
