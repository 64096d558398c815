#include "runtime/engine/options.h"

#include "runtime/sched/shares.h"

#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/base/command_line.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
        LARGEST_GRID = 1048576,
        LARGEST_BATCH = 1073741824,
        MOST_UPDATES = 1 << 24,
        MOST_PIECES = 1 << 24,               /* micro-batches x --virtual-stages */
        DEFAULT_BUCKET_PARAMETERS = 16000000 /* AxoNN's */
};

/* Keys of options without a short form. */
enum key {
        KEY_PP = 0x100,
        KEY_DP,
        KEY_MICRO_BATCH_SIZE,
        KEY_BATCH_SIZE,
        KEY_SEQ_LEN,
        KEY_SCHEDULE,
        KEY_PIPELINE_LIMIT,
        KEY_CLIP,
        KEY_BUCKET_PARAMS,
        KEY_ALLREDUCE_BUCKETS,
        KEY_REPORT,
        KEY_TRACE,
        KEY_PRECISION,
        KEY_OFFLOAD,
        KEY_OFFLOAD_ACTIVATIONS,
        KEY_RECOMPUTE,
        KEY_DEVICE_MEMORY,
        KEY_HOST_MEMORY,
        KEY_DEVICE,
        KEY_FUSION,
        KEY_MESSAGES,
        KEY_ALLREDUCE,
        KEY_TP,
        KEY_P2P,
        KEY_SPLIT,
        KEY_VIRTUAL_STAGES,
        KEY_SEQUENCE_PARALLEL,
        KEY_OVERLAP_ALLREDUCE,
        KEY_ORDER,
        KEY_ZERO,
        KEY_HELP,
        KEY_USAGE,
        KEY_VERSION
};

/* What a table of runs says of each: grid, sizes, and where results go. The rest may hold for all of them. */
static const struct argp_option plan_options[] = {
        {0, 0, 0, 0, "The plan: MODEL is a preset's name or a Hugging Face style config.json", 1},
        {"pp", KEY_PP, "P", 0, "Pipeline stages, AxoNN's G_inter (default 1)", 1},
        {"dp", KEY_DP, "D", 0, "Replicas of the pipeline, AxoNN's G_data (default 1)", 1},
        {"tp", KEY_TP, "T", 0,
         "Shards of each stage, AxoNN's G_intra (default 1), which must divide the model's heads: products "
         "are "
         "split as Megatron-LM splits them, with all-reduces in every layer; P x D x T ranks in all",
         1},
        {"micro-batch-size", KEY_MICRO_BATCH_SIZE, "B", 0,
         "Sequences that go through a stage at once (required)", 1},
        {"batch-size", KEY_BATCH_SIZE, "G", 0,
         "Sequences of one batch over all ranks, a multiple of D x B (required)", 1},
        {"seq-len", KEY_SEQ_LEN, "S", 0, "Tokens of a sequence (default: the model's n_positions)", 1},
        {"report", KEY_REPORT, "FILE", 0, "Write the result as JSON, for ranvier compare and plot", 1},
        {"trace", KEY_TRACE, "FILE", 0,
         "Write every operation as Chrome trace JSON, for Perfetto and plot; of a training, those of the "
         "last three batches",
         1},
        {0},
};

static const struct argp_option common_options[] = {
        {"sequence-parallel", KEY_SEQUENCE_PARALLEL, 0, 0,
         "With --tp: split along the sequence what is not split otherwise (LayerNorms, residuals, messages); "
         "all-gathers and reduce-scatters take the all-reduces' place",
         1},
        {"schedule", KEY_SCHEDULE, "NAME", 0,
         "axonn: message-driven, the default; gpipe: all forward, then all backward; 1f1b: one forward, one "
         "backward; interleaved: the same on --virtual-stages chunks of the model a rank, with a shorter "
         "bubble and more messages; zero-bubble: 1f1b whose gradients of weights fill the bubble (ZB-H1)",
         1},
        {"split", KEY_SPLIT, "HOW", 0,
         "Layers over stages: even, the default, as many on each, so that the last one, which has the output "
         "projection too, works longest; balanced: fewer on the last one, by floating-point operations; or a "
         "number, the last one's layers (the others share the rest evenly; a single stage has all)",
         1},
        {"virtual-stages", KEY_VIRTUAL_STAGES, "V", 0,
         "interleaved: chunks of the model that each rank works on, 2 or more; P x V divide the layers, and "
         "P the "
         "micro-batches of a pipeline",
         1},
        {"pipeline-limit", KEY_PIPELINE_LIMIT, "L", 0,
         "axonn: micro-batches under way in a pipeline at once (default P); more hide messages and cost "
         "memory",
         1},
        {"clip", KEY_CLIP, "X", 0,
         "Clip gradients to this global norm (default 1.0; 0 is off); updates wait for the norm: only --clip "
         "0 "
         "lets them overlap with the all-reduce",
         1},
        {"precision", KEY_PRECISION, "NAME", 0,
         "fp32, the default of training; a prediction's is its profile's, mixed before bf16 before fp32. "
         "mixed: "
         "parameters, gradients, activations and messages in fp16, master "
         "parameters and Adam's moments in fp32, dynamic loss scaling; bf16: the same in bf16, whose range "
         "needs no loss scaling",
         1},
        {"offload", KEY_OFFLOAD, 0, 0,
         "Keep master parameters and moments in host memory; they are fetched, updated and written back "
         "bucket by bucket (needs --precision mixed or bf16); with --clip 0 beside the all-reduce, else "
         "after "
         "it",
         1},
        {"offload-activations", KEY_OFFLOAD_ACTIVATIONS, 0, 0,
         "Keep stored activations in host memory between forward and backward; a stage that stores at most "
         "four "
         "micro-batches has nothing to offload",
         1},
        {"recompute", KEY_RECOMPUTE, "WHAT", 0,
         "What is not stored, and computed again before it is needed. none, the default; selective: "
         "attention's "
         "scores and softmax (with fused attention, which stores none, the same as none); full: all of a "
         "layer "
         "but its input, about a third more time; layer: as full, and the layer's last product too, as "
         "frameworks do; norms, swiglu, or norms,swiglu: what these make, of a Llama a quarter of what is "
         "stored, for a few elementwise kernels",
         1},
        {"device-memory", KEY_DEVICE_MEMORY, "SIZE", 0,
         "What a rank has on its device, such as 2GiB (default: the platform's, or a rank's share of its "
         "machine's memory); a plan that needs more is refused, with changes that would make it fit",
         1},
        {"host-memory", KEY_HOST_MEMORY, "SIZE", 0,
         "What a rank has in its host's memory for what its device copies from and to: offloaded data, "
         "staged "
         "messages and gradients, the batch's tokens (default and refusal: as --device-memory)",
         1},
        {"bucket-params", KEY_BUCKET_PARAMS, "N", 0,
         "Parameters of one optimizer update (default 16000000, or all of a stage that has fewer); "
         "with --offload it is worked through in thirds, in three buffers: one is fetched, one updated, one "
         "written back",
         1},
        {"allreduce-buckets", KEY_ALLREDUCE_BUCKETS, "C", 0, "Buckets of one all-reduce (default 4)", 1},
        {"messages", KEY_MESSAGES, "ROUTE", 0,
         "direct: the network takes them from device memory and puts them there; staged: through host "
         "memory, "
         "by copies that the schedule plans; auto, the default: staged where a GPU's memory is out of the "
         "network's reach",
         1},
        {"allreduce", KEY_ALLREDUCE, "ROUTE", 0, "The route of all-reduces of gradients, as for --messages",
         1},
        {"p2p", KEY_P2P, "HOW", 0,
         "async, the default: a stage computes while messages are under way; blocking: it sends and receives "
         "as "
         "Megatron-LM's schedules do, and computes nothing meanwhile (needs a schedule of fixed order: not "
         "axonn)",
         1},
        {"device", KEY_DEVICE, "NAME", 0,
         "What computes: cpu or cuda (default: cpu; in a prediction, what the profile was measured on)", 1},
        {"fusion", KEY_FUSION, "WHEN", 0,
         "Kernels that do the work of several: attention that stores no matrix of sequence x sequence, "
         "products "
         "with biases, GELU, residuals and LayerNorm in them, a loss that is made in chunks of rows and "
         "stores "
         "no logits. on, off, or auto, the default: on, in a prediction where the profile has them",
         1},
        {"order", KEY_ORDER, "WHICH", 0,
         "Which ranks are neighbours, after the shards of a stage: stages of a pipeline (default), or "
         "replicas of a "
         "stage",
         1},
        {"zero", KEY_ZERO, "STAGE", 0,
         "What the replicas share between them: 0, nothing, the default; 1: the optimizer (each updates its "
         "part of the parameters; gradients are reduce-scattered, weights all-gathered); 3: weights and "
         "gradients too, which are gathered and reduced layer by layer (in a prediction only; for --pp 1 and "
         "--tp 1)",
         1},
        {"overlap-allreduce", KEY_OVERLAP_ALLREDUCE, 0, 0,
         "All-reduce gradients while the last backward goes on: each chunk (--allreduce-buckets x "
         "--bucket-params) as soon as its layers are through; for schedules axonn, gpipe and 1f1b, --zero 0 "
         "and --tp 1",
         1},
        {0},
};

void options_init(struct options *options)
{
        *options = (struct options){
                .pp = 1,
                .dp = 1,
                .tp = 1,
                .virtual_stages = 1,
                .policy = POLICY_AXONN,
                .clip = 1.0,
                .allreduce_buckets = 4,
        };
}

int options_parse_int(const char *option, const char *text, int64_t least, int64_t most, int64_t *value,
                      struct rv_error_info *err)
{
        char *end;
        errno = 0;
        long long number = strtoll(text, &end, 10);
        if (errno || end == text || *end || number < least || number > most)
                return rv_fail(err, RV_EINPUT, "%s: '%s' is not a whole number from %lld to %lld", option,
                               text, (long long)least, (long long)most);
        *value = number;
        return 0;
}

int options_parse_count(const char *option, const char *text, int least, int most, int *value,
                        struct rv_error_info *err)
{
        int64_t number = 0;
        int rc = options_parse_int(option, text, least, most, &number, err);
        if (rc == 0)
                *value = (int)number;
        return rc;
}

char *options_command_line(const char *name, int argc, char **argv)
{
        size_t size = strlen(name) + 1;
        for (int i = 1; i < argc; i++)
                size += strlen(argv[i]) + 1;
        char *line = malloc(size);
        if (!line)
                return NULL;
        strcpy(line, name);
        for (int i = 1; i < argc; i++)
                strcat(strcat(line, " "), argv[i]);
        return line;
}

int options_parse_path(const char *option, const char *text, const char **path, struct rv_error_info *err)
{
        if (!*text)
                return rv_fail(err, RV_EINPUT, "%s: the name of a file was expected, this one is empty",
                               option);
        *path = text;
        return 0;
}

int options_parse_bytes(const char *text, int64_t *bytes)
{
        static const struct {
                const char *suffix;
                double factor;
        } units[] = {{"", 1},
                     {"B", 1},
                     {"kB", 1e3},
                     {"KB", 1e3},
                     {"MB", 1e6},
                     {"GB", 1e9},
                     {"TB", 1e12},
                     {"KiB", 1024.0},
                     {"MiB", 1048576.0},
                     {"GiB", 1073741824.0},
                     {"TiB", 1099511627776.0}};
        char *end;
        double number = strtod(text, &end);
        if (end == text || !(number >= 0))
                return -1;
        for (size_t i = 0; i < sizeof units / sizeof *units; i++)
                if (strcmp(end, units[i].suffix) == 0 && number * units[i].factor < 9e18) {
                        *bytes = (int64_t)llround(number * units[i].factor);
                        return 0;
                }
        return -1;
}

int options_parse_rate(const char *option, const char *text, double *bytes_per_second,
                       struct rv_error_info *err)
{
        char size[32];
        int64_t bytes = 0;
        size_t length = strlen(text);
        if (length > 2 && length < sizeof size && strcmp(text + length - 2, "/s") == 0) {
                snprintf(size, sizeof size, "%.*s", (int)length - 2, text);
                if (options_parse_bytes(size, &bytes) == 0 && bytes > 0) {
                        *bytes_per_second = (double)bytes;
                        return 0;
                }
        }
        return rv_fail(err, RV_EINPUT,
                       "%s: '%.64s' is not a rate such as 10GB/s or 500MB/s, of at least 1 B/s", option,
                       text);
}

int options_parse_tokens(const char *option, const char *text, double *tokens, struct rv_error_info *err)
{
        static const struct {
                const char *suffix;
                double factor;
        } units[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"B", 1e9}, {"T", 1e12}};
        char *end;
        const double number = strtod(text, &end);
        for (size_t i = 0; end != text && i < sizeof units / sizeof *units; i++) {
                const double all = number * units[i].factor;
                if (strcmp(end, units[i].suffix) == 0 && all >= 1 && all <= 9e18) {
                        *tokens = all;
                        return 0;
                }
        }
        return rv_fail(
                err, RV_EINPUT,
                "%s: '%.64s' is not a number of tokens such as 300e9 or 300B (K, M, B, T; from 1 to 9e18)",
                option, text);
}

/* Which of `names` (two at least, to a NULL) `text` is. */
static int parse_name(const char *option, const char *text, const char *const *names, int *which,
                      struct rv_error_info *err)
{
        char known[128] = "";
        for (int i = 0; names[i]; i++) {
                if (strcmp(text, names[i]) == 0) {
                        *which = i;
                        return 0;
                }
                const char *between = i == 0 ? "" : names[i + 1] ? ", " : " and ";
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", between, names[i]);
        }
        return rv_fail(err, RV_EINPUT, "%s: '%.64s' is not known; there are %s", option, text, known);
}

int options_parse_switch(const char *option, const char *text, bool *on, struct rv_error_info *err)
{
        static const char *const names[] = {"off", "on", NULL};
        int which = *on, rc = parse_name(option, text, names, &which, err);
        *on = which;
        return rc;
}

int options_parse_fusion(const char *text, enum options_fusion *fusion, struct rv_error_info *err)
{
        static const char *const names[] = {
                [FUSION_AUTO] = "auto", [FUSION_ON] = "on", [FUSION_OFF] = "off", NULL};
        int which = *fusion, rc = parse_name("--fusion", text, names, &which, err);
        *fusion = (enum options_fusion)which;
        return rc;
}

int options_parse_device(const char *text, const char **device, struct rv_error_info *err)
{
        static const char *const names[] = {"cpu", "cuda", NULL};
        int which, rc = parse_name("--device", text, names, &which, err);
        if (rc == 0)
                *device = names[which];
        return rc;
}

static const char *const routes[] = {
        [ROUTE_AUTO] = "auto", [ROUTE_DIRECT] = "direct", [ROUTE_STAGED] = "staged", NULL};

const char *route_name(enum route route)
{
        return routes[route];
}

static int parse_route(struct options *o, const char *option, const char *text, enum route *route)
{
        int which = *route, rc = parse_name(option, text, routes, &which, &o->error);
        *route = (enum route)which;
        return rc;
}

static int parse_schedule(struct options *o, const char *text)
{
        int id = policy_find(text);
        if (id >= 0) {
                o->policy = (enum policy_id)id;
                return 0;
        }
        char names[128] = "";
        for (int i = 0; i < POLICIES; i++)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                         policy_get((enum policy_id)i)->name);
        return rv_fail(&o->error, RV_EINPUT, "--schedule: '%s' is not known; there are %s", text, names);
}

static int parse_clip(struct options *o, const char *text)
{
        char *end;
        double number = strtod(text, &end);
        if (end == text || *end || !isfinite(number) || number < 0)
                return rv_fail(&o->error, RV_EINPUT, "--clip: '%s' is not a number from 0 (off) up", text);
        o->clip = number;
        return 0;
}

static int parse_p2p(struct options *o, const char *text)
{
        static const char *const names[] = {"async", "blocking", NULL};
        int which = o->blocking, rc = parse_name("--p2p", text, names, &which, &o->error);
        o->blocking = which;
        return rc;
}

static int parse_split(struct options *o, const char *text)
{
        int64_t last = 0;
        if (strcmp(text, "even") == 0 || strcmp(text, "balanced") == 0) {
                o->split = text[0] == 'e' ? SPLIT_EVEN : SPLIT_BALANCED;
                return 0;
        }
        if (options_parse_int("--split", text, 1, INT_MAX, &last, &o->error))
                return rv_fail(
                        &o->error, RV_EINPUT,
                        "--split: '%.64s' is neither even, balanced, nor a number of layers for the last "
                        "stage, at least 1",
                        text);
        o->split = (int)last;
        return 0;
}

static int parse_order(struct options *o, const char *text)
{
        static const char *const names[] = {[ORDER_STAGES] = "stages", [ORDER_REPLICAS] = "replicas", NULL};
        int which = (int)o->order, rc = parse_name("--order", text, names, &which, &o->error);
        o->order = (enum plan_order)which;
        return rc;
}

static int parse_zero(struct options *o, const char *text)
{
        static const char *const names[] = {"0", "1", "3", NULL};
        static const int stages[] = {0, 1, 3};
        if (strcmp(text, "2") == 0)
                return rv_fail(&o->error, RV_ENOTBUILT,
                               "--zero 2 is not built yet: --zero 1 shares the optimizer among the replicas, "
                               "and --zero 3, in predictions, parameters and gradients too");
        int which = 0, rc = parse_name("--zero", text, names, &which, &o->error);
        if (rc == 0)
                o->zero = stages[which];
        return rc;
}

static int check_overlap(const struct options *o, struct rv_error_info *err)
{
        const struct policy *policy = policy_get(o->policy);
        if (!o->overlap_allreduce)
                return 0;
        if (o->zero)
                return rv_fail(
                        err, RV_EPLAN,
                        "--overlap-allreduce is for --zero 0: with --zero %d gradients are reduce-scattered "
                        "when the pipeline has ended",
                        o->zero);
        if (o->tp > 1)
                return rv_fail(err, RV_ENOTBUILT, "--overlap-allreduce with --tp above 1 is not built yet");
        if (o->policy == POLICY_INTERLEAVED || policy->deferred)
                return rv_fail(err, RV_ENOTBUILT,
                               "--overlap-allreduce with --schedule %s is not built yet; there are axonn, "
                               "gpipe and 1f1b",
                               policy->name);
        return 0;
}

static int parse_precision(struct options *o, const char *text)
{
        const int half = half_of_precision(text);
        if (half < 0)
                return rv_fail(&o->error, RV_EINPUT,
                               "--precision: '%s' is not known; there are fp32, and with fp32 master "
                               "parameters mixed (fp16) and bf16",
                               text);
        o->mixed = half != HALF_NONE;
        o->bf16 = half == HALF_BF16;
        o->precision_given = true;
        return 0;
}

static int parse_recompute(struct options *o, const char *text)
{
        int which = recompute_of_name(text);
        if (which < 0)
                return rv_fail(
                        &o->error, RV_EINPUT,
                        "--recompute: '%s' is not known; there are none, full, selective, layer, and the "
                        "sets norms, swiglu and norms,swiglu",
                        text);
        o->recompute = (enum recompute)which;
        return 0;
}

static int parse_memory(struct options *o, const char *option, const char *text, enum memory_space space)
{
        int64_t bytes = 0;
        if (options_parse_bytes(text, &bytes) || bytes == 0)
                return rv_fail(&o->error, RV_EINPUT,
                               "%s: '%.64s' is not a size such as 4096, 500MB or 2GiB (from 1 byte to 9e18; "
                               "units: kB, MB, "
                               "GB, TB, KiB, MiB, GiB, TiB)",
                               option, text);
        o->memory[space] = bytes;
        return 0;
}

static int parse_plan_option(struct options *o, int key, const char *text)
{
        int64_t number = 0;
        int rc;
        switch (key) {
        case KEY_PP:
                return options_parse_count("--pp", text, 1, LARGEST_GRID, &o->pp, &o->error);
        case KEY_DP:
                return options_parse_count("--dp", text, 1, LARGEST_GRID, &o->dp, &o->error);
        case KEY_MICRO_BATCH_SIZE:
                return options_parse_count("--micro-batch-size", text, 1, LARGEST_GRID, &o->micro_batch_size,
                                           &o->error);
        case KEY_BATCH_SIZE:
                rc = options_parse_int("--batch-size", text, 1, LARGEST_BATCH, &number, &o->error);
                if (rc == 0)
                        o->batch_size = number;
                return rc;
        case KEY_SEQ_LEN:
                return options_parse_count("--seq-len", text, 1, LARGEST_BATCH, &o->seq_len, &o->error);
        case KEY_SCHEDULE:
                return parse_schedule(o, text);
        case KEY_PIPELINE_LIMIT:
                return options_parse_count("--pipeline-limit", text, 1, LARGEST_BATCH, &o->pipeline_limit,
                                           &o->error);
        case KEY_CLIP:
                return parse_clip(o, text);
        case KEY_BUCKET_PARAMS:
                rc = options_parse_int("--bucket-params", text, 1, INT64_C(1) << 40, &number, &o->error);
                if (rc == 0)
                        o->bucket_parameters = number;
                return rc;
        case KEY_ALLREDUCE_BUCKETS:
                return options_parse_count("--allreduce-buckets", text, 1, LARGEST_GRID,
                                           &o->allreduce_buckets, &o->error);
        case KEY_PRECISION:
                return parse_precision(o, text);
        case KEY_OFFLOAD:
                o->offload = true;
                return 0;
        case KEY_OFFLOAD_ACTIVATIONS:
                o->offload_activations = true;
                return 0;
        case KEY_RECOMPUTE:
                return parse_recompute(o, text);
        case KEY_DEVICE_MEMORY:
                return parse_memory(o, "--device-memory", text, MEMORY_DEVICE);
        case KEY_HOST_MEMORY:
                return parse_memory(o, "--host-memory", text, MEMORY_HOST);
        case KEY_MESSAGES:
                return parse_route(o, "--messages", text, &o->messages);
        case KEY_ALLREDUCE:
                return parse_route(o, "--allreduce", text, &o->allreduce);
        case KEY_DEVICE:
                return options_parse_device(text, &o->device, &o->error);
        case KEY_FUSION:
                return options_parse_fusion(text, &o->fusion, &o->error);
        case KEY_REPORT:
                return options_parse_path("--report", text, &o->report, &o->error);
        case KEY_TRACE:
                return options_parse_path("--trace", text, &o->trace, &o->error);
        case KEY_TP:
                return options_parse_count("--tp", text, 1, LARGEST_GRID, &o->tp, &o->error);
        case KEY_VIRTUAL_STAGES:
                return options_parse_count("--virtual-stages", text, 1, LARGEST_GRID, &o->virtual_stages,
                                           &o->error);
        case KEY_SEQUENCE_PARALLEL:
                o->sequence_parallel = true;
                return 0;
        case KEY_OVERLAP_ALLREDUCE:
                o->overlap_allreduce = true;
                return 0;
        case KEY_SPLIT:
                return parse_split(o, text);
        case KEY_P2P:
                return parse_p2p(o, text);
        case KEY_ORDER:
                return parse_order(o, text);
        default:
                assert(key == KEY_ZERO);
                return parse_zero(o, text);
        }
}

static error_t common_parser(int key, char *text, struct argp_state *state)
{
        struct options *o = state->input;
        if (key < KEY_PP || key > KEY_ZERO)
                return ARGP_ERR_UNKNOWN;
        if (parse_plan_option(o, key, text) == 0)
                return 0;
        if (options_error(state))
                *options_error(state) = o->error;
        return EINVAL;
}

static error_t plan_parser(int key, char *text, struct argp_state *state)
{
        struct options *o = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = o;
                return 0;
        }
        if (key == ARGP_KEY_ARG && !o->model) {
                o->model = text;
                return 0;
        }
        return common_parser(key, text, state);
}

const struct argp options_common_argp = {.options = common_options, .parser = common_parser};
static const struct argp_child plan_children[] = {{&options_common_argp, 0, NULL, 0}, {0}};
const struct argp options_argp = {.options = plan_options, .parser = plan_parser, .children = plan_children};

static int micro_batches(const struct options *o)
{
        return (int)(o->batch_size / ((int64_t)o->dp * o->micro_batch_size));
}

/* Shards take the same decisions in the same order, so a schedule may not depend on what arrives first. */
static int check_shards(const struct options *o, struct rv_error_info *err)
{
        if (o->sequence_parallel && o->tp == 1)
                return rv_fail(err, RV_EPLAN,
                               "--sequence-parallel splits among the shards of --tp, which is 1");
        if (o->tp > 1 && o->pp > 2 && o->policy == POLICY_AXONN)
                return rv_fail(
                        err, RV_EPLAN,
                        "on a stage between others --schedule axonn goes by what arrives first, on which the "
                        "shards of --tp %d could disagree: with --pp above 2 take a schedule of fixed order, "
                        "such as 1f1b or gpipe",
                        o->tp);
        if (o->tp > 1 && o->offload_activations)
                return rv_fail(err, RV_ENOTBUILT, "--offload-activations with --tp above 1 is not built yet");
        return 0;
}

/* What is sound by itself, and too large to be counted or scheduled. */
static int check_sizes(const struct options *o, struct rv_error_info *err)
{
        if ((int64_t)micro_batches(o) * o->virtual_stages > MOST_PIECES)
                return rv_fail(err, RV_EPLAN,
                               "--batch-size %lld makes %d micro-batches a pipeline%s, at most %d are "
                               "scheduled: a larger --micro-batch-size makes fewer",
                               (long long)o->batch_size, micro_batches(o),
                               o->virtual_stages > 1 ? ", each in several chunks" : "",
                               MOST_PIECES / o->virtual_stages);
        struct memory_plan memory = options_memory(o, 0); /* the stage that stores the most */
        if (!memory_countable(&o->gpt, &memory))
                return rv_fail(err, RV_EPLAN,
                               "a rank of this plan needs more than an exbibyte (2^60 bytes): %s with "
                               "--seq-len %d, --micro-batch-size %d and %d of them stored is too large",
                               o->gpt.name, o->seq_len, o->micro_batch_size, memory.slots);
        struct plan plan = options_plan(o, false);
        int64_t updates = gpt_parameters(&o->gpt) / plan_update_parameters(&plan);
        if (updates > MOST_UPDATES)
                return rv_fail(err, RV_EPLAN,
                               "--bucket-params %lld makes %lld optimizer updates of %s, at most %d are "
                               "scheduled: larger buckets make fewer",
                               (long long)o->bucket_parameters, (long long)updates, o->gpt.name,
                               MOST_UPDATES);
        return 0;
}

/* A bucket is a part of the parameters: one that is asked for may not be more than all of them. */
static int resolve_bucket(struct options *o, struct rv_error_info *err)
{
        int64_t all = gpt_parameters(&o->gpt);
        if (o->bucket_parameters > all)
                return rv_fail(err, RV_EPLAN,
                               "--bucket-params %lld is more than the %lld parameters of %s: a bucket is a "
                               "part of them",
                               (long long)o->bucket_parameters, (long long)all, o->gpt.name);
        if (!o->bucket_parameters)
                o->bucket_parameters = all < DEFAULT_BUCKET_PARAMETERS ? all : DEFAULT_BUCKET_PARAMETERS;
        return 0;
}

int64_t options_ranks(const struct options *o)
{
        return (int64_t)o->pp * o->dp * o->tp;
}

char *options_grid(const struct options *o, char text[OPTIONS_GRID])
{
        int length = snprintf(text, OPTIONS_GRID, "--pp %d x --dp %d", o->pp, o->dp);
        if (o->tp > 1)
                snprintf(text + length, OPTIONS_GRID - (size_t)length, " x --tp %d", o->tp);
        return text;
}

/* Zero 3: layers are gathered from all ranks. */
static int check_layers_shared(const struct options *o, struct rv_error_info *err)
{
        if (o->zero != 3)
                return 0;
        if (o->pp > 1 || o->tp > 1)
                return rv_fail(err, RV_EPLAN,
                               "--zero 3 is for --pp 1 and --tp 1: its replicas, here of --pp %d and --tp "
                               "%d, gather "
                               "every layer whole",
                               o->pp, o->tp);
        if (o->allreduce == ROUTE_STAGED)
                return rv_fail(err, RV_ENOTBUILT, "--allreduce staged with --zero 3 is not built yet");
        if (options_parts_backward(o))
                return rv_fail(err, RV_ENOTBUILT, "--schedule %s with --zero 3 is not built yet",
                               policy_get(o->policy)->name);
        return 0;
}

/* Interleaved: as many equal parts of the model on each rank as are asked for. */
static int check_chunks(const struct options *o, struct rv_error_info *err)
{
        const char *name = policy_get(o->policy)->name;
        if (o->policy != POLICY_INTERLEAVED && o->virtual_stages > 1)
                return rv_fail(err, RV_EPLAN, "--virtual-stages %d is for --schedule interleaved, not %s",
                               o->virtual_stages, name);
        if (o->policy != POLICY_INTERLEAVED)
                return 0;
        if (o->virtual_stages < 2)
                return rv_fail(
                        err, RV_EPLAN,
                        "--schedule interleaved needs --virtual-stages of 2 or more: chunks of the model "
                        "that each rank works on");
        if (o->pp < 2)
                return rv_fail(err, RV_EPLAN, "--schedule interleaved needs --pp of 2 or more, not %d",
                               o->pp);
        if (o->gpt.n_layer % ((int64_t)o->pp * o->virtual_stages))
                return rv_fail(err, RV_EPLAN,
                               "--pp %d x --virtual-stages %d = %lld does not divide the n_layer %d of %s",
                               o->pp, o->virtual_stages, (long long)o->pp * o->virtual_stages, o->gpt.n_layer,
                               o->gpt.name);
        return 0;
}

/* Other stages than the last have a layer each at least. */
static int check_split(const struct options *o, struct rv_error_info *err)
{
        if (o->split != SPLIT_EVEN && o->virtual_stages > 1)
                return rv_fail(
                        err, RV_EPLAN,
                        "--split is even with --schedule interleaved, whose chunks are of equal sizes");
        if (o->split > o->gpt.n_layer - (o->pp - 1))
                return rv_fail(
                        err, RV_EPLAN,
                        "--split %d: of the n_layer %d of %s the last of --pp %d stages can have %d at most",
                        o->split, o->gpt.n_layer, o->gpt.name, o->pp, o->gpt.n_layer - (o->pp - 1));
        return 0;
}

int options_check(struct options *o, int ranks, struct rv_error_info *err)
{
        char text[OPTIONS_GRID];
        int64_t grid = options_ranks(o), step = (int64_t)o->dp * o->micro_batch_size;
        if (grid != ranks)
                return rv_fail(err, RV_EPLAN, "%s needs %lld rank%s, but there %s %d", options_grid(o, text),
                               (long long)grid, rv_plural(grid), ranks == 1 ? "is" : "are", ranks);
        int rc = gpt_check_shards(&o->gpt, o->tp, err);
        if (rc)
                return rc;
        if (o->sequence_parallel && (int64_t)o->micro_batch_size * o->seq_len % o->tp)
                return rv_fail(
                        err, RV_EPLAN,
                        "--sequence-parallel: --tp %d does not divide the %lld tokens of a micro-batch "
                        "(--micro-batch-size %d x --seq-len %d)",
                        o->tp, (long long)o->micro_batch_size * o->seq_len, o->micro_batch_size, o->seq_len);
        if (!partition_recomputes(&o->gpt, o->recompute))
                return rv_fail(err, RV_EPLAN, "--recompute %s: %s has no SwiGLU",
                               recompute_name(o->recompute), o->gpt.name);
        if (o->pp > o->gpt.n_layer)
                return rv_fail(err, RV_EPLAN, "--pp %d needs at least as many layers, but %s has n_layer %d",
                               o->pp, o->gpt.name, o->gpt.n_layer);
        rc = check_chunks(o, err);
        if (rc == 0)
                rc = check_split(o, err);
        if (rc == 0)
                rc = check_layers_shared(o, err);
        if (rc)
                return rc;
        if (o->seq_len > o->gpt.n_positions)
                return rv_fail(err, RV_EPLAN, "--seq-len %d is longer than the n_positions %d of %s",
                               o->seq_len, o->gpt.n_positions, o->gpt.name);
        if (o->batch_size % step)
                return rv_fail(err, RV_EPLAN,
                               "--batch-size %lld is not divisible by --dp %d x --micro-batch-size %d = %lld",
                               (long long)o->batch_size, o->dp, o->micro_batch_size, (long long)step);
        if (o->policy == POLICY_INTERLEAVED && micro_batches(o) % o->pp)
                return rv_fail(
                        err, RV_EPLAN,
                        "--schedule interleaved takes micro-batches in groups of --pp %d, but --batch-size "
                        "%lld makes %d a pipeline",
                        o->pp, (long long)o->batch_size, micro_batches(o));
        rc = resolve_bucket(o, err);
        return rc ? rc : check_sizes(o, err);
}

int options_check_given(const struct options *o, struct rv_error_info *err)
{
        if (!o->batch_size)
                return rv_fail(err, RV_EINPUT,
                               "--batch-size is missing: the sequences of one batch over all ranks");
        if (!o->micro_batch_size)
                return rv_fail(
                        err, RV_EINPUT,
                        "--micro-batch-size is missing: the sequences that go through a stage at once");
        if (o->pipeline_limit && o->policy != POLICY_AXONN)
                return rv_fail(err, RV_EPLAN,
                               "--pipeline-limit is for --schedule axonn; %s has its own limit",
                               policy_get(o->policy)->name);
        if (o->tp > 1 && options_parts_backward(o))
                return rv_fail(err, RV_ENOTBUILT, "--schedule %s with --tp above 1 is not built yet",
                               policy_get(o->policy)->name);
        if (o->offload_activations && options_parts_backward(o))
                return rv_fail(
                        err, RV_EPLAN,
                        "--offload-activations is not for --schedule %s: it keeps stored activations on the "
                        "device until the gradients of weights have their turn",
                        policy_get(o->policy)->name);
        if (o->blocking && o->policy == POLICY_AXONN)
                return rv_fail(
                        err, RV_EPLAN,
                        "--p2p blocking needs a schedule whose order is fixed, such as 1f1b: axonn works on "
                        "whatever message came first, so it cannot wait for one of them");
        if (o->offload && !o->mixed)
                return rv_fail(err, RV_EPLAN,
                               "--offload needs --precision mixed or bf16: in fp32 the parameters on the "
                               "device are the "
                               "master parameters");
        int rc = check_overlap(o, err);
        return rc ? rc : check_shards(o, err);
}

static int settle(struct options *o, int ranks, struct rv_error_info *err)
{
        if (!o->seq_len)
                o->seq_len = o->gpt.n_positions;
        o->fused = o->fusion != FUSION_OFF;
        return options_check(o, ranks, err);
}

int options_resolve_gpt(struct options *o, int ranks, struct rv_error_info *err)
{
        int rc = options_check_given(o, err);
        return rc ? rc : settle(o, ranks, err);
}

int options_resolve(struct options *o, int ranks, struct rv_error_info *err)
{
        if (!o->model)
                return rv_fail(
                        err, RV_EINPUT,
                        "MODEL is missing: the name of a preset (such as tiny) or the path of a config.json");
        int rc = options_check_given(o, err);
        if (rc == 0)
                rc = gpt_load(&o->gpt, o->model, err);
        return rc ? rc : settle(o, ranks, err);
}

const char *options_device(const struct options *o)
{
        return o->device ? o->device : "cpu";
}

static int choose_route(enum route *route, bool reaches, const char *option, const char *what,
                        struct rv_error_info *err)
{
        if (*route == ROUTE_AUTO)
                *route = reaches ? ROUTE_DIRECT : ROUTE_STAGED;
        if (*route == ROUTE_DIRECT && !reaches)
                return rv_fail(err, RV_EPLAN,
                               "%s direct: this network does not %s device memory; staged (or auto) goes "
                               "through host memory",
                               option, what);
        return 0;
}

int options_choose_routes(struct options *o, bool sends_device_memory, bool sums_device_memory,
                          struct rv_error_info *err)
{
        int rc = choose_route(&o->messages, sends_device_memory, "--messages", "send from or receive into",
                              err);
        return rc ? rc : choose_route(&o->allreduce, sums_device_memory, "--allreduce", "sum", err);
}

struct work options_work(const struct options *o)
{
        return (struct work){
                .micro_batch_size = o->micro_batch_size,
                .seq_len = o->seq_len,
                .element_bytes = o->mixed ? 2 : (int)sizeof(float),
                .recompute = o->recompute,
                .bf16 = o->bf16,
                .fused = o->fused,
                .tp = o->tp,
                .sequence_parallel = o->sequence_parallel,
        };
}

bool options_parts_backward(const struct options *o)
{
        return policy_get(o->policy)->deferred != NULL;
}

enum half options_format(const struct options *o)
{
        const struct work work = options_work(o);
        return work_format(&work);
}

struct stage options_stage(const struct options *o, int index)
{
        struct stage whole = partition_interleaved(&o->gpt, o->pp, o->virtual_stages, index);
        const struct work work = options_work(o);
        if (o->split != SPLIT_EVEN && o->pp > 1) {
                const int last = o->split > 0 ? o->split : workload_balanced(&o->gpt, &work, o->pp);
                whole = partition_split(&o->gpt, o->pp, last, index);
        }
        return partition_shard(&whole, o->tp, 0);
}

struct plan options_plan(const struct options *o, bool forward_only)
{
        int element_bytes = options_work(o).element_bytes;
        int64_t tokens = (int64_t)o->micro_batch_size * o->seq_len;
        struct stage first = options_stage(o, 0);
        bool tied = o->gpt.tied && o->pp > 1;
        return (struct plan){
                .pp = o->pp,
                .dp = o->dp,
                .tp = o->tp,
                .order = o->order,
                .virtual_stages = o->virtual_stages,
                .sequence_parallel = o->sequence_parallel,
                .blocking = o->blocking,
                .overlap_allreduce = o->overlap_allreduce && o->dp > 1,
                .zero = o->dp > 1 ? o->zero : 0, /* one replica shares with nobody */
                .micro_batches = micro_batches(o),
                .policy = o->policy,
                .pipeline_limit = o->pipeline_limit,
                .forward_only = forward_only,
                .tied = tied,
                .clip = o->clip > 0,
                .mixed = o->mixed,
                .offload = o->offload,
                .offload_activations = o->offload_activations,
                .stage_messages = o->messages == ROUTE_STAGED && o->pp > 1,
                .stage_allreduce = o->allreduce == ROUTE_STAGED && (o->dp > 1 || tied),
                .message_bytes = tokens / (o->sequence_parallel ? o->tp : 1) * o->gpt.n_embd * element_bytes,
                .load_bytes = tokens * micro_batches(o) * (int64_t)sizeof(int32_t),
                .embedding_parameters =
                        tied ? (int64_t)partition_vocabulary(&o->gpt, &first) * o->gpt.n_embd : 0,
                .bucket_parameters = o->bucket_parameters,
                .allreduce_buckets = o->allreduce_buckets,
                .element_bytes = element_bytes,
        };
}

/* Parameters whose gradients are summed on the host: all of a stage that has replicas, or of a pipeline
 * without any the embedding that its ends share. */
static int64_t staged_gradients(const struct plan *plan, const struct stage *stage, int64_t parameters)
{
        if (!plan->stage_allreduce)
                return 0;
        return plan->dp > 1 ? parameters : stage->first || stage->last ? plan->embedding_parameters : 0;
}

struct core_stage options_core_stage(const struct options *o, int index, int shard)
{
        const struct stage first = options_stage(o, index), stage = partition_shard(&first, o->tp, shard);
        const struct memory_plan memory = options_memory(o, index);
        struct core_stage part = {.stage = index,
                                  .parameters = partition_parameters(&o->gpt, &stage),
                                  .slot_bytes = memory_layout(&o->gpt, &stage, &memory).slot};
        const struct plan plan = options_plan(o, false);
        if (plan.zero == 3) {
                const struct partition_units units = partition_units(&o->gpt);
                part.parameters = plan_share(&plan, part.parameters);
                part.units = (struct core_units){.blocks = stage.layers,
                                                 .embedding = units.embedding,
                                                 .block = units.block,
                                                 .head = units.head,
                                                 .head_gradient = units.head_gradient};
        }
        if (o->sequence_parallel)
                part.replicated_count = partition_replicated(&o->gpt, &stage, &part.replicated_offset);
        if (stage.chunks > 1) {
                const struct memory_layout layout = memory_layout(&o->gpt, &stage, &memory);
                part.embedded_bytes = layout.embedded;
                part.head_bytes = layout.head;
                part.slot_bytes -= part.embedded_bytes + part.head_bytes;
        }
        return part;
}

static int64_t shard_parameters(const struct plan *plan, int stage, int64_t parameters)
{
        if (plan->zero == 3)
                return plan_share(plan, parameters);
        const struct core_stage part = {.stage = stage, .parameters = parameters};
        const struct shares shares = shares_of(plan, &part);
        return shares_elements(&shares);
}

struct memory_plan options_memory(const struct options *o, int stage)
{
        struct plan plan = options_plan(o, false);
        struct core_limits limits = core_limits(&plan, stage);
        struct stage part = options_stage(o, stage);
        int64_t parameters = partition_parameters(&o->gpt, &part);
        return (struct memory_plan){
                .work = options_work(o),
                .micro_batches = plan.micro_batches,
                .slots = limits.slots,
                .embedded_slots = part.first ? core_chunk_slots(&plan, stage, 0) : 0,
                .head_slots = part.last ? core_chunk_slots(&plan, stage, plan.virtual_stages - 1) : 0,
                .host_slots = limits.host_slots,
                .input_buffers = limits.inputs,
                .gradient_buffers = limits.gradients,
                .deferred = limits.deferred,
                .stage_messages = plan.stage_messages,
                .staged_gradients = staged_gradients(&plan, &part, parameters),
                .shard_parameters = plan.zero ? shard_parameters(&plan, stage, parameters) : 0,
                .gathered = plan.zero == 3,
                .offload = o->offload,
                .update_parameters = o->offload ? core_update_parameters(&plan, parameters) : 0,
                .update_buffers = o->offload ? PLAN_UPDATE_BUFFERS : 0,
        };
}

/* What one call of options_parse carries through argp: the outermost argp comes first, because it is what
 * every parser's state leads to. */
struct parse_context {
        struct argp outer;
        void *input;
        struct rv_error_info *err;
        int asked; /* KEY_HELP, KEY_USAGE or KEY_VERSION */
};

static const struct argp_option help_options[] = {
        {"help", KEY_HELP, 0, 0, "Print this help", -1},
        {"usage", KEY_USAGE, 0, 0, "Print a short summary of the options", -1},
        {"version", KEY_VERSION, 0, 0, "Print the version", -1},
        {0},
};

static error_t outer_parser(int key, char *text, struct argp_state *state)
{
        (void)text;
        struct parse_context *context = state->input;
        switch (key) {
        case ARGP_KEY_INIT:
                state->child_inputs[0] = context->input;
                return 0;
        case KEY_HELP:
        case KEY_USAGE:
        case KEY_VERSION:
                context->asked = key;
                return ECANCELED;
        default:
                return ARGP_ERR_UNKNOWN;
        }
}

struct rv_error_info *options_error(const struct argp_state *state)
{
        if (state->root_argp->parser != outer_parser)
                return NULL;
        return ((const struct parse_context *)state->root_argp)->err;
}

static void print_help(const struct argp *argp, char *argv0, int asked)
{
        const char *slash = strrchr(argv0, '/');
        char name[64];
        snprintf(name, sizeof name, "%s", slash ? slash + 1 : argv0);
        if (strncmp(name, "ranvier-", 8) == 0)
                name[7] = ' ';
        if (asked == KEY_VERSION)
                printf("%s %s\n", name, RANVIER_VERSION);
        else
                argp_help(argp, stdout,
                          asked == KEY_USAGE ? ARGP_HELP_USAGE
                                             : ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK,
                          name);
}

int options_parse(const struct argp *argp, int argc, char **argv, void *input, bool quiet,
                  struct rv_error_info *err)
{
        struct argp_child children[] = {{argp, 0, NULL, 0}, {0}};
        struct rv_error_info own = {0};
        struct parse_context context = {
                .outer = {.options = help_options, .parser = outer_parser, .children = children},
                .input = input,
                .err = err ? err : &own,
        };
        context.err->code = RV_OK;
        static const int helps[] = {KEY_HELP, KEY_USAGE, KEY_VERSION, 0};
        int next = argc;
        if (command_line_check(&context.outer, argc, argv, helps, context.err))
                return context.err->code;
        error_t rc = argp_parse(&context.outer, argc, argv, ARGP_NO_ERRS | ARGP_NO_EXIT | ARGP_NO_HELP, &next,
                                &context);
        if (context.asked) {
                if (!quiet)
                        print_help(&context.outer, argv[0], context.asked);
                return file_check_printed(context.err) ? context.err->code : OPTIONS_DONE;
        }
        if (context.err->code)
                return context.err->code;
        if (rc)
                return rv_fail(context.err, RV_ESYSTEM, "the command line cannot be read: %s", strerror(rc));
        if (next < argc)
                return rv_fail(context.err, RV_EINPUT, "unexpected argument '%s'; --help shows what is right",
                               argv[next]);
        return 0;
}
