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

/* A combination of values that is refused: all conditions in `when` hold (those up to one without a flag),
 * and, unless it is NULL, `also`. Conditions are on switches, choices and ints. */
enum { FLAG_CONDITIONS = 3 };
struct flag_conflict {
        struct flag_condition {
                const char *flag;
                enum { IS, IS_NOT, ABOVE, BELOW } how;
                int value;
        } when[FLAG_CONDITIONS];
        bool (*also)(const struct options *);
        int code; /* RV_EPLAN: it makes no sense; RV_ENOTBUILT */
        /* What is said: {zero} stands for "--zero 1", a flag as it is given, and <zero> for its value, "1".
         */
        const char *sentence;
        bool unpaired; /* a sweep does not combine these values, and says nothing of it if each of them is
                          combined with others */
};

/* A list of values, as a sweep tries them. */
enum { FLAG_VALUES = 16 };
struct flag_values {
        int values[FLAG_VALUES], count;
};

/* What a sweep does with a flag: leaves it out, takes one value for all plans, or a list of values to try. */
enum flag_sweep { SWEEP_NOTHING, SWEEP_FIXED, SWEEP_LIST };

/* A flag that is a list in a sweep, an axis of the search. */
struct flag_axis {
        const char *argument, *help;             /* of `ranvier sweep` */
        struct flag_values all, megatron;        /* what --plans all and --plans megatron try */
        bool (*matters)(const struct options *); /* whether values differ in this plan, NULL: always; if not,
                                                    the first of the list stands for all */
        const char *label;                       /* of a value in tables, with %s for the value: "tp %s" */
        bool label_default;                      /* the default has one too */
};

struct flag {
        const char *name;     /* "micro-batch-size" */
        const char *argument; /* "B"; NULL: a switch, which has none */
        enum flag_scope scope;
        enum flag_store store;
        size_t offset;            /* in struct options */
        int64_t min, max;         /* of a number */
        const char *const *names; /* of a choice, by its value, up to a NULL; else NULL */
        const char *help;
        /* Takes what is neither a switch, a number between bounds, one of `names` nor a file's name. */
        int (*parse)(struct options *, const char *text, struct rv_error_info *err);
        /* Writes what is none of these either, as it is given. */
        void (*write)(const struct options *, char *text, size_t size);
        enum { REPORT_ALWAYS, REPORT_IF_SET, REPORT_NEVER } report; /* in a report's plan */
        enum flag_sweep sweep;
        const struct flag_axis *axis; /* of SWEEP_LIST */
        /* Where memory is short, the nth value that may be proposed, from the smallest change to the largest;
         * 0 is the plan's own. False: there are no more. NULL: the flag is left as it is. */
        bool (*propose)(const struct options *, int nth, int *value);
        const char *required;                  /* what it is, if there is no plan without it; else NULL */
        const struct flag_conflict *conflicts; /* up to one without a sentence; NULL: none */
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

/* Whether a plan has all that is required, and no conflict. On failure says which. */
int flags_check(const struct options *, struct rv_error_info *err);

/* Whether a plan has this conflict. */
bool flag_conflicts(const struct flag_conflict *, const struct options *);

bool flag_equal(const struct flag *, const struct options *a, const struct options *b);

#endif
