/* Traces: of PyTorch's profiler, and our own. */
#include "tests/fuzz/fuzz.h"

#include "plots/figures.h"
#include "plots/profiled.h"
#include "runtime/kineto/found.h"
#include "sim/world/replay.h"

#include <math.h>

void fuzz_kineto(struct fuzz_bytes bytes)
{
        const char *path = fuzz_file("trace.json", bytes);
        struct rv_error_info err = {0};
        struct kineto trace = {0};
        struct traced_steps steps = {0};
        kineto_is(path);
        int rc = kineto_read(&trace, path, &err);
        if (rc == RV_OK)
                rc = steps_find(&steps, &trace, path, &err);
        fuzz_check(rc, &err);
        if (rc == RV_OK) {
                json_t *found = found_json(&steps);
                found_print(found, fuzz_nowhere());
                json_decref(found);
        }
        steps_free(&steps);
        kineto_free(&trace);
}

/* Ours, as a replay and two figures read it. */
void fuzz_trace(struct fuzz_bytes bytes)
{
        const char *path = fuzz_file("trace.json", bytes), *out = fuzz_path("out.svg");
        const struct timeline_cut cut = {.batch = -1, .to = INFINITY};
        struct rv_error_info err = {0};
        struct replay replay = {0};
        int rc = replay_open(&replay, path, -1, 2, &err);
        fuzz_check(rc, &err);
        replay_close(&replay);
        fuzz_check(figures_timeline(out, path, &cut, &err), &err);
        fuzz_check(figures_optimizer(out, path, -1, -1, &err), &err);
}

/* Two parts: a timeline of ours, and a trace of PyTorch's. */
void fuzz_profiled(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        struct profiled profiled;
        const char *ours = fuzz_file("ours.json", fuzz_part(&bytes)),
                   *theirs = fuzz_file("theirs.json", bytes);
        int rc = profiled_read(&profiled, ours, theirs, 0, &err);
        fuzz_check(rc, &err);
        if (rc != RV_OK)
                return;
        profiled_print(&profiled, fuzz_nowhere());
        fuzz_check(profiled_merge(&profiled, ours, theirs, fuzz_path("both.json"), &err), &err);
}
