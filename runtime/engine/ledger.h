/* Bytes in use on one device by category over time, and their peaks. */
#ifndef RANVIER_RUNTIME_ENGINE_LEDGER_H
#define RANVIER_RUNTIME_ENGINE_LEDGER_H

#include "models/memory.h"

struct ledger_change {
        double seconds;
        enum memory_category category;
        int64_t bytes; /* in use in this category from now on */
};

struct ledger {
        int64_t bytes[MEMORY_CATEGORIES]; /* in use now */
        int64_t peak[MEMORY_CATEGORIES];  /* of each category */
        int64_t total_peak;               /* of their sum */
        struct ledger_change *changes;    /* kept if `record` */
        int64_t count, capacity;
        bool record;
};

void ledger_init(struct ledger *ledger, bool record);
void ledger_free(struct ledger *ledger);
/* Adds (or, negative, takes away) bytes; a category never goes below zero. */
void ledger_add(struct ledger *ledger, enum memory_category category, int64_t bytes, double seconds);

#endif
