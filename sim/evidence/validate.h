/* The command `ranvier validate`: predicts runs that somebody measured and prints the errors. It reads tables
 * (table.h), makes plans of their rows (measured.h), predicts each (search/jobs.h) and shows the verdict
 * (verdict.h). */
#ifndef RANVIER_SIM_EVIDENCE_VALIDATE_H
#define RANVIER_SIM_EVIDENCE_VALIDATE_H

/* Runs the command. argv[0] is the name that help and errors show. Returns the exit status. */
int validate_main(int argc, char **argv);

#endif
