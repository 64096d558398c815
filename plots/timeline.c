#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/plan_text.h"
#include "plots/traced.h"

#include "runtime/base/number.h"
#include "runtime/engine/trace.h"
#include "runtime/plan/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
        ALL_LANES_UP_TO = 4,     /* ranks; with more, only the compute lanes are shown */
        ALL_REPLICAS_UP_TO = 12, /* ranks; with more, only the first pipeline is shown */
        MAX_RANKS = 32,          /* with more, so many of them are evenly chosen */
        PIXELS = 880,            /* of the time axis, as timeline.gp has it */
        STEP_PIXELS = 8          /* of a step of lanes that show shares of the time */
};

static const double seen_pixels = 2.5; /* what is narrower cannot be told from its neighbours */

/* Which records are drawn, and where. Times are in seconds. */
struct window {
        int batch, ranks, shown_ranks, chunks;
        const struct plan *layout;
        double batch_begin, batch_end; /* by the trace's clock */
        double begin, end;             /* what is shown */
        bool *shown;                   /* [ranks] */
        double *row;   /* [ranks x LANES]: the centre of the row from the top, negative: none */
        double height; /* of all rows */
};

/* One operation, or parts of one that follow each other so closely that no gap can be seen. */
struct box {
        const struct trace_record *record;
        double row, begin, end;
};

static int find_span(const struct trace *trace, const char *path, const struct timeline_cut *cut,
                     struct window *view, struct rv_error_info *err)
{
        view->batch_begin = INFINITY;
        view->batch_end = -INFINITY;
        for (int64_t i = 0; i < trace->count; i++)
                if (trace->records[i].batch == view->batch) {
                        view->batch_begin = fmin(view->batch_begin, trace->records[i].start);
                        if (trace->records[i].lane != LANE_FILES) /* which go on beside the next ones */
                                view->batch_end = fmax(view->batch_end, trace->records[i].end);
                        if (trace->records[i].chunk >= view->chunks)
                                view->chunks = trace->records[i].chunk + 1;
                }
        view->begin = view->batch_begin + cut->from;
        view->end = fmin(view->batch_end, view->batch_begin + cut->to);
        if (view->begin < view->end || cut->from == 0)
                return 0;
        char from[NUMBER_TEXT], length[NUMBER_TEXT];
        return rv_fail(err, RV_EINPUT, "%s: --from %s is behind the end of batch %d, which takes %s", path,
                       number_seconds(from, cut->from), view->batch,
                       number_seconds(length, view->batch_end - view->batch_begin));
}

/* Those that are asked for; else all, or the first pipeline; and of too many, some. */
static int choose_ranks(const char *path, const struct timeline_cut *cut, struct window *view,
                        struct rv_error_info *err)
{
        view->shown = calloc((size_t)view->ranks, sizeof *view->shown);
        if (!view->shown)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d ranks", view->ranks);
        for (int i = 0; i < cut->ranks.count; i++) {
                if (cut->ranks.values[i] >= view->ranks)
                        return rv_fail(err, RV_EINPUT, "%s: has no rank %d; its ranks go from 0 to %d", path,
                                       cut->ranks.values[i], view->ranks - 1);
                view->shown[cut->ranks.values[i]] = true;
        }
        for (int rank = 0; rank < view->ranks && cut->ranks.count == 0; rank++)
                view->shown[rank] =
                        view->ranks <= ALL_REPLICAS_UP_TO ||
                        (plan_replica(view->layout, rank) == 0 && plan_shard(view->layout, rank) == 0);
        int candidates = 0, seen = 0;
        for (int rank = 0; rank < view->ranks; rank++)
                candidates += view->shown[rank];
        const int most = candidates < MAX_RANKS ? candidates : MAX_RANKS;
        for (int rank = 0; rank < view->ranks; rank++)
                if (view->shown[rank]) {
                        const int next = most > 1 ? view->shown_ranks * (candidates - 1) / (most - 1) : 0;
                        view->shown[rank] = seen++ == next;
                        view->shown_ranks += view->shown[rank];
                }
        return 0;
}

/* Of the batch; or a file that is written beside it, whatever batch that is of. */
static bool is_of_batch(const struct trace_record *r, const struct window *view)
{
        return r->batch == view->batch ||
               (r->lane == LANE_FILES && r->end > view->batch_begin && r->start < view->batch_end);
}

/* Gives every lane that has work in the batch a row: ranks from the top, compute rows twice as high as
 * others. */
static int place_rows(const struct trace *trace, struct window *view, struct rv_error_info *err)
{
        size_t places = (size_t)view->ranks * LANES;
        view->row = calloc(places, sizeof *view->row);
        if (!view->row)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d ranks", view->ranks);
        const bool all_lanes = view->shown_ranks <= ALL_LANES_UP_TO;
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (is_of_batch(r, view) && view->shown[r->rank] && (all_lanes || r->lane == LANE_COMPUTE))
                        view->row[(size_t)r->rank * LANES + r->lane] = 1;
        }
        for (size_t place = 0; place < places; place++) {
                bool shown = view->row[place] > 0, compute = place % LANES == LANE_COMPUTE;
                view->row[place] = -1;
                if (!shown)
                        continue;
                if (compute && view->height > 0 && all_lanes)
                        view->height += 0.35; /* a gap between ranks */
                view->row[place] = view->height + (compute ? 0.5 : 0.25);
                view->height += compute ? 1 : 0.5;
        }
        return 0;
}

static bool same_pass(const struct trace_record *a, const struct trace_record *b)
{
        return a->rank == b->rank && a->lane == b->lane && a->kind == b->kind && a->chunk == b->chunk &&
               a->micro_batch == b->micro_batch && a->parts == b->parts && a->micro_batch >= 0;
}

static int by_row(const void *a, const void *b)
{
        const struct box *x = a, *y = b;
        if (x->row != y->row)
                return x->row < y->row ? -1 : 1;
        return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Joins what belongs to one pass and has gaps of at most `gap` seconds between. Returns how many are left. */
static int64_t join_boxes(struct box *boxes, int64_t count, double gap)
{
        int64_t joined = 0;
        for (int64_t i = 0; i < count; i++) {
                struct box *last = &boxes[joined - 1];
                if (joined && same_pass(last->record, boxes[i].record) && boxes[i].begin - last->end <= gap)
                        last->end = fmax(last->end, boxes[i].end);
                else
                        boxes[joined++] = boxes[i];
        }
        return joined;
}

/* What the window shows, or if `passes` the forwards and backwards of all ranks in all of the batch; in
 * memory that the caller frees. NULL without memory. */
static struct box *list_boxes(const struct trace *trace, const struct window *view, bool passes,
                              int64_t *count)
{
        struct box *boxes = malloc(((size_t)trace->count + 1) * sizeof *boxes);
        *count = 0;
        for (int64_t i = 0; boxes && i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (!is_of_batch(r, view))
                        continue;
                const double row = passes ? r->rank : view->row[(size_t)r->rank * LANES + r->lane];
                const bool pass = r->kind == OP_FORWARD || r->kind == OP_BACKWARD;
                if (passes ? pass : row >= 0 && r->end >= view->begin && r->start <= view->end)
                        boxes[(*count)++] = (struct box){r, row, r->start, r->end};
        }
        if (!boxes)
                return NULL;
        qsort(boxes, (size_t)*count, sizeof *boxes, by_row);
        *count = join_boxes(boxes, *count, passes ? INFINITY : (view->end - view->begin) / PIXELS);
        return boxes;
}

/* The share of the time until the last pass ends in which a rank, on average, is in none; NAN if there are
 * none. */
static double find_bubble(const struct trace *trace, const struct window *view)
{
        int64_t count;
        double worked = 0, end = -INFINITY;
        struct box *passes = list_boxes(trace, view, true, &count);
        for (int64_t i = 0; passes && i < count; i++) {
                worked += passes[i].end - passes[i].begin;
                end = fmax(end, passes[i].end);
        }
        free(passes);
        return end > view->batch_begin ? 1 - worked / view->ranks / (end - view->batch_begin) : NAN;
}

/* Whether half of the boxes of compute lanes are too narrow to be told from their neighbours. */
static bool too_narrow(const struct box *boxes, int64_t count, const struct window *view)
{
        const double seen = seen_pixels * (view->end - view->begin) / PIXELS;
        int64_t narrow = 0, all = 0;
        for (int64_t i = 0; i < count; i++)
                if (boxes[i].record->lane == LANE_COMPUTE) {
                        narrow += boxes[i].end - boxes[i].begin < seen;
                        all++;
                }
        return all > PIXELS / seen_pixels && 2 * narrow > all;
}

/* How a text of `digits` is written in a box of `pixels`: 1 small, 2 tiny, 3 tiny and upright, 4 minute and
 * upright; 0: it does not fit. timeline.gp has the fonts. */
static int text_size(int digits, double pixels, bool low)
{
        if (pixels >= 4 + 9 * digits)
                return 1;
        if (pixels >= 3 + 7 * digits)
                return 2;
        if (digits > (low ? 2 : 4))
                return 0;
        return pixels >= 11 ? 3 : pixels >= 8 ? 4 : 0;
}

/* Boxes: begin, end, top, bottom, look, chunk, text, its size. */
static void write_boxes(const struct box *boxes, int64_t count, const struct window *view, double unit,
                        bool used[LOOKS], FILE *data)
{
        for (int64_t i = 0; i < count; i++) {
                const struct trace_record *r = boxes[i].record;
                enum look look = traced_look(r);
                const double half = r->lane == LANE_COMPUTE ? 0.42 : look == LOOK_WAITING ? 0.08 : 0.16;
                const double begin = fmax(boxes[i].begin, view->begin), end = fmin(boxes[i].end, view->end);
                char text[16] = "";
                int size = 0;
                used[look] = true;
                if (r->micro_batch >= 0 && r->lane == LANE_COMPUTE) {
                        const int digits = snprintf(text, sizeof text, "%d", r->micro_batch);
                        size = text_size(digits, (end - begin) / (view->end - view->begin) * PIXELS,
                                         view->height > 24);
                }
                fprintf(data, "%.9g %.9g %.4f %.4f %d %d \"%s\" %d\n", (begin - view->batch_begin) / unit,
                        (end - view->batch_begin) / unit, boxes[i].row - half, boxes[i].row + half, (int)look,
                        r->chunk, text, size);
        }
        fprintf(data, "\n\n");
}

/* The shares of one row: in each step of the time, from the bottom, what part of it each look has. */
static void write_shares(const struct box *boxes, int64_t count, const struct window *view, double unit,
                         bool used[LOOKS], FILE *data)
{
        enum { STEPS = PIXELS / STEP_PIXELS };
        static double share[STEPS][LOOKS];
        const double step = (view->end - view->begin) / STEPS, height = 0.84;
        memset(share, 0, sizeof share);
        for (int64_t i = 0; i < count; i++) {
                const double begin = fmax(boxes[i].begin - view->begin, 0) / step;
                const double end = fmin((boxes[i].end - view->begin) / step, STEPS);
                const enum look look = traced_look(boxes[i].record);
                used[look] = true;
                for (int s = (int)begin; s < end && s < STEPS; s++)
                        share[s][look] += fmin(end, s + 1) - fmax(begin, s);
        }
        for (int s = 0; s < STEPS; s++) {
                double bottom = boxes[0].row + height / 2;
                for (int look = 1; look < LOOKS; look++) {
                        const double top = bottom - height * share[s][look];
                        if (share[s][look] > 0)
                                fprintf(data, "%.9g %.9g %.4f %.4f %d 0 \"\" 0\n",
                                        (view->begin - view->batch_begin + s * step) / unit,
                                        (view->begin - view->batch_begin + (s + 1) * step) / unit, top,
                                        bottom, look);
                        bottom = top;
                }
        }
}

static void write_all_shares(const struct box *boxes, int64_t count, const struct window *view, double unit,
                             bool used[LOOKS], FILE *data)
{
        for (int64_t first = 0, next; first < count; first = next) {
                for (next = first; next < count && boxes[next].row == boxes[first].row; next++)
                        ;
                write_shares(&boxes[first], next - first, view, unit, used, data);
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

/* What is drawn (the model and the plan, as far as the trace has them), and of which run. */
static void write_headings(struct figure *figure, const struct trace *trace, const struct window *view,
                           bool shares)
{
        const json_t *plan = json_object_get(trace->about, "plan");
        const char *model = json_string_value(json_object_get(trace->about, "model"));
        const char *machine = json_string_value(json_object_get(trace->about, "machine"));
        const bool simulated = strcmp(trace->world, "real") != 0;
        char text[512], grid[GRID_TEXT], how[PLAN_TEXT], memory[PLAN_TEXT], seconds[NUMBER_TEXT];
        int length = 0;
        if (plan) {
                const int batches = (int)json_integer_value(json_object_get(plan, "micro_batches"));
                plan_text_memory(memory, plan);
                snprintf(text, sizeof text, "%s%s%s, %s%s%s, %d micro-batch%s of %d", model ? model : "",
                         model ? ": " : "", grid_text(grid, view->layout->sizes, "", " × "),
                         plan_text_schedule(how, plan), *memory ? ", " : "", memory, batches,
                         batches == 1 ? "" : "es",
                         (int)json_integer_value(json_object_get(plan, "micro_batch_size")));
        } else {
                snprintf(text, sizeof text, "Timeline of %d rank%s", view->ranks, rv_plural(view->ranks));
        }
        figure_text(figure, "heading", text);
        length = snprintf(text, sizeof text, "batch %d, %s%s%s: %s", view->batch,
                          simulated ? "simulated" : "measured", machine ? " on " : "", machine ? machine : "",
                          number_seconds(seconds, view->batch_end - view->batch_begin));
        const double bubble = find_bubble(trace, view);
        if (!isnan(bubble))
                length += snprintf(text + length, sizeof text - (size_t)length, ", bubble %.1f %%",
                                   100 * bubble);
        if (view->shown_ranks < view->ranks)
                length += snprintf(text + length, sizeof text - (size_t)length, "; %d of %d ranks",
                                   view->shown_ranks, view->ranks);
        if (shares)
                snprintf(text + length, sizeof text - (size_t)length, "; height: share of each %s",
                         number_seconds(seconds, (view->end - view->begin) * STEP_PIXELS / PIXELS));
        else if (view->chunks > 1)
                snprintf(text + length, sizeof text - (size_t)length, "; chunks 0 to %d from dark to light",
                         view->chunks - 1);
        figure_text(figure, "summary", text);
}

static int draw(const struct trace *trace, const struct window *view, const char *out,
                struct rv_error_info *err)
{
        struct figure figure;
        int64_t count;
        struct box *boxes = list_boxes(trace, view, false, &count);
        if (!boxes)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %lld operations", (long long)trace->count);
        int rc = figure_open(&figure, "timeline", out, err);
        if (rc == 0) {
                bool used[LOOKS] = {false};
                const bool shares = view->shown_ranks > ALL_LANES_UP_TO && too_narrow(boxes, count, view);
                const double unit = figure_seconds_unit(&figure, view->end - view->batch_begin);
                (shares ? write_all_shares : write_boxes)(boxes, count, view, unit, used, figure.data);
                traced_legend(&figure, used);
                write_labels(view, figure.data);
                write_headings(&figure, trace, view, shares);
                figure_number(&figure, "rows", view->height);
                figure_number(&figure, "shares", shares);
                figure_number(&figure, "chunks", view->chunks);
                figure_number(&figure, "begin", (view->begin - view->batch_begin) / unit);
                figure_number(&figure, "end", (view->end - view->batch_begin) / unit);
                rc = figure_draw(&figure, err);
        }
        free(boxes);
        return rc;
}

int figures_timeline(const char *out, const char *path, const struct timeline_cut *cut,
                     struct rv_error_info *err)
{
        struct trace trace;
        struct window view = {0};
        int rc = trace_read(&trace, path, err);
        if (rc)
                return rc;
        view.layout = &trace.layout;
        rc = traced_choose_batch(&trace, path, cut->batch, &view.batch, &view.ranks, err);
        if (rc == 0)
                rc = find_span(&trace, path, cut, &view, err);
        if (rc == 0)
                rc = choose_ranks(path, cut, &view, err);
        if (rc == 0)
                rc = place_rows(&trace, &view, err);
        if (rc == 0)
                rc = draw(&trace, &view, out, err);
        free(view.shown);
        free(view.row);
        trace_free(&trace);
        return rc;
}
