/* The GPUs of this machine, by CUDA's driver, and ranvier's plugins for them. */
#ifndef RANVIER_RUNTIME_DOCTOR_GPUS_H
#define RANVIER_RUNTIME_DOCTOR_GPUS_H

#include "runtime/doctor/finding.h"

/* Adds rows, and "gpus" to the machine. No GPU is computed with. */
void gpus_examine(struct findings *findings);

#endif
