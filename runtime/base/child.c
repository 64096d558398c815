#include "runtime/base/child.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

int child_start(struct child *child, int (*work)(void *context, int to), void *context, const char *what,
                struct rv_error_info *err)
{
        int ends[2];
        if (pipe(ends))
                return rv_fail(err, RV_ESYSTEM, "no process %s, for want of a pipe: %s", what,
                               strerror(errno));
        fflush(NULL); /* or the child would have the same text to write */
        const pid_t parent = getpid(), pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(ends[0]);
                _exit(getppid() == parent ? work(context, ends[1])
                                          : 1); /* its parent may have ended before */
        }
        const int why = errno;
        close(ends[1]);
        if (pid < 0) {
                close(ends[0]);
                return rv_fail(err, RV_ESYSTEM, "no process %s: %s", what, strerror(why));
        }
        *child = (struct child){pid, ends[0]};
        return 0;
}

int child_tell(int to, const void *answer, size_t size)
{
        size_t told = 0;
        while (told < size) {
                const ssize_t more = write(to, (const char *)answer + told, size - told);
                if (more < 0 && errno != EINTR)
                        return 1;
                told += more > 0 ? (size_t)more : 0;
        }
        return 0;
}

size_t child_read(struct child *child, void *piece, size_t size)
{
        size_t got = 0;
        ssize_t more = 1;
        while (got < size && more) {
                more = read(child->from, (char *)piece + got, size - got);
                if (more < 0 && errno != EINTR)
                        break;
                got += more > 0 ? (size_t)more : 0;
        }
        return got;
}

size_t child_answer(struct child *child, void *answer, size_t size, int *status)
{
        const size_t got = child_read(child, answer, size);
        close(child->from);
        *status = 0;
        while (waitpid(child->pid, status, 0) < 0 && errno == EINTR)
                ;
        return got;
}

char *child_end(int status, char *text, size_t size)
{
        if (WIFSIGNALED(status))
                snprintf(text, size, "was ended by signal %d (%s)", WTERMSIG(status),
                         strsignal(WTERMSIG(status)));
        else
                snprintf(text, size, "ended with status %d", WEXITSTATUS(status));
        return text;
}
