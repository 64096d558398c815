/* The only door between the core and a world. A world carries operations out: real devices and MPI
 * (runtime/real), SimGrid (sim), a cluster on paper (paper.h), a rank's optimizer that is measured
 * (calibrate). The engine (engine.h) hands it operations by a struct driver, and it reports each end by
 * engine_complete. */
#ifndef RANVIER_RUNTIME_ENGINE_DRIVER_H
#define RANVIER_RUNTIME_ENGINE_DRIVER_H

#include "runtime/sched/op.h"

/* A world of one rank. It promises to call engine_complete once for every operation that it was issued, from
 * outside issue(). */
struct driver {
        /* Starts `op` on its lane, after those that were issued there before. It copies the op, never blocks
         * and never calls the engine. It cannot fail: a world that breaks down ends the program. */
        void (*issue)(void *world, const struct op *op);
        /* Returns seconds since a moment that all ranks share. */
        double (*now)(void *world);
        void *world; /* the first argument of both; it stays the world's own */
};

#endif
