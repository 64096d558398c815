/* The tables of tools, and what their files read and write with them. A file is first taken apart into items,
 * keys with values, whatever its format. A tool's table has a row for each key that means something for a
 * plan, by which items become flags of a plan and flags become items; what a row cannot say is in two
 * functions of the tool. For the files of this folder alone. */
#ifndef RANVIER_RUNTIME_LAUNCH_TABLE_H
#define RANVIER_RUNTIME_LAUNCH_TABLE_H

#include "runtime/launch/launch.h"
#include "runtime/plan/flags.h"

/* "--tensor-model-parallel-size" (dashes for "_"), or "training.seq_len", and its value as text: "" of a
 * switch. A value that a script does not tell has MARK before, and MARK_END behind, what stands for it. */
struct launch_item {
        char *key, *value;
        int line;
};
enum { MARK = 1, MARK_END = 2 };

struct launch_row {
        const char *theirs; /* the key */
        const char *ours;   /* the flag; of ROW_MODEL the key of a config.json */
        enum {
                /* The value is the flag's. */
                ROW_VALUE,
                /* Values and the flag's, in `values`: "alltoall=all-to-all flex=deepep". */
                ROW_CHOICE,
                /* Given, or true: the flag is the first of `values`, which are between blanks; the key is
                 * written where the flag has one of them. */
                ROW_SWITCH,
                /* The tool's functions read and write it. */
                ROW_OWN,
                /* A number of the model's. */
                ROW_MODEL,
                /* Right where it has one of `values`; anything else changes the plan and is not built. */
                ROW_ONLY,
                /* Changes the time or memory of a training, and is not modelled. */
                ROW_UNMODELLED,
                /* Of who starts the training: how many GPUs there are. It may be unknown. */
                ROW_GPUS
        } how;
        const char *values;
        const char *absent; /* the flag's value where the file has no such key; NULL: nothing follows */
        const char *why;    /* of ROW_ONLY: what would be right, or NULL */
};

/* A file that is being written: its items, and the lines around them that only their tool has. */
struct launch_output {
        const struct options *options;
        int gpus, gpus_a_node;
        struct launch_item *items;
        int count;
        char left[1024]; /* flags of the plan that the tool has from elsewhere, each with a blank before it */
};

struct launch_tool {
        const char *name, *title;
        const struct launch_row *rows; /* up to one without a key */
        /* Keys that mean nothing for time and memory, up to a NULL; "x.*" is all that begins with "x.". */
        const char *const *nothing;
        /* Flags of a plan that change nothing of what the tool is told, or that it is told elsewhere (in its
         * training script, say), between blanks; the first change nothing but a prediction. */
        const char *ours_alone, *elsewhere;
        int (*read)(struct launch *, struct rv_error_info *err);
        int (*write)(struct launch_output *, struct rv_error_info *err); /* NULL: it is only read */
        int (*print)(const struct launch_output *, const char *path, struct rv_error_info *err);
        const char *like; /* the framework of a prediction; NULL: none */
        /* Whether it knows a key that no row has; NULL: it does not. */
        bool (*knows)(const char *key);
        /* Returns 0, or RV_EPLAN with a sentence: the tool has no such model; NULL: it takes any. */
        int (*check_model)(const struct gpt *gpt, struct rv_error_info *err);
};

extern const struct launch_tool launch_megatron, launch_torchtitan, launch_deepspeed, launch_accelerate,
        launch_ranvier;

/* ---- reading ---- */

/* Adds an item. Returns 0 or RV_ESYSTEM. */
int launch_add_item(struct launch *, const char *key, const char *value, int line, struct rv_error_info *err);

/* Returns the last item of a key, or its value; NULL: there is none. */
const struct launch_item *launch_item(const struct launch *, const char *key);
const char *launch_value(const struct launch *, const char *key);
/* Whether a switch is given and not said to be off. */
bool launch_is_on(const struct launch *, const char *key);
/* Reads a whole number of an item, which stays as it is without one. Returns 0 or RV_EINPUT. */
int launch_number(const struct launch *, const char *key, int64_t *value, struct rv_error_info *err);

/* Says a flag of the plan: `key` (NULL: the tool's default) is the row's that it follows from. A later word
 * on a flag takes the place of an earlier one. Returns 0 or RV_ESYSTEM. */
int launch_say(struct launch *, const char *flag, const char *text, const char *key,
               struct rv_error_info *err);
/* Returns what is said of a flag; NULL: nothing. */
const char *launch_said(const struct launch *, const char *flag);

/* Fails with "path:line: key is VALUE; SENTENCE" of an item. */
int launch_wrong(const struct launch *, const char *key, enum rv_error code, struct rv_error_info *err,
                 const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Returns the row of a key; NULL: there is none. */
const struct launch_row *launch_row(const struct launch_tool *, const char *key);

/* Makes items of the file at launch->path, whatever its format, and says whose it is. Returns 0 or a negative
 * rv_error. */
int launch_read_file(struct launch *, struct rv_error_info *err);

/* Readers of formats: each makes items of `text`. The shell's also says whose command it found. */
int launch_read_shell(struct launch *, const char *text, struct rv_error_info *err);
int launch_read_yaml(struct launch *, const char *text, struct rv_error_info *err);

/* What launch_open does with items once they are there: says flags of the plan, and stores them. */
int launch_take(struct launch *, bool predicts, struct options *, struct rv_error_info *err);

/* The model of a Megatron-LM script, by its rows of ROW_MODEL; and the flags of a model. */
int launch_read_model(struct launch *, struct rv_error_info *err);
int launch_write_model(struct launch_output *, struct rv_error_info *err);

/* ---- writing ---- */

/* Adds an item. Returns 0 or RV_ESYSTEM. */
int launch_put(struct launch_output *, const char *key, struct rv_error_info *err, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* Of the values of a row with choices, "theirs=ours theirs=ours": the one beside `word`, which is theirs or,
 * with `ours`, becomes ours; "": there is none. Returns `text`. */
char *launch_choice(const char *values, const char *word, bool ours, char text[FLAG_TEXT]);

#endif
