/* Plans in the words of other tools. launch_open reads what another tool is started with (--from): a launch
 * script of Megatron-LM, a configuration of DeepSpeed, torchtitan or accelerate, a config.json, or a line of
 * ranvier itself; what that says of a plan then is as if it stood on the command line before the user's own
 * flags. launch_write writes a plan as such a tool takes it (--launch). Both go by one table a tool
 * (table.h). Nothing of a script is run, and no environment is looked at. */
#ifndef RANVIER_RUNTIME_LAUNCH_LAUNCH_H
#define RANVIER_RUNTIME_LAUNCH_LAUNCH_H

#include "runtime/base/file.h"
#include "runtime/plan/options.h"

#include <stdio.h>

struct launch_tool;

/* One flag of a plan as a file has it. */
struct launch_word {
        const struct flag *flag;
        char *text;         /* its value; "yes" or "no" for a switch */
        const char *theirs; /* what the file calls it, of a table; NULL: the tool's default */
        char *found;        /* and the value there; NULL likewise */
        int line;           /* in the file; 0: the tool's default */
};

/* What a file says. Begins as zeros: then it says nothing. */
struct launch {
        char path[1024];
        const struct launch_tool *tool; /* whose file it is; NULL: none was read */
        struct launch_item *items;      /* its keys and values (table.h) */
        int item_count;
        struct launch_word *words;
        int word_count;
        int gpus;           /* 0: the file does not say */
        int micro_batches;  /* of a replica in a batch, where the file says that in the batch's place; else 0
                             */
        int share_groups;   /* groups of replicas that share, where the file says that; else 0 */
        char model[1024];   /* the name of a preset, or a file; "": none */
        json_t *described;  /* a model that is no preset, as a config.json has it; NULL: none */
        char no_model[512]; /* why there is neither; "": the file does not speak of one */
        /* Names, each with a blank before it: of what means nothing for time and memory; of what is known and
         * not modelled; and of what did not go together with the plan and was left out. */
        char nothing[4096], unmodelled[1024], left_out[256];
        /* Likewise keys whose value is "auto": the trainer fills them in. */
        char automatic[1024];
        int nothing_count;
};

/* Looks for --from FILE among the words of a command line; without it nothing happens. Reads the file and
 * stores what it says in `options`, which were initialised and not parsed yet. `predicts` says that flags of
 * predictions (--like) are taken too. Returns 0 or a negative rv_error with a sentence that names file, line
 * and what is wrong there. After an error too, the caller calls launch_close; options->model and
 * options->described point into `launch` until then. */
int launch_open(struct launch *, int argc, char *const *argv, bool predicts, struct options *,
                struct rv_error_info *err);

/* Once the command line was parsed, and so many GPUs (or ranks) are known: completes what follows from the
 * other flags, as the tool does: replicas, the batch, the model. What was given on the command line stays.
 * Does nothing where no file was read. Returns 0, or a negative rv_error with a sentence. */
int launch_settle(struct launch *, struct options *, int gpus, struct rv_error_info *err);

/* For whoever needs one plan, behind launch_settle: returns 0, or RV_EINPUT with a sentence where the file
 * has "auto" for a size of batches that nobody else says. */
int launch_check_automatic(const struct launch *, const struct options *, struct rv_error_info *err);

/* Prints a line on what the file was taken for, what of it was not used, and, if `predicted` is a plan that
 * is predicted as ranvier runs it and not as a framework does, that it is. Returns the same for a report; the
 * caller owns it. */
void launch_print(const struct launch *, const char *command, const struct options *predicted, FILE *);
json_t *launch_json(const struct launch *);

void launch_close(struct launch *);

/* Whether `word` is one of those in `list`, which are between blanks. */
bool launch_lists(const char *list, const char *word);

/* ---- writing ---- */

/* Checks a list "TOOL=FILE,TOOL=FILE" (slurm among the tools: a job that starts the other one, or ranvier;
 * NULL: there is none), also against the other files of the command line. Returns 0, or RV_EINPUT with a
 * sentence that says what would be right. */
int launch_check(const char *list, const struct file_use *uses, int count, struct rv_error_info *err);

/* Returns 0, or RV_EPLAN with a sentence: one of the tools of the list has no such model at all. */
int launch_check_model(const char *list, const struct gpt *gpt, struct rv_error_info *err);

/* Returns whether launch_write would write a plan, as 0 or the error that it would be. */
int launch_can_write(const struct options *, int gpus, int gpus_a_node, const char *list,
                     struct rv_error_info *err);

/* Writes a resolved plan, for so many GPUs of which a node has `gpus_a_node` (0: eight, or all of fewer), as
 * the list says. What a tool does not have and what changes the plan is RV_EPLAN with a sentence that names
 * the flag and the tool. What the tool has from elsewhere is told on `notes` (NULL: not at all), a line a
 * file. An error that a plan is to blame for comes before any file is written;
 * each file is whole. */
int launch_write(const struct options *, int gpus, int gpus_a_node, const char *list, FILE *notes,
                 struct rv_error_info *err);

#endif
