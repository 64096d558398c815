#include "runtime/nn/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static const struct program *program_of(const struct nn_exec *e, enum exec_layer layer)
{
        return layer == EXEC_EMBEDDING ? &e->workload.embedding
               : layer == EXEC_BLOCK   ? &e->workload.block
               : layer == EXEC_HEAD    ? &e->workload.head
                                       : &e->validation;
}

/* Parameters and their gradients, in the order in which the family made them. */
static void number_parameters(const struct program *p, int ordinal[PROGRAM_VALUES])
{
        int count = 0;
        for (int value = 0; value < p->value_count; value++)
                if (p->values[value].role == ROLE_PARAMETER)
                        ordinal[value] = ordinal[p->values[value].gradient] = count++;
}

/* Where `offset` says that a value of a list lies, all that are made of one another in it lie. */
static void spread(const struct placement *place, int count, int64_t offset[PROGRAM_VALUES])
{
        for (int value = 0; value < count; value++)
                for (int other = 0; offset[value] >= 0 && other < count; other++)
                        if (place->store[other] == place->store[value])
                                offset[other] = offset[value];
}

static void finish_list(struct nn_exec *e, struct exec_list *list, const struct program *p,
                        const bool fixed[PROGRAM_VALUES])
{
        list->program = p;
        list->collectives = 0;
        for (int s = 0; s < list->steps.count; s++) {
                const struct step *step = &list->steps.at[s];
                list->collectives += kernel_collective(step->kind);
                list->kernel[s] = program_kernel(p, step, work_format(&e->workload.work), 0);
        }
        program_place(p, &list->steps, fixed, e->workload.loss_rows, e->workload.work.element_bytes,
                      &list->place);
        if (list->place.bytes > e->bytes)
                e->bytes = list->place.bytes;
}

/* Where the loss is made in chunks, a training's forward leaves that to its backward. */
static void list_forward(struct nn_exec *e, enum exec_layer layer)
{
        const struct program *p = program_of(e, layer);
        struct exec_list *list = &e->forward[layer];
        for (int s = 0; s < p->forward.count; s++)
                if (!p->forward.at[s].chunked || !e->workload.loss_rows || layer == EXEC_VALIDATION)
                        program_add_step(&list->steps, p->forward.at[s]);
}

static void list_backward(struct nn_exec *e, enum exec_layer layer, enum kernel_part parts)
{
        const struct program *p = program_of(e, layer);
        struct exec_list *list = &e->backward[parts][layer];
        struct steps all;
        const bool chunks = e->workload.loss_rows && layer == EXEC_HEAD;
        const enum recompute recompute =
                layer == EXEC_BLOCK ? work_recomputation(&e->workload.work) : RECOMPUTE_NONE;
        bool fixed[PROGRAM_VALUES] = {false};
        for (int s = 0; chunks && parts & PART_INPUT && s < p->forward.count; s++)
                if (p->forward.at[s].chunked)
                        program_add_step(&list->steps, p->forward.at[s]);
        for (int s = 0; chunks && parts & PART_INPUT && s < p->backward.count; s++)
                if (p->backward.at[s].chunked)
                        program_add_step(&list->steps, p->backward.at[s]);
        program_list_backward(p, recompute, parts, &all);
        for (int s = 0; s < all.count; s++)
                if (!chunks || !all.at[s].chunked)
                        program_add_step(&list->steps, all.at[s]);
        if (parts != PART_BOTH && layer == EXEC_BLOCK)
                program_deferred(p, fixed);
        if (p->output_gradient >= 0)
                fixed[p->output_gradient] = true;
        if (p->input_gradient >= 0)
                fixed[p->input_gradient] = true;
        finish_list(e, list, p, fixed);
}

/* What a slot holds of a layer, and where. */
static void place_kept(struct nn_exec *e, enum exec_layer layer, bool kept[PROGRAM_VALUES])
{
        const struct program *p = program_of(e, layer);
        const enum recompute recompute =
                layer == EXEC_BLOCK ? work_recomputation(&e->workload.work) : RECOMPUTE_NONE;
        program_kept(p, recompute, e->workload.loss_rows > 0, kept);
        program_bytes(p, kept, e->workload.work.element_bytes, e->kept[layer]);
}

/* A validation's logits lie where a training's do, whose program begins as its own does. */
static void place_validation(struct nn_exec *e, bool kept[PROGRAM_VALUES])
{
        const struct program *trained = &e->workload.head, *p = &e->validation;
        for (int value = 0; value < p->value_count; value++) {
                if (strcmp(p->values[value].name, trained->values[value].name) == 0)
                        e->kept[EXEC_VALIDATION][value] = e->kept[EXEC_HEAD][value];
                kept[value] = e->kept[EXEC_VALIDATION][value] >= 0;
        }
}

static void list_layer(struct nn_exec *e, enum exec_layer layer, bool parted)
{
        const struct program *p = program_of(e, layer);
        bool kept[PROGRAM_VALUES] = {false};
        number_parameters(p, e->ordinal[layer]);
        list_forward(e, layer);
        if (layer == EXEC_VALIDATION)
                place_validation(e, kept);
        else
                place_kept(e, layer, kept);
        finish_list(e, &e->forward[layer], p, kept);
        spread(&e->forward[layer].place, p->value_count, e->kept[layer]);
        if (layer == EXEC_VALIDATION)
                return;
        list_backward(e, layer, PART_BOTH);
        if (parted) {
                list_backward(e, layer, PART_INPUT);
                list_backward(e, layer, PART_WEIGHT);
        }
}

/* Whether what a slot has of each layer, and a deferred buffer of each block, is what was allocated. */
static bool fits_layout(const struct nn_exec *e, const struct memory_layout *l)
{
        const int element_bytes = e->workload.work.element_bytes;
        const bool chunked = e->workload.loss_rows > 0;
        bool set[PROGRAM_VALUES];
        program_kept(&e->workload.block, work_recomputation(&e->workload.work), chunked, set);
        bool fits = program_bytes(&e->workload.block, set, element_bytes, NULL) == l->block;
        program_deferred(&e->workload.block, set);
        fits = fits && (e->workload.block.shards > 1 ||
                        program_bytes(&e->workload.block, set, element_bytes, NULL) == l->deferred_block);
        program_kept(&e->workload.embedding, RECOMPUTE_NONE, chunked, set);
        fits = fits && (!l->embedded ||
                        program_bytes(&e->workload.embedding, set, element_bytes, NULL) == l->embedded);
        program_kept(&e->workload.head, RECOMPUTE_NONE, chunked, set);
        return fits && (!l->final_ln || program_bytes(&e->workload.head, set, element_bytes, NULL) ==
                                                l->final_ln + l->final_stats + l->logits);
}

struct nn_exec *exec_new(const struct nn_stage *nn)
{
        struct nn_exec *e = calloc(1, sizeof *e);
        bool deferred[PROGRAM_VALUES];
        if (!e)
                return NULL;
        workload_init(&e->workload, &nn->gpt, &nn->plan.work, nn->stage.shards);
        workload_validation(&e->validation, &nn->gpt, &nn->plan.work, nn->stage.shards);
        memset(e->kept, -1, sizeof e->kept); /* every one */
        memset(e->deferred, -1, sizeof e->deferred);
        assert(fits_layout(e, &nn->layout));
        for (int layer = 0; layer < EXEC_LAYERS; layer++)
                if (layer == EXEC_BLOCK || (layer == EXEC_EMBEDDING ? nn->stage.first : nn->stage.last))
                        list_layer(e, (enum exec_layer)layer, nn->plan.deferred > 0);
        if (nn->plan.deferred > 0) {
                const struct program *block = &e->workload.block;
                program_deferred(block, deferred);
                program_bytes(block, deferred, e->workload.work.element_bytes, e->deferred);
                spread(&e->backward[PART_INPUT][EXEC_BLOCK].place, block->value_count, e->deferred);
        }
        return e;
}

/* ---- operands ---- */

static void *parameter(const struct nn_stage *nn, const struct exec_frame *f, void *flat, int ordinal)
{
        int tensor = partition_block_tensor(&nn->stage, f->block, (enum tensor_role)0) + ordinal;
        if (f->layer == EXEC_EMBEDDING)
                tensor = partition_wte(&nn->stage) + ordinal;
        else if (f->layer != EXEC_BLOCK)
                tensor = ordinal < 2 ? partition_lnf_weight(&nn->stage) + ordinal
                                     : partition_head(&nn->gpt, &nn->stage);
        return nn_at(nn, flat, nn->tensors[tensor].offset);
}

static int64_t rows_of(const struct nn_stage *nn)
{
        return (int64_t)nn->plan.work.micro_batch_size * nn->plan.work.seq_len;
}

/* Gradients that the list does not make: the layer's output's, its input's, or what the first part left. */
static void *flow(const struct nn_exec *e, const struct exec_frame *f, int store)
{
        const struct program *p = f->list->program;
        const short *stores = f->list->place.store;
        if (p->output_gradient >= 0 && store == stores[p->output_gradient])
                return f->output_gradient;
        if (p->input_gradient >= 0 && store == stores[p->input_gradient])
                return f->input_gradient;
        assert(f->deferred && e->deferred[store] >= 0);
        return f->deferred + e->deferred[store];
}

/* Where a value begins. */
static void *locate(const struct nn_stage *nn, const struct exec_frame *f, int value)
{
        const struct nn_exec *e = nn->exec;
        const int store = f->list->place.store[value];
        if (f->list->place.offset[store] >= 0)
                return e->workspace + f->list->place.offset[store];
        switch (f->list->program->values[store].role) {
        case ROLE_PARAMETER:
                return parameter(nn, f, nn->weights, e->ordinal[f->layer][store]);
        case ROLE_GRADIENT:
                return parameter(nn, f, nn->gradients, e->ordinal[f->layer][store]);
        case ROLE_NUMBER:
                return &nn->scalars[NN_LOSS];
        case ROLE_FLOW:
                return flow(e, f, store);
        case ROLE_INPUT:
                if (f->list->program->values[store].type != OPERAND_TOKENS)
                        return (void *)f->x;
                return (f->layer == EXEC_EMBEDDING ? nn->tokens : nn->targets) + f->micro_batch * rows_of(nn);
        default:
                assert(e->kept[f->layer][store] >= 0);
                return f->slot + e->kept[f->layer][store];
        }
}

void *exec_output(const struct nn_exec *e, const struct exec_frame *f)
{
        return f->slot + e->kept[f->layer][program_of(e, f->layer)->output];
}

static int64_t element_bytes(const struct nn_stage *nn, enum operand_type type)
{
        return type == OPERAND_TOKENS ? (int64_t)sizeof(int32_t)
               : type == OPERAND_REAL ? (int64_t)sizeof(real)
                                      : nn->plan.work.element_bytes;
}

/* Elements from one index of `axis` to the next. */
static int64_t stride_of(const struct program *p, int value, int axis)
{
        int64_t stride = 1;
        for (int inner = axis + 1; inner < p->values[value].axes; inner++)
                stride *= program_axis(p, value, inner);
        return stride;
}

/* Of a chunk of rows from `first` on, where the value has all of them. */
static int64_t first_element(const struct exec_frame *f, int value, int64_t first)
{
        const struct program *p = f->list->program;
        const enum value_role role = p->values[value].role;
        const bool rows = role == ROLE_INPUT || role == ROLE_ACTIVATION || role == ROLE_FLOW;
        if (first == 0 || !rows || f->list->place.rows[f->list->place.store[value]])
                return 0;
        return first * stride_of(p, value, 1);
}

static void *operand(const struct nn_stage *nn, const struct exec_frame *f, const struct view *view,
                     int64_t first)
{
        const struct program *p = f->list->program;
        if (view->value < 0)
                return NULL;
        int64_t element = first_element(f, view->value, first);
        if (view->picked >= 0)
                element += view->at * stride_of(p, view->value, view->picked);
        return (char *)locate(nn, f, view->value) + element * element_bytes(nn, p->values[view->value].type);
}

/* The last axis of a set, and the one before it; -1: there is none. */
static int last_axis(unsigned set)
{
        int axis = -1;
        for (; set; set >>= 1)
                axis++;
        return axis;
}

/* Elements between the rows of a matrix as it is stored. */
static int64_t leading_dimension(const struct program *p, const struct view *view)
{
        return stride_of(p, view->value, last_axis(view->rows < view->cols ? view->rows : view->cols));
}

/* ---- arguments: kernels.h says how operands are packed ---- */

static void product_arguments(const struct program *p, const struct step *step, struct kernel_args *args)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        args->inner = 1;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const struct view *view = &step->view[i];
                const int at = operands[i].extent == EXTENT_MK   ? 0
                               : operands[i].extent == EXTENT_KN ? 1
                               : operands[i].extent == EXTENT_MN ? 2
                                                                 : -1;
                if (at < 0)
                        continue;
                args->ld[at] = leading_dimension(p, view);
                if (!view->batch)
                        continue;
                const int inner = last_axis(view->batch), outer = last_axis(view->batch & ~(1U << inner));
                args->inner = program_axis(p, view->value, inner);
                args->stride[at][0] = stride_of(p, view->value, outer);
                args->stride[at][1] = stride_of(p, view->value, inner);
        }
}

static void embedding_arguments(const struct nn_stage *nn, bool backward, struct kernel_args *args)
{
        const bool scattered = nn->exec->workload.block.sequence_parallel;
        args->ld[0] = nn->plan.work.seq_len;
        if (nn->stage.shards == 1)
                return;
        args->ld[1] = partition_first_token(&nn->gpt, &nn->stage);
        args->ld[2] = partition_vocabulary(&nn->gpt, &nn->stage);
        /* Positions count once in the sum of all shards; of their gradients, where that is a sum too. */
        if (nn->stage.shard > 0 && !backward)
                args->p[3] = NULL;
        if (nn->stage.shard > 0 && backward && scattered)
                args->p[1] = NULL;
}

static void loss_arguments(const struct nn_stage *nn, const struct step *step, struct kernel_args *args)
{
        enum { LOSS, LOGITS, TARGETS, NUMBERS };
        const int64_t N = rows_of(nn), first = partition_first_token(&nn->gpt, &nn->stage);
        const int64_t V = partition_vocabulary(&nn->gpt, &nn->stage), left = nn->gpt.vocab_size - first;
        args->scalar[0] = nn->loss_scale;
        if (step->view[NUMBERS].value < 0)
                return;
        args->ld[2] = N;
        args->inner = nn->stage.shards;
        if (step->view[LOGITS].value == step->view[NUMBERS].value) { /* the loss of the numbers alone */
                args->p[LOGITS] = args->p[TARGETS] = NULL;
                return;
        }
        args->ld[0] = first;
        args->stride[0][0] = left < V ? left : V;
        if (step->view[LOSS].value < 0) { /* this shard's numbers */
                args->p[NUMBERS] = (real *)args->p[NUMBERS] + 3 * N * nn->stage.shard;
                args->inner = 1;
        }
}

static void set_arguments(const struct nn_stage *nn, const struct exec_frame *f, const struct step *step,
                          const struct kernel *kernel, struct kernel_args *args)
{
        const struct program *p = f->list->program;
        if (kernel_descriptor(step->kind)->products == 1)
                product_arguments(p, step, args);
        switch (step->kind) {
        case KERNEL_EMBEDDING:
        case KERNEL_EMBEDDING_BACKWARD:
                embedding_arguments(nn, step->kind == KERNEL_EMBEDDING_BACKWARD, args);
                break;
        case KERNEL_LAYERNORM:
        case KERNEL_LAYERNORM_BACKWARD:
                args->ld[0] = kernel->m;
                break;
        case KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM:
                args->stride[0][0] = kernel->m;
                break;
        case KERNEL_BIAS_RESIDUAL:
                if (!args->p[1]) /* a sum of two */
                        args->p[1] = nn->zeros;
                break;
        case KERNEL_SOFTMAX:
        case KERNEL_SOFTMAX_BACKWARD:
                args->scalar[0] = step->scale;
                break;
        case KERNEL_ATTENTION:
        case KERNEL_ATTENTION_BACKWARD:
                args->scalar[0] = step->scale;
                args->inner = nn->gpt.n_head / nn->stage.shards;
                break;
        case KERNEL_CROSS_ENTROPY:
        case KERNEL_CROSS_ENTROPY_LOSS:
                loss_arguments(nn, step, args);
                break;
        default:
                break;
        }
}

/* ---- running ---- */

/* A step, of all rows of tokens, or of `rows` from `first` on. */
static void launch(const struct nn_stage *nn, const struct exec_frame *f, int s, int64_t first, int64_t rows)
{
        const struct step *step = &f->list->steps.at[s];
        const struct kernel kernel =
                rows ? program_kernel(f->list->program, step, work_format(&nn->plan.work), rows)
                     : f->list->kernel[s];
        struct kernel_args args = {0};
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                args.p[i] = operand(nn, f, &step->view[i], first);
        set_arguments(nn, f, step, &kernel, &args);
        nn->device->ops->launch(nn->device, &kernel, &args);
}

static struct nn_together together(const struct nn_stage *nn, const struct exec_frame *f, int s)
{
        const struct step *step = &f->list->steps.at[s];
        const struct kernel *kernel = &f->list->kernel[s];
        void *out = operand(nn, f, &step->view[0], 0), *in = operand(nn, f, &step->view[1], 0);
        const bool scatters = step->kind == KERNEL_TENSOR_REDUCE_SCATTER;
        return (struct nn_together){.kind = step->kind,
                                    .all = scatters ? in : out,
                                    .own = out == in  ? NULL
                                           : scatters ? out
                                                      : in,
                                    .elements = kernel->m * kernel->n,
                                    .half = (enum half)kernel->half};
}

/* The steps from the first chunked one on, for a chunk of rows after another. Returns the step behind them.
 */
static int run_chunks(const struct nn_stage *nn, const struct exec_frame *f, int begin)
{
        const struct steps *steps = &f->list->steps;
        const int64_t N = rows_of(nn), each = nn->exec->workload.loss_rows;
        int end = begin;
        while (end < steps->count && steps->at[end].chunked)
                end++;
        for (int64_t first = 0; first < N; first += each)
                for (int s = begin; s < end; s++)
                        launch(nn, f, s, first, each < N - first ? each : N - first);
        return end;
}

void exec_run(struct nn_stage *nn, struct exec_pass *pass, const struct exec_frame *frame)
{
        const struct exec_list *list = frame->list;
        if (pass->stopped)
                return;
        if (pass->at + list->collectives < nn->segment) {
                pass->at += list->collectives;
                return;
        }
        for (int s = 0; s < list->steps.count && !pass->stopped;) {
                const struct step *step = &list->steps.at[s];
                if (kernel_collective(step->kind)) {
                        if (pass->at == nn->segment) {
                                *nn->together = together(nn, frame, s);
                                pass->stopped = true;
                        }
                        pass->at++;
                        s++;
                } else if (step->chunked && nn->exec->workload.loss_rows) {
                        s = run_chunks(nn, frame, s);
                } else {
                        if (pass->at == nn->segment)
                                launch(nn, frame, s, 0, 0);
                        s++;
                }
        }
}
