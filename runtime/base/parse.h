/* Parses the values of options on a command line. Each function reads `text`, the value of `option` (such as
 * "--steps", for the error message), and stores it. It returns 0, or RV_EINPUT which says what was found and
 * what would be right; then the place of the result is left as it was, unless said otherwise. */
#ifndef RANVIER_RUNTIME_BASE_PARSE_H
#define RANVIER_RUNTIME_BASE_PARSE_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* Parses a whole decimal number in [min, max]. */
int parse_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value,
              struct rv_error_info *err);
/* The same for a number that is stored in an int. */
int parse_count(const char *option, const char *text, int min, int max, int *value,
                struct rv_error_info *err);

/* Parses whole numbers in [min, max] with commas between them: at least one, at most INT_LIST, none of them
 * twice. `list` is overwritten on failure, too. Returns RV_ESYSTEM if there is no memory. */
enum { INT_LIST = 64 };
struct int_list {
        int values[INT_LIST], count;
};
int parse_list(const char *option, const char *text, int min, int max, struct int_list *list,
               struct rv_error_info *err);

/* Parses a size and stores it in bytes: "4096", "500MB", "1.5GiB". Units are B, kB (or KB), MB, GB and TB, in
 * powers of 1000, and KiB, MiB, GiB and TiB, in powers of 1024. Returns 0 or -1, without a sentence. */
int parse_bytes(const char *text, int64_t *bytes);

/* Parses a rate and stores it in bytes a second: a size with "/s" behind it, such as "1GB/s" or "2.5GiB/s".
 * It must be at least 1 B/s. */
int parse_rate(const char *option, const char *text, double *bytes_per_second, struct rv_error_info *err);

/* Parses a number of tokens from 1 to 9e18: "300e9", or with K, M, B (1e9) or T (1e12) behind it, "300B". */
int parse_tokens(const char *option, const char *text, double *tokens, struct rv_error_info *err);

/* A time above 0, such as 90s, 10min or 2h, in seconds. */
int parse_seconds(const char *option, const char *text, double *seconds, struct rv_error_info *err);
/* How often something is done: every so many steps, from 1 to `max`, or whenever so much time has passed; the
 * other one is 0. */
int parse_every(const char *option, const char *text, int64_t max, int64_t *steps, double *seconds,
                struct rv_error_info *err);

/* Accepts the name of a file, which must not be empty. `path` then points to `text`. */
int parse_path(const char *option, const char *text, const char **path, struct rv_error_info *err);

/* Finds `text` among `names`, an array of two names at least that ends with NULL, and stores its index. */
int parse_name(const char *option, const char *text, const char *const *names, int *which,
               struct rv_error_info *err);

/* The sentence of a text that is none of such names: it has them all, and first the one of which it is a
 * beginning, or differs by a third of its letters at most. Returns RV_EINPUT. */
int parse_unknown(const char *option, const char *text, const char *const *names, struct rv_error_info *err);

/* Parses "on" or "off". */
int parse_switch(const char *option, const char *text, bool *on, struct rv_error_info *err);

#endif
