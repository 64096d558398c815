/* The state of the scheduling core, and the functions that its files call in each other. Private to this
 * folder: the rest of the program includes core.h.
 *
 * core.c runs the pipeline phase and asks the other files, each of which keeps one concern: activations.c
 * (offloaded activations), weights.c (backwards in two parts), logical.c (replicas that one rank works for),
 * blocking.c (blocking messages), decision.c (what shards agree on), the four chains (overlap.c, gather.c,
 * tensor.c, staging.c), buffers.c (which buffers there are) and optimizer.c (all that follows the pipeline).
 * Their functions come in a common form: X_next hands out what can begin now, if anything, X_complete takes
 * note of what is over, X_start begins a batch.
 *
 * The state has no pointers and no padding that is not zero, and what is over is set back, so that a core can
 * be copied, compared and hashed as bytes: states which differ in their past alone are equal. */
#ifndef RANVIER_RUNTIME_SCHED_STATE_H
#define RANVIER_RUNTIME_SCHED_STATE_H

#include "runtime/sched/core.h"
#include "runtime/sched/policy.h"
#include "runtime/sched/regions.h"

/* How far the work is that comes after the pipeline, see optimizer.c: how many operations of each kind there
 * are, were issued and are done. What a plan does not ask for counts as done from the start. */
struct optimizer_state {
        struct regions regions;
        int updates, chunks; /* chunks: 0 where none are summed */
        /* With overlapped sums: the gradients of parameters from this offset on are final, but for what
         * shards have alike, and may be summed beside the last backward. Otherwise the number of parameters.
         */
        int64_t final;
        /* Looks for overflow on this rank: at what is not final yet, and at what shards have alike. */
        int checks, checks_issued, checks_done;
        /* What all ranks agree on: asked for, known, and that there was one. */
        bool overflow_issued, overflow_known, overflow;
        int chunks_issued, chunks_done; /* all-reduces, with ZeRO-1 reduce-scatters */
        /* The sum of the gradients that every shard has whole (core_stage.replicated_count). */
        bool replicated_issued, replicated_done;
        int exchanges; /* sums of the shared embedding between first and last stage, a chunk each */
        int exchanges_issued, exchanges_done;
        bool norm_issued, norm_done;
        bool scalars_issued, scalars_done;
        int fetches_issued, fetches_done;
        int updates_issued, updates_done;
        int write_backs_issued, write_backs_done;
        bool clear_issued, clear_done;
        int gathers, gathers_issued, gathers_done; /* ZeRO-1 and 2: of weights, a chunk each */
};

/* Where activations are offloaded, the first slots are for forwards and their stores and sends, the others
 * for fetches and their backwards. A stage that stores no more than all of these offloads nothing. */
enum { FORWARD_SLOTS = 2, BACKWARD_SLOTS = 2, SLOTS_OFFLOADED = FORWARD_SLOTS + BACKWARD_SLOTS };
/* Returns whether `stage` offloads activations: the plan asks for it, there are enough of them, and the
 * policy does not split backwards. */
bool core_offloads(const struct plan *plan, int stage);

/* What is in one of the BACKWARD_SLOTS: a virtual micro-batch whose activations are fetched for its
 * backward. */
struct returned {
        int vmb; /* -1: none, the slot is free */
        /* 1: its gradient is there (last stage: its forward is done), or the policy's order says that its
         * backward is the next one; 0: it was fetched on a guess. */
        int demanded;
        int there; /* 1: the fetch has completed */
};

/* A virtual micro-batch (see plan_vmbs) that can be worked on, in the order in which it became so: its
 * activations arrived (forward), or the gradient of its output did, or, on the last stage, its forward and
 * loss are done (backward). */
struct arrival {
        int vmb;
        enum op_kind work; /* OP_FORWARD or OP_BACKWARD */
};

/* A virtual micro-batch whose gradient of weights is still to come, and the buffer (an index) with what the
 * first part of its backward left for it. */
struct deferred {
        int vmb, buffer;
};

/* ZeRO-2 and 3: the forward or backward under way, unit by unit; see gather.c. Of a pass that is over `ahead`
 * stays, and what has to do with gradients. Units are counted in the order of the pass. */
struct gather_state {
        struct op pass; /* as the rest of the core knows it */
        int units;      /* of this pass; 0: none is under way */
        /* Units whose weights were asked for or are there anyway; more than `units`: of the next forward,
         * too. */
        int gathers;
        int begun, computed; /* units whose work was issued, and is done */
        int ahead;           /* between two passes: units of the next forward that count as gathers */
        int asked;           /* parts of the last of `gathers` that were asked for; 0: all */
        bool reduces;        /* `reduce` is to be issued next */
        int issued;          /* parts of its unit that were */
        struct op reduce;
        int scattering; /* reduce-scatters under way */
        /* Offloaded parameters: fetches under way, and those of them whose gathers come before `reduce`. */
        int fetching, behind;
};

/* ZeRO-2 and 3: a buffer of weights. */
struct gathered {
        int unit;   /* that it has, or will have, counted from 1; 0: it is empty */
        int there;  /* parts that it has */
        int needed; /* 1: until the unit has been computed */
};

/* And of gradients. */
struct reduced {
        int unit; /* whose gradients are in it, until they are reduced, counted from 1; 0: it is free */
        int left; /* parts of it that are still to be reduced */
};

/* Collectives that run beside the part behind them, see tensor.c. All zero where none does. */
struct tensor_state {
        bool under_way; /* the collective that the next one waits for */
        bool follows;   /* the part is to be issued */
        bool computed;  /* the part is over before the collective */
        bool waits;     /* the part is to be issued when no more than `left` along z are under way */
        short along_z, left;
        struct op part; /* in the last three cases */
};

/* What shard 0 has decided, see decision.c. */
struct decision_state {
        bool under_way; /* on shard 0 being told, on the others posted */
        bool known;     /* and not begun yet: */
        int work, vmb;  /* OP_FORWARD or OP_BACKWARD of this virtual micro-batch */
        int made;       /* in this batch, with the one under way */
};

/* The checkpoint behind a batch, see saving.c: none; wanted; being copied; and copied, to be written. */
enum core_saving { SAVING_NONE, SAVING_WANTED, SAVING_COPIES, SAVING_COPIED };

/* One core. The first group of members is set by core_init and stays; the others change as a batch goes on.
 * The tables at the end have sizes that follow from the plan, and are reached through core_tables. */
struct core {
        struct plan plan;
        int stage, replica, limit; /* limit: core_pipeline_limit */
        int own_head_slots;        /* the last slots, if these are the last chunk's alone */
        bool first, last;          /* this rank has the model's first chunk, its last one */
        bool decided, decides;     /* shards follow the first one's decisions; this is the first one */
        int64_t parameters;
        int64_t slot_bytes, embedded_bytes, head_bytes, shorter_bytes;
        int longer_first, longer_end;
        int64_t replicated_offset, replicated_count, common_offset, common_count, expert_parameters;
        int64_t checkpoint_bytes;
        struct core_limits limits;
        struct core_units units;
        struct core_gathers gathers;

        bool load_issued, loaded;                      /* loaded: also where a stage has nothing to load */
        bool computing;                                /* the compute lane has an operation */
        bool receiving_activation, receiving_gradient; /* a receive is posted on that side */
        int activations_posted, gradients_posted;      /* receives posted so far */
        /* Counts of this batch, of all chunks; of a backward in two parts the first part counts. */
        int forwards_started, forwards_done, backwards_started, backwards_done;
        int weights_done;                   /* backwards with both parts */
        int replicas_added;                 /* logical ones; with one, none is added */
        int deferred;                       /* entries in the list of those without the second part */
        int send_activation, send_gradient; /* virtual micro-batch to be sent next, or -1 */
        int store;     /* virtual micro-batch whose activations are to be offloaded next, or -1 */
        int on_host;   /* entries in the list of offloaded virtual micro-batches */
        bool fetching; /* activations are on their way to the device */
        struct returned returned[BACKWARD_SLOTS];
        int in_flight; /* operations issued and not completed, but for an OP_WRITE: */
        bool writing;  /* which is under way, perhaps since a batch before */
        enum core_saving saving;
        int arrivals; /* entries in the queue */
        /* Blocking messages: bit 1 << kind for each kind of message that is under way. */
        unsigned exchanging;
        /* A part of a chain is over, and `next` is the part to be issued next. */
        bool continues;
        struct op next;
        struct gather_state gather;
        struct tensor_state tensor;
        struct decision_state decision;
        struct optimizer_state optimizer;
        int tables[]; /* see core_tables; sizes follow from plan and limits */
};

/* Where the tables of a core are, and how long each is ([...]; vmbs: plan_vmbs, the other names:
 * core_limits). Pointers into the core, made anew for each use; the core itself keeps none. */
struct core_tables {
        /* [inputs + slots + host_slots + gradients], of which core.arrivals are used: what can be worked on,
         * the oldest first. */
        struct arrival *queue;
        /* [vmbs] each: which buffer a virtual micro-batch has, once that is known; 0 before and after. */
        int *input_of, *slot_of, *gradient_of;
        int *host_slot_of; /* the same; empty where nothing is offloaded */
        /* By buffer: how many operations must still let go of it; 0: it is free. The element before the first
         * ([-1]) counts the buffers that are not free. */
        int *input_users, *slot_users, *host_slot_users, *gradient_users;
        struct deferred *deferred; /* [deferred], in the order of their backwards */
        int *deferred_users;       /* [deferred], as the users above */
        /* [host_slots], of which core.on_host are used: the virtual micro-batches on the host, in the order
         * in which they were stored. */
        int *offloaded;
        /* ZeRO-2 and 3, [ends + blocks] of both of core.gathers: what is in the buffers of weights, and in
         * those of gradients. */
        struct gathered *gathered;
        struct reduced *reduced;
        int *chunk_done; /* by chunk of parameters: 1 when its all-reduce, or reduce-scatter, is done */
};

/* Hands out the next `count` ints of `*at`, and moves `*at` behind them. */
static inline int *core_carve(int **at, int count)
{
        int *table = *at;
        *at += count;
        return table;
}

/* Hands out a table of users for `buffers` buffers, with the element [-1] before it. */
static inline int *core_carve_users(int **at, int buffers)
{
        return core_carve(at, buffers + 1) + 1;
}

/* Returns where the tables of `core` are. It is defined here to be inlined, because every decision begins
 * with it. buffers.c counts the same tables when it works out core_bytes. */
static inline struct core_tables core_tables(struct core *core)
{
        int vmbs = plan_vmbs(&core->plan);
        int ints = sizeof(struct arrival) / sizeof(int);
        struct core_limits l = core->limits;
        int *at = core->tables;
        struct core_tables t;
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
        const struct core_gathers *g = &core->gathers;
        t.gathered = (struct gathered *)core_carve(&at, (g->weights.ends + g->weights.blocks) *
                                                                (int)(sizeof(struct gathered) / sizeof(int)));
        t.reduced = (struct reduced *)core_carve(&at, (g->gradients.ends + g->gradients.blocks) *
                                                              (int)(sizeof(struct reduced) / sizeof(int)));
        t.chunk_done = at;
        return t;
}

/* Returns what core_init was given, as far as the regions of the optimizer and the sizes of tables need
 * it. */
static inline struct core_stage core_part(const struct core *core)
{
        return (struct core_stage){.stage = core->stage,
                                   .parameters = core->parameters,
                                   .slot_bytes = core->slot_bytes,
                                   .replicated_offset = core->replicated_offset,
                                   .replicated_count = core->replicated_count,
                                   .common_offset = core->common_offset,
                                   .common_count = core->common_count,
                                   .expert_parameters = core->expert_parameters,
                                   .replica = core->replica,
                                   .units = core->units};
}

/* Empties all tables and works out where the slots of each chunk begin. */
void core_clear_tables(struct core *core);

/* Return an operation of a kind, on its lane, with no buffers: one that is about no micro-batch, and one that
 * is about the virtual micro-batch `vmb`. */
struct op core_new_op(enum op_kind kind);
struct op core_op_of_vmb(const struct core *core, enum op_kind kind, int vmb);

/* Returns the chunk of a virtual micro-batch. core_vmb returns the virtual micro-batch of an operation. */
static inline int core_chunk(const struct core *core, int vmb)
{
        return core->plan.virtual_stages == 1 ? 0 : vmb / core->plan.micro_batches;
}
static inline int core_vmb(const struct core *core, const struct op *op)
{
        return op->chunk * core->plan.micro_batches + op->micro_batch;
}

/* Return whether `chunk` of this rank is the model's first, which begins with the embedding, or its last,
 * which ends with the loss. */
static inline bool core_is_first(const struct core *core, int chunk)
{
        return core->first && chunk == 0;
}
static inline bool core_is_last(const struct core *core, int chunk)
{
        return core->last && chunk == core->plan.virtual_stages - 1;
}

/* Buffers [first, first + count) of a table of users. */
struct core_pool {
        int first, count;
        bool all; /* the table has no others, so its count at [-1] is the pool's */
};
/* Returns the slots that a forward of `chunk` may take. */
struct core_pool core_forward_slots(const struct core *core, int chunk);
/* Returns the bytes of activations that a slot of `chunk` holds. */
int64_t core_chunk_bytes(const struct core *core, int chunk);

/* Takes a free one of `buffers`, notes it in buffer_of[vmb] unless `vmb` is -1 (not known yet), and returns
 * its index. `users` operations must each release it before it is free again. One must be free
 * (buffer_free). */
int buffer_acquire(int *users_of, struct core_pool buffers, int *buffer_of, int vmb, int users);
/* Lets go of a buffer for one of its users. */
void buffer_release(int *users_of, int buffer);
/* Returns how many of `buffers` are free. */
int buffer_free(const int *users_of, struct core_pool buffers);

/* Offloaded activations: see activations.c. Where the stage offloads none, activations_next finds nothing and
 * activations_there is always true. */
bool activations_offloaded(const struct core *core);
void activations_start(struct core *core);
bool activations_next(struct core *core, struct op *op);
void activations_complete(struct core *core, const struct op *op);
/* Notes that the backward of `vmb` could begin as soon as its activations are on the device. */
void activations_demand(struct core *core, int vmb);
/* Returns whether the activations of `vmb` are on the device for its backward. */
bool activations_there(const struct core *core, int vmb);
/* Frees `slot` for the next fetch: the backward in it is done. */
void activations_leave(struct core *core, int slot);

/* Backwards in two parts: see weights.c. weights_parted returns whether this stage has them. */
bool weights_parted(const struct core *core);
/* Returns whether there is a buffer for what the first part of one more backward leaves. */
bool weights_room(const struct core *core);
/* Returns the virtual micro-batch whose gradient of weights is next, or -1. */
int weights_ready(const struct core *core);
/* Makes the backward `op`, which is about to be issued, the first part of it, and takes a buffer for what it
 * will leave. */
void weights_begin_input(struct core *core, struct op *op);
/* Notes that a first part has completed, so that the second may follow. */
void weights_defer(struct core *core, const struct op *input_part);
/* Returns the second part of the oldest backward that waits for it, to be issued. There must be one. */
struct op weights_begin(struct core *core);
/* Counts a backward that has completed, the second part or both as one, and frees its buffer. */
void weights_done(struct core *core, const struct op *op);

/* An operation that the world works on part by part while the rest of the core sees one: it begins when its
 * first part is issued, and is over when its last one is. Every operation is of one chain at most, but for a
 * range of the overlap's and a unit, which are chains of the shards' themselves; core_complete asserts it.
 * The plan says of which: a forward or backward is of the overlap's (which needs zero 0 or 1), of the units'
 * (ZeRO-2 and 3) or of the shards' chain, anything else of the staging's. */
struct chain {
        /* Returns whether `op`, a part or all of an operation, is of this chain. */
        bool (*has)(const struct core *core, const struct op *op);
        /* Is told that `op`, which is of this chain, has completed. Returns true if it was not the last part:
         * the next one stands in core->next (core_continue), or is handed out by gather_next or tensor_next.
         * Else op becomes the operation as it is when whole, but for its kind, which core_complete restores
         * from op->of. */
        bool (*goes_on)(struct core *core, struct op *op);
};
extern const struct chain overlap_chain, gather_chain, tensor_chain, staging_chain;

/* Says that `part` is followed by another part, and returns that one: a copy of `part`, which the caller
 * changes. core_next hands it out before anything else. */
struct op *core_continue(struct core *core, const struct op *part);

/* Staged messages and collectives: see staging.c. `op` is about to be issued: it becomes its first part, a
 * copy to the host, if the plan stages it and it is no receive. */
void staging_begin(const struct core *core, struct op *op);

/* Blocking messages: see blocking.c. These note that a message is about to be issued, and that the whole of
 * an operation is over; where messages do not block they do nothing. */
void blocking_begin(struct core *core, const struct op *message);
void blocking_end(struct core *core, const struct op *message);
/* Returns whether messages hold up the compute lane now. */
bool blocking_holds(const struct core *core);
/* Returns whether a backward is to follow at once, and to share an exchange with the forward before it. */
bool blocking_in_pair(const struct core *core);
/* Returns whether this receive may be posted, if messages block. `wanted` is what the policy wants to compute
 * next; `vmb` is the virtual micro-batch whose turn it is to be worked on with what is received, or -1 if the
 * policy has no such order. */
bool blocking_permits(const struct core *core, enum op_kind receive, enum policy_choice wanted, int vmb);

/* Sums beside the last backward: see overlap.c. overlap_planned returns whether this plan has them. */
bool overlap_planned(const struct plan *plan);
/* Gives `backward`, or a part of one, which is about to be issued, the first range of parameters that it is
 * to make final, if it is the last one of the batch. */
void overlap_begin(const struct core *core, struct op *backward);

/* Passes of ZeRO-2 and 3: see gather.c. gather_planned returns whether this plan has them. */
bool gather_planned(const struct plan *plan);
/* Notes which weights are there when a batch begins. */
void gather_start(struct core *core);
/* Returns the buffer of a unit's weights, where each unit has its own. */
int gather_buffer(const struct core *core, int unit);
/* Replaces `pass`, a forward or backward that is about to be issued, by the first operation of its chain, and
 * returns whether there is one that can begin now. Does nothing with other plans: true. */
bool gather_begin(struct core *core, struct op *pass);
/* Hands out what can be done now for the pass under way, or for gradients of one before; returns false if
 * that is nothing. */
bool gather_next(struct core *core, struct op *op);
/* Whether no gradients are being reduced, or are to be. */
bool gather_idle(const struct core *core);
/* Whether a unit's gradients have been reduced for the last time of the batch. */
bool gather_reduced(struct core *core, int unit);

/* Logical replicas: see logical.c. logical_next hands out the sum that the compute lane owes before its next
 * pass; logical_done returns whether all of the batch are added. */
bool logical_next(struct core *core, struct op *op);
void logical_complete(struct core *core);
bool logical_done(const struct core *core);

/* Checkpoints: see saving.c. saving_want notes that one follows the batch; saving_next is asked when nothing
 * else can begin. */
void saving_want(struct core *core);
bool saving_next(struct core *core, struct op *op);
void saving_complete(struct core *core, const struct op *op);
/* Returns whether the batch has none, or what is left of it is to be written. */
bool saving_done(const struct core *core);

/* Hands out the part of a pass beside which a collective runs that was handed out before it: see tensor.c. */
bool tensor_next(struct core *core, struct op *op);

/* Decisions for the shards of a stage: see decision.c. decision_wanted returns whether another may be made,
 * or posted; decision_begin returns its operation, which is about to be issued. decision_take returns what is
 * known to be computed next, if it is ready in the view, and forgets it: it is about to begin. */
bool decision_wanted(const struct core *core);
struct op decision_begin(struct core *core);
void decision_complete(struct core *core, const struct op *decision);
enum policy_choice decision_take(struct core *core, const struct policy_view *view);

/* What follows the pipeline: see optimizer.c. optimizer_next may be asked at any time and knows when its
 * phase has come; optimizer_done returns whether nothing of it is left. */
void optimizer_start(struct core *core);
bool optimizer_next(struct core *core, struct op *op);
void optimizer_complete(struct core *core, const struct op *op);
bool optimizer_done(const struct core *core);
/* Returns how many chunks of gradients a stage sums over its replicas; 0 with one replica, or where
 * units are reduced. */
int optimizer_chunks(const struct plan *plan, const struct core_stage *part);

#endif
