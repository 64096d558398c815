/* What SimGrid's C API lacks: flows and alarms that call back when they end, without an actor that waits for
 * them. An actor costs a stack and two context switches a message; these cost neither. All callbacks run
 * between SimGrid's own steps, one at a time, never inside a call to this module. */
#ifndef RANVIER_SIM_WORLD_FLOW_H
#define RANVIER_SIM_WORLD_FLOW_H

#include <simgrid/forward.h>

#ifdef __cplusplus
extern "C" {
#endif

struct flow_listener {
        void (*ended)(void *context, void *what); /* the flow that was started for `what` has ended */
        void (*alarm)(void *context);             /* the moment has come that it was set to */
        void *context;
};

/* Who is told; one a process, as SimGrid is. */
void flow_listen(struct flow_listener listener);

/* `bytes` begin to go from one host to another. Only from a callback, or before the simulation runs: of a
 * flow that an actor starts SimGrid tells nobody. `what` is not NULL. */
void flow_start(sg_host_t from, sg_host_t to, double bytes, void *what);

/* In an actor: sg_host_sendto without waiting; the actor waits for it (sg_comm_wait_all), and is told. */
sg_comm_t flow_start_in_actor(sg_host_t from, sg_host_t to, double bytes);

/* Sets the alarm, of which there is one, to this moment, which is not past. From an actor too. */
void flow_alarm(double seconds);

/* Simulated seconds since the simulation began. */
double flow_now(void);

#ifdef __cplusplus
}
#endif

#endif
