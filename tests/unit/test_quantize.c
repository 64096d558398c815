/* Products that read copies in a format of their own, and gradients in fp32: what is quantized, gathered,
 * kept and moved, against counts by hand. */
#include "models/memory.h"
#include "tests/unit/numbers.h"

#include <string.h>

/* Llama 3 8B, a sequence of 8192 tokens: columns of the residual stream, of queries, keys and values, and of
 * the MLP. */
enum { N = 8192, C = 4096, QKV = 4096 + 2 * 1024, F = 14336 };

static void assert_close(double found, double expected, double relative)
{
        if (!(fabs(found - expected) <= relative * fabs(expected)))
                fail_msg("%.17g was expected, found %.17g", expected, found);
}

static struct gpt gpt_of(const char *name)
{
        struct gpt gpt;
        struct rv_error_info err;
        if (gpt_load(&gpt, name, &err))
                fail_msg("%s", err.sentence);
        return gpt;
}

static struct work work_of(enum product_format format)
{
        return (struct work){.micro_batch_size = 1,
                             .seq_len = N,
                             .dtype = DTYPE_BF16,
                             .format = format,
                             .fused = true,
                             .tp = 1};
}

static struct workload *workload_of(const struct gpt *gpt, const struct work *work)
{
        struct workload *w = malloc(sizeof *w);
        assert_non_null(w);
        workload_init(w, gpt, work, work->tp);
        return w;
}

static struct kernel kernel_at(const struct workload *w, enum layer layer, const struct steps *steps, int s)
{
        return program_kernel(&w->program[layer], &steps->at[s], w->work.dtype, 0);
}

/* The bytes of all kernels of a kind in a pass; `count` becomes how many they are. */
static double bytes_of(const struct workload *w, enum layer layer, enum layer_pass pass,
                       enum kernel_kind kind, int *count)
{
        struct steps steps;
        double bytes = 0;
        workload_steps(w, layer, pass, &steps);
        *count = 0;
        for (int s = 0; s < steps.count; s++) {
                const struct kernel kernel = kernel_at(w, layer, &steps, s);
                if (kernel.kind != kind)
                        continue;
                bytes += kernel_collective(kind) ? (double)kernel_collective_bytes(&kernel, 4)
                                                 : kernel_bytes(&kernel);
                ++*count;
        }
        return bytes;
}

static int64_t slot_of(const struct workload *w, enum layer layer)
{
        bool kept[PROGRAM_VALUES];
        return workload_slot(w, layer, kept, NULL);
}

/* Of every element 2 bytes are read, and one is written each for the product and, transposed, for the
 * gradient of weights. */
static void a_block_quantizes_what_goes_into_its_products(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        const struct work work = work_of(FORMAT_FP8);
        struct workload *w = workload_of(&gpt, &work);
        const struct stage stage = {.stages = 1, .chunks = 1, .layers = 2, .shards = 1};
        const double inputs = (double)N * (C + C + C + F), gradients = (double)N * (C + 2 * F + C + QKV);
        const double weights = (double)C * QKV + (double)C * C + 3.0 * C * F;
        struct kernel copies[PROGRAM_TENSORS];
        double bytes = 0;
        int count;
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_QUANTIZE, &count), 4 * inputs, 0);
        assert_int_equal(count, 4);
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_QUANTIZE, &count), 4 * gradients, 0);
        assert_int_equal(count, 4);
        count = workload_list_quantize(w, &stage, copies);
        assert_int_equal(count, 2 * 4);
        for (int i = 0; i < count; i++)
                bytes += kernel_bytes(&copies[i]);
        assert_close(bytes, 2 * 4 * weights, 0);
        for (int layer = 0; layer < LAYERS; layer++) /* embedding and head stay in bf16 */
                if (layer != LAYER_BLOCK && layer != LAYER_VALIDATION)
                        for (int pass = PASS_FORWARD; pass <= PASS_BACKWARD; pass += PASS_BACKWARD) {
                                bytes_of(w, (enum layer)layer, (enum layer_pass)pass, KERNEL_QUANTIZE,
                                         &count);
                                assert_int_equal(count, 0);
                        }
        free(w);
}

static void products_move_a_byte_for_each_element_they_read(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        struct work work = work_of(FORMAT_FP8);
        struct workload *w = workload_of(&gpt, &work);
        const double weights = (double)C * QKV + (double)C * C + 3.0 * C * F;
        int count;
        /* Of four products the inputs and results are of C and QKV, C and C, C and 2 F, F and C columns. */
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_MATMUL, &count),
                     weights + (double)N * (3.0 * C + F) + 2 * (double)N * (QKV + 2.0 * C + 2.0 * F), 0);
        assert_int_equal(count, 4);
        /* Backward each has two. Both read the gradients of results; one reads weights and writes the inputs'
         * gradients, the other reads the inputs, and adds to the weights' gradients, of 2 bytes or of 4. */
        const double back =
                2 * ((double)N * (QKV + 2.0 * C + 2.0 * F)) + weights + 3 * ((double)N * (3.0 * C + F));
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_MATMUL, &count), back + 2 * 2 * weights,
                     0);
        assert_int_equal(count, 8);
        free(w);
        work.wide_gradients = true;
        w = workload_of(&gpt, &work);
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_MATMUL, &count), back + 2 * 4 * weights,
                     0);
        free(w);
}

/* In bf16 a block keeps the results of both norms, of attention and of SwiGLU for weights' gradients; in fp8
 * transposed copies instead, and attention's result for attention's backward. */
static void what_goes_into_products_is_kept_in_their_format(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        const struct work stored = work_of(FORMAT_STORED), fp8 = work_of(FORMAT_FP8),
                          nvfp4 = work_of(FORMAT_NVFP4);
        struct workload *w[] = {workload_of(&gpt, &stored), workload_of(&gpt, &fp8),
                                workload_of(&gpt, &nvfp4)};
        const int64_t slot = slot_of(w[0], LAYER_BLOCK), copies = (int64_t)N * (3 * C + F);
        const int64_t dropped = 2 * (int64_t)N * (2 * C + F);
        assert_int_equal(slot_of(w[1], LAYER_BLOCK), slot - dropped + copies);
        assert_int_equal(slot_of(w[2], LAYER_BLOCK), slot - dropped + copies * 9 / 16);
        for (int layer = 0; layer < LAYERS; layer++)
                if (layer != LAYER_BLOCK)
                        assert_int_equal(slot_of(w[1], (enum layer)layer), slot_of(w[0], (enum layer)layer));
        for (int i = 0; i < 3; i++)
                free(w[i]);
}

/* What is recomputed is quantized again, not kept: of whole blocks the input alone, of norms and SwiGLU all
 * but attention's result. */
static void copies_of_what_is_recomputed_are_made_again(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        struct work stored = work_of(FORMAT_STORED), fp8 = work_of(FORMAT_FP8);
        const enum recompute ways[] = {RECOMPUTE_FULL, RECOMPUTE_NORMS_SWIGLU};
        const int64_t more[] = {0, (int64_t)N * C};
        const int again[] = {4, 3};
        for (int i = 0; i < 2; i++) {
                int count;
                stored.recompute = fp8.recompute = ways[i];
                struct workload *w[] = {workload_of(&gpt, &stored), workload_of(&gpt, &fp8)};
                assert_int_equal(slot_of(w[1], LAYER_BLOCK), slot_of(w[0], LAYER_BLOCK) + more[i]);
                bytes_of(w[1], LAYER_BLOCK, PASS_BACKWARD, KERNEL_QUANTIZE, &count);
                assert_int_equal(count, 4 + again[i]);
                free(w[0]);
                free(w[1]);
        }
}

/* Sequence parallel shards gather copies: of the inputs of two products a block, forward and backward, and of
 * the gradients of what the two others make. */
static void rows_are_gathered_in_the_format(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        struct work work = work_of(FORMAT_FP8);
        work.tp = 4;
        work.sequence_parallel = true;
        struct workload *w = workload_of(&gpt, &work);
        int count;
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_TENSOR_ALL_GATHER, &count), 2.0 * N * C,
                     0);
        assert_int_equal(count, 2);
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_TENSOR_ALL_GATHER, &count), 4.0 * N * C,
                     0);
        assert_int_equal(count, 4);
        /* what is scattered are sums, in bf16 */
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_TENSOR_REDUCE_SCATTER, &count),
                     4.0 * N * C, 0);
        /* What was gathered of gradients is transposed for those of weights: a byte read, a byte written. */
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_TRANSPOSE_QUANTIZED, &count), 4.0 * N * C,
                     0);
        assert_int_equal(count, 2);
        free(w);
}

/* Where tensors are scaled by their own maxima, each is read once more, and weights are, too. */
static void maxima_are_found_before_what_they_scale(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        const struct stage stage = {.stages = 1, .chunks = 1, .layers = 1, .shards = 1};
        struct work current = work_of(FORMAT_FP8);
        current.scaling = SCALING_CURRENT;
        current.recompute = RECOMPUTE_FULL;
        const struct work works[] = {work_of(FORMAT_FP8), current, work_of(FORMAT_NVFP4)};
        const double inputs = (double)N * (C + C + C + F), gradients = (double)N * (C + 2 * F + C + QKV);
        for (int i = 0; i < 3; i++) {
                struct workload *w = workload_of(&gpt, &works[i]);
                struct kernel copies[2 * PROGRAM_TENSORS];
                int found;
                const double forward = bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_MAXIMUM, &found);
                assert_int_equal(found, i ? 4 : 0);
                assert_close(forward, i ? 2 * inputs : 0, 0);
                assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_MAXIMUM, &found),
                             i ? 2 * gradients + (i == 1 ? 2 * inputs : 0) : 0, 0);
                assert_int_equal(workload_list_quantize(w, &stage, copies), i ? 8 : 4);
                for (int k = 0; i && k < 8; k++)
                        assert_int_equal(copies[k].kind, k % 2 ? KERNEL_QUANTIZE : KERNEL_MAXIMUM);
                free(w);
        }
}

/* With ZeRO-3 weights are there for one pass: each quantizes them for its own product. */
static void weights_of_one_pass_are_quantized_in_it(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        const double inputs = (double)N * (C + C + C + F), gradients = (double)N * (C + 2 * F + C + QKV);
        const double weights = (double)C * QKV + (double)C * C + 3.0 * C * F;
        const struct stage stage = {.stages = 1, .chunks = 1, .layers = 2, .shards = 1};
        struct work work = work_of(FORMAT_FP8);
        work.quantizes_each_pass = true;
        struct workload *w = workload_of(&gpt, &work);
        int count;
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_FORWARD, KERNEL_QUANTIZE, &count),
                     4 * inputs + 3 * weights, 0);
        assert_close(bytes_of(w, LAYER_BLOCK, PASS_BACKWARD, KERNEL_QUANTIZE, &count),
                     4 * gradients + 3 * weights, 0);
        assert_int_equal(workload_list_quantize(w, &stage, NULL), 0);
        assert_int_equal(workload_bytes(&gpt, &work, 1).copies[LAYER_BLOCK], 0);
        free(w);
}

/* Experts' products are quantized; the router, which chooses by small differences, is not. */
static void routers_stay_as_they_are(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("mixtral-8x7b");
        const struct work work = work_of(FORMAT_FP8);
        struct workload *w = workload_of(&gpt, &work);
        struct steps steps;
        int stored = 0, quantized = 0, grouped = 0;
        workload_steps(w, LAYER_BLOCK, PASS_BACKWARD, &steps);
        for (int s = 0; s < steps.count; s++) {
                const struct kernel k = kernel_at(w, LAYER_BLOCK, &steps, s);
                if (k.kind == KERNEL_MATMUL)
                        *(k.format == FORMAT_FP8 ? &quantized : &stored) += 1;
                if (k.kind == KERNEL_GROUPED_MATMUL || k.kind == KERNEL_GROUPED_MATMUL_BACKWARD)
                        grouped += k.format == FORMAT_FP8;
                if (k.kind == KERNEL_MATMUL && k.format == FORMAT_STORED)
                        assert_true(k.m == 8 || k.n == 8 || k.k == 8);
        }
        assert_int_equal(stored, 2);    /* the router's gradients */
        assert_int_equal(quantized, 4); /* of attention's two products */
        assert_int_equal(grouped, 4);
        free(w);
}

/* ---- any program ---- */

/* What a list may read that no step of it wrote. */
static void find_there(const struct workload *w, enum layer layer, enum layer_pass pass,
                       bool there[PROGRAM_VALUES])
{
        const struct program *p = &w->program[layer];
        bool left[PROGRAM_VALUES];
        workload_slot(w, layer, there, NULL);
        program_deferred(p, left);
        for (int value = 0; value < p->value_count; value++) {
                const enum value_role role = p->values[value].role;
                there[value] = (there[value] && pass != PASS_FORWARD) || role == ROLE_INPUT ||
                               role == ROLE_PARAMETER || role == ROLE_GRADIENT || role == ROLE_NUMBER ||
                               value == p->output_gradient || (pass == PASS_WEIGHT && left[value]);
        }
}

static bool makes_transposed(const struct steps *steps, int value)
{
        enum { TRANSPOSED = 1 };
        for (int s = 0; s < steps->count; s++) {
                const struct step *step = &steps->at[s];
                if ((step->kind == KERNEL_QUANTIZE && step->view[TRANSPOSED].value == value) ||
                    (step->kind == KERNEL_TRANSPOSE_QUANTIZED && step->view[0].value == value))
                        return true;
        }
        return false;
}

/* Products for gradients of weights read transposed copies, or what was gathered of these; others do not. */
static void check_layout(const struct program *p, const struct step *step, int value)
{
        const int made = value_root(p, value);
        if (p->values[value].role == ROLE_ACTIVATION || p->values[value].role == ROLE_FLOW)
                assert_int_equal(makes_transposed(&p->forward, made) || makes_transposed(&p->backward, made),
                                 step->part == PART_WEIGHT);
}

static void check_list(const struct workload *w, enum layer layer, enum layer_pass pass, const char *name)
{
        const struct program *p = &w->program[layer];
        bool there[PROGRAM_VALUES];
        struct steps steps;
        find_there(w, layer, pass, there);
        workload_steps(w, layer, pass, &steps);
        for (int s = 0; s < steps.count; s++) {
                const struct step *step = &steps.at[s];
                const struct kernel kernel = kernel_at(w, layer, &steps, s);
                assert_true(kernel_joins(step->kind) || (kernel.m > 0 && kernel.batch > 0));
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        const int value = step_reads(p, step, i);
                        if (value >= 0 && !there[value] && value != step->view[i].value)
                                fail_msg("%s: step %d of pass %d, %s, overwrites %s, which is not there",
                                         name, s, pass, kernel_name(step->kind), p->values[value].name);
                        if (value >= 0 && !there[value] && !step_writes(step, i) &&
                            p->values[value].role != ROLE_GATHERED)
                                fail_msg("%s: step %d of pass %d, %s, reads %s, which is not there", name, s,
                                         pass, kernel_name(step->kind), p->values[value].name);
                        const bool product = kernel.format != FORMAT_STORED &&
                                             kernel_descriptor(step->kind)->products == 1;
                        const enum operand_extent extent = kernel_descriptor(step->kind)->operands[i].extent;
                        if (product && (extent == EXTENT_MK || extent == EXTENT_KN || extent == EXTENT_EKN)) {
                                assert_true(p->values[value].format == kernel.format ||
                                            p->values[value].role == ROLE_PARAMETER);
                                check_layout(p, step, value);
                        } else if (value >= 0 && !kernel_collective(step->kind) &&
                                   step->kind != KERNEL_TRANSPOSE_QUANTIZED)
                                assert_int_equal(p->values[value].format, FORMAT_STORED);
                }
                for (int i = 0; i < KERNEL_OPERANDS; i++)
                        if (step_writes(step, i))
                                there[step->view[i].value] = true;
        }
        struct placement place;
        workload_place(w, layer, pass, &steps, &place);
}

/* Of every family, recomputation, part of a backward and kind of shards: what a step reads was made before,
 * or is kept, and products of a format read copies, and nobody else does. */
static void every_step_finds_what_it_reads(void **state)
{
        (void)state;
        static const char *const names[] = {"tiny",          "llama-tiny",   "mixtral-tiny",
                                            "deepseek-tiny", "qwen2.5-0.5b", "qwen3-0.6b"};
        static const struct {
                int tp, ep, overlap;
                bool sequence_parallel, each_pass;
        } ways[] = {{1, 1, 0, false, false}, {1, 1, 0, false, true}, {2, 1, 0, false, false},
                    {2, 1, 0, true, false},  {2, 1, 2, true, false}, {1, 2, 0, false, false},
                    {2, 2, 0, true, true}};
        int lists = 0;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
                        for (int recompute = 0; recompute < RECOMPUTES * 2; recompute++) {
                                const struct gpt gpt = gpt_of(names[i]);
                                struct work work = {.micro_batch_size = 2,
                                                    .seq_len = 32,
                                                    .dtype = DTYPE_BF16,
                                                    .format = FORMAT_NVFP4,
                                                    .quantizes_each_pass = ways[way].each_pass,
                                                    .fused = recompute % 2,
                                                    .recompute = (enum recompute)(recompute / 2),
                                                    .tp = ways[way].tp,
                                                    .ep = ways[way].ep,
                                                    .tp_overlap = ways[way].overlap,
                                                    .sequence_parallel = ways[way].sequence_parallel};
                                if (work.ep > 1 && gpt.n_expert == 0)
                                        continue;
                                struct workload *w = workload_of(&gpt, &work);
                                for (int layer = LAYER_DENSE; layer <= LAYER_BLOCK; layer++)
                                        for (int pass = 0; pass < LAYER_PASSES; pass++) {
                                                const bool whole =
                                                        pass == PASS_FORWARD || pass == PASS_BACKWARD;
                                                if ((layer == LAYER_DENSE && gpt.n_dense == 0) ||
                                                    (!whole && work.tp > 1))
                                                        continue;
                                                check_list(w, (enum layer)layer, (enum layer_pass)pass,
                                                           names[i]);
                                                lists++;
                                        }
                                free(w);
                        }
        assert_true(lists > 1000);
}

/* ---- memory ---- */

/* The bytes of a parameter of a stage with all of a model: weights, gradients, master parameters, moments. */
static double bytes_a_parameter(const struct gpt *gpt, const struct memory_plan *plan)
{
        static const enum memory_category of_parameters[] = {MEMORY_WEIGHTS, MEMORY_GRADIENTS, MEMORY_MASTER,
                                                             MEMORY_OPTIMIZER};
        struct memory_bytes bytes;
        int64_t sum = 0;
        const struct stage stage = partition_stage(gpt, 1, 0);
        memory_stage(gpt, &stage, plan, &bytes);
        for (size_t i = 0; i < sizeof of_parameters / sizeof *of_parameters; i++)
                sum += bytes.in[MEMORY_DEVICE][of_parameters[i]];
        return (double)sum / (double)partition_parameters(gpt, &stage);
}

/* bf16 weights 2, fp32 gradients 4, and with ZeRO-1 each of d replicas a share of master parameters 4 and
 * moments 8 (Megatron-LM, docs/source/api-guide/dist_optimizer.md). */
static void fp32_gradients_take_four_bytes_a_parameter(void **state)
{
        (void)state;
        const struct gpt gpt = gpt_of("llama3-8b");
        const int64_t parameters = gpt_parameters(&gpt);
        struct memory_plan plan = {.work = work_of(FORMAT_STORED), .micro_batches = 1, .slots = 1};
        plan.work.wide_gradients = true;
        assert_close(bytes_a_parameter(&gpt, &plan), 18, 1e-6);
        for (int replicas = 2; replicas <= 64; replicas *= 2) {
                plan.shard_parameters = (parameters + replicas - 1) / replicas;
                assert_close(bytes_a_parameter(&gpt, &plan), 6 + 12.0 / replicas, 1e-6);
        }
        /* The copies of what is quantized take two bytes more, one each for products and their adjoints. */
        const double linear = 32 * ((double)C * QKV + (double)C * C + 3.0 * C * F);
        plan.work.format = FORMAT_FP8;
        assert_close(bytes_a_parameter(&gpt, &plan), 6 + 12.0 / 64 + 2 * linear / (double)parameters, 1e-6);
        plan.work.format = FORMAT_NVFP4;
        assert_close(bytes_a_parameter(&gpt, &plan),
                     6 + 12.0 / 64 + 2 * 9.0 / 16 * linear / (double)parameters, 1e-6);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_block_quantizes_what_goes_into_its_products),
                cmocka_unit_test(products_move_a_byte_for_each_element_they_read),
                cmocka_unit_test(what_goes_into_products_is_kept_in_their_format),
                cmocka_unit_test(copies_of_what_is_recomputed_are_made_again),
                cmocka_unit_test(rows_are_gathered_in_the_format),
                cmocka_unit_test(maxima_are_found_before_what_they_scale),
                cmocka_unit_test(weights_of_one_pass_are_quantized_in_it),
                cmocka_unit_test(routers_stay_as_they_are),
                cmocka_unit_test(every_step_finds_what_it_reads),
                cmocka_unit_test(fp32_gradients_take_four_bytes_a_parameter),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
