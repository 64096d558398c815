/* What operations are priced at: a pass is the parts between what shards do together. */
#include "models/ahead.h"
#include "runtime/engine/price.h"
#include "tests/unit/noise.h"
#include "tests/unit/numbers.h"

#include <string.h>

enum { SEED = 4711, PLANS = 300 };

/* Every kind of kernel takes a time of its own. */
struct bench {
        struct options options;
        double host_seconds; /* to launch a kernel */
        bool host_ahead;
};

static const double START = 3e-6;

static void open_bench(struct bench *bench)
{
        *bench = (struct bench){.host_seconds = 0};
        options_init(&bench->options);
}

/* A plan of up to four ranks in a pipeline, with up to four shards each. */
static void random_plan(struct bench *bench, uint64_t *random)
{
        struct options *o = &bench->options;
        struct rv_error_info err;
        options_init(o);
        o->model = "gpt2-124m"; /* 12 layers of 12 heads */
        o->fusion = FUSION_OFF;
        o->micro_batch_size = 1 + (int)random_below(random, 3);
        o->pp = 1 + (int)random_below(random, 4);
        o->dp = 1 + (int)random_below(random, 2);
        o->tp = 1 << random_below(random, 3);
        o->sequence_parallel = o->tp > 1 && random_below(random, 2);
        o->tp_overlap = o->tp > 1 ? (int)random_below(random, 5) : 0;
        o->policy = random_below(random, 2) ? POLICY_1F1B : POLICY_GPIPE;
        if (o->pp > 1 && random_below(random, 3) == 0) {
                o->policy = POLICY_INTERLEAVED;
                o->virtual_stages = 2 + (int)random_below(random, 12 / o->pp - 1);
        } else if (o->pp > 1 && random_below(random, 3) == 0) {
                o->policy = POLICY_ZERO_BUBBLE;
        }
        o->dtype = random_below(random, 2) ? DTYPE_FP16 : DTYPE_FP32;
        o->recompute = (enum recompute)random_below(random, 4);
        o->batch_size = o->micro_batch_size * o->dp * o->pp * (1 + (int)random_below(random, 3));
        if (options_resolve(o, (int)options_ranks(o), &err))
                fail_msg("%s", err.sentence);
}

/* With the first random plan that has shards. */
static void open_with_shards(struct bench *bench)
{
        uint64_t random = SEED;
        open_bench(bench);
        do
                random_plan(bench, &random);
        while (bench->options.tp == 1);
}

static double kernel_seconds(const struct kernel *kernel)
{
        return 1e-6 * (1 + kernel->kind);
}

static int price_kernel(void *context, struct price *price, struct rv_error_info *err)
{
        (void)context, (void)err;
        price->seconds = kernel_seconds(&price->kernel);
        return 0;
}

static void price(struct bench *bench, struct price_list *list)
{
        const struct price_basis basis = {.kernel = price_kernel,
                                          .start_seconds = START,
                                          .host_seconds = bench->host_seconds,
                                          .pass_host_seconds = bench->host_seconds,
                                          .host_ahead = bench->host_ahead};
        struct rv_error_info err;
        if (price_stages(list, &bench->options, &basis, &err))
                fail_msg("%s", err.sentence);
}

/* The list, walked through as runtime/nn launches it. */
static void assert_pass(const struct price_pass *pass, const struct kernel *kernels, int count)
{
        double seconds = START, all = 0;
        int part = 0;
        for (int i = 0; i < count; i++) {
                if (!kernel_collective(kernels[i].kind)) {
                        seconds += kernel_seconds(&kernels[i]);
                        continue;
                }
                assert_true(part + 1 < pass->parts && kernel_same(&pass->collectives[part], &kernels[i]));
                assert_close(pass->part_seconds[part], seconds, 1e-12);
                all += seconds;
                seconds = START;
                part++;
        }
        assert_int_equal(pass->parts, part + 1);
        assert_close(pass->part_seconds[part], seconds, 1e-12);
        assert_close(pass->seconds, all + seconds, 1e-12);
}

static void assert_chunk(const struct options *o, const struct stage *chunk, const struct stage_price *price)
{
        const struct work work = options_work(o);
        const bool parted = options_parts_backward(o);
        const int forward = workload_forward(&o->gpt, chunk, &work, false, NULL);
        const int max = workload_backward_max(&o->gpt, chunk, &work);
        struct kernel *kernels = malloc((size_t)(forward > max ? forward : max) * sizeof *kernels);
        assert_non_null(kernels);
        workload_forward(&o->gpt, chunk, &work, false, kernels);
        assert_pass(&price->forward, kernels, forward);
        int count = workload_backward_part(&o->gpt, chunk, &work, parted ? PART_INPUT : PART_BOTH, kernels);
        assert_pass(&price->backward, kernels, count);
        if (parted) {
                count = workload_backward_part(&o->gpt, chunk, &work, PART_WEIGHT, kernels);
                assert_pass(&price->weights, kernels, count);
        }
        free(kernels);
}

static void a_pass_is_priced_part_by_part_between_what_shards_do_together(void **state)
{
        (void)state;
        uint64_t random = SEED;
        struct bench bench;
        open_bench(&bench);
        for (int plan = 0; plan < PLANS; plan++) {
                struct price_list list;
                random_plan(&bench, &random);
                price(&bench, &list);
                for (int i = 0; i < bench.options.pp; i++) {
                        const struct stage stage = options_stage(&bench.options, i);
                        for (int j = 0; j < stage.chunks; j++) {
                                const struct stage chunk = partition_chunk(&stage, j);
                                assert_chunk(&bench.options, &chunk, &list.stages[chunk.index]);
                        }
                }
                price_free(&list);
        }
}

/* As a world asks: part after part, until no other follows. */
static void the_parts_of_an_operation_add_up_to_its_pass(void **state)
{
        (void)state;
        uint64_t random = SEED + 1;
        struct bench bench;
        open_bench(&bench);
        for (int plan = 0; plan < PLANS; plan++) {
                struct price_list list;
                random_plan(&bench, &random);
                price(&bench, &list);
                for (int i = 0; i < list.stage_count; i++)
                        for (int kind = 0; kind < 2; kind++) {
                                struct op op = {.kind = kind ? OP_BACKWARD : OP_FORWARD,
                                                .of = kind ? OP_BACKWARD : OP_FORWARD,
                                                .chunk = i / list.pp,
                                                .parts = OP_INPUT_GRADIENT | OP_WEIGHT_GRADIENT};
                                const int stage = i % list.pp;
                                double seconds = price_operation(&list, stage, &op);
                                for (; price_behind(&list, stage, &op).pass;
                                     seconds += price_operation(&list, stage, &op))
                                        op.segment++;
                                assert_int_equal(op.segment + 1, price_pass_of(&list, stage, &op)->parts);
                                assert_close(seconds, price_pass_of(&list, stage, &op)->seconds, 1e-12);
                        }
                price_free(&list);
        }
}

/* Where launches take longer than the kernels do, a pass takes as long as all its launches. */
static void parts_that_the_host_holds_up_take_what_it_takes_to_launch_them(void **state)
{
        (void)state;
        const double host = 1e-3;
        struct bench bench;
        struct price_list list;
        open_with_shards(&bench);
        bench.host_seconds = host;
        price(&bench, &list);
        const struct price_pass *pass = &list.stages[0].forward;
        double seconds = 0;
        assert_true(pass->parts > 1);
        for (int i = 0; i < pass->parts; i++) {
                const double kernels = (pass->part_seconds[i] - START) / host;
                assert_close(kernels, round(kernels), 1e-9);
                seconds += pass->part_seconds[i];
        }
        assert_close(pass->seconds, seconds, 1e-12);
        price_free(&list);
}

/* A host that goes on while shards do something together: that takes a launch, too, and a pass at least as
 * long as all of them. */
static void a_host_that_launches_on_holds_up_a_pass_as_a_whole(void **state)
{
        (void)state;
        const double host = 1e-3;
        struct bench bench;
        struct price_list waits, list;
        open_with_shards(&bench);
        bench.host_seconds = host;
        price(&bench, &waits);
        bench.host_ahead = true;
        price(&bench, &list);
        const struct price_pass *pass = &list.stages[0].forward, *other = &waits.stages[0].forward;
        const int collectives = pass->parts - 1;
        double last = 0;
        for (int i = 0; i < pass->parts; i++) {
                assert_true(pass->launched_seconds[i] >= last &&
                            pass->part_seconds[i] < other->part_seconds[i]);
                last = pass->launched_seconds[i];
        }
        assert_close(last, other->seconds - pass->parts * START + collectives * host, 1e-12);
        assert_close(price_pass_seconds(pass, 0), last, 1e-12);
        assert_close(price_pass_seconds(pass, last), pass->seconds + last, 1e-12);
        assert_close(price_pass_seconds(other, 1), other->seconds + 1, 1e-12);
        /* Collectives that take nothing do not make it longer, and a long one the host is ahead of. */
        struct price_progress short_ones = {0}, long_ones = {0};
        for (int i = 0; i < collectives; i++) {
                price_go_on(&short_ones, pass, i, 0, false);
                price_go_on(&long_ones, pass, i, 2 * last, false);
        }
        assert_close(price_pass_seconds(pass, short_ones.waited), last, 1e-12);
        assert_true(pass->seconds + long_ones.waited <=
                    pass->launched_seconds[0] + collectives * 2 * last + pass->seconds);
        price_free(&waits);
        price_free(&list);
}

/* Of an operation, with as many collectives between its parts. */
static double all_parts(const struct price_list *list, const struct op *of)
{
        struct op op = *of;
        double seconds = price_operation(list, 0, &op);
        for (; price_behind(list, 0, &op).pass; seconds += price_operation(list, 0, &op))
                op.segment++;
        return seconds;
}

/* Zero 3: embedding, blocks and head, backward the other way around; together they are the pass. */
static void with_zero_3_a_pass_is_in_units(void **state)
{
        (void)state;
        struct bench bench;
        struct price_list list, whole;
        uint64_t random = SEED;
        open_bench(&bench);
        for (int plan = 0; plan < PLANS / 10; plan++) {
                do
                        random_plan(&bench, &random);
                while (bench.options.pp > 1 || bench.options.dp == 1);
                price(&bench, &whole);
                bench.options.zero = 3;
                price(&bench, &list);
                const int units = bench.options.gpt.n_layer + 2;
                const struct stage_price *one = &list.stages[0], *other = &whole.stages[0];
                const double start = one->start;
                assert_int_equal(one->unit_count, units);
                for (int back = 0; back < 2; back++) {
                        const enum op_kind kind = back ? OP_BACKWARD : OP_FORWARD;
                        struct op op = {.kind = kind, .of = kind};
                        double seconds = 0, block = 0;
                        for (; op.range < units; op.range++) {
                                const double each = all_parts(&list, &op);
                                seconds += each;
                                if (op.range == 1)
                                        block = each;
                                if (op.range > 0 && op.range < units - 1) /* blocks are alike */
                                        assert_true(each == block);
                        }
                        assert_close(seconds,
                                     (back ? other->backward : other->forward).seconds + (units - 1) * start,
                                     1e-12);
                        if (bench.options.tp > 1)
                                continue;
                        op.range = back ? units - 1 : 0;
                        assert_close(
                                price_operation(&list, 0, &op),
                                start + kernel_seconds(&(struct kernel){
                                                .kind = back ? KERNEL_EMBEDDING_BACKWARD : KERNEL_EMBEDDING}),
                                1e-12);
                }
                price_free(&whole);
                price_free(&list);
        }
}

/* Of gradients that are reduced in fp32: a unit's are unscaled into fp32 and, from the second micro-batch on,
 * summed with a share; updates have nothing to unscale. */
static void gradients_that_are_reduced_in_fp32_are_widened(void **state)
{
        (void)state;
        struct bench bench;
        struct price_list list;
        uint64_t random = SEED;
        open_bench(&bench);
        do
                random_plan(&bench, &random);
        while (bench.options.pp > 1 || bench.options.tp > 1 || bench.options.dp == 1 ||
               !options_mixed(&bench.options));
        bench.options.zero = 3;
        bench.options.reduced = GRADIENTS_FP32;
        price(&bench, &list);
        const double widening = kernel_seconds(&(struct kernel){.kind = KERNEL_UNSCALE}),
                     adding = kernel_seconds(&(struct kernel){.kind = KERNEL_RESIDUAL}),
                     update = kernel_seconds(&(struct kernel){.kind = KERNEL_ADAMW});
        struct op unit = {.kind = OP_BACKWARD, .of = OP_BACKWARD, .begins = GRADIENTS_ADD, .range = 1};
        const double alone = price_operation(&list, 0, &unit);
        unit.widens = true;
        assert_close(price_operation(&list, 0, &unit), alone + widening, 1e-9);
        unit.loads = true;
        assert_close(price_operation(&list, 0, &unit), alone + widening + adding, 1e-9);
        for (int i = 0; i < list.stages[0].update_count; i++)
                assert_close(list.stages[0].updates[i].seconds, START + update, 1e-12);
        price_free(&list);
}

/* A batch quantizes the four matrices of each of twelve layers once, beside what updates all parameters, or
 * with ZeRO-1 a share of them. Gradients that are in fp32 from the first are not unscaled. */
static void weights_are_quantized_with_their_updates(void **state)
{
        (void)state;
        const double update = kernel_seconds(&(struct kernel){.kind = KERNEL_ADAMW}),
                     unscale = kernel_seconds(&(struct kernel){.kind = KERNEL_UNSCALE}),
                     quantize = kernel_seconds(&(struct kernel){.kind = KERNEL_QUANTIZE});
        for (int zero = 0; zero <= 3; zero++) {
                struct bench bench;
                struct price_list list;
                struct rv_error_info err;
                struct options *o = &bench.options;
                open_bench(&bench);
                o->model = "gpt2-124m";
                o->micro_batch_size = 1;
                o->batch_size = o->dp = 2;
                o->zero = zero;
                o->dtype = DTYPE_BF16;
                o->format = FORMAT_FP8;
                o->gradients = zero < 2 ? GRADIENTS_FP32 : GRADIENTS_16_BIT;
                o->reduced = GRADIENTS_16_BIT;
                if (options_resolve(o, 2, &err))
                        fail_msg("%s", err.sentence);
                o->bucket_parameters = gpt_parameters(&o->gpt);
                price(&bench, &list);
                const struct stage_price *stage = &list.stages[0];
                double seconds = 0;
                int64_t shares = 0;
                for (int i = 0; i < stage->update_count; i++) {
                        seconds += stage->updates[i].seconds - START - update -
                                   (options_wide_gradients(o) ? 0 : unscale);
                        shares += stage->updates[i].parameters;
                }
                if (zero < 2) /* all in one */
                        assert_int_equal(stage->update_count, 1);
                assert_true(zero >= 2 || shares == gpt_parameters(&o->gpt) / (zero + 1));
                if (zero == 3)
                        assert_true(fabs(seconds) < 1e-15);
                else if (zero == 2) /* whose updates are of units */
                        assert_true(seconds > 0);
                else
                        assert_close(seconds, 12 * 4 * quantize, 1e-9);
                price_free(&list);
        }
}

/* Collectives along z beside products of a pass of `layers`: in each a product that waits for gathered
 * weights, one that makes gradients of them, which are reduce-scattered, and what adds these up, which takes
 * no time. */
static double beside_products(int layers, double product, double gather, double scatter)
{
        enum { MOST = 64 };
        const struct work work = {.tp_z = 2, .grid_overlap = GRID_OVERLAP_OAG};
        const enum kernel_kind layer[] = {KERNEL_TENSOR_Z_ALL_GATHER, KERNEL_MATMUL, KERNEL_MATMUL,
                                          KERNEL_TENSOR_Z_REDUCE_SCATTER, KERNEL_RESIDUAL};
        enum { LAYER = sizeof layer / sizeof *layer };
        struct kernel list[2 * MOST], collectives[MOST] = {0};
        double parts[MOST] = {0};
        struct ahead ahead = {0};
        int count = 0, part = 0;
        for (; count < layers * LAYER; count++) {
                list[count] = (struct kernel){.kind = layer[count % LAYER]};
                ahead_count(&ahead, &list[count]);
        }
        ahead_order(list, count, &work);
        count += ahead_joins(&ahead, &work);
        for (int i = 0; i < count; i++)
                if (kernel_collective(list[i].kind))
                        collectives[part++] = list[i];
                else
                        parts[part] += list[i].kind == KERNEL_MATMUL ? product : 0;
        const struct price_pass pass = {.parts = part + 1, .part_seconds = parts, .collectives = collectives};
        struct price_progress progress = {0};
        for (int i = 0; i < part; i++)
                price_go_on(&progress, &pass, i,
                            collectives[i].kind == KERNEL_TENSOR_Z_ALL_GATHER ? gather : scatter, true);
        assert_close(progress.now + parts[part] - progress.waited, 2 * layers * product, 1e-12);
        return progress.now + parts[part];
}

/* Where products are longer, the first gather is waited for, and the last reduce-scatter; where they are
 * shorter, collectives follow each other without a pause, but for the products of a layer alone. */
static void products_hide_collectives_along_z(void **state)
{
        (void)state;
        for (int layers = 1; layers <= 8; layers++) {
                assert_close(beside_products(layers, 5, 3, 2), 3 + 10 * layers + 2, 1e-12);
                assert_close(beside_products(layers, 2.5, 3, 2), 3 + 5 * layers + 2, 1e-12);
                assert_close(beside_products(layers, 0.5, 3, 2), 5 * layers + (layers == 1), 1e-12);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(products_hide_collectives_along_z),
                cmocka_unit_test(a_pass_is_priced_part_by_part_between_what_shards_do_together),
                cmocka_unit_test(the_parts_of_an_operation_add_up_to_its_pass),
                cmocka_unit_test(parts_that_the_host_holds_up_take_what_it_takes_to_launch_them),
                cmocka_unit_test(a_host_that_launches_on_holds_up_a_pass_as_a_whole),
                cmocka_unit_test(with_zero_3_a_pass_is_in_units),
                cmocka_unit_test(gradients_that_are_reduced_in_fp32_are_widened),
                cmocka_unit_test(weights_are_quantized_with_their_updates),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
