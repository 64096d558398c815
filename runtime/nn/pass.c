/* Forward and backward of a micro-batch: the layers of a stage, one after another. */
#include "runtime/nn/exec.h"

#include <assert.h>

/* What is launched between them may be handed to the device together. */
static void group_begin(struct device *device)
{
        if (device->ops->begin_group)
                device->ops->begin_group(device);
}

static void group_end(struct device *device)
{
        if (device->ops->end_group)
                device->ops->end_group(device);
}

/* Which block of its chunk a stage's block is. */
static int place_in_chunk(const struct nn_stage *nn, int block)
{
        return block - partition_chunk_begin(&nn->stage, partition_chunk_of(&nn->stage, block));
}

/* A slot holds: the embedding if it can be the model's first chunk's, block after block, then what the last
 * chunk stores if it can be that one's. */
static char *slot_part(const struct nn_stage *nn, int slot, int place)
{
        const struct memory_layout *l = &nn->layout;
        const bool embedded = nn->stage.chunks == 1 || slot < nn->plan.embedded_slots;
        return (char *)nn->slots[slot] + (embedded ? l->embedded : 0) + place * l->block;
}

static struct exec_frame embedding_frame(const struct nn_stage *nn, int micro_batch, int slot)
{
        return (struct exec_frame){
                .layer = LAYER_EMBEDDING, .slot = nn->slots[slot], .micro_batch = micro_batch};
}

static enum layer kind_of(const struct nn_stage *nn, int block)
{
        return block < partition_dense(&nn->gpt, &nn->stage) ? LAYER_DENSE : LAYER_BLOCK;
}

static struct exec_frame block_frame(const struct nn_stage *nn, int block, int slot)
{
        return (struct exec_frame){.layer = kind_of(nn, block),
                                   .block = block,
                                   .slot = slot_part(nn, slot, place_in_chunk(nn, block))};
}

void *nn_output(struct nn_stage *nn, int chunk, int slot)
{
        const struct exec_frame last =
                block_frame(nn, partition_chunk_begin(&nn->stage, chunk + 1) - 1, slot);
        return exec_output(nn->exec, &last);
}

/* Input of `block`: the output of the one before it, the embedding, or the received input buffer `input`. */
static const void *block_input(const struct nn_stage *nn, int block, int slot, int input)
{
        if (place_in_chunk(nn, block) > 0) {
                const struct exec_frame before = block_frame(nn, block - 1, slot);
                return exec_output(nn->exec, &before);
        }
        const struct exec_frame embedding = embedding_frame(nn, 0, slot);
        return nn->stage.first && block == 0 ? exec_output(nn->exec, &embedding) : nn->inputs[input];
}

/* A stage that has no block begins with what it receives. */
static struct exec_frame head_frame(struct nn_stage *nn, enum layer layer, int micro_batch, int slot,
                                    int input)
{
        const int chunk = nn->stage.chunks - 1, layers = partition_chunk_layers(&nn->stage, chunk);
        return (struct exec_frame){.layer = layer,
                                   .slot = slot_part(nn, slot, layers),
                                   .x = layers > 0 ? nn_output(nn, chunk, slot) : nn->inputs[input],
                                   .micro_batch = micro_batch};
}

void *nn_logits(struct nn_stage *nn, int slot, int64_t *apart)
{
        const struct nn_exec *e = nn->exec;
        assert(nn->stage.last && !e->workload.loss_rows);
        const struct exec_frame head = head_frame(nn, LAYER_VALIDATION, 0, slot, 0);
        const struct program *program = &e->workload.program[LAYER_VALIDATION];
        const struct steps *steps = &program->forward;
        int s = 0;
        while (!steps->at[s].chunked)
                s++;
        *apart = program_pitch(program, steps->at[s].view[2].value);
        return head.slot + e->kept[LAYER_VALIDATION][steps->at[s].view[2].value];
}

static void run(struct nn_stage *nn, struct exec_pass *pass, struct exec_frame frame,
                const struct exec_list lists[])
{
        frame.list = &lists[frame.layer];
        exec_run(nn, pass, &frame);
}

/* The layers of a span, whose `top` block is the last. */
static bool pass_on(struct nn_stage *nn, const struct partition_span *span, int micro_batch, int input,
                    int slot, bool loss_only)
{
        const struct exec_list *lists = nn->exec->list[PASS_FORWARD];
        struct exec_pass pass = {0};
        group_begin(nn->device);
        if (span->embedding)
                run(nn, &pass, embedding_frame(nn, micro_batch, slot), lists);
        for (int block = span->top + 1 - span->blocks; block <= span->top; block++) {
                struct exec_frame frame = block_frame(nn, block, slot);
                frame.x = block_input(nn, block, slot, input);
                run(nn, &pass, frame, lists);
        }
        if (span->head)
                run(nn, &pass,
                    head_frame(nn, loss_only ? LAYER_VALIDATION : LAYER_HEAD, micro_batch, slot, input),
                    lists);
        group_end(nn->device);
        return pass.stopped;
}

static struct partition_span chunk_span(const struct nn_stage *nn, int chunk)
{
        const struct stage part = partition_chunk(&nn->stage, chunk);
        return (struct partition_span){.parts = PART_BOTH,
                                       .head = part.last,
                                       .embedding = part.first,
                                       .top = partition_chunk_begin(&nn->stage, chunk + 1) - 1,
                                       .blocks = part.layers};
}

bool nn_loss_in_backward(const struct nn_stage *nn)
{
        return nn->exec->workload.loss_rows > 0;
}

bool nn_forward(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, bool loss_only)
{
        const struct partition_span all = chunk_span(nn, chunk);
        return pass_on(nn, &all, micro_batch, input, slot, loss_only);
}

/* ---- backward ---- */

/* A micro-batch's place in each kind of buffer. */
struct backward {
        int micro_batch, input, slot, gradient, deferred;
};

/* The first blocks, whose backwards are in two parts. */
static int parted_blocks(const struct nn_stage *nn)
{
        return memory_deferred_layers(&nn->plan, &nn->stage);
}

/* Bytes before the end of what would be lent to the last blocks. */
static int64_t lent_end(const struct memory_layout *l, int layers)
{
        return l->deferred_embedded + layers * l->deferred_block + l->deferred_lent;
}

/* A block's part of a deferred buffer. */
static char *deferred_part(const struct nn_stage *nn, int deferred, int block)
{
        return (char *)nn->deferred[deferred] + nn->layout.deferred_embedded +
               block * nn->layout.deferred_block;
}

/* What `block` lends, whose input part is done; behind the last one in parts, the buffer does. */
static char *lent_by(const struct nn_stage *nn, const struct backward *b, int block)
{
        if (block < parted_blocks(nn))
                return slot_part(nn, b->slot, block) + nn->exec->freed[kind_of(nn, block)];
        return deferred_part(nn, b->deferred, parted_blocks(nn));
}

/* The place of the gradient of a block's output among what is left of such a block; whether it is lent. */
static int64_t output_place(const struct nn_stage *nn, int block, bool *lent)
{
        const enum layer layer = kind_of(nn, block);
        const int output = nn->exec->workload.program[layer].output_gradient;
        *lent = nn->exec->deferral[layer].lent[output];
        return nn->exec->deferral[layer].offset[output];
}

void *pass_deferred_top(const struct nn_stage *nn, int deferred)
{
        const int layers = parted_blocks(nn);
        bool lent;
        const int64_t place = output_place(nn, layers - 1, &lent);
        return lent ? (char *)nn->deferred[deferred] + lent_end(&nn->layout, layers)
                    : deferred_part(nn, deferred, layers - 1) + place;
}

/* The gradient of a block's output that stays for the second part; of block -1: the embedding's. */
static void *deferred_output(const struct nn_stage *nn, const struct backward *b, int block)
{
        bool lent;
        if (block == parted_blocks(nn) - 1)
                return nn->deferred_tops[b->deferred];
        const int64_t above = output_place(nn, block + 1, &lent); /* beside what is left of the block above */
        if (lent)
                return lent_by(nn, b, block + 2) + above;
        return block < 0 ? nn->deferred[b->deferred]
                         : deferred_part(nn, b->deferred, block) + output_place(nn, block, &lent);
}

/* The gradient of a block's output: all in the one gradient buffer, or, in parts, each kept. */
static void *output_gradient(const struct nn_stage *nn, const struct backward *b, enum kernel_part parts,
                             int block)
{
        return parts == PART_BOTH ? nn->gradient_buffers[b->gradient] : deferred_output(nn, b, block);
}

static void *input_gradient(const struct nn_stage *nn, const struct backward *b, enum kernel_part parts,
                            int block)
{
        if (parts != PART_BOTH && (block > 0 || nn->stage.first))
                return deferred_output(nn, b, block - 1);
        return b->gradient >= 0 ? nn->gradient_buffers[b->gradient] : NULL;
}

/* The gradient of the last block in parts, received or made by the layers behind it, stays here; the one that
 * is sent on is written where what was here before lay. */
static void keep_gradient(struct nn_stage *nn, int gradient, int deferred)
{
        void *received = nn->gradient_buffers[gradient];
        nn->gradient_buffers[gradient] = nn->deferred_tops[deferred];
        nn->deferred_tops[deferred] = received;
}

static void pass_back(struct nn_stage *nn, struct exec_pass *pass, const struct backward *b,
                      const struct partition_span *span)
{
        const struct exec_list *lists = nn->exec->list[span->parts];
        group_begin(nn->device);
        if (span->head) {
                struct exec_frame frame = head_frame(nn, LAYER_HEAD, b->micro_batch, b->slot, b->input);
                frame.input_gradient = output_gradient(nn, b, span->parts, span->top);
                run(nn, pass, frame, lists);
        }
        for (int block = span->top; block > span->top - span->blocks; block--) {
                struct exec_frame frame = block_frame(nn, block, b->slot);
                frame.x = block_input(nn, block, b->slot, b->input);
                frame.output_gradient = output_gradient(nn, b, span->parts, block);
                frame.input_gradient = input_gradient(nn, b, span->parts, block);
                if (span->parts != PART_BOTH) {
                        frame.deferred = deferred_part(nn, b->deferred, block);
                        frame.lent = lent_by(nn, b, block + 1);
                }
                run(nn, pass, frame, lists);
        }
        if (span->embedding) {
                struct exec_frame frame = embedding_frame(nn, b->micro_batch, b->slot);
                frame.output_gradient = input_gradient(nn, b, span->parts, 0);
                run(nn, pass, frame, lists);
        }
        group_end(nn->device);
}

/* The input part begins where the gradient that comes from behind is to be kept: in the segment in which it
 * begins. */
static void pass_span(struct nn_stage *nn, struct exec_pass *pass, const struct backward *b,
                      const struct partition_span *span)
{
        if (span->parts == PART_INPUT && !span->head && !pass->stopped && pass->at == nn->segment)
                keep_gradient(nn, b->gradient, b->deferred);
        pass_back(nn, pass, b, span);
}

bool nn_backward_span(struct nn_stage *nn, int micro_batch, int input, int slot, int gradient, int deferred,
                      const struct partition_span *span)
{
        struct exec_pass pass = {0};
        pass_span(nn, &pass, &(struct backward){micro_batch, input, slot, gradient, deferred}, span);
        return pass.stopped;
}

bool nn_backward_part(struct nn_stage *nn, int micro_batch, int input, int slot, int gradient, int deferred,
                      enum kernel_part parts)
{
        const struct partition_parts spans = partition_parts(&nn->stage, parted_blocks(nn), parts);
        const struct backward b = {micro_batch, input, slot, gradient, deferred};
        struct exec_pass pass = {0};
        assert(deferred >= 0 && nn->stage.chunks == 1);
        if (spans.whole.head || spans.whole.blocks > 0)
                pass_span(nn, &pass, &b, &spans.whole);
        pass_span(nn, &pass, &b, &spans.part);
        return pass.stopped;
}

bool nn_backward(struct nn_stage *nn, int chunk, int micro_batch, int input, int slot, int gradient)
{
        const struct partition_span all = chunk_span(nn, chunk);
        struct exec_pass pass = {0};
        pass_back(nn, &pass, &(struct backward){micro_batch, input, slot, gradient, -1}, &all);
        return pass.stopped;
}

/* ---- units ---- */

static int unit_layers(const struct nn_stage *nn)
{
        return nn->plan.unit_layers > 1 ? nn->plan.unit_layers : 1;
}

/* The layers of the nth unit of a forward. */
static struct partition_span unit_span(const struct nn_stage *nn, int nth)
{
        return partition_unit(&nn->stage, unit_layers(nn), nth + !nn->stage.first);
}

static int unit_pieces(const struct nn_stage *nn, int nth, struct partition_piece pieces[PARTITION_PIECES])
{
        const struct partition_span layers = unit_span(nn, nth);
        return partition_pieces(&nn->gpt, &nn->stage, &layers, pieces);
}

/* Of a forward. */
static int unit_count(const struct nn_stage *nn)
{
        const int each = unit_layers(nn);
        return nn->stage.first + (nn->stage.layers + each - 1) / each + nn->stage.last;
}

int64_t nn_unit_elements(const struct nn_stage *nn, int nth)
{
        struct partition_piece pieces[PARTITION_PIECES];
        const int count = unit_pieces(nn, nth, pieces);
        return pieces[count - 1].place + pieces[count - 1].count;
}

void pass_offsets(struct nn_stage *nn)
{
        for (int i = 0; i < nn->tensor_count; i++)
                nn->pass_offsets[i] = nn->tensors[i].offset;
        for (int nth = 0; nn->plan.gathered && nth < unit_count(nn); nth++) {
                struct partition_piece pieces[PARTITION_PIECES];
                const int count = unit_pieces(nn, nth, pieces);
                for (int i = 0; i < nn->tensor_count; i++)
                        for (int piece = 0; piece < count; piece++) {
                                const int64_t at = nn->tensors[i].offset - pieces[piece].offset;
                                if (at >= 0 && at < pieces[piece].count)
                                        nn->pass_offsets[i] = pieces[piece].place + at;
                        }
        }
}

static int64_t unit_place(const struct nn_stage *nn, const struct memory_unit_buffers *buffers, int nth)
{
        return memory_unit_place(&nn->gpt, &nn->stage, &nn->plan, buffers, nth);
}

void *nn_unit_weights(const struct nn_stage *nn, int buffer)
{
        return nn->gathered + unit_place(nn, &nn->plan.unit_weights, buffer);
}

void *nn_unit_gradients(const struct nn_stage *nn, int buffer)
{
        return nn->reduced + unit_place(nn, &nn->plan.unit_gradients, buffer);
}

void *nn_widened_gradients(const struct nn_stage *nn, int buffer)
{
        return nn->widened + memory_widened_place(&nn->gpt, &nn->stage, &nn->plan, buffer);
}

int64_t nn_unit_begin(const struct nn_stage *nn, int buffer)
{
        return unit_place(nn, &nn->plan.unit_weights, buffer) / work_element_bytes(&nn->plan.work);
}

/* The buffer of the weights of the nth unit of a forward, where each unit has its own. */
static int weights_of(const struct nn_stage *nn, int nth)
{
        const struct partition_span layers = unit_span(nn, nth);
        const int ends = nn->plan.unit_weights.ends;
        return layers.blocks > 0 ? ends + nth - nn->stage.first : layers.embedding ? 0 : ends - 1;
}

int64_t nn_weight_place(const struct nn_stage *nn, int64_t offset, int64_t *count)
{
        for (int nth = 0; nth < unit_count(nn); nth++) {
                struct partition_piece pieces[PARTITION_PIECES];
                const int all = unit_pieces(nn, nth, pieces);
                for (int i = 0; i < all; i++) {
                        const int64_t at = offset - pieces[i].offset;
                        if (at < 0 || at >= pieces[i].count)
                                continue;
                        *count = *count < pieces[i].count - at ? *count : pieces[i].count - at;
                        return nn_unit_begin(nn, weights_of(nn, nth)) + pieces[i].place + at;
                }
        }
        assert(!"a parameter of the stage");
        return 0;
}

bool nn_forward_unit(struct nn_stage *nn, const struct nn_unit *unit, int micro_batch, int input, int slot,
                     bool loss_only)
{
        const struct partition_span span = unit_span(nn, unit->nth);
        nn->pass_weights = nn_unit_weights(nn, unit->weights);
        return pass_on(nn, &span, micro_batch, input, slot, loss_only);
}

/* A reduce-scatter then adds what earlier micro-batches left, which is in this replica's parts of the sums.
 */
static void load_gradients(struct nn_stage *nn, const struct nn_unit *unit)
{
        for (int i = 0; i < unit->shares; i++) {
                const struct nn_share *share = &unit->share[i];
                const struct kernel sum = workload_add_gradients(share->count, nn->plan.work.dtype);
                struct kernel_args args = {.p = {nn_at(nn, nn->pass_gradients, share->begin),
                                                 nn_at(nn, nn->gradients, share->place)}};
                if (share->count > 0)
                        kernels_launch(nn->device, sum, &args);
        }
}

/* Likewise, in fp32. */
static void widen_gradients(struct nn_stage *nn, const struct nn_unit *unit)
{
        real *widened = nn_widened_gradients(nn, unit->gradients);
        kernels_unscale(nn->device, widened, nn->pass_gradients, &nn->scalars[NN_ONE],
                        nn_unit_elements(nn, unit->nth));
        for (int i = 0; i < unit->shares; i++) {
                const struct nn_share *share = &unit->share[i];
                const struct kernel sum = workload_add_gradients(share->count, DTYPE_FP32);
                struct kernel_args args = {.p = {widened + share->begin, nn_gradients_at(nn, share->place)}};
                if (unit->loads && share->count > 0)
                        nn->device->ops->launch(nn->device, &sum, &args);
        }
}

bool nn_backward_unit(struct nn_stage *nn, const struct nn_unit *unit, int micro_batch, int input, int slot,
                      int gradient)
{
        const struct partition_span span = unit_span(nn, unit->nth);
        struct exec_pass pass = {0};
        nn->pass_gradients = nn_unit_gradients(nn, unit->gradients);
        if (unit->weights >= 0)
                nn->pass_weights = nn_unit_weights(nn, unit->weights);
        if (nn->segment == 0 && unit->begins != NN_ADD)
                kernels_clear(nn->device, nn->pass_gradients, nn_unit_elements(nn, unit->nth));
        if (nn->segment == 0 && unit->begins == NN_LOAD)
                load_gradients(nn, unit);
        pass_back(nn, &pass, &(struct backward){micro_batch, input, slot, gradient, -1}, &span);
        if (unit->widens && !pass.stopped)
                widen_gradients(nn, unit);
        return pass.stopped;
}
