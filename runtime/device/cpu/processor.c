/* What processor this machine has. */
#include "runtime/device/device.h"

#include <stdio.h>
#include <string.h>

void device_cpu_name(char *name, size_t size)
{
        static const char key[] = "model name";
        char line[512];
        FILE *stream = fopen("/proc/cpuinfo", "r");
        snprintf(name, size, "unknown");
        while (stream && fgets(line, sizeof line, stream)) {
                char *colon = strchr(line, ':');
                if (strncmp(line, key, strlen(key)) != 0 || !colon)
                        continue;
                colon += 1 + strspn(colon + 1, " \t");
                snprintf(name, size, "%.*s", (int)strcspn(colon, "\n"), colon);
                break;
        }
        if (stream)
                fclose(stream);
}
