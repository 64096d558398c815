/* A process of ours that works apart and answers through a pipe: because it may crash, because what it takes
 * should go when it ends, or because several work at once. */
#ifndef RANVIER_RUNTIME_BASE_CHILD_H
#define RANVIER_RUNTIME_BASE_CHILD_H

#include "runtime/base/error.h"

#include <stddef.h>
#include <sys/types.h>

struct child {
        pid_t pid;
        int from; /* what it answers can be read here; poll tells when there is something, or the end */
};

/* Starts a child that calls work() and ends with what that returns, as its status. It ends with its parent,
 * too. work() writes its answer to the file `to` (child_tell). Returns 0, or RV_ESYSTEM with a sentence that
 * begins with "no process" and has `what` in it, such as "for a prediction". The caller must call
 * child_answer. */
int child_start(struct child *child, int (*work)(void *context, int to), void *context, const char *what,
                struct rv_error_info *err);

/* In the child: writes an answer, whole. Returns the status for work() to return: 0, or 1 if it could not. */
int child_tell(int to, const void *answer, size_t size);

/* Reads what the child answers, `size` bytes or, if it ends before, fewer. Returns how many came. An answer
 * may be read piece by piece, before child_answer. */
size_t child_read(struct child *child, void *piece, size_t size);

/* Reads what the child answers, up to `size` bytes or until it has ended, and waits for its end. Returns how
 * many bytes came. `status` becomes what waitpid says. */
size_t child_answer(struct child *child, void *answer, size_t size, int *status);

/* Writes how it ended: "was ended by signal 9 (Killed)" or "ended with status 3". Returns `text`. */
char *child_end(int status, char *text, size_t size);

#endif
