#include "calibrate/machine.h"

#include "runtime/device/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* OpenBLAS's own; its cblas.h lies in different places on different systems. */
char *openblas_get_config(void);

/* The value of the first line "key : value" of /proc/cpuinfo. */
static void cpuinfo(const char *key, char *value, size_t value_size)
{
        char line[512];
        FILE *stream = fopen("/proc/cpuinfo", "r");
        snprintf(value, value_size, "unknown");
        while (stream && fgets(line, sizeof line, stream)) {
                char *colon = strchr(line, ':');
                if (strncmp(line, key, strlen(key)) != 0 || !colon)
                        continue;
                colon += 1 + strspn(colon + 1, " \t");
                snprintf(value, value_size, "%.*s", (int)strcspn(colon, "\n"), colon);
                break;
        }
        if (stream)
                fclose(stream);
}

json_t *machine_describe(int threads)
{
        char cpu[128], date[32];
        struct utsname system;
        struct tm utc;
        time_t now = time(NULL);
        cpuinfo("model name", cpu, sizeof cpu);
        gmtime_r(&now, &utc);
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
        bool known = uname(&system) == 0;
        return json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:i, s:s}", "cpu", cpu, "cores",
                         (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "memory_bytes",
                         (json_int_t)device_cpu_memory_bytes(), "system", known ? system.release : "unknown",
                         "compiler",
#ifdef __clang__
                         "clang " __clang_version__,
#else
                         "gcc " __VERSION__,
#endif
                         "blas", openblas_get_config(), "threads", threads, "date", date);
}
