#include "calibrate/request.h"

#include "models/shape_table.h"
#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/setting.h"
#include "runtime/device/device.h"
#include "runtime/plan/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 4096 };

/* The command line before it is looked into. */
struct words {
        struct request request;
        enum options_fusion fusion;
};

/* The next element of a list "a,b,c" into `word`; NULL after the last. */
static const char *next_word(const char *list, char *word, size_t word_size)
{
        size_t length = strcspn(list, ",");
        snprintf(word, word_size, "%.*s", (int)length, list);
        return list[length] ? list + length + 1 : NULL;
}

static int parse_precisions(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        char word[32];
        bool *precisions = at;
        memset(precisions, 0, DTYPES * sizeof *precisions);
        while (text) {
                text = next_word(text, word, sizeof word);
                const int dtype = dtype_of_precision(word);
                if (dtype < 0)
                        return rv_fail(err, RV_EINPUT, "%s: '%s' is none of fp32, mixed and bf16", option,
                                       word);
                precisions[dtype] = true;
        }
        return RV_OK;
}

static int parse_import(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        struct import_request *import = at;
        if (import->table_count == IMPORT_TABLES)
                return rv_fail(err, RV_EINPUT, "%s: more than %d tables", option, IMPORT_TABLES);
        return parse_path(option, text, &import->tables[import->table_count++], err);
}

static int parse_step_time(void *source, const char *option, const char *text, struct rv_error_info *err)
{
        struct trace_request *trace = source;
        return parse_seconds(option, text, &trace->step_seconds, err);
}

static int parse_trace(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        struct trace_request *trace = at;
        if (trace->file_count == TRACE_FILES)
                return rv_fail(err, RV_EINPUT, "%s: more than %d traces", option, TRACE_FILES);
        return parse_path(option, text, &trace->files[trace->file_count++], err);
}

static int parse_fusion(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        (void)option;
        return options_parse_fusion(text, at, err);
}

static const char *const own_devices[] = {"cpu", "cuda", NULL};
static const struct option_words device_words = {.names = own_devices,
                                                 .folder = IMPORT_DEVICES,
                                                 .files = true},
                                 models_words = {.folder = GPT_PRESETS, .files = true, .list = true};

#define AT(member)        .offset = offsetof(struct words, member)
#define FROM(first, last) .min = (first), .max = (last)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_PATH, "out", .argument = "PROFILE", AT(request.out),
         .help = "Write the profile (JSON) to this file (required)"},
        {SETTING_SET, "json", AT(request.json),
         .help = "Print the profile as JSON, or with --from-trace what was found, and nothing else on standard output"},
        {SETTING_SET, "quick", AT(request.quick),
         .help = "Fewer repetitions: under half a minute a precision instead of about one and a half"},
        {SETTING_INT, "seconds", .argument = "S", AT(request.seconds), FROM(1, 86400),
         .help = "Measure for about so long, two rounds at least, whether kernels settle or not (default: a precision "
                 "22, or 70 without --quick, and up to twice as long until they settle)"},
        {SETTING_INT, "ranks", .argument = "N", AT(request.asked_ranks), FROM(1, MAX_RANKS),
         .help = "Ranks that compute at the same time (default 1; under mpirun: all of them), of a CPU no more than its "
                 "processors: simulate lets ranks beyond these share them"},
        {SETTING_TEXT, "device", .argument = "NAME", AT(request.device), .words = &device_words,
         .help = "What computes: cpu, the default, or cuda; each rank has its GPU, or its share of one. With --import the GPU "
                 "that the tables are of: v100 a100 h100 h200 b200 gb200 l40s, or a file that describes it"},
        {SETTING_INT, "threads", .argument = "T", AT(request.threads), FROM(1, DEVICE_MAX_THREADS),
         .help = "Threads of each rank's kernels (default: OMP_NUM_THREADS, or the processors that the rank may use)"},
        {SETTING_RATE, "host-link", .argument = "RATE", AT(request.host_link_bytes_per_second),
         .help = "Copies between host and device take as long as over a link of this rate, such as 10GB/s (default: as "
                 "long as they take); train with the same; cpu only"},
        {SETTING_WORD, "cpu-kernels", .argument = "NAME", AT(request.cpu_kernels), .words = &device_cpu_kernels_words,
         .help = "For experiments: as of ranvier train, auto (the default), avx512, avx2, baseline or scalar; cpu only"},
        {SETTING_SET, "time-products", AT(request.time_products),
         .help = "Time what cuBLASLt proposes for each matrix product and take the fastest, which the profile keeps for "
                 "ranvier train --products; without it the first proposal is taken; cuda only"},
        {SETTING_OWN, "attention", .argument = "WHOSE", AT(request.attention), .parse = device_parse_attention,
         .words = &device_attention_words,
         .help = "As of ranvier train: ours, the default, cudnn or auto; cuda only"},
        {SETTING_HEADING, .help = "Instead of measuring:"},
        {SETTING_OWN, "import", .argument = "TABLE", AT(request.import), .parse = parse_import,
         .words = &(const struct option_words){.files = true},
         .help = "Make the profile from a table of kernels that somebody measured on the GPU --device; several times for "
                 "several tables"},
        {SETTING_TEXT, "source", .argument = "TEXT", AT(request.import.source),
         .help = "Where the tables are from, for who reads the profile"},
        {SETTING_OWN, "from-trace", .argument = "TRACE", AT(request.trace), .parse = parse_trace,
         .help = "Make the profile from a trace of PyTorch's profiler (record_shapes=True), of one --model, --micro-batch-size "
                 "and --seq-len; several times for several traces; without --out it only says what was found"},
        {SETTING_OWN, "step-time", .argument = "TIME", AT(request.trace), .parse = parse_step_time,
         .help = "What a step of the trace's shape takes while nothing profiles it, such as 33ms: the profiler makes launches on a "
                 "GPU slower, and they are priced as they are without it"},
        {SETTING_TEXT, "against", .argument = "PROFILE", AT(request.trace.against),
         .help = "Print beside what the trace's kernels take what this profile says, kind by kind"},
        {SETTING_PATH, "found", .argument = "FILE", AT(request.trace.found),
         .help = "Write what was found in the traces to this file (JSON)"},
        {SETTING_HEADING, .help = "The plan family, whose kernels are measured; all others are then fitted:"},
        {SETTING_TEXT, "model", .argument = "MODEL,...", AT(request.models), .words = &models_words,
         .help = "Presets or config.json files (default demo)"},
        {SETTING_LIST, "micro-batch-size", .argument = "B,...", AT(request.micro_batch_sizes), FROM(1, 1 << 20),
         .help = "Sequences of a micro-batch (default 1,2,4,8)"},
        {SETTING_LIST, "seq-len", .argument = "S,...", AT(request.seq_lens), FROM(1, 1 << 20),
         .help = "Tokens of a sequence (default: each model's n_positions)"},
        {SETTING_LIST, "pp", .argument = "P,...", AT(request.stages), FROM(1, 1 << 20),
         .help = "Pipeline stages (default 1,2)"},
        {SETTING_LIST, "tp", .argument = "T,...", AT(request.shards), FROM(1, 1 << 20),
         .help = "Shards of each stage (default 1): their narrower kernels"},
        {SETTING_LIST, "ep", .argument = "E,...", AT(request.expert_ranks), FROM(1, 1 << 20),
         .help = "Ranks over which the experts of a layer are spread (default 1): the products of the fewer that each has"},
        {SETTING_LIST, "cp", .argument = "C,...", AT(request.context_ranks), FROM(1, PROGRAM_CONTEXT_RANKS),
         .help = "Ranks over which each sequence is spread (default 1): attention to the keys of the others, and what comes "
                 "with it; of the CPU device, without --fusion off"},
        {SETTING_SET, "sequence-parallel", AT(request.sequence_parallel),
         .help = "Plans whose shards also split the sequence too, as for ranvier train"},
        {SETTING_OWN, "precision", .argument = "NAME,...", AT(request.precisions), .parse = parse_precisions,
         .words = &dtype_precision_words,
         .help = "Of fp32, mixed (fp16) and bf16, one or more (default fp32)"},
        {SETTING_OWN, "fusion", .argument = "WHEN", AT(fusion), .parse = parse_fusion, .words = &options_fusion_words,
         .help = "Measure the fused kernels, such as attention without a matrix of scores (on), or those that they "
                 "replace (off); auto, the default: on"},
        {SETTING_SET, "offload", AT(request.offload),
         .help = "Also the optimizer phase with master parameters and moments in host memory: fetches, updates and "
                 "write backs that run at the same time (needs mixed or bf16 in --precision)"},
        {SETTING_WHOLE, "bucket-params", .argument = "N", AT(request.bucket_parameters), FROM(1, INT64_C(1) << 40),
         .help = "Parameters of one optimizer update; offloaded, a third of them (default 16000000, or all of a stage "
                 "that has fewer)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parser(int key, char *text, struct argp_state *state)
{
        return settings_take(option_rows, state->input, key, text, command_line_error(state));
}

/* The text behind the options ends with what tables look like. */
static char *add_forms(int key, const char *text, void *input)
{
        char *longer;
        size_t size;
        (void)input;
        if (key != ARGP_KEY_HELP_POST_DOC || !text)
                return (char *)text;
        FILE *stream = open_memstream(&longer, &size);
        if (!stream)
                return (char *)text;
        fprintf(stream, "%s%s", text, shape_table_help);
        fclose(stream);
        return longer;
}

static struct argp_option argp_options[SETTINGS + 1];
static const struct argp argp = {
        .options = argp_options,
        .parser = parser,
        .doc = "Measures what this machine's kernels, copies, messages and all-reduces take, under the load "
               "that a run "
               "has, and writes a profile for ranvier simulate.\v"
               "What a pipeline or two replicas of 'demo' need, on two cores:\n"
               "  ranvier calibrate --ranks 2 --quick --out here.json\n"
               "For other plans, and with more repetitions:\n"
               "  ranvier calibrate --ranks 2 --model demo,my-model.json \\\n"
               "      --micro-batch-size 4 --pp 1,2 --out here.json\n"
               "For fp32 and mixed precision, and an optimizer in host memory behind a link of 2 GB/s:\n"
               "  ranvier calibrate --ranks 2 --quick --precision fp32,mixed --offload \\\n"
               "      --host-link 2GB/s --out here.json\n"
               "A GPU that others measured:\n"
               "  ranvier calibrate --import gemm.csv --import attention.csv --device h100 \\\n"
               "      --out mine.json\n"
               "Steps of your own PyTorch, of which its profiler wrote a trace:\n"
               "  ranvier calibrate --from-trace trace.json.gz --model traced.json \\\n"
               "      --micro-batch-size 2 --seq-len 48 --out traced-profile.json\n"
               "One GPU, what GPT-2 124M takes on it:\n"
               "  ranvier calibrate --device cuda --precision bf16 --model gpt2-124m \\\n"
               "      --micro-batch-size 8 --out gpu.json\n\n"
               "It starts its ranks with mpirun, and needs the machine for itself.\n\n",
        .help_filter = add_forms,
};

bool request_gpu(const struct request *request)
{
        return strcmp(request->device, "cpu") != 0;
}

static int load_models(struct request *request, struct rv_error_info *err)
{
        const char *models = request->models;
        char word[1024];
        while (models) {
                if (request->gpt_count == REQUEST_MODELS)
                        return rv_fail(err, RV_EINPUT, "--model: more than %d models", REQUEST_MODELS);
                models = next_word(models, word, sizeof word);
                int rc = gpt_load(&request->gpts[request->gpt_count], word, err);
                if (rc != RV_OK)
                        return rc;
                request->gpt_count++;
        }
        return RV_OK;
}

/* Shards have whole heads, and, sequence parallel, whole rows. */
static int check_shards(const struct request *request, const struct gpt *gpt, int shards,
                        struct rv_error_info *err)
{
        const int seq_lens = request->seq_lens.count ? request->seq_lens.count : 1;
        const int rc = gpt_check_shards(gpt, shards, err);
        if (rc)
                return rc;
        for (int i = 0; request->sequence_parallel && i < seq_lens; i++)
                for (int j = 0; j < request->micro_batch_sizes.count; j++) {
                        const int seq_len =
                                request->seq_lens.count ? request->seq_lens.values[i] : gpt_longest(gpt);
                        const int64_t rows = (int64_t)seq_len * request->micro_batch_sizes.values[j];
                        if (rows % shards)
                                return rv_fail(
                                        err, RV_EPLAN,
                                        "--sequence-parallel: --tp %d does not divide the %lld tokens of a "
                                        "micro-batch of %d x %d",
                                        shards, (long long)rows, request->micro_batch_sizes.values[j],
                                        seq_len);
                }
        return RV_OK;
}

/* Every sequence must have two pieces for each of the ranks, and a loss that needs no other tokens. */
static int check_context(const struct request *request, const struct gpt *gpt, int ranks,
                         struct rv_error_info *err)
{
        const int seq_lens = request->seq_lens.count ? request->seq_lens.count : 1;
        if (ranks == 1)
                return RV_OK;
        if (!request->fused)
                return rv_fail(err, RV_ENOTBUILT,
                               "--cp %d with --fusion off is not built: attention by parts of a sequence is "
                               "a fused kernel",
                               ranks);
        if (gpt->balance_loss > 0)
                return rv_fail(err, RV_ENOTBUILT,
                               "--cp %d with the balancing loss of %s's router, which is of all tokens of a "
                               "micro-batch, is not built yet",
                               ranks, gpt->name);
        for (int i = 0; i < seq_lens; i++) {
                const int seq_len = request->seq_lens.count ? request->seq_lens.values[i] : gpt_longest(gpt);
                if (seq_len % (2 * ranks))
                        return rv_fail(err, RV_EPLAN,
                                       "--cp %d takes each sequence in %d pieces, which do not divide %d "
                                       "tokens of %s",
                                       ranks, 2 * ranks, seq_len, gpt->name);
        }
        return RV_OK;
}

/* Every model must bear every sequence length and number of stages and shards. */
static int check_shapes(const struct request *request, struct rv_error_info *err)
{
        for (int i = 0; i < request->gpt_count; i++) {
                const struct gpt *gpt = &request->gpts[i];
                for (int j = 0; j < request->seq_lens.count; j++)
                        if (gpt_check_length(gpt, request->seq_lens.values[j], err) != RV_OK)
                                return err->code;
                for (int j = 0; j < request->stages.count; j++)
                        if (request->stages.values[j] > gpt->n_layer)
                                return rv_fail(err, RV_EPLAN,
                                               "--pp %d needs at least as many layers, but %s has n_layer %d",
                                               request->stages.values[j], gpt->name, gpt->n_layer);
                for (int j = 0; j < request->shards.count; j++)
                        if (check_shards(request, gpt, request->shards.values[j], err) != RV_OK)
                                return err->code;
                for (int j = 0; j < request->context_ranks.count; j++)
                        if (check_context(request, gpt, request->context_ranks.values[j], err) != RV_OK)
                                return err->code;
                for (int j = 0; gpt->n_expert > 0 && j < request->expert_ranks.count; j++)
                        if (gpt_check_experts(gpt, request->expert_ranks.values[j], err) != RV_OK)
                                return err->code;
        }
        return RV_OK;
}

static int check_import(struct request *request, struct rv_error_info *err)
{
        struct import_request *import = &request->import;
        struct file_use uses[IMPORT_TABLES + 1];
        if (strcmp(request->device, "cpu") == 0 || strcmp(request->device, "cuda") == 0)
                return rv_fail(err, RV_EINPUT,
                               "--import needs --device: the GPU that the tables are of, such as h100");
        import->device = request->device;
        import->out = request->out;
        import->json = request->json;
        for (int i = 0; i < import->table_count; i++)
                uses[i] = (struct file_use){"--import", import->tables[i], false};
        uses[import->table_count] = (struct file_use){"--out", request->out, true};
        return file_check_uses(uses, import->table_count + 1, err);
}

/* A trace is of one model and one shape. */
static int check_trace(struct request *request, struct rv_error_info *err)
{
        struct trace_request *trace = &request->trace;
        struct file_use uses[TRACE_FILES + 2];
        int rc;
        trace->json = request->json;
        for (int i = 0; i < trace->file_count; i++)
                uses[i] = (struct file_use){"--from-trace", trace->files[i], false};
        uses[trace->file_count] = (struct file_use){"--out", request->out, true};
        uses[trace->file_count + 1] = (struct file_use){"--found", trace->found, true};
        if ((rc = file_check_uses(uses, trace->file_count + 2, err)) != RV_OK)
                return rc;
        if (!request->out && trace->step_seconds > 0)
                return rv_fail(err, RV_EINPUT,
                               "--step-time is for the profile that --out names, which is missing");
        if (!request->out && !trace->against)
                return RV_OK;
        if ((rc = load_models(request, err)) != RV_OK)
                return rc;
        if (request->gpt_count > 1 || request->micro_batch_sizes.count != 1 || request->seq_lens.count > 1)
                return rv_fail(
                        err, RV_EINPUT,
                        "--from-trace needs one --model, one --micro-batch-size and one --seq-len: those "
                        "of the trace");
        trace->gpt = &request->gpts[0];
        trace->micro_batch_size = request->micro_batch_sizes.values[0];
        trace->seq_len = request->seq_lens.count ? request->seq_lens.values[0] : trace->gpt->n_positions;
        trace->out = request->out;
        return check_shapes(request, err);
}

/* Ranks of a CPU device that share processors are measured as many at once as can compute at once: a
 * simulation lets more of them share. */
static int at_once(const struct request *request, int ranks)
{
        const long processors = sysconf(_SC_NPROCESSORS_ONLN) / (request->threads ? request->threads : 1);
        return request_gpu(request) || ranks <= processors ? ranks : processors < 1 ? 1 : (int)processors;
}

int request_parse(struct request *request, int argc, char **argv, int ranks, bool quiet,
                  struct rv_error_info *err)
{
        struct words words = {.request = {.models = "demo",
                                          .micro_batch_sizes = {{1, 2, 4, 8}, 4},
                                          .shards = {{1}, 1},
                                          .expert_ranks = {{1}, 1},
                                          .context_ranks = {{1}, 1},
                                          .ranks = ranks,
                                          .device = "cpu",
                                          .local_ranks = 1,
                                          .precisions = {[DTYPE_FP32] = true},
                                          .bucket_parameters = 16000000}};
        settings_options(option_rows, argp_options, 1);
        int rc = command_line_parse(&argp, argc, argv, &words, quiet, err);
        *request = words.request;
        if (rc != RV_OK)
                return rc;
        if (request->trace.file_count > 0 && request->import.table_count > 0)
                return rv_fail(err, RV_EINPUT,
                               "--from-trace and --import: a profile is made from one of them");
        if (request->trace.file_count > 0)
                return check_trace(request, err);
        if (request->trace.found || request->trace.against || request->trace.step_seconds > 0)
                return rv_fail(err, RV_EINPUT, "%s is of traces, which --from-trace names",
                               request->trace.found     ? "--found"
                               : request->trace.against ? "--against"
                                                        : "--step-time");
        if (!request->out)
                return rv_fail(err, RV_EINPUT, "--out is missing: the file that the profile is written to");
        if (request->import.table_count > 0 && request->attention != ATTENTION_OURS)
                return rv_fail(err, RV_EINPUT, "--attention is for measuring; --import reads tables");
        if (request->import.table_count > 0)
                return check_import(request, err);
        if (request->import.source)
                return rv_fail(err, RV_EINPUT, "--source is of tables, which --import names");
        if ((rc = options_parse_device(request->device, &request->device, err)) != RV_OK)
                return rc;
        request->fused = words.fusion != FUSION_OFF;
        if (request->offload && !request->precisions[DTYPE_FP16] && !request->precisions[DTYPE_BF16])
                return rv_fail(err, RV_EINPUT,
                               "--offload needs mixed or bf16 in --precision (such as --precision "
                               "fp32,mixed): in fp32 nothing is offloaded");
        if (request->time_products && !request_gpu(request))
                return rv_fail(
                        err, RV_EINPUT,
                        "--time-products is for --device cuda: products on the CPU have one algorithm");
        if ((rc = device_check_attention(request->attention, request_gpu(request), request->fused,
                                         request->precisions[DTYPE_FP32], err)) != RV_OK)
                return rc;
        if (request_gpu(request) && request->host_link_bytes_per_second > 0)
                return rv_fail(err, RV_EINPUT,
                               "--host-link paces the copies of --device cpu; those of a GPU take what its "
                               "link takes");
        if (!ranks)
                request->ranks = at_once(request, request->asked_ranks ? request->asked_ranks : 1);
        else if (request->asked_ranks && request->asked_ranks != ranks &&
                 at_once(request, request->asked_ranks) != ranks)
                return rv_fail(err, RV_EINPUT,
                               "--ranks %d, but %d %s started; start as many with mpirun -n %d",
                               request->asked_ranks, ranks, ranks == 1 ? "rank was" : "ranks were",
                               request->asked_ranks);
        if (request->time_products && request->ranks > 1)
                return rv_fail(err, RV_EINPUT,
                               "--time-products with %d ranks: each would choose by its own times; calibrate "
                               "one rank alone",
                               request->ranks);
        rc = load_models(request, err);
        return rc == RV_OK ? check_shapes(request, err) : rc;
}

int request_check_out(const struct request *request, struct rv_error_info *err)
{
        const char *models = request->models;
        char word[1024];
        int rc = RV_OK;
        while (models && rc == RV_OK) {
                models = next_word(models, word, sizeof word);
                const struct file_use uses[] = {{"--model", word, false}, {"--out", request->out, true}};
                rc = file_check_uses(uses, 2, err);
        }
        return rc;
}
