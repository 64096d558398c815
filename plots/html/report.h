/* `ranvier report`: reports of plan, simulate and train, traces and tables (CSV) as one page of HTML. */
#ifndef RANVIER_PLOTS_HTML_REPORT_H
#define RANVIER_PLOTS_HTML_REPORT_H

#include "runtime/base/error.h"

/* Writes a page on `count` files, at least one, to `path`. A file is taken for what is in it. Reports of
 * simulate and train that are of one model and plan are set beside each other. `title`: the page's; NULL:
 * what the files are of. `command`: what made the page; NULL: not said. Returns 0, or a negative rv_error
 * with a sentence; then there is no page. */
int html_report(const char *path, const char *title, char *const *files, int count, const char *command,
                struct rv_error_info *err);

#endif
