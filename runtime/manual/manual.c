#include "runtime/manual/manual.h"

#include "runtime/base/child.h"
#include "runtime/base/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DESCRIPTION = 1 << 20 };

const char *manual_text(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

void manual_each_option(const json_t *command, void (*each)(void *context, const json_t *option),
                        void *context)
{
        size_t i, j;
        json_t *group, *option;
        json_array_foreach(json_object_get(command, "groups"), i, group)
        {
                json_array_foreach(json_object_get(group, "options"), j, option)
                {
                        each(context, option);
                }
        }
}

/* ---- asking ---- */

static int describe(void *context, int to)
{
        char *const *words = context;
        dup2(to, STDOUT_FILENO);
        execv(words[0], words);
        return 127;
}

/* What `ranvier --describe` says, or, with a command, what that does. NULL with a sentence. */
static json_t *ask(const char *ranvier, const char *command, struct rv_error_info *err)
{
        const char *words[] = {ranvier, command ? command : "--describe", command ? "--describe" : NULL,
                               NULL};
        struct child child;
        int status;
        char *text = malloc(DESCRIPTION), end[64];
        json_t *json = NULL;
        if (!text)
                rv_fail(err, RV_ESYSTEM, "no memory for a description");
        else if (child_start(&child, describe, words, "for a description", err) == RV_OK) {
                const size_t length = child_answer(&child, text, DESCRIPTION, &status);
                json = status ? NULL : json_loadb(text, length, JSON_DISABLE_EOF_CHECK, NULL);
                if (!json)
                        rv_fail(err, RV_ESYSTEM, "%s %s --describe %s, without a description", ranvier,
                                command ? command : "", child_end(status, end, sizeof end));
        }
        free(text);
        return json;
}

static json_t *ask_all(const char *ranvier, struct rv_error_info *err)
{
        json_t *all = ask(ranvier, NULL, err), *command;
        size_t i;
        json_array_foreach(json_object_get(all, "commands"), i, command)
        {
                json_t *own = ask(ranvier, manual_text(command, "name"), err);
                if (!own) {
                        json_decref(all);
                        return NULL;
                }
                json_object_update(command, own);
                json_decref(own);
        }
        return all;
}

/* ---- writing ---- */

/* Makes the folders of a path. */
static void make_folders(char *path)
{
        for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = 0;
                mkdir(path, 0777); /* what is wrong with it, opening the file says */
                *slash = '/';
        }
}

static int open_output(struct file_writer *writer, const char *folder, const char *name, const char *command,
                       struct rv_error_info *err)
{
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s%s%s%s", folder, name, command ? "-" : "", command ? command : "",
                 strstr(name, "man1") ? ".1" : "");
        make_folders(path);
        return file_writer_open(writer, path, err);
}

static int write_all(const json_t *all, const char *folder, struct rv_error_info *err)
{
        static void (*const others[])(FILE *, const json_t *) = {manual_bash, manual_zsh, manual_markdown};
        static const char *const names[] = {"bash-completion/completions/ranvier",
                                            "zsh/site-functions/_ranvier", "reference.md"};
        const json_t *commands = json_object_get(all, "commands");
        struct file_writer writer;
        int rc = RV_OK;
        for (size_t i = 0; rc == RV_OK && i <= json_array_size(commands); i++) {
                const json_t *command = i ? json_array_get(commands, i - 1) : NULL;
                rc = open_output(&writer, folder, "man/man1/ranvier",
                                 command ? manual_text(command, "name") : NULL, err);
                if (rc == RV_OK) {
                        manual_page(writer.stream, all, command);
                        rc = file_writer_commit(&writer, err);
                }
        }
        for (size_t i = 0; rc == RV_OK && i < sizeof names / sizeof *names; i++) {
                rc = open_output(&writer, folder, names[i], NULL, err);
                if (rc == RV_OK) {
                        others[i](writer.stream, all);
                        rc = file_writer_commit(&writer, err);
                }
        }
        return rc;
}

int main(int argc, char **argv)
{
        struct rv_error_info err = {.code = RV_OK};
        if (argc != 3) {
                fprintf(stderr, "manual: the path of ranvier and a folder to write to were expected\n");
                return 2;
        }
        json_t *all = ask_all(argv[1], &err);
        const int rc = all ? write_all(all, argv[2], &err) : (int)err.code;
        json_decref(all);
        if (rc)
                fprintf(stderr, "manual: %s\n", err.sentence);
        return rc ? rv_exit_status(&err) : 0;
}
