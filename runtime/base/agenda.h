/* An agenda: a priority queue of future events, kept as a binary heap. The simulated worlds (sim/world and
 * runtime/engine/paper.c) note when something will happen and take the events out again in order of time.
 * Events of the same time come out in the order in which they were noted, so a simulation gives the same
 * result every time. The agenda knows nothing of what an event means, and cannot remove one before its time:
 * see `serial`. */
#ifndef RANVIER_RUNTIME_BASE_AGENDA_H
#define RANVIER_RUNTIME_BASE_AGENDA_H

#include <stdbool.h>
#include <stdint.h>

/* One event, as it was noted. */
struct agenda_entry {
        double seconds; /* when it happens, on the caller's clock */
        uint64_t order; /* set by agenda_note: which of the events of one time comes first */
        void *what;     /* the caller's; the agenda does not look at it */
        /* The caller's, too. A caller that notes a later version of an event gives it another serial, and
         * ignores the entry with the old one when that comes out. */
        unsigned serial;
};

/* Begins as all zeros, which is an empty agenda. Callers use the functions below, not the members. */
struct agenda {
        struct agenda_entry *heap;
        int count, capacity;
        uint64_t order;
};

/* Adds an event, in time logarithmic in the number of events. The program ends (abort) if there is no memory,
 * because the drivers that call this have no way to report a failure. */
void agenda_note(struct agenda *agenda, double seconds, void *what, unsigned serial);

/* Moves the earliest event into `entry` and returns true. Returns false, and leaves `entry` alone, if there
 * is none or if it is later than `seconds`. */
bool agenda_take(struct agenda *agenda, double seconds, struct agenda_entry *entry);

/* Frees the heap and leaves an empty agenda, which can be used again. */
void agenda_free(struct agenda *agenda);

#endif
