/* Tables of kernels and collectives, measured or to be priced: comma separated values whose first line names
 * the columns, one shape a line. Which form a table has is told by its columns:
 *
 *   gemm         dtype,m,n,k[,transpose_a,transpose_b]              y (m,n) = x (m,k) w^T; transposes are N
 * or T attention    batch,seq_len,heads,kv_heads,head_dim[,dtype]      causal attention forward (bf16)
 *   collectives  gpu,operation,gpus,elements_fp16                   all_reduce, all_gather, ...; the elements
 * of the whole buffer, in 16 bits moe          gpu,routing,tokens,hidden,expert_ffn,top_k,experts,ep both
 * products of a layer's experts and their activation, forward (bf16), of one of `ep` GPUs training
 * gpu,kernel,pass,dtype,batch,m,n,k,heads,kv_heads,qk_head_dim,v_head_dim,... gemm, attention and grouped
 * gemm of a training run, as in long loops
 *
 * and `seconds` in each, which may be missing where a table is to be priced. Other columns are left alone.
 * Seconds are above 0. dtype is fp32, fp16 (or float16), bf16 (or bfloat16), fp8 or nvfp4. */
#ifndef RANVIER_MODELS_KERNELS_SHAPE_TABLE_H
#define RANVIER_MODELS_KERNELS_SHAPE_TABLE_H

#include "models/kernels/kernel.h"
#include "runtime/base/error.h"

enum shape_form {
        SHAPES_GEMM,
        SHAPES_ATTENTION,
        SHAPES_COLLECTIVES,
        SHAPES_EXPERTS,
        SHAPES_TRAINING,
        SHAPE_FORMS
};

enum shape_collective { SHAPE_ALL_REDUCE, SHAPE_ALL_GATHER, SHAPE_REDUCE_SCATTER, SHAPE_ALLTOALL };

/* The most kernels of a row: a layer's experts have three. */
enum { SHAPE_KERNELS = 3 };

struct shape_row {
        int line;       /* in the file, from 1 */
        uint64_t shape; /* the same in rows that differ in their seconds alone */
        char gpu[48];   /* "": the table has no such column */
        double seconds; /* NAN: there are none */
        /* What was measured, one after the other; of a collective none. */
        struct kernel kernels[SHAPE_KERNELS];
        int kernel_count;
        /* Of experts: over how many GPUs they are spread, and that their rows are not spread evenly, which
         * the kernels do not say. */
        int ranks;
        bool uneven;
        /* Of a collective: over `gpus`, of so many bytes of the whole buffer. */
        enum shape_collective collective;
        int gpus;
        int64_t bytes;
};

struct shape_table {
        char path[256];
        enum shape_form form;
        bool timed; /* there is a column `seconds` */
        struct shape_row *rows;
        int count;
};

/* Reads a table. RV_EINPUT names file, line and column of what is wrong: an unknown form, a cell that is no
 * number, seconds that are not above 0, rows of the same shape of which one took twice as long as the
 * other (both lines). The caller calls shape_table_free; after an error there is nothing to free. */
int shape_table_read(struct shape_table *table, const char *path, struct rv_error_info *err);
void shape_table_free(struct shape_table *table);

/* Returns the name of a form, as above, and of a collective, as in the table. */
const char *shape_form_name(enum shape_form form);
const char *shape_collective_name(enum shape_collective collective);

/* Returns the floating-point operations of a row's kernels. */
double shape_row_flops(const struct shape_row *row);

/* Help: the forms and their columns. */
extern const char shape_table_help[];

#endif
