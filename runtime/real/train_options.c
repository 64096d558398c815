#include "runtime/real/train_options.h"

#include "runtime/base/command_line.h"

#include "runtime/base/file.h"
#include "runtime/base/parse.h"
#include "runtime/base/setting.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/newest.h"
#include "runtime/checkpoint/weight_files.h"
#include "runtime/device/device.h"
#include "runtime/launch/launch.h"
#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"
#include "runtime/report/report.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_STEPS = 10000000 };

/* "STEP" or "STEP:RANK"; a user counts steps from 1, as the log does. */
static int parse_injection(void *settings, const char *option, const char *text, struct rv_error_info *err)
{
        struct train_settings *s = settings;
        char step[24];
        int64_t number = 0;
        int rank = 0;
        const size_t length = strcspn(text, ":");
        snprintf(step, sizeof step, "%.*s", (int)length, text);
        if (length >= sizeof step || parse_int(option, step, 1, MAX_STEPS, &number, NULL) ||
            (text[length] && parse_count(option, text + length + 1, 0, INT_MAX, &rank, NULL)))
                return rv_fail(err, RV_EINPUT,
                               "%s: '%.64s' is not STEP or STEP:RANK, such as 5 or 5:1 (steps begin at 1, "
                               "ranks at 0)",
                               option, text);
        s->inject_step = number - 1;
        s->inject_rank = rank;
        return 0;
}

static int parse_checkpoint_every(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        struct train_settings *s = at;
        return parse_every(option, text, MAX_STEPS, &s->checkpoint_steps, &s->checkpoint_seconds, err);
}

/* The two ways to name hosts. */
static int parse_hosts(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        struct train_settings *s = at;
        hosts_free(&s->start.hosts); /* the last one counts */
        s->start.hosts_option = strcmp(option, "--hostfile") == 0 ? "hostfile" : "hosts";
        return strcmp(option, "--hostfile") == 0 ? hosts_read(&s->start.hosts, option, text, err)
                                                 : hosts_parse(&s->start.hosts, option, text, err);
}

static int parse_hang_timeout(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        return parse_seconds(option, text, &((struct train_settings *)at)->start.hang_seconds, err);
}

#define AT(member)          .offset = offsetof(struct train_settings, member)
#define FROM(first, last)   .min = (first), .max = (last)
#define WITHIN(first, last) .low = (first), .high = (last)
#define BELOW_ONE           0.9999999

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_HEADING, .help = "The training:"},
        {SETTING_PATH, "data", .argument = "PATH", AT(data),
         .help = "Text (bytes are the tokens), or a .bin of tokens: nanoGPT's bare uint16 or llm.c's (required)"},
        {SETTING_PATH, "init", .argument = "PATH", AT(init),
         .help = "Initial weights (default: random ones): a folder that transformers saved, as on the Hugging Face "
                 "hub, with model.safetensors or its parts and their index; such an index; or one .safetensors file. "
                 "Without MODEL the model is that of PATH"},
        {SETTING_WHOLE, "steps", .argument = "K", AT(optim.steps), FROM(0, MAX_STEPS),
         .help = "Batches to train (default 100); 0 writes the initial weights"},
        {SETTING_REAL, "lr", .argument = "X", AT(optim.lr), WITHIN(0, 10),
         .help = "Peak learning rate (default 1e-3)"},
        {SETTING_REAL, "min-lr", .argument = "X", AT(optim.min_lr), WITHIN(0, 10),
         .help = "Learning rate at the end of the cosine (default: a tenth of --lr)"},
        {SETTING_WHOLE, "warmup", .argument = "K", AT(optim.warmup), FROM(0, 1000000000),
         .help = "Steps of linear warm-up (default: a tenth of --steps)"},
        {SETTING_REAL, "weight-decay", .argument = "X", AT(optim.weight_decay), WITHIN(0, 10),
         .help = "AdamW's, on matrices and embeddings, not on biases and LayerNorm (default 0.1)"},
        {SETTING_REAL, "beta1", .argument = "X", AT(optim.beta1), WITHIN(0, BELOW_ONE),
         .help = "AdamW's first decay (default 0.9)"},
        {SETTING_REAL, "beta2", .argument = "X", AT(optim.beta2), WITHIN(0, BELOW_ONE),
         .help = "AdamW's second decay (default 0.95)"},
        {SETTING_REAL, "epsilon", .argument = "X", AT(optim.epsilon), WITHIN(1e-15, 1),
         .help = "AdamW's epsilon (default 1e-8)"},
        {SETTING_WHOLE, "seed", .argument = "S", AT(seed), FROM(0, INT64_MAX),
         .help = "Start of the random numbers behind the initial weights and the order of the data (default 1); the "
                 "same seed trains the same model on any grid"},
        {SETTING_HEADING, .help = "What is measured and kept:"},
        {SETTING_WHOLE, "validate-every", .argument = "K", AT(validate_every), FROM(1, 1000000000),
         .help = "Steps between validations (default: only before the first and after the last)"},
        {SETTING_REAL, "validation-fraction", .argument = "X", AT(validation_fraction), WITHIN(0, 0.5),
         .help = "Share of the tokens, at their end, that are kept for validation (default 0.1)"},
        {SETTING_INT, "validation-batches", .argument = "K", AT(validation_batches), FROM(1, 1000000),
         .help = "Batches of one validation, always the same (default 4)"},
        {SETTING_PATH, "log", .argument = "FILE.csv", AT(log),
         .help = "Write losses, learning rate and speed of every step"},
        {SETTING_PATH, "checkpoint", .argument = "PATH", AT(checkpoint),
         .help = "Write the trained model, for transformers, ranvier sample and --init: a folder with config.json and "
                 "model.safetensors, or that file alone if PATH ends in .safetensors"},
        {SETTING_OWN, "checkpoint-every", .argument = "N|TIME", .parse = parse_checkpoint_every,
         .help = "Keep the whole state in the folder --checkpoint, from which --resume goes on: behind every N steps, or when TIME "
                 "has gone by, such as 90s, 10min or 2h, and at the end; it is written beside training. The trained model is "
                 "then PATH/model. SIGTERM or SIGUSR1 keeps one more, and ends the run with status 75"},
        {SETTING_INT, "checkpoints-kept", .argument = "K", AT(checkpoints_kept), FROM(1, 1000000),
         .help = "How many of them stay, the newest (default 3)"},
        {SETTING_PATH, "resume", .argument = "PATH", AT(resume),
         .help = "Go on from the newest whole checkpoint in this folder, or from this one, to --steps in all, on the same grid with "
                 "the same bits; on any other grid too. The log is appended to"},
        {SETTING_SET, "kernels", AT(kernels),
         .help = "Print what share of a batch each kind of kernel takes, and its percent of the machine's roofline, "
                 "measured before the training in a second or so; the report has it too"},
        {SETTING_SET, "json", AT(json), .help = "Print the report as JSON, and nothing else on standard output"},
        {SETTING_TOKENS, "tokens", .argument = "T", AT(tokens),
         .help = "Tokens of the whole training, such as 300B, for the report's days (default: 300B, and below a "
                 "billion parameters no days)"},
        {SETTING_INT, "threads", .argument = "N", AT(threads), FROM(1, DEVICE_MAX_THREADS),
         .help = "Threads of each rank's kernels (default: OMP_NUM_THREADS, or the processors that the rank may use)"},
        {SETTING_PATH, "products", .argument = "PROFILE", AT(products),
         .help = "With --device cuda: the algorithms of matrix products that ranvier calibrate --time-products found the "
                 "fastest, and kept in this profile; for others, and without it, cuBLASLt's first proposal"},
        {SETTING_OWN, "attention", .argument = "WHOSE", AT(attention), .parse = device_parse_attention,
         .words = &device_attention_words,
         .help = "With --device cuda in 16 bits: ours, the default, is this program's kernels of causal attention; cudnn "
                 "is cuDNN's, where it does the shape, else the run ends; auto takes cuDNN's where it can"},
        {SETTING_HEADING, .help = "Instead of mpirun before the command, a training that starts again by itself:"},
        {SETTING_INT, "restarts", .argument = "K", AT(start.restarts), FROM(0, 1000000),
         .help = "Start mpirun from here, and where a rank or a host dies start again from the newest checkpoint, up to K times without a "
                 "new checkpoint in between; then the status is 1. Needs --checkpoint-every. With --resume PATH, where PATH is that of --checkpoint, it goes on "
                 "from what is there, or begins"},
        {SETTING_INT, "ranks", .argument = "N", AT(start.ranks), FROM(1, 1000000),
         .help = "How many to start (default: as many as the grid has; without --dp as many as --hosts have room for)"},
        {SETTING_OWN, "hosts", .argument = "HOST:N,...", .parse = parse_hosts,
         .help = "The hosts, and how many ranks each takes, such as a:4,b:4 (default: what mpirun knows). Before each start they are tried; those "
                 "that do not answer are left out, and if the others have no room for all ranks, --dp becomes what fits"},
        {SETTING_OWN, "hostfile", .argument = "FILE", .parse = parse_hosts,
         .help = "The same from a file of lines such as 'a slots=4'"},
        {SETTING_TEXT, "mpirun", .argument = "COMMAND", AT(start.mpirun),
         .help = "What starts the ranks, words with blanks between them, such as 'mpirun --bind-to core' (default: mpirun)"},
        {SETTING_OWN, "hang-timeout", .argument = "TIME", .parse = parse_hang_timeout,
         .help = "Ranks that have said nothing for so long, such as 10min, hang: they are ended, and started again. They say something at least "
                 "every 5s, and behind every step that takes longer (default: 1h)"},
        {SETTING_HEADING, .help = "For experiments:"},
        {SETTING_CLEAR, "cuda-graphs", .argument = "WHEN", AT(no_graphs),
         .help = "on, the default: with --device cuda, the kernels of a forward or backward pass are launched "
                 "together; off: each by itself"},
        {SETTING_RATE, "host-link", .argument = "RATE", AT(host_link_bytes_per_second),
         .help = "Copies between host and device take as long as over a link of this rate, such as 12GB/s: on the CPU "
                 "device, whose memory is the host's, they are memory copies otherwise"},
        {SETTING_RATE, "net-link", .argument = "RATE", AT(net_link_bytes_per_second),
         .help = "Messages and collectives take at least as long as over a link of this rate that each rank has, such "
                 "as 1GB/s, without latency; for ranks of one machine. ranvier simulate has the same flag"},
        {SETTING_WORD, "cpu-kernels", .argument = "NAME", AT(cpu_kernels), .words = &device_cpu_kernels_words,
         .help = "The CPU device's kernels as built for processors with these instructions: auto, the default, takes "
                 "the fastest that this one runs; avx512, avx2, baseline (no more than every processor of this kind "
                 "has) or scalar (the reference: nothing vectorised, no BLAS)"},
        {SETTING_OWN, "inject-overflow", .argument = "STEP[:RANK]", .parse = parse_injection,
         .help = "A gradient of that rank (default 0) becomes infinite in that step: every rank skips it, and the loss "
                 "scale of --precision mixed halves (needs that, or bf16)"},
        {.help = NULL},
};
/* clang-format on */

static error_t parser(int key, char *text, struct argp_state *state)
{
        struct train_settings *s = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = &s->plan;
                return 0;
        }
        return settings_take(option_rows, s, key, text, command_line_error(state));
}

/* The first: the plan's flags, which train_options_parse sets. */
static struct argp_child children[2];

/* The variable by which another program says that it has started this process as a rank; NULL: none. */
static const char *launcher_of_rank(void)
{
        static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (getenv(names[i]))
                        return names[i];
        return NULL;
}

static struct argp_option train_options[SETTINGS + 1];
static const struct argp argp = {
        .options = train_options,
        .parser = parser,
        .args_doc = "[MODEL]",
        .doc = "Trains a GPT on P x D x T ranks, in P pipeline stages times D replicas times T shards, and "
               "reports what it took.\v"
               "Start it with mpirun, one rank a device:\n"
               "  mpirun -n 2 ranvier train demo --data text.txt --pp 2 \\\n"
               "      --micro-batch-size 4 --batch-size 32 --steps 200 \\\n"
               "      --report measured.json --checkpoint model.safetensors\n"
               "  ranvier sample model.safetensors\n\n"
               "A model that others have trained goes on from its folder, and into one:\n"
               "  ranvier train --init gpt2 --data tokens.bin --seq-len 256 \\\n"
               "      --micro-batch-size 1 --batch-size 8 --steps 50 --lr 1e-5 \\\n"
               "      --checkpoint finetuned\n\n"
               "If a run fails, the line that begins with 'ranvier train:' says why. mpirun adds a dozen of "
               "its "
               "own; 'mpirun -q' leaves them out, and also what mpirun itself has to complain of, such as "
               "too "
               "few slots.",
        .children = children,
};

static int check_grid(const struct start_settings *start, struct options *o, int ranks,
                      struct rv_error_info *err)
{
        const char *launched = launcher_of_rank();
        if (start->restarts >= 0 && launched)
                return rv_fail(err, RV_EINPUT,
                               "--restarts starts the ranks itself, and %s says that this is one: start it "
                               "without mpirun or srun, or unset that",
                               launched);
        options_fill_ranks(o, ranks);
        const int64_t grid = options_ranks(o);
        if (grid == ranks || !o->model || !o->batch_size ||
            !o->micro_batch_size) /* what is missing comes first */
                return 0;
        char text[GRID_TEXT];
        if (start->restarts >= 0)
                return rv_fail(err, RV_EPLAN, "%s needs %lld rank%s, not --ranks %d",
                               options_grid(text, o, "--", " x "), (long long)grid, rv_plural(grid), ranks);
        return rv_fail(err, RV_EPLAN, "%s needs %lld rank%s, but %d %s started: start with mpirun -n %lld",
                       options_grid(text, o, "--", " x "), (long long)grid, rv_plural(grid), ranks,
                       ranks == 1 ? "was" : "were", (long long)grid);
}

/* MPI counts the bytes of a message and the elements of an all-reduce in an int, and a message carries its
 * micro-batch, or its virtual micro-batch, as a tag. */
static int check_messages(const struct options *o, const struct net *net, struct rv_error_info *err)
{
        struct plan plan = options_plan(o, false);
        int64_t reduced = plan.embedding_parameters;
        for (int i = 0; i < o->pp && options_replicas(o) > 1; i++) {
                struct stage stage = options_stage(o, i);
                int64_t all = partition_parameters(&o->gpt, &stage);
                int64_t chunk = plan.bucket_parameters * plan.allreduce_buckets;
                chunk = all < chunk ? all : chunk;
                reduced = chunk > reduced ? chunk : reduced;
        }
        if (o->pp > 1 && plan.message_bytes > INT_MAX)
                return rv_fail(err, RV_EPLAN,
                               "a message between stages has %lld bytes (%d x %d x %d x %d), MPI sends at "
                               "most %d: a smaller --micro-batch-size makes smaller messages",
                               (long long)plan.message_bytes, o->micro_batch_size, o->seq_len, o->gpt.n_embd,
                               plan.element_bytes, INT_MAX);
        const bool decides = core_decides(&plan, 1); /* a message is then about a forward or a backward */
        const int64_t told = (int64_t)plan.micro_batches * plan.virtual_stages * (decides ? 2 : 1);
        if (o->pp > 1 && told - 1 > net->max_micro_batch)
                return rv_fail(err, RV_EPLAN,
                               "a pipeline has %d micro-batches%s, this MPI tells %d apart: a larger "
                               "--micro-batch-size makes fewer",
                               plan.micro_batches, plan.virtual_stages > 1 ? " in several chunks" : "",
                               (net->max_micro_batch + 1) / (decides ? 2 : 1));
        const int64_t together = (int64_t)o->micro_batch_size * o->seq_len * o->gpt.n_embd;
        if (o->tp > 1 && together > INT_MAX)
                return rv_fail(err, RV_EPLAN,
                               "shards sum %lld elements in a layer (%d x %d x %d), MPI sums at most %d at "
                               "once: a smaller --micro-batch-size makes fewer",
                               (long long)together, o->micro_batch_size, o->seq_len, o->gpt.n_embd, INT_MAX);
        const int64_t keys = 2 * (int64_t)o->micro_batch_size * o->seq_len * gpt_kv_heads(&o->gpt) *
                             gpt_head_size(&o->gpt) / o->tp;
        if (options_context_ranks(o) > 1 && keys > INT_MAX)
                return rv_fail(
                        err, RV_EPLAN,
                        "ranks of --cp %d have %lld elements of keys and values together, MPI moves at "
                        "most %d at once: a smaller --micro-batch-size makes fewer",
                        o->cp, (long long)keys, INT_MAX);
        if (reduced > INT_MAX)
                return rv_fail(err, RV_EPLAN,
                               "an all-reduce has %lld elements, MPI sums at most %d at once: smaller "
                               "--bucket-params or fewer --allreduce-buckets make smaller ones",
                               (long long)reduced, INT_MAX);
        return 0;
}

/* It may be a folder, which file_check_uses does not know. It may not take the place of what is read. */
static int check_checkpoint(const struct train_settings *s, const struct file_use *uses, int count,
                            struct rv_error_info *err)
{
        const struct file_use written = {"--checkpoint", s->checkpoint, true};
        for (int i = 0; i < count; i++)
                if (file_uses_clash(&uses[i], &written))
                        return rv_fail(err, RV_EINPUT, "%s and --checkpoint are the same, %s", uses[i].name,
                                       s->checkpoint);
        if (train_options_keep(s))
                /* Others may go where those are that it goes on from. */
                return s->resume && file_would_replace(s->checkpoint, s->resume)
                               ? RV_OK
                               : folder_check_new(s->checkpoint, err);
        return checkpoint_check_writable(s->checkpoint, err);
}

static int check_outputs(const struct train_settings *s, struct rv_error_info *err)
{
        const struct file_use uses[] = {
                {"MODEL", s->plan.model, false},    {"--data", s->data, false},
                {"--init", s->init, false},         {"--report", s->plan.report, true},
                {"--trace", s->plan.trace, true},   {"--log", s->log, true},
                {"--products", s->products, false}, {"--from", s->from.path[0] ? s->from.path : NULL, false}};
        int rc = file_check_uses(uses, sizeof uses / sizeof *uses, err);
        return rc || !s->checkpoint ? rc : check_checkpoint(s, uses, sizeof uses / sizeof *uses, err);
}

static int check_keeping(const struct train_settings *s, struct rv_error_info *err)
{
        const bool keeps = train_options_keep(s);
        if (keeps && !s->checkpoint)
                return rv_fail(err, RV_EINPUT,
                               "--checkpoint-every needs --checkpoint: the folder of the checkpoints");
        if (keeps && checkpoint_names_file(s->checkpoint))
                return rv_fail(err, RV_EINPUT,
                               "--checkpoint %s: is the name of a file; with --checkpoint-every a folder is "
                               "expected",
                               s->checkpoint);
        if (s->resume && s->init)
                return rv_fail(err, RV_EINPUT, "--resume and --init are two beginnings: one was expected");
        return RV_OK;
}

static int check_start(const struct train_settings *s, struct rv_error_info *err)
{
        const struct start_settings *start = &s->start;
        const char *without = start->ranks              ? "ranks"
                              : start->hosts.count      ? start->hosts_option
                              : start->mpirun           ? "mpirun"
                              : start->hang_seconds > 0 ? "hang-timeout"
                                                        : NULL;
        if (start->restarts < 0)
                return without ? rv_fail(err, RV_EINPUT,
                                         "--%s is for a training that starts mpirun itself: --restarts K is "
                                         "missing",
                                         without)
                               : RV_OK;
        if (!train_options_keep(s))
                return rv_fail(
                        err, RV_EINPUT,
                        "--restarts needs --checkpoint and --checkpoint-every: what it starts again from");
        if (start->mpirun && strspn(start->mpirun, " ") == strlen(start->mpirun))
                return rv_fail(err, RV_EINPUT, "--mpirun: is empty; a command such as mpirun was expected");
        if (start->hosts.count && hosts_slots(&start->hosts) < options_ranks(&s->plan))
                return rv_fail(err, RV_EPLAN, "the plan needs %lld rank%s, the hosts have room for %d",
                               (long long)options_ranks(&s->plan), rv_plural(options_ranks(&s->plan)),
                               hosts_slots(&start->hosts));
        return RV_OK;
}

static int check_injection(const struct train_settings *s, int ranks, struct rv_error_info *err)
{
        if (s->inject_step < 0)
                return 0;
        if (!options_mixed(&s->plan))
                return rv_fail(err, RV_EPLAN,
                               "--inject-overflow needs --precision mixed or bf16: fp32 gradients are not "
                               "looked through");
        if (s->inject_step >= s->optim.steps)
                return rv_fail(err, RV_EINPUT, "--inject-overflow %lld: --steps %lld has no such step",
                               (long long)s->inject_step + 1, (long long)s->optim.steps);
        if (s->inject_rank >= ranks)
                return rv_fail(err, RV_EINPUT, "--inject-overflow %lld:%d: there is no rank %d, %s%d",
                               (long long)s->inject_step + 1, s->inject_rank, s->inject_rank,
                               ranks > 1 ? "ranks go from 0 to " : "the only one is ", ranks - 1);
        return 0;
}

/* Of the profile that --products names. */
static int read_products(struct train_settings *s, struct rv_error_info *err)
{
        json_t *profile = file_read_json(s->products, err);
        if (!profile)
                return (int)err->code;
        json_t *products = json_object_get(profile, "products");
        if (products)
                s->product_algorithms = json_dumps(products, JSON_COMPACT | JSON_REAL_PRECISION(17));
        json_decref(profile);
        return s->product_algorithms
                       ? 0
                       : rv_fail(err, RV_EINPUT,
                                 "--products %s: has no products that were timed: ranvier calibrate --device "
                                 "cuda --time-products writes a profile that does",
                                 s->products);
}

/* What means nothing to the device is refused rather than passed over. */
static int check_device(const struct train_settings *s, struct rv_error_info *err)
{
        const bool gpu = strcmp(options_device(&s->plan), "cpu") != 0;
        if (gpu && s->host_link_bytes_per_second > 0)
                return rv_fail(err, RV_EINPUT,
                               "--host-link paces the copies of --device cpu; those of a GPU take what its "
                               "link takes");
        if (gpu && s->net_link_bytes_per_second > 0)
                return rv_fail(err, RV_EINPUT,
                               "--net-link paces the network of --device cpu; that of a GPU takes what it "
                               "takes");
        if (!gpu && s->no_graphs)
                return rv_fail(err, RV_EINPUT,
                               "--cuda-graphs off is for --device cuda; --device cpu has no graphs");
        if (gpu && s->cpu_kernels)
                return rv_fail(err, RV_EINPUT, "--cpu-kernels is for --device cpu; a GPU has its own");
        if (!gpu && s->products)
                return rv_fail(err, RV_EINPUT,
                               "--products is for --device cuda; products on the CPU have one algorithm");
        return device_check_attention(s->attention, gpu, s->plan.fusion != FUSION_OFF,
                                      s->plan.dtype == DTYPE_FP32, err);
}

/* The model of the checkpoint that the training goes on from. */
static int resolve_resumed(struct train_settings *s, int ranks, struct rv_error_info *err)
{
        char name[FOLDER_CHECKPOINT];
        struct newest newest = newest_begin(s->resume, NULL);
        json_t *index = newest_next(&newest, name, err);
        free(newest.steps);
        if (!index) {
                const struct rv_error_info why = *err;
                return rv_fail(err, why.code, "--resume %s", why.sentence);
        }
        const int rc = gpt_from_json(&s->plan.gpt, name, json_object_get(index, "model"), err);
        json_decref(index);
        return rc ? rc : options_resolve_gpt(&s->plan, ranks, err);
}

/* Without MODEL it is the model of the initial weights, or of the checkpoint. */
static int resolve_plan(struct train_settings *s, int ranks, struct rv_error_info *err)
{
        if (!s->plan.model && s->resume && !s->init)
                return resolve_resumed(s, ranks, err);
        if (s->plan.model || !s->init)
                return options_resolve(&s->plan, ranks, err);
        struct weight_files *files = weight_files_open(s->init, err);
        const int rc = files ? weight_files_model(files, &s->plan.gpt, err) : (int)err->code;
        weight_files_close(files);
        return rc ? rc : options_resolve_gpt(&s->plan, ranks, err);
}

static int resolve(struct train_settings *s, const struct net *net, struct rv_error_info *err)
{
        int rc = check_grid(&s->start, &s->plan, net->ranks, err);
        if (rc == 0)
                rc = resolve_plan(s, net->ranks, err);
        if (rc == 0 && s->plan.gpt.balance_loss > 0 && (s->plan.cp > 1 || options_whole_experts(&s->plan)))
                return rv_fail(err, RV_ENOTBUILT,
                               "%s with the balancing loss of %s's router, which is of all tokens of a "
                               "micro-batch, is not built yet for training; predictions are",
                               s->plan.cp > 1 ? "--cp" : "--etp 1", s->plan.gpt.name);
        if (rc == 0 && s->plan.dispatcher != DISPATCHER_ALL_TO_ALL)
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "--dispatcher deepep is for predictions, and not built for training; all-to-all is");
        if (rc == 0 && s->plan.format != FORMAT_STORED)
                return rv_fail(err, RV_ENOTBUILT,
                               "--precision %s is for predictions, and not built for training; bf16 is",
                               precision_name(s->plan.dtype, s->plan.format));
        if (rc == 0 && options_shard_grid(&s->plan))
                return rv_fail(err, RV_ENOTBUILT,
                               "--tp X,Y,Z with X or Z above 1 is simulated, not built for training");
        if (rc == 0)
                rc = check_messages(&s->plan, net, err);
        if (rc)
                return rc;
        if (s->plan.like || s->plan.without)
                return rv_fail(err, RV_EINPUT,
                               "--%s is for predictions (ranvier simulate, sweep and validate): what trains "
                               "here is ranvier itself",
                               s->plan.like ? "like" : "without");
        if (!s->data)
                return rv_fail(err, RV_EINPUT, "--data is missing: a text file or a .bin of tokens");
        if (s->optim.min_lr < 0)
                s->optim.min_lr = s->optim.lr / 10;
        if (s->optim.warmup < 0)
                s->optim.warmup = s->optim.steps / 10;
        if (s->optim.steps > 0 && s->optim.warmup >= s->optim.steps)
                return rv_fail(
                        err, RV_EINPUT,
                        "--warmup %lld must be less than --steps %lld: the learning rate falls after it",
                        (long long)s->optim.warmup, (long long)s->optim.steps);
        s->optim.clip = s->plan.clip;
        if (s->threads == 0)
                s->threads = device_cpu_threads(net->local_ranks, err);
        if (s->threads < 0)
                return s->threads;
        rc = check_device(s, err);
        if (rc == 0)
                rc = check_keeping(s, err);
        if (rc == 0)
                rc = check_start(s, err);
        if (rc == 0 && s->products)
                rc = read_products(s, err);
        return rc ? rc : check_injection(s, net->ranks, err);
}

bool train_options_keep(const struct train_settings *s)
{
        return s->checkpoint_steps > 0 || s->checkpoint_seconds > 0;
}

void train_options_free(struct train_settings *s)
{
        free(s->product_algorithms);
        s->product_algorithms = NULL;
        launch_close(&s->from);
        hosts_free(&s->start.hosts);
}

/* How many ranks there are to be, where nobody has started any: of --ranks, the file of --from, the grid, or,
 * where that leaves open how many replicas there are, as many as the hosts have room for. */
static int ranks_to_start(const struct train_settings *s)
{
        const int64_t grid = options_ranks(&s->plan);
        const int slots = hosts_slots(&s->start.hosts);
        if (s->start.ranks > 0)
                return s->start.ranks;
        if (s->from.gpus > 0)
                return s->from.gpus;
        if (grid > INT_MAX)
                return INT_MAX;
        return flag_is_given(flag_named("dp"), &s->plan) || slots < grid ? (int)grid
                                                                         : (int)(slots / grid * grid);
}

int train_options_parse(struct train_settings *s, int argc, char **argv, const struct net *net,
                        struct rv_error_info *err)
{
        bool quiet = net->rank > 0;
        struct net started = *net;
        *s = (struct train_settings){
                .optim = {.lr = 1e-3,
                          .min_lr = -1,
                          .warmup = -1,
                          .steps = 100,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .epsilon = 1e-8,
                          .weight_decay = 0.1},
                .validation_fraction = 0.1,
                .validation_batches = 4,
                .checkpoints_kept = 3,
                .seed = 1,
                .inject_step = -1,
                .start.restarts = -1,
        };
        options_init(&s->plan);
        children[0].argp = options_argp();
        settings_options(option_rows, train_options, 2);
        int rc = launch_open(&s->from, argc, argv, false, &s->plan, err);
        if (rc == 0)
                rc = command_line_parse(&argp, argc, argv, s, quiet, err);
        if (rc == 0 && s->start.restarts >= 0 && !launcher_of_rank())
                started.ranks = ranks_to_start(s);
        if (rc == 0)
                rc = launch_settle(&s->from, &s->plan, started.ranks, err);
        if (rc == 0)
                rc = launch_check_automatic(&s->from, &s->plan, err);
        if (rc)
                return rc;
        rc = resolve(s, &started, err);
        if (rc || quiet) /* what is printed and written is rank 0's */
                return rc;
        rc = check_outputs(s, err);
        if (rc == 0 && s->start.restarts < 0) /* else the ranks will */
                launch_print(&s->from, "train", NULL, stderr);
        return rc;
}

int train_options_drop(int argc, char **argv, const char *const *names)
{
        children[0].argp = options_argp();
        settings_options(option_rows, train_options, 2);
        return command_line_drop(&argp, argc, argv, names);
}

json_t *train_options_json(const struct train_settings *s)
{
        const struct optim *o = &s->optim;
        json_t *json = json_pack("{s:I, s:f, s:f, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:i}", "steps",
                                 (json_int_t)o->steps, "lr", o->lr, "min_lr", o->min_lr, "warmup",
                                 (json_int_t)o->warmup, "weight_decay", o->weight_decay, "beta1", o->beta1,
                                 "beta2", o->beta2, "epsilon", o->epsilon, "seed", (json_int_t)s->seed,
                                 "validate_every", (json_int_t)s->validate_every, "validation_fraction",
                                 s->validation_fraction, "validation_batches", s->validation_batches);
        if (json && s->inject_step >= 0)
                json_object_set_new(json, "inject_overflow",
                                    json_sprintf("%lld:%d", (long long)s->inject_step + 1, s->inject_rank));
        return json;
}

/* All that must be the same on every rank: what the report says of model, plan and training, what computes,
 * and what ranks do together only if all do it. */
static json_t *common_json(const struct train_settings *s, bool done)
{
        if (done)
                return json_pack("{s:{s:b}}", "options", "help", true);
        json_t *options = report_plan_json(&s->plan);
        json_t *training = train_options_json(s);
        json_object_update(options, training);
        json_decref(training);
        json_object_set_new(options, "device", json_string(options_device(&s->plan)));
        json_object_set_new(options, "trace", json_boolean(s->plan.trace));
        json_object_set_new(options, "init", json_boolean(s->init));
        json_object_set_new(options, "checkpoint", json_boolean(s->checkpoint));
        json_object_set_new(options, "checkpoint_every",
                            s->checkpoint_seconds > 0 ? json_real(s->checkpoint_seconds)
                                                      : json_integer(s->checkpoint_steps));
        json_object_set_new(options, "resume", json_boolean(s->resume));
        json_object_set_new(options, "net_link", json_real(s->net_link_bytes_per_second));
        json_object_set_new(options, "kernels", json_boolean(s->kernels));
        return json_pack("{s:o, s:o}", "model", gpt_to_json(&s->plan.gpt), "options", options);
}

json_t *train_options_first(struct net *net, const json_t *mine)
{
        char *text = net->rank == 0 && mine ? json_dumps(mine, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        int64_t length = text ? (int64_t)strlen(text) : -1;
        net->ops->broadcast(net, &length, sizeof length, 0);
        if (length < 0)
                return NULL;
        if (net->rank != 0)
                text = malloc((size_t)length + 1);
        if (!text)
                abort(); /* others wait for it, or in it */
        net->ops->broadcast(net, text, length, 0);
        json_t *first = json_loadb(text, (size_t)length, 0, NULL);
        free(text);
        return first;
}

enum { VALUE = 64 };

/* A value as a command line has it: " 3", or nothing for a switch. */
static const char *value_text(const json_t *value, char text[VALUE])
{
        text[0] = 0;
        if (json_is_string(value))
                snprintf(text, VALUE, " %s", json_string_value(value));
        else if (json_is_integer(value))
                snprintf(text, VALUE, " %lld", (long long)json_integer_value(value));
        else if (json_is_real(value))
                snprintf(text, VALUE, " %.10g", json_real_value(value));
        return text;
}

static bool is_given(const json_t *value)
{
        return value && !json_is_false(value);
}

static int name_difference(const json_t *mine, const json_t *first, int rank, struct rv_error_info *err)
{
        char name[48], values[2][VALUE];
        const json_t *objects[] = {json_object_get(mine, "model"), json_object_get(first, "model")};
        const char *key = report_first_difference(objects[0], objects[1]);
        if (key)
                return rv_fail(
                        err, RV_EINPUT,
                        "MODEL: %s is%s on rank %d and%s on rank 0: all ranks of a training need the same "
                        "model",
                        key, value_text(json_object_get(objects[0], key), values[0]), rank,
                        value_text(json_object_get(objects[1], key), values[1]));
        objects[0] = json_object_get(mine, "options");
        objects[1] = json_object_get(first, "options");
        key = report_first_difference(objects[0], objects[1]);
        if (!key)
                return 0;
        snprintf(name, sizeof name, "%s", key);
        for (char *at = name; *at; at++)
                *at = *at == '_' ? '-' : *at;
        const json_t *own = json_object_get(objects[0], key), *other = json_object_get(objects[1], key);
        return rv_fail(
                err, RV_EINPUT,
                "rank %d was started %s --%s%s, rank 0 %s --%s%s: all ranks of a training need the same "
                "options",
                rank, is_given(own) ? "with" : "without", name, value_text(own, values[0]),
                is_given(other) ? "with" : "without", name, value_text(other, values[1]));
}

int train_options_compare(const struct train_settings *s, bool done, struct net *net,
                          struct rv_error_info *err)
{
        json_t *mine = common_json(s, done), *first = train_options_first(net, mine);
        int rc = mine && first ? name_difference(mine, first, net->rank, err)
                               : rv_fail(err, RV_ESYSTEM, "no host memory to compare the ranks' options");
        json_decref(mine);
        json_decref(first);
        return rc;
}
