/* The real world: operations of the core on a device and a network. */
#ifndef RANVIER_RUNTIME_DRIVER_REAL_H
#define RANVIER_RUNTIME_DRIVER_REAL_H

#include "runtime/engine/engine.h"
#include "runtime/net/net.h"
#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"

/* Everything that an operation may need. The caller fills the first part, and keeps what it points to. */
struct driver_real {
        struct device *device;
        struct net *net;
        struct nn_stage *nn;
        const struct optim *optim;
        struct plan plan;
        const int32_t *host_tokens,
                *host_targets; /* of this replica's share of the batch: (micro_batches, B, T) */
        double loss_scale;     /* 1 / tokens of the whole batch: gradients of the mean loss */
        int64_t step;          /* from 0 */
        double epoch;          /* seconds; now() counts from here (the same moment on every rank) */

        struct op *ops; /* in flight, by serial: also the token of its event or request */
        int capacity;
};

struct driver driver_real(struct driver_real *);
void driver_real_free(struct driver_real *);

/* Runs one batch of `engine` to its end: polls the device's lanes and the network, giving way to the lanes
 * (sched_yield) when neither has news. Afterwards nn->scalars holds, on every rank, [0] the loss summed over
 * all tokens, [1] the squared gradient norm, [2] the factor that the gradients were clipped with. */
void driver_real_run(struct driver_real *, struct engine *);

#endif
