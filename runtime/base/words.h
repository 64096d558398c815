/* Which words a command line takes in a place: as the value of an option, or as one of the words that are no
 * options. Tables of options (setting.h, runtime/plan/flags.h) say it beside the option; --describe
 * (describe.h) prints it, and completions of shells are made of that. */
#ifndef RANVIER_RUNTIME_BASE_WORDS_H
#define RANVIER_RUNTIME_BASE_WORDS_H

#include <stdbool.h>

struct option_words {
        const char *const *names; /* words that are right, up to a NULL; NULL: there are none */
        /* A folder such as "models/presets" whose .json files are named, too (file_list); NULL: there is none
         */
        const char *folder;
        bool files; /* the path of any file is right, too */
        bool list;  /* several may stand with commas between them */
};

#endif
