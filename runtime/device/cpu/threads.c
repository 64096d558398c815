/* How many threads a rank computes with, unless it is told. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/device/device.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

int device_cpu_processors(void)
{
        cpu_set_t set;
        const long online = sysconf(_SC_NPROCESSORS_ONLN);
        if (sched_getaffinity(0, sizeof set, &set) == 0)
                return CPU_COUNT(&set);
        return online > 0 ? (int)online : 1; /* more than the set can hold */
}

/* OpenMP's variable is a list, by level of nesting: there is one level here. */
static int threads_wanted(const char *text, struct rv_error_info *err)
{
        char *end;
        const long threads = strtol(text, &end, 10);
        if (end == text || (*end != '\0' && *end != ',') || threads < 1 || threads > DEVICE_MAX_THREADS)
                return rv_fail(err, RV_EINPUT, "OMP_NUM_THREADS is '%.32s': must be 1 to %d threads", text,
                               DEVICE_MAX_THREADS);
        return (int)threads;
}

int device_cpu_share(int local_ranks)
{
        const int mine = device_cpu_processors();
        const long share = sysconf(_SC_NPROCESSORS_ONLN) / (local_ranks > 1 ? local_ranks : 1);
        const int min = mine < share ? mine : (int)share;
        return min > 1 ? min : 1;
}

int device_cpu_threads(int local_ranks, struct rv_error_info *err)
{
        const char *wanted = getenv("OMP_NUM_THREADS");
        if (wanted && wanted[0] != '\0')
                return threads_wanted(wanted, err);
        const int threads = device_cpu_share(local_ranks);
        return threads < DEVICE_MAX_THREADS ? threads : DEVICE_MAX_THREADS;
}
