/* The plan family as work to be timed: from the models, sizes and splits of a request it derives which
 * stages to run, so that every kernel of every plan is run, in as few runs as possible.
 *
 * A block's kernels are the same in all blocks and stages. So one whole model for a micro-batch size and
 * sequence length covers every number of stages (where that is too much for the memory or the time, a model
 * with fewer blocks); only the optimizer's kernels depend on how the parameters are split. bench.h runs what
 * is found here. */
#ifndef RANVIER_CALIBRATE_FAMILY_H
#define RANVIER_CALIBRATE_FAMILY_H

#include "calibrate/request.h"
#include "models/memory.h"
#include "models/workload.h"
#include "runtime/sched/regions.h"

/* The optimizer's kernels of one stage. */
struct family_optimizer {
        /* The stage's parameters: so many gradients are cleared, and in mixed precision looked through for
         * overflow. */
        int64_t parameters;
        enum dtype dtype; /* of the tensors; gradients are fp32 if they are `wide` */
        bool wide;
        struct kernel norm;
        /* The sizes of its updates, in parameters, each once. */
        int64_t updates[REGIONS_SIZES];
        int update_count;
};

/* One stage that is run: all blocks of a model, for one micro-batch size and sequence length, or so many
 * parts of sequences (plan.work.cp). */
struct family_run {
        /* The model, perhaps with fewer blocks than the one that was asked for. */
        struct gpt gpt;
        struct stage stage;
        /* The stage is the first of so many shards, and has the first of so many parts of experts. */
        int shards, expert_ranks;
        struct memory_plan plan;
        /* Those of all stages that the model is split into; they belong to the family. */
        const struct family_optimizer *optimizers;
        int optimizer_count;
        /* This run must cover all of the optimizers, each in its turn. */
        bool every_optimizer;
};

/* The offloaded optimizer of a model's stages. It is run on a stage without activations, of that model with
 * as many blocks as leave no update in the caches of the one before. */
struct family_phase {
        struct gpt gpt;
        struct stage stage;
        struct memory_plan plan;
        /* Parameters of one update: the sizes of all stages that the model is split into, and two smaller
         * ones for the fit of the line. */
        int64_t *updates;
        int update_count;
};

/* An all-reduce that is measured. */
struct family_reduction {
        int64_t bytes;
        enum dtype dtype;
};

/* Models beside each of the family. */
enum { FAMILY_BESIDES = 4 };

struct family {
        /* The family's, and behind them those of small models beside each of its models, which are half, one
         * and a half times and twice as wide, with shorter and longer sequences: no plan of the family
         * launches their kernels, but models of kernels are fitted to them too. */
        struct family_run *runs;
        int run_count;
        /* All kernels that the family's plans launch, each shape once. */
        struct kernel *kernels;
        int kernel_count;
        struct family_optimizer *optimizers[REQUEST_MODELS][DTYPES];
        struct family_optimizer *optimizers_beside[REQUEST_MODELS][DTYPES];
        struct family_phase phases[REQUEST_MODELS];
        int phase_count;
        /* All-reduces of scalars, shared embeddings, chunks of gradients and the matrices that shards sum,
         * and sizes in between. */
        struct family_reduction *reductions;
        int reduction_count;
};

/* What one rank may use to be measured. */
struct family_room {
        int64_t bytes[MEMORY_SPACES];
        /* Of both spaces together, where they are the same memory; 0: they are not. */
        int64_t all_bytes;
        /* Floating-point operations of a forward and backward pass; a larger model is cut to fewer blocks. */
        double flops;
        /* The most columns of a head that the device's attention has kernels for; 0: any. */
        int widest_head;
        /* A micro-batch's logits are made at once where they fit, as --logits auto does on a GPU. */
        bool whole_logits;
};

/* Return a run's kernels, and how many in `count`; the caller frees the array. family_pass: those of its
 * forward and backward, in order. family_parted: those that a backward in two parts launches beside them,
 * each once; NULL and 0 with several shards, whose backward is in one part. */
struct kernel *family_pass(const struct family_run *run, int *count);
struct kernel *family_parted(const struct family_run *run, int *count);

/* Derives the family. RV_EPLAN, with a sentence that says how much is missing, where even a model cut to two
 * blocks, or the offloaded optimizer, does not fit into the room; then nothing is left to free. */
int family_init(struct family *family, const struct request *request, const struct family_room *room,
                struct rv_error_info *err);
void family_free(struct family *family);

#endif
