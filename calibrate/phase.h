/* The offloaded optimizer phase as it runs: the real core and engine schedule it, so that fetches, updates
 * and write backs run at the same time, in the order and with the buffers of a run. */
#ifndef RANVIER_CALIBRATE_PHASE_H
#define RANVIER_CALIBRATE_PHASE_H

#include "calibrate/bench.h"

struct phase;

/* Opens a device and the phase's stage on it. NULL with a sentence. */
struct phase *phase_open(const struct family_phase *family_phase, const struct request *request,
                         struct rv_error_info *err);
void phase_close(struct phase *phase);

/* Runs a phase of some updates of `parameters` each, on `ranks` ranks at once (all of the net, or this one
 * alone), and adds what its operations took to the lines fetch, offloaded_update and write_back of `samples`,
 * unless that is NULL (a warm-up). From when its lane could begin to the engine's knowing that it ended, as
 * in a trace. Without the first and the last operations, which have the machine almost to themselves. */
void phase_run(struct phase *phase, struct net *net, int ranks, int64_t parameters, struct samples *samples);

#endif
