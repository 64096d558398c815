/* Measures the offloaded optimizer phase as it runs: the real core and engine schedule fetches, updates and
 * write backs on the real device, so that they run at the same time, in the order and with the buffers of a
 * run. Each alone would take less time, because here they share the machine's memory.
 *
 * A stage in 16 bits, whose master parameters and moments lie in host memory, is opened once and then runs
 * phases of several sizes (measure.c). */
#ifndef RANVIER_CALIBRATE_PHASE_H
#define RANVIER_CALIBRATE_PHASE_H

#include "calibrate/bench.h"

struct phase;

/* Opens a device and the phase's stage on it. Returns NULL with a sentence in `err` if it cannot; else the
 * caller ends it with phase_close. */
struct phase *phase_open(const struct family_phase *family_phase, const struct request *request,
                         struct rv_error_info *err);
void phase_close(struct phase *phase);

/* Runs a phase of eight updates of `parameters` parameters each, on `ranks` ranks at once: all of the net,
 * which must all call it, or 1, this one alone. The stage must hold three such updates at least. What the
 * operations took is added to the lines fetch, offloaded_update and write_back of `samples`; NULL: it is a
 * warm-up. That is, as in a trace, from when an operation's lane could begin it until the engine heard of
 * its end, in seconds. The first two and the last two updates and their copies are left out, because they
 * have the machine almost to themselves. Each phase works on the parameters behind those of the last one,
 * which therefore are in no cache. */
void phase_run(struct phase *phase, struct net *net, int ranks, int64_t parameters, struct samples *samples);

#endif
