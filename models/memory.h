/* The bytes of device and host memory that a stage needs under a plan, by category. Pure arithmetic: whoever
 * allocates (runtime/nn) asks memory_layout for the sizes of its buffers, and whoever checks or predicts a
 * plan (runtime/engine/capacity.h, sim) asks memory_stage for the totals. The real run measures the same
 * categories at its allocator, and they must agree to the byte.
 *
 * Not counted is what the process needs beside a plan: text, file buffers, the device's own context. */
#ifndef RANVIER_MODELS_MEMORY_H
#define RANVIER_MODELS_MEMORY_H

#include "models/workload.h"

/* What memory is used for. Categories without a word on the host are on the device alone. */
enum memory_category {
        /* With copies in a format of their own. On the host: shares that are offloaded. */
        MEMORY_WEIGHTS,
        /* On the host: those that are staged, because they are summed there. */
        MEMORY_GRADIENTS,
        /* In mixed precision, fp32 parameters and gradients. Offloaded: the parameters only, on the host. */
        MEMORY_MASTER,
        /* Adam's two moments; offloaded: on the host. */
        MEMORY_OPTIMIZER,
        /* Offloaded: the buffers that fetch, update and write back work on. */
        MEMORY_BUCKETS,
        /* On the host: those that are offloaded. */
        MEMORY_ACTIVATIONS,
        /* On the host: those that are staged, because they are sent and received there. */
        MEMORY_MESSAGES,
        /* On the host: the scalars, which both sides read and write. */
        MEMORY_WORKSPACE,
        /* On the host: what the batch's load copies from. */
        MEMORY_TOKENS,
        /* What a framework has beside: masks of dropout, copies. Only a prediction has it. */
        MEMORY_FRAMEWORK,
        MEMORY_CATEGORIES
};
const char *memory_category_name(enum memory_category category); /* "weights", ... */

/* Where memory is: on the device, or on the host as far as the device copies from and to it (pinned on a
 * GPU). */
enum memory_space { MEMORY_DEVICE, MEMORY_HOST, MEMORY_SPACES };
const char *memory_space_name(enum memory_space space); /* "device", "host" */

/* Bytes in each space, by category. */
struct memory_bytes {
        int64_t in[MEMORY_SPACES][MEMORY_CATEGORIES];
};
/* Returns the sum over the categories of one space. */
int64_t memory_total(const struct memory_bytes *bytes, enum memory_space space);

/* Whether there is more in host memory than the scalars and the batch's tokens, which every stage has there:
 * a few megabytes at most, with which a plan that keeps nothing else there is not shown. */
bool memory_uses_host(const struct memory_bytes *bytes);
/* Returns the bytes in host memory as tables show them: 0 unless memory_uses_host. */
int64_t memory_host_shown(const struct memory_bytes *bytes);

/* Every allocation is rounded up to a multiple of so many bytes; memory_aligned does that. */
enum { MEMORY_ALIGNMENT = 64 };
int64_t memory_aligned(int64_t bytes);

/* The doubles of a stage's host workspace: as many as runtime/nn has scalars. */
enum { MEMORY_SCALARS = 8 };

/* Bytes of the buffer on the host that collectives of shards go through if they are staged. */
enum { MEMORY_STAGED_SHARDS = 8 << 20 };

/* The part of a plan that memory depends on. options_memory makes it of a plan's options. */
struct memory_plan {
        struct work work;
        /* Micro-batches of one batch on one pipeline. */
        int micro_batches;
        /* Micro-batches whose activations are on the device at once (core_limits). */
        int slots;
        /* With several chunks: how many of the first slots can hold the model's first chunk, and how many of
         * the last ones can hold its last chunk (core_head_slots). */
        int embedded_slots, head_slots;
        /* And how many of the first slots, and of the last ones, are for chunks with one block less than the
         * longest alone. */
        int short_first_slots, short_last_slots;
        /* Micro-batches whose activations are offloaded to the host at once; 0: none are. */
        int host_slots;
        /* Buffers of received activations; 0 on the first stage. */
        int input_buffers;
        /* Buffers of received gradients, which are transformed in place and sent on. */
        int gradient_buffers;
        /* Deferred buffers, where backwards are in two parts; 0: they are in one. */
        int deferred;
        /* How many of the first layers then have their backward in two parts (partition_parts); 0: all. */
        int deferred_layers;
        /* Arrays as long as the gradients in which sums of logical replicas wait (core_logical_levels). */
        int gradient_sums;
        /* Each buffer that is sent or received has one on the host beside it. */
        bool stage_messages;
        /* Collectives of shards go through a buffer of MEMORY_STAGED_SHARDS bytes on the host. */
        bool stage_shards;
        /* How many parameters have their gradients summed on the host; 0: none. */
        int64_t staged_gradients;
        /* Zero: elements of the replica's own arrays of the optimizer; 0: they are as long as the
         * parameters. */
        int64_t shard_parameters;
        /* Zero 2 and 3: gradients are that long too, and with 3 weights, and passes work in buffers of whole
         * units: so many blocks at once, as one unit (0: 1), in so many buffers for the embedding and the
         * head (1: in one, or, tied, as one unit) and for units of blocks, of which each has its `own`, or
         * which take turns. Zero 2: `whole_weights`, all weights are in such buffers alone. */
        bool gathered, whole_weights;
        /* And gradients are kept, and units' reduced, in fp32; each buffer of theirs has one beside it. */
        bool reduce_fp32;
        int unit_layers;
        struct memory_unit_buffers {
                int ends, blocks;
                bool own;
        } unit_weights, unit_gradients;
        /* Master parameters and moments lie in host memory; this needs mixed precision. */
        bool offload;
        /* Zero 3: shares of weights lie in host memory, and updates have buffers for them. */
        bool offload_parameters;
        /* Offloaded, either: the most parameters of one update, and how many updates have buffers on the
         * device. */
        int64_t update_parameters;
        int update_buffers;
        /* What the framework of a prediction has on the device beside all that (framework_memory). */
        int64_t framework_bytes;
};

/* Byte sizes of the individual buffers. What lies where inside a slot, a deferred buffer and the workspace
 * follows from the programs (workload_slot, workload_deferral, workload_place). On one of several shards
 * these are the sizes of its part: of heads, of the columns inside the MLP and of the vocabulary, and,
 * sequence parallel, of the rows of inputs, norms, residuals and messages. */
struct memory_layout {
        /* The parts of a slot: the embedding's output (first stage), what it holds of one block (of kinds of
         * blocks the one that needs the most), and of the head (last stage). */
        int64_t embedded, block, head;
        /* One slot in total; with several chunks, one that can hold any of them. */
        int64_t slot;
        /* One buffer of received activations or gradients (B,T,C). */
        int64_t message;
        /* What all passes of the stage work in beside slots and messages. */
        int64_t workspace;
        /* The scalars, in host memory. */
        int64_t work_scalars;
        /* On the host, of spread experts: where each one's rows end, of every rank's tokens. */
        int64_t ends;
        /* The parts of a deferred buffer: what a backward's first part leaves for the second and slots have
         * no place for, one behind the other. On the first stage the gradient of the embedding's output;
         * each block's part; and what the blocks above would lend if there were any (struct deferral), to
         * the last blocks, and for the gradient of the last one's output. `deferred_embedded` and
         * `deferred_output` are 0 where they are not needed. */
        int64_t deferred_embedded, deferred_block, deferred_lent, deferred_output;
        /* One deferred buffer in total. */
        int64_t deferred;
        /* Inputs (first stage) and targets (last), each, on the device and on the host: all micro-batches,
         * int32. */
        int64_t tokens;
        /* The flat buffers of the stage's weights and gradients as stored (zero 3: of the replica's share;
         * zero 2: of weights none, of gradients the share). */
        int64_t weights, gradients;
        /* Copies of weights that products of a format of their own read, if they are made once a batch. */
        int64_t copies;
        /* Zero 2 and 3: all buffers of the units' weights, and of their gradients. Else 0. */
        int64_t gathered, reduced;
        /* And those of the units' gradients in fp32, if they are reduced in it. */
        int64_t widened;
        /* One flat fp32 buffer with an element a parameter (zero: of the replica's share): a moment, or in
         * mixed precision master parameters or gradients. */
        int64_t optimizer;
        /* The gradients that are summed on the host, as stored. */
        int64_t staged;
        /* Offloaded: one fp32 array of one update's parameters; else 0. */
        int64_t bucket;
        /* And its weights as stored, if these are offloaded; else 0. */
        int64_t bucket_weights;
};
/* Returns the sizes for a stage. The plan must be countable (memory_countable). */
struct memory_layout memory_layout(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan);

/* Whether every count of memory_layout and memory_stage is sure to fit 64 bits, by an estimate from above;
 * for a plan that nobody has checked. */
bool memory_countable(const struct gpt *gpt, const struct memory_plan *plan);

/* Zero 2 and 3: returns where the `nth` of the buffers of units begins, in bytes; of one more than there are:
 * how long they are in all. */
int64_t memory_unit_place(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                          const struct memory_unit_buffers *buffers, int nth);

/* Returns where the nth buffer of units' gradients in fp32 begins, likewise. */
int64_t memory_widened_place(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                             int nth);

/* Returns the bytes of the `index`-th slot on the device. They differ only with several chunks. */
int64_t memory_slot(const struct memory_layout *layout, const struct stage *stage,
                    const struct memory_plan *plan, int index);

/* Returns how many of the stage's layers have their backward in two parts; 0 if the plan has none such. */
int memory_deferred_layers(const struct memory_plan *plan, const struct stage *stage);

/* Returns how many outputs of slots have a buffer on the host beside them; 0 unless messages are staged. */
int memory_staged_outputs(const struct stage *stage, const struct memory_plan *plan);

/* Whether updates work on fp32 copies of gradients: in mixed precision, unless these are in fp32 themselves.
 */
bool memory_copies_gradients(const struct memory_plan *plan);

/* Writes the bytes that one rank of a stage needs. Mixed precision takes 20 bytes a parameter without
 * offloading: 2 + 2 weights and gradients, 4 + 4 master parameters and gradients, 8 moments. With it, it
 * takes 4 on the device and 12 on the host, and four fp32 arrays for each buffer of an update (Singh &
 * Bhatele 2022). fp32 takes 16. With zero, what is not weights and gradients is shared by the replicas.
 * Gradients that are kept in fp32 take 4 bytes for 2 + 4: 18 bytes a parameter, or 6 + 12 / replicas with
 * zero 1 (as Megatron-LM's main gradients). */
void memory_stage(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan,
                  struct memory_bytes *bytes);

#endif
