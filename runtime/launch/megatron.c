/* Megatron-LM: a script of bash that starts pretrain_gpt.py, or its arguments. Meanings and defaults are
 * those of megatron/training/arguments.py and megatron/core/model_parallel_config.py. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"
#include "runtime/base/parse.h"

#include <string.h>

/* clang-format off */
static const struct launch_row rows[] = {
        {"--tensor-model-parallel-size", "tp", .how = ROW_VALUE, .absent = "1"},
        {"--pipeline-model-parallel-size", "pp", .how = ROW_VALUE, .absent = "1"},
        {"--context-parallel-size", "cp", .how = ROW_VALUE, .absent = "1"},
        {"--cp-comm-type", "cp-exchange", .how = ROW_CHOICE, "p2p=ring all_gather=all-gather", "ring"},
        {"--expert-model-parallel-size", "ep", .how = ROW_VALUE, .absent = "1"},
        {"--expert-tensor-parallel-size", "etp", .how = ROW_OWN},
        {"--moe-token-dispatcher-type", "dispatcher", .how = ROW_OWN},
        {"--moe-enable-deepep", "dispatcher", .how = ROW_OWN},
        {"--moe-flex-dispatcher-backend", NULL, .how = ROW_ONLY, "deepep"},
        {"--moe-router-force-load-balancing", "expert-capacity", .how = ROW_SWITCH, "1"},
        {"--moe-expert-capacity-factor", "expert-capacity", .how = ROW_OWN},
        {"--micro-batch-size", "micro-batch-size", .how = ROW_VALUE},
        {"--global-batch-size", "batch-size", .how = ROW_VALUE},
        {"--seq-length", "seq-len", .how = ROW_VALUE},
        {"--sequence-parallel", "sequence-parallel", .how = ROW_SWITCH, "yes", "no"},
        {"--tp-comm-overlap", "tp-overlap", .how = ROW_OWN},
        {"--use-distributed-optimizer", "zero", .how = ROW_SWITCH, "1", "0"},
        {"--num-distributed-optimizer-instances", "shard-replicas", .how = ROW_OWN},
        {"--use-megatron-fsdp", "zero", .how = ROW_OWN},
        {"--use-custom-fsdp", "zero", .how = ROW_OWN},
        {"--use-torch-fsdp2", "zero", .how = ROW_OWN},
        {"--data-parallel-sharding-strategy", "zero", .how = ROW_OWN},
        {"--overlap-grad-reduce", "overlap-allreduce", .how = ROW_SWITCH, "yes", "no"},
        {"--optimizer-cpu-offload", "offload", .how = ROW_SWITCH, "yes", "no"},
        {"--optimizer-offload-fraction", NULL, .how = ROW_ONLY, "1 1.0"},
        {"--bf16", "precision", .how = ROW_SWITCH, "bf16 fp8 nvfp4", "fp32"},
        {"--fp16", "precision", .how = ROW_SWITCH, "mixed"},
        {"--fp8-format", "precision", .how = ROW_CHOICE, "hybrid=fp8 e4m3=fp8"},
        {"--fp8-recipe", "scaling", .how = ROW_OWN},
        {"--fp4-format", "precision", .how = ROW_CHOICE, "e2m1=nvfp4"},
        {"--accumulate-allreduce-grads-in-fp32", "gradients", .how = ROW_OWN},
        {"--grad-reduce-in-bf16", "gradients", .how = ROW_OWN},
        {"--recompute-granularity", "recompute", .how = ROW_OWN},
        {"--recompute-method", "recompute", .how = ROW_OWN},
        {"--recompute-num-layers", "recompute", .how = ROW_OWN},
        {"--recompute-modules", "recompute", .how = ROW_OWN},
        {"--recompute-activations", "recompute", .how = ROW_OWN},
        {"--clip-grad", "clip", .how = ROW_VALUE, .absent = "1"},
        {"--num-layers-per-virtual-pipeline-stage", "virtual-stages", .how = ROW_OWN},
        {"--num-virtual-stages-per-pipeline-rank", "virtual-stages", .how = ROW_OWN},
        {"--account-for-embedding-in-pipeline-split", NULL, .how = ROW_OWN},
        {"--account-for-loss-in-pipeline-split", NULL, .how = ROW_OWN},
        {"--no-overlap-p2p-communication", "p2p", .how = ROW_OWN},
        {"--overlap-p2p-communication", NULL, .how = ROW_ONLY, "true"},
        {"--decoder-last-pipeline-num-layers", "split", .how = ROW_VALUE, .absent = "even"},
        {"--use-tp-pp-dp-mapping", "order", .how = ROW_SWITCH, "stages", "replicas"},

        {"--num-layers", "num_hidden_layers", .how = ROW_MODEL},
        {"--hidden-size", "hidden_size", .how = ROW_MODEL},
        {"--ffn-hidden-size", "intermediate_size", .how = ROW_MODEL},
        {"--num-attention-heads", "num_attention_heads", .how = ROW_MODEL},
        {"--group-query-attention", NULL, .how = ROW_OWN},
        {"--num-query-groups", "num_key_value_heads", .how = ROW_MODEL},
        {"--num-key-value-heads", NULL, .how = ROW_OWN}, /* of Megatron-DeepSpeed */
        {"--kv-channels", "head_dim", .how = ROW_MODEL},
        {"--max-position-embeddings", "max_position_embeddings", .how = ROW_MODEL},
        {"--vocab-size", "vocab_size", .how = ROW_MODEL},
        {"--tokenizer-type", NULL, .how = ROW_OWN},
        {"--rotary-base", "rope_theta", .how = ROW_MODEL},
        {"--norm-epsilon", "rms_norm_eps", .how = ROW_MODEL},
        {"--rotary-percent", "partial_rotary_factor", .how = ROW_MODEL},
        {"--position-embedding-type", NULL, .how = ROW_OWN},
        {"--use-rotary-position-embeddings", NULL, .how = ROW_OWN},
        {"--swiglu", NULL, .how = ROW_OWN},
        {"--squared-relu", NULL, .how = ROW_OWN},
        {"--normalization", NULL, .how = ROW_OWN},
        {"--untie-embeddings-and-output-weights", NULL, .how = ROW_OWN},
        {"--disable-bias-linear", NULL, .how = ROW_OWN},
        {"--add-qkv-bias", NULL, .how = ROW_OWN},
        {"--qk-layernorm", NULL, .how = ROW_OWN},
        {"--num-experts", NULL, .how = ROW_OWN},
        {"--moe-router-topk", "num_experts_per_tok", .how = ROW_MODEL},
        {"--moe-ffn-hidden-size", "moe_intermediate_size", .how = ROW_MODEL},
        {"--moe-layer-freq", NULL, .how = ROW_OWN},
        {"--moe-shared-expert-intermediate-size", NULL, .how = ROW_OWN},
        {"--moe-router-score-function", NULL, .how = ROW_OWN},
        {"--moe-router-num-groups", "n_group", .how = ROW_MODEL},
        {"--moe-router-group-topk", "topk_group", .how = ROW_MODEL},
        {"--moe-router-topk-scaling-factor", "routed_scaling_factor", .how = ROW_MODEL},
        {"--multi-latent-attention", NULL, .how = ROW_OWN},
        {"--q-lora-rank", "q_lora_rank", .how = ROW_MODEL},
        {"--kv-lora-rank", "kv_lora_rank", .how = ROW_MODEL},
        {"--qk-head-dim", "qk_nope_head_dim", .how = ROW_MODEL},
        {"--qk-pos-emb-head-dim", "qk_rope_head_dim", .how = ROW_MODEL},
        {"--v-head-dim", "v_head_dim", .how = ROW_MODEL},

        {"--attention-backend", NULL, .how = ROW_ONLY, "auto flash fused AttnBackend.auto AttnBackend.flash",
         .why = "attention that stores its scores is --fusion off here, and not translated"},
        {"--attention-dropout", NULL, .how = ROW_UNMODELLED},
        {"--hidden-dropout", NULL, .how = ROW_UNMODELLED},
        {"--rampup-batch-size", NULL, .how = ROW_UNMODELLED},
        {"--overlap-param-gather", NULL, .how = ROW_UNMODELLED},
        {"--overlap-param-gather-with-optimizer-step", NULL, .how = ROW_UNMODELLED},
        {"--align-param-gather", NULL, .how = ROW_UNMODELLED},
        {"--fp8-param-gather", NULL, .how = ROW_UNMODELLED},
        {"--fp8-amax-history-len", NULL, .how = ROW_UNMODELLED},
        {"--fp8-amax-compute-algo", NULL, .how = ROW_UNMODELLED},
        {"--cuda-graph-impl", NULL, .how = ROW_UNMODELLED},
        {"--cuda-graph-scope", NULL, .how = ROW_UNMODELLED},
        {"--enable-cuda-graph", NULL, .how = ROW_UNMODELLED},
        {"--external-cuda-graph", NULL, .how = ROW_UNMODELLED},
        {"--cross-entropy-loss-fusion", NULL, .how = ROW_UNMODELLED},
        {"--cross-entropy-fusion-impl", NULL, .how = ROW_UNMODELLED},
        {"--ddp-bucket-size", NULL, .how = ROW_UNMODELLED},
        {"--empty-unused-memory-level", NULL, .how = ROW_UNMODELLED},
        {"--moe-permute-fusion", NULL, .how = ROW_UNMODELLED},
        {"--moe-router-fusion", NULL, .how = ROW_UNMODELLED},
        {"--moe-router-dtype", NULL, .how = ROW_UNMODELLED},
        {"--moe-shared-expert-overlap", NULL, .how = ROW_UNMODELLED},
        {"--make-vocab-size-divisible-by", NULL, .how = ROW_UNMODELLED},
        {"--no-bias-gelu-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-bias-swiglu-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-bias-dropout-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-rope-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-masked-softmax-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-gradient-accumulation-fusion", NULL, .how = ROW_UNMODELLED},
        {"--no-persist-layer-norm", NULL, .how = ROW_UNMODELLED},
        {"--no-async-tensor-model-parallel-allreduce", NULL, .how = ROW_UNMODELLED},
        {"--nccl-ub", NULL, .how = ROW_UNMODELLED},
        {"--use-sharp", NULL, .how = ROW_UNMODELLED},

        {"--pipeline-model-parallel-layout", NULL, .how = ROW_ONLY, "", .why = "stages of sizes of their own are not built"},
        {"--decoder-first-pipeline-num-layers", NULL, .how = ROW_ONLY, "", .why = "of other sizes than even ones the last stage's is built"},
        {"--window-size", NULL, .how = ROW_ONLY, "", .why = "attention that looks back on a window is not built"},
        {"--delay-wgrad-compute", NULL, .how = ROW_ONLY, "false", .why = "gradients of weights that wait are other schedules here"},
        {"--overlap-moe-expert-parallel-comm", NULL, .how = ROW_ONLY, "false", .why = "exchanges of experts beside other work are not built"},
        {"--spec", NULL, .how = ROW_ONLY, "", .why = "layers of a specification of one's own are not built"},
        {"--optimizer", NULL, .how = ROW_ONLY, "adam", .why = "AdamW is the optimizer that is built"},
        {"--mtp-num-layers", NULL, .how = ROW_ONLY, "0", .why = "layers that predict further tokens are not built"},
        /* Of Megatron-DeepSpeed. */
        {"--deepspeed", NULL, .how = ROW_OWN},
        {"--zero-stage", "zero", .how = ROW_OWN},
        {"--checkpoint-activations", "recompute", .how = ROW_OWN},
        {"--deepspeed-activation-checkpointing", NULL, .how = ROW_OWN},
        {"--deepspeed-config", NULL, .how = ROW_UNMODELLED},
        {"--no-pipeline-parallel", NULL, .how = ROW_UNMODELLED},

        /* Who starts how many. */
        {"--nnodes", NULL, .how = ROW_GPUS},
        {"--num-nodes", NULL, .how = ROW_GPUS},
        {"--nodes", NULL, .how = ROW_GPUS},
        {"--nproc-per-node", NULL, .how = ROW_GPUS},
        {"--gpus-per-node", NULL, .how = ROW_GPUS},
        {"--ntasks-per-node", NULL, .how = ROW_GPUS},
        {"--num-gpus", NULL, .how = ROW_GPUS},
        {"--ntasks", NULL, .how = ROW_GPUS},
        {"WORLD_SIZE", NULL, .how = ROW_GPUS},
        {"SLURM_NTASKS", NULL, .how = ROW_GPUS},
        {"SLURM_NNODES", NULL, .how = ROW_GPUS},
        {"SLURM_NTASKS_PER_NODE", NULL, .how = ROW_GPUS},
        {"SLURM_GPUS_PER_NODE", NULL, .how = ROW_GPUS},
        {.theirs = NULL},
};

static const char *const nothing[] = {
        "--adam-*", "--lr", "--lr-*", "--min-lr", "--decoupled-*", "--weight-decay*", "--start-weight-decay",
        "--end-weight-decay", "--log-*", "--tensorboard-*", "--wandb-*", "--save", "--save-*", "--load", "--load-*",
        "--no-load-*", "--no-save-*", "--eval-*", "--ckpt-*", "--async-save", "--use-checkpoint-args",
        "--use-checkpoint-opt-param-scheduler", "--use-dist-ckpt*", "--dist-ckpt-*", "--auto-detect-ckpt-format",
        "--override-opt-param-scheduler", "--finetune", "--pretrained-checkpoint", "--exit-*", "--train-*",
        "--valid-*", "--test-*", "--data-*", "--mock-data", "--split", "--per-split-data-args-path", "--dataloader-*",
        "--num-workers", "--num-dataset-builder-threads", "--no-mmap-bin-files", "--no-create-attention-mask-*",
        "--create-attention-mask-*", "--reset-*", "--eod-mask-loss", "--tokenizer-*", "--tiktoken-*", "--vocab-file",
        "--merge-file", "--vocab-extra-ids", "--legacy-tokenizer", "--seed", "--te-rng-tracker", "--init-method*",
        "--apply-query-key-layer-scaling", "--no-query-key-layer-scaling", "--attention-softmax-in-fp32",
        "--loss-scale*", "--initial-loss-scale", "--min-loss-scale", "--hysteresis",
        "--no-check-for-nan-in-loss-and-grad", "--check-for-*", "--calculate-per-token-loss",
        "--apply-layernorm-1p", "--rotary-interleaved", "--rotary-scaling-factor", "--use-rope-scaling",
        "--rope-scaling-factor", "--mscale", "--mscale-all-dim", "--no-position-embedding", "--rotary-seq-len-*",
        "--moe-aux-loss-coeff", "--moe-z-loss-coeff", "--moe-router-load-balancing-type", "--moe-router-pre-softmax",
        "--moe-router-enable-expert-bias", "--moe-router-bias-update-rate", "--moe-grouped-gemm",
        "--moe-per-layer-logging", "--moe-token-drop-policy", "--moe-pad-expert-input-to-capacity",
        "--use-mcore-models", "--transformer-impl", "--use-flash-attn", "--use-cpu-initialization", "--distributed-*",
        "--master-*", "--node-rank", "--rdzv-*", "--standalone", "--max-restarts", "--tee", "--redirects", "--role",
        "--hostfile", "--local-rank", "--no-python", "--module", "--timing-*", "--profile*", "--use-pytorch-profiler",
        "--record-memory-history", "--memory-snapshot-path", "--manual-gc*", "--high-priority-stream-groups",
        "--rerun-mode", "--enable-one-logger", "--one-logger-*", "--enable-experimental", "--container-*", "--output",
        "--error", "--label", "--job-name", "--mpi", "--cpu-bind", "--ntasks-*", "--export", "--kill-on-bad-exit",
        "--wait", "--gres", "--partition", "--account", "--time", "--qos", "--exclusive", "--mem", "--overcommit",
        NULL};
/* clang-format on */

/* ---- reading ---- */

/* The first of several keys that is a whole number above 0; else 0. */
static int64_t count_of(const struct launch *l, const char *const *keys)
{
        int64_t count = 0;
        for (; *keys && count < 1; keys++)
                if (!launch_value(l, *keys) ||
                    parse_int(*keys, launch_value(l, *keys), 1, 1 << 20, &count, NULL))
                        count = 0;
        return count;
}

static void read_gpus(struct launch *l)
{
        static const char *const nodes_keys[] = {"--nnodes", "--num-nodes", "--nodes", "SLURM_NNODES", NULL};
        static const char *const each_keys[] = {"--nproc-per-node", "--num-gpus", "--ntasks-per-node", NULL};
        static const char *const all_keys[] = {"WORLD_SIZE", "--ntasks", "-n", "SLURM_NTASKS", NULL};
        static const char *const slurm_keys[] = {"SLURM_NTASKS_PER_NODE", "--gpus-per-node",
                                                 "SLURM_GPUS_PER_NODE", NULL};
        const int64_t nodes = count_of(l, nodes_keys), each = count_of(l, each_keys),
                      all = count_of(l, all_keys);
        const bool unknown =
                launch_value(l, "--nnodes") && !count_of(l, (const char *const[]){"--nnodes", NULL});
        int64_t gpus = all;
        if (each)
                gpus = unknown ? 0 : each * (nodes ? nodes : 1);
        else if (!all)
                gpus = nodes * count_of(l, slurm_keys);
        l->gpus = gpus <= 1 << 20 ? (int)gpus : 0;
}

static int64_t said_number(const struct launch *l, const char *flag)
{
        int64_t value = 1;
        const char *text = launch_said(l, flag);
        return text && parse_int(flag, text, 1, 1 << 20, &value, NULL) == 0 ? value : 1;
}

static int read_schedule(struct launch *l, struct rv_error_info *err)
{
        static const char each[] = "--num-layers-per-virtual-pipeline-stage",
                          stages[] = "--num-virtual-stages-per-pipeline-rank",
                          embedding[] = "--account-for-embedding-in-pipeline-split",
                          loss[] = "--account-for-loss-in-pipeline-split";
        const int64_t pp = said_number(l, "pp");
        int64_t chunks = 1, chunk = 0, layers = 0;
        char text[24];
        if (launch_number(l, stages, &chunks, err) || launch_number(l, each, &chunk, err) ||
            launch_number(l, "--num-layers", &layers, err))
                return RV_EINPUT;
        const int ends = launch_is_on(l, embedding) + launch_is_on(l, loss);
        if (ends && (chunk < 1 || !launch_is_on(l, loss)))
                return launch_wrong(l, launch_is_on(l, embedding) ? embedding : loss, RV_ENOTBUILT, err,
                                    "with chunks (%s) both ends, or the last one, are built", each);
        layers += ends;
        if (chunk > 0 && (layers < 1 || layers % (pp * chunk)))
                return launch_wrong(l, each, RV_EINPUT, err,
                                    "--num-layers %lld are not that many on each of %lld stages",
                                    (long long)layers, (long long)pp);
        chunks = chunk > 0 ? layers / (pp * chunk) : chunks;
        const char *key = chunk > 0 ? each : stages;
        snprintf(text, sizeof text, "%lld", (long long)chunks);
        const bool interleaved = chunks > 1;
        const bool blocking = pp > 1 && (!interleaved || launch_is_on(l, "--no-overlap-p2p-communication"));
        int rc = launch_say(l, "schedule", interleaved ? "interleaved" : "1f1b", interleaved ? key : NULL,
                            err);
        if (rc == 0 && interleaved)
                rc = launch_say(l, "virtual-stages", text, key, err);
        return rc ? rc : launch_say(l, "p2p", blocking ? "blocking" : "async", NULL, err);
}

/* Which results are made again. */
static int read_selective(struct launch *l, struct rv_error_info *err)
{
        static const char key[] = "--recompute-modules";
        const char *modules = launch_value(l, key);
        bool norms = false, swiglu = false;
        char name[64];
        for (int length; modules && sscanf(modules, " %63s%n", name, &length) == 1; modules += length) {
                norms |= strcmp(name, "layernorm") == 0;
                swiglu |= strcmp(name, "moe_act") == 0;
                if (!launch_lists("core_attn layernorm moe_act", name))
                        return launch_wrong(l, key, RV_ENOTBUILT, err,
                                            "core_attn, layernorm and moe_act are built");
        }
        return launch_say(l, "recompute",
                          norms && swiglu ? "norms,swiglu"
                          : norms         ? "norms"
                          : swiglu        ? "swiglu"
                                          : "selective",
                          modules ? key : NULL, err);
}

static int read_recompute(struct launch *l, struct rv_error_info *err)
{
        static const char key[] = "--recompute-granularity", count[] = "--recompute-num-layers";
        const char *what = launch_value(l, key), *method = launch_value(l, "--recompute-method");
        int64_t layers = 0, together = 1;
        if (!what && launch_is_on(l, "--checkpoint-activations"))
                return launch_say(l, "recompute", "layer", "--checkpoint-activations", err);
        if (!what && !launch_is_on(l, "--recompute-activations"))
                return launch_say(l, "recompute", "none", NULL, err);
        if (!what || strcmp(what, "selective") == 0)
                return read_selective(l, err);
        if (strcmp(what, "full") != 0)
                return launch_wrong(l, key, RV_EINPUT, err, "full or selective was expected");
        if (launch_number(l, "--num-layers", &layers, err) || launch_number(l, count, &together, err))
                return RV_EINPUT;
        const bool block = method && strcmp(method, "block") == 0;
        const int64_t each = layers / (said_number(l, "pp") * said_number(l, "virtual-stages"));
        if (block ? together < each : together != 1)
                return launch_wrong(
                        l, count, RV_ENOTBUILT, err, "%s is built",
                        block ? "recomputing all layers of a stage (with --recompute-method block)"
                              : "recomputing each layer from its own input (1)");
        return launch_say(l, "recompute", "layer", key, err);
}

/* What gradients are kept and summed in, which with weights or gradients shared is another flag here. */
static int read_gradients(struct launch *l, struct rv_error_info *err)
{
        static const char wide[] = "--accumulate-allreduce-grads-in-fp32", narrow[] = "--grad-reduce-in-bf16";
        const char *precision = launch_said(l, "precision"), *zero = launch_said(l, "zero");
        const bool half = strcmp(precision, "mixed") == 0, full = strcmp(precision, "fp32") == 0;
        const bool fp32 = half ? launch_is_on(l, wide) : !launch_is_on(l, narrow);
        if (full)
                return 0;
        return launch_say(l, strcmp(zero, "1") > 0 ? "reduce-dtype" : "gradients", fp32 ? "fp32" : "16-bit",
                          fp32 ? wide : narrow, err);
}

static int read_zero(struct launch *l, struct rv_error_info *err)
{
        static const char key[] = "--data-parallel-sharding-strategy";
        static const char *const names[] = {"no_shard", "optim", "optim_grads", "optim_grads_params", NULL};
        const char *strategy = launch_value(l, key);
        int64_t groups = 1;
        int rc = 0, zero = 0;
        char text[4];
        if (launch_is_on(l, "--deepspeed") && launch_value(l, "--zero-stage"))
                rc = launch_say(l, "zero", launch_value(l, "--zero-stage"), "--zero-stage", err);
        if (launch_is_on(l, "--use-torch-fsdp2"))
                rc = launch_say(l, "zero", "3", "--use-torch-fsdp2", err);
        if (launch_is_on(l, "--use-megatron-fsdp") || launch_is_on(l, "--use-custom-fsdp")) {
                if (strategy && parse_name(key, strategy, names, &zero, NULL))
                        return launch_wrong(l, key, RV_EINPUT, err, "one of %s, %s, %s and %s was expected",
                                            names[0], names[1], names[2], names[3]);
                snprintf(text, sizeof text, "%d", zero);
                rc = launch_say(l, "zero", text, key, err);
        }
        if (rc == 0)
                rc = launch_number(l, "--num-distributed-optimizer-instances", &groups, err);
        l->share_groups = (int)groups;
        if (rc == 0 &&
            strcmp(launch_said(l, "zero"), "1") > 0) /* gradients are reduced beside backwards anyway */
                rc = launch_say(l, "overlap-allreduce", "no", NULL, err);
        return rc;
}

/* How tokens come to experts on other ranks. */
static int read_experts(struct launch *l, struct rv_error_info *err)
{
        static const char type[] = "--moe-token-dispatcher-type", capacity[] = "--moe-expert-capacity-factor";
        const char *how = launch_value(l, type);
        const bool deepep = how && strcmp(how, "flex") == 0, spread = said_number(l, "ep") > 1;
        if (spread && !(how && launch_lists("alltoall alltoall_seq flex", how)))
                return launch_wrong(
                        l, type, RV_ENOTBUILT, err,
                        "with experts on several ranks alltoall and flex are built, not allgather, the "
                        "default");
        int rc = spread ? launch_say(l, "dispatcher", deepep ? "deepep" : "all-to-all", type, err) : 0;
        if (rc == 0 && spread && launch_value(l, "--expert-tensor-parallel-size"))
                rc = launch_say(l, "etp", launch_value(l, "--expert-tensor-parallel-size"),
                                "--expert-tensor-parallel-size", err);
        if (rc == 0 && launch_value(l, capacity))
                rc = launch_say(l, "expert-capacity", launch_value(l, capacity), capacity, err);
        return rc;
}

/* How fp8 is scaled, and what only several shards have. */
static int read_products(struct launch *l, struct rv_error_info *err)
{
        static const char recipe[] = "--fp8-recipe";
        const bool shards = said_number(l, "tp") > 1, fp8 = strcmp(launch_said(l, "precision"), "fp8") == 0;
        const char *how = launch_value(l, recipe);
        int rc = shards ? 0 : launch_say(l, "sequence-parallel", "no", NULL, err);
        if (rc == 0 && shards && launch_is_on(l, "--tp-comm-overlap"))
                rc = launch_say(l, "tp-overlap", "4", "--tp-comm-overlap", err);
        if (rc || !fp8 || !how)
                return rc;
        if (!launch_lists("delayed tensorwise mxfp8 blockwise", how))
                return launch_wrong(l, recipe, RV_ENOTBUILT, err,
                                    "delayed, tensorwise, mxfp8 and blockwise are built");
        return launch_say(l, "scaling", strcmp(how, "tensorwise") == 0 ? "current" : "delayed", recipe, err);
}

static int read_plan(struct launch *l, struct rv_error_info *err)
{
        static int (*const parts[])(struct launch *, struct rv_error_info *) = {
                read_zero,    read_gradients, read_schedule,    read_recompute,
                read_experts, read_products,  launch_read_model};
        int rc = 0;
        read_gpus(l);
        l->micro_batches = 1; /* where there is no --global-batch-size */
        for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
                rc = parts[i](l, err);
        return rc;
}

/* ---- writing ---- */

static int put_recompute(struct launch_output *out, struct rv_error_info *err)
{
        const enum recompute what = out->options->recompute;
        const bool norms = recompute_has_norms(what), swiglu = recompute_has_swiglu(what);
        const bool selective = norms || swiglu || what == RECOMPUTE_SELECTIVE;
        int rc = 0;
        if (swiglu && !out->options->gpt.n_expert)
                return rv_fail(err, RV_EPLAN,
                               "--recompute %s: Megatron-LM makes SwiGLU's results again of experts alone, "
                               "which %s has "
                               "not",
                               recompute_name(what), out->options->gpt.name);
        if (selective || what == RECOMPUTE_LAYER)
                rc = launch_put(out, "--recompute-granularity", err, "%s", selective ? "selective" : "full");
        if (rc == 0 && what == RECOMPUTE_LAYER)
                rc = launch_put(out, "--recompute-method", err, "uniform");
        if (rc == 0 && what == RECOMPUTE_LAYER)
                rc = launch_put(out, "--recompute-num-layers", err, "1");
        if (rc == 0 && (norms || swiglu))
                rc = launch_put(out, "--recompute-modules", err, "%s%s", norms ? "layernorm" : "",
                                swiglu ? norms ? " moe_act" : "moe_act" : "");
        return rc;
}

static int put_zero(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const bool wide = o->zero >= 2 ? options_reduces_fp32(o) : options_wide_gradients(o);
        int rc = 0;
        if (o->zero >= 2)
                rc = launch_put(out, "--use-megatron-fsdp", err, "%s", "");
        if (rc == 0 && o->zero >= 2)
                rc = launch_put(out, "--data-parallel-sharding-strategy", err, "%s",
                                o->zero == 3 ? "optim_grads_params" : "optim_grads");
        if (rc == 0 && o->zero >= 2)
                rc = launch_put(out, "--ckpt-format", err, "fsdp_dtensor");
        if (rc == 0 && o->shard_replicas && options_replicas(o) > o->shard_replicas)
                rc = launch_put(out, "--num-distributed-optimizer-instances", err, "%d",
                                options_replicas(o) / o->shard_replicas);
        if (rc == 0 && wide && options_mixed(o))
                rc = launch_put(out, "--accumulate-allreduce-grads-in-fp32", err, "%s", "");
        if (rc == 0 && !wide && o->dtype == DTYPE_BF16)
                rc = launch_put(out, "--grad-reduce-in-bf16", err, "%s", "");
        return rc;
}

static int put_experts(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const bool deepep = o->dispatcher == DISPATCHER_DEEPEP, spread = o->ep > 1;
        int rc = 0;
        if (spread)
                rc = launch_put(out, "--moe-token-dispatcher-type", err, "%s", deepep ? "flex" : "alltoall");
        if (rc == 0 && spread && deepep)
                rc = launch_put(out, "--moe-enable-deepep", err, "%s", "");
        if (rc == 0 && spread && o->tp > 1)
                rc = launch_put(out, "--expert-tensor-parallel-size", err, "%d", o->etp ? o->etp : o->tp);
        if (rc == 0 && o->expert_capacity > 1)
                rc = launch_put(out, "--moe-expert-capacity-factor", err, "%g", o->expert_capacity);
        return rc;
}

static int put_schedule(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const int layers = o->gpt.n_layer,
                  last = o->split == SPLIT_EVEN ? 0 : options_stage(o, o->pp - 1).layers;
        const int others = last ? o->pp - 1 : o->pp * o->virtual_stages;
        /* Chunks of which the last, and then the first, have a layer less: these count as one each. */
        const int less = o->virtual_stages > 1 ? (others - layers % others) % others : 0,
                  ends = less <= 2 ? less : 0;
        if (o->pp > 1 && (layers + ends - last) % others)
                return rv_fail(err, RV_EPLAN,
                               "%d layers on --pp %d%s are not as many on each%s; Megatron-LM needs that",
                               layers - last, o->pp,
                               o->virtual_stages > 1 ? " stages of several chunks" : " stages",
                               last ? " but the last" : "");
        int rc = 0;
        if (o->virtual_stages > 1)
                rc = launch_put(out, "--num-layers-per-virtual-pipeline-stage", err, "%d",
                                (layers + ends) / others);
        if (rc == 0 && ends > 0)
                rc = launch_put(out, "--account-for-loss-in-pipeline-split", err, "%s", "");
        if (rc == 0 && ends > 1)
                rc = launch_put(out, "--account-for-embedding-in-pipeline-split", err, "%s", "");
        if (rc == 0 && o->virtual_stages > 1 && o->blocking)
                rc = launch_put(out, "--no-overlap-p2p-communication", err, "%s", "");
        if (rc == 0 && o->format == FORMAT_FP8 && o->scaling == SCALING_CURRENT)
                rc = launch_put(out, "--fp8-recipe", err, "tensorwise");
        if (rc == 0 && o->tp_overlap)
                rc = launch_put(out, "--tp-comm-overlap", err, "%s", "");
        return rc;
}

static int write_plan(struct launch_output *out, struct rv_error_info *err)
{
        static int (*const parts[])(struct launch_output *, struct rv_error_info *) = {
                put_schedule, put_zero, put_recompute, put_experts, launch_write_model};
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++)
                rc = parts[i](out, err);
        return rc;
}

static int print(const struct launch_output *out, const char *path, struct rv_error_info *err)
{
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fprintf(writer.stream,
                "#!/bin/bash\n"
                "# A plan of ranvier for Megatron-LM: to be started on each node, from the folder of\n"
                "# pretrain_gpt.py. What it says nothing of (data, learning rate, checkpoints) goes into "
                "TRAINING_ARGS.\n"
                "export CUDA_DEVICE_MAX_CONNECTIONS=%d\n"
                "GPUS_PER_NODE=%d\n"
                "NNODES=%d\n"
                "\n"
                "PLAN_ARGS=(\n",
                out->options->zero >= 2 ? 8 : 1, out->gpus_a_node, out->gpus / out->gpus_a_node);
        for (int i = 0; i < out->count; i++)
                fprintf(writer.stream,
                        strpbrk(out->items[i].value, " ([*") && !strchr(out->items[i].key, ' ') &&
                                        strpbrk(out->items[i].value, "([*")
                                ? "        %s '%s'\n"
                        : *out->items[i].value ? "        %s %s\n"
                                               : "        %s%s\n",
                        out->items[i].key, out->items[i].value);
        fprintf(writer.stream, ")\n"
                               "TRAINING_ARGS=(\n"
                               "        --mock-data\n"
                               "        --tokenizer-type NullTokenizer\n"
                               "        --train-iters 100\n"
                               "        --lr 1e-4\n"
                               "        --eval-iters 0\n"
                               "        --log-interval 1\n"
                               "        --attention-dropout 0\n"
                               "        --hidden-dropout 0\n"
                               ")\n"
                               "\n"
                               "torchrun --nproc_per_node \"$GPUS_PER_NODE\" --nnodes \"$NNODES\" "
                               "--node_rank \"${NODE_RANK:-0}\" \\\n"
                               "        --master_addr \"${MASTER_ADDR:-localhost}\" --master_port "
                               "\"${MASTER_PORT:-6000}\" \\\n"
                               "        pretrain_gpt.py \"${PLAN_ARGS[@]}\" \"${TRAINING_ARGS[@]}\"\n");
        return file_writer_commit(&writer, err);
}

const struct launch_tool launch_megatron = {
        .name = "megatron",
        .title = "Megatron-LM",
        .rows = rows,
        .nothing = nothing,
        .ours_alone = "like without fusion logits bucket-params allreduce-buckets messages allreduce device",
        .elsewhere = "",
        .read = read_plan,
        .write = write_plan,
        .print = print,
        .like = "megatron",
};
