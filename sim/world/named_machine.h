/* Machines by name, as --machine takes them: a profile and a platform at once. `h100` is a file
 * sim/machines/h100.json, which says what it is, its platform, and profiles of which the first that comes
 * with the program is taken (so that a file may name one that is still to be made); `8xh100` is one node of
 * it, or a part of one.
 *
 * simulate, sweep and validate turn the name into what --profile and --platform would have said before
 * anything else is done; machines.c lists them. No figures are here: those are in the profile and in the
 * platform. */
#ifndef RANVIER_SIM_WORLD_NAMED_MACHINE_H
#define RANVIER_SIM_WORLD_NAMED_MACHINE_H

#include "runtime/base/error.h"
#include "runtime/base/words.h"

struct named_machine {
        /* As --machine gave it, and without the number of GPUs. */
        char text[64], name[64];
        /* What it is, for a reader. */
        char what[256];
        /* What --profile and --platform take. The profile is "" if none of those that the file names is
         * there. */
        char profile[64], platform[64];
        /* The profiles that the file names, ", " between them. */
        char profiles[128];
        /* The N of NxNAME, which is at most the GPUs of a node; 0: as many as the plan needs. */
        int gpus;
};

/* Looks up a name. RV_EINPUT if there is no such machine (the sentence offers those of like names), if N is
 * more than a node has, or if the file is wrong. */
int named_machine_load(struct named_machine *machine, const char *text, struct rv_error_info *err);

/* Looks up `text` (NULL: nothing is done) and fills `profile` and `platform` where they are NULL: what the
 * command line names by itself comes before the machine's. They then point into `machine`. RV_EINPUT also if
 * the machine has no profile and the caller neither. */
int named_machine_take(struct named_machine *machine, const char *text, const char **profile,
                       const char **platform, struct rv_error_info *err);

/* Returns RV_EPLAN if a plan's `gpus` are more than those of a machine NxNAME. */
int named_machine_check(const struct named_machine *machine, int gpus, struct rv_error_info *err);

/* The words that --machine takes. */
extern const struct option_words named_machine_words;

/* Writes the names of all machines, sorted, as one line "a b c". */
enum { NAMED_MACHINES_TEXT = 1024 };
void named_machine_list(char line[NAMED_MACHINES_TEXT]);

/* The help of --machine, which is the same for all commands. */
#define NAMED_MACHINE_HELP                                                                                   \
        "Profile and platform at once, by name: h100, as many nodes as the plan needs; 8xh100, one node; "   \
        "selene, summit, ... ('ranvier machines' lists them). --profile or --platform beside it comes "      \
        "before its half"

#endif
