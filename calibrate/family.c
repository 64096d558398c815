#include "calibrate/family.h"

#include "runtime/engine/report.h"

#include <stdlib.h>
#include <string.h>

/* A pass of more than this (a few seconds on a core) is cut to fewer blocks, but not to fewer than two: the
 * second block finds the caches as a run's blocks do. */
static const double MOST_PASS_FLOPS = 2e11;
enum { LEAST_LAYERS = 2, ELEMENT_BYTES = 4, ALLREDUCE_BUCKETS = 4 };

static void *grown(void *array, int count, size_t element_bytes)
{
        void *larger = realloc(array, (size_t)(count + 1) * element_bytes);
        if (!larger)
                abort();
        return larger;
}

/* Adds a kernel that the list has not; returns whether it was new. */
static bool add_kernel(struct family *family, const struct kernel *kernel)
{
        for (int i = 0; i < family->kernel_count; i++)
                if (kernel_same(&family->kernels[i], kernel))
                        return false;
        family->kernels = grown(family->kernels, family->kernel_count, sizeof *family->kernels);
        family->kernels[family->kernel_count++] = *kernel;
        return true;
}

static void add_reduction(struct family *family, int64_t bytes)
{
        for (int i = 0; i < family->reduction_count; i++)
                if (family->reductions[i] == bytes)
                        return;
        family->reductions = grown(family->reductions, family->reduction_count, sizeof *family->reductions);
        family->reductions[family->reduction_count++] = bytes;
}

/* The all-reduces of a stage: its gradients in chunks, and those of an embedding that two stages share. */
static void add_stage_reductions(struct family *family, const struct gpt *gpt, const struct stage *stage,
                                 int64_t bucket)
{
        int64_t chunk = ALLREDUCE_BUCKETS * bucket, gradients = partition_parameters(gpt, stage);
        if (gradients >= chunk)
                add_reduction(family, chunk * ELEMENT_BYTES);
        if (gradients % chunk)
                add_reduction(family, gradients % chunk * ELEMENT_BYTES);
        if (gpt->tied && stage->stages > 1 && stage->first)
                add_reduction(family, (int64_t)gpt->vocab_size * gpt->n_embd * ELEMENT_BYTES);
}

/* Scalars, and sizes between, so that a line has points to go through. */
static void add_usual_reductions(struct family *family)
{
        int64_t largest = 0;
        for (int i = 0; i < family->reduction_count; i++)
                if (family->reductions[i] > largest)
                        largest = family->reductions[i];
        add_reduction(family, 8);
        add_reduction(family, 64);
        for (int64_t bytes = 65536; bytes < largest; bytes *= 8)
                add_reduction(family, bytes);
}

static bool add_pass_kernels(struct family *family, const struct family_run *run)
{
        const struct work *work = &run->plan.work;
        int forward = workload_forward(&run->gpt, &run->stage, work, false, NULL);
        int backward = workload_backward(&run->gpt, &run->stage, work, NULL);
        struct kernel *kernels = malloc((size_t)(forward + backward) * sizeof *kernels);
        bool new = false;
        if (!kernels)
                abort();
        workload_forward(&run->gpt, &run->stage, work, false, kernels);
        workload_backward(&run->gpt, &run->stage, work, kernels + forward);
        for (int i = 0; i < forward + backward; i++)
                new |= add_kernel(family, &kernels[i]);
        free(kernels);
        return new;
}

static struct family_optimizer optimizer_of(const struct gpt *gpt, const struct stage *stage, int64_t bucket)
{
        int64_t parameters = partition_parameters(gpt, stage);
        struct family_optimizer optimizer = {.norm = workload_norm(gpt, stage, false)};
        if (parameters >= bucket)
                optimizer.updates[optimizer.update_count++] = bucket;
        if (parameters % bucket)
                optimizer.updates[optimizer.update_count++] = parameters % bucket;
        return optimizer;
}

/* The optimizers of all stages that a model is split into, each once. Returns how many. */
static int find_optimizers(struct family *family, const struct request *request, int model)
{
        const struct gpt *gpt = &request->gpts[model];
        const struct request_list usual = {{1, 2}, gpt->n_layer > 1 ? 2 : 1};
        const struct request_list *splits = request->stages.count ? &request->stages : &usual;
        int count = 0;
        for (int i = 0; i < splits->count; i++) {
                for (int index = 0; index < splits->values[i]; index++) {
                        struct stage stage = partition_stage(gpt, splits->values[i], index);
                        struct family_optimizer found = optimizer_of(gpt, &stage, request->bucket_parameters);
                        add_stage_reductions(family, gpt, &stage, request->bucket_parameters);
                        bool new = add_kernel(family, &found.norm);
                        for (int j = 0; j < found.update_count; j++) {
                                struct kernel update[WORKLOAD_UPDATE_KERNELS];
                                workload_update(found.updates[j], false, update);
                                new |= add_kernel(family, &update[0]);
                        }
                        if (!new)
                                continue;
                        family->optimizers[model] =
                                grown(family->optimizers[model], count, sizeof *family->optimizers[model]);
                        family->optimizers[model][count++] = found;
                }
        }
        return count;
}

/* Flops of a forward and backward pass. */
static double pass_flops(const struct family_run *run)
{
        return gpt_batch_flops(&run->gpt, run->plan.work.micro_batch_size, run->plan.work.seq_len, false);
}

/* Takes blocks away until the stage fits into memory and time. */
static int cut(struct family_run *run, int64_t memory_bytes, struct rv_error_info *err)
{
        for (;; run->gpt.n_layer--) {
                struct memory_bytes bytes;
                char needs[REPORT_TEXT], has[REPORT_TEXT];
                run->stage = partition_stage(&run->gpt, 1, 0);
                memory_stage(&run->gpt, &run->stage, &run->plan, &bytes);
                int64_t needed = memory_total(&bytes, MEMORY_DEVICE) + memory_total(&bytes, MEMORY_HOST);
                bool least = run->gpt.n_layer <= LEAST_LAYERS;
                if (needed <= memory_bytes && (least || pass_flops(run) <= MOST_PASS_FLOPS))
                        return RV_OK;
                if (least)
                        return rv_fail(err, RV_EPLAN,
                                       "%s with micro-batch size %d and %d tokens needs %s to be "
                                       "measured with %d "
                                       "blocks, and a rank may use %s here; ask for smaller ones",
                                       run->gpt.name, run->plan.work.micro_batch_size, run->plan.work.seq_len,
                                       report_bytes(needs, (double)needed), run->gpt.n_layer,
                                       report_bytes(has, (double)memory_bytes));
        }
}

static int add_run(struct family *family, struct family_run *run, int64_t memory_bytes,
                   struct rv_error_info *err)
{
        run->stage = partition_stage(&run->gpt, 1, 0);
        bool new = add_pass_kernels(family, run);
        if (!new && !run->every_optimizer)
                return RV_OK;
        int rc = cut(run, memory_bytes, err);
        if (rc != RV_OK)
                return rc;
        family->runs = grown(family->runs, family->run_count, sizeof *family->runs);
        family->runs[family->run_count++] = *run;
        return RV_OK;
}

static int add_model(struct family *family, const struct request *request, int model, int64_t memory_bytes,
                     struct rv_error_info *err)
{
        const struct gpt *gpt = &request->gpts[model];
        int optimizer_count = find_optimizers(family, request, model);
        int seq_lens = request->seq_lens.count ? request->seq_lens.count : 1;
        for (int i = 0; i < seq_lens; i++) {
                for (int j = 0; j < request->micro_batch_sizes.count; j++) {
                        struct family_run run = {
                                .gpt = *gpt,
                                .plan = {.work = {.micro_batch_size = request->micro_batch_sizes.values[j],
                                                  .seq_len = request->seq_lens.count
                                                                     ? request->seq_lens.values[i]
                                                                     : gpt->n_positions,
                                                  .element_bytes = ELEMENT_BYTES},
                                         .micro_batches = 1,
                                         .slots = 1,
                                         .gradient_buffers = 1},
                                .optimizers = family->optimizers[model],
                                .optimizer_count = optimizer_count,
                                .every_optimizer = i == 0 && j == 0 && optimizer_count > 0,
                        };
                        int rc = add_run(family, &run, memory_bytes, err);
                        if (rc != RV_OK)
                                return rc;
                }
        }
        return RV_OK;
}

int family_init(struct family *family, const struct request *request, int64_t memory_bytes,
                struct rv_error_info *err)
{
        memset(family, 0, sizeof *family);
        for (int model = 0; model < request->gpt_count; model++) {
                int rc = add_model(family, request, model, memory_bytes, err);
                if (rc != RV_OK) {
                        family_free(family);
                        return rc;
                }
        }
        add_usual_reductions(family);
        return RV_OK;
}

void family_free(struct family *family)
{
        for (int model = 0; model < REQUEST_MODELS; model++)
                free(family->optimizers[model]);
        free(family->kernels);
        free(family->reductions);
        free(family->runs);
        memset(family, 0, sizeof *family);
}
