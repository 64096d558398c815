/* A net whose ranks have a slow link each, for experiments on one machine (ranvier train --net-link). What is
 * posted goes its way through the net below as fast as that can, but test() tells of its end no earlier than
 * the link would have carried it. No processor is held meanwhile.
 *
 * A link has no latency and two directions. In each direction it carries one transfer at a time, in the order
 * in which they can begin, and each at the full rate. A message of b bytes occupies its sender's link
 * outwards for b / rate from when it is sent, whether or not its receive has been posted, and its receiver's
 * link inwards for as long. A collective of p members begins when the last member has come to it and the one
 * before it in the group is over; it occupies both directions of each member's link for what a ring sends: a
 * reduce-scatter or an all-gather of b bytes (p - 1) / p b, an all-reduce twice that, an exchange of rows the
 * larger of what goes to others and what comes from them. Blocking functions are not paced. */
#ifndef RANVIER_RUNTIME_NET_PACED_H
#define RANVIER_RUNTIME_NET_PACED_H

#include "runtime/net/net.h"

/* Replaces net->ops, and keeps net->due_seconds from then on. Collective; after net_mpi_groups, while nothing
 * is pending. Returns RV_EPLAN on every rank if the ranks are on several machines, whose clocks differ. */
int net_pace(struct net *, double bytes_per_second, struct rv_error_info *err);

#endif
