/* `ranvier validate`: predictions against runs that somebody measured. */
#ifndef RANVIER_SIM_EVIDENCE_VALIDATE_H
#define RANVIER_SIM_EVIDENCE_VALIDATE_H

/* argv[0] is the name that help and errors show. Returns the exit status. */
int validate_main(int argc, char **argv);

#endif
