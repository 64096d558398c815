/* A layer as a program: the steps of its forward and backward, each a kernel with operands, or a collective
 * of its shards. A family (models/families) writes the forward of each kind of layer; the passes below derive
 * the collectives of shards, fused kernels, the backward, and what is run again. What a device runs and what
 * a profile prices are both read from the list of steps (program_kernel). */
#ifndef RANVIER_MODELS_PROGRAM_H
#define RANVIER_MODELS_PROGRAM_H

#include "models/gpt.h"
#include "models/kernels/kernel.h"

/* Most of each; more are a mistake in a family, which an assertion names. */
enum { VALUE_AXES = 5, VALUE_NAME = 48, PROGRAM_VALUES = 160, PROGRAM_STEPS = 96, PROGRAM_TENSORS = 16 };

/* Kinds of layers: a model is an embedding, blocks, and a head; a validation pass has a head of its own,
 * which makes the loss alone. */
enum layer { LAYER_EMBEDDING, LAYER_BLOCK, LAYER_HEAD, LAYER_VALIDATION, LAYERS };

enum value_role {
        ROLE_INPUT,      /* the layer's: activations of the layer before it, or tokens */
        ROLE_ACTIVATION, /* written by the forward */
        ROLE_FLOW,       /* the gradient of an activation */
        ROLE_PARAMETER,
        ROLE_GRADIENT, /* of a parameter: every step adds to it */
        ROLE_NUMBER    /* the loss */
};

/* How shards have a value: each has all of it, or its part of axis 0, 1, ..., or one of these. */
enum {
        STATE_WHOLE = -1,
        STATE_ROWS = -2,   /* a shard has some of its rows of tokens (sequence parallel) */
        STATE_PARTIAL = -3 /* a shard has a part of a sum */
};

/* A value is written by one step. A step that works in place makes a new value in an old one's memory. */
struct value {
        char name[VALUE_NAME];
        enum value_role role;
        enum operand_type type;
        int axes;
        int64_t extent[VALUE_AXES]; /* of all shards; of activations the first two axes are B and T */
        int state;
        int overwrites; /* the value whose memory this one takes over in place; -1: it has its own */
        int origin; /* the value that a collective made this one of, which is the same to an adjoint; or -1 */
        int gradient; /* of a parameter: its gradient; else -1 */
};

/* How a tensor begins: normal numbers of standard deviation 0.02, or less where what it makes is added to a
 * residual stream; zeros; ones. */
enum tensor_init { INIT_NORMAL, INIT_NORMAL_RESIDUAL, INIT_ZERO, INIT_ONE };

/* A parameter of the layer as a model's files name it: a matrix (out, in), or a vector (1, n). Several may
 * lie one after the other in one value, which a product then reads as one matrix. */
enum tensor_split { TENSOR_WHOLE, TENSOR_ROWS, TENSOR_COLS };
struct program_tensor {
        char name[VALUE_NAME];
        short value;
        bool matrix;
        int rows, cols; /* of all shards */
        enum tensor_split split;
        int axis;  /* of the value, that shards have parts of; or STATE_WHOLE */
        int parts; /* equal ones of what is split, each of which is split by itself */
        enum tensor_init init;
};

/* A matrix, or a batch of them, in a value: bit i of a set is axis i. An operand with a layout of its own has
 * its axes in `rows`, in order. */
struct view {
        short value; /* -1: no operand */
        unsigned char batch, rows,
                cols;       /* as the mathematics has them: transposition follows from the axes */
        signed char picked; /* an axis of which only element `at` is seen; -1: none */
        unsigned char at;
};

struct step {
        enum kernel_kind kind;
        unsigned char part;       /* of a backward: enum kernel_part; 0 in a forward */
        unsigned char accumulate; /* adds to its output */
        unsigned char
                chunked;  /* run for some rows of tokens after others: logits, and what is made of them */
        double scalar[2]; /* as runtime/device/kernels.h says of the kind's */
        int heads; /* of all shards: of rope, those that it rotates; of grouped attention, of keys and values
                    */
        int unit;  /* steps of one unit have what they gather, or run again, at their front */
        struct view view[KERNEL_OPERANDS]; /* in the order of the kind's descriptor; a collective: out, in */
};

struct steps {
        struct step at[PROGRAM_STEPS];
        int count;
};

struct program {
        struct value values[PROGRAM_VALUES];
        int value_count, units;
        struct program_tensor tensors[PROGRAM_TENSORS]; /* in the order in which a family makes them */
        int tensor_count;
        int shards;
        bool sequence_parallel;
        bool forward_only;                                  /* of a validation pass: it has no backward */
        int input, output, output_gradient, input_gradient; /* -1: it has none */
        struct steps forward, backward;
};

/* ---- for families: each returns the value that it writes ---- */

/* An empty program of layers that `shards` shards share. */
void program_begin(struct program *, int shards, bool sequence_parallel);

/* Activations (B,T,C) of the layer before. */
int program_input(struct program *, int64_t B, int64_t T, int64_t C);
/* Token indices, or targets, (B,T). */
int program_tokens(struct program *, const char *name, int64_t B, int64_t T);
/* The layer's result, which other layers read. */
void program_output(struct program *, int value);

/* x = table[token] + places[position]: tables `vocabulary` x C, split over shards by rows, and `positions` x
 * C; `places` NULL: positions are not embedded. */
int program_embedding(struct program *, const char *table, const char *places, int tokens, int64_t vocabulary,
                      int64_t positions, int64_t C);
/* y = x w^T: x (B,T,in...), w ((out...), (in...)), `name`.weight. `split`: the axis of w, outputs first, that
 * shards have parts of; STATE_WHOLE: none. */
int program_linear(struct program *, const char *name, int x, int outs, const int64_t out[], int split);
/* The same product where a model's files have its weight in pieces, one below the other, each of so many rows
 * and split by its own outputs. */
struct linear_piece {
        const char *name;
        int64_t rows;
};
int program_linear_of(struct program *, int count, const struct linear_piece pieces[], int x, int outs,
                      const int64_t out[], int split);
/* In place of a product's result y; `name`.bias, one tensor: not of a product whose weight is in pieces. */
int program_bias(struct program *, const char *name, int y);
int program_bias_residual(struct program *, const char *name, int y, int x);
/* GELU of y with its bias, which is added in place. */
int program_bias_gelu(struct program *, const char *name, int y);
/* y + x, in place of a product's result y. As in program_bias_residual, whatever else reads x (norms) must
 * have been built before: in the backward the residual's gradient comes first, and the others are added to
 * it. */
int program_residual(struct program *, int y, int x);
int program_layernorm(struct program *, const char *name, int x);
int program_rmsnorm(struct program *, const char *name, int x, double epsilon);
/* silu(gate) times up, of gates and ups (B,T,2,F): (B,T,F). */
int program_swiglu(struct program *, int gates);
/* Rotary positions, in place of queries, keys and values (B,T, heads + 2 kv_heads, hs), in this order. */
int program_rope(struct program *, int qkv, int64_t heads, double theta);
/* Causal attention of qkv (B,T,3,H,hs): (B,T,H,hs). */
int program_attention(struct program *, int qkv);
/* The same of (B,T, heads + 2 kv_heads, hs), where several heads share one of keys and values: always the
 * fused kernel. */
int program_grouped_attention(struct program *, int qkv, int64_t heads);
/* logits (B,T,V) = x w^T, and in their place what the loss makes of them; `loss_only`: the loss alone. The
 * two may be run a chunk of rows after another. */
void program_loss(struct program *, const char *name, int x, int64_t vocabulary, int targets, bool loss_only);

/* ---- passes, in this order ---- */

/* Adds the collectives of shards: gathers before products of rows, sums before what needs them whole. */
void program_shard_forward(struct program *);
void program_shard_backward(struct program *);

/* A product, and what follows it in place, as one kernel; scores, softmax and their
 * product with the values as one. */
void program_fuse(struct program *, struct steps *);

/* The backward, by the adjoints of the forward's steps in reverse. */
void program_backward(struct program *);

/* All of these. */
void program_finish(struct program *, bool fused);

/* Whether an activation of the forward is there for the backward, or what makes it runs again. */
bool program_stores(const struct program *, enum recompute recompute, int value);

/* Which steps of the forward a backward runs again. */
void program_run_again(const struct program *, enum recompute recompute, bool again[PROGRAM_STEPS]);

/* The steps of a backward, or of one part of it, with what is run again at its place. */
void program_list_backward(const struct program *, enum recompute recompute, enum kernel_part parts,
                           struct steps *out);

/* ---- memory, of one shard ---- */

/* Which values a micro-batch's slot holds of the layer: what the backward reads of the forward's results and
 * does not run again, and the layer's output. `chunked`: steps that can be run for some rows after others
 * are, and nothing keeps what they write. */
void program_kept(const struct program *, enum recompute recompute, bool chunked, bool kept[PROGRAM_VALUES]);

/* Which gradients the first part of a backward in two leaves for the second. */
void program_deferred(const struct program *, bool deferred[PROGRAM_VALUES]);

/* The values whose memory a list of steps reads or writes; of those that are made of one another in place,
 * all. */
void program_touched(const struct program *, const struct steps *, bool touched[PROGRAM_VALUES]);

/* Bytes of a value of all rows, rounded up to MEMORY_ALIGNMENT. */
int64_t program_value_bytes(const struct program *, int value, int element_bytes);

/* Bytes of the memory of all values in `set`, of which none is made of another in place, each rounded up to
 * MEMORY_ALIGNMENT; of what is fp32 in either precision values of the same extents share one buffer. Where
 * each begins is written to `offset`, unless that is NULL. `element_bytes`: 2, 4, or 8 in the double build.
 */
int64_t program_bytes(const struct program *, const bool set[PROGRAM_VALUES], int element_bytes,
                      int64_t offset[PROGRAM_VALUES]);

/* Where the values that a list of steps writes lie, but those that are `fixed` somewhere else: all in one
 * buffer, in which a value takes the place of those that nobody reads any more. */
struct placement {
        short store[PROGRAM_VALUES]; /* the value whose memory it has: its own, or that which it was made of
                                      */
        int64_t offset[PROGRAM_VALUES]; /* of a store in the buffer; -1: it is not there */
        bool rows[PROGRAM_VALUES];      /* a store has a chunk's rows alone */
        int64_t bytes;                  /* of the buffer */
};
/* `chunk_rows`: of the steps that are run for some rows after others; 0: they are not. */
void program_place(const struct program *, const struct steps *, const bool fixed[PROGRAM_VALUES],
                   int64_t chunk_rows, int element_bytes, struct placement *);

/* ---- reading a program ---- */

/* Elements of a value, as a shard has it; `rows`: of so many rows of tokens, 0: of all. */
int64_t program_elements(const struct program *, int value, int64_t rows);
/* Its extent along one axis. */
int64_t program_axis(const struct program *, int value, int axis);

/* The kernel that a step is. `rows`: of so many rows of tokens, where the step is run for a chunk of them; 0:
 * of all. A collective is never run in chunks. */
struct kernel program_kernel(const struct program *, const struct step *, enum dtype dtype, int64_t rows);

/* Whether a step writes its i-th operand; and the value that it reads by it, which is another one than the
 * view's where it works in place; -1: none. */
bool step_writes(const struct step *, int i);
int step_reads(const struct program *, const struct step *, int i);

/* The value of which collectives made this one. */
static inline int value_root(const struct program *p, int value)
{
        while (p->values[value].origin >= 0)
                value = p->values[value].origin;
        return value;
}

/* For passes. */
int program_add_value(struct program *, struct value value);
struct step *program_add_step(struct steps *, struct step step);

#endif
