/* The real world: operations of the core on a device and a network. */
#ifndef RANVIER_RUNTIME_REAL_DRIVER_REAL_H
#define RANVIER_RUNTIME_REAL_DRIVER_REAL_H

#include "runtime/engine/engine.h"
#include "runtime/net/net.h"
#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"

/* Everything that an operation may need. The caller fills the first part, keeps what it points to, and puts
 * this replica's share of the batch into nn->host_tokens and host_targets. */
struct driver_real {
        struct device *device;
        struct net *net;
        struct nn_stage *nn;
        const struct optim *optim;
        struct plan plan;
        double mean;          /* 1 / tokens of the whole batch: gradients of the mean loss, */
        double loss_scale;    /* times this: the dynamic scale in mixed precision, 1 else */
        int64_t step;         /* from 0 */
        double epoch;         /* seconds; now() counts from here (the same moment on every rank) */
        bool inject_overflow; /* mixed: a gradient of this rank becomes infinite before they are checked */

        bool overflow;       /* of the last batch: it was skipped on every rank */
        bool found_overflow; /* by this rank, in its own gradients */
        struct op *ops;      /* in flight, by serial: also the token of its event or request */
        int capacity;
        int injecting; /* token of the copy of an infinity, or -1 */
};

struct driver driver_real(struct driver_real *);
void driver_real_free(struct driver_real *);

/* Runs one batch of `engine` to its end: polls the device's lanes and the network, and rests when neither has
 * news. Afterwards, on every rank, nn->scalars[NN_LOSS] is the loss summed
 * over all tokens and, unless the batch was skipped for an overflow, [NN_SQUARED_NORM] the gradients' (of a
 * plan that clips; the loss scale taken out). */
void driver_real_run(struct driver_real *, struct engine *);

/* Its parts, for a loop of one's own: begin the batch; complete an operation that has ended, if there is one
 * (false: there was none). */
void driver_real_start(struct driver_real *, struct engine *);
bool driver_real_poll(struct driver_real *, struct engine *);
/* Gives way to the lanes: until there is news of them, or it is time to look at the network. */
void driver_real_rest(struct driver_real *);

#endif
