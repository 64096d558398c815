/* Gradients of every tensor against finite differences of the loss. Everything here, device, nn and this
 * file, is the double-precision build; a network in one stage, and in two stages whose messages are carried
 * by hand. */
#include "tests/unit/launches.h"
#include "runtime/nn/exec.h"
#include "tests/unit/numbers.h"
#include "tests/unit/sanitized.h"

#include <string.h>

_Static_assert(sizeof(real) == 8, "built with RANVIER_DOUBLE");

/* Some elements of each tensor are moved by themselves. With sanitizers none are, and of the tensors every
 * fourth moves: all others' passes touch the same memory. */
enum { SAMPLES = SANITIZED ? 0 : 2, EVERY = SANITIZED ? 4 : 1 };
enum { MAX_STAGES = 2, MICRO_BATCHES = 2, B = 7, T = 5 };
static const uint64_t seed = 31337;
static const double loss_scale = 0.7;

/* One of each family; and of Mixtral's blocks one whose mixtures have all that a mixture may have. */
enum { MODEL_FULL_MIXTURE = FAMILIES, MODELS };

/* What is a choice of a family's files: each has some of it. A token that is so near the border between two
 * experts that a difference crosses it would have no slope: with these sizes none is. */
static void choose(struct gpt *gpt)
{
        struct rope_scaling *scaling = &gpt->rope_scaling;
        const bool qwen3 = gpt->family == FAMILY_QWEN3 || gpt->family == FAMILY_QWEN3_MOE;
        gpt->attention_bias = gpt->family == FAMILY_LLAMA || qwen3;
        gpt->mlp_bias = gpt->family == FAMILY_LLAMA;
        gpt->head_size = gpt->family == FAMILY_MISTRAL ? 6 : qwen3 ? 12 : 0;
        if (gpt->family == FAMILY_LLAMA)
                *scaling = (struct rope_scaling){ROPE_LLAMA3, .factor = 8, .low = 0.1, .high = 3,
                                                 .positions = 4};
        else if (gpt->family == FAMILY_MISTRAL)
                *scaling = (struct rope_scaling){ROPE_YARN, .factor = 4,    .low = 0.1,
                                                 .high = 2, .positions = 5, .length = 1.3};
        else if (gpt->family == FAMILY_QWEN2)
                *scaling = (struct rope_scaling){ROPE_LINEAR, .factor = 2};
        if (gpt->family == FAMILY_NEMOTRON) {
                gpt->attention_bias = gpt->mlp_bias = gpt->tied;
                gpt->head_size = 6;
                gpt->rope_size = 4;
        }
}

/* Experts in groups, chosen by logistic scores with a correction, beside two that all tokens go through. */
static void fill_mixture(struct gpt *gpt)
{
        gpt->n_expert = 9;
        gpt->n_expert_chosen = 3;
        gpt->n_group = 3;
        gpt->n_group_chosen = 2;
        gpt->n_shared = 2;
        gpt->routed_scale = 1.7;
        gpt->logistic_router = true;
}

/* Of one that is tied, queries are made of the input, and values are as wide as they. */
static void choose_latent(struct gpt *gpt)
{
        gpt->n_kv_head = gpt->n_head;
        gpt->head_size = 10;
        gpt->q_rank = gpt->tied ? 0 : 11;
        gpt->kv_rank = 9;
        gpt->rope_size = 6;
        gpt->value_size = gpt->tied ? 10 : 7;
        gpt->rope_interleaved = !gpt->tied;
        gpt->rope_scaling = (struct rope_scaling){ROPE_YARN,      .factor = 4,   .low = 0.1,       .high = 2,
                                                  .positions = 5, .length = 1.3, .mscale_all = 0.7};
}

/* Widths of a whole group of partial sums and a rest; of those like a Llama three heads share one of keys and
 * values. */
static struct gpt small_gpt(int model, int layers, bool tied)
{
        const enum gpt_family family = model == MODEL_FULL_MIXTURE ? FAMILY_MIXTRAL : (enum gpt_family)model;
        struct gpt gpt = {.name = "tiny",
                          .family = family,
                          .n_layer = layers,
                          .n_embd = 20,
                          .n_head = 5,
                          .vocab_size = 19,
                          .n_positions = 7,
                          .tied = tied};
        if (family != FAMILY_GPT2) {
                gpt.n_embd = 24;
                gpt.n_head = 6;
                gpt.n_kv_head = 2;
                gpt.n_inner = 28;
                gpt.rope_theta = 100;
                gpt.norm_epsilon = 1e-5;
                choose(&gpt);
        }
        if (family == FAMILY_DEEPSEEK_V3 || family == FAMILY_DEEPSEEK_V2)
                choose_latent(&gpt);
        if (family == FAMILY_DEEPSEEK_V2) {
                fill_mixture(&gpt);
                gpt.logistic_router = false;
                gpt.best_of_group = true;
                gpt.n_dense = 1;
                gpt.dense_inner = 28;
        }
        if (family == FAMILY_MIXTRAL || family == FAMILY_QWEN3_MOE) {
                gpt.n_expert = 4;
                gpt.n_expert_chosen = 2;
        }
        if (model == MODEL_FULL_MIXTURE)
                fill_mixture(&gpt);
        return gpt;
}

struct network {
        struct device *device;
        struct nn_stage *stages[MAX_STAGES];
        int count;
        double step; /* of differences */
};

/* Tokens and targets, all of them on both ends, as OP_LOAD would bring them. */
static void load_tokens(struct network *net, int vocab_size)
{
        uint64_t random = seed;
        for (int i = 0; i < MICRO_BATCHES * B * T; i++) {
                net->stages[0]->tokens[i] = (int32_t)random_below(&random, vocab_size);
                net->stages[net->count - 1]->targets[i] = (int32_t)random_below(&random, vocab_size);
        }
}

/* Weights far larger than nn_initialize's, so that no gradient is negligible; those of LayerNorm around 1. */
static void spread_weights(struct nn_stage *nn)
{
        real *weights = nn->weights;
        for (int t = 0; t < nn->tensor_count; t++) {
                const struct tensor *tensor = &nn->tensors[t];
                uint64_t random = seed + 7919 * (uint64_t)(tensor->id + 1);
                for (int64_t i = 0; i < tensor->elements; i++)
                        weights[tensor->offset + i] =
                                0.4 * random_number(&random) + (tensor->init == INIT_ONE ? 1 : 0);
        }
}

/* `logits_bytes`: see struct work; `deferred_layers`: see struct memory_plan. */
static struct network open_deferring(const struct gpt *gpt, int stages, enum recompute recompute, bool fused,
                                     int64_t logits_bytes, int deferred_layers)
{
        struct network net = {.count = stages, .step = gpt->family == FAMILY_NEMOTRON ? 1e-4 : 5e-4};
        struct rv_error_info err = {0};
        net.device = device_cpu_open(1, &err);
        assert_non_null(net.device);
        for (int s = 0; s < stages; s++) {
                const struct stage stage = partition_stage(gpt, stages, s);
                const struct memory_plan plan = {.work = {B, T, .real_bytes = 8, .recompute = recompute,
                                                          .fused = fused, .logits_bytes = logits_bytes},
                                                 .micro_batches = MICRO_BATCHES,
                                                 .slots = MICRO_BATCHES,
                                                 .input_buffers = s > 0 ? MICRO_BATCHES : 0,
                                                 .gradient_buffers = MICRO_BATCHES,
                                                 .deferred = 1,
                                                 .deferred_layers = deferred_layers};
                net.stages[s] = nn_open(net.device, gpt, &stage, &plan, false, &err);
                assert_non_null(net.stages[s]);
                net.stages[s]->loss_scale = loss_scale;
                spread_weights(net.stages[s]);
        }
        load_tokens(&net, gpt->vocab_size);
        return net;
}

static struct network open_chunked(const struct gpt *gpt, int stages, enum recompute recompute, bool fused,
                                   int64_t logits_bytes)
{
        return open_deferring(gpt, stages, recompute, fused, logits_bytes, 0);
}

static struct network open_network(const struct gpt *gpt, int stages, enum recompute recompute, bool fused)
{
        return open_chunked(gpt, stages, recompute, fused, 0);
}

static void close_network(struct network *net)
{
        for (int s = 0; s < net->count; s++)
                nn_close(net->stages[s]);
        net->device->ops->close(net->device);
}

/* Summed, so far. */
static double loss_of(const struct network *net)
{
        return net->stages[net->count - 1]->scalars[NN_LOSS];
}

/* What a pass finds in its workspace means nothing to it. */
static void poison(const struct nn_stage *nn)
{
        real *workspace = (real *)(void *)nn->exec->workspace;
        for (int64_t i = 0; i < nn->layout.workspace / (int64_t)sizeof *workspace; i++)
                workspace[i] = NAN;
}

/* Forward of all micro-batches, each in a slot of its own; returns the summed loss (0 if backward makes it).
 */
static double forward(struct network *net, bool loss_only)
{
        const int64_t message = net->stages[0]->layout.message;
        net->stages[net->count - 1]->scalars[NN_LOSS] = 0;
        for (int mb = 0; mb < MICRO_BATCHES; mb++)
                for (int s = 0; s < net->count; s++) {
                        if (s > 0)
                                memcpy(net->stages[s]->inputs[mb], nn_output(net->stages[s - 1], 0, mb),
                                       (size_t)message);
                        poison(net->stages[s]);
                        nn_forward(net->stages[s], 0, mb, s > 0 ? mb : -1, mb, loss_only);
                        net->device->ops->synchronize(net->device);
                }
        return loss_of(net);
}

/* Backward in another order than forward; gradient buffers begin as NaN where the stage must write them. */
static void backward(struct network *net)
{
        const int64_t message = net->stages[0]->layout.message;
        for (int mb = MICRO_BATCHES - 1; mb >= 0; mb--)
                for (int s = net->count - 1; s >= 0; s--) {
                        real *g = net->stages[s]->gradient_buffers[mb];
                        if (s == net->count - 1)
                                for (int64_t i = 0; i < message / (int64_t)sizeof *g; i++)
                                        g[i] = NAN;
                        else
                                memcpy(g, net->stages[s + 1]->gradient_buffers[mb], (size_t)message);
                        poison(net->stages[s]);
                        nn_backward(net->stages[s], 0, mb, s > 0 ? mb : -1, mb, mb);
                        net->device->ops->synchronize(net->device);
                }
}

static const struct tensor *tensor_with_id(const struct nn_stage *nn, uint32_t id)
{
        for (int t = 0; t < nn->tensor_count; t++)
                if (nn->tensors[t].id == id)
                        return &nn->tensors[t];
        return NULL;
}

/* Of every stage that has the tensor (a tied embedding lies on two): weight = `at` + step x `way`, of all its
 * elements. */
static void move(struct network *net, uint32_t id, const double at[], const double way[], double step)
{
        for (int s = 0; s < net->count; s++) {
                const struct tensor *tensor = tensor_with_id(net->stages[s], id);
                if (!tensor)
                        continue;
                real *weights = (real *)net->stages[s]->weights + tensor->offset;
                for (int64_t i = 0; i < tensor->elements; i++)
                        weights[i] = at[i] + step * way[i];
        }
}

/* What the backward pass says, summed over the stages as the embedding's all-reduce does. */
static double gradient_of(const struct network *net, uint32_t id, int64_t element)
{
        double sum = 0;
        for (int s = 0; s < net->count; s++) {
                const struct tensor *tensor = tensor_with_id(net->stages[s], id);
                if (tensor)
                        sum += ((real *)net->stages[s]->gradients)[tensor->offset + element];
        }
        return sum;
}

/* Central differences at two distances, extrapolated: (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h, error
 * O(h^4). Of squared ReLUs whose argument is nearer to zero than it moves, where their curvature jumps, each
 * adds an error O(h), and they are O(h) of all: with a fifth of the distance a 25th of that, while the loss's
 * rounding is five times as much of a difference. */
static double difference(struct network *net, uint32_t id, const double at[], const double way[])
{
        const double h = net->step;
        double loss[4];
        const double steps[4] = {h, -h, 2 * h, -2 * h};
        for (int i = 0; i < 4; i++) {
                move(net, id, at, way, steps[i]);
                loss[i] = forward(net, true);
        }
        move(net, id, at, way, 0);
        return loss_scale * (8 * (loss[0] - loss[1]) - (loss[2] - loss[3])) / (12 * h);
}

/* Along the way `way`. The loss (a few hundred) is rounded at 1e-14, so a difference is known to about 1e-10;
 * the rest is relative. */
static void check_way(struct network *net, const struct tensor *tensor, const double at[], const double way[],
                      double *worst)
{
        double found = 0;
        for (int64_t i = 0; i < tensor->elements; i++)
                found += way[i] != 0 ? way[i] * gradient_of(net, tensor->id, i) : 0;
        const double expected = difference(net, tensor->id, at, way);
        assert_within(found, expected, 1e-6 * fabs(expected) + 1e-9, tensor->name, 0);
        *worst = fmax(*worst, fabs(found - expected) / (fabs(expected) + 1e-3));
}

/* Some elements alone, and all of them along a random way of length 1. */
static void check_tensor(struct network *net, const struct nn_stage *nn, const struct tensor *tensor,
                         uint64_t *random, double *worst)
{
        const int64_t elements = tensor->elements;
        double *at = calloc((size_t)elements, sizeof *at), *way = calloc((size_t)elements, sizeof *way),
               length = 0;
        assert_true(at && way);
        for (int64_t i = 0; i < elements; i++)
                at[i] = ((real *)nn->weights)[tensor->offset + i];
        for (int64_t i = 0; i < SAMPLES && i < elements; i++) {
                const int64_t element = elements <= SAMPLES ? i : random_below(random, elements);
                way[element] = 1;
                check_way(net, tensor, at, way, worst);
                way[element] = 0;
        }
        for (int64_t i = 0; i < elements; i++) {
                way[i] = random_number(random);
                length += way[i] * way[i];
        }
        for (int64_t i = 0; i < elements; i++)
                way[i] /= sqrt(length);
        check_way(net, tensor, at, way, worst);
        free(at);
        free(way);
}

static void check_model(int model, bool tied, int stages, bool fused, int64_t logits_bytes)
{
        const struct gpt gpt = small_gpt(model, 2, tied);
        struct network net = open_chunked(&gpt, stages, RECOMPUTE_NONE, fused, logits_bytes);
        uint64_t random = seed;
        forward(&net, false);
        backward(&net);
        double worst = 0;
        for (int s = 0; s < stages; s++)
                for (int t = 0; t < net.stages[s]->tensor_count; t += EVERY)
                        check_tensor(&net, net.stages[s], &net.stages[s]->tensors[t], &random, &worst);
        print_message("seed %llu: worst error %.2g of the gradient (+ 0.001)\n", (unsigned long long)seed,
                      worst);
        close_network(&net);
}

static void check_network(bool tied, int stages, bool fused, int64_t logits_bytes)
{
        check_model(FAMILY_GPT2, tied, stages, fused, logits_bytes);
}

/* A sixth of a list of cases, sanitized half of another sixth, or, in make test-all, all. */
static bool is_taken(int nth)
{
        return is_every_case_taken() || nth % (SANITIZED ? 12 : 6) == SANITIZED;
}

static void gradients_of_a_llama_and_its_like_are_the_loss_s_slopes(void **state)
{
        (void)state;
        for (int model = FAMILY_LLAMA; model < MODELS; model++) {
                for (int choice = 0; choice < 8; choice++)
                        if (is_taken(model + choice))
                                check_model(model, choice & 1, choice & 2 ? 2 : 1, choice & 4, 0);
                check_model(model, false, 1, true, 1);
        }
}

static void gradients_of_a_tied_model_in_one_stage_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(true, 1, false, 0);
}

static void gradients_of_an_untied_model_in_one_stage_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(false, 1, false, 0);
}

static void gradients_of_a_tied_model_in_two_stages_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(true, 2, false, 0);
}

static void gradients_of_an_untied_model_in_two_stages_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(false, 2, false, 0);
}

static void gradients_through_fused_kernels_in_one_stage_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(false, 1, true, 0);
}

static void gradients_through_fused_kernels_in_two_stages_are_the_loss_s_slopes(void **state)
{
        (void)state;
        check_network(true, 2, true, 0);
}

/* Of 35 rows 16, 16 and 3. */
static void gradients_of_a_loss_in_chunks_are_its_slopes(void **state)
{
        (void)state;
        check_network(false, 1, true, 1);
        check_network(true, 2, true, 1);
}

/* The ways to go back: at once, a unit after the other, or the gradients of weights by themselves. */
enum { AT_ONCE, IN_SPANS, IN_PARTS, WAYS };

static void backward_in(const struct network *net, int way)
{
        struct nn_stage *nn = net->stages[0];
        for (int mb = 0; mb < MICRO_BATCHES; mb++) {
                if (way == AT_ONCE)
                        nn_backward(nn, 0, mb, -1, mb, mb);
                for (int64_t end = nn->parameters; way == IN_SPANS && end > 0;) {
                        const struct partition_span span =
                                partition_span(&nn->gpt, &nn->stage, 0, 0, PART_BOTH, end, end - 1);
                        poison(nn);
                        nn_backward_span(nn, mb, -1, mb, mb, -1, &span);
                        nn->device->ops->synchronize(nn->device);
                        end = span.offset;
                }
                for (int parts = PART_INPUT; way == IN_PARTS && parts <= PART_WEIGHT; parts++) {
                        poison(nn);
                        nn_backward_part(nn, mb, -1, mb, mb, 0, (enum kernel_part)parts);
                        nn->device->ops->synchronize(nn->device);
                }
        }
        net->device->ops->synchronize(net->device);
}

/* A chunk's logits take the place of those before it, so validation, which keeps nothing, is made in them
 * too. Only the sums over rows, of the loss and of the head's gradient, are made in another order. */
static void chunks_of_the_loss_give_the_same_gradients(void **state)
{
        (void)state;
        for (int choice = 0; choice < WAYS * MODELS; choice++) {
                const int way = choice % WAYS;
                const struct gpt gpt = small_gpt(choice / WAYS, 3, true);
                struct network plain = open_network(&gpt, 1, RECOMPUTE_NONE, false),
                               whole = open_network(&gpt, 1, RECOMPUTE_NONE, true),
                               chunked = open_chunked(&gpt, 1, RECOMPUTE_FULL, true, 1);
                assert_int_equal(plain.stages[0]->layout.head - whole.stages[0]->layout.head,
                                 memory_aligned(B * T * PROGRAM_PITCH * 8)); /* of 19 words */
                assert_int_equal(chunked.stages[0]->layout.head, whole.stages[0]->layout.head);
                const double loss = forward(&plain, false);
                assert_within(forward(&chunked, true), loss, 1e-13 * loss, "validation's loss", way);
                assert_true(forward(&chunked, false) == 0 && forward(&whole, false) == 0);
                backward_in(&plain, AT_ONCE);
                backward_in(&whole, way);
                backward_in(&chunked, way);
                assert_within(loss_of(&whole), loss, 1e-13 * loss, "loss at once", way);
                assert_within(loss_of(&chunked), loss, 1e-13 * loss, "loss", way);
                const real *expected = plain.stages[0]->gradients;
                for (int64_t i = 0; i < plain.stages[0]->parameters; i++) {
                        const double bound = 1e-12 * (1 + fabs(expected[i]));
                        assert_within(((real *)whole.stages[0]->gradients)[i], expected[i], bound, "at once",
                                      i);
                        assert_within(((real *)chunked.stages[0]->gradients)[i], expected[i], bound,
                                      "in chunks", i);
                }
                close_network(&plain);
                close_network(&whole);
                close_network(&chunked);
        }
}

/* Fused kernels sum in another order, and that is all. */
static void fused_kernels_give_the_same_gradients(void **state)
{
        (void)state;
        const struct gpt gpt = small_gpt(FAMILY_GPT2, 3, true);
        struct network plain = open_network(&gpt, 1, false, false),
                       fused = open_network(&gpt, 1, false, true);
        assert_true(fused.stages[0]->layout.block < plain.stages[0]->layout.block);
        const double loss = forward(&plain, false);
        assert_within(forward(&fused, true), loss, 1e-13 * loss, "loss", 0);
        forward(&fused, false);
        backward(&plain);
        backward(&fused);
        const real *expected = plain.stages[0]->gradients, *found = fused.stages[0]->gradients;
        for (int64_t i = 0; i < plain.stages[0]->parameters; i++)
                assert_within(found[i], expected[i], 1e-12 * (1 + fabs(expected[i])), "gradient", i);
        close_network(&plain);
        close_network(&fused);
}

/* The same arithmetic in the same order: a stage boundary changes no bit, but for the tied embedding's sum.
 */
static void two_stages_give_the_gradients_of_one(void **state)
{
        (void)state;
        const struct gpt gpt = small_gpt(FAMILY_GPT2, 2, true);
        struct network one = open_network(&gpt, 1, false, false), two = open_network(&gpt, 2, false, false);
        assert_true(forward(&one, false) == forward(&two, false));
        backward(&one);
        backward(&two);
        const struct nn_stage *nn = one.stages[0];
        for (int t = 0; t < nn->tensor_count; t++)
                for (int64_t i = 0; i < nn->tensors[t].elements; i++) {
                        const double expected = gradient_of(&one, nn->tensors[t].id, i);
                        assert_within(gradient_of(&two, nn->tensors[t].id, i), expected,
                                      1e-13 * (1 + fabs(expected)), nn->tensors[t].name, i);
                }
        close_network(&one);
        close_network(&two);
}

/* Each part of a backward a layer at a time, as beside all-reduces: what a span says is final is that. */
static void backward_in_spans_of_parts(const struct network *net, const real *expected)
{
        struct nn_stage *nn = net->stages[0];
        const int deferred = memory_deferred_layers(&nn->plan, &nn->stage);
        for (int mb = 0; mb < MICRO_BATCHES; mb++) {
                int64_t end = nn->parameters;
                for (int parts = PART_INPUT; parts <= PART_WEIGHT; parts++)
                        for (bool more = true; more;) {
                                const struct partition_span span =
                                        partition_span(&nn->gpt, &nn->stage, 0, deferred,
                                                       (enum kernel_part)parts, end, end - 1);
                                poison(nn);
                                nn_backward_span(nn, mb, -1, mb, mb, 0, &span);
                                nn->device->ops->synchronize(nn->device);
                                more = span.more;
                                if (parts == PART_INPUT && !more)
                                        continue;
                                for (int64_t i = span.offset; i < end && mb == MICRO_BATCHES - 1; i++)
                                        assert_within(((real *)nn->gradients)[i], expected[i],
                                                      1e-12 * (1 + fabs(expected[i])), "final", i);
                                end = span.offset;
                        }
                assert_int_equal(end, 0);
        }
}

/* With a backward in two parts what the first leaves lies where slots are free by then. The fewer layers are
 * in parts, the less that is. */
static void check_parts(const struct network *at_once, const struct gpt *gpt, enum recompute recompute,
                        bool fused)
{
        const real *expected = at_once->stages[0]->gradients;
        int64_t left = 0;
        for (int deferred = 1; deferred <= gpt->n_layer; deferred++)
                for (int in_spans = 0; in_spans <= 1; in_spans++) {
                        struct network parted = open_deferring(gpt, 1, recompute, fused, 0, deferred);
                        const struct nn_stage *nn = parted.stages[0];
                        forward(&parted, false);
                        if (in_spans)
                                backward_in_spans_of_parts(&parted, expected);
                        else
                                backward_in(&parted, IN_PARTS);
                        for (int64_t i = 0; i < nn->parameters; i++)
                                assert_within(((real *)nn->gradients)[i], expected[i],
                                              1e-12 * (1 + fabs(expected[i])), "in parts", i);
                        assert_true(in_spans ? nn->layout.deferred == left : nn->layout.deferred >= left);
                        left = nn->layout.deferred;
                        close_network(&parted);
                }
}

/* What is computed again is computed in the same way: not a bit differs. */
static void recomputed_activations_give_the_same_gradients(void **state)
{
        (void)state;
        for (int choice = 0; choice < 4 * RECOMPUTES * MODELS; choice++) {
                const struct gpt gpt = small_gpt(choice / 4 / RECOMPUTES, 5, true);
                const int stages = 1 + choice % 2;
                const bool fused = choice / 2 % 2;
                const enum recompute recompute = (enum recompute)(choice / 4 % RECOMPUTES);
                if (!partition_recomputes(&gpt, recompute) ||
                    !is_taken(choice / 4 + choice / 4 / RECOMPUTES) ||
                    (SANITIZED && !is_every_case_taken() && choice % 4 != choice / 4 % 4))
                        continue;
                struct network stored = open_network(&gpt, stages, false, fused);
                struct network again = open_network(&gpt, stages, recompute, fused);
                forward(&stored, false);
                forward(&again, false);
                backward(&stored);
                backward(&again);
                assert_true(loss_of(&stored) != 0 && loss_of(&stored) == loss_of(&again));
                for (int s = 0; s < stages; s++) {
                        const struct nn_stage *a = stored.stages[s], *b = again.stages[s];
                        /* a Llama's attention is always the fused kernel, which stores no scores */
                        const bool less = work_recomputation(&b->plan.work) != RECOMPUTE_NONE &&
                                          (gpt.family == FAMILY_GPT2 || recompute != RECOMPUTE_SELECTIVE);
                        assert_true(less ? b->layout.slot < a->layout.slot
                                         : b->layout.slot == a->layout.slot);
                        assert_memory_equal(a->gradients, b->gradients, (size_t)a->parameters * sizeof(real));
                }
                if (stages == 1)
                        check_parts(&stored, &gpt, recompute, fused);
                close_network(&stored);
                close_network(&again);
        }
}

/* ---- kernels by themselves ---- */

enum { ROWS = 6, COLUMNS = 20, WIDE = 2 * COLUMNS };

/* y (ROWS, COLUMNS) of x, (ROWS, `columns`), and of w (COLUMNS), if it has one; and the gradients of the sum
 * of dy y. */
struct row_kernel {
        const char *name;
        int64_t columns;
        void (*forward)(struct device *, real *y, const real *x, const real *w);
        void (*backward)(struct device *, real *dx, real *dw, const real *dy, const real *x, const real *w);
};

static void rmsnorm(struct device *device, real *y, const real *x, const real *w)
{
        real rstd[ROWS];
        kernels_rmsnorm(device, y, rstd, x, w, ROWS, COLUMNS, 1e-5);
        device->ops->synchronize(device);
}

static void rmsnorm_backward(struct device *device, real *dx, real *dw, const real *dy, const real *x,
                             const real *w)
{
        real rstd[ROWS], y[ROWS * COLUMNS];
        kernels_rmsnorm(device, y, rstd, x, w, ROWS, COLUMNS, 1e-5);
        kernels_rmsnorm_backward(device, dx, dw, dy, x, rstd, w, ROWS, COLUMNS, false);
        device->ops->synchronize(device);
}

static struct rope rope_of(bool inverse)
{
        return (struct rope){.columns = COLUMNS,
                             .rotated = 16,
                             .head_size = 8,
                             .theta = 10000,
                             .inverse = inverse,
                             .turned = 6};
}

static void rope(struct device *device, real *y, const real *x, const real *w)
{
        const struct rope forward_rope = rope_of(false);
        (void)w;
        memcpy(y, x, ROWS * COLUMNS * sizeof *y);
        kernels_rope(device, &forward_rope, y, 2, ROWS / 2);
        device->ops->synchronize(device);
}

static void rope_backward(struct device *device, real *dx, real *dw, const real *dy, const real *x,
                          const real *w)
{
        const struct rope inverse_rope = rope_of(true);
        (void)dw, (void)x, (void)w;
        memcpy(dx, dy, ROWS * COLUMNS * sizeof *dx);
        kernels_rope(device, &inverse_rope, dx, 2, ROWS / 2);
        device->ops->synchronize(device);
}

static void swiglu(struct device *device, real *y, const real *x, const real *w)
{
        (void)w;
        kernels_swiglu(device, y, x, ROWS, COLUMNS);
        device->ops->synchronize(device);
}

static void swiglu_backward(struct device *device, real *dx, real *dw, const real *dy, const real *x,
                            const real *w)
{
        (void)dw, (void)w;
        kernels_swiglu_backward(device, dx, dy, x, ROWS, COLUMNS);
        device->ops->synchronize(device);
}

static void layernorm(struct device *device, real *y, const real *x, const real *w)
{
        static const real b[COLUMNS] = {1, -2};
        real stats[2 * ROWS];
        kernels_layernorm(device, y, stats, x, w, b, 1, ROWS, COLUMNS);
        device->ops->synchronize(device);
}

static void layernorm_backward(struct device *device, real *dx, real *dw, const real *dy, const real *x,
                               const real *w)
{
        static const real b[COLUMNS] = {0};
        real stats[2 * ROWS], y[ROWS * COLUMNS], db[COLUMNS] = {0};
        kernels_layernorm(device, y, stats, x, w, b, 1, ROWS, COLUMNS);
        kernels_layernorm_backward(device, dx, dw, db, dy, x, stats, w, 1, ROWS, COLUMNS, false);
        device->ops->synchronize(device);
}

static void squared_relu(struct device *device, real *y, const real *x, const real *w)
{
        (void)w;
        kernels_squared_relu(device, y, x, ROWS, COLUMNS);
        device->ops->synchronize(device);
}

static void squared_relu_backward(struct device *device, real *dx, real *dw, const real *dy, const real *x,
                                  const real *w)
{
        (void)dw, (void)w;
        memcpy(dx, dy, ROWS * COLUMNS * sizeof *dx);
        kernels_squared_relu_backward(device, dx, x, ROWS, COLUMNS);
        device->ops->synchronize(device);
}

static double weighted_sum(struct device *device, const struct row_kernel *kernel, const real *dy,
                           const real *x, const real *w)
{
        real y[ROWS * COLUMNS];
        double sum = 0;
        kernel->forward(device, y, x, w);
        for (int i = 0; i < ROWS * COLUMNS; i++)
                sum += dy[i] * y[i];
        return sum;
}

/* Central differences in each of `count` elements of x or w: their error is of the step's square. */
static void check_differences(struct device *device, const struct row_kernel *kernel, const real *dy,
                              const real *x, const real *w, real *changed, const real *gradient,
                              int64_t count)
{
        const double step = 1e-5;
        for (int64_t i = 0; i < count; i++) {
                const real before = changed[i];
                changed[i] = before + step;
                const double more = weighted_sum(device, kernel, dy, x, w);
                changed[i] = before - step;
                const double less = weighted_sum(device, kernel, dy, x, w);
                changed[i] = before;
                assert_within(gradient[i], (more - less) / (2 * step), 1e-7, kernel->name, i);
        }
}

static void kernels_of_rows_have_their_slopes(void **state)
{
        static const struct row_kernel kernels[] = {
                {"rmsnorm", COLUMNS, rmsnorm, rmsnorm_backward},
                {"rope", COLUMNS, rope, rope_backward},
                {"swiglu", WIDE, swiglu, swiglu_backward},
                {"layernorm", COLUMNS, layernorm, layernorm_backward},
                {"squared_relu", COLUMNS, squared_relu, squared_relu_backward}};
        struct rv_error_info err = {0};
        struct device *device = device_cpu_open(1, &err);
        uint64_t random = seed;
        (void)state;
        assert_non_null(device);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
                const int64_t count = ROWS * kernels[k].columns;
                real *x = random_reals(&random, count, 3), *w = random_reals(&random, COLUMNS, 1);
                real *dy = random_reals(&random, ROWS * COLUMNS, 1), *dx = poisoned_reals(count);
                real dw[COLUMNS] = {0};
                kernels[k].backward(device, dx, dw, dy, x, w);
                check_differences(device, &kernels[k], dy, x, w, x, dx, count);
                check_differences(device, &kernels[k], dy, x, w, w, dw, COLUMNS);
                real *all[] = {x, w, dy, dx};
                for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                        free(all[i]);
        }
        device->ops->close(device);
}

/* ---- attention of heads that share keys and values, by itself ---- */

enum { HEADS = 6, HEAD = 5, TOKENS = 33, SEQUENCES = 2, MAX_QKV = SEQUENCES * TOKENS * 3 * HEADS * HEAD };
enum { OUTPUTS = SEQUENCES * TOKENS * HEADS * HEAD, OUTPUT_ROWS = SEQUENCES * TOKENS * HEADS };

struct shared_keys {
        struct device *device;
        int64_t kv_heads;
        real qkv[MAX_QKV], dqkv[MAX_QKV], y[OUTPUTS], dy[OUTPUTS], lse[OUTPUT_ROWS], rows[OUTPUT_ROWS];
};

/* sum(dy y), whose gradient by y is dy. */
static double weighted_output(struct shared_keys *a)
{
        double sum = 0;
        kernels_attention(a->device, a->y, a->lse, a->qkv, SEQUENCES, TOKENS, HEADS, a->kv_heads, HEAD, 0.4);
        a->device->ops->synchronize(a->device);
        for (int i = 0; i < OUTPUTS; i++)
                sum += a->dy[i] * a->y[i];
        return sum;
}

static double weighted_output_at(struct shared_keys *a, int64_t element, double value)
{
        const double before = a->qkv[element];
        a->qkv[element] = value;
        const double sum = weighted_output(a);
        a->qkv[element] = before;
        return sum;
}

static void check_shared_keys(struct shared_keys *a, int64_t kv_heads)
{
        const int64_t elements = (int64_t)SEQUENCES * TOKENS * (HEADS + 2 * kv_heads) * HEAD;
        const double step = 1e-4;
        uint64_t random = seed;
        a->kv_heads = kv_heads;
        for (int64_t i = 0; i < elements; i++) {
                a->qkv[i] = random_number(&random);
                a->dqkv[i] = NAN;
        }
        for (int i = 0; i < OUTPUTS; i++)
                a->dy[i] = random_number(&random);
        (void)weighted_output(a);
        kernels_attention_backward(a->device, a->dqkv, a->rows, a->dy, a->y, a->lse, a->qkv, SEQUENCES,
                                   TOKENS, HEADS, kv_heads, HEAD, 0.4);
        a->device->ops->synchronize(a->device);
        for (int64_t i = 0; i < elements; i++) {
                const double slope = (weighted_output_at(a, i, a->qkv[i] + step) -
                                      weighted_output_at(a, i, a->qkv[i] - step)) /
                                     (2 * step);
                if (!(fabs(a->dqkv[i] - slope) <= 1e-6 * (fabs(slope) + 0.01)))
                        fail_msg("%lld heads of keys, dqkv[%lld] is %g, the slope %g", (long long)kv_heads,
                                 (long long)i, a->dqkv[i], slope);
        }
}

static void gradients_of_attention_with_shared_keys_are_its_slopes(void **state)
{
        (void)state;
        static struct shared_keys a;
        static const int64_t kv_heads[] = {6, 3, 2, 1};
        struct rv_error_info err = {0};
        a.device = device_cpu_open(1, &err);
        assert_non_null(a.device);
        for (size_t i = 0; i < sizeof kv_heads / sizeof *kv_heads; i++)
                if (!SANITIZED || is_taken((int)i))
                        check_shared_keys(&a, kv_heads[i]);
        a.device->ops->close(a.device);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(kernels_of_rows_have_their_slopes),
                cmocka_unit_test(gradients_of_a_llama_and_its_like_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_of_a_tied_model_in_one_stage_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_of_an_untied_model_in_one_stage_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_of_a_tied_model_in_two_stages_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_of_an_untied_model_in_two_stages_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_through_fused_kernels_in_one_stage_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_through_fused_kernels_in_two_stages_are_the_loss_s_slopes),
                cmocka_unit_test(gradients_of_a_loss_in_chunks_are_its_slopes),
                cmocka_unit_test(chunks_of_the_loss_give_the_same_gradients),
                cmocka_unit_test(fused_kernels_give_the_same_gradients),
                cmocka_unit_test(two_stages_give_the_gradients_of_one),
                cmocka_unit_test(recomputed_activations_give_the_same_gradients),
                cmocka_unit_test(gradients_of_attention_with_shared_keys_are_its_slopes),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
