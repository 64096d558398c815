/* Reads TOML 1.0 (https://toml.io), of it what configurations of trainings use: tables, bare, quoted and
 * dotted keys, strings on one line, numbers, booleans, arrays (over several lines, too) and comments. What
 * else TOML has (dates, inline tables, arrays of tables, strings over several lines, numbers that are not
 * decimal) is refused by name. Debian 12 has no library for C that reads TOML; those for C++ would need its
 * exceptions. */
#ifndef RANVIER_RUNTIME_BASE_TOML_H
#define RANVIER_RUNTIME_BASE_TOML_H

#include "runtime/base/error.h"

/* Takes one value: its key with the names of its tables before it ("training.seq_len"), the value as text (a
 * string without its quotes, a number without "_", or true or false; the elements of an array with commas
 * between them), and the line, from 1, that its key is on. Returns 0, or a negative rv_error, with which
 * reading ends. */
typedef int toml_take(void *context, const char *key, const char *value, int line, struct rv_error_info *err);

/* Reads `text`, which came from the file `path`, and hands its values to `take` in their order. Returns 0;
 * the error of `take`; or RV_EINPUT (RV_ENOTBUILT of what is refused by name) with a sentence that names the
 * line. */
int toml_read(const char *path, const char *text, toml_take *take, void *context, struct rv_error_info *err);

#endif
