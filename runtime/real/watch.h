/* mpirun as a child that is watched: signals that ask for the end of the training are handed on to it, what
 * it says is read (mpirun_said.h), and it goes when this process does. What it leaves behind on this machine
 * is ended, too. For a process without threads. */
#ifndef RANVIER_RUNTIME_REAL_WATCH_H
#define RANVIER_RUNTIME_REAL_WATCH_H

#include "runtime/base/error.h"
#include "runtime/real/mpirun_said.h"

#include <signal.h>

struct watch {
        int asked; /* how many signals have asked for the end so far */
        int descriptor;
        sigset_t before; /* the signals that were blocked */
        pid_t *others;   /* children that this process had before, which are not ours to end */
        int other_count;
};

/* From here on SIGTERM, SIGUSR1, SIGINT and SIGHUP, as far as they were not ignored, end this process no
 * more, and are counted. Returns 0, or RV_ESYSTEM with a sentence. The caller ends it with watch_close. */
int watch_open(struct watch *, struct rv_error_info *err);
void watch_close(struct watch *);

/* How mpirun ended. */
struct watch_end {
        int status; /* as waitpid has it */
        enum {
                WATCH_BY_ITSELF,
                WATCH_SILENT, /* it was ended: it said nothing for too long */
                WATCH_STUCK   /* it was ended: it had said what ended its ranks, and did not end itself */
        } why;
        struct said said;
};

/* Runs a command, whose words end with NULL, with our standard input and output, and waits for its end. The
 * first signal that asks becomes SIGUSR1, again every second, which mpirun hands on to its ranks, who keep a
 * checkpoint; the others SIGTERM. If nothing comes on its standard error for `silence` seconds, it is ended:
 * by SIGTERM, and a while later by SIGKILL; so it is where it has said what ended its ranks and is still
 * there half a minute later, as one of Open MPI 4.1 can be, which waits for itself at its own end. Returns 0,
 * or RV_ESYSTEM with a sentence if it could not be started. */
int watch_run(struct watch *, char *const *words, double silence, struct watch_end *end,
              struct rv_error_info *err);

/* Runs one without input and output, for so many seconds at most, and not on after a signal. Returns whether
 * it ended with status 0. */
bool watch_try(struct watch *, char *const *words, double seconds);

/* Waits so many seconds, or until a signal asks. */
void watch_pause(struct watch *, double seconds);

#endif
