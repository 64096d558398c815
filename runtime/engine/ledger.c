#include "runtime/engine/ledger.h"

#include <assert.h>

void ledger_init(struct ledger *ledger)
{
        *ledger = (struct ledger){0};
}

void ledger_add(struct ledger *ledger, enum memory_category category, int64_t bytes)
{
        ledger->bytes[category] += bytes;
        assert(ledger->bytes[category] >= 0);
        if (ledger->bytes[category] > ledger->peak[category])
                ledger->peak[category] = ledger->bytes[category];
        int64_t total = 0;
        for (int i = 0; i < MEMORY_CATEGORIES; i++)
                total += ledger->bytes[i];
        if (total > ledger->total_peak)
                ledger->total_peak = total;
}
