/* The command `ranvier sweep`: finds the best plans for several numbers of devices, with and without
 * offloading. It has the command line and the order of the work: space.h, search.h with jobs.h and parts.h,
 * then results.h. */
#ifndef RANVIER_SIM_SEARCH_SWEEP_H
#define RANVIER_SIM_SEARCH_SWEEP_H

/* Runs the command. argv[0] is the name that help and errors show. Returns the exit status. */
int sweep_main(int argc, char **argv);

#endif
