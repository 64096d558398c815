/* Random plans on random machines, for comparing worlds. */
#ifndef RANVIER_TESTS_PLANS_H
#define RANVIER_TESTS_PLANS_H

#include "sim/world/machine.h"

struct plan_machine {
        const char *profile, *platform;
        int gpus; /* how many there are to draw from */
};
extern const struct plan_machine plan_machines[];
extern const int plan_machine_count;

/* A sound plan on the machine: model, grid, schedule, and everything else that `simulate` has a flag for.
 * `seed` is drawn from. */
struct options plans_random(uint64_t *seed, const struct plan_machine *machine);

/* Whether operations that a plan has under way at the same time share links or memory: then closed forms need
 * not hold. */
bool plans_contend(const struct options *options, const struct platform *platform);

/* "selene: g16 pp 4 x dp 2 x tp 2, 1f1b, ..." */
void plans_describe(const struct options *options, char *text, size_t text_size);

#endif
