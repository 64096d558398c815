/* Collectives: the closed form against SimGrid over a grid of algorithms, groups and sizes; a folded group
 * against all of its members; the libraries' choices. SimGrid runs once a process, so every simulation is
 * done in a child, which hands one number back. */
#include "sim/world/collective.h"
#include "sim/world/network.h"
#include "tests/unit/numbers.h"
#include "tests/unit/sanitized.h"

#include <math.h>
#include <simgrid/actor.h>
#include <simgrid/engine.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Four GPUs a node, 100 GB/s and 1 us inside; four rails of 10 GB/s and 2.5 us a node. */
static struct platform paper(void)
{
        return (struct platform){
                .name = "paper",
                .gpus_per_node = 4,
                .nodes = 64,
                .rails = 4,
                .sockets = 1,
                .gpu_link_bytes_per_second = 100e9,
                .gpu_link_seconds = 1e-6,
                .nic_bytes_per_second = 40e9,
                .nic_seconds = 2.5e-6,
                .reduce_seconds_per_byte = 2e-12,
                .collective_latency_seconds = 5e-6,
                .collective_segments = 1,
        };
}

/* ---- simulations in a child ---- */

/* Groups of `count` GPUs that are `stride` apart; the i-th begins with GPU i. All begin at once. */
struct job {
        struct platform platform;
        int count, stride, groups;
        enum collective_kind kind;
        int64_t bytes;
        bool folded; /* the first member of each stands for all */
};

struct member {
        const struct job *job;
        struct network_place place;
        int group, index;
};

static struct collective_shape shape_of(const struct job *job, int group)
{
        const struct collective_group gpus = {group, job->stride, job->count, job->groups};
        return collective_shape(&job->platform, &gpus);
}

static void take_part(int argc, char **argv)
{
        (void)argc, (void)argv;
        const struct member *m = sg_actor_self_get_data();
        const struct job *job = m->job;
        const struct sim_group group = {.kind = GROUP_DATA,
                                        .ranks = {m->group, job->stride, job->count, m->index},
                                        .twins = job->folded ? &m->place : NULL};
        const struct collective_shape shape = shape_of(job, m->group);
        const struct collective_costs costs =
                collective_choose(&job->platform, &shape, job->kind, job->bytes, DTYPE_FP32);
        collective_run(&group, &shape, &costs, job->kind, job->bytes);
}

static double run_here(struct job *job)
{
        enum { MAX = 512 };
        static struct network_place places[MAX];
        static struct member members[MAX];
        const int all = (job->count - 1) * job->stride + job->groups, ranks = job->folded ? job->groups : all;
        struct rv_error_info err;
        if (job->folded)
                job->platform.folded_ranks = all;
        if (ranks > MAX || network_open(&job->platform, ranks, 1, places, &err))
                return -1;
        for (int g = 0; g < job->groups; g++)
                for (int i = 0; i < (job->folded ? 1 : job->count); i++) {
                        struct member *m = &members[i * job->groups + g];
                        *m = (struct member){job, places[i * job->stride + g], g, i};
                        sg_actor_t actor = sg_actor_init("member", m->place.device);
                        sg_actor_set_data(actor, m);
                        sg_actor_start_(actor, take_part, 0, NULL);
                }
        simgrid_run();
        return simgrid_get_clock();
}

/* Simulated seconds until all groups are done. */
static double seconds_of(const struct job *job)
{
        int ends[2], status;
        double seconds = -1;
        assert_int_equal(pipe(ends), 0);
        fflush(stdout); /* or the child prints it again */
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                struct job mine = *job;
                seconds = run_here(&mine);
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

static double closed_form(const struct job *job)
{
        const struct collective_group gpus = {0, job->stride, job->count, job->groups};
        return collective_seconds(&job->platform, &gpus, job->kind, job->bytes, DTYPE_FP32);
}

/* ---- the grid ---- */

/* Where groups lie: inside a node; one member a node; several members of every node; more than a power of
 * two. */
static const struct {
        int count, stride;
} placements[] = {{2, 1},  {3, 1}, {4, 1},  {2, 4},  {3, 4},  {5, 4}, {8, 4}, {16, 4},
                  {23, 4}, {8, 1}, {12, 1}, {16, 1}, {64, 1}, {4, 2}, {16, 2}};
static const int64_t sizes[] = {16, 4096, 262144, 8 << 20, 256 << 20};

enum { PLACEMENTS = sizeof placements / sizeof *placements, SIZES = sizeof sizes / sizeof *sizes };
enum { SIZES_APART = SANITIZED ? 3 : 1 };

struct worst {
        double error;
        struct job job;
};

static void look_at(struct worst *worst, const struct job *job)
{
        const double simulated = seconds_of(job), error = fabs(closed_form(job) / simulated - 1);
        if (error < worst->error)
                return;
        worst->error = error;
        worst->job = *job;
}

/* Prints the worst of an algorithm over all groups and sizes. */
static void check_algorithm(enum collective_algorithm algorithm, enum collective_kind kind, double max)
{
        static const char *const kinds[] = {"all-reduce", "reduce-scatter", "all-gather"};
        struct worst worst = {.error = 0};
        for (int i = 0; i < PLACEMENTS; i++)
                for (int j = 0; j < SIZES; j += SIZES_APART) {
                        struct job job = {.platform = paper(),
                                          .count = placements[i].count,
                                          .stride = placements[i].stride,
                                          .groups = 1,
                                          .kind = kind,
                                          .bytes = sizes[j]};
                        job.platform.collectives.algorithm = (int)algorithm;
                        look_at(&worst, &job);
                }
        printf("# %s, %s: the closed form errs by at most %.2f %% (%d GPUs, every %d., %lld B) in %d cases\n",
               kinds[kind], collective_algorithm_name(algorithm), 100 * worst.error, worst.job.count,
               worst.job.stride, (long long)worst.job.bytes,
               PLACEMENTS * ((SIZES + SIZES_APART - 1) / SIZES_APART));
        if (worst.error > max)
                fail_msg("%s, %s: %.2f %%", kinds[kind], collective_algorithm_name(algorithm),
                         100 * worst.error);
}

static const double MAX_ERROR = 0.02;

static void test_closed_forms_of_all_reduces_are_within_2_percent_of_simgrid(void **state)
{
        (void)state;
        for (enum collective_algorithm a = COLLECTIVE_RING; a < COLLECTIVE_ALGORITHMS; a++)
                check_algorithm(a, COLLECTIVE_ALLREDUCE, MAX_ERROR);
}

static void test_closed_forms_of_scattering_and_gathering_are_within_2_percent(void **state)
{
        (void)state;
        for (enum collective_kind kind = COLLECTIVE_REDUCE_SCATTER; kind <= COLLECTIVE_ALL_GATHER; kind++) {
                check_algorithm(COLLECTIVE_RING, kind, MAX_ERROR);
                check_algorithm(COLLECTIVE_FLAT_RING, kind, MAX_ERROR);
                check_algorithm(COLLECTIVE_HALVING, kind, MAX_ERROR);
                check_algorithm(COLLECTIVE_HIERARCHICAL, kind, MAX_ERROR);
        }
}

/* More members in the first node than are looked at elsewhere. */
static void test_what_leaves_a_large_node_is_seen(void **state)
{
        (void)state;
        struct platform platform = paper();
        platform.gpus_per_node = 72;
        platform.rails = 72;
        const struct collective_group group = {0, 1, 104, 1};
        const struct collective_shape shape = collective_shape(&platform, &group);
        assert_int_equal(shape.nodes, 2);
        assert_int_equal(shape.per_node, 0);
        assert_int_equal(shape.rings, 32);
        assert_true(shape.far_seconds > 0 && shape.far_alone_bytes_per_second == 40e9 / 72);
}

/* The rings over nodes that have unequal numbers of members are simulated as one that carries their part. */
static void test_rings_over_uneven_nodes_are_as_simulated(void **state)
{
        (void)state;
        static const struct {
                int count, stride;
        } uneven[] = {{6, 1}, {11, 1}, {5, 1}, {7, 2}};
        for (enum collective_kind kind = COLLECTIVE_ALLREDUCE; kind <= COLLECTIVE_ALL_GATHER; kind++)
                for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++) {
                        struct worst worst = {.error = 0};
                        struct job job = {.platform = paper(),
                                          .count = uneven[i].count,
                                          .stride = uneven[i].stride,
                                          .groups = 1,
                                          .kind = kind,
                                          .bytes = 8 << 20};
                        job.platform.collectives.algorithm = COLLECTIVE_RING;
                        look_at(&worst, &job);
                        assert_true(worst.error <= MAX_ERROR);
                }
}

/* ---- folded ---- */

/* All stages of a node sum at once and share its two rails; replicas are in nodes of their own, or two in
 * one. */
static void test_a_folded_group_takes_what_all_of_its_members_do(void **state)
{
        (void)state;
        static const struct {
                int count, stride, groups;
        } cases[] = {{8, 4, 4}, {3, 4, 4}, {16, 2, 2}, {8, 1, 1}, {4, 1, 1}};
        static const enum collective_algorithm algorithms[] = {COLLECTIVE_RING, COLLECTIVE_HALVING,
                                                               COLLECTIVE_HIERARCHICAL};
        double worst = 0;
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                for (size_t a = 0; a < sizeof algorithms / sizeof *algorithms; a++)
                        for (int j = 0; j < SIZES; j += SIZES_APART) {
                                struct job job = {.platform = paper(),
                                                  .count = cases[i].count,
                                                  .stride = cases[i].stride,
                                                  .groups = cases[i].groups,
                                                  .bytes = sizes[j]};
                                if (algorithms[a] == COLLECTIVE_HALVING && job.count == 3)
                                        continue; /* not all of its members do the same */
                                job.platform.rails = 2;
                                job.platform.collectives.algorithm = (int)algorithms[a];
                                double whole = seconds_of(&job);
                                job.folded = true;
                                double error = fabs(seconds_of(&job) / whole - 1);
                                if (error > 0.001)
                                        fail_msg("%s, %d members %d apart, %d groups, %lld B: folded differs "
                                                 "by %.3f %%",
                                                 collective_algorithm_name(algorithms[a]), job.count,
                                                 job.stride, job.groups, (long long)job.bytes, 100 * error);
                                worst = fmax(worst, error);
                        }
        printf("# folded groups differ by at most %.4f %%\n", 100 * worst);
}

/* ---- contention in the closed form ---- */

static void test_groups_side_by_side_share_what_the_closed_form_says(void **state)
{
        (void)state;
        struct job job = {.platform = paper(), .count = 8, .stride = 4, .groups = 4, .bytes = 64 << 20};
        job.platform.rails = 2;
        assert_within(closed_form(&job), seconds_of(&job), 0.02 * seconds_of(&job), "four groups", 0);
}

/* ---- measured ---- */

/* All-reduces of 2 and 4 GPUs of a node, of one node size only; all-gathers of 2, 4 and 16 nodes of four. */
static struct platform measured(void)
{
        static struct collective_point two[] = {{1024, 20e-6}, {1 << 20, 60e-6}, {64 << 20, 2e-3}};
        static struct collective_point four[] = {{1024, 30e-6}, {1 << 20, 90e-6}, {64 << 20, 3e-3}};
        static struct collective_point nodes2[] = {{1 << 20, 300e-6}, {64 << 20, 9e-3}};
        static struct collective_point nodes4[] = {{64 << 20, 12e-3}}, nodes16[] = {{64 << 20, 25e-3}};
        static struct collective_series series[] = {
                {COLLECTIVE_ALLREDUCE, 2, 1, two, 3},        {COLLECTIVE_ALLREDUCE, 4, 1, four, 3},
                {COLLECTIVE_ALL_GATHER, 8, 2, nodes2, 2},    {COLLECTIVE_ALL_GATHER, 16, 4, nodes4, 1},
                {COLLECTIVE_ALL_GATHER, 64, 16, nodes16, 1}, {COLLECTIVE_ALL_TO_ALL, 4, 1, four, 3},
        };
        struct platform platform = paper();
        platform.collectives.library = LIBRARY_NCCL;
        collective_nccl_protocols(false, platform.collectives.protocols);
        platform.measured_collectives =
                (struct collective_table){series, sizeof series / sizeof *series, "a test"};
        return platform;
}

static double measured_seconds(enum collective_kind kind, int count, int stride, int64_t bytes)
{
        const struct platform platform = measured();
        const struct collective_group group = {0, stride, count, 1};
        return collective_seconds(&platform, &group, kind, bytes, DTYPE_FP16);
}

static void test_a_measured_collective_takes_what_was_measured(void **state)
{
        (void)state;
        assert_within(measured_seconds(COLLECTIVE_ALLREDUCE, 4, 1, 1 << 20), 90e-6, 1e-10, "one point", 0);
        assert_within(measured_seconds(COLLECTIVE_ALL_GATHER, 16, 1, 64 << 20), 12e-3, 1e-8, "four nodes", 0);
        /* between sizes: in the middle of logarithms */
        assert_within(measured_seconds(COLLECTIVE_ALLREDUCE, 4, 1, 8 << 20), sqrt(90e-6 * 3e-3), 1e-9,
                      "between two sizes", 0);
        /* between 4 and 16 nodes: of what they take against the closed form */
        struct platform closed = measured();
        closed.measured_collectives = (struct collective_table){0};
        double library[3];
        for (int i = 0; i < 3; i++) {
                const struct collective_group group = {0, 1, 16 << i, 1};
                library[i] = collective_seconds(&closed, &group, COLLECTIVE_ALL_GATHER, 64 << 20, DTYPE_FP16);
        }
        assert_within(measured_seconds(COLLECTIVE_ALL_GATHER, 32, 1, 64 << 20),
                      library[1] * sqrt(12e-3 / library[0] * 25e-3 / library[2]), 1e-8,
                      "between 4 and 16 nodes", 0);
}

/* Beyond what was measured the closed form goes on, times what the nearest measurement took against it. */
static void test_beyond_what_was_measured_the_closed_form_goes_on(void **state)
{
        (void)state;
        struct platform closed = measured();
        closed.measured_collectives = (struct collective_table){0};
        const struct collective_group node = {0, 1, 4, 1}, four = {0, 1, 16, 1}, places = {0, 4, 4, 1};
        const double at = collective_seconds(&closed, &node, COLLECTIVE_ALLREDUCE, 64 << 20, DTYPE_FP16);
        const double beyond = collective_seconds(&closed, &node, COLLECTIVE_ALLREDUCE, 1 << 30, DTYPE_FP16);
        assert_within(measured_seconds(COLLECTIVE_ALLREDUCE, 4, 1, 1 << 30), 3e-3 * beyond / at, 1e-7,
                      "a larger size", 0);
        const double few = collective_seconds(&closed, &four, COLLECTIVE_ALL_GATHER, 4096, DTYPE_FP16);
        const double many = collective_seconds(&closed, &four, COLLECTIVE_ALL_GATHER, 64 << 20, DTYPE_FP16);
        assert_within(measured_seconds(COLLECTIVE_ALL_GATHER, 16, 1, 4096), 12e-3 * few / many, 1e-8,
                      "a smaller size", 0);
        /* one member of each of four nodes is slowed as all members of four nodes are */
        const double one = collective_seconds(&closed, &places, COLLECTIVE_ALL_GATHER, 16 << 20, DTYPE_FP16);
        assert_within(measured_seconds(COLLECTIVE_ALL_GATHER, 4, 4, 16 << 20), one * 12e-3 / many, 1e-8,
                      "one member of each node", 0);
        /* reduce-scatters were not measured at all */
        assert_within(measured_seconds(COLLECTIVE_REDUCE_SCATTER, 4, 1, 1 << 20),
                      collective_seconds(&closed, &node, COLLECTIVE_REDUCE_SCATTER, 1 << 20, DTYPE_FP16),
                      1e-12, "not measured", 0);
}

static void test_simgrid_takes_what_was_measured(void **state)
{
        (void)state;
        double worst = 0;
        for (int i = 0; i < PLACEMENTS; i++)
                for (int j = 0; j < SIZES; j += SIZES_APART)
                        for (int k = COLLECTIVE_ALLREDUCE; k <= COLLECTIVE_ALL_GATHER; k++) {
                                const struct job job = {.platform = measured(),
                                                        .count = placements[i].count,
                                                        .stride = placements[i].stride,
                                                        .groups = 1,
                                                        .kind = (enum collective_kind)k,
                                                        .bytes = sizes[j]};
                                const double error = fabs(closed_form(&job) / seconds_of(&job) - 1);
                                if (error > MAX_ERROR)
                                        fail_msg("%d GPUs, every %d., operation %d, %lld B: %.2f %%",
                                                 job.count, job.stride, k, (long long)job.bytes, 100 * error);
                                worst = fmax(worst, error);
                        }
        printf("# measured collectives: SimGrid differs by at most %.3f %%\n", 100 * worst);
}

/* NCCL's protocol for much data has 3.4 us for a step over NVLink and 9.6 us over the network; of the 16
 * steps of two nodes two leave one. */
static void test_a_broadcast_goes_round_the_ring_step_by_step(void **state)
{
        (void)state;
        struct platform platform;
        struct rv_error_info err;
        struct profile profile = {0};
        if (platform_load(&platform, "dgx-a100", &profile, 16, &err))
                fail_msg("%s", err.sentence);
        const struct collective_group node = {0, 1, 8, 1}, nodes = {0, 1, 16, 1};
        const struct collective_shape inside = collective_shape(&platform, &node);
        const struct collective_shape across = collective_shape(&platform, &nodes);
        assert_within(collective_ring_fill(&platform, &inside), 8 * 3.4e-6, 1e-12, "a node", 0);
        assert_within(collective_ring_fill(&platform, &across), 14 * 3.4e-6 + 2 * 9.6e-6, 1e-12, "two nodes",
                      0);
        platform_free(&platform);
}

static void test_a_measured_exchange_takes_what_was_measured(void **state)
{
        (void)state;
        struct platform platform = measured();
        const struct collective_group node = {0, 1, 4, 1};
        const struct collective_shape shape = collective_shape(&platform, &node);
        for (int64_t bytes = 1024; bytes <= 64 << 20; bytes *= 8) {
                const struct collective_exchange exchange =
                        collective_exchange(&platform, &shape, bytes, DTYPE_FP16);
                const double wanted = collective_series_seconds(&platform.measured_collectives.series[5],
                                                                (double)bytes, NULL);
                assert_within(collective_exchange_seconds(&shape, &exchange, bytes), wanted, 1e-6 * wanted,
                              "an exchange", 0);
        }
}

/* DeepEP's combine of bf16 rows of 7168 columns, 8 experts a token, between nodes of 8 H100, with 24
 * multiprocessors: ai-dynamo/aiconfigurator, measured (Apache-2.0). Between two nodes its messages of both
 * kinds hinder each other, which the model does not know. */
static void test_tokens_sent_to_a_node_once_take_about_what_deepep_took(void **state)
{
        (void)state;
        static const struct {
                int nodes;
                int64_t tokens;
                double seconds, within;
        } measured[] = {{2, 4096, 1.777e-3, 0.35},
                        {2, 16384, 6.407e-3, 0.30},
                        {4, 4096, 3.522e-3, 0.12},
                        {4, 16384, 13.52e-3, 0.08}};
        enum { CHOSEN = 8, HIDDEN = 7168, NODE = 8 };
        for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
                struct rv_error_info err;
                struct platform platform;
                const int ranks = NODE * measured[i].nodes;
                if (platform_load(&platform, "dgx-h100", NULL, ranks, &err))
                        fail_msg("%s", err.sentence);
                const struct collective_group gpus = {0, 1, ranks, 1};
                const struct collective_shape shape = collective_shape(&platform, &gpus);
                const int64_t bytes = measured[i].tokens * CHOSEN * HIDDEN * 2;
                const struct collective_exchange each =
                        collective_exchange(&platform, &shape, bytes, DTYPE_BF16);
                struct collective_exchange once = each;
                collective_exchange_once(&shape, CHOSEN, &once);
                const double seconds = collective_exchange_seconds(&shape, &once, bytes);
                assert_within(seconds, measured[i].seconds, measured[i].within * measured[i].seconds,
                              "tokens sent once", (int)i);
                assert_true(collective_exchange_seconds(&shape, &each, bytes) > 2 * seconds);
                platform_free(&platform);
        }
}

/* ---- libraries ---- */

static enum collective_algorithm choice_of(enum collective_library library, int count, int stride,
                                           int64_t bytes)
{
        struct platform platform = paper();
        const struct collective_group group = {0, stride, count, 1};
        platform.collectives.library = library;
        collective_nccl_protocols(false, platform.collectives.protocols);
        const struct collective_shape shape = collective_shape(&platform, &group);
        return collective_choose(&platform, &shape, COLLECTIVE_ALLREDUCE, bytes, DTYPE_FP32).algorithm;
}

/* Where links alone take time: what the literature says each algorithm sends. The simulation goes through the
 * same phases as the closed form does, so it cannot tell whether they are too many bytes. */
static void test_what_algorithms_send_is_what_textbooks_say(void **state)
{
        (void)state;
        const double bytes = 960e6, near = bytes / 100e9, far = bytes / 10e9, slow = bytes / 5e9;
        const struct {
                enum collective_algorithm algorithm;
                enum collective_kind kind;
                int count, stride;
                double link, seconds;
        } cases[] = {
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 4, 1, 100e9, 2 * 3 / 4.0 * near},
                {COLLECTIVE_RING, COLLECTIVE_REDUCE_SCATTER, 4, 1, 100e9, 3 / 4.0 * near},
                {COLLECTIVE_RING, COLLECTIVE_ALL_GATHER, 4, 1, 100e9, 3 / 4.0 * near},
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 16, 1, 100e9, 2 * 15 / 16.0 * far / 4},
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 16, 1, 5e9, 2 * 15 / 16.0 * slow * 3 / 4},
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 8, 4, 100e9, 2 * 7 / 8.0 * far},
                /* Nodes of 4 and 2, 4, 4 and 3, 4 and 1: as many rings as the fewest have, or a node allows.
                 */
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 6, 1, 100e9, 2 * 5 / 6.0 * far / 2},
                {COLLECTIVE_RING, COLLECTIVE_ALL_GATHER, 11, 1, 100e9, 10 / 11.0 * far / 3},
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 5, 1, 100e9, 2 * 4 / 5.0 * far},
                {COLLECTIVE_RING, COLLECTIVE_ALLREDUCE, 11, 1, 20e9, 2 * 10 / 11.0 * far / 2},
                {COLLECTIVE_FLAT_RING, COLLECTIVE_ALLREDUCE, 6, 1, 100e9, 2 * 5 / 6.0 * far},
                {COLLECTIVE_FLAT_RING, COLLECTIVE_ALLREDUCE, 16, 1, 100e9, 2 * 15 / 16.0 * far},
                {COLLECTIVE_HIERARCHICAL, COLLECTIVE_ALLREDUCE, 16, 1, 100e9,
                 2 * 3 / 4.0 * near + 2 * 3 / 4.0 * far / 4},
                {COLLECTIVE_HALVING, COLLECTIVE_ALLREDUCE, 8, 4, 100e9, 2 * 7 / 8.0 * far},
                {COLLECTIVE_DOUBLING, COLLECTIVE_ALLREDUCE, 8, 4, 100e9, 3 * far},
                {COLLECTIVE_BINOMIAL, COLLECTIVE_ALLREDUCE, 8, 4, 100e9, 2 * 3 * far},
                {COLLECTIVE_TREE, COLLECTIVE_ALLREDUCE, 2, 4, 100e9, far},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct platform platform = paper();
                const struct collective_group group = {0, cases[i].stride, cases[i].count, 1};
                platform.gpu_link_seconds = platform.nic_seconds = 0;
                platform.reduce_seconds_per_byte = platform.collective_latency_seconds = 0;
                platform.gpu_link_bytes_per_second = cases[i].link;
                platform.collectives.algorithm = (int)cases[i].algorithm;
                const double found =
                        collective_seconds(&platform, &group, cases[i].kind, (int64_t)bytes, DTYPE_FP32);
                if (!(fabs(found / cases[i].seconds - 1) < 1e-6))
                        fail_msg("%s, case %zu: %.9g s instead of %.9g",
                                 collective_algorithm_name(cases[i].algorithm), i, found, cases[i].seconds);
        }
}

static void test_open_mpi_chooses_by_its_table(void **state)
{
        (void)state;
        const enum collective_library mpi = LIBRARY_OPEN_MPI;
        assert_int_equal(choice_of(mpi, 2, 1, 4), COLLECTIVE_RING);
        assert_int_equal(choice_of(mpi, 2, 1, 4095), COLLECTIVE_DOUBLING);
        assert_int_equal(choice_of(mpi, 3, 1, 65536), COLLECTIVE_RING);
        assert_int_equal(choice_of(mpi, 3, 1, 262144), COLLECTIVE_HALVING);
        assert_int_equal(choice_of(mpi, 4, 1, 8191), COLLECTIVE_DOUBLING);
        assert_int_equal(choice_of(mpi, 64, 1, 262143), COLLECTIVE_DOUBLING);
        assert_int_equal(choice_of(mpi, 200, 1, 100), COLLECTIVE_BINOMIAL);
        assert_int_equal(choice_of(LIBRARY_OPEN_MPI_NONBLOCKING, 4, 1, 1 << 20), COLLECTIVE_BINOMIAL);
        assert_int_equal(choice_of(LIBRARY_RANVIER, 4, 1, 65535), COLLECTIVE_BINOMIAL);
        assert_int_equal(choice_of(LIBRARY_RANVIER, 4, 1, 65536), COLLECTIVE_RING);
}

static void test_nccl_takes_trees_for_few_bytes_between_many_nodes_and_rings_for_many(void **state)
{
        (void)state;
        assert_int_equal(choice_of(LIBRARY_NCCL, 32, 4, 4096), COLLECTIVE_TREE);
        assert_int_equal(choice_of(LIBRARY_NCCL, 32, 4, 1 << 30), COLLECTIVE_RING);
        assert_int_equal(choice_of(LIBRARY_NCCL, 4, 1, 4096), COLLECTIVE_RING);
}

/* LL for few bytes, Simple for many: what a protocol costs in bandwidth it saves in latency. */
static void test_nccl_changes_its_protocol_with_the_size(void **state)
{
        (void)state;
        struct platform platform = paper();
        const struct collective_group group = {0, 1, 4, 1};
        const int64_t few[] = {64, 1 << 20, 1 << 30};
        int before = 0;
        platform.collectives.library = LIBRARY_NCCL;
        collective_nccl_protocols(false, platform.collectives.protocols);
        const struct collective_shape shape = collective_shape(&platform, &group);
        for (int i = 0; i < 3; i++) {
                int protocol = collective_choose(&platform, &shape, COLLECTIVE_ALLREDUCE, few[i], DTYPE_FP32)
                                       .protocol;
                assert_true(protocol >= before);
                before = protocol;
        }
        assert_int_equal(before, COLLECTIVE_PROTOCOLS - 1);
}

/* Every member but the root has one parent, that parent has it as a child, and no member is inside both
 * trees. */
static void test_the_two_trees_are_trees(void **state)
{
        (void)state;
        for (int count = 2; count <= 40; count++)
                for (int i = 0; i < count; i++) {
                        int inside = 0;
                        for (int tree = 0; tree < 2; tree++) {
                                int children[2], found = 0, parent = collective_tree_parent(tree, i, count);
                                int siblings[2];
                                inside += collective_tree_children(tree, i, count, children) > 1;
                                if (parent < 0)
                                        continue;
                                int n = collective_tree_children(tree, parent, count, siblings);
                                for (int j = 0; j < n; j++)
                                        found += siblings[j] == i;
                                assert_int_equal(found, 1);
                                assert_int_equal(collective_tree_depth(tree, i, count),
                                                 collective_tree_depth(tree, parent, count) + 1);
                        }
                        assert_true(inside <= 1);
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_closed_forms_of_all_reduces_are_within_2_percent_of_simgrid),
                cmocka_unit_test(test_closed_forms_of_scattering_and_gathering_are_within_2_percent),
                cmocka_unit_test(test_rings_over_uneven_nodes_are_as_simulated),
                cmocka_unit_test(test_what_leaves_a_large_node_is_seen),
                cmocka_unit_test(test_a_folded_group_takes_what_all_of_its_members_do),
                cmocka_unit_test(test_groups_side_by_side_share_what_the_closed_form_says),
                cmocka_unit_test(test_a_measured_collective_takes_what_was_measured),
                cmocka_unit_test(test_beyond_what_was_measured_the_closed_form_goes_on),
                cmocka_unit_test(test_simgrid_takes_what_was_measured),
                cmocka_unit_test(test_a_broadcast_goes_round_the_ring_step_by_step),
                cmocka_unit_test(test_a_measured_exchange_takes_what_was_measured),
                cmocka_unit_test(test_tokens_sent_to_a_node_once_take_about_what_deepep_took),
                cmocka_unit_test(test_what_algorithms_send_is_what_textbooks_say),
                cmocka_unit_test(test_open_mpi_chooses_by_its_table),
                cmocka_unit_test(test_nccl_takes_trees_for_few_bytes_between_many_nodes_and_rings_for_many),
                cmocka_unit_test(test_nccl_changes_its_protocol_with_the_size),
                cmocka_unit_test(test_the_two_trees_are_trees),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
