/* The core's state, private to this folder. No pointers, so that it can be copied, compared and hashed. */
#ifndef RANVIER_RUNTIME_SCHED_STATE_H
#define RANVIER_RUNTIME_SCHED_STATE_H

#include "runtime/sched/core.h"
#include "runtime/sched/policy.h"
#include "runtime/sched/regions.h"

/* What comes after the pipeline: see optimizer.c. What a plan does not ask for counts as done from the start.
 */
struct optimizer_state {
        struct regions regions;
        int updates, chunks; /* chunks: 0 where none are summed */
        int64_t final;       /* overlapped: gradients from here on may be summed beside the last backward */
        bool check_issued, check_done;
        bool overflow_issued, overflow_known, overflow;
        int chunks_issued, chunks_done;
        bool replicated_issued, replicated_done;
        int exchanges; /* of the shared embedding */
        int exchanges_issued, exchanges_done;
        bool norm_issued, norm_done;
        bool scalars_issued, scalars_done;
        int fetches_issued, fetches_done;
        int updates_issued, updates_done;
        int write_backs_issued, write_backs_done;
        bool clear_issued, clear_done;
        int gathers, gathers_issued, gathers_done; /* zero: of weights, a chunk each */
};

/* Where activations are offloaded, the first slots are for forwards and their stores and sends, the others
 * for fetches and their backwards. A stage that stores no more than all of these offloads nothing. */
enum { FORWARD_SLOTS = 2, BACKWARD_SLOTS = 2, SLOTS_OFFLOADED = FORWARD_SLOTS + BACKWARD_SLOTS };
bool core_offloads(const struct plan *plan, int stage);

/* Which virtual micro-batch holds a backward's slot. */
struct returned {
        int vmb;      /* -1: none */
        int demanded; /* its gradient is there (last stage: its forward is done) */
        int there;    /* the fetch has completed */
};

/* A virtual micro-batch (see plan_vmbs) that can be worked on, in the order in which it became so: its
 * activations arrived (forward), or the gradient of its output did, or, on the last stage, its forward and
 * loss are done (backward). */
struct arrival {
        int vmb;
        enum op_kind work; /* OP_FORWARD or OP_BACKWARD */
};

/* A virtual micro-batch whose gradient of weights is still to come, and what backward left for it. */
struct deferred {
        int vmb, buffer;
};

/* ZeRO-3: the forward or backward under way, unit by unit; see gather.c. */
struct gather_state {
        struct op pass; /* as the rest of the core knows it */
        int units;      /* 0: none is under way */
        int gathers_issued, gathers_done;
        int begun, computed; /* units */
        int scatters_issued, scatters_done, scattering;
};

struct core {
        struct plan plan;
        int stage, replica, limit; /* limit: AxoNN's, resolved */
        bool shared_slots;         /* any chunk takes any slot */
        bool first, last;          /* this rank has the model's first, its last chunk */
        int64_t parameters;
        int64_t slot_bytes, embedded_bytes, head_bytes;
        int64_t replicated_offset, replicated_count;
        struct core_limits limits;
        struct core_units units;

        bool load_issued, loaded;
        bool computing;                                /* the compute lane has an operation */
        bool receiving_activation, receiving_gradient; /* a receive is posted on that side */
        int activations_posted, gradients_posted;      /* receives posted so far */
        int forwards_started, forwards_done, backwards_started, backwards_done;
        int weights_done;                   /* backwards with both parts */
        int deferred;                       /* entries in the list of those without */
        int send_activation, send_gradient; /* virtual micro-batch to be sent next, or -1 */
        int store;     /* virtual micro-batch whose activations are to be offloaded next, or -1 */
        int on_host;   /* entries in the list of offloaded virtual micro-batches */
        bool fetching; /* activations are on their way to the device */
        struct returned returned[BACKWARD_SLOTS];
        int in_flight;       /* operations issued and not completed */
        int arrivals;        /* entries in the queue */
        unsigned exchanging; /* blocking: a bit a kind of message that is under way */
        bool continues;      /* a part of a chain is over, and */
        struct op next;      /* this is the part to be issued next */
        struct gather_state gather;
        struct optimizer_state optimizer;
        int tables[]; /* see the functions below; sizes follow from plan and limits */
};

struct core_tables {
        int *first_slot;       /* [chunks + 1], of more than one chunk: where its slots begin */
        struct arrival *queue; /* [inputs + slots + host_slots + gradients] */
        int *input_of, *slot_of, *gradient_of; /* [vmbs] each: its buffer, once known */
        int *host_slot_of;                     /* the same; none where nothing is offloaded */
        /* By buffer; 0: free. Before the first ([-1]): how many are not. */
        int *input_users, *slot_users, *host_slot_users, *gradient_users;
        struct deferred *deferred; /* [deferred], in order of their backwards */
        int *deferred_users;       /* [deferred], as the users above */
        int *offloaded;  /* [host_slots]: virtual micro-batches on the host, in order of their forwards */
        int *chunk_done; /* by chunk: its all-reduce is done */
};

/* Hands out the next `count` ints of `*at`. */
static inline int *core_carve(int **at, int count)
{
        int *table = *at;
        *at += count;
        return table;
}

/* A table of users, and what lies before it. */
static inline int *core_carve_users(int **at, int buffers)
{
        return core_carve(at, buffers + 1) + 1;
}

/* Here, to be inlined: every decision begins with it. */
static inline struct core_tables core_tables(struct core *core)
{
        int vmbs = plan_vmbs(&core->plan), chunks = core->plan.virtual_stages;
        int ints = sizeof(struct arrival) / sizeof(int);
        struct core_limits l = core->limits;
        int *at = core->tables;
        struct core_tables t;
        t.first_slot = core_carve(&at, chunks > 1 ? chunks + 1 : 0);
        t.queue = (struct arrival *)core_carve(&at, (l.inputs + l.slots + l.host_slots + l.gradients) * ints);
        t.input_of = core_carve(&at, vmbs);
        t.slot_of = core_carve(&at, vmbs);
        t.gradient_of = core_carve(&at, vmbs);
        t.host_slot_of = core_carve(&at, l.host_slots ? vmbs : 0);
        t.input_users = core_carve_users(&at, l.inputs);
        t.slot_users = core_carve_users(&at, l.slots);
        t.host_slot_users = core_carve_users(&at, l.host_slots);
        t.gradient_users = core_carve_users(&at, l.gradients);
        t.offloaded = core_carve(&at, l.host_slots);
        t.deferred =
                (struct deferred *)core_carve(&at, l.deferred * (int)(sizeof(struct deferred) / sizeof(int)));
        t.deferred_users = core_carve_users(&at, l.deferred);
        t.chunk_done = at;
        return t;
}

/* What core_init was given, as far as the optimizer needs it. */
static inline struct core_stage core_part(const struct core *core)
{
        return (struct core_stage){.stage = core->stage,
                                   .parameters = core->parameters,
                                   .slot_bytes = core->slot_bytes,
                                   .replicated_offset = core->replicated_offset,
                                   .replicated_count = core->replicated_count,
                                   .replica = core->replica};
}

void core_clear_tables(struct core *core);

/* Of no micro-batch; and of `vmb`. */
struct op core_new_op(enum op_kind kind);
struct op core_op_of_vmb(const struct core *core, enum op_kind kind, int vmb);

/* Of a virtual micro-batch's chunk and micro-batch, and back. */
static inline int core_chunk(const struct core *core, int vmb)
{
        return core->plan.virtual_stages == 1 ? 0 : vmb / core->plan.micro_batches;
}
static inline int core_vmb(const struct core *core, const struct op *op)
{
        return op->chunk * core->plan.micro_batches + op->micro_batch;
}

/* The embedding comes before this chunk; the loss after it. */
static inline bool core_is_first(const struct core *core, int chunk)
{
        return core->first && chunk == 0;
}
static inline bool core_is_last(const struct core *core, int chunk)
{
        return core->last && chunk == core->plan.virtual_stages - 1;
}

/* Buffers [first, first + count) of a table. */
struct core_pool {
        int first, count;
        bool all; /* the table has no others */
};
/* For forwards of a chunk. */
struct core_pool core_forward_slots(const struct core *core, int chunk);
/* What a slot of `chunk` holds. */
int64_t core_chunk_bytes(const struct core *core, int chunk);

/* Takes one of `buffers` for `vmb` (-1: not known yet), with `users` that must each let go of it before it
 * is free again. */
int buffer_acquire(int *users_of, struct core_pool buffers, int *buffer_of, int vmb, int users);
void buffer_release(int *users_of, int buffer);
int buffer_free(const int *users_of, struct core_pool buffers); /* how many are free */

/* Offloaded activations: see activations.c. */
bool activations_offloaded(const struct core *core);
void activations_start(struct core *core);
bool activations_next(struct core *core, struct op *op);
void activations_complete(struct core *core, const struct op *op);
/* The backward of `vmb` could begin as soon as its activations are on the device. */
void activations_demand(struct core *core, int vmb);
bool activations_there(const struct core *core, int vmb);
/* The backward in `slot` is done. */
void activations_leave(struct core *core, int slot);

/* Backwards in two parts: see weights.c. */
bool weights_parted(const struct core *core);
bool weights_room(const struct core *core); /* for what one more backward leaves */
int weights_ready(
        const struct core *core); /* the virtual micro-batch whose gradient of weights is next, or -1 */
void weights_begin_input(struct core *core, struct op *op);
void weights_defer(struct core *core, const struct op *input_part);
struct op weights_begin(struct core *core);
void weights_done(struct core *core, const struct op *op); /* the second part, or both as one */

/* An operation that the world works on part by part while the rest of the core sees one: it begins when its
 * first part is issued, and is over when its last one is. Every operation is of one chain at most, which
 * core_complete asserts; so the order in which chains are asked does not matter. The plan says of which: a
 * forward or backward is of the overlap's (which needs one shard and zero 0), of ZeRO-3's (one shard) or of
 * the shards' chain, anything else of the staging's. */
struct chain {
        /* Whether `op`, a part or all of an operation, is of this chain. */
        bool (*has)(const struct core *core, const struct op *op);
        /* It has completed. True if it was not the last part: the next one stands in core->next
         * (core_continue), or, of gather_chain, is handed out by gather_next. Else op becomes the operation
         * as it is when whole, but for its kind, which core_complete restores from op->of. */
        bool (*goes_on)(struct core *core, struct op *op);
};
extern const struct chain overlap_chain, gather_chain, tensor_chain, staging_chain;

/* `part` is followed by the one that is returned: the same, to be changed by the caller. */
struct op *core_continue(struct core *core, const struct op *part);

/* Staged messages and all-reduces: see staging.c. `op` is about to be issued: it becomes its first part. */
void staging_begin(const struct core *core, struct op *op);

/* Blocking messages: see blocking.c. A message is about to be issued; the whole of it is over. */
void blocking_begin(struct core *core, const struct op *message);
void blocking_end(struct core *core, const struct op *message);
/* Messages hold up the compute lane. */
bool blocking_holds(const struct core *core);
/* A backward is to follow at once, and to share an exchange with the forward before it. */
bool blocking_in_pair(const struct core *core);
/* Whether this receive may be posted, if messages block, where `wanted` is what the policy wants to compute
 * next, and `vmb` whose turn it is to be worked on with what is received, if the policy says so. */
bool blocking_permits(const struct core *core, enum op_kind receive, enum policy_choice wanted, int vmb);

/* A last backward beside which gradients are summed: see overlap.c. Whether this plan has them. */
bool overlap_planned(const struct plan *plan);
/* `backward`, or a part of one, is about to be issued: if it is the last one, it is to make a first range
 * final. */
void overlap_begin(const struct core *core, struct op *backward);

/* Passes of ZeRO-3: see gather.c. Whether this plan has them. */
bool gather_planned(const struct plan *plan);
/* A forward or backward is about to be issued: it becomes the first operation of its chain. */
void gather_begin(struct core *core, struct op *pass);
/* Hands out what the pass under way can do now, if there is one. */
bool gather_next(struct core *core, struct op *op);

void optimizer_start(struct core *core);
bool optimizer_next(struct core *core, struct op *op);
void optimizer_complete(struct core *core, const struct op *op);
bool optimizer_done(const struct core *core);
int optimizer_chunks(const struct plan *plan, const struct core_stage *part);

#endif
