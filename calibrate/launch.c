#include "calibrate/launch.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set for the ranks, so that those of an mpirun that is not Open MPI's do not start ranks in their turn. */
static const char STARTED[] = "RANVIER_CALIBRATE_STARTED";

bool launch_is_needed(void)
{
        return !getenv("OMPI_COMM_WORLD_SIZE") && !getenv(STARTED);
}

/* Physical cores: mpirun binds to these, and refuses to bind more ranks than there are. */
static int count_cores(void)
{
        int online = (int)sysconf(_SC_NPROCESSORS_ONLN), cores = 0;
        for (int cpu = 0; cpu < online; cpu++) {
                char path[128];
                int first_sibling = cpu;
                snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                         cpu);
                FILE *stream = fopen(path, "r");
                if (stream && fscanf(stream, "%d", &first_sibling) != 1)
                        first_sibling = cpu;
                if (stream)
                        fclose(stream);
                cores += first_sibling == cpu;
        }
        return cores > 0 ? cores : 1;
}

int launch(int ranks, bool bound, char **argv, struct rv_error_info *err)
{
        char program[PATH_MAX] = "", ranks_text[16];
        int given = 0, count = 0;
        while (argv[given])
                given++;
        char **all = calloc((size_t)given + 9, sizeof *all);
        if (!all)
                return rv_fail(err, RV_ESYSTEM, "no memory to start %d ranks", ranks);
        bool fits = ranks <= count_cores();
        snprintf(ranks_text, sizeof ranks_text, "%d", ranks);
        all[count++] = "mpirun";
        all[count++] = "-n";
        all[count++] = ranks_text;
        if (getuid() == 0)
                all[count++] = "--allow-run-as-root";
        if (!fits)
                all[count++] = "--oversubscribe";
        all[count++] = "--bind-to";
        all[count++] = fits && bound ? "core" : "none";
        all[count++] = readlink("/proc/self/exe", program, sizeof program - 1) > 0 ? program : argv[0];
        memcpy(all + count, argv + 1, (size_t)given * sizeof *all); /* with the NULL after the last */
        setenv(STARTED, "1", 1);
        fflush(NULL);
        execvp(all[0], all);
        int reason = errno;
        free(all);
        return rv_fail(err, RV_ESYSTEM, "mpirun, which starts the ranks, cannot be started: %s",
                       strerror(reason));
}
