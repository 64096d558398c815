/* What Open MPI's mpirun says on stderr, between what its ranks say: it is handed on, but for mpirun's own
 * blocks on how the run ended, which are read. */
#ifndef RANVIER_RUNTIME_REAL_MPIRUN_SAID_H
#define RANVIER_RUNTIME_REAL_MPIRUN_SAID_H

#include <stdbool.h>
#include <stdio.h>

enum { SAID_NAME = 64 };

/* Begins as zeros, but for `to`. */
struct said {
        FILE *to; /* where it is handed on to */
        /* What ended the run, as far as mpirun says it. */
        int signal; /* by which a rank was ended; 0: none was */
        bool aborted;
        int rank;             /* which one that was, or that called MPI_Abort (`aborted`) */
        char node[SAID_NAME]; /* and where; "": not known */
        int code;             /* the exit status of the first rank that failed by itself; 0: none did */
        bool lost;            /* mpirun lost a host, `node` */
        bool crowded;         /* there are fewer slots than ranks */
        /* Of what came so far: the line that has no end yet, and the lines of a block that has none. */
        char line[4096], block[16384];
        size_t length, held;
        bool inside, known; /* a block; that is one of those */
};

/* Takes what came; said_end takes the end. */
void said_take(struct said *, const char *text, size_t size);
void said_end(struct said *);

/* Whether it has said what ended the run: then it ends the other ranks, and itself. */
bool said_is_over(const struct said *);

/* Writes what ended the run, such as "rank 1 on node3 was ended by signal 9 (Killed)"; `status` is mpirun's,
 * as waitpid has it. Returns `text`. */
enum { SAID_TEXT = 256 };
char *said_text(const struct said *, int status, char text[SAID_TEXT]);

#endif
