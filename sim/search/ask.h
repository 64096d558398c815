/* What is asked of a search for plans: the model, the machine, which values of which flags are to be tried,
 * and what is the same for all plans. `ranvier sweep` and `ranvier plan` have these options in common.
 *
 * The order of calls: ask_init, command_line_parse with ask_argp as a child, ask_machine, then whatever the
 * command sets by itself, ask_resolve; ask_free at the end, after an error too. */
#ifndef RANVIER_SIM_SEARCH_ASK_H
#define RANVIER_SIM_SEARCH_ASK_H

#include "runtime/plan/framework.h"
#include "sim/search/space.h"
#include "sim/world/checkpoints.h"
#include "sim/world/named_machine.h"

enum { ASK_FLAGS = 64 };

/* Texts are those of argv. */
struct ask {
        const char *model, *machine, *profile, *platform;
        /* Of --machine; profile and platform may point into it. */
        struct named_machine named;
        struct space space;
        /* NULL: --plans was not given. */
        const char *plans;
        /* Where those are plans that a tool has words for: it as launch_can_write takes it; else "". */
        char tool[32];
        /* By flag, as flags_all has them: as given for all plans, or NULL. */
        const char *fixed[ASK_FLAGS];
        bool recompute_given;
        /* Of the whole training, and as given; NULL: not. */
        double tokens;
        const char *tokens_text;
        /* 0: not given. */
        int jobs;
        bool fits_only;
        struct checkpoints_asked checkpoints;
        /* Of --like. */
        struct framework framework;
};

void ask_init(struct ask *ask);
void ask_free(struct ask *ask);

/* Returns an argp child with the options and MODEL; its input is a struct ask. The groups of its headings are
 * 1 to ASK_GROUPS, so that a command's own begin behind. */
enum { ASK_GROUPS = 3 };
const struct argp *ask_argp(void);

/* Takes from --machine what it says of profile, platform and numbers of devices, and checks that all three
 * are known then. RV_EINPUT says what is missing. */
int ask_machine(struct ask *ask, struct rv_error_info *err);

/* Takes what --plans and --like say of what is not given, and completes and checks the plan that all
 * candidates begin from. */
int ask_resolve(struct ask *ask, struct rv_error_info *err);

/* A space's `allows`, whose context is the ask: whether a plan is one of --plans. */
int ask_allows(void *ask, const struct options *plan, struct rv_error_info *why);

/* Sets a flag for all plans, as if the command line had given it this value, which must stay where it is. */
int ask_fix(struct ask *ask, const char *flag, const char *value, struct rv_error_info *err);

/* Prints the flags of one of the plans that are not the same for all, each after a blank. */
void ask_print_plan(const struct options *plan, FILE *out);

/* Prints the command that simulates one of the plans, as a line. */
void ask_print_command(const struct ask *ask, const struct options *plan, FILE *out);

/* Returns how many processes may work at once, at least 1, where `local` ranks of mpirun share this host. */
int ask_processes(const struct ask *ask, int local);

#endif
