/* The plan as a user writes it, the same flags for `train` and `simulate`, and the core plan it means. */
#ifndef RANVIER_RUNTIME_ENGINE_OPTIONS_H
#define RANVIER_RUNTIME_ENGINE_OPTIONS_H

#include "models/memory.h"
#include "runtime/sched/core.h"

#include <argp.h>

enum options_fusion { FUSION_AUTO, FUSION_ON, FUSION_OFF };
/* How what lies in device memory gets to the network: by itself, or through host memory. */
enum route { ROUTE_AUTO, ROUTE_DIRECT, ROUTE_STAGED, ROUTES };
const char *route_name(enum route route); /* "auto", "direct", "staged" */

struct options {
        struct gpt gpt;
        const char *model; /* as written */
        int pp, dp;
        int micro_batch_size; /* sequences */
        int64_t batch_size;   /* sequences, of the whole run; 0: not given */
        int seq_len;          /* 0: the model's n_positions */
        int pipeline_limit;   /* 0: pp */
        enum policy_id policy;
        double clip; /* global norm; 0: off */
        bool mixed;  /* --precision mixed or bf16: 16 bits stored, fp32 master parameters and moments */
        bool bf16;   /* mixed: bf16, else fp16 */
        bool precision_given; /* --precision was; else `train` takes fp32, a prediction the profile's */
        bool offload;         /* master parameters and moments in host memory; needs mixed */
        enum recompute recompute;
        int tp;                 /* shards of each stage, AxoNN's G_intra */
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

/* pp x dp x tp; and as it is written, "--pp 2 x --dp 3", with tp if it is more than 1, into `text`. */
int64_t options_ranks(const struct options *options);
enum { OPTIONS_GRID = 64 };
char *options_grid(const struct options *options, char text[OPTIONS_GRID]);

/* Parses a command line: what argp_parse does, without ever ending the process or printing an error. Knows
 * --help, --usage and --version itself. `input` goes to `argp`'s parser. A parser that finds a value wrong
 * fills options_error(state) (with rv_fail or options_parse_int) and returns EINVAL. Everything else that can
 * be wrong (an unknown or ambiguous option, a missing or needless argument, one word too many) becomes a
 * sentence here. Help is printed to stdout unless `quiet` (ranks but the first), under the name argv[0] with
 * "ranvier-x" read as "ranvier x". Returns 0, OPTIONS_DONE (help was asked for: exit 0), RV_EINPUT,
 * RV_ENOTBUILT (exit 2), or RV_ESYSTEM (help could not be printed). */
enum { OPTIONS_DONE = 1 };
int options_parse(const struct argp *argp, int argc, char **argv, void *input, bool quiet,
                  struct rv_error_info *err);

/* Where a parser under options_parse says what is wrong; NULL under plain argp_parse. */
struct rv_error_info *options_error(const struct argp_state *state);

/* argp child with the plan's flags and MODEL, the positional argument; its input is a struct options (the
 * command's parser sets state->child_inputs[] at ARGP_KEY_INIT). Flags that later versions bring are known
 * and refused by name ("--sequence-parallel is not built yet"). What is wrong stands in options->error and,
 * under options_parse, in its err. */
extern const struct argp options_argp;
/* Of it, the flags that may hold for several plans: without MODEL, grid, sizes, --report and --trace. */
extern const struct argp options_common_argp;

/* After parsing: loads the model, fills defaults, checks grid, shapes and divisibility. --fusion auto is
 * on; who knows better (a profile) sets `fused` afterwards. `ranks`: how many
 * there are (MPI ranks or GPUs), must equal pp x dp x tp. */
int options_resolve(struct options *options, int ranks, struct rv_error_info *err);
/* The same for a model that is in options->gpt already. */
int options_resolve_gpt(struct options *options, int ranks, struct rv_error_info *err);

/* The checks of options_resolve alone, for a plan that was made from a resolved one by changing it: no file
 * is read. What can be said before the model is known: an option is missing, or is not for another one; and
 * what can be said then, of the grid and of sizes. */
int options_check_given(const struct options *options, struct rv_error_info *err);
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

/* Whether a backward is two operations. */
bool options_parts_backward(const struct options *options);

/* What the work on a micro-batch depends on. */
struct work options_work(const struct options *options);
/* Of it, what tensors are stored as. */
enum half options_format(const struct options *options);

/* Parses "2GiB", "500MB", "4096" into bytes; 0 or -1. */
int options_parse_bytes(const char *text, int64_t *bytes);

/* Parses "1GB/s", "500MB/s", "2.5GiB/s" into bytes a second, more than 0. On failure says `option`, what was
 * found and what is right. */
int options_parse_rate(const char *option, const char *text, double *bytes_per_second,
                       struct rv_error_info *err);

/* Parses a number of tokens from 1 to 9e18: "300e9", or with K, M, B or T "300B". On failure says `option`,
 * what was found and what is right. */
int options_parse_tokens(const char *option, const char *text, double *tokens, struct rv_error_info *err);

/* The name of a file, not empty. */
int options_parse_path(const char *option, const char *text, const char **path, struct rv_error_info *err);

/* Parses a whole number in [least, most]; on failure says `option`, what was found and what is right. */
int options_parse_int(const char *option, const char *text, int64_t least, int64_t most, int64_t *value,
                      struct rv_error_info *err);
/* The same where `most` is an int's. */
int options_parse_count(const char *option, const char *text, int least, int most, int *value,
                        struct rv_error_info *err);

/* "on" or "off"; auto, on or off; "cpu" or "cuda" (a static string). On failure says `option`, what was found
 * and what there is, and leaves what there was. */
int options_parse_switch(const char *option, const char *text, bool *on, struct rv_error_info *err);
int options_parse_fusion(const char *text, enum options_fusion *fusion, struct rv_error_info *err);
int options_parse_device(const char *text, const char **device, struct rv_error_info *err);

/* The command line as it was written, for the report, with `name` for argv[0]. The caller frees it; NULL: no
 * memory. */
char *options_command_line(const char *name, int argc, char **argv);

#endif
