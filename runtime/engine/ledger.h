/* Bytes in use on one device by category, and their peaks. Their course over time goes into the trace. */
#ifndef RANVIER_RUNTIME_ENGINE_LEDGER_H
#define RANVIER_RUNTIME_ENGINE_LEDGER_H

#include "models/memory.h"

struct ledger {
        int64_t bytes[MEMORY_CATEGORIES]; /* in use now */
        int64_t peak[MEMORY_CATEGORIES];  /* of each category */
        int64_t total_peak;               /* of their sum */
};

void ledger_init(struct ledger *ledger);
/* Adds (or, negative, takes away) bytes; a category never goes below zero. */
void ledger_add(struct ledger *ledger, enum memory_category category, int64_t bytes);

#endif
