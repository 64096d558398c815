/* The driver of the real world: it carries out the operations of the scheduling core on a device and a
 * network. Kernels and copies go to the device's lanes, messages and collectives to the net; when one of them
 * completes, the engine (runtime/engine/engine.h) is told, which asks the core what comes next. Simulations
 * have another driver for the same core. All of it runs on one thread, the one that opened the net.
 *
 * The trainer uses driver_real_run; benchmarks use the parts of it, to time them. */
#ifndef RANVIER_RUNTIME_REAL_DRIVER_REAL_H
#define RANVIER_RUNTIME_REAL_DRIVER_REAL_H

#include "runtime/engine/engine.h"
#include "runtime/net/net.h"
#include "runtime/nn/nn.h"
#include "runtime/optim/optim.h"
#include "runtime/real/staged.h"

/* What keeps checkpoints (keep.h), to which OP_SNAPSHOT and OP_WRITE go. */
struct driver_saver {
        /* Whether a checkpoint follows the batch whose sums are in nn->scalars: the same on all ranks. */
        bool (*due)(void *context);
        /* Copies this rank's share to host memory, on the device's lane for that or before it returns. */
        void (*copy)(void *context);
        /* Begins to write the copy to a file, on a thread; and returns whether that is over. */
        void (*write)(void *context);
        bool (*written)(void *context);
        void *context;
};

/* Everything that an operation may need. The caller fills the first part, keeps what it points to until the
 * driver is freed, and leaves the second part zero. Before each batch it puts this replica's share of the
 * tokens into nn->host_tokens and nn->host_targets. */
struct driver_real {
        struct device *device;
        struct net *net;
        struct nn_stage *nn;
        const struct optim *optim;
        struct plan plan;
        /* One over the tokens of the whole batch: gradients are those of the mean loss. */
        double mean;
        /* What gradients are multiplied with besides: the dynamic scale in mixed precision, else 1. */
        double loss_scale;
        int64_t step;            /* from 0, for the learning rate and the moments' bias correction */
        struct core_units units; /* zero 2 and 3 */
        struct staged *staged; /* with nn->host_shards: collectives of shards; driver_real_free deletes it */
        double epoch; /* on device_seconds' clock, the same moment on every rank: times count from here */
        /* For tests of mixed precision: a gradient of this rank becomes infinite before they are checked. */
        bool inject_overflow;

        /* What this rank tells the others with a batch: it wants a checkpoint behind it; it has written its
         * part of the last one; and, where it is not NULL, what is 1 if it was asked to stop, which a
         * signal's handler may set. */
        bool saves, written;
        const volatile int *stops;
        const struct driver_saver *saver; /* NULL: no checkpoints are kept */
        int writing; /* the serial of the OP_WRITE under way, if core_writing says that there is one */

        bool overflow;       /* gradients overflowed on some rank: the last batch updated nothing */
        bool found_overflow; /* they did on this rank */
        double losses[8 *
                      sizeof(int)]; /* of logical replicas: sums that wait, by level (core_logical_sums) */
        /* Operations under way, indexed by their serial, which is also the token of their event or
         * request. */
        struct op *ops;
        int *events; /* of each: how many of its events or requests have still to complete */
        int capacity;
        int injecting; /* token of the copy that writes an infinity, or -1 */
        /* An exchange of rows whose counts are on their way to the host, and its token; -1: there is none. */
        struct nn_collective counted;
        int counting;
        /* Of spread experts: the largest share of a layer's rows that a rank had, as a multiple of an even
         * one: the sum over so many exchanges, and the largest. */
        double load_sum, load_max;
        int64_t loads;
};

/* Returns the driver for engine_init. The struct driver_real stays the caller's, and is used as long as
 * the engine. */
struct driver driver_real(struct driver_real *);

/* Frees what the driver allocated, which is the table of operations, and `staged`. */
void driver_real_free(struct driver_real *);

/* Runs one batch of `engine` to its end: polls the device's lanes and the network, and rests when neither has
 * news. Every rank must run the same batch. Afterwards, on every rank, nn->scalars[NN_LOSS] is the loss
 * summed over all tokens of the batch, [NN_STOPS], [NN_SAVES] and [NN_WRITTEN] are how many ranks told that,
 * and, unless the batch was skipped for an overflow, [NN_SQUARED_NORM] is
 * the squared norm of all gradients, without the loss scale (only of a plan that clips). */
void driver_real_run(struct driver_real *, struct engine *);

/* Waits until a checkpoint that is being written is written. Behind the last batch. */
void driver_real_finish_writing(struct driver_real *, struct engine *);

/* The parts of driver_real_run, for a caller with a loop of its own. driver_real_start begins a batch.
 * driver_real_poll looks for an operation that has ended and tells the engine; it returns false if there was
 * none, and never blocks. driver_real_rest gives the processor to the device's lanes until there is news of
 * them, or until it is time to look at the network. The batch is over when engine_done says so. */
void driver_real_start(struct driver_real *, struct engine *);
bool driver_real_poll(struct driver_real *, struct engine *);
void driver_real_rest(struct driver_real *);

#endif
