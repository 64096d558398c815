/* How a framework runs a model, as data: a JSON in runtime/plan/frameworks with a source for every fact.
 *
 * A framework is a list of terms, each with a name, a sentence, and a source (or the word that it is an
 * assumption). A term may say which flags of a plan the framework has by default, by which further bytes or
 * instead of which kernels it computes what a kernel of ours does, what launches cost its host, what it keeps
 * in memory beside, and two figures of a kind of GPU. Any of them can be left out (--without), so that what
 * each does to a prediction can be seen.
 *
 * `ranvier simulate --like NAME` calls framework_take after the command line was parsed; sweep and validate
 * do for every plan. The pointer in struct options is then all that pricing (runtime/engine/price.c) and
 * memory (options_memory) need. A training has no framework: it is ranvier's own. */
#ifndef RANVIER_RUNTIME_PLAN_FRAMEWORK_H
#define RANVIER_RUNTIME_PLAN_FRAMEWORK_H

#include "runtime/plan/flags.h"

#include <jansson.h>

enum {
        FRAMEWORK_TERMS = 24,
        FRAMEWORK_RULES = 96,
        FRAMEWORK_FLAGS = 32,
        FRAMEWORK_FIGURES = 16,
        FRAMEWORK_WHENS = 2,
        FRAMEWORK_TEXT = 640 /* room for what framework_write_... write */
};

/* What is launched for a kernel of a kind, beside it or instead of it. */
struct framework_rule {
        int term;
        enum kernel_kind kind;
        bool instead;
        /* Only where the kernel adds to its output, as products that make gradients of weights do. */
        bool accumulating;
        /* By how many launches; 0: within the kernel itself, whose bytes become more. */
        int launches;
        /* By how many launches a kernel on the rows of experts is run itself, for each of these; 0: by one.
         */
        int launches_an_expert;
        /* Moved for each element of the kernel's matrix (batch x m x n; a flat array's m): elements of the
         * format of tensors, and bytes whatever that is. */
        double elements, bytes;
        /* The matrix is (m, k), as of attention's queries, not (m, n). */
        bool width;
        /* Bytes of memory for each element of it: kept by each micro-batch from its forward to its backward,
         * held once while a pass runs, and kept from the first pass on, once for all kernels of blocks that
         * have a matrix of one shape. */
        double kept_bytes, held_bytes, cached_bytes;
};

/* Figures of a kind of GPU. What products reach at most if a side of one of their matrices is no multiple of
 * 8, and what the framework's attention does, forward and backward, are in floating-point operations a second
 * (kernel_flops). The errors are relative standard errors: of what a launch costs the host, and of a batch
 * between runs of one plan. */
enum framework_value {
        FRAMEWORK_SUSTAINED_RATE,
        FRAMEWORK_HOST_SECONDS_A_STEP,
        FRAMEWORK_HOST_SECONDS_A_KERNEL,
        FRAMEWORK_UNALIGNED_FLOPS_PER_SECOND,
        FRAMEWORK_ATTENTION_FLOPS_PER_SECOND,
        FRAMEWORK_ATTENTION_BACKWARD_FLOPS_PER_SECOND,
        FRAMEWORK_HOST_ERROR,
        FRAMEWORK_RUN_ERROR,
        FRAMEWORK_VALUES
};

struct framework {
        char name[64], path[1024];
        json_t *document; /* the file, for its texts; owned */
        int64_t number;   /* which of all that this thread has loaded: no two have the same */
        struct framework_term {
                const char *name; /* of the document */
                bool left_out;
        } terms[FRAMEWORK_TERMS];
        int term_count;
        struct framework_rule rules[FRAMEWORK_RULES];
        int rule_count;
        /* Flags of a plan, in the order in which they are tried. */
        struct framework_flag {
                int term;
                const struct flag *flag;
                const char *text; /* of the document */
                /* Only for plans in which other flags have these values, or any `other`; flag NULL: no
                 * condition. */
                struct framework_when {
                        const struct flag *flag;
                        const char *text;
                        bool other;
                } whens[FRAMEWORK_WHENS];
        } flags[FRAMEWORK_FLAGS];
        int flag_count;
        /* Of which terms it is that passes are launched kernel by kernel and not as graphs, and that updated
         * parameters are broadcast (framework_broadcasts); -1: no term says it. */
        int eager_term, broadcast_term;
        /* What was fitted or cited for a kind of GPU, whose profile's device has `gpu` in its name. */
        struct framework_figure {
                int term;
                const char *gpu;                 /* of the document; NULL: of all */
                double values[FRAMEWORK_VALUES]; /* 0: not said */
        } figures[FRAMEWORK_FIGURES];
        int figure_count;
};

/* Reads the framework of that name, or one of its aliases, or a file whose name has a slash or ends in .json.
 * `without` (NULL: nothing) names terms to leave out, between commas; "kernels" stands for all that change
 * prices. RV_EINPUT says where, what was found and what would be right; an unknown name is told the nearest
 * ones. The caller calls framework_free; after an error there is nothing to free. */
int framework_load(struct framework *framework, const char *name, const char *without,
                   struct rv_error_info *err);
void framework_free(struct framework *framework);

/* The words that framework_load takes. */
extern const struct option_words framework_words;

/* Writes the names of all frameworks that come with the program, sorted, as one line. Returns `line`. */
char *framework_list(char *line, size_t size);

/* Loads options->like into `framework`, if it is given, and sets options->framework and its flags
 * (framework_flags). Without --like, --without is RV_EINPUT. `framework` must live as long as the options do,
 * and is the caller's to free (zeros are nothing to free), after an error too. */
int framework_take(struct framework *framework, struct options *options, struct rv_error_info *err);

/* Gives a plan the flags of its framework that were not given otherwise (options->given). One that does not
 * go together with the rest of the plan is left out. options->of_framework then has the bits of those that
 * came from it. Does nothing for a plan without one. */
void framework_flags(struct options *options);

/* Writes the flags that a plan has from its framework, as "--p2p blocking --order replicas", or, with
 * `left_out`, those that it has otherwise because they were given so, or do not go with it. */
void framework_write_flags(const struct options *options, bool left_out, char *text, size_t size);

/* Writes the names of the terms that hold, or of those that are left out, between commas. */
void framework_write_terms(const struct framework *framework, bool held, char *text, size_t size);

/* Returns what a report says of a plan's framework: its name, its terms, and its flags. The caller owns it.
 */
json_t *framework_json(const struct options *options);

/* Whether it changes what any kernel, launch or batch takes. */
bool framework_prices(const struct framework *framework);

/* What a framework does for a kernel. */
struct framework_cost {
        bool instead; /* of the kernel itself */
        /* Bytes moved by the kernel itself beside its own, and by `launches` further kernels. */
        double within_bytes, bytes;
        int launches;
        int own_launches; /* of the kernel itself, if it is run */
};
/* Returns it; zeros for no framework (NULL). */
struct framework_cost framework_cost(const struct framework *framework, const struct kernel *kernel);

/* Returns the seconds that the host of a device, by its name, needs to launch a kernel; 0: nothing is said.
 * `eager` becomes whether passes are launched kernel by kernel. */
double framework_host_seconds(const struct framework *framework, const char *device, bool *eager);

/* Returns the part of the peak's rate that products on a device, by its name, reach in a training at most, as
 * power allows; 0: nothing is said. */
double framework_sustained_rate(const struct framework *framework, const char *device);

/* Whether a figure of a device was fitted on a run: its "fitted_on" begins with these words. */
bool framework_fitted_on(const struct framework *framework, const char *device, const char *run);

/* Return the relative standard errors of framework_host_seconds, and of the time of a batch between runs of
 * one plan, which no price explains; 0: nothing is said. */
double framework_host_error(const struct framework *framework, const char *device);
double framework_run_error(const struct framework *framework, const char *device);

/* Returns the seconds that the host of a device adds to every batch. */
double framework_host_step(const struct framework *framework, const char *device);

/* Returns how many broadcasts of updated parameters follow an update of a plan, one for each replica that
 * owns tensors (--zero 1); 0 if its framework gathers them at once. */
int framework_broadcasts(const struct options *options);

/* Returns the seconds that a kernel takes at least: a product because it is not of multiples of 8, attention
 * because the framework's is no faster (0: it is neither, or nothing is said). */
double framework_least_seconds(const struct framework *framework, const char *device,
                               const struct kernel *kernel);

/* Returns the bytes of device memory that it has beside the program's on the ranks at position `stage` of a
 * pipeline, with so many micro-batches stored (memory_plan.slots). */
int64_t framework_memory(const struct options *options, const struct stage *stage, int slots);

#endif
