/* A stage's buffers. */
#include "runtime/nn/exec.h"

#include <assert.h>
#include <stdlib.h>

_Static_assert((int)NN_SCALARS == (int)MEMORY_SCALARS,
               "models/memory.c counts as many scalars as a stage has");

static int by_offset(const void *left, const void *right)
{
        const struct tensor *a = left, *b = right;
        return (a->offset > b->offset) - (a->offset < b->offset);
}

/* Appends the tensors' decay of the flat elements [begin, end), which are kept up to element `last`. */
static void add_ranges(struct adamw_range *ranges, int *count, const struct tensor *sorted, int tensors,
                       int64_t begin, int64_t end, int64_t last)
{
        for (int i = 0; i < tensors; i++) {
                const int64_t to = sorted[i].offset + sorted[i].elements < end
                                           ? sorted[i].offset + sorted[i].elements
                                           : end;
                if (to <= begin || sorted[i].offset >= end)
                        continue;
                if (*count == 0 || ranges[*count - 1].decay != (int)sorted[i].decay)
                        ranges[(*count)++].decay = sorted[i].decay;
                ranges[*count - 1].end = last - (end - to);
        }
}

/* Tensors that follow each other in memory and are treated alike become one range; of shares that are kept
 * one behind the other, what they have of the tensors, and what pads them. */
static struct adamw_range *decay_ranges(const struct nn_stage *nn, const struct nn_own *own, int pieces)
{
        const struct nn_own whole = {0, nn->parameters, 0};
        struct tensor *sorted = malloc((size_t)nn->tensor_count * sizeof *sorted);
        struct adamw_range *ranges = calloc((size_t)(nn->tensor_count + pieces + 1), sizeof *ranges);
        int count = 0;
        for (int i = 0; sorted && i < nn->tensor_count; i++)
                sorted[i] = nn->tensors[i];
        if (sorted)
                qsort(sorted, (size_t)nn->tensor_count, sizeof *sorted, by_offset);
        for (int i = 0; sorted && ranges && i < pieces; i++) {
                const struct nn_own *piece = own ? &own[i] : &whole;
                add_ranges(ranges, &count, sorted, nn->tensor_count, piece->offset,
                           piece->offset + piece->count, piece->place + piece->count);
        }
        if (ranges) /* what pads the last share is zero, and stays so */
                ranges[count > 0 ? count - 1 : 0].end = nn->kept;
        if (!sorted) {
                free(ranges);
                return NULL;
        }
        free(sorted);
        return ranges;
}

bool nn_set_own(struct nn_stage *nn, const struct nn_own *own, int count)
{
        nn->own = own;
        nn->own_count = count;
        if (!nn->plan.gathered)
                return true;
        free(nn->ranges);
        nn->ranges = decay_ranges(nn, own, count);
        return nn->ranges;
}

/* The host side: which tensors, and tables of buffers. */
static bool allocate_host(struct nn_stage *nn)
{
        nn->tensor_count = partition_tensors(&nn->gpt, &nn->stage, NULL);
        nn->tensors = calloc((size_t)nn->tensor_count, sizeof *nn->tensors);
        if (!nn->tensors)
                return false;
        partition_tensors(&nn->gpt, &nn->stage, nn->tensors);
        nn->ranges = decay_ranges(nn, NULL, 1);
        nn->pass_offsets = calloc((size_t)nn->tensor_count, sizeof *nn->pass_offsets);
        if (nn->pass_offsets)
                pass_offsets(nn);
        nn->collective = calloc(1, sizeof *nn->collective);
        nn->exec = exec_new(nn);
        const struct memory_plan *plan = &nn->plan;
        const struct {
                void ***table;
                int entries;
        } tables[] = {{&nn->slots, plan->slots},
                      {&nn->host_slots, plan->host_slots},
                      {&nn->inputs, plan->input_buffers},
                      {&nn->gradient_buffers, plan->gradient_buffers},
                      {&nn->gradient_sums, plan->gradient_sums},
                      {&nn->deferred, plan->deferred},
                      {&nn->deferred_tops, plan->deferred},
                      {&nn->host_outputs, plan->slots},
                      {&nn->host_inputs, plan->input_buffers},
                      {&nn->host_gradient_buffers, plan->gradient_buffers}};
        bool ok = nn->ranges && nn->pass_offsets && nn->collective && nn->exec;
        for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
                *tables[i].table = calloc((size_t)tables[i].entries + 1, sizeof(void *));
                ok = ok && *tables[i].table;
        }
        nn->buckets = calloc((size_t)plan->update_buffers + 1, sizeof *nn->buckets);
        return ok && nn->buckets;
}

/* Memory, zeroed; after a first failure nothing more is asked for. */
static void *allocate(const struct nn_stage *nn, enum memory_space space, enum memory_category category,
                      int64_t bytes, bool *ok)
{
        void *memory = *ok ? nn->device->ops->alloc(nn->device, space, category, bytes) : NULL;
        *ok = memory != NULL;
        return memory;
}

static bool allocate_parameters(struct nn_stage *nn)
{
        const struct memory_layout *l = &nn->layout;
        bool ok = true;
        if (!nn->plan.whole_weights)
                nn->weights = allocate(nn, nn->plan.offload_parameters ? MEMORY_HOST : MEMORY_DEVICE,
                                       MEMORY_WEIGHTS, l->weights, &ok);
        nn->gradients = allocate(nn, MEMORY_DEVICE, MEMORY_GRADIENTS, l->gradients, &ok);
        for (int i = 0; i < nn->plan.gradient_sums; i++)
                nn->gradient_sums[i] = allocate(nn, MEMORY_DEVICE, MEMORY_GRADIENTS, l->gradients, &ok);
        nn->pass_weights = nn->weights;
        nn->pass_gradients = nn->gradients;
        if (nn->plan.gathered) {
                nn->gathered = allocate(nn, MEMORY_DEVICE, MEMORY_WEIGHTS, l->gathered, &ok);
                nn->reduced = allocate(nn, MEMORY_DEVICE, MEMORY_GRADIENTS, l->reduced, &ok);
        }
        if (nn->plan.reduce_fp32)
                nn->widened = allocate(nn, MEMORY_DEVICE, MEMORY_GRADIENTS, l->widened, &ok);
        if (nn->plan.whole_weights)
                nn->weights = nn->gathered;
        return ok;
}

/* Master parameters and moments, and the buffers of updates that fetch them. */
static bool allocate_optimizer(struct nn_stage *nn)
{
        const struct memory_layout *l = &nn->layout;
        const bool mixed = work_mixed(&nn->plan.work), offload = nn->plan.offload,
                   gradients = memory_copies_gradients(&nn->plan);
        const enum memory_space space = offload ? MEMORY_HOST : MEMORY_DEVICE;
        const int64_t bytes = l->optimizer;
        bool ok = true;
        if (mixed)
                nn->master = allocate(nn, space, MEMORY_MASTER, bytes, &ok);
        if (gradients && !offload)
                nn->master_gradients = allocate(nn, space, MEMORY_MASTER, bytes, &ok);
        nn->adam_m = allocate(nn, space, MEMORY_OPTIMIZER, bytes, &ok);
        nn->adam_v = allocate(nn, space, MEMORY_OPTIMIZER, bytes, &ok);
        for (int i = 0; i < nn->plan.update_buffers; i++) {
                struct nn_bucket *bucket = &nn->buckets[i];
                if (nn->plan.offload_parameters)
                        bucket->weights = allocate(nn, MEMORY_DEVICE, MEMORY_BUCKETS, l->bucket_weights, &ok);
                if (!offload)
                        continue;
                bucket->master = allocate(nn, MEMORY_DEVICE, MEMORY_BUCKETS, l->bucket, &ok);
                if (gradients)
                        bucket->gradients = allocate(nn, MEMORY_DEVICE, MEMORY_BUCKETS, l->bucket, &ok);
                bucket->adam_m = allocate(nn, MEMORY_DEVICE, MEMORY_BUCKETS, l->bucket, &ok);
                bucket->adam_v = allocate(nn, MEMORY_DEVICE, MEMORY_BUCKETS, l->bucket, &ok);
        }
        return ok;
}

static void allocate_messages(struct nn_stage *nn, enum memory_space space, void **buffers, int count,
                              bool *ok)
{
        for (int i = 0; i < count; i++)
                buffers[i] = allocate(nn, space, MEMORY_MESSAGES, nn->layout.message, ok);
}

/* What messages and all-reduces go through on the host. */
static bool allocate_staging(struct nn_stage *nn)
{
        const struct memory_plan *plan = &nn->plan;
        bool ok = true;
        if (plan->stage_messages) {
                allocate_messages(nn, MEMORY_HOST, nn->host_outputs, memory_staged_outputs(&nn->stage, plan),
                                  &ok);
                allocate_messages(nn, MEMORY_HOST, nn->host_inputs, plan->input_buffers, &ok);
                allocate_messages(nn, MEMORY_HOST, nn->host_gradient_buffers, plan->gradient_buffers, &ok);
        }
        if (plan->stage_shards)
                nn->host_shards = allocate(nn, MEMORY_HOST, MEMORY_MESSAGES, MEMORY_STAGED_SHARDS, &ok);
        if (plan->staged_gradients)
                nn->host_gradients = allocate(nn, MEMORY_HOST, MEMORY_GRADIENTS, nn->layout.staged, &ok);
        return ok;
}

static bool allocate_buffers(struct nn_stage *nn)
{
        const struct memory_layout *l = &nn->layout;
        bool ok = true;
        for (int i = 0; i < nn->plan.slots; i++)
                nn->slots[i] = allocate(nn, MEMORY_DEVICE, MEMORY_ACTIVATIONS,
                                        memory_slot(l, &nn->stage, &nn->plan, i), &ok);
        for (int i = 0; i < nn->plan.host_slots; i++)
                nn->host_slots[i] = allocate(nn, MEMORY_HOST, MEMORY_ACTIVATIONS, l->slot, &ok);
        for (int i = 0; i < nn->plan.deferred; i++) {
                nn->deferred[i] = allocate(nn, MEMORY_DEVICE, MEMORY_ACTIVATIONS, l->deferred, &ok);
                nn->deferred_tops[i] = ok ? pass_deferred_top(nn, i) : NULL;
        }
        allocate_messages(nn, MEMORY_DEVICE, nn->inputs, nn->plan.input_buffers, &ok);
        allocate_messages(nn, MEMORY_DEVICE, nn->gradient_buffers, nn->plan.gradient_buffers, &ok);
        nn->exec->workspace = allocate(nn, MEMORY_DEVICE, MEMORY_WORKSPACE, l->workspace, &ok);
        nn->scalars = allocate(nn, MEMORY_HOST, MEMORY_WORKSPACE, l->work_scalars, &ok);
        if (l->ends)
                nn->host_ends = allocate(nn, MEMORY_HOST, MEMORY_WORKSPACE, l->ends, &ok);
        if (ok)
                nn->scalars[NN_ONE] = 1;
        if (nn->stage.first) {
                nn->tokens = allocate(nn, MEMORY_DEVICE, MEMORY_TOKENS, l->tokens, &ok);
                nn->host_tokens = allocate(nn, MEMORY_HOST, MEMORY_TOKENS, l->tokens, &ok);
        }
        if (nn->stage.last) {
                nn->targets = allocate(nn, MEMORY_DEVICE, MEMORY_TOKENS, l->tokens, &ok);
                nn->host_targets = allocate(nn, MEMORY_HOST, MEMORY_TOKENS, l->tokens, &ok);
        }
        return ok;
}

static bool allocate_all(struct nn_stage *nn, bool optimizer)
{
        return allocate_parameters(nn) && (!optimizer || allocate_optimizer(nn)) && allocate_buffers(nn) &&
               allocate_staging(nn);
}

static int refuse(const struct nn_stage *nn, int64_t needed, const char *memory, int64_t left,
                  struct rv_error_info *err)
{
        const bool large = needed >= (int64_t)1 << 30;
        const double unit = large ? 0x1p30 : 0x1p20;
        return rv_fail(err, RV_ESYSTEM,
                       "stage %d of %d of %s needs %.2f %s of %s memory, of which %.2f are left",
                       nn->stage.index, nn->stage.stages, nn->gpt.name, (double)needed / unit,
                       large ? "GiB" : "MiB", memory, (double)left / unit);
}

/* What the stage will allocate. */
static void stage_bytes(const struct nn_stage *nn, bool optimizer, int64_t bytes[MEMORY_SPACES])
{
        static const enum memory_category optimizers[] = {MEMORY_MASTER, MEMORY_OPTIMIZER, MEMORY_BUCKETS};
        struct memory_bytes all;
        memory_stage(&nn->gpt, &nn->stage, &nn->plan, &all);
        for (int space = 0; space < MEMORY_SPACES; space++) {
                for (size_t i = 0; !optimizer && i < sizeof optimizers / sizeof *optimizers; i++)
                        all.in[space][optimizers[i]] = 0;
                bytes[space] = memory_total(&all, (enum memory_space)space);
        }
}

/* Whether the device, after what it holds already, has the bytes of the stage. */
static int check_memory(const struct nn_stage *nn, const int64_t bytes[MEMORY_SPACES],
                        struct rv_error_info *err)
{
        const struct device *device = nn->device;
        int64_t needed = 0, held = 0;
        for (int space = 0; space < MEMORY_SPACES; space++) {
                int64_t holds = memory_total(&device->bytes, (enum memory_space)space);
                if (bytes[space] > device->limit_bytes[space] - holds)
                        return refuse(nn, bytes[space], memory_space_name((enum memory_space)space),
                                      device->limit_bytes[space] - holds, err);
                needed += bytes[space];
                held += holds;
        }
        if (device->shared_limit_bytes && needed > device->shared_limit_bytes - held)
                return refuse(nn, needed, "device and host", device->shared_limit_bytes - held, err);
        return RV_OK;
}

/* All memory that the device counts, at once if it asks for that. */
static int allocate_stage(struct nn_stage *nn, bool optimizer, struct rv_error_info *err)
{
        int64_t bytes[MEMORY_SPACES];
        stage_bytes(nn, optimizer, bytes);
        int status = check_memory(nn, bytes, err);
        if (status == RV_OK)
                status = device_reserve(nn->device, bytes, err);
        if (status == RV_OK && !allocate_all(nn, optimizer))
                status = rv_fail(err, RV_ESYSTEM, "device %s gave less memory than stage %d of %s needs",
                                 nn->device->ops->name, nn->stage.index, nn->gpt.name);
        return status;
}

/* Whether the device has kernels for heads as wide as the stage's. */
static int check_heads(const struct nn_stage *nn, struct rv_error_info *err)
{
        const int widest = nn->device->widest_head;
        for (int i = 0; widest && i < LAYER_PASSES * LAYERS; i++) {
                const struct exec_list *list = &nn->exec->list[i / LAYERS][i % LAYERS];
                for (int s = 0; s < list->steps.count; s++) {
                        const struct kernel *kernel = &list->kernel[s];
                        if (kernel_descriptor(kernel->kind)->split == SPLIT_HEADS && kernel->k > widest)
                                return rv_fail(
                                        err, RV_ENOTBUILT,
                                        "heads of %s have %lld columns; fused attention of device %s is "
                                        "built for at most %d",
                                        nn->gpt.name, (long long)kernel->k, nn->device->ops->name, widest);
                }
        }
        return RV_OK;
}

static int open_stage(struct nn_stage *nn, bool optimizer, struct rv_error_info *err)
{
        if (!allocate_host(nn))
                return rv_fail(err, RV_ESYSTEM, "no host memory for a stage of %s", nn->gpt.name);
        const int status = check_heads(nn, err);
        return status == RV_OK ? allocate_stage(nn, optimizer, err) : status;
}

struct nn_stage *nn_open(struct device *device, const struct gpt *gpt, const struct stage *stage,
                         const struct memory_plan *plan, bool optimizer, struct rv_error_info *err)
{
        /* Mixed precision has fp32 beside it: there is none in a build that computes in double. */
        assert(work_element_bytes(&plan->work) ==
               (work_mixed(&plan->work) ? (int)sizeof(real) / 2 : (int)sizeof(real)));
        struct nn_stage *nn = calloc(1, sizeof *nn);
        if (!nn) {
                rv_fail(err, RV_ESYSTEM, "no host memory for a stage of %s", gpt->name);
                return NULL;
        }
        nn->device = device;
        device->dtype = plan->work.dtype;
        nn->gpt = *gpt;
        nn->stage = *stage;
        nn->plan = *plan;
        nn->layout = memory_layout(gpt, stage, plan);
        nn->loss_scale = 1;
        nn->parameters = partition_parameters(gpt, stage);
        nn->kept = plan->gathered ? plan->shard_parameters : nn->parameters;
        if (open_stage(nn, optimizer, err) != RV_OK) {
                nn_close(nn);
                return NULL;
        }
        return nn;
}

void nn_close(struct nn_stage *nn)
{
        if (!nn)
                return;
        free(nn->tensors);
        free(nn->ranges);
        free(nn->pass_offsets);
        free(nn->collective);
        free(nn->exec);
        free(nn->slots);
        free(nn->host_slots);
        free(nn->buckets);
        free(nn->inputs);
        free(nn->gradient_buffers);
        free(nn->deferred);
        free(nn->deferred_tops);
        free(nn->host_outputs);
        free(nn->host_inputs);
        free(nn->host_gradient_buffers);
        free(nn->gradient_sums);
        free(nn);
}

void *nn_at(const struct nn_stage *nn, void *flat, int64_t offset)
{
        return (char *)flat + offset * work_element_bytes(&nn->plan.work);
}

static void *kept_at(const struct nn_stage *nn, void *flat, int64_t offset)
{
        return memory_copies_gradients(&nn->plan) ? nn_at(nn, flat, offset) : (real *)flat + offset;
}

void *nn_gradients_at(const struct nn_stage *nn, int64_t offset)
{
        return kept_at(nn, nn->gradients, offset);
}

void *nn_sum_at(const struct nn_stage *nn, int level, int64_t offset)
{
        return kept_at(nn, nn->gradient_sums[level], offset);
}

void *nn_host_gradients(const struct nn_stage *nn, int64_t offset)
{
        const bool embedding = nn->plan.staged_gradients < nn->parameters;
        const int64_t first = embedding && nn->stage.last ? nn->parameters - nn->plan.staged_gradients : 0;
        return kept_at(nn, nn->host_gradients, offset - first);
}
