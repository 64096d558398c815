/* The page of HTML that a command makes of what it found (--html). The command writes its reports and tables
 * into a folder of their own, and `ranvier report`, a program of its own that draws figures, makes the page
 * of them. A struct html that was begun without a path does nothing. */
#ifndef RANVIER_RUNTIME_REPORT_HTML_H
#define RANVIER_RUNTIME_REPORT_HTML_H

#include "runtime/base/csv.h"

#include <stdbool.h>

enum { HTML_FILES = 8, HTML_RANKS = 16 }; /* ranks up to which a page has a timeline that nobody asked for */

struct html {
        const char *path;
        char folder[1024];
        char files[HTML_FILES][1100]; /* what the page is made of */
        int count;
};

/* Returns 0 if a page can have that name, which ends in .html, or is NULL; to know it before the work. Else
 * RV_EINPUT. */
int html_check(const char *path, struct rv_error_info *err);

/* Begins the page at `path`, which was checked; NULL: none is wanted. Returns 0, or RV_ESYSTEM with a
 * sentence. What was begun must be ended. */
int html_begin(struct html *, const char *path, struct rv_error_info *err);

/* Returns the path of a new file that the page will be made of, of at most HTML_FILES; NULL if no page is
 * wanted. */
const char *html_file(struct html *, const char *name);

/* Adds a file that is there without the page, and stays. */
void html_add(struct html *, const char *path);

/* Simulates by the line that `ranvier` is told to be started with, "ranvier simulate ...", for a page; with
 * its trace, if `traced`. Returns 0, or RV_ESYSTEM with a sentence. */
int html_simulate(struct html *, const char *line, const char *name, bool traced, struct rv_error_info *err);

/* Makes the page if `rc` is 0, and removes the files. `command`: what made it. Returns `rc`, or RV_ESYSTEM if
 * the page could not be made; then `ranvier report` has said why. */
int html_end(struct html *, const char *command, int rc, struct rv_error_info *err);

/* Makes the page at `path` (NULL: none is wanted) of one table, which write() writes. `name`: what the page
 * calls it. Returns 0, or a negative rv_error with a sentence. */
int html_table(const char *path, const char *command, const char *name, csv_write *write, const void *context,
               struct rv_error_info *err);

#endif
