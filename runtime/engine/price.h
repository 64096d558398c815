/* Seconds of the operations on a stage's compute lane: the kernels that models/workload.h lists, priced by
 * whoever knows what kernels take (a profile in sim, a short measurement in runtime/real/probe.c).
 *
 * price_stages prices all stages of a plan once; the simulated worlds then ask price_operation for each
 * operation that they carry out. Messages, copies and collectives are not priced here. All times are in
 * seconds. */
#ifndef RANVIER_RUNTIME_ENGINE_PRICE_H
#define RANVIER_RUNTIME_ENGINE_PRICE_H

#include "runtime/plan/options.h"

/* A kernel and its seconds. */
struct price {
        struct kernel kernel;
        double seconds;
        /* How many kernels the host launches for it: 1, but for a framework that does otherwise. */
        int launches;
        bool measured; /* exactly this shape was measured */
        bool tabled;   /* or else: a table of many measured shapes has it */
        /* The median relative error of the fit that the price is from; 0: it is from none, or none is
         * known. */
        double fit_error;
};

/* A forward or backward of a micro-batch in a chunk. The kernels up to the first collective of shards are
 * one part of it, and so on (runtime/sched/tensor.c). With one shard it is one part. Each part's seconds
 * include the cost of starting an operation. */
struct price_pass {
        double seconds; /* of all parts, without what comes between them */
        int parts;
        const double *part_seconds; /* [parts] */
        /* Where the host launches on while collectives go on (price_basis.host_ahead): how long after the
         * pass's beginning it has launched each part [parts], the last of them with all. NULL: it never is
         * behind. */
        const double *launched_seconds;
        /* [parts - 1]: the collective behind each part but the last, of shards or of spread experts. */
        const struct kernel *collectives;
        /* [parts]: what of a part's seconds are kernels on the rows of experts, with even shares of these;
         * NULL: none. The parts of the b-th block that has experts are block_parts, from first_block + b
         * block_parts on; backward, the last block's come first. */
        const double *expert_seconds;
        int first_block, block_parts;
        bool backward;
};

/* The most sizes that updates of one stage have. */
enum { PRICE_UPDATES = 32 };
/* Kinds of layers that are priced by themselves. */
enum price_unit { PRICE_EMBEDDING, PRICE_DENSE, PRICE_BLOCK, PRICE_HEAD, PRICE_UNITS };
/* The seconds of each operation on the compute lane of a stage, the cost of starting it included: its
 * kernels, or, if that is longer, what the host needs to launch them. */
struct stage_price {
        struct price_pass forward, backward;
        /* The second part of a backward in two, of which `backward` is the first; 0 seconds if it is in
         * one. */
        struct price_pass weights;
        /* The squared norm, the look for an overflow, the clearing of gradients; 0 where predictions have
         * none. */
        double norm, check, clear;
        /* Logical replicas, the parts of an OP_ADD_REPLICA: what each has, the look for an overflow included;
         * each sum that is added; and keeping one, in all but the last. */
        double add_replica, add_sum, keep_sum;
        int64_t checked; /* parameters that `check` is of */
        /* One for each size that an update of some replica has. */
        struct update_price {
                int64_t parameters;
                double seconds;
        } updates[PRICE_UPDATES];
        int update_count;
        /* Zero 2 and 3, and backwards in ranges: each pass of one layer of a kind alone; no parts: there is
         * none. `start` is the cost of starting an operation. */
        struct price_pass units[PRICE_UNITS][LAYER_PASSES];
        double start;
        /* Zero 2 and 3: blocks of a unit, and units of a pass; 0: passes are in no units. */
        int unit_layers, unit_count;
        /* [unit_count]: what a unit of a backward takes longer where it clears its gradients first
         * (op->begins), or widens them, and where it adds to them what the replica keeps. */
        const double *clear_unit, *load_unit;
        struct stage stage;
        int deferred; /* layers whose backwards are in two parts */
        /* What the passes, those of layers alone, and what units do first point to; NULL where an equal chunk
         * before has it. */
        void *memory, *unit_memory, *gradients_memory;
};

/* The prices of a plan. It owns its arrays; price_free frees them. */
struct price_list {
        int pp, ep, logical;
        struct gpt gpt;
        /* [n_layer x ep]: what the ranks over which a layer's experts are spread have of its rows
         * (routing_loads); NULL where ep is 1. */
        double *loads;
        /* [chunks x pp], the stages of the model: that of a rank's chunk is at chunk x pp + its position in
         * the pipeline. Norms, checks and updates stand in a rank's first chunk. */
        struct stage_price *stages;
        int stage_count;
        struct price *prices; /* one for each different kernel */
        int count;
        /* How many of these are measured, and how many a table has; the others are from fits. */
        int from_points, from_tables;
        double worst_fit_error; /* the largest median error among the fits that were used */
};

/* What prices rest on. Both functions get `context`. */
struct price_basis {
        /* Fills in `price` for its kernel. Returns 0, or a negative error with a sentence that names what is
         * not known. */
        int (*kernel)(void *context, struct price *price, struct rv_error_info *err);
        /* Writes the seconds of an offloaded update of `parameters` while copies run beside it, the cost of
         * starting it included. NULL: those of its kernels are taken. */
        int (*offloaded_update)(void *context, int64_t parameters, double *seconds,
                                struct rv_error_info *err);
        void *context;
        /* Workloads of the model, for callers that price many plans; NULL: the plan's is derived and
         * forgotten. */
        struct workloads *workloads;
        double start_seconds; /* the cost of starting an operation */
        /* What the host needs to launch a kernel, and one of a forward or backward, which may be part of a
         * graph. What the options' framework launches beside or instead of a kernel is priced as kernels that
         * move as many bytes, by kernel(). */
        double host_seconds;
        double pass_host_seconds;
        /* The collectives of a pass are launches as well, and the host goes on to the next; else it waits
         * for each. Passes only, not their ranges and units. */
        bool host_ahead;
        bool passes_only; /* of chunks: the optimizer, ranges and units get no prices */
};

/* Prices all stages of a plan, whose options are resolved. Returns 0, an error of `basis`, or RV_ESYSTEM
 * without memory. The caller frees the list with price_free, after an error too. */
int price_stages(struct price_list *list, const struct options *options, const struct price_basis *basis,
                 struct rv_error_info *err);
void price_free(struct price_list *list);

/* Calls `each` with every kernel of one micro-batch on a stage, in the order in which a device has them:
 * those of forwards (`of` OP_FORWARD), then those of backwards (OP_BACKWARD), what is computed again among
 * them, chunk by chunk; without collectives. `options` are those of price_stages. Returns 0, or RV_ESYSTEM
 * without memory. */
int price_each(const struct price_list *list, const struct options *options, int stage,
               void (*each)(void *context, enum op_kind of, const struct price *price), void *context,
               struct rv_error_info *err);

/* In what follows, `stage` is the rank's position in its pipeline.
 *
 * Returns the seconds of an operation on the compute lane: a forward or backward (of that, or of its range or
 * unit, the part which op->segment says), a norm, a check for overflow, a clear, a sum of logical replicas or
 * an update. */
double price_operation(const struct price_list *list, int stage, const struct op *op);

/* Returns the seconds of a pass with so many that its collectives take between its parts, as price_go_on
 * adds them up. */
double price_pass_seconds(const struct price_pass *pass, double between);

/* Returns how long after its pass's beginning the host has launched an operation; 0: it never is behind. */
double price_launched(const struct price_list *list, int stage, const struct op *op);

/* Returns the seconds, in those of its first part, or of its last if it widens them, that a unit of a
 * backward needs for its gradients beside making them; 0 without units. */
double price_unit_gradients(const struct price_list *list, int stage, const struct op *op);

/* Widens the range of a backward that is to make gradients final to the end of a layer, as far as it really
 * goes, and says whether it has a further one. Any other operation is left alone. */
void price_widen(const struct price_list *list, int stage, struct op *op);

/* Of a part of a forward or backward, or of the collective behind it: returns what a rank has of its layer's
 * rows of experts, as a multiple of an even share; `member` is its index among those that share the experts.
 * 1 where no experts are spread. price_slowest returns the largest of all members. */
double price_load(const struct price_list *list, int stage, const struct op *op, int member);
double price_slowest(const struct price_list *list, int stage, const struct op *op);

/* Returns by how much a part takes longer on a rank with such a load than with an even one. */
double price_imbalance(const struct price_list *list, int stage, const struct op *op, double load);

/* Returns the forward or backward that a part of it, or a collective behind a part, belongs to: the whole of
 * it, also of a range. */
const struct price_pass *price_pass_of(const struct price_list *list, int stage, const struct op *op);

/* Whether a part of a forward or backward, or a collective behind one, is of a range of it (runtime/sched/
 * overlap.c) or of a unit (gather.c). price_range stores the layers that these work on, in the order of work,
 * as far as they are alike: `times` layers, each as `pass` has it, and returns how many there are. Their
 * collectives follow each other; what one layer does behind its
 * last collective and the next one before its first is one part. */
struct price_layers {
        const struct price_pass *pass;
        int times;
};
bool price_has_range(const struct price_list *list, int stage, const struct op *op);
int price_range(const struct price_list *list, int stage, const struct op *op,
                struct price_layers layers[PRICE_UNITS]);

/* Where the price of the collective behind a part of a forward or backward is, or, of the collective itself,
 * its own: at collectives[part] of a pass, of the nth layer of those that have such a pass; NULL: no part
 * follows. */
struct price_behind {
        const struct price_pass *pass;
        int part, nth;
};
struct price_behind price_behind(const struct price_list *list, int stage, const struct op *op);

/* Returns the group that has such a collective of a list of work. */
static inline enum op_group price_group(enum kernel_kind collective)
{
        return kernel_of_context(collective)    ? GROUP_CONTEXT
               : kernel_of_experts(collective)  ? GROUP_EXPERTS
               : kernel_of_shards_x(collective) ? GROUP_TENSOR_X
               : kernel_of_shards_z(collective) ? GROUP_TENSOR_Z
                                                : GROUP_TENSOR;
}

/* How far a pass is in a world that runs it as one operation. It begins as zeros. */
enum { PRICE_ALONG_Z = 256 };
struct price_progress {
        double now, waited; /* since the pass began; of that, the parts' waits for collectives */
        double beside; /* when the collective is over that runs beside a part, and the next one waits for */
        /* How many along z ran beside parts, and when the last of these are over. */
        int along_z;
        double ends[PRICE_ALONG_Z];
        double links_free[2]; /* inside nodes, and between them */
};
/* Goes on from the beginning of a part to that of the next one, with the collective between them, which takes
 * `seconds`. Those over the same links, inside nodes or (`far`) between them, take turns. */
void price_go_on(struct price_progress *progress, const struct price_pass *pass, int part, double seconds,
                 bool far);

#endif
