/* Platforms, the links and all-reduces they give in SimGrid: against closed forms. SimGrid runs once a
 * process, so every simulation is done in a child, which hands one number back. */
#include "sim/collective.h"
#include "sim/network.h"
#include "tests/unit/numbers.h"

#include <simgrid/actor.h>
#include <simgrid/engine.h>
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
                .gpu_link_bytes_per_second = GPU_RATE * 1e9,
                .gpu_link_seconds = 3e-6,
                .nic_bytes_per_second = 2 * RAIL_RATE * 1e9,
                .nic_seconds = 5e-6,
                .collective_segments = 1,
        };
}

/* ---- simulations in a child ---- */

struct job {
        struct platform platform;
        int ranks;
        int messages, from[4], to[4]; /* of `bytes` each, all sent at the start */
        bool allreduce;               /* instead: over all ranks */
        struct collective_costs costs;
        int64_t bytes;
};

struct part {
        const struct job *job;
        int index;
};

static sg_mailbox_t box_of(int message)
{
        char name[32];
        snprintf(name, sizeof name, "message %d", message);
        return sg_mailbox_by_name(name);
}

static void sender(int argc, char **argv)
{
        (void)argc, (void)argv;
        struct part *part = sg_actor_self_get_data();
        sg_mailbox_put(box_of(part->index), part, (long)part->job->bytes);
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
        struct sim_group group = {GROUP_DATA, part->job->ranks, part->index, 0, 1, 0};
        collective_allreduce(&group, part->job->bytes, &part->job->costs);
}

static void start(void (*code)(int, char **), const struct job *job, int index, sg_host_t host)
{
        struct part *part = malloc(sizeof *part);
        *part = (struct part){job, index};
        sg_actor_t actor = sg_actor_init("part", host);
        sg_actor_set_data(actor, part);
        sg_actor_start_(actor, code, 0, NULL);
}

static double run_here(const struct job *job)
{
        sg_host_t hosts[512];
        struct rv_error_info err;
        if (network_open(&job->platform, job->ranks, 1, hosts, &err))
                return -1;
        for (int i = 0; i < job->messages; i++) {
                start(sender, job, i, hosts[job->from[i]]);
                start(receiver, job, i, hosts[job->to[i]]);
        }
        for (int i = 0; job->allreduce && i < job->ranks; i++)
                start(member, job, i, hosts[i]);
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
        struct job job = {.platform = paper(), .ranks = ranks, .messages = count, .bytes = bytes};
        for (int i = 0; i < count; i++) {
                job.from[i] = ends[i][0];
                job.to[i] = ends[i][1];
        }
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

/* ---- collectives ---- */

static void test_a_ring_takes_its_closed_form(void **state)
{
        (void)state;
        const struct collective_costs costs = {7e-6, 2e-12, 1};
        for (int p = 2; p <= 4; p++) {
                struct job job = {.platform = paper(), .ranks = p, .allreduce = true, .costs = costs};
                job.bytes = (int64_t)p * 100000000;
                double block = (double)job.bytes / p;
                double step = costs.step_seconds + 2 * 3e-6 + block / (GPU_RATE * 1e9);
                double expected = 2 * (p - 1) * step + (p - 1) * costs.reduce_seconds_per_byte * block;
                assert_close(seconds_of(&job), expected, TOLERANCE);
        }
}

static void test_segments_hide_arithmetic_behind_messages(void **state)
{
        (void)state;
        const struct collective_costs costs = {0, 5e-12, 4}; /* reduces twice as fast as a link carries */
        struct job job = {.platform = paper(), .ranks = 2, .allreduce = true, .costs = costs};
        job.bytes = 800000000;
        double segment = (double)job.bytes / 2 / 4, message = 2 * 3e-6 + segment / (GPU_RATE * 1e9);
        double expected = 2 * 4 * message + segment * costs.reduce_seconds_per_byte;
        assert_close(seconds_of(&job), expected, TOLERANCE);
}

static void test_small_buffers_go_by_recursive_doubling(void **state)
{
        (void)state;
        const struct collective_costs costs = {7e-6, 0, 1};
        const int steps[] = {[2] = 1, [3] = 3, [4] = 2};
        for (int p = 2; p <= 4; p++) {
                struct job job = {
                        .platform = paper(), .ranks = p, .allreduce = true, .costs = costs, .bytes = 16};
                double expected = steps[p] * (costs.step_seconds + 2 * 3e-6 + 16 / (GPU_RATE * 1e9));
                assert_close(seconds_of(&job), expected, 1e-4);
        }
}

/* ---- local ---- */

static struct profile measured(struct profile_load *load)
{
        *load = (struct profile_load){
                .ranks = 2,
                .copy = {.latency_seconds = 1e-6, .seconds_per_byte = 1e-10, .present = true},
                .message = {.latency_seconds = 2e-6, .seconds_per_byte = 1.5e-10, .present = true},
                .allreduce = {.latency_seconds = 30e-6, .seconds_per_byte = 1e-9, .present = true},
        };
        return (struct profile){.path = "here.json", .loads = load, .load_count = 1, .measured = true};
}

static struct collective_costs beside(const struct job *job)
{
        struct platform_collective beside = platform_collective(&job->platform, job->ranks, job->bytes);
        return (struct collective_costs){beside.step_seconds, beside.reduce_seconds_per_byte, 1};
}

static void test_local_predicts_the_measured_line_of_messages_and_all_reduces(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct rv_error_info err;
        struct job job = {.ranks = 2, .messages = 1, .from = {0}, .to = {1}, .bytes = 40000000};
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        assert_close(seconds_of(&job), 2e-6 + 40e6 * 1.5e-10, TOLERANCE);
        job.messages = 0;
        job.allreduce = true;
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 30e-6 + 40e6 * 1e-9, TOLERANCE);
        assert_string_equal(job.platform.note, "");
        profile.loads->allreduce.latency_seconds = 1e-6; /* less than its two messages */
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 1e-6 + 40e6 * 1e-9, TOLERANCE);
}

/* One rank has nobody to send to: with loads of one and of four ranks, two ranks' messages are those of four.
 */
static void test_messages_come_from_a_load_that_has_some(void **state)
{
        (void)state;
        struct line_point messages[] = {{50000000, 0.010}, {30000000, 0.008}};
        struct profile_load load;
        struct profile profile = measured(&load);
        struct profile_load loads[] = {load, load};
        struct rv_error_info err;
        struct job job = {.ranks = 2, .messages = 1, .from = {0}, .to = {1}, .bytes = 40000000};
        loads[0].ranks = 1;
        loads[0].message.present = false;
        loads[1].ranks = 4;
        loads[1].message_points = messages;
        loads[1].message_count = 2;
        profile.loads = loads;
        profile.load_count = 2;
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        platform_meet_messages(&job.platform, job.bytes);
        assert_close(seconds_of(&job), 0.009, TOLERANCE);
}

static void test_local_meets_the_points_where_it_was_measured(void **state)
{
        (void)state;
        struct line_point messages[] = {{50000000, 0.010}, {30000000, 0.008}};
        struct line_point allreduces[] = {
                {60000000, 0.070}, {20000000, 0.050}, {40000000, 0.055}, {16, 40e-6}};
        struct profile_load load;
        struct profile profile = measured(&load);
        struct rv_error_info err;
        struct job job = {.ranks = 2, .messages = 1, .from = {0}, .to = {1}, .bytes = 40000000};
        load.message_points = messages;
        load.message_count = 2;
        load.allreduce_points = allreduces;
        load.allreduce_count = 4;
        assert_int_equal(platform_load(&job.platform, "local", &profile, 2, &err), 0);
        platform_meet_messages(&job.platform, job.bytes);
        assert_close(seconds_of(&job), 0.009, TOLERANCE);
        job.messages = 0;
        job.allreduce = true;
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 0.055, TOLERANCE);
        job.bytes = 50000000;
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 0.0625, TOLERANCE);
        job.bytes = 16;
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 40e-6, 1e-4);
        job.bytes = 80000000; /* beyond them: the line */
        job.costs = beside(&job);
        assert_close(seconds_of(&job), 30e-6 + 80e6 * 1e-9, TOLERANCE);
}

static void test_local_says_where_it_knows_nothing_of_all_reduces(void **state)
{
        (void)state;
        struct profile_load load;
        struct profile profile = measured(&load);
        struct platform platform;
        struct rv_error_info err;
        load.allreduce.present = false;
        assert_int_equal(platform_load(&platform, "local", &profile, 2, &err), 0);
        assert_non_null(strstr(platform.note, "no fit of all-reduces"));
        load.message.present = false;
        assert_int_equal(platform_load(&platform, "local", &profile, 2, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "no fit of messages"));
        assert_int_equal(platform_load(&platform, "local", &profile, 1, &err), 0);
}

/* ---- files ---- */

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
                cmocka_unit_test(test_a_ring_takes_its_closed_form),
                cmocka_unit_test(test_segments_hide_arithmetic_behind_messages),
                cmocka_unit_test(test_small_buffers_go_by_recursive_doubling),
                cmocka_unit_test(test_local_predicts_the_measured_line_of_messages_and_all_reduces),
                cmocka_unit_test(test_messages_come_from_a_load_that_has_some),
                cmocka_unit_test(test_local_meets_the_points_where_it_was_measured),
                cmocka_unit_test(test_local_says_where_it_knows_nothing_of_all_reduces),
                cmocka_unit_test(test_the_generic_preset_has_the_figures_of_its_sources),
                cmocka_unit_test(test_more_gpus_than_there_are_is_an_error_with_both_numbers),
                cmocka_unit_test(test_only_nodes_that_ranks_touch_are_written),
                cmocka_unit_test(test_the_xml_grows_with_the_nodes_and_not_with_their_square),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
