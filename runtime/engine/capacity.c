#include "runtime/engine/capacity.h"

#include "runtime/engine/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct memory_bytes stage_bytes(const struct options *o, int index)
{
        struct stage stage = partition_stage(&o->gpt, o->pp, index);
        struct memory_plan plan = options_memory(o, index);
        struct memory_bytes bytes;
        memory_stage(&o->gpt, &stage, &plan, &bytes);
        return bytes;
}

/* Bytes by which `bytes` are more than there is; not positive: they fit. */
static int64_t excess(const struct capacity *capacity, const struct memory_bytes *bytes,
                      enum memory_space space)
{
        return capacity->bytes[space] ? memory_total(bytes, space) - capacity->bytes[space] : 0;
}

static int64_t shared_excess(const struct capacity *capacity, const struct memory_bytes *bytes)
{
        int64_t both = memory_total(bytes, MEMORY_DEVICE) + memory_total(bytes, MEMORY_HOST);
        return capacity->bytes[CAPACITY_SHARED] ? both - capacity->bytes[CAPACITY_SHARED] : 0;
}

/* The ranks of a stage are alike: that of the first pipeline stands for them. Returns whether all fit. */
static bool find_need(const struct options *o, const struct capacity *capacity, struct capacity_need *need)
{
        int64_t furthest = 0, most = -1;
        for (int stage = 0; stage < o->pp; stage++) {
                struct memory_bytes bytes = stage_bytes(o, stage);
                int64_t on_device = memory_total(&bytes, MEMORY_DEVICE);
                if (furthest == 0 && on_device > most) {
                        most = on_device;
                        *need = (struct capacity_need){stage, MEMORY_DEVICE, false, bytes};
                }
                for (int space = 0; space < MEMORY_SPACES; space++) {
                        int64_t much = excess(capacity, &bytes, (enum memory_space)space);
                        if (much <= furthest)
                                continue;
                        furthest = much;
                        *need = (struct capacity_need){stage, (enum memory_space)space, false, bytes};
                }
                int64_t much = shared_excess(capacity, &bytes);
                if (much > furthest) {
                        furthest = much;
                        *need = (struct capacity_need){stage, MEMORY_DEVICE, true, bytes};
                }
        }
        return furthest == 0;
}

int capacity_check(const struct options *o, const struct capacity *capacity, struct capacity_need *need,
                   struct rv_error_info *err)
{
        if (find_need(o, capacity, need))
                return 0;
        char needs[REPORT_TEXT], host[REPORT_TEXT], has[REPORT_TEXT];
        if (need->shared)
                return rv_fail(
                        err, RV_EPLAN,
                        "rank %d (stage %d of %d) of %s needs %s of device and %s of host memory, which are "
                        "the same here, and has %s of it: the table above says for what, and which changes "
                        "would make it fit",
                        need->rank, need->rank, o->pp, o->gpt.name,
                        report_bytes(needs, (double)memory_total(&need->bytes, MEMORY_DEVICE)),
                        report_bytes(host, (double)memory_total(&need->bytes, MEMORY_HOST)),
                        report_bytes(has, (double)capacity->bytes[CAPACITY_SHARED]));
        return rv_fail(
                err, RV_EPLAN,
                "rank %d (stage %d of %d) of %s needs %s of %s memory and has %s: the table above says "
                "for what, and which changes would make it fit",
                need->rank, need->rank, o->pp, o->gpt.name,
                report_bytes(needs, (double)memory_total(&need->bytes, need->space)),
                memory_space_name(need->space), report_bytes(has, (double)capacity->bytes[need->space]));
}

/* A plan as what may be changed in it. */
struct choice {
        bool offload, recompute, offload_activations;
        int micro_batch_size, pp;
};

static struct choice choice_of(const struct options *o)
{
        return (struct choice){o->offload, o->recompute, o->offload_activations, o->micro_batch_size, o->pp};
}

static int changes_between(const struct choice *a, const struct choice *b)
{
        return (a->offload != b->offload) + (a->recompute != b->recompute) +
               (a->offload_activations != b->offload_activations) +
               (a->micro_batch_size != b->micro_batch_size) + (a->pp != b->pp);
}

/* Whether `a` changes a plan no more than `b` does, in anything. */
static bool lesser(const struct choice *a, const struct choice *b)
{
        return a->offload <= b->offload && a->recompute <= b->recompute &&
               a->offload_activations <= b->offload_activations &&
               a->micro_batch_size >= b->micro_batch_size && a->pp <= b->pp;
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
        int most_changes;
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

static void write_flags(char flags[CAPACITY_FLAGS], const struct options *base, const struct options *o)
{
        char micro_batch[32], stages[24], replicas[24];
        snprintf(micro_batch, sizeof micro_batch, "--micro-batch-size %d", o->micro_batch_size);
        snprintf(stages, sizeof stages, "--pp %d", o->pp);
        snprintf(replicas, sizeof replicas, "--dp %d", o->dp);
        const char *const words[] = {
                o->mixed != base->mixed ? "--precision mixed" : NULL,
                o->offload != base->offload ? "--offload" : NULL,
                o->recompute != base->recompute ? "--recompute full" : NULL,
                o->offload_activations != base->offload_activations ? "--offload-activations" : NULL,
                o->micro_batch_size != base->micro_batch_size ? micro_batch : NULL,
                o->pp != base->pp ? stages : NULL,
                o->pp != base->pp ? replicas : NULL,
        };
        size_t length = 0;
        flags[0] = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
                if (words[i])
                        length += (size_t)snprintf(flags + length, CAPACITY_FLAGS - length, "%s%s",
                                                   length ? " " : "", words[i]);
}

static struct options changed(const struct options *base, const struct choice *choice)
{
        struct options o = *base;
        o.offload = choice->offload;
        o.mixed = base->mixed || choice->offload;
        o.recompute = choice->recompute;
        o.offload_activations = choice->offload_activations;
        o.micro_batch_size = choice->micro_batch_size;
        o.dp = base->pp * base->dp / choice->pp;
        o.pp = choice->pp;
        return o;
}

/* Adds the plan as changed if it is sound and fits. */
static void consider(struct search *search, const struct choice *choice)
{
        const struct choice was = choice_of(search->base);
        int changes = changes_between(choice, &was);
        if (changes == 0 || changes > search->most_changes)
                return;
        struct options o = changed(search->base, choice);
        struct capacity_need need;
        struct rv_error_info ignored;
        if (o.batch_size % ((int64_t)o.dp * o.micro_batch_size) || options_check(&o, o.pp * o.dp, &ignored) ||
            !find_need(&o, search->capacity, &need))
                return;
        struct found *found = add_found(search);
        *found = (struct found){.choice = *choice, .changes = changes};
        found->change.options = o;
        found->change.bytes = need.bytes;
        found->change.batch_seconds = search->seconds(search->context, &o);
        write_flags(found->change.flags, search->base, &o);
}

/* The plan's switches, in all positions that are not less than they are, on one grid. */
static void consider_grid(struct search *search, int pp)
{
        const struct options *o = search->base;
        for (int size = o->micro_batch_size; size >= 1; size--)
                for (int offload = o->offload; offload <= 1; offload++)
                        for (int recompute = o->recompute; recompute <= 1; recompute++)
                                for (int store = o->offload_activations; store <= 1; store++)
                                        consider(search,
                                                 &(struct choice){offload, recompute, store, size, pp});
}

static void consider_all(struct search *search, int most_changes)
{
        const struct options *o = search->base;
        search->most_changes = most_changes;
        for (int pp = o->pp; pp <= o->gpt.n_layer; pp++)
                if (o->pp * o->dp % pp == 0)
                        consider_grid(search, pp);
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
        enum { TOGETHER = 3, ALL = 5 };
        struct search search = {
                .base = options, .capacity = capacity, .seconds = seconds, .context = context};
        consider_all(&search, TOGETHER);
        if (search.count == 0)
                consider_all(&search, ALL);
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
        char text[REPORT_TEXT];
        fprintf(stream, " %14s", bytes ? report_bytes(text, (double)bytes) : none);
}

/* The categories of the rank, a column a memory; the host's only if it has something there. */
static void print_need(FILE *stream, const struct capacity *capacity, const struct capacity_need *need)
{
        const int64_t *device = need->bytes.in[MEMORY_DEVICE], *host = need->bytes.in[MEMORY_HOST];
        int spaces = memory_total(&need->bytes, MEMORY_HOST) > 0 ? MEMORY_SPACES : 1;
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
        char text[REPORT_TEXT];
        fprintf(stream, "  %-*s %14s", width, flags,
                isnan(seconds) ? "not known" : report_seconds(text, seconds));
        if (isnan(than) || isnan(seconds))
                fprintf(stream, " %10s", "");
        else
                fprintf(stream, " %+8.1f %%", 100 * (seconds / than - 1));
        print_bytes(stream, memory_total(bytes, MEMORY_DEVICE), "-");
        print_bytes(stream, memory_total(bytes, MEMORY_HOST), "-");
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

/* Why no change was found: one layer a stage and everything that saves memory is the least that a device can
 * need. */
static void print_least(FILE *stream, const struct options *o, const struct capacity *capacity,
                        const struct capacity_need *need)
{
        char text[REPORT_TEXT];
        if (need->space == MEMORY_HOST) {
                fprintf(stream, "no change that is built makes it fit: the host needs less if less is "
                                "offloaded, or on "
                                "more ranks\n");
                return;
        }
        struct options least = *o;
        struct capacity_need one_layer;
        const struct capacity unlimited = {{0}};
        least.mixed = least.offload = least.recompute = least.offload_activations = true;
        least.micro_batch_size = 1;
        least.pp = o->gpt.n_layer;
        find_need(&least, &unlimited, &one_layer);
        int64_t bytes = memory_total(&one_layer.bytes, MEMORY_DEVICE);
        fprintf(stream,
                "no change that is built makes it fit: with one layer a stage and --precision mixed "
                "--offload\n"
                "--recompute full --offload-activations --micro-batch-size 1, stage %d of %d needs at least "
                "%s\n",
                one_layer.rank, least.pp, report_bytes(text, (double)bytes));
        if (bytes <= capacity->bytes[MEMORY_DEVICE])
                fprintf(stream, "which is there: more stages, on more ranks, can make it fit\n");
}

void capacity_print(FILE *stream, const struct options *options, const struct capacity *capacity,
                    const struct capacity_need *need, const struct capacity_change *changes, int count,
                    double batch_seconds, const char *basis)
{
        fprintf(stream, "%s, pp %d x dp %d, micro-batch %d: rank %d (stage %d) does not fit\n",
                options->gpt.name, options->pp, options->dp, options->micro_batch_size, need->rank,
                need->rank);
        print_need(stream, capacity, need);
        if (count)
                print_changes(stream, need, changes, count, batch_seconds, basis);
        else
                print_least(stream, options, capacity, need);
}
