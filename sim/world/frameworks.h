/* `ranvier frameworks`: which frameworks a prediction can be like, and what is known of one. */
#ifndef RANVIER_SIM_WORLD_FRAMEWORKS_H
#define RANVIER_SIM_WORLD_FRAMEWORKS_H

/* Returns the exit status. */
int frameworks_main(int argc, char **argv);

#endif
