/* Whether plans come out in their true order: the place that the truly fastest of several has in the
 * prediction, and the rank correlation of predicted and measured. verdict.c prints it. */
#ifndef RANVIER_SIM_EVIDENCE_RANKS_H
#define RANVIER_SIM_EVIDENCE_RANKS_H

#include "sim/evidence/measured.h"

#include <stdio.h>

/* Prints how often the fastest plan is found among those with equal GPUs and model, and how well their order
 * is met (Spearman's rank correlation); if `groups`, for each set of such plans; and the order of all runs of
 * a framework. */
void ranks_print(const struct measured *measured, bool groups, FILE *out);

#endif
