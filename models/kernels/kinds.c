/* The one row a kind of kernel has: whoever adds a kind adds its constant, a row here and an implementation a
 * device. A tanh or exp counts as one operation, as in the literature's counts of model flops. */
#include "models/kernels/kernel.h"

#include <assert.h>
#include <stddef.h>

/* Operands: what a launch does with them. */
#define READ(name, extent)                                                                                   \
        {                                                                                                    \
                name, OPERAND_STORED, extent, WHEN_ALWAYS, WHEN_NEVER                                        \
        }
#define WRITE(name, extent)                                                                                  \
        {                                                                                                    \
                name, OPERAND_STORED, extent, WHEN_NEVER, WHEN_ALWAYS                                        \
        }
#define UPDATE(name, extent)                                                                                 \
        {                                                                                                    \
                name, OPERAND_STORED, extent, WHEN_ALWAYS, WHEN_ALWAYS                                       \
        }
#define ADD(name, extent)                                                                                    \
        {                                                                                                    \
                name, OPERAND_STORED, extent, WHEN_ACCUMULATING, WHEN_ALWAYS                                 \
        }
#define READ_REAL(name, extent)                                                                              \
        {                                                                                                    \
                name, OPERAND_REAL, extent, WHEN_ALWAYS, WHEN_NEVER                                          \
        }
#define WRITE_REAL(name, extent)                                                                             \
        {                                                                                                    \
                name, OPERAND_REAL, extent, WHEN_NEVER, WHEN_ALWAYS                                          \
        }
#define UPDATE_REAL(name, extent)                                                                            \
        {                                                                                                    \
                name, OPERAND_REAL, extent, WHEN_ALWAYS, WHEN_ALWAYS                                         \
        }
#define READ_INDEX(name, extent)                                                                             \
        {                                                                                                    \
                name, OPERAND_INDEX, extent, WHEN_ALWAYS, WHEN_NEVER                                         \
        }
#define WRITE_INDEX(name, extent)                                                                            \
        {                                                                                                    \
                name, OPERAND_INDEX, extent, WHEN_NEVER, WHEN_ALWAYS                                         \
        }
#define TOKENS(name)                                                                                         \
        {                                                                                                    \
                name, OPERAND_TOKENS, EXTENT_ONE, WHEN_ALWAYS, WHEN_NEVER                                    \
        }
#define READ_NUMBER(name)                                                                                    \
        {                                                                                                    \
                name, OPERAND_NUMBER, EXTENT_ONE, WHEN_ALWAYS, WHEN_NEVER                                    \
        }
#define ADD_NUMBER(name)                                                                                     \
        {                                                                                                    \
                name, OPERAND_NUMBER, EXTENT_ONE, WHEN_ALWAYS, WHEN_ALWAYS                                   \
        }

static const struct kernel_descriptor descriptors[KERNEL_ENTRIES] = {
        [KERNEL_MATMUL] = {"matmul",
                           {READ("a", EXTENT_MK), READ("b", EXTENT_KN), ADD("c", EXTENT_MN)},
                           .products = 1,
                           .split = SPLIT_BLOCKS},
        [KERNEL_EMBEDDING] = {"embedding",
                              {WRITE("x", EXTENT_MN), TOKENS("tokens"), READ("wte", EXTENT_TABLE),
                               READ("wpe", EXTENT_TABLE)},
                              .flops = 1}, /* not split: a thousandth of a batch */
        [KERNEL_EMBEDDING_BACKWARD] = {"embedding_backward",
                                       {UPDATE("dwte", EXTENT_TABLE), UPDATE("dwpe", EXTENT_TABLE),
                                        READ("dx", EXTENT_MN), TOKENS("tokens")},
                                       .flops = 2},
        /* mean 1, variance 3, normalise 2, scale and shift 2 */
        [KERNEL_LAYERNORM] = {"layernorm",
                              {WRITE("y", EXTENT_MN), WRITE_REAL("stats", EXTENT_2M), READ("x", EXTENT_MN),
                               READ("w", EXTENT_N), READ("b", EXTENT_N)},
                              .flops = 8,
                              .split = SPLIT_ROWS},
        /* normalise 2, dy w 1, two sums 3, dw and db 3, dx 4, accumulate 1 */
        [KERNEL_LAYERNORM_BACKWARD] = {"layernorm_backward",
                                       {ADD("dx", EXTENT_MN), UPDATE("dw", EXTENT_N), UPDATE("db", EXTENT_N),
                                        READ("dy", EXTENT_MN), READ("x", EXTENT_MN),
                                        READ_REAL("stats", EXTENT_2M), READ("w", EXTENT_N)},
                                       .flops = 13,
                                       .accumulate_flops = 1,
                                       .split = SPLIT_ROWS},
        [KERNEL_BIAS] = {"bias",
                         {UPDATE("y", EXTENT_MN), READ("b", EXTENT_N)},
                         .flops = 1,
                         .split = SPLIT_ROWS},
        [KERNEL_BIAS_BACKWARD] = {"bias_backward",
                                  {UPDATE("db", EXTENT_N), READ("dy", EXTENT_MN)},
                                  .flops = 1,
                                  .split = SPLIT_ROWS},
        /* bias 1; h/2 (1 + tanh(c (h + a h^3))) 9 */
        [KERNEL_BIAS_GELU] = {"bias_gelu",
                              {WRITE("g", EXTENT_MN), UPDATE("h", EXTENT_MN), READ("b", EXTENT_N)},
                              .flops = 10,
                              .split = SPLIT_ROWS},
        [KERNEL_GELU_BACKWARD] = {"gelu_backward",
                                  {UPDATE("dh", EXTENT_MN), READ("h", EXTENT_MN)},
                                  .flops = 16,
                                  .split = SPLIT_ROWS},
        [KERNEL_BIAS_RESIDUAL] = {"bias_residual",
                                  {UPDATE("y", EXTENT_MN), READ("b", EXTENT_N), READ("x", EXTENT_MN)},
                                  .flops = 2,
                                  .split = SPLIT_ROWS},
        [KERNEL_RESIDUAL] = {"residual",
                             {UPDATE("y", EXTENT_MN), READ("x", EXTENT_MN)},
                             .flops = 1,
                             .split = SPLIT_ROWS},
        /* squares 2, normalise and scale 2 */
        [KERNEL_RMSNORM] = {"rmsnorm",
                            {WRITE("y", EXTENT_MN), WRITE_REAL("rstd", EXTENT_M), READ("x", EXTENT_MN),
                             READ("w", EXTENT_N)},
                            .flops = 4,
                            .split = SPLIT_ROWS},
        /* normalise 1, dy w 1, sum 2, dw 2, dx 3, accumulate 1 */
        [KERNEL_RMSNORM_BACKWARD] = {"rmsnorm_backward",
                                     {ADD("dx", EXTENT_MN), UPDATE("dw", EXTENT_N), READ("dy", EXTENT_MN),
                                      READ("x", EXTENT_MN), READ_REAL("rstd", EXTENT_M), READ("w", EXTENT_N)},
                                     .flops = 9,
                                     .accumulate_flops = 1,
                                     .split = SPLIT_ROWS},
        /* two products and their sum; sines and cosines, which all heads share, are not counted */
        [KERNEL_ROPE] = {"rope", {UPDATE("x", EXTENT_MN)}, .flops = 3, .heads = true, .split = SPLIT_ROWS},
        /* as rmsnorm and its backward, of a row's heads; those of values too, of which nothing is computed */
        [KERNEL_HEAD_RMSNORM] = {"head_rmsnorm",
                                 {WRITE("y", EXTENT_MN), WRITE_REAL("rstd", EXTENT_HEADS),
                                  READ("x", EXTENT_MN), READ("w", EXTENT_2K)},
                                 .flops = 4,
                                 .heads = true,
                                 .split = SPLIT_ROWS},
        [KERNEL_HEAD_RMSNORM_BACKWARD] = {"head_rmsnorm_backward",
                                          {UPDATE("dx", EXTENT_MN), UPDATE("dw", EXTENT_2K),
                                           READ("x", EXTENT_MN), READ_REAL("rstd", EXTENT_HEADS),
                                           READ("w", EXTENT_2K)},
                                          .flops = 9,
                                          .heads = true,
                                          .split = SPLIT_ROWS},
        [KERNEL_SPLIT_COLUMNS] = {"split_columns",
                                  {WRITE("a", EXTENT_MN), WRITE("b", EXTENT_ROWS_K),
                                   READ("x", EXTENT_ROWS_NK)},
                                  .split = SPLIT_ROWS},
        [KERNEL_JOIN_COLUMNS] = {"join_columns",
                                 {WRITE("x", EXTENT_ROWS_NK), READ("a", EXTENT_MN), READ("b", EXTENT_ROWS_K)},
                                 .split = SPLIT_ROWS},
        /* rope's 3 of the columns of queries that are rotated, counted as if all were */
        [KERNEL_LATENT_QKV] = {"latent_qkv",
                               {WRITE("qkv", EXTENT_ROWS_3N), READ("q", EXTENT_MN), READ("kv", EXTENT_ROWS_L),
                                READ("shared", EXTENT_SHARED)},
                               .flops = 3,
                               .split = SPLIT_ROWS,
                               .whole_tokens = true},
        /* and the sum over heads of the gradient of what they share */
        [KERNEL_LATENT_QKV_BACKWARD] = {"latent_qkv_backward",
                                        {WRITE("dq", EXTENT_MN), WRITE("dkv", EXTENT_ROWS_L),
                                         WRITE("dshared", EXTENT_SHARED), READ("dqkv", EXTENT_ROWS_3N)},
                                        .flops = 4,
                                        .split = SPLIT_ROWS,
                                        .whole_tokens = true},
        /* x's rows are whole, though their last columns are not read: an extent also says how far apart
         * rows lie. */
        [KERNEL_NARROW] = {"narrow", {WRITE("y", EXTENT_MN), READ("x", EXTENT_ROWS_K)}, .split = SPLIT_ROWS},
        [KERNEL_WIDEN] = {"widen", {WRITE("x", EXTENT_ROWS_K), READ("y", EXTENT_MN)}, .split = SPLIT_ROWS},
        /* negation, exp, sum, division; up 1 */
        [KERNEL_SWIGLU] = {"swiglu",
                           {WRITE("y", EXTENT_MN), READ("gu", EXTENT_M2N)},
                           .flops = 5,
                           .split = SPLIT_ROWS},
        /* the logistic s 4, silu = g s 1; dup 1; dgate = dy up (s + silu (1 - s)) 5 */
        [KERNEL_SWIGLU_BACKWARD] = {"swiglu_backward",
                                    {WRITE("dgu", EXTENT_M2N), READ("dy", EXTENT_MN), READ("gu", EXTENT_M2N)},
                                    .flops = 11,
                                    .split = SPLIT_ROWS},
        [KERNEL_SQUARED_RELU] = {"squared_relu",
                                 {WRITE("y", EXTENT_MN), READ("h", EXTENT_MN)},
                                 .flops = 2,
                                 .split = SPLIT_ROWS},
        [KERNEL_SQUARED_RELU_BACKWARD] = {"squared_relu_backward",
                                          {UPDATE("dh", EXTENT_MN), READ("h", EXTENT_MN)},
                                          .flops = 3,
                                          .split = SPLIT_ROWS},
        /* exp, sum, division; not split: a thousandth of a batch, and where a row goes depends on those
         * before it */
        [KERNEL_ROUTE] = {"route",
                          {WRITE_REAL("weights", EXTENT_MK), WRITE_INDEX("place", EXTENT_MK),
                           WRITE_INDEX("source", EXTENT_MK), WRITE_INDEX("ends", EXTENT_N),
                           READ("logits", EXTENT_MN), READ("correction", EXTENT_ONE)},
                          .flops = 3,
                          .whole_tokens = true},
        /* the probabilities again 3, sums 2, difference and product 2 */
        [KERNEL_ROUTE_BACKWARD] = {"route_backward",
                                   {WRITE("dlogits", EXTENT_MN), READ_REAL("dweights", EXTENT_MK),
                                    READ_REAL("weights", EXTENT_MK), READ_INDEX("place", EXTENT_MK),
                                    READ_INDEX("ends", EXTENT_N), READ("logits", EXTENT_MN)},
                                   .flops = 7,
                                   .split = SPLIT_ROWS,
                                   .whole_tokens = true,
                                   .linear = true},
        [KERNEL_PERMUTE] = {"permute",
                            {WRITE("y", EXTENT_MN), READ("x", EXTENT_TABLE), READ_INDEX("source", EXTENT_M)},
                            .split = SPLIT_ROWS,
                            .whole_tokens = true,
                            .linear = true},
        [KERNEL_UNPERMUTE] = {"unpermute",
                              {ADD("y", EXTENT_MN), READ("x", EXTENT_TABLE_K),
                               READ_INDEX("place", EXTENT_MK)},
                              .flops = 1, /* and k - 1 more, as many as experts */
                              .split = SPLIT_ROWS,
                              .whole_tokens = true,
                              .linear = true},
        [KERNEL_GROUPED_MATMUL] = {"grouped_matmul",
                                   {READ("a", EXTENT_MK), READ("b", EXTENT_EKN), WRITE("c", EXTENT_MN),
                                    READ_INDEX("ends", EXTENT_ONE)},
                                   .products = 1,
                                   .split = SPLIT_EXPERTS},
        [KERNEL_GROUPED_MATMUL_BACKWARD] = {"grouped_matmul_backward",
                                            {READ("a", EXTENT_MK), READ("b", EXTENT_KN),
                                             UPDATE("c", EXTENT_EMN), READ_INDEX("ends", EXTENT_ONE)},
                                            .products = 1,
                                            .split = SPLIT_EXPERTS},
        /* SwiGLU 5, the weight 1 */
        [KERNEL_EXPERT_ENDS] = {"expert_ends",
                                {WRITE_INDEX("ends", EXTENT_M), READ_INDEX("all_ends", EXTENT_ONE)}},
        [KERNEL_WEIGHTED_SWIGLU] = {"weighted_swiglu",
                                    {WRITE("y", EXTENT_MN), READ("gu", EXTENT_M2N), READ_REAL("w", EXTENT_M),
                                     READ_INDEX("ends", EXTENT_ONE)},
                                    .flops = 6,
                                    .split = SPLIT_ROWS},
        /* SwiGLU's 11, the weight 1, dw 2 */
        [KERNEL_WEIGHTED_SWIGLU_BACKWARD] = {"weighted_swiglu_backward",
                                             {WRITE("dgu", EXTENT_M2N), WRITE_REAL("dw", EXTENT_M),
                                              READ("dy", EXTENT_MN), READ("gu", EXTENT_M2N),
                                              READ_REAL("w", EXTENT_M), READ_INDEX("ends", EXTENT_ONE)},
                                             .flops = 14,
                                             .split = SPLIT_ROWS},
        /* scale, maximum, exp of difference, sum, division */
        [KERNEL_SOFTMAX] =
                {"softmax", {UPDATE("s", EXTENT_MN)}, .flops = 5, .causal = true, .split = SPLIT_ROWS},
        /* product and sum, difference, two products */
        [KERNEL_SOFTMAX_BACKWARD] = {"softmax_backward",
                                     {UPDATE("dp", EXTENT_MN), READ("p", EXTENT_MN)},
                                     .flops = 5,
                                     .causal = true,
                                     .split = SPLIT_ROWS},
        /* maximum, exp of difference, sum, division, scale */
        [KERNEL_CROSS_ENTROPY] = {"cross_entropy",
                                  {ADD_NUMBER("loss"), UPDATE("logits", EXTENT_MN), TOKENS("targets"),
                                   READ_REAL("numbers", EXTENT_ONE)},
                                  .flops = 6,
                                  .split = SPLIT_ROWS},
        [KERNEL_CROSS_ENTROPY_LOSS] = {"cross_entropy_loss",
                                       {ADD_NUMBER("loss"), READ("logits", EXTENT_MN), TOKENS("targets"),
                                        WRITE_REAL("numbers", EXTENT_ONE)},
                                       .flops = 4,
                                       .split = SPLIT_ROWS},
        [KERNEL_SQUARED_NORM] = {"squared_norm",
                                 {ADD_NUMBER("sum"), READ("x", EXTENT_M)},
                                 .flops = 2,
                                 .split = SPLIT_ELEMENTS,
                                 .result = RESULT_SUM},
        /* clip 1, moments 3 + 4, bias corrections 2, root and quotient 3, decay 2, step 1 */
        [KERNEL_ADAMW] = {"adamw",
                          {UPDATE_REAL("p", EXTENT_M),
                           {"g", OPERAND_REAL, EXTENT_M, WHEN_ALWAYS, WHEN_FP32},
                           UPDATE_REAL("m", EXTENT_M),
                           UPDATE_REAL("v", EXTENT_M),
                           {"ranges", OPERAND_HOST, EXTENT_ONE, WHEN_ALWAYS, WHEN_NEVER},
                           READ_NUMBER("gradient_scale"),
                           {"weights", OPERAND_STORED, EXTENT_M, WHEN_NEVER, WHEN_MIXED}},
                          .flops = 16,
                          .split = SPLIT_ELEMENTS},
        [KERNEL_OVERFLOW] = {"overflow",
                             {ADD_NUMBER("found"), READ("g", EXTENT_M)},
                             .flops = 1,
                             .split = SPLIT_ELEMENTS,
                             .result = RESULT_ANY,
                             .only_mixed = true},
        [KERNEL_UNSCALE] = {"unscale",
                            {WRITE_REAL("out", EXTENT_M), UPDATE("g", EXTENT_M), READ_NUMBER("scale")},
                            .flops = 1,
                            .split = SPLIT_ELEMENTS,
                            .only_mixed = true},
        [KERNEL_CLEAR] = {"clear", {WRITE("g", EXTENT_M)}, .split = SPLIT_ELEMENTS},
        [KERNEL_MATMUL_BIAS] = {"matmul_bias",
                                {WRITE("y", EXTENT_MN), READ("x", EXTENT_MK), READ("w", EXTENT_KN),
                                 READ("b", EXTENT_N)},
                                .products = 1,
                                .flops = 1,
                                .split = SPLIT_BLOCKS,
                                .fused = true},
        [KERNEL_MATMUL_BIAS_GELU] = {"matmul_bias_gelu",
                                     {WRITE("g", EXTENT_MN), WRITE("h", EXTENT_MN), READ("x", EXTENT_MK),
                                      READ("w", EXTENT_KN), READ("b", EXTENT_N)},
                                     .products = 1,
                                     .flops = 10,
                                     .split = SPLIT_BLOCKS,
                                     .fused = true},
        [KERNEL_MATMUL_BIAS_RESIDUAL] = {"matmul_bias_residual",
                                         {WRITE("y", EXTENT_MN), READ("x", EXTENT_MK), READ("w", EXTENT_KN),
                                          READ("b", EXTENT_N), READ("r", EXTENT_MN)},
                                         .products = 1,
                                         .flops = 2,
                                         .split = SPLIT_BLOCKS,
                                         .fused = true},
        [KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM] = {"matmul_bias_residual_layernorm",
                                                   {WRITE("y", EXTENT_MN), READ("x", EXTENT_MK),
                                                    READ("w", EXTENT_KN), READ("b", EXTENT_N),
                                                    READ("r", EXTENT_MN), WRITE("ln", EXTENT_MN),
                                                    WRITE_REAL("stats", EXTENT_2M), READ("ln_w", EXTENT_N),
                                                    READ("ln_b", EXTENT_N)},
                                                   .products = 1,
                                                   .flops = 10,
                                                   .split = SPLIT_WHOLE_ROWS,
                                                   .fused = true,
                                                   .parts = 2,
                                                   .part = {KERNEL_MATMUL_BIAS_RESIDUAL, KERNEL_LAYERNORM}},
        [KERNEL_MATMUL_GELU_BACKWARD] = {"matmul_gelu_backward",
                                         {WRITE("dh", EXTENT_MN), READ("dy", EXTENT_MK), READ("w", EXTENT_KN),
                                          READ("h", EXTENT_MN)},
                                         .products = 1,
                                         .flops = 16,
                                         .split = SPLIT_BLOCKS,
                                         .fused = true},
        /* S and P V, and a softmax */
        [KERNEL_ATTENTION] = {"attention",
                              {WRITE("y", EXTENT_MK), WRITE_REAL("lse", EXTENT_M), READ("qkv", EXTENT_QKV)},
                              .products = 2,
                              .flops = 5,
                              .causal = true,
                              .split = SPLIT_HEADS,
                              .fused = true},
        /* S again, dP, dQ, dK, dV; P again and dS. It keeps the sums of dy y of each row in `rows` */
        [KERNEL_ATTENTION_BACKWARD] = {"attention_backward",
                                       {WRITE("dqkv", EXTENT_QKV), UPDATE_REAL("rows", EXTENT_M),
                                        READ("dy", EXTENT_MK), READ("y", EXTENT_MK),
                                        READ_REAL("lse", EXTENT_M), READ("qkv", EXTENT_QKV)},
                                       .products = 5,
                                       .flops = 7,
                                       .causal = true,
                                       .split = SPLIT_HEADS,
                                       .fused = true},
        /* The same of another rank's keys: what was summed goes on. Where it is not measured: attention's
         * figures, whose products are as many. */
        [KERNEL_CONTEXT_ATTENTION] = {"context_attention",
                                      {UPDATE("y", EXTENT_MK), UPDATE_REAL("lse", EXTENT_M),
                                       READ("qkv", EXTENT_QUERIES), READ("kv", EXTENT_KEYS)},
                                      .products = 2,
                                      .flops = 5,
                                      .half = true,
                                      .split = SPLIT_HEADS,
                                      .fused = true,
                                      .parts = 1,
                                      .part = {KERNEL_ATTENTION}},
        /* The rows' sums of dy y are there already */
        [KERNEL_CONTEXT_ATTENTION_BACKWARD] = {"context_attention_backward",
                                               {UPDATE("dqkv", EXTENT_QUERIES), WRITE("dkv", EXTENT_KEYS),
                                                READ_REAL("rows", EXTENT_M), READ("dy", EXTENT_MK),
                                                READ_REAL("lse", EXTENT_M), READ("qkv", EXTENT_QUERIES),
                                                READ("kv", EXTENT_KEYS)},
                                               .products = 5,
                                               .flops = 7,
                                               .half = true,
                                               .split = SPLIT_HEADS,
                                               .fused = true,
                                               .parts = 1,
                                               .part = {KERNEL_ATTENTION_BACKWARD}},
        [KERNEL_LAST_COLUMNS] = {"last_columns",
                                 {WRITE("y", EXTENT_MN), READ("x", EXTENT_ROWS_K)},
                                 .split = SPLIT_ROWS},
        [KERNEL_SET_LAST_COLUMNS] = {"set_last_columns",
                                     {UPDATE("x", EXTENT_ROWS_K), READ("y", EXTENT_MN)},
                                     .split = SPLIT_ROWS},
        /* a product with the scale, and, where the next scale is made of it, a maximum */
        [KERNEL_QUANTIZE] = {"quantize",
                             {{"q", OPERAND_QUANTIZED, EXTENT_MN, WHEN_NEVER, WHEN_ALWAYS},
                              {"transposed", OPERAND_QUANTIZED, EXTENT_MN, WHEN_NEVER, WHEN_TRANSPOSING},
                              READ("x", EXTENT_MN),
                              READ_REAL("scale", EXTENT_ONE)},
                             .flops = 2,
                             .split = SPLIT_ROWS,
                             .only_predicted = true},
        [KERNEL_MAXIMUM] = {"maximum",
                            {WRITE_REAL("scale", EXTENT_ONE), READ("x", EXTENT_MN)},
                            .flops = 1,
                            .split = SPLIT_ROWS,
                            .only_predicted = true},
        [KERNEL_TRANSPOSE_QUANTIZED] = {"transpose_quantized",
                                        {{"transposed", OPERAND_QUANTIZED, EXTENT_MN, WHEN_NEVER,
                                          WHEN_ALWAYS},
                                         {"x", OPERAND_QUANTIZED, EXTENT_MN, WHEN_ALWAYS, WHEN_NEVER}},
                                        .split = SPLIT_ROWS,
                                        .only_predicted = true},
        [KERNEL_TENSOR_ALLREDUCE] = {"tensor_allreduce"},
        [KERNEL_TENSOR_ALL_GATHER] = {"tensor_all_gather"},
        [KERNEL_TENSOR_REDUCE_SCATTER] = {"tensor_reduce_scatter"},
        [KERNEL_TENSOR_X_ALLREDUCE] = {"tensor_x_allreduce"},
        [KERNEL_TENSOR_Z_ALL_GATHER] = {"tensor_z_all_gather"},
        [KERNEL_TENSOR_Z_REDUCE_SCATTER] = {"tensor_z_reduce_scatter"},
        [KERNEL_TENSOR_Z_JOIN] = {"tensor_z_join"},
        [KERNEL_EXPERT_COUNTS] = {"expert_counts",
                                  {WRITE_INDEX("all_ends", EXTENT_ONE), READ_INDEX("ends", EXTENT_ONE)}},
        [KERNEL_EXPERT_DISPATCH] = {"expert_dispatch",
                                    {WRITE("y", EXTENT_ONE), READ("x", EXTENT_ONE),
                                     READ_INDEX("all_ends", EXTENT_ONE)},
                                    .linear = true},
        [KERNEL_EXPERT_COMBINE] = {"expert_combine",
                                   {WRITE("y", EXTENT_ONE), READ("x", EXTENT_ONE),
                                    READ_INDEX("all_ends", EXTENT_ONE)},
                                   .linear = true},
        [KERNEL_JOIN] = {"join"},
        [KERNEL_CONTEXT_SHIFT] = {"context_shift",
                                  {WRITE("to", EXTENT_ONE), READ("from", EXTENT_ONE),
                                   WRITE("to_too", EXTENT_ONE), READ("from_too", EXTENT_ONE)}},
        [KERNEL_CONTEXT_ALL_GATHER] = {"context_all_gather"},
        [KERNEL_CONTEXT_REDUCE_SCATTER] = {"context_reduce_scatter"},
};

const struct kernel_descriptor *kernel_descriptor(enum kernel_kind kind)
{
        assert(kind >= 0 && kind < KERNEL_ENTRIES && descriptors[kind].name);
        return &descriptors[kind];
}
