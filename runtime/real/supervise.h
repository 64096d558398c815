/* `ranvier train --restarts K`: this process starts mpirun, and again from the newest checkpoint when a rank
 * or a host has died, on the hosts that are left. It never initialises MPI. */
#ifndef RANVIER_RUNTIME_REAL_SUPERVISE_H
#define RANVIER_RUNTIME_REAL_SUPERVISE_H

#include <stdbool.h>

/* Whether a command line asks for it, and nobody has started ranks. */
bool supervise_is_asked(int argc, char **argv);

/* Does it, from the checks of the command line to the end of the training, and says what it does and what
 * fails on stderr. Returns the exit status: of the ranks if they end by themselves (0, 75 where they were
 * asked to stop, 2 for wrong input, 1); 1 if no restart is left. */
int supervise(int argc, char **argv);

#endif
