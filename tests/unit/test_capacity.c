/* Whether plans fit, and what would make them fit, against a search of this test's own over every plan; and
 * the table as a user sees it (tests/golden/capacity.txt, which GOLDEN=1 rewrites). */
#include "runtime/engine/capacity.h"
#include "runtime/base/command_line.h"
#include "runtime/base/number.h"
#include "tests/unit/golden.h"
#include "tests/unit/numbers.h"
#include "tests/unit/sanitized.h"

#include <string.h>

enum {
        SEED = 20260722,
        SEARCHES = SANITIZED ? 60 : 100,
        APART = SANITIZED ? 3 : 1 /* percent, of the limits that are tried */
};

static int search_count(void)
{
        return is_every_case_taken() ? 3 * SEARCHES : SEARCHES;
}

static struct options small_plan(int pp, int dp, int micro_batch_size, int batch_size)
{
        struct options o;
        options_init(&o);
        o.model = "test";
        o.gpt = (struct gpt){.name = "test",
                             .n_layer = 6,
                             .n_embd = 64,
                             .n_head = 4,
                             .vocab_size = 500,
                             .n_positions = 32,
                             .tied = true};
        o.pp = pp;
        o.dp = dp;
        o.micro_batch_size = micro_batch_size;
        o.batch_size = batch_size;
        o.seq_len = 32;
        struct rv_error_info err;
        if (options_check(&o, pp * dp, &err))
                fail_msg("%s", err.sentence);
        return o;
}

/* The most bytes that any stage needs in a memory, and on which. */
static int64_t max_bytes(const struct options *o, enum memory_space space, int *where)
{
        int64_t max = -1;
        *where = -1;
        for (int s = 0; s < o->pp; s++) {
                struct stage stage = partition_stage(&o->gpt, o->pp, s);
                struct memory_plan plan = options_memory(o, s);
                struct memory_bytes bytes;
                memory_stage(&o->gpt, &stage, &plan, &bytes);
                if (memory_total(&bytes, space) <= max)
                        continue;
                max = memory_total(&bytes, space);
                *where = s;
        }
        return max;
}

static void a_plan_fits_up_to_the_last_byte(void **state)
{
        (void)state;
        struct options o = small_plan(3, 2, 4, 48);
        o.dtype = DTYPE_FP16;
        o.offload = true;
        int on_device = -1, on_host = -1;
        int64_t device = max_bytes(&o, MEMORY_DEVICE, &on_device),
                host = max_bytes(&o, MEMORY_HOST, &on_host);
        struct capacity_need need;
        struct rv_error_info err = {0};
        const struct {
                int64_t device, host;
                bool fits;
                enum memory_space space;
        } cases[] = {{0, 0, true, MEMORY_DEVICE},
                     {device, host, true, MEMORY_DEVICE},
                     {device, 0, true, MEMORY_DEVICE},
                     {device - 1, 0, false, MEMORY_DEVICE},
                     {device - 1, host, false, MEMORY_DEVICE},
                     {device, host - 1, false, MEMORY_HOST},
                     {0, host - 1, false, MEMORY_HOST},
                     {device - 1, host - 2, false, MEMORY_HOST},
                     {device - 2, host - 1, false, MEMORY_DEVICE}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct capacity capacity = {{cases[i].device, cases[i].host}};
                int rc = capacity_check(&o, &capacity, &need, &err);
                assert_int_equal(rc, cases[i].fits ? 0 : RV_EPLAN);
                assert_int_equal(need.space, cases[i].space);
                assert_int_equal(need.rank, need.space == MEMORY_DEVICE ? on_device : on_host);
                assert_int_equal(memory_total(&need.bytes, need.space),
                                 need.space == MEMORY_DEVICE ? device : host);
        }
}

/* The most that any stage needs in both memories together. */
static int64_t max_shared(const struct options *o, int *where)
{
        int64_t max = -1;
        for (int s = 0; s < o->pp; s++) {
                struct stage stage = partition_stage(&o->gpt, o->pp, s);
                struct memory_plan plan = options_memory(o, s);
                struct memory_bytes bytes;
                memory_stage(&o->gpt, &stage, &plan, &bytes);
                int64_t both = memory_total(&bytes, MEMORY_DEVICE) + memory_total(&bytes, MEMORY_HOST);
                if (both <= max)
                        continue;
                max = both;
                *where = s;
        }
        return max;
}

static const char table_above[] =
        "the table above says for what, and whether changes of the plan would make it fit";

static void one_memory_for_both_is_enough_up_to_the_last_byte(void **state)
{
        (void)state;
        struct options o = small_plan(3, 2, 4, 48);
        o.dtype = DTYPE_FP16;
        o.offload = true;
        int where = -1, ignored;
        int64_t both = max_shared(&o, &where), device = max_bytes(&o, MEMORY_DEVICE, &ignored);
        assert_true(both > device);
        struct capacity_need need;
        struct rv_error_info err = {0};
        struct capacity capacity = {{both, both, both}};
        assert_int_equal(capacity_check(&o, &capacity, &need, &err), 0);
        assert_false(need.shared);
        capacity.bytes[CAPACITY_SHARED]--;
        assert_int_equal(capacity_check(&o, &capacity, &need, &err), RV_EPLAN);
        assert_true(need.shared);
        assert_int_equal(need.rank, where);
        char expected[512], on_device[NUMBER_TEXT], on_host[NUMBER_TEXT], has[NUMBER_TEXT];
        int64_t its_device = memory_total(&need.bytes, MEMORY_DEVICE);
        snprintf(expected, sizeof expected,
                 "rank %d (stage %d of 3) of test needs %s of device and %s of host memory, which are one "
                 "memory here, and has %s of it: %s",
                 where, where, number_bytes(on_device, (double)its_device),
                 number_bytes(on_host, (double)(both - its_device)), number_bytes(has, (double)both - 1),
                 table_above);
        assert_string_equal(err.sentence, expected);
        /* Not shared in this plan's favour: each of the two alone is still looked at. */
        capacity = (struct capacity){{device - 1, 0, both}};
        assert_int_equal(capacity_check(&o, &capacity, &need, &err), RV_EPLAN);
        assert_false(need.shared);
        assert_int_equal(need.space, MEMORY_DEVICE);
}

static void the_sentence_names_rank_need_and_what_there_is(void **state)
{
        (void)state;
        struct options o = small_plan(3, 2, 4, 48);
        struct capacity_need need;
        struct rv_error_info err = {0};
        int where = -1;
        int64_t device = max_bytes(&o, MEMORY_DEVICE, &where);
        char expected[512];
        snprintf(expected, sizeof expected,
                 "rank %d (stage %d of 3) of test needs %.2f MiB of device memory and has 1.00 MiB: %s",
                 where, where, (double)device / 1048576, table_above);
        assert_int_equal(capacity_check(&o, &(struct capacity){{1 << 20, 0}}, &need, &err), RV_EPLAN);
        assert_string_equal(err.sentence, expected);
        o.dtype = DTYPE_FP16;
        o.offload = true;
        int64_t host = max_bytes(&o, MEMORY_HOST, &where);
        snprintf(expected, sizeof expected,
                 "rank %d (stage %d of 3) of test needs %.2f MiB of host memory and has 1000 B: %s", where,
                 where, (double)host / 1048576, table_above);
        assert_int_equal(capacity_check(&o, &(struct capacity){{0, 1000}}, &need, &err), RV_EPLAN);
        assert_string_equal(err.sentence, expected);
        /* Ranks of a stage are neighbours, so that a stage's first rank is not its number. */
        o.order = ORDER_REPLICAS;
        o.policy = POLICY_GPIPE; /* every stage stores as much, so that the last, which has the logits, needs
                                    most */
        o.dtype = DTYPE_FP32;
        o.offload = false;
        device = max_bytes(&o, MEMORY_DEVICE, &where);
        assert_int_equal(where, 2);
        snprintf(expected, sizeof expected, "rank 4 (stage 2 of 3) of test needs ");
        assert_int_equal(capacity_check(&o, &(struct capacity){{1 << 20, 0}}, &need, &err), RV_EPLAN);
        assert_memory_equal(err.sentence, expected, strlen(expected));
}

static void logits_are_made_at_once_where_that_fits(void **state)
{
        (void)state;
        struct rv_error_info err;
        struct capacity_need need;
        struct options o;
        options_init(&o);
        o.model = "gpt2-124m";
        o.micro_batch_size = 4;
        o.batch_size = 8;
        assert_int_equal(options_resolve(&o, 1, &err), RV_OK);
        capacity_check(&o, &(struct capacity){{0}}, &need, &err);
        const int64_t parts = memory_total(&need.bytes, MEMORY_DEVICE);
        o.logits_bytes = INT64_MAX;
        capacity_check(&o, &(struct capacity){{0}}, &need, &err);
        const int64_t whole = memory_total(&need.bytes, MEMORY_DEVICE);
        /* 4 x 1,024 rows of 50,304 in fp32, less the 592 of each of 7 parts, which take 128 MiB at most. */
        assert_int_equal(whole - parts, (INT64_C(4096) - 592) * 50304 * 4);
        const struct {
                int64_t asked, has, becomes;
        } cases[] = {{0, whole, INT64_MAX},
                     {0, whole - 1, WORKLOAD_LOGITS_BYTES},
                     {0, parts - 1, WORKLOAD_LOGITS_BYTES},
                     {0, 0, INT64_MAX},
                     {INT64_MAX, parts, INT64_MAX},
                     {1 << 20, whole, 1 << 20}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                o.logits_bytes = cases[i].asked;
                capacity_choose_logits(&o, &(struct capacity){{cases[i].has}});
                assert_true(o.logits_bytes == cases[i].becomes);
        }
        o.logits_bytes = 0;
        o.fused = false; /* all of them in any case */
        capacity_choose_logits(&o, &(struct capacity){{0}});
        assert_true(o.logits_bytes == 0);
}

/* A cost of each plan that has no pattern, and the same each time. */
struct costs {
        uint64_t seed;
        bool unknown;
};

static double cost(void *context, const struct options *o)
{
        const struct costs *costs = context;
        if (costs->unknown)
                return NAN;
        uint64_t state =
                costs->seed + (uint64_t)(o->offload + 2 * o->offload_activations + 4 * (int)o->recompute) +
                16 * (uint64_t)o->micro_batch_size + 8192 * (uint64_t)o->pp + 1048576 * (uint64_t)o->zero;
        for (int i = 0; i < 4; i++)
                random_bits(&state);
        return 2 + random_number(&state);
}

/* Every plan that differs from `base` as a user could ask for, in an order of its own; this test's copy of
 * what the header promises. */
struct plans {
        struct options all[4096];
        int count;
};

static int differences(const struct options *a, const struct options *b)
{
        return (a->offload != b->offload) + (a->recompute != b->recompute) +
               (a->offload_activations != b->offload_activations) +
               (a->micro_batch_size != b->micro_batch_size) + (a->pp != b->pp) + (a->zero != b->zero) +
               (a->bucket_parameters != b->bucket_parameters);
}

static bool fits(const struct options *o, const struct capacity *capacity)
{
        int where;
        for (int space = 0; space < MEMORY_SPACES; space++)
                if (capacity->bytes[space] &&
                    max_bytes(o, (enum memory_space)space, &where) > capacity->bytes[space])
                        return false;
        return !capacity->bytes[CAPACITY_SHARED] || max_shared(o, &where) <= capacity->bytes[CAPACITY_SHARED];
}

/* The largest bucket of those that the header names with which an offloaded plan fits; 0: none. */
static int64_t largest_bucket(const struct options *base, const struct capacity *capacity)
{
        enum { MIN = 1000 }; /* a stage of these plans has fewer than 1024 times as many */
        struct options o = *base;
        int64_t largest = 0;
        for (int halvings = base->offload ? 30 : 0; halvings >= 0; halvings--) {
                o.bucket_parameters = base->bucket_parameters >> halvings;
                if (halvings && o.bucket_parameters < MIN)
                        o.bucket_parameters = MIN;
                if (fits(&o, capacity))
                        largest = o.bucket_parameters;
        }
        return largest;
}

/* Less recomputation is never proposed, nor layer, nor selective where it does nothing. */
static bool recomputation_is_tried(const struct options *base, enum recompute recompute)
{
        switch (recompute) {
        case RECOMPUTE_SELECTIVE:
                return base->recompute == RECOMPUTE_SELECTIVE ||
                       (base->recompute == RECOMPUTE_NONE && !base->fused);
        case RECOMPUTE_FULL:
                return base->recompute != RECOMPUTE_LAYER;
        default:
                return recompute == base->recompute;
        }
}

static void list_plans(const struct options *base, const struct capacity *capacity, int max,
                       struct plans *plans)
{
        plans->count = 0;
        for (int switches = 47; switches >= 0; switches--)
                for (int size = 1; size <= base->micro_batch_size; size++)
                        for (int dp = 1; dp <= base->dp; dp++) {
                                struct options o = *base;
                                o.offload = switches & 1;
                                o.dtype = options_mixed(base) || !o.offload ? base->dtype : DTYPE_FP16;
                                o.recompute = (enum recompute)((switches & 2) / 2 + (switches & 8) / 4);
                                o.offload_activations = switches & 4;
                                o.micro_batch_size = size;
                                o.dp = dp;
                                o.pp = base->pp * base->dp / dp;
                                o.zero = switches / 16;
                                if (o.zero && dp == 1)
                                        continue;
                                if (!recomputation_is_tried(base, o.recompute) ||
                                    o.pp * dp != base->pp * base->dp || o.pp > o.gpt.n_layer ||
                                    o.batch_size % (dp * size))
                                        continue;
                                o.bucket_parameters = largest_bucket(&o, capacity);
                                if (o.bucket_parameters && differences(base, &o) > 0 &&
                                    differences(base, &o) -
                                                    (o.bucket_parameters != base->bucket_parameters) <=
                                            max)
                                        plans->all[plans->count++] = o;
                        }
}

/* Whether less than `o` would do at no higher cost. */
static bool beaten(const struct plans *plans, const struct options *base, const struct options *o,
                   struct costs *costs)
{
        for (int i = 0; i < plans->count; i++) {
                const struct options *p = &plans->all[i];
                if (differences(p, o) && (p->offload == o->offload || p->offload == base->offload) &&
                    recompute_depth(p->recompute) <= recompute_depth(o->recompute) &&
                    (p->offload_activations == o->offload_activations ||
                     p->offload_activations == base->offload_activations) &&
                    p->bucket_parameters >= o->bucket_parameters &&
                    p->micro_batch_size >= o->micro_batch_size && p->pp <= o->pp && p->zero <= o->zero &&
                    !(cost(costs, p) > cost(costs, o)))
                        return true;
        }
        return false;
}

/* A random plan that does not fit what it is given, of any switches. */
static struct options random_plan(uint64_t *seed, struct capacity *capacity)
{
        static const int grids[][2] = {{1, 1}, {1, 2}, {1, 4}, {2, 1}, {2, 2},
                                       {1, 6}, {2, 3}, {3, 2}, {1, 12}};
        const int *grid = grids[random_below(seed, sizeof grids / sizeof *grids)];
        int size = 1 << random_below(seed, 4);
        struct options o = small_plan(grid[0], grid[1], size, 96 * (1 + (int)random_below(seed, 2)));
        o.dtype = (enum dtype)random_below(seed, DTYPES);
        o.fused = random_below(seed, 2);
        o.offload = options_mixed(&o) && random_below(seed, 3) == 0;
        o.recompute = random_below(seed, 4) ? RECOMPUTE_NONE
                                            : (enum recompute)random_below(seed, RECOMPUTE_LAYER + 1);
        o.offload_activations = random_below(seed, 4) == 0;
        int where;
        double device = (double)max_bytes(&o, MEMORY_DEVICE, &where);
        capacity->bytes[MEMORY_DEVICE] = (int64_t)(device * (0.05 + 0.45 * (1 + random_number(seed))));
        capacity->bytes[MEMORY_HOST] =
                random_below(seed, 2) ? (int64_t)(device * (0.01 + 0.5 * (1 + random_number(seed)))) : 0;
        capacity->bytes[CAPACITY_SHARED] =
                random_below(seed, 3) == 0 ? (int64_t)(device * (0.05 + 0.45 * (1 + random_number(seed))))
                                           : 0;
        return o;
}

static void changes_are_those_that_a_search_of_all_plans_finds(void **state)
{
        (void)state;
        static struct plans plans;
        uint64_t seed = SEED;
        int none = 0, full = 0, together = 0, buckets = 0, back = 0;
        const int searches = search_count();
        for (int search = 0; search < searches; search++) {
                struct capacity capacity;
                struct options o = random_plan(&seed, &capacity);
                struct costs costs = {seed, false};
                struct capacity_change changes[CAPACITY_CHANGES];
                int count = capacity_changes(&o, &capacity, cost, &costs, changes), expected = 0;
                list_plans(&o, &capacity, 3, &plans);
                if (plans.count == 0)
                        list_plans(&o, &capacity, 6, &plans);
                double before = 0;
                for (; expected < CAPACITY_CHANGES; expected++) { /* the next cheapest that is not beaten */
                        const struct options *next = NULL;
                        for (int i = 0; i < plans.count; i++)
                                if (cost(&costs, &plans.all[i]) > before &&
                                    !beaten(&plans, &o, &plans.all[i], &costs) &&
                                    (!next || cost(&costs, &plans.all[i]) < cost(&costs, next)))
                                        next = &plans.all[i];
                        if (!next)
                                break;
                        before = cost(&costs, next);
                        if (expected >= count || differences(next, &changes[expected].options) ||
                            next->dp != changes[expected].options.dp ||
                            next->dtype != changes[expected].options.dtype)
                                fail_msg("search %d (seed %d): change %d is '%s'", search, SEED, expected,
                                         expected < count ? changes[expected].flags : "missing");
                        assert_true(fabs(changes[expected].batch_seconds - before) < 1e-15);
                        int where;
                        assert_int_equal(memory_total(&changes[expected].bytes, MEMORY_DEVICE),
                                         max_bytes(next, MEMORY_DEVICE, &where));
                        together += differences(next, &o) > 1;
                        buckets += next->bucket_parameters != o.bucket_parameters;
                        back += o.offload && !next->offload;
                }
                assert_int_equal(count, expected);
                none += count == 0;
                full += count == CAPACITY_CHANGES;
        }
        /* The plans are of every sort. */
        assert_in_range(none, searches / 20, searches);
        assert_in_range(full, searches / 20, searches);
        assert_in_range(together, searches / 20, 3 * searches);
        assert_in_range(buckets, searches / 20, 3 * searches);
        assert_in_range(back, searches / 60, 3 * searches);
}

/* What a user would leave out of the command: "without" and the flags after it. */
static void take_off(char *line, struct options *o)
{
        char *without = strstr(line, "without");
        if (!without)
                return;
        char *activations = strstr(without, "--offload-activations");
        if (activations) {
                o->offload_activations = false;
                memset(activations, ' ', strlen("--offload-activations"));
        }
        if (strstr(without, "--offload"))
                o->offload = false;
        *without = 0;
}

/* The words of a change, read as a command line, are the plan that was checked. */
static void the_flags_of_a_change_say_what_it_is(void **state)
{
        (void)state;
        uint64_t seed = SEED;
        const int searches = search_count();
        for (int search = 0; search < searches; search++) {
                struct capacity capacity;
                struct options o = random_plan(&seed, &capacity);
                struct costs costs = {seed, false};
                struct capacity_change changes[CAPACITY_CHANGES];
                int count = capacity_changes(&o, &capacity, cost, &costs, changes);
                for (int i = 0; i < count; i++) {
                        char line[sizeof changes[i].flags], *argv[32] = {"ranvier-test"};
                        int argc = 1;
                        struct options read = o;
                        struct rv_error_info err = {0};
                        struct capacity_need need;
                        memcpy(line, changes[i].flags, sizeof line);
                        take_off(line, &read);
                        for (char *at = strtok(line, " "); at; at = strtok(NULL, " "))
                                argv[argc++] = at;
                        assert_true(argc > 1 || differences(&read, &o) > 0);
                        if (command_line_parse(options_argp(), argc, argv, &read, true, &err) ||
                            options_check(&read, o.pp * o.dp, &err))
                                fail_msg("'%s': %s", changes[i].flags, err.sentence);
                        assert_int_equal(differences(&read, &changes[i].options), 0);
                        assert_int_equal(read.dtype, changes[i].options.dtype);
                        assert_int_equal(read.dp, changes[i].options.dp);
                        assert_int_equal(capacity_check(&read, &capacity, &need, &err), 0);
                }
        }
}

/* The cheapest change costs no more where there is more memory, down to a limit where nothing fits; once more
 * from where three changes are enough, and more are not tried any longer. */
static void more_memory_never_costs_more(void **state)
{
        (void)state;
        struct options o = small_plan(1, 6, 8, 96);
        struct costs costs = {SEED, false};
        struct capacity_change changes[CAPACITY_CHANGES];
        double before = INFINITY;
        bool were_enough = false;
        int where, with = 0, without = 0;
        int64_t max = max_bytes(&o, MEMORY_DEVICE, &where);
        for (int part = 1; part < 100; part += APART) {
                struct capacity capacity = {{max * part / 100, 0}};
                int count = capacity_changes(&o, &capacity, cost, &costs, changes);
                without += count == 0;
                with += count > 0;
                if (count == 0) {
                        assert_true(isinf(before));
                        continue;
                }
                bool three_enough = differences(&changes[0].options, &o) -
                                            (changes[0].options.bucket_parameters != o.bucket_parameters) <=
                                    3;
                if (three_enough && !were_enough)
                        before = INFINITY;
                assert_true(three_enough || !were_enough);
                were_enough = three_enough;
                assert_true(changes[0].batch_seconds <= before);
                for (int i = 0; i < count; i++) {
                        assert_true(memory_total(&changes[i].bytes, MEMORY_DEVICE) <=
                                    capacity.bytes[MEMORY_DEVICE]);
                        assert_true(i == 0 || changes[i].batch_seconds >= changes[i - 1].batch_seconds);
                }
                before = changes[0].batch_seconds;
        }
        assert_true(with > 10 && without > 0);
}

/* Shards refuse offloaded activations, and AxoNN's order on a stage between others; a backward in parts
 * refuses the former too. */
static void what_is_proposed_is_never_refused(void **state)
{
        (void)state;
        const struct {
                int pp, tp;
                enum policy_id policy;
        } cases[] = {
                {2, 2, POLICY_AXONN}, {2, 2, POLICY_GPIPE}, {2, 4, POLICY_1F1B}, {2, 1, POLICY_ZERO_BUBBLE}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct options o = small_plan(cases[i].pp, 6, 8, 96);
                struct costs costs = {SEED, false};
                struct capacity_change changes[CAPACITY_CHANGES];
                int where, proposed = 0;
                o.tp = cases[i].tp;
                o.policy = cases[i].policy;
                o.dtype = DTYPE_FP16;
                const int64_t max = max_bytes(&o, MEMORY_DEVICE, &where);
                for (int part = 2; part < 100; part += APART) {
                        struct capacity capacity = {{max * part / 100, 0}};
                        const int count = capacity_changes(&o, &capacity, cost, &costs, changes);
                        for (int c = 0; c < count; c++) {
                                struct options change = changes[c].options;
                                struct rv_error_info err;
                                if (options_resolve_gpt(&change, (int)options_ranks(&o), &err))
                                        fail_msg("%s: %s", changes[c].flags, err.sentence);
                        }
                        proposed += count;
                }
                assert_true(proposed > 50);
        }
}

/* In the place of replicas, as many ranks as it takes; of short sequences none. */
static void ranks_of_a_long_sequence_are_proposed(void **state)
{
        (void)state;
        for (int length = 4096; length <= 8192; length *= 2) {
                struct options o = small_plan(2, 4, 1, 16);
                struct costs costs = {SEED, true};
                struct capacity_change changes[CAPACITY_CHANGES];
                int where, spread = 0;
                o.policy = POLICY_1F1B;
                o.seq_len = o.gpt.n_positions = length;
                o.fused = true;
                o.recompute = RECOMPUTE_FULL;
                const int64_t max = max_bytes(&o, MEMORY_DEVICE, &where);
                const struct capacity capacity = {{max * 6 / 10, 0}};
                const int count = capacity_changes(&o, &capacity, cost, &costs, changes);
                for (int i = 0; i < count; i++) {
                        const struct options *c = &changes[i].options;
                        assert_int_equal(options_ranks(c), options_ranks(&o));
                        assert_true(max_bytes(c, MEMORY_DEVICE, &where) <= capacity.bytes[MEMORY_DEVICE]);
                        spread += c->cp > 1;
                }
                assert_true(length < 8192 ? spread == 0 : spread > 0);
        }
}

static void where_no_cost_is_known_the_smallest_changes_come_first(void **state)
{
        (void)state;
        struct options o = small_plan(1, 2, 8, 96);
        struct costs costs = {SEED, true};
        struct capacity_change changes[CAPACITY_CHANGES];
        int where;
        struct capacity capacity = {{max_bytes(&o, MEMORY_DEVICE, &where) * 9 / 10, 0}};
        int count = capacity_changes(&o, &capacity, cost, &costs, changes);
        assert_int_equal(count, CAPACITY_CHANGES);
        for (int i = 0; i < count; i++) {
                assert_true(isnan(changes[i].batch_seconds));
                assert_int_equal(differences(&changes[i].options, &o), 1);
        }
}

/* Costs of the size that a cluster has. */
static double plausible(void *context, const struct options *o)
{
        if (((const struct costs *)context)->unknown)
                return NAN;
        double filled = 1 + (o->pp - 1) / (double)options_plan(o, false).micro_batches;
        return (options_mixed(o) ? 200 : 600) * filled * (o->recompute ? 1.22 : 1) *
                       (1 + 0.08 / o->micro_batch_size) +
               3 * o->offload_activations + 0.5 * o->offload;
}

static char *printed(const struct options *o, const struct capacity *capacity, struct costs *costs,
                     char *text, size_t size)
{
        struct capacity_need need;
        struct capacity_change changes[CAPACITY_CHANGES];
        struct rv_error_info err;
        assert_int_equal(capacity_check(o, capacity, &need, &err), RV_EPLAN);
        int count = capacity_changes(o, capacity, plausible, costs, changes);
        FILE *stream = fmemopen(text, size, "w");
        assert_non_null(stream);
        capacity_print(stream, o, capacity, &need, changes, count, plausible(costs, o), "made up");
        fclose(stream);
        return text;
}

/* The plan of `gpt` that a rank needs least of a memory for, of all switches, stages and sizes, and of
 * buckets that are tried. `shared`: of both memories together. */
static int64_t min_bytes(const struct options *base, bool shared)
{
        int64_t min = INT64_MAX;
        for (int switches = 0; switches < 16; switches++)
                for (int size = 1; size <= base->micro_batch_size; size++)
                        for (int pp = 1; pp <= base->gpt.n_layer; pp++) {
                                struct options o = *base;
                                o.offload = switches & 1;
                                o.dtype = o.offload || switches & 8 ? DTYPE_FP16 : DTYPE_FP32;
                                o.recompute = switches & 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                                o.offload_activations = switches & 4;
                                o.micro_batch_size = size;
                                o.pp = pp;
                                o.bucket_parameters = 1000;
                                int where;
                                int64_t bytes = shared ? max_shared(&o, &where)
                                                       : max_bytes(&o, MEMORY_DEVICE, &where);
                                if (o.batch_size % (size * o.dp) == 0 && bytes < min)
                                        min = bytes;
                        }
        return min;
}

static void a_limit_below_one_layer_is_answered_with_what_that_needs(void **state)
{
        (void)state;
        static const char more[] = ", which is there: more stages, on more ranks, can make it fit\n";
        struct costs costs = {SEED, false};
        struct options o = small_plan(1, 2, 8, 96);
        for (int shared = 0; shared <= 1; shared++) {
                char text[4096], expected[128], size[NUMBER_TEXT];
                int64_t bytes = min_bytes(&o, shared);
                struct capacity enough = {{shared ? 0 : bytes, 0, shared ? bytes : 0}}, less = enough;
                less.bytes[shared ? CAPACITY_SHARED : MEMORY_DEVICE]--;
                snprintf(expected, sizeof expected, " of 6, %s of %s memory",
                         number_bytes(size, (double)bytes), shared ? "device and host" : "device");
                printed(&o, &less, &costs, text, sizeof text);
                assert_non_null(strstr(text, expected));
                assert_null(strstr(text, more));
                /* Two ranks cannot make six stages, but six could. */
                printed(&o, &enough, &costs, text, sizeof text);
                assert_non_null(strstr(text, more));
        }
}

/* Eight tables, one after another: GPT 12B on 48 V100, in fp32 and mixed; with too little host memory, and so
 * little that only not offloading helps; with costs that nobody knows; with just too little for the buckets;
 * with one memory for both; and one that nothing helps. */
static void the_table_is_what_the_golden_file_shows(void **state)
{
        (void)state;
        static char found[16384];
        const int64_t GB = 1000000000;
        const struct {
                bool mixed, offload, unknown;
                int64_t device, host, shared;
        } cases[] = {{false, false, false, 16 * GB, 0, 0},
                     {true, false, false, 16 * GB, 512 * GB / 6, 0},
                     {true, true, false, 0, 20 * GB, 0},
                     {true, true, false, 64 * GB, 4 * GB, 0},
                     {true, false, true, 16 * GB, 0, 0},
                     {true, true, false, 17400 * GB / 1000, 0, 0},
                     {true, true, false, 40 * GB, 40 * GB, 40 * GB},
                     {true, false, false, 2 * GB, 0, 0}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct options o;
                struct rv_error_info err;
                options_init(&o);
                o.model = "gpt-12b";
                o.pp = 6;
                o.dp = 8;
                o.micro_batch_size = 2;
                o.batch_size = 16384;
                o.dtype = cases[i].mixed ? DTYPE_FP16 : DTYPE_FP32;
                o.offload = cases[i].offload;
                o.fusion = FUSION_OFF; /* which leaves selective recomputation to be proposed */
                if (options_resolve(&o, 48, &err))
                        fail_msg("%s", err.sentence);
                struct costs costs = {SEED, cases[i].unknown};
                size_t length = strlen(found);
                printed(&o, &(struct capacity){{cases[i].device, cases[i].host, cases[i].shared}}, &costs,
                        found + length, sizeof found - length);
                strcat(found, "\n");
        }
        assert_golden(found, "tests/golden/capacity.txt");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_plan_fits_up_to_the_last_byte),
                cmocka_unit_test(one_memory_for_both_is_enough_up_to_the_last_byte),
                cmocka_unit_test(the_sentence_names_rank_need_and_what_there_is),
                cmocka_unit_test(logits_are_made_at_once_where_that_fits),
                cmocka_unit_test(changes_are_those_that_a_search_of_all_plans_finds),
                cmocka_unit_test(the_flags_of_a_change_say_what_it_is),
                cmocka_unit_test(more_memory_never_costs_more),
                cmocka_unit_test(what_is_proposed_is_never_refused),
                cmocka_unit_test(ranks_of_a_long_sequence_are_proposed),
                cmocka_unit_test(where_no_cost_is_known_the_smallest_changes_come_first),
                cmocka_unit_test(a_limit_below_one_layer_is_answered_with_what_that_needs),
                cmocka_unit_test(the_table_is_what_the_golden_file_shows),
        };
        return cmocka_run_group_tests_name("capacity", tests, NULL, NULL);
}
