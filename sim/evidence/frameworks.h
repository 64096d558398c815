/* The frameworks of many plans: each is read once, and stays where it is while plans point to it. */
#ifndef RANVIER_SIM_EVIDENCE_FRAMEWORKS_H
#define RANVIER_SIM_EVIDENCE_FRAMEWORKS_H

#include "runtime/plan/framework.h"

/* Zeros are an empty list. */
struct frameworks {
        struct frameworks_one *first;
};

/* What framework_take does, with a framework of the list. The plan's `like` and `without` then point to the
 * list's texts, so that they outlive the command line or table cell that they were parsed from. Errors are
 * those of framework_take. */
int frameworks_take(struct frameworks *frameworks, struct options *options, struct rv_error_info *err);

/* Frees all of them, and leaves an empty list. */
void frameworks_free(struct frameworks *frameworks);

#endif
