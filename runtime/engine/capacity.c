#include "runtime/engine/capacity.h"

#include "runtime/base/number.h"
#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct memory_bytes stage_bytes(const struct options *o, int index)
{
        struct stage stage = options_stage(o, index);
        struct memory_plan plan = options_memory(o, index);
        struct memory_bytes bytes;
        memory_stage(&o->gpt, &stage, &plan, &bytes);
        return bytes;
}

static int64_t both(const struct memory_bytes *bytes)
{
        return memory_total(bytes, MEMORY_DEVICE) + memory_total(bytes, MEMORY_HOST);
}

int64_t capacity_needs(const struct capacity_need *need)
{
        return need->shared ? both(&need->bytes) : memory_total(&need->bytes, need->space);
}

int64_t capacity_has(const struct capacity *capacity, const struct capacity_need *need)
{
        return capacity->bytes[need->shared ? (int)CAPACITY_SHARED : (int)need->space];
}

/* Bytes by which `bytes` are more than there is; not positive: they fit. */
static int64_t excess(const struct capacity *capacity, const struct memory_bytes *bytes,
                      enum memory_space space)
{
        return capacity->bytes[space] ? memory_total(bytes, space) - capacity->bytes[space] : 0;
}

static int64_t shared_excess(const struct capacity *capacity, const struct memory_bytes *bytes)
{
        return capacity->bytes[CAPACITY_SHARED] ? both(bytes) - capacity->bytes[CAPACITY_SHARED] : 0;
}

/* The ranks of a stage are alike: that of the first pipeline stands for them. Returns the bytes that `need`
 * is beyond its capacity; 0: all fit. */
static int64_t find_need(const struct options *o, const struct capacity *capacity, struct capacity_need *need)
{
        const struct plan plan = options_plan(o, false);
        int64_t furthest = 0, max = -1;
        for (int stage = 0; stage < o->pp; stage++) {
                struct memory_bytes bytes = stage_bytes(o, stage);
                const int rank = plan_rank(&plan, 0, stage, 0);
                int64_t on_device = memory_total(&bytes, MEMORY_DEVICE);
                if (furthest == 0 && on_device > max) {
                        max = on_device;
                        *need = (struct capacity_need){rank, stage, MEMORY_DEVICE, false, bytes};
                }
                for (int space = 0; space < MEMORY_SPACES; space++) {
                        int64_t much = excess(capacity, &bytes, (enum memory_space)space);
                        if (much <= furthest)
                                continue;
                        furthest = much;
                        *need = (struct capacity_need){rank, stage, (enum memory_space)space, false, bytes};
                }
                /* The few bytes that every stage has on the host are no news beside a device's shortage. */
                int64_t much = shared_excess(capacity, &bytes);
                if (much > furthest && (furthest == 0 || memory_uses_host(&bytes))) {
                        furthest = much;
                        *need = (struct capacity_need){rank, stage, MEMORY_DEVICE, true, bytes};
                }
        }
        return furthest;
}

int capacity_check(const struct options *o, const struct capacity *capacity, struct capacity_need *need,
                   struct rv_error_info *err)
{
        if (find_need(o, capacity, need) == 0)
                return 0;
        static const char table[] =
                "the table above says for what, and whether changes of the plan would make it fit";
        char needs[NUMBER_TEXT], host[NUMBER_TEXT], has[NUMBER_TEXT];
        if (need->shared)
                return rv_fail(err, RV_EPLAN,
                               "rank %d (stage %d of %d) of %s needs %s of device and %s of host memory, "
                               "which are one memory here, and has %s of it: %s",
                               need->rank, need->stage, o->pp, o->gpt.name,
                               number_bytes(needs, (double)memory_total(&need->bytes, MEMORY_DEVICE)),
                               number_bytes(host, (double)memory_total(&need->bytes, MEMORY_HOST)),
                               number_bytes(has, (double)capacity_has(capacity, need)), table);
        return rv_fail(err, RV_EPLAN, "rank %d (stage %d of %d) of %s needs %s of %s memory and has %s: %s",
                       need->rank, need->stage, o->pp, o->gpt.name,
                       number_bytes(needs, (double)capacity_needs(need)), memory_space_name(need->space),
                       number_bytes(has, (double)capacity_has(capacity, need)), table);
}

void capacity_choose_logits(struct options *o, const struct capacity *capacity)
{
        struct capacity_need need;
        if (o->logits_bytes != 0 || !o->fused || o->tp > 1) /* these have no parts */
                return;
        o->logits_bytes = INT64_MAX;
        if (find_need(o, capacity, &need) > 0)
                o->logits_bytes = WORKLOAD_LOGITS_BYTES;
}

/* The flags of which a change may be proposed, in the order of their rows. */
enum { PROPOSING = 16 };
static int proposing(const struct flag *flags[PROPOSING])
{
        int rows, count = 0;
        const struct flag *row = flags_all(&rows);
        for (int i = 0; i < rows; i++)
                if (row[i].propose) {
                        assert(count < PROPOSING);
                        flags[count++] = &row[i];
                }
        return count;
}

/* A changed plan: how far it has gone in what is proposed of each flag (0: as it was), and its bucket. */
struct choice {
        int nth[PROPOSING];
        int64_t bucket_parameters;
};

static int changes_of(const struct choice *choice, const struct options *was)
{
        int changes = choice->bucket_parameters != was->bucket_parameters;
        for (int i = 0; i < PROPOSING; i++)
                changes += choice->nth[i] != 0;
        return changes;
}

/* Whether `a` changes the plan no more than `b` does, in anything. */
static bool lesser(const struct choice *a, const struct choice *b)
{
        for (int i = 0; i < PROPOSING; i++)
                if (a->nth[i] > b->nth[i])
                        return false;
        return a->bucket_parameters >= b->bucket_parameters;
}

/* A plan that fits, as it is found. */
struct found {
        struct capacity_change change;
        struct choice choice;
        int changes; /* of the plan as it was */
};

struct search {
        const struct options *base;
        const struct capacity *capacity;
        double (*seconds)(void *context, const struct options *options);
        void *context;
        int max_changes; /* beside the bucket, which follows from the others */
        const struct flag *flags[PROPOSING];
        int flag_count;
        struct found *found;
        int count, room;
};

static struct found *add_found(struct search *search)
{
        if (search->count == search->room) {
                search->room = search->room ? 2 * search->room : 64;
                search->found = realloc(search->found, (size_t)search->room * sizeof *search->found);
                if (!search->found)
                        abort();
        }
        return &search->found[search->count++];
}

static void add_word(char flags[CAPACITY_FLAGS], const char *before, const char *flag, const char *value)
{
        const size_t length = strlen(flags);
        snprintf(flags + length, CAPACITY_FLAGS - length, "%s%s--%s%s%s", length ? " " : "", before, flag,
                 *value ? " " : "", value);
}

/* The switches that are off come last: behind "without" no flag means that it is set. The replicas follow
 * from the stages and the ranks of a sequence. */
static void write_flags(char flags[CAPACITY_FLAGS], const struct options *base, const struct options *o)
{
        int rows;
        const struct flag *row = flags_all(&rows);
        flags[0] = 0;
        for (int i = 0; i < 2 * rows; i++) {
                const struct flag *flag = &row[i % rows];
                const bool off = !flag->argument && !flag_value(flag, o);
                char value[FLAG_TEXT];
                if (flag->store != STORE_TEXT && off == (i >= rows) && !flag_equal(flag, base, o))
                        add_word(flags, off ? "without " : "", flag->name,
                                 flag->argument ? flag_write(flag, o, value) : "");
        }
}

/* The smallest bucket that is tried: as many as a stage has beside it take a share of its memory that is not
 * worth the many short copies (0.4 % of weights and gradients: 16 bytes a parameter to their 4). */
static int64_t min_bucket(const struct options *o)
{
        enum { MIN = 1000, BUCKETS = 1024 };
        int64_t part = gpt_parameters(&o->gpt) / o->pp / BUCKETS;
        return part > MIN ? part : MIN;
}

/* Whether a plan is sound and fits; one that is offloaded, with its bucket halved as often as it takes. */
static bool make_fit(struct options *o, const struct capacity *capacity, struct capacity_need *need)
{
        struct rv_error_info ignored;
        const int64_t min = min_bucket(o);
        if (o->batch_size % ((int64_t)o->dp * o->micro_batch_size))
                return false;
        for (;;) {
                if (flags_check(o, &ignored) || options_check(o, (int)options_ranks(o), &ignored))
                        return false;
                if (find_need(o, capacity, need) == 0)
                        return true;
                if (!o->offload || o->bucket_parameters <= min)
                        return false;
                o->bucket_parameters = o->bucket_parameters / 2 > min ? o->bucket_parameters / 2 : min;
        }
}

/* Adds the changed plan if it is sound and fits. */
static void consider(struct search *search, const struct options *changed, const struct choice *choice)
{
        struct options o = *changed;
        struct capacity_need need;
        if (!make_fit(&o, search->capacity, &need))
                return;
        struct choice made = *choice;
        made.bucket_parameters = o.bucket_parameters;
        const int changes = changes_of(&made, search->base);
        if (changes == 0)
                return;
        struct found *found = add_found(search);
        *found = (struct found){.choice = made, .changes = changes};
        found->change.options = o;
        found->change.bytes = need.bytes;
        found->change.batch_seconds = search->seconds(search->context, &o);
        write_flags(found->change.flags, search->base, &o);
}

/* All that is proposed of the flags from `at` on, for a plan that has the choices before. What follows from a
 * value is set with it: fewer replicas from more stages, 16 bits from offloading. */
static void consider_all(struct search *search, const struct options *o, struct choice *choice, int at)
{
        int value;
        if (changes_of(choice, search->base) > search->max_changes)
                return;
        if (at == search->flag_count) {
                consider(search, o, choice);
                return;
        }
        const struct flag *flag = search->flags[at];
        for (int nth = 0; flag->propose(o, nth, &value); nth++) {
                struct options changed = *o;
                flag_set(flag, &changed, value);
                changed.dp = o->pp * o->dp * o->cp / (changed.pp * changed.cp);
                if (changed.offload && !options_mixed(&changed))
                        changed.dtype = DTYPE_FP16;
                choice->nth[at] = nth;
                consider_all(search, &changed, choice, at + 1);
        }
        choice->nth[at] = 0;
}

static void search_changes(struct search *search, int max_changes)
{
        struct choice none = {.bucket_parameters = search->base->bucket_parameters};
        search->max_changes = max_changes;
        consider_all(search, search->base, &none, 0);
}

/* Cheapest first; not known comes last. At equal cost fewer changes, then less memory. */
static int compare_found(const void *left, const void *right)
{
        const struct found *a = left, *b = right;
        double x = isnan(a->change.batch_seconds) ? INFINITY : a->change.batch_seconds;
        double y = isnan(b->change.batch_seconds) ? INFINITY : b->change.batch_seconds;
        if (x < y || x > y)
                return x < y ? -1 : 1;
        if (a->changes != b->changes)
                return a->changes - b->changes;
        int64_t more =
                memory_total(&a->change.bytes, MEMORY_DEVICE) - memory_total(&b->change.bytes, MEMORY_DEVICE);
        return (more > 0) - (more < 0);
}

/* Whether one of those that cost no more, which come earlier in the sorted list, or as much, would do with
 * less.
 */
static bool needless(const struct search *search, int index)
{
        const struct found *f = &search->found[index];
        for (int i = 0; i < search->count; i++) {
                const struct found *other = &search->found[i];
                if (other->change.batch_seconds > f->change.batch_seconds)
                        return false;
                if (i != index && lesser(&other->choice, &f->choice))
                        return true;
        }
        return false;
}

int capacity_changes(const struct options *options, const struct capacity *capacity,
                     double (*seconds)(void *context, const struct options *options), void *context,
                     struct capacity_change changes[CAPACITY_CHANGES])
{
        enum { AT_ONCE = 3 };
        struct search search = {
                .base = options, .capacity = capacity, .seconds = seconds, .context = context};
        search.flag_count = proposing(search.flags);
        search_changes(&search, AT_ONCE);
        if (search.count == 0)
                search_changes(&search, search.flag_count);
        if (search.count)
                qsort(search.found, (size_t)search.count, sizeof *search.found, compare_found);
        int count = 0;
        for (int i = 0; i < search.count && count < CAPACITY_CHANGES; i++)
                if (!needless(&search, i))
                        changes[count++] = search.found[i].change;
        free(search.found);
        return count;
}

static void print_bytes(FILE *stream, int64_t bytes, const char *none)
{
        char text[NUMBER_TEXT];
        fprintf(stream, " %14s", bytes ? number_bytes(text, (double)bytes) : none);
}

/* The categories of the rank, a column a memory; the host's only if it matters. */
static void print_need(FILE *stream, const struct capacity *capacity, const struct capacity_need *need)
{
        const int64_t *device = need->bytes.in[MEMORY_DEVICE], *host = need->bytes.in[MEMORY_HOST];
        bool both_matter = memory_uses_host(&need->bytes) || need->shared || need->space == MEMORY_HOST;
        int spaces = both_matter ? MEMORY_SPACES : 1;
        fprintf(stream, "  %-12s %14s%s\n", "", "device", spaces > 1 ? "           host" : "");
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                if (!device[c] && !host[c])
                        continue;
                fprintf(stream, "  %-12s", memory_category_name((enum memory_category)c));
                for (int space = 0; space < spaces; space++)
                        print_bytes(stream, need->bytes.in[space][c], "-");
                fprintf(stream, "\n");
        }
        fprintf(stream, "  %-12s", "needs");
        for (int space = 0; space < spaces; space++)
                print_bytes(stream, memory_total(&need->bytes, (enum memory_space)space), "-");
        fprintf(stream, "\n  %-12s", "has");
        for (int space = 0; space < spaces; space++)
                print_bytes(stream, capacity->bytes[space], "not known");
        fprintf(stream, "\n");
        if (spaces > 1 && capacity->bytes[CAPACITY_SHARED]) {
                fprintf(stream, "  %-12s", "both have");
                print_bytes(stream, capacity->bytes[CAPACITY_SHARED], "-");
                fprintf(stream, "\n");
        }
}

/* One line of the table of changes. */
static void print_change(FILE *stream, int width, const char *flags, const struct memory_bytes *bytes,
                         double seconds, double than)
{
        char text[NUMBER_TEXT];
        fprintf(stream, "  %-*s %14s", width, flags,
                isnan(seconds) ? "not known" : number_seconds(text, seconds));
        if (isnan(than) || isnan(seconds))
                fprintf(stream, " %10s", "");
        else
                fprintf(stream, " %+8.1f %%", 100 * (seconds / than - 1));
        print_bytes(stream, memory_total(bytes, MEMORY_DEVICE), "-");
        print_bytes(stream, memory_host_shown(bytes), "-");
        fprintf(stream, "\n");
}

static void print_changes(FILE *stream, const struct capacity_need *need,
                          const struct capacity_change *changes, int count, double batch_seconds,
                          const char *basis)
{
        static const char as_it_is[] = "as it is";
        int width = (int)strlen(as_it_is);
        for (int i = 0; i < count; i++)
                width = (int)strlen(changes[i].flags) > width ? (int)strlen(changes[i].flags) : width;
        fprintf(stream, "it would fit with (times: %s)\n", basis);
        fprintf(stream, "  %-*s %14s %10s %14s %14s\n", width, "", "time per batch", "change", "device",
                "host");
        print_change(stream, width, as_it_is, &need->bytes, batch_seconds, NAN);
        for (int i = 0; i < count; i++)
                print_change(stream, width, changes[i].flags, &changes[i].bytes, changes[i].batch_seconds,
                             batch_seconds);
}

/* One layer a stage with all that saves memory, offloaded as far as the two memories come nearest to what
 * they have: what is on the host is not on the device. Returns how far beyond it is, of the stage in `need`.
 */
static int64_t find_min(const struct options *o, const struct capacity *capacity, struct options *min,
                        struct capacity_need *need)
{
        int64_t nearest = INT64_MAX;
        struct options one = *o;
        if (!options_mixed(&one))
                one.dtype = DTYPE_FP16;
        one.recompute = RECOMPUTE_FULL;
        one.micro_batch_size = 1;
        one.pp = o->gpt.n_layer;
        int64_t smallest = min_bucket(&one);
        if (one.bucket_parameters > smallest)
                one.bucket_parameters = smallest;
        for (int offloaded = 3; offloaded >= 0; offloaded--) {
                struct capacity_need its;
                one.offload = offloaded & 2;
                one.offload_activations = offloaded & 1;
                int64_t beyond = find_need(&one, capacity, &its);
                if (beyond >= nearest)
                        continue;
                nearest = beyond;
                *min = one;
                *need = its;
        }
        return nearest;
}

/* Why no change was found. */
static void print_min(FILE *stream, const struct options *o, const struct capacity *capacity)
{
        struct options min;
        struct capacity_need need;
        int64_t beyond = find_min(o, capacity, &min, &need);
        struct options plain = min; /* without what saves memory, which is all named */
        plain.dtype = DTYPE_FP32;
        plain.format = FORMAT_STORED;
        plain.offload = plain.offload_activations = false;
        plain.recompute = RECOMPUTE_NONE;
        plain.micro_batch_size = plain.zero = 0;
        plain.bucket_parameters = min.offload ? 0 : min.bucket_parameters;
        char flags[CAPACITY_FLAGS], text[NUMBER_TEXT];
        write_flags(flags, &plain, &min);
        int64_t bytes = memory_total(&need.bytes, need.space);
        if (need.shared)
                bytes += memory_total(&need.bytes, MEMORY_HOST);
        fprintf(stream,
                "no change that was tried makes it fit: offloading, the optimizer shared by replicas, "
                "recomputation,\n");
        fprintf(stream,
                "smaller micro-batches and buckets, more stages on these ranks. One layer a stage with\n");
        fprintf(stream, "  %s\n", flags);
        fprintf(stream, "needs, on stage %d of %d, %s of %s memory", need.stage, min.pp,
                number_bytes(text, (double)bytes),
                need.shared ? "device and host" : memory_space_name(need.space));
        if (beyond == 0)
                fprintf(stream, ", which is there: more stages, on more ranks, can make it fit");
        fprintf(stream, "\n");
}

void capacity_print(FILE *stream, const struct options *options, const struct capacity *capacity,
                    const struct capacity_need *need, const struct capacity_change *changes, int count,
                    double batch_seconds, const char *basis)
{
        char grid[GRID_TEXT];
        fprintf(stream, "%s, %s, micro-batch %d: rank %d (stage %d) does not fit\n", options->gpt.name,
                options_grid(grid, options, "", " x "), options->micro_batch_size, need->rank, need->stage);
        print_need(stream, capacity, need);
        if (count)
                print_changes(stream, need, changes, count, batch_seconds, basis);
        else
                print_min(stream, options, capacity);
}
