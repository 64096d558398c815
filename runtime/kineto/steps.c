#include "runtime/kineto/steps.h"

#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char STEP[] = "ProfilerStep#", BACKWARD[] = "autograd::engine::evaluate_function: ";
/* Clocks of begin and end are rounded: events that are one in the other may stick out by so much. */
static const double ROUNDING = 0.5;
/* A call of the runtime that takes longer, in microseconds, waits for the GPU. */
static const double LONGEST_CALL = 20;

static bool begins(const char *name, const char *with)
{
        return strncmp(name, with, strlen(with)) == 0;
}

static void *resized(void *array, size_t count, size_t element_bytes)
{
        void *larger = realloc(array, count * element_bytes);
        if (!larger)
                abort();
        return larger;
}

static double end_of(const struct kineto_event *event)
{
        return event->start + event->length;
}

/* ---- what is in what ---- */

/* An event of the host, and where it lies: sorted so, each comes before those within it. */
struct place {
        int64_t thread;
        double start, length;
        int event;
};

static int by_place(const void *a, const void *b)
{
        const struct place *x = a, *y = b;
        if (x->thread != y->thread)
                return x->thread < y->thread ? -1 : 1;
        if (x->start != y->start)
                return x->start < y->start ? -1 : 1;
        if (x->length != y->length)
                return x->length > y->length ? -1 : 1;
        return x->event - y->event;
}

static struct place *host_places(const struct kineto *trace, int *count)
{
        struct place *places = resized(NULL, (size_t)trace->count + 1, sizeof *places);
        *count = 0;
        for (int i = 0; i < trace->count; i++) {
                const struct kineto_event *event = &trace->events[i];
                if (kineto_of_host(event->kind))
                        places[(*count)++] = (struct place){event->thread, event->start, event->length, i};
        }
        qsort(places, (size_t)*count, sizeof *places, by_place);
        return places;
}

static void find_parents(struct traced_steps *steps, const struct place *places, int count)
{
        const struct kineto_event *events = steps->trace->events;
        for (int i = 0; i < count; i++) {
                int around = i && places[i - 1].thread == places[i].thread ? places[i - 1].event : -1;
                while (around >= 0 &&
                       (end_of(&events[around]) <= places[i].start ||
                        end_of(&events[around]) + ROUNDING < places[i].start + places[i].length))
                        around = steps->parent[around];
                steps->parent[places[i].event] = around;
                steps->backward[places[i].event] = begins(events[places[i].event].name, BACKWARD)
                                                           ? places[i].event
                                                   : around >= 0 ? steps->backward[around]
                                                                 : -1;
        }
}

/* ---- what the GPU did ---- */

struct launch {
        int file;
        int64_t correlation;
        int event;
};

static int by_correlation(const void *a, const void *b)
{
        const struct launch *x = a, *y = b;
        if (x->file != y->file)
                return x->file - y->file;
        return (x->correlation > y->correlation) - (x->correlation < y->correlation);
}

/* What an event of the host launched on the GPU. */
struct launched {
        double time; /* microseconds */
        int count;
};

/* Returns it for each event; the caller frees it. */
static struct launched *find_launched(struct traced_steps *steps)
{
        const struct kineto *trace = steps->trace;
        struct launch *launches = resized(NULL, (size_t)trace->count + 1, sizeof *launches);
        struct launched *launched = resized(NULL, (size_t)trace->count + 1, sizeof *launched);
        int count = 0;
        for (int i = 0; i < trace->count; i++) {
                const struct kineto_event *event = &trace->events[i];
                launched[i] = (struct launched){0};
                if (event->kind == KINETO_RUNTIME && event->correlation >= 0)
                        launches[count++] = (struct launch){event->file, event->correlation, i};
        }
        qsort(launches, (size_t)count, sizeof *launches, by_correlation);
        for (int i = 0; i < trace->count; i++) {
                const struct kineto_event *event = &trace->events[i];
                const struct launch wanted = {event->file, event->correlation, i};
                if (kineto_of_host(event->kind))
                        continue;
                const struct launch *launch =
                        bsearch(&wanted, launches, (size_t)count, sizeof *launches, by_correlation);
                if (launch) {
                        launched[launch->event].time += event->length;
                        launched[launch->event].count++;
                }
                steps->lost++; /* until an operator has it */
                steps->lost_time += event->length;
        }
        free(launches);
        return launched;
}

/* ---- operators of steps ---- */

/* One thread's events are gone through in order. */
struct walk {
        struct traced_steps *steps;
        const struct launched *launched; /* [events] */
        bool *composed;                  /* [events]: other operators are in it */
        bool *again; /* [events]: it is in itself, as autocast has it behind its casts: the inner one works */
        int leaf;    /* of steps->operators: the last one of this thread; -1: none */
};

static void mark_composed(const struct walk *walk)
{
        const struct kineto *trace = walk->steps->trace;
        for (int i = 0; i < trace->count; i++) {
                const struct kineto_event *event = &trace->events[i];
                const int parent = walk->steps->parent[i];
                if (event->kind == KINETO_RUNTIME || !kineto_of_host(event->kind) || parent < 0)
                        continue;
                walk->composed[parent] = true;
                walk->again[parent] = walk->again[parent] || trace->events[parent].name == event->name;
        }
}

static void add_operator(struct walk *walk, int index, const struct operator_row *row)
{
        struct traced_steps *steps = walk->steps;
        const struct kineto_event *event = &steps->trace->events[index];
        if ((steps->operator_count & (steps->operator_count - 1)) == 0)
                steps->operators = resized(steps->operators,
                                           (size_t)(steps->operator_count ? 2 * steps->operator_count : 1),
                                           sizeof *steps->operators);
        walk->leaf = steps->operator_count++;
        steps->operators[walk->leaf] = (struct step_operator){.row = row,
                                                              .event = index,
                                                              .backward = steps->backward[index],
                                                              .start = event->start,
                                                              .end = end_of(event),
                                                              .gpu = walk->launched[index].time};
}

static bool within_leaf(const struct walk *walk, const struct kineto_event *event)
{
        return walk->leaf >= 0 && event->start < walk->steps->operators[walk->leaf].end &&
               event->thread == walk->steps->trace->events[walk->steps->operators[walk->leaf].event].thread;
}

static void add_wait(struct traced_steps *steps, const struct kineto_event *call)
{
        const int count = steps->wait_count;
        if ((count & (count - 1)) == 0)
                steps->waits = resized(steps->waits, count ? 2 * (size_t)count : 1, sizeof *steps->waits);
        steps->waits[steps->wait_count++] = (struct trace_wait){call->start + LONGEST_CALL, end_of(call)};
}

double steps_waits(const struct traced_steps *steps, double start, double end)
{
        double waits = 0;
        for (int i = 0; i < steps->wait_count; i++)
                waits += fmax(0, fmin(end, steps->waits[i].end) - fmax(start, steps->waits[i].start));
        return waits;
}

static void visit(struct walk *walk, int index)
{
        const struct kineto_event *event = &walk->steps->trace->events[index];
        const struct operator_row *row = operator_of(event->name);
        const struct launched launched = walk->launched[index];
        walk->steps->lost_time -= launched.time;
        walk->steps->lost -= launched.count;
        if (event->kind == KINETO_RUNTIME && event->length > LONGEST_CALL)
                add_wait(walk->steps, event);
        if (within_leaf(walk, event))
                walk->steps->operators[walk->leaf].gpu += launched.time;
        else if (event->kind == KINETO_RUNTIME && launched.count > 0)
                add_operator(walk, index, row);
        else if (event->kind != KINETO_RUNTIME && row->class != OPERATOR_UNKNOWN && !walk->again[index] &&
                 (row->class != OPERATOR_HOST || !walk->composed[index]))
                add_operator(walk, index, row);
        else if (event->kind == KINETO_OPERATOR && !walk->composed[index])
                add_operator(walk, index, row);
}

static int by_start(const void *a, const void *b)
{
        const struct step_operator *x = a, *y = b;
        return (x->start > y->start) - (x->start < y->start);
}

/* Threads of a step: the one that has it, and those that run backwards. */
static bool takes_part(const struct traced_steps *steps, const struct place *place, int64_t thread)
{
        return place->thread == thread || steps->backward[place->event] >= 0;
}

/* Steps of one thread follow each other. Those within others would each have all operators, and each step is
 * looked for among all events. */
static int check_step(const struct traced_steps *steps, const char *path, struct rv_error_info *err)
{
        enum { MOST_STEPS = 4096 };
        if (steps->count > MOST_STEPS)
                return rv_fail(
                        err, RV_EINPUT,
                        "%.200s: the trace has more than %d steps (ProfilerStep#): a few were expected", path,
                        MOST_STEPS);
        if (steps->operator_count > 2 * (int64_t)steps->trace->count)
                return rv_fail(
                        err, RV_EINPUT,
                        "%.200s: steps of the trace (ProfilerStep#) lie within each other: one after the "
                        "other was expected, as the profiler's step() makes them",
                        path);
        return RV_OK;
}

static void add_step(struct walk *walk, const struct place *places, int count, int index)
{
        struct traced_steps *steps = walk->steps;
        const struct kineto_event *event = &steps->trace->events[index];
        if ((steps->count & (steps->count - 1)) == 0)
                steps->steps = resized(steps->steps, (size_t)(steps->count ? 2 * steps->count : 1),
                                       sizeof *steps->steps);
        struct trace_step *step = &steps->steps[steps->count++];
        *step = (struct trace_step){event->start, end_of(event), steps->operator_count, 0};
        walk->leaf = -1;
        for (int i = 0; i < count; i++)
                if (places[i].start >= step->start && places[i].start < step->end &&
                    places[i].event != index && takes_part(steps, &places[i], event->thread))
                        visit(walk, places[i].event);
        step->count = steps->operator_count - step->first;
        if (step->count)
                qsort(steps->operators + step->first, (size_t)step->count, sizeof *steps->operators,
                      by_start);
}

int steps_find(struct traced_steps *steps, const struct kineto *trace, const char *path,
               struct rv_error_info *err)
{
        int count, rc = RV_OK;
        *steps = (struct traced_steps){.trace = trace};
        steps->parent = resized(NULL, (size_t)trace->count + 1, sizeof *steps->parent);
        steps->backward = resized(NULL, (size_t)trace->count + 1, sizeof *steps->backward);
        for (int i = 0; i < trace->count; i++)
                steps->parent[i] = steps->backward[i] = -1;
        struct place *places = host_places(trace, &count);
        find_parents(steps, places, count);
        struct launched *launched = find_launched(steps);
        struct walk walk = {steps, launched, calloc((size_t)trace->count + 1, sizeof *walk.composed),
                            calloc((size_t)trace->count + 1, sizeof *walk.again), -1};
        if (!walk.composed || !walk.again)
                abort();
        mark_composed(&walk);
        for (int i = 0; i < count && rc == RV_OK; i++)
                if (begins(trace->events[places[i].event].name, STEP)) {
                        add_step(&walk, places, count, places[i].event);
                        rc = check_step(steps, path, err);
                }
        free(walk.composed);
        free(walk.again);
        free(launched);
        free(places);
        if (steps->count)
                return rc;
        return rv_fail(
                err, RV_EINPUT,
                "%.200s: the trace has no steps (ProfilerStep#): call the profiler's step() after each "
                "step of the training",
                path);
}

void steps_free(struct traced_steps *steps)
{
        free(steps->waits);
        free(steps->parent);
        free(steps->backward);
        free(steps->operators);
        free(steps->steps);
        *steps = (struct traced_steps){0};
}

int steps_steady(const double *seconds, int count, bool *taken)
{
        enum { FEW = 4 };
        static const double QUARTER = 0.25, LONGER = 1.05;
        double *sorted = calloc((size_t)count + 1, sizeof *sorted);
        int left_out = 0;
        if (!sorted)
                abort();
        for (int i = 0; i < count; i++)
                sorted[i] = seconds[i];
        const double longest = count < FEW ? INFINITY : LONGER * quantile(sorted, count, QUARTER);
        free(sorted);
        for (int i = 0; i < count; i++) {
                taken[i] = seconds[i] <= longest;
                left_out += !taken[i];
        }
        return left_out;
}

double step_seconds(const struct traced_steps *steps, const struct step_operator *of)
{
        return 1e-6 * (steps->trace->on_gpu ? of->gpu : of->end - of->start);
}
