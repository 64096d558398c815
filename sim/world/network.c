#include "sim/world/network.h"

#include "runtime/base/child.h"
#include "runtime/base/file.h"
#include "runtime/sched/op.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xbt/dynar.h>

/* SimGrid clears a stack without a guard page whole, so guards save memory as well as faults; but each costs
 * two of the 65,530 mappings that Linux allows a process. */
enum { MAX_GUARDED_LANES = 30000 };

/* Up to so many ranks, every route is tried. */
enum { MAX_ALL_ROUTES = 64 };

/* A platform that takes longer to load and to try than so many seconds of a processor is no use: 100,000
 * hosts take 3 s. A line can ask for millions, of 2 kB each. */
enum { MAX_TRIAL_SECONDS = 120, MAX_TRIAL_GIBIBYTES = 4 };

/* As platforms of our own format have. */
#define MAX_LATENCY_SECONDS  3600.0
#define MAX_BYTES_PER_SECOND 1e18

/* Status of a trial that ends with a sentence of our own. */
enum { REFUSED = 3 };

/* The address sanitizer must know every stack, and it knows those of threads. */
#ifdef __SANITIZE_ADDRESS__
static const bool SANITIZED = true;
#else
static const bool SANITIZED = false;
#endif

/* Prediction is ours, and SimGrid's network model must add no factors of its own: CM02 has none, TCP's window
 * (gamma) and the traffic of acknowledgements are off.
 *
 * Rates are worked out in full: the default, "lazy", looks only at links that it noted as changed, and does
 * not note the others of a flow that begins in the same instant as one with the same first link, so that some
 * of these get more than the bandwidth of such a link (3.32; test_platform.c has a case, README.md what it
 * costs).
 *
 * Actors change places by SimGrid's own switch of stacks also under AddressSanitizer, which says once, when
 * the first actor ends by an exception, that it leaves that stack as it is. Nothing of ours is on it any
 * more. (As threads, which it knows, they take twenty times as long there as without it, instead of three
 * times.) */
static void start_simgrid(int ranks)
{
        bool guarded = ranks <= MAX_GUARDED_LANES / LANES;
        char *settings[] = {"ranvier-sim",
                            "--cfg=network/model:CM02",
                            "--cfg=network/crosstraffic:0",
                            "--cfg=network/TCP-gamma:0",
                            "--cfg=network/optim:Full",
                            "--cfg=contexts/factory:raw",
                            SANITIZED ? "--cfg=contexts/stack-size:512"
                            : guarded ? "--cfg=contexts/stack-size:64"
                                      : "--cfg=contexts/stack-size:24",
                            guarded ? "--cfg=contexts/guard-size:1" : "--cfg=contexts/guard-size:0",
                            "--log=root.thres:error",
                            NULL};
        int count = (int)(sizeof settings / sizeof *settings) - 1;
        simgrid_init(&count, settings);
}

/* Every host, in the order of names' bytes: SimGrid itself would look for a name in one zone after the other.
 */
struct hosts {
        sg_host_t *list; /* to be freed */
        size_t count;
};

static int by_bytes(const void *left, const void *right)
{
        return strcmp(sg_host_get_name(*(const sg_host_t *)left),
                      sg_host_get_name(*(const sg_host_t *)right));
}

static int is_named(const void *name, const void *host)
{
        return strcmp(name, sg_host_get_name(*(const sg_host_t *)host));
}

static struct hosts every_host(void)
{
        const struct hosts hosts = {sg_host_list(), sg_host_count()};
        qsort(hosts.list, hosts.count, sizeof(sg_host_t), by_bytes);
        return hosts;
}

/* The host that a property of a device names, if it has it. */
static sg_host_t host_beside(const struct hosts *hosts, sg_host_t device, const char *property)
{
        const char *name = sg_host_get_property_value(device, property);
        const sg_host_t *found =
                name ? bsearch(name, hosts->list, hosts->count, sizeof(sg_host_t), is_named) : NULL;
        return found ? *found : NULL;
}

/* Compares names as a reader would: runs of digits by their number, so that gpu-2 comes before gpu-10. */
static int by_name(const void *left, const void *right)
{
        const char *a = sg_host_get_name(*(const sg_host_t *)left);
        const char *b = sg_host_get_name(*(const sg_host_t *)right);
        while (*a && *b) {
                if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
                        char *a_end, *b_end;
                        unsigned long long x = strtoull(a, &a_end, 10), y = strtoull(b, &b_end, 10);
                        if (x != y)
                                return x < y ? -1 : 1;
                        a = a_end;
                        b = b_end;
                } else if (*a != *b) {
                        break;
                } else {
                        a++;
                        b++;
                }
        }
        return (unsigned char)*a - (unsigned char)*b;
}

static void mark(sg_host_t host)
{
        if (host)
                sg_host_set_data(host, host);
}

/* The hosts that are devices, sorted by name; the others stand beside them. The caller frees. */
static sg_host_t *devices(const struct hosts *all, size_t *count)
{
        static const char *const beside[] = {PLATFORM_MEMORY, PLATFORM_STAGING, PLATFORM_NEAR, PLATFORM_FAR};
        sg_host_t *kept = malloc((all->count + 1) * sizeof(sg_host_t));
        if (!kept)
                abort();
        for (size_t i = 0; i < all->count; i++)
                sg_host_set_data(all->list[i], NULL);
        for (size_t i = 0; i < all->count; i++)
                for (size_t k = 0; k < sizeof beside / sizeof *beside; k++)
                        mark(host_beside(all, all->list[i], beside[k]));
        *count = 0;
        for (size_t i = 0; i < all->count; i++)
                if (!sg_host_get_data(all->list[i]))
                        kept[(*count)++] = all->list[i];
        qsort(kept, *count, sizeof(sg_host_t), by_name);
        return kept;
}

static int take_places(const struct platform *platform, int ranks, struct network_place *places,
                       struct rv_error_info *err)
{
        size_t count;
        const struct hosts all = every_host();
        sg_host_t *list = devices(&all, &count);
        int rc = 0;
        if (count < (size_t)ranks)
                rc = rv_fail(err, RV_EPLAN, "--gpus %d: %s has only %zu hosts", ranks, platform->path, count);
        for (int i = 0; rc == 0 && i < ranks; i++) {
                sg_host_t staging = host_beside(&all, list[i], PLATFORM_STAGING);
                places[i] = (struct network_place){.device = list[i],
                                                   .memory = host_beside(&all, list[i], PLATFORM_MEMORY),
                                                   .staging = staging ? staging : list[i],
                                                   .near = host_beside(&all, list[i], PLATFORM_NEAR),
                                                   .far = host_beside(&all, list[i], PLATFORM_FAR)};
        }
        free(list);
        free(all.list);
        return rc;
}

struct trial {
        int ranks, stages;
};

static bool is_power_of_two(int n)
{
        return (n & (n - 1)) == 0;
}

/* Whether two ranks so far apart, counted around, can send to each other: neighbours in a pipeline; in an
 * all-reduce of replicas or of all ranks, neighbours of the ring and partners of recursive doubling; the two
 * ends of a pipeline, which share an embedding. */
static bool may_send(const struct trial *trial, int distance)
{
        return is_power_of_two(distance) || distance == trial->stages - 1 ||
               (distance % trial->stages == 0 && is_power_of_two(distance / trial->stages));
}

/* Ends the process if there is no route, or SimGrid does: depending on the kind of zone it says nothing of it
 * before a message is sent. */
static void try_route(sg_host_t from, sg_host_t to)
{
        xbt_dynar_t links = xbt_dynar_new(sizeof(sg_link_t), NULL);
        sg_host_get_route(from, to, links);
        if (xbt_dynar_is_empty(links)) {
                fprintf(stderr, "there is no route from %s to %s\n", sg_host_get_name(from),
                        sg_host_get_name(to));
                _exit(REFUSED);
        }
        xbt_dynar_free(&links);
}

/* Tries the routes between ranks. */
static void try_routes(int argc, char **argv)
{
        (void)argc, (void)argv;
        const struct trial *trial = sg_actor_self_get_data();
        int ranks = trial->ranks;
        size_t count;
        const struct hosts hosts = every_host();
        sg_host_t *all = devices(&hosts, &count);
        for (int i = 0; i < ranks; i++) {
                sg_host_t memory = host_beside(&hosts, all[i], PLATFORM_MEMORY);
                if (memory) {
                        try_route(memory, all[i]);
                        try_route(all[i], memory);
                }
        }
        for (int distance = 1; distance < ranks; distance++) {
                if (ranks > MAX_ALL_ROUTES && !may_send(trial, distance))
                        continue;
                for (int i = 0; i < ranks; i++) {
                        try_route(all[i], all[(i + distance) % ranks]);
                        try_route(all[(i + distance) % ranks], all[i]);
                }
        }
        free(all);
        free(hosts.list);
}

/* SimGrid takes any number: with some of them a message never ends, with others it ends before it begins. */
static void check_links(void)
{
        size_t count = sg_link_count();
        sg_link_t *links = sg_link_list();
        for (size_t i = 0; i < count; i++) {
                const double latency = sg_link_get_latency(links[i]), rate = sg_link_get_bandwidth(links[i]);
                const bool carries = rate > 0 && rate <= MAX_BYTES_PER_SECOND; /* no NaN passes either */
                if (carries && latency >= 0 && latency <= MAX_LATENCY_SECONDS)
                        continue;
                fprintf(stderr,
                        carries ? "link %s has a latency of %g s, 0 to %g s was expected\n"
                                : "link %s has a bandwidth of %g B/s, more than 0 and at most %g B/s was "
                                  "expected\n",
                        sg_link_get_name(links[i]), carries ? latency : rate,
                        carries ? MAX_LATENCY_SECONDS : MAX_BYTES_PER_SECOND);
                _exit(REFUSED);
        }
        free(links);
}

/* To be ended by SIGXCPU after a while, or sooner if the user has set a limit; without a file of its memory,
 * of which it gets so much (the address sanitizer needs more). */
static void limit_trial(void)
{
        struct rlimit limit;
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
#ifndef __SANITIZE_ADDRESS__
        const rlim_t most = (rlim_t)MAX_TRIAL_GIBIBYTES << 30;
        if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur > most) {
                limit.rlim_cur = most;
                setrlimit(RLIMIT_DATA, &limit);
        }
#endif
        if (getrlimit(RLIMIT_CPU, &limit) == 0 && limit.rlim_cur > MAX_TRIAL_SECONDS) {
                limit.rlim_cur = MAX_TRIAL_SECONDS;
                setrlimit(RLIMIT_CPU, &limit);
        }
}

/* What a child is to try. */
struct errand {
        const char *path;
        int ranks, stages;
};

/* In a child: loads the file and uses it; SimGrid ends the child if anything is wrong. */
static int try_xml(void *context, int complaints)
{
        const struct errand *errand = context;
        dup2(complaints, STDERR_FILENO);
        limit_trial();
        start_simgrid(errand->ranks);
        simgrid_load_platform(errand->path);
        check_links();
        size_t count;
        const struct hosts hosts = every_host();
        sg_host_t *all = devices(&hosts, &count);
        struct trial trial = {(int)count < errand->ranks ? (int)count : errand->ranks, errand->stages};
        if (trial.ranks == 0) /* the parent says so */
                return 0;
        sg_actor_t actor = sg_actor_init("try", all[0]);
        sg_actor_set_data(actor, &trial);
        sg_actor_start_(actor, try_routes, 0, NULL);
        free(all);
        free(hosts.list);
        simgrid_run();
        return 0;
}

/* The sentence in what SimGrid wrote before it ended: after "Parse error at " or "Uncaught exception ...: ".
 */
static void find_complaint(char *text, char **begin)
{
        static char crashed[] = "it crashed on it; is a route missing between two hosts?";
        char *found = strstr(text, "Parse error at ");
        if (!found && (found = strstr(text, "Uncaught exception ")))
                found += strlen("Uncaught exception ");
        *begin = found ? found : strstr(text, "Segmentation fault") ? crashed : text;
        (*begin)[strcspn(*begin, "\n")] = 0;
}

static int check_xml(const char *path, int ranks, int stages, struct rv_error_info *err)
{
        char text[4096], end[96], *complaint;
        struct child child;
        struct errand errand = {path, ranks, stages};
        int status;
        const int rc = child_start(&child, try_xml, &errand, "to try a platform", err);
        if (rc)
                return rc;
        text[child_answer(&child, text, sizeof text - 1, &status)] = 0;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
                return 0;
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: SimGrid did not load this platform and find its routes within the limit of "
                        "processor time (at most %d s): fewer hosts or simpler routing was expected",
                        path, MAX_TRIAL_SECONDS);
        if (strstr(text, "bad_alloc"))
                return rv_fail(err, RV_EINPUT,
                               "%s: SimGrid needs more than %d GiB to load this platform: fewer hosts were "
                               "expected",
                               path, MAX_TRIAL_GIBIBYTES);
        find_complaint(text, &complaint);
        if (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED)
                return rv_fail(err, RV_EINPUT, "%s: %.300s", path, complaint);
        if (WIFSIGNALED(status) && !complaint[0])
                return rv_fail(err, RV_ESYSTEM, "%s: the process that tried this platform %s", path,
                               child_end(status, end, sizeof end));
        return rv_fail(err, RV_EINPUT, "%s: SimGrid refuses this platform: %.300s", path, complaint);
}

/* Our own XML goes through a file without a name: nothing is left, however the process ends. */
static int load_generated(const struct platform *platform, int ranks, struct rv_error_info *err)
{
        char path[1024];
        FILE *stream = file_open_temporary(path, sizeof path, err);
        if (!stream)
                return RV_ESYSTEM;
        unlink(path);
        int rc = platform_write_xml(platform, ranks, stream, err);
        if (rc == 0) {
                rewind(stream);
                snprintf(path, sizeof path, "/dev/fd/%d", fileno(stream));
                simgrid_load_platform(path);
        }
        fclose(stream);
        return rc;
}

int network_open(const struct platform *platform, int ranks, int stages, struct network_place *places,
                 struct rv_error_info *err)
{
        int rc = 0;
        if (platform->xml[0])
                rc = check_xml(platform->xml, ranks, stages, err);
        if (rc)
                return rc;
        start_simgrid(ranks);
        if (platform->xml[0])
                simgrid_load_platform(platform->xml);
        else
                rc = load_generated(platform, ranks, err);
        return rc ? rc : take_places(platform, ranks, places, err);
}
