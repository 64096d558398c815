/* One figure: data in a temporary file without a name, a gnuplot script beside this program, an image that
 * appears whole or not at all. */
#ifndef RANVIER_PLOTS_FIGURE_H
#define RANVIER_PLOTS_FIGURE_H

#include "runtime/base/file.h"

#include <stdbool.h>

struct figure {
        FILE *data; /* write the script's data here */
        char out[1024], script[1024];
        char *settings; /* gnuplot assignments for the script */
        size_t settings_size;
        FILE *settings_stream;
};

/* Whether `out` is a name for a figure: to know before the work. */
int figure_check(const char *out, struct rv_error_info *err);

/* Begins figure `name` (plots/`name`.gp) that will be written to `out`, whose suffix says .png or .svg. */
int figure_open(struct figure *figure, const char *name, const char *out, struct rv_error_info *err);

/* Sets variables of the script. */
void figure_text(struct figure *figure, const char *variable, const char *value);
void figure_number(struct figure *figure, const char *variable, double value);

/* In what tokens a second are drawn if there are `most`: returns 1, 1e3 or 1e6, and sets the variable unit to
 * its name. */
double figure_tokens_unit(struct figure *figure, double max);

/* In what bytes are drawn if there are `most`: MiB or GiB; sets unit likewise. */
double figure_bytes_unit(struct figure *figure, int64_t max);

/* Runs gnuplot, puts the image in its place, and frees everything. */
int figure_draw(struct figure *figure, struct rv_error_info *err);

/* Instead of figure_draw: nothing is left. */
void figure_abandon(struct figure *figure);

#endif
