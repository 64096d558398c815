#include "calibrate/request.h"

#include "runtime/base/command_line.h"

#include "runtime/base/parse.h"

#include "runtime/base/file.h"
#include "runtime/device/device.h"
#include "runtime/plan/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 4096 };

enum key {
        KEY_OUT = 0x300,
        KEY_QUICK,
        KEY_RANKS,
        KEY_DEVICE,
        KEY_MODEL,
        KEY_MICRO_BATCH_SIZE,
        KEY_SEQ_LEN,
        KEY_PP,
        KEY_TP,
        KEY_SEQUENCE_PARALLEL,
        KEY_BUCKET_PARAMS,
        KEY_PRECISION,
        KEY_OFFLOAD,
        KEY_HOST_LINK,
        KEY_FUSION,
        KEY_CPU_KERNELS,
        KEY_THREADS
};

static const struct argp_option argp_options[] = {
        {"out", KEY_OUT, "PROFILE", 0, "Write the profile (JSON) to this file (required)", 1},
        {"quick", KEY_QUICK, 0, 0,
         "Fewer repetitions: under half a minute a precision instead of about one and a half", 1},
        {"ranks", KEY_RANKS, "N", 0,
         "Ranks that compute at the same time (default 1; under mpirun: all of them)", 1},
        {"device", KEY_DEVICE, "NAME", 0,
         "What computes: cpu, the default, or cuda; each rank has its GPU, or its share of one", 1},
        {"threads", KEY_THREADS, "T", 0,
         "Threads of each rank's kernels (default: OMP_NUM_THREADS, or the processors that the rank may use)",
         1},
        {"host-link", KEY_HOST_LINK, "RATE", 0,
         "Copies between host and device take as long as over a link of this rate, such as 10GB/s (default: "
         "as long as they take); train with the same; cpu only",
         1},
        {"cpu-kernels", KEY_CPU_KERNELS, "NAME", 0,
         "For experiments: as of ranvier train, auto (the default), avx512, avx2, baseline or scalar; cpu "
         "only",
         1},
        {0, 0, 0, 0, "The plan family, whose kernels are measured; all others are then fitted:", 2},
        {"model", KEY_MODEL, "MODEL,...", 0, "Presets or config.json files (default demo)", 2},
        {"micro-batch-size", KEY_MICRO_BATCH_SIZE, "B,...", 0, "Sequences of a micro-batch (default 1,2,4,8)",
         2},
        {"seq-len", KEY_SEQ_LEN, "S,...", 0, "Tokens of a sequence (default: each model's n_positions)", 2},
        {"pp", KEY_PP, "P,...", 0, "Pipeline stages (default 1,2)", 2},
        {"tp", KEY_TP, "T,...", 0, "Shards of each stage (default 1): their narrower kernels", 2},
        {"sequence-parallel", KEY_SEQUENCE_PARALLEL, 0, 0,
         "Several shards also split the sequence: as for ranvier train", 2},
        {"precision", KEY_PRECISION, "NAME,...", 0,
         "Of fp32, mixed (fp16) and bf16, one or more (default fp32)", 2},
        {"fusion", KEY_FUSION, "WHEN", 0,
         "Measure the fused kernels, such as attention without a matrix of scores (on), or those that they "
         "replace (off); auto, the default: on",
         2},
        {"offload", KEY_OFFLOAD, 0, 0,
         "Also the optimizer phase with master parameters and moments in host memory: fetches, updates and "
         "write backs that run at the same time (needs mixed or bf16 in --precision)",
         2},
        {"bucket-params", KEY_BUCKET_PARAMS, "N", 0,
         "Parameters of one optimizer update; offloaded, a third of them (default 16000000, or all of a "
         "stage that has fewer)",
         2},
        {0},
};

/* The command line before it is looked into. */
struct words {
        struct request *request;
        enum options_fusion fusion;
        int ranks;
        struct rv_error_info
                *err; /* argp gives each parser a hook of its own, so command_line_parse's is not seen here */
};

/* The next element of a list "a,b,c" into `word`; NULL after the last. */
static const char *next_word(const char *list, char *word, size_t word_size)
{
        size_t length = strcspn(list, ",");
        snprintf(word, word_size, "%.*s", (int)length, list);
        return list[length] ? list + length + 1 : NULL;
}

static int parse_list(const char *option, const char *text, struct request_list *list,
                      struct rv_error_info *err)
{
        char word[256];
        list->count = 0;
        while (text) {
                if (list->count == REQUEST_LIST)
                        return rv_fail(err, RV_EINPUT, "%s: more than %d values", option, REQUEST_LIST);
                text = next_word(text, word, sizeof word);
                int rc = parse_count(option, word, 1, 1 << 20, &list->values[list->count], err);
                if (rc != RV_OK)
                        return rc;
                list->count++;
        }
        return RV_OK;
}

static int parse_precisions(const char *text, struct request *request, struct rv_error_info *err)
{
        char word[32];
        memset(request->precisions, 0, sizeof request->precisions);
        while (text) {
                text = next_word(text, word, sizeof word);
                const int half = half_of_precision(word);
                if (half < 0)
                        return rv_fail(err, RV_EINPUT, "--precision: '%s' is none of fp32, mixed and bf16",
                                       word);
                request->precisions[half] = true;
        }
        return RV_OK;
}

static int parse_option(struct words *words, int key, const char *text, struct rv_error_info *err)
{
        struct request *request = words->request;
        switch (key) {
        case KEY_OUT:
                return parse_path("--out", text, &request->out, err);
        case KEY_QUICK:
                request->quick = true;
                return RV_OK;
        case KEY_RANKS:
                return parse_count("--ranks", text, 1, MOST_RANKS, &words->ranks, err);
        case KEY_DEVICE:
                return options_parse_device(text, &request->device, err);
        case KEY_FUSION:
                return options_parse_fusion(text, &words->fusion, err);
        case KEY_MODEL:
                request->models = text;
                return RV_OK;
        case KEY_MICRO_BATCH_SIZE:
                return parse_list("--micro-batch-size", text, &request->micro_batch_sizes, err);
        case KEY_SEQ_LEN:
                return parse_list("--seq-len", text, &request->seq_lens, err);
        case KEY_PP:
                return parse_list("--pp", text, &request->stages, err);
        case KEY_TP:
                return parse_list("--tp", text, &request->shards, err);
        case KEY_SEQUENCE_PARALLEL:
                request->sequence_parallel = true;
                return RV_OK;
        case KEY_BUCKET_PARAMS:
                return parse_int("--bucket-params", text, 1, INT64_C(1) << 40, &request->bucket_parameters,
                                 err);
        case KEY_PRECISION:
                return parse_precisions(text, request, err);
        case KEY_OFFLOAD:
                request->offload = true;
                return RV_OK;
        case KEY_CPU_KERNELS:
                request->cpu_kernels = text;
                return RV_OK;
        case KEY_HOST_LINK:
                return parse_rate("--host-link", text, &request->host_link_bytes_per_second, err);
        default:
                return parse_count("--threads", text, 1, DEVICE_MOST_THREADS, &request->threads, err);
        }
}

static error_t parser(int key, char *text, struct argp_state *state)
{
        if (key < KEY_OUT || key > KEY_THREADS)
                return ARGP_ERR_UNKNOWN;
        struct words *words = state->input;
        return parse_option(words, key, text, words->err) == RV_OK ? 0 : EINVAL;
}

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
               "One GPU, what GPT-2 124M takes on it:\n"
               "  ranvier calibrate --device cuda --precision bf16 --model gpt2-124m \\\n"
               "      --micro-batch-size 8 --out gpu.json\n\n"
               "It starts its ranks with mpirun, and needs the machine for itself.",
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
                                request->seq_lens.count ? request->seq_lens.values[i] : gpt->n_positions;
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

/* Every model must bear every sequence length and number of stages and shards. */
static int check_shapes(const struct request *request, struct rv_error_info *err)
{
        for (int i = 0; i < request->gpt_count; i++) {
                const struct gpt *gpt = &request->gpts[i];
                for (int j = 0; j < request->seq_lens.count; j++)
                        if (request->seq_lens.values[j] > gpt->n_positions)
                                return rv_fail(err, RV_EPLAN,
                                               "--seq-len %d is longer than the n_positions %d of %s",
                                               request->seq_lens.values[j], gpt->n_positions, gpt->name);
                for (int j = 0; j < request->stages.count; j++)
                        if (request->stages.values[j] > gpt->n_layer)
                                return rv_fail(err, RV_EPLAN,
                                               "--pp %d needs at least as many layers, but %s has n_layer %d",
                                               request->stages.values[j], gpt->name, gpt->n_layer);
                for (int j = 0; j < request->shards.count; j++)
                        if (check_shards(request, gpt, request->shards.values[j], err) != RV_OK)
                                return err->code;
        }
        return RV_OK;
}

int request_parse(struct request *request, int argc, char **argv, int ranks, bool quiet,
                  struct rv_error_info *err)
{
        *request = (struct request){.models = "demo",
                                    .micro_batch_sizes = {{1, 2, 4, 8}, 4},
                                    .shards = {{1}, 1},
                                    .ranks = ranks,
                                    .device = "cpu",
                                    .local_ranks = 1,
                                    .precisions = {[HALF_NONE] = true},
                                    .bucket_parameters = 16000000};
        struct words words = {.request = request, .err = err};
        int rc = command_line_parse(&argp, argc, argv, &words, quiet, err);
        if (rc != RV_OK)
                return rc;
        if (!request->out)
                return rv_fail(err, RV_EINPUT, "--out is missing: the file that the profile is written to");
        request->fused = words.fusion != FUSION_OFF;
        if (request->offload && !request->precisions[HALF_FP16] && !request->precisions[HALF_BF16])
                return rv_fail(err, RV_EINPUT,
                               "--offload needs mixed or bf16 in --precision (such as --precision "
                               "fp32,mixed): in fp32 nothing is offloaded");
        if (request_gpu(request) && request->host_link_bytes_per_second > 0)
                return rv_fail(err, RV_EINPUT,
                               "--host-link paces the copies of --device cpu; those of a GPU take what its "
                               "link takes");
        if (!ranks)
                request->ranks = words.ranks ? words.ranks : 1;
        else if (words.ranks && words.ranks != ranks)
                return rv_fail(err, RV_EINPUT,
                               "--ranks %d, but %d %s started; start as many with mpirun -n %d", words.ranks,
                               ranks, ranks == 1 ? "rank was" : "ranks were", words.ranks);
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
