/* What a simulation could cost at least: the operations of one batch of a pipeline as events of a plain
 * binary heap (runtime/base/agenda.c), each put there when it was issued, for the moment at which it
 * completes; and the same batch by the core and the engine over the heap of the world on paper. Prints how
 * many operations there are, the batch's seconds, and what both took. tests/bench/events.py compares them
 * with SimGrid. */
#include "runtime/sched/policy.h"
#include "runtime/base/agenda.h"
#include "tests/paper/equal_stages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Most operations that a rank has under way at once. */
enum { SERIALS = 64 };

/* A batch: what was issued, in order, and when it completed. */
struct recording {
        double forward, backward, message; /* seconds */
        struct paper *paper;
        double *seconds; /* [issued]: of completion */
        int *after;      /* [completed + 1]: how many were issued before the first completion, after each */
        int64_t issued, completed, capacity;
        int64_t *under_way; /* [ranks][SERIALS]: what of the above */
};

static double processor_seconds(void)
{
        struct timespec t;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *checked(void *memory)
{
        if (!memory) {
                fprintf(stderr, "events: no memory for so many operations\n");
                exit(1);
        }
        return memory;
}

static double seconds_of(void *context, int rank, const struct op *op)
{
        const struct recording *r = context;
        (void)rank;
        switch (op->kind) {
        case OP_FORWARD:
                return r->forward;
        case OP_BACKWARD:
                return r->backward;
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                return r->message;
        default:
                return 0;
        }
}

static void on_issue(void *context, int rank, const struct op *op)
{
        struct recording *r = context;
        if (op->serial >= SERIALS) {
                fprintf(stderr, "events: rank %d has %d operations under way, must be at most %d\n", rank,
                        op->serial + 1, SERIALS);
                exit(1);
        }
        if (r->issued == r->capacity) {
                const int64_t old = r->capacity;
                r->capacity = old ? 2 * old : 1 << 16;
                r->seconds = checked(realloc(r->seconds, (size_t)r->capacity * sizeof *r->seconds));
                r->after = checked(realloc(r->after, (size_t)(r->capacity + 1) * sizeof *r->after));
                memset(&r->after[old ? old + 1 : 0], 0,
                       (size_t)(r->capacity - old + !old) * sizeof *r->after);
        }
        r->under_way[rank * SERIALS + op->serial] = r->issued++;
        r->after[r->completed]++;
}

static void on_completion(void *context, int rank, const struct op *op)
{
        struct recording *r = context;
        const struct driver *driver = &paper_engine(r->paper, rank)->driver;
        r->seconds[r->under_way[rank * SERIALS + op->serial]] = driver->now(driver->world);
        r->completed++;
}

/* One batch on paper: seconds of the processor; fills in the batch's own. */
static double run_paper(const struct plan *plan, struct recording *r, bool record, double *batch)
{
        r->paper = paper_of_equal_stages(plan, 1, false, seconds_of, record ? on_issue : NULL,
                                         record ? on_completion : NULL, r);
        const double start = processor_seconds();
        *batch = paper_run(r->paper);
        const double seconds = processor_seconds() - start;
        paper_delete(r->paper);
        return seconds;
}

/* The recorded batch as bare events: seconds of the processor. */
static double run_heap(const struct recording *r)
{
        struct agenda agenda = {0};
        struct agenda_entry entry;
        int64_t issued = 0, completed = 0;
        double last = 0;
        const double start = processor_seconds();
        do {
                for (int i = 0; i < r->after[completed]; i++, issued++)
                        agenda_note(&agenda, r->seconds[issued], NULL, 0);
                if (!agenda_take(&agenda, 1e300, &entry) || entry.seconds < last)
                        break;
                last = entry.seconds;
        } while (++completed < r->completed);
        const double seconds = processor_seconds() - start;
        agenda_free(&agenda);
        if (completed < r->completed) {
                fprintf(stderr, "events: the heap came to rest after %lld of %lld operations\n",
                        (long long)completed, (long long)r->completed);
                exit(1);
        }
        return seconds;
}

int main(int argc, char **argv)
{
        if (argc != 7 || policy_find(argv[3]) < 0) {
                fprintf(stderr, "usage: events STAGES MICRO_BATCHES SCHEDULE FORWARD BACKWARD MESSAGE "
                                "(the last three in seconds)\n");
                return 2;
        }
        struct recording r = {.forward = atof(argv[4]), .backward = atof(argv[5]), .message = atof(argv[6])};
        const struct plan plan = {.pp = atoi(argv[1]),
                                  .dp = 1,
                                  .tp = 1,
                                  .virtual_stages = 1,
                                  .micro_batches = atoi(argv[2]),
                                  .policy = (enum policy_id)policy_find(argv[3]),
                                  .message_bytes = 1,
                                  .load_bytes = 1,
                                  .bucket_parameters = 1,
                                  .allreduce_buckets = 1,
                                  .element_bytes = 4};
        double batch, recorded;
        const double paper = run_paper(&plan, &r, false, &batch);
        r.under_way = checked(calloc((size_t)plan.pp * SERIALS, sizeof *r.under_way));
        run_paper(&plan, &r, true, &recorded);
        if (batch < 0 || recorded != batch || r.completed != r.issued) {
                fprintf(stderr, "events: the batch on paper came to rest, or is not the same twice\n");
                return 1;
        }
        const double heap = run_heap(&r);
        printf("%lld %.17g %.9f %.9f\n", (long long)r.completed, batch, paper, heap);
        free(r.seconds);
        free(r.after);
        free(r.under_way);
        return 0;
}
