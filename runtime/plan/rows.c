/* The rows of the flags of a plan, and the values that are of a kind of their own. */
#include "runtime/plan/flags.h"

#include "models/workload.h"
#include "runtime/plan/framework.h"
#include "runtime/base/parse.h"
#include "runtime/sched/policy.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST_GRID = 1048576, LARGEST_BATCH = 1073741824, LARGEST_LAYERS = 1000000 };

/* ---- choices ---- */

static const char *const fusions[] = {[FUSION_AUTO] = "auto", [FUSION_ON] = "on", [FUSION_OFF] = "off", NULL};
static const char *const devices[] = {"cpu", "cuda", NULL};
static const char *const routes[] = {
        [ROUTE_AUTO] = "auto", [ROUTE_DIRECT] = "direct", [ROUTE_STAGED] = "staged", NULL};
static const char *const ways_of_messages[] = {"async", "blocking", NULL};
static const char *const grid_overlaps[] = {[GRID_OVERLAP_NONE] = "none",
                                            [GRID_OVERLAP_OAR] = "oar",
                                            [GRID_OVERLAP_ORS] = "ors",
                                            [GRID_OVERLAP_OAG] = "oag",
                                            NULL};
static const char *const context_exchanges[] = {
        [CONTEXT_RING] = "ring", [CONTEXT_ALL_GATHER] = "all-gather", NULL};
static const char *const switched[] = {"off", "on", NULL};
static const char *const scalings[] = {[SCALING_DELAYED] = "delayed", [SCALING_CURRENT] = "current", NULL};
static const char *const gradient_dtypes[] = {
        [GRADIENTS_AUTO] = "auto", [GRADIENTS_16_BIT] = "16-bit", [GRADIENTS_FP32] = "fp32", NULL};
static const char *const times_to_gather[] = {
        [GATHER_EACH_MICRO_BATCH] = "micro-batch", [GATHER_EACH_BATCH] = "batch", NULL};
static const char *const dispatchers[] = {
        [DISPATCHER_ALL_TO_ALL] = "all-to-all", [DISPATCHER_DEEPEP] = "deepep", NULL};
const struct option_words options_fusion_words = {.names = fusions},
                          options_device_words = {.names = devices};
/* Written by the first call of flags_all. */
static const char *schedule_names[POLICIES + 1], *precision_names[DTYPES + FORMATS];
static const char *const zeros[] = {"0", "1", "2", "3", NULL};
static const char *const splits[] = {"even", "balanced", NULL};
static const char *const sizes_of_logits[] = {"auto", "all", NULL};
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

/* Writes the names of all schedules, with `between` between them, or, with_help, each name with its help.
 * Returns `text`. */
static char *list_schedules(const char *between, bool with_help, char *text, size_t size)
{
        size_t end = 0;
        text[0] = 0;
        for (int id = 0; id < POLICIES && end < size; id++) {
                const struct policy *policy = policy_get((enum policy_id)id);
                end += (size_t)snprintf(text + end, size - end, "%s%s%s%s", id ? between : "", policy->name,
                                        with_help ? ": " : "", with_help ? policy->help : "");
        }
        return text;
}

static bool goes_by_arrival(const struct options *o)
{
        return policy_get(o->policy)->by_arrival;
}

static bool fills_waits(const struct options *o)
{
        return policy_get(o->policy)->fills_waits;
}

static bool has_experts(const struct options *o)
{
        return o->gpt.n_expert > 0;
}

static bool has_shards(const struct options *o)
{
        return o->tp > 1;
}

static bool has_context(const struct options *o)
{
        return options_context_ranks(o) > 1;
}

static bool has_whole_backwards(const struct options *o)
{
        return !options_parts_backward(o);
}

static bool is_not_fp8(const struct options *o)
{
        return o->format != FORMAT_FP8;
}

static bool quantizes(const struct options *o)
{
        return o->format != FORMAT_STORED;
}

/* As one number: T; of a grid, which is the only one so large, its three in ten bits each. */
enum { SHARD_GRID = 1 << 30, SHARD_BITS = 10, LARGEST_SHARDS = (1 << SHARD_BITS) - 1 };

static int shards_value(const struct options *o)
{
        const int x = options_shards_x(o), y = options_shards_y(o), z = options_shards_z(o);
        return options_shard_grid(o) ? SHARD_GRID | z << 2 * SHARD_BITS | y << SHARD_BITS | x : o->tp;
}

static void set_shards(struct options *o, int value)
{
        const bool grid = value & SHARD_GRID;
        const int y = value >> SHARD_BITS & LARGEST_SHARDS;
        o->tp_x = grid ? value & LARGEST_SHARDS : 1;
        o->tp_z = grid ? value >> 2 * SHARD_BITS & LARGEST_SHARDS : 1;
        o->tp = grid ? o->tp_x * y * o->tp_z : value;
}

static int parse_shards(struct options *o, const char *text, struct rv_error_info *err)
{
        int sizes[3], end = 0;
        o->tp_x = o->tp_z = 1;
        if (!strpbrk(text, ",x"))
                return parse_count("--tp", text, 1, LARGEST_GRID, &o->tp, err);
        const bool three = sscanf(text, "%4d,%4d,%4d%n", &sizes[0], &sizes[1], &sizes[2], &end) == 3 ||
                           sscanf(text, "%4dx%4dx%4d%n", &sizes[0], &sizes[1], &sizes[2], &end) == 3;
        bool right = three && text[end] == 0 && strspn(text, "0123456789,x") == strlen(text);
        for (int i = 0; right && i < 3; i++)
                right = sizes[i] >= 1 && sizes[i] <= LARGEST_SHARDS;
        if (!right || (int64_t)sizes[0] * sizes[1] * sizes[2] > LARGEST_GRID)
                return rv_fail(
                        err, RV_EINPUT,
                        "--tp: '%.32s' is neither a number of shards nor a grid of them such as 2,2,1 or "
                        "2x2x1, X times Y times Z, from 1 to %d each and %d in all",
                        text, LARGEST_SHARDS, LARGEST_GRID);
        o->tp_x = sizes[0];
        o->tp_z = sizes[2];
        o->tp = sizes[0] * sizes[1] * sizes[2];
        return 0;
}

static void write_shards(const struct options *o, char *text, size_t size)
{
        if (options_shard_grid(o))
                snprintf(text, size, "%dx%dx%d", options_shards_x(o), options_shards_y(o),
                         options_shards_z(o));
        else
                snprintf(text, size, "%d", o->tp);
}

static int parse_split(struct options *o, const char *text, struct rv_error_info *err)
{
        int64_t last = 0;
        if (strcmp(text, "even") == 0 || strcmp(text, "balanced") == 0) {
                o->split = text[0] == 'e' ? SPLIT_EVEN : SPLIT_BALANCED;
                return 0;
        }
        if (parse_int("--split", text, 0, INT_MAX, &last, err))
                return rv_fail(
                        err, RV_EINPUT,
                        "--split: '%.64s' is neither even, balanced, nor a number of layers for the last "
                        "stage",
                        text);
        o->split = (int)last;
        return 0;
}

static void write_split(const struct options *o, char *text, size_t size)
{
        if (o->split >= 0)
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

static int parse_capacity(struct options *o, const char *text, struct rv_error_info *err)
{
        char *end;
        const double number = strtod(text, &end);
        if (end == text || *end || !isfinite(number) || (number != 0 && number < 1))
                return rv_fail(
                        err, RV_EINPUT,
                        "--expert-capacity: '%s' is not a number from 1 (an even share) up, or 0 (all that "
                        "may come)",
                        text);
        o->expert_capacity = number;
        return 0;
}

static void write_capacity(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%g", o->expert_capacity);
}

static int parse_precision(struct options *o, const char *text, struct rv_error_info *err)
{
        if (!precision_of_name(text, &o->dtype, &o->format))
                return rv_fail(err, RV_EINPUT,
                               "--precision: '%s' is not known; there are fp32, and with fp32 master "
                               "parameters mixed (fp16), bf16, and for predictions fp8 and nvfp4",
                               text);
        o->precision_given = true;
        return 0;
}

static void write_precision(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%s", precision_name(o->dtype, o->format));
}

static int parse_recompute(struct options *o, const char *text, struct rv_error_info *err)
{
        int which = recompute_of_name(text);
        if (which < 0)
                return parse_unknown("--recompute", text, recompute_words.names, err);
        o->recompute = (enum recompute)which;
        return 0;
}

static void write_recompute(const struct options *o, char *text, size_t size)
{
        snprintf(text, size, "%s", recompute_name(o->recompute));
}

static int parse_size(const char *option, const char *text, int64_t *bytes, struct rv_error_info *err)
{
        int64_t found = 0;
        if (parse_bytes(text, &found) || found == 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: '%.64s' is not a size such as 4096, 500MB or 2GiB (from 1 byte to 9e18; "
                               "units: kB, MB, "
                               "GB, TB, KiB, MiB, GiB, TiB)",
                               option, text);
        *bytes = found;
        return 0;
}

static int parse_logits(struct options *o, const char *text, struct rv_error_info *err)
{
        const bool automatic = strcmp(text, "auto") == 0;
        if (!automatic && strcmp(text, "all") != 0)
                return parse_size("--logits", text, &o->logits_bytes, NULL)
                               ? rv_fail(err, RV_EINPUT,
                                         "--logits: '%.64s' is neither auto, all, nor a size such as 500MB "
                                         "or "
                                         "2GiB",
                                         text)
                               : 0;
        o->logits_bytes = automatic ? 0 : INT64_MAX;
        return 0;
}

static void write_logits(const struct options *o, char *text, size_t size)
{
        if (o->logits_bytes == 0 || o->logits_bytes == INT64_MAX)
                snprintf(text, size, "%s", o->logits_bytes ? "all" : "auto");
        else
                snprintf(text, size, "%lldB", (long long)o->logits_bytes);
}

static int parse_device_memory(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_size("--device-memory", text, &o->memory[MEMORY_DEVICE], err);
}

static int parse_host_memory(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_size("--host-memory", text, &o->memory[MEMORY_HOST], err);
}

static int parse_like(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_path("--like", text, &o->like, err);
}

static int parse_without(struct options *o, const char *text, struct rv_error_info *err)
{
        return parse_path("--without", text, &o->without, err);
}

/* ---- parts of rows ---- */

/* A row's place in struct options. */
#define AT(store_as, member) .store = (store_as), .offset = offsetof(struct options, member)
#define FROM(first, last)    .min = (first), .max = (last)

#define CONFLICTS(...)                                                                                       \
        .conflicts = (struct flag_conflict[])                                                                \
        {                                                                                                    \
                __VA_ARGS__,                                                                                 \
                {                                                                                            \
                        .sentence = NULL                                                                     \
                }                                                                                            \
        }

static bool has_stages(const struct options *o)
{
        return o->pp > 1;
}

static bool has_replicas(const struct options *o)
{
        return options_replicas(o) > 1;
}

static bool sums_after(const struct options *o)
{
        return o->zero < 2 && has_replicas(o);
}

static bool gathers_units(const struct options *o)
{
        return o->zero == 3 && has_replicas(o);
}

static bool has_groups_of_shares(const struct options *o)
{
        return o->zero > 0 && (o->shard_replicas == 0 || o->shard_replicas < options_replicas(o));
}

static bool reduces_units(const struct options *o)
{
        return o->zero >= 2 && has_replicas(o);
}

static bool has_stages_and_replicas(const struct options *o)
{
        return o->pp > 1 && has_replicas(o);
}

/* From so many tokens on attention and activations of a sequence are worth its exchanges between ranks;
 * shorter ones are spread where that is asked for. */
static bool has_long_sequences(const struct options *o)
{
        enum { LONG = 8192 };
        return o->seq_len >= LONG;
}

/* ---- what is proposed where memory is short ---- */

/* As it is, and the other way around. */
static bool propose_offload(const struct options *o, int nth, int *value)
{
        *value = o->offload != (nth == 1);
        return nth < 2;
}

static bool propose_offload_activations(const struct options *o, int nth, int *value)
{
        *value = o->offload_activations != (nth == 1);
        return nth < 2;
}

/* More stages in the place of replicas. */
static bool propose_stages(const struct options *o, int nth, int *value)
{
        for (*value = o->pp; *value <= o->gpt.n_layer; ++*value)
                if (o->pp * o->dp % *value == 0 && nth-- == 0)
                        return true;
        return false;
}

/* Ranks of a sequence in the place of replicas: each doubles them. */
static bool propose_context(const struct options *o, int nth, int *value)
{
        *value = o->cp << nth;
        return nth == 0 || (has_long_sequences(o) && *value <= PROGRAM_CONTEXT_RANKS &&
                            o->dp % (1 << nth) == 0 && o->seq_len % (2 * *value) == 0);
}

static bool propose_smaller(const struct options *o, int nth, int *value)
{
        *value = o->micro_batch_size - nth;
        return *value >= 1;
}

/* Deeper recomputation: of a framework's plan that of whole layers, as frameworks have it. */
static bool propose_recompute(const struct options *o, int nth, int *value)
{
        const enum recompute deeper[] = {RECOMPUTE_SELECTIVE,
                                         o->framework ? RECOMPUTE_LAYER : RECOMPUTE_FULL};
        *value = o->recompute;
        for (size_t i = 0; nth > 0 && i < sizeof deeper / sizeof *deeper; i++) {
                const bool same =
                        deeper[i] == RECOMPUTE_SELECTIVE && (o->fused || !gpt_stores_scores(&o->gpt));
                if (same || recompute_depth(deeper[i]) <= recompute_depth(o->recompute))
                        continue;
                *value = deeper[i];
                nth--;
        }
        return nth == 0;
}

/* The optimizer's state, and gradients too, where they are not shared yet. */
static bool propose_zero(const struct options *o, int nth, int *value)
{
        const bool more = o->zero < 2 && options_replicas(o) > 1;
        *value = o->zero + nth;
        return nth == 0 || (more && *value <= 2);
}

/* ---- the rows ---- */

/* A list in a sweep. */
#define LIST(...)                                                                                            \
        .sweep = SWEEP_LIST, .axis = &(const struct flag_axis)                                               \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }
#define WORDS(...)                                                                                           \
        .words = &(const struct option_words)                                                                \
        {                                                                                                    \
                __VA_ARGS__                                                                                  \
        }
#define VALUES(...)                                                                                          \
        {                                                                                                    \
                {__VA_ARGS__}, sizeof((int[]){__VA_ARGS__}) / sizeof(int)                                    \
        }

/* Of --schedule, from what the policies say of themselves; written by the first
 * call of flags_all. */
static char schedule_help[2048], schedule_list_help[320];

#define POLICY_VALUE(id, object) POLICY_##id,

/* clang-format off */
static const struct flag flags[] = {
        {.name = "pp", .argument = "P", .scope = FLAG_OF_ONE, AT(STORE_INT, pp), FROM(1, LARGEST_GRID),
         .propose = propose_stages,
         .help = "Pipeline stages, AxoNN's G_inter (default 1)"},
        {.name = "dp", .argument = "D", .scope = FLAG_OF_ONE, AT(STORE_INT, dp), FROM(1, LARGEST_GRID),
         .help = "Replicas of the pipeline, AxoNN's G_data (default: what stages and shards leave of the GPUs, or ranks)"},
        {.name = "logical-dp", .argument = "L", .scope = FLAG_OF_ONE, AT(STORE_INT, logical_dp), FROM(1, LARGEST_GRID),
         .report = REPORT_IF_SET,
         .help = "The D replicas stand for L, D times a power of two: each works on the micro-batches of L / D of them, one "
                 "behind the other, and adds up their gradients in the order in which L ranks would, so that a training "
                 "goes on with the same bits on fewer ranks. Takes log2(L / D) more arrays of gradients (default: D)",
         CONFLICTS({{{"logical-dp", ABOVE, 1}, {"zero", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with {zero}, which sums gradients after each micro-batch, is not built yet: --zero 1 is"},
                   {{{"logical-dp", ABOVE, 1}, {"overlap-allreduce", IS, true}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with --overlap-allreduce is not built yet"},
                   {{{"logical-dp", ABOVE, 1}, {"virtual-stages", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with --virtual-stages above 1 is not built yet"},
                   {{{"logical-dp", ABOVE, 1}}, .also = options_parts_backward, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with {schedule}, whose backward is in two parts, is not built yet"},
                   {{{"logical-dp", ABOVE, 1}, {"ep", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with {ep}, whose replicas exchange tokens, is not built yet"},
                   {{{"logical-dp", ABOVE, 1}, {"cp", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with {cp}, whose ranks sum gradients of the same sequences first, is not built yet"},
                   {{{"logical-dp", ABOVE, 1}, {"sequence-parallel", IS, true}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with --sequence-parallel, whose shards sum gradients first, is not built yet"},
                   {{{"logical-dp", ABOVE, 1}, {"tp", ABOVE, LARGEST_GRID}}, .code = RV_ENOTBUILT,
                    .sentence = "{logical-dp} with a grid of shards, {tp}, is not built yet"})},
        {.name = "tp", .argument = "T", .scope = FLAG_OF_ONE, AT(STORE_INT, tp), FROM(1, LARGEST_GRID),
         .parse = parse_shards, .write = write_shards, .value = shards_value, .set = set_shards,
         .help = "Shards of each stage, AxoNN's G_intra (default 1), which must divide the model's heads: products "
                 "are split as Megatron-LM splits them, with all-reduces in every layer; P x D x T ranks in all. In a "
                 "prediction also a grid X,Y,Z, or XxYxZ: heads are split over Y, the residual stream's columns over X, "
                 "and a micro-batch's sequences over Z, which shares weights",
         LIST(.argument = "T,T,...", .help = "Shards of each stage, such as 1,2 or, of grids, 4,2x2x1 (default 1)", .all = VALUES(1, 2, 4, 8),
              .megatron = VALUES(1, 2, 4, 8), .label = "tp %s", .label_default = true),
         CONFLICTS({{{"tp", ABOVE, 1}, {"pp", ABOVE, 1}}, .also = fills_waits, .code = RV_EPLAN,
                    .sentence = "{schedule} makes gradients of weights where a stage would wait for what arrives, "
                                "on which the shards of {tp} could disagree: with --pp above 1 take a schedule of "
                                "fixed order, such as zero-bubble"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"pp", ABOVE, 2}}, .also = goes_by_arrival, .code = RV_ENOTBUILT,
                    .sentence = "on a stage between others {schedule} goes by what arrives first, which shards of a "
                                "grid, {tp}, tell each other nothing of: with --pp above 2 take a schedule of fixed "
                                "order, such as 1f1b or gpipe"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"sequence-parallel", IS, true}}, .code = RV_ENOTBUILT,
                    .sentence = "--sequence-parallel with a grid of shards, {tp}, is not built yet"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"tp-overlap", ABOVE, 0}}, .code = RV_ENOTBUILT,
                    .sentence = "{tp-overlap} with a grid of shards, {tp}, is not built yet"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"overlap-allreduce", IS, true}}, .code = RV_ENOTBUILT,
                    .sentence = "--overlap-allreduce with a grid of shards, {tp}, is not built yet"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"ep", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{ep} with a grid of shards, {tp}, is not built yet"},
                   {{{"tp", ABOVE, LARGEST_GRID}, {"cp", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{cp} with a grid of shards, {tp}, is not built yet"})},
        {.name = "ep", .argument = "E", .scope = FLAG_OF_ONE, AT(STORE_INT, ep), FROM(1, LARGEST_GRID),
         .help = "Of a mixture of experts: over how many replicas, of neighbouring numbers, the experts of each layer "
                 "are spread (default 1: each replica has them all); tokens go to them and come back by all-to-alls. "
                 "It must divide the replicas, D or D x C, and the model's experts",
         LIST(.argument = "E,E,...", .help = "Replicas over which experts are spread (default 1)",
              .all = VALUES(1, 2, 4, 8), .megatron = VALUES(1, 2, 4, 8), .matters = has_experts,
              .label = "ep %s"),
         CONFLICTS({{{"ep", ABOVE, 1}, {"pp", ABOVE, 2}}, .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "on a stage between others {schedule} goes by what arrives first, on which the "
                                "replicas of {ep} could disagree: with --pp above 2 take a schedule of fixed order, "
                                "such as 1f1b or gpipe"},
                   {{{"ep", ABOVE, 1}}, .also = options_parts_backward, .code = RV_ENOTBUILT,
                    .sentence = "{schedule} with --ep above 1 is not built yet"},
                   {{{"ep", ABOVE, 1}, {"overlap-allreduce", IS, true}}, .code = RV_ENOTBUILT,
                    .sentence = "--overlap-allreduce with --ep above 1 is not built yet"},
                   {{{"ep", ABOVE, 1}, {"zero", IS, 2}}, .code = RV_ENOTBUILT,
                    .sentence = "{zero} with --ep above 1 is not built yet: --zero 3 and --zero 1 are"})},
        {.name = "etp", .argument = "T", .scope = FLAG_OF_ONE, AT(STORE_INT, etp), FROM(1, LARGEST_GRID),
         .report = REPORT_IF_SET,
         .help = "With --ep and --tp: over how many shards an expert is split: as all else (default), or 1: experts are "
                 "whole, and spread over the shards of E / tp replicas, so E counts shards too (Megatron-LM's "
                 "expert-tensor-parallel-size). Needs --sequence-parallel",
         .sweep = SWEEP_FIXED},
        {.name = "dispatcher", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_INT, dispatcher),
         .names = dispatchers, .report = REPORT_IF_SET,
         .help = "With --ep, in predictions: all-to-all (default) sends a token to each of its experts; deepep sends it to "
                 "each node once, and there to each rank once, and what comes back the same way",
         .sweep = SWEEP_FIXED},
        {.name = "cp", .argument = "C", .scope = FLAG_OF_ONE, AT(STORE_INT, cp), FROM(1, PROGRAM_CONTEXT_RANKS),
         .propose = propose_context,
         .help = "Context parallelism: over how many ranks each sequence is spread (default 1), D x C replicas in all; "
                 "each rank has two pieces of 2 C, one from either end of the sequence, and attention exchanges keys "
                 "and values. 2 C must divide S",
         LIST(.argument = "C,C,...",
              .help = "Ranks over which each sequence is spread (default 1; --plans tries others from 8192 tokens on)",
              .all = VALUES(1, 2, 4, 8), .megatron = VALUES(1, 2, 4, 8), .matters = has_long_sequences, .label = "cp %s"),
         CONFLICTS({{{"cp", ABOVE, 1}, {"pp", ABOVE, 2}}, .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "on a stage between others {schedule} goes by what arrives first, on which the "
                                "ranks of {cp} could disagree: with --pp above 2 take a schedule of fixed order, "
                                "such as 1f1b or gpipe"},
                   {{{"cp", ABOVE, 1}, {"pp", ABOVE, 1}}, .also = fills_waits, .code = RV_EPLAN,
                    .sentence = "{schedule} makes gradients of weights where a stage would wait for what arrives, "
                                "on which the ranks of {cp} could disagree: with --pp above 1 take a schedule of "
                                "fixed order, such as zero-bubble"},
                   {{{"cp", ABOVE, 1}, {"fusion", IS, FUSION_OFF}}, .code = RV_ENOTBUILT,
                    .sentence = "--fusion off with --cp above 1 is not built: attention by parts of a sequence is a "
                                "fused kernel"})},
        {.name = "cp-exchange", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_INT, cp_exchange),
         .names = context_exchanges, .report = REPORT_IF_SET,
         .help = "With --cp: keys and values go from rank to rank in a ring (default), beside attention to those that are "
                 "there; or an all-gather brings all of them before",
         LIST(.argument = "HOW,...", .help = "With --cp: ring (default), all-gather, or both in a list",
              .all = VALUES(CONTEXT_RING, CONTEXT_ALL_GATHER), .megatron = VALUES(CONTEXT_RING),
              .matters = has_context, .label = "%s")},
        {.name = "expert-capacity", .argument = "F", .scope = FLAG_OF_MANY, AT(STORE_REAL, expert_capacity),
         .parse = parse_capacity, .write = write_capacity, .report = REPORT_IF_SET,
         .help = "With --ep: memory for F times an even share of the rows of a rank's experts, in each layer; a training "
                 "in which more come ends (default: 0, for all that may come)",
         .sweep = SWEEP_FIXED},
        {.name = "micro-batch-size", .argument = "B",
         .scope = FLAG_OF_ONE, AT(STORE_INT, micro_batch_size), FROM(1, LARGEST_GRID),
         .propose = propose_smaller,
         .help = "Sequences that go through a stage at once (required)",
         .required = "the sequences that go through a stage at once"},
        {.name = "batch-size", .argument = "G",
         .scope = FLAG_OF_ONE, AT(STORE_WHOLE, batch_size), FROM(1, LARGEST_BATCH),
         .help = "Sequences of one batch over all ranks, a multiple of D x B (required, but of ranvier plan)",
         .sweep = SWEEP_FIXED, .required = "the sequences of one batch over all ranks"},
        {.name = "seq-len", .argument = "S",
         .scope = FLAG_OF_ONE, AT(STORE_INT, seq_len), FROM(1, LARGEST_BATCH),
         .help = "Tokens of a sequence (default: the model's n_positions)",
         .sweep = SWEEP_FIXED},
        {.name = "from", .argument = "FILE", .scope = FLAG_OF_ONE, AT(STORE_TEXT, from), .report = REPORT_NEVER,
         .help = "Take the plan, and the model, from what another tool is started with: a launch script of Megatron-LM, a "
                 "configuration of DeepSpeed (JSON), torchtitan (TOML) or accelerate (YAML), a config.json, or a line of "
                 "ranvier; flags that are given here take the place of what it says (docs/launch.md)"},
        {.name = "report", .argument = "FILE", .scope = FLAG_OF_ONE, AT(STORE_TEXT, report),
         .report = REPORT_NEVER,
         .help = "Write the result: as JSON, for ranvier compare and plot, or, if FILE ends in .md, as Markdown"},
        {.name = "trace", .argument = "FILE", .scope = FLAG_OF_ONE, AT(STORE_TEXT, trace),
         .report = REPORT_NEVER,
         .help = "Write every operation as Chrome trace JSON, for Perfetto and plot; of a training, those of the "
                 "last three batches"},
        {.name = "sequence-parallel", .scope = FLAG_OF_MANY, AT(STORE_BOOL, sequence_parallel),
         .help = "With --tp: split along the sequence what is not split otherwise (LayerNorms, residuals, messages); "
                 "all-gathers and reduce-scatters take the all-reduces' place",
         LIST(.argument = "WHICH", .help = "With shards: no, yes, or no,yes (default no)", .all = VALUES(0, 1),
              .megatron = VALUES(0, 1), .label = "sequence parallel"),
         CONFLICTS({{{"sequence-parallel", IS, true}, {"tp", BELOW, 2}}, .code = RV_EPLAN, .unpaired = true,
                    .sentence = "--sequence-parallel splits among the shards of --tp, which is 1"})},
        {.name = "tp-overlap", .argument = "N", .scope = FLAG_OF_MANY, AT(STORE_INT, tp_overlap), FROM(1, 8),
         .report = REPORT_IF_SET,
         .help = "With --tp: shards add up and gather beside work that does not need it (by default beside none): a backward sums "
                 "its input's gradient beside its weights', and gathers what these need beside that input's. And each "
                 "product whose results they add up, or whose rows they gather, is cut into N pieces of rows of tokens: "
                 "while one is summed or gathered, another is computed. 1: none is cut",
         LIST(.argument = "N,N,...",
              .help = "With shards: pieces of products beside which shards sum and gather (default: beside none)",
              .all = VALUES(0), .megatron = VALUES(0), .matters = has_shards, .label = "overlap %s"),
         CONFLICTS({{{"tp-overlap", ABOVE, 0}, {"tp", BELOW, 2}}, .code = RV_EPLAN, .unpaired = true,
                    .sentence = "--tp-overlap is of products that the shards of --tp add up, which is 1"})},
        {.name = "grid-overlap", .argument = "WHAT", .scope = FLAG_OF_MANY, AT(STORE_INT, grid_overlap),
         .names = grid_overlaps, .report = REPORT_IF_CHANGED,
         .help = "With --tp X,Y,Z: which collectives of shards run beside products, by AxoNN's names, each with those "
                 "before it: none; oar, sums of inputs' gradients; ors, reduce-scatters of weights' gradients along Z; "
                 "oag, gathers of weights along Z (default)",
         LIST(.argument = "WHAT,...", .help = "With grids of shards: none, oar, ors, oag (default), or some of these",
              .all = VALUES(GRID_OVERLAP_OAG, GRID_OVERLAP_NONE, GRID_OVERLAP_OAR, GRID_OVERLAP_ORS),
              .megatron = VALUES(GRID_OVERLAP_OAG), .matters = options_shard_grid, .label = "%s")},
        {.name = "schedule", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_INT, policy),
         .names = schedule_names,
         .help = schedule_help,
         LIST(.argument = "NAME,...", .help = schedule_list_help, .all = {{POLICY_LIST(POLICY_VALUE)}, POLICIES},
              .megatron = VALUES(POLICY_1F1B, POLICY_INTERLEAVED), .matters = has_stages, .label = "%s",
              .label_default = true),
         CONFLICTS({{{"schedule", IS, POLICY_INTERLEAVED}, {"virtual-stages", BELOW, 2}}, .code = RV_EPLAN,
                    .unpaired = true,
                    .sentence = "--schedule interleaved needs --virtual-stages of 2 or more: chunks of the model that "
                                "each rank works on"},
                   {{{"schedule", IS, POLICY_INTERLEAVED}, {"pp", BELOW, 2}}, .code = RV_EPLAN,
                    .sentence = "--schedule interleaved needs --pp of 2 or more, not <pp>"})},
        {.name = "split", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_INT, split),
         .parse = parse_split, .write = write_split, WORDS(.names = splits),
         .help = "Layers over stages: even, the default, as many on each, so that the last one, which has the output "
                 "projection too, works longest; balanced: fewer on the last one, by floating-point operations; or a "
                 "number, the last one's layers, which may be 0 (the others share the rest evenly; a single stage has all)",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"split", IS, 0}, {"zero", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{split} with {zero}, which gathers layers, is not built yet: the last stage needs one"},
                   {{{"split", IS, 0}}, .also = options_parts_backward, .code = RV_ENOTBUILT,
                    .sentence = "{split} with {schedule} is not built yet: a stage whose backward is in two parts needs a layer"},
                   {{{"split", IS_NOT, SPLIT_EVEN}, {"virtual-stages", ABOVE, 1}}, .code = RV_EPLAN,
                    .sentence = "--split is even with --schedule interleaved, whose virtual stages have as many layers as each other or one less"})},
        {.name = "virtual-stages", .argument = "V",
         .scope = FLAG_OF_MANY, AT(STORE_INT, virtual_stages), FROM(1, LARGEST_GRID),
         .help = "interleaved: chunks of the model that each rank works on, 2 or more, so P x V virtual stages; P divides the "
                 "micro-batches of a pipeline. Virtual stages have as many layers as each other or one less: first the last "
                 "one, with the loss, then the first, with the embedding, then others from behind",
         LIST(.argument = "V,V,...", .help = "Of the interleaved schedule, such as 2,4; 1 for the others (default 1)",
              .all = VALUES(1, 2, 4), .megatron = VALUES(1, 2, 4), .matters = has_stages, .label = "%s virtual"),
         CONFLICTS({{{"virtual-stages", ABOVE, 1}, {"schedule", IS_NOT, POLICY_INTERLEAVED}}, .code = RV_EPLAN,
                    .unpaired = true,
                    .sentence = "{virtual-stages} is for --schedule interleaved, not <schedule>"})},
        {.name = "pipeline-limit", .argument = "L",
         .scope = FLAG_OF_MANY, AT(STORE_INT, pipeline_limit), FROM(1, LARGEST_BATCH),
         .help = "axonn: micro-batches under way in a pipeline at once (default P); more hide messages and cost "
                 "memory",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"pipeline-limit", ABOVE, 0}, {"schedule", IS_NOT, POLICY_AXONN}}, .code = RV_EPLAN,
                    .sentence = "--pipeline-limit is for --schedule axonn; <schedule> has its own limit"})},
        {.name = "deferred-layers", .argument = "K", .scope = FLAG_OF_MANY, AT(STORE_INT, deferred_layers),
         FROM(1, LARGEST_LAYERS), .report = REPORT_IF_SET,
         .help = "Schedules whose backward is in two parts: only of the first K layers of each stage are the weights' "
                 "gradients left to the second part (default: of all)",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"deferred-layers", ABOVE, 0}}, .also = has_whole_backwards, .code = RV_EPLAN,
                    .sentence = "{deferred-layers} is for schedules whose backward is in two parts, not <schedule>"})},
        {.name = "clip", .argument = "X", .scope = FLAG_OF_MANY, AT(STORE_REAL, clip), .parse = parse_clip,
         .write = write_clip,
         .help = "Clip gradients to this global norm (default 1.0; 0 is off); updates wait for the norm: only --clip "
                 "0 lets them overlap with the all-reduce",
         .sweep = SWEEP_FIXED},
        {.name = "precision", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_INT, dtype),
         .parse = parse_precision, .write = write_precision, WORDS(.names = precision_names),
         .help = "fp32, the default of training; a prediction's is its profile's, mixed before bf16 before fp32. "
                 "mixed: parameters, gradients, activations and messages in fp16, master parameters and Adam's "
                 "moments in fp32, dynamic loss scaling; bf16: the same in bf16, whose range needs no loss scaling. "
                 "In predictions also fp8 and nvfp4: bf16 but for the products of blocks' linear layers, as "
                 "Transformer Engine has them",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"precision", IS, DTYPE_BF16}, {"tp", ABOVE, LARGEST_GRID}}, .also = quantizes, .code = RV_ENOTBUILT,
                    .sentence = "{precision} with a grid of shards, {tp}, is not built yet"})},
        {.name = "scaling", .argument = "WHEN", .scope = FLAG_OF_MANY, AT(STORE_INT, scaling),
         .names = scalings, .report = REPORT_IF_CHANGED,
         .help = "With --precision fp8: tensors are scaled by maxima of batches before (delayed, the default, and what "
                 "block-wise scales such as MXFP8's cost), or by their own (current, or dynamic), for which each is read "
                 "once more before it is quantized",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"scaling", IS, SCALING_CURRENT}}, .also = is_not_fp8, .code = RV_EPLAN,
                    .sentence = "{scaling} is for --precision fp8: no other one has both ways"})},
        {.name = "gradients", .argument = "DTYPE", .scope = FLAG_OF_MANY, AT(STORE_INT, gradients),
         .names = gradient_dtypes, .report = REPORT_IF_CHANGED,
         .help = "In mixed, bf16, fp8 and nvfp4 precision: what gradients of parameters are made, added up and summed over "
                 "replicas in: 16-bit; fp32 (Megatron-LM's main gradients), which take 4 bytes a parameter for 2 and 4 of a "
                 "copy; or auto, the default: fp32 but in mixed precision and with --zero 2 and 3 (see --reduce-dtype). Sums "
                 "of many micro-batches in bf16 are far off, see docs/limits.md",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"gradients", IS, GRADIENTS_FP32}, {"precision", IS, DTYPE_FP32}}, .code = RV_EPLAN,
                    .sentence = "{gradients} is for --precision mixed, bf16, fp8 and nvfp4: in fp32 gradients are fp32 anyway"},
                   {{{"gradients", IS, GRADIENTS_FP32}, {"zero", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{gradients} with {zero} is not built yet: there --reduce-dtype fp32 reduces gradients, and "
                                "keeps them, in fp32"})},
        {.name = "offload", .scope = FLAG_OF_MANY, AT(STORE_BOOL, offload),
         .propose = propose_offload,
         .help = "Keep master parameters and moments in host memory; they are fetched, updated and written back "
                 "bucket by bucket (needs --precision mixed or bf16); with --clip 0 beside the all-reduce, else "
                 "after it",
         CONFLICTS({{{"offload", IS, true}, {"precision", IS, DTYPE_FP32}}, .code = RV_EPLAN,
                    .sentence = "--offload needs --precision mixed or bf16: in fp32 the parameters on the device are "
                                "the master parameters"})},
        {.name = "offload-activations", .scope = FLAG_OF_MANY, AT(STORE_BOOL, offload_activations),
         .propose = propose_offload_activations,
         .help = "Keep stored activations in host memory between forward and backward; a stage that stores at most "
                 "four micro-batches has nothing to offload",
         CONFLICTS({{{"offload-activations", IS, true}}, .also = options_parts_backward, .code = RV_EPLAN,
                    .sentence = "--offload-activations is not for {schedule}: it keeps stored activations on the "
                                "device until the gradients of weights have their turn"},
                   {{{"offload-activations", IS, true}, {"tp", ABOVE, 1}, {"pp", ABOVE, 1}},
                    .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "--offload-activations: {schedule} goes by which activations are back first, on "
                                "which the shards of {tp} could disagree: with --pp above 1 take a schedule of fixed "
                                "order, such as 1f1b or gpipe"},
                   {{{"offload-activations", IS, true}, {"ep", ABOVE, 1}, {"pp", ABOVE, 1}},
                    .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "--offload-activations: {schedule} goes by which activations are back first, on "
                                "which the replicas of {ep} could disagree: with --pp above 1 take a schedule of "
                                "fixed order, such as 1f1b or gpipe"},
                   {{{"offload-activations", IS, true}, {"cp", ABOVE, 1}, {"pp", ABOVE, 1}},
                    .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "--offload-activations: {schedule} goes by which activations are back first, on "
                                "which the ranks of {cp} could disagree: with --pp above 1 take a schedule of "
                                "fixed order, such as 1f1b or gpipe"})},
        {.name = "recompute", .argument = "WHAT", .scope = FLAG_OF_MANY, AT(STORE_INT, recompute),
         .parse = parse_recompute, .write = write_recompute, .words = &recompute_words,
         .propose = propose_recompute,
         .help = "What is not stored, and computed again before it is needed. none, the default; selective: "
                 "attention's scores and softmax (with fused attention, which stores none, the same as none); full: "
                 "all of a layer but its input, about a third more time; layer: as full, and the layer's last "
                 "product too, as frameworks do; norms, swiglu, or norms,swiglu: what these make, of a Llama a "
                 "quarter of what is stored, for a few elementwise kernels"},
        {.name = "device-memory", .argument = "SIZE",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, memory[MEMORY_DEVICE]), .parse = parse_device_memory, .report = REPORT_NEVER,
         .help = "What a rank has on its device, such as 2GiB (default: the platform's, or a rank's share of its "
                 "machine's memory); a plan that needs more is refused, with changes that would make it fit",
         .sweep = SWEEP_FIXED},
        {.name = "host-memory", .argument = "SIZE",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, memory[MEMORY_HOST]), .parse = parse_host_memory, .report = REPORT_NEVER,
         .help = "What a rank has in its host's memory for what its device copies from and to: offloaded data, "
                 "staged messages and gradients, the batch's tokens (default and refusal: as --device-memory)",
         .sweep = SWEEP_FIXED},
        {.name = "logits", .argument = "SIZE", .scope = FLAG_OF_MANY, AT(STORE_WHOLE, logits_bytes),
         .parse = parse_logits, .write = write_logits, .report = REPORT_IF_CHANGED, WORDS(.names = sizes_of_logits),
         .help = "The most memory that logits take at once, with fused kernels and without shards: a micro-batch's rows "
                 "go through the output projection and the loss in parts of that size. all: in one. auto, the default: all "
                 "on a GPU, if it fits its memory, and in a prediction where the profile was calibrated so; else 128MiB",
         .sweep = SWEEP_FIXED},
        {.name = "bucket-params", .argument = "N",
         .scope = FLAG_OF_MANY, AT(STORE_WHOLE, bucket_parameters), FROM(1, INT64_C(1) << 40),
         .help = "Parameters of one optimizer update (default 16000000, or all of a stage that has fewer); with "
                 "--offload it is worked through in thirds, in three buffers: one is fetched, one updated, one "
                 "written back",
         .sweep = SWEEP_FIXED},
        {.name = "allreduce-buckets", .argument = "C",
         .scope = FLAG_OF_MANY, AT(STORE_INT, allreduce_buckets), FROM(1, LARGEST_GRID),
         .help = "Buckets of one all-reduce (default 4)",
         .sweep = SWEEP_FIXED},
        {.name = "messages", .argument = "ROUTE", .scope = FLAG_OF_MANY, AT(STORE_INT, messages),
         .names = routes,
         .help = "direct: the network takes them from device memory and puts them there; staged: through host "
                 "memory, by copies that the schedule plans; auto, the default: staged where a GPU's memory is out "
                 "of the network's reach",
         .sweep = SWEEP_FIXED},
        {.name = "allreduce", .argument = "ROUTE", .scope = FLAG_OF_MANY, AT(STORE_INT, allreduce),
         .names = routes,
         .help = "The route of all-reduces of gradients, and of what shards (--tp) sum, gather and scatter, as for --messages",
         .sweep = SWEEP_FIXED,
         CONFLICTS({{{"allreduce", IS, ROUTE_STAGED}, {"zero", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "--allreduce staged with {zero} is not built yet"})},
        {.name = "p2p", .argument = "HOW", .scope = FLAG_OF_MANY, AT(STORE_BOOL, blocking),
         .names = ways_of_messages,
         .help = "async, the default: a stage computes while messages are under way; blocking: it sends and receives "
                 "as Megatron-LM's schedules do, and computes nothing meanwhile (needs a schedule of fixed order: "
                 "not axonn)",
         LIST(.argument = "HOW,...",
              .help = "async, the default; blocking: as Megatron-LM's and DeepSpeed's; or both in a list",
              .all = VALUES(false), .megatron = VALUES(true), .matters = has_stages, .label = "%s",
              .label_default = true),
         CONFLICTS({{{"p2p", IS, true}}, .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "--p2p blocking needs a schedule whose order is fixed, such as 1f1b: <schedule> works on "
                                "whatever message came first, so it cannot wait for one of them"})},
        {.name = "device", .argument = "NAME", .scope = FLAG_OF_MANY, AT(STORE_TEXT, device),
         .parse = parse_device, .report = REPORT_NEVER, WORDS(.names = devices),
         .help = "What computes: cpu or cuda (default: cpu; in a prediction, what the profile was measured on)"},
        {.name = "fusion", .argument = "WHEN", .scope = FLAG_OF_MANY, AT(STORE_INT, fusion), .names = fusions,
         .help = "Kernels that do the work of several: attention that stores no matrix of sequence x sequence, "
                 "products with biases, GELU, residuals and LayerNorm in them, a loss that is made in chunks of rows "
                 "and stores no logits. on, off, or auto, the default: on, in a prediction where the profile has "
                 "them",
         .sweep = SWEEP_FIXED},
        {.name = "zero", .argument = "STAGE", .scope = FLAG_OF_MANY, AT(STORE_INT, zero), .names = zeros,
         .propose = propose_zero,
         .help = "What the replicas share between them: 0, nothing, the default; 1: the optimizer (each updates its "
                 "part of the parameters; gradients are reduce-scattered, weights all-gathered); 2: gradients too, "
                 "which are reduced layer by layer beside backwards; 3: weights as well, which are gathered layer by "
                 "layer (FSDP). 3 is for --pp 1",
         LIST(.argument = "STAGE,...", .help = "What replicas share, such as 0,1 (default 0)", .all = VALUES(0, 1, 2, 3),
              .megatron = VALUES(0, 1), .matters = has_replicas, .label = "zero %s", .label_default = true),
         CONFLICTS({{{"zero", IS, 3}, {"pp", ABOVE, 1}}, .code = RV_EPLAN,
                    .sentence = "--zero 3 is for --pp 1: its replicas, here of {pp}, gather every layer whole"},
                   {{{"zero", ABOVE, 1}, {"tp", ABOVE, LARGEST_GRID}}, .code = RV_ENOTBUILT,
                    .sentence = "{zero} with a grid of shards, {tp}, is not built yet"},
                   {{{"zero", IS, 2}, {"schedule", IS, POLICY_INTERLEAVED}}, .code = RV_ENOTBUILT,
                    .sentence = "--zero 2 with {schedule} is not built yet: it is for one chunk a rank"},
                   {{{"zero", ABOVE, 1}}, .also = options_parts_backward, .code = RV_ENOTBUILT,
                    .sentence = "{schedule} with {zero} is not built yet"},
                   {{{"zero", IS, 3}, {"offload-activations", IS, true}}, .also = goes_by_arrival, .code = RV_EPLAN,
                    .sentence = "--zero 3 --offload-activations needs a schedule whose order is fixed, such as 1f1b: "
                                "<schedule> works on whatever is back first, on which replicas could disagree"})},
        {.name = "unit-layers", .argument = "N", .scope = FLAG_OF_MANY, AT(STORE_INT, unit_layers),
         FROM(1, LARGEST_LAYERS), .report = REPORT_IF_CHANGED,
         .help = "With --zero 2 and 3: blocks that are reduced, and gathered, at once, as one unit (default 1)",
         LIST(.argument = "N,N,...", .help = "With --zero 2 and 3: blocks of a unit (default 1)", .all = VALUES(1),
              .megatron = VALUES(1), .matters = reduces_units, .label = "%s layers a unit"),
         CONFLICTS({{{"unit-layers", ABOVE, 1}, {"zero", BELOW, 2}}, .code = RV_EPLAN,
                    .sentence = "{unit-layers} is for --zero 2 and 3, which reduce or gather layers",
                    .unpaired = true})},
        {.name = "shard-replicas", .argument = "N", .scope = FLAG_OF_MANY, AT(STORE_INT, shard_replicas),
         FROM(1, LARGEST_GRID), .report = REPORT_IF_SET,
         .help = "With --zero, in groups: N replicas of neighbouring numbers share. With 1 they share the optimizer, and gradients are "
                 "summed over all replicas; with 2 and 3, hybrid shards (HSDP), they share parameters, and "
                 "replicas of different groups sum what they have alike once a batch, unit by unit beside its last backward "
                 "(default: all replicas share); N must divide D",
         LIST(.argument = "N,N,...", .help = "With --zero: replicas of a group that shares (default: all)",
              .all = VALUES(0), .megatron = VALUES(0), .matters = has_groups_of_shares, .label = "shared by %s"),
         CONFLICTS({{{"shard-replicas", ABOVE, 0}, {"zero", BELOW, 1}}, .code = RV_EPLAN,
                    .sentence = "{shard-replicas} is for --zero 1, 2 and 3, with which replicas share", .unpaired = true},
                   {{{"shard-replicas", ABOVE, 0}, {"ep", ABOVE, 1}}, .code = RV_ENOTBUILT,
                    .sentence = "{shard-replicas} with {ep} is not built yet"})},
        {.name = "reduce-dtype", .argument = "DTYPE", .scope = FLAG_OF_MANY, AT(STORE_INT, reduced),
         .names = gradient_dtypes, .report = REPORT_IF_CHANGED,
         .help = "With --zero 2 and 3 in mixed or bf16 precision: what gradients are reduced in, and kept in from micro-batch "
                 "to micro-batch: 16-bit, as they are made; fp32, of twice the bytes; or auto, the default: fp32 in bf16, but "
                 "for --gather-each batch",
         LIST(.argument = "DTYPE,...", .help = "With --zero 2 and 3: what gradients are reduced in, auto (default), 16-bit, fp32, or several in "
              "a list", .all = VALUES(GRADIENTS_AUTO), .megatron = VALUES(GRADIENTS_AUTO), .matters = reduces_units, .label = "reduced in %s"),
         CONFLICTS({{{"reduce-dtype", IS, GRADIENTS_FP32}, {"zero", BELOW, 2}}, .code = RV_EPLAN,
                    .sentence = "{reduce-dtype} is for --zero 2 and 3, which reduce layers", .unpaired = true},
                   {{{"reduce-dtype", IS, GRADIENTS_FP32}, {"precision", IS, DTYPE_FP32}}, .code = RV_EPLAN,
                    .sentence = "{reduce-dtype} is for --precision mixed or bf16: in fp32 gradients are reduced in fp32 "
                                "anyway", .unpaired = true},
                   {{{"reduce-dtype", IS, GRADIENTS_FP32}, {"gather-each", IS, GATHER_EACH_BATCH}}, .code = RV_ENOTBUILT,
                    .sentence = "{reduce-dtype} with {gather-each} is not built yet"})},
        {.name = "prefetch", .argument = "N", .scope = FLAG_OF_MANY, AT(STORE_INT, prefetch),
         FROM(0, LARGEST_LAYERS), .report = REPORT_IF_CHANGED,
         .help = "With --zero 3: units whose weights are gathered ahead, beside the work of the one before (default 1; "
                 "0: none)",
         LIST(.argument = "N,N,...", .help = "With --zero 3: units gathered ahead (default 1)", .all = VALUES(1),
              .megatron = VALUES(1), .matters = gathers_units, .label = "%s ahead"),
         CONFLICTS({{{"prefetch", IS_NOT, 1}, {"zero", IS_NOT, 3}}, .code = RV_EPLAN,
                    .sentence = "{prefetch} is for --zero 3, which gathers layers", .unpaired = true})},
        {.name = "reshard-after-forward", .argument = "WHEN", .scope = FLAG_OF_MANY, AT(STORE_BOOL, reshard),
         .names = switched, .report = REPORT_IF_CHANGED,
         .help = "With --zero 3: on, the default: weights are freed after a unit's forward, and gathered again for its "
                 "backward; off: they stay until that is done",
         LIST(.argument = "WHEN,...", .help = "With --zero 3: whether weights are freed between forward and backward, on "
              "(default), off, or both in a list", .all = VALUES(true), .megatron = VALUES(true),
              .matters = gathers_units, .label = "reshard %s"),
         CONFLICTS({{{"reshard-after-forward", IS, false}, {"zero", IS_NOT, 3}}, .code = RV_EPLAN,
                    .sentence = "{reshard-after-forward} is for --zero 3, which gathers layers", .unpaired = true},
                   {{{"reshard-after-forward", IS, false}, {"gather-each", IS, GATHER_EACH_BATCH}}, .code = RV_EPLAN,
                    .sentence = "{reshard-after-forward} is for --gather-each micro-batch: once a batch weights stay "
                                "anyway", .unpaired = true})},
        {.name = "gather-each", .argument = "WHAT", .scope = FLAG_OF_MANY, AT(STORE_INT, gather_each),
         .names = times_to_gather, .report = REPORT_IF_CHANGED,
         .help = "With --zero 2 and 3: gradients are reduced, and with 3 weights gathered, for each micro-batch, the "
                 "default, or once a batch: then they are whole until its end",
         LIST(.argument = "WHAT,...", .help = "With --zero 2 and 3: what layers are reduced and gathered for, micro-batch "
              "(default), batch, or both in a list", .all = VALUES(GATHER_EACH_MICRO_BATCH), .megatron = VALUES(GATHER_EACH_MICRO_BATCH),
              .matters = reduces_units, .label = "each %s"),
         CONFLICTS({{{"gather-each", IS, GATHER_EACH_BATCH}, {"zero", BELOW, 2}}, .code = RV_EPLAN,
                    .sentence = "{gather-each} is for --zero 2 and 3, which reduce or gather layers",
                    .unpaired = true})},
        {.name = "offload-parameters", .scope = FLAG_OF_MANY, AT(STORE_BOOL, offload_parameters), .report = REPORT_IF_SET,
         .help = "With --zero 3: keep a replica's shares of weights in host memory; each is fetched before its layer is gathered, "
                 "and written back when it has been updated. Master parameters and moments stay, unless --offload is given too",
         LIST(.argument = "WHICH", .help = "With --zero 3: shares of weights in host memory: no, yes, or no,yes (default no)",
              .all = VALUES(0), .megatron = VALUES(0), .matters = gathers_units, .label = "parameters offloaded"),
         CONFLICTS({{{"offload-parameters", IS, true}, {"zero", IS_NOT, 3}}, .code = RV_EPLAN,
                    .sentence = "--offload-parameters is for --zero 3, which gathers layers from what it keeps", .unpaired = true})},
        {.name = "order", .argument = "WHICH", .scope = FLAG_OF_MANY, AT(STORE_INT, order), .names = orders,
         .help = "Which ranks are neighbours, after the shards of a stage: stages of a pipeline (default), or "
                 "replicas of a stage",
         LIST(.argument = "WHICH,...", .help = "Which ranks are neighbours: stages (default), replicas, or both in a list",
              .all = VALUES(ORDER_STAGES, ORDER_REPLICAS), .megatron = VALUES(ORDER_REPLICAS),
              .matters = has_stages_and_replicas, .label = "%s first", .label_default = true)},
        {.name = "overlap-allreduce", .scope = FLAG_OF_MANY, AT(STORE_BOOL, overlap_allreduce),
         .report = REPORT_IF_SET,
         .help = "All-reduce gradients while the last backward goes on: each chunk (--allreduce-buckets x "
                 "--bucket-params) as soon as its layers are through; for --zero 0 and --zero 1 "
                 "(reduce-scatters)",
         LIST(.argument = "WHICH", .help = "Gradients summed beside the last backward: no, yes, or no,yes (default no)",
              .all = VALUES(0, 1), .megatron = VALUES(0), .matters = sums_after, .label = "sums beside backwards"),
         CONFLICTS({{{"overlap-allreduce", IS, true}, {"zero", ABOVE, 1}}, .code = RV_EPLAN,
                    .sentence = "--overlap-allreduce is for --zero 0 and 1: with {zero} gradients are reduce-scattered "
                                "beside backwards anyway, layer by layer", .unpaired = true})},
        {.name = "like", .argument = "FRAMEWORK", .scope = FLAG_OF_MANY, AT(STORE_TEXT, like), .parse = parse_like,
         .report = REPORT_IF_CHANGED, .words = &framework_words,
         .help = "Predict the plan as another framework runs it, such as megatron or torchtitan: its defaults for flags "
                 "that are not given, its kernels, launches and memory (ranvier frameworks lists them, with sources; "
                 "a JSON of one's own is taken too)",
         .sweep = SWEEP_FIXED},
        {.name = "without", .argument = "TERM,...", .scope = FLAG_OF_MANY, AT(STORE_TEXT, without),
         .parse = parse_without, .report = REPORT_IF_CHANGED,
         .help = "With --like: leave terms of the framework out, by their names in ranvier frameworks FRAMEWORK; "
                 "kernels stands for all that change what a kernel, launch or batch takes",
         .sweep = SWEEP_FIXED},
};
_Static_assert(sizeof flags / sizeof *flags <= 64, "a flag has a bit of options.given");
/* clang-format on */

static void write_names(void)
{
        for (int id = 0; id < POLICIES; id++)
                schedule_names[id] = policy_get((enum policy_id)id)->name;
        for (int dtype = 0; dtype < DTYPES; dtype++)
                precision_names[dtype] = precision_name((enum dtype)dtype, FORMAT_STORED);
        for (int format = FORMAT_STORED + 1; format < FORMATS; format++)
                precision_names[DTYPES + format - 1] =
                        precision_name(DTYPE_BF16, (enum product_format)format);
}

static const struct flag *row_named(const char *name)
{
        const struct flag *row = flags;
        while (row < flags + sizeof flags / sizeof *flags && strcmp(row->name, name) != 0)
                row++;
        assert(row < flags + sizeof flags / sizeof *flags);
        return row;
}

/* A search asks for the flags of conditions a hundred times a plan. */
static void find_flags_of_conditions(void)
{
        for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
                for (struct flag_conflict *c = flags[i].conflicts; c && c->sentence; c++)
                        for (int k = 0; k < FLAG_CONDITIONS && c->when[k].flag; k++)
                                c->flags[k] = row_named(c->when[k].flag);
}

static void complete_rows(void)
{
        char names[256];
        write_names();
        list_schedules("; ", true, schedule_help, sizeof schedule_help);
        snprintf(schedule_list_help, sizeof schedule_list_help, "Of %s (default axonn)",
                 list_schedules(", ", false, names, sizeof names));
        find_flags_of_conditions();
}

const struct flag *flags_all(int *count)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, complete_rows);
        *count = sizeof flags / sizeof *flags;
        return flags;
}

const struct flag *flag_named(const char *name)
{
        int count;
        flags_all(&count);
        return row_named(name);
}
