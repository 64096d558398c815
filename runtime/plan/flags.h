/* The flags of a plan, one row each: what --help says of it, what it may be, and where struct options has it.
 * Whoever parses, prints, compares or varies a plan asks the rows. */
#ifndef RANVIER_RUNTIME_PLAN_FLAGS_H
#define RANVIER_RUNTIME_PLAN_FLAGS_H

#include "runtime/plan/options.h"

#include <stddef.h>

/* How struct options has a flag's value. */
enum flag_store { STORE_BOOL, STORE_INT, STORE_WHOLE /* int64_t */, STORE_REAL /* double */, STORE_TEXT };

/* Whether a flag is of one plan alone (its grid, its sizes, its files), or may hold for several. */
enum flag_scope { FLAG_OF_ONE, FLAG_OF_MANY };

struct flag {
        const char *name;     /* "micro-batch-size" */
        const char *argument; /* "B"; NULL: a switch, which has none */
        enum flag_scope scope;
        enum flag_store store;
        size_t offset;            /* in struct options */
        int64_t least, most;      /* of a number */
        const char *const *names; /* of a choice, by its value, up to a NULL; else NULL */
        const char *help;
        /* Takes what is neither a switch, a number between bounds, one of `names` nor a file's name. */
        int (*parse)(struct options *, const char *text, struct rv_error_info *err);
        /* Writes what is none of these either, as it is given. */
        void (*write)(const struct options *, char *text, size_t size);
        enum { REPORT_ALWAYS, REPORT_IF_SET, REPORT_NEVER } report; /* in a report's plan */
};

/* The rows in the order of --help, `*count` of them. */
const struct flag *flags_all(int *count);

/* The row of a name, which there must be. */
const struct flag *flag_named(const char *name);

/* Takes a value as the command line gives it; `text` is not looked at for a switch, which becomes set. On
 * failure says the flag, what was found and what is right. */
int flag_parse(const struct flag *, struct options *, const char *text, struct rv_error_info *err);

/* A value as the command line has it, for a switch "yes" or "no". */
enum { FLAG_TEXT = 64 };
char *flag_write(const struct flag *, const struct options *, char text[FLAG_TEXT]);

/* The value of a switch, a choice or an int, and another one in its place. */
int flag_value(const struct flag *, const struct options *);
void flag_set(const struct flag *, struct options *, int value);

bool flag_equal(const struct flag *, const struct options *a, const struct options *b);

#endif
