/* Tables of options. A program writes each of its options as one row of a table: its name and help, which
 * values are right, and which member of the program's struct stores it. settings_options turns the table into
 * options for argp, and settings_take, called by the program's argp parser, stores a value. The options that
 * describe a plan are not here: they are in runtime/plan/flags.h. */
#ifndef RANVIER_RUNTIME_BASE_SETTING_H
#define RANVIER_RUNTIME_BASE_SETTING_H

#include "runtime/base/error.h"
#include "runtime/base/words.h"

#include <argp.h>
#include <stddef.h>
#include <stdint.h>

/* What the value of an option is, and the type of the member that stores it. */
enum setting_kind {
        SETTING_HEADING, /* not an option: `help` is a heading above the rows that follow */
        SETTING_SET,     /* a switch without a value: the bool becomes true */
        SETTING_CLEAR,   /* "on" or "off": the bool becomes true for "off" */
        SETTING_PATH,    /* the name of a file, not empty, into a const char * */
        SETTING_TEXT,    /* any text, into a const char * */
        SETTING_WORD,    /* one of words->names, into a const char * */
        SETTING_INT,     /* a whole number from min to max, into an int */
        SETTING_WHOLE,   /* the same into an int64_t */
        SETTING_REAL,    /* a number from low to high, into a double */
        SETTING_RATE,    /* bytes a second, such as 12GB/s, into a double */
        SETTING_TOKENS,  /* a number of tokens, such as 300B, into a double */
        SETTING_LIST,    /* different whole numbers from min to max, into a struct int_list (parse.h) */
        SETTING_OWN      /* whatever `parse` accepts */
};

/* One row of a table, which ends with a row whose `help` is NULL. A row without a `letter` gets a key of its
 * own for argp, so tables name no keys. The defaults are what the program writes into its struct before it
 * parses; an option that is not given leaves its member alone.
 *
 * Texts that a member points to (SETTING_PATH, SETTING_TEXT) are those of argv, not copies. */
struct setting {
        enum setting_kind kind;
        const char *name;     /* without dashes: "steps" */
        char letter;          /* of the short form, or 0 if there is none */
        const char *argument; /* what --help calls the value: "K"; NULL: a switch, which has none */
        const char *help;
        size_t offset; /* of the member in the program's struct */
        /* Bounds, both included: `min` and `max` for whole numbers, `low` and `high` for SETTING_REAL. */
        int64_t min, max;
        double low, high;
        /* For SETTING_OWN: parses `text` into `at`, which is the member at `offset`, or the program's
         * struct if that is 0. Returns 0, or a negative rv_error with a sentence; `option` is "--steps",
         * for that. */
        int (*parse)(void *at, const char *option, const char *text, struct rv_error_info *err);
        /* Which words the value may be, for completion; NULL: a file of SETTING_PATH, on and off of
         * SETTING_CLEAR, and of others no certain ones. */
        const struct option_words *words;
};

/* The most entries of argp's that a table may fill: a row is one, or two where its words are known. */
enum { SETTINGS = 96 };

/* Fills `options` with the rows, up to one without help, as argp takes them. The rows are in groups of
 * --help: the first group has the number `from`, and each heading but one in the first row begins another. */
void settings_options(const struct setting *rows, struct argp_option options[SETTINGS + 1], int from);

/* Stores the value `text` of the option that has argp's `key` in the program's struct, `settings`. Returns 0;
 * EINVAL if the value is wrong (err says why); or ARGP_ERR_UNKNOWN if no row has this key. */
error_t settings_take(const struct setting *rows, void *settings, int key, const char *text,
                      struct rv_error_info *err);

#endif
