/* What a page is made of: the files, each taken for what is in it. */
#ifndef RANVIER_PLOTS_HTML_INPUTS_H
#define RANVIER_PLOTS_HTML_INPUTS_H

#include "plots/run.h"

struct inputs {
        const char **run_paths, **trace_paths, **table_paths, **plan_paths; /* [at most `count`] each */
        int runs, traces, tables, plans;
        struct run *run; /* [runs] */
        json_t **plan;   /* [plans] */
};

/* Reads the files. Returns 0, or a negative rv_error with a sentence. The caller calls inputs_close in either
 * case; `files` must outlive the inputs. */
int inputs_open(struct inputs *, char *const *files, int count, struct rv_error_info *err);
void inputs_close(struct inputs *);

/* Returns the measured run of the same model and plan as the predicted one, or NULL. */
const struct run *inputs_partner(const struct inputs *, const struct run *predicted);

#endif
