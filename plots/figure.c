#include "plots/figure.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
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
        int rc = file_check_writable(out, err);
        if (rc)
                return rc;
        snprintf(figure->out, sizeof figure->out, "%s", out);
        char path[1024];
        figure->data = file_open_temporary(path, sizeof path, err);
        if (!figure->data)
                return RV_ESYSTEM;
        unlink(path);
        figure->settings_stream = open_memstream(&figure->settings, &figure->settings_size);
        if (!figure->settings_stream) {
                rc = rv_fail(err, RV_ESYSTEM, "out of memory for a figure's settings");
                figure_abandon(figure);
                return rc;
        }
        char folder[1024];
        snprintf(folder, sizeof folder, "%s", figure->script);
        *strrchr(folder, '/') = 0;
        snprintf(path, sizeof path, "/dev/fd/%d", fileno(figure->data));
        figure_text(figure, "folder", folder);
        figure_text(figure, "format", format);
        figure_text(figure, "data", path);
        return 0;
}

/* Between double quotes, for in single quotes a quote cannot be the first character. What may be special to
 * gnuplot, such as a backquote, is written as an octal number, and so is a digit behind one, which would be
 * read as its last. Control characters become blanks. */
void figure_text(struct figure *figure, const char *variable, const char *value)
{
        bool number = false;
        fprintf(figure->settings_stream, "%s=\"", variable);
        for (; *value; value++) {
                const int c = iscntrl((unsigned char)*value) ? ' ' : (unsigned char)*value;
                const bool digit = c >= '0' && c <= '9', letter = (c | 32) >= 'a' && (c | 32) <= 'z';
                number = !(c >= 0x80 || letter || (digit && !number) || c == ' ' || c == '/' || c == '.');
                fprintf(figure->settings_stream, number ? "\\%o" : "%c", (unsigned)c);
        }
        fputs("\";", figure->settings_stream);
}

void figure_number(struct figure *figure, const char *variable, double value)
{
        fprintf(figure->settings_stream, "%s=%.17g;", variable, value);
}

double figure_tokens_unit(struct figure *figure, double max)
{
        double unit = max >= 2e6 ? 1e6 : max >= 2e3 ? 1e3 : 1;
        figure_text(figure, "unit",
                    unit == 1e6   ? "million tokens a second"
                    : unit == 1e3 ? "thousand tokens a second"
                                  : "tokens a second");
        return unit;
}

double figure_bytes_unit(struct figure *figure, int64_t max)
{
        bool gibibytes = max >= INT64_C(1) << 30;
        figure_text(figure, "unit", gibibytes ? "GiB" : "MiB");
        return gibibytes ? 1073741824.0 : 1048576.0;
}

double figure_seconds_unit(struct figure *figure, double max)
{
        double unit = max >= 1 ? 1 : max >= 1e-3 ? 1e-3 : 1e-6;
        figure_text(figure, "unit", figure_seconds_name(unit));
        return unit;
}

const char *figure_seconds_name(double unit)
{
        return unit == 1 ? "s" : unit == 1e-3 ? "ms" : "us";
}

void figure_abandon(struct figure *figure)
{
        if (figure->data)
                fclose(figure->data);
        if (figure->settings_stream)
                fclose(figure->settings_stream);
        free(figure->settings);
        *figure = (struct figure){0};
}

/* Starts gnuplot, whose standard output is `descriptor`. Its complaints go to stderr as they are. */
static pid_t start_gnuplot(const struct figure *figure, int descriptor)
{
        pid_t child = fork();
        if (child != 0)
                return child;
        setenv("LC_ALL", "C.UTF-8", 1); /* points, not commas; and the scripts are UTF-8 */
        char *const arguments[] = {"gnuplot", "-d", "-e", figure->settings, (char *)figure->script, NULL};
        if (dup2(descriptor, STDOUT_FILENO) >= 0)
                execvp(arguments[0], arguments);
        _exit(STATUS_NOT_FOUND);
}

/* All that gnuplot draws, in memory that the caller frees: gnuplot itself would not tell that a disk is full.
 * `status`: how it ended, -1 if it could not be started; 127 if there is none. */
static char *draw_image(const struct figure *figure, size_t *size, int *status)
{
        char *image = NULL, part[16384];
        int ends[2];
        ssize_t got;
        *size = 0;
        *status = -1;
        FILE *stream = open_memstream(&image, size);
        if (!stream)
                return NULL;
        if (pipe(ends) == 0) {
                fcntl(ends[0], F_SETFD, FD_CLOEXEC); /* that gnuplot ends if nobody reads any more */
                pid_t child = start_gnuplot(figure, ends[1]);
                close(ends[1]);
                while ((got = read(ends[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR))
                        if (got > 0)
                                fwrite(part, 1, (size_t)got, stream);
                close(ends[0]);
                int how = 0;
                while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
                        ;
                *status = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : -1;
        }
        if (ferror(stream))
                *status = -1;
        if (fclose(stream) != 0)
                *status = -1;
        return image;
}

static int close_inputs(struct figure *figure, struct rv_error_info *err)
{
        errno = 0;
        bool failed = ferror(figure->data) != 0;
        failed |= fflush(figure->data) != 0; /* it stays open: it has no other name than its number */
        int reason = errno;
        failed |= fclose(figure->settings_stream) != 0;
        figure->settings_stream = NULL;
        if (failed)
                return rv_fail(err, RV_ESYSTEM,
                               "%s: the figure's data could not be written to a temporary file: %s",
                               figure->out, reason ? strerror(reason) : "an earlier write failed");
        return 0;
}

static int write_image(const struct figure *figure, const char *image, size_t size, struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, figure->out, err);
        if (rc)
                return rc;
        errno = 0;
        if (fwrite(image, 1, size, writer.stream) != size)
                writer.reason = errno;
        return file_writer_commit(&writer, err);
}

int figure_draw(struct figure *figure, struct rv_error_info *err)
{
        char *image = NULL;
        size_t size;
        int rc = close_inputs(figure, err), status;
        if (rc)
                goto out;
        fflush(NULL);
        image = draw_image(figure, &size, &status);
        if (status == STATUS_NOT_FOUND)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot was not found; figures need it (Debian: gnuplot-nox)");
        else if (status != 0)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot failed on %s for %s", figure->script, figure->out);
        else if (size == 0)
                rc = rv_fail(err, RV_ESYSTEM, "gnuplot drew nothing with %s", figure->script);
        else
                rc = write_image(figure, image, size, err);
out:
        free(image);
        figure_abandon(figure);
        return rc;
}
