#include "runtime/engine/ledger.h"

#include <assert.h>
#include <stdlib.h>

void ledger_init(struct ledger *ledger, bool record)
{
        *ledger = (struct ledger){.record = record};
}

void ledger_free(struct ledger *ledger)
{
        free(ledger->changes);
        *ledger = (struct ledger){0};
}

static void record_change(struct ledger *ledger, struct ledger_change change)
{
        if (ledger->count == ledger->capacity) {
                int64_t capacity = ledger->capacity ? 2 * ledger->capacity : 256;
                struct ledger_change *grown =
                        realloc(ledger->changes, (size_t)capacity * sizeof *ledger->changes);
                if (!grown) /* the peaks stay right; only the course over time ends here */
                        return;
                ledger->changes = grown;
                ledger->capacity = capacity;
        }
        ledger->changes[ledger->count++] = change;
}

void ledger_add(struct ledger *ledger, enum memory_category category, int64_t bytes, double seconds)
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
        if (ledger->record)
                record_change(ledger, (struct ledger_change){seconds, category, ledger->bytes[category]});
}
