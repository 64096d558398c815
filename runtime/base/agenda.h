/* What will happen when: a heap of moments. What falls on one moment happens in the order in which it was
 * noted, so that a simulation is the same every time. */
#ifndef RANVIER_RUNTIME_BASE_AGENDA_H
#define RANVIER_RUNTIME_BASE_AGENDA_H

#include <stdbool.h>
#include <stdint.h>

struct agenda_entry {
        double seconds;
        uint64_t order;
        void *what;
        unsigned serial; /* the noter's, to know an entry that it has given up */
};

struct agenda {
        struct agenda_entry *heap;
        int count, capacity;
        uint64_t order;
};

void agenda_note(struct agenda *agenda, double seconds, void *what, unsigned serial);

/* The first entry, if it is not later than `seconds`. */
bool agenda_take(struct agenda *agenda, double seconds, struct agenda_entry *entry);

void agenda_free(struct agenda *agenda);

#endif
