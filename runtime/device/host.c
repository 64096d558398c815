/* What every device asks of the machine that it is in. */
#include "runtime/device/device.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

double device_seconds(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* A host that polls beside kernels that run on its own processors takes a third of one from them, however
 * often it yields; one that looks at the network every two milliseconds takes next to nothing. Open MPI moves
 * what is under way no faster for it, but kernels take longer than that. */
static const double look_seconds = 2e-3, sleep_seconds = 1;

void device_rest(struct device *device, bool network)
{
        if (device->ops->wait)
                device->ops->wait(device, network ? look_seconds : sleep_seconds);
        sched_yield();
}

void device_rest_until(struct device *device, double due)
{
        const double seconds = due - device_seconds();
        if (device->ops->wait && seconds > 0)
                device->ops->wait(device, seconds < look_seconds ? seconds : look_seconds);
        sched_yield();
}

int64_t device_cpu_memory_bytes(void)
{
        return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}
