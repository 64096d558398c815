/* All-reduces by closed form, beside SimGrid or beside measurements.
 *   collectives                      presets of platforms: the choice, the closed form and SimGrid
 *   collectives PLATFORM TABLE GPU   a CSV "gpu,gpus,bytes,seconds" of all-reduces inside a node: rows of
 * that gpu */
#include "sim/world/collective.h"
#include "sim/world/network.h"

#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
        const struct platform *platform;
        struct collective_group group;
        struct collective_shape shape;
        struct collective_costs costs;
        int64_t bytes;
};

struct member {
        const struct job *job;
        int index;
};

static void take_part(int argc, char **argv)
{
        (void)argc, (void)argv;
        const struct member *m = sg_actor_self_get_data();
        const struct sim_group group = {
                .kind = GROUP_DATA,
                .ranks = {.stride = m->job->group.stride, .size = m->job->group.count, .index = m->index}};
        collective_run(&group, &m->job->shape, &m->job->costs, COLLECTIVE_ALLREDUCE, m->job->bytes);
}

/* In a child, since SimGrid runs once a process. */
static double simulate(const struct job *job)
{
        int ends[2];
        double seconds = NAN;
        fflush(stdout);
        if (pipe(ends))
                return NAN;
        pid_t child = fork();
        if (child == 0) {
                const int count = job->group.count, ranks = (count - 1) * job->group.stride + 1;
                struct network_place *places = calloc((size_t)ranks, sizeof *places);
                struct member *members = calloc((size_t)count, sizeof *members);
                struct rv_error_info err;
                if (!places || !members || network_open(job->platform, ranks, 1, places, &err))
                        _exit(1);
                for (int i = 0; i < count; i++) {
                        members[i] = (struct member){job, i};
                        sg_actor_t actor = sg_actor_init("member", places[i * job->group.stride].device);
                        sg_actor_set_data(actor, &members[i]);
                        sg_actor_start_(actor, take_part, 0, NULL);
                }
                simgrid_run();
                seconds = simgrid_get_clock();
                _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
        }
        close(ends[1]);
        if (read(ends[0], &seconds, sizeof seconds) != sizeof seconds)
                seconds = NAN;
        close(ends[0]);
        waitpid(child, NULL, 0);
        return seconds;
}

static struct job job_of(const struct platform *platform, int count, int stride, int64_t bytes)
{
        struct job job = {.platform = platform, .group = {0, stride, count, 1}, .bytes = bytes};
        job.shape = collective_shape(platform, &job.group);
        job.costs = collective_choose(platform, &job.shape, COLLECTIVE_ALLREDUCE, bytes, DTYPE_FP32);
        return job;
}

/* ---- presets ---- */

static double show(const struct platform *platform, int count, int stride, int64_t bytes)
{
        static const char *const protocols[COLLECTIVE_PROTOCOLS] = {"LL", "LL128", "Simple"};
        const struct job job = job_of(platform, count, stride, bytes);
        const double closed = collective_estimate(&job.shape, &job.costs, COLLECTIVE_ALLREDUCE, bytes);
        const double simulated = simulate(&job), error = closed / simulated - 1;
        printf("%-15s %4d %6d %12lld  %-12s %-6s %12.1f %12.1f %8.3f\n", platform->name, count, stride,
               (long long)bytes, collective_algorithm_name(job.costs.algorithm),
               platform->collectives.library == LIBRARY_NCCL ? protocols[job.costs.protocol] : "",
               1e6 * closed, 1e6 * simulated, 100 * error);
        return fabs(error);
}

static int presets(void)
{
        static const char *const names[] = {"summit",    "selene",         "dgx-2h",      "dgx-h100",
                                            "pcie-box",  "cloud-ethernet", "vtrain-a100", "generic",
                                            "a100-roce", "h100-800g",      "meta-24k",    "perlmutter"};
        static const int64_t sizes[] = {4096, 1 << 20, 64 << 20};
        double worst = 0;
        printf("%-15s %4s %6s %12s  %-12s %-6s %12s %12s %8s\n", "platform", "gpus", "stride", "bytes",
               "algorithm", "by", "closed us", "SimGrid us", "error %");
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
                struct platform platform;
                struct rv_error_info err;
                if (platform_load(&platform, names[i], NULL, 32, &err)) {
                        fprintf(stderr, "collectives: %s\n", err.sentence);
                        return 2;
                }
                const int node = platform.gpus_per_node;
                for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
                        worst = fmax(worst, show(&platform, node, 1, sizes[j]));
                        if (platform.nodes >= 4)
                                worst = fmax(worst, show(&platform, 4, node, sizes[j]));
                        worst = fmax(worst, show(&platform, 2 * node, 1, sizes[j]));
                }
                platform_free(&platform);
        }
        printf("worst %.3f %%\n", 100 * worst);
        return worst > 0.02;
}

/* ---- a table ---- */

enum { MAX_MEMBERS = 64 };

static int table(const char *name, const char *path, const char *gpu)
{
        struct platform platform;
        struct rv_error_info err;
        double sum[MAX_MEMBERS] = {0}, worst[MAX_MEMBERS] = {0}, all = 0;
        int rows[MAX_MEMBERS] = {0}, count, total = 0;
        char line[256], found[64];
        long long bytes;
        double seconds;
        FILE *stream = fopen(path, "r");
        if (!stream || platform_load(&platform, name, NULL, 2, &err)) {
                fprintf(stderr, "collectives: %s\n", stream ? err.sentence : "the table cannot be read");
                return 2;
        }
        while (fgets(line, sizeof line, stream)) {
                if (sscanf(line, "%63[^,],%d,%lld,%lf", found, &count, &bytes, &seconds) != 4 ||
                    strcmp(found, gpu) != 0 || count < 2 || count >= MAX_MEMBERS)
                        continue;
                const struct job job = job_of(&platform, count, 1, bytes);
                const double error = fabs(
                        collective_estimate(&job.shape, &job.costs, COLLECTIVE_ALLREDUCE, bytes) / seconds -
                        1);
                rows[count]++;
                sum[count] += error;
                worst[count] = fmax(worst[count], error);
        }
        fclose(stream);
        printf("%s on %s: errors of the closed form\n%5s %5s %8s %8s\n", gpu, name, "gpus", "rows", "mean %",
               "worst %");
        for (int i = 2; i < MAX_MEMBERS; i++)
                if (rows[i] > 0) {
                        printf("%5d %5d %8.1f %8.1f\n", i, rows[i], 100 * sum[i] / rows[i], 100 * worst[i]);
                        all += sum[i];
                        total += rows[i];
                }
        printf("%5s %5d %8.1f\n", "all", total, total ? 100 * all / total : 0);
        platform_free(&platform);
        return total ? 0 : 1;
}

int main(int argc, char **argv)
{
        if (argc == 4)
                return table(argv[1], argv[2], argv[3]);
        return presets();
}
