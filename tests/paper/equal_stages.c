#include "tests/paper/equal_stages.h"

#include <assert.h>
#include <stdlib.h>

/* A backward that makes gradients final goes on to the end of a layer, or of its chunk of the model. */
static void end_layers(void *context, int rank, struct op *op)
{
        (void)context, (void)rank;
        if (op->kind != OP_BACKWARD || op->count == 0)
                return;
        const int64_t end = op->offset + op->count, begin = op->chunk * PAPER_CHUNK;
        const bool leaves = op->parts == OP_INPUT_GRADIENT;
        if (leaves && end <= PAPER_LEFT)
                return;
        op->offset = op->offset / PAPER_LAYER * PAPER_LAYER;
        if (leaves && op->offset < PAPER_LEFT)
                op->offset = PAPER_LEFT;
        if (op->offset < begin)
                op->offset = begin;
        op->count = end - op->offset;
        op->further = op->offset > begin;
}

/* A pass in which replicas exchange goes on to its last part. */
static void end_part(struct op *op, enum op_group group, int parts)
{
        if (!op_of_pass(op))
                return;
        op->more = op->kind == OP_TENSOR || op->segment + 1 < parts;
        op->group = group;
}

/* Experts' tokens, or keys of sequences. */
static void end_expert_parts(void *context, int rank, struct op *op)
{
        (void)context, (void)rank;
        end_part(op, GROUP_EXPERTS, PAPER_PARTS);
}

static void end_context_parts(void *context, int rank, struct op *op)
{
        end_layers(context, rank, op);
        end_part(op, GROUP_CONTEXT, PAPER_PARTS);
        if (!op_of_pass(op) || op->kind == OP_TENSOR)
                return;
        op->beside = op->segment == 0;
        op->joins = op->segment == 1;
}

/* Keys of sequences as above, and then experts' tokens. */
static void end_context_and_expert_parts(void *context, int rank, struct op *op)
{
        end_context_parts(context, rank, op);
        end_part(op, op->segment == PAPER_PARTS - 1 ? GROUP_EXPERTS : GROUP_CONTEXT, PAPER_PARTS + 1);
}

int64_t paper_expert_parameters(const struct plan *plan, int64_t parameters)
{
        return plan_expert_ranks(plan) > 1 ? (parameters - plan->embedding_parameters) / 2 : 0;
}

struct core_units paper_units(const struct plan *plan, int stage)
{
        const bool shares = plan->tied && plan->pp > 1;
        const struct plan_range alike = {1, plan->sequence_parallel};
        return (struct core_units){.blocks = PAPER_BLOCKS,
                                   .dense = PAPER_DENSE,
                                   .tied = plan->tied && plan->pp == 1,
                                   .embedding = stage == 0 ? PAPER_EMBEDDING : 0,
                                   .dense_block = PAPER_DENSE_BLOCK,
                                   .block = PAPER_BLOCK,
                                   .head = stage < plan->pp - 1 ? 0
                                           : shares             ? PAPER_EMBEDDING
                                                                : PAPER_HEAD,
                                   .sums = {alike, alike, alike, alike}};
}

struct paper *paper_of_equal_stages(const struct plan *plan, int64_t parameters, bool eager,
                                    paper_seconds_fn *seconds, paper_watch_fn *issued,
                                    paper_watch_fn *completed, void *context)
{
        const bool experts = plan_expert_ranks(plan) > 1, sequences = plan_context_ranks(plan) > 1;
        struct core_stage *stages = calloc((size_t)plan->pp, sizeof *stages);
        assert(stages);
        for (int i = 0; i < plan->pp; i++)
                stages[i] =
                        (struct core_stage){.parameters = parameters,
                                            .expert_parameters = paper_expert_parameters(plan, parameters),
                                            .slot_bytes = PAPER_SLOT_BYTES,
                                            .embedded_bytes = PAPER_EMBEDDED_BYTES,
                                            .head_bytes = PAPER_HEAD_BYTES,
                                            .units = paper_units(plan, i)};
        struct paper *paper = paper_new(&(struct paper_setting){
                .plan = plan,
                .stages = stages,
                .eager = eager,
                .physics = {.seconds = seconds,
                            .fill = experts && sequences ? end_context_and_expert_parts
                                    : experts            ? end_expert_parts
                                    : sequences          ? end_context_parts
                                                         : end_layers,
                            .context = context},
                .issued = issued,
                .completed = completed});
        assert(paper);
        free(stages);
        return paper;
}
