#include "runtime/engine/ledger.h"

#include <assert.h>

void ledger_init(struct ledger *ledger)
{
        *ledger = (struct ledger){0};
}

void ledger_add(struct ledger *ledger, enum memory_space space, enum memory_category category, int64_t bytes)
{
        int64_t *now = &ledger->bytes.in[space][category], *peak = &ledger->peak.in[space][category];
        *now += bytes;
        assert(*now >= 0);
        if (*now > *peak)
                *peak = *now;
        int64_t total = memory_total(&ledger->bytes, space);
        if (total > ledger->total_peak[space])
                ledger->total_peak[space] = total;
}

void ledger_add_fixed(struct ledger *ledger, const struct memory_bytes *bytes)
{
        for (int space = 0; space < MEMORY_SPACES; space++)
                for (int i = 0; i < MEMORY_CATEGORIES; i++)
                        if (i != MEMORY_ACTIVATIONS && (i != MEMORY_MESSAGES || space == MEMORY_HOST))
                                ledger_add(ledger, (enum memory_space)space, (enum memory_category)i,
                                           bytes->in[space][i]);
}
