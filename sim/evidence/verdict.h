/* What a validation says: each run predicted and measured, the errors of several sets of runs, how many
 * measured figures lie in their intervals, and whether the fastest plans are found. validate.c calls it once
 * all jobs have an outcome. */
#ifndef RANVIER_SIM_EVIDENCE_VERDICT_H
#define RANVIER_SIM_EVIDENCE_VERDICT_H

#include "sim/evidence/measured.h"

#include <stdio.h>

/* Prints remarks, a line for each run (if `rows`), the runs that could not be predicted or do not fit, the
 * errors, the places of the fastest plans, and what the profiles were fitted on. */
void verdict_print(const struct measured *measured, bool rows, FILE *out);

/* Writes a line for each run that was predicted; the others are left out. */
int verdict_write_csv(const struct measured *measured, const char *path, struct rv_error_info *err);

#endif
