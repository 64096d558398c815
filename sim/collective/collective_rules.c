/* Which algorithm a library chooses for a collective, and what that costs.
 *
 * NCCL: the algorithm and the protocol that its model says end first: a base, steps by their latency, bytes
 * by bandwidth (NVIDIA/nccl 2.8, src/graph/tuning.cc, ncclTopoTuneModel). The protocols' constants come with
 * the platform (platform.c has NCCL's); links and adapters are ours. Open MPI: sizes and numbers of ranks are
 * compared with those of its tables: MPI_Allreduce as ompi/mca/coll/tuned/coll_tuned_decision_fixed.c of 4.1
 * has them for sums, MPI_Iallreduce in place as ompi/mca/coll/libnbc/nbc_iallreduce.c: always a binomial
 * tree.
 *
 * Ours, runtime/net/mpi.c: that tree too, and from some size on every member makes the sums of its part
 * (runtime/net/shared_sum.h) and all parts are gathered. Among p members each sends p - 1 messages of a p-th,
 * twice, as in a ring; all at once instead of one after another, which here is p - 2 latencies too many,
 * twice. */
#include "sim/collective/collective_model.h"

#include "runtime/base/sums.h"

#include <math.h>

/* Below this many bytes fewer steps matter more than less to send (Thakur, Rabenseifner & Gropp 2005, section
 * 4.4). */
enum { PLAIN_RING_FROM_BYTES = 4096 };

static double at_least_zero(double value)
{
        return value > 0 ? value : 0;
}

static struct collective_costs plain_costs(const struct platform *p, enum collective_algorithm algorithm)
{
        return (struct collective_costs){
                .algorithm = algorithm,
                .near_step_seconds = p->collective_latency_seconds,
                .far_step_seconds = p->collective_latency_seconds,
                .near_bytes_per_byte = 1,
                .far_bytes_per_byte = 1,
                .reduce_seconds_per_byte = p->reduce_seconds_per_byte,
                .segments = p->collective_segments,
                .chunk_bytes = 262144,
        };
}

/* ---- NCCL ---- */

static struct collective_costs nccl_costs(const struct platform *p, const struct collective_shape *shape,
                                          enum collective_algorithm algorithm, int protocol)
{
        const struct collective_protocol *c = &p->collectives.protocols[protocol];
        const bool tree = algorithm == COLLECTIVE_TREE;
        const double far_step = tree ? c->far_level_seconds : c->far_step_seconds;
        return (struct collective_costs){
                .algorithm = algorithm,
                .protocol = protocol,
                .start_seconds = tree ? c->tree_start_seconds : c->start_seconds,
                .min_seconds =
                        p->collectives.min_seconds + p->collectives.min_seconds_per_member * shape->size,
                .near_step_seconds = at_least_zero(c->near_step_seconds - shape->near_seconds),
                .far_step_seconds = at_least_zero(far_step - shape->far_seconds),
                .near_bytes_per_byte = 1 / c->near_efficiency,
                .far_bytes_per_byte = 1 / c->far_efficiency,
                .reduce_seconds_per_byte = p->reduce_seconds_per_byte,
                .copy_seconds_per_byte = p->collectives.copy_seconds_per_byte,
                .segments = p->collective_segments,
                .chunk_bytes = 262144, /* of Simple, by the comment beside hwLat in tuning.cc */
        };
}

/* Trees are for sums, and inside one node they would be chains, which a ring does better. */
static struct collective_costs nccl_choice(const struct platform *p, const struct collective_shape *shape,
                                           enum collective_kind kind, int64_t bytes)
{
        const bool trees = kind == COLLECTIVE_ALLREDUCE && shape->nodes > 1;
        const enum collective_algorithm forced = (enum collective_algorithm)p->collectives.algorithm;
        enum collective_algorithm candidates[] = {COLLECTIVE_RING, COLLECTIVE_TREE};
        int candidate_count = trees ? 2 : 1;
        struct collective_costs best = {0};
        double min = INFINITY;
        if (forced) {
                candidates[0] = forced;
                candidate_count = 1;
        }
        for (int a = 0; a < candidate_count; a++)
                for (int protocol = 0; protocol < COLLECTIVE_PROTOCOLS; protocol++) {
                        struct collective_costs costs = nccl_costs(p, shape, candidates[a], protocol);
                        double seconds = collective_estimate(shape, &costs, kind, bytes);
                        if (seconds < min) {
                                min = seconds;
                                best = costs;
                        }
                }
        return best;
}

/* ---- Open MPI ---- */

/* From so many bytes on, an algorithm, if there are fewer ranks than `ranks`. */
struct rule {
        int ranks;
        int64_t bytes;
        enum collective_algorithm algorithm;
};

/* Its ring and its segmented ring are one here, and its reduction followed by a broadcast is the tree. */
static const struct rule sums[] = {{4, 0, COLLECTIVE_RING},
                                   {4, 8, COLLECTIVE_DOUBLING},
                                   {4, 4096, COLLECTIVE_RING},
                                   {4, 8192, COLLECTIVE_DOUBLING},
                                   {4, 16384, COLLECTIVE_RING},
                                   {4, 262144, COLLECTIVE_HALVING},
                                   {8, 0, COLLECTIVE_RING},
                                   {8, 16, COLLECTIVE_DOUBLING},
                                   {8, 8192, COLLECTIVE_HALVING},
                                   {16, 0, COLLECTIVE_DOUBLING},
                                   {16, 8192, COLLECTIVE_HALVING},
                                   {32, 0, COLLECTIVE_RING},
                                   {32, 64, COLLECTIVE_DOUBLING},
                                   {32, 4096, COLLECTIVE_HALVING},
                                   {64, 0, COLLECTIVE_RING},
                                   {64, 128, COLLECTIVE_HALVING},
                                   {128, 0, COLLECTIVE_DOUBLING},
                                   {128, 262144, COLLECTIVE_HALVING},
                                   {256, 0, COLLECTIVE_BINOMIAL},
                                   {256, 131072, COLLECTIVE_DOUBLING},
                                   {256, 262144, COLLECTIVE_HALVING},
                                   {512, 0, COLLECTIVE_BINOMIAL},
                                   {512, 4096, COLLECTIVE_HALVING},
                                   {2048, 0, COLLECTIVE_BINOMIAL},
                                   {2048, 2048, COLLECTIVE_DOUBLING},
                                   {2048, 16384, COLLECTIVE_HALVING},
                                   {4096, 0, COLLECTIVE_BINOMIAL},
                                   {4096, 2048, COLLECTIVE_RING},
                                   {4096, 4096, COLLECTIVE_DOUBLING},
                                   {4096, 16384, COLLECTIVE_HALVING},
                                   {INT32_MAX, 0, COLLECTIVE_BINOMIAL},
                                   {INT32_MAX, 2048, COLLECTIVE_RING},
                                   {INT32_MAX, 16384, COLLECTIVE_DOUBLING},
                                   {INT32_MAX, 32768, COLLECTIVE_HALVING}};

static enum collective_algorithm open_mpi_sum(int ranks, int64_t bytes)
{
        enum collective_algorithm algorithm = COLLECTIVE_RING;
        int column = 0;
        for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
                if (ranks >= sums[i].ranks || (column && sums[i].ranks != column))
                        continue;
                column = sums[i].ranks;
                if (bytes >= sums[i].bytes)
                        algorithm = sums[i].algorithm;
        }
        return algorithm;
}

/* ---- the local platform: what its measured all-reduces leave beside their messages ---- */

static const struct profile_load *measured_load(const struct platform *p, enum dtype dtype,
                                                enum profile_line *line)
{
        enum dtype measured = dtype; /* else another sort, which suits a few scalars as well */
        for (enum dtype other = DTYPE_FP32; !p->allreduces[measured] && other < DTYPES; other++)
                measured = p->allreduces[other] ? other : measured;
        *line = profile_allreduce_line(measured);
        return p->allreduces[measured];
}

/* A few bytes are slow because of the steps, more because of the arithmetic. Where the messages alone, which
 * were measured one by one, would take longer than the all-reduce did, they are faster in it. */
static void meet_measured(const struct platform *p, struct collective_costs *costs, int64_t bytes,
                          enum dtype dtype)
{
        enum profile_line line;
        const struct profile_load *load = measured_load(p, dtype, &line);
        if (!load)
                return;
        const struct collective_group all = {0, 1, load->ranks, 1};
        struct platform node = *p; /* the measured ranks may be more than those of the plan */
        node.gpus_per_node = load->ranks;
        const struct collective_shape shape = collective_shape(&node, &all);
        const double measured = profile_line_seconds(load, line, bytes, false);
        costs->near_step_seconds = costs->reduce_seconds_per_byte = 0;
        const double messages = collective_estimate(&shape, costs, COLLECTIVE_ALLREDUCE, bytes);
        const double left = measured - messages;
        struct collective_costs other = *costs;
        if (left < 0) {
                other.near_bytes_per_byte = 0;
                const double latencies = collective_estimate(&shape, &other, COLLECTIVE_ALLREDUCE, 1);
                costs->near_bytes_per_byte =
                        messages > latencies ? fmax((measured - latencies) / (messages - latencies), 1e-3)
                                             : 1;
        } else if (bytes < PLAIN_RING_FROM_BYTES) {
                other.near_step_seconds = 1;
                costs->near_step_seconds =
                        left / (collective_estimate(&shape, &other, COLLECTIVE_ALLREDUCE, bytes) - messages);
        } else {
                other.reduce_seconds_per_byte = 1;
                costs->reduce_seconds_per_byte =
                        left / (collective_estimate(&shape, &other, COLLECTIVE_ALLREDUCE, bytes) - messages);
        }
}

/* ---- all of them ---- */

static enum collective_algorithm choose_by_size(const struct platform *p,
                                                const struct collective_shape *shape,
                                                enum collective_kind kind, int64_t bytes)
{
        if (p->collectives.algorithm)
                return (enum collective_algorithm)p->collectives.algorithm;
        if (kind != COLLECTIVE_ALLREDUCE)
                return COLLECTIVE_RING;
        if (p->collectives.library == LIBRARY_OPEN_MPI)
                return open_mpi_sum(shape->size, bytes);
        if (p->collectives.library == LIBRARY_OPEN_MPI_NONBLOCKING)
                return COLLECTIVE_BINOMIAL;
        if (p->collectives.library == LIBRARY_RANVIER)
                return sums_shared(bytes, shape->size) ? COLLECTIVE_RING : COLLECTIVE_BINOMIAL;
        return bytes < PLAIN_RING_FROM_BYTES ? COLLECTIVE_DOUBLING : COLLECTIVE_RING;
}

/* What an all-reduce's messages leave of what was measured is the arithmetic of a reduce-scatter too. */
struct collective_costs collective_library_choice(const struct platform *p,
                                                  const struct collective_shape *shape,
                                                  enum collective_kind kind, int64_t bytes, enum dtype dtype)
{
        if (p->collectives.library == LIBRARY_NCCL)
                return nccl_choice(p, shape, kind, bytes);
        struct collective_costs costs = plain_costs(p, choose_by_size(p, shape, COLLECTIVE_ALLREDUCE, bytes));
        meet_measured(p, &costs, bytes, dtype);
        costs.algorithm = choose_by_size(p, shape, kind, bytes);
        return costs;
}

struct collective_costs collective_choose(const struct platform *p, const struct collective_shape *shape,
                                          enum collective_kind kind, int64_t bytes, enum dtype dtype)
{
        struct collective_costs costs = collective_library_choice(p, shape, kind, bytes, dtype);
        const double measured = collective_measured_seconds(p, shape, kind, bytes, dtype);
        if (!isnan(measured))
                collective_meet(shape, &costs, kind, bytes, measured);
        return costs;
}

/* As many of a ring's steps leave a node as there are nodes. */
double collective_ring_fill(const struct platform *p, const struct collective_shape *shape)
{
        const struct collective_protocol *simple = &p->collectives.protocols[COLLECTIVE_PROTOCOLS - 1];
        const bool nccl = p->collectives.library == LIBRARY_NCCL;
        const double plain = p->collective_latency_seconds;
        const double near = nccl ? simple->near_step_seconds : plain + shape->near_seconds;
        const double far = nccl ? simple->far_step_seconds : plain + shape->far_seconds;
        const int leaving = shape->nodes > 1 ? shape->nodes : 0;
        return near * (shape->size - leaving) + far * leaving;
}

struct collective_exchange collective_library_exchange(const struct platform *p,
                                                       const struct collective_shape *shape, int64_t bytes,
                                                       enum dtype dtype)
{
        const struct collective_costs costs =
                collective_library_choice(p, shape, COLLECTIVE_ALL_GATHER, bytes, dtype);
        return (struct collective_exchange){costs.start_seconds, 1, 1};
}
