/* Random plans on several machines in two worlds: the time of a batch on paper against SimGrid's. Prints a
 * line a plan, worst last, and the errors of those whose operations share links or memory and of those where
 * nothing does. worlds PLANS SEED */
#include "sim/search/jobs.h"
#include "sim/world/paper_batch.h"
#include "tests/paper/plans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct compared {
        struct candidate candidate;
        const struct job *job;
        double paper, whole, error; /* error: signed, relative */
        bool contends;
};

static double seconds(clockid_t clock)
{
        struct timespec t;
        clock_gettime(clock, &t);
        return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_error(const void *left, const void *right)
{
        const struct compared *a = left, *b = right;
        return (fabs(a->error) > fabs(b->error)) - (fabs(a->error) < fabs(b->error));
}

static bool silent(void *context)
{
        (void)context;
        return true;
}

/* Of a sorted list, those that contend or not. */
static void summarize(const struct compared *sorted, int count, bool contends)
{
        double errors[4096];
        int found = 0;
        for (int i = 0; i < count && found < 4096; i++)
                if (sorted[i].contends == contends)
                        errors[found++] = fabs(sorted[i].error);
        if (found == 0)
                return;
        printf("%s: %d plans, error %.3f %% in the median, %.3f %% in the 90th percentile, %.3f %% at most\n",
               contends ? "links or memory shared" : "nothing contends", found, 100 * errors[found / 2],
               100 * errors[found * 9 / 10], 100 * errors[found - 1]);
}

int main(int argc, char **argv)
{
        const int count = argc > 1 ? atoi(argv[1]) : 300;
        uint64_t seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 20261122;
        struct compared *plans = calloc((size_t)count, sizeof *plans);
        const struct candidate **list = calloc((size_t)count, sizeof(const struct candidate *));
        struct machine *machines = calloc((size_t)count, sizeof *machines);
        struct jobs jobs = {.tokens = 300e9};
        struct rv_error_info err;
        double spent = 0;
        if (!plans || !list || !machines)
                return 1;
        for (int i = 0; i < count; i++) {
                const struct plan_machine *m = &plan_machines[i % plan_machine_count];
                struct compared *c = &plans[i];
                c->candidate.options = plans_random(&seed, m);
                c->candidate.machine = &machines[i];
                c->candidate.number = i;
                if (machine_open(&machines[i], m->profile, m->platform,
                                 (int)options_ranks(&c->candidate.options), false, &err)) {
                        fprintf(stderr, "worlds: %s\n", err.sentence);
                        return 1;
                }
                c->contends = plans_contend(&c->candidate.options, &machines[i].platform);
                list[i] = &c->candidate;
                const double start = seconds(CLOCK_PROCESS_CPUTIME_ID);
                c->paper = paper_batch_seconds(&machines[i], &c->candidate.options);
                spent += seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
                c->whole = paper_batch_whole(&machines[i], &c->candidate.options);
        }
        if (jobs_add(&jobs, list, count, &err) || jobs_run(&jobs, 0, 1, jobs_cores(), silent, NULL, &err)) {
                fprintf(stderr, "worlds: %s\n", err.sentence);
                return 1;
        }
        for (int i = 0; i < count; i++) {
                struct compared *c = &plans[jobs.list[i].number];
                c->job = &jobs.list[i];
                c->error = c->job->outcome.state == OUTCOME_DONE
                                   ? c->paper / c->job->outcome.figures.median - 1
                                   : INFINITY;
        }
        qsort(plans, (size_t)count, sizeof *plans, by_error);
        for (int i = 0; i < count; i++) {
                char text[512];
                plans_describe(&plans[i].candidate.options, text, sizeof text);
                printf("%+8.3f %% (whole %+8.3f %%) %.6g s%s %s: %s%s\n", 100 * plans[i].error,
                       100 * (plans[i].whole / plans[i].job->outcome.figures.median - 1),
                       plans[i].job->outcome.figures.median, plans[i].contends ? " *" : "",
                       plans[i].candidate.machine->platform.name, text,
                       plans[i].job->outcome.state == OUTCOME_DONE ? "" : plans[i].job->outcome.failure);
        }
        summarize(plans, count, false);
        summarize(plans, count, true);
        printf("%.0f plans a second on paper, one core\n", count / spent);
        for (int i = 0; i < count; i++)
                machine_close(&machines[i]);
        free(jobs.list);
        free(list);
        free(machines);
        free(plans);
        return 0;
}
