/* Switches are zones of one router each under the top zone, whose routing finds the shortest way, so that XML
 * and routes grow with switches and links. A fat tree is a tree here: what many switches of one place carry
 * together, its trunk carries (as if packets were spread over them evenly). */
#include "sim/platform/fabric.h"

#include "runtime/base/minmax.h"

#include <math.h>
#include <stdlib.h>

/* What SimGrid wants on a route where nothing limits. */
#define UNLIMITED "bandwidth=\"1e18Bps\" latency=\"0s\" sharing_policy=\"FATPIPE\""

int64_t fabric_nodes(const struct fabric *f)
{
        int64_t nodes = f->kind == FABRIC_DRAGONFLY ? (int64_t)f->groups * f->routers * f->router_nodes : 0;
        if (f->kind == FABRIC_TORUS) {
                nodes = 1;
                for (int i = 0; i < f->levels && nodes <= FABRIC_MAX_NODES; i++)
                        nodes *= f->shape[i];
        }
        return nodes;
}

double fabric_link_rate(const struct fabric *f)
{
        return f->kind == FABRIC_TORUS       ? f->link_bytes_per_second
               : f->kind == FABRIC_DRAGONFLY ? fmin(f->link_bytes_per_second, f->global_link_bytes_per_second)
                                             : INFINITY;
}

bool fabric_is_even(const struct fabric *f)
{
        bool even = f->kind == FABRIC_SWITCH || (f->kind == FABRIC_FAT_TREE && f->hop_seconds == 0);
        for (int i = 0; f->kind == FABRIC_FAT_TREE && i < f->levels; i++)
                even = even && f->oversubscription[i] <= 1;
        return even;
}

/* ---- ways ---- */

static int tree_hops(const struct fabric *f, int a, int b)
{
        int hops = 0;
        for (int level = 0; level < f->levels; level++) {
                a /= f->below[level];
                b /= f->below[level];
                if (a == b)
                        return hops;
                hops += 2; /* up from either */
        }
        return hops;
}

static int torus_hops(const struct fabric *f, int a, int b)
{
        int hops = 0;
        for (int i = 0; i < f->levels; i++) {
                int apart = abs(a % f->shape[i] - b % f->shape[i]);
                hops += min_int(apart, f->shape[i] - apart);
                a /= f->shape[i];
                b /= f->shape[i];
        }
        return hops;
}

/* The router of `group` that has its link to group `other`. */
static int global_router(const struct fabric *f, int group, int other)
{
        return (other < group ? other : other - 1) % f->routers;
}

static int dragonfly_hops(const struct fabric *f, int a, int b)
{
        int from = a / f->router_nodes, to = b / f->router_nodes;
        int from_group = from / f->routers, to_group = to / f->routers;
        if (from_group == to_group)
                return from != to;
        return 1 + (from % f->routers != global_router(f, from_group, to_group)) +
               (to % f->routers != global_router(f, to_group, from_group));
}

int fabric_hops(const struct fabric *f, int from_node, int to_node)
{
        switch (f->kind) {
        case FABRIC_FAT_TREE:
                return tree_hops(f, from_node, to_node);
        case FABRIC_TORUS:
                return torus_hops(f, from_node, to_node);
        case FABRIC_DRAGONFLY:
                return dragonfly_hops(f, from_node, to_node);
        default:
                return 0;
        }
}

/* ---- zones ---- */

static void write_switch(FILE *stream, int level, int index)
{
        fprintf(stream, "  <zone id=\"switch-%d-%d\" routing=\"Full\"><router id=\"port-%d-%d\"/></zone>\n",
                level, index, level, index);
}

/* The way of a message may lead past nodes that no rank touches, but not further along a dimension than ranks
 * are, if those are in one half of it, nor along the next ones. */
static int torus_switches(const struct fabric *f, int nodes)
{
        int count = 1;
        for (int i = 0; i < f->levels && count < nodes; i++) {
                const int reached = (nodes + count - 1) / count;
                count *= 2 * (reached - 1) <= f->shape[i] ? min_int(reached, f->shape[i]) : f->shape[i];
        }
        return count;
}

/* Switches of a level that lead to the first `nodes` nodes: 0, those that nodes hang on. */
static int switches(const struct fabric *f, int nodes, int level)
{
        int64_t each = 1;
        switch (f->kind) {
        case FABRIC_FAT_TREE:
                if (level == f->levels)
                        return 1;
                for (int i = 0; i <= level; i++)
                        each *= f->below[i];
                return (int)((nodes + each - 1) / each);
        case FABRIC_TORUS:
                return level == 0 ? torus_switches(f, nodes) : 0;
        case FABRIC_DRAGONFLY: /* it does not leave the groups of its ends */
                each = (int64_t)f->routers * f->router_nodes;
                return level == 0 ? (int)((nodes + each - 1) / each) * f->routers : 0;
        default:
                return level == 0 ? 1 : 0;
        }
}

static int top_level(const struct fabric *f)
{
        return f->kind == FABRIC_FAT_TREE ? f->levels : 0;
}

void fabric_write_zones(const struct platform *p, int nodes, FILE *stream)
{
        for (int level = 0; level <= top_level(&p->fabric); level++)
                for (int i = 0; i < switches(&p->fabric, nodes, level); i++)
                        write_switch(stream, level, i);
}

/* ---- links and routes: SimGrid wants all links of a zone before its routes, so all is gone through twice
 * ---- */

enum pass { LINKS, ROUTES };

struct writing {
        const struct platform *platform;
        FILE *stream;
        enum pass pass;
};

/* Both directions between two switches. */
static void write_cable(const struct writing *w, int from_level, int from, int to_level, int to, double rate)
{
        if (w->platform->folded_tp > 0)
                rate /= w->platform->folded_tp; /* the others take the same way */
        for (int back = 0; back < 2; back++) {
                int a_level = back ? to_level : from_level, a = back ? to : from;
                int b_level = back ? from_level : to_level, b = back ? from : to;
                if (w->pass == LINKS)
                        fprintf(w->stream,
                                "  <link id=\"cable-%d-%d-%d-%d\" bandwidth=\"%.17gBps\" "
                                "latency=\"%.17gs\"/>\n",
                                a_level, a, b_level, b, rate, w->platform->fabric.hop_seconds);
                else
                        fprintf(w->stream,
                                "  <zoneRoute src=\"switch-%d-%d\" dst=\"switch-%d-%d\" "
                                "gw_src=\"port-%d-%d\" "
                                "gw_dst=\"port-%d-%d\" symmetrical=\"NO\"><link_ctn "
                                "id=\"cable-%d-%d-%d-%d\"/></zoneRoute>\n",
                                a_level, a, b_level, b, a_level, a, b_level, b, a_level, a, b_level, b);
        }
}

static void write_node_link(const struct writing *w, int node, int index)
{
        if (w->pass == LINKS)
                fprintf(w->stream, "  <link id=\"fabric-%d\" " UNLIMITED "/>\n", node);
        else
                fprintf(w->stream,
                        "  <zoneRoute src=\"node-%d\" dst=\"switch-0-%d\" gw_src=\"router-%d\" "
                        "gw_dst=\"port-0-%d\"><link_ctn id=\"fabric-%d\"/></zoneRoute>\n",
                        node, index, node, index, node);
}

static void write_trunks(const struct writing *w, int nodes)
{
        const struct fabric *f = &w->platform->fabric;
        double below = 1;
        for (int level = 0; level < f->levels; level++) {
                below *= f->below[level];
                double rate = below * w->platform->nic_bytes_per_second / f->oversubscription[level];
                for (int i = 0; i < switches(f, nodes, level); i++)
                        write_cable(w, level, i, level + 1,
                                    level + 1 < f->levels ? i / f->below[level + 1] : 0, rate);
        }
}

static void write_torus(const struct writing *w, int nodes)
{
        const struct fabric *f = &w->platform->fabric;
        int count = torus_switches(f, nodes), stride = 1;
        for (int i = 0; i < f->levels; stride *= f->shape[i++])
                for (int node = 0; node < count; node++) {
                        int at = node / stride % f->shape[i];
                        if (f->shape[i] == 1 || (f->shape[i] == 2 && at == 1)) /* both ways are one */
                                continue;
                        int next = node + ((at + 1) % f->shape[i] - at) * stride;
                        if (next < count)
                                write_cable(w, 0, node, 0, next, f->link_bytes_per_second);
                }
}

static void write_dragonfly(const struct writing *w, int nodes)
{
        const struct fabric *f = &w->platform->fabric;
        int groups = switches(f, nodes, 0) / f->routers;
        for (int g = 0; g < groups; g++) {
                for (int i = 0; i < f->routers; i++)
                        for (int j = i + 1; j < f->routers; j++)
                                write_cable(w, 0, g * f->routers + i, 0, g * f->routers + j,
                                            f->link_bytes_per_second);
                for (int other = g + 1; other < groups; other++)
                        write_cable(w, 0, g * f->routers + global_router(f, g, other), 0,
                                    other * f->routers + global_router(f, other, g),
                                    f->global_link_bytes_per_second);
        }
}

void fabric_write_routes(const struct platform *p, int nodes, FILE *stream)
{
        const struct fabric *f = &p->fabric;
        const int nodes_each = f->kind == FABRIC_FAT_TREE    ? f->below[0]
                               : f->kind == FABRIC_TORUS     ? 1
                               : f->kind == FABRIC_DRAGONFLY ? f->router_nodes
                                                             : nodes;
        for (enum pass pass = LINKS; pass <= ROUTES; pass++) {
                const struct writing w = {p, stream, pass};
                for (int node = 0; node < nodes; node++)
                        write_node_link(&w, node, node / nodes_each);
                if (f->kind == FABRIC_FAT_TREE)
                        write_trunks(&w, nodes);
                if (f->kind == FABRIC_TORUS)
                        write_torus(&w, nodes);
                if (f->kind == FABRIC_DRAGONFLY)
                        write_dragonfly(&w, nodes);
        }
}
