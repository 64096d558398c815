#include "plots/compare.h"

#include "runtime/base/file.h"
#include "runtime/base/number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same_bytes(const struct run *p, const struct run *m)
{
        return memcmp(&p->bytes, &m->bytes, sizeof p->bytes) == 0;
}

bool compare_inside(const struct run *p, const struct run *m)
{
        return p->figures.low <= m->figures.median && m->figures.median <= p->figures.high;
}

int compare_summarize(const struct run *runs, int count, struct compare_summary *summary,
                      struct rv_error_info *err)
{
        int pairs = count / 2;
        *summary = (struct compare_summary){0};
        double *errors = malloc((size_t)pairs * sizeof *errors);
        if (!errors)
                return rv_fail(err, RV_ESYSTEM, "out of memory for %d pairs", pairs);
        for (int i = 0; i < pairs; i++) {
                const struct run *p = &runs[2 * i], *m = p + 1;
                errors[i] = fabs(runs_error_percent(p->figures.median, m->figures.median));
                if (errors[i] > summary->worst_percent) {
                        summary->worst_percent = errors[i];
                        summary->worst = i;
                }
                summary->exact += same_bytes(p, m);
                summary->intervals += p->figures.high > 0;
                summary->inside += p->figures.high > 0 && compare_inside(p, m);
        }
        summary->median_percent = quantile(errors, pairs, 0.5);
        free(errors);
        return 0;
}

static void print_row(FILE *out, const char *name, const char *predicted, const char *measured,
                      const char *error)
{
        fprintf(out, *error ? "  %-20s %14s %14s   %12s\n" : "  %-20s %14s %14s\n", name, predicted, measured,
                error);
}

static char *error_text(char text[NUMBER_TEXT], double predicted, double measured)
{
        if (measured == 0)
                snprintf(text, NUMBER_TEXT, predicted == 0 ? "exact" : "-");
        else
                snprintf(text, NUMBER_TEXT, "%+.2f %%", runs_error_percent(predicted, measured));
        return text;
}

static void print_seconds(FILE *out, const char *name, double predicted, double measured)
{
        char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
        print_row(out, name, number_seconds(a, predicted), number_seconds(b, measured),
                  error_text(c, predicted, measured));
}

static void print_bytes(FILE *out, const char *name, int64_t predicted, int64_t measured)
{
        char a[NUMBER_TEXT], b[NUMBER_TEXT], c[2 * NUMBER_TEXT] = "exact", percent[NUMBER_TEXT];
        if (predicted != measured && measured != 0)
                snprintf(c, sizeof c, "%+lld B, %s", (long long)(predicted - measured),
                         error_text(percent, (double)predicted, (double)measured));
        else if (predicted != measured)
                snprintf(c, sizeof c, "%+lld B", (long long)(predicted - measured));
        print_row(out, name, number_bytes(a, (double)predicted), number_bytes(b, (double)measured), c);
}

/* Categories that both have no bytes in are left out. */
static void print_categories(const struct run *p, const struct run *m, enum memory_space space, FILE *out)
{
        for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                char name[NUMBER_TEXT];
                snprintf(name, sizeof name, "  %s", memory_category_name((enum memory_category)c));
                if (p->bytes.in[space][c] || m->bytes.in[space][c])
                        print_bytes(out, name, p->bytes.in[space][c], m->bytes.in[space][c]);
        }
}

static void print_memory(const struct run *p, const struct run *m, FILE *out)
{
        print_bytes(out, "peak device bytes", p->figures.device_peak_bytes, m->figures.device_peak_bytes);
        print_categories(p, m, MEMORY_DEVICE, out);
        print_bytes(out, "all devices", p->figures.device_total_bytes, m->figures.device_total_bytes);
        if (!memory_uses_host(&p->bytes) && !memory_uses_host(&m->bytes))
                return;
        print_bytes(out, "host bytes", memory_total(&p->bytes, MEMORY_HOST),
                    memory_total(&m->bytes, MEMORY_HOST));
        print_categories(p, m, MEMORY_HOST, out);
}

void compare_print_pair(const struct run *p, const struct run *m, FILE *out)
{
        char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT];
        char grid[GRID_TEXT];
        fprintf(out, "%s, %s, %s, micro-batch %d, batch %lld x %d tokens\n\n", m->gpt.name,
                grid_text(grid, m->sizes, "", " x "), m->schedule, m->micro_batch_size,
                (long long)m->batch_size, m->seq_len);
        print_row(out, "", "predicted", "measured", "error");
        print_seconds(out, "time per batch", p->figures.median, m->figures.median);
        if (p->figures.high > 0)
                fprintf(out, "  %-20s %14s %14s   %12s\n", "  from", number_seconds(a, p->figures.low), "",
                        compare_inside(p, m) ? "inside" : "outside");
        if (p->figures.high > 0)
                fprintf(out, "  %-20s %14s\n", "  to", number_seconds(a, p->figures.high));
        print_row(out, "  10th percentile", "", number_seconds(a, m->figures.p10), "");
        print_row(out, "  90th percentile", "", number_seconds(a, m->figures.p90), "");
        print_row(out, "tokens per second", number_count(a, p->figures.tokens_per_second),
                  number_count(b, m->figures.tokens_per_second),
                  error_text(c, p->figures.tokens_per_second, m->figures.tokens_per_second));
        print_seconds(out, "pipeline", p->figures.pipeline_seconds, m->figures.pipeline_seconds);
        print_seconds(out, "all-reduce", p->figures.allreduce_seconds, m->figures.allreduce_seconds);
        print_seconds(out, "optimizer", p->figures.optimizer_seconds, m->figures.optimizer_seconds);
        snprintf(a, sizeof a, "%.1f %%", 100 * p->figures.bubble_fraction);
        snprintf(b, sizeof b, "%.1f %%", 100 * m->figures.bubble_fraction);
        snprintf(c, sizeof c, "%+.1f points",
                 100 * (p->figures.bubble_fraction - m->figures.bubble_fraction));
        print_row(out, "bubble", a, b, c);
        print_memory(p, m, out);
}

/* As many decimals as three significant digits of milliseconds need. */
static char *column_seconds(char text[NUMBER_TEXT], double seconds)
{
        snprintf(text, NUMBER_TEXT, seconds < 1 ? "%.4f s" : "%.3f s", seconds);
        return text;
}

/* The sizes along the axes that `largest` names, "2 x 3", or without sizes the names, "pp x dp". */
static char *grid_column(char text[GRID_TEXT], const int largest[GRID_AXES], const int *sizes)
{
        size_t length = 0;
        for (int axis = 0; axis < GRID_AXES; axis++) {
                if (!grid_names(largest, (enum grid_axis)axis))
                        continue;
                char size[16];
                snprintf(size, sizeof size, "%d", sizes ? sizes[axis] : 0);
                length += (size_t)snprintf(text + length, GRID_TEXT - length, "%s%s", length ? " x " : "",
                                           sizes ? size : grid_axes[axis].size);
        }
        return text;
}

void compare_print_all(const struct run *runs, int count, const struct compare_summary *summary, FILE *out)
{
        int width = 5, pairs = count / 2, largest[GRID_AXES] = {0};
        char grid[GRID_TEXT];
        for (int i = 1; i < count; i += 2) {
                width = (int)strlen(runs[i].gpt.name) > width ? (int)strlen(runs[i].gpt.name) : width;
                for (int axis = 0; axis < GRID_AXES; axis++)
                        if (runs[i].sizes[axis] > largest[axis])
                                largest[axis] = runs[i].sizes[axis];
        }
        const int grid_width = (int)strlen(grid_column(grid, largest, NULL));
        fprintf(out, "%-*s  %*s  %5s  %5s  %-8s  %10s  %10s  %8s  %13s  %13s\n", width, "", grid_width, "",
                "micro", "", "", "time", "time", "", "tokens/s", "tokens/s");
        fprintf(out, "%-*s  %*s  %5s  %5s  %-8s  %10s  %10s  %8s  %13s  %13s  %10s\n", width, "model",
                grid_width, grid, "batch", "batch", "schedule", "predicted", "measured", "error", "predicted",
                "measured", "memory");
        for (int i = 0; i < pairs; i++) {
                const struct run *p = &runs[2 * i], *m = p + 1;
                char a[NUMBER_TEXT], b[NUMBER_TEXT], c[NUMBER_TEXT], d[NUMBER_TEXT];
                char memory[NUMBER_TEXT] = "exact";
                if (!same_bytes(p, m))
                        snprintf(memory, sizeof memory, "%+lld B",
                                 (long long)(p->figures.device_peak_bytes - m->figures.device_peak_bytes));
                fprintf(out, "%-*s  %*s  %5d  %5lld  %-8s  %10s  %10s  %+6.2f %%  %13s  %13s  %10s\n", width,
                        m->gpt.name, grid_width, grid_column(grid, largest, m->sizes), m->micro_batch_size,
                        (long long)m->batch_size, m->schedule, column_seconds(a, p->figures.median),
                        column_seconds(b, m->figures.median),
                        runs_error_percent(p->figures.median, m->figures.median),
                        number_count(c, p->figures.tokens_per_second),
                        number_count(d, m->figures.tokens_per_second), memory);
        }
        if (summary->intervals)
                fprintf(out, "\nMeasured inside the interval of nine in ten: %d of %d.", summary->inside,
                        summary->intervals);
        fprintf(out,
                "\nTime per batch: median absolute error %.2f %%, worst %.2f %% over %d configurations. "
                "Memory: exact "
                "in %d of %d.\n",
                summary->median_percent, summary->worst_percent, pairs, summary->exact, pairs);
}

static void write_csv_row(const struct run *p, const struct run *m, FILE *out)
{
        fputs(m->gpt.name, out);
        for (int axis = 0; axis < GRID_AXES; axis++)
                fprintf(out, ",%d", m->sizes[axis]);
        fprintf(out, ",%d,%lld,%d,%s,%.9g,%.9g,%.9g,%.9g,%.6g,%.9g,%.9g,%lld,%lld", m->micro_batch_size,
                (long long)m->batch_size, m->seq_len, m->schedule, p->figures.median, m->figures.median,
                m->figures.p10, m->figures.p90, runs_error_percent(p->figures.median, m->figures.median),
                p->figures.tokens_per_second, m->figures.tokens_per_second,
                (long long)p->figures.device_peak_bytes, (long long)m->figures.device_peak_bytes);
        for (int space = 0; space < MEMORY_SPACES; space++)
                for (int c = 0; c < MEMORY_CATEGORIES; c++)
                        fprintf(out, ",%lld,%lld", (long long)p->bytes.in[space][c],
                                (long long)m->bytes.in[space][c]);
        fputc('\n', out);
}

int compare_write_csv(const struct run *runs, int count, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fputs("model", writer.stream);
        for (int axis = 0; axis < GRID_AXES; axis++)
                fprintf(writer.stream, ",%s", grid_axes[axis].size);
        fprintf(writer.stream,
                ",micro_batch_size,batch_size,seq_len,schedule,predicted_seconds,measured_seconds,"
                "measured_p10_seconds,measured_p90_seconds,error_percent,predicted_tokens_per_second,"
                "measured_tokens_per_second,predicted_device_peak_bytes,measured_device_peak_bytes");
        for (int space = 0; space < MEMORY_SPACES; space++)
                for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                        const char *where = space == MEMORY_HOST ? "host_" : "";
                        const char *name = memory_category_name((enum memory_category)c);
                        fprintf(writer.stream, ",predicted_%s%s_bytes,measured_%s%s_bytes", where, name,
                                where, name);
                }
        fputc('\n', writer.stream);
        for (int i = 0; i < count; i += 2)
                write_csv_row(&runs[i], &runs[i + 1], writer.stream);
        return file_writer_commit(&writer, err);
}
