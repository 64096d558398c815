/* The command `ranvier simulate`: predicts one training run and writes its report, or replays a trace. All
 * work is done by predict.h and the modules below it; this one has the command line and the output. */
#ifndef RANVIER_SIM_WORLD_SIMULATE_H
#define RANVIER_SIM_WORLD_SIMULATE_H

#include "runtime/base/error.h"

/* Runs the command. argv[0] is the name that help and errors show. Returns the exit status: 0, 1 if the work
 * failed, 2 if the usage or an input is wrong. */
int simulate_main(int argc, char **argv);

#endif
