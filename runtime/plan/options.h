/* The options of a plan: how a user asks for a training, with the same flags for train, simulate, sweep and
 * validate. This module parses them (by the rows of flags.h), loads the model, fills in defaults, checks that
 * everything goes together, and derives what the other modules take: a struct plan for the scheduling core, a
 * struct memory_plan for the accounting of memory, and a struct work for what kernels compute.
 *
 * A program calls options_init, parses with options_argp, calls options_resolve, and may then call the
 * functions below it. It does not look at the data, the optimizer's settings or a platform. */
#ifndef RANVIER_RUNTIME_PLAN_OPTIONS_H
#define RANVIER_RUNTIME_PLAN_OPTIONS_H

#include "models/memory.h"
#include "models/routing.h"
#include "runtime/base/command_line.h"
#include "runtime/sched/core.h"

#include <argp.h>

/* --fusion: whether the fused kernels are used; see struct options, `fused`. */
enum options_fusion { FUSION_AUTO, FUSION_ON, FUSION_OFF };

/* --cp-exchange: keys and values go from rank to rank in a ring, or all are gathered. */
enum context_exchange { CONTEXT_RING, CONTEXT_ALL_GATHER };

/* How data in device memory gets to the network: directly, or staged through host memory by copies that the
 * schedule plans. */
enum route { ROUTE_AUTO, ROUTE_DIRECT, ROUTE_STAGED, ROUTES };
const char *route_name(enum route route); /* "auto", "direct", "staged" */

struct framework; /* framework.h */

/* --gradients and --reduce-dtype: what gradients of 16-bit tensors are kept in. Auto is fp32 in bf16, in
 * whose 8 bits a sum of many micro-batches does not grow, and 16-bit in fp16. */
enum gradient_dtype { GRADIENTS_AUTO, GRADIENTS_16_BIT, GRADIENTS_FP32 };

enum gather_each { GATHER_EACH_MICRO_BATCH, GATHER_EACH_BATCH };

/* One plan. Texts are those of argv, not copies. What is said to be resolved is set by options_resolve. */
struct options {
        struct gpt gpt;    /* resolved: the model */
        const char *model; /* MODEL as written, the name of a preset or of a file; NULL: not given */
        GRID_SIZES;
        int logical_dp; /* so many replicas dp of them stand for; 0: as many */
        int tp_x, tp_z; /* of the tp shards, where they are a grid: how many lie along x and z; else 1 */
        int micro_batch_size; /* sequences that go through a stage at once */
        int64_t batch_size;   /* sequences of one batch over all ranks; 0: not given */
        int seq_len;          /* tokens of a sequence; 0: not given; resolved: the model's n_positions */
        int pipeline_limit;   /* for axonn: most micro-batches under way in a pipeline; 0: pp */
        enum policy_id policy;
        /* For schedules whose backward is in two parts: only the first so many layers of each stage have
         * theirs in two parts. 0: all layers. */
        int deferred_layers;
        double clip;                /* the global norm to which gradients are clipped; 0: they are not */
        enum dtype dtype;           /* --precision: what tensors are stored as */
        enum product_format format; /* and what products read, if that is another; then dtype is DTYPE_BF16 */
        enum scaling scaling;       /* --scaling, of fp8 */
        enum gradient_dtype gradients; /* see options_wide_gradients */
        bool precision_given;          /* else train takes fp32, and a prediction takes its profile's */
        bool offload; /* master parameters and moments are in host memory; needs 16-bit tensors */
        enum recompute recompute;
        int ep; /* over so many replicas the experts of a layer are spread; divides dp */
        enum dispatcher { DISPATCHER_ALL_TO_ALL, DISPATCHER_DEEPEP } dispatcher; /* of their rows */
        int etp; /* over so many shards an expert is split: 1, or tp, which 0 stands for */
        int cp;  /* replicas that have parts of the same sequences, beside the dp that have their own; 0: 1 */
        enum context_exchange cp_exchange; /* how these exchange keys and values */
        double expert_capacity; /* memory for so many times an even share of rows; 0: for all that may come */
        struct routing routing; /* how a prediction's tokens spread over experts */
        bool sequence_parallel; /* needs tp > 1 */
        int tp_overlap; /* pieces of products beside which shards sum those before; 0: beside nothing */
        enum grid_overlap grid_overlap;
        int virtual_stages;     /* chunks of the model on each rank; 1 but for interleaved */
        bool blocking;          /* --p2p blocking: a message holds up the compute lane */
        bool overlap_allreduce; /* gradients are summed while the last backward goes on */
        /* What the replicas share: 0 nothing, 1 the optimizer, 3 weights and gradients, too. */
        int zero;
        /* Zero 3: blocks of a unit; units gathered ahead; weights are freed after a unit's forward; and
         * whether they are gathered, and gradients reduced, for each micro-batch or once a batch. */
        int unit_layers, prefetch;
        /* Hybrid shards: how many neighbouring replicas share, of whom other groups have the same; 0: all. */
        int shard_replicas;
        enum gradient_dtype reduced; /* see options_reduces_fp32 */
        bool offload_parameters;     /* with zero 3: the replica's shares of weights are in host memory */
        bool reshard;
        enum gather_each gather_each;
        enum plan_order order;
        int split; /* how layers are split over stages: see SPLIT_EVEN below */
        enum options_fusion fusion;
        bool fused;         /* resolved: the fused kernels of models/kernels/kernel.h are used */
        const char *device; /* "cpu" or "cuda"; NULL: not given */
        bool offload_activations;
        /* --device-memory and --host-memory: bytes that one rank may use; 0: not given. */
        int64_t memory[MEMORY_SPACES];
        /* Parameters of a bucket: one optimizer update works on a bucket (offloaded: on a third of one). 0:
         * not given; resolved: 16 million, or the model's if it has fewer. */
        int64_t bucket_parameters;
        int allreduce_buckets; /* how many buckets one all-reduce sums */
        /* The most bytes of logits that exist at once (work.logits_bytes): INT64_MAX: a micro-batch's; 0:
         * auto, which counts as WORKLOAD_LOGITS_BYTES until capacity_choose_logits has settled it. */
        int64_t logits_bytes;
        /* Auto counts as direct until options_choose_routes has settled it. */
        enum route messages, allreduce;
        const char *report, *trace; /* files to write; NULL: none */
        /* --from (runtime/launch), and the model that its file describes, which is the caller's: then `model`
         * is the name of that file. NULL: none. */
        const char *from;
        const json_t *described;
        /* Of a prediction: the framework that it is like, and what of that is left out; NULL: as written.
         * And, once framework_take has read it, the framework itself, which is the caller's. */
        const char *like, *without;
        const struct framework *framework;
        /* Of all flags, by their place in flags_all: those that were parsed, and those that the framework
         * gave. */
        uint64_t given, of_framework;
};

/* Values of options.split: layers as evenly over the stages as can be; or fewer on the last one, which has
 * the output projection too, by floating-point operations. A value from 0 on is the number of layers of the
 * last stage. */
enum { SPLIT_EVEN = -2, SPLIT_BALANCED = -1 };

/* Fills in the defaults of all flags, before a command line is parsed. */
void options_init(struct options *options);

/* Returns how many ranks the grid has. */
int64_t options_ranks(const struct options *options);

/* Returns how many replicas have parts of the same sequences, and how many replicas there are in all: dp with
 * sequences of their own, times those. */
static inline int options_context_ranks(const struct options *options)
{
        return options->cp > 1 ? options->cp : 1;
}
static inline int options_replicas(const struct options *options)
{
        return options->dp * options_context_ranks(options);
}

/* Whether gradients of 16-bit tensors are made, added up and summed over replicas in fp32; and, with zero 2
 * and 3, whether they are reduced, and then kept, in fp32. */
bool options_wide_gradients(const struct options *options);
bool options_reduces_fp32(const struct options *options);

/* Whether gradients of so many micro-batches are added up in bf16 that they come out wrong: such a sum has 8
 * bits, and does not grow any more when it is 256 times what is added. docs/limits.md has the measurement. */
bool options_sums_short(const struct options *options);

/* Returns the flags by which a plan whose gradients are added up in 16 bits would do it in fp32. */
const char *options_exact_sums(const struct options *options);

/* Whether experts are spread over shards and replicas, and not split over shards. */
static inline bool options_whole_experts(const struct options *options)
{
        return options->etp == 1 && options->tp > 1 && options->ep > 1;
}

/* Return how many shards of a stage lie along the axes of their grid; those that are no grid lie along y. */
static inline int options_shards_x(const struct options *options)
{
        return options->tp_x > 1 ? options->tp_x : 1;
}
static inline int options_shards_z(const struct options *options)
{
        return options->tp_z > 1 ? options->tp_z : 1;
}
static inline int options_shards_y(const struct options *options)
{
        return options->tp / (options_shards_x(options) * options_shards_z(options));
}
static inline bool options_shard_grid(const struct options *options)
{
        return options_shards_x(options) > 1 || options_shards_z(options) > 1;
}

/* Writes the sizes of the grid as grid_text does (grid.h), with the ranks that have parts of sequences if
 * there are several. Returns `text`, which has room for GRID_TEXT characters. */
char *options_grid(char *text, const struct options *options, const char *before, const char *times);

/* ---- parsing ---- */

/* Returns an argp child that parses the flags of a plan and MODEL, the positional argument. Its input is a
 * struct options (the program's parser sets state->child_inputs[] at ARGP_KEY_INIT). What is wrong is written
 * to the err of command_line_parse. */
const struct argp *options_argp(void);
/* Returns an argp child with only the flags that may hold for several plans, as `ranvier validate` takes
 * them: without MODEL, the grid, the sizes, --report and --trace. */
const struct argp *options_common_argp(void);

/* These parse the value of --fusion ("auto", "on" or "off") and of --device ("cpu" or "cuda"; `device` then
 * points to a static string). They return and fail as the functions of runtime/base/parse.h. */
int options_parse_fusion(const char *text, enum options_fusion *fusion, struct rv_error_info *err);
int options_parse_device(const char *text, const char **device, struct rv_error_info *err);
extern const struct option_words options_fusion_words, options_device_words; /* the words that they take */

/* ---- resolving ---- */

/* Where --dp was not given: as many replicas as so many ranks have room for, if stages and shards divide
 * them. */
void options_fill_ranks(struct options *options, int ranks);

/* Completes options that were parsed: checks the flags, loads the model, fills in what was not given, and
 * checks the grid, the shapes and what must divide what. `ranks` says how many ranks there are (MPI ranks or
 * GPUs); the grid must have as many. --fusion auto counts as on; a caller that knows better (from a profile)
 * sets `fused` afterwards. Returns 0, or a negative rv_error with a sentence. */
int options_resolve(struct options *options, int ranks, struct rv_error_info *err);
/* The same for a model that is in options->gpt already: no file is read. */
int options_resolve_gpt(struct options *options, int ranks, struct rv_error_info *err);

/* Makes only the checks of grid and sizes that options_resolve makes, for a plan that was made from a
 * resolved one by changing it. No file is read; bucket_parameters is filled in if it is 0. The checks that
 * need no model are in flags_check (flags.h). Returns 0 or RV_EPLAN. */
int options_check(struct options *options, int ranks, struct rv_error_info *err);

/* Returns the device that computes: "cpu" if --device is not given. */
const char *options_device(const struct options *options);

/* Settles --messages and --allreduce for a device whose memory the network can or cannot send from, and sum
 * in. Auto becomes direct if it can, and staged if not. Returns 0, or RV_EPLAN if direct was asked for and
 * the network cannot. */
int options_choose_routes(struct options *options, bool sends_device_memory, bool sums_device_memory,
                          struct rv_error_info *err);

/* ---- what follows from a resolved plan ---- */

/* Returns the plan for the scheduling core. With `forward_only` a batch is a validation, without backward. */
struct plan options_plan(const struct options *options, bool forward_only);

/* Returns the part of the model that the ranks at position `index` of a pipeline have, as the first of its
 * shards has it; all its shards are of equal sizes. */
struct stage options_stage(const struct options *options, int index);

/* Returns what a core needs to know of stage `index` on shard `shard`. The caller sets the replica. */
struct core_stage options_core_stage(const struct options *options, int index, int shard);

/* Returns everything on which the memory of a rank of `stage` depends. */
struct memory_plan options_memory(const struct options *options, int stage);

/* Returns whether the precision is mixed: tensors are stored in 16 bits, and there are fp32 master parameters
 * and moments. That includes bf16. */
static inline bool options_mixed(const struct options *options)
{
        return options->dtype != DTYPE_FP32;
}

/* The first returns whether the schedule splits a backward into two operations (partition_parts). The second
 * returns for how many of the layers of a stage it does; 0 if it does not. */
bool options_parts_backward(const struct options *options);
int options_deferred_layers(const struct options *options, const struct stage *stage);

/* Returns everything on which the kernels of a micro-batch depend. */
struct work options_work(const struct options *options);

#endif
