/* Bytes of device and host memory by category: what a stage needs under a plan. The real world measures the
 * same categories at the allocator, and they must agree to the byte. */
#ifndef RANVIER_MODELS_MEMORY_H
#define RANVIER_MODELS_MEMORY_H

#include "models/workload.h"

enum memory_category {
        MEMORY_WEIGHTS,
        MEMORY_GRADIENTS,   /* on the host: staged, what is summed there */
        MEMORY_MASTER,      /* mixed precision: fp32 parameters and gradients; offloaded: parameters only */
        MEMORY_OPTIMIZER,   /* Adam's moments */
        MEMORY_BUCKETS,     /* offloaded: what fetch, update and write back work on, on the device */
        MEMORY_ACTIVATIONS, /* on the host: those that are offloaded */
        MEMORY_MESSAGES,    /* on the host: staged, what is sent and received there */
        MEMORY_WORKSPACE,   /* on the host: the scalars, which both sides read and write */
        MEMORY_TOKENS,      /* on the host: what the batch's load copies from */
        MEMORY_CATEGORIES
};
const char *memory_category_name(enum memory_category category); /* "weights", ... */

/* Where: on the device, or in host memory that the device copies from and to (pinned on a GPU). */
enum memory_space { MEMORY_DEVICE, MEMORY_HOST, MEMORY_SPACES };
const char *memory_space_name(enum memory_space space); /* "device", "host" */

struct memory_bytes {
        int64_t in[MEMORY_SPACES][MEMORY_CATEGORIES];
};
int64_t memory_total(const struct memory_bytes *bytes, enum memory_space space);

/* Whether more is in host memory than what every stage has there, its scalars and the batch's tokens: a few
 * megabytes at most, which a plan that keeps nothing else there is not shown with. */
bool memory_uses_host(const struct memory_bytes *bytes);
/* The bytes in host memory, as tables show them: 0 unless it is used. */
int64_t memory_host_shown(const struct memory_bytes *bytes);

enum { MEMORY_ALIGNMENT = 64 }; /* every allocation is rounded up to this many bytes */
int64_t memory_aligned(int64_t bytes);

enum { MEMORY_SCALARS = 4 }; /* doubles of a stage's workspace: as many as runtime/nn has scalars */

/* The part of a plan that memory depends on. */
struct memory_plan {
        struct work work;
        int micro_batches; /* of one batch on one pipeline */
        int slots;         /* micro-batches whose activations are on the device at once (core_limits) */
        /* Of several chunks: of these slots, the first that can hold the model's first chunk, and the last
         * that can hold its last one. */
        int embedded_slots, head_slots;
        int host_slots;       /* micro-batches whose activations are offloaded at once */
        int input_buffers;    /* activations received (0 on the first stage) */
        int gradient_buffers; /* gradients received, transformed in place and sent on */
        int deferred; /* backwards in two parts: buffers of what the first leaves for the second; 0: in one */
        int deferred_layers; /* of these: the first layers that are in two parts (partition_parts); 0: all */
        bool stage_messages; /* each buffer that is sent or received has one on the host beside it */
        int64_t staged_gradients; /* of so many parameters gradients are summed on the host; 0: of none */
        int64_t shard_parameters; /* zero: elements of the replica's own optimizer arrays; 0: all parameters
                                   */
        bool gathered; /* zero 3: of weights and gradients too, and two layers' are whole at a time */
        bool offload;  /* master parameters and moments lie in host memory (needs mixed precision) */
        int64_t update_parameters; /* offloaded: parameters of one update at most, */
        int update_buffers;        /* and how many updates' buffers there are */
};

/* Byte sizes of the individual buffers, for whoever allocates them. What lies where in a slot, in a deferred
 * buffer and in the workspace is the programs' matter (workload_slot, workload_deferred, workload_place). Of
 * a shard they are what it has: of heads, of the columns inside the MLP and of the vocabulary its part, and,
 * sequence parallel, of the rows of inputs, norms, residuals and messages. */
struct memory_layout {
        /* Of a slot: the embedding's output (first stage), what it holds of one block, and of the head (last
         * stage). */
        int64_t embedded, block, head;
        int64_t slot;         /* in total: of several chunks, one that can hold any of them */
        int64_t message;      /* one input or gradient buffer (B,T,C) */
        int64_t workspace;    /* what passes work in beside slots and messages, once a stage */
        int64_t work_scalars; /* in host memory */
        /* A buffer of what a backward's first part leaves for the second and slots have no place for. One
         * behind the other: on the first stage the gradient of the embedding's output; each block's part;
         * what the blocks above would lend if there were any (workload.h): to the last blocks, and for the
         * gradient of the last one's output. Nothing where slots lend it: `deferred_embedded`,
         * `deferred_output`. */
        int64_t deferred_embedded, deferred_block, deferred_lent, deferred_output;
        int64_t deferred;   /* in total */
        int64_t tokens;     /* each of inputs (first stage) and targets (last), on the device and on the host:
                               all micro-batches, int32 */
        int64_t parameters; /* one flat buffer of the stage's parameters, as stored */
        int64_t gathered;   /* zero 3: weights, or gradients, of two neighbouring layers; 0 else */
        int64_t optimizer;  /* one flat fp32 buffer of them (zero: of the replica's share): a moment, mixed:
                               master */
        int64_t staged;     /* gradients that are summed on the host, as stored */
        int64_t bucket;     /* offloaded: one fp32 array of one update's parameters; 0 else */
};
struct memory_layout memory_layout(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan);

/* Whether every count of memory_layout and memory_stage fits 64 bits; for a plan that nobody has checked. */
bool memory_countable(const struct gpt *gpt, const struct memory_plan *plan);

/* Bytes of the `index`-th slot on the device. */
int64_t memory_slot(const struct memory_layout *layout, const struct stage *stage,
                    const struct memory_plan *plan, int index);

/* The stage's layers whose backwards are in two parts: at least 1, if any are at all. */
int memory_deferred_layers(const struct memory_plan *plan, const struct stage *stage);

/* Outputs of slots that have a buffer on the host beside them: staged, of all stages but the last. */
int memory_staged_outputs(const struct stage *stage, const struct memory_plan *plan);

/* Mixed precision takes 20 bytes a parameter without offloading: 2 + 2 weights and gradients, 4 + 4 master
 * parameters and gradients, 8 moments; with it 4 on the device and four fp32 arrays a buffer of an update, 12
 * on the host (Singh & Bhatele 2022). fp32 takes 16. With zero what is not weights and gradients is shared by
 * the replicas. */
void memory_stage(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                  struct memory_bytes *bytes);

#endif
