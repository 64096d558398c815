#define _DEFAULT_SOURCE /* mmap without a file */
#include "calibrate/crowd.h"

#include "calibrate/bench.h"
#include "runtime/base/child.h"
#include "runtime/device/kernels.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
        SIZE = 256, /* of the product that processes compute */
        /* Who runs beside whom stays as it is for a while, and is another time otherwise: many short
         * measurements tell more than a few long ones. */
        TURNS = 24,
        QUICK_TURNS = 12,
        PARTS = 20, /* that a process does in a turn, in the mean */
        TOKEN = 0
};
/* A part of the work: as long as a pass of a small stage, longer than a scheduler's slice. */
static const double part_seconds = 4e-3;

/* What the processes of one measurement share. */
struct ring {
        int size;        /* processes */
        int launches;    /* kernels of a part */
        bool one_waits;  /* the last one at first; else all compute */
        int first, last; /* parts after which the clock starts and stops */
        atomic_int ready, done, waits;
        _Atomic double began, ended;
        atomic_bool go[]; /* [size]; may compute */
};

struct worker {
        const struct request *request;
        struct ring *ring;
        int index;
        struct device *device;
        void *matrices[3];
};

static int open_worker(struct worker *worker, struct rv_error_info *err)
{
        const struct kernel kernel = {.kind = KERNEL_MATMUL, .batch = 1, .m = SIZE, .n = SIZE, .k = SIZE};
        worker->device = bench_device(worker->request, false, err);
        return worker->device ? bench_matrices(worker->device, &kernel, worker->matrices, err) : err->code;
}

static void compute(const struct worker *worker, int launches)
{
        const struct matmul mm = {.m = SIZE, .n = SIZE, .k = SIZE};
        for (int i = 0; i < launches; i++)
                kernels_matmul(worker->device, &mm, worker->matrices[0], worker->matrices[1],
                               worker->matrices[2]);
        worker->device->ops->record(worker->device, DEVICE_COMPUTE, TOKEN);
        while (worker->device->ops->poll(worker->device) != TOKEN)
                device_rest(worker->device, true);
}

/* Counts a part that is done; false when the last one was. */
static bool count(struct ring *ring)
{
        const int done = atomic_fetch_add(&ring->done, 1) + 1;
        if (done == ring->first)
                ring->began = device_seconds();
        if (done == ring->last)
                ring->ended = device_seconds();
        return done < ring->last;
}

static void work(const struct worker *worker)
{
        struct ring *ring = worker->ring;
        const int me = worker->index;
        atomic_fetch_add(&ring->ready, 1);
        while (atomic_load(&ring->ready) < ring->size)
                sched_yield();
        for (;;) {
                while (!atomic_load(&ring->go[me]) && atomic_load(&ring->done) < ring->last)
                        device_rest(worker->device, true);
                if (atomic_load(&ring->done) >= ring->last)
                        return;
                compute(worker, ring->launches);
                if (!count(ring))
                        return;
                if (ring->one_waits) {
                        atomic_store(&ring->go[me], false);
                        atomic_store(&ring->go[atomic_exchange(&ring->waits, me)], true);
                }
        }
}

static int run_worker(void *context, int to)
{
        enum { ENOUGH_SECONDS = 60 };
        struct worker *worker = context;
        struct rv_error_info err = {0};
        alarm(ENOUGH_SECONDS); /* should another one have ended */
        if (open_worker(worker, &err) == RV_OK)
                compute(worker, 1); /* warms up */
        else
                atomic_store(&worker->ring->done, worker->ring->last); /* nobody needs to begin */
        work(worker);
        return child_tell(to, &err, sizeof err);
}

/* Waits for the end of a process. */
static int end_worker(struct child *child, struct rv_error_info *err)
{
        struct rv_error_info theirs;
        char end[96];
        int status;
        if (child_answer(child, &theirs, sizeof theirs, &status) < sizeof theirs)
                return rv_fail(err, RV_ESYSTEM, "a process that shares processors %s, without an answer",
                               child_end(status, end, sizeof end));
        if (theirs.code != RV_OK)
                *err = theirs;
        return theirs.code;
}

/* Runs a ring's processes to their end. */
static int run_ring(const struct request *request, struct ring *ring, struct rv_error_info *err)
{
        struct worker *workers = calloc((size_t)ring->size, sizeof *workers);
        struct child *children = calloc((size_t)ring->size, sizeof *children);
        int started = 0, rc = RV_OK;
        if (!workers || !children)
                rc = rv_fail(err, RV_ESYSTEM, "no memory for %d processes", ring->size);
        while (rc == RV_OK && started < ring->size) {
                workers[started] = (struct worker){.request = request, .ring = ring, .index = started};
                rc = child_start(&children[started], run_worker, &workers[started], "that shares processors",
                                 err);
                started += rc == RV_OK;
        }
        for (int i = 0; i < started; i++) {
                struct rv_error_info theirs = {0};
                if (rc != RV_OK)
                        kill(children[i].pid, SIGKILL);
                if (end_worker(&children[i], &theirs) != RV_OK && rc == RV_OK) {
                        *err = theirs;
                        rc = theirs.code;
                }
        }
        free(workers);
        free(children);
        return rc;
}

/* Seconds from one part of `launches` kernels to the next, of all processes together. */
static int measure(const struct request *request, int size, bool one_waits, int launches, double *seconds,
                   struct rv_error_info *err)
{
        const size_t bytes = sizeof(struct ring) + (size_t)size * sizeof(atomic_bool);
        struct ring *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (ring == MAP_FAILED)
                return rv_fail(err, RV_ESYSTEM, "no memory for processes to share");
        ring->size = size;
        ring->launches = launches;
        ring->one_waits = one_waits;
        ring->first = 2 * size; /* before that, processes begin */
        ring->last = ring->first + PARTS * size;
        ring->waits = size - 1;
        for (int i = 0; i < size - one_waits; i++)
                ring->go[i] = true;
        const int rc = run_ring(request, ring, err);
        *seconds = (ring->ended - ring->began) / (ring->last - ring->first);
        munmap(ring, bytes);
        return rc;
}

int crowd_measure(const struct request *request, double *waiting, struct rv_error_info *err)
{
        const int size = request->asked_ranks, turns = request->quick ? QUICK_TURNS : TURNS;
        struct request each = *request;
        each.local_ranks = size;
        if (each.threads == 0)
                each.threads = 1; /* what is left of a processor for each */
        double alone[TURNS], crowded[TURNS], one = 0;
        int rc = measure(&each, 1, false, 1, &one, err);
        const int launches = rc == RV_OK ? (int)ceil(part_seconds / one) : 1;
        for (int i = 0; i < turns && rc == RV_OK; i++) {
                rc = measure(&each, request->ranks, false, launches, &alone[i], err);
                if (rc == RV_OK)
                        rc = measure(&each, size, true, launches, &crowded[i], err);
        }
        if (rc != RV_OK)
                return rc;
        gsl_sort(alone, 1, (size_t)turns);
        gsl_sort(crowded, 1, (size_t)turns);
        const double ratio = gsl_stats_trmean_from_sorted_data(0.1, crowded, 1, (size_t)turns) /
                             gsl_stats_median_from_sorted_data(alone, 1, (size_t)turns);
        /* Processors are shared alike by the size - 1 that compute and by the part that the other one is. */
        *waiting = fmax((ratio - 1) * (size - 1), 0);
        return RV_OK;
}
