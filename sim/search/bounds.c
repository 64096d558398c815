#include "sim/search/bounds.h"

#include "runtime/base/memo.h"

#include <string.h>

enum { EMPTY, BEING_WRITTEN, WRITTEN };
enum { ENTRIES = sizeof((struct bounds *)0)->entries / sizeof((struct bounds *)0)->entries[0], NEAR = 16 };

bool bounds_find(const struct bounds *bounds, const double key[BOUND_KEYS], double *seconds)
{
        const uint64_t first = memo_hash(key, BOUND_KEYS);
        for (uint64_t nth = 0; nth < NEAR; nth++) {
                const size_t at = (first + nth) % ENTRIES;
                const int state = atomic_load_explicit(&bounds->entries[at].state, memory_order_acquire);
                if (state == EMPTY)
                        return false;
                if (state == WRITTEN &&
                    memcmp(bounds->entries[at].key, key, sizeof bounds->entries[at].key) == 0) {
                        *seconds = bounds->entries[at].seconds;
                        return true;
                }
        }
        return false;
}

void bounds_keep(struct bounds *bounds, const double key[BOUND_KEYS], double seconds)
{
        const uint64_t first = memo_hash(key, BOUND_KEYS);
        for (uint64_t nth = 0; nth < NEAR; nth++) {
                const size_t at = (first + nth) % ENTRIES;
                int empty = EMPTY;
                if (!atomic_compare_exchange_strong(&bounds->entries[at].state, &empty, BEING_WRITTEN))
                        continue;
                memcpy(bounds->entries[at].key, key, sizeof bounds->entries[at].key);
                bounds->entries[at].seconds = seconds;
                atomic_store_explicit(&bounds->entries[at].state, WRITTEN, memory_order_release);
                return;
        }
}
