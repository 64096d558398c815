/* Shards of a stage: their tensors are the whole ones, their work and bytes add up to the whole's. */
#include "models/memory.h"
#include "models/workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_KERNELS = 1024, SHARDS = 4 };

/* The vocabulary is not divisible by any number of shards but 1 and itself. */
static struct gpt small_gpt(bool tied)
{
        return (struct gpt){.name = "small",
                            .n_layer = 3,
                            .n_embd = 32,
                            .n_head = 4,
                            .vocab_size = 67,
                            .n_positions = 16,
                            .tied = tied};
}

static struct work small_work(bool fused, bool sequence_parallel, enum recompute recompute)
{
        return (struct work){.micro_batch_size = 4,
                             .seq_len = 16,
                             .recompute = recompute,
                             .fused = fused,
                             .sequence_parallel = sequence_parallel};
}

static struct tensor *tensors_of(const struct gpt *gpt, const struct stage *stage, int *count)
{
        *count = partition_tensors(gpt, stage, NULL);
        struct tensor *tensors = calloc((size_t)*count, sizeof *tensors);
        assert_non_null(tensors);
        partition_tensors(gpt, stage, tensors);
        return tensors;
}

/* How often the shards have each element of the whole tensor: `seen`, by index. */
static void count_elements(const struct tensor *tensor, int *seen)
{
        for (int64_t i = 0; i < tensor->elements; i++) {
                int64_t at = partition_whole_index(tensor, i);
                assert_true(at >= -1 && at < (int64_t)tensor->whole.rows * tensor->whole.cols);
                if (at >= 0)
                        seen[at]++;
                else /* beyond the vocabulary */
                        assert_int_equal(tensor->whole.rows, 67);
        }
}

static void check_elements(const struct gpt *gpt, const struct stage *stage, int shards, int at)
{
        const int limit = 3 * 32 * 4 * 32;
        int *seen = calloc((size_t)limit, sizeof *seen);
        struct tensor whole, part = {0};
        int count;
        struct tensor *all = tensors_of(gpt, stage, &count);
        whole = all[at];
        free(all);
        assert_true(whole.elements <= limit);
        for (int shard = 0; shard < shards; shard++) {
                struct stage mine = partition_shard(stage, shards, shard);
                struct tensor *tensors = tensors_of(gpt, &mine, &count);
                part = tensors[at];
                free(tensors);
                assert_string_equal(part.name, whole.name);
                assert_int_equal(part.id, whole.id);
                assert_int_equal(part.whole.rows, whole.rows);
                assert_int_equal(part.whole.cols, whole.cols);
                count_elements(&part, seen);
        }
        for (int64_t i = 0; i < whole.elements; i++)
                if (seen[i] != (part.replicated ? shards : 1))
                        fail_msg("%s, %d shards: element %lld is there %d times", whole.name, shards,
                                 (long long)i, seen[i]);
        free(seen);
}

static void shards_have_every_element_once_and_what_is_replicated_each(void **state)
{
        (void)state;
        for (int variant = 0; variant < 2 * 3; variant++) {
                struct gpt gpt = small_gpt(variant & 1);
                const int stages = 1 + variant / 2;
                for (int index = 0; index < stages; index++) {
                        struct stage stage = partition_stage(&gpt, stages, index);
                        int count = partition_tensors(&gpt, &stage, NULL);
                        for (int shards = 1; shards <= SHARDS; shards *= 2)
                                for (int i = 0; i < count; i++)
                                        check_elements(&gpt, &stage, shards, i);
                }
        }
}

static int by_offset(const void *a, const void *b)
{
        const struct tensor *x = a, *y = b;
        return (x->offset > y->offset) - (x->offset < y->offset);
}

/* In memory without gaps: split, replicated, then a copy of the embedding. */
static void check_places(const struct gpt *gpt, const struct stage *stage)
{
        int count;
        int64_t at = 0, offset, replicated = partition_replicated(gpt, stage, &offset), found = 0;
        struct tensor *tensors = tensors_of(gpt, stage, &count);
        const int head = partition_tensor(gpt, stage, LAYER_HEAD, 0, 2);
        const bool copy = gpt->tied && stage->last && !stage->first;
        if (copy)
                assert_int_equal(tensors[head].offset + tensors[head].elements,
                                 partition_parameters(gpt, stage));
        qsort(tensors, (size_t)count, sizeof *tensors, by_offset);
        for (int i = 0; i < count; i++) {
                assert_int_equal(tensors[i].offset, at);
                const bool inside = at >= offset && at < offset + replicated;
                assert_int_equal(tensors[i].replicated, inside);
                found += tensors[i].replicated ? tensors[i].elements : 0;
                at += tensors[i].elements;
        }
        assert_int_equal(at, partition_parameters(gpt, stage));
        assert_int_equal(found, replicated);
        free(tensors);
}

static void what_is_replicated_is_one_range_of_memory(void **state)
{
        (void)state;
        for (int tied = 0; tied <= 1; tied++)
                for (int stages = 1; stages <= 3; stages++)
                        for (int index = 0; index < stages; index++)
                                for (int shards = 2; shards <= SHARDS; shards *= 2) {
                                        struct gpt gpt = small_gpt(tied);
                                        struct stage whole = partition_stage(&gpt, stages, index);
                                        struct stage shard = partition_shard(&whole, shards, shards - 1);
                                        check_places(&gpt, &shard);
                                }
}

/* Of a Qwen3 each shard has other heads, with all of the weight of their norms. */
static void what_is_summed_is_where_what_is_replicated_begins(void **state)
{
        const struct gpt gpt = {.family = FAMILY_QWEN3,
                                .n_layer = 4,
                                .n_embd = 32,
                                .n_head = 4,
                                .n_kv_head = 4,
                                .head_size = 6,
                                .vocab_size = 97,
                                .n_positions = 8};
        (void)state;
        for (int index = 0; index < 2; index++) {
                const struct stage whole = partition_stage(&gpt, 2, index),
                                   shard = partition_shard(&whole, 2, 1);
                int64_t offset, all, found = 0;
                const int64_t summed = partition_summed(&gpt, &shard, false, &offset);
                int count;
                struct tensor *tensors = tensors_of(&gpt, &shard, &count);
                assert_int_equal(summed, shard.layers * 2 * 6);
                assert_int_equal(partition_summed(&gpt, &whole, false, NULL), 0);
                assert_int_equal(partition_summed(&gpt, &shard, true, &all),
                                 partition_replicated(&gpt, &shard, NULL));
                assert_int_equal(all, offset);
                for (int i = 0; i < count; i++) {
                        const bool inside =
                                tensors[i].offset >= offset && tensors[i].offset < offset + summed;
                        assert_int_equal(tensors[i].summed, inside);
                        assert_true(!inside || tensors[i].replicated);
                        found += inside ? tensors[i].elements : 0;
                }
                assert_int_equal(found, summed);
                free(tensors);
        }
}

/* Over all shards, the norm counts every element of the model once, the vocabulary's padding with it. */
static void the_norms_of_shards_count_every_parameter_once(void **state)
{
        (void)state;
        for (int tied = 0; tied <= 1; tied++)
                for (int shards = 1; shards <= SHARDS; shards *= 2)
                        for (int stages = 1; stages <= 3; stages++) {
                                struct gpt gpt = small_gpt(tied);
                                int64_t counted = 0, padding = 0;
                                for (int i = 0; i < stages * shards; i++) {
                                        struct stage whole = partition_stage(&gpt, stages, i / shards);
                                        struct stage part = partition_shard(&whole, shards, i % shards);
                                        counted += workload_norm(&gpt, &part, DTYPE_FP32).m;
                                        padding = (int64_t)partition_vocabulary(&gpt, &part) * shards - 67;
                                }
                                padding *= gpt.n_embd * (tied ? 1 : 2);
                                assert_int_equal(counted - padding, gpt_parameters(&gpt));
                        }
}

struct sums {
        double flops;                  /* of products */
        int64_t bytes[KERNEL_ENTRIES]; /* by collective */
        int count[KERNEL_ENTRIES];
};

static void add_list(struct sums *sums, const struct kernel *kernels, int count)
{
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &kernels[i];
                sums->count[k->kind]++;
                if (kernel_collective(k->kind))
                        sums->bytes[k->kind] += kernel_collective_bytes(k, 4);
                else if (k->k > 0 && !kernel_descriptor(k->kind)->fused)
                        sums->flops += kernel_flops(k);
        }
}

/* Forward and backward apart. */
static void sum_lists(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct sums sums[2])
{
        static struct kernel kernels[MAX_KERNELS];
        memset(sums, 0, 2 * sizeof *sums);
        int count = workload_forward(gpt, stage, work, false, kernels);
        assert_true(count <= MAX_KERNELS);
        add_list(&sums[0], kernels, count);
        count = workload_backward(gpt, stage, work, kernels);
        assert_true(count <= MAX_KERNELS);
        add_list(&sums[1], kernels, count);
}

static void products_of_shards_add_up_to_the_whole_s(void **state)
{
        (void)state;
        struct gpt gpt = small_gpt(true);
        gpt.vocab_size = 64; /* without padding */
        for (int variant = 0; variant < 2 * RECOMPUTES; variant++) {
                struct work work = small_work(false, variant & 1, (enum recompute)(variant / 2));
                for (int index = 0; index < 3; index++)
                        for (int shards = 1; shards <= SHARDS; shards *= 2) {
                                struct stage whole = partition_stage(&gpt, 3, index);
                                struct stage shard = partition_shard(&whole, shards, shards - 1);
                                struct sums all[2], part[2];
                                sum_lists(&gpt, &whole, &work, all);
                                sum_lists(&gpt, &shard, &work, part);
                                for (int pass = 0; pass < 2; pass++)
                                        assert_true(part[pass].flops * shards == all[pass].flops);
                        }
        }
}

/* Shoeybi et al. 2019: two all-reduces of (N,C) a layer in each pass, one for the embedding forward, one for
 * the output projection backward; and, recomputed, the one in the midst of the layer again, or both. */
static void shards_sum_twice_a_layer_in_each_pass(void **state)
{
        (void)state;
        struct gpt gpt = small_gpt(true);
        const int L = gpt.n_layer;
        static const int again[RECOMPUTES] = {[RECOMPUTE_FULL] = 1, [RECOMPUTE_LAYER] = 2};
        for (int variant = 0; variant < 2 * RECOMPUTES; variant++) {
                const enum recompute recompute = (enum recompute)(variant / 2);
                struct work work = small_work(variant & 1, false, recompute);
                struct stage whole = partition_stage(&gpt, 1, 0), shard = partition_shard(&whole, 2, 1);
                struct sums sums[2];
                sum_lists(&gpt, &shard, &work, sums);
                assert_int_equal(sums[0].count[KERNEL_TENSOR_ALLREDUCE], 2 * L + 1);
                assert_int_equal(sums[1].count[KERNEL_TENSOR_ALLREDUCE], (2 + again[recompute]) * L + 1);
                assert_int_equal(sums[0].count[KERNEL_TENSOR_ALL_GATHER], 1); /* of the loss */
                assert_int_equal(sums[0].bytes[KERNEL_TENSOR_ALL_GATHER], 2 * 4 * 16 * 3 * 4);
                assert_int_equal(sums[1].count[KERNEL_TENSOR_ALL_GATHER], 0);
                assert_int_equal(sums[0].count[KERNEL_TENSOR_REDUCE_SCATTER], 0);
                assert_int_equal(sums[0].bytes[KERNEL_TENSOR_ALLREDUCE], (2 * L + 1) * 4 * 16 * 32 * 4);
        }
}

/* Korthikanti et al. 2022: forward each all-reduce is a gather and a scatter instead, so the bytes on the
 * wire are the same; backward also the inputs of two products a layer are gathered for their weights'
 * gradient. */
static void sequence_parallel_shards_gather_and_scatter(void **state)
{
        (void)state;
        struct gpt gpt = small_gpt(true);
        const int L = gpt.n_layer;
        struct work work = small_work(false, true, RECOMPUTE_NONE);
        struct stage whole = partition_stage(&gpt, 1, 0), shard = partition_shard(&whole, 4, 2);
        struct sums sums[2];
        sum_lists(&gpt, &shard, &work, sums);
        for (int pass = 0; pass < 2; pass++)
                assert_int_equal(sums[pass].count[KERNEL_TENSOR_ALLREDUCE], 0);
        assert_int_equal(sums[0].count[KERNEL_TENSOR_ALL_GATHER], 2 * L + 1 + 1); /* and of the loss */
        assert_int_equal(sums[0].count[KERNEL_TENSOR_REDUCE_SCATTER], 2 * L + 1);
        assert_int_equal(sums[1].count[KERNEL_TENSOR_ALL_GATHER], 4 * L + 1 + 1);
        assert_int_equal(sums[1].count[KERNEL_TENSOR_REDUCE_SCATTER], 2 * L + 1);
}

/* With all that a mixture may have. */
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

/* Shards sum what all experts make at once, and gather a mixture's rows for all that read them: experts that
 * all tokens share add but one gather a layer, of their input for their weights' gradient. */
static void shared_experts_are_summed_with_the_others(void **state)
{
        (void)state;
        const struct gpt plain = mixture_of(0), beside = mixture_of(2);
        for (int variant = 0; variant < 2 * RECOMPUTES; variant++) {
                const bool rows = variant & 1;
                const enum recompute recompute = (enum recompute)(variant / 2);
                const struct work work = small_work(true, rows, recompute);
                for (int ranks = 1; ranks <= 2; ranks++) {
                        struct stage whole = partition_stage(&plain, 1, 0),
                                     spread = partition_experts(&whole, ranks, 0),
                                     shard = partition_shard(&spread, 2, 1);
                        struct sums without[2], with[2];
                        sum_lists(&plain, &shard, &work, without);
                        sum_lists(&beside, &shard, &work, with);
                        if (rows)
                                without[1].count[KERNEL_TENSOR_ALL_GATHER] += plain.n_layer;
                        for (int kind = 0; kind < KERNEL_ENTRIES; kind++)
                                for (int pass = 0; pass < 2; pass++)
                                        if (kernel_collective((enum kernel_kind)kind))
                                                assert_int_equal(with[pass].count[kind],
                                                                 without[pass].count[kind]);
                }
        }
}

static struct memory_layout layout_of(const struct gpt *gpt, int shards, bool sequence_parallel, bool fused)
{
        struct stage whole = partition_stage(gpt, 1, 0), shard = partition_shard(&whole, shards, 0);
        struct memory_plan plan = {
                .work = small_work(fused, sequence_parallel, RECOMPUTE_NONE), .micro_batches = 2, .slots = 1};
        return memory_layout(gpt, &shard, &plan);
}

/* Korthikanti et al. 2022, eqs. 2 and 4: of what a layer stores, everything is divided by the shards if the
 * sequence is split too; else ten tensors of (B,T,C) (in fp16 bytes 10 s b h of 34) are not. Theirs has
 * dropout masks, ours outputs of LayerNorms and residuals: six of (N,C), and stats. */
static void sequence_parallel_shards_store_a_part_of_everything(void **state)
{
        (void)state;
        struct gpt gpt = small_gpt(true);
        gpt.vocab_size = 64;
        for (int fused = 0; fused <= 1; fused++) {
                struct memory_layout whole = layout_of(&gpt, 1, false, fused);
                for (int shards = 2; shards <= SHARDS; shards *= 2) {
                        struct memory_layout split = layout_of(&gpt, shards, true, fused);
                        const int64_t tokens = 4 * 16,
                                      logits = tokens * gpt.vocab_size * (int64_t)sizeof(float);
                        assert_int_equal(split.embedded * shards, whole.embedded);
                        assert_int_equal(split.head * shards, whole.head + (fused ? logits : 0));
                        assert_int_equal(split.block * shards, whole.block);
                        assert_int_equal(split.message * shards, whole.message);
                        struct memory_layout shard = layout_of(&gpt, shards, false, fused);
                        const int64_t kept =
                                4 * whole.message + memory_aligned(4 * tokens * (int64_t)sizeof(float));
                        assert_int_equal(shard.block - kept, (whole.block - kept) / shards);
                        assert_int_equal(shard.message, whole.message);
                }
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(shards_have_every_element_once_and_what_is_replicated_each),
                cmocka_unit_test(what_is_replicated_is_one_range_of_memory),
                cmocka_unit_test(what_is_summed_is_where_what_is_replicated_begins),
                cmocka_unit_test(the_norms_of_shards_count_every_parameter_once),
                cmocka_unit_test(products_of_shards_add_up_to_the_whole_s),
                cmocka_unit_test(shards_sum_twice_a_layer_in_each_pass),
                cmocka_unit_test(sequence_parallel_shards_gather_and_scatter),
                cmocka_unit_test(shared_experts_are_summed_with_the_others),
                cmocka_unit_test(sequence_parallel_shards_store_a_part_of_everything),
        };
        return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
