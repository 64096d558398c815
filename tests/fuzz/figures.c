/* Reports and tables, as compare, plot and report read them. Figures are not drawn: all that gnuplot would be
 * given is made. The linker puts the two functions at the end in the place of those of their names. */
#include "tests/fuzz/fuzz.h"

#include "plots/compare.h"
#include "plots/figure.h"
#include "plots/figures.h"
#include "plots/html/page.h"
#include "plots/html/report.h"

#include <unistd.h>

/* Two parts: a report that predicts, and one that measures; one part is both. */
void fuzz_report(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        const struct fuzz_bytes first = fuzz_part(&bytes);
        const char *predicted = fuzz_file("predicted.json", first), *out = fuzz_path("out.svg");
        const char *measured = bytes.size ? fuzz_file("measured.json", bytes) : predicted;
        char *paths[] = {(char *)(uintptr_t)predicted, (char *)(uintptr_t)measured};
        struct run *runs = runs_read(paths, 2, &err);
        if (!runs) {
                fuzz_check((int)err.code, &err);
                return;
        }
        struct compare_summary summary;
        if (runs_check_pair(&runs[0], &runs[1], &err) == RV_OK &&
            compare_summarize(runs, 2, &summary, &err) == RV_OK) {
                compare_print_pair(&runs[0], &runs[1], fuzz_nowhere());
                compare_print_all(runs, 2, &summary, fuzz_nowhere());
                fuzz_check(compare_write_csv(runs, 2, fuzz_path("out.csv"), &err), &err);
                fuzz_check(figures_predicted_measured(out, runs, 2, &err), &err);
        }
        fuzz_check(figures_throughput(out, runs, 2, &err), &err);
        fuzz_check(figures_memory(out, runs, 2, &err), &err);
        fuzz_check(figures_phases(out, runs, 2, &err), &err);
        runs_free(runs, 2);
}

void fuzz_sweep(struct fuzz_bytes bytes)
{
        const char *path = fuzz_file("sweep.csv", bytes), *out = fuzz_path("out.svg");
        struct rv_error_info err = {0};
        fuzz_check(figures_sweep_throughput(out, path, &err), &err);
        fuzz_check(figures_sweep_memory(out, path, &err), &err);
}

void fuzz_validation(struct fuzz_bytes bytes)
{
        const char *path = fuzz_file("validation.csv", bytes);
        struct rv_error_info err = {0};
        fuzz_check(figures_validation(fuzz_path("out.svg"), path, &err), &err);
}

/* Two parts: a log of losses, and the report of its training. */
void fuzz_loss(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        const struct fuzz_bytes log = fuzz_part(&bytes);
        char *paths[] = {(char *)(uintptr_t)fuzz_file("loss.csv", log),
                         (char *)(uintptr_t)fuzz_file("report.json", bytes)};
        fuzz_check(figures_loss(fuzz_path("out.svg"), paths, bytes.size ? 2 : 1, &err), &err);
}

/* A page of one file, whatever it is. */
void fuzz_page(struct fuzz_bytes bytes)
{
        struct rv_error_info err = {0};
        char *files[] = {(char *)(uintptr_t)fuzz_file("file", bytes)};
        fuzz_check(html_report(fuzz_path("out.html"), NULL, files, 1, NULL, &err), &err);
}

/* ---- instead of gnuplot ---- */

int __wrap_figure_draw(struct figure *figure, struct rv_error_info *err);
int __wrap_page_figure(struct page *p, const char *caption, bool zoom, page_draw *figure, const void *context,
                       struct rv_error_info *err);

int __wrap_figure_draw(struct figure *figure, struct rv_error_info *err)
{
        (void)err;
        figure_abandon(figure);
        return RV_OK;
}

int __wrap_page_figure(struct page *p, const char *caption, bool zoom, page_draw *figure, const void *context,
                       struct rv_error_info *err)
{
        (void)p, (void)caption, (void)zoom;
        return figure(fuzz_path("out.svg"), context, err);
}
