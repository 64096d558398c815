/* How far a command is, on stderr: a bar with an estimate of the time left on a terminal, and a line now and
 * then elsewhere. What takes less than two seconds shows nothing but its last line. */
#ifndef RANVIER_RUNTIME_BASE_PROGRESS_H
#define RANVIER_RUNTIME_BASE_PROGRESS_H

#include <stdbool.h>

struct progress {
        /* progress_clock: when the work began, and when something was last shown. */
        double started, last;
};

/* Returns the seconds of a clock that only goes forward; its zero means nothing. */
double progress_clock(void);

void progress_begin(struct progress *progress);

/* Shows `text`, such as "3 of 8 plans simulated", for a `share` from 0 to 1 of the work, if it is time for
 * that. */
void progress_show(struct progress *progress, double share, const char *text);

/* Shows `text` as the last line of the work; NULL: only takes away what stands on a terminal. */
void progress_end(struct progress *progress, const char *text);

#endif
