/* `ranvier price`: what a profile says that kernels take, and how wrong that is of kernels that were timed.
 */
#ifndef RANVIER_SIM_EVIDENCE_PRICE_H
#define RANVIER_SIM_EVIDENCE_PRICE_H

/* Runs the command and returns its exit status. */
int price_main(int argc, char **argv);

#endif
