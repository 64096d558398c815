/* Values of a command line. Each returns 0, or on failure says `option`, what was found and what is right,
 * and leaves what there was. */
#ifndef RANVIER_RUNTIME_BASE_PARSE_H
#define RANVIER_RUNTIME_BASE_PARSE_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* A whole number in [min, max]. */
int parse_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value,
              struct rv_error_info *err);
/* The same where `max` is an int's. */
int parse_count(const char *option, const char *text, int min, int max, int *value,
                struct rv_error_info *err);

/* Different whole numbers in [min, max], between commas. */
enum { INT_LIST = 64 };
struct int_list {
        int values[INT_LIST], count;
};
int parse_list(const char *option, const char *text, int min, int max, struct int_list *list,
               struct rv_error_info *err);

/* "2GiB", "500MB", "4096": bytes. Returns 0 or -1, and says nothing. */
int parse_bytes(const char *text, int64_t *bytes);

/* "1GB/s", "500MB/s", "2.5GiB/s": bytes a second, more than 0. */
int parse_rate(const char *option, const char *text, double *bytes_per_second, struct rv_error_info *err);

/* A number of tokens from 1 to 9e18: "300e9", or with K, M, B or T "300B". */
int parse_tokens(const char *option, const char *text, double *tokens, struct rv_error_info *err);

/* The name of a file, not empty. */
int parse_path(const char *option, const char *text, const char **path, struct rv_error_info *err);

/* Which of `names`, two at least, up to a NULL, `text` is. */
int parse_name(const char *option, const char *text, const char *const *names, int *which,
               struct rv_error_info *err);

/* "on" or "off". */
int parse_switch(const char *option, const char *text, bool *on, struct rv_error_info *err);

#endif
