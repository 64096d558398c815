/* The optimizer step: learning rate, global norm, clipping, AdamW over buckets; and the initial weights. */
#include "runtime/base/fp16.h"
#include "runtime/optim/optim.h"
#include "tests/unit/numbers.h"

#include <pthread.h>
#include <string.h>

static const uint64_t seed = 99;
static const double u = FLT_EPSILON / 2.0;

static struct gpt tiny(bool tied)
{
        return (struct gpt){.name = "tiny",
                            .n_layer = 3,
                            .n_embd = 8,
                            .n_head = 2,
                            .vocab_size = 11,
                            .n_positions = 8,
                            .tied = tied};
}

/* How conversions and sums are made in a format. */
struct format {
        enum dtype dtype;
        uint16_t (*from)(float);
        float (*to)(uint16_t);
        void (*add)(uint16_t *, const uint16_t *, int64_t);
        uint16_t infinity;
};
static const struct format formats[DTYPES] = {
        [DTYPE_FP16] = {DTYPE_FP16, fp16_from_float, fp16_to_float, fp16_add, 0x7c00},
        [DTYPE_BF16] = {DTYPE_BF16, bf16_from_float, bf16_to_float, bf16_add, 0x7f80}};

enum storage { FP32, MIXED, OFFLOADED, BF16, BF16_OFFLOADED };
enum { UPDATE = 100 }; /* parameters of one: it ends inside tensors */

static struct nn_stage *open_stored(struct device *device, const struct gpt *gpt, int stages, int index,
                                    enum storage storage)
{
        const struct stage stage = partition_stage(gpt, stages, index);
        const bool offload = storage == OFFLOADED || storage == BF16_OFFLOADED;
        const struct memory_plan plan = {.work = {1, 4,
                                                  .dtype = storage == FP32   ? DTYPE_FP32
                                                           : storage >= BF16 ? DTYPE_BF16
                                                                             : DTYPE_FP16},
                                         .micro_batches = 1,
                                         .slots = 1,
                                         .host_slots = 1,
                                         .input_buffers = index > 0,
                                         .gradient_buffers = 1,
                                         .offload = offload,
                                         .update_parameters = offload ? UPDATE : 0,
                                         .update_buffers = offload ? 3 : 0};
        struct rv_error_info err = {0};
        struct nn_stage *nn = nn_open(device, gpt, &stage, &plan, true, &err);
        assert_non_null(nn);
        return nn;
}

static struct nn_stage *open_stage(struct device *device, const struct gpt *gpt, int stages, int index)
{
        return open_stored(device, gpt, stages, index, FP32);
}

static int open_device(void **state)
{
        struct rv_error_info err = {0};
        *state = device_cpu_open(1, &err);
        return *state ? 0 : -1;
}

static int close_device(void **state)
{
        struct device *device = *state;
        device->ops->close(device);
        return 0;
}

static void the_learning_rate_warms_up_and_falls_as_a_cosine(void **state)
{
        (void)state;
        const struct optim o = {.lr = 6e-4, .min_lr = 6e-5, .warmup = 10, .steps = 110};
        for (int64_t step = 0; step < 10; step++)
                assert_within(optim_lr(&o, step), 6e-5 * (double)(step + 1), 1e-18, "warm-up", step);
        assert_within(optim_lr(&o, 10), 6e-4, 1e-18, "peak", 10);
        assert_within(optim_lr(&o, 60), 3.3e-4, 1e-15, "half way", 60);
        assert_within(optim_lr(&o, 35), 6e-5 + 5.4e-4 * (1 + sqrt(0.5)) / 2, 1e-15, "a quarter", 35);
        assert_within(optim_lr(&o, 110), 6e-5, 1e-18, "end", 110);
        assert_within(optim_lr(&o, 5000), 6e-5, 1e-18, "after", 5000);
        for (int64_t step = 10; step < 110; step++)
                assert_true(optim_lr(&o, step + 1) < optim_lr(&o, step));
        const struct optim no_warmup = {.lr = 1, .min_lr = 0.5, .warmup = 0, .steps = 2};
        assert_within(optim_lr(&no_warmup, 0), 1, 1e-15, "no warm-up", 0);
}

static void clipping_scales_only_what_is_too_long(void **state)
{
        (void)state;
        const struct optim clip = {.clip = 2}, off = {.clip = 0};
        assert_within(optim_clip_factor(&clip, 100), 0.2, 1e-15, "factor", 0);
        assert_true(optim_clip_factor(&clip, 4) == 1);
        assert_true(optim_clip_factor(&clip, 0) == 1);
        assert_true(optim_clip_factor(&off, 1e30) == 1);
}

/* Gradients that depend on the tensor's identity and the element only, as nn_initialize's weights do. */
static void fill_gradients(struct nn_stage *nn)
{
        real *gradients = nn->gradients;
        for (int t = 0; t < nn->tensor_count; t++)
                for (int64_t i = 0; i < nn->tensors[t].elements; i++) {
                        uint64_t random = seed + 1000003 * (uint64_t)nn->tensors[t].id + 17 * (uint64_t)i + 1;
                        random_bits(&random);
                        gradients[nn->tensors[t].offset + i] = (real)random_number(&random);
                }
}

static double stage_norm(struct device *device, struct nn_stage *nn)
{
        fill_gradients(nn);
        nn->scalars[NN_SQUARED_NORM] = NAN; /* an earlier step's: to be overwritten */
        optim_norm(nn);
        device->ops->synchronize(device);
        return nn->scalars[NN_SQUARED_NORM];
}

static void the_norm_is_the_same_on_every_layout(void **state)
{
        struct device *device = *state;
        for (int tied = 0; tied < 2; tied++) {
                const struct gpt gpt = tiny(tied);
                double expected = 0;
                for (int stages = 1; stages <= 3; stages++) {
                        double sum = 0;
                        for (int s = 0; s < stages; s++) {
                                struct nn_stage *nn = open_stage(device, &gpt, stages, s);
                                sum += stage_norm(device, nn);
                                nn_close(nn);
                        }
                        if (stages == 1)
                                expected = sum;
                        assert_within(sum, expected, 1e-13 * expected, "squared norm", stages);
                }
                assert_true(expected > 0);
        }
}

static bool decays(const char *name)
{
        return !strstr(name, "bias") && !strstr(name, "ln_");
}

/* AdamW in double, element by element, as Loshchilov & Hutter write it. */
struct reference {
        double *p, *m, *v;
};

static void reference_step(struct reference *r, const struct nn_stage *nn, const struct optim *o, int step)
{
        const double lr = optim_lr(o, step);
        const real *gradients = nn->gradients;
        for (int t = 0; t < nn->tensor_count; t++) {
                const struct tensor *tensor = &nn->tensors[t];
                for (int64_t i = tensor->offset; i < tensor->offset + tensor->elements; i++) {
                        const double g = nn->scalars[NN_GRADIENT_SCALE] * (double)gradients[i];
                        r->m[i] = o->beta1 * r->m[i] + (1 - o->beta1) * g;
                        r->v[i] = o->beta2 * r->v[i] + (1 - o->beta2) * g * g;
                        const double m = r->m[i] / (1 - pow(o->beta1, step + 1));
                        const double v = r->v[i] / (1 - pow(o->beta2, step + 1));
                        const double decay = decays(tensor->name) ? o->weight_decay * r->p[i] : 0;
                        r->p[i] -= lr * (m / (sqrt(v) + o->epsilon) + decay);
                }
        }
}

/* A step adds a few roundings of p, and of an update that is at most lr times 1 / sqrt(1 - beta2) = 4.5 of
 * about 16 operations. */
static void several_steps_of_adamw_follow_the_paper(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        const struct optim o = {.lr = 1e-2,
                                .min_lr = 1e-3,
                                .warmup = 3,
                                .steps = 12,
                                .beta1 = 0.9,
                                .beta2 = 0.95,
                                .epsilon = 1e-8,
                                .weight_decay = 0.1,
                                .clip = 1};
        struct nn_stage *nn = open_stage(device, &gpt, 2, 1);
        nn_initialize(nn, seed, 1);
        real *weights = nn->weights, *gradients = nn->gradients;
        const size_t count = (size_t)nn->parameters;
        struct reference r = {calloc(count, sizeof(double)), calloc(count, sizeof(double)),
                              calloc(count, sizeof(double))};
        assert_true(r.p && r.m && r.v);
        for (size_t i = 0; i < count; i++)
                r.p[i] = (double)weights[i];
        uint64_t random = seed;
        for (int step = 0; step < 12; step++) {
                for (size_t i = 0; i < count; i++)
                        gradients[i] = (real)random_number(&random);
                optim_norm(nn);
                device->ops->synchronize(device);
                nn->scalars[NN_GRADIENT_SCALE] = optim_clip_factor(&o, nn->scalars[NN_SQUARED_NORM]);
                reference_step(&r, nn, &o, step);
                for (int64_t at = 0; at < nn->parameters; at += 100) /* buckets end inside tensors */
                        optim_update(nn, &o, step, at, at,
                                     nn->parameters - at < 100 ? nn->parameters - at : 100, -1);
                device->ops->synchronize(device);
                for (size_t i = 0; i < count; i++) {
                        const double bound = (step + 1) * u * (4 * fabs(r.p[i]) + 16 * o.lr * 4.5);
                        assert_within(weights[i], r.p[i], bound, "p", (int64_t)i);
                        assert_true(gradients[i] == 0);
                }
        }
        free(r.p);
        free(r.m);
        free(r.v);
        nn_close(nn);
}

/* ---- mixed precision ---- */

/* All updates of a step; offloaded, each is fetched before and written back after, one at a time here. */
static void update_all(struct nn_stage *nn, const struct optim *o, int step)
{
        const struct device_ops *device = nn->device->ops;
        for (int64_t at = 0, nth = 0; at < nn->parameters; at += UPDATE, nth++) {
                const int64_t left = nn->parameters - at, count = left < UPDATE ? left : UPDATE;
                const int buffer = nn->plan.offload ? (int)(nth % 3) : -1;
                if (buffer >= 0)
                        nn_fetch(nn, buffer, at, count);
                device->synchronize(nn->device);
                optim_update(nn, o, step, at, at, count, buffer);
                device->synchronize(nn->device);
                if (buffer >= 0)
                        nn_write_back(nn, buffer, at, count);
                device->synchronize(nn->device);
        }
}

static const struct optim mixed_optim = {.lr = 1e-2,
                                         .min_lr = 1e-3,
                                         .warmup = 3,
                                         .steps = 12,
                                         .beta1 = 0.9,
                                         .beta2 = 0.95,
                                         .epsilon = 1e-8,
                                         .weight_decay = 0.1};

/* Steps with random gradients of a 16-bit format, scaled by 2^10 as a loss scale would. Stored in it the new
 * weights are the master parameters, rounded. */
static void train_stored(struct nn_stage *nn, enum dtype gradients, int steps)
{
        const struct format *format = &formats[gradients];
        uint64_t random = seed;
        const bool mixed = work_mixed(&nn->plan.work);
        const uint16_t *weights = nn->weights;
        nn_initialize(nn, seed, 1);
        nn->scalars[NN_GRADIENT_SCALE] = 0x1p-10;
        for (int step = 0; step < steps; step++) {
                for (int64_t i = 0; i < nn->parameters; i++) {
                        const uint16_t gradient = format->from((float)(0x1p10 * random_number(&random)));
                        if (mixed)
                                ((uint16_t *)nn->gradients)[i] = gradient;
                        else
                                ((real *)nn->gradients)[i] = format->to(gradient);
                }
                update_all(nn, &mixed_optim, step);
                for (int64_t i = 0; mixed && i < nn->parameters; i++) {
                        assert_int_equal(weights[i], format->from((float)nn->master[i]));
                        assert_int_equal(((uint16_t *)nn->gradients)[i], 0);
                }
        }
}

static void offloaded_updates_give_the_same_bits(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        for (enum dtype dtype = DTYPE_FP16; dtype <= DTYPE_BF16; dtype++) {
                const bool bf16 = dtype == DTYPE_BF16;
                struct nn_stage *mixed = open_stored(device, &gpt, 2, 0, bf16 ? BF16 : MIXED);
                struct nn_stage *offloaded =
                        open_stored(device, &gpt, 2, 0, bf16 ? BF16_OFFLOADED : OFFLOADED);
                const size_t bytes = (size_t)mixed->parameters * sizeof(real);
                train_stored(mixed, dtype, 5);
                train_stored(offloaded, dtype, 5);
                assert_memory_equal(mixed->master, offloaded->master, bytes);
                assert_memory_equal(mixed->adam_m, offloaded->adam_m, bytes);
                assert_memory_equal(mixed->adam_v, offloaded->adam_v, bytes);
                nn_close(mixed);
                nn_close(offloaded);
        }
}

/* Gradients of 16 bits are exact in fp32, and so is their scale, a power of two: an fp32 stage given the same
 * gradients takes the same steps. */
static void master_parameters_follow_those_of_fp32(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        for (enum dtype dtype = DTYPE_FP16; dtype <= DTYPE_BF16; dtype++) {
                struct nn_stage *mixed = open_stored(device, &gpt, 1, 0, dtype == DTYPE_BF16 ? BF16 : MIXED);
                train_stored(mixed, dtype, 5);
                struct nn_stage *full = open_stored(device, &gpt, 1, 0, FP32);
                train_stored(full, dtype, 5);
                assert_memory_equal(mixed->master, full->weights, (size_t)full->parameters * sizeof(real));
                nn_close(mixed);
                nn_close(full);
        }
}

/* As in PyTorch's mixed precision: after five skipped steps, Adam's first update is its first. */
static void skipped_steps_do_not_count_in_adam_s_bias_correction(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        struct optim o = {
                .lr = 1e-2, .min_lr = 1e-2, .steps = 12, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};
        struct nn_stage *first = open_stage(device, &gpt, 1, 0), *late = open_stage(device, &gpt, 1, 0);
        struct nn_stage *both[] = {first, late};
        for (int i = 0; i < 2; i++) {
                nn_initialize(both[i], seed, 1);
                fill_gradients(both[i]);
                both[i]->scalars[NN_GRADIENT_SCALE] = 1;
                o.skipped = 5 * i;
                update_all(both[i], &o, 5 * i);
        }
        const size_t bytes = (size_t)first->parameters * sizeof(real);
        assert_memory_equal(first->weights, late->weights, bytes);
        o.skipped = 4; /* counted, they do matter */
        fill_gradients(first);
        fill_gradients(late);
        update_all(first, &o, 6);
        o.skipped = 5;
        update_all(late, &o, 6);
        assert_memory_not_equal(first->weights, late->weights, bytes);
        nn_close(first);
        nn_close(late);
}

static void parameters_are_read_as_they_were_written(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(false);
        for (int storage = FP32; storage <= BF16_OFFLOADED; storage++) {
                struct nn_stage *nn = open_stored(device, &gpt, 1, 0, (enum storage)storage);
                const int64_t offset = 13, count = nn->parameters - 20;
                uint64_t random = seed;
                float *values = malloc((size_t)count * sizeof *values),
                      *found = malloc((size_t)count * sizeof *found);
                assert_true(values && found);
                for (int64_t i = 0; i < count; i++)
                        values[i] = (float)random_number(&random);
                nn_write_parameters(nn, offset, count, values);
                nn_read_parameters(nn, offset, count, found);
                assert_memory_equal(values, found, (size_t)count * sizeof *values);
                for (int64_t i = 0; i < count && storage != FP32; i++)
                        assert_int_equal(((uint16_t *)nn->weights)[offset + i],
                                         formats[nn->plan.work.dtype].from(values[i]));
                assert_int_equal(((uint16_t *)nn->weights)[offset - 1], 0);
                free(values);
                free(found);
                nn_close(nn);
        }
}

static void offloaded_activations_come_back_as_they_went(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        struct nn_stage *nn = open_stored(device, &gpt, 1, 0, MIXED);
        unsigned char *slot = nn->slots[0];
        for (int64_t i = 0; i < nn->layout.slot; i++)
                slot[i] = (unsigned char)(i * 7 + i / 251);
        nn_store_activations(nn, 0, 0, 0);
        device->ops->synchronize(device);
        memset(slot, 0xff, (size_t)nn->layout.slot);
        nn_fetch_activations(nn, 0, 0, 0);
        device->ops->synchronize(device);
        for (int64_t i = 0; i < nn->layout.slot; i++)
                assert_int_equal(slot[i], (unsigned char)(i * 7 + i / 251));
        nn_close(nn);
}

static bool overflows(struct nn_stage *nn, int64_t element, float value, double limit)
{
        uint16_t *gradients = nn->gradients;
        gradients[element] = formats[nn->plan.work.dtype].from(value);
        nn->scalars[NN_OVERFLOW] = NAN;
        optim_check_overflow(nn, 0, nn->parameters, limit);
        nn->device->ops->synchronize(nn->device);
        gradients[element] = 0;
        const double found = nn->scalars[NN_OVERFLOW];
        assert_true(found == 0 || found == 1);
        return found > 0;
}

static void check_overflows(struct nn_stage *nn)
{
        const struct format *format = &formats[nn->plan.work.dtype];
        const int64_t places[] = {0, nn->parameters / 2, nn->parameters - 1};
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
                assert_true(overflows(nn, places[i], INFINITY, 16376));
                assert_true(overflows(nn, places[i], -INFINITY, 16376));
                assert_true(overflows(nn, places[i], NAN, 16376));
                assert_true(overflows(nn, places[i], -16384, 16376));
                assert_false(overflows(nn, places[i], -16256, 16376));
        }
        uint16_t *gradients = nn->gradients;
        for (int64_t i = 0; i < nn->parameters; i++)
                gradients[i] = (uint16_t)(format->infinity + 1); /* NaN */
        optim_clear(nn);
        nn->device->ops->synchronize(nn->device);
        for (int64_t i = 0; i < nn->parameters; i++)
                assert_int_equal(gradients[i], 0);
}

static void an_overflow_is_found_wherever_it_is_and_cleared(void **state)
{
        struct device *device = *state;
        const struct gpt gpt = tiny(true);
        struct nn_stage *nn = open_stored(device, &gpt, 1, 0, MIXED);
        check_overflows(nn);
        nn_close(nn);
        nn = open_stored(device, &gpt, 1, 0, BF16);
        const double limit = optim_overflow_limit(1, DTYPE_BF16);
        assert_false(overflows(nn, 7, 0x1p124f, limit)); /* which no fp16 is */
        assert_true(overflows(nn, 7, -0x1p126f, limit));
        check_overflows(nn);
        nn_close(nn);
}

/* The largest gradients that pass the check, summed over replicas and over the copies of an embedding. */
static void what_passes_the_overflow_check_can_be_summed(void **state)
{
        (void)state;
        for (enum dtype f = DTYPE_FP16; f < DTYPES; f++)
                for (int replicas = 1; replicas <= 1024; replicas++) {
                        const struct format *format = &formats[f];
                        const double limit = optim_overflow_limit(replicas, format->dtype);
                        uint16_t largest = format->from((float)limit), sum = 0, both;
                        largest =
                                (uint16_t)(largest + 1); /* however it was rounded, this is at or beyond it */
                        for (int i = 0; i < replicas; i++)
                                format->add(&sum, &largest, 1);
                        both = sum;
                        format->add(&both, &sum, 1);
                        assert_true(isfinite(format->to(both)));
                        /* It is no burden: scaled gradients are mostly far below 1. */
                        assert_true(limit >= 15);
                        /* What overflows on one replica does, in equal shares, on many. */
                        const double alone = optim_overflow_limit(1, format->dtype);
                        assert_within(limit * replicas / alone, 1, 1e-11, "limit", replicas);
                }
}

static void the_loss_scale_begins_at_2_16_and_halves_down_to_2_10(void **state)
{
        (void)state;
        struct loss_scaler s;
        loss_scaler_init(&s, DTYPE_FP16);
        assert_true(s.scale == 65536);
        for (int power = 15; power >= 10; power--) {
                loss_scaler_step(&s, true);
                assert_true(s.scale == ldexp(1, power));
                assert_int_equal(s.stuck, 0);
        }
        for (int i = 1; i <= 25; i++) {
                loss_scaler_step(&s, true);
                assert_true(s.scale == 1024);
                assert_int_equal(s.stuck, i);
        }
        loss_scaler_step(&s, false);
        assert_int_equal(s.stuck, 0);
}

static void the_loss_scale_doubles_after_200_clean_steps_up_to_2_24(void **state)
{
        (void)state;
        struct loss_scaler s;
        loss_scaler_init(&s, DTYPE_FP16);
        for (int i = 0; i < 199; i++)
                loss_scaler_step(&s, false);
        loss_scaler_step(&s, true); /* one short: the count begins anew */
        for (int power = 15; power <= 27; power++)
                for (int i = 0; i < 200; i++) {
                        assert_true(s.scale == ldexp(1, power < 24 ? power : 24));
                        loss_scaler_step(&s, false);
                }
}

/* bf16 holds what fp32 holds, so nothing has to be scaled; what is infinite all the same is counted. */
static void the_loss_scale_of_bf16_stays_1(void **state)
{
        (void)state;
        struct loss_scaler s;
        loss_scaler_init(&s, DTYPE_BF16);
        for (int i = 0; i < 1000; i++) {
                assert_true(s.scale == 1);
                loss_scaler_step(&s, false);
        }
        for (int i = 1; i <= 25; i++) {
                loss_scaler_step(&s, true);
                assert_true(s.scale == 1);
                assert_int_equal(s.stuck, i);
        }
        loss_scaler_step(&s, false);
        assert_int_equal(s.stuck, 0);
}

/* Where a tensor lies on any stage of a layout does not matter for its initial values. */
static void initial_weights_are_the_same_on_every_layout(void **state)
{
        struct device *device = *state;
        for (int tied = 0; tied < 2; tied++) {
                const struct gpt gpt = tiny(tied);
                struct nn_stage *whole = open_stage(device, &gpt, 1, 0);
                nn_initialize(whole, seed, 1);
                for (int s = 0; s < 3; s++) {
                        struct nn_stage *part = open_stage(device, &gpt, 3, s);
                        nn_initialize(part, seed, 3);
                        for (int t = 0; t < part->tensor_count; t++) {
                                const struct tensor *a = &part->tensors[t], *b = whole->tensors;
                                while (b->id != a->id)
                                        b++;
                                assert_memory_equal(nn_at(part, part->weights, a->offset),
                                                    nn_at(whole, whole->weights, b->offset),
                                                    (size_t)a->elements * sizeof(real));
                        }
                        nn_close(part);
                }
                nn_close(whole);
        }
}

static int threads_started;
int __real_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                          void *context)
{
        threads_started++;
        return __real_pthread_create(thread, attributes, run, context);
}

/* Ranks that share a machine have only a part of its processors, and --threads may be less. */
static void initial_weights_are_drawn_by_the_threads_that_are_allowed(void **state)
{
        struct device *device = *state;
        struct gpt gpt = {.name = "one large tensor",
                          .n_layer = 1,
                          .n_embd = 64,
                          .n_head = 2,
                          .vocab_size = 1024, /* 65,536 elements, which can be shared by eight threads */
                          .n_positions = 1,
                          .tied = true};
        struct nn_stage *nn = open_stage(device, &gpt, 1, 0);
        float *first = malloc((size_t)nn->parameters * sizeof *first),
              *again = malloc((size_t)nn->parameters * sizeof *again);
        assert_true(first && again);
        for (int threads = 1; threads <= 3; threads++) {
                threads_started = 0;
                nn_initialize(nn, seed, threads);
                nn_read_parameters(nn, 0, nn->parameters, threads == 1 ? first : again);
                if (threads == 1)
                        assert_int_equal(threads_started, 0);
                else
                        assert_memory_equal(first, again, (size_t)nn->parameters * sizeof *first);
                /* Four tensors have more than the 8,192 elements that one thread draws at least. */
                assert_in_range(threads_started, threads - 1, 4 * (threads - 1));
        }
        free(first);
        free(again);
        nn_close(nn);
}

static void initial_weights_have_gpt_2_s_spread(void **state)
{
        struct device *device = *state;
        struct gpt gpt = {.name = "wide",
                          .n_layer = 2,
                          .n_embd = 64,
                          .n_head = 2,
                          .vocab_size = 300,
                          .n_positions = 32,
                          .tied = false};
        struct nn_stage *nn = open_stage(device, &gpt, 1, 0);
        nn_initialize(nn, seed, 1);
        for (int t = 0; t < nn->tensor_count; t++) {
                const struct tensor *tensor = &nn->tensors[t];
                const double n = (double)tensor->elements;
                double mean = 0, square = 0;
                for (int64_t i = 0; i < tensor->elements; i++) {
                        const double x = (double)((real *)nn->weights)[tensor->offset + i];
                        mean += x / n;
                        square += x * x / n;
                }
                const bool residual = strstr(tensor->name, "c_proj.weight") != NULL;
                const double spread = residual ? 0.02 / sqrt(2.0 * 2) : 0.02;
                if (strstr(tensor->name, "bias"))
                        assert_true(square == 0);
                else if (strstr(tensor->name, "ln_"))
                        assert_true(mean == 1 && square == 1);
                else { /* five standard errors of a mean and of a variance */
                        assert_within(mean, 0, 5 * spread / sqrt(n), tensor->name, t);
                        assert_within(square, spread * spread, 5 * spread * spread * sqrt(2 / n),
                                      tensor->name, t);
                }
        }
        nn_close(nn);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_learning_rate_warms_up_and_falls_as_a_cosine),
                cmocka_unit_test(clipping_scales_only_what_is_too_long),
                cmocka_unit_test(the_norm_is_the_same_on_every_layout),
                cmocka_unit_test(several_steps_of_adamw_follow_the_paper),
                cmocka_unit_test(offloaded_updates_give_the_same_bits),
                cmocka_unit_test(master_parameters_follow_those_of_fp32),
                cmocka_unit_test(skipped_steps_do_not_count_in_adam_s_bias_correction),
                cmocka_unit_test(parameters_are_read_as_they_were_written),
                cmocka_unit_test(offloaded_activations_come_back_as_they_went),
                cmocka_unit_test(an_overflow_is_found_wherever_it_is_and_cleared),
                cmocka_unit_test(what_passes_the_overflow_check_can_be_summed),
                cmocka_unit_test(the_loss_scale_begins_at_2_16_and_halves_down_to_2_10),
                cmocka_unit_test(the_loss_scale_doubles_after_200_clean_steps_up_to_2_24),
                cmocka_unit_test(the_loss_scale_of_bf16_stays_1),
                cmocka_unit_test(initial_weights_are_the_same_on_every_layout),
                cmocka_unit_test(initial_weights_are_drawn_by_the_threads_that_are_allowed),
                cmocka_unit_test(initial_weights_have_gpt_2_s_spread),
        };
        return cmocka_run_group_tests(tests, open_device, close_device);
}
