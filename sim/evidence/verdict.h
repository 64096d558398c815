/* What a validation says: each run predicted and measured, the errors together, and whether the best plans
 * are found. */
#ifndef RANVIER_SIM_EVIDENCE_VERDICT_H
#define RANVIER_SIM_EVIDENCE_VERDICT_H

#include "sim/evidence/measured.h"

#include <stdio.h>

/* A line a run (if `rows`), then errors and ranks. */
void verdict_print(const struct measured *measured, bool rows, FILE *out);

/* A line a run. */
int verdict_write_csv(const struct measured *measured, const char *path, struct rv_error_info *err);

#endif
