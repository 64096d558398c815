/* The fabric between nodes: its switches and links, in SimGrid XML and for closed forms. */
#ifndef RANVIER_SIM_PLATFORM_FABRIC_H
#define RANVIER_SIM_PLATFORM_FABRIC_H

#include "sim/platform/platform.h"

/* Links from switch to switch on the way from a node to another. */
int fabric_hops(const struct fabric *fabric, int from_node, int to_node);

/* What one flow gets of them at most; INFINITY: they never limit one. */
double fabric_link_rate(const struct fabric *fabric);

/* Whether all nodes are as near to each other and its links carry whatever the nodes' adapters do: one
 * switch, or a fat tree that is nowhere oversubscribed and whose hops take no time of their own. */
bool fabric_is_even(const struct fabric *fabric);

/* A group's routers are all joined with each other, so their number is squared (Aries has 96). */
enum { FABRIC_MAX_NODES = 1000000, FABRIC_MAX_ROUTERS = 512 };

/* Nodes that it can join, or more than FABRIC_MOST_NODES; 0: any number. */
int64_t fabric_nodes(const struct fabric *fabric);

/* Writes what joins the first `nodes` nodes: zones of one switch each, links, and the routes of the zones
 * "node-<i>", whose gateway is "router-<i>". */
void fabric_write_zones(const struct platform *platform, int nodes, FILE *stream);
void fabric_write_routes(const struct platform *platform, int nodes, FILE *stream);

#endif
