#include "plots/figure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_NOT_FOUND = 127 };

/* "png" or "svg", or NULL with a sentence. */
static const char *choose_format(const char *out, struct rv_error_info *err)
{
        const char *suffix = strrchr(out, '.');
        if (suffix && strcmp(suffix, ".png") == 0)
                return "png";
        if (suffix && strcmp(suffix, ".svg") == 0)
                return "svg";
        rv_fail(err, RV_EINPUT, "%s: a figure's name ends in .png or .svg", out);
        return NULL;
}

int figure_check(const char *out, struct rv_error_info *err)
{
        return choose_format(out, err) ? RV_OK : RV_EINPUT;
}

int figure_open(struct figure *figure, const char *name, const char *out, struct rv_error_info *err)
{
        *figure = (struct figure){0};
        const char *format = choose_format(out, err);
        if (!format)
                return RV_EINPUT;
        if (file_find(figure->script, sizeof figure->script, "plots", name, ".gp"))
                return rv_fail(err, RV_ESYSTEM,
                               "the script plots/%s.gp is not beside this program; is it installed?", name);
        int rc = file_writer_open(&figure->image, out, err);
        if (rc)
                return rc;
        const char *folder_for_data = getenv("TMPDIR");
        snprintf(figure->data_path, sizeof figure->data_path, "%s/ranvier-plot-XXXXXX",
                 folder_for_data && *folder_for_data ? folder_for_data : "/tmp");
        int descriptor = mkstemp(figure->data_path);
        figure->data = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
        figure->settings_stream = open_memstream(&figure->settings, &figure->settings_size);
        if (!figure->data || !figure->settings_stream) {
                rc = rv_fail(err, RV_ESYSTEM, "%s: no temporary file for a figure's data: %s",
                             figure->data_path, strerror(errno));
                figure_abandon(figure);
                return rc;
        }
        char folder[1024];
        snprintf(folder, sizeof folder, "%s", figure->script);
        *strrchr(folder, '/') = 0;
        figure_text(figure, "folder", folder);
        figure_text(figure, "format", format);
        figure_text(figure, "data", figure->data_path);
        figure_text(figure, "out", figure->image.temporary[0] ? figure->image.temporary : out);
        return 0;
}

/* In gnuplot's single quotes only a quote is special, and is written twice. */
void figure_text(struct figure *figure, const char *variable, const char *value)
{
        fprintf(figure->settings_stream, "%s='", variable);
        for (; *value; value++) {
                if (*value == '\'')
                        fputc('\'', figure->settings_stream);
                fputc(*value == '\n' ? ' ' : *value, figure->settings_stream);
        }
        fputs("';", figure->settings_stream);
}

void figure_number(struct figure *figure, const char *variable, double value)
{
        fprintf(figure->settings_stream, "%s=%.17g;", variable, value);
}

double figure_tokens_unit(struct figure *figure, double most)
{
        double unit = most >= 2e6 ? 1e6 : most >= 2e3 ? 1e3 : 1;
        figure_text(figure, "unit",
                    unit == 1e6   ? "million tokens a second"
                    : unit == 1e3 ? "thousand tokens a second"
                                  : "tokens a second");
        return unit;
}

double figure_bytes_unit(struct figure *figure, int64_t most)
{
        bool gibibytes = most >= INT64_C(1) << 30;
        figure_text(figure, "unit", gibibytes ? "GiB" : "MiB");
        return gibibytes ? 1073741824.0 : 1048576.0;
}

void figure_abandon(struct figure *figure)
{
        if (figure->data)
                fclose(figure->data);
        if (figure->settings_stream)
                fclose(figure->settings_stream);
        if (figure->data_path[0])
                unlink(figure->data_path);
        free(figure->settings);
        file_writer_abandon(&figure->image);
        *figure = (struct figure){0};
}

/* Gnuplot's exit status, 127 if it is not there. Its complaints go to stderr as they are. */
static int run_gnuplot(const struct figure *figure)
{
        pid_t child = fork();
        if (child == 0) {
                setenv("LC_ALL", "C.UTF-8", 1); /* points, not commas; and the scripts are UTF-8 */
                char *const arguments[] = {"gnuplot", "-d", "-e", figure->settings, (char *)figure->script,
                                           NULL};
                execvp(arguments[0], arguments);
                _exit(STATUS_NOT_FOUND);
        }
        int status;
        while (child > 0 && waitpid(child, &status, 0) < 0)
                if (errno != EINTR)
                        return -1;
        return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int close_inputs(struct figure *figure, struct rv_error_info *err)
{
        bool failed = ferror(figure->data) != 0;
        failed |= fclose(figure->data) != 0;
        failed |= fclose(figure->settings_stream) != 0;
        figure->data = figure->settings_stream = NULL;
        if (failed)
                return rv_fail(err, RV_ESYSTEM, "%s: a figure's data could not be written: %s",
                               figure->data_path, strerror(errno));
        return 0;
}

int figure_draw(struct figure *figure, struct rv_error_info *err)
{
        struct stat info;
        int rc = close_inputs(figure, err);
        if (rc)
                goto out;
        fflush(NULL);
        int status = run_gnuplot(figure);
        if (status == STATUS_NOT_FOUND)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot was not found; figures need it (Debian: gnuplot-nox)");
        else if (status != 0)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot failed on %s for %s", figure->script,
                             figure->image.final);
        else if (fstat(fileno(figure->image.stream), &info) == 0 && S_ISREG(info.st_mode) &&
                 info.st_size == 0)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot drew nothing with %s", figure->script);
        else
                rc = file_writer_commit(&figure->image, err);
out:
        figure_abandon(figure);
        return rc;
}
