/* Seconds of a stage's operations: the kernels that models/workload.h lists, priced by whoever knows what
 * kernels take. */
#ifndef RANVIER_RUNTIME_ENGINE_PRICE_H
#define RANVIER_RUNTIME_ENGINE_PRICE_H

#include "runtime/plan/options.h"

/* A kernel and its seconds, priced once. */
struct price {
        struct kernel kernel;
        double seconds;
        bool measured;    /* exactly this shape was */
        double fit_error; /* median relative error of the fit that it is from; 0: it is from none, or of none
                             known */
};

/* A forward or backward of a micro-batch in a chunk, as the list of models/workload.h has it: the kernels up
 * to the first collective of shards are one part, and so on (runtime/sched/tensor.c). With one shard it is
 * one part; with zero 3 the embedding, each block and the head are, in the order of work
 * (runtime/sched/gather.c). Of shards each part's seconds include the cost of starting an operation, with
 * zero 3 the head's do. */
struct price_pass {
        double seconds; /* of all parts, without what comes between them */
        int parts;
        const double *part_seconds;       /* [parts] */
        const struct kernel *collectives; /* [parts - 1]: the collective of shards behind each part but the
                                             last */
};

/* Seconds of one operation on the compute lane of a stage, the cost of starting it included: its kernels, or,
 * if that is longer, what the host needs to launch them. */
enum { PRICE_UPDATES = 16 };
enum price_unit { PRICE_EMBEDDING, PRICE_BLOCK, PRICE_HEAD, PRICE_UNITS };
struct stage_price {
        struct price_pass forward, backward;
        struct price_pass weights; /* the second part of a backward in two, of which `backward` is the first;
                                      without one 0 seconds */
        double norm, check, clear; /* check: for overflow */
        int64_t checked;           /* parameters that `check` is of */
        struct update_price {
                int64_t parameters;
                double seconds;
        } updates[PRICE_UPDATES]; /* of each size that an update of some replica has */
        int update_count;
        /* Zero 3, and backwards in spans: each pass of one of each, without the cost of starting an
         * operation, which is `start`. */
        double units[PRICE_UNITS][LAYER_PASSES];
        double start;
        struct stage stage;
        int deferred; /* layers whose backwards are in two parts */
        void *memory; /* of the parts; NULL where an equal chunk before has them */
};

struct price_list {
        int pp;
        struct gpt gpt;
        /* [chunks x pp], the model's stages; norms, checks and updates stand in a rank's first chunk. */
        struct stage_price *stages;
        int stage_count;
        struct price *prices; /* one for each different kernel */
        int count;
        int from_points;        /* of these, priced from a measured point; the others from a fit */
        double worst_fit_error; /* largest median error among the fits that were used */
};

/* What prices rest on. */
struct price_basis {
        /* Fills in `price` for its kernel; an error is negative, with a sentence that names what is not
         * known. */
        int (*kernel)(void *context, struct price *price, struct rv_error_info *err);
        /* Seconds of an offloaded update of `parameters` while copies run beside it; NULL: its kernels'. */
        int (*offloaded_update)(void *context, int64_t parameters, double *seconds,
                                struct rv_error_info *err);
        void *context;
        struct workloads *workloads; /* of the model; NULL: the plan's is derived and forgotten */
        double start_seconds;        /* of starting an operation */
        double host_seconds;         /* that the host needs to launch a kernel, */
        double pass_host_seconds;    /* and one of a forward or backward */
};

/* Prices all stages of a plan. Errors are those of `basis`. The caller frees with
 * price_free, after an error too. */
int price_stages(struct price_list *list, const struct options *options, const struct price_basis *basis,
                 struct rv_error_info *err);
void price_free(struct price_list *list);

/* A part of a last backward beside which gradients are summed (runtime/sched/overlap.c): what it works on. */
struct partition_span price_span(const struct price_list *list, int stage, const struct op *op);

/* Seconds of a compute operation on the rank at position `stage` of its pipeline; of a forward or backward,
 * of the part that op->segment says. */
double price_operation(const struct price_list *list, int stage, const struct op *op);

/* A backward that is to make a range of gradients final goes on to the end of a layer: widens its range, and
 * says whether more of the backward follows. False, and nothing, of any other operation. */
bool price_widen(const struct price_list *list, int stage, struct op *op);

/* The forward or backward that a part of it, or a collective behind a part, belongs to; a backward
 * in spans (price_span) has no such parts. */
const struct price_pass *price_pass_of(const struct price_list *list, int stage, const struct op *op);

/* Whether another part follows this one of a forward or backward. */
bool price_more(const struct price_list *list, int stage, const struct op *op);

#endif
