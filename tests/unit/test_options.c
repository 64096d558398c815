/* The command line of a plan: what it means, and the sentence that every wrong one gets. */
#include "runtime/plan/flags.h"
#include "runtime/plan/grid.h"
#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* A command as train is one: the plan's flags and one of its own. */
struct command {
        struct options plan;
        int64_t steps;
};

static error_t command_parser(int key, char *text, struct argp_state *state)
{
        struct command *command = state->input;
        if (key == ARGP_KEY_INIT) {
                state->child_inputs[0] = &command->plan;
                return 0;
        }
        if (key == 's')
                return parse_int("--steps", text, 1, 1000, &command->steps, command_line_error(state))
                               ? EINVAL
                               : 0;
        return ARGP_ERR_UNKNOWN;
}

static const struct argp_option command_options[] = {{"steps", 's', "K", 0, "Steps", 0}, {0}};
static struct argp_child command_children[2]; /* the first: the plan's flags, which main sets */
static const struct argp command_argp = {.options = command_options,
                                         .parser = command_parser,
                                         .args_doc = "MODEL",
                                         .children = command_children};

/* Parses and resolves "MODEL --flags ..." as a user with `ranks` ranks; the words are split at blanks. */
static int run(const char *line, int ranks, struct command *command, struct rv_error_info *err)
{
        static char words[1024]; /* options point into it */
        char *argv[64] = {"ranvier-test"};
        int argc = 1;
        snprintf(words, sizeof words, "%s", line);
        for (char *at = strtok(words, " "); at; at = strtok(NULL, " "))
                argv[argc++] = at;
        *command = (struct command){0};
        options_init(&command->plan);
        *err = (struct rv_error_info){0};
        int rc = command_line_parse(&command_argp, argc, argv, command, true, err);
        return rc ? rc : options_resolve(&command->plan, ranks, err);
}

#define GOOD  "tiny --micro-batch-size 2 --batch-size 24 "
#define SIZES "such as 4096, 500MB or 2GiB (from 1 byte to 9e18; units: kB, MB, GB, TB, KiB, MiB, GiB, TiB)"

static const struct {
        const char *line;
        int ranks;
        enum rv_error code;
        const char *sentence;
} wrong[] = {
        {GOOD "--allreduce sideways", 1, RV_EINPUT,
         "--allreduce: 'sideways' is not known; there are auto, direct and staged"},
        {GOOD "--foo", 1, RV_EINPUT, "unknown option '--foo'; --help lists what there is"},
        {GOOD "--foo=3", 1, RV_EINPUT, "unknown option '--foo'; --help lists what there is"},
        {GOOD "-z", 1, RV_EINPUT, "unknown option '-z'; --help lists what there is"},
        {GOOD "--pp", 1, RV_EINPUT, "option '--pp' needs an argument: --pp P"},
        {GOOD "--steps", 1, RV_EINPUT, "option '--steps' needs an argument: --steps K"},
        {GOOD "--offload=maybe", 1, RV_EINPUT, "--offload: 'maybe' is not known; there are no and yes"},
        {GOOD "--se 4", 1, RV_EINPUT, "unknown option '--se'; the nearest is --seq-len, --help lists all"},
        {GOOD "another", 1, RV_EINPUT, "unexpected argument 'another'; --help shows what is right"},
        {GOOD "--steps 0", 1, RV_EINPUT, "--steps: '0' is not a whole number from 1 to 1000"},
        {GOOD "--pp abc", 1, RV_EINPUT, "--pp: 'abc' is not a whole number from 1 to 1048576"},
        {GOOD "--pp 2.5", 1, RV_EINPUT, "--pp: '2.5' is not a whole number from 1 to 1048576"},
        {GOOD "--dp -1", 1, RV_EINPUT, "--dp: '-1' is not a whole number from 1 to 1048576"},
        {GOOD "--dp 0", 1, RV_EINPUT, "--dp: '0' is not a whole number from 1 to 1048576"},
        {GOOD "--seq-len 99999999999999999999", 1, RV_EINPUT,
         "--seq-len: '99999999999999999999' is not a whole number from 1 to 1073741824"},
        {GOOD "--clip nan", 1, RV_EINPUT, "--clip: 'nan' is not a number from 0 (off) up"},
        {GOOD "--clip -1", 1, RV_EINPUT, "--clip: '-1' is not a number from 0 (off) up"},
        {GOOD "--schedule lifo", 1, RV_EINPUT,
         "--schedule: 'lifo' is not known; there are axonn, 1f1b, eager-1f1b, interleaved, zero-bubble, "
         "zero-bubble-h2, reverse-first-k, fast-forward and gpipe"},
        {GOOD "--sequence-parallel", 1, RV_EPLAN,
         "--sequence-parallel splits among the shards of --tp, which is 1"},
        {GOOD "--tp 0", 1, RV_EINPUT, "--tp: '0' is not a whole number from 1 to 1048576"},
        {GOOD "--tp 2", 1, RV_EPLAN, "--pp 1 x --dp 1 x --tp 2 needs 2 ranks, but there is 1"},
        {GOOD "--tp 3", 3, RV_EPLAN, "--tp 3 does not divide the 4 heads (n_head) of tiny"},
        {GOOD "--tp 2,2", 4, RV_EINPUT,
         "--tp: '2,2' is neither a number of shards nor a grid of them such as 2,2,1 or 2x2x1, X times Y "
         "times Z, "
         "from 1 to 1023 each and 1048576 in all"},
        {GOOD "--tp 1,2,0", 4, RV_EINPUT,
         "--tp: '1,2,0' is neither a number of shards nor a grid of them such as 2,2,1 or 2x2x1, X times Y "
         "times "
         "Z, from 1 to 1023 each and 1048576 in all"},
        {GOOD "--tp 2x1,1", 2, RV_EINPUT,
         "--tp: '2x1,1' is neither a number of shards nor a grid of them such as 2,2,1 or 2x2x1, X times Y "
         "times "
         "Z, from 1 to 1023 each and 1048576 in all"},
        {GOOD "--tp 1,3,1", 3, RV_EPLAN, "--tp 3 does not divide the 4 heads (n_head) of tiny"},
        {GOOD "--tp 2,2,1", 2, RV_EPLAN, "--pp 1 x --dp 1 x --tp 4 (2x2x1) needs 4 ranks, but there are 2"},
        {GOOD "--tp 2,3,1", 6, RV_EPLAN,
         "--tp 2x3x1 splits heads over Y = 3, and --tp 3 does not divide the 4 heads (n_head) of tiny"},
        {GOOD "--tp 3,1,1", 3, RV_EPLAN,
         "--tp 3x1x1: X = 3 does not divide the n_embd 32 of tiny, whose columns are split over X"},
        {GOOD "--tp 1,1,3", 3, RV_EPLAN,
         "--tp 1x1x3: Z = 3 does not divide --micro-batch-size 2, whose sequences are split over Z"},
        {GOOD "--tp 2,1,1 --pp 3", 6, RV_ENOTBUILT,
         "on a stage between others --schedule axonn goes by what arrives first, which shards of a grid, "
         "--tp "
         "2x1x1, tell each other nothing of: with --pp above 2 take a schedule of fixed order, such as 1f1b "
         "or "
         "gpipe"},
        {GOOD "--tp 2,1,1 --sequence-parallel", 2, RV_ENOTBUILT,
         "--sequence-parallel with a grid of shards, --tp 2x1x1, is not built yet"},
        {GOOD "--tp 2,1,1 --tp-overlap 2", 2, RV_ENOTBUILT,
         "--tp-overlap 2 with a grid of shards, --tp 2x1x1, is not built yet"},
        {GOOD "--tp 2,1,1 --dp 2 --overlap-allreduce", 4, RV_ENOTBUILT,
         "--overlap-allreduce with a grid of shards, --tp 2x1x1, is not built yet"},
        {GOOD "--tp 2,1,1 --cp 2", 4, RV_ENOTBUILT,
         "--cp 2 with a grid of shards, --tp 2x1x1, is not built yet"},
        {"mixtral-tiny --micro-batch-size 2 --batch-size 24 --tp 2,1,1", 2, RV_ENOTBUILT,
         "--tp 2x1x1 of mixtral-tiny, whose blocks are mixtures of experts, is not built yet"},
        {"qwen3-0.6b --micro-batch-size 2 --batch-size 24 --tp 1,2,2", 4, RV_ENOTBUILT,
         "--tp 1x2x2 of qwen3-0.6b, whose norms of heads would be summed over Y and Z, is not built yet: "
         "with one "
         "of the two 1 it is"},
        {GOOD "--tp 2 --pp 2 --offload-activations", 4, RV_EPLAN,
         "--offload-activations: --schedule axonn goes by which activations are back first, on which the "
         "shards of --tp 2 could disagree: with --pp above 1 take a schedule of fixed order, such as 1f1b or "
         "gpipe"},
        {GOOD "--tp 4 --seq-len 3 --sequence-parallel", 4, RV_EPLAN,
         "--sequence-parallel: --tp 4 does not divide the 6 tokens of a micro-batch (--micro-batch-size 2 x "
         "--seq-len 3)"},
        {GOOD "--zero 2 --dp 2 --tp 2,1,2", 8, RV_ENOTBUILT,
         "--zero 2 with a grid of shards, --tp 2x1x2, is not built yet"},
        {GOOD "--zero 2 --pp 2 --dp 2 --schedule interleaved --virtual-stages 2", 4, RV_ENOTBUILT,
         "--zero 2 with --schedule interleaved is not built yet: it is for one chunk a rank"},
        {GOOD "--zero 4", 1, RV_EINPUT, "--zero: '4' is not known; there are 0, 1, 2 and 3"},
        {GOOD "--pipeline 2", 1, RV_EINPUT, "unknown option '--pipeline': here it is --pp"},
        {GOOD "--pipeline-lim 2", 1, RV_EINPUT,
         "unknown option '--pipeline-lim'; the nearest is --pipeline-limit, --help lists all"},
        {GOOD "--batch 4", 1, RV_EINPUT,
         "unknown option '--batch'; the nearest is --batch-size, --help lists all"},
        {GOOD "--pq=2", 1, RV_EINPUT, "unknown option '--pq'; the nearest is --pp, --help lists all"},
        {GOOD "--micro_batch_size=2", 1, RV_EINPUT,
         "unknown option '--micro_batch_size'; the nearest is --micro-batch-size, --help lists all"},
        {GOOD "--tensor-model-parallel-size 2", 1, RV_EINPUT,
         "unknown option '--tensor-model-parallel-size': here it is --tp"},
        {GOOD "--train_batch_size 2", 1, RV_EINPUT,
         "unknown option '--train_batch_size': here it is --batch-size"},
        {GOOD "--num-layers-per-virtual-pipeline-stage 2", 1, RV_EINPUT,
         "unknown option '--num-layers-per-virtual-pipeline-stage': here it is --virtual-stages V with "
         "--schedule interleaved: V is the chunks of a rank, layers / (--pp x layers of a chunk)"},
        {GOOD "--max-steps 2", 1, RV_EINPUT, "unknown option '--max-steps': here it is --steps"},
        {GOOD "--max-grad-norm 2", 1, RV_EINPUT, "unknown option '--max-grad-norm': here it is --clip"},
        /* without --lr, Megatron's name for it leads nowhere */
        {GOOD "--learning-rate 2", 1, RV_EINPUT,
         "unknown option '--learning-rate'; --help lists what there is"},
        {GOOD "--hidden_dropout=0.1", 1, RV_ENOTBUILT,
         "--hidden_dropout is not built yet: nothing is dropped out, neither in training nor in "
         "predictions"},
        {GOOD "--ep 2", 1, RV_EPLAN, "--ep 2: tiny has no experts"},
        {GOOD "--cp 2", 1, RV_EPLAN, "--pp 1 x --dp 1 x --cp 2 needs 2 ranks, but there is 1"},
        {GOOD "--cp 3", 3, RV_EPLAN,
         "--cp 3 takes each sequence in 6 pieces, which do not divide --seq-len 64"},
        {GOOD "--cp 17", 17, RV_EINPUT, "--cp: '17' is not a whole number from 1 to 16"},
        {GOOD "--cp 2 --fusion off", 2, RV_ENOTBUILT,
         "--fusion off with --cp above 1 is not built: attention by parts of a sequence is a fused kernel"},
        {GOOD "--cp 2 --pp 2 --offload-activations", 4, RV_EPLAN,
         "--offload-activations: --schedule axonn goes by which activations are back first, on which the "
         "ranks "
         "of --cp 2 could disagree: with --pp above 1 take a schedule of fixed order, such as 1f1b or gpipe"},
        {GOOD "--cp 2 --pp 2 --schedule fast-forward", 4, RV_EPLAN,
         "--schedule fast-forward makes gradients of weights where a stage would wait for what arrives, on "
         "which the ranks of --cp 2 could disagree: with --pp above 1 take a schedule of fixed order, such "
         "as "
         "zero-bubble"},
        {GOOD "--cp 2 --pp 3", 6, RV_EPLAN,
         "on a stage between others --schedule axonn goes by what arrives first, on which the ranks of --cp "
         "2 "
         "could disagree: with --pp above 2 take a schedule of fixed order, such as 1f1b or gpipe"},
        {GOOD "--schedule gpipe -s", 1, RV_EINPUT, "option '-s' needs an argument: -s K"},
        {GOOD "--pp --dp 2", 1, RV_EINPUT, "--pp: '--dp' is not a whole number from 1 to 1048576"},
        {GOOD "--zero 3 --pp 2", 2, RV_EPLAN,
         "--zero 3 is for --pp 1: its replicas, here of --pp 2, gather every layer whole"},
        {GOOD "--zero 3 --dp 2 --allreduce staged", 2, RV_ENOTBUILT,
         "--allreduce staged with --zero 3 is not built yet"},
        {GOOD "--zero 3 --dp 2 --overlap-allreduce", 2, RV_EPLAN,
         "--overlap-allreduce is for --zero 0 and 1: with --zero 3 gradients are reduce-scattered beside "
         "backwards anyway, layer by layer"},
        {GOOD "--schedule gpipe --deferred-layers 2", 1, RV_EPLAN,
         "--deferred-layers 2 is for schedules whose backward is in two parts, not gpipe"},
        {GOOD "--schedule zero-bubble --deferred-layers 0", 1, RV_EINPUT,
         "--deferred-layers: '0' is not a whole number from 1 to 1000000"},
        {GOOD "--p2p blocking", 1, RV_EPLAN,
         "--p2p blocking needs a schedule whose order is fixed, such as 1f1b: axonn works on whatever "
         "message "
         "came first, so it cannot wait for one of them"},
        {GOOD "--schedule fast-forward --tp 2 --pp 2", 4, RV_EPLAN,
         "--schedule fast-forward makes gradients of weights where a stage would wait for what arrives, on "
         "which "
         "the shards of --tp 2 could disagree: with --pp above 1 take a schedule of fixed order, such as "
         "zero-bubble"},
        {GOOD "--schedule zero-bubble --offload-activations", 1, RV_EPLAN,
         "--offload-activations is not for --schedule zero-bubble: it keeps stored activations on the device "
         "until the gradients of weights have their turn"},
        {GOOD "--p2p sync --schedule 1f1b", 1, RV_EINPUT,
         "--p2p: 'sync' is not known, the nearest is async; there are async and blocking"},
        {GOOD "--precision int8", 1, RV_EINPUT,
         "--precision: 'int8' is not known; there are fp32, and with fp32 master parameters mixed "
         "(fp16), bf16, and for predictions fp8 and nvfp4"},
        {GOOD "--precision fp8 --tp 2x1x1", 2, RV_ENOTBUILT,
         "--precision fp8 with a grid of shards, --tp 2x1x1, is not built yet"},
        {GOOD "--precision nvfp4 --scaling current", 1, RV_EPLAN,
         "--scaling current is for --precision fp8: no other one has both ways"},
        {GOOD "--gradients fp32 --precision fp32", 1, RV_EPLAN,
         "--gradients fp32 is for --precision mixed, bf16, fp8 and nvfp4: in fp32 gradients are fp32 anyway"},
        {GOOD "--gradients fp32 --precision bf16 --dp 2 --zero 2", 2, RV_ENOTBUILT,
         "--gradients fp32 with --zero 2 is not built yet: there --reduce-dtype fp32 reduces gradients, and "
         "keeps them, in fp32"},
        {GOOD "--precision=", 1, RV_EINPUT,
         "--precision: '' is not known; there are fp32, and with fp32 master parameters mixed "
         "(fp16), bf16, and for predictions fp8 and nvfp4"},
        {GOOD "--offload", 1, RV_EPLAN,
         "--offload needs --precision mixed or bf16: in fp32 the parameters on the device are the master "
         "parameters"},
        {GOOD "--offload --precision fp32", 1, RV_EPLAN,
         "--offload needs --precision mixed or bf16: in fp32 the parameters on the device are the master "
         "parameters"},
        {GOOD "--offload-activations=2", 1, RV_EINPUT,
         "--offload-activations: '2' is not known; there are no and yes"},
        {GOOD "--off", 1, RV_EINPUT, "unknown option '--off'; the nearest is --offload, --help lists all"},
        {GOOD "--recompute", 1, RV_EINPUT, "option '--recompute' needs an argument: --recompute WHAT"},
        {GOOD "--recompute all", 1, RV_EINPUT,
         "--recompute: 'all' is not known; there are none, full, selective, layer, norms, swiglu and "
         "norms+swiglu"},
        {GOOD "--device-memory lots", 1, RV_EINPUT, "--device-memory: 'lots' is not a size " SIZES},
        {GOOD "--device-memory 0", 1, RV_EINPUT, "--device-memory: '0' is not a size " SIZES},
        {GOOD "--device-memory -2GiB", 1, RV_EINPUT, "--device-memory: '-2GiB' is not a size " SIZES},
        {GOOD "--device-memory 0.1B", 1, RV_EINPUT, "--device-memory: '0.1B' is not a size " SIZES},
        {GOOD "--host-memory 2gb", 1, RV_EINPUT, "--host-memory: '2gb' is not a size " SIZES},
        {GOOD "--host-memory 0KiB", 1, RV_EINPUT, "--host-memory: '0KiB' is not a size " SIZES},
        {GOOD "--bucket-params 0", 1, RV_EINPUT,
         "--bucket-params: '0' is not a whole number from 1 to 1099511627776"},
        {GOOD "--bucket-params 16M", 1, RV_EINPUT,
         "--bucket-params: '16M' is not a whole number from 1 to 1099511627776"},
        {GOOD "--bucket-params 61121", 1, RV_EPLAN,
         "--bucket-params 61121 is more than the 61120 parameters of tiny: a bucket is a part of them"},
        {GOOD "--bucket-params 16000000 --precision mixed --offload", 1, RV_EPLAN,
         "--bucket-params 16000000 is more than the 61120 parameters of tiny: a bucket is a part of them"},
        {GOOD "--allreduce-buckets 0", 1, RV_EINPUT,
         "--allreduce-buckets: '0' is not a whole number from 1 to 1048576"},
        {GOOD "--report=", 1, RV_EINPUT, "--report: the name of a file was expected, this one is empty"},
        {"gpt-12b --micro-batch-size 2 --batch-size 24 --bucket-params 7", 1, RV_EPLAN,
         "--bucket-params 7 makes 1708920000 optimizer updates of gpt-12b, at most 16777216 are scheduled: "
         "larger buckets make fewer"},
        {"gpt-12b --micro-batch-size 2 --batch-size 24 --bucket-params 1500 --precision mixed --offload", 1,
         RV_EPLAN,
         "--bucket-params 1500 makes 23924880 optimizer updates of gpt-12b, at most 16777216 are scheduled: "
         "larger buckets make fewer"},
        {"gpt-100b --micro-batch-size 1048576 --batch-size 1073741824 --schedule gpipe", 1, RV_EPLAN,
         "a rank of this plan needs more than an exbibyte (2^60 bytes): gpt-100b with --seq-len 512, "
         "--micro-batch-size 1048576 and 1024 of them stored is too large"},
        {"tiny --micro-batch-size 1 --batch-size 16777217", 1, RV_EPLAN,
         "--batch-size 16777217 makes 16777217 micro-batches a pipeline, at most 16777216 are scheduled: a "
         "larger --micro-batch-size makes fewer"},
        {GOOD "--device tpu", 1, RV_EINPUT,
         "--device: 'tpu' is not known, the nearest is cpu; there are cpu and cuda"},
        {GOOD "--schedule gpip", 1, RV_EINPUT,
         "--schedule: 'gpip' is not known, the nearest is gpipe; there are axonn, 1f1b, eager-1f1b, "
         "interleaved, zero-bubble, zero-bubble-h2, reverse-first-k, fast-forward and gpipe"},
        {GOOD "--fusion yes", 1, RV_EINPUT, "--fusion: 'yes' is not known; there are auto, on and off"},
        {GOOD "--fusion=", 1, RV_EINPUT, "--fusion: '' is not known; there are auto, on and off"},
        {"", 1, RV_EINPUT,
         "MODEL is missing: the name of a preset (such as tiny) or the path of a config.json"},
        {"tiny --micro-batch-size 2", 1, RV_EINPUT,
         "--batch-size is missing: the sequences of one batch over all ranks"},
        {"tiny --batch-size 2", 1, RV_EINPUT,
         "--micro-batch-size is missing: the sequences that go through a stage at once"},
        {GOOD "--pp 3 --dp 2", 4, RV_EPLAN, "--pp 3 x --dp 2 needs 6 ranks, but there are 4"},
        {GOOD "--pp 3 --dp 2", 1, RV_EPLAN, "--pp 3 x --dp 2 needs 6 ranks, but there is 1"},
        {GOOD, 2, RV_EPLAN, "--pp 1 x --dp 1 needs 1 rank, but there are 2"},
        {GOOD "--pp 5", 5, RV_EPLAN, "--pp 5 needs at least as many layers, but tiny has n_layer 4"},
        {GOOD "--seq-len 65", 1, RV_EPLAN, "--seq-len 65 is longer than the n_positions 64 of tiny"},
        {GOOD "--dp 5", 5, RV_EPLAN,
         "--batch-size 24 is not divisible by --dp 5 x --micro-batch-size 2 = 10"},
        {GOOD "--schedule gpipe --pipeline-limit 3", 1, RV_EPLAN,
         "--pipeline-limit is for --schedule axonn; gpipe has its own limit"},
        {GOOD "--pipeline-limit 3 --schedule 1f1b", 1, RV_EPLAN,
         "--pipeline-limit is for --schedule axonn; 1f1b has its own limit"},
        {GOOD "--pp 2 --virtual-stages 2", 2, RV_EPLAN,
         "--virtual-stages 2 is for --schedule interleaved, not axonn"},
        {GOOD "--pp 2 --schedule interleaved", 2, RV_EPLAN,
         "--schedule interleaved needs --virtual-stages of 2 or more: chunks of the model that each rank "
         "works "
         "on"},
        {GOOD "--schedule interleaved --virtual-stages 2", 1, RV_EPLAN,
         "--schedule interleaved needs --pp of 2 or more, not 1"},
        {GOOD "--pp 2 --schedule interleaved --virtual-stages 3", 2, RV_EPLAN,
         "--pp 2 x --virtual-stages 3 are 6 virtual stages, each of a layer or more, but tiny has n_layer 4"},
        {GOOD "--pp 2 --dp 4 --schedule interleaved --virtual-stages 2", 8, RV_EPLAN,
         "--schedule interleaved takes micro-batches in groups of --pp 2, but --batch-size 24 makes 3 a "
         "pipeline"},
        {GOOD "--virtual-stages 0", 1, RV_EINPUT,
         "--virtual-stages: '0' is not a whole number from 1 to 1048576"},
};

static void every_wrong_command_line_gets_its_sentence(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
                struct command command;
                struct rv_error_info err;
                int rc = run(wrong[i].line, wrong[i].ranks, &command, &err);
                if (rc != (int)wrong[i].code || strcmp(err.sentence, wrong[i].sentence) != 0)
                        fail_msg("'%s' gave %d '%s', expected %d '%s'", wrong[i].line, rc, err.sentence,
                                 (int)wrong[i].code, wrong[i].sentence);
                assert_int_equal(rv_exit_status(&err), 2);
        }
}

static void a_full_command_line_means_what_it_says(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        int rc = run(
                "--pp 2 tiny --dp=3 --micro-batch-size 2 --batch-size 24 --seq-len 16 --pipeline-limit 4 "
                "--clip 0 "
                "--bucket-params 1000 --allreduce-buckets 2 --report r.json --trace t.json --steps 7 --tp 1 "
                "--zero 0 --p2p async --precision fp32 --recompute none --device cpu --virtual-stages 1",
                6, &command, &err);
        if (rc)
                fail_msg("%s", err.sentence);
        const struct options *o = &command.plan;
        assert_string_equal(o->model, "tiny");
        assert_string_equal(o->report, "r.json");
        assert_string_equal(o->trace, "t.json");
        assert_int_equal(command.steps, 7);
        struct plan plan = options_plan(o, false);
        assert_int_equal(plan.pp, 2);
        assert_int_equal(plan.dp, 3);
        assert_int_equal(plan.micro_batches, 4);
        assert_int_equal(plan.policy, POLICY_AXONN);
        assert_int_equal(plan.pipeline_limit, 4);
        assert_true(plan.tied);
        assert_false(plan.clip);
        assert_false(plan.forward_only);
        assert_int_equal(plan.message_bytes, 2 * 16 * 32 * 4);
        assert_int_equal(plan.load_bytes, 4 * 2 * 16 * 4);
        assert_int_equal(plan.embedding_parameters, 256 * 32);
        assert_int_equal(plan.bucket_parameters, 1000);
        assert_int_equal(plan.allreduce_buckets, 2);
        assert_true(options_plan(o, true).forward_only);
}

/* bf16 is as wide as fp16, and what fp16 can have it can. */
static void bf16_is_the_other_mixed_precision(void **state)
{
        (void)state;
        static const struct {
                const char *flags;
                enum dtype dtype;
                const char *name;
        } cases[] = {{"", DTYPE_FP32, "fp32"},
                     {"--precision fp32", DTYPE_FP32, "fp32"},
                     {"--precision mixed --offload", DTYPE_FP16, "mixed"},
                     {"--precision bf16 --offload", DTYPE_BF16, "bf16"},
                     {"--precision bf16 --precision mixed", DTYPE_FP16, "mixed"}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                char line[128];
                struct command command;
                struct rv_error_info err;
                snprintf(line, sizeof line, GOOD "%s", cases[i].flags);
                assert_int_equal(run(line, 1, &command, &err), 0);
                const struct work work = options_work(&command.plan);
                assert_int_equal(command.plan.dtype, cases[i].dtype);
                assert_int_equal(work_element_bytes(&work), cases[i].dtype != DTYPE_FP32 ? 2 : 4);
                assert_int_equal(options_plan(&command.plan, false).mixed, cases[i].dtype != DTYPE_FP32);
                assert_string_equal(dtype_precision(cases[i].dtype), cases[i].name);
                assert_int_equal(dtype_of_precision(cases[i].name), cases[i].dtype);
        }
        assert_int_equal(dtype_of_precision("fp16"), -1);
}

static void kernels_are_fused_unless_asked_not_to_be(void **state)
{
        (void)state;
        static const struct {
                const char *flags, *device;
                bool fused;
        } cases[] = {{"", "cpu", true},
                     {"--fusion on", "cpu", true},
                     {"--fusion off", "cpu", false},
                     {"--device cpu --fusion auto", "cpu", true},
                     {"--device cpu --fusion off", "cpu", false},
                     {"--device cuda", "cuda", true},
                     {"--device cuda --fusion auto", "cuda", true},
                     {"--fusion off --device cuda", "cuda", false}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                char line[128];
                struct command command;
                struct rv_error_info err;
                snprintf(line, sizeof line, GOOD "%s", cases[i].flags);
                assert_int_equal(run(line, 1, &command, &err), 0);
                assert_string_equal(options_device(&command.plan), cases[i].device);
                assert_int_equal(options_work(&command.plan).fused, cases[i].fused);
                assert_int_equal(options_memory(&command.plan, 0).work.fused, cases[i].fused);
        }
}

static void defaults_are_one_rank_the_longest_sequence_and_axonn(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        assert_int_equal(run(GOOD, 1, &command, &err), 0);
        struct plan plan = options_plan(&command.plan, false);
        assert_int_equal(command.plan.seq_len, 64);
        assert_int_equal(plan.pp * plan.dp, 1);
        assert_int_equal(plan.policy, POLICY_AXONN);
        assert_int_equal(plan.bucket_parameters, gpt_parameters(&command.plan.gpt));
        assert_int_equal(plan.allreduce_buckets, 4);
        assert_int_equal(plan.element_bytes, 4);
        assert_false(plan.mixed || plan.offload || plan.offload_activations);
        assert_false(options_work(&command.plan).recompute);
        assert_int_equal(command.plan.memory[MEMORY_DEVICE], 0);
        assert_int_equal(command.plan.memory[MEMORY_HOST], 0);
        assert_true(plan.clip);
        assert_false(plan.tied); /* one stage: the embedding is there once */
        assert_int_equal(plan.embedding_parameters, 0);
}

static void mixed_precision_and_offloading_reach_the_core_and_the_workload(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        int rc = run(GOOD "--pp 2 --seq-len 16 --precision mixed --offload --offload-activations --recompute "
                          "full --device-memory 2GiB --host-memory 1.5GB --bucket-params 1000",
                     2, &command, &err);
        if (rc)
                fail_msg("%s", err.sentence);
        struct plan plan = options_plan(&command.plan, false);
        assert_true(plan.mixed && plan.offload && plan.offload_activations);
        assert_int_equal(plan.element_bytes, 2);
        assert_int_equal(plan.message_bytes, 2 * 16 * 32 * 2);
        assert_int_equal(plan.bucket_parameters, 1000);
        struct work work = options_work(&command.plan);
        assert_true(work.recompute && work_mixed(&work));
        assert_int_equal(command.plan.memory[MEMORY_DEVICE], INT64_C(2147483648));
        assert_int_equal(command.plan.memory[MEMORY_HOST], 1500000000);
        assert_false(plan.stage_messages || plan.stage_allreduce);
        struct memory_plan memory = options_memory(&command.plan, 0);
        assert_true(memory.offload);
        assert_int_equal(memory.update_parameters, 334); /* a third, rounded up */
        assert_int_equal(memory.update_buffers, 3);
}

/* Messages need stages, sums something to share: with replicas all of a stage, else the embedding. */
static void staged_routes_reach_the_core_and_the_memory(void **state)
{
        (void)state;
        const struct {
                const char *line;
                int ranks;
                bool messages, allreduce;
                int64_t gradients[3]; /* of each stage; -1: all of its parameters */
        } cases[] = {
                {GOOD "--pp 3 --messages staged", 3, true, false, {0, 0, 0}},
                {GOOD "--pp 3 --allreduce staged", 3, false, true, {256 * 32, 0, 256 * 32}},
                {GOOD "--pp 3 --dp 2 --allreduce staged --messages direct", 6, false, true, {-1, -1, -1}},
                {GOOD "--messages staged --allreduce staged", 1, false, false, {0}},
                {GOOD "--pp 3 --messages auto --allreduce auto", 3, false, false, {0, 0, 0}},
        };
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct command command;
                struct rv_error_info err;
                if (run(cases[i].line, cases[i].ranks, &command, &err))
                        fail_msg("%s: %s", cases[i].line, err.sentence);
                const struct options *o = &command.plan;
                struct plan plan = options_plan(o, false);
                assert_int_equal(plan.stage_messages, cases[i].messages);
                assert_int_equal(plan.stage_allreduce, cases[i].allreduce);
                for (int s = 0; s < plan.pp; s++) {
                        struct stage stage = partition_stage(&o->gpt, o->pp, s);
                        int64_t all = partition_parameters(&o->gpt, &stage), some = cases[i].gradients[s];
                        struct memory_plan memory = options_memory(o, s);
                        assert_int_equal(memory.stage_messages, cases[i].messages);
                        assert_int_equal(memory.staged_gradients, some < 0 ? all : some);
                }
        }
}

/* Auto becomes what the network can do; what it cannot do is refused by name. */
static void routes_are_chosen_by_what_the_network_reaches(void **state)
{
        (void)state;
        for (int sends = 0; sends <= 1; sends++)
                for (int sums = 0; sums <= 1; sums++) {
                        struct command command;
                        struct rv_error_info err = {0};
                        assert_int_equal(run(GOOD, 1, &command, &err), 0);
                        assert_int_equal(options_choose_routes(&command.plan, sends, sums, &err), 0);
                        assert_int_equal(command.plan.messages, sends ? ROUTE_DIRECT : ROUTE_STAGED);
                        assert_int_equal(command.plan.allreduce, sums ? ROUTE_DIRECT : ROUTE_STAGED);
                        assert_int_equal(run(GOOD "--messages direct --allreduce staged", 1, &command, &err),
                                         0);
                        assert_int_equal(options_choose_routes(&command.plan, sends, sums, &err),
                                         sends ? 0 : RV_EPLAN);
                        if (!sends)
                                assert_non_null(strstr(err.sentence, "--messages direct: "));
                        assert_int_equal(run(GOOD "--messages staged --allreduce direct", 1, &command, &err),
                                         0);
                        assert_int_equal(options_choose_routes(&command.plan, sends, sums, &err),
                                         sums ? 0 : RV_EPLAN);
                        if (!sums)
                                assert_non_null(strstr(err.sentence, "--allreduce direct: "));
                }
}

/* A default bucket larger than the model is cut to it; a stage smaller than a bucket is worked through in
 * thirds of its own, so that offloading never costs it more than it saves. */
static void updates_are_no_larger_than_a_third_of_a_bucket_or_of_a_stage(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        assert_int_equal(run(GOOD "--precision mixed --offload --pp 4", 4, &command, &err), 0);
        assert_int_equal(command.plan.bucket_parameters, 61120);
        for (int s = 0; s < 4; s++) {
                struct stage stage = partition_stage(&command.plan.gpt, 4, s);
                int64_t parameters = partition_parameters(&command.plan.gpt, &stage);
                struct memory_plan memory = options_memory(&command.plan, s);
                assert_int_equal(memory.update_parameters, (parameters + 2) / 3);
                struct memory_bytes bytes;
                memory_stage(&command.plan.gpt, &stage, &memory, &bytes);
                assert_true(bytes.in[MEMORY_DEVICE][MEMORY_BUCKETS] <= 16 * parameters + 12 * 64 + 48);
        }
        assert_int_equal(
                run("gpt-12b --micro-batch-size 2 --batch-size 24 --pp 4 --precision mixed --offload", 4,
                    &command, &err),
                0);
        assert_int_equal(command.plan.bucket_parameters, 16000000);
        assert_int_equal(options_memory(&command.plan, 3).update_parameters, 5333334);
}

/* A plan that was made from a sound one is checked without its model's file. */
static void a_changed_plan_is_checked_like_a_written_one(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        assert_int_equal(run(GOOD "--pp 4", 4, &command, &err), 0);
        struct options *o = &command.plan;
        o->model = "no such model";
        o->pp = 1;
        o->dp = 4;
        assert_int_equal(options_check(o, 4, &err), 0);
        assert_int_equal(options_plan(o, false).micro_batches, 3);
        o->micro_batch_size = 4;
        assert_int_equal(options_check(o, 4, &err), RV_EPLAN);
        assert_string_equal(err.sentence,
                            "--batch-size 24 is not divisible by --dp 4 x --micro-batch-size 4 = 16");
        o->pp = 8;
        o->dp = 1;
        assert_int_equal(options_check(o, 8, &err), RV_EPLAN);
        assert_string_equal(err.sentence, "--pp 8 needs at least as many layers, but tiny has n_layer 4");
}

static void memory_is_planned_for_the_buffers_that_the_core_uses(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        assert_int_equal(run(GOOD "--pp 3 --seq-len 8", 3, &command, &err), 0);
        struct plan plan = options_plan(&command.plan, false);
        for (int stage = 0; stage < 3; stage++) {
                struct memory_plan memory = options_memory(&command.plan, stage);
                struct core_limits limits = core_limits(&plan, stage);
                assert_int_equal(memory.slots, limits.slots);
                assert_int_equal(memory.input_buffers, limits.inputs);
                assert_int_equal(memory.gradient_buffers, limits.gradients);
                assert_int_equal(memory.micro_batches, 12);
                assert_int_equal(memory.host_slots, limits.host_slots);
                assert_int_equal(memory.work.micro_batch_size, 2);
                assert_int_equal(memory.work.seq_len, 8);
                assert_int_equal(memory.work.dtype, DTYPE_FP32);
                assert_false(memory.offload || memory.work.recompute);
        }
}

static void help_ends_parsing_without_an_error(void **state)
{
        (void)state;
        struct command command;
        struct rv_error_info err;
        assert_int_equal(run("--help --nonsense", 1, &command, &err), COMMAND_LINE_DONE);
        assert_int_equal(run("tiny --version", 1, &command, &err), COMMAND_LINE_DONE);
        assert_int_equal(run("--usage", 1, &command, &err), COMMAND_LINE_DONE);
        assert_int_equal(err.code, RV_OK);
}

static void sizes_are_read_with_their_units(void **state)
{
        (void)state;
        static const struct {
                const char *text;
                int64_t bytes;
        } right[] = {{"0", 0},
                     {"4096", 4096},
                     {"7B", 7},
                     {"1.5KiB", 1536},
                     {"500MB", 500000000},
                     {"2GiB", INT64_C(2147483648)},
                     {"16GB", INT64_C(16000000000)},
                     {"3TiB", INT64_C(3298534883328)}};
        for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
                int64_t bytes = -1;
                assert_int_equal(parse_bytes(right[i].text, &bytes), 0);
                assert_int_equal(bytes, right[i].bytes);
        }
        static const char *const bad[] = {"", "GB", "-1", "1XB", "1 GB", "nan", "1e30", "12 "};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                int64_t bytes;
                if (parse_bytes(bad[i], &bytes) != -1)
                        fail_msg("'%s' was taken for a size", bad[i]);
        }
}

static void tokens_are_read_with_their_suffixes(void **state)
{
        (void)state;
        static const struct {
                const char *text;
                double tokens; /* 0: refused */
        } cases[] = {{"300e9", 300e9}, {"300B", 300e9}, {"1.5T", 1.5e12}, {"64K", 64e3}, {"7M", 7e6},
                     {"1", 1},         {"0.5", 0},      {"1e19", 0},      {"300b", 0},   {"B", 0},
                     {"nan", 0},       {"", 0},         {"3BB", 0},       {"-3B", 0}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                double tokens = 0;
                struct rv_error_info err = {0};
                const int rc = parse_tokens("--tokens", cases[i].text, &tokens, &err);
                if (rc != (cases[i].tokens > 0 ? 0 : RV_EINPUT) || tokens != cases[i].tokens)
                        fail_msg("'%s' gave %d, %.17g tokens", cases[i].text, rc, tokens);
        }
}

static void rates_are_sizes_a_second(void **state)
{
        (void)state;
        static const struct {
                const char *text;
                double bytes_per_second;
        } right[] = {{"1GB/s", 1e9}, {"500MB/s", 5e8}, {"0.5KiB/s", 512}, {"4096/s", 4096}};
        struct rv_error_info err = {0};
        double rate;
        for (size_t i = 0; i < sizeof right / sizeof *right; i++) {
                assert_int_equal(parse_rate("--host-link", right[i].text, &rate, &err), 0);
                assert_true(rate == right[i].bytes_per_second);
        }
        static const char *const bad[] = {"",     "/s",    "1GB",   "GB/s",   "0GB/s",
                                          "-1/s", "1GB/m", "nan/s", "1e30/s", "1GB/s/s"};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
                if (parse_rate("--host-link", bad[i], &rate, &err) != RV_EINPUT)
                        fail_msg("'%s' was taken for a rate", bad[i]);
                assert_non_null(strstr(err.sentence, "--host-link: '"));
                assert_non_null(strstr(err.sentence, "is not a rate such as 10GB/s"));
        }
}

/* What a row writes it takes, and then writes the same; and it changes nothing but its own. */
static void flags_take_what_they_write(void **state)
{
        static const char *const values[] = {"1",    "2",    "3",      "0",        "4096",         "0.5",
                                             "1GiB", "even", "full",   "bf16",     "interleaved",  "replicas",
                                             "cuda", "on",   "staged", "blocking", "norms,swiglu", "a.json"};
        int count, taken = 0;
        const struct flag *flags = flags_all(&count);
        (void)state;
        for (int i = 0; i < count; i++)
                for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                        struct options defaults, one, other;
                        struct rv_error_info err;
                        char text[FLAG_TEXT], again[FLAG_TEXT];
                        options_init(&defaults);
                        one = other = defaults;
                        if (flag_parse(&flags[i], &one, values[v], &err))
                                continue;
                        taken++;
                        flag_write(&flags[i], &one, text);
                        assert_int_equal(flag_parse(&flags[i], &other, flags[i].argument ? text : NULL, &err),
                                         0);
                        assert_string_equal(flag_write(&flags[i], &other, again), text);
                        assert_true(flag_equal(&flags[i], &one, &other));
                        for (int j = 0; j < count; j++)
                                assert_true(i == j || flags[j].store == STORE_TEXT ||
                                            flag_equal(&flags[j], &one, &defaults));
                        assert_ptr_equal(flag_named(flags[i].name), &flags[i]);
                }
        assert_true(taken > 3 * count);
}

/* Whether two ranks differ, if at all, along `axis` alone. */
static bool differ_along(const struct plan *plan, int a, int b, int axis)
{
        for (int other = 0; other < GRID_AXES; other++)
                if (other != axis &&
                    plan_place(plan, a, (enum grid_axis)other) != plan_place(plan, b, (enum grid_axis)other))
                        return false;
        return true;
}

static void check_group(const struct plan *plan, int rank, int axis)
{
        const struct plan_group group = plan_group_along(plan, rank, (enum grid_axis)axis);
        int members = 0;
        for (int other = 0; other < plan_ranks(plan); other++) {
                if (!differ_along(plan, rank, other, axis))
                        continue;
                assert_int_equal(other, group.first + members * group.stride);
                if (other == rank)
                        assert_int_equal(members, group.index);
                members++;
        }
        assert_int_equal(members, group.size);
        assert_int_equal(members, plan->sizes[axis]);
}

static void groups_are_the_ranks_that_differ_along_one_axis(void **state)
{
        (void)state;
        for (int order = 0; order < PLAN_ORDERS; order++) {
                const struct plan plan = {.pp = 3, .dp = 4, .tp = 2, .order = (enum plan_order)order};
                assert_int_equal(plan_ranks(&plan), 24);
                for (int rank = 0; rank < 24; rank++) {
                        assert_int_equal(plan_rank(&plan, plan_replica(&plan, rank), plan_stage(&plan, rank),
                                                   plan_shard(&plan, rank)),
                                         rank);
                        for (int axis = 0; axis < GRID_AXES; axis++)
                                check_group(&plan, rank, axis);
                }
        }
        const struct plan plan = {.pp = 3, .dp = 4, .tp = 2, .order = ORDER_REPLICAS};
        const struct plan_group ends = plan_group(&plan, plan_rank(&plan, 1, 2, 1), GROUP_EMBEDDING);
        assert_int_equal(ends.first, plan_rank(&plan, 1, 0, 1));
        assert_int_equal(ends.first + ends.stride, plan_rank(&plan, 1, 2, 1));
        assert_true(ends.size == 2 && ends.index == 1);
}

/* Singh et al. 2024: those along x are neighbours, those along z lie farthest apart. */
static void shards_of_a_grid_have_groups_along_its_axes(void **state)
{
        (void)state;
        const int x = 2, y = 3, z = 4;
        const struct plan plan = {.pp = 2, .dp = 2, .tp = 24, .tp_x = 2, .tp_z = 4};
        for (int rank = 0; rank < plan_ranks(&plan); rank++) {
                const int shard = plan_shard(&plan, rank), first = rank - shard;
                const int places[] = {shard % x, shard / x % y, shard / (x * y)};
                const struct plan_group along_x = plan_group(&plan, rank, GROUP_TENSOR_X),
                                        along_y = plan_group(&plan, rank, GROUP_TENSOR),
                                        along_z = plan_group(&plan, rank, GROUP_TENSOR_Z);
                assert_true(along_x.size == x && along_x.stride == 1 && along_x.index == places[0]);
                assert_true(along_y.size == y && along_y.stride == x && along_y.index == places[1]);
                assert_true(along_z.size == z && along_z.stride == x * y && along_z.index == places[2]);
                assert_int_equal(along_x.first, first + x * (places[1] + y * places[2]));
                assert_int_equal(along_y.first, first + places[0] + x * y * places[2]);
                assert_int_equal(along_z.first, first + places[0] + x * places[1]);
        }
}

/* Megatron's shards are a grid with one shard along x and z. */
static void a_grid_along_y_is_the_same_plan(void **state)
{
        (void)state;
        struct command row, grid;
        struct rv_error_info err;
        assert_int_equal(run(GOOD "--tp 2", 2, &row, &err), 0);
        assert_int_equal(run(GOOD "--tp 1x2x1", 2, &grid, &err), 0);
        const struct plan one = options_plan(&row.plan, false), other = options_plan(&grid.plan, false);
        char text[FLAG_TEXT];
        assert_memory_equal(&one, &other, sizeof one);
        assert_string_equal(flag_write(flag_named("tp"), &grid.plan, text), "2");
        assert_int_equal(run(GOOD "--tp 2,1,2", 4, &grid, &err), 0);
        assert_string_equal(flag_write(flag_named("tp"), &grid.plan, text), "2x1x2");
        const int value = flag_value(flag_named("tp"), &grid.plan);
        flag_set(flag_named("tp"), &row.plan, value);
        assert_true(row.plan.tp == 4 && row.plan.tp_x == 2 && row.plan.tp_z == 2);
}

static void texts_of_a_grid_name_its_axes(void **state)
{
        (void)state;
        char text[GRID_TEXT];
        const struct plan two = {.pp = 2, .dp = 3, .tp = 1}, three = {.pp = 2, .dp = 3, .tp = 4};
        assert_string_equal(grid_text(text, two.sizes, "", " x "), "pp 2 x dp 3");
        assert_string_equal(grid_text(text, three.sizes, "--", " x "), "--pp 2 x --dp 3 x --tp 4");
        assert_string_equal(grid_place(text, &two, 3), "stage 1, replica 1");
        assert_string_equal(grid_place(text, &three, 13), "stage 1, replica 1, shard 1");
}

int main(void)
{
        command_children[0].argp = options_argp();
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_wrong_command_line_gets_its_sentence),
                cmocka_unit_test(flags_take_what_they_write),
                cmocka_unit_test(a_full_command_line_means_what_it_says),
                cmocka_unit_test(defaults_are_one_rank_the_longest_sequence_and_axonn),
                cmocka_unit_test(bf16_is_the_other_mixed_precision),
                cmocka_unit_test(kernels_are_fused_unless_asked_not_to_be),
                cmocka_unit_test(mixed_precision_and_offloading_reach_the_core_and_the_workload),
                cmocka_unit_test(staged_routes_reach_the_core_and_the_memory),
                cmocka_unit_test(routes_are_chosen_by_what_the_network_reaches),
                cmocka_unit_test(updates_are_no_larger_than_a_third_of_a_bucket_or_of_a_stage),
                cmocka_unit_test(a_changed_plan_is_checked_like_a_written_one),
                cmocka_unit_test(memory_is_planned_for_the_buffers_that_the_core_uses),
                cmocka_unit_test(help_ends_parsing_without_an_error),
                cmocka_unit_test(sizes_are_read_with_their_units),
                cmocka_unit_test(tokens_are_read_with_their_suffixes),
                cmocka_unit_test(rates_are_sizes_a_second),
                cmocka_unit_test(groups_are_the_ranks_that_differ_along_one_axis),
                cmocka_unit_test(shards_of_a_grid_have_groups_along_its_axes),
                cmocka_unit_test(a_grid_along_y_is_the_same_plan),
                cmocka_unit_test(texts_of_a_grid_name_its_axes),
        };
        return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
