#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/traced.h"

#include "runtime/base/number.h"
#include "runtime/plan/grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows from the top: the lanes that the optimizer phase keeps busy at the same time, in the order in which a
 * bucket goes through them. Only those above `LIMITING` can be what the phase waits for: a lane of scalars
 * waits itself. */
static const enum op_lane rows[] = {LANE_COLLECTIVE, LANE_HOST_TO_DEVICE, LANE_COMPUTE, LANE_DEVICE_TO_HOST,
                                    LANE_SCALARS};
enum { ROWS = sizeof rows / sizeof *rows, LIMITING = 4 };

static int row_of(enum op_lane lane)
{
        for (int row = 0; row < ROWS; row++)
                if (rows[row] == lane)
                        return row;
        return -1;
}

/* The phase on one rank: after its last backward, until the last operation of the rows' lanes ends. */
struct phase {
        int rank, batch;
        double begin, end;    /* seconds; begin is -INFINITY without a backward */
        bool updates;         /* whether there is an update in it, or, after an overflow, a clear */
        double busy[ROWS];    /* seconds of each lane */
        int operations[ROWS]; /* of each lane */
};

static void find_begins(const struct trace *trace, int batch, struct phase *phases)
{
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (r->batch == batch && r->kind == OP_BACKWARD)
                        phases[r->rank].begin = fmax(phases[r->rank].begin, r->end);
        }
}

static void find_ends(const struct trace *trace, int batch, struct phase *phases)
{
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                struct phase *phase = &phases[r->rank];
                if (r->batch != batch || row_of(r->lane) < 0 || r->end <= phase->begin)
                        continue;
                phase->end = fmax(phase->end, r->end);
                phase->updates |= r->kind == OP_UPDATE || r->kind == OP_CLEAR;
        }
}

/* Which rank is shown, with its phase; `phases` is one a rank. */
static int choose_phase(const struct trace *trace, const char *path, const struct phase *asked, int ranks,
                        struct phase *phases, struct phase *chosen, struct rv_error_info *err)
{
        for (int rank = 0; rank < ranks; rank++)
                phases[rank] = (struct phase){
                        .rank = rank, .batch = asked->batch, .begin = -INFINITY, .end = -INFINITY};
        find_begins(trace, asked->batch, phases);
        find_ends(trace, asked->batch, phases);
        const struct phase *best = asked->rank >= 0 ? &phases[asked->rank] : NULL;
        for (int rank = 0; rank < ranks && asked->rank < 0; rank++) {
                const struct phase *phase = &phases[rank];
                if (phase->updates && phase->begin > -INFINITY &&
                    (!best || phase->end - phase->begin > best->end - best->begin))
                        best = phase;
        }
        if (!best || !best->updates || best->begin == -INFINITY) {
                char where[64] = "";
                if (best)
                        snprintf(where, sizeof where, " on rank %d", best->rank);
                return rv_fail(err, RV_EINPUT,
                               "%s: batch %d has no optimizer phase%s, no update after a last backward", path,
                               asked->batch, where);
        }
        *chosen = *best;
        return 0;
}

static int by_start(const void *a, const void *b)
{
        const struct trace_record *x = *(const struct trace_record *const *)a,
                                  *y = *(const struct trace_record *const *)b;
        return (x->start > y->start) - (x->start < y->start);
}

/* The records that a phase shows, by start; as many as are stored in `count`. The caller frees them. */
static const struct trace_record **select_records(const struct trace *trace, const struct phase *phase,
                                                  int *count, struct rv_error_info *err)
{
        const struct trace_record **list = malloc((size_t)trace->count * sizeof(*list));
        *count = 0;
        if (!list) {
                rv_fail(err, RV_ESYSTEM, "out of memory for %lld operations", (long long)trace->count);
                return NULL;
        }
        for (int64_t i = 0; i < trace->count; i++) {
                const struct trace_record *r = &trace->records[i];
                if (r->rank == phase->rank && r->batch == phase->batch && row_of(r->lane) >= 0 &&
                    r->end > phase->begin)
                        list[(*count)++] = r;
        }
        qsort(list, (size_t)*count, sizeof(*list), by_start);
        return list;
}

/* What began before the phase counts from its begin; what is under way at the same time on one lane, once. */
static void add_up(const struct trace_record *const *list, int count, struct phase *phase)
{
        double until[ROWS];
        for (int row = 0; row < ROWS; row++)
                until[row] = phase->begin;
        for (int i = 0; i < count; i++) {
                int row = row_of(list[i]->lane);
                phase->operations[row]++;
                phase->busy[row] += fmax(0, list[i]->end - fmax(list[i]->start, until[row]));
                until[row] = fmax(until[row], list[i]->end);
        }
}

/* Boxes: begin, end, row, look, text. The number of its bucket or chunk is written where it fits. */
static void write_boxes(const struct trace_record *const *list, int count, const struct phase *phase,
                        const int place[ROWS], struct figure *figure)
{
        bool used[LOOKS] = {false};
        const double unit = figure_seconds_unit(figure, phase->end - phase->begin);
        for (int i = 0; i < count; i++) {
                const struct trace_record *r = list[i];
                enum look look = traced_look(r);
                double start = fmax(r->start, phase->begin);
                char text[16] = "";
                used[look] = true;
                if (r->bucket >= 0 && (r->end - start) / (phase->end - phase->begin) >
                                              0.014 + (r->bucket > 9) * 0.011 + (r->bucket > 99) * 0.011)
                        snprintf(text, sizeof text, "%d", r->bucket);
                fprintf(figure->data, "%.6f %.6f %d %d \"%s\"\n", (start - phase->begin) / unit,
                        (r->end - phase->begin) / unit, place[row_of(r->lane)], (int)look, text);
        }
        fprintf(figure->data, "\n\n");
        figure_number(figure, "length", (phase->end - phase->begin) / unit);
        traced_legend(figure, used);
}

/* Rows: row, lane, its busy time, its share of the phase. Returns how many there are; the lanes of the first
 * LIMITING rows are always shown, so that it is seen that one has nothing to do. */
static int write_rows(const struct phase *phase, int place[ROWS], FILE *data)
{
        int shown = 0;
        for (int row = 0; row < ROWS; row++) {
                place[row] = -1;
                if (row >= LIMITING && phase->operations[row] == 0)
                        continue;
                place[row] = shown++;
                char busy[NUMBER_TEXT];
                fprintf(data, "%d \"%s\" ", place[row], op_lane_name(rows[row]));
                if (phase->operations[row])
                        fprintf(data, "\"%s busy\" \"%.0f %%\"\n", number_seconds(busy, phase->busy[row]),
                                100 * phase->busy[row] / (phase->end - phase->begin));
                else
                        fprintf(data, "\"not used\" \"\"\n");
        }
        fprintf(data, "\n\n");
        return shown;
}

static void write_headings(struct figure *figure, const struct trace *trace, const struct phase *phase)
{
        char text[192], place[GRID_TEXT], whole[NUMBER_TEXT], busy[NUMBER_TEXT];
        int longest = 0;
        for (int row = 1; row < LIMITING; row++)
                if (phase->busy[row] > phase->busy[longest])
                        longest = row;
        snprintf(text, sizeof text, "Optimizer phase of batch %d on rank %d (%s), %s run", phase->batch,
                 phase->rank, grid_place(place, &trace->layout, phase->rank),
                 strcmp(trace->world, "real") == 0 ? "real" : "simulated");
        figure_text(figure, "heading", text);
        snprintf(text, sizeof text,
                 "%s from the last backward to the end: %.2f times the longest lane (%s, %s)",
                 number_seconds(whole, phase->end - phase->begin),
                 (phase->end - phase->begin) / phase->busy[longest], op_lane_name(rows[longest]),
                 number_seconds(busy, phase->busy[longest]));
        figure_text(figure, "summary", text);
}

static int draw(const struct trace *trace, struct phase *phase, const char *out, struct rv_error_info *err)
{
        struct figure figure;
        int count, place[ROWS];
        const struct trace_record **list = select_records(trace, phase, &count, err);
        if (!list)
                return RV_ESYSTEM;
        int rc = figure_open(&figure, "optimizer", out, err);
        if (rc == 0) {
                add_up(list, count, phase);
                figure_number(&figure, "rows", write_rows(phase, place, figure.data));
                write_boxes(list, count, phase, place, &figure);
                write_headings(&figure, trace, phase);
                rc = figure_draw(&figure, err);
        }
        free(list);
        return rc;
}

int figures_optimizer(const char *out, const char *path, int batch, int rank, struct rv_error_info *err)
{
        struct trace trace;
        struct phase asked = {.rank = rank}, phase = {0};
        struct phase *phases = NULL;
        int ranks, rc = trace_read(&trace, path, err);
        if (rc)
                return rc;
        rc = traced_choose_batch(&trace, path, batch, &asked.batch, &ranks, err);
        if (rc == 0 && rank >= ranks)
                rc = rv_fail(err, RV_EINPUT, "%s: has no rank %d; its ranks go from 0 to %d", path, rank,
                             ranks - 1);
        if (rc == 0 && !(phases = malloc((size_t)ranks * sizeof *phases)))
                rc = rv_fail(err, RV_ESYSTEM, "out of memory for %d ranks", ranks);
        if (rc == 0)
                rc = choose_phase(&trace, path, &asked, ranks, phases, &phase, err);
        if (rc == 0)
                rc = draw(&trace, &phase, out, err);
        free(phases);
        trace_free(&trace);
        return rc;
}
