/* What shares processors: the ranks of a machine that has fewer, or one rank's lanes, where copies are work
 * for the processors that its kernels run on. What is under way at once is slowed down alike, as a fair
 * scheduler does it (processor sharing, Kleinrock 1967), and work is conserved: a processor is idle only
 * where nothing could compute. A rank that waits looks at the network over and over, and takes a part of what
 * one that computes takes.
 *
 * The physics of a prediction (priced.h) has one. Times are simulated seconds. */
#ifndef RANVIER_SIM_WORLD_CROWD_H
#define RANVIER_SIM_WORLD_CROWD_H

#include "sim/world/driver_sim.h"

/* What is under way on a lane, on how many processors (below 1: which part of its time it computes), and how
 * long it would take with these for its own. */
struct crowd_job {
        struct sim_lane *lane;
        double width;
        double seconds;
};

/* All zero but for the first three members at the beginning; crowd_free ends it. */
struct crowd {
        /* 0: nothing is slowed down. */
        int processors;
        int ranks;      /* 0: those that wait take nothing */
        double waiting; /* which part of a rank that computes one takes that waits; calibrate measures it */
        /* [count]; `seconds` are as they were at `since`. */
        struct crowd_job *jobs;
        int count, capacity;
        double since;
};

/* Begins what a lane has under way, on `width` processors, and says when it ends, which changes as others
 * begin and end. */
void crowd_begin(struct crowd *crowd, struct sim_lane *lane, double width, double seconds);
/* Must be called when the lane's operation ends, before another one begins; does nothing if it is none of
 * the crowd's. */
void crowd_end(struct crowd *crowd, const struct sim_lane *lane);
void crowd_free(struct crowd *crowd);

#endif
