#include "runtime/nn/exec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static const struct program *program_of(const struct nn_exec *e, enum layer layer)
{
        return &e->workload.program[layer];
}

/* Parameters and their gradients, by the first of the layer's tensors that lie in them. */
static void number_parameters(const struct program *p, int ordinal[PROGRAM_VALUES])
{
        for (int tensor = p->tensor_count - 1; tensor >= 0; tensor--) {
                const int value = p->tensors[tensor].value;
                ordinal[value] = ordinal[p->values[value].gradient] = tensor;
        }
}

/* Where `offset` says that a value of a list lies, all that are made of one another in it lie. */
static void spread(const struct placement *place, int count, int64_t offset[PROGRAM_VALUES])
{
        for (int value = 0; value < count; value++)
                for (int other = 0; offset[value] >= 0 && other < count; other++)
                        if (place->store[other] == place->store[value])
                                offset[other] = offset[value];
}

static void spread_deferral(const struct placement *place, int count, struct deferral *d)
{
        const struct deferral found = *d;
        for (int value = 0; value < count; value++)
                for (int other = 0; found.left[value] && other < count; other++)
                        if (place->store[other] == place->store[value]) {
                                d->left[other] = true;
                                d->lent[other] = found.lent[value];
                                d->offset[other] = found.offset[value];
                        }
}

static void make_list(struct nn_exec *e, enum layer layer, enum layer_pass pass)
{
        struct exec_list *list = &e->list[pass][layer];
        list->program = program_of(e, layer);
        workload_steps(&e->workload, layer, pass, &list->steps);
        for (int s = 0; s < list->steps.count; s++) {
                const struct step *step = &list->steps.at[s];
                list->collectives += kernel_collective(step->kind);
                list->kernel[s] = program_kernel(list->program, step, e->workload.work.dtype, 0);
        }
        workload_place(&e->workload, layer, pass, &list->steps, &list->place);
}

static void make_layer(struct nn_exec *e, enum layer layer, bool parted)
{
        const struct program *p = program_of(e, layer);
        bool set[PROGRAM_VALUES];
        number_parameters(p, e->ordinal[layer]);
        make_list(e, layer, PASS_FORWARD);
        workload_slot(&e->workload, layer, set, e->kept[layer]);
        spread(&e->list[PASS_FORWARD][layer].place, p->value_count, e->kept[layer]);
        if (layer == LAYER_VALIDATION)
                return;
        make_list(e, layer, PASS_BACKWARD);
        if (!parted)
                return;
        make_list(e, layer, PASS_INPUT);
        make_list(e, layer, PASS_WEIGHT);
        if (layer_is_block(layer)) {
                int64_t bytes;
                e->freed[layer] = workload_freed(&e->workload, layer, &bytes);
                workload_deferral(&e->workload, layer, &e->deferral[layer]);
                spread_deferral(&e->list[PASS_INPUT][layer].place, p->value_count, &e->deferral[layer]);
        }
}

struct nn_exec *exec_new(const struct nn_stage *nn)
{
        struct nn_exec *e = calloc(1, sizeof *e);
        if (!e)
                return NULL;
        workload_init(&e->workload, &nn->gpt, &nn->plan.work, nn->stage.shards);
        memset(e->kept, -1, sizeof e->kept); /* every one */
        const int dense = partition_dense(&nn->gpt, &nn->stage);
        const bool has[LAYERS] = {[LAYER_EMBEDDING] = nn->stage.first,
                                  [LAYER_DENSE] = dense > 0,
                                  [LAYER_BLOCK] = nn->stage.layers > dense,
                                  [LAYER_HEAD] = nn->stage.last,
                                  [LAYER_VALIDATION] = nn->stage.last};
        for (int layer = 0; layer < LAYERS; layer++)
                if (has[layer])
                        make_layer(e, (enum layer)layer, nn->plan.deferred > 0);
        return e;
}

/* ---- operands ---- */

/* Which element of flat buffers such as weights is the first of a layer's tensor. */
static int64_t tensor_begin(const struct nn_stage *nn, const struct exec_frame *f, int ordinal)
{
        const enum layer layer = f->layer == LAYER_VALIDATION ? LAYER_HEAD : f->layer;
        return nn->pass_offsets[partition_tensor(&nn->gpt, &nn->stage, layer, f->block, ordinal)];
}

static void *gradient(const struct nn_stage *nn, int64_t element)
{
        return nn->plan.work.wide_gradients ? (real *)nn->pass_gradients + element
                                            : nn_at(nn, nn->pass_gradients, element);
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
        const struct deferral *d = &e->deferral[f->layer];
        assert(f->deferred && d->left[store]);
        return (d->lent[store] ? f->lent : f->deferred) + d->offset[store];
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
                return nn_at(nn, nn->pass_weights, tensor_begin(nn, f, e->ordinal[f->layer][store]));
        case ROLE_GRADIENT:
                return gradient(nn, tensor_begin(nn, f, e->ordinal[f->layer][store]));
        case ROLE_NUMBER:
                return &nn->scalars[NN_LOSS];
        case ROLE_FLOW:
                return flow(e, f, store);
        case ROLE_INPUT:
                if (f->list->program->values[store].type != OPERAND_TOKENS)
                        return (void *)f->x;
                return (f->layer == LAYER_EMBEDDING ? nn->tokens : nn->targets) +
                       f->micro_batch * rows_of(nn);
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
        return type == OPERAND_TOKENS || type == OPERAND_INDEX ? (int64_t)sizeof(int32_t)
               : type == OPERAND_REAL                          ? (int64_t)sizeof(real)
                                                               : work_element_bytes(&nn->plan.work);
}

/* Elements from one index of `axis` to the next. */
static int64_t stride_of(const struct program *p, int value, int axis)
{
        const int last = p->values[value].axes - 1;
        int64_t stride = axis < last ? program_pitch(p, value) : 1;
        for (int inner = axis + 1; inner < last; inner++)
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
        return (p->values[value].state == STATE_ROWS ? first / p->shards : first) * stride_of(p, value, 1);
}

/* The one that a view picks: by its number, or as the rank so many before this one. */
static int64_t index_of(const struct nn_stage *nn, const struct program *p, const struct view *view)
{
        if (!p->values[view->value].of_ranks)
                return view->at;
        return (nn->stage.context_rank - view->at + p->context_ranks) % p->context_ranks;
}

static void *operand(const struct nn_stage *nn, const struct exec_frame *f, const struct view *view,
                     int64_t first)
{
        const struct program *p = f->list->program;
        if (view->value < 0)
                return NULL;
        int64_t element = first_element(f, view->value, first);
        if (view->picked >= 0)
                element += index_of(nn, p, view) * stride_of(p, view->value, view->picked);
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

/* Which of a product's a, b and c an operand is; -1: none. */
static int place_in_product(enum operand_extent extent)
{
        switch (extent) {
        case EXTENT_MK:
                return 0;
        case EXTENT_KN:
        case EXTENT_EKN:
                return 1;
        case EXTENT_MN:
        case EXTENT_EMN:
                return 2;
        default:
                return -1;
        }
}

static void product_arguments(const struct program *p, const struct step *step, struct kernel_args *args)
{
        const struct kernel_operand *operands = kernel_descriptor(step->kind)->operands;
        args->inner = 1;
        for (int i = 0; i < KERNEL_OPERANDS && operands[i].name; i++) {
                const struct view *view = &step->view[i];
                const int at = place_in_product(operands[i].extent);
                if (at < 0)
                        continue;
                args->ld[at] = leading_dimension(p, view);
                if (operands[i].extent == EXTENT_EKN || operands[i].extent == EXTENT_EMN) {
                        args->stride[at][0] = stride_of(p, view->value, last_axis(view->batch));
                        continue;
                }
                if (!view->batch)
                        continue;
                const int inner = last_axis(view->batch), outer = last_axis(view->batch & ~(1U << inner));
                args->inner = program_axis(p, view->value, inner);
                args->stride[at][0] = stride_of(p, view->value, outer);
                args->stride[at][1] = stride_of(p, view->value, inner);
        }
}

/* Tokens' positions: with parts of sequences, of two pieces, the second of which counts from the end. */
static void position_arguments(const struct nn_stage *nn, struct kernel_args *args)
{
        const int64_t piece = nn->plan.work.seq_len / 2, rank = nn->stage.context_rank;
        args->ld[0] = nn->plan.work.seq_len;
        args->stride[0][0] = rank * piece;
        args->stride[0][1] = (2 * work_context_ranks(&nn->plan.work) - 2 - rank) * piece;
}

static void embedding_arguments(const struct nn_stage *nn, bool backward, struct kernel_args *args)
{
        const bool scattered = nn->exec->workload.program[LAYER_BLOCK].sequence_parallel;
        position_arguments(nn, args);
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

static void loss_arguments(const struct nn_stage *nn, const struct program *p, const struct step *step,
                           struct kernel_args *args)
{
        enum { LOSS, LOGITS, TARGETS, NUMBERS };
        const int64_t N = rows_of(nn), first = partition_first_token(&nn->gpt, &nn->stage);
        const int64_t V = partition_vocabulary(&nn->gpt, &nn->stage), left = nn->gpt.vocab_size - first;
        args->scalar[0] = nn->loss_scale;
        args->stride[0][1] = program_pitch(p, step->view[LOGITS].value);
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
        memcpy(args->scalar, step->scalar, sizeof step->scalar);
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
        case KERNEL_ROPE:
                position_arguments(nn, args);
                args->inner = step->heads / p->shards * kernel->k;
                break;
        case KERNEL_HEAD_RMSNORM:
        case KERNEL_HEAD_RMSNORM_BACKWARD:
                args->ld[0] = step->heads / p->shards * kernel->k;
                args->inner = (kernel->n + args->ld[0]) / 2;
                break;
        case KERNEL_LATENT_QKV:
        case KERNEL_LATENT_QKV_BACKWARD:
                position_arguments(nn, args);
                args->inner = step->heads / p->shards;
                break;
        case KERNEL_EXPERT_ENDS:
                args->ld[0] = kernel->m * nn->stage.expert_rank;
                args->ld[1] = kernel->m * kernel->k;
                break;
        case KERNEL_ROUTE_BACKWARD: /* the sum of all shards' results has the balancing loss once */
                args->scalar[3] *= nn->loss_scale / p->shards;
                break;
        case KERNEL_ATTENTION:
        case KERNEL_ATTENTION_BACKWARD:
        case KERNEL_CONTEXT_ATTENTION:
        case KERNEL_CONTEXT_ATTENTION_BACKWARD:
                args->ld[2] = nn->stage.context_rank < (int)step->scalar[1]; /* of a rank behind this one */
                args->inner = kernel->batch / nn->plan.work.micro_batch_size;
                break;
        case KERNEL_CROSS_ENTROPY:
        case KERNEL_CROSS_ENTROPY_LOSS:
                loss_arguments(nn, p, step, args);
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
                rows ? program_kernel(f->list->program, step, nn->plan.work.dtype, rows) : f->list->kernel[s];
        struct kernel_args args = {0};
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                args.p[i] = operand(nn, f, &step->view[i], first);
        set_arguments(nn, f, step, &kernel, &args);
        nn->device->ops->launch(nn->device, &kernel, &args);
}

static struct nn_collective collective_of(const struct nn_stage *nn, const struct exec_frame *f, int s)
{
        const struct program *p = f->list->program;
        const struct step *step = &f->list->steps.at[s];
        const struct kernel *kernel = &f->list->kernel[s];
        if (step->kind == KERNEL_JOIN) /* which is about no memory */
                return (struct nn_collective){.kind = step->kind};
        void *out = operand(nn, f, &step->view[0], step->first),
             *in = operand(nn, f, &step->view[1], step->first);
        const bool shifts = step->kind == KERNEL_CONTEXT_SHIFT;
        const bool of_rows = step->kind == KERNEL_TENSOR_REDUCE_SCATTER || program_gathers_rows(p, step);
        const bool scatters =
                step->kind == KERNEL_TENSOR_REDUCE_SCATTER || step->kind == KERNEL_CONTEXT_REDUCE_SCATTER;
        return (struct nn_collective){.kind = step->kind,
                                      .all_ends = shifts ? NULL : operand(nn, f, &step->view[2], 0),
                                      .width = kernel->n,
                                      .capacity = p->values[step->view[0].value].capacity,
                                      .pieces = of_rows && !step->rows ? program_pieces(p, kernel->m) : 1,
                                      .all = scatters ? in : out,
                                      .own = out == in  ? NULL
                                             : scatters ? out
                                                        : in,
                                      .elements = kernel->m * kernel->n,
                                      .beside = step->beside,
                                      .all_too = shifts ? operand(nn, f, &step->view[2], 0) : NULL,
                                      .own_too = shifts ? operand(nn, f, &step->view[3], 0) : NULL,
                                      .dtype = (enum dtype)kernel->dtype};
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
                                *nn->collective = collective_of(nn, frame, s);
                                pass->stopped = true;
                        }
                        pass->at++;
                        s++;
                } else if (step->chunked && nn->exec->workload.loss_rows) {
                        s = run_chunks(nn, frame, s);
                } else {
                        if (pass->at == nn->segment)
                                launch(nn, frame, s, step->first, 0);
                        s++;
                }
        }
}
