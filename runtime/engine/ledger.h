/* The bytes that one rank uses, on its device and on the host, by category, and their peaks. The engine
 * keeps the part that comes and goes during a batch; a world adds the rest when it begins. Their course over
 * time goes into the trace. Real runs and simulations report the peaks, which are compared with
 * memory_stage. */
#ifndef RANVIER_RUNTIME_ENGINE_LEDGER_H
#define RANVIER_RUNTIME_ENGINE_LEDGER_H

#include "models/memory.h"

struct ledger {
        struct memory_bytes bytes;         /* in use now */
        struct memory_bytes peak;          /* the most that each category had */
        int64_t total_peak[MEMORY_SPACES]; /* the most that all categories of a space had together */
};

/* Begins with nothing in use. */
void ledger_init(struct ledger *ledger);
/* Adds bytes to a category, or takes them away if they are negative; a category must not fall below zero. */
void ledger_add(struct ledger *ledger, enum memory_space space, enum memory_category category, int64_t bytes);
/* Adds all of `bytes` but what comes and goes during a batch: activations, and messages on the device.
 * Messages that are staged on the host are added here, as a whole. */
void ledger_add_fixed(struct ledger *ledger, const struct memory_bytes *bytes);

#endif
