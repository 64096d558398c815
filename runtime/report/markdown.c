/* A report as Markdown: what a reader pastes into an issue or a page. */
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/plan/grid.h"
#include "runtime/report/report.h"

#include <stdlib.h>

static void write_figures(const struct figures *f, FILE *out)
{
        char text[NUMBER_TEXT];
        fputs("| figure | |\n|---|---:|\n", out);
        for (int i = 0; i < figure_count; i++) {
                const struct figure_row *row = &figure_rows[i];
                const double value = figures_value(row, f);
                if (row->label && value != 0)
                        fprintf(out, "| %s | %s |\n", row->label, figures_text(row, value, text));
        }
}

static void write_memory(const struct report *r, const struct figures *f, FILE *out)
{
        static const char *const spaces[MEMORY_SPACES] = {[MEMORY_DEVICE] = "device", [MEMORY_HOST] = "host"};
        char text[NUMBER_TEXT];
        fprintf(out, "\n| memory of rank %d | |\n|---|---:|\n", (int)f->largest_rank);
        for (int space = 0; space < MEMORY_SPACES; space++)
                for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                        const int64_t bytes = r->rank_bytes[f->largest_rank].in[space][c];
                        if (bytes)
                                fprintf(out, "| %s, %s | %s |\n",
                                        memory_category_name((enum memory_category)c), spaces[space],
                                        number_bytes(text, (double)bytes));
                }
}

/* Members in the order of the flags. */
static void write_plan(const struct report *r, FILE *out)
{
        json_t *plan = report_plan_json(r->options);
        const char *key;
        json_t *value;
        fputs("\n| plan | |\n|---|---:|\n", out);
        json_object_foreach(plan, key, value)
        {
                char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
                const bool quoted = json_is_string(value);
                if (text)
                        fprintf(out, "| %s | %s |\n", key, quoted ? json_string_value(value) : text);
                free(text);
        }
        json_decref(plan);
}

int report_markdown(const struct report *r, const char *path, struct rv_error_info *err)
{
        const struct options *o = r->options;
        struct figures figures;
        struct file_writer writer;
        char grid[GRID_TEXT];
        if (report_figures(r, &figures, err) || file_writer_open(&writer, path, err))
                return err->code;
        fprintf(writer.stream, "# %s on %d rank%s (%s), %s\n\n", o->gpt.name, r->ranks, rv_plural(r->ranks),
                options_grid(grid, o, "", " x "), r->world);
        if (r->command)
                fprintf(writer.stream, "    %s\n\n", r->command);
        for (size_t i = 0; i < json_array_size(r->remarks); i++)
                fprintf(writer.stream, "> %s\n\n", json_string_value(json_array_get(r->remarks, i)));
        write_figures(&figures, writer.stream);
        write_memory(r, &figures, writer.stream);
        write_plan(r, writer.stream);
        return file_writer_commit(&writer, err);
}
