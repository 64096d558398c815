/* Measures what a rank that waits takes from those that compute, where ranks share processors, for the
 * member "waiting" of a profile. A rank that waits looks at the network and yields, again and again: each
 * look is a turn of a processor's, and a system that spreads what can run over its processors takes such a
 * rank for one that computes. */
#ifndef RANVIER_CALIBRATE_CROWD_H
#define RANVIER_CALIBRATE_CROWD_H

#include "calibrate/request.h"

/* Processes of this one, as many as there would be ranks, have a CPU device each. All but one compute at a
 * time, and who has done its part hands over to the one that waits; that is held against processes that
 * never wait, one a processor. Stores which part of a rank that computes one takes that waits: 0 or more
 * (0.35 to 0.46 of four on two cores, Linux 6.18).
 *
 * `request` asks for more ranks (asked_ranks) of a CPU device than compute at once (ranks). To be called
 * before there are threads, or MPI. Errors come with a sentence: no memory or no process. */
int crowd_measure(const struct request *request, double *waiting, struct rv_error_info *err);

#endif
