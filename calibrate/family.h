/* The plan family as work to be timed: which stages to run so that every kernel of every plan is run, in as
 * few runs as possible. A block's kernels are the same in all blocks and stages, so one whole model (or, if
 * that is too much, one with fewer blocks) a micro-batch size and sequence length covers every number of
 * stages; only the optimizer's kernels depend on how the parameters are split. */
#ifndef RANVIER_CALIBRATE_FAMILY_H
#define RANVIER_CALIBRATE_FAMILY_H

#include "calibrate/request.h"
#include "models/memory.h"
#include "models/workload.h"
#include "runtime/sched/regions.h"

/* The optimizer of one stage: its norm, and the sizes of its updates. */
struct family_optimizer {
        int64_t parameters; /* of the stage: in mixed precision, looked through for overflow, and cleared
                               after one */
        struct kernel norm;
        int64_t updates[REGIONS_SIZES];
        int update_count;
};

/* One stage that is run: a model, micro-batch size and sequence length. */
struct family_run {
        struct gpt gpt; /* perhaps with fewer blocks than the model that was asked for */
        struct stage stage;
        int shards; /* of which the stage is the first */
        struct memory_plan plan;
        const struct family_optimizer *optimizers; /* of all stages that the model is split into */
        int optimizer_count;
        bool every_optimizer; /* this run is the one that must cover all of them */
};

/* The offloaded optimizer of a model's stages. It is run on a stage of that model with as many blocks as
 * leave no update in the caches of the one before, and without activations. */
struct family_phase {
        struct gpt gpt;
        struct stage stage;
        struct memory_plan plan;
        int64_t *updates; /* parameters of one: of all stages that the model is split into, and smaller ones
                             for the line */
        int update_count;
};

struct family_reduction {
        int64_t bytes;
        enum dtype dtype;
};

struct family {
        struct family_run *runs;
        int run_count;
        struct kernel *kernels; /* all that the family's plans launch, each shape once */
        int kernel_count;
        struct family_optimizer *optimizers[REQUEST_MODELS][DTYPES];
        struct family_phase phases[REQUEST_MODELS];
        int phase_count;
        struct family_reduction *reductions; /* all-reduces: scalars, shared embeddings, chunks of gradients,
                                                and between */
        int reduction_count;
};

/* What one rank may use to be measured. */
struct family_room {
        int64_t bytes[MEMORY_SPACES];
        int64_t all_bytes; /* of both together, where they are the same memory; 0: they are not */
        double flops;      /* of a forward and backward pass; a larger model is cut to fewer blocks */
};

/* The kernels of a run's forward and backward, in order; and those that a backward in two parts launches
 * beside them, each once (plan.deferred is 1 if there are any). The caller frees. */
struct kernel *family_pass(const struct family_run *run, int *count);
struct kernel *family_parted(const struct family_run *run, int *count);

int family_init(struct family *family, const struct request *request, const struct family_room *room,
                struct rv_error_info *err);
void family_free(struct family *family);

#endif
