/* Where the figures of a platform come from: its JSON file, or the profile of the machine itself. */
#include "sim/platform/platform.h"

#include "runtime/base/file.h"
#include "sim/platform/platform_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const algorithm_names[COLLECTIVE_ALGORITHMS] = {
        [COLLECTIVE_CHOICE] = "auto",         [COLLECTIVE_RING] = "ring",
        [COLLECTIVE_TREE] = "tree",           [COLLECTIVE_BINOMIAL] = "binomial",
        [COLLECTIVE_DOUBLING] = "doubling",   [COLLECTIVE_HALVING] = "halving",
        [COLLECTIVE_FLAT_RING] = "flat-ring", [COLLECTIVE_HIERARCHICAL] = "hierarchical"};

const char *collective_algorithm_name(enum collective_algorithm algorithm)
{
        return algorithm_names[algorithm];
}

/* tuning.cc's baseLat and hwLat (LL, LL128, Simple) of 2.8. It counts a quarter of the links' bandwidth for
 * LL, 0.92 for LL128. A level of a tree with Simple is a step of the ring's: tuning.cc's has a chunk's time
 * in it, which is a message here. */
void collective_nccl_protocols(bool pcie, struct collective_protocol protocols[COLLECTIVE_PROTOCOLS])
{
        const double us = 1e-6;
        const double start[] = {3.6, 10, 8.4}, tree_start[] = {4.4, 4.4, 0}, nvlink[] = {0.47, 1.9, 3.4};
        const double pci[] = {1.0, 2.5, 5.7}, network[] = {2.7, 4.0, 9.6}, level[] = {5.0, 8.5, 9.6};
        const double efficiency[] = {0.25, 0.92, 1};
        for (int i = 0; i < COLLECTIVE_PROTOCOLS; i++)
                protocols[i] = (struct collective_protocol){
                        start[i] * us,   tree_start[i] * us, (pcie ? pci : nvlink)[i] * us,
                        network[i] * us, level[i] * us,      efficiency[i],
                        efficiency[i]};
}

static const char *const no_preset[] = {"local", NULL};
const struct option_words platform_words = {.names = no_preset, .folder = PLATFORM_PRESETS, .files = true};

/* A preset's name if there is such a preset and the text is no path; else the path itself. */
static int find_path(struct platform *p, const char *name_or_path, struct rv_error_info *err)
{
        if (!strchr(name_or_path, '/') &&
            file_find(p->path, sizeof p->path, PLATFORM_PRESETS, name_or_path, ".json") == 0)
                return 0;
        FILE *stream = fopen(name_or_path, "r");
        if (!stream) {
                char names[384], near[FILE_NEAREST];
                file_list(names, sizeof names, PLATFORM_PRESETS, ".json");
                return rv_fail(err, RV_EINPUT,
                               "platform \"%.160s\" is neither \"local\", a preset (%.300s), nor a file "
                               "that can be "
                               "read%s",
                               name_or_path, names,
                               file_nearest(near, PLATFORM_PRESETS, name_or_path, ".json"));
        }
        fclose(stream);
        if (strlen(name_or_path) >= sizeof p->path)
                return rv_fail(err, RV_EINPUT,
                               "platform \"%.64s...\": the path is longer than %zu characters", name_or_path,
                               sizeof p->path - 1);
        memcpy(p->path, name_or_path, strlen(name_or_path) + 1);
        return 0;
}

struct platform platform_without_network(int ranks)
{
        return (struct platform){.name = "none",
                                 .gpus_per_node = 1,
                                 .nodes = ranks,
                                 .rails = 1,
                                 .sockets = 1,
                                 .collective_segments = 1};
}

int platform_socket(const struct platform *p, int gpu)
{
        return (int)((int64_t)gpu * p->sockets / p->gpus_per_node);
}

int platform_rail(const struct platform *p, int gpu)
{
        return (int)((int64_t)gpu * p->rails / p->gpus_per_node);
}

int64_t platform_gpus(const struct platform *p)
{
        int64_t gpus = 0;
        for (int i = 0; i < p->group_count; i++)
                gpus += (int64_t)p->groups[i].nodes * p->groups[i].gpus_per_node;
        return p->group_count ? gpus : (int64_t)p->nodes * p->gpus_per_node;
}

struct platform_place platform_place(const struct platform *p, int rank)
{
        int node = 0;
        for (int i = 0; i < p->group_count; i++) {
                const struct platform *group = &p->groups[i];
                const int64_t gpus = (int64_t)group->nodes * group->gpus_per_node;
                if (rank < gpus || i == p->group_count - 1)
                        return (struct platform_place){group, i, node + rank / group->gpus_per_node,
                                                       rank % group->gpus_per_node};
                rank -= (int)gpus;
                node += group->nodes;
        }
        return (struct platform_place){p, 0, rank / p->gpus_per_node, rank % p->gpus_per_node};
}

void platform_free(struct platform *p)
{
        free(p->groups);
        p->groups = NULL;
        p->group_count = 0;
        collective_table_free(&p->measured_collectives);
}

int64_t platform_host_share(const struct platform *p, int ranks)
{
        int64_t min = 0;
        for (int first = 0; first < ranks;) {
                const struct platform *nodes = platform_place(p, first).figures;
                const int64_t of_kind = (int64_t)nodes->nodes * nodes->gpus_per_node;
                const int sharing =
                        ranks - first < nodes->gpus_per_node ? ranks - first : nodes->gpus_per_node;
                int64_t share = nodes->host_memory_bytes / sharing;
                if (nodes->host_memory_bytes == 0)
                        return 0;
                share = share > 0 ? share : 1; /* 0 would be: not known */
                min = min == 0 || share < min ? share : min;
                first += (int)(of_kind < ranks ? of_kind : ranks);
        }
        return min;
}

void platform_meet_messages(struct platform *p, int64_t bytes)
{
        double line = 2 * p->gpu_link_seconds + (double)bytes / p->gpu_link_bytes_per_second;
        double measured = profile_line_seconds(p->messages, LINE_MESSAGE, bytes, false);
        if (measured <= 0) /* as in a profile made for a closed form: the line's links are fast enough */
                return;
        double slower = measured / line;
        p->gpu_link_seconds *= slower;
        p->gpu_link_bytes_per_second /= slower;
}

/* The load nearest to `ranks` that has messages and `line` fitted (all-reduces: between more than one). */
static const struct profile_load *fitted_load(const struct profile *profile, int ranks,
                                              enum profile_line line)
{
        const struct profile_load *best = NULL;
        for (int i = 0; i < profile->load_count; i++) {
                const struct profile_load *load = &profile->loads[i];
                if (load->lines[LINE_MESSAGE].fit.present && load->lines[line].fit.present &&
                    (line == LINE_MESSAGE || load->ranks > 1) &&
                    (!best || abs(load->ranks - ranks) < abs(best->ranks - ranks)))
                        best = load;
        }
        return best;
}

/* How many ranks of a CPU device compute at once, if they are more; else 0. */
static int shared_processors(const struct profile *profile, int ranks)
{
        const json_int_t cores = json_integer_value(json_object_get(profile->machine, "cores")),
                         threads = json_integer_value(json_object_get(profile->machine, "threads"));
        if (strcmp(profile->device.name, "cpu") != 0 || cores < 1 || threads < 1 || ranks * threads <= cores)
                return 0;
        return (int)(cores / threads);
}

/* Ranks are bound to as many cores as they have threads, and lanes share these. */
static int lane_processors(const struct profile *profile)
{
        const json_int_t threads = json_integer_value(json_object_get(profile->machine, "threads"));
        if (strcmp(profile->device.name, "cpu") != 0 || profile->host_link_bytes_per_second > 0)
                return 0;
        return (int)threads;
}

/* The machine that the profile was measured on: one node, whose links are the messages that were measured. */
static int load_local(struct platform *p, const struct profile *profile, int ranks, struct rv_error_info *err)
{
        const int processors = shared_processors(profile, ranks), computing = processors ? processors : ranks;
        const struct profile_load *load = profile_load_for(profile, computing);
        *p = platform_without_network(ranks);
        snprintf(p->name, sizeof p->name, "local");
        snprintf(p->path, sizeof p->path, "%s", profile->path);
        snprintf(p->source, sizeof p->source, "links from the messages of %.200s", profile->path);
        p->nodes = 1;
        p->gpus_per_node = ranks;
        p->processors = processors;
        p->waiting = processors ? profile->waiting : 0;
        p->lane_processors = processors ? 0 : lane_processors(profile);
        p->gpu_memory_bytes = profile->device_memory_bytes;
        p->gpu_peak_flops_per_second = profile->peak_flops_per_second;
        if (!load->lines[LINE_COPY].fit.present)
                return profile_no_line(profile, load, LINE_COPY, err);
        p->copies = load;
        for (int i = 0; i < profile->load_count && !p->files; i++)
                if (profile->loads[i].lines[LINE_SNAPSHOT].fit.present)
                        p->files = &profile->loads[i];
        p->collectives.library = LIBRARY_RANVIER;
        if (ranks == 1)
                return 0;
        p->messages = fitted_load(profile, computing, LINE_MESSAGE);
        bool reduces = false;
        for (enum dtype dtype = DTYPE_FP32; dtype < DTYPES; dtype++) {
                p->allreduces[dtype] = fitted_load(profile, computing, profile_allreduce_line(dtype));
                reduces |= p->allreduces[dtype] != NULL;
        }
        if (!p->messages)
                return profile_no_line(profile, load, LINE_MESSAGE, err);
        const struct line_fit *message = &p->messages->lines[LINE_MESSAGE].fit;
        p->gpu_link_seconds = message->latency_seconds / 2; /* a message crosses two links */
        p->gpu_link_bytes_per_second = 1 / fmax(message->seconds_per_byte, 1e-15);
        if (!reduces)
                snprintf(p->note, sizeof p->note,
                         "the profile has no fit of all-reduces: they are predicted from its messages alone, "
                         "without arithmetic");
        return 0;
}

void platform_pace(struct platform *p, double bytes_per_second)
{
        p->messages = NULL;
        memset(p->allreduces, 0, sizeof p->allreduces);
        p->collectives.algorithm = COLLECTIVE_RING;
        p->gpu_link_bytes_per_second = bytes_per_second;
        p->gpu_link_seconds = 0;
        p->note[0] = 0;
        snprintf(p->source, sizeof p->source,
                 "a link of %.6g GB/s a rank, as --net-link says, for messages and "
                 "collectives",
                 bytes_per_second / 1e9);
}

static int too_few(const struct platform *p, int ranks, struct rv_error_info *err)
{
        if (p->group_count)
                return rv_fail(err, RV_EPLAN, "--gpus %d: platform %s has %lld (%d nodes of several kinds)",
                               ranks, p->name, (long long)platform_gpus(p), p->nodes);
        return rv_fail(err, RV_EPLAN, "--gpus %d: platform %s has %lld (%d nodes of %d)", ranks, p->name,
                       (long long)platform_gpus(p), p->nodes, p->gpus_per_node);
}

int platform_load(struct platform *p, const char *name_or_path, const struct profile *profile, int ranks,
                  struct rv_error_info *err)
{
        *p = (struct platform){.rails = 1, .sockets = 1, .collective_segments = 1};
        if (strcmp(name_or_path, "local") == 0)
                return load_local(p, profile, ranks, err);
        int rc = find_path(p, name_or_path, err);
        if (rc)
                return rc;
        size_t length = strlen(p->path);
        if (length > 4 && strcmp(p->path + length - 4, ".xml") == 0) {
                *p = platform_without_network(ranks);
                snprintf(p->name, sizeof p->name, "xml");
                snprintf(p->path, sizeof p->path, "%s", name_or_path);
                snprintf(p->xml, sizeof p->xml, "%s", name_or_path);
                snprintf(p->source, sizeof p->source, "a SimGrid platform file, taken as it is");
                snprintf(p->note, sizeof p->note,
                         "a SimGrid file says nothing of host links and of the arithmetic of all-reduces: "
                         "both are "
                         "predicted to take no time");
                return 0;
        }
        rc = platform_file_read(p, err);
        if (rc == 0 && p->expandable && !p->group_count && ranks > platform_gpus(p))
                p->nodes = (ranks - 1) / p->gpus_per_node + 1;
        if (rc == 0 && ranks > platform_gpus(p))
                rc = too_few(p, ranks, err);
        if (rc)
                platform_free(p);
        return rc;
}
