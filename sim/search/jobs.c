#define _GNU_SOURCE /* sched_getaffinity */
#include "sim/search/jobs.h"

#include "runtime/base/child.h"
#include "sim/world/interval.h"
#include "sim/world/predict.h"

#include <assert.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* ---- the list ---- */

/* Micro-batches pass every rank that is simulated, and chunks of gradients go around every ring. */
static double cost_of(const struct candidate *candidate)
{
        const struct options *o = &candidate->options;
        const bool folded =
                candidate->machine->fold != FOLD_OFF && !fold_obstacle(&candidate->machine->platform, o);
        const bool folded_shards = candidate->machine->fold != FOLD_OFF &&
                                   !fold_shards_obstacle(&candidate->machine->platform, o);
        double ranks =
                (double)options_ranks(o) / (folded ? options_replicas(o) : 1) / (folded_shards ? o->tp : 1);
        double micro_batches = (double)o->batch_size / o->dp / o->micro_batch_size;
        double chunk = (double)o->bucket_parameters * o->allreduce_buckets;
        double chunks =
                1 + (double)gpt_parameters(&o->gpt) * options_replicas(o) / (double)options_ranks(o) / chunk;
        return ranks * (6 * micro_batches + 4 * chunks * (options_replicas(o) - 1));
}

static int by_cost(const void *left, const void *right)
{
        const struct job *a = left, *b = right;
        if (a->cost != b->cost)
                return a->cost > b->cost ? -1 : 1;
        return a->number - b->number;
}

int jobs_add(struct jobs *jobs, const struct candidate *const *candidates, int count,
             struct rv_error_info *err)
{
        struct job *grown = realloc(jobs->list, ((size_t)jobs->count + (size_t)count + 1) * sizeof *grown);
        if (!grown)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d predictions", jobs->count + count);
        jobs->list = grown;
        for (int i = 0; i < count; i++)
                grown[jobs->count + i] = (struct job){.candidate = candidates[i],
                                                      .number = jobs->count + i,
                                                      .cost = cost_of(candidates[i])};
        qsort(grown + jobs->count, (size_t)count, sizeof *grown, by_cost);
        jobs->count += count;
        return 0;
}

/* ---- one prediction, in a process of its own ---- */

static int predict(const struct candidate *candidate, const struct jobs *jobs, struct outcome *outcome,
                   struct rv_error_info *err)
{
        struct prediction p;
        int rc = predict_open(&p, &candidate->options, candidate->machine, err);
        if (rc == 0 && jobs->checkpoints.text)
                rc = predict_save(&p, jobs->checkpoints.file_rate, err);
        if (rc == 0)
                rc = predict_run(&p, NULL, NULL, 1, false, err);
        if (rc)
                return rc;
        if (jobs->checkpoints.text)
                p.batch_seconds[0] /= 1 - checkpoints_of(&p, &jobs->checkpoints).share;
        struct report report = predict_report(&p, NULL, jobs->tokens, NULL);
        if (report_figures(&report, &outcome->figures, err))
                return err->code;
        outcome->shapes = p.costs.prices.count;
        outcome->shapes_measured = p.costs.prices.from_points + p.costs.prices.from_tables;
        for (int i = 0; i < (int)options_ranks(&candidate->options); i++) {
                int64_t host = memory_host_shown(&p.rank_bytes[i]);
                if (host > outcome->host_bytes)
                        outcome->host_bytes = host;
        }
        if (jobs->intervals) {
                const struct interval interval =
                        interval_of(candidate->machine, &candidate->options, outcome->figures.median);
                outcome->figures.low = interval.known ? interval.low_seconds : 0;
                outcome->figures.high = interval.known ? interval.high_seconds : 0;
        }
        outcome->state = OUTCOME_DONE;
        return 0;
}

/* What a child is to predict. */
struct errand {
        const struct job *job;
        const struct jobs *jobs;
};

/* In the child: what it has not freed ends with it. */
static int predict_and_tell(void *context, int to)
{
        const struct errand *errand = context;
        struct outcome outcome = {.state = OUTCOME_PENDING};
        struct rv_error_info err;
        if (predict(errand->job->candidate, errand->jobs, &outcome, &err)) {
                outcome.state = OUTCOME_FAILED;
                memcpy(outcome.failure, err.sentence, sizeof err.sentence);
        }
        return child_tell(to, &outcome, sizeof outcome);
}

/* ---- all of them ---- */

struct worker {
        struct job *job; /* NULL: free */
        struct child child;
};

static int start(struct worker *worker, struct job *job, const struct jobs *jobs, struct rv_error_info *err)
{
        struct errand errand = {job, jobs};
        const int rc = child_start(&worker->child, predict_and_tell, &errand, "for a prediction", err);
        worker->job = rc ? NULL : job;
        return rc;
}

/* The pipe has something, or has ended: an outcome is short enough to be written at once. */
static void finish(struct worker *worker)
{
        struct outcome *outcome = &worker->job->outcome;
        char end[96];
        int status;
        const size_t got = child_answer(&worker->child, outcome, sizeof *outcome, &status);
        worker->job = NULL;
        if (got == sizeof *outcome)
                return;
        *outcome = (struct outcome){.state = OUTCOME_FAILED};
        snprintf(outcome->failure, sizeof outcome->failure, "its process %s",
                 child_end(status, end, sizeof end));
}

/* Waits a second at most for some worker to end, and takes what has ended. Returns how many still work. */
static int take_ended(struct worker *workers, struct pollfd *polled, int count)
{
        int working = 0;
        for (int i = 0; i < count; i++)
                polled[i] =
                        (struct pollfd){.fd = workers[i].job ? workers[i].child.from : -1, .events = POLLIN};
        poll(polled, (nfds_t)count, 1000);
        for (int i = 0; i < count; i++) {
                if (workers[i].job && (polled[i].revents & (POLLIN | POLLHUP | POLLERR)))
                        finish(&workers[i]);
                working += workers[i].job != NULL;
        }
        return working;
}

/* What had not ended is as if it had not begun. */
static void stop(struct worker *workers, int count)
{
        for (int i = 0; i < count; i++) {
                struct job *job = workers[i].job;
                if (!job)
                        continue;
                kill(workers[i].child.pid, SIGKILL);
                finish(&workers[i]);
                job->outcome = (struct outcome){.state = OUTCOME_PENDING};
        }
}

int jobs_run(struct jobs *jobs, int index, int shares, int at_once, bool (*tick)(void *context),
             void *context, struct rv_error_info *err)
{
        assert(at_once > 0);
        struct worker *workers = calloc((size_t)at_once, sizeof *workers);
        struct pollfd *polled = calloc((size_t)at_once, sizeof *polled);
        int rc = workers && polled ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for %d processes", at_once);
        int next = index, working = 0;
        bool on = true;
        while (rc == 0 && on && (next < jobs->count || working > 0)) {
                for (int i = 0; rc == 0 && i < at_once && next < jobs->count; i++)
                        if (!workers[i].job) {
                                rc = start(&workers[i], &jobs->list[next], jobs, err);
                                next += shares;
                        }
                if (rc == 0)
                        working = take_ended(workers, polled, at_once);
                on = tick(context);
        }
        if (workers)
                stop(workers, at_once);
        free(workers);
        free(polled);
        return rc;
}

bool outcome_measured_less(const struct outcome *a, const struct outcome *b)
{
        return (int64_t)a->shapes_measured * b->shapes < (int64_t)b->shapes_measured * a->shapes;
}

int jobs_cores(void)
{
        cpu_set_t allowed;
        if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0)
                return CPU_COUNT(&allowed);
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
}
