#include "plots/figure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STATUS_NOT_FOUND = 127 };

static int choose_terminal(struct figure *figure, const char *out, struct rv_error_info *err)
{
        const char *suffix = strrchr(out, '.');
        if (suffix && strcmp(suffix, ".png") == 0)
                figure->terminal = "png";
        else if (suffix && strcmp(suffix, ".svg") == 0)
                figure->terminal = "svg";
        else
                return rv_fail(err, RV_EINPUT, "%s: a figure's name ends in .png or .svg", out);
        return 0;
}

int figure_open(struct figure *figure, const char *name, const char *out, struct rv_error_info *err)
{
        *figure = (struct figure){0};
        int rc = choose_terminal(figure, out, err);
        if (rc)
                return rc;
        if (file_find(figure->script, sizeof figure->script, "plots", name, ".gp"))
                return rv_fail(err, RV_ESYSTEM,
                               "the script plots/%s.gp is not beside this program; is it installed?", name);
        rc = file_writer_open(&figure->image, out, err);
        if (rc)
                return rc;
        strcpy(figure->data_path, "/tmp/ranvier-plot-XXXXXX");
        int descriptor = mkstemp(figure->data_path);
        figure->data = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
        figure->settings_stream = open_memstream(&figure->settings, &figure->settings_size);
        if (!figure->data || !figure->settings_stream) {
                rc = rv_fail(err, RV_ESYSTEM, "no temporary file for a figure's data: %s", strerror(errno));
                figure_abandon(figure);
                return rc;
        }
        char folder[1024];
        snprintf(folder, sizeof folder, "%s", figure->script);
        *strrchr(folder, '/') = 0;
        figure_text(figure, "folder", folder);
        figure_text(figure, "format", figure->terminal);
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

void figure_abandon(struct figure *figure)
{
        if (figure->data)
                fclose(figure->data);
        if (figure->settings_stream)
                fclose(figure->settings_stream);
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
