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
                                     spread = partition_experts(&whole, ranks, 0, false),
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

/* ---- grids of shards ---- */

static const int grids[][3] = {{1, 1, 1}, {1, 2, 1}, {2, 1, 1}, {1, 1, 2}, {2, 2, 1},
                               {2, 1, 4}, {1, 4, 2}, {4, 2, 2}, {4, 4, 4}};
enum { GRIDS = sizeof grids / sizeof *grids };

static struct gpt small_llama(void)
{
        return (struct gpt){.name = "llama",
                            .family = FAMILY_LLAMA,
                            .n_layer = 3,
                            .n_embd = 32,
                            .n_head = 4,
                            .n_kv_head = 4,
                            .head_size = 8,
                            .n_inner = 48,
                            .rope_theta = 100,
                            .norm_epsilon = 1e-5,
                            .vocab_size = 64,
                            .n_positions = 16};
}

/* Of a micro-batch of 4 sequences of 16 tokens, of which a shard has B / Z. */
static struct work grid_work(const int grid[3], bool fused, enum recompute recompute)
{
        struct work work = small_work(fused, false, recompute);
        work.micro_batch_size = 4 / grid[2];
        work.tp_x = grid[0];
        work.tp_z = grid[2];
        return work;
}

static struct stage grid_stage(const struct gpt *gpt, const int grid[3], int shard)
{
        const struct stage whole = partition_stage(gpt, 1, 0);
        return partition_grid(&whole, grid[0], grid[1], grid[2], shard);
}

/* What a rank sends of collectives in rings of so many. */
static double ring(int ranks, int times, int64_t bytes)
{
        return times * (double)(ranks - 1) / ranks * (double)bytes;
}

static void check_volume(const int grid[3], const struct sums *sums, int64_t along_x, int64_t along_y,
                         int64_t gathered, int64_t scattered)
{
        const double x = ring(grid[0], 2, sums->bytes[KERNEL_TENSOR_X_ALLREDUCE]),
                     y = ring(grid[1], 2, sums->bytes[KERNEL_TENSOR_ALLREDUCE]),
                     g = ring(grid[2], 1, sums->bytes[KERNEL_TENSOR_Z_ALL_GATHER]),
                     s = ring(grid[2], 1, sums->bytes[KERNEL_TENSOR_Z_REDUCE_SCATTER]);
        assert_true(x == ring(grid[0], 2, along_x));
        assert_true(y == ring(grid[1], 2, along_y));
        assert_true(g == ring(grid[2], 1, gathered));
        assert_true(s == ring(grid[2], 1, scattered));
}

/* Singh et al. 2024: of a product of m rows with weights (k,n) on a grid, weights of k n / (X Y) are gathered
 * along z, m n / (Z Y) summed along x, and backward m k / (Z X) along y; of every other product with x and y
 * exchanged, whatever runs beside products. Norms sum two numbers a row along x, of RMSNorm one, in fp32. */
static void collectives_of_a_layer_on_a_grid_are_the_closed_form(void **state)
{
        (void)state;
        for (int variant = 0; variant < 16 * GRIDS; variant++) {
                const int *grid = grids[variant / 16], X = grid[0], Y = grid[1], Z = grid[2];
                const bool llama = variant & 1;
                struct gpt gpt = llama ? small_llama() : small_gpt(true), longer = gpt;
                longer.n_layer++;
                struct work work = grid_work(grid, variant & 2, RECOMPUTE_NONE);
                struct stage stage = grid_stage(&gpt, grid, 0);
                work.grid_overlap = (enum grid_overlap)(variant / 4 % 4);
                const int64_t m = 4 * 16 / Z, C = 32, e = sizeof(float);
                const int64_t outputs[] = {3 * C, C, llama ? 2 * 48 : 4 * C, C},
                              inputs[] = {C, C, C, llama ? 48 : 4 * C};
                int64_t along_x[2] = {0}, along_y[2] = {0}, matrices = 0;
                struct sums sums[2], more[2];
                for (int i = 0; i < 4; i++) {
                        const bool exchanged = i & 1;
                        (exchanged ? along_y : along_x)[0] += m * outputs[i] / (exchanged ? X : Y) * e;
                        (exchanged ? along_x : along_y)[1] += m * inputs[i] / (exchanged ? Y : X) * e;
                        matrices += outputs[i] * inputs[i] / (X * Y) * e;
                }
                for (int pass = 0; pass < 2; pass++)
                        along_x[pass] += 2 * m * (llama ? 1 : 2) * e;
                sum_lists(&gpt, &stage, &work, sums);
                stage = grid_stage(&longer, grid, 0);
                sum_lists(&longer, &stage, &work, more);
                for (int pass = 0; pass < 2; pass++) {
                        for (int kind = 0; kind < KERNEL_ENTRIES; kind++)
                                more[pass].bytes[kind] -= sums[pass].bytes[kind];
                        check_volume(grid, &more[pass], along_x[pass], along_y[pass], matrices,
                                     pass ? matrices : 0);
                }
        }
}

/* Of a list of work: the kernels on the compute lane, without what adds reduced gradients, and before each
 * how many collectives along z were issued, and are over. */
struct beside {
        struct kernel kernel;
        int gathers_over, gathers, scatters;
};

static int list_beside(const struct kernel *kernels, int count, struct beside *found)
{
        enum kernel_kind issued[MAX_KERNELS];
        int of_z = 0, over = 0, kept = 0, scatters = 0, added = 0;
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &kernels[i];
                if (k->kind == KERNEL_TENSOR_Z_ALL_GATHER || k->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER) {
                        issued[of_z++] = k->kind;
                        scatters += k->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER;
                }
                if (kernel_of_shards_z(k->kind))
                        over = of_z - k->left > over ? of_z - k->left : over;
                const bool adds =
                        k->kind == KERNEL_RESIDUAL && i > 0 && kernel_of_shards_z(kernels[i - 1].kind);
                int gathers = 0, gathers_over = 0, reduced = 0;
                for (int j = 0; j < of_z; j++) {
                        gathers += issued[j] == KERNEL_TENSOR_Z_ALL_GATHER;
                        gathers_over += j < over && issued[j] == KERNEL_TENSOR_Z_ALL_GATHER;
                        reduced += j < over && issued[j] == KERNEL_TENSOR_Z_REDUCE_SCATTER;
                }
                if (adds)
                        assert_true(++added <= reduced); /* what it adds is there */
                else if (!kernel_collective(k->kind))
                        found[kept++] = (struct beside){*k, gathers_over, gathers, scatters};
        }
        assert_int_equal(over, of_z); /* no collective outlives its pass */
        assert_int_equal(added, scatters);
        return kept;
}

/* Beside products there are the same kernels and collectives, in the same order: weights are gathered one
 * gather ahead, and no product waits for a reduce-scatter but for the one before it. */
static void collectives_along_z_beside_products_are_the_same(void **state)
{
        (void)state;
        static struct kernel kernels[2][MAX_KERNELS];
        static struct beside found[2][MAX_KERNELS];
        for (int variant = 0; variant < 4 * GRIDS; variant++) {
                const int *grid = grids[variant / 4];
                const struct gpt gpt = variant & 1 ? small_llama() : small_gpt(true);
                struct work work = grid_work(grid, true, variant & 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE);
                const struct stage stage = grid_stage(&gpt, grid, 0);
                for (int pass = 0; pass < 2; pass++)
                        for (int overlap = GRID_OVERLAP_OAR; overlap <= GRID_OVERLAP_OAG; overlap++) {
                                int count[2];
                                for (int beside = 0; beside < 2; beside++) {
                                        work.grid_overlap =
                                                beside ? (enum grid_overlap)overlap : GRID_OVERLAP_NONE;
                                        count[beside] =
                                                pass ? workload_backward(&gpt, &stage, &work, kernels[beside])
                                                     : workload_forward(&gpt, &stage, &work, false,
                                                                        kernels[beside]);
                                        assert_true(count[beside] <= MAX_KERNELS);
                                        count[beside] =
                                                list_beside(kernels[beside], count[beside], found[beside]);
                                }
                                assert_int_equal(count[0], count[1]);
                                for (int i = 0; i < count[0]; i++) {
                                        const struct beside *one = &found[0][i], *other = &found[1][i];
                                        const int ahead = other->gathers - one->gathers;
                                        assert_true(kernel_same(&one->kernel, &other->kernel));
                                        assert_true(other->gathers_over >= one->gathers);
                                        assert_in_range(ahead, 0, overlap == GRID_OVERLAP_OAG);
                                        assert_int_equal(other->scatters, one->scatters);
                                }
                        }
        }
}

/* Two buffers for what the largest step reads of gathered weights, and two for what it makes of gradients,
 * the shard's part of these with them. */
static void collectives_beside_products_have_two_buffers(void **state)
{
        (void)state;
        const struct gpt gpt = small_llama();
        for (int i = 0; i < GRIDS; i++) {
                const int *grid = grids[i], Z = grid[2];
                const struct stage stage = grid_stage(&gpt, grid, 0);
                const int64_t e = sizeof(float), largest = 2 * 48 * 32 / (grid[0] * grid[1]); /* gates, ups */
                const int64_t gathered = Z > 1 ? 2 * memory_aligned(largest * e) : 0,
                              reduced = Z > 1 ? gathered + 2 * memory_aligned(largest / Z * e) : 0;
                int64_t bytes[GRID_OVERLAP_OAG + 1];
                for (int overlap = 0; overlap <= GRID_OVERLAP_OAG; overlap++) {
                        struct memory_plan plan = {.work = grid_work(grid, true, RECOMPUTE_NONE)};
                        plan.work.tp = grid[0] * grid[1] * Z;
                        plan.work.grid_overlap = (enum grid_overlap)overlap;
                        const struct workload_bytes each = workload_bytes(&gpt, &plan.work, stage.shards);
                        int64_t most = 0;
                        for (int layer = 0; layer < LAYERS; layer++)
                                most = each.workspace[layer][0] > most ? each.workspace[layer][0] : most;
                        bytes[overlap] = memory_layout(&gpt, &stage, &plan).workspace - most;
                }
                assert_int_equal(bytes[GRID_OVERLAP_NONE], 0);
                assert_int_equal(bytes[GRID_OVERLAP_OAR], 0);
                assert_int_equal(bytes[GRID_OVERLAP_ORS], reduced);
                assert_int_equal(bytes[GRID_OVERLAP_OAG], reduced + gathered);
        }
}

/* Beside blocks: rows of the embedding are summed along y, logits along x, and the gradient of what they are
 * made of along y; a tied table is gathered in either place. */
static void ends_of_a_model_on_a_grid_sum_rows_and_logits(void **state)
{
        (void)state;
        const struct gpt gpt = small_llama();
        for (int i = 0; i < GRIDS; i++) {
                const int *grid = grids[i], X = grid[0], Y = grid[1];
                const struct work work = grid_work(grid, true, RECOMPUTE_NONE);
                struct stage stage = grid_stage(&gpt, grid, 0);
                const int64_t m = 4 * 16 / grid[2], C = 32, V = 64, e = sizeof(float),
                              table = V * C / (X * Y) * e;
                struct sums ends[2];
                stage.layers = 0;
                sum_lists(&gpt, &stage, &work, ends);
                check_volume(grid, &ends[0], m * V / Y * e + m * e, m * C / X * e, 2 * table, 0);
                check_volume(grid, &ends[1], m * e, m * C / X * e, table, 2 * table);
        }
}

/* All of them share every product with weights, and those along y attention's two, which those along x do
 * alike: L x 2 x 2 B H T T hs operations forward, twice as many backward, and what runs again. */
static void work_of_a_grid_adds_up_to_the_whole_s(void **state)
{
        (void)state;
        static const double again[RECOMPUTES] = {
                [RECOMPUTE_FULL] = 1, [RECOMPUTE_LAYER] = 1, [RECOMPUTE_SELECTIVE] = 0.5};
        const double attention = 3 * 2 * 2 * 4 * 4 * 16 * 16 * 8;
        struct gpt gpt = small_gpt(true);
        gpt.vocab_size = 64;
        for (int variant = 0; variant < GRIDS * RECOMPUTES; variant++) {
                const int *grid = grids[variant / RECOMPUTES], shards = grid[0] * grid[1] * grid[2];
                const enum recompute recompute = (enum recompute)(variant % RECOMPUTES);
                const struct work work = grid_work(grid, false, recompute),
                                  of_one = grid_work(grids[0], false, recompute);
                const struct stage whole = partition_stage(&gpt, 1, 0), part = grid_stage(&gpt, grid, 0);
                struct sums all[2], own[2];
                sum_lists(&gpt, &whole, &of_one, all);
                sum_lists(&gpt, &part, &work, own);
                for (int pass = 0; pass < 2; pass++)
                        assert_true(own[pass].flops * shards ==
                                    all[pass].flops +
                                            (grid[0] - 1) * attention * (pass ? 2 + again[recompute] : 1));
        }
}

/* Every matrix is split over all shards, but positions, which those along y have alike, as they have vectors
 * of the residual stream; other vectors are alike along x; and all vectors along z. */
static void parameters_of_a_grid_are_a_part_of_every_matrix(void **state)
{
        (void)state;
        struct gpt gpt = small_gpt(false);
        const int64_t L = gpt.n_layer, C = gpt.n_embd, V = gpt.vocab_size = 64, T = gpt.n_positions;
        for (int i = 0; i < GRIDS; i++) {
                const int *grid = grids[i], X = grid[0], Y = grid[1], Z = grid[2];
                const struct stage part = grid_stage(&gpt, grid, 0);
                const int64_t matrices = 2 * V * C + L * 12 * C * C, of_stream = L * 6 * C + 2 * C,
                              of_heads = L * 7 * C;
                assert_int_equal(partition_parameters(&gpt, &part),
                                 matrices / (X * Y * Z) + T * C / (X * Z) + of_stream / X + of_heads / Y);
                int64_t offset;
                const int64_t summed = partition_summed(&gpt, &part, false, &offset);
                assert_int_equal(summed, Z == 1 ? 0 : of_stream / X + of_heads / Y);
        }
}

/* A pass has the whole of one matrix at a time, and of its gradient. */
static void a_grid_s_passes_have_room_for_a_gathered_matrix(void **state)
{
        (void)state;
        const struct gpt gpt = small_llama();
        const int row[] = {1, 1, 1};
        const struct work work = grid_work(row, true, RECOMPUTE_NONE);
        struct work shared = work;
        shared.tp_z = 4; /* and the rows that one rank has */
        const struct workload_bytes plain = workload_bytes(&gpt, &work, 1),
                                    gathered = workload_bytes(&gpt, &shared, 4);
        const int64_t largest = 2 * 48 * 32 * (int64_t)sizeof(float);
        assert_int_equal(gathered.slot[LAYER_BLOCK], plain.slot[LAYER_BLOCK]);
        for (int parted = 0; parted < 2; parted++) {
                const int64_t more =
                        gathered.workspace[LAYER_BLOCK][parted] - plain.workspace[LAYER_BLOCK][parted];
                assert_true(more > 0 && more <= 2 * largest);
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
        gpt.vocab_size = 64 * SHARDS; /* rows of logits are multiples of 64 elements */
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
                cmocka_unit_test(collectives_of_a_layer_on_a_grid_are_the_closed_form),
                cmocka_unit_test(collectives_along_z_beside_products_are_the_same),
                cmocka_unit_test(collectives_beside_products_have_two_buffers),
                cmocka_unit_test(ends_of_a_model_on_a_grid_sum_rows_and_logits),
                cmocka_unit_test(work_of_a_grid_adds_up_to_the_whole_s),
                cmocka_unit_test(parameters_of_a_grid_are_a_part_of_every_matrix),
                cmocka_unit_test(a_grid_s_passes_have_room_for_a_gathered_matrix),
        };
        return cmocka_run_group_tests_name("shards", tests, NULL, NULL);
}
