#include "runtime/real/hosts.h"

#include "runtime/base/file.h"
#include "runtime/base/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SLOTS = 1000000 };

static int append(struct hosts *hosts, const char *name, size_t length, int slots, struct rv_error_info *err)
{
        for (int i = 0; i < hosts->count; i++)
                if (strlen(hosts->list[i].name) == length && memcmp(hosts->list[i].name, name, length) == 0) {
                        const int all = hosts->list[i].slots + slots;
                        hosts->list[i].slots = all < MAX_SLOTS ? all : MAX_SLOTS;
                        return RV_OK;
                }
        struct host *list = realloc(hosts->list, ((size_t)hosts->count + 1) * sizeof *list);
        if (list)
                hosts->list = list;
        char *copy = list ? strndup(name, length) : NULL;
        if (!copy)
                return rv_fail(err, RV_ESYSTEM, "no memory for the names of hosts");
        hosts->list[hosts->count++] = (struct host){.name = copy, .slots = slots};
        return RV_OK;
}

/* "a" or "a:4", up to a comma or the end. */
static int parse_one(struct hosts *hosts, const char *option, const char *text, size_t length,
                     struct rv_error_info *err)
{
        char number[16] = "1";
        int slots = 0;
        const char *colon = memchr(text, ':', length);
        const size_t name = colon ? (size_t)(colon - text) : length;
        if (colon)
                snprintf(number, sizeof number, "%.*s", (int)(length - name - 1), colon + 1);
        if (name == 0 || memchr(text, ' ', length) || (colon && length - name > sizeof number) ||
            parse_count(option, number, 1, MAX_SLOTS, &slots, NULL) != 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: '%.*s' is not HOST or HOST:RANKS; a list such as a:4,b:4 was expected",
                               option, length < 64 ? (int)length : 64, text);
        return append(hosts, text, name, slots, err);
}

int hosts_parse(struct hosts *hosts, const char *option, const char *list, struct rv_error_info *err)
{
        int rc = RV_OK;
        for (const char *at = list; rc == RV_OK && at; at = strchr(at, ',')) {
                at += at != list; /* behind the comma */
                rc = parse_one(hosts, option, at, strcspn(at, ","), err);
        }
        return rc;
}

/* One line of a hostfile. */
static int parse_line(struct hosts *hosts, const char *option, const struct file_lines *lines,
                      struct rv_error_info *err)
{
        const char *at = lines->line + strspn(lines->line, " \t");
        const size_t name = strcspn(at, " \t#");
        int slots = 1;
        if (name == 0)
                return RV_OK;
        for (const char *word = at + name; *(word += strspn(word, " \t")) && *word != '#';
             word += strcspn(word, " \t")) {
                char number[16];
                if (strncmp(word, "slots=", 6) != 0)
                        continue;
                snprintf(number, sizeof number, "%.*s", (int)strcspn(word + 6, " \t#"), word + 6);
                if (parse_count(option, number, 1, MAX_SLOTS, &slots, NULL) != 0)
                        return rv_fail(err, RV_EINPUT,
                                       "%s %s:%lld: '%.64s' is no number of slots: slots=4 was expected",
                                       option, lines->path, (long long)lines->number, number);
        }
        return append(hosts, at, name, slots, err);
}

int hosts_read(struct hosts *hosts, const char *option, const char *path, struct rv_error_info *err)
{
        struct file_lines lines = {.path = path, .stream = fopen(path, "r")};
        int rc = lines.stream ? RV_OK
                              : rv_fail(err, RV_EINPUT, "%s %s: cannot be read: %s", option, path,
                                        strerror(errno));
        while (rc == RV_OK && (rc = file_next_line(&lines, err)) == 1)
                rc = parse_line(hosts, option, &lines, err);
        free(lines.line);
        if (lines.stream)
                fclose(lines.stream);
        if (rc == RV_OK && hosts->count == 0)
                rc = rv_fail(err, RV_EINPUT, "%s %s: names no host; lines such as 'a slots=4' were expected",
                             option, path);
        return rc;
}

int hosts_slots(const struct hosts *hosts)
{
        int64_t slots = 0;
        for (int i = 0; i < hosts->count; i++)
                slots += hosts->list[i].gone ? 0 : hosts->list[i].slots;
        return slots < INT_MAX ? (int)slots : INT_MAX;
}

char *hosts_text(const struct hosts *hosts, int each)
{
        size_t size = 1;
        for (int i = 0; i < hosts->count; i++)
                size += strlen(hosts->list[i].name) + 16;
        char *text = malloc(size);
        if (!text)
                return NULL;
        text[0] = 0;
        for (int i = 0, length = 0; i < hosts->count; i++)
                if (!hosts->list[i].gone)
                        length += snprintf(text + length, size - (size_t)length, "%s%s:%d", length ? "," : "",
                                           hosts->list[i].name, each ? each : hosts->list[i].slots);
        return text;
}

void hosts_free(struct hosts *hosts)
{
        for (int i = 0; i < hosts->count; i++)
                free(hosts->list[i].name);
        free(hosts->list);
        *hosts = (struct hosts){.count = 0};
}
