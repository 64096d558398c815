#include "models/workload.h"

#include "models/ahead.h"
#include "models/families/families.h"
#include "models/memory.h"
#include "runtime/base/minmax.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t workload_loss_rows(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        if (!work->fused || stage->shards > 1)
                return 0;
        const int64_t N = (int64_t)work->micro_batch_size * work->seq_len;
        const int64_t max = work->logits_bytes ? work->logits_bytes : WORKLOAD_LOGITS_BYTES;
        const int64_t row = program_padded(partition_vocabulary(gpt, stage)) * work_element_bytes(work);
        const int64_t groups = (N + WORKLOAD_LOSS_ROWS - 1) / WORKLOAD_LOSS_ROWS;
        const int64_t fitting = max / (row * WORKLOAD_LOSS_ROWS), each = fitting ? fitting : 1;
        const int64_t chunks = (groups + each - 1) / each, balanced = (groups + chunks - 1) / chunks;
        return balanced * WORKLOAD_LOSS_ROWS < N ? balanced * WORKLOAD_LOSS_ROWS : N;
}

static void derive(struct program *program, enum layer layer, const struct gpt *gpt, const struct work *work,
                   int shards)
{
        const int x = work_shards_x(work), z = work_shards_z(work);
        assert(shards % (x * z) == 0);
        program_begin(program, (struct program_split){.shards = shards / (x * z),
                                                      .shards_x = x,
                                                      .shards_z = z,
                                                      .sequence_parallel = work->sequence_parallel,
                                                      .pieces = work->tp_overlap,
                                                      .expert_ranks = work_expert_ranks(work),
                                                      .expert_capacity = work->expert_capacity,
                                                      .whole_experts = work->whole_experts,
                                                      .tokens_once = work->tokens_once,
                                                      .context_ranks = work_context_ranks(work),
                                                      .context_gathers = work->cp_gathers,
                                                      .wide_gradients = work->wide_gradients});
        family_build(program, layer, gpt, work);
        program_finish(program, work->fused);
        if (work->format != FORMAT_STORED && layer_is_block(layer))
                program_quantize(program, work->format, work_finds_maxima(work), work->quantizes_each_pass);
}

void workload_init(struct workload *w, const struct gpt *gpt, const struct work *work, int shards)
{
        const struct stage whole = {.stages = 1, .chunks = 1, .shards = shards};
        w->work = *work;
        w->shards = shards;
        w->dense = gpt->n_dense;
        w->loss_rows = workload_loss_rows(gpt, &whole, work);
        w->listed = NULL;
        for (int layer = 0; layer < LAYERS; layer++)
                derive(&w->program[layer], (enum layer)layer, gpt, work, shards);
}

/* ---- the passes of a layer ---- */

static enum recompute recomputation(const struct workload *w, enum layer layer)
{
        return layer_is_block(layer) ? work_recomputation(&w->work) : RECOMPUTE_NONE;
}

static void add_steps(struct steps *to, const struct steps *from, bool chunked)
{
        for (int s = 0; s < from->count; s++)
                if ((from->at[s].chunked != 0) == chunked)
                        program_add_step(to, from->at[s]);
}

/* Those of a pass, as the program has them. */
static void list_steps(const struct workload *w, enum layer layer, enum layer_pass pass, struct steps *steps)
{
        const struct program *p = &w->program[layer];
        if (pass != PASS_FORWARD) {
                program_list_backward(p, recomputation(w, layer), (enum kernel_part)pass, steps);
                return;
        }
        steps->count = p->forward.count;
        memcpy(steps->at, p->forward.at, (size_t)steps->count * sizeof *steps->at);
}

void workload_steps(const struct workload *w, enum layer layer, enum layer_pass pass, struct steps *steps)
{
        const struct program *p = &w->program[layer];
        if (w->loss_rows == 0) {
                list_steps(w, layer, pass, steps);
                if (w->work.tp_overlap > 0 || (work_sums_beside(&w->work) && pass != PASS_FORWARD))
                        program_overlap(p, steps);
                return;
        }
        struct steps all;
        list_steps(w, layer, pass, &all);
        steps->count = 0;
        if (pass == PASS_INPUT || pass == PASS_BACKWARD) {
                add_steps(steps, &p->forward, true);
                add_steps(steps, &p->backward, true);
        }
        add_steps(steps, &all, false);
        if (pass == PASS_FORWARD && layer == LAYER_VALIDATION)
                add_steps(steps, &p->forward, true);
}

/* A validation's values lie where a training's of the same names do, or what those are made of in place: its
 * program begins as that one does. */
static int64_t validation_slot(const struct workload *w, bool kept[PROGRAM_VALUES],
                               int64_t offset[PROGRAM_VALUES])
{
        const struct program *trained = &w->program[LAYER_HEAD], *p = &w->program[LAYER_VALIDATION];
        bool trained_kept[PROGRAM_VALUES];
        int64_t trained_offset[PROGRAM_VALUES];
        const int64_t bytes = workload_slot(w, LAYER_HEAD, trained_kept, trained_offset);
        memset(kept, 0, PROGRAM_VALUES * sizeof *kept);
        for (int value = 0; value < trained->value_count; value++)
                for (int in = value; trained_kept[value] && in >= 0; in = trained->values[in].overwrites) {
                        if (in >= p->value_count || strcmp(p->values[in].name, trained->values[in].name) != 0)
                                continue;
                        kept[in] = true;
                        if (offset)
                                offset[in] = trained_offset[value];
                }
        return bytes;
}

static bool touches_input(const struct workload *w, enum layer layer)
{
        const struct program *p = &w->program[layer];
        bool touched[PROGRAM_VALUES];
        struct steps steps;
        workload_steps(w, layer, PASS_WEIGHT, &steps);
        program_touched(p, &steps, touched);
        return p->input >= 0 && touched[p->input];
}

/* Whether the model has such layers. */
static bool has_layer(const struct workload *w, enum layer layer)
{
        return layer != LAYER_DENSE || w->dense > 0;
}

/* What the second part of a backward in two needs comes first: `needed` bytes, unless that is NULL. */
static int64_t block_slot(const struct workload *w, enum layer layer, bool kept[PROGRAM_VALUES],
                          int64_t offset[PROGRAM_VALUES], int64_t *needed)
{
        const struct program *p = &w->program[layer];
        bool first[PROGRAM_VALUES], rest[PROGRAM_VALUES];
        int64_t after[PROGRAM_VALUES];
        struct steps steps;
        program_kept(p, recomputation(w, layer), w->loss_rows > 0, kept);
        workload_steps(w, layer, PASS_WEIGHT, &steps);
        program_touched(p, &steps, first);
        if (touches_input(w, LAYER_BLOCK) || touches_input(w, LAYER_HEAD) ||
            (w->dense > 0 && touches_input(w, LAYER_DENSE)))
                first[p->output] = true;
        for (int value = 0; value < PROGRAM_VALUES; value++) {
                rest[value] = kept[value] && !first[value] && w->shards == 1;
                first[value] = kept[value] && !rest[value];
        }
        const int64_t begin = program_bytes(p, first, work_element_bytes(&w->work), offset);
        const int64_t bytes = begin + program_bytes(p, rest, work_element_bytes(&w->work), after);
        for (int value = 0; offset && value < p->value_count; value++)
                if (rest[value])
                        offset[value] = begin + after[value];
        if (needed)
                *needed = begin;
        return bytes;
}

int64_t workload_slot(const struct workload *w, enum layer layer, bool kept[PROGRAM_VALUES],
                      int64_t offset[PROGRAM_VALUES])
{
        if (layer == LAYER_VALIDATION)
                return validation_slot(w, kept, offset);
        if (layer_is_block(layer) && has_layer(w, layer))
                return block_slot(w, layer, kept, offset, NULL);
        program_kept(&w->program[layer], recomputation(w, layer), w->loss_rows > 0, kept);
        return program_bytes(&w->program[layer], kept, work_element_bytes(&w->work), offset);
}

int64_t workload_freed(const struct workload *w, enum layer layer, int64_t *bytes)
{
        bool kept[PROGRAM_VALUES];
        int64_t needed;
        *bytes = block_slot(w, layer, kept, NULL, &needed) - needed;
        return needed;
}

static void lend(const struct workload *w, enum layer layer, int value, int64_t freed, struct deferral *d)
{
        const int64_t bytes = program_value_bytes(&w->program[layer], value, work_element_bytes(&w->work));
        int64_t *end = &d->bytes;
        d->lent[value] = d->lent_bytes + bytes <= freed;
        if (d->lent[value])
                end = &d->lent_bytes;
        d->offset[value] = *end;
        *end += bytes;
}

/* What each block can lend. */
static int64_t lendable(const struct workload *w)
{
        int64_t bytes, of_dense = INT64_MAX;
        workload_freed(w, LAYER_BLOCK, &bytes);
        if (w->dense > 0)
                workload_freed(w, LAYER_DENSE, &of_dense);
        return min_int64(bytes, of_dense);
}

void workload_deferral(const struct workload *w, enum layer layer, struct deferral *d)
{
        const struct program *p = &w->program[layer];
        const int64_t freed = lendable(w);
        *d = (struct deferral){.bytes = 0};
        program_deferred(p, d->left);
        if (d->left[p->output_gradient]) /* first, so that blocks of either kind lend it alike */
                lend(w, layer, p->output_gradient, freed, d);
        for (int value = 0; value < p->value_count; value++)
                if (d->left[value] && value != p->output_gradient)
                        lend(w, layer, value, freed, d);
}

/* Marks what collectives along z that run beside products bring and take, which has buffers of its own.
 * Returns the bytes of such a buffer of weights, and one of gradients: each has what one step reads, or
 * makes, the latter also the shard's part of it. */
static struct workload_ahead find_ahead(const struct workload *w, enum layer layer, const struct steps *steps,
                                        bool found[PROGRAM_VALUES])
{
        const struct program *p = &w->program[layer];
        struct workload_ahead step = {0}, most = {0};
        for (int s = 0; s < steps->count; s++) {
                const struct step *at = &steps->at[s];
                const bool gathers = at->kind == KERNEL_TENSOR_Z_ALL_GATHER && work_gathers_ahead(&w->work),
                           reduces = at->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER &&
                                     work_scatters_beside(&w->work);
                if (!gathers && !reduces && at->kind != KERNEL_RESIDUAL)
                        step = (struct workload_ahead){0};
                for (int i = 0; (gathers && i < 1) || (reduces && i < 2); i++) {
                        found[at->view[i].value] = true;
                        *(gathers ? &step.gathered : &step.reduced) +=
                                program_value_bytes(p, at->view[i].value, work_element_bytes(&w->work));
                }
                most.gathered = max_int64(most.gathered, step.gathered);
                most.reduced = max_int64(most.reduced, step.reduced);
        }
        return most;
}

void workload_place(const struct workload *w, enum layer layer, enum layer_pass pass,
                    const struct steps *steps, struct placement *place)
{
        const struct program *p = &w->program[layer];
        bool elsewhere[PROGRAM_VALUES] = {false};
        if (pass == PASS_FORWARD)
                workload_slot(w, layer, elsewhere, NULL);
        else if (pass != PASS_BACKWARD && layer_is_block(layer))
                program_deferred(p, elsewhere);
        if (p->output_gradient >= 0)
                elsewhere[p->output_gradient] = true;
        if (p->input_gradient >= 0)
                elsewhere[p->input_gradient] = true;
        find_ahead(w, layer, steps, elsewhere);
        program_place(p, steps, elsewhere, w->loss_rows, work_element_bytes(&w->work), place);
}

/* Bytes of the workspace that a pass works in; `ahead` becomes what it has at least beside that. */
static int64_t pass_bytes(const struct workload *w, enum layer layer, enum layer_pass pass,
                          struct workload_ahead *ahead)
{
        struct steps steps;
        struct placement place;
        bool found[PROGRAM_VALUES];
        workload_steps(w, layer, pass, &steps);
        const struct workload_ahead needs = find_ahead(w, layer, &steps, found);
        ahead->gathered = max_int64(ahead->gathered, needs.gathered);
        ahead->reduced = max_int64(ahead->reduced, needs.reduced);
        workload_place(w, layer, pass, &steps, &place);
        return place.bytes;
}

/* ---- copies of parameters ---- */

static int add_copy(const struct program *p, const struct step *step, enum dtype dtype, struct kernel *out,
                    int count)
{
        if (out)
                out[count] = program_kernel(p, step, dtype, 0);
        return count + 1;
}

/* Writes the kernels that make the copies of a layer's parameters once a batch, and returns how many they
 * are. */
static int list_copies(const struct workload *w, enum layer layer, struct kernel *out)
{
        const struct program *p = &w->program[layer];
        int count = 0;
        for (int s = 0; s < p->forward.count && !w->work.quantizes_each_pass; s++) {
                const struct step *product = &p->forward.at[s];
                if (product->format == FORMAT_STORED)
                        continue;
                for (int i = 0; i < KERNEL_OPERANDS; i++) {
                        struct view weight = product->view[i];
                        const struct kernel_operand *operand = &kernel_descriptor(product->kind)->operands[i];
                        if (weight.value < 0 || p->values[weight.value].role != ROLE_PARAMETER ||
                            (operand->extent != EXTENT_KN && operand->extent != EXTENT_EKN))
                                continue;
                        weight.rows = product->view[i].cols; /* (out, in), as it lies */
                        weight.cols = product->view[i].rows;
                        const struct step step = {.kind = KERNEL_QUANTIZE,
                                                  .format = product->format,
                                                  .view = {weight, weight, weight, {.value = -1}}};
                        const struct step maximum = {.kind = KERNEL_MAXIMUM, .view = {{.value = -1}, weight}};
                        if (work_finds_maxima(&w->work))
                                count = add_copy(p, &maximum, w->work.dtype, out, count);
                        count = add_copy(p, &step, w->work.dtype, out, count);
                }
        }
        return count;
}

int workload_list_quantize(const struct workload *w, const struct stage *stage, struct kernel *out)
{
        int count = 0;
        for (int i = 0; i < stage->layers; i++)
                count += list_copies(w, partition_layer(stage, i) < w->dense ? LAYER_DENSE : LAYER_BLOCK,
                                     out ? out + count : NULL);
        return count;
}

/* The bytes of the copies of a layer's parameters, as they are and transposed. */
static int64_t copies_bytes(const struct workload *w, enum layer layer)
{
        struct kernel kernels[2 * PROGRAM_TENSORS];
        const int count = layer_is_block(layer) ? list_copies(w, layer, kernels) : 0;
        int64_t bytes = 0;
        for (int i = 0; i < count; i++) {
                const struct kernel *k = &kernels[i];
                const double elements = (double)k->batch * (double)k->m * (double)k->n;
                if (k->kind == KERNEL_QUANTIZE)
                        bytes += 2 * memory_aligned((int64_t)ceil(format_bytes(w->work.format, elements)));
        }
        return bytes;
}

static struct workload_bytes derive_bytes(const struct gpt *gpt, const struct work *work, int shards)
{
        struct workload_bytes bytes = {0};
        struct workload w;
        struct deferral deferral;
        bool set[PROGRAM_VALUES];
        workload_init(&w, gpt, work, shards);
        for (int i = 0; i < LAYERS; i++) {
                const enum layer layer = (enum layer)i;
                int64_t *workspace = bytes.workspace[layer];
                struct workload_ahead *ahead = &bytes.ahead[layer];
                if (!has_layer(&w, layer))
                        continue;
                bytes.slot[layer] = workload_slot(&w, layer, set, NULL);
                bytes.copies[layer] = copies_bytes(&w, layer);
                workspace[0] = workspace[1] = pass_bytes(&w, layer, PASS_FORWARD, ahead);
                if (layer == LAYER_VALIDATION)
                        continue;
                workspace[0] = max_int64(workspace[0], pass_bytes(&w, layer, PASS_BACKWARD, ahead));
                workspace[1] = max_int64(workspace[0], pass_bytes(&w, layer, PASS_INPUT, ahead));
                workspace[1] = max_int64(workspace[1], pass_bytes(&w, layer, PASS_WEIGHT, ahead));
        }
        for (int layer = LAYER_DENSE; layer <= LAYER_BLOCK; layer++) {
                if (!has_layer(&w, (enum layer)layer))
                        continue;
                workload_deferral(&w, (enum layer)layer, &deferral);
                bytes.deferred = max_int64(bytes.deferred, deferral.bytes);
                bytes.lent = max_int64(bytes.lent, deferral.lent_bytes);
        }
        bytes.output_lent = deferral.lent[w.program[LAYER_BLOCK].output_gradient];
        return bytes;
}

static bool same_work(const struct work *a, const struct work *b)
{
        return a->micro_batch_size == b->micro_batch_size && a->seq_len == b->seq_len &&
               a->dtype == b->dtype && a->format == b->format &&
               a->quantizes_each_pass == b->quantizes_each_pass && a->wide_gradients == b->wide_gradients &&
               a->scaling == b->scaling && a->real_bytes == b->real_bytes && a->recompute == b->recompute &&
               a->fused == b->fused && a->sequence_parallel == b->sequence_parallel &&
               a->tp_overlap == b->tp_overlap && work_expert_ranks(a) == work_expert_ranks(b) &&
               a->whole_experts == b->whole_experts && a->tokens_once == b->tokens_once &&
               a->expert_capacity == b->expert_capacity && work_context_ranks(a) == work_context_ranks(b) &&
               a->cp_gathers == b->cp_gathers && work_shards_x(a) == work_shards_x(b) &&
               work_shards_z(a) == work_shards_z(b) && a->grid_overlap == b->grid_overlap &&
               a->logits_bytes == b->logits_bytes;
}

/* The kernels of a pass of a layer, once they were asked for. */
struct listed_pass {
        struct kernel *kernels; /* [count]; NULL: not yet */
        int count;
        struct ahead ahead;
};
enum { LISTED_PASSES = LAYERS * LAYER_PASSES };

static void forget_listed(struct workload *w)
{
        for (int i = 0; w->listed && i < LISTED_PASSES; i++)
                free(w->listed[i].kernels);
        free(w->listed);
        w->listed = NULL;
}

const struct workload *workloads_get(struct workloads *table, const struct gpt *gpt, const struct work *work,
                                     int shards)
{
        for (int i = 0; i < table->count; i++)
                if (same_work(&table->at[i]->work, work) && table->at[i]->shards == shards)
                        return table->at[i];
        struct workload **at = &table->at[table->next];
        if (*at)
                forget_listed(*at);
        else
                *at = malloc(sizeof **at);
        if (!*at)
                return NULL;
        workload_init(*at, gpt, work, shards);
        (*at)->listed = calloc(LISTED_PASSES, sizeof *(*at)->listed);
        table->count = max_int(table->count, table->next + 1);
        table->next = (table->next + 1) % WORKLOADS;
        return *at;
}

void workloads_free(struct workloads *table)
{
        for (int i = 0; i < table->count; i++) {
                forget_listed(table->at[i]);
                free(table->at[i]);
        }
        *table = (struct workloads){0};
}

/* Which of `count` places is that of a workload's bytes: what plans of a search differ in. */
static int place_of(const struct work *w, int shards, int count)
{
        const unsigned values[] = {(unsigned)w->micro_batch_size,
                                   (unsigned)w->seq_len,
                                   (unsigned)w->recompute,
                                   (unsigned)shards,
                                   w->sequence_parallel,
                                   (unsigned)work_expert_ranks(w),
                                   (unsigned)work_context_ranks(w),
                                   w->cp_gathers,
                                   (unsigned)work_shards_x(w),
                                   (unsigned)work_shards_z(w),
                                   w->wide_gradients,
                                   (unsigned)w->logits_bytes};
        unsigned hash = 2166136261u; /* FNV-1a, by numbers */
        for (size_t i = 0; i < sizeof values / sizeof *values; i++)
                hash = (hash ^ values[i]) * 16777619u;
        return (int)((hash >> 8) % (unsigned)count);
}

/* What was derived of a workload. */
struct remembered {
        struct work work;
        int shards, model; /* 0: nothing yet */
        bool has_bytes, has_flops;
        struct workload_bytes bytes;
        double block_flops, dense_flops;
};

/* What a thread asked for lately, of one model: a search asks the same of some thousand programs a hundred
 * thousand times. */
static struct remembered *remember(const struct gpt *gpt, const struct work *work, int shards)
{
        enum { REMEMBERED = 8192 };
        static _Thread_local struct gpt model;
        static _Thread_local int models; /* that were asked for */
        static _Thread_local struct remembered memo[REMEMBERED];
        struct remembered *at = &memo[place_of(work, shards, REMEMBERED)];
        if (models == 0 || !gpt_same(&model, gpt)) {
                model = *gpt;
                models++;
        }
        if (at->model != models || at->shards != shards || !same_work(&at->work, work))
                *at = (struct remembered){.work = *work, .shards = shards, .model = models};
        return at;
}

struct workload_bytes workload_bytes(const struct gpt *gpt, const struct work *work, int shards)
{
        struct remembered *at = remember(gpt, work, shards);
        if (!at->has_bytes)
                at->bytes = derive_bytes(gpt, work, shards);
        at->has_bytes = true;
        return at->bytes;
}

/* ---- lists of kernels ---- */

/* The list under construction; `out` may be NULL. */
struct list {
        struct kernel *out;
        int count;
        enum dtype dtype;
        struct ahead ahead;
};

static struct list begin(const struct workload *w, struct kernel *out)
{
        return (struct list){.out = out, .dtype = w->work.dtype};
}

static void add(struct list *list, struct kernel kernel)
{
        ahead_count(&list->ahead, &kernel);
        if (list->out)
                list->out[list->count] = kernel;
        list->count++;
}

/* The steps [begin, end) for a chunk of rows after another. */
static void add_chunks(struct list *list, const struct workload *w, const struct program *p,
                       const struct steps *steps, int begin, int end)
{
        const int64_t N = (int64_t)w->work.micro_batch_size * w->work.seq_len;
        for (int64_t first = 0; first < N; first += w->loss_rows) {
                const int64_t left = N - first, rows = left < w->loss_rows ? left : w->loss_rows;
                for (int s = begin; s < end; s++)
                        add(list, program_kernel(p, &steps->at[s], list->dtype, rows));
        }
}

/* The kernels of a layer's pass, in order, from its steps. */
static void derive_pass(struct list *list, const struct workload *w, enum layer layer, enum layer_pass pass)
{
        const struct program *p = &w->program[layer];
        struct steps steps;
        workload_steps(w, layer, pass, &steps);
        for (int s = 0; s < steps.count; s++) {
                int end = s;
                while (w->loss_rows && end < steps.count && steps.at[end].chunked)
                        end++;
                if (end == s) {
                        add(list, program_kernel(p, &steps.at[s], list->dtype, 0));
                } else {
                        add_chunks(list, w, p, &steps, s, end);
                        s = end - 1;
                }
        }
}

/* What is listed of a pass, listed now if it was not yet. NULL: the workload is of no table, or there is no
 * memory. */
static const struct listed_pass *listed_pass(const struct workload *w, enum layer layer, enum layer_pass pass)
{
        struct listed_pass *listed = w->listed ? &w->listed[layer * LAYER_PASSES + pass] : NULL;
        if (!listed || listed->kernels)
                return listed;
        struct list list = begin(w, NULL);
        derive_pass(&list, w, layer, pass);
        const int count = list.count;
        listed->kernels = malloc((size_t)(count + 1) * sizeof *listed->kernels);
        if (!listed->kernels)
                return NULL;
        list = begin(w, listed->kernels);
        derive_pass(&list, w, layer, pass);
        listed->count = count;
        listed->ahead = list.ahead;
        return listed;
}

/* The kernels of a layer's pass, in order. */
static void add_pass(struct list *list, const struct workload *w, enum layer layer, enum layer_pass pass)
{
        const struct listed_pass *listed = listed_pass(w, layer, pass);
        if (!listed) {
                derive_pass(list, w, layer, pass);
                return;
        }
        if (list->out)
                memcpy(&list->out[list->count], listed->kernels, (size_t)listed->count * sizeof *list->out);
        list->count += listed->count;
        list->ahead.gathers += listed->ahead.gathers;
        list->ahead.scatters += listed->ahead.scatters;
}

/* As many layers of a kind; the list of one is copied. */
static void add_layers(struct list *list, const struct workload *w, enum layer layer, enum layer_pass pass,
                       int layers)
{
        const int first = list->count;
        const struct ahead before = list->ahead;
        if (layers == 0)
                return;
        add_pass(list, w, layer, pass);
        list->ahead.gathers += (layers - 1) * (list->ahead.gathers - before.gathers);
        list->ahead.scatters += (layers - 1) * (list->ahead.scatters - before.scatters);
        const int each = list->count - first;
        for (int i = 1; i < layers; i++) {
                if (list->out)
                        memcpy(&list->out[list->count], &list->out[first], (size_t)each * sizeof *list->out);
                list->count += each;
        }
}

/* The blocks of a stage, whose first ones may be dense. */
static void add_blocks(struct list *list, const struct workload *w, enum layer_pass pass,
                       const struct stage *stage)
{
        int dense = 0;
        while (dense < stage->layers && partition_layer(stage, dense) < w->dense)
                dense++;
        if (pass == PASS_FORWARD)
                add_layers(list, w, LAYER_DENSE, pass, dense);
        add_layers(list, w, LAYER_BLOCK, pass, stage->layers - dense);
        if (pass != PASS_FORWARD)
                add_layers(list, w, LAYER_DENSE, pass, dense);
}

/* Returns how many kernels are listed. */
static int end(const struct list *list, const struct workload *w)
{
        if (list->out)
                ahead_order(list->out, list->count, &w->work);
        return list->count + ahead_joins(&list->ahead, &w->work);
}

static int list_forward(const struct workload *w, const struct stage *stage, enum layer head,
                        struct kernel *out)
{
        struct list list = begin(w, out);
        assert(stage->shards == w->shards);
        if (stage->first)
                add_pass(&list, w, LAYER_EMBEDDING, PASS_FORWARD);
        add_blocks(&list, w, PASS_FORWARD, stage);
        if (stage->last)
                add_pass(&list, w, head, PASS_FORWARD);
        return end(&list, w);
}

int workload_list_forward(const struct workload *w, const struct stage *stage, struct kernel *out)
{
        return list_forward(w, stage, LAYER_HEAD, out);
}

int workload_list_backward(const struct workload *w, const struct stage *stage, enum kernel_part parts,
                           struct kernel *out)
{
        struct list list = begin(w, out);
        assert(stage->shards == w->shards);
        if (stage->last)
                add_pass(&list, w, LAYER_HEAD, (enum layer_pass)parts);
        add_blocks(&list, w, (enum layer_pass)parts, stage);
        if (stage->first)
                add_pass(&list, w, LAYER_EMBEDDING, (enum layer_pass)parts);
        return end(&list, w);
}

int workload_forward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                     bool loss_only, struct kernel *out)
{
        struct workload w;
        workload_init(&w, gpt, work, stage->shards);
        return list_forward(&w, stage, loss_only ? LAYER_VALIDATION : LAYER_HEAD, out);
}

int workload_backward(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                      struct kernel *out)
{
        return workload_backward_part(gpt, stage, work, PART_BOTH, out);
}

int workload_backward_part(const struct gpt *gpt, const struct stage *stage, const struct work *work,
                           enum kernel_part parts, struct kernel *out)
{
        struct workload w;
        workload_init(&w, gpt, work, stage->shards);
        return workload_list_backward(&w, stage, parts, out);
}

int workload_backward_max(const struct gpt *gpt, const struct stage *stage, const struct work *work)
{
        struct workload w;
        int max = 0;
        workload_init(&w, gpt, work, stage->shards);
        for (int parts = PART_INPUT; parts <= PART_BOTH; parts++) {
                int count = workload_list_backward(&w, stage, (enum kernel_part)parts, NULL);
                max = count > max ? count : max;
        }
        return max;
}

/* What it counts is a prefix of the stage's parameters: a last stage's own copy of a tied head is its last
 * tensor, and before it lies what all shards have, which the first of them counts. */
struct kernel workload_norm(const struct gpt *gpt, const struct stage *stage, enum dtype dtype)
{
        int64_t counted = partition_parameters(gpt, stage);
        if (gpt->tied && stage->last && !stage->first)
                counted -= partition_embedding(gpt, stage);
        if (stage->shard > 0)
                counted -= partition_replicated(gpt, stage, NULL);
        if (partition_expert_replica(stage) > 0)
                counted = partition_expert_parameters(gpt, stage);
        return (struct kernel){
                .kind = KERNEL_SQUARED_NORM, .dtype = (unsigned char)dtype, .batch = 1, .m = counted};
}

int workload_update(int64_t parameters, enum dtype dtype, bool fp32,
                    struct kernel out[WORKLOAD_UPDATE_KERNELS])
{
        struct kernel kernel = {.dtype = (unsigned char)dtype, .batch = 1, .m = parameters};
        struct list list = {.out = out};
        if (dtype != DTYPE_FP32 && !fp32) {
                kernel.kind = KERNEL_UNSCALE;
                add(&list, kernel);
        }
        kernel.kind = KERNEL_ADAMW;
        add(&list, kernel);
        return list.count;
}

struct kernel workload_overflow(int64_t parameters, enum dtype dtype, bool fp32)
{
        return (struct kernel){.kind = fp32 ? KERNEL_SQUARED_NORM : KERNEL_OVERFLOW,
                               .dtype = (unsigned char)(fp32 ? DTYPE_FP32 : dtype),
                               .batch = 1,
                               .m = parameters};
}

struct kernel workload_clear(int64_t parameters, enum dtype dtype)
{
        return (struct kernel){
                .kind = KERNEL_CLEAR, .dtype = (unsigned char)dtype, .batch = 1, .m = parameters};
}

struct kernel workload_add_gradients(int64_t parameters, enum dtype dtype)
{
        return (struct kernel){
                .kind = KERNEL_RESIDUAL, .dtype = (unsigned char)dtype, .batch = 1, .m = parameters, .n = 1};
}

/* In rows, which threads share; the last kernel has what is left. */
int workload_copy_gradients(int64_t parameters, enum dtype dtype, struct kernel out[WORKLOAD_COPY_KERNELS])
{
        enum { COLUMNS = 1024 };
        const int64_t rows[] = {parameters / COLUMNS, 1}, columns[] = {COLUMNS, parameters % COLUMNS};
        struct list list = {.out = out};
        for (int i = 0; i < WORKLOAD_COPY_KERNELS; i++)
                if (rows[i] * columns[i] > 0)
                        add(&list, (struct kernel){.kind = KERNEL_NARROW,
                                                   .dtype = (unsigned char)dtype,
                                                   .batch = 1,
                                                   .m = rows[i],
                                                   .n = columns[i],
                                                   .k = columns[i]});
        return list.count;
}

static double flops_of(const struct program *program, const struct steps *steps)
{
        double flops = 0;
        for (int s = 0; s < steps->count; s++) {
                const struct kernel kernel = program_kernel(program, &steps->at[s], DTYPE_FP32, 0);
                flops += kernel_flops(&kernel);
        }
        return flops;
}

/* Of a block on its own, forward and backward. */
static double block_flops(const struct gpt *gpt, enum layer layer, const struct work *work)
{
        struct program block;
        struct steps backward;
        derive(&block, layer, gpt, work, 1);
        program_list_backward(&block, work_recomputation(work), PART_BOTH, &backward);
        return flops_of(&block, &block.forward) + flops_of(&block, &backward);
}

int workload_balanced(const struct gpt *gpt, const struct work *work, int stages, int least)
{
        struct work whole = *work;
        whole.tp = whole.tp_x = whole.tp_z = 1;
        whole.sequence_parallel = false;
        const double tokens = (double)work->micro_batch_size * work->seq_len;
        const double head = 6 * tokens * gpt->n_embd * gpt->vocab_size;
        struct remembered *at = remember(gpt, &whole, 1);
        if (!at->has_flops) {
                at->block_flops = block_flops(gpt, LAYER_BLOCK, &whole);
                at->dense_flops = gpt->n_dense ? block_flops(gpt, LAYER_DENSE, &whole) : at->block_flops;
                at->has_flops = true;
        }
        const double block = at->block_flops, dense = at->dense_flops - block; /* more */
        const int max = gpt->n_layer - (stages - 1);
        int best = max;
        double min = INFINITY;
        assert(2 <= stages && stages <= gpt->n_layer);
        for (int last = max; last >= least; last--) {
                const int others = gpt->n_layer - last, other = (others + stages - 2) / (stages - 1);
                const double first = other * block + min_int(gpt->n_dense, other) * dense; /* the most */
                const double end = last * block + max_int(gpt->n_dense - others, 0) * dense + head;
                const double longest = fmax(fmax(first, stages > 2 ? other * block : 0), end);
                if (longest < min) {
                        min = longest;
                        best = last;
                }
        }
        return best;
}
