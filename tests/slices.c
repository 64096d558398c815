/* slices COMMAND...: runs it with short slices of processor time (Linux from 6.12 on; elsewhere as it is).
 * Tests start ranks that wait for each other thousands of times. On a machine that computes something else
 * too each wait lasts until the end of another's slice, three milliseconds or more; with short slices of its
 * own a rank that was woken need not wait for that. Nobody's share becomes larger: it is the tests' time that
 * no longer grows a hundredfold. */
#define _DEFAULT_SOURCE /* syscall */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef SYS_sched_setattr
#include <linux/sched/types.h>

static void ask_for_short_slices(void)
{
        enum { NANOSECONDS = 100000 }; /* the least that Linux takes */
        struct sched_attr attributes = {.size = sizeof attributes};
        if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) || attributes.sched_policy != 0)
                return;
        attributes.sched_runtime = NANOSECONDS;
        (void)syscall(SYS_sched_setattr, 0, &attributes,
                      0); /* a kernel that has none says so, and is let be */
}
#else
static void ask_for_short_slices(void)
{
}
#endif

int main(int argc, char **argv)
{
        if (argc < 2) {
                fprintf(stderr, "usage: slices COMMAND...\n");
                return 2;
        }
        ask_for_short_slices();
        execvp(argv[1], argv + 1);
        fprintf(stderr, "slices: %s: %s\n", argv[1], strerror(errno));
        return 127;
}
