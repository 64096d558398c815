/* Traces of PyTorch: what is read of a file, what a step's operators are, and how their time is shared among
 * the kernels that a prediction prices. The traces are written here, with round numbers. */
#include "calibrate/trace/learn.h"
#include "tests/unit/noise.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <cmocka.h>

/* ---- files ---- */

static const char HEAD[] = "{\"schemaVersion\": 1, \"deviceProperties\": [{\"name\": \"A \\\"100\\\"\", "
                           "\"totalGlobalMem\": 1000, \"numSms\": 7}],\n\"traceEvents\": [\n";
static const char EVENTS[] =
        "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#3\", \"pid\": 1, \"tid\": 1, "
        "\"ts\": 1712195495502000.250, \"dur\": 100.5},\n"
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::linear\", \"tid\": 1, \"ts\": "
        "1712195495502010, "
        "\"dur\": 30, \"args\": {\"Input Dims\": [[2, 3], [5, 3]], \"Input type\": [\"float\", "
        "\"float\"]}},\n"
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"tid\": 1, \"ts\": 1712195495502015, "
        "\"dur\": 20, \"args\": {\"Input Dims\": [[2, 3], [3, 5]], \"Input type\": [\"c10::BFloat16\"], "
        "\"Sequence number\": 12}},\n"
        "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"tid\": 1, \"ts\": "
        "1712195495502020, \"dur\": 5, \"args\": {\"correlation\": 77}},\n"
        "{\"ph\": \"s\", \"id\": 77, \"cat\": \"ac2g\", \"name\": \"ac2g\", \"ts\": 1712195495502021},\n"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm }] \\\\\", \"tid\": 7, \"ts\": "
        "1712195495502300, "
        "\"dur\": 42.5, \"args\": {\"correlation\": 77}},\n"
        "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"other\", \"tid\": 7, \"ts\": 1712195495502400, "
        "\"dur\": 2, "
        "\"args\": {\"correlation\": 78}},\n"
        "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::add_\", \"tid\": 1, \"ts\": "
        "1712195495502050, \"dur\": 4, "
        "\"args\": {\"Input Dims\": [[2, 5], [2, 5], []]}}\n";
static const char TAIL[] = "],\n\"traceName\": \"x\"}\n";

/* Writes a file of these texts, compressed or not, and reads it. */
static int read_texts(struct kineto *trace, bool compressed, const char *head, const char *events,
                      const char *tail, struct rv_error_info *err)
{
        char path[] = "/tmp/test_kineto_XXXXXX";
        const int file = mkstemp(path);
        assert_true(file >= 0);
        gzFile stream = gzdopen(file, compressed ? "wb" : "wbT");
        assert_true(gzputs(stream, head) >= 0 && gzputs(stream, events) >= 0 && gzputs(stream, tail) >= 0);
        gzclose(stream);
        const int rc = kineto_read(trace, path, err);
        unlink(path);
        return rc;
}

static void a_file_is_read_plain_and_compressed(void **state)
{
        (void)state;
        for (int compressed = 0; compressed < 2; compressed++) {
                struct kineto trace = {0};
                struct rv_error_info err;
                assert_int_equal(read_texts(&trace, compressed, HEAD, EVENTS, TAIL, &err), RV_OK);
                assert_int_equal(trace.count, 7);
                assert_string_equal(trace.gpu, "A \"100\"");
                assert_int_equal(trace.gpu_memory_bytes, 1000);
                assert_int_equal(trace.gpu_processors, 7);
                assert_int_equal(trace.shaped, 3);
                assert_int_equal(trace.on_gpu, 2);
                const struct kineto_event *mm = &trace.events[2];
                assert_int_equal(mm->dtype, DTYPE_BF16);
                assert_int_equal(mm->sequence, 12);
                assert_int_equal(kineto_input_count(&trace, mm), 2);
                assert_int_equal(kineto_input(&trace, mm, 1).axes, 2);
                assert_int_equal(kineto_input(&trace, mm, 1).extent[1], 5);
                assert_int_equal(kineto_input(&trace, mm, 2).axes, 0);
                assert_true(fabs(mm->start - trace.events[0].start - 14.75) < 0.3); /* what doubles keep */
                assert_string_equal(trace.events[4].name, "gemm }] \\");
                assert_ptr_equal(trace.events[0].name, trace.events[0].name);
                kineto_free(&trace);
        }
}

static void a_list_of_events_alone_is_read_too(void **state)
{
        (void)state;
        struct kineto trace = {0};
        struct rv_error_info err;
        assert_int_equal(read_texts(&trace, false, "[", EVENTS, "]", &err), RV_OK);
        assert_int_equal(trace.count, 7);
        kineto_free(&trace);
}

static void what_is_no_trace_is_said_in_a_sentence(void **state)
{
        (void)state;
        static const struct {
                const char *head, *events, *tail, *says;
        } cases[] = {{HEAD, EVENTS, "", "ends in the middle"},
                     {HEAD, "{\"ph\": \"X\", \"na", "", "ends in the middle"},
                     {HEAD, "{\"ph\" \"X\"}", TAIL, "':' expected"},
                     {HEAD, "7 8", TAIL, "end of file expected"},
                     {"{\"a\": 1", "", "}", "there is no \"traceEvents\""},
                     {"{\"traceEvents\": 3", "", "}", "is no list"},
                     {"m,n,k,seconds\n", "", "", "this is no JSON"},
                     {"", "", "", "empty"},
                     {"{\"traceEvents\": [", "", "]}", "has no events"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct kineto trace = {0};
                struct rv_error_info err = {0};
                const int rc = read_texts(&trace, false, cases[i].head, cases[i].events, cases[i].tail, &err);
                if (rc != RV_EINPUT || !strstr(err.sentence, cases[i].says))
                        fail_msg("%zu: %d: %s", i, rc, err.sentence);
                kineto_free(&trace);
        }
}

static void a_compressed_file_that_is_cut_short_is_refused(void **state)
{
        (void)state;
        char path[] = "/tmp/test_kineto_XXXXXX";
        const int file = mkstemp(path);
        gzFile stream = gzdopen(dup(file), "wb");
        gzputs(stream, HEAD);
        for (int i = 0; i < 200; i++)
                gzprintf(stream,
                         "%s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"op %d\", \"ts\": %d, \"dur\": "
                         "1}\n",
                         i ? "," : "", i * i, 7 * i);
        gzputs(stream, TAIL);
        gzclose(stream);
        assert_int_equal(ftruncate(file, lseek(file, 0, SEEK_END) / 2), 0);
        close(file);
        struct kineto trace = {0};
        struct rv_error_info err = {0};
        assert_int_equal(kineto_read(&trace, path, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "ends in the middle"));
        unlink(path);
        kineto_free(&trace);
}

static void a_gpus_kernels_count_for_the_operators_that_launched_them(void **state)
{
        (void)state;
        struct kineto trace = {0};
        struct rv_error_info err;
        struct traced_steps steps;
        assert_int_equal(read_texts(&trace, false, HEAD, EVENTS, TAIL, &err), RV_OK);
        steps_find(&steps, &trace, "t.json", &(struct rv_error_info){0});
        assert_int_equal(steps.count, 1);
        assert_int_equal(steps.operator_count,
                         2); /* the product and the sum, not what is made of the product */
        assert_string_equal(trace.events[steps.operators[0].event].name, "aten::mm");
        assert_close(step_seconds(&steps, &steps.operators[0]), 42.5e-6, 1e-9);
        assert_true(step_seconds(&steps, &steps.operators[1]) == 0);
        assert_int_equal(steps.lost, 1);
        assert_close(steps.lost_time, 2.0, 1e-9);
        const struct kernel product = operator_product(&trace, &trace.events[steps.operators[0].event]);
        assert_true(product.batch == 1 && product.m == 2 && product.n == 5 && product.k == 3);
        steps_free(&steps);
        kineto_free(&trace);
}

/* Each of them would have all operators. */
static void steps_within_each_other_are_refused(void **state)
{
        (void)state;
        enum { EACH = 8, EVENT = 128 };
        char events[2 * EACH * EVENT] = "";
        for (int i = 0; i < 2 * EACH; i++)
                sprintf(events + strlen(events),
                        "%s{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"%s\", \"tid\": 1, \"ts\": %d, "
                        "\"dur\": %d}\n",
                        i ? "," : "", i < EACH ? "ProfilerStep#1" : "aten::mm", i < EACH ? 0 : i,
                        i < EACH ? 100 : 1);
        struct kineto trace = {0};
        struct traced_steps steps;
        struct rv_error_info err = {0};
        assert_int_equal(read_texts(&trace, false, "[", events, "]", &err), RV_OK);
        assert_int_equal(steps_find(&steps, &trace, "t.json", &err), RV_EINPUT);
        assert_non_null(
                strstr(err.sentence, "t.json: steps of the trace (ProfilerStep#) lie within each other"));
        steps_free(&steps);
        kineto_free(&trace);
}

/* ---- names ---- */

static void operators_are_told_by_their_names(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                enum operator_class class;
        } cases[] = {{"aten::mm", OPERATOR_PRODUCT},
                     {"aten::mmm", OPERATOR_UNKNOWN},
                     {"aten::m", OPERATOR_UNKNOWN},
                     {"aten::_scaled_dot_product_flash_attention_for_cpu", OPERATOR_ATTENTION},
                     {"aten::_scaled_dot_product_efficient_attention_backward", OPERATOR_ATTENTION},
                     {"aten::scaled_dot_product_attention", OPERATOR_UNKNOWN}, /* it is made of the others */
                     {"Optimizer.step#AdamW.step", OPERATOR_OPTIMIZER},
                     {"aten::cudnn_batch_norm_backward", OPERATOR_FOREIGN},
                     {"aten::empty_strided", OPERATOR_HOST},
                     {"", OPERATOR_UNKNOWN}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
                if (operator_of(cases[i].name)->class != cases[i].class)
                        fail_msg("%s is %s", cases[i].name,
                                 operator_class_name(operator_of(cases[i].name)->class));
        assert_int_equal(operator_of("aten::_flash_attention_backward")->kernel, KERNEL_ATTENTION_BACKWARD);
        assert_int_equal(operator_of("aten::_flash_attention_forward")->kernel, KERNEL_ATTENTION);
}

/* ---- places ---- */

static const char *const MODELS[] = {"models/presets/tiny.json", "models/presets/llama-tiny.json",
                                     "models/presets/nemotron-tiny.json"};

static void every_kernel_of_a_model_has_one_place(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++) {
                struct gpt gpt;
                struct layers layers;
                struct rv_error_info err;
                assert_int_equal(gpt_load(&gpt, MODELS[i], &err), RV_OK);
                assert_int_equal(layers_init(&layers, &gpt, 2, 32, DTYPE_FP32, &err), RV_OK);
                assert_int_equal(layers.products, 4 * gpt.n_layer + 1);
                int *places = calloc((size_t)layers.count, sizeof *places);
                for (int place = 0; place <= 2 * layers.products; place++) {
                        const struct layers_place *at = &layers.places[place];
                        const struct layers_range ranges[] = {at->forward, at->backward};
                        for (int way = 0; way < 2; way++)
                                for (int k = 0; k < ranges[way].count; k++)
                                        places[ranges[way].first + k]++;
                        if (place % 2) {
                                assert_int_equal(at->forward.count, 1);
                                const struct kernel *both = &layers.kernels[at->backward.first];
                                assert_true(both[0].part == PART_INPUT && both[1].part == PART_WEIGHT);
                                /* the backward's products have the forward's operations */
                                const struct kernel *forward = &layers.kernels[at->forward.first];
                                assert_true(both[0].m * both[0].n * both[0].k ==
                                            forward->m * forward->n * forward->k);
                                assert_true(both[1].m * both[1].n * both[1].k ==
                                            forward->m * forward->n * forward->k);
                        }
                }
                for (int k = 0; k < layers.count; k++)
                        assert_int_equal(places[k], 1);
                free(places);
                layers_free(&layers);
        }
}

static void a_mixture_of_experts_is_refused_by_name(void **state)
{
        (void)state;
        struct gpt gpt;
        struct layers layers;
        struct rv_error_info err;
        assert_int_equal(gpt_load(&gpt, "models/presets/mixtral-tiny.json", &err), RV_OK);
        assert_int_equal(layers_init(&layers, &gpt, 2, 32, DTYPE_FP32, &err), RV_ENOTBUILT);
        assert_non_null(strstr(err.sentence, "has experts"));
}

/* ---- a step ---- */

enum { B = 2, S = 24, N = B * S };

/* A trace that is made in memory: operators follow each other without gaps. */
struct maker {
        struct kineto trace;
        double now;
        int64_t sequence;
};

static void add_dims(struct kineto *trace, int axes, const int64_t *extent)
{
        trace->shapes =
                realloc(trace->shapes, (size_t)(trace->shape_count + axes + 2) * sizeof *trace->shapes);
        trace->shapes[trace->shape_count++] = axes;
        for (int i = 0; i < axes; i++)
                trace->shapes[trace->shape_count++] = extent[i];
}

static struct kineto_event *add(struct maker *m, enum kineto_kind kind, const char *name, double length)
{
        struct kineto *trace = &m->trace;
        trace->events = realloc(trace->events, (size_t)(trace->count + 1) * sizeof *trace->events);
        struct kineto_event *event = &trace->events[trace->count++];
        *event = (struct kineto_event){.kind = kind,
                                       .name = name,
                                       .start = m->now,
                                       .length = length,
                                       .thread = 1,
                                       .correlation = -1,
                                       .sequence = -1,
                                       .shapes = -1,
                                       .dtype = DTYPE_FP32};
        return event;
}

/* An operator of so many microseconds with one or two matrices as inputs. */
static void add_operator(struct maker *m, const char *name, double length, int64_t rows, int64_t inner,
                         int64_t columns)
{
        const int64_t left[] = {rows, inner}, right[] = {inner, columns};
        struct kineto_event *event = add(m, KINETO_OPERATOR, name, length);
        event->sequence = m->sequence++;
        event->shapes = m->trace.shape_count;
        add_dims(&m->trace, 0, NULL);
        const bool biased = strcmp(name, "aten::addmm") == 0;
        m->trace.shapes[event->shapes] = biased + (columns ? 2 : 1);
        if (biased)
                add_dims(&m->trace, 1, &columns);
        add_dims(&m->trace, 2, left);
        if (columns)
                add_dims(&m->trace, 2, right);
        m->trace.shaped++;
        m->now += length;
}

static void add_attention(struct maker *m, const char *name, double length)
{
        add_operator(m, name, length, N, 4, 0);
}

/* Autograd's function of the forward with this number, around operators that follow. */
static void begin_backward(struct maker *m, int64_t sequence, double length)
{
        add(m, KINETO_OPERATOR, "autograd::engine::evaluate_function: SomeBackward0", length)->sequence =
                sequence;
}

/* A micro-batch: forward, and backward from the end, in which each function takes twice as long as its
 * forward. Numbers of autograd are as they come. */
static void add_micro_batch(struct maker *m, const struct gpt *gpt)
{
        const int at = m->trace.count;
        const int64_t C = gpt->n_embd, V = gpt->vocab_size, from = m->sequence;
        add_operator(m, "aten::embedding", 5, N, C, 0);
        for (int i = 0; i < gpt->n_layer; i++) {
                add_operator(m, "aten::native_layer_norm", 7, N, C, 0);
                add_operator(m, "aten::addmm", 100, N, C, 3 * C);
                add_attention(m, "aten::_scaled_dot_product_flash_attention", 60);
                add_operator(m, "aten::addmm", 40, N, C, C);
                add_operator(m, "aten::add", 3, N, C, 0);
                add_operator(m, "aten::native_layer_norm", 7, N, C, 0);
                add_operator(m, "aten::addmm", 140, N, C, 4 * C);
                add_operator(m, "aten::gelu", 20, N, 4 * C, 0);
                add_operator(m, "aten::addmm", 130, N, 4 * C, C);
                add_operator(m, "aten::add", 3, N, C, 0);
        }
        add_operator(m, "aten::native_layer_norm", 7, N, C, 0);
        add_operator(m, "aten::mm", 80, N, C, V);
        add_operator(m, "aten::_log_softmax", 11, N, V, 0);
        const int64_t to = m->sequence;
        for (int64_t back = to - 1; back >= from; back--) {
                const struct kineto_event *forward = NULL;
                for (int i = at; i < m->trace.count && !forward; i++)
                        if (m->trace.events[i].sequence == back)
                                forward = &m->trace.events[i];
                const bool product = strstr(forward->name, "mm") != NULL;
                const double length = forward->length;
                const int first = kineto_input(&m->trace, forward, 0).axes == 1;
                const int64_t k = kineto_input(&m->trace, forward, first).extent[1],
                              n = product ? kineto_input(&m->trace, forward, first + 1).extent[1] : 0;
                begin_backward(m, back, 2 * length);
                const int64_t kept = m->sequence;
                if (product) {
                        add_operator(m, "aten::mm", length, N, n, k);
                        add_operator(m, "aten::mm", length, k, N, n);
                } else {
                        add_operator(m, "aten::mul", 2 * length, N, k, 0);
                }
                m->sequence = kept;
        }
}

static void add_step(struct maker *m, const struct gpt *gpt, int micro_batches)
{
        const int64_t C = gpt->n_embd;
        const int at = (int)(add(m, KINETO_ANNOTATION, "ProfilerStep#1", 0) - m->trace.events);
        m->now += 10;                            /* before the forward */
        add_operator(m, "aten::mm", 2, 8, 1, S); /* of no layer, and in no backward */
        for (int i = 0; i < micro_batches; i++)
                add_micro_batch(m, gpt);
        add_operator(m, "aten::_foreach_norm", 6, C, C, 0);
        add_operator(m, "aten::_foreach_mul_", 3, C, C, 0);
        add(m, KINETO_ANNOTATION, "Optimizer.step#AdamW.step", 50);
        m->now += 50 + 4; /* and behind it */
        m->trace.events[at].length = m->now - m->trace.events[at].start;
        m->now += 1000;
}

static double sum_of(const struct layers *layers, const struct share *shares, int kind, int part)
{
        double sum = 0;
        for (int i = 0; i < layers->count; i++)
                if (layers->kernels[i].kind == (enum kernel_kind)kind && layers->kernels[i].part == part)
                        sum += share_seconds(&shares[i]);
        return 1e6 * sum;
}

static void free_maker(struct maker *m)
{
        free(m->trace.events);
        free(m->trace.shapes);
}

static void prepare(struct maker *m, struct gpt *gpt, struct layers *layers, int steps, int micro_batches)
{
        struct rv_error_info err;
        *m = (struct maker){.sequence = 1000};
        assert_int_equal(gpt_load(gpt, MODELS[0], &err), RV_OK);
        assert_int_equal(layers_init(layers, gpt, B, S, DTYPE_FP32, &err), RV_OK);
        for (int i = 0; i < steps; i++)
                add_step(m, gpt, micro_batches);
}

/* Of so many micro-batches, whose gradients are added up. */
static void check_shares(int micro_batches)
{
        struct maker m;
        struct gpt gpt;
        struct layers layers;
        struct traced_steps steps;
        struct rv_error_info err = {0};
        prepare(&m, &gpt, &layers, 1, micro_batches);
        steps_find(&steps, &m.trace, "t.json", &(struct rv_error_info){0});
        struct shared_step shared = {.kernels = malloc((size_t)layers.count * sizeof *shared.kernels)};
        if (share_step(&shared, &layers, &steps, &steps.steps[0], "trace", &err) != RV_OK)
                fail_msg("%s", err.sentence);
        double all = 0, products = 0, quadratic = 0;
        for (int i = 0; i < layers.count; i++) {
                all += 1e6 * share_seconds(&shared.kernels[i]);
                products += 1e6 * shared.kernels[i].product;
                quadratic += 1e6 * shared.kernels[i].quadratic;
        }
        assert_int_equal(shared.micro_batches, micro_batches);
        const int L = gpt.n_layer * micro_batches;
        /* nothing is lost, and nothing is counted twice */
        assert_close(all + 1e6 * (shared.optimizer + shared.norm + shared.other), 1e6 * shared.seconds, 1e-9);
        assert_close(1e6 * shared.optimizer, 50, 1e-9);
        assert_close(1e6 * shared.norm, 9, 1e-9);
        assert_close(1e6 * shared.other, 10 + 4, 1e-9);
        assert_close(products, 3.0 * (L * (100 + 40 + 140 + 130) + 80 * micro_batches), 1e-9);
        assert_close(quadratic, 60.0 * L, 1e-9); /* the backward's operator is none of attention here */
        /* each with what its product is followed by */
        assert_close(sum_of(&layers, shared.kernels, KERNEL_MATMUL_BIAS, 0), 100.0 * L, 1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_MATMUL_BIAS_GELU, 0), 160.0 * L, 1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM, 0), 50.0 * L,
                     1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_ATTENTION, 0), 60.0 * L, 1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_ATTENTION_BACKWARD, PART_INPUT), 120.0 * L, 1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_CROSS_ENTROPY, 0), 33.0 * micro_batches, 1e-9);
        assert_close(sum_of(&layers, shared.kernels, KERNEL_MATMUL_GELU_BACKWARD, PART_INPUT),
                     (130.0 + 40) * L, 1e-9);
        free(shared.kernels);
        steps_free(&steps);
        layers_free(&layers);
        free_maker(&m);
}

static void a_steps_time_goes_to_the_kernels_that_do_its_work(void **state)
{
        (void)state;
        check_shares(1);
        check_shares(3);
}

static void a_trace_of_another_model_is_refused_by_its_first_other_product(void **state)
{
        (void)state;
        struct maker m;
        struct gpt gpt;
        struct layers layers;
        struct traced_steps steps;
        struct rv_error_info err = {0};
        prepare(&m, &gpt, &layers, 1, 1);
        layers_free(&layers);
        steps_find(&steps, &m.trace, "t.json", &(struct rv_error_info){0});
        assert_int_equal(layers_init(&layers, &gpt, B, S + 1, DTYPE_FP32, &err), RV_OK);
        struct shared_step shared = {.kernels = malloc((size_t)layers.count * sizeof *shared.kernels)};
        assert_int_equal(share_step(&shared, &layers, &steps, &steps.steps[0], "trace", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence,
                               "linear product 1 is (48 x 32) by (32 x 96), where the model has (50 x 32)"));
        free(shared.kernels);
        steps_free(&steps);
        layers_free(&layers);
        free_maker(&m);
}

static void a_backward_that_is_one_function_is_refused(void **state)
{
        (void)state;
        struct maker m;
        struct gpt gpt;
        struct layers layers;
        struct traced_steps steps;
        struct rv_error_info err = {0};
        int64_t last = -1;
        prepare(&m, &gpt, &layers, 1, 1);
        for (int i = 0; i < m.trace.count; i++) {
                struct kineto_event *event = &m.trace.events[i];
                if (strcmp(event->name, "aten::_log_softmax") == 0)
                        last = event->sequence;
                if (strstr(event->name, "evaluate_function"))
                        event->sequence = last;
        }
        steps_find(&steps, &m.trace, "t.json", &(struct rv_error_info){0});
        struct shared_step shared = {.kernels = malloc((size_t)layers.count * sizeof *shared.kernels)};
        assert_int_equal(share_step(&shared, &layers, &steps, &steps.steps[0], "trace", &err), RV_ENOTBUILT);
        assert_non_null(strstr(err.sentence, "torch.compile"));
        free(shared.kernels);
        steps_free(&steps);
        layers_free(&layers);
        free_maker(&m);
}

/* A forward that is run again stands within a function of the backward. */
static void a_backward_that_runs_the_forward_again_is_refused(void **state)
{
        (void)state;
        struct maker m;
        struct gpt gpt;
        struct layers layers;
        struct traced_steps steps;
        struct rv_error_info err = {0};
        prepare(&m, &gpt, &layers, 1, 1);
        int64_t first = -1; /* number of the first product with a bias */
        for (int i = 0; i < m.trace.count; i++) {
                struct kineto_event *event = &m.trace.events[i];
                if (first < 0 && strcmp(event->name, "aten::addmm") == 0)
                        first = event->sequence;
                if (strcmp(event->name, "aten::mul") == 0 &&
                    kineto_input(&m.trace, event, 0).extent[1] == 4 * gpt.n_embd) {
                        event->name = "aten::addmm"; /* the GELU's, with the shapes of its product */
                        for (int j = 0; j < i; j++)
                                if (strcmp(m.trace.events[j].name, "aten::addmm") == 0)
                                        event->shapes = m.trace.events[j].shapes;
                }
                if (strstr(event->name, "evaluate_function") && i + 1 < m.trace.count &&
                    strcmp(m.trace.events[i + 1].name, "aten::mul") == 0)
                        event->sequence = first;
        }
        steps_find(&steps, &m.trace, "t.json", &(struct rv_error_info){0});
        struct shared_step shared = {.kernels = malloc((size_t)layers.count * sizeof *shared.kernels)};
        assert_int_equal(share_step(&shared, &layers, &steps, &steps.steps[0], "trace", &err), RV_ENOTBUILT);
        assert_non_null(strstr(err.sentence, "recompute activations"));
        free(shared.kernels);
        steps_free(&steps);
        layers_free(&layers);
        free_maker(&m);
}

static void points_are_what_the_steps_took_and_models_carry_over(void **state)
{
        (void)state;
        struct maker m;
        struct gpt gpt;
        struct layers layers, longer;
        struct traced_steps steps;
        struct rv_error_info err = {0};
        struct learned learned = {0};
        struct fit_quality products;
        prepare(&m, &gpt, &layers, 3, 1);
        steps_find(&steps, &m.trace, "t.json", &(struct rv_error_info){0});
        learned.layers = &layers;
        for (int i = 0; i < steps.count; i++) {
                struct shared_step shared = {.kernels =
                                                     malloc((size_t)layers.count * sizeof *shared.kernels)};
                assert_int_equal(share_step(&shared, &layers, &steps, &steps.steps[i], "trace", &err), RV_OK);
                learn_add(&learned, &shared);
        }
        struct profile profile = {.measured = true, .load_count = 1};
        struct learned_launches launches;
        assert_int_equal(learn_launches(&learned, 0, &launches, &err), RV_OK);
        assert_true(launches.host == 0); /* a CPU's */
        struct profile_load load = learn_load(&learned, 0, &launches, &products);
        double sum = 0, seconds;
        for (int i = 0; i < layers.count; i++) {
                assert_int_equal(profile_kernel_seconds(&profile, &load, &layers.kernels[i], false, &seconds,
                                                        NULL, &err),
                                 RV_OK);
                sum += seconds;
        }
        assert_close(sum + learned.steps[0].optimizer + learned.steps[0].norm + learned.steps[0].other,
                     learned.steps[0].seconds, 1e-5); /* what took no time counts as a nanosecond */
        assert_int_equal(layers_init(&longer, &gpt, B, 2 * S, DTYPE_FP32, &err), RV_OK);
        for (int i = 0; i < longer.count; i++)
                if (longer.kernels[i].kind == KERNEL_ATTENTION) {
                        assert_int_equal(profile_kernel_seconds(&profile, &load, &longer.kernels[i], false,
                                                                &seconds, NULL, &err),
                                         RV_OK);
                        assert_close(seconds,
                                     60e-6 * kernel_flops(&longer.kernels[i]) /
                                             kernel_flops(&layers.kernels[i]),
                                     1e-6);
                }
        profile_load_free(&load);
        learn_free(&learned);
        steps_free(&steps);
        layers_free(&longer);
        layers_free(&layers);
        free_maker(&m);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_file_is_read_plain_and_compressed),
                cmocka_unit_test(a_list_of_events_alone_is_read_too),
                cmocka_unit_test(what_is_no_trace_is_said_in_a_sentence),
                cmocka_unit_test(a_compressed_file_that_is_cut_short_is_refused),
                cmocka_unit_test(a_gpus_kernels_count_for_the_operators_that_launched_them),
                cmocka_unit_test(steps_within_each_other_are_refused),
                cmocka_unit_test(operators_are_told_by_their_names),
                cmocka_unit_test(every_kernel_of_a_model_has_one_place),
                cmocka_unit_test(a_mixture_of_experts_is_refused_by_name),
                cmocka_unit_test(a_steps_time_goes_to_the_kernels_that_do_its_work),
                cmocka_unit_test(a_trace_of_another_model_is_refused_by_its_first_other_product),
                cmocka_unit_test(a_backward_that_is_one_function_is_refused),
                cmocka_unit_test(a_backward_that_runs_the_forward_again_is_refused),
                cmocka_unit_test(points_are_what_the_steps_took_and_models_carry_over),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
