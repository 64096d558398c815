/* What was measured of collectives (sim/platform/collective_table.h), and how it goes on where nothing was.
 *
 * Between two measured sizes the logarithm of seconds is interpolated over that of bytes; between two
 * measured numbers of GPUs of a node, or of nodes, that of how many times the library's closed form they
 * took. Beyond the measured ones the closed form goes on, times what the nearest took against it. A group
 * that has fewer or more members of each node than were measured takes the closed form, slowed as the
 * measured one is with as many bytes on the links between the nodes. */
#include "sim/collective/collective_model.h"

#include <math.h>

/* A place in the table: an operation of a platform, with what its library would take. */
struct lookup {
        const struct platform *platform;
        enum collective_kind kind;
        enum dtype dtype;
};

/* The library's time by closed form. */
static double library_seconds(const struct lookup *l, const struct collective_shape *shape, double bytes)
{
        const int64_t whole = (int64_t)ceil(bytes);
        if (l->kind == COLLECTIVE_ALL_TO_ALL) {
                const struct collective_exchange exchange =
                        collective_library_exchange(l->platform, shape, whole, l->dtype);
                return collective_exchange_seconds(shape, &exchange, whole);
        }
        const struct collective_costs costs =
                collective_library_choice(l->platform, shape, l->kind, whole, l->dtype);
        return collective_estimate(shape, &costs, l->kind, whole);
}

/* A shape like `shape` with the members of a series. */
static struct collective_shape shape_of(const struct lookup *l, const struct collective_shape *shape,
                                        const struct collective_series *series, int nodes)
{
        const int per_node = series->gpus / series->nodes, node = l->platform->gpus_per_node;
        if (nodes > 1) {
                const struct collective_group group = {0, per_node < node ? node / per_node : 1,
                                                       nodes * per_node, 1};
                return collective_shape(l->platform, &group);
        }
        struct collective_shape other = *shape;
        other.size = other.per_node = per_node;
        return other;
}

/* Of a series; on from its sizes as a later table goes on, or else the library. */
static double series_seconds(const struct lookup *l, const struct collective_shape *shape,
                             const struct collective_series *series, double bytes)
{
        double at;
        const double seconds = collective_series_seconds(series, bytes, &at);
        if (at == bytes)
                return seconds;
        const struct collective_series *next =
                collective_table_next(&l->platform->measured_collectives, series);
        if (next)
                return seconds * series_seconds(l, shape, next, bytes) / series_seconds(l, shape, next, at);
        const struct collective_shape measured = shape_of(l, shape, series, series->nodes);
        return seconds * library_seconds(l, &measured, bytes) / library_seconds(l, &measured, at);
}

/* The series nearest to a shape on either side, by what `count` says of it: equal if there is that very one.
 */
struct neighbours {
        const struct collective_series *below, *above;
};

static int nodes_of(const struct collective_series *series)
{
        return series->nodes;
}

static int gpus_of(const struct collective_series *series)
{
        return series->gpus;
}

static struct neighbours find(const struct lookup *l, bool one_node, int per_node, int wanted,
                              int (*count)(const struct collective_series *))
{
        const struct collective_table *table = &l->platform->measured_collectives;
        struct neighbours found = {NULL, NULL};
        for (int i = 0; i < table->count; i++) {
                const struct collective_series *s = &table->series[i];
                if (s->kind != l->kind || (s->nodes == 1) != one_node ||
                    (!one_node && s->gpus != s->nodes * per_node))
                        continue;
                if (count(s) <= wanted && (!found.below || count(s) > count(found.below)))
                        found.below = s;
                if (count(s) >= wanted && (!found.above || count(s) < count(found.above)))
                        found.above = s;
        }
        return found;
}

/* How many times the library's time a series takes. */
static double slowness(const struct lookup *l, const struct collective_shape *target,
                       const struct collective_series *series, double bytes)
{
        const struct collective_shape measured = shape_of(l, target, series, series->nodes);
        return series_seconds(l, target, series, bytes) / library_seconds(l, &measured, bytes);
}

/* What `wanted` GPUs of a node, or nodes, take; `target` is their shape. */
static double between(const struct lookup *l, const struct neighbours *n,
                      const struct collective_shape *target, int wanted,
                      int (*count)(const struct collective_series *), double bytes)
{
        const struct collective_series *a = n->below ? n->below : n->above;
        const struct collective_series *b = n->above ? n->above : n->below;
        if (count(a) == wanted)
                return series_seconds(l, target, a, bytes);
        const double slow = slowness(l, target, a, bytes), library = library_seconds(l, target, bytes);
        if (a == b)
                return library * slow;
        const double part = log((double)wanted / count(a)) / log((double)count(b) / count(a));
        return library * slow * pow(slowness(l, target, b, bytes) / slow, part);
}

/* The members of each node that were measured between nodes: as many as `per_node` if there were such, else
 * the most; 0: nothing was. */
static int measured_per_node(const struct lookup *l, int per_node)
{
        const struct collective_table *table = &l->platform->measured_collectives;
        int most = 0;
        for (int i = 0; i < table->count; i++) {
                const struct collective_series *s = &table->series[i];
                const int members = s->gpus / s->nodes;
                if (s->kind != l->kind || s->nodes == 1)
                        continue;
                if (members == per_node)
                        return members;
                most = members > most ? members : most;
        }
        return most;
}

static double inside_node(const struct lookup *l, const struct collective_shape *shape, double bytes)
{
        const struct neighbours n = find(l, true, 0, shape->size, gpus_of);
        return n.below || n.above ? between(l, &n, shape, shape->size, gpus_of, bytes) : NAN;
}

static double between_nodes(const struct lookup *l, const struct collective_shape *shape, double bytes)
{
        const int measured = measured_per_node(l, shape->per_node);
        if (!measured)
                return NAN;
        const struct neighbours n = find(l, false, measured, shape->nodes, nodes_of);
        if (measured == shape->per_node)
                return between(l, &n, shape, shape->nodes, nodes_of, bytes);
        const double per_node = (double)shape->size / shape->nodes;
        const double likewise = bytes * measured / per_node;
        const struct collective_shape full = shape_of(l, shape, n.below ? n.below : n.above, shape->nodes);
        return library_seconds(l, shape, bytes) * between(l, &n, &full, shape->nodes, nodes_of, likewise) /
               library_seconds(l, &full, likewise);
}

double collective_measured_seconds(const struct platform *platform, const struct collective_shape *shape,
                                   enum collective_kind kind, int64_t bytes, enum dtype dtype)
{
        const struct lookup l = {platform, kind, dtype};
        if (!platform->measured_collectives.count || shape->size < 2 || bytes < 1)
                return NAN;
        return shape->nodes > 1 ? between_nodes(&l, shape, (double)bytes)
                                : inside_node(&l, shape, (double)bytes);
}

/* ---- costs that meet it ---- */

/* All but the latency of links is scaled, which SimGrid's flows have by themselves. */
static struct collective_costs scaled(const struct collective_costs *costs, double factor)
{
        struct collective_costs other = *costs;
        other.min_seconds = 0;
        other.start_seconds *= factor;
        other.near_step_seconds *= factor;
        other.far_step_seconds *= factor;
        other.near_bytes_per_byte *= factor;
        other.far_bytes_per_byte *= factor;
        other.reduce_seconds_per_byte *= factor;
        other.copy_seconds_per_byte *= factor;
        return other;
}

/* Steps of which part is not in proportion (the slower of two messages) need a few rounds. */
enum { ROUNDS = 8 };
static const double MIN_FACTOR = 1e-3;

void collective_meet(const struct collective_shape *shape, struct collective_costs *costs,
                     enum collective_kind kind, int64_t bytes, double seconds)
{
        const struct collective_costs none = scaled(costs, 0);
        const double latency = collective_estimate(shape, &none, kind, bytes);
        struct collective_costs met = scaled(costs, 1);
        double factor = 1;
        for (int i = 0; i < ROUNDS; i++) {
                const double now = collective_estimate(shape, &met, kind, bytes);
                if (!(now > latency) || fabs(now / seconds - 1) < 1e-9)
                        break;
                factor = fmax(factor * (seconds - latency) / (now - latency), MIN_FACTOR);
                met = scaled(costs, factor);
        }
        *costs = met;
}

struct collective_exchange collective_exchange(const struct platform *platform,
                                               const struct collective_shape *shape, int64_t bytes,
                                               enum dtype dtype)
{
        struct collective_exchange exchange = collective_library_exchange(platform, shape, bytes, dtype);
        const double seconds =
                collective_measured_seconds(platform, shape, COLLECTIVE_ALL_TO_ALL, bytes, dtype);
        const struct collective_exchange library = exchange, none = {0};
        const double latency = collective_exchange_seconds(shape, &none, bytes);
        double factor = 1;
        for (int i = 0; i < ROUNDS && !isnan(seconds); i++) {
                const double now = collective_exchange_seconds(shape, &exchange, bytes);
                if (!(now > latency) || fabs(now / seconds - 1) < 1e-9)
                        break;
                factor = fmax(factor * (seconds - latency) / (now - latency), MIN_FACTOR);
                exchange.start_seconds = library.start_seconds * factor;
                exchange.near_per_byte = library.near_per_byte * factor;
                exchange.far_per_byte = library.far_per_byte * factor;
        }
        return exchange;
}
