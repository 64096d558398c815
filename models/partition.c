#include "models/partition.h"

#include <assert.h>
#include <stdio.h>

struct stage partition_split(const struct gpt *gpt, int stages, int last, int index)
{
        const int others = stages - 1, rest = gpt->n_layer - last;
        assert(last >= 1 && 0 <= index && index < stages && (others ? rest >= others : rest == 0));
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

int partition_vocabulary(const struct gpt *gpt, const struct stage *stage)
{
        return (gpt->vocab_size + stage->shards - 1) / stage->shards;
}

int partition_first_token(const struct gpt *gpt, const struct stage *stage)
{
        return partition_vocabulary(gpt, stage) * stage->shard;
}

struct stage partition_interleaved(const struct gpt *gpt, int stages, int chunks, int index)
{
        if (chunks == 1)
                return partition_stage(gpt, stages, index);
        assert(gpt->n_layer % (stages * chunks) == 0 && 0 <= index && index < stages);
        const int each = gpt->n_layer / (stages * chunks);
        return (struct stage){
                .index = index,
                .stages = stages,
                .chunks = chunks,
                .first_layer = index * each,
                .layers = chunks * each,
                .first = index == 0,
                .last = index == stages - 1,
                .shards = 1,
        };
}

struct stage partition_chunk(const struct stage *stage, int chunk)
{
        const int each = stage->layers / stage->chunks;
        return (struct stage){
                .index = chunk * stage->stages + stage->index,
                .stages = stage->stages * stage->chunks,
                .chunks = 1,
                .first_layer = partition_layer(stage, chunk * each),
                .layers = each,
                .first = stage->first && chunk == 0,
                .last = stage->last && chunk == stage->chunks - 1,
                .shards = stage->shards,
                .shard = stage->shard,
        };
}

int partition_layer(const struct stage *stage, int block)
{
        const int each = stage->layers / stage->chunks;
        return stage->first_layer + block / each * each * stage->stages + block % each;
}

/* Identities of the tensors outside the blocks; block b's follow from FIRST_BLOCK_ID. */
enum { WTE_ID, WPE_ID, LNF_W_ID, LNF_B_ID, HEAD_ID, FIRST_BLOCK_ID = 16 };

/* How a tensor is split over shards. */
enum split { SPLIT_NONE, SPLIT_ROWS, SPLIT_COLS };

/* A tensor of the whole model. */
struct whole {
        const char *name;
        int rows, cols;
        enum tensor_init init;
        enum split split;
        int parts; /* that are each split */
};

/* Where a tensor lies in a shard's memory, one after the other. */
enum place { PLACE_SPLIT, PLACE_REPLICATED, PLACE_COPY, PLACES };

/* The list under construction; `out` may be NULL. */
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

static void add(struct list *list, const struct whole *whole, int block, enum place place, uint32_t id)
{
        const struct stage *stage = list->stage;
        const int shards = stage->shards, parts = whole->parts;
        int rows = whole->split == SPLIT_ROWS ? part_of(whole->rows, shards) : whole->rows;
        int cols = whole->split == SPLIT_COLS ? part_of(whole->cols, shards) : whole->cols;
        const bool decay = whole->init == INIT_NORMAL || whole->init == INIT_NORMAL_RESIDUAL;
        int64_t elements = (int64_t)rows * cols;
        if (list->out) {
                struct tensor *tensor = &list->out[list->count];
                *tensor = (struct tensor){.rows = rows,
                                          .cols = cols,
                                          .offset = list->elements[place], /* of its place; see place_all */
                                          .elements = elements,
                                          .decay = decay,
                                          .init = whole->init,
                                          .id = id};
                tensor->whole.rows = whole->rows;
                tensor->whole.cols = whole->cols;
                tensor->whole.parts = parts;
                tensor->whole.first = (whole->split == SPLIT_COLS ? cols : rows) / parts * stage->shard;
                tensor->replicated = place == PLACE_REPLICATED;
                if (whole->split == SPLIT_NONE)
                        tensor->whole.first = 0;
                if (block < 0)
                        snprintf(tensor->name, sizeof tensor->name, "%s", whole->name);
                else
                        snprintf(tensor->name, sizeof tensor->name, "transformer.h.%d.%s", block,
                                 whole->name);
        }
        list->count++;
        list->elements[place] += elements;
}

/* With one shard everything lies in the order of the list. */
static void add_tensor(struct list *list, struct whole whole, int block, uint32_t id)
{
        const bool replicated = list->stage->shards > 1 && whole.split == SPLIT_NONE;
        add(list, &whole, block, replicated ? PLACE_REPLICATED : PLACE_SPLIT, id);
}

/* `block` counts over the whole model. */
static void add_block(struct list *list, int C, int block)
{
        const struct whole tensors[BLOCK_TENSORS] = {
                [BLOCK_LN1_W] = {"ln_1.weight", 1, C, INIT_ONE, SPLIT_NONE, 1},
                [BLOCK_LN1_B] = {"ln_1.bias", 1, C, INIT_ZERO, SPLIT_NONE, 1},
                [BLOCK_QKV_W] = {"attn.c_attn.weight", 3 * C, C, INIT_NORMAL, SPLIT_ROWS, 3},
                [BLOCK_QKV_B] = {"attn.c_attn.bias", 1, 3 * C, INIT_ZERO, SPLIT_COLS, 3},
                [BLOCK_PROJ_W] = {"attn.c_proj.weight", C, C, INIT_NORMAL_RESIDUAL, SPLIT_COLS, 1},
                [BLOCK_PROJ_B] = {"attn.c_proj.bias", 1, C, INIT_ZERO, SPLIT_NONE, 1},
                [BLOCK_LN2_W] = {"ln_2.weight", 1, C, INIT_ONE, SPLIT_NONE, 1},
                [BLOCK_LN2_B] = {"ln_2.bias", 1, C, INIT_ZERO, SPLIT_NONE, 1},
                [BLOCK_FC_W] = {"mlp.c_fc.weight", 4 * C, C, INIT_NORMAL, SPLIT_ROWS, 1},
                [BLOCK_FC_B] = {"mlp.c_fc.bias", 1, 4 * C, INIT_ZERO, SPLIT_COLS, 1},
                [BLOCK_FCPROJ_W] = {"mlp.c_proj.weight", C, 4 * C, INIT_NORMAL_RESIDUAL, SPLIT_COLS, 1},
                [BLOCK_FCPROJ_B] = {"mlp.c_proj.bias", 1, C, INIT_ZERO, SPLIT_NONE, 1},
        };
        for (int role = 0; role < BLOCK_TENSORS; role++)
                add_tensor(list, tensors[role], block,
                           (uint32_t)(FIRST_BLOCK_ID + block * BLOCK_TENSORS + role));
}

/* From offsets in its place to offsets in the flat buffer. */
static void place_all(struct list *list)
{
        for (int i = 0; list->out && i < list->count; i++) {
                struct tensor *tensor = &list->out[i];
                if (tensor->replicated)
                        tensor->offset += list->elements[PLACE_SPLIT];
        }
        if (list->out && list->elements[PLACE_COPY] > 0)
                list->out[list->count - 1].offset =
                        list->elements[PLACE_SPLIT] + list->elements[PLACE_REPLICATED];
}

static struct list list_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out)
{
        struct list list = {.out = out, .stage = stage};
        int C = gpt->n_embd, V = gpt->vocab_size;
        const struct whole wte = {"transformer.wte.weight", V, C, INIT_NORMAL, SPLIT_ROWS, 1};
        if (stage->first) {
                add_tensor(&list, wte, -1, WTE_ID);
                add_tensor(&list,
                           (struct whole){"transformer.wpe.weight", gpt->n_positions, C, INIT_NORMAL,
                                          SPLIT_NONE, 1},
                           -1, WPE_ID);
        }
        for (int block = 0; block < stage->layers; block++)
                add_block(&list, C, partition_layer(stage, block));
        if (stage->last) {
                add_tensor(&list, (struct whole){"transformer.ln_f.weight", 1, C, INIT_ONE, SPLIT_NONE, 1},
                           -1, LNF_W_ID);
                add_tensor(&list, (struct whole){"transformer.ln_f.bias", 1, C, INIT_ZERO, SPLIT_NONE, 1}, -1,
                           LNF_B_ID);
                if (!gpt->tied)
                        add_tensor(&list, (struct whole){"lm_head.weight", V, C, INIT_NORMAL, SPLIT_ROWS, 1},
                                   -1, HEAD_ID);
                else if (!stage->first)
                        add(&list, &wte, -1, PLACE_COPY, WTE_ID);
        }
        place_all(&list);
        return list;
}

int partition_tensors(const struct gpt *gpt, const struct stage *stage, struct tensor *out)
{
        return list_tensors(gpt, stage, out).count;
}

int64_t partition_parameters(const struct gpt *gpt, const struct stage *stage)
{
        struct list list = list_tensors(gpt, stage, NULL);
        return list.elements[PLACE_SPLIT] + list.elements[PLACE_REPLICATED] + list.elements[PLACE_COPY];
}

int64_t partition_replicated(const struct gpt *gpt, const struct stage *stage, int64_t *offset)
{
        struct list list = list_tensors(gpt, stage, NULL);
        if (offset)
                *offset = list.elements[PLACE_SPLIT];
        return list.elements[PLACE_REPLICATED];
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

int partition_block_tensor(const struct stage *stage, int block, enum tensor_role role)
{
        if (block < 0 || block >= stage->layers)
                return -1;
        return (stage->first ? 2 : 0) + block * BLOCK_TENSORS + (int)role;
}

int partition_wte(const struct stage *stage)
{
        return stage->first ? 0 : -1;
}

int partition_wpe(const struct stage *stage)
{
        return stage->first ? 1 : -1;
}

int partition_lnf_weight(const struct stage *stage)
{
        return stage->last ? (stage->first ? 2 : 0) + stage->layers * BLOCK_TENSORS : -1;
}

int partition_head(const struct gpt *gpt, const struct stage *stage)
{
        if (!stage->last)
                return -1;
        return gpt->tied && stage->first ? partition_wte(stage) : partition_lnf_weight(stage) + 2;
}

struct partition_units partition_units(const struct gpt *gpt)
{
        const int64_t C = gpt->n_embd, V = gpt->vocab_size;
        return (struct partition_units){.embedding = (V + gpt->n_positions) * C,
                                        .block = 12 * C * C + 13 * C,
                                        .head = V * C + 2 * C,
                                        .head_gradient = gpt->tied ? 2 * C : V * C + 2 * C};
}

struct partition_span partition_span(const struct gpt *gpt, const struct stage *stage, int64_t end,
                                     int64_t offset)
{
        const struct partition_units units = partition_units(gpt);
        const int64_t begin = stage->first ? units.embedding : 0; /* of blocks, and where they end */
        const int64_t head = begin + stage->layers * units.block;
        assert(stage->shards == 1 && stage->chunks == 1 && 0 <= offset && offset < end);
        struct partition_span span = {.head = end > head, .top = stage->layers - 1, .offset = head};
        if (!span.head) {
                span.top = (int)((end - begin) / units.block) - 1;
                span.offset = end;
        }
        while (span.offset > offset && span.blocks <= span.top) {
                span.blocks++;
                span.offset -= units.block;
        }
        if (span.offset > offset || span.offset == 0) {
                span.embedding = stage->first;
                span.offset = 0;
        }
        return span;
}
