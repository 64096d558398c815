#include "runtime/base/toml.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 512, VALUE = 8192, DEEP = 16 };

struct reader {
        const char *path, *at;
        int line;
        char table[KEY]; /* the table that keys are in, with a point behind it; "": none */
        char value[VALUE];
        size_t length; /* of the value */
        int depth;     /* of arrays within each other */
        struct rv_error_info *err;
};

static int wrong(const struct reader *r, const char *expected)
{
        char found[24];
        const size_t length = strcspn(r->at, "\n");
        if (*r->at == 0)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: the file ends, %s was expected (is it cut short?)",
                               r->path, r->line, expected);
        snprintf(found, sizeof found, "%.*s", length < 20 ? (int)length : 20, r->at);
        return rv_fail(r->err, RV_EINPUT, "%s:%d: %s%s%s was found, %s was expected", r->path, r->line,
                       length ? "'" : "", length ? found : "the end of the line", length ? "'" : "",
                       expected);
}

static int unbuilt(const struct reader *r, const char *what)
{
        return rv_fail(r->err, RV_ENOTBUILT, "%s:%d: TOML's %s are not built", r->path, r->line, what);
}

static void skip_blanks(struct reader *r)
{
        r->at += strspn(r->at, " \t");
}

/* Blanks, comments and ends of lines. */
static void skip_lines(struct reader *r)
{
        for (;;) {
                skip_blanks(r);
                if (*r->at == '#')
                        r->at += strcspn(r->at, "\n");
                if (*r->at == '\r' && r->at[1] == '\n')
                        r->at++;
                if (*r->at != '\n')
                        return;
                r->at++;
                r->line++;
        }
}

static int end_line(struct reader *r)
{
        skip_blanks(r);
        if (*r->at && *r->at != '#' && *r->at != '\n' && strncmp(r->at, "\r\n", 2) != 0)
                return wrong(r, "the end of the line");
        return 0;
}

static int add(struct reader *r, char c)
{
        if (r->length + 1 >= sizeof r->value)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: the value is longer than %d characters", r->path,
                               r->line, VALUE - 1);
        r->value[r->length++] = c;
        r->value[r->length] = 0;
        return 0;
}

static int read_string(struct reader *r)
{
        static const char letters[] = "btnfr\"\\", meant[] = "\b\t\n\f\r\"\\";
        const char quote = *r->at;
        int rc = 0;
        if (r->at[1] == quote && r->at[2] == quote)
                return unbuilt(r, "strings over several lines");
        for (r->at++; rc == 0 && *r->at != quote; r->at++) {
                if (*r->at == 0 || *r->at == '\n')
                        return wrong(r, "the end of a string");
                if (quote == '\'' || *r->at != '\\') {
                        rc = add(r, *r->at);
                        continue;
                }
                const char *letter = r->at[1] ? strchr(letters, *++r->at) : NULL;
                if (!letter)
                        return unbuilt(r, "escapes other than \\b \\t \\n \\f \\r \\\" and \\\\");
                rc = add(r, meant[letter - letters]);
        }
        r->at += rc == 0;
        return rc;
}

/* A number or a boolean. */
static int read_bare(struct reader *r)
{
        const size_t from = r->length;
        char *end;
        int rc = 0;
        for (; rc == 0 && (isalnum((unsigned char)*r->at) || (*r->at && strchr("_+-.:", *r->at))); r->at++)
                if (*r->at != '_')
                        rc = add(r, *r->at);
        const char *word = r->value + from;
        if (rc)
                return rc;
        if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
                return 0;
        strtod(word, &end);
        if (r->length == from || *end || strpbrk(word, "xX")) {
                r->at -= r->length - from;
                return strchr(word, ':') || (strchr(word, '-') && isdigit((unsigned char)*word))
                               ? unbuilt(r, "dates")
                               : wrong(r, "a value (a string, a number, true, false or an array)");
        }
        return 0;
}

static int read_value(struct reader *r);

static int read_array(struct reader *r)
{
        int rc = 0;
        if (r->depth == DEEP)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: more than %d arrays inside each other", r->path,
                               r->line, DEEP);
        r->depth++;
        r->at++;
        for (bool first = true;; first = false) {
                skip_lines(r);
                if (*r->at == ']')
                        break;
                rc = first ? 0 : add(r, ',');
                if (rc == 0)
                        rc = read_value(r);
                if (rc)
                        return rc;
                skip_lines(r);
                if (*r->at != ',' && *r->at != ']')
                        return wrong(r, "a comma or ]");
                r->at += *r->at == ',';
        }
        r->depth--;
        r->at++;
        return 0;
}

static int read_value(struct reader *r)
{
        if (*r->at == '"' || *r->at == '\'')
                return read_string(r);
        if (*r->at == '[')
                return read_array(r);
        return *r->at == '{' ? unbuilt(r, "inline tables") : read_bare(r);
}

/* Adds a dotted key to what `key` has, up to what follows it. */
static int read_key(struct reader *r, char key[KEY])
{
        for (;;) {
                size_t length;
                skip_blanks(r);
                r->length = 0;
                r->value[0] = 0;
                if (*r->at == '"' || *r->at == '\'') {
                        if (read_string(r))
                                return (int)r->err->code;
                } else {
                        for (; isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '-'; r->at++)
                                if (add(r, *r->at))
                                        return (int)r->err->code;
                        if (!r->length)
                                return wrong(r, "a key");
                }
                length = strlen(key);
                if (length + r->length + 2 > KEY)
                        return rv_fail(r->err, RV_EINPUT, "%s:%d: the key is longer than %d characters",
                                       r->path, r->line, KEY - 2);
                snprintf(key + length, KEY - length, "%s", r->value);
                skip_blanks(r);
                if (*r->at != '.')
                        return 0;
                r->at++;
                strcat(key, ".");
        }
}

static int read_table(struct reader *r)
{
        r->at++;
        r->table[0] = 0;
        if (*r->at == '[')
                return unbuilt(r, "arrays of tables");
        if (read_key(r, r->table))
                return (int)r->err->code;
        if (*r->at != ']')
                return wrong(r, "]");
        r->at++;
        strcat(r->table, ".");
        return end_line(r);
}

static int read_pair(struct reader *r, toml_take *take, void *context)
{
        char key[KEY];
        const int line = r->line;
        snprintf(key, sizeof key, "%s", r->table);
        if (read_key(r, key))
                return (int)r->err->code;
        if (*r->at != '=')
                return wrong(r, "=");
        r->at++;
        skip_blanks(r);
        r->length = 0;
        r->value[0] = 0;
        int rc = read_value(r);
        if (rc == 0)
                rc = end_line(r);
        return rc ? rc : take(context, key, r->value, line, r->err);
}

int toml_read(const char *path, const char *text, toml_take *take, void *context, struct rv_error_info *err)
{
        struct rv_error_info own = {.code = RV_OK};
        struct reader r = {.path = path, .at = text, .line = 1, .err = err ? err : &own};
        int rc = 0;
        for (skip_lines(&r); rc == 0 && *r.at; skip_lines(&r))
                rc = *r.at == '[' ? read_table(&r) : read_pair(&r, take, context);
        return rc;
}
