/* What is written as a trace is read back; what is not a trace is refused with its line. */
#include "runtime/engine/ledger.h"
#include "runtime/engine/trace.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { SEED = 20240607, RANKS = 6, PP = 3, RECORDS = 5000 };
static const struct plan layout = {.pp = PP, .dp = 2, .tp = 2, .order = ORDER_REPLICAS};

struct fixture {
        struct trace trace;
        char path[64];
};

static double unit(uint64_t *seed)
{
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        return (double)(*seed >> 11) / 9007199254740992.0;
}

/* A trace of every kind of operation at times that need all their digits. */
static int set_up(void **state)
{
        struct fixture *f = calloc(1, sizeof *f);
        uint64_t seed = SEED;
        trace_init(&f->trace);
        for (int i = 0; i < RECORDS; i++) {
                double start = 1000 * unit(&seed), length = unit(&seed) * (i % 2 ? 1e-6 : 10);
                trace_add(&f->trace, &(struct trace_record){.rank = i % RANKS,
                                                            .batch = i / 100,
                                                            .kind = (enum op_kind)(i % OP_KINDS),
                                                            .of = i % OP_KINDS >= OP_STAGE_OUT
                                                                          ? (enum op_kind)(i % OP_STAGE_OUT)
                                                                          : (enum op_kind)(i % OP_KINDS),
                                                            .lane = (enum op_lane)(i / RANKS % LANES),
                                                            .micro_batch = i % 5 - 1,
                                                            .bucket = i % 3 - 1,
                                                            .bytes = INT64_C(5000000000) * (i % 2),
                                                            .issued = start - 1e-3 * unit(&seed),
                                                            .start = start,
                                                            .end = start + length,
                                                            .order = (uint64_t)i});
        }
        snprintf(f->path, sizeof f->path, "/tmp/ranvier-test-trace-%d.json", (int)getpid());
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        struct fixture *f = *state;
        unlink(f->path);
        trace_free(&f->trace);
        free(f);
        return 0;
}

static void write_whole(const struct fixture *f)
{
        struct rv_error_info err;
        json_t *plan = json_pack("{s:s}", "schedule", "1f1b");
        const struct trace_origin origin = {"simulated", &layout, "tiny \"one\"", "box", plan, NULL};
        if (trace_write(&f->trace, f->path, &origin, &err))
                fail_msg("%s", err.sentence);
        json_decref(plan);
}

static void a_trace_comes_back_to_the_nanosecond(void **state)
{
        struct fixture *f = *state;
        struct rv_error_info err;
        struct trace back;
        write_whole(f);
        if (trace_read(&back, f->path, &err))
                fail_msg("%s", err.sentence);
        assert_int_equal(back.count, RECORDS);
        assert_int_equal(back.layout.pp, PP);
        assert_string_equal(back.world, "simulated");
        const char *model, *machine, *schedule;
        assert_int_equal(json_unpack(back.about, "{s:s, s:s, s:{s:s}}", "model", &model, "machine", &machine,
                                     "plan", "schedule", &schedule),
                         0);
        assert_string_equal(model, "tiny \"one\"");
        assert_string_equal(machine, "box");
        assert_string_equal(schedule, "1f1b");
        for (int64_t i = 0; i < back.count; i++) {
                const struct trace_record *a = &f->trace.records[i], *b = &back.records[i];
                assert_true(a->rank == b->rank && a->batch == b->batch && a->kind == b->kind &&
                            a->of == b->of && a->lane == b->lane);
                assert_true(a->micro_batch == b->micro_batch && a->bucket == b->bucket &&
                            a->bytes == b->bytes);
                assert_true(a->order == b->order);
                if (fabs(a->issued - b->issued) > 1e-9 || fabs(a->start - b->start) > 1e-9 ||
                    fabs(a->end - b->end) > 1e-9)
                        fail_msg("record %lld (seed %d): start %.12f came back as %.12f", (long long)i, SEED,
                                 a->start, b->start);
        }
        trace_free(&back);
}

/* What Perfetto and chrome://tracing need, read with a JSON parser that knows nothing of trace.c. */
static void a_trace_is_what_chrome_reads(void **state)
{
        struct fixture *f = *state;
        for (int i = 0; i < 2; i++)
                trace_add_memory(&f->trace,
                                 &(struct trace_memory){i, 0.25, INT64_C(1) << 40, 7, INT64_C(3) << 33});
        write_whole(f);
        json_t *json = json_load_file(f->path, 0, NULL);
        assert_non_null(json);
        json_t *events = json_object_get(json, "traceEvents"), *event;
        size_t index, complete = 0, processes = 0, threads = 0, counters = 0, host_counters = 0;
        json_array_foreach(events, index, event)
        {
                const char *phase = json_string_value(json_object_get(event, "ph"));
                const char *name = json_string_value(json_object_get(event, "name"));
                json_t *named = json_object_get(json_object_get(event, "args"), "name");
                assert_true(json_is_integer(json_object_get(event, "pid")));
                if (strcmp(phase, "X") == 0) {
                        const struct trace_record *r = &f->trace.records[complete++];
                        double ts = json_number_value(json_object_get(event, "ts"));
                        double dur = json_number_value(json_object_get(event, "dur"));
                        assert_true(fabs(ts - r->start * 1e6) <= 1e-3);
                        assert_true(fabs(ts + dur - r->end * 1e6) <= 1.001e-3);
                } else if (strcmp(phase, "C") == 0 && strcmp(name, "host bytes in use") == 0) {
                        json_t *args = json_object_get(event, "args");
                        assert_true(json_integer_value(json_object_get(args, "activations")) ==
                                    INT64_C(3) << 33);
                        host_counters++;
                } else if (strcmp(phase, "C") == 0) {
                        assert_string_equal(name, "device bytes in use");
                        json_int_t activations, messages;
                        assert_int_equal(json_unpack(event, "{s:{s:I, s:I}}", "args", "activations",
                                                     &activations, "messages", &messages),
                                         0);
                        assert_true(activations == INT64_C(1) << 40 && messages == 7);
                        counters++;
                } else if (strcmp(name, "process_name") == 0) {
                        if (json_integer_value(json_object_get(event, "pid")) == 4)
                                assert_string_equal(json_string_value(named),
                                                    "rank 4 (stage 1, replica 0, shard 0)");
                        processes++;
                } else if (strcmp(name, "thread_name") == 0) {
                        const json_int_t lane =
                                json_integer_value(json_object_get(event, "tid")) - TRACE_FIRST_THREAD;
                        assert_string_equal(json_string_value(named), op_lane_name((enum op_lane)lane));
                        threads++;
                }
        }
        assert_int_equal(complete, RECORDS);
        assert_int_equal(counters, 2);
        assert_int_equal(host_counters, 2);
        assert_int_equal(processes, RANKS);
        assert_int_equal(threads, RANKS * LANES);
        json_decref(json);
}

/* Adds a message of `micro_batch` that rank `from` begins to send at `start`, and that its neighbour on the
 * lane has at `end`. */
static void add_message(struct trace *trace, int from, enum op_kind kind, enum op_lane lane, int micro_batch,
                        double start, double end)
{
        const bool forward = kind == OP_SEND_ACTIVATION;
        struct trace_record sent = {.rank = from, .kind = kind, .of = kind, .lane = lane},
                            received = {.rank = op_lane_peer(&layout, from, lane),
                                        .kind = forward ? OP_RECEIVE_ACTIVATION : OP_RECEIVE_GRADIENT,
                                        .lane = op_lane_opposite(lane)};
        sent.micro_batch = received.micro_batch = micro_batch;
        sent.order = received.order = (uint64_t)trace->count;
        received.of = received.kind;
        sent.start = start;
        sent.end = received.end = end;
        trace_add(trace, &received); /* posted before it is sent, at 0 */
        trace_add(trace, &sent);
}

/* Returns how many arrows the file has; each must have both ends, the second one after the first, at the
 * neighbour, and each end within an event of its lane, or no viewer shows it. */
static int check_arrows(const struct fixture *f)
{
        static struct {
                double ts;
                json_int_t pid;
        } begun[3 * TRACE_MAX_ARROWS];
        memset(begun, 0, sizeof begun);
        json_t *json = json_load_file(f->path, 0, NULL), *event;
        int begins = 0, ends = 0;
        size_t index;
        json_array_foreach(json_object_get(json, "traceEvents"), index, event)
        {
                const char *phase = json_string_value(json_object_get(event, "ph"));
                const json_int_t id = json_integer_value(json_object_get(event, "id")),
                                 pid = json_integer_value(json_object_get(event, "pid")),
                                 lane = json_integer_value(json_object_get(event, "tid")) -
                                        TRACE_FIRST_THREAD;
                const double ts = json_number_value(json_object_get(event, "ts"));
                if (strcmp(phase, "s") != 0 && strcmp(phase, "f") != 0)
                        continue;
                assert_in_range(id, 0, 3 * TRACE_MAX_ARROWS - 1);
                if (*phase == 's') {
                        assert_true(begun[id].ts == 0); /* an id is used once */
                        begun[id].ts = ts;
                        begun[id].pid = pid;
                        begins++;
                } else {
                        assert_true(begun[id].ts > 0 && ts > begun[id].ts);
                        assert_int_equal(pid, op_lane_peer(&layout, (int)begun[id].pid,
                                                           op_lane_opposite((enum op_lane)lane)));
                        begun[id].ts = INFINITY;
                        ends++;
                }
                bool inside = false;
                for (int64_t i = 0; i < f->trace.count && !inside; i++) {
                        const struct trace_record *r = &f->trace.records[i];
                        inside = r->rank == pid && (json_int_t)r->lane == lane &&
                                 ts >= r->start * 1e6 - 1e-4 && ts < r->end * 1e6;
                }
                assert_true(inside);
        }
        assert_int_equal(begins, ends);
        json_decref(json);
        return ends;
}

static void an_arrow_goes_from_each_send_to_its_receive_and_forward_in_time(void **state)
{
        struct fixture *f = *state;
        f->trace.count = 0;
        for (int m = 0; m < 8; m++) {
                add_message(&f->trace, 0, OP_SEND_ACTIVATION, LANE_SEND_NEXT, m, 1 + m, 2.5 + m);
                add_message(&f->trace, plan_next_rank(&layout, 0), OP_SEND_GRADIENT, LANE_SEND_PREVIOUS, m,
                            10 + m, 10.5 + m);
        }
        write_whole(f);
        assert_int_equal(check_arrows(f), 16);
        /* The clock of the receiver is behind: there the message came before it was sent. */
        f->trace.records[0].end = 0.5;
        write_whole(f);
        assert_int_equal(check_arrows(f), 15);
        /* A receive is missing: which send is whose is not known any more. */
        f->trace.records[2] = f->trace.records[--f->trace.count];
        write_whole(f);
        assert_in_range(check_arrows(f), 7, 8);
        struct rv_error_info err;
        struct trace back;
        assert_int_equal(trace_read(&back, f->path, &err), 0);
        assert_int_equal(back.count, f->trace.count);
        trace_free(&back);
}

static void a_trace_of_too_many_messages_has_no_arrows(void **state)
{
        struct fixture *f = *state;
        f->trace.count = 0;
        for (int m = 0; m <= TRACE_MAX_ARROWS; m++)
                add_message(&f->trace, 0, OP_SEND_ACTIVATION, LANE_SEND_NEXT, m, 1 + m, 2 + m);
        write_whole(f);
        assert_int_equal(check_arrows(f), 0);
}

/* Where nothing is offloaded a viewer shows no empty counter of the host. */
static void the_host_has_a_counter_only_if_something_is_offloaded(void **state)
{
        struct fixture *f = *state;
        static char text[4096];
        f->trace.count = 1;
        for (int host = 0; host < 2; host++) {
                trace_add_memory(&f->trace, &(struct trace_memory){0, 0.25, 100, 7, 9 * host});
                write_whole(f);
                FILE *stream = fopen(f->path, "r");
                assert_non_null(stream);
                text[fread(text, 1, sizeof text - 1, stream)] = 0;
                fclose(stream);
                assert_non_null(strstr(text, "\"device bytes in use\""));
                assert_int_equal(strstr(text, "\"host bytes in use\"") != NULL, host);
        }
}

/* Every kind and lane has a name, and no two the same one: a trace is read back by them. */
static void operations_and_lanes_have_names_of_their_own(void **state)
{
        (void)state;
        for (int i = 0; i < OP_KINDS; i++) {
                assert_non_null(op_name((enum op_kind)i));
                for (int j = 0; j < i; j++)
                        assert_string_not_equal(op_name((enum op_kind)i), op_name((enum op_kind)j));
        }
        for (int i = 0; i < LANES; i++) {
                assert_non_null(op_lane_name((enum op_lane)i));
                for (int j = 0; j < i; j++)
                        assert_string_not_equal(op_lane_name((enum op_lane)i), op_lane_name((enum op_lane)j));
        }
}

static void an_empty_trace_comes_back_empty(void **state)
{
        struct fixture *f = *state;
        struct rv_error_info err;
        struct trace back;
        trace_free(&f->trace);
        write_whole(f);
        assert_int_equal(trace_read(&back, f->path, &err), 0);
        assert_int_equal(back.count, 0);
        trace_free(&back);
}

static void write_text(const char *path, const char *text, size_t length)
{
        FILE *stream = fopen(path, "w");
        assert_non_null(stream);
        assert_int_equal(fwrite(text, 1, length, stream), length);
        fclose(stream);
}

static void assert_refused(const struct fixture *f, const char *text, size_t length, const char *sentence)
{
        struct rv_error_info err = {0};
        struct trace back;
        write_text(f->path, text, length);
        assert_int_equal(trace_read(&back, f->path, &err), RV_EINPUT);
        assert_null(back.records);
        if (strncmp(err.sentence, f->path, strlen(f->path)) != 0 || !strstr(err.sentence, sentence))
                fail_msg("'%s' does not say '%s'", err.sentence, sentence);
}

static void what_is_not_a_trace_is_refused_with_its_line(void **state)
{
        struct fixture *f = *state;
#define HEAD                                                                                                 \
        "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"ranvier\":\"0\",\"world\":\"real\",\"pp\":1},"         \
        "\"traceEvents\":[\n"
#define EVENT(tid, kind, dur)                                                                                \
        "{\"ph\":\"X\",\"pid\":0,\"tid\":" tid ",\"ts\":1.0,\"dur\":" dur ",\"args\":{\"kind\":\"" kind      \
        "\",\"micro_batch\":0,\"bucket\":0,\"bytes\":0,\"batch\":0,\"issued\":0.0,\"order\":0}}\n"
        static const struct {
                const char *text, *sentence;
        } wrong[] = {
                {"", ":1: not a trace that ranvier train or simulate wrote"},
                {"{\"traceEvents\":[\n]}\n", ":1: not a trace that ranvier train or simulate wrote"},
                {"some text\n", ":1: not a trace that ranvier train or simulate wrote"},
                {HEAD, ":1: the trace ends before its closing ]}"},
                {HEAD EVENT("10000000", "forward", "1.0"), ":2: the trace ends before its closing ]}"},
                {HEAD "{\"ph\":\"X\",\"pi", ":2: not valid JSON: premature end of input"},
                {HEAD "{\"pid\":0}\n]}\n", ":2: an event without \"ph\""},
                {HEAD "{\"ph\":\"X\",\"pid\":0}\n]}\n", ":2: Object item not found: tid in a trace event"},
                {HEAD EVENT("10000000", "dance", "1.0") "]}\n", ":2: kind 'dance' is no operation"},
                {HEAD EVENT("10000014", "forward", "1.0") "]}\n",
                 ":2: tid is 10000014, 10000000 to 10000013 was expected"},
                {HEAD EVENT("10000000", "forward", "-1.0") "]}\n",
                 ":2: ts 1, dur -1 and issued 0 are no times"},
                {HEAD EVENT("10000000", "forward", "1e303") "]}\n",
                 ":2: ts 1, dur 1e+303 and issued 0 are no times"},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
                assert_refused(f, wrong[i].text, strlen(wrong[i].text), wrong[i].sentence);
        struct rv_error_info err;
        struct trace back;
        assert_int_equal(trace_read(&back, "/tmp/no such trace.json", &err), RV_EINPUT);
        assert_string_equal(err.sentence,
                            "/tmp/no such trace.json: cannot be read: No such file or directory");
}

/* Readers have arrays of ranks, and work with their numbers: what is far from any trace ends here. */
static void a_grid_or_a_number_that_no_trace_has_is_refused(void **state)
{
        struct fixture *f = *state;
        static const struct {
                const char *grid, *numbers, *sentence;
        } wrong[] = {
                {"65536,\"dp\":65536,\"tp\":65536", "", ":1: pp 65536 x dp 65536 x tp 65536 is no grid"},
                {"2147483647,\"dp\":2147483647,\"tp\":2147483647", "", ":1: pp 2147483647 x dp"},
                {"1024,\"dp\":1024,\"tp\":2", "", "is no grid of 1 to 1048576 ranks"},
                {"0", "", ":1: pp 0 x dp 1 is no grid"},
                {"1048577", "", ":1: pp 1048577 x dp 1 is no grid"},
                {"2,\"dp\":-3", "", ":1: pp 2 x dp -3 is no grid"},
                {"2,\"dp\":3", "\"pid\":6", ":2: pid is 6, 0 to 5 was expected"},
                {"2,\"dp\":3", "\"pid\":2147483647", ":2: pid is 2147483647, 0 to 5 was expected"},
                {"3", "\"pid\":1048575", ":2: pid is 1048575, 0 to 1048574 was expected"}, /* dp unknown */
                {"2,\"dp\":3", "\"pid\":-1", ":2: pid is -1, 0 to 5 was expected"},
                {"1", "\"micro_batch\":-2147483648", ":2: micro_batch is -2147483648, -1 to"},
                {"1", "\"bucket\":-2", ":2: bucket is -2, -1 to"},
                {"1", "\"bytes\":-1", ":2: bytes is -1, 0 to"},
                {"1", "\"chunk\":-1", ":2: chunk is -1, 0 to"},
                {"1", "\"segment\":2000000000", ":2: segment is 2000000000, 0 to"},
                {"1", "\"batch\":-1", ":2: batch is -1, 0 to"},
                {"1", "\"ts\":1e300", ":2: ts 1e+300, dur"},
                {"1", "\"issued\":-1e300", "issued -1e+300 are no times"},
        };
        static const char *const at_rank[] = {"pid", "ts"};
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                char text[1024];
                bool outside = false; /* of args */
                for (int j = 0; j < 2; j++)
                        outside |= wrong[i].numbers[0] &&
                                   strncmp(wrong[i].numbers + 1, at_rank[j], strlen(at_rank[j])) == 0;
                /* The last of a name that stands twice counts. */
                int length = snprintf(
                        text, sizeof text,
                        "{\"otherData\":{\"ranvier\":\"0\",\"world\":\"real\",\"pp\":%s},\"traceEvents\":[\n"
                        "{\"ph\":\"X\",\"pid\":0,\"tid\":10000000,\"ts\":1.0,\"dur\":1.0%s%s,\"args\":{"
                        "\"kind\":"
                        "\"forward\",\"micro_batch\":0,\"bucket\":0,\"bytes\":0,\"batch\":0,\"issued\":0.0,"
                        "\"order\":0%s%s}}\n]}\n",
                        wrong[i].grid, outside ? "," : "", outside ? wrong[i].numbers : "",
                        !outside && wrong[i].numbers[0] ? "," : "", outside ? "" : wrong[i].numbers);
                assert_refused(f, text, (size_t)length, wrong[i].sentence);
        }
}

/* Wherever a file is cut, it is refused: no part of a trace passes for a whole one. */
static void a_trace_that_was_cut_anywhere_is_refused(void **state)
{
        struct fixture *f = *state;
        f->trace.count = 8;
        write_whole(f);
        static char text[16384];
        FILE *stream = fopen(f->path, "r");
        size_t length = fread(text, 1, sizeof text, stream);
        fclose(stream);
        assert_true(length > 1000 && length < sizeof text);
        for (size_t cut = 0; cut < length - 1; cut++) /* all but the final newline */
                assert_refused(f, text, cut, "");
}

static void a_trace_that_cannot_be_written_leaves_nothing(void **state)
{
        struct fixture *f = *state;
        struct rv_error_info err = {0};
        assert_int_not_equal(trace_write(&f->trace, "/no/such/folder/t.json",
                                         &(struct trace_origin){.world = "real", .layout = &layout}, &err),
                             0);
        assert_true(strstr(err.sentence, "/no/such/folder/t.json") != NULL);
}

static void the_ledger_keeps_the_peak_of_each_category_and_of_the_sum(void **state)
{
        (void)state;
        struct ledger ledger;
        ledger_init(&ledger);
        ledger_add(&ledger, MEMORY_DEVICE, MEMORY_WEIGHTS, 100);
        ledger_add(&ledger, MEMORY_DEVICE, MEMORY_ACTIVATIONS, 70);
        ledger_add(&ledger, MEMORY_HOST, MEMORY_ACTIVATIONS, 1000);
        ledger_add(&ledger, MEMORY_DEVICE, MEMORY_ACTIVATIONS, -50);
        ledger_add(&ledger, MEMORY_DEVICE, MEMORY_MESSAGES, 40);
        ledger_add(&ledger, MEMORY_HOST, MEMORY_ACTIVATIONS, -400);
        ledger_add(&ledger, MEMORY_HOST, MEMORY_MASTER, 300);
        for (int i = 0; i < 1000; i++)
                ledger_add(&ledger, MEMORY_DEVICE, MEMORY_TOKENS, i % 2 ? -1 : 1);
        assert_int_equal(ledger.bytes.in[MEMORY_DEVICE][MEMORY_ACTIVATIONS], 20);
        assert_int_equal(ledger.peak.in[MEMORY_DEVICE][MEMORY_ACTIVATIONS], 70);
        assert_int_equal(ledger.peak.in[MEMORY_DEVICE][MEMORY_MESSAGES], 40);
        assert_int_equal(ledger.total_peak[MEMORY_DEVICE], 170);
        assert_int_equal(ledger.bytes.in[MEMORY_HOST][MEMORY_ACTIVATIONS], 600);
        assert_int_equal(ledger.peak.in[MEMORY_HOST][MEMORY_ACTIVATIONS], 1000);
        assert_int_equal(ledger.total_peak[MEMORY_HOST], 1000);
}

/* What the driver and the core count while a batch runs is left to them. */
static void the_fixed_part_of_a_ledger_is_all_but_activations_and_messages_of_the_device(void **state)
{
        (void)state;
        struct ledger ledger;
        struct memory_bytes bytes;
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                bytes.in[MEMORY_DEVICE][c] = 1 << c;
                bytes.in[MEMORY_HOST][c] = 1000 << c;
        }
        ledger_init(&ledger);
        ledger_add_fixed(&ledger, &bytes);
        const int64_t fixed = (1 << MEMORY_CATEGORIES) - 1 - (1 << MEMORY_ACTIVATIONS);
        assert_int_equal(memory_total(&ledger.bytes, MEMORY_DEVICE), fixed - (1 << MEMORY_MESSAGES));
        assert_int_equal(memory_total(&ledger.bytes, MEMORY_HOST), 1000 * fixed);
        assert_int_equal(ledger.bytes.in[MEMORY_DEVICE][MEMORY_ACTIVATIONS], 0);
        assert_int_equal(ledger.bytes.in[MEMORY_DEVICE][MEMORY_MESSAGES], 0);
        assert_int_equal(ledger.bytes.in[MEMORY_HOST][MEMORY_ACTIVATIONS], 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_trace_comes_back_to_the_nanosecond, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_trace_is_what_chrome_reads, set_up, tear_down),
                cmocka_unit_test_setup_teardown(
                        an_arrow_goes_from_each_send_to_its_receive_and_forward_in_time, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_trace_of_too_many_messages_has_no_arrows, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(the_host_has_a_counter_only_if_something_is_offloaded, set_up,
                                                tear_down),
                cmocka_unit_test(operations_and_lanes_have_names_of_their_own),
                cmocka_unit_test_setup_teardown(an_empty_trace_comes_back_empty, set_up, tear_down),
                cmocka_unit_test_setup_teardown(what_is_not_a_trace_is_refused_with_its_line, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(a_grid_or_a_number_that_no_trace_has_is_refused, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(a_trace_that_was_cut_anywhere_is_refused, set_up, tear_down),
                cmocka_unit_test_setup_teardown(a_trace_that_cannot_be_written_leaves_nothing, set_up,
                                                tear_down),
                cmocka_unit_test(the_ledger_keeps_the_peak_of_each_category_and_of_the_sum),
                cmocka_unit_test(
                        the_fixed_part_of_a_ledger_is_all_but_activations_and_messages_of_the_device),
        };
        return cmocka_run_group_tests_name("trace", tests, NULL, NULL);
}
