#include "calibrate/machine.h"

#include "runtime/device/device.h"

#include <stdbool.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* OpenBLAS's own; its cblas.h lies in different places on different systems. */
char *openblas_get_config(void);

json_t *machine_describe(int threads, const char *cpu_kernels)
{
        char cpu[128], date[32];
        struct utsname system;
        struct tm utc;
        time_t now = time(NULL);
        device_cpu_name(cpu, sizeof cpu);
        gmtime_r(&now, &utc);
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
        bool known = uname(&system) == 0;
        return json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s?, s:i, s:s}", "cpu", cpu, "cores",
                         (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                         (json_int_t)device_cpu_memory_bytes(), "system", known ? system.release : "unknown",
                         "compiler",
#ifdef __clang__
                         "clang " __clang_version__,
#else
                         "gcc " __VERSION__,
#endif
                         "blas", openblas_get_config(), "cpu_kernels", cpu_kernels, "threads", threads,
                         "date", date);
}
