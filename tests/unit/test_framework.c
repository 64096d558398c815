/* Frameworks as data: every file that comes with the program, and what terms do to flags, prices and memory.
 */
#include "models/workload.h"
#include "runtime/engine/price.h"
#include "runtime/plan/framework.h"
#include "tests/unit/noise.h"
#include "tests/unit/numbers.h"
#include "tests/unit/scratch.h"

#include <stdlib.h>
#include <string.h>

static const double START = 3e-6;

static struct scratch scratch;

static int set_up(void **state)
{
        (void)state;
        scratch_open(&scratch);
        return 0;
}

static int tear_down(void **state)
{
        (void)state;
        scratch_close(&scratch);
        return 0;
}

static void take(struct framework *f, struct options *o, const char *like, const char *without)
{
        struct rv_error_info err;
        o->like = like;
        o->without = without;
        if (framework_take(f, o, &err))
                fail_msg("%s", err.sentence);
}

static void resolve(struct options *o)
{
        struct rv_error_info err;
        if (options_resolve(o, (int)options_ranks(o), &err))
                fail_msg("%s", err.sentence);
}

/* A GPT-2 in fp16 on `pp` stages. */
static void open_plan(struct options *o, int pp)
{
        options_init(o);
        o->model = "gpt2-124m";
        o->micro_batch_size = 2;
        o->batch_size = 16;
        o->pp = pp;
        o->dtype = DTYPE_FP16;
}

static void parse(struct options *o, const char *flag, const char *text)
{
        struct rv_error_info err;
        if (flag_parse(flag_named(flag), o, text, &err))
                fail_msg("%s", err.sentence);
}

/* A framework in a file of its own: its members but for the title. */
static const char *write_members(const char *members)
{
        static char text[2048];
        snprintf(text, sizeof text, "{\"title\": \"a test\", %s}", members);
        return scratch_write(&scratch, "own.json", text, strlen(text));
}

static const char *write_framework(const char *terms)
{
        char members[1792];
        snprintf(members, sizeof members, "\"terms\": [%s]", terms);
        return write_members(members);
}

static void every_framework_is_read_and_each_term_can_be_left_out(void **state)
{
        (void)state;
        char names[512], *rest = framework_list(names, sizeof names), *save;
        int count = 0;
        for (char *name = strtok_r(rest, " ", &save); name; name = strtok_r(NULL, " ", &save), count++) {
                struct framework all, without;
                struct rv_error_info err;
                if (framework_load(&all, name, NULL, &err))
                        fail_msg("%s", err.sentence);
                for (int i = 0; i < all.term_count; i++) {
                        if (framework_load(&without, name, all.terms[i].name, &err))
                                fail_msg("%s", err.sentence);
                        for (int j = 0; j < all.term_count; j++)
                                assert_int_equal(without.terms[j].left_out, i == j);
                        framework_free(&without);
                }
                framework_free(&all);
        }
        assert_true(count >= 12);
}

static void flags_that_are_given_win_over_the_frameworks(void **state)
{
        (void)state;
        struct framework f;
        struct options o;
        open_plan(&o, 4);
        parse(&o, "order", "stages");
        take(&f, &o, "megatron-2021", NULL);
        assert_int_equal(o.policy, POLICY_1F1B);
        assert_true(o.blocking);
        assert_int_equal(o.order, ORDER_STAGES);
        char text[FRAMEWORK_TEXT];
        framework_write_flags(&o, true, text, sizeof text);
        assert_string_equal(text, "--order replicas");
        resolve(&o);
        framework_free(&f);
}

/* --p2p blocking is for schedules of fixed order, --sequence-parallel for shards. */
static void flags_that_do_not_go_with_the_plan_are_left_out(void **state)
{
        (void)state;
        struct framework f;
        struct options o;
        open_plan(&o, 4);
        parse(&o, "schedule", "axonn");
        take(&f, &o, "nanotron", NULL);
        assert_false(o.blocking);
        assert_false(o.sequence_parallel);
        framework_free(&f);
        open_plan(&o, 4);
        o.tp = 2;
        take(&f, &o, "nanotron", NULL);
        assert_true(o.blocking);
        assert_true(o.sequence_parallel);
        framework_free(&f);
}

/* Messages of the interleaved schedule do not hold up computation. */
static void a_flag_may_depend_on_another(void **state)
{
        (void)state;
        struct framework f;
        struct options o;
        open_plan(&o, 4);
        take(&f, &o, "megatron", NULL);
        assert_true(o.blocking);
        framework_free(&f);
        open_plan(&o, 4);
        parse(&o, "schedule", "interleaved");
        parse(&o, "virtual-stages", "3");
        take(&f, &o, "megatron", NULL);
        assert_false(o.blocking);
        framework_free(&f);
}

static void an_unknown_name_is_told_the_nearest(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        assert_int_equal(framework_load(&f, "megatrom", NULL, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "the nearest is megatron;"));
        assert_int_equal(framework_load(&f, "nemo", "dropuot", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "has no term 'dropuot'"));
        if (framework_load(&f, "megatron-core", NULL, &err)) /* another name of it */
                fail_msg("%s", err.sentence);
        assert_string_equal(f.name, "megatron");
        framework_free(&f);
        struct options o;
        open_plan(&o, 1);
        o.without = "dropout";
        assert_int_equal(framework_take(&f, &o, &err), RV_EINPUT);
}

static void a_file_that_is_wrong_says_where(void **state)
{
        (void)state;
#define TERM(more) "{\"name\": \"one\", \"says\": \"It is.\", " more "}"
        static const struct {
                const char *terms, *sentence;
        } wrong[] = {
                {"{\"name\": \"one\", \"source\": \"a book\"}", "does not say in a sentence"},
                {"{\"name\": \"one\", \"says\": \"It is.\"}", "has neither a 'source' nor"},
                {TERM("\"source\": \"a book\"") ", " TERM("\"source\": \"a book\""), "is there twice"},
                {TERM("\"source\": \"a book\", \"kernals\": []"), "the nearest is kernels"},
                {TERM("\"source\": \"a book\", \"kernels\": [{\"of\": [\"softmx\"]}]"),
                 "the nearest is softmax"},
                {TERM("\"source\": \"a book\", \"kernels\": [{\"of\": [\"softmax\"], \"bytes\": -1}]"),
                 "that is not a number from 0 up"},
                {TERM("\"source\": \"a book\", \"flags\": {\"pp\": \"2\"}"), "is none of many plans"},
                {TERM("\"source\": \"a book\", \"flags\": {\"zero\": \"7\"}"), "--zero"},
                {TERM("\"source\": \"a book\", \"flags\": [\"zero\"]"), "no object of flags"},
                {TERM("\"source\": \"a book\", \"eager\": 1"), "neither true nor false"},
                {"7", "a term without a 'name'"},
                {TERM("\"source\": \"a book\", \"sustained_rate\": 0.9"), "of which 'gpu'"},
        };
#undef TERM
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct framework f;
                struct rv_error_info err;
                const char *path = write_framework(wrong[i].terms);
                assert_int_equal(framework_load(&f, path, NULL, &err), RV_EINPUT);
                if (!strstr(err.sentence, wrong[i].sentence) || !strstr(err.sentence, ".json:1: "))
                        fail_msg("%s: '%s' was expected", err.sentence, wrong[i].sentence);
        }
}

static int find_term(const struct framework *f, const char *name)
{
        int i = 0;
        while (i < f->term_count && strcmp(f->terms[i].name, name) != 0)
                i++;
        return i < f->term_count ? i : -1;
}

/* The last of several says most, and what the framework says itself says more. */
static void a_framework_may_be_like_several(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        const char *own =
                "\"like\": [\"nemo\", \"flash-attention-2\"], \"without\": [\"gradients\"], \"terms\": "
                "[{\"name\": \"attention-h100\", \"attention_flops_per_second\": 1e12}]";
        if (framework_load(&f, write_members(own), NULL, &err))
                fail_msg("%s", err.sentence);
        const struct kernel forward = {.kind = KERNEL_ATTENTION, .batch = 1, .m = 8, .n = 8, .k = 64};
        struct kernel backward = forward;
        backward.kind = KERNEL_ATTENTION_BACKWARD;
        assert_true(find_term(&f, "tp-overlap") >= 0 && find_term(&f, "gradients") < 0);
        assert_close(framework_least_seconds(&f, "H100", &forward), kernel_flops(&forward) / 1e12, 1e-9);
        assert_close(framework_least_seconds(&f, "H100", &backward), kernel_flops(&backward) / 291e12, 1e-9);
        framework_free(&f);
        static const struct {
                const char *members, *sentence;
        } wrong[] = {
                {"\"like\": [], \"terms\": []", "or a list of such names"},
                {"\"like\": [\"nemo\", 7], \"terms\": []", "or a list of such names"},
                {"\"like\": [\"nemo\", \"nomo\"], \"terms\": []", "the nearest is nemo;"},
                {"\"like\": \"nemo\", \"without\": [\"attention-h100\"], \"terms\": []",
                 "names a term that the other framework has not"},
        };
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                assert_int_equal(framework_load(&f, write_members(wrong[i].members), NULL, &err), RV_EINPUT);
                if (!strstr(err.sentence, wrong[i].sentence))
                        fail_msg("%s: '%s' was expected", err.sentence, wrong[i].sentence);
        }
}

/* ---- prices ---- */

/* Of every kind by itself; to move a byte takes a nanosecond, to launch what moves it a microsecond. */
static double seconds_of(const struct kernel *kernel)
{
        return kernel->kind == KERNEL_RESIDUAL ? 1e-6 + 1e-9 * kernel_bytes(kernel)
                                               : 1e-6 * (1 + kernel->kind);
}

static int price_kernel(void *context, struct price *price, struct rv_error_info *err)
{
        (void)context, (void)err;
        price->seconds = seconds_of(&price->kernel);
        return 0;
}

static void price(const struct options *o, double host_seconds, struct price_list *list)
{
        const struct price_basis basis = {.kernel = price_kernel,
                                          .start_seconds = START,
                                          .host_seconds = host_seconds,
                                          .pass_host_seconds = host_seconds};
        struct rv_error_info err;
        if (price_stages(list, o, &basis, &err))
                fail_msg("%s", err.sentence);
}

/* How many kernels of a kind a forward has, and the bytes for each of its elements. */
static int count_kind(const struct options *o, enum kernel_kind kind, double *elements)
{
        const struct work work = options_work(o);
        const struct stage stage = options_stage(o, 0);
        const int count = workload_forward(&o->gpt, &stage, &work, false, NULL);
        struct kernel *kernels = malloc((size_t)count * sizeof *kernels);
        int found = 0;
        workload_forward(&o->gpt, &stage, &work, false, kernels);
        *elements = 0;
        for (int i = 0; i < count; i++)
                if (kernels[i].kind == kind) {
                        *elements += (double)kernels[i].batch * (double)kernels[i].m * (double)kernels[i].n;
                        found++;
                }
        free(kernels);
        return found;
}

/* The seconds that a term adds to the forward. */
static double added(const char *terms, double host_seconds, struct options *o)
{
        struct price_list plain, like;
        struct framework f;
        open_plan(o, 1);
        o->fusion = FUSION_OFF;
        resolve(o);
        price(o, host_seconds, &plain);
        take(&f, o, write_framework(terms), NULL);
        price(o, host_seconds, &like);
        const double seconds = like.stages[0].forward.seconds - plain.stages[0].forward.seconds;
        price_free(&plain);
        price_free(&like);
        o->framework = NULL;
        framework_free(&f);
        return seconds;
}

#define SOURCED(more) "{\"name\": \"one\", \"says\": \"It is.\", \"source\": \"a book\", " more "}"

static void kernels_beside_ours_add_their_bytes_and_launches(void **state)
{
        (void)state;
        struct options o;
        double elements;
        const double seconds = added(SOURCED("\"kernels\": [{\"of\": [\"softmax\"], \"launches\": 2, "
                                             "\"elements\": 2, \"bytes\": 1}]"),
                                     0, &o);
        const int count = count_kind(&o, KERNEL_SOFTMAX, &elements);
        assert_true(count == o.gpt.n_layer);
        assert_close(seconds, count * 2e-6 + 1e-9 * elements * (2 * 2 + 1), 1e-4);
}

/* Bytes within a kernel cost no launch. */
static void bytes_of_a_kernel_itself_cost_no_launch(void **state)
{
        (void)state;
        struct options o;
        double elements;
        const double seconds =
                added(SOURCED("\"kernels\": [{\"of\": [\"bias_residual\"], \"launches\": 0, \"bytes\": 3}]"),
                      0, &o);
        assert_true(count_kind(&o, KERNEL_BIAS_RESIDUAL, &elements) == 2 * o.gpt.n_layer);
        assert_close(seconds, 1e-9 * elements * 3, 0.01);
}

static void kernels_instead_of_ours_take_its_place(void **state)
{
        (void)state;
        struct options o;
        double elements;
        const double seconds = added(SOURCED("\"kernels\": [{\"of\": [\"bias_gelu\"], \"instead\": true, "
                                             "\"launches\": 3, \"bytes\": 8}]"),
                                     0, &o);
        const int count = count_kind(&o, KERNEL_BIAS_GELU, &elements);
        const struct kernel gelu = {.kind = KERNEL_BIAS_GELU};
        assert_close(seconds, count * (3e-6 - seconds_of(&gelu)) + 1e-9 * elements * 8,
                     1e-3); /* what is moved is whole rows */
}

/* Where the host is the slower, a pass takes what all launches take: one more for each softmax. */
static void launches_of_a_framework_count_on_the_host(void **state)
{
        (void)state;
        struct options o;
        double elements;
        const double host = 1e-2,
                     seconds =
                             added(SOURCED("\"kernels\": [{\"of\": [\"softmax\"], \"bytes\": 1}]"), host, &o);
        assert_close(seconds, host * count_kind(&o, KERNEL_SOFTMAX, &elements), 1e-9);
}

/* Of products in a forward none adds to its output. */
static void a_rule_for_kernels_that_accumulate_leaves_the_others_alone(void **state)
{
        (void)state;
        struct options o;
        const double seconds =
                added(SOURCED("\"kernels\": [{\"of\": [\"matmul\"], \"accumulating\": true, \"bytes\": 6}]"),
                      0, &o);
        assert_true(seconds == 0);
        struct framework f;
        take(&f, &o,
             write_framework(
                     SOURCED("\"kernels\": [{\"of\": [\"matmul\"], \"accumulating\": true, \"bytes\": 6}]")),
             NULL);
        const struct kernel product = {.kind = KERNEL_MATMUL, .accumulate = 1, .batch = 1, .m = 3, .n = 5};
        assert_close(framework_cost(&f, &product).bytes, 6 * 15, 1e-12);
        framework_free(&f);
}

static void products_of_experts_are_launched_one_by_one(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        const struct kernel grouped = {.kind = KERNEL_GROUPED_MATMUL,
                                       .experts = 5,
                                       .batch = 1,
                                       .m = 3,
                                       .n = 5},
                            copy = {.kind = KERNEL_QUANTIZE, .batch = 1, .m = 3, .n = 5};
        const char *path = write_framework(
                "{\"name\": \"experts\", \"says\": \"It is.\", \"source\": \"a\", \"kernels\": [{\"of\": "
                "[\"grouped_matmul\", \"quantize\"], \"launches\": 0, \"launches_an_expert\": 2}]}");
        if (framework_load(&f, path, NULL, &err))
                fail_msg("%s", err.sentence);
        assert_int_equal(framework_cost(&f, &grouped).own_launches, 10);
        assert_int_equal(framework_cost(&f, &grouped).launches, 0);
        assert_int_equal(framework_cost(&f, &copy).own_launches, 1); /* of no experts' rows */
        assert_int_equal(framework_cost(NULL, &grouped).own_launches, 1);
        framework_free(&f);
}

static void figures_are_of_the_gpu_that_they_name(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        const char *path = write_framework(
                "{\"name\": \"launches\", \"says\": \"It is.\", \"source\": \"a\", "
                "\"host_seconds_a_kernel\": 0.5}, "
                "{\"name\": \"h100\", \"says\": \"It is.\", \"fitted_on\": \"a run\", \"gpu\": \"H100\", "
                "\"sustained_rate\": 0.8, \"host_seconds_a_step\": 0.25, \"host_seconds_a_kernel\": 0.125}");
        bool eager;
        if (framework_load(&f, path, NULL, &err))
                fail_msg("%s", err.sentence);
        assert_true(framework_sustained_rate(&f, "NVIDIA H100 80GB") == 0.8);
        assert_true(framework_host_step(&f, "NVIDIA H100 80GB") == 0.25);
        assert_true(framework_sustained_rate(&f, "A100") == 0 && framework_host_step(&f, "A100") == 0);
        assert_true(framework_host_seconds(&f, "NVIDIA H100 80GB", &eager) == 0.125);
        assert_true(framework_host_seconds(&f, "A100", &eager) == 0.5 && !eager);
        assert_true(framework_fitted_on(&f, "NVIDIA H100 80GB", "a run") &&
                    !framework_fitted_on(&f, "NVIDIA H100 80GB", "a run of another") &&
                    !framework_fitted_on(&f, "A100", "a run") && !framework_fitted_on(NULL, "H100", "a run"));
        framework_free(&f);
        if (framework_load(&f, path, "h100", &err))
                fail_msg("%s", err.sentence);
        assert_true(framework_sustained_rate(&f, "H100") == 0 && !framework_fitted_on(&f, "H100", "a run"));
        assert_true(framework_host_seconds(&f, "H100", &eager) == 0.5);
        framework_free(&f);
}

static void odd_products_take_what_they_take_without_tensor_cores(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        if (framework_load(&f, "axonn-2021", NULL, &err))
                fail_msg("%s", err.sentence);
        const struct kernel odd = {
                .kind = KERNEL_MATMUL, .batch = 96, .m = 512, .n = 512, .k = 188, .dtype = DTYPE_FP16};
        struct kernel even = odd;
        even.k = 192;
        assert_close(framework_least_seconds(&f, "V100-SXM2-16GB", &odd),
                     2.0 * 96 * 512 * 512 * 188 / 15.7e12, 1e-9);
        assert_true(framework_least_seconds(&f, "V100-SXM2-16GB", &even) == 0);
        assert_true(framework_least_seconds(&f, "A100", &odd) == 0);
        framework_free(&f);
}

/* FlashAttention-2 on H100s alone, and not other kernels. */
static void attention_is_no_faster_than_the_frameworks(void **state)
{
        (void)state;
        struct framework f;
        struct rv_error_info err;
        if (framework_load(&f, "torchtitan", NULL, &err))
                fail_msg("%s", err.sentence);
        const struct kernel attention = {
                .kind = KERNEL_ATTENTION, .batch = 32, .m = 8192, .n = 8192, .k = 128, .dtype = DTYPE_BF16};
        struct kernel context = attention, product = attention;
        context.kind = KERNEL_CONTEXT_ATTENTION;
        product.kind = KERNEL_MATMUL;
        assert_close(framework_least_seconds(&f, "NVIDIA H100 80GB", &attention),
                     kernel_flops(&attention) / 335e12, 1e-9);
        assert_close(framework_least_seconds(&f, "NVIDIA H100 80GB", &context),
                     kernel_flops(&context) / 335e12, 1e-9);
        assert_true(framework_least_seconds(&f, "NVIDIA H100 80GB", &product) == 0);
        assert_true(framework_least_seconds(&f, "A100", &attention) == 0);
        assert_true(framework_least_seconds(NULL, "H100", &attention) == 0);
        framework_free(&f);
}

/* A replica owns whole tensors: of 1,024 no more broadcast than there are tensors. */
static void every_owner_of_tensors_broadcasts_them(void **state)
{
        (void)state;
        static const struct {
                int dp, sharers, zero;
        } plans[] = {{4, 0, 1}, {1024, 0, 1}, {1024, 8, 1}, {4, 0, 0}};
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
                struct framework f;
                struct options o;
                open_plan(&o, 1);
                o.dp = plans[i].dp;
                o.batch_size = 2 * o.dp;
                parse(&o, "zero", plans[i].zero ? "1" : "0");
                if (plans[i].sharers)
                        parse(&o, "shard-replicas", "8");
                parse(&o, "precision", "bf16");
                o.given = ~UINT64_C(0);
                take(&f, &o, "internevo", NULL);
                resolve(&o);
                const struct stage stage = options_stage(&o, 0);
                const int tensors = partition_tensors(&o.gpt, &stage, NULL);
                const int owners = plans[i].sharers ? plans[i].sharers : plans[i].dp;
                assert_int_equal(framework_broadcasts(&o), plans[i].zero == 0 ? 0
                                                           : owners < tensors ? owners
                                                                              : tensors);
                framework_free(&f);
                take(&f, &o, "internevo", "broadcasts");
                assert_int_equal(framework_broadcasts(&o), 0);
                framework_free(&f);
        }
}

/* ---- memory ---- */

/* Each micro-batch keeps a mask of a byte for each element of its sums; recomputed, one layer's at a time. */
static void masks_are_kept_by_every_micro_batch_under_way(void **state)
{
        (void)state;
        const char *terms = SOURCED("\"kernels\": [{\"of\": [\"bias_residual\"], \"launches\": 0, \"bytes\": "
                                    "1, \"kept_bytes\": 1}]");
        for (int again = 0; again <= 1; again++) {
                struct framework f;
                struct options o;
                open_plan(&o, 2);
                o.fusion = FUSION_OFF;
                o.recompute = again ? RECOMPUTE_FULL : RECOMPUTE_NONE;
                resolve(&o);
                take(&f, &o, write_framework(terms), NULL);
                const struct memory_plan memory = options_memory(&o, 0);
                const int64_t layer = 2 * (int64_t)o.micro_batch_size * o.seq_len * o.gpt.n_embd;
                /* a block that is recomputed stops before its last sum */
                assert_int_equal(memory.framework_bytes, again ? layer : memory.slots * 6 * layer);
                struct memory_bytes bytes;
                const struct stage stage = options_stage(&o, 0);
                memory_stage(&o.gpt, &stage, &memory, &bytes);
                assert_int_equal(bytes.in[MEMORY_DEVICE][MEMORY_FRAMEWORK], memory.framework_bytes);
                framework_free(&f);
        }
}

/* A Llama's block has gradients of weights of so many shapes: of queries, keys and values in one, of what
 * attention makes, of gate and up in one, and of the way down. */
static void a_tensor_is_cached_for_each_shape_of_weights(void **state)
{
        (void)state;
        struct framework f;
        struct options o;
        open_plan(&o, 1);
        o.model = "llama3-8b";
        o.micro_batch_size = 1;
        parse(&o, "precision", "bf16");
        take(&f, &o, "simumax", NULL);
        resolve(&o);
        const struct gpt *gpt = &o.gpt;
        const double C = gpt->n_embd, kv = (double)gpt_kv_heads(gpt) * gpt_head_size(gpt), F = gpt_inner(gpt);
        const struct stage stage = options_stage(&o, 0);
        const int64_t with = framework_memory(&o, &stage, 1);
        framework_free(&f);
        take(&f, &o, "simumax", "dummy-gradients");
        const int64_t head = framework_memory(&o, &stage, 1);
        assert_close((double)(with - head), 2 * (C * (C + 2 * kv) + C * C + 3 * C * F), 1e-9);
        assert_close((double)head, 2 * C * (double)gpt->vocab_size, 1e-9);
        framework_free(&f);
}

static void ranvier_is_like_itself(void **state)
{
        (void)state;
        struct framework f;
        struct options plain, like;
        struct price_list a, b;
        open_plan(&plain, 2);
        resolve(&plain);
        like = plain;
        take(&f, &like, "ranvier", NULL);
        assert_false(framework_prices(&f));
        price(&plain, 0, &a);
        price(&like, 0, &b);
        assert_int_equal(a.count, b.count);
        for (int i = 0; i < 2; i++) {
                assert_true(a.stages[i].forward.seconds == b.stages[i].forward.seconds);
                assert_true(a.stages[i].backward.seconds == b.stages[i].backward.seconds);
                const struct memory_plan x = options_memory(&plain, i), y = options_memory(&like, i);
                assert_memory_equal(&x, &y, sizeof x);
        }
        price_free(&a);
        price_free(&b);
        framework_free(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_framework_is_read_and_each_term_can_be_left_out),
                cmocka_unit_test(flags_that_are_given_win_over_the_frameworks),
                cmocka_unit_test(flags_that_do_not_go_with_the_plan_are_left_out),
                cmocka_unit_test(a_flag_may_depend_on_another),
                cmocka_unit_test(an_unknown_name_is_told_the_nearest),
                cmocka_unit_test(a_file_that_is_wrong_says_where),
                cmocka_unit_test(a_framework_may_be_like_several),
                cmocka_unit_test(kernels_beside_ours_add_their_bytes_and_launches),
                cmocka_unit_test(bytes_of_a_kernel_itself_cost_no_launch),
                cmocka_unit_test(kernels_instead_of_ours_take_its_place),
                cmocka_unit_test(launches_of_a_framework_count_on_the_host),
                cmocka_unit_test(a_rule_for_kernels_that_accumulate_leaves_the_others_alone),
                cmocka_unit_test(products_of_experts_are_launched_one_by_one),
                cmocka_unit_test(figures_are_of_the_gpu_that_they_name),
                cmocka_unit_test(odd_products_take_what_they_take_without_tensor_cores),
                cmocka_unit_test(attention_is_no_faster_than_the_frameworks),
                cmocka_unit_test(every_owner_of_tensors_broadcasts_them),
                cmocka_unit_test(masks_are_kept_by_every_micro_batch_under_way),
                cmocka_unit_test(a_tensor_is_cached_for_each_shape_of_weights),
                cmocka_unit_test(ranvier_is_like_itself),
        };
        return cmocka_run_group_tests(tests, set_up, tear_down);
}
