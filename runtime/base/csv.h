/* Lines of comma separated values (RFC 4180, but a cell has no line ends). */
#ifndef RANVIER_RUNTIME_BASE_CSV_H
#define RANVIER_RUNTIME_BASE_CSV_H

#include "runtime/base/error.h"

/* Splits `line` in place into at most `max` cells: between commas, or between quotes, in which "" is one
 * quote. The cells point into `line`. Returns how many there are, or -1 if a quote is not closed or there are
 * more than `max`. */
int csv_split(char *line, char **cells, int max);

/* Returns which of the cells is `name`, from 0; -1 if none is. */
int csv_find(char *const *cells, int count, const char *name);

/* Prints as JSON (--json) the table that write() writes to a path: an array of objects, whose keys are the
 * names in the first line; numbers are numbers, and empty cells null. Returns 0, or a negative rv_error. */
typedef int csv_write(const void *context, const char *path, struct rv_error_info *err);
int csv_print_json(csv_write *write, const void *context, struct rv_error_info *err);

#endif
