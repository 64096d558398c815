/* What calibrate measures covers what the plans of its family launch: found here by listing the kernels of
 * every plan, stage by stage. */
#include "calibrate/family.h"

#include "runtime/sched/core.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const int64_t BUCKET = 5000;
static const struct family_room PLENTY = {{INT64_C(1) << 40, INT64_C(1) << 40}, 0, 2e11, 0, false};

static struct request request_of(bool fp32, bool mixed, bool offload)
{
        struct request request = {.gpt_count = 1,
                                  .micro_batch_sizes = {{1, 3}, 2},
                                  .seq_lens = {{8, 16}, 2},
                                  .stages = {{1, 2, 3}, 3},
                                  .shards = {{1}, 1},
                                  .context_ranks = {{1}, 1},
                                  .precisions = {fp32, mixed},
                                  .offload = offload,
                                  .bucket_parameters = BUCKET,
                                  .ranks = 1};
        request.gpts[0] = (struct gpt){.name = "small",
                                       .n_layer = 4,
                                       .n_embd = 16,
                                       .n_head = 2,
                                       .vocab_size = 96,
                                       .n_positions = 16,
                                       .tied = true};
        return request;
}

static struct family family_of(const struct request *request)
{
        struct family family;
        struct rv_error_info err = {0};
        if (family_init(&family, request, &PLENTY, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        return family;
}

/* Of what shards do together, all-reduces of the same size are measured. */
static void check_reduced(const struct family *family, const struct kernel *collective)
{
        int j = 0;
        while (j < family->reduction_count &&
               (family->reductions[j].dtype != (enum dtype)collective->dtype ||
                family->reductions[j].bytes != kernel_collective_bytes(collective, 4)))
                j++;
        assert_true(j < family->reduction_count);
}

static void check_covered(const struct family *family, const struct kernel *kernels, int count)
{
        for (int i = 0; i < count; i++) {
                int j = 0;
                if (kernel_of_context(kernels[i].kind) || kernels[i].kind == KERNEL_JOIN)
                        continue;
                if (kernel_collective(kernels[i].kind)) {
                        check_reduced(family, &kernels[i]);
                        continue;
                }
                while (j < family->kernel_count && !kernel_same(&family->kernels[j], &kernels[i]))
                        j++;
                if (j == family->kernel_count)
                        fail_msg("no %s%s of batch %lld, m %lld, n %lld, k %lld",
                                 kernel_name(kernels[i].kind),
                                 kernels[i].dtype != DTYPE_FP32 ? " in 16 bits" : "",
                                 (long long)kernels[i].batch, (long long)kernels[i].m,
                                 (long long)kernels[i].n, (long long)kernels[i].k);
        }
}

/* The sizes of a stage's updates of at most `update`, walked through: chunks of four buckets, and the
 * embedding that two stages share apart. Returns how many there are. */
static int updates_of(const struct gpt *gpt, const struct stage *stage, int64_t update, int64_t *sizes)
{
        const bool shared = gpt->tied && stage->stages > 1 && (stage->first || stage->last);
        const int64_t embedding = shared ? (int64_t)partition_vocabulary(gpt, stage) * gpt->n_embd : 0;
        const int64_t regions[] = {partition_parameters(gpt, stage) - embedding, embedding};
        int count = 0;
        for (int i = 0; i < 2; i++)
                for (int64_t at = 0, size; at < regions[i]; at += size) {
                        const int64_t in_chunk = 4 * BUCKET - at % (4 * BUCKET), left = regions[i] - at;
                        size = update < in_chunk ? update : in_chunk;
                        size = size < left ? size : left;
                        sizes[count++] = size;
                }
        return count;
}

static void check_stage(const struct family *family, const struct gpt *gpt, const struct stage *stage,
                        const struct work *work)
{
        enum { MAX = 512 };
        struct kernel kernels[MAX];
        const enum dtype dtype = work->dtype;
        const int64_t parameters = partition_parameters(gpt, stage);
        int count = workload_forward(gpt, stage, work, false, kernels);
        count += workload_backward(gpt, stage, work, kernels + count);
        for (int part = PART_INPUT; part <= PART_WEIGHT; part++) /* zero-bubble */
                count += workload_backward_part(gpt, stage, work, (enum kernel_part)part, kernels + count);
        const bool wide = work->wide_gradients;
        const enum dtype gradients = wide ? DTYPE_FP32 : dtype;
        kernels[count++] = workload_norm(gpt, stage, gradients);
        int64_t sizes[MAX];
        const int updates = updates_of(gpt, stage, BUCKET, sizes);
        for (int i = 0; i < updates; i++) {
                count += workload_update(sizes[i], dtype, wide, kernels + count);
                kernels[count - 1].wide = wide;
        }
        if (dtype != DTYPE_FP32)
                kernels[count++] = workload_overflow(parameters, dtype, wide);
        kernels[count++] = workload_clear(parameters, gradients); /* after an overflow, or with --zero 1 */
        kernels[count++] = workload_add_gradients(parameters, dtype); /* with --zero 3 */
        assert_true(count <= MAX);
        check_covered(family, kernels, count);
}

static void check_plans(const struct request *request)
{
        struct family family = family_of(request);
        const struct gpt *gpt = &request->gpts[0];
        for (int plan = 0; plan < 3 * 2 * 2 * 3 * RECOMPUTES; plan++) {
                const int stages = 1 + plan % 3;
                const enum dtype dtype = (enum dtype)(plan / 12 % 3);
                const struct work work = {.micro_batch_size = plan / 3 % 2 ? 1 : 3,
                                          .seq_len = plan / 6 % 2 ? 8 : 16,
                                          .dtype = dtype,
                                          .wide_gradients = work_wide_by_default(dtype),
                                          .fused = request->fused,
                                          .recompute = (enum recompute)(plan / 36)};
                for (int i = 0; i < stages * request->shards.count; i++) {
                        const int shards = request->shards.values[i % request->shards.count];
                        struct work split = work;
                        split.sequence_parallel = request->sequence_parallel && shards > 1;
                        struct stage whole = partition_stage(gpt, stages, i / request->shards.count);
                        struct stage stage = partition_shard(&whole, shards, 0);
                        check_stage(&family, gpt, &stage, &split);
                }
        }
        family_free(&family);
}

/* Recomputation runs a block's forward again inside backward: shapes that the forward pass has already. A
 * backward in two parts adds what comes past a LayerNorm by a kernel that with fusion nothing else launches.
 */
static void every_kernel_of_every_plan_is_measured_recomputed_or_not(void **state)
{
        (void)state;
        struct request request = request_of(true, true, false);
        request.precisions[DTYPE_BF16] = true;
        for (int fused = 0; fused < 2; fused++) {
                request.fused = fused;
                check_plans(&request);
        }
        request.shards = (struct int_list){{1, 2}, 2};
        for (int split = 0; split < 2; split++) {
                request.sequence_parallel = split;
                check_plans(&request);
        }
}

/* A ring of ranks and one that gathers keys launch the same. */
static void every_kernel_of_ranks_with_parts_of_sequences_is_measured(void **state)
{
        (void)state;
        struct request request = request_of(true, true, false);
        request.fused = true;
        request.context_ranks = (struct int_list){{1, 2, 4}, 3};
        struct family family = family_of(&request);
        for (int plan = 0; plan < 2 * 3 * 2 * RECOMPUTES; plan++) {
                const int ranks = 2 << plan % 2;
                const struct work work = {.micro_batch_size = 3,
                                          .seq_len = 16 / ranks,
                                          .dtype = (enum dtype)(plan / 2 % 2),
                                          .fused = true,
                                          .cp = ranks,
                                          .cp_gathers = plan / 4 % 2,
                                          .recompute = (enum recompute)(plan / 12)};
                const struct stage stage = partition_stage(&request.gpts[0], 1 + plan / 4 % 3, 0);
                check_stage(&family, &request.gpts[0], &stage, &work);
        }
        family_free(&family);
}

static void what_is_not_asked_for_is_not_measured(void **state)
{
        (void)state;
        for (int mixed = 0; mixed < 2; mixed++) {
                const struct request request = request_of(!mixed, mixed, false);
                struct family family = family_of(&request);
                assert_true(family.run_count > 0 && family.phase_count == 0);
                for (int i = 0; i < family.kernel_count; i++)
                        assert_int_equal(family.kernels[i].dtype, mixed);
                for (int i = 0; i < family.run_count; i++)
                        assert_int_equal(work_mixed(&family.runs[i].plan.work), mixed);
                /* Scalars are reduced in fp32 or double in either precision. */
                for (int i = 0; i < family.reduction_count; i++)
                        assert_true((family.reductions[i].dtype != DTYPE_FP32) == mixed ||
                                    family.reductions[i].bytes <= 64);
                family_free(&family);
        }
}

/* Half, one and a half times and twice as wide; and heads twice as wide, where the device has kernels for
 * them. */
static void models_beside_the_family_are_run(void **state)
{
        (void)state;
        const struct request request = request_of(true, false, false);
        struct family family = family_of(&request), narrow;
        const int first = family.run_count - FAMILY_BESIDES, widths[] = {8, 24, 32, 16},
                  heads[] = {8, 8, 8, 16};
        assert_true(first > 0);
        for (int i = 0; i < FAMILY_BESIDES; i++) {
                const struct family_run *run = &family.runs[first + i];
                assert_int_equal(run->gpt.n_embd, widths[i]);
                assert_int_equal(gpt_head_size(&run->gpt), heads[i]);
                assert_int_equal(run->gpt.n_layer, 2);
                assert_int_equal(run->optimizer_count, 1);
                assert_int_equal(run->optimizers->parameters, partition_parameters(&run->gpt, &run->stage));
        }
        struct family_room room = PLENTY;
        struct rv_error_info err = {0};
        room.widest_head = 8;
        assert_int_equal(family_init(&narrow, &request, &room, &err), RV_OK);
        assert_int_equal(narrow.run_count, family.run_count - 1);
        assert_int_equal(narrow.kernel_count,
                         family.kernel_count); /* no plan has the kernels of models beside */
        family_free(&narrow);
        room.flops = 1; /* no time for any of them */
        assert_int_equal(family_init(&narrow, &request, &room, &err), RV_OK);
        assert_int_equal(narrow.run_count, first);
        family_free(&narrow);
        family_free(&family);
}

/* A remainder that is a hundredth less than a measured size, or nearer, is between points. */
static bool phase_covers(const struct family_phase *phase, int64_t parameters)
{
        bool above = false, near = false;
        for (int i = 0; i < phase->update_count; i++) {
                above = above || phase->updates[i] >= parameters;
                near = near || llabs(phase->updates[i] - parameters) * 100 <= parameters;
        }
        return above && near;
}

static void every_offloaded_update_lies_among_the_measured_ones(void **state)
{
        (void)state;
        const struct request request = request_of(false, true, true);
        struct family family = family_of(&request);
        const struct plan plan = {.mixed = true, .offload = true, .bucket_parameters = BUCKET};
        const struct family_phase *phase = &family.phases[0];
        assert_int_equal(family.phase_count, 1);
        for (int stages = 1; stages <= 3; stages++) {
                for (int index = 0; index < stages; index++) {
                        struct stage stage = partition_stage(&request.gpts[0], stages, index);
                        int64_t parameters = partition_parameters(&request.gpts[0], &stage);
                        int64_t sizes[512];
                        const int updates = updates_of(&request.gpts[0], &stage,
                                                       core_update_parameters(&plan, parameters), sizes);
                        for (int i = 0; i < updates; i++)
                                assert_true(phase_covers(phase, sizes[i]));
                }
        }
        const int64_t largest = phase->plan.update_parameters;
        for (int i = 0; i < phase->update_count; i++)
                assert_true(phase->updates[i] > 0 && phase->updates[i] <= largest);
        assert_true(phase_covers(phase, largest / 4) && phase_covers(phase, largest / 16)); /* for the line */
        /* Three of them at once are three different parts of the stage. */
        assert_true(partition_parameters(&phase->gpt, &phase->stage) >=
                    PLAN_UPDATE_BUFFERS * phase->plan.update_parameters);
        family_free(&family);
}

static void a_phase_that_does_not_fit_is_refused_with_the_cure(void **state)
{
        (void)state;
        struct request request = request_of(false, true, true);
        request.gpts[0].n_layer = 500;
        request.stages = (struct int_list){{1}, 1};
        request.bucket_parameters = INT64_C(1) << 40;
        struct family family;
        struct rv_error_info err = {0};
        const struct family_room little = {{1 << 20, 1 << 20}, 1 << 20, 2e11, 0, false};
        assert_int_equal(family_init(&family, &request, &little, &err), RV_EPLAN);
        if (!strstr(err.sentence, "a smaller --bucket-params needs less"))
                fail_msg("%s", err.sentence);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_kernel_of_every_plan_is_measured_recomputed_or_not),
                cmocka_unit_test(every_kernel_of_ranks_with_parts_of_sequences_is_measured),
                cmocka_unit_test(what_is_not_asked_for_is_not_measured),
                cmocka_unit_test(models_beside_the_family_are_run),
                cmocka_unit_test(every_offloaded_update_lies_among_the_measured_ones),
                cmocka_unit_test(a_phase_that_does_not_fit_is_refused_with_the_cure),
        };
        return cmocka_run_group_tests_name("family", tests, NULL, NULL);
}
