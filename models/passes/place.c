/* Where a list's values lie while it runs. */
#include "models/memory.h"
#include "models/program.h"

#include <string.h>

/* From the step that writes a store first to the one that touches it last. */
struct life {
        int begin, end;
        int64_t bytes;
        int store;
};

struct placing {
        const struct program *p;
        const struct steps *steps;
        struct placement *at;
        int64_t chunk_rows;
        int chunk_begin, chunk_end; /* steps that are run a chunk after another */
        bool written[PROGRAM_VALUES];
};

/* What a step writes lies where what it works on lay; and a sum of all shards' where the part of it was. */
static void find_stores(struct placing *w)
{
        struct placement *at = w->at;
        for (int value = 0; value < PROGRAM_VALUES; value++)
                at->store[value] = (short)value;
        for (int s = 0; s < w->steps->count; s++) {
                const struct step *step = &w->steps->at[s];
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        if (!step_writes(step, i) || w->written[step->view[i].value])
                                continue;
                        const int value = step->view[i].value, old = step_reads(w->p, step, i);
                        w->written[value] = true;
                        if (old >= 0)
                                at->store[value] = at->store[old];
                        else if (kernel_sums(step->kind))
                                at->store[value] = at->store[step->view[1].value];
                }
        }
}

static void find_chunk(struct placing *w)
{
        w->chunk_begin = w->chunk_end = -1;
        for (int s = 0; w->chunk_rows && s < w->steps->count; s++) {
                if (!w->steps->at[s].chunked)
                        continue;
                w->chunk_begin = w->chunk_begin < 0 ? s : w->chunk_begin;
                w->chunk_end = s;
        }
}

static bool in_chunk(const struct placing *w, int step)
{
        return w->chunk_begin <= step && step <= w->chunk_end;
}

/* Until when a step is under way: one that runs beside others, until the next collective or join, but for
 * collectives along z, which wait for none. */
static int ends_at(const struct steps *steps, int step)
{
        int end = step;
        if (steps->at[step].beside)
                for (end = step + 1; end < steps->count - 1 && (!kernel_collective(steps->at[end].kind) ||
                                                                kernel_of_shards_z(steps->at[end].kind));)
                        end++;
        return end;
}

static struct life life_of(const struct placing *w, int store)
{
        struct life life = {.begin = -1, .store = store};
        for (int s = 0; s < w->steps->count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        const int value = w->steps->at[s].view[i].value;
                        if (value < 0 || w->at->store[value] != store)
                                continue;
                        life.begin = life.begin < 0 ? s : life.begin;
                        life.end = ends_at(w->steps, s) > life.end ? ends_at(w->steps, s) : life.end;
                }
        return life;
}

/* Rows that are written a chunk after another and read when all are there live from the first chunk on. */
static void stretch(const struct placing *w, struct life *life)
{
        const bool chunked = in_chunk(w, life->begin);
        w->at->rows[life->store] = chunked && in_chunk(w, life->end);
        if (chunked && !in_chunk(w, life->end))
                life->begin = w->chunk_begin;
}

static int find_lives(struct placing *w, const bool *fixed, int element_bytes, struct life lives[])
{
        int count = 0;
        for (int value = 0; value < w->p->value_count; value++) {
                const struct value *v = &w->p->values[value];
                if (!w->written[value] || w->at->store[value] != value || fixed[value] ||
                    (v->role != ROLE_ACTIVATION && v->role != ROLE_FLOW && v->role != ROLE_GATHERED))
                        continue;
                struct life life = life_of(w, value);
                stretch(w, &life);
                const int64_t elements =
                        program_stored_elements(w->p, value, w->at->rows[value] ? w->chunk_rows : 0);
                life.bytes = memory_aligned(program_elements_bytes(v, elements, element_bytes));
                lives[count++] = life;
        }
        return count;
}

/* Whether `life` would meet one that is placed already at `offset`; then where that ends is in `next`. */
static bool meets(const struct placement *at, const struct life lives[], int placed, const struct life *life,
                  int64_t offset, int64_t *next)
{
        for (int i = 0; i < placed; i++) {
                const struct life *other = &lives[i];
                const int64_t begin = at->offset[other->store], end = begin + other->bytes;
                if (other->begin <= life->end && life->begin <= other->end && offset < end &&
                    begin < offset + life->bytes) {
                        *next = end;
                        return true;
                }
        }
        return false;
}

/* The largest first, each at the first place where it meets nobody. */
void program_place(const struct program *p, const struct steps *steps, const bool fixed[PROGRAM_VALUES],
                   int64_t chunk_rows, int element_bytes, struct placement *at)
{
        struct life lives[PROGRAM_VALUES];
        struct placing w = {.p = p, .steps = steps, .at = at, .chunk_rows = chunk_rows};
        bool fixed_stores[PROGRAM_VALUES] = {false};
        memset(at->rows, 0, sizeof at->rows);
        at->bytes = 0;
        find_stores(&w);
        find_chunk(&w);
        for (int value = 0; value < PROGRAM_VALUES; value++) {
                at->offset[value] = -1;
                if (fixed[value])
                        fixed_stores[at->store[value]] = true;
        }
        const int count = find_lives(&w, fixed_stores, element_bytes, lives);
        for (int i = 0; i < count; i++) {
                int largest = i;
                for (int j = i + 1; j < count; j++)
                        if (lives[j].bytes > lives[largest].bytes)
                                largest = j;
                const struct life life = lives[largest];
                lives[largest] = lives[i];
                lives[i] = life;
                int64_t offset = 0;
                while (meets(at, lives, i, &life, offset, &offset))
                        ;
                at->offset[life.store] = offset;
                if (offset + life.bytes > at->bytes)
                        at->bytes = offset + life.bytes;
        }
}
