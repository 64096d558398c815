#include "runtime/sched/regions.h"

#include "runtime/base/minmax.h"

#include <assert.h>

static int64_t parts(int64_t whole, int64_t part)
{
        return (whole + part - 1) / part;
}

static bool is_shared(const struct plan *plan)
{
        return plan->zero == 1 || plan->zero == 2;
}

/* The parameters [offset, offset + count), and how ZeRO shares them among a group: the one that sums them, or
 * with ZeRO-1 in groups a part of it. */
static struct region region_of(const struct plan *plan, int64_t offset, int64_t count, enum op_group group,
                               int replica)
{
        const bool shared = is_shared(plan);
        const enum op_group sharers = plan->zero == 1 && plan_hybrid(plan) ? GROUP_SHARERS : group;
        return (struct region){.offset = offset,
                               .count = count,
                               .chunk = core_chunk_parameters(plan),
                               .group = group,
                               .sharers = sharers,
                               .parts = shared ? plan_sharers(plan, sharers) : 1,
                               .part = shared ? plan_sharer(plan, sharers, replica) : 0};
}

/* Whether the unit has the embedding that first and last stage share. */
static bool ends_with_shared(const struct plan *plan, const struct core_stage *stage, int unit)
{
        const bool end = unit == 0 || unit > core_units_of(plan, &stage->units).blocks;
        return plan->tied && plan->pp > 1 && end;
}

/* ZeRO-2: units that are alike and follow each other are the chunks of a region; of ZeRO-3 shares of them. */
static struct regions regions_of_units(const struct plan *plan, const struct core_stage *stage)
{
        const bool whole = is_shared(plan);
        const enum op_group group = whole ? plan_unit_group(plan) : GROUP_SHARE_DATA;
        struct regions regions = {
                .shared = whole, .units = true, .update = core_update_parameters(plan, stage->parameters)};
        int64_t offset = 0;
        for (int unit = 0, count = 0; unit < core_units_of(plan, &stage->units).all; unit++) {
                const int64_t all = core_unit_parameters(plan, &stage->units, unit),
                              parameters = whole ? all : plan_share(plan, all);
                const bool exchanged = ends_with_shared(plan, stage, unit);
                if (parameters == 0)
                        continue;
                if (count == 0 || regions.region[count - 1].chunk != parameters ||
                    regions.region[count - 1].exchanged != exchanged) {
                        assert(count < REGIONS);
                        struct region *region = &regions.region[count++];
                        *region = region_of(plan, offset, 0, group, stage->replica);
                        region->chunk = parameters;
                        region->exchanged = exchanged;
                }
                regions.region[count - 1].count += parameters;
                offset += parameters;
        }
        return regions;
}

struct regions regions_of(const struct plan *plan, const struct core_stage *stage)
{
        if (plan->zero == 2 || plan_sums_shares(plan))
                return regions_of_units(plan, stage);
        const bool first = stage->stage == 0, last = stage->stage == plan->pp - 1;
        const bool shared = plan->tied && plan->pp > 1 && (first || last);
        const int64_t embedding = shared ? plan->embedding_parameters : 0, all = stage->parameters;
        const int64_t common = plan->overlap_allreduce ? stage->common_count : 0;
        const int64_t experts = stage->expert_parameters, begin = experts + (first ? embedding : 0);
        struct regions regions = {
                .shared = is_shared(plan), .common = common > 0, .update = core_update_parameters(plan, all)};
        struct region *region = regions.region;
        region[REGION_OWN] =
                region_of(plan, begin, all - experts - common - embedding, GROUP_DATA, stage->replica);
        region[REGION_EXPERTS] = region_of(plan, 0, experts, GROUP_EXPERT_DATA, stage->replica);
        if (regions.common)
                region[REGION_COMMON] =
                        region_of(plan, stage->common_offset, common, GROUP_DATA, stage->replica);
        region[REGION_EMBEDDING] =
                region_of(plan, first ? experts : all - embedding, embedding, GROUP_DATA, stage->replica);
        region[REGION_EMBEDDING].exchanged = true;
        return regions;
}

/* Of a region, all chunks but the last are full. */
static int chunks_in(const struct region *region)
{
        return region->count == 0 ? 0 : (int)parts(region->count, region->chunk);
}

static int64_t last_chunk(const struct region *region)
{
        return region->count - (chunks_in(region) - 1) * region->chunk;
}

/* Of a chunk, the parts but the last are equal. */
static int64_t part_of(const struct region *region, int64_t chunk)
{
        return parts(chunk, region->parts);
}

/* Elements of the own arrays that a region takes. */
static int64_t elements_in(const struct region *region)
{
        if (region->count == 0)
                return 0;
        return (chunks_in(region) - 1) * part_of(region, region->chunk) + part_of(region, last_chunk(region));
}

int64_t regions_elements(const struct regions *r)
{
        int64_t elements = 0;
        for (int i = 0; i < REGIONS; i++)
                elements += elements_in(&r->region[i]);
        return elements;
}

int regions_chunks(const struct regions *r)
{
        int chunks = 0;
        for (int i = 0; i < REGIONS; i++)
                chunks += chunks_in(&r->region[i]);
        return chunks;
}

int regions_exchanges(const struct regions *r)
{
        int exchanges = 0;
        for (int i = 0; i < REGIONS; i++)
                exchanges += r->region[i].exchanged ? chunks_in(&r->region[i]) : 0;
        return exchanges;
}

/* The region of the nth chunk, which becomes its number there. */
static const struct region *find_region(const struct regions *r, int *nth)
{
        const struct region *region = r->region;
        for (; *nth >= chunks_in(region); region++) {
                *nth -= chunks_in(region);
                assert(region + 1 < r->region + REGIONS);
        }
        return region;
}

const struct region *regions_region(const struct regions *r, int chunk)
{
        return find_region(r, &chunk);
}

struct region_range regions_chunk(const struct regions *r, int nth)
{
        const struct region *region = find_region(r, &nth);
        const int64_t at = nth * region->chunk;
        int64_t before = 0;
        for (const struct region *other = r->region; other < region; other++)
                before += elements_in(other);
        return (struct region_range){.offset = region->offset + at,
                                     .count = min_int64(region->chunk, region->count - at),
                                     .place = r->shared ? before + nth * part_of(region, region->chunk)
                                                        : region->offset + at};
}

struct region_range regions_own(const struct regions *r, int nth)
{
        const struct region *region = regions_region(r, nth);
        const struct region_range chunk = regions_chunk(r, nth);
        const int64_t each = part_of(region, chunk.count),
                      begin = min_int64(region->part * each, chunk.count);
        return (struct region_range){chunk.offset + begin, min_int64(each, chunk.count - begin), chunk.place};
}

/* Updates in this replica's part of a chunk of `count`. */
static int updates_in(const struct regions *r, const struct region *region, int64_t count)
{
        const int64_t each = part_of(region, count), begin = min_int64(region->part * each, count);
        return (int)parts(min_int64(each, count - begin), r->update);
}

/* And in the first `chunks` chunks of a region. */
static int updates_in_first(const struct regions *r, const struct region *region, int chunks)
{
        const int full = chunks_in(region) - 1;
        if (chunks == 0)
                return 0;
        if (chunks <= full)
                return chunks * updates_in(r, region, region->chunk);
        return full * updates_in(r, region, region->chunk) + updates_in(r, region, last_chunk(region));
}

int regions_updates_before(const struct regions *r, int chunks)
{
        int updates = 0;
        for (int i = 0; i < REGIONS; i++) {
                const int here = chunks_in(&r->region[i]), counted = chunks < here ? chunks : here;
                updates += updates_in_first(r, &r->region[i], counted);
                chunks -= counted;
        }
        return updates;
}

int regions_updates(const struct regions *r)
{
        return regions_updates_before(r, regions_chunks(r));
}

struct region_range regions_update(const struct regions *r, int nth, int *chunk)
{
        int before = 0, chunks = 0, i = 0;
        for (; i < REGIONS - 1; i++) {
                const int here = chunks_in(&r->region[i]);
                const int updates = updates_in_first(r, &r->region[i], here);
                if (nth < before + updates)
                        break;
                before += updates;
                chunks += here;
        }
        const int each = updates_in(r, &r->region[i], r->region[i].chunk),
                  full = chunks_in(&r->region[i]) - 1;
        const int passed = each > 0 ? (nth - before) / each : full;
        const int in_region = passed < full ? passed : full;
        *chunk = chunks + in_region;
        const struct region_range own = regions_own(r, *chunk);
        const int64_t at = (nth - before - in_region * each) * r->update;
        assert(at >= 0 && at < own.count);
        return (struct region_range){own.offset + at, min_int64(r->update, own.count - at), own.place + at};
}

static int add_size(int64_t sizes[REGIONS_SIZES], int count, int64_t size)
{
        for (int i = 0; i < count; i++)
                if (sizes[i] == size)
                        return count;
        if (size == 0)
                return count;
        sizes[count] = size;
        return count + 1;
}

/* Those of a part of `size`: full updates, and what is left. */
static int add_sizes_of(const struct regions *r, int64_t sizes[REGIONS_SIZES], int count, int64_t size)
{
        count = add_size(sizes, count, size >= r->update ? r->update : 0);
        return add_size(sizes, count, size % r->update);
}

int regions_update_sizes(const struct regions *r, int64_t sizes[REGIONS_SIZES])
{
        int count = 0;
        for (int i = 0; i < REGIONS; i++) {
                const struct region *region = &r->region[i];
                if (region->count == 0)
                        continue;
                const int64_t kinds[] = {chunks_in(region) > 1 ? region->chunk : 0, last_chunk(region)};
                for (int k = 0; k < 2; k++) { /* a chunk's parts, and the one that has less */
                        const int64_t each = part_of(region, kinds[k]);
                        count = add_sizes_of(r, sizes, count, each);
                        count = add_sizes_of(r, sizes, count, each ? kinds[k] % each : 0);
                }
        }
        return count;
}

/* The nth of things of all regions, one region after the other and each from behind. */
static int from_behind(int nth, const int things[REGIONS])
{
        int before = 0;
        for (const int *of = things;; before += *of, nth -= *of++)
                if (nth < *of)
                        return before + *of - 1 - nth;
}

static void count_chunks(const struct regions *r, int chunks[REGIONS])
{
        for (int i = 0; i < REGIONS; i++)
                chunks[i] = chunks_in(&r->region[i]);
}

/* A region's updates in its first `chunks` chunks. */
static int updates_of(const struct regions *r, int region, int chunks)
{
        return updates_in_first(r, &r->region[region], chunks);
}

int regions_chunk_from_behind(const struct regions *r, int nth)
{
        int chunks[REGIONS];
        if (r->units)
                return regions_chunks(r) - 1 - nth;
        count_chunks(r, chunks);
        if (r->region[REGION_EMBEDDING].offset < r->region[REGION_OWN].offset)
                return from_behind(nth, chunks);
        const int shared = chunks[REGION_EMBEDDING]; /* which are complete first */
        return nth < shared ? regions_chunks(r) - 1 - nth : from_behind(nth - shared, chunks);
}

int regions_update_from_behind(const struct regions *r, int nth)
{
        int updates[REGIONS];
        if (r->units)
                return regions_updates(r) - 1 - nth;
        for (int i = 0; i < REGIONS; i++)
                updates[i] = updates_of(r, i, chunks_in(&r->region[i]));
        return from_behind(nth, updates);
}

int regions_updated_from_behind(const struct regions *r, int nth)
{
        int chunks[REGIONS];
        if (r->units)
                return regions_chunks(r) - 1 - nth;
        count_chunks(r, chunks);
        return from_behind(nth, chunks);
}

int regions_updates_behind(const struct regions *r, int chunks)
{
        int updates = 0;
        if (r->units)
                return regions_updates(r) - regions_updates_before(r, regions_chunks(r) - chunks);
        for (int i = 0; i < REGIONS; i++) {
                const int here = chunks_in(&r->region[i]), counted = min_int(chunks, here);
                updates += updates_of(r, i, here) - updates_of(r, i, here - counted);
                chunks -= counted;
        }
        return updates;
}

int64_t regions_chunk_begin(const struct regions *r, int64_t end)
{
        for (int i = 0; i < REGIONS; i++) {
                const int64_t at = end - 1 - r->region[i].offset;
                if (at >= 0 && at < r->region[i].count)
                        return end - 1 - at % r->region[i].chunk;
        }
        assert(!"a parameter of the stage");
        return 0;
}

int64_t regions_layers_end(const struct regions *r, int64_t end)
{
        const struct region *common = &r->region[REGION_COMMON];
        return r->common && end == common->offset + common->count ? common->offset : end;
}
