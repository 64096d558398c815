#include "runtime/engine/agenda.h"

#include <stdlib.h>

static bool before(const struct agenda_entry *a, const struct agenda_entry *b)
{
        return a->seconds != b->seconds ? a->seconds < b->seconds : a->order < b->order;
}

void agenda_note(struct agenda *agenda, double seconds, void *what, unsigned serial)
{
        const struct agenda_entry entry = {seconds, agenda->order++, what, serial};
        if (agenda->count == agenda->capacity) {
                agenda->capacity = agenda->capacity ? 2 * agenda->capacity : 64;
                agenda->heap = realloc(agenda->heap, (size_t)agenda->capacity * sizeof *agenda->heap);
                if (!agenda->heap)
                        abort(); /* a driver cannot fail */
        }
        int at = agenda->count++;
        for (int above = (at - 1) / 2; at > 0 && before(&entry, &agenda->heap[above]); above = (at - 1) / 2) {
                agenda->heap[at] = agenda->heap[above];
                at = above;
        }
        agenda->heap[at] = entry;
}

bool agenda_take(struct agenda *agenda, double seconds, struct agenda_entry *entry)
{
        if (agenda->count == 0 || agenda->heap[0].seconds > seconds)
                return false;
        struct agenda_entry *heap = agenda->heap;
        *entry = heap[0];
        const struct agenda_entry last = heap[--agenda->count];
        int at = 0;
        for (int below = 1; below < agenda->count; below = 2 * at + 1) {
                if (below + 1 < agenda->count && before(&heap[below + 1], &heap[below]))
                        below++;
                if (before(&last, &heap[below]))
                        break;
                heap[at] = heap[below];
                at = below;
        }
        heap[at] = last;
        return true;
}

void agenda_free(struct agenda *agenda)
{
        free(agenda->heap);
        *agenda = (struct agenda){0};
}
