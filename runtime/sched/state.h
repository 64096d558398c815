/* The core's state, private to this folder. No pointers, so that it can be copied, compared and hashed. */
#ifndef RANVIER_RUNTIME_SCHED_STATE_H
#define RANVIER_RUNTIME_SCHED_STATE_H

#include "runtime/sched/core.h"
#include "runtime/sched/policy.h"

/* What comes after the pipeline: see optimizer.c. */
struct optimizer_state {
        int buckets, chunks; /* a chunk is up to allreduce_buckets buckets, one all-reduce */
        bool embedding_issued, embedding_done;
        int chunks_issued, chunks_done;
        bool norm_issued, norm_done;
        bool scalars_issued, scalars_done;
        int updates_issued, updates_done;
};

/* A micro-batch that can be worked on, in the order in which it became so: its activations arrived (forward),
 * or the gradient of its output did, or, on the last stage, its forward and loss are done (backward). */
struct arrival {
        int micro_batch;
        enum op_kind work; /* OP_FORWARD or OP_BACKWARD */
};

struct core {
        struct plan plan;
        int stage, limit; /* limit: AxoNN's, resolved */
        bool first, last;
        int64_t parameters, slot_bytes;
        struct core_limits limits;

        bool load_issued, loaded;
        bool computing;                                /* the compute lane has an operation */
        bool receiving_activation, receiving_gradient; /* a receive is posted on that side */
        int activations_posted, gradients_posted;      /* receives posted so far, of micro_batches */
        int forwards_started, forwards_done, backwards_started, backwards_done;
        int send_activation, send_gradient; /* micro-batch to be sent next, or -1 */
        int in_flight;                      /* operations issued and not completed */
        int arrivals;                       /* entries in the queue */
        struct optimizer_state optimizer;
        int tables[]; /* see the functions below; sizes follow from plan and limits */
};

/* Queue of arrivals, then by micro-batch its input buffer, slot, gradient buffer, then by buffer its users
 * (0: free), then by chunk whether its all-reduce is done. */
struct core_tables {
        struct arrival *queue;                 /* [inputs + slots + gradients] */
        int *input_of, *slot_of, *gradient_of; /* [micro_batches] each, once known */
        int *input_users, *slot_users, *gradient_users;
        int *chunk_done;
};
struct core_tables core_tables(struct core *core);

/* Ends the pipeline phase: everything that this stage has to compute for the micro-batches is done. */
bool core_pipeline_done(const struct core *core);

void optimizer_start(struct core *core);
bool optimizer_next(struct core *core, struct op *op);
void optimizer_complete(struct core *core, const struct op *op);
bool optimizer_done(const struct core *core);
int optimizer_buckets(const struct plan *plan, int64_t parameters);
int optimizer_chunks(const struct plan *plan, int64_t parameters);

#endif
