/* Initial weights, the same on every layout. */
#include "runtime/data/data.h"
#include "runtime/nn/nn.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* A standard normal number (Box & Muller 1958) that depends on the key and index alone. */
static double normal(uint64_t key, int64_t index)
{
        const double pi = 3.14159265358979323846, unit = 0x1p-53;
        const uint64_t first = data_splitmix64(key + 2 * (uint64_t)index);
        const uint64_t second = data_splitmix64(key + 2 * (uint64_t)index + 1);
        const double u = ((double)(first >> 11) + 1) * unit; /* in (0, 1]: it has a logarithm */
        const double v = (double)(second >> 11) * unit;
        return sqrt(-2 * log(u)) * cos(2 * pi * v);
}

/* The value of element `index` of a whole tensor. */
static double initial_value(const struct tensor *tensor, const struct gpt *gpt, uint64_t key, int64_t index)
{
        switch (tensor->init) {
        case INIT_NORMAL:
                return 0.02 * normal(key, index);
        case INIT_NORMAL_RESIDUAL: /* keeps the residual stream's variance over 2 n_layer additions */
                return 0.02 / sqrt(2.0 * gpt->n_layer) * normal(key, index);
        case INIT_ONE:
                return 1;
        case INIT_ZERO:
                break;
        }
        return 0;
}

/* Elements of a tensor that one thread fills: a billion parameters would take one thread a minute. */
struct span {
        const struct tensor *tensor;
        const struct gpt *gpt;
        uint64_t key;
        int64_t first, count;
        float *values; /* [count] */
};

static void *fill_span(void *context)
{
        const struct span *span = context;
        for (int64_t i = 0; i < span->count; i++) {
                const int64_t index = partition_whole_index(span->tensor, span->first + i);
                span->values[i] =
                        index < 0 ? 0 : (float)initial_value(span->tensor, span->gpt, span->key, index);
        }
        return NULL;
}

/* On `threads` threads; what a thread cannot be had for is done here. */
static void fill(const struct span *all, int threads)
{
        enum { MAX_THREADS = 16, MIN = 8192 };
        const int64_t at_once = threads < 1 ? 1 : threads < MAX_THREADS ? threads : MAX_THREADS;
        const int64_t even = (all->count + at_once - 1) / at_once, part = even > MIN ? even : MIN;
        struct span spans[MAX_THREADS];
        pthread_t started[MAX_THREADS];
        int count = 0;
        int64_t first = 0;
        for (; all->count - first > part; first += part) {
                struct span *span = &spans[count];
                *span = *all;
                span->first += first;
                span->values += first;
                span->count = part;
                if (pthread_create(&started[count], NULL, fill_span, span))
                        break;
                count++;
        }
        struct span last = *all;
        last.first += first;
        last.values += first;
        last.count -= first;
        fill_span(&last);
        for (int i = 0; i < count; i++)
                pthread_join(started[i], NULL);
}

void nn_initialize(struct nn_stage *nn, uint64_t seed, int threads)
{
        enum { MOST = 16 * NN_CHUNK }; /* at a time, so that threads are worth starting */
        float *values = malloc(MOST * sizeof *values);
        if (!values)
                abort(); /* a machine without 16 MiB left */
        for (int i = 0; i < nn->tensor_count; i++) {
                const struct tensor *tensor = &nn->tensors[i];
                const uint64_t key = data_splitmix64(data_splitmix64(seed) ^ tensor->id);
                for (int64_t start = 0; start < tensor->elements; start += MOST) {
                        const int64_t left = tensor->elements - start, count = left < MOST ? left : MOST;
                        fill(&(struct span){tensor, &nn->gpt, key, start, count, values}, threads);
                        nn_write_parameters(nn, tensor->offset + start, count, values);
                }
        }
        free(values);
}
