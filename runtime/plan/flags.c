#include "runtime/plan/flags.h"

#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_GRID = 1048576, LARGEST_BATCH = 1073741824 };

/* ---- choices ---- */

static const char *const fusions[] = {[FUSION_AUTO] = "auto", [FUSION_ON] = "on", [FUSION_OFF] = "off", NULL};
static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const routes[] = {
        [ROUTE_AUTO] = "auto", [ROUTE_DIRECT] = "direct", [ROUTE_STAGED] = "staged", NULL};
static const char *const ways_of_messages[] = {"async", "blocking", NULL};
static const char *const orders[] = {[ORDER_STAGES] = "stages", [ORDER_REPLICAS] = "replicas", NULL};

const char *route_name(enum route route)
{
        return routes[route];
}

int options_parse_fusion(const char *text, enum options_fusion *fusion, struct rv_error_info *err)
{
        int which = *fusion, rc = parse_name("--fusion", text, fusions, &which, err);
        *fusion = (enum options_fusion)which;
        return rc;
}

int options_parse_device(const char *text, const char **device, struct rv_error_info *err)
{
        int which, rc = parse_name("--device", text, devices, &which, err);
        if (rc == 0)
                *device = devices[which];
        return rc;
}

/* ---- values of their own ---- */

static int parse_device(struct options *o, const char *text, struct rv_error_info *err)
{
        return options_parse_device(text, &o->device, err);
}

static int parse_schedule(struct options *o, const char *text, struct rv_error_info *err)
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
        return rv_fail(err, RV_EINPUT, "--schedule: '%s' is not known; there are %s", text, names);
}

static void write_schedule(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%s", policy_get(o->policy)->name);
}

static int parse_split(struct options *o, const char *text, struct rv_error_info *err)
{
        int64_t last = 0;
        if (strcmp(text, "even") == 0 || strcmp(text, "balanced") == 0) {
                o->split = text[0] == 'e' ? SPLIT_EVEN : SPLIT_BALANCED;
                return 0;
        }
        if (parse_int("--split", text, 1, INT_MAX, &last, err))
                return rv_fail(
                        err, RV_EINPUT,
                        "--split: '%.64s' is neither even, balanced, nor a number of layers for the last "
                        "stage, at least 1",
                        text);
        o->split = (int)last;
        return 0;
}

static void write_split(const struct options *o, char *text, size_t size)
{
        if (o->split > 0)
                snprintf(text, size, "%d", o->split);
        else
                snprintf(text, size, "%s", o->split == SPLIT_EVEN ? "even" : "balanced");
}

static int parse_clip(struct options *o, const char *text, struct rv_error_info *err)
{
        char *end;
        double number = strtod(text, &end);
        if (end == text || *end || !isfinite(number) || number < 0)
                return rv_fail(err, RV_EINPUT, "--clip: '%s' is not a number from 0 (off) up", text);
        o->clip = number;
        return 0;
}

static void write_clip(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%g", o->clip);
}

static int parse_precision(struct options *o, const char *text, struct rv_error_info *err)
{
        const int half = half_of_precision(text);
        if (half < 0)
                return rv_fail(err, RV_EINPUT,
                               "--precision: '%s' is not known; there are fp32, and with fp32 master "
                               "parameters mixed (fp16) and bf16",
                               text);
        o->mixed = half != HALF_NONE;
        o->bf16 = half == HALF_BF16;
        o->precision_given = true;
        return 0;
}

static void write_precision(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%s", half_precision(options_format(o)));
}

static int parse_recompute(struct options *o, const char *text, struct rv_error_info *err)
{
        int which = recompute_of_name(text);
        if (which < 0)
                return rv_fail(
                        err, RV_EINPUT,
                        "--recompute: '%s' is not known; there are none, full, selective, layer, and the "
                        "sets norms, swiglu and norms,swiglu",
                        text);
        o->recompute = (enum recompute)which;
        return 0;
}

static void write_recompute(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%s", recompute_name(o->recompute));
}

static int parse_zero(struct options *o, const char *text, struct rv_error_info *err)
{
        static const char *const names[] = {"0", "1", "3", NULL};
        static const int stages[] = {0, 1, 3};
        if (strcmp(text, "2") == 0)
                return rv_fail(err, RV_ENOTBUILT,
                               "--zero 2 is not built yet: --zero 1 shares the optimizer among the replicas, "
                               "and --zero 3, in predictions, parameters and gradients too");
        int which = 0, rc = parse_name("--zero", text, names, &which, err);
        if (rc == 0)
                o->zero = stages[which];
        return rc;
}

static int parse_memory(struct options *o, const char *option, const char *text, enum memory_space space,
                        struct rv_error_info *err)
{
        int64_t bytes = 0;
        if (parse_bytes(text, &bytes) || bytes == 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: '%.64s' is not a size such as 4096, 500MB or 2GiB (from 1 byte to 9e18; "
                               "units: kB, MB, "
                               "GB, TB, KiB, MiB, GiB, TiB)",
                               option, text);
        o->memory[space] = bytes;
        return 0;
}

static int parse_device_memory(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_memory(o, "--device-memory", text, MEMORY_DEVICE, err);
}

static int parse_host_memory(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_memory(o, "--host-memory", text, MEMORY_HOST, err);
}

/* ---- the rows ---- */

/* A row's place in struct options. */
#define AT(store_as, member) .store = (store_as), .offset = offsetof(struct options, member)
#define FROM(first, last)    .least = (first), .most = (last)

/* clang-format off */
static const struct flag flags[] = {
        {.name = "pp", .argument = "P", .scope = FLAG_OF_ONE, AT(STORE_INT, pp), FROM(1, LARGEST_GRID),
         .help = "Pipeline stages, AxoNN's G_inter (default 1)"},
        {.name = "dp", .argument = "D", .scope = FLAG_OF_ONE, AT(STORE_INT, dp), FROM(1, LARGEST_GRID),
         .help = "Replicas of the pipeline, AxoNN's G_data (default 1)"},
        {.name = "tp", .argument = "T", .scope = FLAG_OF_ONE, AT(STORE_INT, tp), FROM(1, LARGEST_GRID),
         .help = "Shards of each stage, AxoNN's G_intra (default 1), which must divide the model's heads: products "
                 "are split as Megatron-LM splits them, with all-reduces in every layer; P x D x T ranks in all"},
        {.name = "micro-batch-size", .argument = "B",
         .scope = FLAG_OF_ONE, AT(STORE_INT, micro_batch_size), FROM(1, LARGEST_GRID),
         .help = "Sequences that go through a stage at once (required)"},
        {.name = "batch-size", .argument = "G",
         .scope = FLAG_OF_ONE, AT(STORE_WHOLE, batch_size), FROM(1, LARGEST_BATCH),
         .help = "Sequences of one batch over all ranks, a multiple of D x B (required)"},
        {.name = "seq-len", .argument = "S",
         .scope = FLAG_OF_ONE, AT(STORE_INT, seq_len), FROM(1, LARGEST_BATCH),
         .help = "Tokens of a sequence (default: the model's n_positions)"},
        {.name = "report", .argument = "FILE", .scope = FLAG_OF_ONE, AT(STORE_TEXT, report),
         .report = REPORT_NEVER,
         .help = "Write the result: as JSON, for ranvier compare and plot, or, if FILE ends in .md, as Markdown"},
        {.name = "trace", .argument = "FILE", .scope = FLAG_OF_ONE, AT(STORE_TEXT, trace),
         .report = REPORT_NEVER,
         .help = "Write every operation as Chrome trace JSON, for Perfetto and plot; of a training, those of the "
                 "last three batches"},
        {.name = "sequence-parallel", .scope = FLAG_OF_MANY, AT(STORE_BOOL, sequence_parallel),
         .help = "With --tp: split along the sequence what is not split otherwise (LayerNorms, residuals, messages); "
                 "all-gathers and reduce-scatters take the all-reduces' place"},
        {.name = "schedule", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_INT, policy),
         .parse = parse_schedule, .write = write_schedule,
         .help = "axonn: message-driven, the default; gpipe: all forward, then all backward; 1f1b: one forward, one "
                 "backward; interleaved: the same on --virtual-stages chunks of the model a rank, with a shorter "
                 "bubble and more messages; zero-bubble: 1f1b whose gradients of weights fill the bubble (ZB-H1)"},
        {.name = "split", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_INT, split),
         .parse = parse_split, .write = write_split,
         .help = "Layers over stages: even, the default, as many on each, so that the last one, which has the output "
                 "projection too, works longest; balanced: fewer on the last one, by floating-point operations; or a "
                 "number, the last one's layers (the others share the rest evenly; a single stage has all)"},
        {.name = "virtual-stages", .argument = "V",
         .scope = FLAG_OF_MANY, AT(STORE_INT, virtual_stages), FROM(1, LARGEST_GRID),
         .help = "interleaved: chunks of the model that each rank works on, 2 or more; P x V divide the layers, and "
                 "P the micro-batches of a pipeline"},
        {.name = "pipeline-limit", .argument = "L",
         .scope = FLAG_OF_MANY, AT(STORE_INT, pipeline_limit), FROM(1, LARGEST_BATCH),
         .help = "axonn: micro-batches under way in a pipeline at once (default P); more hide messages and cost "
                 "memory"},
        {.name = "clip", .argument = "X", .scope = FLAG_OF_MANY, AT(STORE_REAL, clip), .parse = parse_clip,
         .write = write_clip,
         .help = "Clip gradients to this global norm (default 1.0; 0 is off); updates wait for the norm: only --clip "
                 "0 lets them overlap with the all-reduce"},
        {.name = "precision", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_BOOL, mixed),
         .parse = parse_precision, .write = write_precision,
         .help = "fp32, the default of training; a prediction's is its profile's, mixed before bf16 before fp32. "
                 "mixed: parameters, gradients, activations and messages in fp16, master parameters and Adam's "
                 "moments in fp32, dynamic loss scaling; bf16: the same in bf16, whose range needs no loss scaling"},
        {.name = "offload", .scope = FLAG_OF_MANY, AT(STORE_BOOL, offload),
         .help = "Keep master parameters and moments in host memory; they are fetched, updated and written back "
                 "bucket by bucket (needs --precision mixed or bf16); with --clip 0 beside the all-reduce, else "
                 "after it"},
        {.name = "offload-activations", .scope = FLAG_OF_MANY, AT(STORE_BOOL, offload_activations),
         .help = "Keep stored activations in host memory between forward and backward; a stage that stores at most "
                 "four micro-batches has nothing to offload"},
        {.name = "recompute", .argument = "WHAT", .scope = FLAG_OF_MANY, AT(STORE_INT, recompute),
         .parse = parse_recompute, .write = write_recompute,
         .help = "What is not stored, and computed again before it is needed. none, the default; selective: "
                 "attention's scores and softmax (with fused attention, which stores none, the same as none); full: "
                 "all of a layer but its input, about a third more time; layer: as full, and the layer's last "
                 "product too, as frameworks do; norms, swiglu, or norms,swiglu: what these make, of a Llama a "
                 "quarter of what is stored, for a few elementwise kernels"},
        {.name = "device-memory", .argument = "SIZE",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, memory[MEMORY_DEVICE]), .parse = parse_device_memory, .report = REPORT_NEVER,
         .help = "What a rank has on its device, such as 2GiB (default: the platform's, or a rank's share of its "
                 "machine's memory); a plan that needs more is refused, with changes that would make it fit"},
        {.name = "host-memory", .argument = "SIZE",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, memory[MEMORY_HOST]), .parse = parse_host_memory, .report = REPORT_NEVER,
         .help = "What a rank has in its host's memory for what its device copies from and to: offloaded data, "
                 "staged messages and gradients, the batch's tokens (default and refusal: as --device-memory)"},
        {.name = "bucket-params", .argument = "N",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, bucket_parameters), FROM(1, INT64_C(1) << 40),
         .help = "Parameters of one optimizer update (default 16000000, or all of a stage that has fewer); with "
                 "--offload it is worked through in thirds, in three buffers: one is fetched, one updated, one "
                 "written back"},
        {.name = "allreduce-buckets", .argument = "C",
         .scope = FLAG_OF_MANY, AT(STORE_INT, allreduce_buckets), FROM(1, LARGEST_GRID),
         .help = "Buckets of one all-reduce (default 4)"},
        {.name = "messages", .argument = "ROUTE", .scope = FLAG_OF_MANY, AT(STORE_INT, messages),
         .names = routes,
         .help = "direct: the network takes them from device memory and puts them there; staged: through host "
                 "memory, by copies that the schedule plans; auto, the default: staged where a GPU's memory is out "
                 "of the network's reach"},
        {.name = "allreduce", .argument = "ROUTE", .scope = FLAG_OF_MANY, AT(STORE_INT, allreduce),
         .names = routes,
         .help = "The route of all-reduces of gradients, as for --messages"},
        {.name = "p2p", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_BOOL, blocking),
         .names = ways_of_messages,
         .help = "async, the default: a stage computes while messages are under way; blocking: it sends and receives "
                 "as Megatron-LM's schedules do, and computes nothing meanwhile (needs a schedule of fixed order: "
                 "not axonn)"},
        {.name = "device", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_TEXT, device),
         .parse = parse_device, .report = REPORT_NEVER,
         .help = "What computes: cpu or cuda (default: cpu; in a prediction, what the profile was measured on)"},
        {.name = "fusion", .argument = "WHEN", .scope = FLAG_OF_MANY, AT(STORE_INT, fusion), .names = fusions,
         .help = "Kernels that do the work of several: attention that stores no matrix of sequence x sequence, "
                 "products with biases, GELU, residuals and LayerNorm in them, a loss that is made in chunks of rows "
                 "and stores no logits. on, off, or auto, the default: on, in a prediction where the profile has "
                 "them"},
        {.name = "order", .argument = "WHICH", .scope = FLAG_OF_MANY, AT(STORE_INT, order), .names = orders,
         .help = "Which ranks are neighbours, after the shards of a stage: stages of a pipeline (default), or "
                 "replicas of a stage"},
        {.name = "zero", .argument = "STAGE", .scope = FLAG_OF_MANY, AT(STORE_INT, zero), .parse = parse_zero,
         .help = "What the replicas share between them: 0, nothing, the default; 1: the optimizer (each updates its "
                 "part of the parameters; gradients are reduce-scattered, weights all-gathered); 3: weights and "
                 "gradients too, which are gathered and reduced layer by layer (in a prediction only; for --pp 1 and "
                 "--tp 1)"},
        {.name = "overlap-allreduce", .scope = FLAG_OF_MANY, AT(STORE_BOOL, overlap_allreduce),
         .report = REPORT_IF_SET,
         .help = "All-reduce gradients while the last backward goes on: each chunk (--allreduce-buckets x "
                 "--bucket-params) as soon as its layers are through; for schedules axonn, gpipe and 1f1b, --zero 0 "
                 "and --tp 1"},
};
/* clang-format on */

enum { FLAGS = sizeof flags / sizeof *flags };

const struct flag *flags_all(int *count)
{
        *count = FLAGS;
        return flags;
}

const struct flag *flag_named(const char *name)
{
        for (int i = 0; i < FLAGS; i++)
                if (strcmp(flags[i].name, name) == 0)
                        return &flags[i];
        assert(!"a flag of that name");
        return NULL;
}

static void *place(const struct flag *flag, struct options *o)
{
        return (char *)o + flag->offset;
}

static const void *place_of(const struct flag *flag, const struct options *o)
{
        return (const char *)o + flag->offset;
}

_Static_assert(sizeof(enum policy_id) == sizeof(int) && sizeof(enum route) == sizeof(int) &&
                       sizeof(enum options_fusion) == sizeof(int) && sizeof(enum plan_order) == sizeof(int) &&
                       sizeof(enum recompute) == sizeof(int),
               "choices are stored as ints");

int flag_value(const struct flag *flag, const struct options *o)
{
        assert(flag->store == STORE_BOOL || flag->store == STORE_INT);
        return flag->store == STORE_BOOL ? *(const bool *)place_of(flag, o) : *(const int *)place_of(flag, o);
}

void flag_set(const struct flag *flag, struct options *o, int value)
{
        assert(flag->store == STORE_BOOL || flag->store == STORE_INT);
        if (flag->store == STORE_BOOL)
                *(bool *)place(flag, o) = value;
        else
                *(int *)place(flag, o) = value;
}

int flag_parse(const struct flag *flag, struct options *o, const char *text, struct rv_error_info *err)
{
        char option[32];
        int which = 0, rc;
        snprintf(option, sizeof option, "--%s", flag->name);
        if (flag->parse)
                return flag->parse(o, text, err);
        if (!flag->argument || flag->names) {
                rc = flag->argument ? parse_name(option, text, flag->names, &which, err) : 0;
                if (rc == 0)
                        flag_set(flag, o, flag->argument ? which : true);
                return rc;
        }
        if (flag->store == STORE_TEXT)
                return parse_path(option, text, place(flag, o), err);
        if (flag->store == STORE_INT)
                return parse_count(option, text, (int)flag->least, (int)flag->most, place(flag, o), err);
        return parse_int(option, text, flag->least, flag->most, place(flag, o), err);
}

char *flag_write(const struct flag *flag, const struct options *o, char text[FLAG_TEXT])
{
        if (flag->write)
                flag->write(o, text, FLAG_TEXT);
        else if (flag->names)
                snprintf(text, FLAG_TEXT, "%s", flag->names[flag_value(flag, o)]);
        else if (!flag->argument)
                snprintf(text, FLAG_TEXT, "%s", flag_value(flag, o) ? "yes" : "no");
        else if (flag->store == STORE_INT)
                snprintf(text, FLAG_TEXT, "%d", flag_value(flag, o));
        else if (flag->store == STORE_WHOLE)
                snprintf(text, FLAG_TEXT, "%lld", (long long)*(const int64_t *)place_of(flag, o));
        else
                snprintf(text, FLAG_TEXT, "%s", *(const char *const *)place_of(flag, o));
        return text;
}

bool flag_equal(const struct flag *flag, const struct options *a, const struct options *b)
{
        char one[FLAG_TEXT], other[FLAG_TEXT];
        return strcmp(flag_write(flag, a, one), flag_write(flag, b, other)) == 0;
}

/* ---- for argp ---- */

/* Keys of options without a short form. */
enum { KEY_FLAGS = 0x100 };

static error_t common_parser(int key, char *text, struct argp_state *state)
{
        struct options *o = state->input;
        if (key < KEY_FLAGS || key >= KEY_FLAGS + FLAGS)
                return ARGP_ERR_UNKNOWN;
        if (flag_parse(&flags[key - KEY_FLAGS], o, text, &o->error) == 0)
                return 0;
        if (command_line_error(state))
                *command_line_error(state) = o->error;
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

/* The rows of a scope, behind what `rows` has already. */
static void add_rows(enum flag_scope scope, struct argp_option *rows)
{
        while (rows->doc)
                rows++;
        for (int i = 0; i < FLAGS; i++)
                if (flags[i].scope == scope)
                        *rows++ = (struct argp_option){.name = flags[i].name,
                                                       .key = KEY_FLAGS + i,
                                                       .arg = flags[i].argument,
                                                       .doc = flags[i].help,
                                                       .group = 1};
}

const struct argp *options_common_argp(void)
{
        static struct argp_option rows[FLAGS + 1];
        static const struct argp argp = {.options = rows, .parser = common_parser};
        if (!rows[0].name)
                add_rows(FLAG_OF_MANY, rows);
        return &argp;
}

const struct argp *options_argp(void)
{
        static struct argp_option rows[FLAGS + 2] = {
                {0, 0, 0, 0, "The plan: MODEL is a preset's name or a Hugging Face style config.json", 1}};
        static struct argp_child children[2];
        static const struct argp argp = {.options = rows, .parser = plan_parser, .children = children};
        if (!rows[1].name)
                add_rows(FLAG_OF_ONE, rows);
        children[0].argp = options_common_argp();
        return &argp;
}
