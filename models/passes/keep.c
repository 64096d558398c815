/* What stays in memory between a layer's forward and its backward, and between two parts of a backward. */
#include "models/memory.h"
#include "models/program.h"

#include <math.h>
#include <string.h>

static void keep_read(const struct program *p, const struct steps *steps, enum value_role role,
                      unsigned parts, bool kept[PROGRAM_VALUES])
{
        for (int s = 0; s < steps->count; s++)
                for (int i = 0; i < KERNEL_OPERANDS && (steps->at[s].part & parts || parts == 0); i++) {
                        const int value = step_reads(p, &steps->at[s], i);
                        if (value >= 0 && p->values[value].role == role && p->values[value].origin < 0)
                                kept[value] = true;
                }
}

void program_kept(const struct program *p, enum recompute recompute, bool chunked, bool kept[PROGRAM_VALUES])
{
        bool again[PROGRAM_STEPS] = {false};
        memset(kept, 0, PROGRAM_VALUES * sizeof *kept);
        keep_read(p, &p->backward, ROLE_ACTIVATION, 0, kept);
        program_run_again(p, recompute, again);
        for (int s = 0; s < p->forward.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS && (again[s] || (chunked && p->forward.at[s].chunked));
                     i++)
                        if (step_writes(&p->forward.at[s], i)) {
                                const int value = p->forward.at[s].view[i].value;
                                const bool runs_again = again[s] && !program_stores(p, recompute, value);
                                if (runs_again || !again[s])
                                        kept[value] = false;
                        }
        if (p->output >= 0)
                kept[p->output] = true;
}

/* What is left of a value: what it was gathered from, which is gathered again, but not parts of what was
 * scattered as sums. */
static int deferred_of(const struct program *p, int value)
{
        const int origin = p->values[value].origin;
        const bool scattered = origin >= 0 && p->values[origin].state == STATE_PARTIAL &&
                               p->values[value].state == STATE_ROWS;
        return origin < 0 || scattered ? value : deferred_of(p, origin);
}

/* Whether a step of a backward's second part makes a value, which the first part then need not leave. */
static bool is_made_later(const struct program *p, int value)
{
        for (int s = 0; s < p->backward.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS && p->backward.at[s].part == PART_WEIGHT; i++)
                        if (p->backward.at[s].view[i].value == value && step_writes(&p->backward.at[s], i))
                                return true;
        return false;
}

void program_deferred(const struct program *p, bool deferred[PROGRAM_VALUES])
{
        memset(deferred, 0, PROGRAM_VALUES * sizeof *deferred);
        if (p->output_gradient >= 0)
                deferred[p->output_gradient] = true;
        for (int s = 0; s < p->backward.count; s++)
                for (int i = 0; i < KERNEL_OPERANDS && p->backward.at[s].part == PART_WEIGHT; i++) {
                        const int value = step_reads(p, &p->backward.at[s], i);
                        if (value >= 0 && p->values[value].role == ROLE_FLOW && !is_made_later(p, value))
                                deferred[deferred_of(p, value)] = true;
                }
}

/* The value whose memory others took over, one from another. */
static int memory_of(const struct program *p, int value)
{
        while (p->values[value].overwrites >= 0)
                value = p->values[value].overwrites;
        return value;
}

void program_touched(const struct program *p, const struct steps *steps, bool touched[PROGRAM_VALUES])
{
        bool memory[PROGRAM_VALUES] = {false};
        for (int s = 0; s < steps->count; s++)
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        const int value = steps->at[s].view[i].value;
                        if (value >= 0)
                                memory[memory_of(p, value)] = true;
                }
        for (int value = 0; value < p->value_count; value++)
                touched[value] = memory[memory_of(p, value)];
}

int64_t program_elements_bytes(const struct value *value, int64_t elements, int element_bytes)
{
        const bool real = value->type == OPERAND_REAL;
        if (value->format != FORMAT_STORED)
                return (int64_t)ceil(format_bytes((enum product_format)value->format, (double)elements));
        return elements * (value->type == OPERAND_INDEX ? 4 : real && element_bytes < 4 ? 4 : element_bytes);
}

static int64_t value_bytes(const struct program *p, int value, int element_bytes)
{
        return program_elements_bytes(&p->values[value], program_stored_elements(p, value, 0), element_bytes);
}

int64_t program_value_bytes(const struct program *p, int value, int element_bytes)
{
        return memory_aligned(value_bytes(p, value, element_bytes));
}

static bool shares_buffer(const struct value *a, const struct value *b)
{
        return b->type == OPERAND_REAL && a->axes == b->axes &&
               memcmp(a->extent, b->extent, (size_t)a->axes * sizeof *a->extent) == 0;
}

int64_t program_bytes(const struct program *p, const bool set[PROGRAM_VALUES], int element_bytes,
                      int64_t offset[PROGRAM_VALUES])
{
        int64_t end = 0, place[PROGRAM_VALUES];
        bool placed[PROGRAM_VALUES] = {false};
        for (int value = 0; value < p->value_count; value++) {
                const bool real = p->values[value].type == OPERAND_REAL;
                if (!set[value] || placed[value])
                        continue;
                place[value] = end;
                end += value_bytes(p, value, element_bytes);
                for (int other = value + 1; real && other < p->value_count; other++) {
                        if (!set[other] || !shares_buffer(&p->values[value], &p->values[other]))
                                continue;
                        placed[other] = true;
                        place[other] = end;
                        end += value_bytes(p, other, element_bytes);
                }
                end = memory_aligned(end);
        }
        for (int value = 0; offset && value < p->value_count; value++)
                if (set[value])
                        offset[value] = place[value];
        return end;
}
