#include "models/partition.h"

#include "models/families/families.h"
#include "runtime/base/minmax.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct stage partition_split(const struct gpt *gpt, int stages, int last, int index)
{
        const int others = stages - 1, rest = gpt->n_layer - last;
        assert(last >= 0 && 0 <= index && index < stages && (others ? rest >= others : rest == 0));
        const int each = others ? rest / others : 0, more = others ? rest % others : 0;
        return (struct stage){
                .index = index,
                .stages = stages,
                .chunks = 1,
                .first_layer = index * each + (index < more ? index : more),
                .layers = index == others ? last : each + (index < more ? 1 : 0),
                .first = index == 0,
                .last = index == stages - 1,
                .shards = 1,
        };
}

struct stage partition_stage(const struct gpt *gpt, int stages, int index)
{
        assert(1 <= stages && stages <= gpt->n_layer);
        return partition_split(gpt, stages, gpt->n_layer / stages, index);
}

struct stage partition_shard(const struct stage *stage, int shards, int shard)
{
        assert(shards >= 1 && 0 <= shard && shard < shards);
        struct stage part = *stage;
        part.shards = shards;
        part.shard = shard;
        return part;
}

struct stage partition_grid(const struct stage *stage, int x, int y, int z, int shard)
{
        struct stage part = partition_shard(stage, x * y * z, shard);
        part.shards_x = x;
        part.shards_z = z;
        return part;
}

/* How many shards lie along the axes of their grid. */
static int along_x(const struct stage *stage)
{
        return stage->shards_x > 1 ? stage->shards_x : 1;
}

static int along_z(const struct stage *stage)
{
        return stage->shards_z > 1 ? stage->shards_z : 1;
}

static int along_y(const struct stage *stage)
{
        return stage->shards / (along_x(stage) * along_z(stage));
}

/* Which of those along y a shard is. */
static int place_y(const struct stage *stage)
{
        return stage->shard / along_x(stage) % along_y(stage);
}

struct stage partition_experts(const struct stage *stage, int ranks, int rank, bool whole)
{
        assert(ranks >= 1 && 0 <= rank && rank < ranks);
        struct stage part = *stage;
        part.expert_ranks = ranks;
        part.expert_rank = rank;
        part.whole_experts = whole;
        return part;
}

int partition_expert_replica(const struct stage *stage)
{
        return stage->whole_experts ? stage->expert_rank / stage->shards : stage->expert_rank;
}

/* Over how many ranks. */
static int spread_of(const struct stage *stage)
{
        return stage->expert_ranks > 1 ? stage->expert_ranks : 1;
}

int partition_vocabulary(const struct gpt *gpt, const struct stage *stage)
{
        return (gpt->vocab_size + along_y(stage) - 1) / along_y(stage);
}

int partition_first_token(const struct gpt *gpt, const struct stage *stage)
{
        return partition_vocabulary(gpt, stage) * place_y(stage);
}

/* The first layer of virtual stage `index` of so many; of as many as there are, where the last one ends. */
static int first_of_virtual(int layers, int stages, int index)
{
        const int each = layers / stages, more = layers % stages;
        const int first = more < stages - 1, longer = index - first; /* stages before it that may have more */
        return index * each + (longer < 0 ? 0 : longer < more ? longer : more);
}

static int virtual_stages(const struct stage *stage)
{
        return stage->stages * stage->chunks;
}

struct stage partition_interleaved(const struct gpt *gpt, int stages, int chunks, int index)
{
        if (chunks == 1)
                return partition_stage(gpt, stages, index);
        assert(stages * chunks <= gpt->n_layer && 0 <= index && index < stages);
        struct stage stage = {
                .index = index,
                .stages = stages,
                .chunks = chunks,
                .first_layer = first_of_virtual(gpt->n_layer, stages * chunks, index),
                .model_layers = gpt->n_layer,
                .first = index == 0,
                .last = index == stages - 1,
                .shards = 1,
        };
        stage.layers = partition_chunk_begin(&stage, chunks);
        return stage;
}

int partition_chunk_layers(const struct stage *stage, int chunk)
{
        if (stage->chunks == 1)
                return stage->layers;
        const int all = virtual_stages(stage), index = chunk * stage->stages + stage->index;
        return first_of_virtual(stage->model_layers, all, index + 1) -
               first_of_virtual(stage->model_layers, all, index);
}

int partition_chunk_begin(const struct stage *stage, int chunk)
{
        int before = 0;
        for (int i = 0; i < chunk; i++)
                before += partition_chunk_layers(stage, i);
        return before;
}

int partition_chunk_of(const struct stage *stage, int block)
{
        int chunk = 0;
        while (chunk < stage->chunks - 1 && block >= partition_chunk_begin(stage, chunk + 1))
                chunk++;
        return chunk;
}

int partition_longest_chunk(const struct stage *stage, int *first, int *end)
{
        int longest = 0;
        *first = 0;
        for (int chunk = 0; chunk < stage->chunks; chunk++) {
                const int layers = partition_chunk_layers(stage, chunk);
                if (layers > longest) {
                        longest = layers;
                        *first = chunk;
                }
                if (layers == longest)
                        *end = chunk + 1;
        }
        return longest;
}

struct stage partition_chunk(const struct stage *stage, int chunk)
{
        const int index = chunk * stage->stages + stage->index, all = virtual_stages(stage);
        return (struct stage){
                .index = index,
                .stages = all,
                .chunks = 1,
                .first_layer = stage->chunks == 1 ? stage->first_layer
                                                  : first_of_virtual(stage->model_layers, all, index),
                .layers = partition_chunk_layers(stage, chunk),
                .first = stage->first && chunk == 0,
                .last = stage->last && chunk == stage->chunks - 1,
                .shards = stage->shards,
                .shard = stage->shard,
                .shards_x = stage->shards_x,
                .shards_z = stage->shards_z,
                .expert_ranks = stage->expert_ranks,
                .expert_rank = stage->expert_rank,
                .whole_experts = stage->whole_experts,
                .context_rank = stage->context_rank,
        };
}

int partition_layer(const struct stage *stage, int block)
{
        const int chunk = partition_chunk_of(stage, block);
        return partition_chunk(stage, chunk).first_layer + block - partition_chunk_begin(stage, chunk);
}

/* ---- the tensors of a layer, which its family's program names ---- */

struct layer_tensors {
        struct program_tensor at[PROGRAM_TENSORS];
        int rows;  /* of the table above */
        int count; /* of tensors: experts have one each of a row */
        /* By row: RECOMPUTE_FULL runs the step again that reads the tensor. */
        bool again[PROGRAM_TENSORS];
};

/* What a thread asked for last: a plan asks for the tensors of its one model again and again. */
static _Thread_local struct {
        bool there;
        struct gpt gpt;
        struct layer_tensors layers[LAYER_HEAD + 1];
        bool swiglu; /* its blocks have one */
} memo;

static void find_again(struct layer_tensors *tensors, struct program *program)
{
        bool again[PROGRAM_STEPS];
        program_finish(program, false);
        program_run_again(program, RECOMPUTE_FULL, again);
        for (int i = 0; i < program->tensor_count; i++) {
                tensors->again[i] = false;
                for (int s = 0; s < program->forward.count; s++)
                        for (int operand = 0; operand < KERNEL_OPERANDS; operand++)
                                tensors->again[i] |= again[s] && program->forward.at[s].view[operand].value ==
                                                                         program->tensors[i].value;
        }
}

static void derive(struct layer_tensors *tensors, const struct gpt *gpt, enum layer layer)
{
        const struct work work = {.micro_batch_size = 1, .seq_len = 1, .tp = 1};
        struct program program;
        program_begin(&program, (struct program_split){0});
        family_build(&program, layer, gpt, &work);
        for (int s = 0; s < program.forward.count; s++)
                memo.swiglu |= program.forward.at[s].kind == KERNEL_SWIGLU ||
                               program.forward.at[s].kind == KERNEL_WEIGHTED_SWIGLU;
        tensors->rows = program.tensor_count;
        tensors->count = 0;
        for (int i = 0; i < program.tensor_count; i++)
                tensors->count += program.tensors[i].copies;
        memcpy(tensors->at, program.tensors, sizeof tensors->at);
        if (layer_is_block(layer) && program.forward.count > 0)
                find_again(tensors, &program);
}

static const struct layer_tensors *tensors_of(const struct gpt *gpt, enum layer layer)
{
        if (!memo.there || !gpt_same(&memo.gpt, gpt)) {
                memo.there = true;
                memo.gpt = *gpt;
                memo.swiglu = false;
                for (int i = 0; i <= LAYER_HEAD; i++)
                        derive(&memo.layers[i], gpt, (enum layer)i);
        }
        return &memo.layers[layer];
}

/* The tensors of a model's block, from 0. */
static const struct layer_tensors *block_of(const struct gpt *gpt, int layer)
{
        return tensors_of(gpt, layer < gpt->n_dense ? LAYER_DENSE : LAYER_BLOCK);
}

/* The output projection is a head's last tensor; of a tied one a stage has a copy of the token embedding, or
 * nothing where it has that itself. */
static int own_head_tensors(const struct gpt *gpt)
{
        return tensors_of(gpt, LAYER_HEAD)->rows - (gpt->tied ? 1 : 0);
}

/* ---- of a stage ---- */

/* Where a tensor lies in a shard's memory, one after the other. */
enum place { PLACE_EXPERTS, PLACE_SPLIT, PLACE_SUMMED, PLACE_REPLICATED, PLACE_COPY, PLACES };

/* The list under construction. */
struct list {
        struct tensor *out;
        const struct stage *stage;
        int count;
        int64_t elements[PLACES];
};

/* A split tensor's extent on one shard; only a vocabulary is not divisible. */
static int part_of(int whole, int shards)
{
        return (whole + shards - 1) / shards;
}

/* Over how many shards, of those along y, a tensor's rows or columns are split. */
static int parts_along_y(const struct program_tensor *whole, const struct stage *stage,
                         enum tensor_split split)
{
        const bool unsplit = whole->copies > 1 && stage->whole_experts;
        return whole->split == split && !unsplit ? along_y(stage) : 1;
}

static int rows_of(const struct program_tensor *whole, const struct stage *stage)
{
        const int y = parts_along_y(whole, stage, TENSOR_ROWS);
        return part_of(whole->rows, y * (whole->split_x == TENSOR_ROWS ? along_x(stage) : 1));
}

static int cols_of(const struct program_tensor *whole, const struct stage *stage)
{
        const int y = parts_along_y(whole, stage, TENSOR_COLS);
        return part_of(whole->cols, y * (whole->split_x == TENSOR_COLS ? along_x(stage) : 1));
}

/* Of a matrix the part that a shard of those along z has. */
static int64_t tensor_elements(const struct program_tensor *whole, const struct stage *stage)
{
        const int64_t elements = (int64_t)rows_of(whole, stage) * cols_of(whole, stage);
        const int z = whole->matrix ? along_z(stage) : 1;
        return (elements + z - 1) / z;
}

/* How many copies a rank of a stage has. */
static int copies_of(const struct program_tensor *whole, const struct stage *stage)
{
        return whole->copies > 1 ? whole->copies / spread_of(stage) : 1;
}

/* Of all copies that a rank has. */
static int64_t elements_of(const struct program_tensor *whole, const struct stage *stage)
{
        return tensor_elements(whole, stage) * copies_of(whole, stage);
}

static enum place place_of(const struct program_tensor *whole, const struct stage *stage)
{
        if (whole->copies > 1 && spread_of(stage) > 1)
                return PLACE_EXPERTS;
        if (along_z(stage) > 1 && !whole->matrix)
                return PLACE_SUMMED;
        if (along_y(stage) == 1 || whole->split != TENSOR_WHOLE)
                return PLACE_SPLIT;
        return whole->summed ? PLACE_SUMMED : PLACE_REPLICATED;
}

/* `name`: of the whole model. */
static void add(struct list *list, const struct program_tensor *whole, const char *name, enum place place,
                uint32_t id)
{
        struct tensor *tensor = &list->out[list->count++];
        *tensor = (struct tensor){.rows = rows_of(whole, list->stage),
                                  .cols = cols_of(whole, list->stage),
                                  .offset = list->elements[place], /* of its place; see place_all */
                                  .elements = tensor_elements(whole, list->stage),
                                  .replicated = place == PLACE_SUMMED || place == PLACE_REPLICATED,
                                  .summed = place == PLACE_SUMMED,
                                  .expert = place == PLACE_EXPERTS,
                                  .decay = whole->matrix,
                                  .init = whole->init,
                                  .id = id};
        tensor->whole.rows = whole->rows;
        tensor->whole.cols = whole->cols;
        tensor->whole.parts = whole->parts;
        if (parts_along_y(whole, list->stage, whole->split) > 1)
                tensor->whole.first = (whole->split == TENSOR_COLS ? tensor->cols : tensor->rows) /
                                      whole->parts * place_y(list->stage);
        snprintf(tensor->name, sizeof tensor->name, "%s", name);
        list->elements[place] += tensor->elements;
}

/* The name of a tensor, or of its `copy`-th copy: of "experts.%d.w1.weight" the number goes between. */
static void name_tensor(char *name, size_t size, const char *prefix, const struct program_tensor *whole,
                        int copy)
{
        const char *number = strstr(whole->name, "%d");
        const int length = number ? snprintf(name, size, "%s%.*s%d%s", prefix, (int)(number - whole->name),
                                             whole->name, copy, number + 2)
                                  : snprintf(name, size, "%s%s", prefix, whole->name);
        assert(0 <= length && (size_t)length < size);
}

/* How many rows of a layer's table, from `first` on, come in turns. */
static int turns_of(const struct layer_tensors *tensors, int first)
{
        int last = first;
        while (tensors->at[first].copies > 1 && last + 1 < tensors->rows &&
               tensors->at[last + 1].value == tensors->at[first].value)
                last++;
        return last - first + 1;
}

/* The first `rows` rows of a layer's tensors, `prefix` before their names, and identities from `id` on.
 * `transposed`: files have the matrices as (in, out). */
static void add_layer(struct list *list, const struct layer_tensors *tensors, int rows, const char *prefix,
                      bool transposed, uint32_t id)
{
        for (int i = 0, turns; i < rows; i += turns) {
                turns = turns_of(tensors, i);
                const int own = copies_of(&tensors->at[i], list->stage);
                const int first = tensors->at[i].copies > 1 ? own * list->stage->expert_rank : 0;
                for (int at = first * turns; at < (first + own) * turns; at++) {
                        const struct program_tensor *whole = &tensors->at[i + at % turns];
                        char name[sizeof list->out->name];
                        name_tensor(name, sizeof name, prefix, whole, at / turns);
                        add(list, whole, name, place_of(whole, list->stage), id + (uint32_t)at);
                        list->out[list->count - 1].transposed = transposed && whole->matrix;
                }
                id += (uint32_t)(tensors->at[i].copies * turns);
        }
}

/* From offsets in its place to offsets in the flat buffer. */
static void place_all(struct list *list)
{
        int64_t begin[PLACES] = {0};
        for (int place = 1; place < PLACES; place++)
                begin[place] = begin[place - 1] + list->elements[place - 1];
        for (int i = 0; i < list->count; i++) {
                struct tensor *tensor = &list->out[i];
                tensor->offset += begin[tensor->expert       ? PLACE_EXPERTS
                                        : tensor->summed     ? PLACE_SUMMED
                                        : tensor->replicated ? PLACE_REPLICATED
                                                             : PLACE_SPLIT];
        }
        if (list->elements[PLACE_COPY] > 0)
                list->out[list->count - 1].offset = begin[PLACE_COPY];
}

static bool has_copy(const struct gpt *gpt, const struct stage *stage)
{
        return gpt->tied && stage->last && !stage->first;
}

/* The number of the first tensor of a row of a layer's table, or of all, on a stage. */
static int first_of(const struct layer_tensors *tensors, const struct stage *stage, int row)
{
        int first = 0;
        for (int i = 0; i < row; i++)
                first += copies_of(&tensors->at[i], stage);
        return first;
}

int partition_dense(const struct gpt *gpt, const struct stage *stage)
{
        int blocks = 0;
        while (blocks < stage->layers && partition_layer(stage, blocks) < gpt->n_dense)
                blocks++;
        return blocks;
}

/* The tensors of a stage's first blocks. */
static int block_tensors(const struct gpt *gpt, const struct stage *stage, int blocks)
{
        const struct layer_tensors *block = tensors_of(gpt, LAYER_BLOCK),
                                   *dense = tensors_of(gpt, LAYER_DENSE);
        const int all = partition_dense(gpt, stage), first = blocks < all ? blocks : all;
        return first * first_of(dense, stage, dense->rows) +
               (blocks - first) * first_of(block, stage, block->rows);
}

static int tensor_count(const struct gpt *gpt, const struct stage *stage)
{
        return (stage->first ? tensors_of(gpt, LAYER_EMBEDDING)->count : 0) +
               block_tensors(gpt, stage, stage->layers) + (stage->last ? own_head_tensors(gpt) : 0) +
               has_copy(gpt, stage);
}

bool partition_is_further(const struct gpt *gpt, const char *name)
{
        const char *layers = family_at(gpt->family)->layers;
        const size_t length = strlen(layers);
        if (strncmp(name, layers, length) != 0)
                return false;
        const long layer = strtol(name + length, NULL, 10);
        return layer >= gpt->n_layer && layer < (long)gpt->n_layer + gpt->n_further;
}

/* Identities of tensors: the embedding's, the head's, then block after block of the whole model. */
enum { EMBEDDING_ID = 0, HEAD_ID = 2, FIRST_BLOCK_ID = 16 };

int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out)
{
        const struct layer_tensors *embedding = tensors_of(gpt, LAYER_EMBEDDING);
        const struct layer_tensors *head = tensors_of(gpt, LAYER_HEAD);
        const struct family *family = family_at(gpt->family);
        const int dense = tensors_of(gpt, LAYER_DENSE)->count, block = tensors_of(gpt, LAYER_BLOCK)->count;
        struct list list = {.out = out, .stage = stage};
        if (!out)
                return tensor_count(gpt, stage);
        if (stage->first)
                add_layer(&list, embedding, embedding->rows, "", false, EMBEDDING_ID);
        for (int i = 0; i < stage->layers; i++) {
                const int layer = partition_layer(stage, i);
                const struct layer_tensors *tensors = block_of(gpt, layer);
                char prefix[sizeof out->name];
                snprintf(prefix, sizeof prefix, "%s%d.", family->layers, layer);
                add_layer(&list, tensors, tensors->rows, prefix, family->transposed,
                          (uint32_t)(FIRST_BLOCK_ID + layer * (dense > block ? dense : block)));
        }
        if (stage->last)
                add_layer(&list, head, own_head_tensors(gpt), "", false, HEAD_ID);
        if (has_copy(gpt, stage))
                add(&list, &embedding->at[0], embedding->at[0].name, PLACE_COPY, EMBEDDING_ID);
        place_all(&list);
        return list.count;
}

/* Elements of a layer in a shard's memory, without the last `without` rows of its table, at one place, or,
 * PLACES, at all. */
static int64_t layer_elements(const struct layer_tensors *tensors, int without, const struct stage *stage,
                              enum place place)
{
        int64_t elements = 0;
        for (int i = 0; i < tensors->rows - without; i++)
                if (place == PLACES || place_of(&tensors->at[i], stage) == place)
                        elements += elements_of(&tensors->at[i], stage);
        return elements;
}

static int64_t stage_elements(const struct gpt *gpt, const struct stage *stage, enum place place)
{
        const struct layer_tensors *embedding = tensors_of(gpt, LAYER_EMBEDDING);
        const struct layer_tensors *block = tensors_of(gpt, LAYER_BLOCK), *head = tensors_of(gpt, LAYER_HEAD);
        const int dense = partition_dense(gpt, stage);
        int64_t elements = dense * layer_elements(tensors_of(gpt, LAYER_DENSE), 0, stage, place) +
                           (stage->layers - dense) * layer_elements(block, 0, stage, place);
        if (stage->first)
                elements += layer_elements(embedding, 0, stage, place);
        if (stage->last)
                elements += layer_elements(head, gpt->tied, stage, place);
        return elements;
}

int64_t partition_embedding(const struct gpt *gpt, const struct stage *stage)
{
        return elements_of(&tensors_of(gpt, LAYER_EMBEDDING)->at[0], stage);
}

int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage)
{
        return stage_elements(gpt, stage, PLACES) +
               (has_copy(gpt, stage) ? partition_embedding(gpt, stage) : 0);
}

int64_t partition_replicated(const struct gpt *gpt, const struct stage *stage, int64_t *offset)
{
        if (offset)
                *offset = stage_elements(gpt, stage, PLACE_EXPERTS) + stage_elements(gpt, stage, PLACE_SPLIT);
        return stage_elements(gpt, stage, PLACE_SUMMED) + stage_elements(gpt, stage, PLACE_REPLICATED);
}

int64_t partition_summed(const struct gpt *gpt, const struct stage *stage, bool sequence_parallel,
                         int64_t *offset)
{
        const int64_t replicated = partition_replicated(gpt, stage, offset);
        return sequence_parallel ? replicated : stage_elements(gpt, stage, PLACE_SUMMED);
}

int64_t partition_expert_parameters(const struct gpt *gpt, const struct stage *stage)
{
        return stage_elements(gpt, stage, PLACE_EXPERTS);
}

/* Of `extent` rows or columns of a shard the i-th, in the whole tensor; -1: beyond it. */
static int64_t whole_place(const struct tensor *tensor, int64_t i, int extent, int whole)
{
        if (extent == whole)
                return i;
        const int64_t each = extent / tensor->whole.parts, part = i / each;
        const int64_t at = tensor->whole.first + i % each, of = whole / tensor->whole.parts;
        return at < of ? part * of + at : -1;
}

int64_t partition_whole_index(const struct tensor *tensor, int64_t index)
{
        const int64_t row = whole_place(tensor, index / tensor->cols, tensor->rows, tensor->whole.rows);
        const int64_t col = whole_place(tensor, index % tensor->cols, tensor->cols, tensor->whole.cols);
        return row < 0 || col < 0 ? -1 : row * tensor->whole.cols + col;
}

int64_t partition_whole_run(const struct tensor *tensor, int64_t index, int64_t *run)
{
        const int64_t col = index % tensor->cols, each = tensor->cols / tensor->whole.parts;
        *run = tensor->cols == tensor->whole.cols ? tensor->cols - col : each - col % each;
        return partition_whole_index(tensor, index);
}

int partition_tensor(const struct gpt *gpt, const struct stage *stage, enum layer layer, int block,
                     int ordinal)
{
        const int embedding = stage->first ? tensors_of(gpt, LAYER_EMBEDDING)->count : 0;
        if (layer == LAYER_EMBEDDING)
                return ordinal;
        if (layer_is_block(layer))
                return embedding + block_tensors(gpt, stage, block) +
                       first_of(tensors_of(gpt, layer), stage, ordinal);
        if (ordinal == own_head_tensors(gpt) && stage->first)
                return 0;
        return embedding + block_tensors(gpt, stage, stage->layers) + ordinal;
}

/* The embedding that the stage shares with another one. */
static int64_t shared_embedding(const struct gpt *gpt, const struct stage *stage)
{
        const bool shares = gpt->tied && stage->first != stage->last;
        return shares ? partition_embedding(gpt, stage) : 0;
}

/* What the kinds of layers have at one place, or, PLACES, at all, without a shared embedding. */
static struct partition_units units_at(const struct gpt *gpt, const struct stage *stage, enum place place)
{
        const int64_t shared = place == PLACE_SPLIT || place == PLACES ? shared_embedding(gpt, stage) : 0;
        return (struct partition_units){
                .embedding = layer_elements(tensors_of(gpt, LAYER_EMBEDDING), 0, stage, place) - shared,
                .dense = layer_elements(tensors_of(gpt, LAYER_DENSE), 0, stage, place),
                .block = layer_elements(tensors_of(gpt, LAYER_BLOCK), 0, stage, place),
                .head = layer_elements(tensors_of(gpt, LAYER_HEAD), gpt->tied, stage, place),
                .experts = layer_elements(tensors_of(gpt, LAYER_BLOCK), 0, stage, PLACE_EXPERTS)};
}

struct partition_units partition_stage_units(const struct gpt *gpt, const struct stage *stage)
{
        struct partition_units units = units_at(gpt, stage, PLACES);
        const int64_t shared = shared_embedding(gpt, stage);
        if (shared)
                units.embedding = units.head = shared + max_int64(units.embedding, units.head);
        units.embedding = stage->first ? units.embedding : 0;
        units.head = stage->last ? units.head : 0;
        return units;
}

void partition_unit_sums(const struct gpt *gpt, const struct stage *stage, bool sequence_parallel,
                         struct partition_units *before, struct partition_units *summed)
{
        const struct partition_units more = units_at(gpt, stage, PLACE_REPLICATED);
        *before = units_at(gpt, stage, PLACE_SPLIT);
        before->block += before->experts;
        *summed = units_at(gpt, stage, PLACE_SUMMED);
        if (!sequence_parallel)
                return;
        summed->embedding += more.embedding;
        summed->dense += more.dense;
        summed->block += more.block;
        summed->head += more.head;
}

/* Elements of a stage's first blocks at a place, or at all. */
static int64_t blocks_elements(const struct gpt *gpt, const struct stage *stage, enum place place, int blocks)
{
        const int all = partition_dense(gpt, stage), dense = min_int(blocks, all);
        return dense * layer_elements(tensors_of(gpt, LAYER_DENSE), 0, stage, place) +
               (blocks - dense) * layer_elements(tensors_of(gpt, LAYER_BLOCK), 0, stage, place);
}

int64_t partition_blocks(const struct gpt *gpt, const struct stage *stage, int blocks)
{
        return blocks_elements(gpt, stage, PLACES, blocks);
}

/* Where a stage's layers lie at a place: the embedding's, the first block's, the head's. */
struct layer_places {
        int64_t embedding, blocks, head;
};

static struct layer_places places_of(const struct gpt *gpt, const struct stage *stage, enum place place)
{
        struct layer_places at = {0};
        for (int before = 0; before < (int)place; before++)
                at.embedding += stage_elements(gpt, stage, (enum place)before);
        at.blocks = at.embedding;
        if (stage->first)
                at.blocks += layer_elements(tensors_of(gpt, LAYER_EMBEDDING), 0, stage, place);
        at.head = at.blocks + blocks_elements(gpt, stage, place, stage->layers);
        return at;
}

struct partition_span partition_unit(const struct stage *stage, int each, int nth)
{
        const int units = (stage->layers + each - 1) / each, end = min_int(nth * each, stage->layers);
        const bool ends = nth == 0 || nth > units;
        return (struct partition_span){.parts = PART_BOTH,
                                       .embedding = nth == 0,
                                       .head = nth > units,
                                       .top = nth == 0 ? -1 : end - 1,
                                       .blocks = ends ? 0 : end - (nth - 1) * each};
}

/* The list of a unit's pieces under construction. */
struct pieces {
        struct partition_piece *at;
        int count;
        int64_t place; /* of the next one */
};

static void add_unit_piece(struct pieces *pieces, int64_t offset, int64_t count)
{
        if (count > 0)
                pieces->at[pieces->count++] = (struct partition_piece){offset, count, pieces->place};
        pieces->place += count;
}

int partition_pieces(const struct gpt *gpt, const struct stage *stage, const struct partition_span *unit,
                     struct partition_piece pieces[PARTITION_PIECES])
{
        struct pieces list = {.at = pieces};
        const bool ends = unit->embedding || unit->head,
                   one = ends && gpt->tied && stage->first && stage->last;
        const int first = unit->top + 1 - unit->blocks;
        const int64_t shared = ends ? shared_embedding(gpt, stage) : 0;
        for (int i = PLACE_EXPERTS; i <= PLACE_REPLICATED; i++) {
                const enum place place = (enum place)i;
                const struct layer_places at = places_of(gpt, stage, place);
                const struct partition_units units = units_at(gpt, stage, place);
                const int64_t before = blocks_elements(gpt, stage, place, first);
                if (unit->embedding || one)
                        add_unit_piece(&list, at.embedding + (place == PLACE_SPLIT ? shared : 0),
                                       units.embedding);
                if (unit->blocks > 0)
                        add_unit_piece(&list, at.blocks + before,
                                       blocks_elements(gpt, stage, place, unit->top + 1) - before);
                if (unit->head || one)
                        add_unit_piece(&list, at.head, units.head);
        }
        if (shared) {
                const struct partition_units whole = partition_stage_units(gpt, stage);
                list.place = whole.embedding + whole.head - shared;
                add_unit_piece(&list, stage->first ? 0 : partition_parameters(gpt, stage) - shared, shared);
        }
        return list.count;
}

bool partition_recomputes(const struct gpt *gpt, enum recompute recompute)
{
        tensors_of(gpt, LAYER_BLOCK);
        return !recompute_has_swiglu(recompute) || memo.swiglu;
}

struct partition_products partition_products(const struct gpt *gpt)
{
        struct partition_products products = {0};
        for (int layer = LAYER_DENSE; layer <= LAYER_BLOCK; layer++) {
                const struct layer_tensors *block = tensors_of(gpt, (enum layer)layer);
                const int layers = layer == LAYER_DENSE ? gpt->n_dense : gpt->n_layer - gpt->n_dense;
                for (int i = 0; i < block->rows; i++) {
                        const struct program_tensor *tensor = &block->at[i];
                        const int64_t elements = (int64_t)tensor->rows * tensor->cols * tensor->chosen;
                        if (!tensor->matrix)
                                continue;
                        products.all += layers * elements;
                        products.unread += block->again[i] ? 0 : layers * elements;
                }
        }
        return products;
}

struct partition_parts partition_parts(const struct stage *stage, int deferred, enum kernel_part parts)
{
        const bool all = deferred == stage->layers;
        assert(1 <= deferred && deferred <= stage->layers && parts != PART_BOTH);
        struct partition_parts found = {.part = {.parts = parts,
                                                 .head = stage->last && all,
                                                 .embedding = stage->first,
                                                 .top = deferred - 1,
                                                 .blocks = deferred}};
        if (parts == PART_INPUT)
                found.whole = (struct partition_span){.parts = PART_BOTH,
                                                      .head = stage->last && !all,
                                                      .top = stage->layers - 1,
                                                      .blocks = stage->layers - deferred,
                                                      .more = true};
        return found;
}

int64_t partition_block_offset(const struct gpt *gpt, const struct stage *stage, int block)
{
        return places_of(gpt, stage, PLACE_SPLIT).blocks + blocks_elements(gpt, stage, PLACE_SPLIT, block);
}

/* Whether nothing of a chunk's backward is done when the gradients from `end` on are final. */
static bool begins_with_head(const struct gpt *gpt, const struct stage *stage, int chunk, int64_t end)
{
        const int64_t split = stage_elements(gpt, stage, PLACE_SPLIT);
        return stage->last && chunk == stage->chunks - 1 &&
               (has_copy(gpt, stage) ? end == partition_parameters(gpt, stage) : end == split);
}

/* Whole layers of a chunk from those that end at `end` on, until gradients from `offset` on are final. The
 * head's are the copy of a tied embedding and what lies before that. */
static struct partition_span layers_between(const struct gpt *gpt, const struct stage *stage, int chunk,
                                            int64_t end, int64_t offset)
{
        const int first = partition_chunk_begin(stage, chunk);
        const int64_t head = partition_block_offset(gpt, stage, stage->layers);
        const int64_t begin = chunk == 0 ? 0 : partition_block_offset(gpt, stage, first);
        struct partition_span span = {
                .head = begins_with_head(gpt, stage, chunk, end), .top = stage->layers - 1, .offset = head};
        int64_t alike;
        const int64_t replicated = partition_replicated(gpt, stage, &alike);
        if (span.head && has_copy(gpt, stage) && replicated > 0)
                span.offset = alike + replicated;
        if (!span.head) {
                while (partition_block_offset(gpt, stage, span.top + 1) > end)
                        span.top--;
                span.offset = end;
        }
        while (span.offset > offset && span.top - span.blocks >= first) {
                span.blocks++;
                span.offset = partition_block_offset(gpt, stage, span.top + 1 - span.blocks);
        }
        if (begin == 0 && (span.offset > offset || span.offset == 0)) {
                span.embedding = stage->first;
                span.offset = 0;
        }
        span.more = span.offset > begin;
        return span;
}

struct partition_span partition_span(const struct gpt *gpt, const struct stage *stage, int chunk,
                                     int deferred, enum kernel_part parts, int64_t end, int64_t offset)
{
        assert(0 <= offset && offset < end);
        struct partition_span span;
        if (parts == PART_INPUT) {
                const int64_t left =
                        deferred == stage->layers ? end : partition_block_offset(gpt, stage, deferred);
                if (end <= left) {
                        span = partition_parts(stage, deferred, parts).part;
                        span.offset = offset;
                        return span;
                }
                span = layers_between(gpt, stage, chunk, end, offset > left ? offset : left);
                span.parts = PART_BOTH;
                span.more = true;
                return span;
        }
        span = layers_between(gpt, stage, chunk, end, offset);
        span.parts = parts;
        return span;
}
