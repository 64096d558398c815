#include "runtime/base/csv.h"

#include "runtime/base/file.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 128 };

int csv_split(char *line, char **cells, int max)
{
        char *from = line;
        int count = 0;
        for (bool more = true; more; count++) {
                if (count == max)
                        return -1;
                char *to = from;
                cells[count] = from;
                bool quoted = *from == '"';
                from += quoted;
                while (*from && (quoted || *from != ',')) {
                        if (quoted && *from == '"' && *++from != '"') {
                                quoted = false;
                                continue;
                        }
                        *to++ = *from++;
                }
                if (quoted)
                        return -1;
                more = *from != 0;
                from += more;
                *to = 0;
        }
        return count;
}

int csv_find(char *const *cells, int count, const char *name)
{
        for (int i = 0; i < count; i++)
                if (strcmp(cells[i], name) == 0)
                        return i;
        return -1;
}

static json_t *cell_json(const char *text)
{
        char *end;
        const double value = strtod(text, &end);
        const long long whole = strpbrk(text, ".eEnN") ? 0 : strtoll(text, NULL, 10);
        if (!*text)
                return json_null();
        if (*end || !isfinite(value))
                return json_string(text);
        return whole ? json_integer(whole) : strcmp(text, "0") == 0 ? json_integer(0) : json_real(value);
}

/* Lines that are empty or begin with # are remarks. */
static int read_rows(struct file_lines *lines, json_t *rows, struct rv_error_info *err)
{
        char *cells[CELLS], *names[CELLS], *header = NULL;
        int width = 0, rc;
        while ((rc = file_next_line(lines, err)) > 0) {
                if (!*lines->line || *lines->line == '#')
                        continue;
                if (!header) {
                        header = strdup(lines->line);
                        width = header ? csv_split(header, names, CELLS) : 0;
                        continue;
                }
                json_t *row = json_object();
                const int count = csv_split(lines->line, cells, CELLS);
                for (int i = 0; i < count && i < width; i++)
                        json_object_set_new(row, names[i], cell_json(cells[i]));
                json_array_append_new(rows, row);
        }
        free(header);
        return rc;
}

int csv_print_json(csv_write *write, const void *context, struct rv_error_info *err)
{
        char path[1024];
        struct file_lines lines = {.path = path};
        json_t *rows = json_array();
        FILE *stream = file_open_temporary(path, sizeof path, err);
        if (!stream) {
                json_decref(rows);
                return RV_ESYSTEM;
        }
        fclose(stream);
        int rc = write(context, path, err);
        lines.stream = rc == 0 ? fopen(path, "rb") : NULL;
        if (rc == 0 && !lines.stream)
                rc = rv_fail(err, RV_ESYSTEM, "%s: cannot be read: %s", path, strerror(errno));
        if (rc == 0)
                rc = read_rows(&lines, rows, err);
        if (rc == 0)
                rc = file_print_json(rows, err);
        if (lines.stream)
                fclose(lines.stream);
        free(lines.line);
        unlink(path);
        json_decref(rows);
        return rc;
}
