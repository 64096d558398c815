#include "plots/figure.h"
#include "plots/figures.h"

#include "runtime/engine/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        ALL_LANES_UP_TO = 4,     /* ranks; with more, only the compute lanes are shown */
        ALL_REPLICAS_UP_TO = 12, /* ranks; with more, only the first pipeline is shown */
        MOST_ROWS = 64
};

/* What a box is coloured as; plots/timeline.gp names them. */
enum group { FORWARD = 1, BACKWARD, OPTIMIZER, ALLREDUCE, MESSAGE, LOAD, WAITING };

static enum group group_of(enum op_kind kind)
{
        switch (kind) {
        case OP_FORWARD:
                return FORWARD;
        case OP_BACKWARD:
                return BACKWARD;
        case OP_NORM:
        case OP_UPDATE:
                return OPTIMIZER;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCALARS:
                return ALLREDUCE;
        case OP_SEND_ACTIVATION:
        case OP_SEND_GRADIENT:
                return MESSAGE;
        case OP_LOAD:
                return LOAD;
        default: /* receives last from when they are posted */
                return WAITING;
        }
}

/* Which records are drawn, and where. */
struct view {
        int batch, ranks, pp;
        double begin, end; /* seconds */
        double *row;       /* [ranks x LANES]: the centre of the row from the top, negative: none */
        double height;     /* of all rows */
};

static int choose_batch(const struct trace *trace, const char *path, int batch, struct view *view,
                        struct rv_error_info *err)
{
        if (trace->count == 0)
                return rv_fail(err, RV_EINPUT, "%s: the trace has no operations", path);
        int first = trace->records[0].batch, last = first;
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                first = r->batch < first ? r->batch : first;
                last = r->batch > last ? r->batch : last;
                view->ranks = r->rank >= view->ranks ? r->rank + 1 : view->ranks;
        }
        view->batch = batch < 0 ? first + (last - first) / 2 : batch;
        view->begin = INFINITY;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].batch == view->batch) {
                        view->begin = fmin(view->begin, trace->records[i].start);
                        view->end = fmax(view->end, trace->records[i].end);
                }
        if (view->begin == INFINITY)
                return rv_fail(err, RV_EINPUT, "%s: has no batch %d; its batches go from %d to %d", path,
                               view->batch, first, last);
        return 0;
}

static bool lane_shown(const struct view *view, int rank, enum op_lane lane)
{
        if (view->ranks > ALL_LANES_UP_TO && lane != LANE_COMPUTE)
                return false;
        return view->ranks <= ALL_REPLICAS_UP_TO || rank < view->pp;
}

/* Gives every lane that has work in the batch a row: ranks from the top, compute rows twice as high as
 * others. */
static int place_rows(const struct trace *trace, struct view *view, struct rv_error_info *err)
{
        size_t places = (size_t)view->ranks * LANES;
        view->row = calloc(places, sizeof *view->row);
        if (!view->row)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d ranks", view->ranks);
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (r->batch == view->batch && lane_shown(view, r->rank, r->lane))
                        view->row[(size_t)r->rank * LANES + r->lane] = 1;
        }
        int rows = 0;
        for (size_t place = 0; place < places; place++) {
                bool shown = view->row[place] > 0 && rows < MOST_ROWS;
                view->row[place] = -1;
                if (!shown)
                        continue;
                bool compute = place % LANES == LANE_COMPUTE;
                if (compute && rows && view->ranks <= ALL_LANES_UP_TO)
                        view->height += 0.35; /* a gap between ranks */
                view->row[place] = view->height + (compute ? 0.5 : 0.25);
                view->height += compute ? 1 : 0.5;
                rows++;
        }
        return 0;
}

/* Boxes: begin, end (ms), top, bottom, group, text. A micro-batch's number is written where it fits. */
static void write_boxes(const struct trace *trace, const struct view *view, FILE *data)
{
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                double row = r->batch == view->batch ? view->row[(size_t)r->rank * LANES + r->lane] : -1;
                if (row < 0)
                        continue;
                enum group group = group_of(r->kind);
                double half = r->lane == LANE_COMPUTE ? 0.42 : group == WAITING ? 0.08 : 0.16;
                char text[16] = "";
                double share = (r->end - r->start) / (view->end - view->begin);
                if (r->micro_batch >= 0 && r->lane == LANE_COMPUTE &&
                    share > 0.012 + (r->micro_batch > 9) * 0.011 + (r->micro_batch > 99) * 0.011 &&
                    view->height <= 24)
                        snprintf(text, sizeof text, "%d", r->micro_batch);
                fprintf(data, "%.6f %.6f %.4f %.4f %d \"%s\"\n", (r->start - view->begin) * 1e3,
                        (r->end - view->begin) * 1e3, row - half, row + half, (int)group, text);
        }
        fprintf(data, "\n\n");
}

static void write_labels(const struct view *view, FILE *data)
{
        for (int rank = 0; rank < view->ranks; rank++)
                for (int lane = 0; lane < LANES; lane++) {
                        double row = view->row[(size_t)rank * LANES + (size_t)lane];
                        if (row < 0)
                                continue;
                        if (lane == LANE_COMPUTE)
                                fprintf(data, "%.4f \"stage %d, replica %d\" 1\n", row, rank % view->pp,
                                        rank / view->pp);
                        else
                                fprintf(data, "%.4f \"%s\" 0\n", row, op_lane_name((enum op_lane)lane));
                }
}

static int draw(const struct trace *trace, const struct view *view, const char *out,
                struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "timeline", out, err);
        if (rc)
                return rc;
        write_boxes(trace, view, figure.data);
        write_labels(view, figure.data);
        char title[160];
        snprintf(title, sizeof title, "Batch %d of a %s run, %d rank%s%s", view->batch,
                 strcmp(trace->world, "real") == 0 ? "real" : "simulated", view->ranks,
                 view->ranks == 1 ? "" : "s",
                 view->ranks > ALL_REPLICAS_UP_TO && view->pp < view->ranks ? ": the first pipeline" : "");
        figure_text(&figure, "heading", title);
        figure_number(&figure, "rows", view->height);
        figure_number(&figure, "milliseconds", (view->end - view->begin) * 1e3);
        figure_number(&figure, "all_lanes", view->ranks <= ALL_LANES_UP_TO);
        return figure_draw(&figure, err);
}

int figures_timeline(const char *out, const char *path, int batch, struct rv_error_info *err)
{
        struct trace trace;
        struct view view = {0};
        int rc = trace_read(&trace, path, err);
        if (rc)
                return rc;
        view.pp = trace.pp;
        rc = choose_batch(&trace, path, batch, &view, err);
        if (rc == 0)
                rc = place_rows(&trace, &view, err);
        if (rc == 0)
                rc = draw(&trace, &view, out, err);
        free(view.row);
        trace_free(&trace);
        return rc;
}
