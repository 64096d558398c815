#include "runtime/sched/shares.h"

#include <assert.h>

static int64_t least(int64_t a, int64_t b)
{
        return a < b ? a : b;
}

static int64_t parts(int64_t whole, int64_t part)
{
        return (whole + part - 1) / part;
}

struct shares shares_of(const struct plan *plan, const struct core_stage *stage)
{
        const bool first = stage->stage == 0, last = stage->stage == plan->pp - 1;
        const bool shared = plan->tied && plan->pp > 1 && (first || last);
        const int64_t embedding = shared ? plan->embedding_parameters : 0, all = stage->parameters;
        return (struct shares){
                .replicas = plan->dp,
                .replica = stage->replica,
                .chunk = plan->bucket_parameters * plan->allreduce_buckets,
                .update = core_update_parameters(plan, all),
                .rest = {first ? embedding : 0, all - embedding},
                .embedding = {first ? 0 : all - embedding, embedding},
        };
}

/* Of a region, all chunks but the last are full. */
static int region_chunks(const struct shares *s, const struct share_region *region)
{
        return (int)parts(region->count, s->chunk);
}

static int64_t share_of(const struct shares *s, int64_t count)
{
        return parts(count, s->replicas);
}

static int64_t last_chunk(const struct shares *s, const struct share_region *region)
{
        return region->count - (region_chunks(s, region) - 1) * s->chunk;
}

/* Elements of the own arrays that a region takes. */
static int64_t region_elements(const struct shares *s, const struct share_region *region)
{
        if (region->count == 0)
                return 0;
        return (region_chunks(s, region) - 1) * share_of(s, s->chunk) + share_of(s, last_chunk(s, region));
}

int64_t shares_elements(const struct shares *s)
{
        return region_elements(s, &s->rest) + region_elements(s, &s->embedding);
}

int shares_exchanges(const struct shares *s)
{
        return region_chunks(s, &s->embedding);
}

int shares_chunks(const struct shares *s)
{
        return region_chunks(s, &s->rest) + region_chunks(s, &s->embedding);
}

/* The region of the nth chunk, which becomes its number there. */
static const struct share_region *region_of(const struct shares *s, int *nth)
{
        const int rest = region_chunks(s, &s->rest);
        if (*nth < rest)
                return &s->rest;
        *nth -= rest;
        return &s->embedding;
}

struct share shares_chunk(const struct shares *s, int nth)
{
        const struct share_region *region = region_of(s, &nth);
        assert(nth >= 0 && nth < region_chunks(s, region));
        const int64_t at = nth * s->chunk;
        const int64_t before = region == &s->embedding ? region_elements(s, &s->rest) : 0;
        return (struct share){.offset = region->offset + at,
                              .count = least(s->chunk, region->count - at),
                              .place = before + nth * share_of(s, s->chunk)};
}

struct share shares_own(const struct shares *s, int nth)
{
        struct share chunk = shares_chunk(s, nth);
        const int64_t each = share_of(s, chunk.count), begin = least(s->replica * each, chunk.count);
        return (struct share){chunk.offset + begin, least(each, chunk.count - begin), chunk.place};
}

/* Updates in the share of a chunk of `count`. */
static int updates_in(const struct shares *s, int64_t count)
{
        const int64_t each = share_of(s, count), begin = least(s->replica * each, count);
        return (int)parts(least(each, count - begin), s->update);
}

static int region_updates_before(const struct shares *s, const struct share_region *region, int chunks)
{
        if (region->count == 0)
                return 0;
        const int full = region_chunks(s, region) - 1;
        if (chunks <= full)
                return chunks * updates_in(s, s->chunk);
        return full * updates_in(s, s->chunk) + updates_in(s, last_chunk(s, region));
}

int shares_updates_before(const struct shares *s, int chunks)
{
        const int rest = region_chunks(s, &s->rest);
        if (chunks <= rest)
                return region_updates_before(s, &s->rest, chunks);
        return region_updates_before(s, &s->rest, rest) +
               region_updates_before(s, &s->embedding, chunks - rest);
}

int shares_updates(const struct shares *s)
{
        return shares_updates_before(s, shares_chunks(s));
}

struct share shares_update(const struct shares *s, int nth, int *chunk)
{
        const int rest = region_chunks(s, &s->rest), of_rest = shares_updates_before(s, rest);
        const bool embedding = nth >= of_rest;
        const struct share_region *region = embedding ? &s->embedding : &s->rest;
        const int base = embedding ? rest : 0, full = region_chunks(s, region) - 1;
        const int here = embedding ? nth - of_rest : nth, each = updates_in(s, s->chunk);
        *chunk = base + (each > 0 && here / each < full ? here / each : full);
        const struct share own = shares_own(s, *chunk);
        const int64_t at = (nth - shares_updates_before(s, *chunk)) * s->update;
        assert(at >= 0 && at < own.count);
        return (struct share){own.offset + at, least(s->update, own.count - at), own.place + at};
}
