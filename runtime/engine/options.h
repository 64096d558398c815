/* The plan as a user writes it, the same flags for `train` and `simulate`, and the core plan it means. */
#ifndef RANVIER_RUNTIME_ENGINE_OPTIONS_H
#define RANVIER_RUNTIME_ENGINE_OPTIONS_H

#include "models/memory.h"
#include "runtime/sched/core.h"

#include <argp.h>

struct options {
        struct gpt gpt;
        const char *model;        /* as written */
        int pp, dp;
        int micro_batch_size;     /* sequences */
        int64_t batch_size;       /* sequences, of the whole run; 0: not given */
        int seq_len;              /* 0: the model's n_positions */
        int pipeline_limit;       /* 0: pp */
        enum policy_id policy;
        double clip;              /* global norm; 0: off */
        int64_t bucket_parameters;
        int allreduce_buckets;
        const char *report, *trace;
        struct rv_error_info error; /* what the parser found wrong, to be reported by the command */
};

void options_init(struct options *options);

/* argp child with the plan's flags; its input is a struct options. Flags that later versions bring are known and
 * refused by name ("--offload is not built yet"). Use options_argp_children in the command's struct argp. */
extern const struct argp options_argp;

/* After parsing: loads the model, fills defaults, checks grid, shapes and divisibility. `ranks`: how many there
 * are (MPI ranks or GPUs), must equal pp x dp. */
int options_resolve(struct options *options, int ranks, struct rv_error_info *err);

/* What the core needs of it. */
struct plan options_plan(const struct options *options, bool forward_only);

/* What memory depends on, for one stage. */
struct memory_plan options_memory(const struct options *options, int stage);

/* Parses "2GiB", "500MB", "4096" into bytes; 0 or -1. */
int options_parse_bytes(const char *text, int64_t *bytes);

/* Parses a whole number in [least, most]; on failure says `option`, what was found and what is right. */
int options_parse_int(const char *option, const char *text, int64_t least, int64_t most, int64_t *value,
                      struct rv_error_info *err);

#endif
