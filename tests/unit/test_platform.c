/* Platforms, the links and all-reduces they give in SimGrid: against closed forms. SimGrid runs once a
 * process, so every simulation is done in a child, which hands one number back. */
#include "sim/world/collective.h"
#include "sim/platform/fabric.h"
#include "sim/world/network.h"
#include "tests/unit/numbers.h"

#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Equal within a relative tolerance. */
static void assert_close(double found, double expected, double tolerance)
{
        assert_within(found, expected, tolerance * expected, "value", 0);
}

/* ---- a cluster on paper: four GPUs a node, 100 GB/s and 3 us inside, two rails of 10 GB/s and 5 us ---- */

enum { GPU_RATE = 100, RAIL_RATE = 10 };

static struct platform paper(void)
{
        return (struct platform){
                .name = "paper",
                .gpus_per_node = 4,
                .nodes = 64,
                .rails = 2,
                .sockets = 1,
                .gpu_link_bytes_per_second = GPU_RATE * 1e9,
                .gpu_link_seconds = 3e-6,
                .nic_bytes_per_second = 2 * RAIL_RATE * 1e9,
                .nic_seconds = 5e-6,
                .collective_segments = 1,
        };
}

/* ---- simulations in a child ---- */

struct transfer {
        int from, to;  /* ranks; MEMORY: the memory beside the other end */
        int64_t bytes; /* 0: the job's */
        double after;  /* seconds, when it starts */
};

enum { MEMORY = -1, MAX_TRANSFERS = 16 };

struct job {
        struct platform platform;
        int ranks, count;
        struct transfer transfers[MAX_TRANSFERS];
        bool allreduce; /* over all ranks, as the platform's library chooses */
        enum dtype dtype;
        int64_t bytes;
};

struct part {
        const struct job *job;
        int index;
        struct network_place from, to; /* of a copy */
};

static sg_mailbox_t box_of(int message)
{
        char name[32];
        snprintf(name, sizeof name, "message %d", message);
        return sg_mailbox_by_name(name);
}

static int64_t bytes_of(const struct part *part)
{
        int64_t bytes = part->job->transfers[part->index].bytes;
        return bytes ? bytes : part->job->bytes;
}

static void sender(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct part *part = sg_actor_self_get_data();
        sg_actor_sleep_for(part->job->transfers[part->index].after);
        sg_mailbox_put(box_of(part->index), part, (long)bytes_of(part));
}

/* As a lane copies. */
static void copier(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct part *part = sg_actor_self_get_data();
        const struct transfer *t = &part->job->transfers[part->index];
        sg_actor_sleep_for(t->after);
        if (t->from == MEMORY)
                sg_host_sendto(part->to.memory, part->to.device, (double)bytes_of(part));
        else
                sg_host_sendto(part->from.device, part->from.memory, (double)bytes_of(part));
}

static void receiver(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct part *part = sg_actor_self_get_data();
        sg_mailbox_get(box_of(part->index));
}

static void member(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct part *part = sg_actor_self_get_data();
        const struct job *job = part->job;
        const struct sim_group group = {GROUP_DATA, {0, 1, job->ranks, part->index}, NULL};
        const struct collective_group gpus = {0, 1, job->ranks, 1};
        const struct collective_shape shape = collective_shape(&job->platform, &gpus);
        const struct collective_costs costs =
                collective_choose(&job->platform, &shape, COLLECTIVE_ALLREDUCE, job->bytes, job->dtype);
        collective_run(&group, &shape, &costs, COLLECTIVE_ALLREDUCE, job->bytes);
}

static void start(void (*code)(int, char **), const struct part *part, sg_host_t host)
{
        struct part *copy = malloc(sizeof *copy);
        *copy = *part;
        sg_actor_t actor = sg_actor_init("part", host);
        sg_actor_set_data(actor, copy);
        sg_actor_start_(actor, code, 0, NULL);
}

static void start_transfer(const struct job *job, int index, const struct network_place *places)
{
        const struct transfer *t = &job->transfers[index];
        struct part part = {.job = job, .index = index};
        if (t->from != MEMORY)
                part.from = places[t->from];
        if (t->to != MEMORY)
                part.to = places[t->to];
        if (t->from == MEMORY || t->to == MEMORY) {
                start(copier, &part, places[t->from == MEMORY ? t->to : t->from].device);
        } else {
                start(sender, &part, part.from.staging); /* the device, unless the platform is staged */
                start(receiver, &part, part.to.staging);
        }
}

static double run_here(const struct job *job)
{
        struct network_place places[512];
        struct rv_error_info err;
        if (network_open(&job->platform, job->ranks, 1, places, &err))
                return -1;
        for (int i = 0; i < job->count; i++)
                start_transfer(job, i, places);
        for (int i = 0; job->allreduce && i < job->ranks; i++)
                start(member, &(struct part){.job = job, .index = i}, places[i].device);
        simgrid_run();
        return simgrid_get_clock();
}

/* Simulated seconds until everything has ended. */
static double seconds_of(const struct job *job)
{
        int ends[2], status;
        double seconds = -1;
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                seconds = run_here(job);
                _exit(write(ends[1], &seconds, sizeof seconds) == sizeof seconds ? 0 : 1);
        }
        close(ends[1]);
        assert_int_equal(read(ends[0], &seconds, sizeof seconds), sizeof seconds);
        close(ends[0]);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_true(seconds >= 0);
        return seconds;
}

static double message_seconds(int ranks, int count, const int ends[][2], int64_t bytes)
{
        struct job job = {.platform = paper(), .ranks = ranks, .count = count, .bytes = bytes};
        for (int i = 0; i < count; i++)
                job.transfers[i] = (struct transfer){.from = ends[i][0], .to = ends[i][1]};
        return seconds_of(&job);
}

/* SimGrid resolves times to 1e-9 s; the jobs here take milliseconds. */
static const double TOLERANCE = 1e-6;

/* ---- links ---- */

static void test_a_message_inside_a_node_crosses_two_gpu_links(void **state)
{
        (void)state;
        double seconds = message_seconds(4, 1, (const int[][2]){{0, 3}}, 1000000000);
        assert_close(seconds, 2 * 3e-6 + 1.0 / GPU_RATE, TOLERANCE);
}

static void test_a_message_between_nodes_crosses_a_rail_at_either_end(void **state)
{
        (void)state;
        double seconds = message_seconds(8, 1, (const int[][2]){{0, 4}}, 1000000000);
        assert_close(seconds, 2 * 5e-6 + 1.0 / RAIL_RATE, TOLERANCE);
}

static void test_gpus_of_one_rail_share_it_and_those_of_two_do_not(void **state)
{
        (void)state;
        double shared = message_seconds(8, 2, (const int[][2]){{0, 4}, {1, 5}}, 1000000000);
        double apart = message_seconds(8, 2, (const int[][2]){{0, 4}, {2, 6}}, 1000000000);
        assert_close(shared, 2 * 5e-6 + 2.0 / RAIL_RATE, TOLERANCE);
        assert_close(apart, 2 * 5e-6 + 1.0 / RAIL_RATE, TOLERANCE);
}

static void test_both_directions_of_a_link_are_free_of_each_other(void **state)
{
        (void)state;
        double inside = message_seconds(8, 2, (const int[][2]){{0, 1}, {1, 0}}, 1000000000);
        double between = message_seconds(8, 2, (const int[][2]){{0, 4}, {4, 0}}, 1000000000);
        assert_close(inside, 2 * 3e-6 + 1.0 / GPU_RATE, TOLERANCE);
        assert_close(between, 2 * 5e-6 + 1.0 / RAIL_RATE, TOLERANCE);
}

static void test_two_messages_into_one_gpu_share_its_link(void **state)
{
        (void)state;
        double seconds = message_seconds(4, 2, (const int[][2]){{0, 2}, {1, 2}}, 1000000000);
        assert_close(seconds, 2 * 3e-6 + 2.0 / GPU_RATE, TOLERANCE);
}

/* Two messages leave a GPU in the same instant, and one of them joins a third, older one on another link.
 * (SimGrid's lazy updates forget that link; see network.c.) */
static void test_a_message_that_begins_beside_another_shares_all_of_its_links(void **state)
{
        (void)state;
        const double bytes = 1e9, rate = GPU_RATE * 1e9, after = 1e-3;
        struct job job = {.platform = paper(),
                          .ranks = 4,
                          .count = 3,
                          .bytes = (int64_t)bytes,
                          .transfers = {{.from = 3, .to = 2, .bytes = 3 * (int64_t)bytes},
                                        {.from = 0, .to = 2, .after = after},
                                        {.from = 0, .to = 1, .after = after}}};
        double both = bytes / (rate / 2), left = 3 * bytes - after * rate - bytes;
        assert_close(seconds_of(&job), 2 * 3e-6 + after + both + left / rate, TOLERANCE);
}

/* ---- two sockets: three GPUs each, 50 GB/s and 10 us from each to its memory ---- */

enum { HOST_RATE = 50, MEMORY_RATE = 170, SOCKET_RATE = 64 };
static const double HOST_SECONDS = 10e-6;

static struct job two_sockets(void)
{
        struct job job = {.platform = paper(), .ranks = 6, .bytes = 1000000000};
        job.platform.gpus_per_node = 6;
        job.platform.sockets = 2;
        job.platform.host_link_bytes_per_second = HOST_RATE * 1e9;
        job.platform.host_link_seconds = HOST_SECONDS;
        job.platform.host_memory_bytes_per_second = MEMORY_RATE * 1e9;
        return job;
}

static void add(struct job *job, int from, int to)
{
        job->transfers[job->count++] = (struct transfer){.from = from, .to = to};
}

static void test_a_copy_takes_latency_and_its_bytes_over_the_host_link(void **state)
{
        (void)state;
        struct job fetch = two_sockets(), store = two_sockets();
        add(&fetch, MEMORY, 4);
        add(&store, 4, MEMORY);
        assert_close(seconds_of(&fetch), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
        assert_close(seconds_of(&store), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
}

static void test_six_gpus_that_fetch_stay_below_what_their_memories_give(void **state)
{
        (void)state;
        struct job job = two_sockets();
        for (int gpu = 0; gpu < 6; gpu++)
                add(&job, MEMORY, gpu);
        assert_close(seconds_of(&job), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
}

static void test_fetching_and_writing_back_at_once_share_the_memory_of_a_socket(void **state)
{
        (void)state;
        struct job job = two_sockets();
        for (int gpu = 0; gpu < 6; gpu++) {
                add(&job, MEMORY, gpu);
                add(&job, gpu, MEMORY);
        }
        assert_close(seconds_of(&job), HOST_SECONDS + 6.0 / MEMORY_RATE, TOLERANCE);
        job.transfers[0].bytes = 2 * job.bytes; /* goes on alone, at its link's rate */
        assert_close(seconds_of(&job), HOST_SECONDS + 6.0 / MEMORY_RATE + 1.0 / HOST_RATE, TOLERANCE);
}

/* One socket is busy, the other is not: max-min fairness is a socket's own. */
static void test_a_memory_is_shared_by_the_gpus_of_its_socket_alone(void **state)
{
        (void)state;
        struct job job = two_sockets();
        for (int gpu = 0; gpu < 3; gpu++) {
                add(&job, MEMORY, gpu);
                add(&job, gpu, MEMORY);
        }
        add(&job, MEMORY, 3);
        job.transfers[6].bytes = 3 * job.bytes; /* longer than the others: the last to end */
        assert_close(seconds_of(&job), HOST_SECONDS + 3.0 / HOST_RATE, TOLERANCE);
}

static void test_a_slow_memory_is_what_limits(void **state)
{
        (void)state;
        struct job job = two_sockets();
        job.platform.host_memory_bytes_per_second = 20e9;
        for (int gpu = 0; gpu < 3; gpu++)
                add(&job, MEMORY, gpu);
        assert_close(seconds_of(&job), HOST_SECONDS + 3.0 / 20, TOLERANCE);
        job.platform.host_memory_bytes_per_second = 0; /* not given: never limits */
        assert_close(seconds_of(&job), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
}

static void test_copies_and_messages_do_not_disturb_each_other(void **state)
{
        (void)state;
        struct job job = two_sockets();
        add(&job, MEMORY, 0);
        add(&job, 0, 1);
        add(&job, 1, 0);
        assert_close(seconds_of(&job), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
}

static void test_messages_between_sockets_cross_the_link_between_them(void **state)
{
        (void)state;
        struct job job = two_sockets();
        add(&job, 0, 3);
        assert_close(seconds_of(&job), 2 * 3e-6 + 1.0 / GPU_RATE, TOLERANCE); /* no such link */
        job.platform.socket_link_bytes_per_second = SOCKET_RATE * 1e9;
        job.platform.socket_link_seconds = 1e-6;
        double one = 2 * 3e-6 + 1e-6 + 1.0 / SOCKET_RATE;
        assert_close(seconds_of(&job), one, TOLERANCE);
        add(&job, 4, 1); /* the other direction */
        assert_close(seconds_of(&job), one, TOLERANCE);
        add(&job, 1, 5);
        assert_close(seconds_of(&job), one + 1.0 / SOCKET_RATE, TOLERANCE);
        job.transfers[0].to = 2;
        job.count = 1;
        assert_close(seconds_of(&job), 2 * 3e-6 + 1.0 / GPU_RATE, TOLERANCE);
}

/* From host memory to host memory: a socket's memory, the link between sockets and the rails limit, never the
 * links of the GPUs. */
static void test_staged_messages_cross_no_link_of_a_gpu(void **state)
{
        (void)state;
        struct job job = two_sockets();
        job.ranks = 12;
        job.platform.staged = true;
        job.platform.gpu_link_bytes_per_second = 1e9;
        add(&job, 0, 1);
        assert_close(seconds_of(&job), 1.0 / MEMORY_RATE, TOLERANCE);
        add(&job, 2, 0); /* beside it, in the same memory */
        assert_close(seconds_of(&job), 2.0 / MEMORY_RATE, TOLERANCE);
        job.transfers[1] = (struct transfer){.from = 4, .to = 3}; /* in the other one */
        assert_close(seconds_of(&job), 1.0 / MEMORY_RATE, TOLERANCE);
        job.platform.socket_link_bytes_per_second = SOCKET_RATE * 1e9;
        job.platform.socket_link_seconds = 1e-6;
        job.transfers[1] = (struct transfer){.from = 0, .to = 3};
        assert_close(seconds_of(&job), 1e-6 + 1.0 / SOCKET_RATE, TOLERANCE);
        job.transfers[1] = (struct transfer){.from = 0, .to = 6}; /* in another node */
        assert_close(seconds_of(&job), 2 * 5e-6 + 1.0 / RAIL_RATE, TOLERANCE);
        job.platform.host_memory_bytes_per_second = 0; /* never limits */
        job.count = 1;
        assert_true(seconds_of(&job) < 1e-8);
        add(&job, MEMORY, 0); /* copies are as they were */
        assert_close(seconds_of(&job), HOST_SECONDS + 1.0 / HOST_RATE, TOLERANCE);
}

/* ---- fabrics: nodes of one GPU with an adapter of 20 GB/s and 5 us; 1 us a hop ---- */

static struct job on_fabric(struct fabric fabric, int nodes)
{
        struct job job = {.platform = paper(), .ranks = nodes, .bytes = 1000000000};
        job.platform.gpus_per_node = job.platform.rails = 1;
        job.platform.nodes = nodes;
        job.platform.fabric = fabric;
        job.platform.fabric.hop_seconds = 1e-6;
        return job;
}

/* Seconds of one message, by what the closed forms know of its way. */
static double way_seconds(const struct job *job, double rate)
{
        const struct transfer *t = &job->transfers[0];
        return 2 * 5e-6 + fabric_hops(&job->platform.fabric, t->from, t->to) * 1e-6 + 1.0 / rate;
}

static void test_trunks_of_a_fat_tree_are_shared_where_it_is_oversubscribed(void **state)
{
        (void)state;
        const struct fabric tree = {
                .kind = FABRIC_FAT_TREE, .levels = 2, .below = {2, 2}, .oversubscription = {2, 4}};
        struct job job = on_fabric(tree, 8);
        add(&job, 0, 1); /* below one switch */
        assert_int_equal(fabric_hops(&tree, 0, 1), 0);
        assert_close(seconds_of(&job), way_seconds(&job, 20), TOLERANCE);
        job.transfers[0].to = 2; /* below the next: 40 GB/s over 2 */
        assert_int_equal(fabric_hops(&tree, 0, 2), 2);
        assert_close(seconds_of(&job), way_seconds(&job, 20), TOLERANCE);
        add(&job, 1, 3);
        assert_close(seconds_of(&job), way_seconds(&job, 10), TOLERANCE);
        job.transfers[0].to = 4; /* over the top: 80 GB/s over 4, for two of them */
        job.transfers[1].to = 5;
        assert_int_equal(fabric_hops(&tree, 0, 4), 4);
        assert_close(seconds_of(&job), way_seconds(&job, 10), TOLERANCE);
}

static void test_messages_on_a_torus_take_the_shorter_way_around(void **state)
{
        (void)state;
        const struct fabric torus = {
                .kind = FABRIC_TORUS, .levels = 2, .shape = {5, 3}, .link_bytes_per_second = 8e9};
        struct job job = on_fabric(torus, 15);
        const int far[][3] = {{0, 1, 1}, {0, 4, 1}, {0, 3, 2}, {0, 5, 1}, {0, 14, 2}, {2, 10, 3}};
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
                assert_int_equal(fabric_hops(&torus, far[i][0], far[i][1]), far[i][2]);
                job.transfers[0] = (struct transfer){.from = far[i][0], .to = far[i][1]};
                job.count = 1;
                assert_close(seconds_of(&job), way_seconds(&job, 8), TOLERANCE);
        }
        job.transfers[0] = (struct transfer){.from = 0, .to = 2};
        add(&job, 1, 2); /* joins it on its second link */
        assert_close(seconds_of(&job), way_seconds(&job, 4), 1e-5);
}

/* Switches that no way between the first nodes leads past are not written. */
static void test_of_a_large_torus_only_what_ranks_reach_is_written(void **state)
{
        (void)state;
        const struct fabric torus = {
                .kind = FABRIC_TORUS, .levels = 3, .shape = {8, 40, 100}, .link_bytes_per_second = 8e9};
        struct job job = on_fabric(torus, 24); /* three rows of 8 */
        const int far[][3] = {{0, 7, 1}, {0, 4, 4}, {0, 23, 3}, {7, 16, 3}, {1, 22, 5}};
        struct rv_error_info err;
        char *text = NULL;
        size_t size = 0;
        int switches = 0;
        for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
                assert_int_equal(fabric_hops(&torus, far[i][0], far[i][1]), far[i][2]);
                job.transfers[0] = (struct transfer){.from = far[i][0], .to = far[i][1]};
                job.count = 1;
                assert_close(seconds_of(&job), way_seconds(&job, 8), TOLERANCE);
        }
        FILE *stream = open_memstream(&text, &size);
        assert_int_equal(platform_write_xml(&job.platform, job.ranks, stream, &err), 0);
        fclose(stream);
        for (const char *at = text; (at = strstr(at, "<zone id=\"switch-")); at++)
                switches++;
        assert_int_equal(switches, 24);
        free(text);
}

static void test_groups_of_a_dragonfly_share_the_link_between_them(void **state)
{
        (void)state;
        const struct fabric dragonfly = {.kind = FABRIC_DRAGONFLY,
                                         .groups = 3,
                                         .routers = 2,
                                         .router_nodes = 2,
                                         .link_bytes_per_second = 15e9,
                                         .global_link_bytes_per_second = 5e9};
        struct job job = on_fabric(dragonfly, 12);
        add(&job, 0, 1); /* one router */
        assert_close(seconds_of(&job), way_seconds(&job, 20), TOLERANCE);
        job.transfers[0].to = 2; /* one group */
        assert_int_equal(fabric_hops(&dragonfly, 0, 2), 1);
        assert_close(seconds_of(&job), way_seconds(&job, 15), TOLERANCE);
        for (int to = 4; to < 12; to++) {
                job.transfers[0].to = to;
                assert_close(seconds_of(&job), way_seconds(&job, 5), TOLERANCE);
        }
        job.transfers[0].to = 4;
        add(&job, 3, 6);
        assert_close(seconds_of(&job), way_seconds(&job, 2.5), 1e-5);
}

/* A copy and a message to another node leave a GPU over the same PCI Express link. */
static void test_copies_and_messages_between_nodes_share_pci_express(void **state)
{
        (void)state;
        struct job job = two_sockets();
        job.ranks = 12;
        job.platform.pcie_bytes_per_second = 16e9;
        job.platform.rails = 6;
        job.platform.nic_bytes_per_second = 6 * 16e9;
        add(&job, 0, 6);
        assert_close(seconds_of(&job), 2 * 5e-6 + 1.0 / 16, TOLERANCE);
        add(&job, 0, MEMORY);
        assert_close(seconds_of(&job), 2.0 / 16, 1e-3);
        job.transfers[1] = (struct transfer){.from = MEMORY, .to = 0}; /* the other way */
        assert_close(seconds_of(&job), 1.0 / 16, 1e-3);
        job.transfers[1] = (struct transfer){.from = 0, .to = 1}; /* over the GPUs' own links */
        assert_close(seconds_of(&job), 1.0 / 16, 1e-3);
        job.platform.gpu_link_is_pcie = true;
        assert_close(seconds_of(&job), 2.0 / 16, 1e-3);
}

/* ---- collectives ---- */

static struct job reducing(int ranks, double step_seconds, double reduce_seconds_per_byte, int segments)
{
        struct job job = {.platform = paper(), .ranks = ranks, .allreduce = true};
        job.platform.collective_latency_seconds = step_seconds;
        job.platform.reduce_seconds_per_byte = reduce_seconds_per_byte;
        job.platform.collective_segments = segments;
        return job;
}

static void test_a_ring_takes_its_closed_form(void **state)
{
        (void)state;
        for (int p = 2; p <= 4; p++) {
                struct job job = reducing(p, 7e-6, 2e-12, 1);
                job.bytes = (int64_t)p * 100000000;
                double block = (double)job.bytes / p;
                double step = 7e-6 + 2 * 3e-6 + block / (GPU_RATE * 1e9);
                assert_close(seconds_of(&job), 2 * (p - 1) * step + (p - 1) * 2e-12 * block, TOLERANCE);
        }
}

static void test_segments_hide_arithmetic_behind_messages(void **state)
{
        (void)state;
        struct job job = reducing(2, 0, 5e-12, 4); /* reduces twice as fast as a link carries */
        job.bytes = 800000000;
        double segment = (double)job.bytes / 2 / 4, message = 2 * 3e-6 + segment / (GPU_RATE * 1e9);
        assert_close(seconds_of(&job), 2 * 4 * message + segment * 5e-12, TOLERANCE);
}

static void test_small_buffers_go_by_recursive_doubling(void **state)
{
        (void)state;
        const int steps[] = {[2] = 1, [3] = 3, [4] = 2};
        for (int p = 2; p <= 4; p++) {
                struct job job = reducing(p, 7e-6, 0, 1);
                job.bytes = 16;
                double expected = steps[p] * (7e-6 + 2 * 3e-6 + 16 / (GPU_RATE * 1e9));
                assert_close(seconds_of(&job), expected, 1e-4);
        }
}

/* ---- local ---- */

static struct profile measured(struct profile_load *load)
{
        *load = (struct profile_load){
                .ranks = 2,
                .lines =
                        {
                                [LINE_COPY] = {.fit = {1e-6, 1e-10, .present = true}},
                                [LINE_MESSAGE] = {.fit = {2e-6, 1.5e-10, .present = true}},
                                [LINE_ALLREDUCE] = {.fit = {30e-6, 1e-9, .present = true}},
                        },
        };
        return (struct profile){.path = "here.json", .loads = load, .load_count = 1, .measured = true};
}

static void test_local_predicts_the_measured_line_of_messages_and_all_reduces(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct rv_error_info err;
        struct job job = {.ranks = 2, .count = 1, .transfers = {{.to = 1}}, .bytes = 40000000};
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        assert_close(seconds_of(&job), 2e-6 + 40e6 * 1.5e-10, TOLERANCE);
        job.count = 0;
        job.allreduce = true;
        assert_close(seconds_of(&job), 30e-6 + 40e6 * 1e-9, TOLERANCE);
        assert_string_equal(job.platform.note, "");
        profile.loads->lines[LINE_ALLREDUCE].fit.latency_seconds = 1e-6; /* less than its two messages */
        assert_close(seconds_of(&job), 1e-6 + 40e6 * 1e-9, TOLERANCE);
}

/* Two ranks: half of the buffer each way, and the arithmetic of an all-reduce, which begins with it. */
static void test_local_scatters_with_the_arithmetic_of_its_all_reduces(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct platform platform;
        struct rv_error_info err;
        const struct collective_group both = {0, 1, 2, 1};
        const double half = 2e-6 + 20e6 * 1.5e-10;
        assert_int_equal(platform_load(&platform, "local", &profile, 2, &err), 0);
        const double arithmetic = 30e-6 + 40e6 * 1e-9 - 2 * half;
        assert_close(collective_seconds(&platform, &both, COLLECTIVE_REDUCE_SCATTER, 40000000, DTYPE_FP32),
                     half + arithmetic, TOLERANCE);
        assert_close(collective_seconds(&platform, &both, COLLECTIVE_ALL_GATHER, 40000000, DTYPE_FP32), half,
                     TOLERANCE);
}

/* One rank has nobody to send to: with loads of one and of four ranks, two ranks' messages are those of four.
 */
static void test_messages_come_from_a_load_that_has_some(void **state)
{
        (void)state;
        struct line_point messages[] = {{30000000, 0.008, 0}, {50000000, 0.010, 0}};
        struct profile_load load;
        struct profile profile = measured(&load);
        struct profile_load loads[] = {load, load};
        struct rv_error_info err;
        struct job job = {.ranks = 2, .count = 1, .transfers = {{.to = 1}}, .bytes = 40000000};
        loads[0].ranks = 1;
        loads[0].lines[LINE_MESSAGE].fit.present = false;
        loads[1].ranks = 4;
        loads[1].lines[LINE_MESSAGE].points = messages;
        loads[1].lines[LINE_MESSAGE].count = 2;
        profile.loads = loads;
        profile.load_count = 2;
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        platform_meet_messages(&job.platform, job.bytes);
        assert_close(seconds_of(&job), 0.009, TOLERANCE);
}

static void test_local_meets_the_points_where_it_was_measured(void **state)
{
        (void)state;
        struct line_point messages[] = {{30000000, 0.008, 0}, {50000000, 0.010, 0}};
        struct line_point allreduces[] = {
                {16, 40e-6, 0}, {20000000, 0.050, 0}, {40000000, 0.055, 0}, {60000000, 0.070, 0}};
        struct profile_load load;
        struct profile profile = measured(&load);
        struct rv_error_info err;
        struct job job = {.ranks = 2, .count = 1, .transfers = {{.to = 1}}, .bytes = 40000000};
        load.lines[LINE_MESSAGE].points = messages;
        load.lines[LINE_MESSAGE].count = 2;
        load.lines[LINE_ALLREDUCE].points = allreduces;
        load.lines[LINE_ALLREDUCE].count = 4;
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        platform_meet_messages(&job.platform, job.bytes);
        assert_close(seconds_of(&job), 0.009, TOLERANCE);
        job.count = 0;
        job.allreduce = true;
        assert_close(seconds_of(&job), 0.055, TOLERANCE);
        job.bytes = 50000000;
        assert_close(seconds_of(&job), 0.0625, TOLERANCE);
        job.bytes = 16;
        assert_close(seconds_of(&job), 40e-6, 1e-4);
        job.bytes = 80000000; /* beyond them: the line */
        assert_close(seconds_of(&job), 30e-6 + 80e6 * 1e-9, TOLERANCE);
}

static void test_local_says_where_it_knows_nothing_of_all_reduces(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct platform platform;
        struct rv_error_info err;
        load.lines[LINE_ALLREDUCE].fit.present = false;
        assert_int_equal(platform_load(&platform, "local", &profile, 2, &err), 0);
        assert_non_null(strstr(platform.note, "no fit of all-reduces"));
        load.lines[LINE_MESSAGE].fit.present = false;
        assert_int_equal(platform_load(&platform, "local", &profile, 2, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "no line \"message\""));
        assert_int_equal(platform_load(&platform, "local", &profile, 1, &err), 0);
}

static void test_all_reduces_of_fp16_have_a_line_of_their_own(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct rv_error_info err;
        struct job job = {.ranks = 2, .allreduce = true, .bytes = 40000000};
        load.lines[LINE_ALLREDUCE_FP16] = (struct profile_curve){.fit = {50e-6, 2e-9, .present = true}};
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        job.dtype = DTYPE_FP16;
        assert_close(seconds_of(&job), 50e-6 + 40e6 * 2e-9, TOLERANCE);
        load.lines[LINE_ALLREDUCE].fit.present = false; /* then it is what a few scalars go by, too */
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        assert_string_equal(job.platform.note, "");
        job.bytes = 16;
        job.dtype = DTYPE_FP32;
        assert_close(seconds_of(&job), 50e-6, 1e-3);
}

/* ---- files ---- */

static void test_the_summit_preset_has_two_memories_of_a_node(void **state)
{
        (void)state;
        struct platform platform;
        struct rv_error_info err = {.sentence = ""};
        if (platform_load(&platform, "summit", NULL, 384, &err))
                fail_msg("%s", err.sentence);
        assert_int_equal(platform.sockets, 2);
        for (int gpu = 0; gpu < 6; gpu++)
                assert_int_equal(platform_socket(&platform, gpu), gpu / 3);
        assert_close(platform.host_memory_bytes_per_second, 170e9, 1e-12);
        assert_close(platform.socket_link_bytes_per_second, 64e9, 1e-12);
        assert_int_equal(platform_host_share(&platform, 48), 512000000000 / 6);
        assert_int_equal(platform_host_share(&platform, 2), 512000000000 / 2);
}

static void test_the_generic_preset_has_the_figures_of_its_sources(void **state)
{
        (void)state;
        struct platform platform;
        struct rv_error_info err = {.sentence = ""};
        if (platform_load(&platform, "generic", NULL, 384, &err))
                fail_msg("%s", err.sentence);
        assert_int_equal(platform.gpus_per_node, 8);
        assert_true(platform.nodes >= 48);
        assert_close(platform.gpu_link_bytes_per_second, 300e9, 1e-12);
        assert_close(platform.nic_bytes_per_second, 200e9, 1e-12);
        assert_int_equal(platform.rails, 8);
        assert_close(platform.host_link_bytes_per_second, 32e9, 1e-12);
        assert_int_equal(platform.gpu_memory_bytes, 80000000000);
}

static void test_more_gpus_than_there_are_is_an_error_with_both_numbers(void **state)
{
        (void)state;
        struct platform platform;
        struct rv_error_info err;
        assert_int_equal(platform_load(&platform, "generic", NULL, 513, &err), RV_EPLAN);
        assert_non_null(strstr(err.sentence, "513"));
        assert_non_null(strstr(err.sentence, "512"));
}

/* The XML for `gpus`; the caller frees. */
static char *xml_of(int gpus, size_t *length)
{
        struct platform platform = paper();
        struct rv_error_info err;
        char *text = NULL;
        FILE *stream = open_memstream(&text, length);
        assert_non_null(stream);
        assert_int_equal(platform_write_xml(&platform, gpus, stream, &err), 0);
        fclose(stream);
        return text;
}

static int count_of(const char *text, const char *what)
{
        int count = 0;
        for (; (text = strstr(text, what)); text++)
                count++;
        return count;
}

static void test_only_nodes_that_ranks_touch_are_written(void **state)
{
        (void)state;
        size_t length;
        char *xml = xml_of(9, &length);
        assert_int_equal(count_of(xml, "<host "), 9);
        assert_int_equal(count_of(xml, "<zone id=\"node-"), 3);
        free(xml);
}

static void test_the_xml_grows_with_the_nodes_and_not_with_their_square(void **state)
{
        (void)state;
        size_t small, large;
        free(xml_of(64, &small));
        free(xml_of(256, &large));
        assert_true(large < 4.2 * (double)small);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_message_inside_a_node_crosses_two_gpu_links),
                cmocka_unit_test(test_a_message_between_nodes_crosses_a_rail_at_either_end),
                cmocka_unit_test(test_gpus_of_one_rail_share_it_and_those_of_two_do_not),
                cmocka_unit_test(test_both_directions_of_a_link_are_free_of_each_other),
                cmocka_unit_test(test_two_messages_into_one_gpu_share_its_link),
                cmocka_unit_test(test_a_message_that_begins_beside_another_shares_all_of_its_links),
                cmocka_unit_test(test_a_copy_takes_latency_and_its_bytes_over_the_host_link),
                cmocka_unit_test(test_six_gpus_that_fetch_stay_below_what_their_memories_give),
                cmocka_unit_test(test_fetching_and_writing_back_at_once_share_the_memory_of_a_socket),
                cmocka_unit_test(test_a_memory_is_shared_by_the_gpus_of_its_socket_alone),
                cmocka_unit_test(test_a_slow_memory_is_what_limits),
                cmocka_unit_test(test_copies_and_messages_do_not_disturb_each_other),
                cmocka_unit_test(test_messages_between_sockets_cross_the_link_between_them),
                cmocka_unit_test(test_staged_messages_cross_no_link_of_a_gpu),
                cmocka_unit_test(test_trunks_of_a_fat_tree_are_shared_where_it_is_oversubscribed),
                cmocka_unit_test(test_messages_on_a_torus_take_the_shorter_way_around),
                cmocka_unit_test(test_of_a_large_torus_only_what_ranks_reach_is_written),
                cmocka_unit_test(test_groups_of_a_dragonfly_share_the_link_between_them),
                cmocka_unit_test(test_copies_and_messages_between_nodes_share_pci_express),
                cmocka_unit_test(test_a_ring_takes_its_closed_form),
                cmocka_unit_test(test_segments_hide_arithmetic_behind_messages),
                cmocka_unit_test(test_small_buffers_go_by_recursive_doubling),
                cmocka_unit_test(test_local_predicts_the_measured_line_of_messages_and_all_reduces),
                cmocka_unit_test(test_local_scatters_with_the_arithmetic_of_its_all_reduces),
                cmocka_unit_test(test_messages_come_from_a_load_that_has_some),
                cmocka_unit_test(test_local_meets_the_points_where_it_was_measured),
                cmocka_unit_test(test_local_says_where_it_knows_nothing_of_all_reduces),
                cmocka_unit_test(test_all_reduces_of_fp16_have_a_line_of_their_own),
                cmocka_unit_test(test_the_summit_preset_has_two_memories_of_a_node),
                cmocka_unit_test(test_the_generic_preset_has_the_figures_of_its_sources),
                cmocka_unit_test(test_more_gpus_than_there_are_is_an_error_with_both_numbers),
                cmocka_unit_test(test_only_nodes_that_ranks_touch_are_written),
                cmocka_unit_test(test_the_xml_grows_with_the_nodes_and_not_with_their_square),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
