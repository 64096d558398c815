/* The only door between the core and a world. */
#ifndef RANVIER_RUNTIME_ENGINE_DRIVER_H
#define RANVIER_RUNTIME_ENGINE_DRIVER_H

#include "runtime/sched/op.h"

/* A world promises to call engine_complete once for every operation it was issued, from outside issue(). */
struct driver {
        /* Starts `op` on its lane after those issued there before. Never blocks, never calls the engine,
         * copies the op. It cannot fail: a world that breaks down ends the program. */
        void (*issue)(void *world, const struct op *op);
        /* Seconds since a moment that all ranks share. */
        double (*now)(void *world);
        void *world;
};

#endif
