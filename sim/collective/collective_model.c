#include "sim/collective/collective_model.h"

#include "sim/platform/fabric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t divide_up(int64_t a, int64_t b)
{
        return (a + b - 1) / b;
}

int collective_power(int n)
{
        int power = 1;
        while (2 * power <= n)
                power *= 2;
        return power;
}

static int log2_up(int n)
{
        int log = 0;
        while (1 << log < n)
                log++;
        return log;
}

/* ---- how a group lies on its platform ---- */

/* Groups are looked at so far to find their busiest rail and longest way: what comes after repeats it. */
enum { MAX_LOOKED_AT = 64, MAX_GPUS = 1024 };

struct walk {
        const struct platform *platform;
        const struct collective_group *group;
};

static struct platform_place place_of(const struct walk *walk, int member)
{
        return platform_place(walk->platform, walk->group->first + member * walk->group->stride);
}

/* Of the group and those beside it, how many send over the rail that `member` sends over, if all members do,
 * or only this one. */
static int rail_load(const struct walk *walk, int member, bool all)
{
        const struct collective_group *g = walk->group;
        const struct platform_place here = place_of(walk, member);
        const int rail = platform_rail(here.figures, here.gpu),
                  first = g->first + member * g->stride - here.gpu;
        bool sends[MAX_GPUS] = {false};
        for (int i = all ? 0 : member; i < (all ? g->count : member + 1); i++) {
                const int at = g->first + i * g->stride, block = at - at % g->beside;
                if (block >= first + here.figures->gpus_per_node)
                        break;
                for (int gpu = block; gpu < block + g->beside; gpu++)
                        if (gpu >= first && gpu < first + here.figures->gpus_per_node &&
                            gpu - first < MAX_GPUS)
                                sends[gpu - first] = true;
        }
        int load = 0;
        for (int gpu = 0; gpu < here.figures->gpus_per_node && gpu < MAX_GPUS; gpu++)
                load += sends[gpu] && platform_rail(here.figures, gpu) == rail;
        return load > 0 ? load : 1;
}

/* Counts the members of each node. */
static void count_nodes(const struct walk *walk, struct collective_shape *shape)
{
        int run = 0;
        int most = 0;
        shape->nodes = 1;
        shape->rings = walk->group->count;
        for (int i = 0; i < walk->group->count; i++) {
                run++;
                if (i + 1 < walk->group->count && place_of(walk, i + 1).node == place_of(walk, i).node)
                        continue;
                most = run > most ? run : most;
                shape->rings = run < shape->rings ? run : shape->rings;
                shape->nodes += i + 1 < walk->group->count;
                run = 0;
        }
        shape->per_node = shape->rings == most ? most : 0;
}

static void look_inside(const struct walk *walk, struct collective_shape *shape)
{
        const int count = walk->group->count;
        shape->near_bytes_per_second = INFINITY;
        for (int i = 0; i < count && i < MAX_LOOKED_AT; i++) {
                const struct platform_place a = place_of(walk, i), b = place_of(walk, (i + 1) % count);
                const struct platform *p = a.figures;
                double rate = p->gpu_link_bytes_per_second, seconds = 2 * p->gpu_link_seconds;
                if (p->gpu_link_is_pcie)
                        rate = p->pcie_bytes_per_second;
                if (a.node == b.node && p->socket_link_bytes_per_second > 0 &&
                    platform_socket(p, a.gpu) != platform_socket(p, b.gpu)) {
                        seconds += p->socket_link_seconds;
                        rate = fmin(rate, p->socket_link_bytes_per_second);
                }
                shape->near_seconds = fmax(shape->near_seconds, seconds);
                shape->near_bytes_per_second = fmin(shape->near_bytes_per_second, rate);
        }
}

static void look_between(const struct walk *walk, struct collective_shape *shape)
{
        const int count = walk->group->count, step = shape->per_node > 0 ? shape->per_node : 1;
        const struct fabric *fabric = &walk->platform->fabric;
        shape->far_bytes_per_second = shape->far_alone_bytes_per_second = INFINITY;
        int looked_at = 0;
        for (int i = 0; i < count && looked_at < MAX_LOOKED_AT; i++) {
                const struct platform_place a = place_of(walk, i), b = place_of(walk, (i + step) % count);
                const struct platform *p = a.figures;
                if (a.node == b.node)
                        continue;
                looked_at++;
                double rail = p->nic_bytes_per_second / p->rails;
                const int one = rail_load(walk, i, false), all = rail_load(walk, i, true);
                double alone = rail / one;
                double shared = rail / (all < one * shape->rings ? all : one * shape->rings);
                double hops = fabric_hops(fabric, a.node, b.node) * fabric->hop_seconds;
                double link = fabric_link_rate(fabric);
                if (p->pcie_bytes_per_second > 0)
                        link = fmin(link, p->pcie_bytes_per_second);
                shape->far_seconds = fmax(shape->far_seconds, p->nic_seconds + b.figures->nic_seconds + hops);
                shape->far_bytes_per_second = fmin(shape->far_bytes_per_second, fmin(shared, link));
                shape->far_alone_bytes_per_second =
                        fmin(shape->far_alone_bytes_per_second, fmin(alone, link));
                if (p->gpu_link_is_pcie)
                        shape->both_bytes_per_second = p->pcie_bytes_per_second;
        }
}

struct collective_shape collective_shape(const struct platform *platform,
                                         const struct collective_group *group)
{
        const struct walk walk = {platform, group};
        struct collective_shape shape = {.size = group->count};
        count_nodes(&walk, &shape);
        look_inside(&walk, &shape);
        if (shape.nodes > 1)
                look_between(&walk, &shape);
        return shape;
}

/* ---- phases ---- */

struct building {
        const struct collective_shape *shape;
        const struct collective_costs *costs;
        struct collective_phase *phases;
        int count;
};

/* Steps whose messages carry `bytes` of the buffer each. */
static struct collective_phase *add_phase(struct building *b, enum collective_pattern pattern, int steps,
                                          bool far, int64_t bytes)
{
        const struct collective_costs *c = b->costs;
        b->phases[b->count] = (struct collective_phase){
                .pattern = pattern,
                .steps = steps,
                .far = far,
                .near_bytes = (int64_t)ceil((double)bytes * c->near_bytes_per_byte),
                .far_bytes = (int64_t)ceil((double)bytes * c->far_bytes_per_byte),
                .software_seconds = far ? c->far_step_seconds : c->near_step_seconds,
                .segments = 1,
        };
        return &b->phases[b->count++];
}

/* Of nodes with unequal numbers of members: the part of a block that one ring of several carries between
 * nodes, or the links inside allow. */
static double uneven_part(const struct collective_shape *shape)
{
        const double between = shape->far_alone_bytes_per_second / shape->far_bytes_per_second / shape->rings,
                     inside = shape->far_alone_bytes_per_second / shape->near_bytes_per_second;
        return fmin(1, fmax(between, inside));
}

/* A ring among all members: as the rings of all their rails do it together, each of which begins in another
 * place of the node and leaves it over another rail. A member then sends, of each step's p-th, as many parts
 * to its neighbour in the node as there are members in it, but one, and that one to the next node. */
static void add_ring(struct building *b, int64_t bytes, bool reduces)
{
        const struct collective_shape *shape = b->shape;
        const struct collective_costs *c = b->costs;
        const int p = shape->size, k = shape->per_node;
        const int64_t block = divide_up(bytes, p);
        struct collective_phase *phase;
        if (shape->nodes > 1 && k > 1 && c->algorithm != COLLECTIVE_FLAT_RING) {
                phase = add_phase(b, PATTERN_BOTH_RINGS, p - 1, true, block);
                phase->near_bytes = divide_up(phase->near_bytes * (k - 1), k);
                phase->far_bytes = divide_up(phase->far_bytes, k);
                phase->software_seconds = ((k - 1) * c->near_step_seconds + c->far_step_seconds) / k;
        } else {
                phase = add_phase(b, PATTERN_RING, p - 1, shape->nodes > 1, block);
                if (shape->nodes > 1 && c->algorithm != COLLECTIVE_FLAT_RING)
                        phase->far_bytes = (int64_t)ceil((double)phase->far_bytes * uneven_part(shape));
        }
        phase->segments = c->segments;
        phase->arithmetic_seconds = reduces ? c->reduce_seconds_per_byte * (double)block : 0;
}

/* Among the members of a node, or those in the same place of all nodes. */
static void add_part_ring(struct building *b, enum collective_pattern pattern, int64_t bytes, bool reduces)
{
        const bool far = pattern == PATTERN_FAR_RING;
        const int p = far ? b->shape->nodes : b->shape->per_node;
        if (p < 2)
                return;
        struct collective_phase *phase = add_phase(b, pattern, p - 1, far, divide_up(bytes, p));
        phase->segments = b->costs->segments;
        phase->arithmetic_seconds =
                reduces ? b->costs->reduce_seconds_per_byte * (double)divide_up(bytes, p) : 0;
}

static bool is_far(const struct building *b, int distance)
{
        return b->shape->nodes > 1 && (b->shape->per_node == 0 || distance >= b->shape->per_node);
}

static void add_exchange(struct building *b, enum collective_pattern pattern, int distance, int64_t bytes,
                         bool reduces)
{
        struct collective_phase *phase = add_phase(b, pattern, 1, is_far(b, distance), bytes);
        phase->distance = distance;
        phase->arithmetic_seconds = reduces ? b->costs->reduce_seconds_per_byte * (double)bytes : 0;
}

static void add_join(struct building *b, enum collective_pattern pattern, int64_t bytes)
{
        const int power = collective_power(b->shape->size);
        if (power < b->shape->size)
                add_exchange(b, pattern, power, bytes, pattern == PATTERN_JOIN);
}

static void add_doubling(struct building *b, int64_t bytes)
{
        add_join(b, PATTERN_JOIN, bytes);
        for (int distance = 1; 2 * distance <= b->shape->size; distance *= 2)
                add_exchange(b, PATTERN_PAIRS, distance, bytes, true);
        add_join(b, PATTERN_LEAVE, bytes);
}

/* The halves of halves: near members exchange the large ones. */
static void add_halving(struct building *b, enum collective_kind kind, int64_t bytes)
{
        const int power = collective_power(b->shape->size);
        if (kind != COLLECTIVE_ALL_GATHER) {
                add_join(b, PATTERN_JOIN, bytes);
                for (int distance = 1; distance < power; distance *= 2)
                        add_exchange(b, PATTERN_PAIRS, distance, divide_up(bytes, 2 * distance), true);
        }
        if (kind != COLLECTIVE_REDUCE_SCATTER) {
                for (int distance = power / 2; distance > 0; distance /= 2)
                        add_exchange(b, PATTERN_PAIRS, distance, divide_up(bytes, 2 * distance), false);
                add_join(b, PATTERN_LEAVE, bytes);
        }
}

static void add_binomial(struct building *b, int64_t bytes)
{
        int distance = 1;
        for (; distance < b->shape->size; distance *= 2)
                add_exchange(b, PATTERN_UP, distance, bytes, true);
        for (distance /= 2; distance > 0; distance /= 2)
                add_exchange(b, PATTERN_DOWN, distance, bytes, false);
}

static int tree_members(const struct collective_shape *shape)
{
        return shape->nodes > 1 && shape->per_node > 0 ? shape->nodes : shape->size;
}

/* A tree has half of the buffer, in parts that follow each other up and then down. */
static void add_trees(struct building *b, int64_t bytes)
{
        const int64_t half = divide_up(bytes, 2), max = 64;
        int64_t parts = divide_up(half, b->costs->chunk_bytes);
        parts = parts > max ? max : parts < 1 ? 1 : parts;
        const int rounds = log2_up(tree_members(b->shape)) + (int)parts - 1;
        const bool far = b->shape->nodes > 1;
        for (int down = 0; down < 2; down++) {
                struct collective_phase *phase = add_phase(b, down ? PATTERN_TREES_DOWN : PATTERN_TREES_UP,
                                                           rounds, far, divide_up(half, parts));
                phase->distance = (int)parts;
                phase->arithmetic_seconds =
                        down ? 0 : b->costs->reduce_seconds_per_byte * (double)divide_up(half, parts) * 2;
        }
}

/* Inside nodes a ring scatters, between them the members in the same place work on their part, and a ring
 * inside gathers. */
static void add_hierarchy(struct building *b, enum collective_kind kind, int64_t bytes, bool trees)
{
        const int64_t part = divide_up(bytes, b->shape->per_node);
        if (kind != COLLECTIVE_ALL_GATHER)
                add_part_ring(b, PATTERN_NEAR_RING, bytes, true);
        if (trees) {
                add_trees(b, part);
        } else {
                if (kind != COLLECTIVE_ALL_GATHER)
                        add_part_ring(b, PATTERN_FAR_RING, part, true);
                if (kind != COLLECTIVE_REDUCE_SCATTER)
                        add_part_ring(b, PATTERN_FAR_RING, part, false);
        }
        if (kind != COLLECTIVE_REDUCE_SCATTER)
                add_part_ring(b, PATTERN_NEAR_RING, bytes, false);
}

/* Trees and exchanges of the whole buffer make sums for all; scattering and gathering have rings and halves,
 * and a hierarchy needs as many members in every node. */
static enum collective_algorithm possible(const struct collective_shape *shape,
                                          enum collective_algorithm algorithm, enum collective_kind kind)
{
        const bool sums = kind == COLLECTIVE_ALLREDUCE;
        if (algorithm == COLLECTIVE_HIERARCHICAL)
                return shape->nodes > 1 && shape->per_node > 1 ? algorithm : COLLECTIVE_RING;
        if (!sums && (algorithm == COLLECTIVE_TREE || algorithm == COLLECTIVE_BINOMIAL))
                return COLLECTIVE_RING;
        if (!sums && algorithm == COLLECTIVE_DOUBLING)
                return COLLECTIVE_HALVING;
        return algorithm;
}

int collective_phases(const struct collective_shape *shape, const struct collective_costs *costs,
                      enum collective_kind kind, int64_t bytes,
                      struct collective_phase phases[COLLECTIVE_PHASES])
{
        struct building b = {shape, costs, phases, 0};
        if (shape->size < 2)
                return 0;
        switch (possible(shape, costs->algorithm, kind)) {
        case COLLECTIVE_TREE:
                if (shape->nodes > 1 && shape->per_node > 1)
                        add_hierarchy(&b, kind, bytes, true);
                else
                        add_trees(&b, bytes);
                break;
        case COLLECTIVE_BINOMIAL:
                add_binomial(&b, bytes);
                break;
        case COLLECTIVE_DOUBLING:
                add_doubling(&b, bytes);
                break;
        case COLLECTIVE_HALVING:
                add_halving(&b, kind, bytes);
                break;
        case COLLECTIVE_HIERARCHICAL:
                add_hierarchy(&b, kind, bytes, false);
                break;
        default:
                if (kind != COLLECTIVE_ALL_GATHER)
                        add_ring(&b, bytes, true);
                if (kind != COLLECTIVE_REDUCE_SCATTER)
                        add_ring(&b, bytes, false);
        }
        return b.count;
}

/* ---- the two trees: in-order numbering, so that a leaf of one is inside the other ---- */

static int parent_in_order(int index, int count)
{
        if (index == 0)
                return -1;
        int bit = index & -index, up = (index ^ bit) | (bit << 1);
        return up < count ? up : index ^ bit;
}

/* The second tree is the first one mirrored or, with an odd number of members, moved by one. */
static int renumber(int tree, int index, int count, int back)
{
        if (tree == 0)
                return index;
        return count % 2 == 0 ? count - 1 - index : (index + count + (back ? 1 : -1)) % count;
}

int collective_tree_parent(int tree, int index, int count)
{
        int parent = parent_in_order(renumber(tree, index, count, 0), count);
        return parent < 0 ? -1 : renumber(tree, parent, count, 1);
}

int collective_tree_depth(int tree, int index, int count)
{
        int depth = 0;
        for (int at = renumber(tree, index, count, 0); at > 0; at = parent_in_order(at, count))
                depth++;
        return depth;
}

int collective_tree_children(int tree, int index, int count, int children[2])
{
        const int at = renumber(tree, index, count, 0);
        int found = 0, half = at ? (at & -at) / 2 : collective_power(count > 1 ? count - 1 : 1);
        if (at > 0 && half > 0)
                children[found++] = renumber(tree, at - half, count, 1);
        while (half > 0 && at + half >= count)
                half /= 2;
        if (half > 0)
                children[found++] = renumber(tree, at + half, count, 1);
        return found;
}

/* ---- the closed form ---- */

static double message_seconds(double latency, double rate, int64_t bytes)
{
        return latency + (double)bytes / rate;
}

/* Up to so many members, a tree's loads are counted; beyond, two parts share a link but in the round that
 * reaches the root. */
enum { MAX_COUNTED = 64 };

/* How many parts share the busiest link of a round in which parents of the depths from `least` to `most` are
 * sent to (or send). */
static int round_load(int members, int min, int max)
{
        unsigned char in[MAX_COUNTED] = {0}, out[MAX_COUNTED] = {0};
        int load = 1;
        if (members > MAX_COUNTED)
                return min == 1 && max == 1 ? 1 : 2;
        for (int tree = 0; tree < 2; tree++)
                for (int i = 0; i < members; i++) {
                        const int depth = collective_tree_depth(tree, i, members);
                        if (depth < min || depth > max || depth == 0)
                                continue;
                        out[i]++;
                        in[collective_tree_parent(tree, i, members)]++;
                }
        for (int i = 0; i < members; i++)
                load = in[i] > load ? in[i] : out[i] > load ? out[i] : load;
        return load;
}

/* What the parts of all rounds take if every round takes as long as its busiest link. */
static double shared_parts(int members, int depth, int parts)
{
        double shared = 0;
        int min_before = 0, max_before = 0, load = 0;
        for (int round = 0; round < depth + parts - 1; round++) {
                int min = depth - round > 1 ? depth - round : 1;
                int max = round < parts ? depth : depth - (round - parts + 1);
                if (min != min_before || max != max_before)
                        load = round_load(members, min, max);
                min_before = min;
                max_before = max;
                shared += load;
        }
        return shared;
}

struct tree_edge {
        int child, parent, depth;
};

/* When a part that begins at `start` is through a link that another one begins to share at `other`. */
static double shared_end(double start, double other)
{
        const double apart = fabs(start - other);
        if (apart >= 1)
                return start + 1;
        return start <= other ? other + 2 * (1 - apart) : other + 2;
}

/* A round of the members that `edges` join and that send in it: those who wait for nobody run ahead. A member
 * has up to two parts to send and two to receive. */
static void run_round(const struct tree_edge *edges, int count, int min, int max, double *ends, int members)
{
        double after[MAX_COUNTED];
        memcpy(after, ends, (size_t)members * sizeof *after);
        for (int i = 0; i < count; i++) {
                const struct tree_edge *edge = &edges[i];
                if (edge->depth < min || edge->depth > max)
                        continue;
                const double start = fmax(ends[edge->child], ends[edge->parent]);
                double end = start + 1;
                for (int j = 0; j < count; j++) {
                        const struct tree_edge *other = &edges[j];
                        if (j != i && other->depth >= min && other->depth <= max &&
                            (other->child == edge->child || other->parent == edge->parent))
                                end = fmax(end,
                                           shared_end(start, fmax(ends[other->child], ends[other->parent])));
                }
                after[edge->child] = fmax(after[edge->child], end);
                after[edge->parent] = fmax(after[edge->parent], end);
        }
        memcpy(ends, after, (size_t)members * sizeof *after);
}

/* The same where there are few members and rounds: when each member is done with each round; half of both
 * ways. */
static double followed_parts(int members, int depth, int parts)
{
        struct tree_edge edges[2 * MAX_COUNTED];
        double ends[MAX_COUNTED] = {0}, last = 0;
        int count = 0;
        for (int tree = 0; tree < 2; tree++)
                for (int i = 0; i < members; i++)
                        if (collective_tree_parent(tree, i, members) >= 0)
                                edges[count++] =
                                        (struct tree_edge){i, collective_tree_parent(tree, i, members),
                                                           collective_tree_depth(tree, i, members)};
        const int rounds = depth + parts - 1;
        for (int i = 0; i < 2 * rounds; i++) { /* up, and the same backwards down */
                const int round = i < rounds ? i : 2 * rounds - 1 - i;
                int min = depth - round > 1 ? depth - round : 1;
                int max = round < parts ? depth : depth - (round - parts + 1);
                run_round(edges, count, min, max, ends, members);
        }
        for (int i = 0; i < members; i++)
                last = fmax(last, ends[i]);
        return last / 2;
}

/* In a round, members of one depth after another send their next part to their parents; down is up backwards.
 */
static double trees_seconds(const struct collective_shape *s, const struct collective_phase *phase)
{
        const int members = tree_members(s), parts = phase->distance, depth = phase->steps - parts + 1;
        const double rate = phase->far ? s->far_bytes_per_second : s->near_bytes_per_second;
        const double part = (double)(phase->far ? phase->far_bytes : phase->near_bytes) / rate;
        const double fixed = phase->software_seconds + (phase->far ? s->far_seconds : s->near_seconds) +
                             phase->arithmetic_seconds;
        const bool few = members <= MAX_COUNTED && parts <= 4;
        return phase->steps * fixed +
               part * (few ? followed_parts(members, depth, parts) : shared_parts(members, depth, parts));
}

static double step_seconds(const struct collective_shape *s, const struct collective_phase *phase)
{
        const bool alone =
                phase->pattern == PATTERN_UP || phase->pattern == PATTERN_DOWN ||
                phase->pattern == PATTERN_RING; /* of a node's members, one sends to another node */
        const int64_t near = divide_up(phase->near_bytes, phase->segments);
        const int64_t far = divide_up(phase->far_bytes, phase->segments);
        const double between = message_seconds(
                s->far_seconds, alone ? s->far_alone_bytes_per_second : s->far_bytes_per_second, far);
        const double inside = message_seconds(s->near_seconds, s->near_bytes_per_second, near);
        double message = phase->far ? between : inside,
               arithmetic = phase->arithmetic_seconds / phase->segments;
        if (phase->pattern == PATTERN_BOTH_RINGS) {
                message = fmax(inside, between);
                if (s->both_bytes_per_second > 0)
                        message = fmax(message,
                                       message_seconds(s->far_seconds, s->both_bytes_per_second, near + far));
        }
        return phase->software_seconds + message + (phase->segments - 1) * fmax(message, arithmetic) +
               arithmetic;
}

double collective_estimate(const struct collective_shape *shape, const struct collective_costs *costs,
                           enum collective_kind kind, int64_t bytes)
{
        struct collective_phase phases[COLLECTIVE_PHASES];
        const int count = collective_phases(shape, costs, kind, bytes, phases);
        if (count == 0)
                return 0;
        double seconds =
                costs->start_seconds + costs->copy_seconds_per_byte * (double)divide_up(bytes, shape->size);
        for (int i = 0; i < count; i++)
                if (phases[i].pattern == PATTERN_TREES_UP || phases[i].pattern == PATTERN_TREES_DOWN)
                        seconds += trees_seconds(shape, &phases[i]);
                else
                        seconds += phases[i].steps * step_seconds(shape, &phases[i]);
        return fmax(seconds, costs->min_seconds);
}

/* How many of `places` have one of so many draws. */
static double drawn(double places, double draws)
{
        return places * (1 - pow(1 - 1 / places, draws));
}

void collective_exchange_once(const struct collective_shape *shape, int64_t chosen,
                              struct collective_exchange *exchange)
{
        const double rows = (double)chosen;
        if (shape->nodes > 1 && shape->per_node == 0) /* nodes are not alike: as it was */
                return;
        exchange->near_per_byte *= shape->nodes * drawn(shape->size, rows) / rows;
        exchange->far_per_byte *= drawn(shape->nodes, rows) / rows;
}

double collective_exchange_seconds(const struct collective_shape *shape,
                                   const struct collective_exchange *exchange, int64_t bytes)
{
        const double each = (double)bytes / shape->size;
        const int near = (shape->nodes > 1 ? shape->per_node : shape->size) - 1;
        const int far = shape->size - 1 - (near > 0 ? near : 0);
        const double near_bytes = near * each * exchange->near_per_byte,
                     far_bytes = far * each * exchange->far_per_byte;
        const double inside = near > 0 ? shape->near_seconds + near_bytes / shape->near_bytes_per_second : 0;
        const double outside = far > 0 ? shape->far_seconds + far_bytes / shape->far_bytes_per_second : 0;
        return exchange->start_seconds + fmax(inside, outside);
}

double collective_seconds(const struct platform *platform, const struct collective_group *group,
                          enum collective_kind kind, int64_t bytes, enum dtype dtype)
{
        if (platform->gpu_link_bytes_per_second == 0 || group->count < 2)
                return 0;
        const struct collective_shape shape = collective_shape(platform, group);
        const struct collective_costs costs = collective_choose(platform, &shape, kind, bytes, dtype);
        return collective_estimate(&shape, &costs, kind, bytes);
}
