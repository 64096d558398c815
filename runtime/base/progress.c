#include "runtime/base/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Seconds before the first, and between two, on a terminal and elsewhere. */
static const double FIRST = 2, BETWEEN = 0.2, BETWEEN_LINES = 5;

double progress_clock(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void progress_begin(struct progress *p)
{
        p->started = p->last = progress_clock();
}

void progress_show(struct progress *p, double share, const char *text)
{
        const bool terminal = isatty(STDERR_FILENO);
        const double now = progress_clock();
        if (now - p->started < FIRST || now - p->last < (terminal ? BETWEEN : BETWEEN_LINES))
                return;
        p->last = now;
        if (terminal) {
                char bar[25] = "........................";
                memset(bar, '#', (size_t)(24 * (share < 0 ? 0 : share > 1 ? 1 : share)));
                fprintf(stderr, "\r\033[K[%s] ", bar);
        }
        fputs(text, stderr);
        if (share > 0) {
                const int left = (int)((now - p->started) * (1 - share) / share);
                fprintf(stderr, "   %d:%02d left", left / 60, left % 60);
        }
        fputs(terminal ? "" : "\n", stderr);
}

void progress_end(struct progress *p, const char *text)
{
        if (isatty(STDERR_FILENO) && p->last > p->started)
                fputs("\r\033[K", stderr);
        if (text)
                fprintf(stderr, "%s\n", text);
}
