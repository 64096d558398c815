/* What every device asks of the machine that it is in. */
#include "runtime/device/device.h"

#include <time.h>
#include <unistd.h>

double device_seconds(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int64_t device_cpu_memory_bytes(void)
{
        return (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
}
