#include "runtime/real/watch.h"

#include "runtime/base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOT_STARTED = 127 };

/* Seconds that mpirun has to end ranks that hang; and to end once it has said what ended one; after which a
 * wish to stop is said again; and the most that is waited for anything at one time. */
enum { GRACE = 15, ENDING = 30, REPEAT = 1, LONGEST_WAIT = 100000 };

/* The list of our children; NULL: the kernel has none. */
static FILE *open_children(void)
{
        char path[64];
        const long own = (long)getpid();
        snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", own, own);
        return fopen(path, "r");
}

/* What a shell has started that then became this process. */
static void note_others(struct watch *w)
{
        FILE *stream = open_children();
        int pid;
        w->others = NULL;
        w->other_count = 0;
        while (stream && fscanf(stream, "%d", &pid) == 1) {
                pid_t *longer = realloc(w->others, ((size_t)w->other_count + 1) * sizeof *longer);
                if (!longer)
                        abort();
                w->others = longer;
                w->others[w->other_count++] = pid;
        }
        if (stream)
                fclose(stream);
}

void watch_close(struct watch *w)
{
        free(w->others);
}

int watch_open(struct watch *w, struct rv_error_info *err)
{
        static const int asks[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP};
        sigset_t set;
        struct sigaction action;
        sigemptyset(&set);
        sigaddset(&set, SIGCHLD);
        signal(SIGCHLD, SIG_DFL); /* it may have been ignored, and children not waited for */
        for (size_t i = 0; i < sizeof asks / sizeof *asks; i++)
                if (sigaction(asks[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
                        sigaddset(&set, asks[i]);
        note_others(w);
        prctl(PR_SET_CHILD_SUBREAPER, 1); /* see end_orphans */
        w->asked = 0;
        sigprocmask(SIG_BLOCK, &set, &w->before);
        w->descriptor = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        return w->descriptor >= 0 ? RV_OK
                                  : rv_fail(err, RV_ESYSTEM, "signals cannot be read: %s", strerror(errno));
}

static double now_seconds(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A command that is run. */
struct job {
        const struct watch *watch;
        char *const *words;
        bool silent;
};

/* In the child, which has a process group of its own: what a terminal or a batch system sends to all of ours
 * is to be handed on by us alone. */
static int become(void *context, int to)
{
        const struct job *job = context;
        const int nothing = job->silent ? open("/dev/null", O_RDWR) : -1;
        /* mpirun ends its ranks then. */
        const int with_parent = job->silent ? SIGKILL : SIGTERM;
        prctl(PR_SET_PDEATHSIG, with_parent);
        setpgid(0, 0);
        if (job->silent) {
                dup2(nothing, STDIN_FILENO);
                dup2(nothing, STDOUT_FILENO);
        }
        dup2(job->silent ? nothing : to, STDERR_FILENO);
        fcntl(to, F_SETFD, FD_CLOEXEC);
        sigprocmask(SIG_SETMASK, &job->watch->before, NULL);
        execvp(job->words[0], job->words);
        const int why = errno;
        child_tell(to, &why, sizeof why);
        return NOT_STARTED;
}

/* Reads the signals that came. Those that ask are counted; returns whether one was of a child. */
static bool take_signals(struct watch *w)
{
        struct signalfd_siginfo info;
        bool child = false;
        while (read(w->descriptor, &info, sizeof info) == sizeof info) {
                child |= info.ssi_signo == SIGCHLD;
                w->asked += info.ssi_signo != SIGCHLD;
        }
        return child;
}

/* Hands signals on to mpirun that came since there were `before`. A wish is said again every while, since
 * mpirun hands it to nobody as long as it has started no rank. `repeat` is when, at first 0. */
static void hand_on(const struct watch *w, int before, pid_t pid, double *repeat)
{
        if (before == 0 && w->asked > 0)
                fprintf(stderr, "ranvier train: was asked to stop: a checkpoint is kept first; a second time "
                                "ends it at once\n");
        if (w->asked > 1 && w->asked > before)
                kill(pid, SIGTERM);
        if (w->asked == 1 && now_seconds() > *repeat) {
                kill(pid, SIGUSR1);
                *repeat = now_seconds() + REPEAT;
        }
}

/* What has come of what it says; false: there is no more. */
static bool take_text(int from, struct said *said)
{
        char text[4096];
        ssize_t size;
        while ((size = read(from, text, sizeof text)) > 0)
                said_take(said, text, (size_t)size);
        return size < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool is_other(const struct watch *w, pid_t pid)
{
        for (int i = 0; i < w->other_count; i++)
                if (w->others[i] == pid)
                        return true;
        return false;
}

/* An mpirun that was killed leaves its ranks of this machine to us. They must not go on beside the next ones,
 * which write the same files. */
static void end_orphans(const struct watch *w)
{
        for (bool found = true; found;) {
                FILE *stream = open_children();
                int pid;
                found = false;
                while (stream && fscanf(stream, "%d", &pid) == 1) {
                        if (is_other(w, pid))
                                continue;
                        kill(pid, SIGKILL);
                        waitpid(pid, NULL, 0);
                        found = true;
                }
                if (stream)
                        fclose(stream);
        }
}

/* Waits for what is polled, until a moment. */
static int wait_until(struct pollfd *polled, nfds_t count, double until)
{
        const double left = until - now_seconds();
        return poll(polled, count,
                    left <= 0             ? 0
                    : left < LONGEST_WAIT ? (int)(1000 * left) + 1
                                          : 1000 * LONGEST_WAIT);
}

int watch_run(struct watch *w, char *const *words, double silence, struct watch_end *end,
              struct rv_error_info *err)
{
        struct job job = {w, words, false};
        struct child child;
        *end = (struct watch_end){.said = {.to = stderr}};
        int rc = child_start(&child, become, &job, "for mpirun", err);
        if (rc != RV_OK)
                return rc;
        struct pollfd polled[] = {{child.from, POLLIN, 0}, {w->descriptor, POLLIN, 0}};
        fcntl(child.from, F_SETFL, O_NONBLOCK);
        double until = now_seconds() + silence, repeat = 0;
        for (bool ended = false; !ended;) {
                const double next = w->asked == 1 ? fmin(until, repeat) : until;
                const bool nothing = wait_until(polled, 2, next) == 0;
                if (polled[0].revents && !take_text(child.from, &end->said))
                        polled[0].fd = -1;
                const bool over = said_is_over(&end->said);
                if (nothing && now_seconds() > until) {
                        kill(child.pid, end->why == WATCH_BY_ITSELF ? SIGTERM : SIGKILL);
                        if (end->why == WATCH_BY_ITSELF)
                                end->why = over ? WATCH_STUCK : WATCH_SILENT;
                        until = now_seconds() + GRACE;
                } else if (polled[0].revents && end->why == WATCH_BY_ITSELF)
                        until = now_seconds() + (over ? fmin(silence, ENDING) : silence);
                const int before = w->asked;
                if (polled[1].revents && take_signals(w))
                        ended = waitpid(child.pid, &end->status, WNOHANG) == child.pid;
                if (!ended)
                        hand_on(w, before, child.pid, &repeat);
        }
        end_orphans(w);
        take_text(child.from, &end->said);
        close(child.from);
        /* The number that become() wrote is what was said last, and no line. */
        int why = 0;
        if (WIFEXITED(end->status) && WEXITSTATUS(end->status) == NOT_STARTED &&
            end->said.length == sizeof why) {
                memcpy(&why, end->said.line, sizeof why);
                rc = rv_fail(err, RV_ESYSTEM, "%s, which starts the ranks, cannot be started: %s", words[0],
                             strerror(why));
                end->said.length = 0;
        }
        said_end(&end->said);
        return rc;
}

bool watch_try(struct watch *w, char *const *words, double seconds)
{
        struct job job = {w, words, true};
        struct child child;
        struct pollfd polled = {w->descriptor, POLLIN, 0};
        const double until = now_seconds() + seconds;
        int status = 1, before = w->asked;
        if (child_start(&child, become, &job, "to try hosts", NULL) != RV_OK)
                return false;
        close(child.from);
        for (bool ended = false, stopped = false; !ended;) {
                wait_until(&polled, 1, stopped ? HUGE_VAL : until);
                if (polled.revents && take_signals(w))
                        ended = waitpid(child.pid, &status, WNOHANG) == child.pid;
                if (!ended && !stopped && (w->asked > before || now_seconds() > until)) {
                        kill(-child.pid, SIGKILL); /* and what it started, such as ssh */
                        kill(child.pid, SIGKILL);  /* which may have no group yet */
                        stopped = true;
                }
        }
        end_orphans(w);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void watch_pause(struct watch *w, double seconds)
{
        struct pollfd polled = {w->descriptor, POLLIN, 0};
        const double until = now_seconds() + seconds;
        while (w->asked == 0 && now_seconds() < until) {
                wait_until(&polled, 1, until);
                take_signals(w);
        }
}
