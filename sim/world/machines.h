/* `ranvier machines`: the machines that --machine knows, and what is known of each (named_machine.h). */
#ifndef RANVIER_SIM_WORLD_MACHINES_H
#define RANVIER_SIM_WORLD_MACHINES_H

/* Runs the command: a table of all machines, or the figures of one with their sources. Returns the status to
 * exit with. */
int machines_main(int argc, char **argv);

#endif
