/* Draws one figure with gnuplot: the data go to a temporary file without a name, the settings to variables,
 * and the gnuplot script of the figure's name makes an image of them, which appears whole or not at all.
 *
 * Each figure's C file calls figure_open, writes columns to figure.data, sets the variables that its script
 * reads, and ends with figure_draw, or with figure_abandon if something went wrong in between. gnuplot must
 * be installed; the scripts are found by file_find. */
#ifndef RANVIER_PLOTS_FIGURE_H
#define RANVIER_PLOTS_FIGURE_H

#include "runtime/base/file.h"

#include <stdbool.h>

struct figure {
        /* The caller writes the data of the script here. */
        FILE *data;
        /* The paths of the image and of the script. */
        char out[1024], script[1024];
        /* gnuplot assignments that run before the script, and the stream that they are written to. */
        char *settings;
        size_t settings_size;
        FILE *settings_stream;
};

/* Returns 0 if `out` is a name for a figure (ends in .png or .svg), else RV_EINPUT; to know it before the
 * work. */
int figure_check(const char *out, struct rv_error_info *err);

/* Begins the figure of the script plots/<name>.gp, which will be written to `out`. Sets the variables folder
 * (of the scripts), format ("png" or "svg") and data. RV_EINPUT is about `out`; RV_ESYSTEM means that the
 * script is not there, or that there is no temporary file or memory. After an error there is nothing to
 * abandon. */
int figure_open(struct figure *figure, const char *name, const char *out, struct rv_error_info *err);

/* Set a variable of the script to a text, which is quoted so that gnuplot shows it as it is, or to a
 * number. */
void figure_text(struct figure *figure, const char *variable, const char *value);
void figure_number(struct figure *figure, const char *variable, double value);

/* Chooses the unit for an axis of tokens a second that goes up to `max`. Returns by what figures must be
 * divided (1, 1e3 or 1e6), and sets the variable unit to its name. */
double figure_tokens_unit(struct figure *figure, double max);

/* The same for bytes: MiB, or GiB if `max` is a GiB or more. */
double figure_bytes_unit(struct figure *figure, int64_t max);

/* The same for seconds: us, ms or s; and the name of the unit that was returned. */
double figure_seconds_unit(struct figure *figure, double max);
const char *figure_seconds_name(double unit);

/* Runs gnuplot and puts the image in its place. Frees everything, after an error too. RV_ESYSTEM says that
 * gnuplot is not installed or failed, or that the data could not be written; writing the image has the errors
 * of file_writer_commit. */
int figure_draw(struct figure *figure, struct rv_error_info *err);

/* Frees everything instead of figure_draw; no file is left. */
void figure_abandon(struct figure *figure);

#endif
