#include "sim/world/copies.h"

#include <assert.h>
#include <math.h>

/* The profile's line of an operation that copies. */
static enum profile_line line_of(enum op_kind kind)
{
        switch (kind) {
        case OP_FETCH:
                return LINE_FETCH;
        case OP_WRITE_BACK:
                return LINE_WRITE_BACK;
        case OP_STORE_ACTIVATIONS:
        case OP_STORE_WEIGHTS:
        case OP_STAGE_OUT:
                return LINE_COPY_BACK;
        case OP_SNAPSHOT:
                return LINE_SNAPSHOT;
        default:
                assert(kind == OP_LOAD || kind == OP_FETCH_ACTIVATIONS || kind == OP_STAGE_IN ||
                       kind == OP_FETCH_WEIGHTS);
                return LINE_COPY;
        }
}

double copies_seconds(const struct platform *platform, const struct op *op, bool fits_only, bool both)
{
        const struct profile_load *measured = op->kind == OP_SNAPSHOT ? platform->files : platform->copies;
        const enum profile_line line = line_of(op->kind);
        const double alone = profile_line_seconds(measured, line, op->bytes, fits_only);
        double beside = alone; /* fetches and write backs were measured while both directions copied */
        if (both && line == LINE_COPY)
                beside = profile_line_seconds(measured, LINE_COPY_BOTH, op->bytes, fits_only);
        else if (both && line == LINE_COPY_BACK)
                beside = profile_line_seconds(measured, LINE_COPY_BACK_BOTH, op->bytes, fits_only);
        return isnan(beside) ? alone : fmax(alone, beside); /* not measured: one is as fast as alone */
}

/* Of the node that a rank is on. */
static int writers(const struct platform *platform, const struct plan *plan, int rank)
{
        const struct platform_place place = platform_place(platform, rank);
        const int first = rank - place.gpu, end = first + place.figures->gpus_per_node;
        int count = 0;
        for (int i = first; i < end && i < plan_ranks(plan); i++)
                count += plan_writes(plan, plan_replica(plan, i));
        return count;
}

struct file_seconds copies_file_seconds(const struct platform *platform, const struct plan *plan, int rank,
                                        int64_t bytes, bool fits_only)
{
        const int64_t all = bytes * writers(platform, plan, rank);
        if (bytes == 0)
                return (struct file_seconds){0};
        if (platform->file_bytes_per_second > 0)
                return (struct file_seconds){.all = (double)all / platform->file_bytes_per_second};
        return (struct file_seconds){
                .all = profile_line_seconds(platform->files, LINE_FILE, all, fits_only),
                .work = profile_line_seconds(platform->files, LINE_FILE_WORK, bytes, fits_only)};
}

int copies_check_lines(const struct platform *platform, const struct options *options,
                       const struct profile *profile, struct rv_error_info *err)
{
        const struct profile_load *load = platform->copies;
        const struct plan plan = options_plan(options, false);
        const struct {
                bool needed;
                enum profile_line line;
        } needs[] = {{true, LINE_COPY},
                     {options->offload_activations || plan.offload_parameters || plan.stage_messages ||
                              plan.stage_allreduce || plan.stage_shards,
                      LINE_COPY_BACK},
                     {options->offload, LINE_FETCH},
                     {options->offload, LINE_WRITE_BACK}};
        for (size_t i = 0; load && i < sizeof needs / sizeof *needs; i++)
                if (needs[i].needed && !load->lines[needs[i].line].fit.present)
                        return profile_no_line(profile, load, needs[i].line, err);
        bool sums = plan.dp > 1 || plan.tied;
        const enum dtype dtype = options->dtype;
        if (load && dtype != DTYPE_FP32 && sums && !platform->allreduces[dtype])
                return profile_no_line(profile, load, profile_allreduce_line(dtype), err);
        return 0;
}
