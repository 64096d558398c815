/* The options of a program, one row each, for argp: what --help says of an option, what it may be, and where
 * the program's struct has it. */
#ifndef RANVIER_RUNTIME_BASE_SETTING_H
#define RANVIER_RUNTIME_BASE_SETTING_H

#include "runtime/base/error.h"

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

/* What an option is, and the member that takes it. */
enum setting_kind {
        SETTING_HEADING, /* no option: `help` stands above the rows behind it */
        SETTING_SET,     /* a switch: the bool becomes true */
        SETTING_CLEAR,   /* a switch of "on" and "off", whose bool is true when it is off */
        SETTING_PATH,    /* a file's name, not empty, into a const char * */
        SETTING_TEXT,    /* any text, into a const char * */
        SETTING_INT,     /* a whole number from min to max, into an int */
        SETTING_WHOLE,   /* the same into an int64_t */
        SETTING_REAL,    /* a number from low to high, into a double */
        SETTING_RATE,    /* bytes a second, such as 12GB/s, into a double */
        SETTING_TOKENS,  /* tokens, such as 300B, into a double */
        SETTING_LIST,    /* different whole numbers from min to max, into a struct int_list */
        SETTING_OWN      /* what `parse` makes of it */
};

struct setting {
        enum setting_kind kind;
        const char *name;     /* "steps" */
        char letter;          /* of a short form, or 0 */
        const char *argument; /* "K"; NULL: a switch */
        const char *help;
        size_t offset; /* in the program's struct */
        int64_t min, max;
        double low, high;
        /* SETTING_OWN: takes `text` into the member at `offset`, or into the program's struct if that is 0;
         * or says what is wrong with `option`, "--steps". */
        int (*parse)(void *at, const char *option, const char *text, struct rv_error_info *err);
};

enum { SETTINGS = 40 };

/* The rows up to one without help, as argp takes them: each heading begins a group. Keys are those of
 * settings_take. `from`: the first group's number. */
void settings_options(const struct setting *rows, struct argp_option options[SETTINGS + 1], int from);

/* Takes the option of `key` into `settings`. Returns 0, EINVAL (err says why), or ARGP_ERR_UNKNOWN: a key
 * that is of none of the rows. */
error_t settings_take(const struct setting *rows, void *settings, int key, const char *text,
                      struct rv_error_info *err);

#endif
