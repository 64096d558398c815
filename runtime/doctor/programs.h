/* The programs of ranvier and others that it starts, asked by running them: whether they start, what
 * libraries they have, and whether a step of training and a prediction work. */
#ifndef RANVIER_RUNTIME_DOCTOR_PROGRAMS_H
#define RANVIER_RUNTIME_DOCTOR_PROGRAMS_H

#include "runtime/doctor/finding.h"

/* Adds rows. `folder` is where the programs are. */
void programs_examine(struct findings *findings, const char *folder);

#endif
