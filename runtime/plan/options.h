/* The plan as a user writes it, the same flags for `train` and `simulate`, and the core plan it means. */
#ifndef RANVIER_RUNTIME_PLAN_OPTIONS_H
#define RANVIER_RUNTIME_PLAN_OPTIONS_H

#include "models/memory.h"
#include "runtime/base/command_line.h"
#include "runtime/sched/core.h"

#include <argp.h>

enum options_fusion { FUSION_AUTO, FUSION_ON, FUSION_OFF };
/* How what lies in device memory gets to the network: by itself, or through host memory. */
enum route { ROUTE_AUTO, ROUTE_DIRECT, ROUTE_STAGED, ROUTES };
const char *route_name(enum route route); /* "auto", "direct", "staged" */

struct options {
        struct gpt gpt;
        const char *model; /* as written */
        GRID_SIZES;
        int micro_batch_size; /* sequences */
        int64_t batch_size;   /* sequences, of the whole run; 0: not given */
        int seq_len;          /* 0: the model's n_positions */
        int pipeline_limit;   /* 0: pp */
        enum policy_id policy;
        int deferred_layers;  /* of backwards in two parts: the first layers of a stage that are; 0: all */
        double clip;          /* global norm; 0: off */
        enum dtype dtype;     /* --precision: what tensors are stored as */
        bool precision_given; /* --precision was; else `train` takes fp32, a prediction the profile's */
        bool offload;         /* master parameters and moments in host memory; needs mixed */
        enum recompute recompute;
        bool sequence_parallel; /* needs tp > 1 */
        int virtual_stages;     /* interleaved: stages of the model that one rank works on */
        bool blocking;          /* --p2p blocking: a message holds up the compute lane */
        bool overlap_allreduce; /* gradients are summed as the last backward goes on */
        int zero;               /* 0; 1: optimizer, 3: also weights and gradients sharded over replicas */
        enum plan_order order;
        int split; /* of layers over stages: SPLIT_EVEN, SPLIT_BALANCED, or how many the last one has */
        enum options_fusion fusion; /* --fusion */
        bool fused;                 /* resolved: the fused kernels of models/kernels/kernel.h */
        const char *device;         /* --device: "cpu", "cuda"; NULL: not given */
        bool offload_activations;
        int64_t memory[MEMORY_SPACES]; /* --device-memory, --host-memory: bytes of one rank; 0: not given */
        int64_t bucket_parameters; /* 0: not given; resolved: the default, or the model's if it has fewer */
        int allreduce_buckets;
        enum route messages, allreduce; /* auto is direct, unless options_choose_routes says otherwise */
        const char *report, *trace;
        struct rv_error_info error; /* what the parser found wrong, to be reported by the command */
};

/* --split, else the layers of the last stage. */
enum { SPLIT_EVEN = 0, SPLIT_BALANCED = -1 };

void options_init(struct options *options);

/* How many ranks the grid has. */
int64_t options_ranks(const struct options *options);

/* argp child with the plan's flags and MODEL, the positional argument; its input is a struct options (the
 * command's parser sets state->child_inputs[] at ARGP_KEY_INIT). What is wrong stands in options->error and,
 * under command_line_parse, in its err. */
const struct argp *options_argp(void);
/* Of it, the flags that may hold for several plans: without MODEL, grid, sizes, --report and --trace. */
const struct argp *options_common_argp(void);

/* "auto", "on" or "off" of --fusion; "cpu" or "cuda" (a static string) of --device, as parse.h's do it. */
int options_parse_fusion(const char *text, enum options_fusion *fusion, struct rv_error_info *err);
int options_parse_device(const char *text, const char **device, struct rv_error_info *err);

/* After parsing: loads the model, fills defaults, checks grid, shapes and divisibility. --fusion auto is
 * on; who knows better (a profile) sets `fused` afterwards. `ranks`: how many
 * there are (MPI ranks or GPUs), must be as many as the grid has. */
int options_resolve(struct options *options, int ranks, struct rv_error_info *err);
/* The same for a model that is in options->gpt already. */
int options_resolve_gpt(struct options *options, int ranks, struct rv_error_info *err);

/* The checks of grid and sizes of options_resolve alone, for a plan that was made from a resolved one by
 * changing it: no file is read. flags_check (runtime/plan/flags.h) has those that need no model. */
int options_check(struct options *options, int ranks, struct rv_error_info *err);

/* What computes: "cpu" where --device is not given. */
const char *options_device(const struct options *options);

/* Settles the routes on a device whose memory the network reaches as given: auto becomes direct where it does
 * and staged where it does not; direct, where it does not, is refused. */
int options_choose_routes(struct options *options, bool sends_device_memory, bool sums_device_memory,
                          struct rv_error_info *err);

/* What the core needs of it. */
struct plan options_plan(const struct options *options, bool forward_only);

/* What the rank at position `index` of a pipeline has of the model, as the first of its shards has it; all
 * are of equal sizes. */
struct stage options_stage(const struct options *options, int index);

/* What a core knows of stage `index` on shard `shard`. */
struct core_stage options_core_stage(const struct options *options, int index, int shard);

/* What memory depends on, for one stage. */
struct memory_plan options_memory(const struct options *options, int stage);

/* Mixed precision: 16 bits stored, fp32 master parameters and moments. */
static inline bool options_mixed(const struct options *options)
{
        return options->dtype != DTYPE_FP32;
}

/* Whether a backward is two operations; and of how many of a stage's layers it is (partition_parts): 0 if it
 * is one. */
bool options_parts_backward(const struct options *options);
int options_deferred_layers(const struct options *options, const struct stage *stage);

/* What the work on a micro-batch depends on. */
struct work options_work(const struct options *options);

#endif
