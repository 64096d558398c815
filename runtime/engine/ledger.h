/* Bytes that one rank uses, on its device and on the host, by category, and their peaks. Their course over
 * time goes into the trace. */
#ifndef RANVIER_RUNTIME_ENGINE_LEDGER_H
#define RANVIER_RUNTIME_ENGINE_LEDGER_H

#include "models/memory.h"

struct ledger {
        struct memory_bytes bytes;         /* in use now */
        struct memory_bytes peak;          /* of each category */
        int64_t total_peak[MEMORY_SPACES]; /* of their sums */
};

void ledger_init(struct ledger *ledger);
/* Adds (or, negative, takes away) bytes; a category never goes below zero. */
void ledger_add(struct ledger *ledger, enum memory_space space, enum memory_category category, int64_t bytes);
/* Adds all of `bytes` but what comes and goes during a batch: activations, and messages on the device (those
 * that staging has on the host are used beside them, and count as a whole). */
void ledger_add_fixed(struct ledger *ledger, const struct memory_bytes *bytes);

#endif
