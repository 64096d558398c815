/* What `ranvier doctor` asks ranvier-sim. */
#ifndef RANVIER_SIM_WORLD_ABOUT_H
#define RANVIER_SIM_WORLD_ABOUT_H

/* Prints one JSON object: "simgrid", the version of the library that is loaded. Returns the exit status. */
int about_main(void);

#endif
