/* The flags of a plan, as a table with one row for each flag: what --help says of it, which values are right,
 * which member of struct options holds it, what it conflicts with, what a sweep does with it, and what is
 * proposed of it if memory is short. The rows are in rows.c. Whoever parses, prints, compares or varies a
 * plan asks the rows, so a new flag needs no changes there: the command lines of train, simulate, sweep and
 * validate, a report's "plan", the axes of a sweep (sim/search/axes.c), and the changes that are proposed for
 * a plan that does not fit (runtime/engine/capacity.c).
 *
 * What depends on the model, or on what divides what, is not here but in options_check (options.h). */
#ifndef RANVIER_RUNTIME_PLAN_FLAGS_H
#define RANVIER_RUNTIME_PLAN_FLAGS_H

#include "runtime/base/words.h"
#include "runtime/plan/options.h"

#include <stddef.h>

/* The type of the member in struct options: bool, int (also for enumerations), int64_t, double or a text. */
enum flag_store { STORE_BOOL, STORE_INT, STORE_WHOLE /* int64_t */, STORE_REAL /* double */, STORE_TEXT };

/* Whether a flag belongs to one plan alone (its grid, its sizes, its files), or may hold for several plans
 * that are compared. */
enum flag_scope { FLAG_OF_ONE, FLAG_OF_MANY };

/* A combination of values that is refused: all conditions in `when` hold, and so does `also` unless it is
 * NULL. There may be fewer conditions than the array has: one without a flag ends them. Conditions are on
 * flags that are stored as bool or int. */
enum { FLAG_CONDITIONS = 3 };
struct flag_conflict {
        struct flag_condition {
                const char *flag; /* a flag's name, without dashes */
                enum { IS, IS_NOT, ABOVE, BELOW } how;
                int value;
        } when[FLAG_CONDITIONS];
        bool (*also)(const struct options *);
        /* RV_EPLAN: the combination makes no sense; RV_ENOTBUILT: it does, but is not built. */
        int code;
        /* What the user is told. In it {zero} stands for the flag as it is given, "--zero 1", and <zero> for
         * its value alone, "1". */
        const char *sentence;
        /* A sweep leaves this combination out without a word, if each of the values is tried with another
         * value of the other flag. */
        bool unpaired;
        const struct flag *flags[FLAG_CONDITIONS]; /* of the conditions; NULL where there is none */
};

/* The values of a flag that a sweep tries, as flag_value returns them. */
enum { FLAG_VALUES = 16 };
struct flag_values {
        int values[FLAG_VALUES], count;
};

/* What `ranvier sweep` does with a flag: it has no such flag; it takes one value, for all plans; or it takes
 * a list of values to try. */
enum flag_sweep { SWEEP_NOTHING, SWEEP_FIXED, SWEEP_LIST };

/* A flag that is a list in a sweep, and so an axis of the search. */
struct flag_axis {
        const char *argument, *help; /* of `ranvier sweep --help` */
        /* The lists that --plans all and --plans megatron try, where the user gives none. */
        struct flag_values all, megatron;
        /* Returns whether the values differ for this plan (a schedule does not matter with one stage). If
         * they do not, only the first of the list is tried. NULL: they always differ. It may look at the
         * grid, the model and the flags of earlier rows only, so that a search can pass over what follows. */
        bool (*matters)(const struct options *);
        /* How tables name a value, with %s in its place: "tp %s". */
        const char *label;
        /* Tables name the default value, too. */
        bool label_default;
};

/* One row. */
struct flag {
        const char *name;     /* without dashes: "micro-batch-size" */
        const char *argument; /* what --help calls the value: "B"; NULL: a switch, which has none */
        enum flag_scope scope;
        enum flag_store store;
        size_t offset;    /* of the member in struct options */
        int64_t min, max; /* bounds of a number, both included */
        /* For a choice: the names of the values 0, 1, ..., up to a NULL. Else NULL. */
        const char *const *names;
        const char *help;
        /* Which words are right, for completion, where neither `names` nor the kind of the value says it. */
        const struct option_words *words;
        /* Parses and writes a value that is neither a switch, a whole number between bounds, one of `names`,
         * nor the name of a file; `write` writes it as the command line takes it. Each may be NULL: then the
         * value is parsed, or written, as one of those four. */
        int (*parse)(struct options *, const char *text, struct rv_error_info *err);
        void (*write)(const struct options *, char *text, size_t size);
        /* Of a flag whose value is in several members: returns and stores it as one number. NULL: it is in
         * one. */
        int (*value)(const struct options *);
        void (*set)(struct options *, int value);
        /* Whether a report's "plan" has the flag: always, only if its value is not 0, only if it is not the
         * default, or never. */
        enum { REPORT_ALWAYS, REPORT_IF_SET, REPORT_IF_CHANGED, REPORT_NEVER } report;
        enum flag_sweep sweep;
        const struct flag_axis *axis; /* for SWEEP_LIST; else NULL */
        /* For a plan that does not fit its memory: stores the nth value that may be proposed in place of the
         * plan's own, which is the 0th, from the smallest change to the largest. Returns false if there are
         * no more. NULL: the flag is left as it is. */
        bool (*propose)(const struct options *, int nth, int *value);
        /* If no plan can do without the flag: what it is, for the sentence that it is missing. Else NULL. */
        const char *required;
        /* An array that ends with a conflict without a sentence; NULL: there are none. */
        struct flag_conflict *conflicts;
};

/* Returns all rows, in the order of --help, and stores how many they are. The table is static; the first call
 * completes its help texts and looks up the flags of conditions. */
const struct flag *flags_all(int *count);

/* Returns the row of a name, which must exist (an assert). */
const struct flag *flag_named(const char *name);

/* Parses a value as the command line gives it and stores it in the options, whose `given` gets the flag's
 * bit. A switch becomes true without a text (NULL), and else what that says, "yes" or "no". Returns 0, or a
 * negative rv_error with a sentence that names the flag, what was found and what would be right. Conflicts
 * are not looked for. */
int flag_parse(const struct flag *, struct options *, const char *text, struct rv_error_info *err);

/* Says which words the value may be, or, of a list of a sweep (`list`), each of its values. Returns false if
 * no certain words are right. */
bool flag_words(const struct flag *, bool list, struct option_words *words);
/* Whether a flag was given (options->given); marks it as given with the value that it has, or as not given.
 */
bool flag_is_given(const struct flag *, const struct options *);
void flag_give(const struct flag *, struct options *);
void flag_take_back(const struct flag *, struct options *);

/* Writes the value of a flag as the command line takes it, or "yes" or "no" for a switch. Returns `text`. */
enum { FLAG_TEXT = 64 };
char *flag_write(const struct flag *, const struct options *, char text[FLAG_TEXT]);

/* Returns, or replaces, the value of a flag that is stored as bool or int. */
int flag_value(const struct flag *, const struct options *);
/* Whether a switch, a whole number or a real number of a plan is 0. */
bool flag_is_zero(const struct flag *, const struct options *);
void flag_set(const struct flag *, struct options *, int value);

/* Checks that a plan has every flag that is required and none of the conflicts. It needs no model. Returns 0,
 * or the error of the first that is wrong: RV_EINPUT for a missing flag, else the conflict's code. */
int flags_check(const struct options *, struct rv_error_info *err);

/* Returns whether a plan has any conflict. */
bool flags_conflict(const struct options *);

/* Returns whether a plan has this conflict. */
bool flag_conflicts(const struct flag_conflict *, const struct options *);

/* Returns whether two plans have the same value of a flag, compared as flag_write writes it. */
bool flag_equal(const struct flag *, const struct options *a, const struct options *b);

#endif
