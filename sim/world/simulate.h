/* `ranvier simulate`: a training run, predicted. */
#ifndef RANVIER_SIM_WORLD_SIMULATE_H
#define RANVIER_SIM_WORLD_SIMULATE_H

#include "runtime/base/error.h"

/* argv[0] is the name that help and errors show. Returns the exit status. */
int simulate_main(int argc, char **argv);

#endif
