/* What SimGrid's C API lacks: flows and alarms that call back when they end, without an actor that waits for
 * them. An actor costs a stack and two context switches a message; these cost neither. All callbacks run
 * between SimGrid's own steps, one at a time, never inside a call to this module.
 *
 * driver_sim.c is the listener and starts flows for messages and copies; collective.c starts flows in
 * actors. */
#ifndef RANVIER_SIM_WORLD_FLOW_H
#define RANVIER_SIM_WORLD_FLOW_H

#include <simgrid/forward.h>

#ifdef __cplusplus
extern "C" {
#endif

struct flow_listener {
        /* Called when the flow that was started for `what` has ended. */
        void (*ended)(void *context, void *what);
        /* Called when the moment has come that the alarm was set to. */
        void (*alarm)(void *context);
        void *context;
};

/* Sets who is told. There is one listener in a process, as there is one SimGrid; a second call replaces
 * it. */
void flow_listen(struct flow_listener listener);

/* Starts a flow of `bytes` from one host to another and returns at once. May be called from a callback or
 * before the simulation runs, not from an actor: SimGrid does not call back for a flow that an actor starts.
 * `what` must not be NULL. */
void flow_start(sg_host_t from, sg_host_t to, double bytes, void *what);

/* The same in an actor, which must wait for the communication (sg_comm_wait_all); the listener is not told of
 * its end. */
sg_comm_t flow_start_in_actor(sg_host_t from, sg_host_t to, double bytes);

/* Sets the one alarm to this moment in simulated seconds, which must not be past, instead of the moment that
 * it was set to before. May be called from an actor too. */
void flow_alarm(double seconds);

/* Returns the simulated seconds since the simulation began. */
double flow_now(void);

#ifdef __cplusplus
}
#endif

#endif
