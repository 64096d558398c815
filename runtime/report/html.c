#include "runtime/report/html.h"

#include "runtime/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int html_check(const char *path, struct rv_error_info *err)
{
        const char *dot = path ? strrchr(path, '.') : NULL;
        return !path || (dot && strcmp(dot, ".html") == 0)
                       ? 0
                       : rv_fail(err, RV_EINPUT, "--html %s: a name that ends in .html was expected", path);
}

int html_begin(struct html *h, const char *path, struct rv_error_info *err)
{
        *h = (struct html){.path = path};
        const int rc = path ? file_make_temporary_folder(h->folder, sizeof h->folder, err) : 0;
        if (rc)
                h->path = NULL;
        return rc;
}

const char *html_file(struct html *h, const char *name)
{
        if (!h->path || h->count == HTML_FILES)
                return NULL;
        snprintf(h->files[h->count], sizeof h->files[0], "%s/%.60s", h->folder, name);
        return h->files[h->count++];
}

void html_add(struct html *h, const char *path)
{
        if (h->path && h->count < HTML_FILES)
                snprintf(h->files[h->count++], sizeof h->files[0], "%s", path);
}

/* Runs a program beside this one, its output thrown away. Returns its status, or -1 if it did not end by
 * itself. */
static int run(const char *program, char *const *arguments)
{
        posix_spawn_file_actions_t actions;
        pid_t child;
        int status = 0;
        fflush(NULL);
        if (posix_spawn_file_actions_init(&actions))
                return -1;
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        const int failed = posix_spawn(&child, program, &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
        if (failed)
                return -1;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
                ;
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int beside(const char *name, char *path, size_t size, struct rv_error_info *err)
{
        char folder[1024];
        if (file_program_folder(folder, sizeof folder))
                return rv_fail(err, RV_ESYSTEM, "the folder of this program cannot be told");
        snprintf(path, size, "%s/%s", folder, name);
        return 0;
}

int html_simulate(struct html *h, const char *line, const char *name, bool traced, struct rv_error_info *err)
{
        static const char first[] = "ranvier ";
        char shell[] = "sh", command[] = "-c", program[1088], *text = NULL;
        const char *report = html_file(h, name),
                   *trace = report && traced ? html_file(h, "timeline.json") : NULL;
        size_t size;
        if (!report)
                return 0;
        if (strncmp(line, first, strlen(first)) != 0 || beside("ranvier-sim", program, sizeof program, err))
                return rv_fail(err, RV_ESYSTEM, "--html: no line of ranvier: %s", line);
        FILE *stream = open_memstream(&text, &size);
        if (stream) {
                fprintf(stream, "exec \"$0\" %s --report \"$1\"%s", line + strlen(first),
                        trace ? " --trace \"$2\"" : "");
                fclose(stream);
        }
        char *const arguments[] = {shell, command, text, program, (char *)report, (char *)trace, NULL};
        const int status = text ? run("/bin/sh", arguments) : -1;
        free(text);
        return status == 0 ? 0 : rv_fail(err, RV_ESYSTEM, "--html: this command failed: %s", line);
}

static int make_page(const struct html *h, const char *command, struct rv_error_info *err)
{
        char program[1088], verb[] = "report", option[] = "--command", plot[] = "ranvier-plot";
        char *arguments[HTML_FILES + 6] = {plot, verb, option, (char *)command, (char *)h->path};
        if (beside(plot, program, sizeof program, err))
                return RV_ESYSTEM;
        for (int i = 0; i < h->count; i++)
                arguments[5 + i] = (char *)h->files[i];
        return run(program, arguments) == 0
                       ? 0
                       : rv_fail(err, RV_ESYSTEM, "%s: the page could not be made", h->path);
}

int html_end(struct html *h, const char *command, int rc, struct rv_error_info *err)
{
        if (!h->path)
                return rc;
        if (rc == 0)
                rc = make_page(h, command, err);
        for (int i = 0; i < h->count; i++)
                if (strncmp(h->files[i], h->folder, strlen(h->folder)) == 0)
                        unlink(h->files[i]);
        rmdir(h->folder);
        h->path = NULL;
        return rc;
}

int html_table(const char *path, const char *command, const char *name, csv_write *write, const void *context,
               struct rv_error_info *err)
{
        struct html page;
        int rc = html_begin(&page, path, err);
        const char *part = rc == 0 ? html_file(&page, name) : NULL;
        if (part)
                rc = write(context, part, err);
        return html_end(&page, command, rc, err);
}
