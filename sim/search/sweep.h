/* `ranvier sweep`: the best plans for several numbers of devices, with and without offloading. */
#ifndef RANVIER_SIM_SEARCH_SWEEP_H
#define RANVIER_SIM_SEARCH_SWEEP_H

/* argv[0] is the name that help and errors show. Returns the exit status. */
int sweep_main(int argc, char **argv);

#endif
