/* Starts the ranks of `ranvier calibrate`: a user starts it as one process, which checks the command line
 * and then has mpirun run it again on every rank. Under an mpirun of the user's own nothing is started. */
#ifndef RANVIER_CALIBRATE_LAUNCH_H
#define RANVIER_CALIBRATE_LAUNCH_H

#include "runtime/base/error.h"

#include <stdbool.h>

/* Whether this process was started by a user, and not by Open MPI's mpirun or by launch. */
bool launch_is_needed(void);

/* Replaces this process by mpirun with `ranks` ranks of this program and the arguments `argv`, which end
 * with NULL. The ranks are bound to physical cores if there are enough of them and `bound` asks for it, as a
 * run's on the processor should be. It returns only if it fails: RV_ESYSTEM with a sentence. */
int launch(int ranks, bool bound, char **argv, struct rv_error_info *err);

#endif
