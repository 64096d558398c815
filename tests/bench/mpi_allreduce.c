/* All-reduces of this machine's MPI, measured as training runs them, beside what a profile says of them.
 *   mpirun -n 2 mpi_allreduce PROFILE */
#include "calibrate/profile/profile.h"
#include "runtime/device/device.h"
#include "runtime/net/net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIN = 64 << 10, MAX = 64 << 20, SIZES = 11, TURNS = 21 };

static void wait_for(struct net *net)
{
        struct net_done done;
        while (!net->ops->test(net, &done))
                ;
}

/* A small one first brings the ranks together. */
static double measure(struct net *net, float *buffer, int64_t bytes)
{
        float small[2] = {0};
        net->ops->iallreduce(net, small, 2, NET_FLOAT, NET_WORLD, 0);
        wait_for(net);
        double start = device_seconds();
        net->ops->iallreduce(net, buffer, bytes / (int64_t)sizeof *buffer, NET_FLOAT, NET_WORLD, 0);
        wait_for(net);
        return device_seconds() - start;
}

static int by_value(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

/* The mean without a tenth at each end, as profiles have it. */
static double typical(double *seconds, int count)
{
        double sum = 0;
        const int cut = count / 10;
        qsort(seconds, (size_t)count, sizeof *seconds, by_value);
        for (int i = cut; i < count - cut; i++)
                sum += seconds[i];
        return sum / (count - 2 * cut);
}

static void compare(struct net *net, const struct profile *profile, double seconds[SIZES][TURNS])
{
        const struct profile_load *load = profile_load_for(profile, net->ranks);
        double sum = 0, worst = 0;
        printf("%10s %12s %12s %8s\n", "bytes", "measured us", "profile us", "error %");
        for (int i = 0; i < SIZES; i++) {
                const int64_t bytes = (int64_t)MIN << i;
                const double measured = typical(seconds[i], TURNS);
                const double said = profile_line_seconds(load, LINE_ALLREDUCE, bytes, false);
                const double error = said / measured - 1;
                printf("%10lld %12.1f %12.1f %8.1f\n", (long long)bytes, 1e6 * measured, 1e6 * said,
                       100 * error);
                sum += fabs(error);
                worst = fmax(worst, fabs(error));
        }
        printf("mean %.1f %%, worst %.1f %% (the goal is 5 %%)\n", 100 * sum / SIZES, 100 * worst);
}

int main(int argc, char **argv)
{
        static double seconds[SIZES][TURNS];
        struct rv_error_info err = {.code = RV_OK};
        struct profile profile;
        struct net *net = net_mpi_open(&argc, &argv, &err);
        float *buffer = calloc(1, MAX);
        if (!net || !buffer || argc != 2 || profile_load(&profile, argv[1], &err)) {
                fprintf(stderr, "mpi_allreduce: %s\n",
                        err.code ? err.sentence : "mpirun -n 2 mpi_allreduce PROFILE");
                return 2;
        }
        net_mpi_groups(net, (int[NET_WORLD]){-1, -1, -1});
        measure(net, buffer, MAX); /* warms up */
        for (int turn = 0; turn < TURNS; turn++)
                for (int i = 0; i < SIZES; i++)
                        seconds[i][turn] = measure(net, buffer, (int64_t)MIN << i);
        if (net->rank == 0)
                compare(net, &profile, seconds);
        profile_free(&profile);
        free(buffer);
        net->ops->close(net);
        return 0;
}
