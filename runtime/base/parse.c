#define _DEFAULT_SOURCE /* strsep, strdup */
#include "runtime/base/parse.h"

#include "runtime/base/nearest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int parse_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value,
              struct rv_error_info *err)
{
        char *end;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (errno || end == text || *end || number < min || number > max)
                return rv_fail(err, RV_EINPUT, "%s: '%s' is not a whole number from %lld to %lld", option,
                               text, (long long)min, (long long)max);
        *value = number;
        return 0;
}

int parse_count(const char *option, const char *text, int min, int max, int *value, struct rv_error_info *err)
{
        int64_t number = 0;
        int rc = parse_int(option, text, min, max, &number, err);
        if (rc == 0)
                *value = (int)number;
        return rc;
}

int parse_path(const char *option, const char *text, const char **path, struct rv_error_info *err)
{
        if (!*text)
                return rv_fail(err, RV_EINPUT, "%s: the name of a file was expected, this one is empty",
                               option);
        *path = text;
        return 0;
}

int parse_list(const char *option, const char *text, int min, int max, struct int_list *list,
               struct rv_error_info *err)
{
        char *copy = strdup(text), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for %s", option);
        struct int_list found = {0};
        for (char *word; rc == 0 && (word = strsep(&rest, ","));) {
                int number = 0;
                if (!*word)
                        rc = rv_fail(err, RV_EINPUT, "%s: '%s' is not a list of numbers such as 1,2,4",
                                     option, text);
                else if (found.count == INT_LIST)
                        rc = rv_fail(err, RV_EINPUT, "%s: more than %d numbers", option, INT_LIST);
                else
                        rc = parse_count(option, word, min, max, &number, err);
                for (int i = 0; rc == 0 && i < found.count; i++)
                        if (found.values[i] == number)
                                rc = rv_fail(err, RV_EINPUT, "%s: %d is there twice", option, number);
                if (rc == 0)
                        found.values[found.count++] = number;
        }
        free(copy);
        if (rc == 0)
                *list = found;
        return rc;
}

int parse_bytes(const char *text, int64_t *bytes)
{
        static const struct {
                const char *suffix;
                double factor;
        } units[] = {{"", 1},
                     {"B", 1},
                     {"kB", 1e3},
                     {"KB", 1e3},
                     {"MB", 1e6},
                     {"GB", 1e9},
                     {"TB", 1e12},
                     {"KiB", 1024.0},
                     {"MiB", 1048576.0},
                     {"GiB", 1073741824.0},
                     {"TiB", 1099511627776.0}};
        char *end;
        double number = strtod(text, &end);
        if (end == text || !(number >= 0))
                return -1;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
                if (strcmp(end, units[i].suffix) == 0 && number * units[i].factor < 9e18) {
                        *bytes = (int64_t)llround(number * units[i].factor);
                        return 0;
                }
        return -1;
}

int parse_rate(const char *option, const char *text, double *bytes_per_second, struct rv_error_info *err)
{
        char size[32];
        int64_t bytes = 0;
        size_t length = strlen(text);
        if (length > 2 && length < sizeof size && strcmp(text + length - 2, "/s") == 0) {
                snprintf(size, sizeof size, "%.*s", (int)length - 2, text);
                if (parse_bytes(size, &bytes) == 0 && bytes > 0) {
                        *bytes_per_second = (double)bytes;
                        return 0;
                }
        }
        return rv_fail(err, RV_EINPUT,
                       "%s: '%.64s' is not a rate such as 10GB/s or 500MB/s, of at least 1 B/s", option,
                       text);
}

int parse_tokens(const char *option, const char *text, double *tokens, struct rv_error_info *err)
{
        static const struct {
                const char *suffix;
                double factor;
        } units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
        char *end;
        const double number = strtod(text, &end);
        for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++) {
                const double all = number * units[i].factor;
                if (strcmp(end, units[i].suffix) == 0 && all >= 1 && all <= 9e18) {
                        *tokens = all;
                        return 0;
                }
        }
        return rv_fail(
                err, RV_EINPUT,
                "%s: '%.64s' is not a number of tokens such as 300e9 or 300B (K, M, B, T; from 1 to 9e18)",
                option, text);
}

/* Without a unit, or with a number that is none of a time, 0. */
static double seconds_of(const char *text)
{
        static const struct {
                const char *name;
                double seconds;
        } units[] = {{"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
        char *end;
        const double number = strtod(text, &end);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
                if (end > text && strcmp(end, units[i].name) == 0 && number > 0 && number <= 1e9)
                        return number * units[i].seconds;
        return 0;
}

int parse_seconds(const char *option, const char *text, double *seconds, struct rv_error_info *err)
{
        const double found = seconds_of(text);
        if (found > 0) {
                *seconds = found;
                return 0;
        }
        return rv_fail(err, RV_EINPUT, "%s: '%.64s' is not a time, such as 90s, 10min or 2h", option, text);
}

int parse_every(const char *option, const char *text, int64_t max, int64_t *steps, double *seconds,
                struct rv_error_info *err)
{
        const double found = seconds_of(text);
        int64_t number = 0;
        if (!(found > 0) && parse_int(option, text, 1, max, &number, NULL))
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: '%.64s' is neither a number of steps nor a time, such as 100, 90s, 10min or 2h",
                        option, text);
        *steps = number;
        *seconds = found;
        return 0;
}

int parse_unknown(const char *option, const char *text, const char *const *names, struct rv_error_info *err)
{
        enum { KNOWN = 512 };
        char known[KNOWN] = "";
        struct nearest nearest = {.word = text};
        for (int i = 0; names[i]; i++) {
                const char *between = i == 0 ? "" : names[i + 1] ? ", " : " and ";
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", between, names[i]);
                nearest_offer(&nearest, names[i]);
        }
        const bool near = nearest_is_likely(&nearest);
        return rv_fail(err, RV_EINPUT, "%s: '%.64s' is not known%s%s; there are %s", option, text,
                       near ? ", the nearest is " : "", near ? nearest.known : "", known);
}

int parse_name(const char *option, const char *text, const char *const *names, int *which,
               struct rv_error_info *err)
{
        for (int i = 0; names[i]; i++)
                if (strcmp(text, names[i]) == 0) {
                        *which = i;
                        return 0;
                }
        return parse_unknown(option, text, names, err);
}

int parse_switch(const char *option, const char *text, bool *on, struct rv_error_info *err)
{
        static const char *const names[] = {"off", "on", NULL};
        int which = *on, rc = parse_name(option, text, names, &which, err);
        *on = which;
        return rc;
}
