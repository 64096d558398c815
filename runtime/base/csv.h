/* Lines of comma separated values (RFC 4180, but a cell has no line ends). */
#ifndef RANVIER_RUNTIME_BASE_CSV_H
#define RANVIER_RUNTIME_BASE_CSV_H

/* Splits `line` in place into at most `max` cells: between commas, or between quotes, in which "" is one
 * quote. The cells point into `line`. Returns how many there are, or -1 if a quote is not closed or there are
 * more than `max`. */
int csv_split(char *line, char **cells, int max);

#endif
