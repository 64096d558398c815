/* Starting the ranks: `ranvier calibrate` is started as one process, and has mpirun run it again. */
#ifndef RANVIER_CALIBRATE_LAUNCH_H
#define RANVIER_CALIBRATE_LAUNCH_H

#include "runtime/base/error.h"

#include <stdbool.h>

/* Whether this process was started by a user, not by an mpirun. */
bool launch_is_needed(void);

/* Replaces this process by `ranks` ranks of itself with the same arguments, bound to cores if there are
 * enough and `bound` asks for it, as a run's on the processor should be. Returns only if it cannot. */
int launch(int ranks, bool bound, char **argv, struct rv_error_info *err);

#endif
