/* What moves between a stage's device and host memory: tokens, parameters, the offloaded part of the
 * optimizer's state, offloaded activations. */
#include "runtime/base/fp16.h"
#include "runtime/nn/nn.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int64_t chunk_of(int64_t left)
{
        return left < NN_CHUNK ? left : NN_CHUNK;
}

/* Host memory for a chunk of `count`. Without a megabyte for it the program ends here: who moves parameters
 * has no way to go on without them. */
static void *new_chunk(int64_t count, size_t element_bytes)
{
        void *chunk = malloc((size_t)chunk_of(count) * element_bytes + 1);
        if (!chunk)
                abort();
        return chunk;
}

static void to_device(const struct nn_stage *nn, void *to, const void *from, int64_t bytes)
{
        nn->device->ops->copy(nn->device, DEVICE_HOST_TO_DEVICE, to, from, bytes);
}

static void to_host(const struct nn_stage *nn, void *to, const void *from, int64_t bytes)
{
        nn->device->ops->copy(nn->device, DEVICE_DEVICE_TO_HOST, to, from, bytes);
}

void nn_copy_out(struct nn_stage *nn, void *host, const void *device, int64_t bytes)
{
        to_host(nn, host, device, bytes);
}

void nn_copy_in(struct nn_stage *nn, void *device, const void *host, int64_t bytes)
{
        to_device(nn, device, host, bytes);
}

void nn_load(struct nn_stage *nn)
{
        if (nn->stage.first)
                to_device(nn, nn->tokens, nn->host_tokens, nn->layout.tokens);
        if (nn->stage.last)
                to_device(nn, nn->targets, nn->host_targets, nn->layout.tokens);
}

void nn_fetch(struct nn_stage *nn, int buffer, int64_t place, int64_t count)
{
        const struct nn_bucket *bucket = &nn->buckets[buffer];
        const int64_t bytes = count * (int64_t)sizeof(real);
        to_device(nn, bucket->master, nn->master + place, bytes);
        to_device(nn, bucket->adam_m, nn->adam_m + place, bytes);
        to_device(nn, bucket->adam_v, nn->adam_v + place, bytes);
}

void nn_write_back(struct nn_stage *nn, int buffer, int64_t place, int64_t count)
{
        const struct nn_bucket *bucket = &nn->buckets[buffer];
        const int64_t bytes = count * (int64_t)sizeof(real);
        to_host(nn, nn->master + place, bucket->master, bytes);
        to_host(nn, nn->adam_m + place, bucket->adam_m, bytes);
        to_host(nn, nn->adam_v + place, bucket->adam_v, bytes);
        if (nn->plan.offload_parameters)
                nn_store_weights(nn, buffer, place, count);
}

void nn_fetch_share(struct nn_stage *nn, int gathered, int64_t begin, int64_t place, int64_t count)
{
        to_device(nn, nn_at(nn, nn_unit_weights(nn, gathered), begin), nn_at(nn, nn->weights, place),
                  count * work_element_bytes(&nn->plan.work));
}

void nn_fetch_weights(struct nn_stage *nn, int buffer, int64_t place, int64_t count)
{
        to_device(nn, nn->buckets[buffer].weights, nn_at(nn, nn->weights, place),
                  count * work_element_bytes(&nn->plan.work));
}

void nn_store_weights(struct nn_stage *nn, int buffer, int64_t place, int64_t count)
{
        to_host(nn, nn_at(nn, nn->weights, place), nn->buckets[buffer].weights,
                count * work_element_bytes(&nn->plan.work));
}

/* Where a chunk's part of a slot begins that can hold any of them, and its bytes. */
struct chunk_part {
        int64_t begin, bytes;
};

static struct chunk_part part_of(const struct nn_stage *nn, int chunk)
{
        const struct memory_layout *l = &nn->layout;
        const struct stage stage = partition_chunk(&nn->stage, chunk);
        const int64_t begin = stage.first ? 0 : l->embedded;
        return (struct chunk_part){begin, (stage.first ? l->embedded : 0) + stage.layers * l->block +
                                                  (stage.last ? l->head : 0)};
}

void nn_store_activations(struct nn_stage *nn, int chunk, int slot, int host_slot)
{
        const struct chunk_part part = part_of(nn, chunk);
        to_host(nn, (char *)nn->host_slots[host_slot] + part.begin, (char *)nn->slots[slot] + part.begin,
                part.bytes);
}

void nn_fetch_activations(struct nn_stage *nn, int chunk, int host_slot, int slot)
{
        const struct chunk_part part = part_of(nn, chunk);
        to_device(nn, (char *)nn->slots[slot] + part.begin, (char *)nn->host_slots[host_slot] + part.begin,
                  part.bytes);
}

/* What this replica has of master parameters [offset, offset + count), a piece at a time. */
struct own {
        int64_t offset, end;
        int next;
        int64_t at, count, place; /* the piece: from offset + at on */
};

static struct own own_begin(int64_t offset, int64_t count)
{
        return (struct own){.offset = offset, .end = offset + count};
}

static bool own_next(const struct nn_stage *nn, struct own *own)
{
        const struct nn_own all = {0, nn->parameters, 0};
        const int entries = nn->own ? nn->own_count : 1;
        while (own->next < entries) {
                const struct nn_own *o = nn->own ? &nn->own[own->next] : &all;
                const int64_t begin = o->offset > own->offset ? o->offset : own->offset;
                const int64_t end = o->offset + o->count < own->end ? o->offset + o->count : own->end;
                own->next++;
                if (begin >= end)
                        continue;
                own->at = begin - own->offset;
                own->count = end - begin;
                own->place = o->place + begin - o->offset;
                return true;
        }
        return false;
}

bool nn_has_weights(const struct nn_stage *nn)
{
        return !nn->plan.gathered || nn->plan.whole_weights;
}

/* Where weights from parameter `offset` on are, and how many of `count` follow each other there. */
static void *weights_at(const struct nn_stage *nn, int64_t offset, int64_t *count)
{
        return nn_at(nn, nn->weights, nn->plan.whole_weights ? nn_weight_place(nn, offset, count) : offset);
}

/* As they are stored: all of them or, with ZeRO-3, what this replica has. */
static void write_weights(struct nn_stage *nn, int64_t offset, int64_t count, const char *values)
{
        const int64_t e = work_element_bytes(&nn->plan.work);
        for (int64_t at = 0, here = count; nn_has_weights(nn) && at < count; at += here, here = count - at) {
                void *weights = weights_at(nn, offset + at, &here);
                to_device(nn, weights, values + at * e, here * e);
        }
        for (struct own own = own_begin(offset, count); !nn_has_weights(nn) && own_next(nn, &own);)
                if (nn->plan.offload_parameters)
                        memcpy(nn_at(nn, nn->weights, own.place), values + own.at * e,
                               (size_t)(own.count * e));
                else
                        to_device(nn, nn_at(nn, nn->weights, own.place), values + own.at * e, own.count * e);
}

/* A chunk. `full` and `rounded` are room for it. Half precision: the weights' rounding is this one's and
 * AdamW's. */
static void write_chunk(struct nn_stage *nn, int64_t offset, int64_t count, const float *values, real *full,
                        uint16_t *rounded)
{
        const bool mixed = work_mixed(&nn->plan.work);
        for (int64_t i = 0; i < count; i++)
                full[i] = (real)values[i];
        if (mixed)
                (nn->plan.work.dtype == DTYPE_BF16 ? bf16_from_floats : fp16_from_floats)(rounded, values,
                                                                                          count);
        write_weights(nn, offset, count, mixed ? (const char *)rounded : (const char *)full);
        for (struct own own = own_begin(offset, count); nn->master && own_next(nn, &own);)
                if (nn->plan.offload)
                        memcpy(nn->master + own.place, full + own.at, (size_t)own.count * sizeof *full);
                else
                        to_device(nn, nn->master + own.place, full + own.at,
                                  own.count * (int64_t)sizeof *full);
        nn->device->ops->synchronize(nn->device);
}

void nn_write_parameters(struct nn_stage *nn, int64_t offset, int64_t count, const float *values)
{
        real *full = new_chunk(count, sizeof *full);
        uint16_t *rounded = new_chunk(count, sizeof *rounded);
        for (int64_t at = 0; at < count; at += NN_CHUNK)
                write_chunk(nn, offset + at, chunk_of(count - at), values + at, full, rounded);
        free(full);
        free(rounded);
}

static void read_chunk(struct nn_stage *nn, int64_t offset, int64_t count, float *out, real *full)
{
        /* Half precision is read only where it is trained. */
        assert(nn->master || !work_mixed(&nn->plan.work));
        const bool whole = !nn->master && nn_has_weights(nn);
        const real *kept = nn->master ? nn->master : nn->weights;
        const bool on_host = nn->master ? nn->plan.offload : nn->plan.offload_parameters;
        for (int64_t at = 0, here = count; whole && at < count; at += here, here = count - at) {
                const void *weights = weights_at(nn, offset + at, &here);
                to_host(nn, full + at, weights, here * (int64_t)sizeof *full);
        }
        if (!whole && nn->own)
                memset(full, 0, (size_t)count * sizeof *full);
        for (struct own own = own_begin(offset, count); !whole && own_next(nn, &own);)
                if (on_host)
                        memcpy(full + own.at, kept + own.place, (size_t)own.count * sizeof *full);
                else
                        to_host(nn, full + own.at, kept + own.place, own.count * (int64_t)sizeof *full);
        nn->device->ops->synchronize(nn->device);
        for (int64_t i = 0; i < count; i++)
                out[i] = (float)full[i];
}

void nn_read_parameters(struct nn_stage *nn, int64_t offset, int64_t count, float *out)
{
        real *full = new_chunk(count, sizeof *full);
        for (int64_t at = 0; at < count; at += NN_CHUNK)
                read_chunk(nn, offset + at, chunk_of(count - at), out + at, full);
        free(full);
}

void nn_read_state(struct nn_stage *nn, enum nn_state what, int64_t offset, int64_t count, real *out)
{
        const real *const arrays[NN_STATES] = {nn->master ? nn->master : nn->weights, nn->adam_m, nn->adam_v};
        const bool weights = what == NN_PARAMETERS && !nn->master;
        const bool on_host = weights ? nn->plan.offload_parameters : nn->plan.offload;
        for (int64_t at = 0, here = count; weights && nn_has_weights(nn) && at < count;
             at += here, here = count - at) {
                const void *from = weights_at(nn, offset + at, &here);
                to_host(nn, out + at, from, here * (int64_t)sizeof *out);
        }
        for (struct own own = own_begin(offset, count);
             !(weights && nn_has_weights(nn)) && own_next(nn, &own);)
                if (on_host)
                        memcpy(out + own.at, arrays[what] + own.place, (size_t)own.count * sizeof *out);
                else
                        to_host(nn, out + own.at, arrays[what] + own.place, own.count * (int64_t)sizeof *out);
}

void nn_write_moments(struct nn_stage *nn, enum nn_state what, int64_t offset, int64_t count,
                      const real *values)
{
        real *array = what == NN_MOMENTS ? nn->adam_m : nn->adam_v;
        for (struct own own = own_begin(offset, count); own_next(nn, &own);)
                if (nn->plan.offload)
                        memcpy(array + own.place, values + own.at, (size_t)own.count * sizeof *values);
                else
                        to_device(nn, array + own.place, values + own.at,
                                  own.count * (int64_t)sizeof *values);
        nn->device->ops->synchronize(nn->device);
}
