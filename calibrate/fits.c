#include "calibrate/fits.h"

#include "runtime/base/number.h"

#include <stdarg.h>
#include <string.h>

enum { TEXT = 160 };

/* Adds to `text`, after a comma if it is not the first. */
__attribute__((format(printf, 2, 3))) static void add(char text[TEXT], const char *format, ...)
{
        va_list list;
        size_t length = strlen(text);
        snprintf(text + length, TEXT - length, "%s", length ? ", " : "");
        length = strlen(text);
        va_start(list, format);
        vsnprintf(text + length, TEXT - length, format, list);
        va_end(list);
}

static void add_half(char text[TEXT], const char *dimension, double size)
{
        if (size > 0)
                add(text, "half of it at %s = %.3g", dimension, size);
}

/* What the fit found, in a reader's units. */
static void describe(const struct kernel_model *model, char text[TEXT])
{
        char number[NUMBER_TEXT];
        text[0] = 0;
        if (model->flops_per_second > 0)
                add(text, "%.4g Gflop/s", 1e-9 * model->flops_per_second);
        add_half(text, "m", model->half_m);
        add_half(text, "n", model->half_n);
        add_half(text, "k", model->half_k);
        if (model->processors > 0)
                add(text, "tiles %.0f x %.0f", model->tile_m, model->tile_n);
        if (model->bytes_per_second > 0)
                add(text, "%.3g GB/s%s", 1e-9 * model->bytes_per_second, model->exposed > 0 ? " on top" : "");
        if (model->cache_bytes > 0)
                add(text, "%.3g GB/s of %s", 1e-9 * model->cache_bytes_per_second,
                    number_bytes(number, model->cache_bytes));
        if (model->overhead_seconds > 0)
                add(text, "%s", number_seconds(number, model->overhead_seconds));
}

static void print_row(const char *name, const struct fit_quality *quality, const char *model, FILE *stream)
{
        fprintf(stream, "  %-35s %6d %7.1f %% %5.1f %%", name, quality->points, 100 * quality->median_error,
                100 * quality->worst_error);
        if (quality->points > 1)
                fprintf(stream, " %7.1f %% %5.1f %%", 100 * quality->left_out_median_error,
                        100 * quality->left_out_worst_error);
        else
                fprintf(stream, " %9s %7s", "-", "-");
        fprintf(stream, "  %s\n", model);
}

static void print_line(const char *name, const struct line_fit *fit, FILE *stream)
{
        char text[TEXT] = "", number[NUMBER_TEXT];
        if (!fit->present)
                return;
        if (fit->latency_seconds > 0)
                add(text, "%s", number_seconds(number, fit->latency_seconds));
        if (fit->seconds_per_byte > 0)
                add(text, "%.2f GB/s", 1e-9 / fit->seconds_per_byte);
        print_row(name, &fit->quality, text, stream);
}

void fits_print(const struct profile_load *load, FILE *stream)
{
        fprintf(stream, "  %-35s %6s %17s %17s\n", "", "", "residuals", "leave-one-out");
        fprintf(stream, "  %-35s %6s %9s %7s %9s %7s  %s\n", "fit", "points", "median", "worst", "median",
                "worst", "what was found");
        for (int format = 0; format < PROFILE_FORMATS; format++)
                for (int kind = 0; kind < KERNEL_KINDS; kind++) {
                        const struct kernel_model *model = &load->models[format][kind];
                        char name[PROFILE_NAME], text[TEXT];
                        if (!model->present)
                                continue;
                        profile_kernel_name(name, (enum kernel_kind)kind, format);
                        describe(model, text);
                        print_row(name, &model->quality, text, stream);
                }
        for (int line = 0; line < PROFILE_LINES; line++)
                print_line(profile_line_name((enum profile_line)line), &load->lines[line].fit, stream);
}
