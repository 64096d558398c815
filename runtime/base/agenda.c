#include "runtime/base/agenda.h"

#include <stdlib.h>

/* Without a jump, which would be mispredicted half of the time. */
static bool before(const struct agenda_entry *a, const struct agenda_entry *b)
{
        return (a->seconds < b->seconds) | ((a->seconds == b->seconds) & (a->order < b->order));
}

/* Puts the entry into the hole at `at`, or above it. */
static void rise(struct agenda_entry *heap, int at, const struct agenda_entry *entry)
{
        const struct agenda_entry risen = *entry;
        for (int above = (at - 1) / 2; at > 0 && before(&risen, &heap[above]); above = (at - 1) / 2) {
                heap[at] = heap[above];
                at = above;
        }
        heap[at] = risen;
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
        rise(agenda->heap, agenda->count++, &entry);
}

/* The last entry nearly always belongs near the bottom again: the hole that the first leaves goes all the way
 * down, one comparison a level, and the entry up from there. */
bool agenda_take(struct agenda *agenda, double seconds, struct agenda_entry *entry)
{
        if (agenda->count == 0 || agenda->heap[0].seconds > seconds)
                return false;
        struct agenda_entry *heap = agenda->heap;
        *entry = heap[0];
        const int count = --agenda->count;
        int at = 0;
        for (int below = 1; below < count; below = 2 * at + 1) {
                below += below + 1 < count && before(&heap[below + 1], &heap[below]);
                heap[at] = heap[below];
                at = below;
        }
        rise(heap, at, &heap[count]);
        return true;
}

void agenda_free(struct agenda *agenda)
{
        free(agenda->heap);
        *agenda = (struct agenda){0};
}
