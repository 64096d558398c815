/* The fabric between the nodes of a platform: which switches and links a message between nodes crosses.
 *
 * The module answers two kinds of questions about a struct fabric: the closed forms ask for hops and for the
 * rate of a link (collective_model.c, fold.c), and platform_xml.c asks for SimGrid XML. It does not describe
 * what is inside a node, nor the rails that join a node to the fabric; platform_xml.c writes those. */
#ifndef RANVIER_SIM_PLATFORM_FABRIC_H
#define RANVIER_SIM_PLATFORM_FABRIC_H

#include "sim/platform/platform.h"

/* Returns how many links between switches a message crosses on the shortest way from one node to another; 0
 * if both hang on the same switch. Each such link takes fabric->hop_seconds. */
int fabric_hops(const struct fabric *fabric, int from_node, int to_node);

/* Returns the bytes per second that one flow alone gets at most on the links between switches. INFINITY means
 * that they never limit a single flow, as with one switch and with the trunks of a fat tree. */
double fabric_link_rate(const struct fabric *fabric);

/* Says whether all nodes are equally near to each other and the links carry whatever the nodes' adapters
 * send: one switch, or a fat tree that is nowhere oversubscribed and whose hops take no time of their own.
 * Folding of replicas requires it. */
bool fabric_is_even(const struct fabric *fabric);

/* Limits of what a platform file may ask for. The routers of a dragonfly's group are all joined with each
 * other, so that the links grow with the square of their number (Aries has 96). */
enum { FABRIC_MAX_NODES = 1000000, FABRIC_MAX_ROUTERS = 512 };

/* Returns how many nodes the fabric has places for, or some number above FABRIC_MAX_NODES if there are more
 * than that; 0 means any number, as with one switch and a fat tree. */
int64_t fabric_nodes(const struct fabric *fabric);

/* Write the SimGrid XML of what joins the first `nodes` nodes of the platform to `stream`: fabric_write_zones
 * the switches, a zone with one router each, and fabric_write_routes the links and then the routes. In
 * between the caller writes the zones of the nodes, "node-<i>", whose gateway is the router "router-<i>".
 * Errors of the stream are left for the caller to check. */
void fabric_write_zones(const struct platform *platform, int nodes, FILE *stream);
void fabric_write_routes(const struct platform *platform, int nodes, FILE *stream);

#endif
