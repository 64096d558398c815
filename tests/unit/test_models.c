/* Models: parameters, stages, kernels and bytes against closed forms; and what is said about wrong files. */
#include "runtime/base/file.h"
#include "models/families/experts.h"
#include "models/memory.h"
#include "models/workload.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Fails with the numbers if two sums of doubles that should be the same differ by more than their rounding.
 */
static void assert_close(double found, double expected, double relative)
{
        if (!(fabs(found - expected) <= relative * fabs(expected)))
                fail_msg("%.17g was expected, found %.17g", expected, found);
}

static struct gpt preset(const char *name)
{
        struct gpt gpt;
        struct rv_error_info err = {0};
        if (gpt_load(&gpt, name, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        return gpt;
}

/* Two embeddings, and in each layer attention, two matrices and two LayerNorms. */
#define NEMOTRON(L, C, F, qkv)                                                                               \
        (2 * 256000LL * (C) + (L) * ((C) * ((qkv) + (C) + 2LL * (F)) + 4LL * (C)) + 2LL * (C))

static void published_models_have_their_published_parameters(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                int64_t parameters;
        } published[] = {/* GPT-2: as Hugging Face and nanoGPT count them */
                         {"gpt2-124m", 124439808},
                         {"gpt2-350m", 354823168},
                         {"gpt2-774m", 774030080},
                         {"gpt2-1.5b", 1557611200},
                         /* Llama: as their model cards on Hugging Face count them */
                         {"llama2-7b", 6738415616},
                         {"llama2-13b", 13015864320},
                         {"llama2-34b", 33743970304}, /* as Code Llama's 34B */
                         {"llama2-70b", 68976648192},
                         {"llama3-8b", 8030261248},
                         {"llama3.1-8b", 8030261248},
                         {"llama3.1-70b", 70553706496},
                         {"llama3.1-405b", 405853388800},
                         {"llama3.2-1b", 1235814400},
                         {"mistral-7b", 7241732096},
                         {"qwen2.5-0.5b", 494032768},
                         {"qwen2.5-7b", 7615616512},
                         {"qwen3-0.6b", 596049920},
                         {"qwen3-8b", 8190735360},
                         {"mixtral-8x7b", 46702792704},
                         {"qwen3-30b-a3b", 30532122624},
                         {"qwen3-235b-a22b", 235093634560},
                         {"deepseek-v3", 671026419200},
                         {"deepseek-v2", 235741434880},
                         /* Nemotron: as the configurations on Hugging Face count, which are the 3.2 and 12.5,
                          * and the 9.4 and 331.6, billions of Parmar et al. 2024 and of Nvidia 2024 */
                         {"nemotron4-15b", NEMOTRON(32, 6144, 24576, 6144 + 2 * 1024)},
                         {"nemotron4-340b", NEMOTRON(96, 18432, 73728, 18432 + 2 * 1536)},
                         {"llama3-70b", 70553706496}};
        for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
                struct gpt gpt = preset(published[i].name);
                assert_int_equal(gpt_parameters(&gpt), published[i].parameters);
        }
}

static void first_layers_without_experts_have_one_mlp_each(void **state)
{
        (void)state;
        struct gpt gpt = preset("qwen3-30b-a3b");
        const int64_t all = gpt_parameters(&gpt), C = gpt.n_embd, experts = gpt.n_expert;
        gpt.n_dense = 3;
        gpt.dense_inner = 6144;
        const int64_t mixture = experts * 3 * C * gpt.n_inner + experts * C, mlp = 3 * C * gpt.dense_inner;
        assert_int_equal(gpt_parameters(&gpt), all - 3 * (mixture - mlp));
        int64_t stages = 0; /* of 12 layers each: the first with all three */
        for (int i = 0; i < 4; i++) {
                const struct stage stage = partition_stage(&gpt, 4, i);
                assert_int_equal(partition_dense(&gpt, &stage), i == 0 ? 3 : 0);
                stages += partition_parameters(&gpt, &stage);
        }
        assert_int_equal(stages, gpt_parameters(&gpt));
}

static void axonn_models_have_the_size_in_their_name(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                double billions;
        } named[] = {{"gpt-12b", 12}, {"gpt-24b", 24}, {"gpt-50b", 50}, {"gpt-100b", 100}};
        for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
                struct gpt gpt = preset(named[i].name);
                assert_close((double)gpt_parameters(&gpt) / 1e9, named[i].billions, 0.03);
                assert_int_equal(gpt.vocab_size, 51200);
                assert_int_equal(gpt.n_positions, 512);
        }
}

static void an_untied_head_is_one_more_matrix(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        int64_t tied = gpt_parameters(&gpt);
        gpt.tied = false;
        assert_int_equal(gpt_parameters(&gpt), tied + (int64_t)gpt.vocab_size * gpt.n_embd);
}

static void stages_cover_every_layer_once_and_differ_by_at_most_one(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (gpt.n_layer = 1; gpt.n_layer <= 20; gpt.n_layer++)
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int next = 0, before = gpt.n_layer;
                        for (int i = 0; i < stages; i++) {
                                struct stage stage = partition_stage(&gpt, stages, i);
                                assert_int_equal(stage.first_layer, next);
                                assert_true(stage.layers == gpt.n_layer / stages ||
                                            stage.layers == gpt.n_layer / stages + 1);
                                assert_true(stage.layers <= before);
                                assert_int_equal(stage.first, i == 0);
                                assert_int_equal(stage.last, i == stages - 1);
                                next += stage.layers;
                                before = stage.layers;
                        }
                        assert_int_equal(next, gpt.n_layer);
                }
}

/* Whatever the last one has. */
static void stages_before_the_last_share_the_rest_evenly(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (gpt.n_layer = 1; gpt.n_layer <= 12; gpt.n_layer++)
                for (int stages = 1; stages <= gpt.n_layer; stages++)
                        for (int last = stages > 1 ? 0 : gpt.n_layer; last <= gpt.n_layer - (stages - 1);
                             last++) {
                                int next = 0, max = 0, min = gpt.n_layer;
                                for (int i = 0; i < stages; i++) {
                                        const struct stage stage = partition_split(&gpt, stages, last, i);
                                        assert_int_equal(stage.first_layer, next);
                                        assert_int_equal(partition_layer(&stage, 0), next);
                                        next += stage.layers;
                                        if (i == stages - 1)
                                                break;
                                        assert_true(stage.layers >= 1);
                                        max = stage.layers > max ? stage.layers : max;
                                        min = stage.layers < min ? stage.layers : min;
                                }
                                assert_int_equal(next, gpt.n_layer);
                                assert_int_equal(partition_split(&gpt, stages, last, stages - 1).layers,
                                                 last);
                                assert_true(stages == 1 || max - min <= 1);
                        }
}

/* Flops of the kernels that a stage lists. */
static double stage_flops(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        struct kernel kernels[2048];
        int count = workload_forward(gpt, stage, work, false, NULL);
        assert_true(count + workload_backward(gpt, stage, work, NULL) <= 2048);
        count = workload_forward(gpt, stage, work, false, kernels);
        count += workload_backward(gpt, stage, work, kernels + count);
        double flops = 0;
        for (int i = 0; i < count; i++)
                flops += kernel_flops(&kernels[i]);
        return flops;
}

static double longest_stage(const struct gpt *gpt, const struct work *work, int stages, int last)
{
        double longest = 0;
        for (int i = 0; i < stages; i++) {
                const struct stage stage = partition_split(gpt, stages, last, i);
                longest = fmax(longest, stage_flops(gpt, &stage, work));
        }
        return longest;
}

static void the_balanced_split_has_the_shortest_longest_stage(void **state)
{
        (void)state;
        static const char *const names[] = {"gpt2-124m", "gpt2-350m", "tiny"};
        const struct gpt gpt2 = preset("gpt2-124m");
        const struct work usual = {.micro_batch_size = 1, .seq_len = 256, .tp = 1};
        assert_int_equal(workload_balanced(&gpt2, &usual, 2, 1), 3); /* the head is worth 5.2 layers */
        assert_int_equal(workload_balanced(&gpt2, &usual, 4, 1), 1);
        assert_int_equal(workload_balanced(&gpt2, &usual, 4, 0),
                         0); /* three of 4, and 5.2; not of 3.67 and 6.2 */
        const int choices = SANITIZED && !is_every_case_taken() ? 2 : 8;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                for (int choice = 0; choice < choices; choice++) {
                        const struct gpt gpt = preset(names[i]);
                        const struct work work = {.micro_batch_size = 2,
                                                  .seq_len = choice & 1 ? gpt.n_positions : 32,
                                                  .fused = choice & 2,
                                                  .recompute = choice & 4 ? RECOMPUTE_FULL : RECOMPUTE_NONE,
                                                  .tp = 1};
                        for (int stages = 2; stages <= gpt.n_layer; stages++) {
                                const int least = choice & 1;
                                const int chosen = workload_balanced(&gpt, &work, stages, least);
                                const double longest = longest_stage(&gpt, &work, stages, chosen);
                                for (int last = least; last <= gpt.n_layer - (stages - 1); last++)
                                        if (longest > 1.01 * longest_stage(&gpt, &work, stages, last))
                                                fail_msg("%s, %d stages: %d layers on the last are better "
                                                         "than %d",
                                                         gpt.name, stages, last, chosen);
                        }
                }
}

/* A chunk of a rank is the stage that it would be of a longer pipeline, and a rank's tensors are its chunks'.
 */
static void assert_same_stage(const struct stage *a, const struct stage *b)
{
        assert_int_equal(a->index, b->index);
        assert_int_equal(a->stages, b->stages);
        assert_int_equal(a->chunks, b->chunks);
        assert_int_equal(a->first_layer, b->first_layer);
        assert_int_equal(a->layers, b->layers);
        assert_int_equal(a->first, b->first);
        assert_int_equal(a->last, b->last);
        assert_int_equal(a->shards, b->shards);
        assert_int_equal(a->shard, b->shard);
}

static void chunks_of_a_rank_are_every_pth_stage(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct tensor all[512], mine[512];
        for (int pp = 2; pp <= 4; pp++)
                for (int chunks = 2; chunks <= 4; chunks++)
                        for (int tied = 0; tied < 2; tied++)
                                for (int i = 0; i < pp; i++) {
                                        gpt.n_layer = 2 * pp * chunks;
                                        gpt.tied = tied;
                                        const struct stage rank = partition_interleaved(&gpt, pp, chunks, i);
                                        int count = partition_tensors(&gpt, &rank, all), found = 0;
                                        for (int c = 0; c < chunks; c++) {
                                                const struct stage chunk = partition_chunk(&rank, c);
                                                const struct stage stage =
                                                        partition_stage(&gpt, pp * chunks, c * pp + i);
                                                assert_same_stage(&chunk, &stage);
                                                int tensors = partition_tensors(&gpt, &chunk, mine);
                                                for (int t = 0; t < tensors; t++, found++) {
                                                        assert_string_equal(mine[t].name, all[found].name);
                                                        assert_int_equal(mine[t].id, all[found].id);
                                                }
                                        }
                                        assert_int_equal(found, count);
                                }
}

/* Any number of layers over any number of virtual stages: all layers once, in order; numbers that differ by
 * one at most; the last virtual stage is the first to have one less, then the first one, then others from
 * behind. Where embedding and loss would be a layer each and all came out even, that is what is found. */
static void layers_are_spread_evenly_over_virtual_stages(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (int pp = 1; pp <= 5; pp++)
                for (int chunks = 2; chunks <= 5; chunks++)
                        for (gpt.n_layer = pp * chunks; gpt.n_layer <= 3 * pp * chunks; gpt.n_layer++) {
                                const int all = pp * chunks, each = gpt.n_layer / all;
                                int longer = gpt.n_layer % all, next = 0;
                                for (int i = 0; i < all; i++) {
                                        const struct stage rank =
                                                partition_interleaved(&gpt, pp, chunks, i % pp);
                                        const struct stage chunk = partition_chunk(&rank, i / pp);
                                        const bool waits = i == 0 && longer < all - 1;
                                        const bool more = longer > 0 && !waits;
                                        assert_int_equal(chunk.index, i);
                                        assert_int_equal(chunk.first_layer, next);
                                        assert_int_equal(chunk.layers, each + more);
                                        const int begin = partition_chunk_begin(&rank, i / pp);
                                        for (int block = 0; block < chunk.layers; block++) {
                                                assert_int_equal(partition_layer(&rank, begin + block),
                                                                 next + block);
                                                assert_int_equal(partition_chunk_of(&rank, begin + block),
                                                                 i / pp);
                                        }
                                        assert_int_equal(partition_chunk_begin(&rank, i / pp + 1),
                                                         begin + chunk.layers);
                                        next += chunk.layers;
                                        longer -= more;
                                        if ((gpt.n_layer + 2) % all == 0 && all > 2)
                                                assert_int_equal(chunk.layers + (i == 0) + (i == all - 1),
                                                                 (gpt.n_layer + 2) / all);
                                }
                                assert_int_equal(next, gpt.n_layer);
                                assert_int_equal(longer, 0);
                        }
}

/* A slot holds what its chunk stores: its layers, the embedding of the first, the logits of the last. */
static void slots_of_chunks_are_as_large_as_what_the_chunk_stores(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (int n = 0; n < 2 * 3 * 6; n++)
                for (int i = 0; i < 2 + n % 2; i++) {
                        const int pp = 2 + n % 2;
                        gpt.n_layer = 6 + n / 2;
                        int first, end;
                        const struct stage rank = partition_interleaved(&gpt, pp, 2, i);
                        struct memory_plan plan = {.work = {.micro_batch_size = 2, .seq_len = 16, .tp = 1},
                                                   .micro_batches = 4,
                                                   .slots = 7,
                                                   .embedded_slots = rank.first ? 4 : 0,
                                                   .head_slots = rank.last ? 3 : 0};
                        partition_longest_chunk(&rank, &first, &end);
                        plan.short_first_slots = first > 0 ? 4 : 0;
                        plan.short_last_slots = end < 2 ? 3 : 0;
                        const struct memory_layout layout = memory_layout(&gpt, &rank, &plan);
                        struct memory_bytes bytes;
                        int64_t sum = 0;
                        for (int slot = 0; slot < plan.slots; slot++) {
                                const struct stage chunk = partition_chunk(&rank, slot >= 4);
                                const int64_t needed = memory_layout(&gpt, &chunk, &plan).slot;
                                assert_int_equal(memory_slot(&layout, &rank, &plan, slot), needed);
                                sum += needed;
                        }
                        memory_stage(&gpt, &rank, &plan, &bytes);
                        assert_int_equal(bytes.in[MEMORY_DEVICE][MEMORY_ACTIVATIONS], sum);
                }
}

/* Every tensor of the stages of a pipeline is one of the whole model: the same name, id and shape. */
static void check_slices(const struct gpt *gpt, int stages)
{
        struct stage whole = partition_stage(gpt, 1, 0);
        int count = partition_tensors(gpt, &whole, NULL), seen[512] = {0};
        struct tensor all[512], mine[512];
        assert_in_range(count, 1, 511);
        partition_tensors(gpt, &whole, all);
        for (int s = 0; s < stages; s++) {
                struct stage stage = partition_stage(gpt, stages, s);
                int64_t offset = 0;
                int tensors = partition_tensors(gpt, &stage, mine);
                for (int i = 0; i < tensors; i++) {
                        int at = 0;
                        while (at < count && strcmp(all[at].name, mine[i].name) != 0)
                                at++;
                        assert_in_range(at, 0, count - 1);
                        assert_int_equal(mine[i].id, all[at].id);
                        assert_int_equal(mine[i].rows, all[at].rows);
                        assert_int_equal(mine[i].cols, all[at].cols);
                        assert_int_equal(mine[i].decay, all[at].decay);
                        assert_int_equal(mine[i].offset, offset);
                        offset += mine[i].elements;
                        seen[at]++;
                }
                assert_int_equal(offset, partition_parameters(gpt, &stage));
        }
        for (int at = 0; at < count; at++) /* the tied embedding lies on both ends */
                assert_int_equal(seen[at], at == 0 && gpt->tied && stages > 1 ? 2 : 1);
}

static void stage_slices_sum_to_the_whole_model(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (int tied = 0; tied < 2; tied++)
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int64_t sum = 0;
                        gpt.tied = tied;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                sum += partition_parameters(&gpt, &stage);
                        }
                        int64_t copy = tied && stages > 1 ? (int64_t)gpt.vocab_size * gpt.n_embd : 0;
                        assert_int_equal(sum, gpt_parameters(&gpt) + copy);
                        check_slices(&gpt, stages);
                }
}

static void tensors_have_identities_of_their_own_and_are_found_by_role(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct tensor tensors[512];
        for (int tied = 0; tied < 2; tied++)
                for (int stages = 1; stages <= gpt.n_layer; stages += 2) {
                        gpt.tied = tied;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                int count = partition_tensors(&gpt, &stage, tensors);
                                for (int i = 0; i < count; i++)
                                        for (int j = 0; j < i; j++)
                                                assert_int_not_equal(tensors[i].id, tensors[j].id);
                                char name[64];
                                snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight",
                                         stage.first_layer + stage.layers - 1);
                                enum { FCPROJ_W = 10, PROJECTION = 2 };
                                int at = partition_tensor(&gpt, &stage, LAYER_BLOCK, stage.layers - 1,
                                                          FCPROJ_W);
                                assert_string_equal(tensors[at].name, name);
                                assert_int_equal(tensors[at].rows, gpt.n_embd);
                                assert_int_equal(tensors[at].cols, 4 * gpt.n_embd);
                                assert_int_equal(tensors[at].init, INIT_NORMAL_RESIDUAL);
                                if (stage.first)
                                        assert_string_equal(
                                                tensors[partition_tensor(&gpt, &stage, LAYER_EMBEDDING, 0, 1)]
                                                        .name,
                                                "transformer.wpe.weight");
                                if (!stage.last)
                                        continue;
                                const int norm = partition_tensor(&gpt, &stage, LAYER_HEAD, 0, 0);
                                assert_string_equal(tensors[norm].name, "transformer.ln_f.weight");
                                assert_string_equal(tensors[norm + 1].name, "transformer.ln_f.bias");
                                assert_string_equal(
                                        tensors[partition_tensor(&gpt, &stage, LAYER_HEAD, 0, PROJECTION)]
                                                .name,
                                        tied ? "transformer.wte.weight" : "lm_head.weight");
                        }
                }
}

/* A Mixtral of 3 blocks whose mixtures have all that a mixture may have, and `shared` experts of all tokens.
 */
static struct gpt mixture_of(int shared)
{
        return (struct gpt){.name = "mixture",
                            .family = FAMILY_MIXTRAL,
                            .n_layer = 3,
                            .n_embd = 32,
                            .n_head = 4,
                            .n_inner = 40,
                            .n_expert = 8,
                            .n_expert_chosen = 3,
                            .n_group = 4,
                            .n_group_chosen = 2,
                            .n_shared = shared,
                            .logistic_router = true,
                            .rope_theta = 100,
                            .norm_epsilon = 1e-5,
                            .vocab_size = 64,
                            .n_positions = 16};
}

/* Biases and norms do not, and neither does what corrects a router's choice, which nothing may change. */
static void only_matrices_decay(void **state)
{
        (void)state;
        const struct gpt models[] = {preset("tiny"), mixture_of(2)};
        for (int m = 0; m < 2; m++) {
                struct stage whole = partition_stage(&models[m], 1, 0);
                struct tensor tensors[512];
                int count = partition_tensors(&models[m], &whole, tensors);
                for (int i = 0; i < count; i++) {
                        assert_int_equal(tensors[i].decay, tensors[i].rows > 1);
                        assert_int_equal(strstr(tensors[i].name, "bias") != NULL,
                                         tensors[i].init == INIT_ZERO);
                }
        }
}

/* Flops of the matrix products in a list. */
static double matmul_flops(const struct kernel *kernels, int count)
{
        double sum = 0;
        for (int i = 0; i < count; i++)
                if (kernels[i].kind == KERNEL_MATMUL)
                        sum += kernel_flops(&kernels[i]);
        return sum;
}

/* Each kernel has a price, says which part it belongs to, and adds to the gradients of parameters. */
static void check_list(const struct kernel *kernels, int count, bool backward)
{
        for (int i = 0; i < count; i++) {
                assert_int_equal(kernels[i].part != 0, backward);
                assert_true(kernel_flops(&kernels[i]) > 0 && kernel_bytes(&kernels[i]) > 0);
                if (kernels[i].part & PART_WEIGHT && kernels[i].kind != KERNEL_LAYERNORM_BACKWARD)
                        assert_int_equal(kernels[i].accumulate, 1);
        }
}

/* Matrix products: 2 flops a weight and token; attention's two, 2 x 2 B H T^2 hs = 4 N T C a block
 * (uncausal). */
static double forward_closed_form(const struct gpt *gpt, double N, double T)
{
        double C = gpt->n_embd, weights = gpt->n_layer * 12 * C * C + gpt->vocab_size * C;
        return 2 * weights * N + gpt->n_layer * 4 * N * T * C;
}

static struct work fp32_work(int B, int T)
{
        return (struct work){.micro_batch_size = B, .seq_len = T};
}

static void matmul_flops_are_the_closed_form_and_backward_is_twice_forward(void **state)
{
        (void)state;
        static const char *const models[] = {"tiny", "demo", "gpt2-124m", "gpt-100b"};
        struct kernel *kernels = malloc(10000 * sizeof *kernels);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
                struct gpt gpt = preset(models[i]);
                for (int stages = 1; stages <= 4; stages += 3) {
                        double forward = 0, backward = 0;
                        int B = 3, T = gpt.n_positions / 2;
                        struct work work = fp32_work(B, T);
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                int count = workload_forward(&gpt, &stage, &work, false, kernels);
                                assert_int_equal(count, workload_forward(&gpt, &stage, &work, true, NULL));
                                assert_int_equal(count, 13 * stage.layers + stage.first + 3 * stage.last);
                                check_list(kernels, count, false);
                                forward += matmul_flops(kernels, count);
                                count = workload_backward(&gpt, &stage, &work, kernels);
                                assert_int_equal(count, workload_backward(&gpt, &stage, &work, NULL));
                                assert_int_equal(count, 20 * stage.layers + stage.first + 3 * stage.last);
                                check_list(kernels, count, true);
                                backward += matmul_flops(kernels, count);
                        }
                        double expected = forward_closed_form(&gpt, (double)B * T, T);
                        assert_close(forward, expected, 1e-12);
                        assert_close(backward, 2 * expected, 1e-12);
                }
        }
        free(kernels);
}

/* Narayanan et al. count exactly the matrix products; their 96 with recomputation is our layer's, and full
 * has a block's last product less, 8 B s l h^2. Selective has Q K^T once more. */
static void batch_flops_are_those_of_the_workload(void **state)
{
        (void)state;
        static const char *const models[] = {"tiny", "gpt2-350m", "gpt-12b"};
        struct kernel *kernels = malloc(10000 * sizeof *kernels);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
                for (int recompute = 0; recompute < RECOMPUTES; recompute++) {
                        struct gpt gpt = preset(models[i]);
                        struct work work = fp32_work(2, gpt.n_positions);
                        work.recompute = (enum recompute)recompute;
                        double listed = 0;
                        for (int s = 0; s < 3; s++) {
                                struct stage stage = partition_stage(&gpt, 3, s);
                                int count = workload_forward(&gpt, &stage, &work, false, kernels);
                                listed += matmul_flops(kernels, count);
                                count = workload_backward(&gpt, &stage, &work, kernels);
                                listed += matmul_flops(kernels, count);
                        }
                        double l = gpt.n_layer, h = gpt.n_embd, V = gpt.vocab_size, s = gpt.n_positions;
                        double none = 72 * (1 + s / (6 * h) + V / (12 * l * h));
                        double layer = 96 * (1 + s / (6 * h) + V / (16 * l * h));
                        const double eq3[RECOMPUTES] = {
                                [RECOMPUTE_NONE] = none,        [RECOMPUTE_SELECTIVE] = none + 2 * s / h,
                                [RECOMPUTE_FULL] = layer - 8,   [RECOMPUTE_LAYER] = layer,
                                [RECOMPUTE_NORMS] = none,       [RECOMPUTE_SWIGLU] = none,
                                [RECOMPUTE_NORMS_SWIGLU] = none};
                        assert_close(gpt_batch_flops(&gpt, 2, gpt.n_positions, work.recompute), listed,
                                     1e-12);
                        assert_close(listed, eq3[recompute] * 2 * s * l * h * h, 1e-12);
                }
        free(kernels);
}

static double product_flops(const struct gpt *gpt, enum recompute recompute)
{
        const struct stage stage = partition_stage(gpt, 1, 0);
        struct kernel kernels[512];
        struct work work = fp32_work(2, 16);
        work.recompute = recompute;
        double flops = 0;
        const int count = workload_backward(gpt, &stage, &work, kernels);
        for (int i = 0; i < count; i++)
                if (kernels[i].kind == KERNEL_MATMUL || kernels[i].kind == KERNEL_GROUPED_MATMUL)
                        flops += kernel_flops(&kernels[i]);
        return flops;
}

/* Beside the matrices of a mixture three of shared experts, as wide as all of them, and a correction. What is
 * recomputed are all products but the last of both, and attention. */
static void shared_experts_are_counted_beside_a_mixture(void **state)
{
        (void)state;
        const int64_t L = 3, C = 32, F = 40, E = 8;
        struct gpt plain = mixture_of(0), with = mixture_of(2);
        plain.logistic_router = false;
        assert_int_equal(gpt_parameters(&with) - gpt_parameters(&plain), L * (3 * C * 2 * F + E));
        assert_close(gpt_batch_flops(&with, 2, 16, RECOMPUTE_NONE) -
                             gpt_batch_flops(&plain, 2, 16, RECOMPUTE_NONE),
                     3.0 * 2 * 2 * 16 * (double)(L * 3 * C * 2 * F), 1e-12);
        for (int shared = 0; shared <= 2; shared += 2)
                for (int layer = 0; layer <= 1; layer++) {
                        const struct gpt gpt = mixture_of(shared);
                        const enum recompute recompute = layer ? RECOMPUTE_LAYER : RECOMPUTE_FULL;
                        const double attention = 4.0 * 2 * 16 * 16 * (double)(L * C);
                        assert_close(gpt_batch_flops(&gpt, 2, 16, recompute) -
                                             gpt_batch_flops(&gpt, 2, 16, RECOMPUTE_NONE) - attention,
                                     product_flops(&gpt, recompute) - product_flops(&gpt, RECOMPUTE_NONE),
                                     1e-12);
                }
}

static void assert_listed(const struct kernel *found, const struct kernel *expected)
{
        if (!kernel_same(found, expected) || found->part != expected->part)
                fail_msg("%s (part %d) stands where %s (part %d) was expected", kernel_name(found->kind),
                         found->part, kernel_name(expected->kind), expected->part);
}

/* The backward list with recomputation is the one without, and before each block the first 11 of the 13
 * kernels of its forward: all but its last product and what adds that to the residual. */
static void recomputation_runs_a_block_again_but_for_its_last_product(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct kernel forward[128], plain[128], again[256], same[128];
        for (int stages = 1; stages <= gpt.n_layer; stages++)
                for (int s = 0; s < stages; s++) {
                        struct stage stage = partition_stage(&gpt, stages, s);
                        struct work work = fp32_work(3, 16);
                        int forwards = workload_forward(&gpt, &stage, &work, false, forward);
                        int backwards = workload_backward(&gpt, &stage, &work, plain), at = 0, from = 0;
                        work.recompute = RECOMPUTE_FULL;
                        int count = workload_backward(&gpt, &stage, &work, again);
                        assert_int_equal(count, workload_backward(&gpt, &stage, &work, NULL));
                        assert_int_equal(count, backwards + 11 * stage.layers);
                        for (; from < 3 * stage.last; at++, from++)
                                assert_listed(&again[at], &plain[from]);
                        for (int block = 0; block < stage.layers; block++) {
                                const struct kernel *first = &forward[stage.first + 13 * block];
                                assert_int_equal(first[11].kind, KERNEL_MATMUL);
                                assert_int_equal(first[11].k, 4 * gpt.n_embd);
                                assert_int_equal(first[12].kind, KERNEL_BIAS_RESIDUAL);
                                for (int i = 0; i < 11; i++)
                                        assert_listed(&again[at++], &first[i]);
                                for (int i = 0; i < 20; i++)
                                        assert_listed(&again[at++], &plain[from++]);
                        }
                        for (; from < backwards; at++, from++)
                                assert_listed(&again[at], &plain[from]);
                        assert_int_equal(at, count);
                        assert_int_equal(workload_forward(&gpt, &stage, &work, false, same), forwards);
                        for (int i = 0; i < forwards; i++)
                                assert_listed(&same[i], &forward[i]);
                }
}

/* Layer: all 13 kernels of a block's forward before its 20 of backward. Selective: Q K^T and softmax, the 4th
 * and 5th, before the first product of the scores' backward, the 12th. */
static void layer_and_selective_run_again_what_they_say(void **state)
{
        (void)state;
        enum { FORWARD = 13, BACKWARD = 20, SCORES = 3, SCORES_BACKWARD = 11 };
        struct gpt gpt = preset("tiny");
        struct kernel forward[128], plain[128], layer[256], selective[256];
        struct stage stage = partition_stage(&gpt, 1, 0);
        struct work work = fp32_work(3, 16);
        int forwards = workload_forward(&gpt, &stage, &work, false, forward);
        int backwards = workload_backward(&gpt, &stage, &work, plain);
        work.recompute = RECOMPUTE_LAYER;
        assert_int_equal(workload_forward(&gpt, &stage, &work, false, NULL), forwards);
        assert_int_equal(workload_backward(&gpt, &stage, &work, layer), backwards + FORWARD * gpt.n_layer);
        work.recompute = RECOMPUTE_SELECTIVE;
        assert_int_equal(workload_forward(&gpt, &stage, &work, false, NULL), forwards);
        assert_int_equal(workload_backward(&gpt, &stage, &work, selective), backwards + 2 * gpt.n_layer);
        const struct kernel *p = &plain[3], *l = &layer[3], *s = &selective[3]; /* the head's come first */
        for (int block = 0; block < gpt.n_layer; block++) {
                for (int i = 0; i < FORWARD; i++)
                        assert_listed(l++, &forward[1 + i]);
                for (int i = 0; i < BACKWARD; i++, p++) {
                        assert_listed(l++, p);
                        for (int again = 0; i == SCORES_BACKWARD && again < 2; again++)
                                assert_listed(s++, &forward[1 + SCORES + again]);
                        assert_listed(s++, p);
                }
        }
        /* Fused attention stores no scores: nothing is left for selective to do. */
        work.fused = true;
        assert_int_equal(work_recomputation(&work), RECOMPUTE_NONE);
        int count = workload_backward(&gpt, &stage, &work, selective);
        struct memory_plan plan = {.work = work, .micro_batches = 1, .slots = 1};
        int64_t slot = memory_layout(&gpt, &stage, &plan).slot;
        work.recompute = plan.work.recompute = RECOMPUTE_NONE;
        assert_int_equal(count, workload_backward(&gpt, &stage, &work, plain));
        for (int i = 0; i < count; i++)
                assert_listed(&selective[i], &plain[i]);
        assert_int_equal(memory_layout(&gpt, &stage, &plan).slot, slot);
}

/* The kernels of a micro-batch on a stage, forward or backward. */
static int listed(const struct gpt *gpt, const struct work *work, bool backward, struct kernel *out)
{
        struct stage stage = partition_stage(gpt, 1, 0);
        return backward ? workload_backward(gpt, &stage, work, out)
                        : workload_forward(gpt, &stage, work, false, out);
}

/* What is fp32 in 16-bit kernels too: a few numbers a row. */
static bool has_statistics(enum kernel_kind kind)
{
        return kind == KERNEL_LAYERNORM || kind == KERNEL_LAYERNORM_BACKWARD || kind == KERNEL_ATTENTION ||
               kind == KERNEL_ATTENTION_BACKWARD || kind == KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM;
}

static void check_same_in_half(const struct kernel *single, const struct kernel *half, enum dtype format)
{
        assert_int_equal(single->dtype, DTYPE_FP32);
        assert_int_equal(half->dtype, format);
        assert_false(kernel_same(single, half));
        assert_close(kernel_flops(half), kernel_flops(single), 0);
        double ratio = kernel_bytes(half) / kernel_bytes(single);
        assert_true(has_statistics(half->kind) ? ratio > 0.5 && ratio < 0.6 : fabs(ratio - 0.5) < 1e-15);
        struct kernel as_single = *half;
        as_single.dtype = DTYPE_FP32;
        assert_listed(&as_single, single);
}

/* Mixed precision, fp16 or bf16, changes what the tensors are stored as, and nothing else. */
static void kernels_of_mixed_precision_are_the_same_in_half(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct kernel single[256], half[256];
        for (int choice = 0; choice < 8; choice++) {
                const bool backward = choice & 1, bf16 = choice & 4;
                struct work work = fp32_work(2, 8);
                work.recompute = RECOMPUTE_FULL;
                work.fused = choice & 2;
                int count = listed(&gpt, &work, backward, single);
                work.dtype = bf16 ? DTYPE_BF16 : DTYPE_FP16;
                assert_int_equal(listed(&gpt, &work, backward, half), count);
                for (int i = 0; i < count; i++)
                        check_same_in_half(&single[i], &half[i], bf16 ? DTYPE_BF16 : DTYPE_FP16);
        }
}

static void an_update_in_half_precision_is_unscaled_first(void **state)
{
        (void)state;
        struct kernel kernels[WORKLOAD_UPDATE_KERNELS];
        assert_int_equal(workload_update(77, DTYPE_FP32, false, kernels), 1);
        assert_true(kernel_same(&kernels[0], &(struct kernel){.kind = KERNEL_ADAMW, .batch = 1, .m = 77}));
        for (enum dtype dtype = DTYPE_FP16; dtype <= DTYPE_BF16; dtype++) {
                assert_int_equal(workload_update(77, dtype, false, NULL), 2);
                assert_int_equal(workload_update(77, dtype, false, kernels), 2);
                const struct kernel expected[] = {
                        {KERNEL_UNSCALE, .dtype = (unsigned char)dtype, .batch = 1, .m = 77},
                        {KERNEL_ADAMW, .dtype = (unsigned char)dtype, .batch = 1, .m = 77},
                        {KERNEL_OVERFLOW, .dtype = (unsigned char)dtype, .batch = 1, .m = 5},
                        {KERNEL_CLEAR, .dtype = (unsigned char)dtype, .batch = 1, .m = 6}};
                const struct kernel overflow = workload_overflow(5, dtype, false),
                                    clear = workload_clear(6, dtype);
                assert_true(kernel_same(&kernels[0], &expected[0]));
                assert_true(kernel_same(&kernels[1], &expected[1]));
                assert_true(kernel_same(&overflow, &expected[2]));
                assert_true(kernel_same(&clear, &expected[3]));
                /* Gradients that are kept in fp32 are updated from as they are. */
                const struct kernel norm = workload_overflow(5, dtype, true),
                                    whole = {KERNEL_SQUARED_NORM, .dtype = DTYPE_FP32, .batch = 1, .m = 5};
                assert_int_equal(workload_update(77, dtype, true, kernels), 1);
                assert_true(kernel_same(&kernels[0], &expected[1]));
                assert_true(kernel_same(&norm, &whole));
        }
}

/* A tied embedding on two stages counts once in the norm, whatever the precision. */
static void the_norm_counts_every_parameter_once(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (int tied = 0; tied < 2; tied++)
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int64_t counted = 0;
                        gpt.tied = tied;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                struct kernel norm = workload_norm(&gpt, &stage, s % 2);
                                assert_int_equal(norm.kind, KERNEL_SQUARED_NORM);
                                assert_int_equal(norm.dtype, s % 2);
                                counted += norm.m;
                        }
                        assert_int_equal(counted, gpt_parameters(&gpt));
                }
}

/* Counted on paper: elements of 2 (half) or 4 bytes, and what is fp32 in both. */
static void bytes_of_kernels_are_those_counted_by_hand(void **state)
{
        (void)state;
        static const struct {
                struct kernel kernel;
                double half, single; /* 0: there is no such kernel in fp32 */
        } cases[] = {
                {{KERNEL_MATMUL, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 31, 4 * 31},
                {{KERNEL_MATMUL, .accumulate = 1, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 37, 4 * 37},
                {{KERNEL_MATMUL, .batch = 7, .m = 2, .n = 3, .k = 5}, 7 * 2 * 31, 7 * 4 * 31},
                {{KERNEL_EMBEDDING, .batch = 1, .m = 4, .n = 8}, 2 * 96, 4 * 96},
                {{KERNEL_EMBEDDING_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 160, 4 * 160},
                /* x, y (32); w, b (8); mean and rstd of 4 rows in fp32 */
                {{KERNEL_LAYERNORM, .batch = 1, .m = 4, .n = 8}, 2 * 80 + 4 * 8, 4 * 88},
                /* dy, x, dx (32); w, and dw, db twice (8); mean, rstd; added to: dx once more */
                {{KERNEL_LAYERNORM_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 136 + 4 * 8, 4 * 144},
                {{KERNEL_LAYERNORM_BACKWARD, .accumulate = 1, .batch = 1, .m = 4, .n = 8},
                 2 * 168 + 4 * 8,
                 4 * 176},
                {{KERNEL_BIAS, .batch = 1, .m = 4, .n = 8}, 2 * 72, 4 * 72},
                {{KERNEL_BIAS_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 48, 4 * 48},
                {{KERNEL_BIAS_GELU, .batch = 1, .m = 4, .n = 8}, 2 * 104, 4 * 104},
                {{KERNEL_BIAS_RESIDUAL, .batch = 1, .m = 4, .n = 8}, 2 * 104, 4 * 104},
                {{KERNEL_GELU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 96, 4 * 96},
                {{KERNEL_RESIDUAL, .batch = 1, .m = 4, .n = 8}, 2 * 96, 4 * 96},
                /* x, y (32); w (8); rstd of 4 rows in fp32 */
                {{KERNEL_RMSNORM, .batch = 1, .m = 4, .n = 8}, 2 * 72 + 4 * 4, 4 * 76},
                /* dy, x, dx (32); w, and dw twice (8); rstd; added to: dx once more */
                {{KERNEL_RMSNORM_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 120 + 4 * 4, 4 * 124},
                {{KERNEL_RMSNORM_BACKWARD, .accumulate = 1, .batch = 1, .m = 4, .n = 8},
                 2 * 152 + 4 * 4,
                 4 * 156},
                {{KERNEL_ROPE, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 64, 4 * 64},
                /* x, y (32); w of queries and of keys (2); rstd of 4 heads in 4 rows in fp32 */
                {{KERNEL_HEAD_RMSNORM, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 68 + 4 * 16, 4 * 84},
                {{KERNEL_HEAD_RMSNORM_BACKWARD, .batch = 1, .m = 4, .n = 8, .k = 2},
                 2 * 108 + 4 * 16,
                 4 * 124},
                /* of 4 rows of 8 and 2 columns all (80) is read and written */
                {{KERNEL_SPLIT_COLUMNS, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 80, 4 * 80},
                {{KERNEL_JOIN_COLUMNS, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 80, 4 * 80},
                /* queries (32), 6 columns of keys and values (24), the 2 that heads share (8); all three (96)
                 */
                {{KERNEL_LATENT_QKV, .batch = 1, .m = 4, .n = 8, .k = 2, .l = 6}, 2 * 160, 4 * 160},
                {{KERNEL_LATENT_QKV_BACKWARD, .batch = 1, .m = 4, .n = 8, .k = 2, .l = 6}, 2 * 160, 4 * 160},
                /* 8 of 10 columns */
                {{KERNEL_NARROW, .batch = 1, .m = 4, .n = 8, .k = 10}, 2 * 72, 4 * 72},
                {{KERNEL_WIDEN, .batch = 1, .m = 4, .n = 8, .k = 10}, 2 * 72, 4 * 72},
                /* gates and what they are for (64), y (32); backward dy (32), and the former's gradients */
                {{KERNEL_SWIGLU, .batch = 1, .m = 4, .n = 8}, 2 * 96, 4 * 96},
                {{KERNEL_SWIGLU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 160, 4 * 160},
                {{KERNEL_SQUARED_RELU, .batch = 1, .m = 4, .n = 8}, 2 * 64, 4 * 64},
                {{KERNEL_SQUARED_RELU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 96, 4 * 96},
                /* logits (32); of 2 experts a row the weight and two indices, and 8 ends */
                {{KERNEL_ROUTE, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 32 + 4 * 32, 4 * 64},
                {{KERNEL_ROUTE_BACKWARD, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 64 + 4 * 32, 4 * 96},
                /* rows written and read, and an index for each that is read */
                {{KERNEL_PERMUTE, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 64 + 4 * 4, 4 * 68},
                {{KERNEL_UNPERMUTE, .batch = 1, .m = 4, .n = 8, .k = 2}, 2 * 96 + 4 * 8, 4 * 104},
                {{KERNEL_UNPERMUTE, .accumulate = 1, .batch = 1, .m = 4, .n = 8, .k = 2},
                 2 * 128 + 4 * 8,
                 4 * 136},
                /* a (10), c (6), 4 experts' b (15); backward a (10), b (15), 4 experts' c (6) twice */
                {{KERNEL_GROUPED_MATMUL, .experts = 4, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 76, 4 * 76},
                {{KERNEL_GROUPED_MATMUL_BACKWARD, .experts = 4, .batch = 1, .m = 2, .n = 3, .k = 5},
                 2 * 73,
                 4 * 73},
                {{KERNEL_EXPERT_ENDS, .batch = 1, .m = 4, .k = 2}, 16, 16},
                /* SwiGLU's, and a weight a row in fp32; backward also its gradient */
                {{KERNEL_WEIGHTED_SWIGLU, .batch = 1, .m = 4, .n = 8}, 2 * 96 + 4 * 4, 4 * 100},
                {{KERNEL_WEIGHTED_SWIGLU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 2 * 160 + 4 * 8, 4 * 168},
                /* 10 of 16 elements are on or below the diagonal */
                {{KERNEL_SOFTMAX, .batch = 2, .m = 4, .n = 4}, 2 * 52, 4 * 52},
                {{KERNEL_SOFTMAX_BACKWARD, .batch = 2, .m = 4, .n = 4}, 2 * 72, 4 * 72},
                {{KERNEL_CROSS_ENTROPY, .batch = 1, .m = 4, .n = 8}, 2 * 64, 4 * 64},
                {{KERNEL_CROSS_ENTROPY_LOSS, .batch = 1, .m = 4, .n = 8}, 2 * 32, 4 * 32},
                {{KERNEL_SQUARED_NORM, .batch = 1, .m = 10}, 20, 40},
                {{KERNEL_OVERFLOW, .batch = 1, .m = 10}, 20, 0},
                {{KERNEL_CLEAR, .batch = 1, .m = 10}, 20, 0},
                {{KERNEL_UNSCALE, .batch = 1, .m = 10}, 20 + 20 + 40, 0},
                /* p, m, v read and written, g read, the weight written; fp32: g too is written, no weight */
                {{KERNEL_ADAMW, .batch = 1, .m = 10}, 6 * 40 + 40 + 20, 8 * 40},
                /* x, w, b, y; a second (m,n) besides; backward dy, w, h, dh */
                {{KERNEL_MATMUL_BIAS, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 34, 4 * 34},
                {{KERNEL_MATMUL_BIAS_GELU, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 40, 4 * 40},
                {{KERNEL_MATMUL_BIAS_RESIDUAL, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 40, 4 * 40},
                /* r, y and its LayerNorm (6 each), its w and b besides; mean and rstd of 2 rows in fp32 */
                {{KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, .batch = 1, .m = 2, .n = 3, .k = 5},
                 2 * 52 + 4 * 4,
                 4 * 56},
                {{KERNEL_MATMUL_GELU_BACKWARD, .batch = 1, .m = 2, .n = 3, .k = 5}, 2 * 37, 4 * 37},
                /* a head's q, k, v, y (32 each), and a number a row in fp32; backward also dy, dq, dk, dv,
                 * and three numbers a row */
                {{KERNEL_ATTENTION, .batch = 6, .m = 4, .n = 4, .k = 8}, 6 * (2 * 128 + 16), 6 * 4 * 132},
                {{KERNEL_ATTENTION_BACKWARD, .batch = 6, .m = 4, .n = 4, .k = 8},
                 6 * (2 * 256 + 48),
                 6 * 4 * 268},
                /* two heads of queries to one of keys and values */
                {{KERNEL_ATTENTION, .group = 2, .batch = 6, .m = 4, .n = 4, .k = 8},
                 6 * (2 * 96 + 16),
                 6 * 4 * 100},
                {{KERNEL_ATTENTION_BACKWARD, .group = 2, .batch = 6, .m = 4, .n = 4, .k = 8},
                 6 * (2 * 192 + 48),
                 6 * 4 * 204},
                /* a head's q, k, v (32 each), y that goes on, and a number a row that does; backward q, k, v,
                 * dy, dq that goes on, dk, dv, and two numbers a row */
                {{KERNEL_CONTEXT_ATTENTION, .batch = 6, .m = 4, .n = 4, .k = 8},
                 6 * (2 * 160 + 32),
                 6 * 4 * 168},
                {{KERNEL_CONTEXT_ATTENTION_BACKWARD, .group = 2, .batch = 6, .m = 4, .n = 4, .k = 8},
                 6 * (2 * 192 + 32),
                 6 * 4 * 200},
                {{KERNEL_LAST_COLUMNS, .batch = 1, .m = 4, .n = 8, .k = 10}, 2 * 72, 4 * 72},
                {{KERNEL_SET_LAST_COLUMNS, .batch = 1, .m = 4, .n = 8, .k = 10}, 2 * 112, 4 * 112},
                {{KERNEL_QUANTIZE, .format = FORMAT_FP8, .batch = 1, .m = 4, .n = 8}, 32 * (2 + 1), 0},
                {{KERNEL_QUANTIZE, .transpose_b = 1, .format = FORMAT_NVFP4, .batch = 1, .m = 4, .n = 8},
                 32 * (2 + 2 * 9.0 / 16),
                 0},
                {{KERNEL_MAXIMUM, .batch = 1, .m = 4, .n = 8}, 2 * 32, 0},
                {{KERNEL_TRANSPOSE_QUANTIZED, .format = FORMAT_FP8, .batch = 1, .m = 4, .n = 8}, 2 * 32, 0},
                /* products that read a byte an element, or half of one and its scales */
                {{KERNEL_MATMUL, .format = FORMAT_FP8, .batch = 1, .m = 2, .n = 3, .k = 5}, 25 + 2 * 6, 0},
                {{KERNEL_MATMUL, .format = FORMAT_NVFP4, .batch = 1, .m = 2, .n = 3, .k = 16},
                 80 * 9.0 / 16 + 2 * 6,
                 0},
                {{KERNEL_GROUPED_MATMUL, .format = FORMAT_FP8, .experts = 3, .batch = 1, .m = 8, .n = 4,
                  .k = 5},
                 40 + 60 + 2 * 32,
                 0},
                /* gradients of parameters in fp32 */
                {{KERNEL_MATMUL, .accumulate = 1, .wide = 1, .batch = 1, .m = 2, .n = 3, .k = 5},
                 2 * 25 + 8 * 6,
                 0},
                {{KERNEL_RMSNORM_BACKWARD, .wide = 1, .batch = 1, .m = 4, .n = 8},
                 2 * (3 * 32 + 8) + 4 * 4 + 8 * 8,
                 0},
                {{KERNEL_ADAMW, .wide = 1, .batch = 1, .m = 100}, 100 * (3 * 8 + 8 + 2), 0},
        };
        bool seen[KERNEL_KINDS] = {0};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct kernel kernel = cases[i].kernel;
                seen[kernel.kind] = true;
                if (cases[i].single > 0)
                        assert_close(kernel_bytes(&kernel), cases[i].single, 0);
                kernel.dtype = DTYPE_FP16;
                assert_close(kernel_bytes(&kernel), cases[i].half, 0);
                kernel.dtype = DTYPE_BF16;
                assert_close(kernel_bytes(&kernel), cases[i].half, 0);
        }
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                if (!seen[kind])
                        fail_msg("%s is not in the list", kernel_name((enum kernel_kind)kind));
}

static void the_kernels_of_a_small_last_stage_are_listed_in_order(void **state)
{
        (void)state;
        static const char *const names[] = {"embedding",
                                            "layernorm",
                                            "matmul",
                                            "bias",
                                            "matmul",
                                            "softmax",
                                            "matmul",
                                            "matmul",
                                            "bias_residual",
                                            "layernorm",
                                            "matmul",
                                            "bias_gelu",
                                            "matmul",
                                            "bias_residual",
                                            "layernorm",
                                            "matmul",
                                            "cross_entropy_loss"};
        struct gpt gpt = preset("tiny");
        gpt.n_layer = 1;
        struct stage stage = partition_stage(&gpt, 1, 0);
        struct kernel kernels[32];
        struct work work = fp32_work(2, 8);
        int count = workload_forward(&gpt, &stage, &work, true, kernels);
        assert_int_equal(count, sizeof names / sizeof names[0]);
        for (int i = 0; i < count; i++)
                assert_string_equal(kernel_name(kernels[i].kind), names[i]);
        struct kernel scores = {
                .kind = KERNEL_MATMUL, .transpose_b = 1, .batch = 2 * 4, .m = 8, .n = 8, .k = 8};
        struct kernel head = {
                .kind = KERNEL_MATMUL, .transpose_b = 1, .batch = 1, .m = 16, .n = 256, .k = 32};
        assert_true(kernel_same(&kernels[4], &scores));
        assert_true(kernel_same(&kernels[15], &head));
        assert_false(kernel_same(&scores, &head));
        head.part = PART_INPUT;
        assert_true(kernel_same(&kernels[15], &head));
}

static double flops(enum kernel_kind kind, int64_t batch, int64_t m, int64_t n, int64_t k)
{
        return kernel_flops(&(struct kernel){.kind = kind, .batch = batch, .m = m, .n = n, .k = k});
}

/* Of 4 rows of 8 elements, counted in the formulas that the kernels' comments have. */
static void operations_on_rows_are_those_counted_by_hand(void **state)
{
        (void)state;
        static const struct {
                struct kernel kernel;
                double flops;
        } cases[] = {
                {{KERNEL_LAYERNORM, .batch = 1, .m = 4, .n = 8}, 8 * 32},
                {{KERNEL_LAYERNORM_BACKWARD, .accumulate = 1, .batch = 1, .m = 4, .n = 8}, 14 * 32},
                {{KERNEL_RESIDUAL, .batch = 1, .m = 4, .n = 8}, 32},
                {{KERNEL_RMSNORM, .batch = 1, .m = 4, .n = 8}, 4 * 32},
                {{KERNEL_RMSNORM_BACKWARD, .batch = 1, .m = 4, .n = 8}, 9 * 32},
                {{KERNEL_RMSNORM_BACKWARD, .accumulate = 1, .batch = 1, .m = 4, .n = 8}, 10 * 32},
                {{KERNEL_ROPE, .batch = 1, .m = 4, .n = 8, .k = 2}, 3 * 32},
                {{KERNEL_HEAD_RMSNORM, .batch = 1, .m = 4, .n = 8, .k = 2}, 4 * 32},
                {{KERNEL_HEAD_RMSNORM_BACKWARD, .batch = 1, .m = 4, .n = 8, .k = 2}, 9 * 32},
                {{KERNEL_LATENT_QKV, .batch = 1, .m = 4, .n = 8, .k = 2, .l = 6}, 3 * 32},
                {{KERNEL_LATENT_QKV_BACKWARD, .batch = 1, .m = 4, .n = 8, .k = 2, .l = 6}, 4 * 32},
                {{KERNEL_SWIGLU, .batch = 1, .m = 4, .n = 8}, 5 * 32},
                {{KERNEL_SWIGLU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 11 * 32},
                {{KERNEL_SQUARED_RELU, .batch = 1, .m = 4, .n = 8}, 2 * 32},
                {{KERNEL_SQUARED_RELU_BACKWARD, .batch = 1, .m = 4, .n = 8}, 3 * 32},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                assert_close(kernel_flops(&cases[i].kernel), cases[i].flops, 0);
}

/* A fused product computes what the product and the elementwise kernels do that it stands for. Fused
 * attention does the products' work on and below the diagonal alone, (T + 1) / 2 of T columns a row; its
 * backward makes the scores again, and of them the probabilities: a difference and an exp. */
static void fused_kernels_do_the_work_of_those_that_they_replace(void **state)
{
        (void)state;
        const int64_t m = 7, n = 12, k = 5, batch = 6, T = 9, hs = 4;
        const double product = flops(KERNEL_MATMUL, 1, m, n, k);
        assert_close(flops(KERNEL_MATMUL_BIAS, 1, m, n, k), product + flops(KERNEL_BIAS, 1, m, n, 0), 0);
        assert_close(flops(KERNEL_MATMUL_BIAS_GELU, 1, m, n, k),
                     product + flops(KERNEL_BIAS_GELU, 1, m, n, 0), 0);
        assert_close(flops(KERNEL_MATMUL_BIAS_RESIDUAL, 1, m, n, k),
                     product + flops(KERNEL_BIAS_RESIDUAL, 1, m, n, 0), 0);
        assert_close(flops(KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, 1, m, n, k),
                     product + flops(KERNEL_BIAS_RESIDUAL, 1, m, n, 0) + flops(KERNEL_LAYERNORM, 1, m, n, 0),
                     0);
        assert_close(flops(KERNEL_MATMUL_GELU_BACKWARD, 1, m, n, k),
                     product + flops(KERNEL_GELU_BACKWARD, 1, m, n, 0), 0);
        const double causal = (double)(T + 1) / (2.0 * (double)T);
        const double scores = causal * flops(KERNEL_MATMUL, batch, T, T, hs);
        assert_close(flops(KERNEL_ATTENTION, batch, T, T, hs),
                     2 * scores + flops(KERNEL_SOFTMAX, batch, T, T, 0), 1e-15);
        assert_close(flops(KERNEL_ATTENTION_BACKWARD, batch, T, T, hs),
                     5 * scores + flops(KERNEL_SOFTMAX_BACKWARD, batch, T, T, 0) +
                             2 * (double)(batch * T * (T + 1) / 2),
                     1e-15);
}

static void heads_that_share_keys_do_the_same_operations_in_another_kernel(void **state)
{
        (void)state;
        const enum kernel_kind kinds[] = {KERNEL_ATTENTION, KERNEL_ATTENTION_BACKWARD};
        for (int i = 0; i < 2; i++) {
                struct kernel own = {kinds[i], .batch = 6, .m = 9, .n = 9, .k = 4}, one = own, shared = own;
                one.group = 1;
                shared.group = 3;
                assert_true(kernel_same(&own, &one) && kernel_bytes(&own) == kernel_bytes(&one));
                assert_false(kernel_same(&own, &shared));
                assert_true(kernel_flops(&own) == kernel_flops(&shared));
                assert_true(kernel_bytes(&own) > kernel_bytes(&shared));
        }
}

static void assert_names(const struct kernel *kernels, int count, const char *const *names, int expected)
{
        assert_int_equal(count, expected);
        for (int i = 0; i < count; i++)
                assert_string_equal(kernel_name(kernels[i].kind), names[i]);
}

/* One stage of one block with all that there is, backward with recomputation: 5 of the block's 6 forward
 * kernels before its 14. */
static void the_fused_kernels_of_a_stage_are_listed_in_order(void **state)
{
        (void)state;
        static const char *const forward[] = {"embedding",
                                              "layernorm",
                                              "matmul_bias",
                                              "attention",
                                              "matmul_bias_residual_layernorm",
                                              "matmul_bias_gelu",
                                              "matmul_bias_residual",
                                              "layernorm"};
        static const char *const backward[] = {"matmul",
                                               "cross_entropy",
                                               "matmul",
                                               "matmul",
                                               "layernorm_backward",
                                               "layernorm",
                                               "matmul_bias",
                                               "attention",
                                               "matmul_bias_residual_layernorm",
                                               "matmul_bias_gelu",
                                               "matmul_gelu_backward",
                                               "matmul",
                                               "bias_backward",
                                               "matmul",
                                               "matmul",
                                               "bias_backward",
                                               "layernorm_backward",
                                               "matmul",
                                               "matmul",
                                               "bias_backward",
                                               "attention_backward",
                                               "matmul",
                                               "matmul",
                                               "bias_backward",
                                               "layernorm_backward",
                                               "embedding_backward"};
        struct gpt gpt = preset("tiny"); /* C 32, 4 heads */
        gpt.n_layer = 1;
        struct kernel kernels[32];
        struct work work = fp32_work(2, 16);
        work.fused = true;
        work.recompute = RECOMPUTE_FULL;
        int count = listed(&gpt, &work, false, kernels);
        assert_names(kernels, count, forward, sizeof forward / sizeof *forward);
        check_list(kernels, count, false);
        const struct kernel attention = {KERNEL_ATTENTION, .batch = 8, .m = 16, .n = 16, .k = 8};
        const struct kernel mlp[] = {
                {KERNEL_MATMUL_BIAS_GELU, .transpose_b = 1, .batch = 1, .m = 32, .n = 128, .k = 32},
                {KERNEL_MATMUL_BIAS_RESIDUAL, .transpose_b = 1, .batch = 1, .m = 32, .n = 32, .k = 128}};
        assert_true(kernel_same(&kernels[3], &attention));
        const struct kernel output = {KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM,
                                      .transpose_b = 1,
                                      .batch = 1,
                                      .m = 32,
                                      .n = 32,
                                      .k = 32};
        assert_true(kernel_same(&kernels[4], &output));
        assert_true(kernel_same(&kernels[5], &mlp[0]));
        assert_true(kernel_same(&kernels[6], &mlp[1]));
        count = listed(&gpt, &work, true, kernels);
        assert_names(kernels, count, backward, sizeof backward / sizeof *backward);
        const struct kernel gelu = {
                KERNEL_MATMUL_GELU_BACKWARD, .part = PART_INPUT, .batch = 1, .m = 32, .n = 128, .k = 32};
        const struct kernel scores = {
                KERNEL_ATTENTION_BACKWARD, .part = PART_INPUT, .batch = 8, .m = 16, .n = 16, .k = 8};
        assert_listed(&kernels[10], &gelu);
        assert_listed(&kernels[20], &scores);
        check_list(&kernels[10], count - 10, true);
}

/* With fused kernels, of 40 rows of 256 logits (fp32) as many as fit at once, in groups of 16: all; 32 and 8;
 * or 16, 16 and 8. A forward for validation makes its loss in the same chunks; without fused kernels, and of
 * shards, there are none. */
static void the_loss_is_made_in_chunks_of_rows(void **state)
{
        (void)state;
        const struct gpt gpt = preset("tiny"); /* C 32, V 256 */
        const struct stage whole = partition_stage(&gpt, 1, 0), shard = partition_shard(&whole, 2, 0);
        struct work work = fp32_work(2, 20);
        const int64_t row = 4 * 256;
        assert_int_equal(workload_loss_rows(&gpt, &whole, &work), 0);
        work.fused = true;
        assert_int_equal(workload_loss_rows(&gpt, &shard, &work), 0);
        assert_int_equal(workload_loss_rows(&gpt, &whole, &work), 40);
        const struct {
                int64_t bytes, rows[3];
                int count;
        } cases[] = {{40 * row, {32, 8}, 2}, {48 * row, {40}, 1}, {1, {16, 16, 8}, 3}};
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
                struct kernel plain[256], chunked[256], parts[256];
                work.logits_bytes = cases[c].bytes;
                assert_int_equal(workload_loss_rows(&gpt, &whole, &work), cases[c].rows[0]);
                int count = workload_backward(&gpt, &whole, &work, chunked), at = 0;
                assert_int_equal(workload_backward_part(&gpt, &whole, &work, PART_INPUT, parts) +
                                         workload_backward_part(&gpt, &whole, &work, PART_WEIGHT, NULL),
                                 count + 2 * gpt.n_layer); /* see add_layernorm_backward */
                for (int i = 0; i < cases[c].count; i++) {
                        const int64_t m = cases[c].rows[i];
                        const struct kernel expected[] = {
                                {KERNEL_MATMUL, .transpose_b = 1, .batch = 1, .m = m, .n = 256, .k = 32},
                                {KERNEL_CROSS_ENTROPY, .batch = 1, .m = m, .n = 256},
                                {KERNEL_MATMUL, .part = PART_INPUT, .batch = 1, .m = m, .n = 32, .k = 256},
                                {KERNEL_MATMUL, .transpose_a = 1, .accumulate = 1, .part = PART_WEIGHT,
                                 .batch = 1, .m = 256, .n = 32, .k = m}};
                        for (int k = 0; k < 4; k++, at++) {
                                assert_listed(&chunked[at], &expected[k]);
                                assert_listed(&parts[at], &expected[k]);
                        }
                }
                assert_int_equal(chunked[at].kind, KERNEL_LAYERNORM_BACKWARD);
                work.logits_bytes = 0; /* behind the loss nothing changes */
                const int others = workload_backward(&gpt, &whole, &work, plain) - 4;
                assert_int_equal(count - at, others);
                for (int i = 0; i < others; i++)
                        assert_listed(&chunked[at + i], &plain[4 + i]);
                work.logits_bytes = cases[c].bytes;
                count = workload_forward(&gpt, &whole, &work, true, chunked) - 2 * cases[c].count;
                assert_int_equal(workload_forward(&gpt, &whole, &work, false, NULL), count);
                for (int i = 0; i < cases[c].count; i++) {
                        assert_int_equal(chunked[count + 2 * i].kind, KERNEL_MATMUL);
                        assert_int_equal(chunked[count + 2 * i].m, cases[c].rows[i]);
                        assert_int_equal(chunked[count + 2 * i + 1].kind, KERNEL_CROSS_ENTROPY_LOSS);
                        assert_int_equal(chunked[count + 2 * i + 1].m, cases[c].rows[i]);
                }
        }
}

/* Whatever the sizes: as few chunks as the bytes allow, all but the last of the same size, and none smaller
 * than balance and groups of 16 make it. */
static void chunks_of_the_loss_are_few_and_balanced(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        const struct stage stage = partition_stage(&gpt, 1, 0);
        const int64_t group = WORKLOAD_LOSS_ROWS;
        for (int i = 0; i < 5000; i++) {
                gpt.vocab_size = 1 + i * 7919 % 60000;
                const struct work work = {.micro_batch_size = 1 + i % 13,
                                          .seq_len = 1 + i * 104729 % 2048,
                                          .dtype = i % 2 ? DTYPE_FP16 : DTYPE_FP32,
                                          .fused = true};
                const int64_t N = (int64_t)work.micro_batch_size * work.seq_len;
                const int64_t pitch = (gpt.vocab_size + 63) / 64 * 64;
                const int64_t max = WORKLOAD_LOGITS_BYTES / (pitch * work_element_bytes(&work));
                const int64_t rows = workload_loss_rows(&gpt, &stage, &work);
                const int64_t chunks = (N + rows - 1) / rows, last = N - (chunks - 1) * rows;
                assert_true(rows <= max && (rows == N || rows % group == 0));
                assert_int_equal(chunks, (N + max / group * group - 1) / (max / group * group));
                assert_true(last > 0 && rows - last < group * chunks);
        }
}

static void kernel_names_lead_back_to_their_kinds(void **state)
{
        (void)state;
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                assert_int_equal(kernel_kind_of(kernel_name((enum kernel_kind)kind)), kind);
        assert_int_equal(kernel_kind_of("no such kernel"), -1);
}

static int64_t rounded(int64_t bytes)
{
        return bytes % 64 ? bytes + 64 - bytes % 64 : bytes;
}

/* The bytes of a stage of `demo` (C 256, 8 heads, vocabulary 256) at B 4, T 128, worked out by hand for
 * activations that need no rounding. */
static struct memory_bytes by_hand(const struct gpt *gpt, const struct stage *stage,
                                   const struct memory_plan *plan)
{
        int64_t N = 4 * 128, C = 256, V = 256, T2 = 4 * 8 * 128 * 128, e = work_element_bytes(&plan->work);
        int64_t parameters = partition_parameters(gpt, stage), row = e * N * C;
        int64_t attention = plan->work.fused ? 4 * 8 * N : e * T2; /* one fp32 number a head and token */
        int64_t block = 16 * row + attention + 4 * 4 * N; /* of it 16 bytes a token: mean, rstd of two */
        int64_t scores = plan->work.fused ? 0 : attention;
        const int64_t kept[RECOMPUTES] = {[RECOMPUTE_NONE] = block,
                                          [RECOMPUTE_SELECTIVE] = block - scores,
                                          [RECOMPUTE_FULL] = row,
                                          [RECOMPUTE_LAYER] = row};
        int64_t stored = kept[plan->work.recompute];
        /* Fused, logits of 176 of the 512 rows are there at once, in the workspace: less than a block needs.
         */
        int64_t kept_logits = plan->work.fused ? 0 : e * V * N;
        int64_t slot =
                stage->first * row + stage->layers * stored + stage->last * (row + 4 * 2 * N + kept_logits);
        int64_t own = plan->shard_parameters ? plan->shard_parameters : parameters; /* zero */
        int64_t update = plan->update_parameters < own ? plan->update_parameters : own;
        struct memory_bytes bytes = {0};
        int64_t *device = bytes.in[MEMORY_DEVICE], *host = bytes.in[MEMORY_HOST];
        device[MEMORY_WEIGHTS] = device[MEMORY_GRADIENTS] = rounded(e * parameters);
        if (e == 4) {
                device[MEMORY_OPTIMIZER] = 2 * rounded(4 * own);
        } else if (plan->offload) {
                host[MEMORY_MASTER] = rounded(4 * own);
                host[MEMORY_OPTIMIZER] = 2 * rounded(4 * own);
                device[MEMORY_BUCKETS] = plan->update_buffers * 4 * rounded(4 * update);
        } else {
                device[MEMORY_MASTER] = device[MEMORY_OPTIMIZER] = 2 * rounded(4 * own);
        }
        device[MEMORY_ACTIVATIONS] = plan->slots * slot;
        host[MEMORY_ACTIVATIONS] = plan->host_slots * slot;
        device[MEMORY_MESSAGES] = (plan->input_buffers + plan->gradient_buffers) * row;
        /* What is alive at once where that is most: unfused the gradients of scores, qkv and attention's
         * output (selective: and the scores), fused those of fc and the second LayerNorm; where a block runs
         * again, all of it but its input and output, and the gradient of gelu. */
        const int64_t again = block - row + 4 * row, unfused = attention + 4 * row, fused = 5 * row;
        const int64_t peaks[RECOMPUTES] = {[RECOMPUTE_NONE] = plan->work.fused ? fused : unfused,
                                           [RECOMPUTE_SELECTIVE] =
                                                   plan->work.fused ? fused : unfused + attention,
                                           [RECOMPUTE_FULL] = again,
                                           [RECOMPUTE_LAYER] = again};
        device[MEMORY_WORKSPACE] = peaks[plan->work.recompute];
        if (plan->stage_messages) /* outputs, unless they are the last stage's; what is received; gradients */
                host[MEMORY_MESSAGES] =
                        ((stage->last ? 0 : plan->slots) + plan->input_buffers + plan->gradient_buffers) *
                        row;
        host[MEMORY_GRADIENTS] = rounded(e * plan->staged_gradients);
        host[MEMORY_WORKSPACE] = 64;
        device[MEMORY_TOKENS] = host[MEMORY_TOKENS] = (stage->first + stage->last) * 5 * N * 4;
        return bytes;
}

static void check_memory(const struct gpt *gpt, const struct stage *stage, const struct memory_plan *plan)
{
        struct memory_bytes found, expected = by_hand(gpt, stage, plan);
        memset(&found, 0xff, sizeof found);
        memory_stage(gpt, stage, plan, &found);
        for (int space = 0; space < MEMORY_SPACES; space++) {
                int64_t sum = 0;
                for (int c = 0; c < MEMORY_CATEGORIES; c++) {
                        int64_t is = found.in[space][c], should = expected.in[space][c];
                        if (is != should)
                                fail_msg("%s %s, stage %d of %d, %d bytes an element, offload %d, recompute "
                                         "%d, fused %d: %lld, not %lld",
                                         memory_space_name((enum memory_space)space),
                                         memory_category_name((enum memory_category)c), stage->index,
                                         stage->stages, work_element_bytes(&plan->work), plan->offload,
                                         plan->work.recompute, plan->work.fused, (long long)is,
                                         (long long)should);
                        sum += should;
                }
                assert_int_equal(memory_total(&found, (enum memory_space)space), sum);
        }
        assert_true(memory_countable(gpt, plan));
}

/* Every combination of what a plan can ask for, on every stage of three pipelines. */
static void memory_is_the_sum_of_what_is_stored(void **state)
{
        (void)state;
        struct gpt gpt = preset("demo");
        for (int choice = 0; choice < 256; choice++)
                for (int stages = 1; stages <= 3; stages++)
                        for (int s = 0; s < stages; s++) {
                                bool mixed = choice & 1, offload = choice & 2, host = choice & 8;
                                if (offload && !mixed)
                                        continue;
                                struct stage stage = partition_stage(&gpt, stages, s);
                                struct work work = fp32_work(4, 128);
                                work.dtype = !mixed        ? DTYPE_FP32
                                             : stages == 2 ? DTYPE_BF16 /* as wide as fp16 */
                                                           : DTYPE_FP16;
                                work.recompute =
                                        (enum recompute)((choice & 4 ? 1 : 0) + (choice & 128 ? 2 : 0));
                                work.fused = choice & 16;
                                work.logits_bytes = 200 * 256 * work_element_bytes(&work);
                                struct memory_plan plan = {
                                        .work = work,
                                        .micro_batches = 5,
                                        .slots = 3,
                                        .host_slots = host ? 7 : 0,
                                        .input_buffers = stage.first ? 0 : 2,
                                        .gradient_buffers = 1,
                                        .stage_messages = choice & 32,
                                        .staged_gradients = choice & 64 ? 1000 + s : 0,
                                        .shard_parameters = choice % 3 == 0 ? 5001 + s : 0,
                                        .offload = offload,
                                        .update_parameters = offload ? (s ? 1001 : INT64_C(1) << 40) : 0,
                                        .update_buffers = offload ? 3 : 0};
                                check_memory(&gpt, &stage, &plan);
                        }
}

/* Singh & Bhatele 2022: 20 bytes a parameter; offloaded 4, and 16 of a bucket. Ours without: 16 in fp32. */
static void bytes_a_parameter_are_those_of_axonn(void **state)
{
        (void)state;
        struct gpt gpt = preset("gpt-12b");
        const int64_t bucket = 16000000, third = (bucket + 2) / 3;
        for (int s = 0; s < 24; s += 23) {
                struct stage stage = partition_stage(&gpt, 24, s);
                int64_t parameters = partition_parameters(&gpt, &stage);
                struct memory_plan plan = {.work = {.micro_batch_size = 1, .seq_len = 512},
                                           .micro_batches = 1};
                for (int variant = 0; variant < 3; variant++) {
                        struct memory_bytes bytes;
                        plan.work.dtype = variant ? DTYPE_FP16 : DTYPE_FP32;
                        plan.offload = variant == 2;
                        plan.update_parameters = variant == 2 ? third : 0;
                        plan.update_buffers = variant == 2 ? 3 : 0;
                        memory_stage(&gpt, &stage, &plan, &bytes);
                        const int64_t *device = bytes.in[MEMORY_DEVICE], *host = bytes.in[MEMORY_HOST];
                        int64_t state_bytes = device[MEMORY_WEIGHTS] + device[MEMORY_GRADIENTS] +
                                              device[MEMORY_MASTER] + device[MEMORY_OPTIMIZER] +
                                              device[MEMORY_BUCKETS];
                        double expected = variant == 0   ? 16.0 * (double)parameters
                                          : variant == 1 ? 20.0 * (double)parameters
                                                         : 4.0 * (double)parameters + 16.0 * (double)bucket;
                        assert_close((double)state_bytes, expected, 1e-6);
                        assert_close((double)(host[MEMORY_MASTER] + host[MEMORY_OPTIMIZER]),
                                     variant == 2 ? 12.0 * (double)parameters : 0, 1e-6);
                }
        }
}

/* A plan beyond 2^60 bytes is told before anything overflows, whichever count makes it so. */
static void what_cannot_be_counted_is_told(void **state)
{
        (void)state;
        struct gpt gpt = preset("gpt-100b");
        struct memory_plan sound = {.work = {.micro_batch_size = 4, .seq_len = 512, .dtype = DTYPE_FP16},
                                    .micro_batches = 64,
                                    .slots = 64};
        assert_true(memory_countable(&gpt, &sound));
        struct memory_plan plan = sound;
        plan.slots = 1 << 30;
        assert_false(memory_countable(&gpt, &plan));
        plan = sound;
        plan.host_slots = 1 << 30;
        assert_false(memory_countable(&gpt, &plan));
        plan = sound;
        plan.work.micro_batch_size = 1 << 30;
        assert_false(memory_countable(&gpt, &plan));
        /* (T,T) matrices alone make this too large. */
        plan = sound;
        plan.work.seq_len = 1 << 18;
        plan.slots = 1 << 12;
        assert_false(memory_countable(&gpt, &plan));
        plan.work.fused = true;
        assert_true(memory_countable(&gpt, &plan));
        /* and so does an MLP as wide as all shared experts */
        struct gpt shared = gpt;
        shared.n_shared = 1 << 10;
        assert_false(memory_countable(&shared, &plan));
        struct stage whole = partition_stage(&gpt, 1, 0);
        struct memory_bytes bytes;
        memory_stage(&gpt, &whole, &plan, &bytes);
        assert_in_range(memory_total(&bytes, MEMORY_DEVICE), INT64_C(1) << 50, INT64_C(1) << 60);
}

static void every_buffer_is_rounded_up_on_its_own(void **state)
{
        (void)state;
        assert_int_equal(memory_aligned(0), 0);
        assert_int_equal(memory_aligned(1), 64);
        assert_int_equal(memory_aligned(64), 64);
        assert_int_equal(memory_aligned(65), 128);
        struct gpt gpt = {
                .n_layer = 1, .n_embd = 3, .n_head = 1, .vocab_size = 5, .n_positions = 3, .tied = true};
        struct stage stage = partition_stage(&gpt, 1, 0);
        struct memory_plan plan = {.work = fp32_work(1, 1), .micro_batches = 1, .slots = 1};
        struct memory_layout layout = memory_layout(&gpt, &stage, &plan);
        /* one row: 12 bytes; qkv 36; attention 4; fc, gelu 48; stats 16 and 8; logits 20, in a row of 64
         * elements, 4 times 64 bytes */
        assert_int_equal(layout.slot, (1 + 10 + 2 + 4) * 64);
        assert_int_equal(layout.slot % MEMORY_ALIGNMENT, 0);
        assert_int_equal(layout.block, 10 * 64);
        plan.work.recompute = RECOMPUTE_FULL;
        layout = memory_layout(&gpt, &stage, &plan);
        assert_int_equal(layout.slot, (1 + 1 + 2 + 4) * 64);
        assert_int_equal(layout.block, 64);
        /* in 16 bits the statistics (16 and 8 bytes) are as before */
        plan.work.dtype = DTYPE_FP16;
        plan.work.recompute = RECOMPUTE_NONE;
        gpt.n_embd = 16; /* one row: 32 bytes; qkv 96; fc, gelu 128 */
        layout = memory_layout(&gpt, &stage, &plan);
        assert_int_equal(layout.slot, (1 + 6 + 2 + 2 + 2 + 1 + 2 + 2) * 64);
        assert_int_equal(layout.optimizer, rounded(4 * partition_parameters(&gpt, &stage)));
        assert_int_equal(layout.bucket, 0);
}

/* What gpt_load says about a file with this text. */
static void check_refused(const char *text, const char *expected)
{
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        char sentence[700];
        scratch_open(&scratch);
        const char *path = scratch_write(&scratch, "my.json", text, strlen(text));
        int status = gpt_load(&gpt, path, &err);
        snprintf(sentence, sizeof sentence, "%s%s", path, expected);
        scratch_close(&scratch);
        assert_int_equal(status, RV_EINPUT);
        assert_int_equal(err.code, RV_EINPUT);
        if (strncmp(err.sentence, sentence, strlen(sentence)) != 0)
                fail_msg("\"%s\" was expected, found \"%s\"", sentence, err.sentence);
}

#define REST "\"n_layer\": 2,\n \"vocab_size\": 256,\n \"n_positions\": 64"

static void wrong_model_files_are_refused_with_the_line(void **state)
{
        (void)state;
        check_refused("",
                      ":1: not valid JSON: '[' or '{' expected near end of file (is the file cut short?)");
        check_refused("{\n \"n_layer\": 2,\n \"n_embd\": \n",
                      ":4: not valid JSON: unexpected token near end of file (is the file cut short?)");
        check_refused("{\"n_layer\": 2, \"tie_word_embeddings\": tr",
                      ":1: not valid JSON: invalid token near 'tr' (is the file cut short?)");
        check_refused("{\"n_layer\": 2, \"n_em",
                      ":1: not valid JSON: premature end of input near '\"n_em' (is the file cut short?)");
        check_refused("{\n \"n_layer\": 2,,\n", ":2: not valid JSON: ");
        check_refused("{\"n_layer\": 2,\n \"n_layer\": 3}", ":2: not valid JSON: duplicate");
        check_refused("[1, 2]", ":1: a JSON object { ... } was expected");
        check_refused("{}", ": n_layer is missing, a whole number from 1 to 10000 was expected");
        check_refused("{" REST ",\n \"n_embd\": 768,\n \"n_head\": 7}",
                      ":5: n_head 7 does not divide n_embd 768");
        check_refused("{" REST ",\n \"n_embd\": 0,\n \"n_head\": 7}",
                      ":4: n_embd is 0, a whole number from 1 to 131072 was expected");
        check_refused("{" REST ",\n \"n_embd\": -8,\n \"n_head\": 7}", ":4: n_embd is -8, a whole number");
        check_refused("{" REST ",\n \"n_embd\": \"64\",\n \"n_head\": 7}",
                      ":4: n_embd is \"64\", a whole number");
        check_refused("{" REST ",\n \"n_embd\": 64.5,\n \"n_head\": 7}",
                      ":4: n_embd is 64.5, a whole number");
        check_refused("{" REST ",\n \"n_embd\": 99999999999,\n \"n_head\": 7}",
                      ":4: n_embd is 99999999999, a whole");
        check_refused("{" REST ",\n \"n_embd\": 64,\n\n \"n_head\": null}",
                      ":6: n_head is null, a whole number");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"tie_word_embeddings\": 1}",
                      ":5: tie_word_embeddings is 1, true or false");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"activation_function\": \"relu\"}",
                      ":5: activation_function is \"relu\", only \"gelu_new\"");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"layer_norm_epsilon\": 1e-6}",
                      ":5: layer_norm_epsilon is 1e-6, only 1e-5");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"n_inner\": 128}",
                      ":5: n_inner is 128, only");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"model_type\": \"gptj\"}",
                      ":5: model_type is \"gptj\", only");
        check_refused("{\"model_type\": \"gpt_neox\",\n \"hidden_size\": 64}",
                      ":1: model_type is \"gpt_neox\", only \"gpt2\", \"llama\", \"mistral\", \"qwen2\", "
                      "\"qwen3\", \"mixtral\", \"qwen3_moe\", \"deepseek_v3\", \"nemotron\" and "
                      "\"deepseek_v2\" are built");
        check_refused("{\"vocab_size\": 256,\n \"hidden_size\": 64,\n \"num_hidden_layers\": 2}",
                      ":3: n_layer n_embd n_head vocab_size n_positions of a GPT-2 were expected; "
                      "num_hidden_layers is what other families call n_layer, whose files say");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"num_key_value_heads\": 2}",
                      ":5: num_key_value_heads is 2, and of a GPT-2 they are as many as n_head");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"rope_theta\": 1e4}",
                      ":5: rope_theta is 10000.0, and a GPT-2 has no such thing");
        check_refused("{" REST ",\n \"n_embd\": 64,\n \"n_heads\": 8}",
                      ":5: a model has no member \"n_heads\"; the nearest is \"n_head");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"N_inner\": 8}",
                      ":5: a model has no member \"N_inner\"; the nearest is \"n_inner\"");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"tie_word_embedding\": false}",
                      ":5: a model has no member \"tie_word_embedding\"; the nearest is \"tie_word_emb");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"layer_norm_eps\": 1e-6}",
                      ":5: a model has no member \"layer_norm_eps\"; the nearest is \"layer_norm_epsilon");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"scale_attn_weights\": false}",
                      ":5: scale_attn_weights is false, only true");
}

#define LLAMA                                                                                                \
        "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 64, \"vocab_size\": 256,\n"  \
        "\"max_position_embeddings\": 64, \"intermediate_size\": 172, \"num_attention_heads\": 8,\n"

static void wrong_files_of_a_llama_are_refused_with_the_line(void **state)
{
        (void)state;
        check_refused("{\"model_type\": \"llama\",\n \"hidden_size\": 64}",
                      ": num_hidden_layers is missing, a whole number from 1 to 10000 was expected");
        check_refused(LLAMA "\"num_key_value_heads\": 3}",
                      ":3: num_key_value_heads 3 does not divide num_attention_heads 8");
        check_refused(LLAMA "\"sliding_window\": 4096}", ":3: sliding_window is 4096, only null is built");
        check_refused(LLAMA "\"hidden_act\": \"gelu\"}",
                      ":3: hidden_act is \"gelu\", only \"silu\" is built");
        check_refused(LLAMA "\"attention_bias\": 1}", ":3: attention_bias is 1, true or false was expected");
        check_refused(LLAMA "\"head_dim\": 15}",
                      ":3: a head has head_dim = 15 columns; rotary positions need an even number");
        check_refused(LLAMA "\"head_dim\": 32768}", ":3: 8 heads of head_dim 32768 are wider than 131072");
        check_refused(
                LLAMA "\"layer_types\": [\"full_attention\", \"sliding_attention\"]}",
                ":3: layer_types is [\"full_attention\",\"sliding_attention\"], only \"full_attention\" of "
                "every layer is built");
        check_refused(LLAMA "\"rope_theta\": -1}", ":3: rope_theta is -1");
        check_refused(LLAMA "\"rms_norm_epps\": 1e-6}",
                      ":3: a model has no member \"rms_norm_epps\"; the nearest is \"rms_norm_eps\"");
        check_refused(
                "{\"model_type\": \"llama\", \"num_hidden_layers\": 2, \"hidden_size\": 60, \"vocab_size\": "
                "9,\n"
                "\"max_position_embeddings\": 64, \"intermediate_size\": 172,\n\"num_attention_heads\": 8}",
                ":3: num_attention_heads 8 does not divide hidden_size 60");
}

static void scaled_positions_that_are_not_built_are_refused_with_the_line(void **state)
{
        static const char types[] =
                ", only the types \"default\", \"linear\", \"llama3\" and \"yarn\" are built";
        static const char *const texts[][2] = {
                {"\"rope_scaling\": 8}", ":3: rope_scaling is 8, an object or null was expected"},
                {"\"rope_scaling\": {\"factor\": 8.0}}", ":3: rope_scaling is {\"factor\":8.0}"},
                {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 8.0}}", ":3: type is \"dynamic\""},
                {"\"rope_scaling\": {\"rope_type\": \"longrope\"}}", ":3: rope_type is \"longrope\""},
                {"\"rope_parameters\": {\"rope_type\": \"mrope\"}}", ":3: rope_type is \"mrope\""},
                {"\"rope_scaling\": {\"rope_type\": \"linear\"}}", ": factor is missing, a number"},
                {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0}}",
                 ": low_freq_factor is missing, a number"},
                {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 4.0,\n"
                 "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 8192}}",
                 ":3: low_freq_factor is 4.0, low_freq_factor must be below high_freq_factor"},
                {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"mscale\": 1.0}}",
                 ":3: mscale is 1.0, only null is built"},
                {"\"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}}",
                 ":3: partial_rotary_factor is 0.5, only 1 is built"},
        };
        (void)state;
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
                char text[700], expected[300];
                snprintf(text, sizeof text, LLAMA "%s", texts[i][0]);
                snprintf(expected, sizeof expected, "%s%s", texts[i][1], i >= 1 && i <= 4 ? types : "");
                check_refused(text, expected);
        }
}

#define LIKE_LLAMA(type)                                                                                     \
        "{\"model_type\": \"" type                                                                           \
        "\", \"num_hidden_layers\": 2, \"hidden_size\": 60, \"vocab_size\": 256,\n"                          \
        "\"max_position_embeddings\": 64, \"intermediate_size\": 172, \"num_attention_heads\": 8,\n"

static void wrong_files_of_those_like_a_llama_are_refused_with_the_line(void **state)
{
        (void)state;
        check_refused(LIKE_LLAMA("mistral") "\"head_dim\": 8}", ": num_key_value_heads is missing");
        check_refused(LIKE_LLAMA("mistral") "\"num_key_value_heads\": 2}",
                      ":2: num_attention_heads 8 does not divide hidden_size 60, and there is no head_dim");
        check_refused(LIKE_LLAMA("mistral") "\"num_key_value_heads\": 2, \"sliding_window\": 0}",
                      ":3: sliding_window is 0, a whole number");
        check_refused(LIKE_LLAMA("qwen2") "\"num_key_value_heads\": 2, \"use_sliding_window\": true}",
                      ":3: use_sliding_window is true, only false is built");
        check_refused(LIKE_LLAMA("qwen3") "\"num_key_value_heads\": 2}", ": head_dim is missing");
        check_refused(
                LIKE_LLAMA("qwen3") "\"num_key_value_heads\": 2, \"head_dim\": 8, \"hidden_act\": \"relu\"}",
                ":3: hidden_act is \"relu\", only \"silu\" is built");
        check_refused(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"hidden_act\": \"silu\"}",
                      ":3: hidden_act is \"silu\", only \"relu2\" is built");
        check_refused(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"norm_eps\": 1e-6}",
                      ":3: norm_eps is 1e-6, only 1e-5 is built");
        check_refused(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"partial_rotary_factor\": 0.4}",
                      ":3: of a head's 8 columns partial_rotary_factor 0.4 turns 3; rotary positions need an "
                      "even number of them");
        check_refused(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"partial_rotary_factor\": 1.5}",
                      ":3: partial_rotary_factor is 1.5, a number");
        check_refused(LIKE_LLAMA("nemotron") "\"head_dim\": 6, \"rope_parameters\": {\"rope_theta\": 1e4}}",
                      ":1: of a head's 6 columns partial_rotary_factor 0.5 turns 3");
}

/* What their files say is read, is written, and read again the same. */
static void check_back(const char *text, struct gpt *gpt)
{
        struct gpt back;
        struct rv_error_info err = {0};
        json_t *object = json_loads(text, 0, NULL);
        if (gpt_from_json(gpt, "x", object, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        json_decref(object);
        object = gpt_to_json(gpt);
        if (gpt_from_json(&back, "x", object, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        json_decref(object);
        assert_true(gpt_same(gpt, &back));
}

static void files_of_those_like_a_llama_are_read(void **state)
{
        struct gpt gpt;
        struct rv_error_info err = {0};
        (void)state;
        check_back(LIKE_LLAMA("mistral") "\"num_key_value_heads\": 2, \"head_dim\": 8}", &gpt);
        assert_true(gpt.window == 4096 && gpt.head_size == 8 && gpt_longest(&gpt) == 64);
        check_back(
                LIKE_LLAMA(
                        "mistral") "\"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": null}",
                &gpt);
        assert_int_equal(gpt.window, 0);
        check_back(
                LIKE_LLAMA("mistral") "\"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": 16}",
                &gpt);
        assert_int_equal(gpt_longest(&gpt), 16);
        assert_int_equal(gpt_check_length(&gpt, 16, &err), RV_OK);
        assert_int_equal(gpt_check_length(&gpt, 17, &err), RV_EPLAN);
        assert_string_equal(err.sentence,
                            "--seq-len 17 is longer than the sliding_window 16 of x; attention that "
                            "leaves out what is further back is not built");
        check_back(
                LIKE_LLAMA("qwen2") "\"num_key_value_heads\": 2, \"head_dim\": 8, \"sliding_window\": 16,\n"
                                    "\"max_window_layers\": 1, \"use_sliding_window\": false,\n"
                                    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0}}",
                &gpt);
        assert_true(gpt.rope_scaling.type == ROPE_YARN && gpt.rope_scaling.positions == 64);
        assert_true(gpt.rope_scaling.low == 1 && gpt.rope_scaling.high == 32 &&
                    gpt.rope_scaling.length > 1.138);
        assert_int_equal(gpt.window, 0);
        check_back(
                LIKE_LLAMA("qwen3") "\"num_key_value_heads\": 2, \"head_dim\": 8, \"attention_bias\": true,\n"
                                    "\"layer_types\": [\"full_attention\", \"full_attention\"],\n"
                                    "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0,\n"
                                    "\"rope_theta\": 1000000}}",
                &gpt);
        assert_true(gpt.attention_bias && gpt.rope_theta == 1e6 && gpt.rope_scaling.factor == 2);
        check_back(LLAMA
                   "\"mlp_bias\": true, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0,\n"
                   "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,\n"
                   "\"original_max_position_embeddings\": 8192}}",
                   &gpt);
        assert_true(gpt.mlp_bias && !gpt.attention_bias && gpt.rope_scaling.positions == 8192);
        check_back(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"mlp_bias\": true}", &gpt);
        assert_true(gpt.rope_size == 4 && gpt.rope_theta == 10000 && gpt.n_kv_head == 8 && gpt.mlp_bias);
        check_back(LIKE_LLAMA("nemotron") "\"head_dim\": 98, \"rope_parameters\": {\"rope_theta\": 500000,\n"
                                          "\"rope_type\": \"default\", \"partial_rotary_factor\": 0.25}}",
                   &gpt); /* a quotient that a double has not exactly */
        assert_true(gpt.rope_size == 24 && gpt.rope_theta == 500000);
        check_back(LIKE_LLAMA("nemotron") "\"head_dim\": 8, \"partial_rotary_factor\": 1}", &gpt);
        assert_int_equal(gpt.rope_size, 8);
}

/* ---- DeepSeek-V3's mixtures ---- */

static const struct config_key deepseek_keys[] = {LLAMA_KEYS("intermediate_size"), DEEPSEEK_EXPERTS_KEYS};
enum { DEEPSEEK_KEYS = sizeof deepseek_keys / sizeof *deepseek_keys };

static int read_deepseek(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        *gpt = (struct gpt){0};
        return config_read(gpt, path, object, deepseek_keys, DEEPSEEK_KEYS, err) == RV_OK
                       ? deepseek_experts_read(gpt, path, object, err)
                       : RV_EINPUT;
}

/* A file's keys of mixtures behind those of all files. */
static json_t *deepseek_file(const char *keys)
{
        char text[1024];
        snprintf(text, sizeof text,
                 "{\"num_hidden_layers\": 5, \"hidden_size\": 64, \"vocab_size\": 256, "
                 "\"num_attention_heads\": 8,"
                 "\"max_position_embeddings\": 64, \"intermediate_size\": 172%s}",
                 keys);
        json_t *object = json_loads(text, 0, NULL);
        assert_non_null(object);
        return object;
}

/* What a file says is read, is written, and read again the same. */
static struct gpt deepseek(const char *keys)
{
        struct gpt gpt, back;
        struct rv_error_info err = {0};
        json_t *object = deepseek_file(keys);
        if (read_deepseek(&gpt, "x", object, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        json_decref(object);
        object = config_write(&gpt, "deepseek_v3", deepseek_keys, DEEPSEEK_KEYS);
        deepseek_experts_write(&gpt, object);
        if (read_deepseek(&back, "x", object, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        assert_true(gpt_same(&gpt, &back));
        json_decref(object);
        return gpt;
}

#define DEEPSEEK ", \"n_routed_experts\": 16, \"moe_intermediate_size\": 24"

static void mixtures_of_deepseek_are_read_as_transformers_reads_them(void **state)
{
        (void)state;
        struct gpt gpt = deepseek(DEEPSEEK ", \"num_experts_per_tok\": 6");
        assert_true(gpt.n_expert == 16 && gpt.n_expert_chosen == 6 && gpt.n_shared == 1);
        assert_true(gpt.n_group == 8 && gpt.n_group_chosen == 4 && gpt.n_dense == 3);
        assert_true(gpt.n_inner == 24 && gpt.dense_inner == 172 && gpt.routed_scale == 2.5);
        assert_true(gpt.normalised_experts && gpt.logistic_router && gpt.balance_loss == 0);
        gpt = deepseek(DEEPSEEK ", \"num_experts_per_tok\": 16, \"n_group\": 1, \"topk_group\": 1,"
                                "\"first_k_dense_replace\": 0, \"n_shared_experts\": null,"
                                "\"norm_topk_prob\": false, \"routed_scaling_factor\": 1,"
                                "\"aux_loss_alpha\": 0.001, \"seq_aux\": true, \"moe_layer_freq\": 1,"
                                "\"scoring_func\": \"sigmoid\", \"topk_method\": \"noaux_tc\"");
        assert_true(gpt.n_expert_chosen == 16 && gpt.n_shared == 0 && gpt.n_group == 1 && gpt.n_dense == 0);
        assert_true(gpt.dense_inner == 172 && !gpt.normalised_experts && gpt.routed_scale == 1);
        gpt = deepseek(DEEPSEEK ", \"num_experts_per_tok\": 6, \"first_k_dense_replace\": 5");
        assert_true(gpt.n_expert == 0 && gpt.n_shared == 0 && gpt.n_dense == 0 && gpt.n_inner == 172);
}

static void assert_deepseek_refused(const char *keys, const char *expected)
{
        struct gpt gpt;
        struct rv_error_info err = {0};
        json_t *object = deepseek_file(keys);
        assert_int_equal(read_deepseek(&gpt, "x", object, &err), RV_EINPUT);
        json_decref(object);
        assert_string_equal(err.sentence, expected);
}

static void wrong_mixtures_of_deepseek_are_refused_by_name(void **state)
{
        (void)state;
        assert_deepseek_refused("",
                                "x: n_routed_experts is missing, a whole number from 1 to 1024 was expected");
        assert_deepseek_refused(
                DEEPSEEK, "x: num_experts_per_tok is missing, a whole number from 1 to 1024 was expected");
        assert_deepseek_refused(
                DEEPSEEK ", \"num_experts_per_tok\": 6, \"n_group\": 3",
                "x:1: n_group is 3, 1 was expected, or a divisor of n_routed_experts 16 that leaves "
                "two experts or more in a group");
        assert_deepseek_refused(DEEPSEEK ", \"num_experts_per_tok\": 6, \"n_group\": 16",
                                "x:1: n_group is 16, 1 was expected, or a divisor of n_routed_experts 16 "
                                "that leaves two experts or "
                                "more in a group");
        assert_deepseek_refused(DEEPSEEK ", \"num_experts_per_tok\": 6, \"n_group\": 2, \"topk_group\": 3",
                                "x:1: topk_group is 3, a number up to n_group 2 was expected");
        assert_deepseek_refused(
                DEEPSEEK ", \"num_experts_per_tok\": 6, \"n_group\": 2",
                "x:1: topk_group is missing, which means 4, a number up to n_group 2 was expected");
        assert_deepseek_refused(
                DEEPSEEK ", \"num_experts_per_tok\": 9",
                "x:1: num_experts_per_tok is 9, and the groups that topk_group 4 chooses have only 8 "
                "experts");
        assert_deepseek_refused(DEEPSEEK ", \"num_experts_per_tok\": 6, \"scoring_func\": \"softmax\"",
                                "x:1: scoring_func is \"softmax\", only \"sigmoid\" is built");
        assert_deepseek_refused(DEEPSEEK ", \"num_experts_per_tok\": 6, \"topk_method\": \"greedy\"",
                                "x:1: topk_method is \"greedy\", only \"noaux_tc\" is built");
        assert_deepseek_refused(DEEPSEEK ", \"num_experts_per_tok\": 6, \"moe_layer_freq\": 2",
                                "x:1: moe_layer_freq is 2, only 1 is built");
        assert_deepseek_refused(
                DEEPSEEK ", \"num_experts_per_tok\": 6, \"first_k_dense_replace\": -1",
                "x:1: first_k_dense_replace is -1, a whole number from 0 to 10000 was expected");
}

#define LATENT                                                                                               \
        LIKE_LLAMA("deepseek_v3")                                                                            \
        "\"kv_lora_rank\": 16, \"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 4, "                           \
        "\"first_k_dense_replace\": 2,\n"

static struct gpt with_latent_attention(const char *keys)
{
        char text[1024];
        struct gpt gpt;
        struct rv_error_info err = {0};
        snprintf(text, sizeof text, LATENT "\"q_lora_rank\": null, \"v_head_dim\": 8%s}", keys);
        json_t *object = json_loads(text, 0, NULL);
        if (gpt_from_json(&gpt, "x", object, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        json_decref(object);
        return gpt;
}

/* Transformers leaves these layers and their weights alone. */
static void layers_for_further_tokens_are_told_and_left_alone(void **state)
{
        (void)state;
        struct gpt gpt = with_latent_attention(", \"num_nextn_predict_layers\": null");
        char name[64];
        assert_null(gpt_warning(&gpt));
        snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight", gpt.n_layer);
        assert_false(partition_is_further(&gpt, name));
        gpt = with_latent_attention(", \"num_nextn_predict_layers\": 1");
        assert_non_null(gpt_warning(&gpt));
        assert_non_null(strstr(gpt_warning(&gpt), "its layers that predict further tokens"));
        assert_true(partition_is_further(&gpt, name));
        assert_false(partition_is_further(&gpt, "eh_proj.weight"));
        assert_false(partition_is_further(&gpt, "model.layers.0.eh_proj.weight"));
        snprintf(name, sizeof name, "model.layers.%d.eh_proj.weight", gpt.n_layer + 1);
        assert_false(partition_is_further(&gpt, name));
        gpt.dropout = true;
        assert_non_null(strstr(gpt_warning(&gpt), "its dropout is not"));
        assert_non_null(strstr(gpt_warning(&gpt), "further tokens"));
}

static void wrong_files_of_latent_attention_are_refused_with_the_line(void **state)
{
        (void)state;
        check_refused(LATENT "\"v_head_dim\": 8}", ": q_lora_rank is missing, a whole number or null");
        check_refused(LATENT "\"q_lora_rank\": 0, \"v_head_dim\": 8}",
                      ":4: q_lora_rank is 0, a whole number");
        check_refused(LATENT "\"q_lora_rank\": null}", ": v_head_dim is missing");
        check_refused(LATENT "\"q_lora_rank\": null, \"v_head_dim\": 11}",
                      ":4: v_head_dim is 11; values wider than a head of queries (10 columns) are not built");
        check_refused(LATENT "\"q_lora_rank\": null, \"v_head_dim\": 8, \"num_key_value_heads\": 4}",
                      ":4: num_key_value_heads is 4, and of latent attention they are as many as");
        check_refused(LATENT "\"q_lora_rank\": 8, \"v_head_dim\": 8, \"attention_bias\": true}",
                      ":4: attention_bias is true, only false is built");
        check_refused(LATENT
                      "\"q_lora_rank\": 8, \"v_head_dim\": 8, \"layer_types\": [\"sliding_attention\"]}",
                      ":4: layer_types is [\"sliding_attention\"], only \"full_attention\"");
        check_refused(LATENT "\"q_lora_rank\": 8, \"v_head_dim\": 8,\n\"rope_scaling\": "
                             "{\"type\": \"linear\", \"factor\": 4.0, \"mscale_all_dim\": 1.0}}",
                      ":5: mscale_all_dim is 1.0, only null is built");
        check_refused(LATENT "\"q_lora_rank\": 8, \"v_head_dim\": 8, \"num_nextn_predict_layers\": -1}",
                      ":4: num_nextn_predict_layers is -1, a whole number from 0 to 10000 was expected");
        check_refused(
                LIKE_LLAMA("deepseek_v3") "\"kv_lora_rank\": 16, \"q_lora_rank\": 8, \"v_head_dim\": 8,\n"
                                          "\"qk_nope_head_dim\": 6, \"qk_rope_head_dim\": 3,\n"
                                          "\"first_k_dense_replace\": 2}",
                ":4: qk_rope_head_dim is 3; rotary positions need an even number");
        check_refused(
                LIKE_LLAMA(
                        "qwen2") "\"num_key_value_heads\": 2, \"head_dim\": 8,\n"
                                 "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4.0, \"mscale\": 1.0}}",
                ":4: mscale is 1.0, only null");
}

/* The attention of DeepSeek-V3 as Hugging Face has it, in two dense layers. */
static void latent_attention_has_the_published_parameters_and_operations(void **state)
{
        (void)state;
        struct gpt gpt;
        check_back(
                "{\"model_type\": \"deepseek_v3\", \"num_hidden_layers\": 2, \"hidden_size\": 7168,\n"
                "\"intermediate_size\": 18432, \"num_attention_heads\": 128, \"num_key_value_heads\": 128,\n"
                "\"vocab_size\": 129280, \"max_position_embeddings\": 163840, \"q_lora_rank\": 1536,\n"
                "\"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,\n"
                "\"v_head_dim\": 128, \"first_k_dense_replace\": 2, \"rope_scaling\": {\"type\": \"yarn\",\n"
                "\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0,\n"
                "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096}}",
                &gpt);
        assert_true(gpt.head_size == 192 && gpt.rope_interleaved && gpt.rope_scaling.length == 1);
        const int64_t attention = 187107328, mlp = 3 * INT64_C(7168) * 18432,
                      embedding = INT64_C(129280) * 7168;
        assert_int_equal(gpt_parameters(&gpt), 2 * (attention + mlp + 2 * 7168) + 2 * embedding + 7168);
        /* Queries and keys of 192 columns, and values of 128: zeros behind these are no operations. */
        const double tokens = 4096, products = (double)(attention - 1536 - 512 + mlp);
        const double layer = tokens * (2 * products + 2 * tokens * 128 * (192 + 128));
        assert_close(gpt_batch_flops(&gpt, 1, 4096, RECOMPUTE_NONE),
                     3 * (2 * layer + 2 * tokens * (double)embedding), 1e-12);
}

/* As transformers 4 and 5 write them; what a file does not say is as it is there. */
static void a_llama_is_read_as_transformers_writes_it(void **state)
{
        (void)state;
        static const char *const texts[] = {
                LLAMA "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5,\n"
                      "\"rope_theta\": 500000.0, \"rope_scaling\": null, \"head_dim\": 8,\n"
                      "\"architectures\": [\"LlamaForCausalLM\"], \"pretraining_tp\": 1}",
                LLAMA "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5,\n"
                      "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": "
                      "\"default\"}, \"attention_bias\": false}",
                LLAMA "\"tie_word_embeddings\": true}"};
        struct gpt gpt[3];
        struct rv_error_info err = {0};
        for (int i = 0; i < 3; i++) {
                json_t *object = json_loads(texts[i], 0, NULL);
                assert_int_equal(gpt_from_json(&gpt[i], "x", object, &err), RV_OK);
                json_decref(object);
        }
        assert_true(gpt_same(&gpt[0], &gpt[1]));
        assert_int_equal(gpt[0].n_kv_head, 2);
        assert_int_equal(gpt[0].n_inner, 172);
        assert_true(gpt[0].rope_theta == 500000 && gpt[0].norm_epsilon == 1e-5 && !gpt[0].tied);
        assert_true(gpt[2].rope_theta == 10000 && gpt[2].norm_epsilon == 1e-6 && gpt[2].tied);
        assert_int_equal(gpt_kv_heads(&gpt[2]), 8);
        for (int i = 0; i < 3; i++) {
                struct gpt back;
                json_t *object = gpt_to_json(&gpt[i]);
                assert_int_equal(gpt_from_json(&back, "x", object, &err), RV_OK);
                gpt[i].n_kv_head = gpt_kv_heads(&gpt[i]); /* it is written out */
                assert_true(gpt_same(&gpt[i], &back));
                json_decref(object);
        }
}

static void weights_are_no_model(void **state)
{
        (void)state;
        static const char weights[] = "\2\0\0\0\0\0\0\0{}";
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        int status =
                gpt_load(&gpt, scratch_write(&scratch, "a.safetensors", weights, sizeof weights - 1), &err);
        scratch_close(&scratch);
        assert_int_equal(status, RV_EINPUT);
        assert_non_null(
                strstr(err.sentence, "a.safetensors: is a file of weights; as a model, a config.json"));
}

static void the_limits_of_a_file_hold_for_any_model(void **state)
{
        (void)state;
        const struct gpt right = {.n_layer = 10000,
                                  .n_embd = 131072,
                                  .n_head = 1024,
                                  .vocab_size = 2097152,
                                  .n_positions = 262144};
        struct rv_error_info err = {0};
        assert_int_equal(gpt_check(&right, &err), RV_OK);
        assert_true(gpt_parameters(&right) > 0);
        struct gpt wrong = right;
        wrong.n_embd = 1000000000;
        assert_int_equal(gpt_check(&wrong, &err), RV_EINPUT);
        assert_string_equal(err.sentence,
                            "n_embd is 1000000000, a whole number from 1 to 131072 was expected");
        wrong = right;
        wrong.n_layer = 0;
        assert_int_equal(gpt_check(&wrong, &err), RV_EINPUT);
        wrong = right;
        wrong.n_head = 1000;
        assert_int_equal(gpt_check(&wrong, &err), RV_EINPUT);
        assert_string_equal(err.sentence, "n_head 1000 does not divide n_embd 131072");
}

static void a_real_hugging_face_config_is_read(void **state)
{
        (void)state;
        /* GPT-2's as it is on the hub */
        static const char text[] =
                "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],"
                "\"attn_pdrop\": 0.1, \"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256,"
                "\"initializer_range\": 0.02, \"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\","
                "\"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, \"n_inner\": null, \"n_layer\": 12,"
                "\"n_positions\": 1024, \"reorder_and_upcast_attn\": false, \"resid_pdrop\": 0.1,"
                "\"scale_attn_by_inverse_layer_idx\": false, \"scale_attn_weights\": true,"
                "\"summary_activation\": null, \"summary_first_dropout\": 0.1,"
                "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\","
                "\"summary_use_proj\": true, \"task_specific_params\": {\"text-generation\":"
                "{\"do_sample\": true, \"max_length\": 50}}, \"torch_dtype\": \"float32\","
                "\"transformers_version\": \"4.30.0\", \"use_cache\": true, \"vocab_size\": 50257,"
                "\"_name_or_path\": \"gpt2\"}";
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        int status = gpt_load(&gpt, scratch_write(&scratch, "gpt2.json", text, strlen(text)), &err);
        scratch_close(&scratch);
        assert_string_equal(err.sentence, "");
        assert_int_equal(status, RV_OK);
        assert_string_equal(gpt.name, "gpt2");
        assert_true(gpt.tied);
        assert_true(gpt.dropout);
        assert_non_null(strstr(gpt_warning(&gpt), "its dropout is not"));
        assert_int_equal(gpt_parameters(&gpt), 124439808);
}

static void an_unknown_preset_is_answered_with_those_there_are(void **state)
{
        (void)state;
        struct gpt gpt;
        struct rv_error_info err = {0};
        assert_int_equal(gpt_load(&gpt, "gpt-13b", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "gpt-13b: no such model"));
        assert_non_null(strstr(err.sentence, " gpt-12b "));
        assert_non_null(strstr(err.sentence, " tiny"));
        assert_int_equal(gpt_load(&gpt, "/no/such/folder/config.json", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "/no/such/folder/config.json: cannot be read: No such file"));
        assert_int_equal(gpt_load(&gpt, "", &err), RV_EINPUT);
        assert_int_equal(gpt_load(&gpt, "/", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "/config.json: cannot be read"));
}

static void a_model_survives_the_way_through_json(void **state)
{
        (void)state;
        struct gpt gpt = preset("gpt-24b"), back;
        gpt.tied = false;
        struct rv_error_info err = {0};
        json_t *object = gpt_to_json(&gpt);
        assert_int_equal(gpt_from_json(&back, "x", object, &err), RV_OK);
        json_decref(object);
        assert_string_equal(back.name, "gpt-24b");
        assert_int_equal(back.n_layer, gpt.n_layer);
        assert_int_equal(back.n_embd, gpt.n_embd);
        assert_int_equal(back.n_head, gpt.n_head);
        assert_int_equal(back.vocab_size, gpt.vocab_size);
        assert_int_equal(back.n_positions, gpt.n_positions);
        assert_false(back.tied);
}

/* Another user of a shared folder can foresee a temporary's name, and processes of two machines may have one
 * number. */
static void a_temporary_is_never_a_file_that_was_there(void **state)
{
        (void)state;
        struct scratch scratch;
        struct file_writer writers[2];
        struct rv_error_info err = {0};
        struct stat info;
        char victim[600], path[600], foreseen[700], text[16] = "";
        scratch_open(&scratch);
        snprintf(victim, sizeof victim, "%s", scratch_write(&scratch, "victim", "precious", 8));
        snprintf(path, sizeof path, "%s", scratch_path(&scratch, "report.json"));
        snprintf(foreseen, sizeof foreseen, "%s.tmp%d", path, (int)getpid());
        assert_int_equal(symlink("victim", foreseen), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(file_writer_open(&writers[i], path, &err), RV_OK);
                fprintf(writers[i].stream, "written %d", i);
        }
        assert_string_not_equal(writers[0].temporary, writers[1].temporary);
        for (int i = 0; i < 2; i++)
                assert_int_equal(file_writer_commit(&writers[i], &err), RV_OK);
        assert_int_equal(lstat(path, &info), 0);
        assert_true(S_ISREG(info.st_mode));
        assert_int_equal(info.st_size, 9);
        FILE *stream = fopen(victim, "r");
        assert_non_null(stream);
        assert_non_null(fgets(text, sizeof text, stream));
        assert_string_equal(text, "precious");
        fclose(stream);
        assert_int_equal(scratch_count(&scratch), 3); /* the victim, the link and the report */
        scratch_close(&scratch);
}

static void a_temporary_file_lies_in_the_folder_that_TMPDIR_names(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        char path[1024], before[600] = "";
        scratch_open(&scratch);
        if (getenv("TMPDIR"))
                snprintf(before, sizeof before, "%s", getenv("TMPDIR"));
        setenv("TMPDIR", scratch.folder, 1);
        FILE *stream = file_open_temporary(path, sizeof path, &err);
        assert_non_null(stream);
        assert_memory_equal(path, scratch.folder, strlen(scratch.folder));
        assert_int_equal(scratch_count(&scratch), 1);
        fclose(stream);
        setenv("TMPDIR", scratch_path(&scratch, "missing"), 1);
        assert_null(file_open_temporary(path, sizeof path, &err));
        assert_int_equal(err.code, RV_ESYSTEM);
        assert_non_null(strstr(err.sentence, "/missing: No such file or directory"));
        if (before[0])
                setenv("TMPDIR", before, 1);
        else
                unsetenv("TMPDIR");
        scratch_close(&scratch);
}

static void a_text_is_read_line_by_line_and_what_is_no_text_is_refused(void **state)
{
        (void)state;
        static const char text[] = "one\r\n\ntwo\0words\nlast";
        static const struct {
                const char *line;
                size_t length;
        } expected[] = {{"one", 3}, {"", 0}, {"two\0words", 9}, {"last", 4}};
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        struct file_lines lines = {.path = scratch_write(&scratch, "a.txt", text, sizeof text - 1)};
        lines.stream = fopen(lines.path, "r");
        assert_non_null(lines.stream);
        for (int i = 0; i < 4; i++) {
                assert_int_equal(file_next_line(&lines, &err), 1);
                assert_int_equal(lines.number, i + 1);
                assert_int_equal(lines.length, expected[i].length);
                assert_memory_equal(lines.line, expected[i].line, expected[i].length + 1);
        }
        assert_int_equal(file_next_line(&lines, &err), 0);
        assert_int_equal(lines.number, 4);
        fclose(lines.stream);
        free(lines.line);
        struct file_lines endless = {.path = "/dev/zero", .stream = fopen("/dev/zero", "r")};
        assert_non_null(endless.stream);
        assert_int_equal(file_next_line(&endless, &err), RV_EINPUT);
        assert_string_equal(err.sentence, "/dev/zero:1: a line of more than 1 MiB is no text");
        assert_in_range(endless.capacity, 1 << 20, 4 << 20);
        fclose(endless.stream);
        free(endless.line);
        struct file_lines folder = {.path = scratch.folder, .stream = fopen(scratch.folder, "r")};
        assert_non_null(folder.stream);
        assert_int_equal(file_next_line(&folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, ": cannot be read: Is a directory"));
        fclose(folder.stream);
        free(folder.line);
        scratch_close(&scratch);
}

/* What a sentence repeats of a file could otherwise colour a terminal, or break the sentence in two. */
static void a_sentence_has_only_what_can_be_printed(void **state)
{
        (void)state;
        static const struct {
                const char *found, *shown;
        } cases[] = {
                {"plain", "plain"},
                {"\x1b[31mred\x1b]0;title\x07", "?[31mred?]0;title?"},
                {"two\nlines\r\tand\x7f", "two?lines??and?"},
                {"größer ≥ \xf0\x9f\x98\x80", "größer ≥ \xf0\x9f\x98\x80"},
                {"cut \xc3", "cut ?"},
                {"cut \xe2\x89", "cut ??"},
                {"latin-1 \xfc\x41", "latin-1 ?A"},
                {"\xc2\x9b"
                 "31m",
                 "??31m"}, /* CSI, as one character */
                {"\xc1\x81 \xff \xf5\x80\x80\x80", "?? ? ????"},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct rv_error_info err = {0};
                assert_int_equal(rv_fail(&err, RV_EINPUT, "%s", cases[i].found), RV_EINPUT);
                assert_string_equal(err.sentence, cases[i].shown);
        }
        struct rv_error_info err = {0};
        char text[sizeof err.sentence + 88];
        for (int i = 0; i + 1 < (int)sizeof text; i += 2)
                memcpy(text + i, "ü", 2);
        text[sizeof text - 2] = 0;
        rv_fail(&err, RV_EINPUT, "%s", text); /* an odd number of bytes: the last one begins a character */
        assert_string_equal(err.sentence + sizeof err.sentence - 4, "ü?");
}

static void a_file_appears_only_when_it_is_complete(void **state)
{
        (void)state;
        struct scratch scratch;
        struct file_writer writer;
        struct rv_error_info err = {0};
        struct stat info;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "report.json");
        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("half", writer.stream);
        fflush(writer.stream);
        assert_int_not_equal(stat(path, &info), 0);
        file_writer_abandon(&writer);
        assert_int_equal(scratch_count(&scratch), 0);

        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("whole", writer.stream);
        assert_int_equal(file_writer_commit(&writer, &err), RV_OK);
        assert_int_equal(scratch_count(&scratch), 1);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, 5);

        /* An interrupted second version leaves the first as it was. */
        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("half of the second", writer.stream);
        file_writer_abandon(&writer);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, 5);
        assert_int_equal(scratch_count(&scratch), 1);
        scratch_close(&scratch);
}

static void a_link_stays_one_and_a_mode_stays(void **state)
{
        (void)state;
        struct scratch scratch;
        struct file_writer writer;
        struct rv_error_info err = {0};
        struct stat info;
        char target[600];
        scratch_open(&scratch);
        snprintf(target, sizeof target, "%s", scratch_write(&scratch, "target.json", "old", 3));
        assert_int_equal(chmod(target, 0640), 0);
        const char *link = scratch_path(&scratch, "link.json");
        assert_int_equal(symlink(target, link), 0);
        assert_int_equal(file_writer_open(&writer, link, &err), RV_OK);
        fputs("newer", writer.stream);
        assert_int_equal(file_writer_commit(&writer, &err), RV_OK);
        assert_true(lstat(link, &info) == 0 && S_ISLNK(info.st_mode));
        assert_true(stat(target, &info) == 0 && info.st_size == 5 && (info.st_mode & 0777) == 0640);
        scratch_close(&scratch);
}

static void a_byte_order_mark_is_passed_over(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        static const char marked[] = "\xef\xbb\xbf{\"a\": 1}", half[] = "\xef\xbb{\"a\": 1}";
        json_t *json = file_read_json(scratch_write(&scratch, "a.json", marked, sizeof marked - 1), &err);
        assert_int_equal(json_integer_value(json_object_get(json, "a")), 1);
        json_decref(json);
        assert_null(file_read_json(scratch_write(&scratch, "a.json", half, sizeof half - 1), &err));
        scratch_write(&scratch, "a.csv", "\xef\xbb\xbfgpus,tp\n", 11);
        struct file_lines lines = {.path = scratch.path, .stream = fopen(scratch.path, "rb")};
        assert_int_equal(file_next_line(&lines, &err), 1);
        assert_string_equal(lines.line, "gpus,tp");
        fclose(lines.stream);
        free(lines.line);
        scratch_close(&scratch);
}

static void a_full_disk_is_reported_and_leaves_nothing(void **state)
{
        (void)state;
        struct file_writer writer;
        struct rv_error_info err = {0};
        assert_int_equal(file_writer_open(&writer, "/dev/full", &err), RV_OK);
        for (int i = 0; i < 10000; i++)
                fputs("more than a buffer holds\n", writer.stream);
        assert_int_equal(file_writer_commit(&writer, &err), RV_ESYSTEM);
        assert_string_equal(err.sentence, "/dev/full: could not be written: No space left on device");
        struct stat info;
        assert_int_equal(stat("/dev/full", &info), 0);
        assert_true(S_ISCHR(info.st_mode));
}

static void places_that_cannot_be_written_are_told_before_the_work(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        assert_int_equal(file_check_writable(scratch_path(&scratch, "new"), &err), RV_OK);
        assert_int_equal(scratch_count(&scratch), 0);
        assert_int_equal(file_check_writable("in_this_folder", &err), RV_OK);
        assert_int_equal(file_check_writable(scratch.folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is a folder"));
        assert_int_equal(file_check_writable(scratch_path(&scratch, "no/file"), &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "No such file or directory"));
        scratch_write(&scratch, "plain", "x", 1);
        assert_int_equal(file_check_writable(scratch_path(&scratch, "plain/file"), &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is not a folder"));
        assert_int_equal(file_check_writable("", &err), RV_EINPUT);
        scratch_close(&scratch);
}

static void an_output_that_would_replace_an_input_or_another_output_is_refused(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        char here[600], linked[600], new[600], also_new[600];
        scratch_open(&scratch);
        snprintf(here, sizeof here, "%s", scratch_write(&scratch, "here.json", "{}", 2));
        snprintf(linked, sizeof linked, "%s", scratch_path(&scratch, "linked.json"));
        snprintf(new, sizeof new, "%s", scratch_path(&scratch, "new.json"));
        snprintf(also_new, sizeof also_new, "%s", scratch_path(&scratch, "./new.json"));
        assert_int_equal(link(here, linked), 0);
        const struct {
                struct file_use uses[3];
                const char *sentence; /* NULL: sound */
        } cases[] = {
                {{{"--in", here, false}, {"--out", new, true}, {"--log", NULL, true}}, NULL},
                {{{"--in", here, false}, {"--also", here, false}, {"--out", new, true}}, NULL},
                {{{"--in", "preset", false}, {"--out", "preset", true}, {"--log", NULL, true}}, NULL},
                {{{"--out", "/dev/null", true}, {"--log", "/dev/null", true}, {"--in", NULL, false}}, NULL},
                {{{"--in", here, false}, {"--out", here, true}, {"--log", NULL, true}}, "--in and --out are"},
                {{{"--out", here, true}, {"--in", here, false}, {"--log", NULL, true}}, "--out and --in are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", linked, true}},
                 "--in and --log are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", new, true}}, "--out and --log are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", also_new, true}},
                 "--out and --log are"},
                {{{"--out", "/no/where", true}, {"--log", new, true}, {"--in", NULL, false}}, "/no/where: "},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                int status = file_check_uses(cases[i].uses, 3, &err);
                assert_int_equal(status, cases[i].sentence ? RV_EINPUT : RV_OK);
                if (cases[i].sentence && strncmp(err.sentence, cases[i].sentence, strlen(cases[i].sentence)))
                        fail_msg("\"%s\" was expected, found \"%s\"", cases[i].sentence, err.sentence);
        }
        assert_int_equal(scratch_count(&scratch), 2);
        scratch_close(&scratch);
}

static void reals_survive_the_way_through_json_to_the_last_bit(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        double values[] = {0.1, 1.0 / 3, 6.02214076e23, 5e-324, 123456789.123456789}, back = 0;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "reals.json");
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
                json_t *object = json_pack("{s:f}", "x", values[i]);
                assert_int_equal(file_write_json(path, object, &err), RV_OK);
                json_decref(object);
                object = file_read_json(path, &err);
                assert_non_null(object);
                assert_int_equal(file_need_real(path, object, "x", 0, 1e300, &back, &err), RV_OK);
                json_decref(object);
                assert_memory_equal(&back, &values[i], sizeof back);
        }
        json_t *object = file_read_json(path, &err);
        assert_int_equal(file_need_real(path, object, "x", 0, 1, &back, &err), RV_EINPUT);
        assert_non_null(
                strstr(err.sentence, "reals.json:2: x is 1.23457e8, a number from 0 to 1 was expected"));
        assert_int_equal(file_need_real(path, object, "y", 0, 1, &back, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "reals.json: y is missing, a number"));
        json_decref(object);
        scratch_close(&scratch);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(published_models_have_their_published_parameters),
                cmocka_unit_test(first_layers_without_experts_have_one_mlp_each),
                cmocka_unit_test(axonn_models_have_the_size_in_their_name),
                cmocka_unit_test(an_untied_head_is_one_more_matrix),
                cmocka_unit_test(stages_cover_every_layer_once_and_differ_by_at_most_one),
                cmocka_unit_test(stages_before_the_last_share_the_rest_evenly),
                cmocka_unit_test(the_balanced_split_has_the_shortest_longest_stage),
                cmocka_unit_test(layers_are_spread_evenly_over_virtual_stages),
                cmocka_unit_test(chunks_of_a_rank_are_every_pth_stage),
                cmocka_unit_test(slots_of_chunks_are_as_large_as_what_the_chunk_stores),
                cmocka_unit_test(stage_slices_sum_to_the_whole_model),
                cmocka_unit_test(tensors_have_identities_of_their_own_and_are_found_by_role),
                cmocka_unit_test(only_matrices_decay),
                cmocka_unit_test(matmul_flops_are_the_closed_form_and_backward_is_twice_forward),
                cmocka_unit_test(batch_flops_are_those_of_the_workload),
                cmocka_unit_test(shared_experts_are_counted_beside_a_mixture),
                cmocka_unit_test(recomputation_runs_a_block_again_but_for_its_last_product),
                cmocka_unit_test(layer_and_selective_run_again_what_they_say),
                cmocka_unit_test(kernels_of_mixed_precision_are_the_same_in_half),
                cmocka_unit_test(an_update_in_half_precision_is_unscaled_first),
                cmocka_unit_test(the_norm_counts_every_parameter_once),
                cmocka_unit_test(bytes_of_kernels_are_those_counted_by_hand),
                cmocka_unit_test(the_kernels_of_a_small_last_stage_are_listed_in_order),
                cmocka_unit_test(operations_on_rows_are_those_counted_by_hand),
                cmocka_unit_test(fused_kernels_do_the_work_of_those_that_they_replace),
                cmocka_unit_test(heads_that_share_keys_do_the_same_operations_in_another_kernel),
                cmocka_unit_test(the_fused_kernels_of_a_stage_are_listed_in_order),
                cmocka_unit_test(the_loss_is_made_in_chunks_of_rows),
                cmocka_unit_test(chunks_of_the_loss_are_few_and_balanced),
                cmocka_unit_test(kernel_names_lead_back_to_their_kinds),
                cmocka_unit_test(memory_is_the_sum_of_what_is_stored),
                cmocka_unit_test(bytes_a_parameter_are_those_of_axonn),
                cmocka_unit_test(what_cannot_be_counted_is_told),
                cmocka_unit_test(every_buffer_is_rounded_up_on_its_own),
                cmocka_unit_test(wrong_model_files_are_refused_with_the_line),
                cmocka_unit_test(wrong_files_of_a_llama_are_refused_with_the_line),
                cmocka_unit_test(scaled_positions_that_are_not_built_are_refused_with_the_line),
                cmocka_unit_test(wrong_files_of_those_like_a_llama_are_refused_with_the_line),
                cmocka_unit_test(files_of_those_like_a_llama_are_read),
                cmocka_unit_test(mixtures_of_deepseek_are_read_as_transformers_reads_them),
                cmocka_unit_test(layers_for_further_tokens_are_told_and_left_alone),
                cmocka_unit_test(wrong_mixtures_of_deepseek_are_refused_by_name),
                cmocka_unit_test(wrong_files_of_latent_attention_are_refused_with_the_line),
                cmocka_unit_test(latent_attention_has_the_published_parameters_and_operations),
                cmocka_unit_test(a_llama_is_read_as_transformers_writes_it),
                cmocka_unit_test(weights_are_no_model),
                cmocka_unit_test(the_limits_of_a_file_hold_for_any_model),
                cmocka_unit_test(a_real_hugging_face_config_is_read),
                cmocka_unit_test(an_unknown_preset_is_answered_with_those_there_are),
                cmocka_unit_test(a_model_survives_the_way_through_json),
                cmocka_unit_test(a_text_is_read_line_by_line_and_what_is_no_text_is_refused),
                cmocka_unit_test(a_sentence_has_only_what_can_be_printed),
                cmocka_unit_test(a_file_appears_only_when_it_is_complete),
                cmocka_unit_test(a_temporary_is_never_a_file_that_was_there),
                cmocka_unit_test(a_temporary_file_lies_in_the_folder_that_TMPDIR_names),
                cmocka_unit_test(a_link_stays_one_and_a_mode_stays),
                cmocka_unit_test(a_byte_order_mark_is_passed_over),
                cmocka_unit_test(a_full_disk_is_reported_and_leaves_nothing),
                cmocka_unit_test(places_that_cannot_be_written_are_told_before_the_work),
                cmocka_unit_test(an_output_that_would_replace_an_input_or_another_output_is_refused),
                cmocka_unit_test(reals_survive_the_way_through_json_to_the_last_bit),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
