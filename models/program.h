/* A layer as a program: the steps of its forward and backward, each of them a kernel with operands or a
 * collective of the stage's shards.
 *
 * A family (models/families) writes the forward of each kind of layer, by the builders below. The passes
 * then derive the collectives of shards, fused kernels, the backward, what is run again in it, and where
 * everything lies in memory. workload.h puts the programs of a model's layers together. What a device runs
 * (runtime/nn/exec.c) and what a profile prices are both read from the same lists of steps (program_kernel),
 * so that a prediction is about exactly the kernels that run. Nothing here allocates: a program is one large
 * struct, which its owner keeps. */
#ifndef RANVIER_MODELS_PROGRAM_H
#define RANVIER_MODELS_PROGRAM_H

#include "models/gpt.h"
#include "models/kernels/kernel.h"

/* The most of each in one program; more are a mistake in a family, which an assertion names. */
enum {
        VALUE_AXES = 5,
        VALUE_NAME = 48,
        PROGRAM_VALUES = 288,
        PROGRAM_STEPS = 320,
        PROGRAM_TENSORS = 24,
        STEP_SCALARS = 7,
        PROGRAM_CONTEXT_RANKS = 16
};

/* Kinds of layers: a model is an embedding, blocks, and a head. Where blocks are mixtures of experts, the
 * model's first ones may be dense: these are a kind of their own. A validation pass has a head of its own,
 * which makes the loss alone. */
enum layer { LAYER_EMBEDDING, LAYER_DENSE, LAYER_BLOCK, LAYER_HEAD, LAYER_VALIDATION, LAYERS };
/* Whether the layer is one of the model's blocks, of either kind. */
static inline bool layer_is_block(enum layer layer)
{
        return layer == LAYER_DENSE || layer == LAYER_BLOCK;
}

enum value_role {
        ROLE_INPUT,      /* the layer's input: activations of the layer before it, or tokens */
        ROLE_ACTIVATION, /* written by the forward */
        ROLE_FLOW,       /* the gradient of an activation */
        ROLE_PARAMETER,
        ROLE_GRADIENT, /* of a parameter: every step adds to it */
        ROLE_GATHERED, /* of all shards of a grid, in one pass: a parameter, its gradient, sums of a norm */
        ROLE_NUMBER    /* the loss */
};

/* How shards hold a value (value.state). An axis 0, 1, ... says that each shard has its part of that axis;
 * else it is one of these. */
enum {
        STATE_WHOLE = -1,  /* each shard has all of it */
        STATE_ROWS = -2,   /* a shard has some of its rows of tokens (sequence parallel) */
        STATE_PARTIAL = -3 /* a shard has a part of a sum: it must be added up before it is read */
};

/* A tensor or number that steps work on. One step writes it; a step that works in place makes a new value in
 * the memory of an old one. */
struct value {
        char name[VALUE_NAME];
        enum value_role role;
        enum operand_type type;
        int axes;
        /* Elements along each axis, of all shards together. The first two axes of an activation are B and T,
         * except for what attention has a matrix or row a head for: scores are (B,H,T,T), their sums
         * (B,H,T). */
        int64_t extent[VALUE_AXES];
        int state;
        /* Of a grid of shards: how those along x hold it, as `state` says it of those along y. */
        int state_x;
        /* It is of the residual stream, whose columns the shards along x share. */
        bool stream;
        /* The value whose memory this one takes over in place; -1: it has its own. */
        int overwrites;
        /* The value of which a collective made this one; to an adjoint they are the same. -1: none. */
        int origin;
        /* The value that is a parameter's gradient; -1 for all others. */
        int gradient;
        /* Its first axis is of the ranks that have parts of the same sequences, each of which has one index.
         * A view that picks element `at` of it sees that of the rank `at` before this one, past the first the
         * last. */
        bool of_ranks;
        /* enum product_format: it is a copy of a tensor that products read, with elements of that format;
         * else what its type says. */
        unsigned char format;
        /* Its rows are longer in memory than its columns: a multiple of PROGRAM_PITCH elements. Of logits,
         * whose columns may be any number: products then find every row aligned. */
        bool padded;
        /* Of rows that other ranks send to this rank's experts: for how many there is memory; 0: as many as
         * the extents say, which are those of balanced experts. */
        int64_t capacity;
};

/* Elements that padded rows are a multiple of: 128 bytes in 16 bits. */
enum { PROGRAM_PITCH = 64 };

/* How the initial values of a tensor are drawn: normal numbers of standard deviation 0.02, or less where the
 * product of the tensor is added to a residual stream; zeros; ones. */
enum tensor_init { INIT_NORMAL, INIT_NORMAL_RESIDUAL, INIT_ZERO, INIT_ONE };

/* Along what shards split a tensor. */
enum tensor_split { TENSOR_WHOLE, TENSOR_ROWS, TENSOR_COLS };
/* A parameter of the layer under the name that a model's files give it: a matrix (out, in), or a vector (1,
 * n). Several tensors may lie one after the other in one value, which a product then reads as one matrix. */
struct program_tensor {
        char name[VALUE_NAME];
        short value;
        bool matrix;
        int rows, cols;                   /* of all shards together */
        enum tensor_split split, split_x; /* over all shards or, of a grid, those along y; and along x */
        int axis;  /* the axis of the value of which shards have parts; or STATE_WHOLE */
        int parts; /* equal parts of what is split, each of which is split by itself (q, k and v: 3) */
        /* Shards have all of it, but each works with it on other heads: its gradient is the sum of theirs. */
        bool summed;
        enum tensor_init init;
        /* Of a stack of experts' matrices: how many there are, each a tensor of the files, whose name has a
         * %d for its number, and how many of them a token's row meets. Tensors that follow each other in one
         * value then come in turns: all of the first expert, all of the second. Else both are 1. */
        int copies, chosen;
};

/* How an operand sees a value: as a matrix, or as a batch of matrices. Bit i of a set stands for axis i. An
 * operand with a layout of its own has its axes in `rows`, in order. */
struct view {
        /* -1: no operand. */
        short value;
        /* The axes that are the batch, the rows and the columns as the mathematics has them. Whether the
         * matrix lies transposed in memory follows from the order of the axes. */
        unsigned char batch, rows, cols;
        /* The axis of which only element `at` is seen, as of queries, keys and values; -1: none. */
        signed char picked;
        unsigned char at;
};

/* One kernel or collective of a program. */
struct step {
        enum kernel_kind kind;
        unsigned char part;       /* in a backward: enum kernel_part; 0 in a forward */
        unsigned char accumulate; /* it adds to its output */
        /* It may be run for some rows of tokens after others: logits, and what is made of them. */
        unsigned char chunked;
        double scalar[STEP_SCALARS]; /* what runtime/device/kernels.h says of the kind's scalars */
        /* Of rope: the heads that it rotates; of norms of heads and of latent attention: those of queries; of
         * grouped attention: those of keys and values. Of all shards. */
        int heads;
        /* In a list of work: only the rows of tokens [first, first + rows); rows 0: all of them. */
        int64_t first, rows;
        /* Steps with the same number belong together: what they gather, or run again, comes before the first
         * of them. */
        int unit;
        /* A collective that runs beside the steps behind it, up to the next collective or KERNEL_JOIN. */
        unsigned char beside;
        /* What quantizes operands of a grouped product: the number of its experts; else 0. */
        short experts;
        /* enum product_format: see struct kernel. */
        unsigned char format;
        /* In the order of the kind's descriptor. A collective has two: what it makes, and of what. */
        struct view view[KERNEL_OPERANDS];
};

struct steps {
        struct step at[PROGRAM_STEPS];
        int count;
};

/* How a layer is split over ranks, and in what its parameters' gradients are. Counts of 0 stand for 1. */
#define PROGRAM_SPLIT                                                                                        \
        int shards; /* of a grid: along y */                                                                 \
        int shards_x, shards_z;                                                                              \
        bool sequence_parallel; /* of several shards alone */                                                \
        int pieces;       /* of rows of tokens, into which products of shards are cut: program_overlap */    \
        int expert_ranks; /* over which, whose tokens are not the same, experts are spread; 1: this rank has \
                             all */                                                                          \
        double expert_capacity;          /* see struct work */                                               \
        bool whole_experts, tokens_once; /* see struct work */                                               \
        int context_ranks;    /* that have parts of the same sequences; 1: this rank has all of each */      \
        bool context_gathers; /* keys of all ranks are gathered; else they go from rank to rank in a ring */ \
        bool wide_gradients;  /* gradients of parameters are fp32 whatever tensors are stored as */
struct program_split {
        PROGRAM_SPLIT
};

struct program {
        struct value values[PROGRAM_VALUES];
        int value_count, units;
        struct program_tensor tensors[PROGRAM_TENSORS]; /* in the order in which the family makes them */
        int tensor_count;
        union {
                struct {
                        PROGRAM_SPLIT
                };
                struct program_split split; /* the same */
        };
        bool forward_only; /* it is of a validation pass and has no backward */
        /* The values that come from and go to the neighbouring layers; -1: the layer has none of that
         * kind. */
        int input, output, output_gradient, input_gradient;
        struct steps forward, backward;
};

/* ---- for families: the builders append steps to the forward and return the value that these write ---- */

/* Empties a program, whatever was in it, and sets how its layer is split. */
void program_begin(struct program *, struct program_split split);

/* Declares the layer's input: activations (B,T,C) of the layer before. */
int program_input(struct program *, int64_t B, int64_t T, int64_t C);
/* Declares int32 token indices, or targets, (B,T), as an input. */
int program_tokens(struct program *, const char *name, int64_t B, int64_t T);
/* Says which value is the layer's result, which the next layer reads. */
void program_output(struct program *, int value);

/* x (B,T,C) = table[token] + places[position], with parameters `table`.weight (vocabulary, C), split over
 * shards by rows, and `places`.weight (positions, C). `places` NULL: positions are not embedded. */
int program_embedding(struct program *, const char *table, const char *places, int tokens, int64_t vocabulary,
                      int64_t positions, int64_t C);
/* y (B,T,out...) = x w^T, with x (B,T,in...) and the parameter `name`.weight ((out...), (in...)). `out` has
 * `outs` extents. `split` is the axis of w, outputs first, of which shards have parts; STATE_WHOLE: none. */
int program_linear(struct program *, const char *name, int x, int outs, const int64_t out[], int split);
/* The same product for a weight that a model's files have in `count` pieces, one below the other, each of so
 * many rows. Shards split each piece by its own outputs. */
struct linear_piece {
        const char *name;
        int64_t rows;
};
int program_linear_of(struct program *, int count, const struct linear_piece pieces[], int x, int outs,
                      const int64_t out[], int split);
/* Adds the parameter `name`.bias to a product's result y, in place. The bias is one tensor: the product's
 * weight must not be in pieces. */
int program_bias(struct program *, const char *name, int y);
/* The same for a product whose weight is in these pieces: each of them has a bias. */
int program_bias_of(struct program *, int count, const struct linear_piece pieces[], int y);
/* The same, and adds x too. See program_residual for what must have been built before. */
int program_bias_residual(struct program *, const char *name, int y, int x);
/* GELU of y with its bias. The bias is added to y in place; the result has memory of its own. */
int program_bias_gelu(struct program *, const char *name, int y);
/* y + x, in place of y, which is a product's result, a mixture's or such a sum. Whatever else reads x (norms)
 * must have been built before: in the backward the residual's gradient comes first, and the others are added
 * to it. */
int program_residual(struct program *, int y, int x);
/* LayerNorm and RMSNorm of x, with parameters `name`.weight and, of LayerNorm, `name`.bias. Both also write
 * the statistics that their backward reads. LayerNorm's epsilon is 1e-5; `more`, 0 or 1, is added to its
 * weight, which begins with what is left of 1. */
int program_layernorm(struct program *, const char *name, int x, double more);
int program_rmsnorm(struct program *, const char *name, int x, double epsilon);
/* RMSNorm of each head of queries, by the parameter `queries`.weight (hs), and of keys, by `keys`.weight,
 * from queries, keys and values (B,T, heads + 2 kv_heads, hs) to a copy of them. `heads` are those of
 * queries. */
int program_head_norms(struct program *, const char *queries, const char *keys, int qkv, int64_t heads,
                       double epsilon);
/* silu(gate) times up, from gates and ups (B,T,2,F) to (B,T,F). */
int program_swiglu(struct program *, int gates);
/* max(h, 0)^2 of a product's result h (B,T,F). */
int program_squared_relu(struct program *, int h);
/* A mixture of `count` experts, each a SwiGLU of `inner` columns without biases: every token goes to
 * `chosen` of them, by the parameter `router`.weight (count, C). `names` are those of the experts' gates, ups
 * and downs, with %d for the expert. The rest is what runtime/device/kernels.h says of `route`: logistic or
 * softmax scores, whether the weights are normalised and what they are multiplied by, the coefficient of the
 * balancing loss, and how many groups experts are chosen in (0 or 1: none),
 * and whether by their best one or their two best.
 *
 * `correction`, unless it is NULL, is what the router's files call the correction beside its weight:
 * `router`.`correction` (count) is a parameter, zeros at first, that experts are chosen by. No step makes a
 * gradient of it, so training leaves it as it is. It is stored as all parameters are: in 16 bits where those
 * are, which may choose another expert where two are as good as equal. */
struct program_experts {
        int count, chosen;
        int64_t inner;
        const char *router, *names[3], *correction;
        bool logistic, normalised;
        double factor, balance;
        int groups, chosen_groups;
        bool best_of_group;
};
/* Sends the rows of x (B,T,C) through their experts and returns the sums (B,T,C) of what comes back. What is
 * added beside them (an expert that all tokens share) is built after it: where both are parts of sums, shards
 * add up their sum. */
int program_mixture(struct program *, const struct program_experts *, int x);
/* Rotates queries and keys by their positions, in place of queries, keys and values (B,T, heads + 2
 * kv_heads, hs), in this order. `heads` are those of queries, `columns` those of a head that turn, its first
 * ones. From a position to the next, column pair i turns by f = theta^(-2 i / columns), less f taken min(1,
 * max(0, by_frequency f + by_column i + constant)). */
struct rope_angles {
        double theta, taken, by_frequency, by_column, constant;
};
int program_rope(struct program *, int qkv, int64_t heads, int64_t columns, const struct rope_angles *);
/* The first `width` columns of x (B,T,C), and the others, each in memory of their own. */
void program_split_columns(struct program *, int x, int64_t width, int parts[2]);
/* Queries, keys and values (B,T,3 H,hs), as the grouped attention has them, of multi-head latent attention
 * (DeepSeek-AI 2024): from queries (B,T,H,hs); from kv (B,T,H,...), which has of each head the first columns
 * of its key and then its value, of `values` columns, behind which zeros are put; and from the last columns
 * of every key (B,T,rotated), which all heads share. The last columns of queries, and what is shared, are
 * rotated by their positions and multiplied by `length`. `interleaved`: columns that turn with each other lie
 * side by side, and half a width apart afterwards. */
struct latent_heads {
        int64_t values;
        struct rope_angles angles;
        double length;
        bool interleaved;
};
int program_latent_qkv(struct program *, int q, int kv, int shared, const struct latent_heads *);
/* The first `width` columns of each head of x (B,T,H,hs). */
int program_narrow(struct program *, int x, int64_t width);
/* Causal attention from qkv (B,T,3,H,hs) to (B,T,H,hs), as two products and a softmax between them. */
int program_attention(struct program *, int qkv);
/* Causal attention from (B,T, heads + 2 kv_heads, hs) to (B,T,heads,hs), where several heads of queries
 * share one of keys and values. It is always the fused kernel. Products of queries and keys are multiplied by
 * `scale`. */
int program_grouped_attention(struct program *, int qkv, int64_t heads, double scale);
/* Appends the loss: logits (B,T,V) = x w^T with the parameter `name`.weight, then the cross entropy, which
 * leaves the gradient of the logits in their place; `loss_only`: the loss alone, and the program has no
 * backward. Both steps may be run for one chunk of rows after another. */
void program_loss(struct program *, const char *name, int x, int64_t vocabulary, int targets, bool loss_only);

/* ---- passes ---- */

/* Add the collectives of shards to the forward, or the backward: gathers before products of rows, sums
 * before steps that need them whole. With one shard they do nothing. */
void program_shard_forward(struct program *);
void program_shard_backward(struct program *);

/* Where shards share matrices along z: adds the all-gathers of those before the steps that read them, and
 * reduce-scatters of their gradients. */
void program_share(struct program *);

/* Replaces, in a list of steps, a product and what follows it in place by one kernel, with the LayerNorm
 * behind it if there is one, and attention's scores, softmax and product with the values by one. */
void program_fuse(struct program *, struct steps *);

/* Derives the backward: the adjoints of the forward's steps, in reverse. */
void program_backward(struct program *);

/* Where several ranks have parts of the same sequences: puts, behind the fused attention of the forward and
 * of the backward, attention to the keys of the other ranks, and the collectives that bring these and take
 * their gradients. */
void program_context(struct program *);

/* Has the products of parameters, but not a router's, read copies in a format, forward and backward: puts the
 * steps that make these before them. What a shard has some rows of is quantized before it is gathered. A
 * product reads its operands along what is summed over, so the gradient of weights reads transposed copies;
 * of what goes in only that one is kept. Of parameters there are copies in memory that are made once a batch
 * (workload_list_quantize) or, with `weights_each_pass`, in each pass that reads them. With `maxima` the
 * largest magnitude of what is quantized is found before. */
void program_quantize(struct program *, enum product_format format, bool maxima, bool weights_each_pass);

/* Runs all of these on a program whose forward is built: the collectives of the forward, its fused kernels
 * (if `fused`), the backward, the collectives of that, its fused kernels (if `fused`), what parts of
 * sequences need, and the collectives of matrices. What is quantized comes after it. */
void program_finish(struct program *, bool fused);

/* Whether an activation of the forward is stored for the backward; else the steps that make it run again. */
bool program_stores(const struct program *, enum recompute recompute, int value);

/* Marks in `again` the steps of the forward that a backward runs again. */
void program_run_again(const struct program *, enum recompute recompute, bool again[PROGRAM_STEPS]);

/* Writes to `out` the steps of a backward, or of one part of it, with what runs again before the steps that
 * read it. */
void program_list_backward(const struct program *, enum recompute recompute, enum kernel_part parts,
                           struct steps *out);

/* Cuts, in a list of work, products whose results the shards add up, and these sums, into `pieces` of rows of
 * tokens, or as many as there are rows: the sum of a piece runs beside the next one's product, that of the
 * last one beside what is there to do before the sum is read. So are products of rows that sequence parallel
 * shards gather: the next piece is gathered beside the product of one. Of one piece there is the last alone.
 */
void program_overlap(const struct program *, struct steps *steps);
/* Return in how many pieces `rows` of tokens are, how many of a shard's own rows lie before one of them, and
 * how many of all. Sequence parallel shards have an even part of each piece, so that a piece is gathered to
 * one range of rows. */
int program_pieces(const struct program *, int64_t rows);
static inline int64_t rows_before_piece(int64_t rows, int pieces, int piece)
{
        return piece * rows / pieces;
}
int64_t program_piece_row(const struct program *, int64_t rows, int piece);
/* Returns the number of experts on whose rows a step works by their ends, as grouped products do; 0: on
 * none's. */
int program_step_experts(const struct program *, const struct step *);
/* Whether a step gathers rows of tokens of which each shard has some. */
bool program_gathers_rows(const struct program *, const struct step *);

/* ---- memory, of one shard ---- */

/* Marks the values that a micro-batch's slot holds of the layer: the forward's results that the backward
 * reads and does not run again, and the layer's output. With `chunked` the steps that may run in chunks of
 * rows do, and nothing keeps what they write. */
void program_kept(const struct program *, enum recompute recompute, bool chunked, bool kept[PROGRAM_VALUES]);

/* Marks the gradients that the first part of a backward in two leaves for the second, and that of the layer's
 * output, which the layer behind leaves for the first. */
void program_deferred(const struct program *, bool deferred[PROGRAM_VALUES]);

/* Marks the values whose memory a list of steps reads or writes. Of values that were made of one another in
 * place, it marks all. */
void program_touched(const struct program *, const struct steps *, bool touched[PROGRAM_VALUES]);

/* Returns the bytes of so many of a value's elements, where stored tensors have `element_bytes`. */
int64_t program_elements_bytes(const struct value *, int64_t elements, int element_bytes);
/* Returns the bytes of a value of all rows, rounded up to MEMORY_ALIGNMENT. `element_bytes`, here and below:
 * of an element of a stored tensor, 2, 4, or 8 in the double build. */
int64_t program_value_bytes(const struct program *, int value, int element_bytes);

/* Returns the bytes of all values in `set`, one behind the other. None of them may be made of another in
 * place. Each begins at a multiple of MEMORY_ALIGNMENT, except that values of equal extents that are fp32 in
 * any precision share one buffer. Where each value of the set begins is written to `offset`, unless that is
 * NULL. */
int64_t program_bytes(const struct program *, const bool set[PROGRAM_VALUES], int element_bytes,
                      int64_t offset[PROGRAM_VALUES]);

/* Where the values lie that a list of steps writes: all in one buffer, in which a value takes the place of
 * those that no later step reads. */
struct placement {
        /* The value whose memory a value has: its own, or the one that it was made of in place. */
        short store[PROGRAM_VALUES];
        /* The byte in the buffer at which a store begins; -1: it is not in the buffer. */
        int64_t offset[PROGRAM_VALUES];
        /* The store has the rows of one chunk only. */
        bool rows[PROGRAM_VALUES];
        /* The size of the buffer. */
        int64_t bytes;
};
/* Places the values that `steps` write, but not those in `fixed`, which lie elsewhere. Steps that may run in
 * chunks run for `chunk_rows` rows of tokens at a time; 0: for all rows at once. */
void program_place(const struct program *, const struct steps *, const bool fixed[PROGRAM_VALUES],
                   int64_t chunk_rows, int element_bytes, struct placement *);

/* ---- reading a program ---- */

/* Returns the elements of a value as one shard has it; if `rows` is not 0, of so many rows of tokens only. */
int64_t program_elements(const struct program *, int value, int64_t rows);
/* The same, but of rows that other ranks send as many as there is memory for, and padded rows as long as they
 * are. */
int64_t program_stored_elements(const struct program *, int value, int64_t rows);
/* Return the elements from a row of a value, or of so many columns, to the next: more than its columns where
 * it is padded. */
int64_t program_pitch(const struct program *, int value);
int64_t program_padded(int64_t columns);
/* Returns the shard's extent of a value along one axis, in elements. */
int64_t program_axis(const struct program *, int value, int axis);

/* Returns the kernel that a step is, with its shape on one shard and tensors stored as `dtype`. If `rows` is
 * not 0, the step is run for a chunk of so many rows of tokens. Collectives never run in chunks. */
struct kernel program_kernel(const struct program *, const struct step *, enum dtype dtype, int64_t rows);

/* Returns the row of a parameter's first tensor. */
struct program_tensor *program_tensor_of(struct program *, int value);

/* Whether a step writes its i-th operand. */
bool step_writes(const struct step *, int i);
/* Returns the value that a step reads by its i-th operand, or -1. Where the step works in place that is not
 * the view's value but the one that it overwrites. */
int step_reads(const struct program *, const struct step *, int i);

/* Returns the value that collectives made this one of, through all of them; itself if there are none. */
static inline int value_root(const struct program *p, int value)
{
        while (p->values[value].origin >= 0)
                value = p->values[value].origin;
        return value;
}

/* ---- for passes ---- */

/* Append a value, and return its index; append a step, and return its place in the list, where views without
 * rows and columns now have no value. */
int program_add_value(struct program *, struct value value);
struct step *program_add_step(struct steps *, struct step step);

#endif
