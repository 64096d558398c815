#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/traced.h"

#include "runtime/engine/trace.h"
#include "runtime/plan/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        ALL_LANES_UP_TO = 4,     /* ranks; with more, only the compute lanes are shown */
        ALL_REPLICAS_UP_TO = 12, /* ranks; with more, only the first pipeline is shown */
        MAX_ROWS = 64
};

/* Which records are drawn, and where. */
struct window {
        int batch, ranks;
        const struct plan *layout;
        double begin, end; /* seconds */
        double *row;       /* [ranks x LANES]: the centre of the row from the top, negative: none */
        double height;     /* of all rows */
};

static void find_span(const struct trace *trace, struct window *view)
{
        view->begin = INFINITY;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].batch == view->batch) {
                        view->begin = fmin(view->begin, trace->records[i].start);
                        view->end = fmax(view->end, trace->records[i].end);
                }
}

static bool lane_shown(const struct window *view, int rank, enum op_lane lane)
{
        if (view->ranks > ALL_LANES_UP_TO && lane != LANE_COMPUTE)
                return false;
        return view->ranks <= ALL_REPLICAS_UP_TO ||
               (plan_replica(view->layout, rank) == 0 && plan_shard(view->layout, rank) == 0);
}

/* Gives every lane that has work in the batch a row: ranks from the top, compute rows twice as high as
 * others. */
static int place_rows(const struct trace *trace, struct window *view, struct rv_error_info *err)
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
                bool shown = view->row[place] > 0 && rows < MAX_ROWS;
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

/* Boxes: begin, end (ms), top, bottom, look, text. A micro-batch's number is written where it fits. */
static void write_boxes(const struct trace *trace, const struct window *view, bool used[LOOKS], FILE *data)
{
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                double row = r->batch == view->batch ? view->row[(size_t)r->rank * LANES + r->lane] : -1;
                if (row < 0)
                        continue;
                enum look look = traced_look(r->kind);
                used[look] = true;
                double half = r->lane == LANE_COMPUTE ? 0.42 : look == LOOK_WAITING ? 0.08 : 0.16;
                char text[16] = "";
                double share = (r->end - r->start) / (view->end - view->begin);
                if (r->micro_batch >= 0 && r->lane == LANE_COMPUTE &&
                    share > 0.012 + (r->micro_batch > 9) * 0.011 + (r->micro_batch > 99) * 0.011 &&
                    view->height <= 24)
                        snprintf(text, sizeof text, "%d", r->micro_batch);
                fprintf(data, "%.6f %.6f %.4f %.4f %d \"%s\"\n", (r->start - view->begin) * 1e3,
                        (r->end - view->begin) * 1e3, row - half, row + half, (int)look, text);
        }
        fprintf(data, "\n\n");
}

static void write_labels(const struct window *view, FILE *data)
{
        char place[GRID_TEXT];
        for (int rank = 0; rank < view->ranks; rank++)
                for (int lane = 0; lane < LANES; lane++) {
                        double row = view->row[(size_t)rank * LANES + (size_t)lane];
                        if (row < 0)
                                continue;
                        if (lane == LANE_COMPUTE)
                                fprintf(data, "%.4f \"%s\" 1\n", row, grid_place(place, view->layout, rank));
                        else
                                fprintf(data, "%.4f \"%s\" 0\n", row, op_lane_name((enum op_lane)lane));
                }
}

static int draw(const struct trace *trace, const struct window *view, const char *out,
                struct rv_error_info *err)
{
        struct figure figure;
        int rc = figure_open(&figure, "timeline", out, err);
        if (rc)
                return rc;
        bool used[LOOKS] = {false};
        write_boxes(trace, view, used, figure.data);
        traced_legend(&figure, used);
        write_labels(view, figure.data);
        char title[160];
        snprintf(title, sizeof title, "Batch %d of a %s run, %d rank%s%s", view->batch,
                 strcmp(trace->world, "real") == 0 ? "real" : "simulated", view->ranks,
                 rv_plural(view->ranks),
                 view->ranks > ALL_REPLICAS_UP_TO && view->layout->pp < view->ranks ? ": the first pipeline"
                                                                                    : "");
        figure_text(&figure, "heading", title);
        figure_number(&figure, "rows", view->height);
        figure_number(&figure, "milliseconds", (view->end - view->begin) * 1e3);
        return figure_draw(&figure, err);
}

int figures_timeline(const char *out, const char *path, int batch, struct rv_error_info *err)
{
        struct trace trace;
        struct window view = {0};
        int rc = trace_read(&trace, path, err);
        if (rc)
                return rc;
        view.layout = &trace.layout;
        rc = traced_choose_batch(&trace, path, batch, &view.batch, &view.ranks, err);
        find_span(&trace, &view);
        if (rc == 0)
                rc = place_rows(&trace, &view, err);
        if (rc == 0)
                rc = draw(&trace, &view, out, err);
        free(view.row);
        trace_free(&trace);
        return rc;
}
