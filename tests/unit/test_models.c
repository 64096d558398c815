/* Models: parameters, stages, kernels and bytes against closed forms; and what is said about wrong files. */
#include "models/file.h"
#include "models/memory.h"
#include "models/workload.h"
#include "tests/unit/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/stat.h>

#include <cmocka.h>

/* Fails with the numbers if two sums of doubles that should be the same differ by more than their rounding.
 */
static void assert_close(double found, double expected, double relative)
{
        if (!(fabs(found - expected) <= relative * fabs(expected)))
                fail_msg("%.17g was expected, found %.17g", expected, found);
}

static struct gpt preset(const char *name)
{
        struct gpt gpt;
        struct rv_error_info err = {0};
        if (gpt_load(&gpt, name, &err) != RV_OK)
                fail_msg("%s", err.sentence);
        return gpt;
}

static void published_models_have_their_published_parameters(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                int64_t parameters;
        } published[] = {/* GPT-2: as Hugging Face and nanoGPT count them */
                         {"gpt2-124m", 124439808},
                         {"gpt2-350m", 354823168},
                         {"gpt2-774m", 774030080},
                         {"gpt2-1.5b", 1557611200}};
        for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
                struct gpt gpt = preset(published[i].name);
                assert_int_equal(gpt_parameters(&gpt), published[i].parameters);
        }
}

static void axonn_models_have_the_size_in_their_name(void **state)
{
        (void)state;
        static const struct {
                const char *name;
                double billions;
        } named[] = {{"gpt-12b", 12}, {"gpt-24b", 24}, {"gpt-50b", 50}, {"gpt-100b", 100}};
        for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
                struct gpt gpt = preset(named[i].name);
                assert_close((double)gpt_parameters(&gpt) / 1e9, named[i].billions, 0.03);
                assert_int_equal(gpt.vocab_size, 51200);
                assert_int_equal(gpt.n_positions, 512);
        }
}

static void an_untied_head_is_one_more_matrix(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        int64_t tied = gpt_parameters(&gpt);
        gpt.tied = false;
        assert_int_equal(gpt_parameters(&gpt), tied + (int64_t)gpt.vocab_size * gpt.n_embd);
}

static void stages_cover_every_layer_once_and_differ_by_at_most_one(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (gpt.n_layer = 1; gpt.n_layer <= 20; gpt.n_layer++)
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int next = 0, before = gpt.n_layer;
                        for (int i = 0; i < stages; i++) {
                                struct stage stage = partition_stage(&gpt, stages, i);
                                assert_int_equal(stage.first_layer, next);
                                assert_true(stage.layers == gpt.n_layer / stages ||
                                            stage.layers == gpt.n_layer / stages + 1);
                                assert_true(stage.layers <= before);
                                assert_int_equal(stage.first, i == 0);
                                assert_int_equal(stage.last, i == stages - 1);
                                next += stage.layers;
                                before = stage.layers;
                        }
                        assert_int_equal(next, gpt.n_layer);
                }
}

/* Every tensor of the stages of a pipeline is one of the whole model: the same name, id and shape. */
static void check_slices(const struct gpt *gpt, int stages)
{
        struct stage whole = partition_stage(gpt, 1, 0);
        int count = partition_tensors(gpt, &whole, NULL), seen[512] = {0};
        struct tensor all[512], mine[512];
        assert_in_range(count, 1, 511);
        partition_tensors(gpt, &whole, all);
        for (int s = 0; s < stages; s++) {
                struct stage stage = partition_stage(gpt, stages, s);
                int64_t offset = 0;
                int tensors = partition_tensors(gpt, &stage, mine);
                for (int i = 0; i < tensors; i++) {
                        int at = 0;
                        while (at < count && strcmp(all[at].name, mine[i].name) != 0)
                                at++;
                        assert_in_range(at, 0, count - 1);
                        assert_int_equal(mine[i].id, all[at].id);
                        assert_int_equal(mine[i].rows, all[at].rows);
                        assert_int_equal(mine[i].cols, all[at].cols);
                        assert_int_equal(mine[i].decay, all[at].decay);
                        assert_int_equal(mine[i].offset, offset);
                        offset += mine[i].elements;
                        seen[at]++;
                }
                assert_int_equal(offset, partition_parameters(gpt, &stage));
        }
        for (int at = 0; at < count; at++) /* the tied embedding lies on both ends */
                assert_int_equal(seen[at], at == 0 && gpt->tied && stages > 1 ? 2 : 1);
}

static void stage_slices_sum_to_the_whole_model(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        for (int tied = 0; tied < 2; tied++)
                for (int stages = 1; stages <= gpt.n_layer; stages++) {
                        int64_t sum = 0;
                        gpt.tied = tied;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                sum += partition_parameters(&gpt, &stage);
                        }
                        int64_t copy = tied && stages > 1 ? (int64_t)gpt.vocab_size * gpt.n_embd : 0;
                        assert_int_equal(sum, gpt_parameters(&gpt) + copy);
                        check_slices(&gpt, stages);
                }
}

static void tensors_have_identities_of_their_own_and_are_found_by_role(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct tensor tensors[512];
        for (int tied = 0; tied < 2; tied++)
                for (int stages = 1; stages <= gpt.n_layer; stages += 2) {
                        gpt.tied = tied;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                int count = partition_tensors(&gpt, &stage, tensors);
                                for (int i = 0; i < count; i++)
                                        for (int j = 0; j < i; j++)
                                                assert_int_not_equal(tensors[i].id, tensors[j].id);
                                char name[64];
                                snprintf(name, sizeof name, "transformer.h.%d.mlp.c_proj.weight",
                                         stage.first_layer + stage.layers - 1);
                                int at = partition_block_tensor(&stage, stage.layers - 1, BLOCK_FCPROJ_W);
                                assert_string_equal(tensors[at].name, name);
                                assert_int_equal(tensors[at].rows, gpt.n_embd);
                                assert_int_equal(tensors[at].cols, 4 * gpt.n_embd);
                                assert_int_equal(tensors[at].init, INIT_NORMAL_RESIDUAL);
                                assert_int_equal(partition_block_tensor(&stage, stage.layers, BLOCK_LN1_W),
                                                 -1);
                                assert_int_equal(partition_wte(&stage), stage.first ? 0 : -1);
                                assert_int_equal(partition_wpe(&stage), stage.first ? 1 : -1);
                                if (!stage.last) {
                                        assert_int_equal(partition_lnf_weight(&stage), -1);
                                        assert_int_equal(partition_head(&gpt, &stage), -1);
                                        continue;
                                }
                                assert_string_equal(tensors[partition_lnf_weight(&stage)].name,
                                                    "transformer.ln_f.weight");
                                assert_string_equal(tensors[partition_lnf_weight(&stage) + 1].name,
                                                    "transformer.ln_f.bias");
                                assert_string_equal(tensors[partition_head(&gpt, &stage)].name,
                                                    tied ? "transformer.wte.weight" : "lm_head.weight");
                        }
                }
}

static void only_matrices_decay(void **state)
{
        (void)state;
        struct gpt gpt = preset("tiny");
        struct stage whole = partition_stage(&gpt, 1, 0);
        struct tensor tensors[512];
        int count = partition_tensors(&gpt, &whole, tensors);
        for (int i = 0; i < count; i++) {
                assert_int_equal(tensors[i].decay, tensors[i].rows > 1);
                assert_int_equal(strstr(tensors[i].name, "bias") != NULL, tensors[i].init == INIT_ZERO);
        }
}

/* Flops of the matrix products in a list, and whether each kernel says which part it belongs to. */
static double matmul_flops(const struct kernel *kernels, int count, bool backward)
{
        double sum = 0;
        for (int i = 0; i < count; i++) {
                assert_int_equal(kernels[i].part != 0, backward);
                assert_true(kernel_flops(&kernels[i]) > 0 && kernel_bytes(&kernels[i], 4) > 0);
                if (kernels[i].part & PART_WEIGHT && kernels[i].kind != KERNEL_LAYERNORM_BACKWARD)
                        assert_int_equal(kernels[i].accumulate, 1);
                if (kernels[i].kind == KERNEL_MATMUL)
                        sum += kernel_flops(&kernels[i]);
        }
        return sum;
}

/* Matrix products: 2 flops a weight and token; attention's two, 2 x 2 B H T^2 hs = 4 N T C a block
 * (uncausal). */
static double forward_closed_form(const struct gpt *gpt, double N, double T)
{
        double C = gpt->n_embd, weights = gpt->n_layer * 12 * C * C + gpt->vocab_size * C;
        return 2 * weights * N + gpt->n_layer * 4 * N * T * C;
}

static void matmul_flops_are_the_closed_form_and_backward_is_twice_forward(void **state)
{
        (void)state;
        static const char *const models[] = {"tiny", "demo", "gpt2-124m", "gpt-100b"};
        struct kernel *kernels = malloc(10000 * sizeof *kernels);
        for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
                struct gpt gpt = preset(models[i]);
                for (int stages = 1; stages <= 4; stages += 3) {
                        double forward = 0, backward = 0;
                        int B = 3, T = gpt.n_positions / 2;
                        for (int s = 0; s < stages; s++) {
                                struct stage stage = partition_stage(&gpt, stages, s);
                                int count = workload_forward(&gpt, &stage, B, T, false, kernels);
                                assert_int_equal(count, workload_forward(&gpt, &stage, B, T, true, NULL));
                                assert_int_equal(count, 13 * stage.layers + stage.first + 3 * stage.last);
                                forward += matmul_flops(kernels, count, false);
                                count = workload_backward(&gpt, &stage, B, T, kernels);
                                assert_int_equal(count, workload_backward(&gpt, &stage, B, T, NULL));
                                assert_int_equal(count, 20 * stage.layers + stage.first + 3 * stage.last);
                                backward += matmul_flops(kernels, count, true);
                        }
                        double expected = forward_closed_form(&gpt, (double)B * T, T);
                        assert_close(forward, expected, 1e-12);
                        assert_close(backward, 2 * expected, 1e-12);
                }
        }
        free(kernels);
}

/* Narayanan et al. count exactly the matrix products; with recomputation one forward more of the blocks. */
static void batch_flops_are_those_of_the_workload(void **state)
{
        (void)state;
        struct gpt gpt = preset("gpt-12b");
        double N = 4 * 512.0, forward = forward_closed_form(&gpt, N, 512);
        double blocks = forward - 2.0 * N * gpt.vocab_size * gpt.n_embd;
        assert_close(gpt_batch_flops(&gpt, 4, 512, false), 3 * forward, 1e-12);
        assert_close(gpt_batch_flops(&gpt, 4, 512, true), 3 * forward + blocks, 1e-12);
}

static void the_kernels_of_a_small_last_stage_are_listed_in_order(void **state)
{
        (void)state;
        static const char *const names[] = {"embedding",
                                            "layernorm",
                                            "matmul",
                                            "bias",
                                            "matmul",
                                            "softmax",
                                            "matmul",
                                            "matmul",
                                            "bias_residual",
                                            "layernorm",
                                            "matmul",
                                            "bias_gelu",
                                            "matmul",
                                            "bias_residual",
                                            "layernorm",
                                            "matmul",
                                            "cross_entropy_loss"};
        struct gpt gpt = preset("tiny");
        gpt.n_layer = 1;
        struct stage stage = partition_stage(&gpt, 1, 0);
        struct kernel kernels[32];
        int count = workload_forward(&gpt, &stage, 2, 8, true, kernels);
        assert_int_equal(count, sizeof names / sizeof names[0]);
        for (int i = 0; i < count; i++)
                assert_string_equal(kernel_name(kernels[i].kind), names[i]);
        struct kernel scores = {
                .kind = KERNEL_MATMUL, .transpose_b = 1, .batch = 2 * 4, .m = 8, .n = 8, .k = 8};
        struct kernel head = {
                .kind = KERNEL_MATMUL, .transpose_b = 1, .batch = 1, .m = 16, .n = 256, .k = 32};
        assert_true(kernel_same(&kernels[4], &scores));
        assert_true(kernel_same(&kernels[15], &head));
        assert_false(kernel_same(&scores, &head));
        head.part = PART_INPUT;
        assert_true(kernel_same(&kernels[15], &head));
}

static void kernel_names_lead_back_to_their_kinds(void **state)
{
        (void)state;
        for (int kind = 0; kind < KERNEL_KINDS; kind++)
                assert_int_equal(kernel_kind_of(kernel_name((enum kernel_kind)kind)), kind);
        assert_int_equal(kernel_kind_of("no such kernel"), -1);
}

/* Bytes of one (B,T,C) activation counted by hand for shapes that need no rounding. */
static void memory_is_the_sum_of_what_is_stored(void **state)
{
        (void)state;
        struct gpt gpt = preset("demo");
        for (int stages = 1; stages <= 3; stages++)
                for (int s = 0; s < stages; s++) {
                        struct stage stage = partition_stage(&gpt, stages, s);
                        struct memory_plan plan = {.micro_batch_size = 4,
                                                   .seq_len = 128,
                                                   .micro_batches = 5,
                                                   .slots = 3,
                                                   .input_buffers = stage.first ? 0 : 2,
                                                   .gradient_buffers = 1,
                                                   .element_bytes = 4};
                        int64_t bytes[MEMORY_CATEGORIES], sum = 0, N = 4 * 128, C = 256;
                        int64_t total = memory_stage(&gpt, &stage, &plan, bytes);
                        for (int category = 0; category < MEMORY_CATEGORIES; category++)
                                sum += bytes[category];
                        assert_int_equal(total, sum);
                        int64_t parameters = partition_parameters(&gpt, &stage), T2 = 4 * 8 * 128 * 128;
                        int64_t block = 4 * (16 * N * C + T2 + 4 * N);
                        int64_t slot = stage.first * 4 * N * C + stage.layers * block +
                                       stage.last * 4 * (N * C + 2 * N + N * 256);
                        assert_int_equal(bytes[MEMORY_WEIGHTS], 4 * parameters);
                        assert_int_equal(bytes[MEMORY_GRADIENTS], 4 * parameters);
                        assert_int_equal(bytes[MEMORY_OPTIMIZER], 8 * parameters);
                        assert_int_equal(bytes[MEMORY_ACTIVATIONS], 3 * slot);
                        assert_int_equal(bytes[MEMORY_MESSAGES], (plan.input_buffers + 1) * 4 * N * C);
                        assert_int_equal(bytes[MEMORY_WORKSPACE], 4 * (8 * N * C + T2) + 64);
                        assert_int_equal(bytes[MEMORY_TOKENS], (stage.first + stage.last) * 5 * N * 4);
                }
}

static void every_buffer_is_rounded_up_on_its_own(void **state)
{
        (void)state;
        assert_int_equal(memory_aligned(0), 0);
        assert_int_equal(memory_aligned(1), 64);
        assert_int_equal(memory_aligned(64), 64);
        assert_int_equal(memory_aligned(65), 128);
        struct gpt gpt = {
                .n_layer = 1, .n_embd = 3, .n_head = 1, .vocab_size = 5, .n_positions = 3, .tied = true};
        struct stage stage = partition_stage(&gpt, 1, 0);
        struct memory_plan plan = {
                .micro_batch_size = 1, .seq_len = 1, .micro_batches = 1, .slots = 1, .element_bytes = 4};
        struct memory_layout layout = memory_layout(&gpt, &stage, &plan);
        /* one row: 12 bytes; qkv 36; attention 4; fc, gelu 48; stats 16 and 8; logits 20 */
        assert_int_equal(layout.slot, (1 + 10 + 3) * 64);
        assert_int_equal(layout.slot % MEMORY_ALIGNMENT, 0);
}

/* What gpt_load says about a file with this text. */
static void check_refused(const char *text, const char *expected)
{
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        char sentence[700];
        scratch_open(&scratch);
        const char *path = scratch_write(&scratch, "my.json", text, strlen(text));
        int status = gpt_load(&gpt, path, &err);
        snprintf(sentence, sizeof sentence, "%s%s", path, expected);
        scratch_close(&scratch);
        assert_int_equal(status, RV_EINPUT);
        assert_int_equal(err.code, RV_EINPUT);
        if (strncmp(err.sentence, sentence, strlen(sentence)) != 0)
                fail_msg("\"%s\" was expected, found \"%s\"", sentence, err.sentence);
}

#define REST "\"n_layer\": 2,\n \"vocab_size\": 256,\n \"n_positions\": 64"

static void wrong_model_files_are_refused_with_the_line(void **state)
{
        (void)state;
        check_refused("",
                      ":1: not valid JSON: '[' or '{' expected near end of file (is the file cut short?)");
        check_refused("{\n \"n_layer\": 2,\n \"n_embd\": \n",
                      ":4: not valid JSON: unexpected token near end of file (is the file cut short?)");
        check_refused("{\"n_layer\": 2, \"tie_word_embeddings\": tr",
                      ":1: not valid JSON: invalid token near 'tr' (is the file cut short?)");
        check_refused("{\"n_layer\": 2, \"n_em",
                      ":1: not valid JSON: premature end of input near '\"n_em' (is the file cut short?)");
        check_refused("{\n \"n_layer\": 2,,\n", ":2: not valid JSON: ");
        check_refused("{\"n_layer\": 2,\n \"n_layer\": 3}", ":2: not valid JSON: duplicate");
        check_refused("[1, 2]", ":1: a JSON object { ... } was expected");
        check_refused("{}", ": n_layer is missing, a whole number from 1 to 10000 was expected");
        check_refused("{" REST ",\n \"n_embd\": 768,\n \"n_head\": 7}",
                      ":5: n_head 7 does not divide n_embd 768");
        check_refused("{" REST ",\n \"n_embd\": 0,\n \"n_head\": 7}",
                      ":4: n_embd is 0, a whole number from 1 to 131072 was expected");
        check_refused("{" REST ",\n \"n_embd\": -8,\n \"n_head\": 7}", ":4: n_embd is -8, a whole number");
        check_refused("{" REST ",\n \"n_embd\": \"64\",\n \"n_head\": 7}",
                      ":4: n_embd is \"64\", a whole number");
        check_refused("{" REST ",\n \"n_embd\": 64.5,\n \"n_head\": 7}",
                      ":4: n_embd is 64.5, a whole number");
        check_refused("{" REST ",\n \"n_embd\": 99999999999,\n \"n_head\": 7}",
                      ":4: n_embd is 99999999999, a whole");
        check_refused("{" REST ",\n \"n_embd\": 64,\n\n \"n_head\": null}",
                      ":6: n_head is null, a whole number");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"tie_word_embeddings\": 1}",
                      ":5: tie_word_embeddings is 1, true or false");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"activation_function\": \"relu\"}",
                      ":5: activation_function is \"relu\", only \"gelu_new\"");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"layer_norm_epsilon\": 1e-6}",
                      ":5: layer_norm_epsilon is 1e-6, only 1e-5");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"n_inner\": 128}",
                      ":5: n_inner is 128, only");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"model_type\": \"gptj\"}",
                      ":5: model_type is \"gptj\", only");
        check_refused("{" REST ",\n \"n_embd\": 64, \"n_head\": 8,\n \"scale_attn_weights\": false}",
                      ":5: scale_attn_weights is false, only true");
}

static void a_real_hugging_face_config_is_read(void **state)
{
        (void)state;
        static const char text[] =
                "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"],"
                "\"attn_pdrop\": 0.1, \"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12,"
                "\"n_layer\": 12, \"n_positions\": 1024, \"n_inner\": null, \"model_type\": \"gpt2\","
                "\"layer_norm_epsilon\": 1e-05, \"task_specific_params\": {\"x\": {\"y\": 50}},"
                "\"vocab_size\": 50257}";
        struct scratch scratch;
        struct gpt gpt;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        int status = gpt_load(&gpt, scratch_write(&scratch, "gpt2.json", text, strlen(text)), &err);
        scratch_close(&scratch);
        assert_string_equal(err.sentence, "");
        assert_int_equal(status, RV_OK);
        assert_string_equal(gpt.name, "gpt2");
        assert_true(gpt.tied);
        assert_int_equal(gpt_parameters(&gpt), 124439808);
}

static void an_unknown_preset_is_answered_with_those_there_are(void **state)
{
        (void)state;
        struct gpt gpt;
        struct rv_error_info err = {0};
        assert_int_equal(gpt_load(&gpt, "gpt-13b", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "gpt-13b: no such model"));
        assert_non_null(strstr(err.sentence, " gpt-12b "));
        assert_non_null(strstr(err.sentence, " tiny"));
        assert_int_equal(gpt_load(&gpt, "/no/such/folder/config.json", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "/no/such/folder/config.json: cannot be read: No such file"));
        assert_int_equal(gpt_load(&gpt, "", &err), RV_EINPUT);
        assert_int_equal(gpt_load(&gpt, "/", &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is a folder"));
}

static void a_model_survives_the_way_through_json(void **state)
{
        (void)state;
        struct gpt gpt = preset("gpt-24b"), back;
        gpt.tied = false;
        struct rv_error_info err = {0};
        json_t *object = gpt_to_json(&gpt);
        assert_int_equal(gpt_from_json(&back, "x", object, &err), RV_OK);
        json_decref(object);
        assert_string_equal(back.name, "gpt-24b");
        assert_int_equal(back.n_layer, gpt.n_layer);
        assert_int_equal(back.n_embd, gpt.n_embd);
        assert_int_equal(back.n_head, gpt.n_head);
        assert_int_equal(back.vocab_size, gpt.vocab_size);
        assert_int_equal(back.n_positions, gpt.n_positions);
        assert_false(back.tied);
}

static void a_file_appears_only_when_it_is_complete(void **state)
{
        (void)state;
        struct scratch scratch;
        struct file_writer writer;
        struct rv_error_info err = {0};
        struct stat info;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "report.json");
        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("half", writer.stream);
        fflush(writer.stream);
        assert_int_not_equal(stat(path, &info), 0);
        file_writer_abandon(&writer);
        assert_int_equal(scratch_count(&scratch), 0);

        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("whole", writer.stream);
        assert_int_equal(file_writer_commit(&writer, &err), RV_OK);
        assert_int_equal(scratch_count(&scratch), 1);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, 5);

        /* An interrupted second version leaves the first as it was. */
        assert_int_equal(file_writer_open(&writer, path, &err), RV_OK);
        fputs("half of the second", writer.stream);
        file_writer_abandon(&writer);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_size, 5);
        assert_int_equal(scratch_count(&scratch), 1);
        scratch_close(&scratch);
}

static void a_full_disk_is_reported_and_leaves_nothing(void **state)
{
        (void)state;
        struct file_writer writer;
        struct rv_error_info err = {0};
        assert_int_equal(file_writer_open(&writer, "/dev/full", &err), RV_OK);
        for (int i = 0; i < 10000; i++)
                fputs("more than a buffer holds\n", writer.stream);
        assert_int_equal(file_writer_commit(&writer, &err), RV_ESYSTEM);
        assert_string_equal(err.sentence, "/dev/full: could not be written: No space left on device");
        struct stat info;
        assert_int_equal(stat("/dev/full", &info), 0);
        assert_true(S_ISCHR(info.st_mode));
}

static void places_that_cannot_be_written_are_told_before_the_work(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        assert_int_equal(file_check_writable(scratch_path(&scratch, "new"), &err), RV_OK);
        assert_int_equal(scratch_count(&scratch), 0);
        assert_int_equal(file_check_writable("in_this_folder", &err), RV_OK);
        assert_int_equal(file_check_writable(scratch.folder, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is a folder"));
        assert_int_equal(file_check_writable(scratch_path(&scratch, "no/file"), &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "No such file or directory"));
        scratch_write(&scratch, "plain", "x", 1);
        assert_int_equal(file_check_writable(scratch_path(&scratch, "plain/file"), &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "is not a folder"));
        assert_int_equal(file_check_writable("", &err), RV_EINPUT);
        scratch_close(&scratch);
}

static void an_output_that_would_replace_an_input_or_another_output_is_refused(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        char here[600], linked[600], new[600], also_new[600];
        scratch_open(&scratch);
        snprintf(here, sizeof here, "%s", scratch_write(&scratch, "here.json", "{}", 2));
        snprintf(linked, sizeof linked, "%s", scratch_path(&scratch, "linked.json"));
        snprintf(new, sizeof new, "%s", scratch_path(&scratch, "new.json"));
        snprintf(also_new, sizeof also_new, "%s", scratch_path(&scratch, "./new.json"));
        assert_int_equal(link(here, linked), 0);
        const struct {
                struct file_use uses[3];
                const char *sentence; /* NULL: sound */
        } cases[] = {
                {{{"--in", here, false}, {"--out", new, true}, {"--log", NULL, true}}, NULL},
                {{{"--in", here, false}, {"--also", here, false}, {"--out", new, true}}, NULL},
                {{{"--in", "preset", false}, {"--out", "preset", true}, {"--log", NULL, true}}, NULL},
                {{{"--out", "/dev/null", true}, {"--log", "/dev/null", true}, {"--in", NULL, false}}, NULL},
                {{{"--in", here, false}, {"--out", here, true}, {"--log", NULL, true}}, "--in and --out are"},
                {{{"--out", here, true}, {"--in", here, false}, {"--log", NULL, true}}, "--out and --in are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", linked, true}},
                 "--in and --log are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", new, true}}, "--out and --log are"},
                {{{"--in", here, false}, {"--out", new, true}, {"--log", also_new, true}},
                 "--out and --log are"},
                {{{"--out", "/no/where", true}, {"--log", new, true}, {"--in", NULL, false}}, "/no/where: "},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                int status = file_check_uses(cases[i].uses, 3, &err);
                assert_int_equal(status, cases[i].sentence ? RV_EINPUT : RV_OK);
                if (cases[i].sentence && strncmp(err.sentence, cases[i].sentence, strlen(cases[i].sentence)))
                        fail_msg("\"%s\" was expected, found \"%s\"", cases[i].sentence, err.sentence);
        }
        assert_int_equal(scratch_count(&scratch), 2);
        scratch_close(&scratch);
}

static void reals_survive_the_way_through_json_to_the_last_bit(void **state)
{
        (void)state;
        struct scratch scratch;
        struct rv_error_info err = {0};
        double values[] = {0.1, 1.0 / 3, 6.02214076e23, 5e-324, 123456789.123456789}, back = 0;
        scratch_open(&scratch);
        const char *path = scratch_path(&scratch, "reals.json");
        for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
                json_t *object = json_pack("{s:f}", "x", values[i]);
                assert_int_equal(file_write_json(path, object, &err), RV_OK);
                json_decref(object);
                object = file_read_json(path, &err);
                assert_non_null(object);
                assert_int_equal(file_need_real(path, object, "x", 0, 1e300, &back, &err), RV_OK);
                json_decref(object);
                assert_memory_equal(&back, &values[i], sizeof back);
        }
        json_t *object = file_read_json(path, &err);
        assert_int_equal(file_need_real(path, object, "x", 0, 1, &back, &err), RV_EINPUT);
        assert_non_null(
                strstr(err.sentence, "reals.json:2: x is 1.23457e8, a number from 0 to 1 was expected"));
        assert_int_equal(file_need_real(path, object, "y", 0, 1, &back, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "reals.json: y is missing, a number"));
        json_decref(object);
        scratch_close(&scratch);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(published_models_have_their_published_parameters),
                cmocka_unit_test(axonn_models_have_the_size_in_their_name),
                cmocka_unit_test(an_untied_head_is_one_more_matrix),
                cmocka_unit_test(stages_cover_every_layer_once_and_differ_by_at_most_one),
                cmocka_unit_test(stage_slices_sum_to_the_whole_model),
                cmocka_unit_test(tensors_have_identities_of_their_own_and_are_found_by_role),
                cmocka_unit_test(only_matrices_decay),
                cmocka_unit_test(matmul_flops_are_the_closed_form_and_backward_is_twice_forward),
                cmocka_unit_test(batch_flops_are_those_of_the_workload),
                cmocka_unit_test(the_kernels_of_a_small_last_stage_are_listed_in_order),
                cmocka_unit_test(kernel_names_lead_back_to_their_kinds),
                cmocka_unit_test(memory_is_the_sum_of_what_is_stored),
                cmocka_unit_test(every_buffer_is_rounded_up_on_its_own),
                cmocka_unit_test(wrong_model_files_are_refused_with_the_line),
                cmocka_unit_test(a_real_hugging_face_config_is_read),
                cmocka_unit_test(an_unknown_preset_is_answered_with_those_there_are),
                cmocka_unit_test(a_model_survives_the_way_through_json),
                cmocka_unit_test(a_file_appears_only_when_it_is_complete),
                cmocka_unit_test(a_full_disk_is_reported_and_leaves_nothing),
                cmocka_unit_test(places_that_cannot_be_written_are_told_before_the_work),
                cmocka_unit_test(an_output_that_would_replace_an_input_or_another_output_is_refused),
                cmocka_unit_test(reals_survive_the_way_through_json_to_the_last_bit),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
