/* accelerate: the YAML that `accelerate config` writes, for FSDP or DeepSpeed. It is only read. Meanings and
 * defaults are those of accelerate/utils/dataclasses.py; the model, its batches and sequences are in the
 * training script. */
#include "runtime/launch/table.h"

#include "runtime/base/parse.h"

#include <string.h>

#define FSDP "fsdp_config."
#define GRID "parallelism_config."
#define DEEP "deepspeed_config."

/* clang-format off */
static const struct launch_row rows[] = {
        {"distributed_type", NULL, .how = ROW_ONLY, "FSDP DEEPSPEED MULTI_GPU NO no",
         .why = "FSDP, DEEPSPEED, MULTI_GPU and NO are built"},
        {"num_processes", NULL, .how = ROW_GPUS},
        {"num_machines", NULL, .how = ROW_GPUS},
        {"mixed_precision", "precision", .how = ROW_CHOICE, "no=fp32 bf16=bf16 fp16=mixed fp8=fp8", "fp32"},
        {"gradient_accumulation_steps", NULL, .how = ROW_OWN},
        {"fsdp_version", NULL, .how = ROW_UNMODELLED},
        {FSDP "fsdp_version", NULL, .how = ROW_UNMODELLED},
        {FSDP "fsdp_sharding_strategy", "zero", .how = ROW_OWN},
        {FSDP "fsdp_reshard_after_forward", "reshard-after-forward", .how = ROW_OWN},
        {FSDP "fsdp_offload_params", "offload-parameters", .how = ROW_OWN},
        {FSDP "fsdp_activation_checkpointing", "recompute", .how = ROW_SWITCH, "layer", "none"},
        {FSDP "fsdp_backward_prefetch", "prefetch", .how = ROW_CHOICE, "BACKWARD_PRE=1 BACKWARD_POST=1 NO_PREFETCH=0"},
        {FSDP "fsdp_backward_prefetch_policy", "prefetch", .how = ROW_CHOICE,
         "BACKWARD_PRE=1 BACKWARD_POST=1 NO_PREFETCH=0"},
        {FSDP "fsdp_forward_prefetch", NULL, .how = ROW_UNMODELLED},
        {FSDP "fsdp_auto_wrap_policy", NULL, .how = ROW_ONLY, "TRANSFORMER_BASED_WRAP",
         .why = "units of one block are built, TRANSFORMER_BASED_WRAP"},
        {GRID "parallelism_config_tp_size", "tp", .how = ROW_VALUE},
        {GRID "parallelism_config_cp_size", "cp", .how = ROW_VALUE},
        {GRID "parallelism_config_dp_shard_size", "zero", .how = ROW_OWN},
        {GRID "parallelism_config_dp_replicate_size", "dp", .how = ROW_OWN},
        {GRID "parallelism_config_cp_comm_strategy", "cp-exchange", .how = ROW_CHOICE, "allgather=all-gather alltoall=ring"},
        {DEEP "zero_stage", "zero", .how = ROW_VALUE},
        {DEEP "gradient_accumulation_steps", NULL, .how = ROW_OWN},
        {DEEP "gradient_clipping", "clip", .how = ROW_VALUE},
        {DEEP "offload_optimizer_device", "offload", .how = ROW_CHOICE, "cpu=yes none=no"},
        {DEEP "offload_param_device", "offload-parameters", .how = ROW_CHOICE, "cpu=yes none=no"},
        {DEEP "deepspeed_config_file", NULL, .how = ROW_ONLY, "",
         .why = "the plan is in that file: read it with --from, and the model"},
        {"dynamo_config.dynamo_backend", NULL, .how = ROW_UNMODELLED},
        {"use_cpu", NULL, .how = ROW_ONLY, "false", .why = "a training on GPUs was expected"},
        {.theirs = NULL},
};

static const char *const nothing[] = {
        "compute_environment", "debug", "downcast_bf16", "enable_cpu_affinity", "machine_rank", "main_*",
        "rdzv_backend", "same_network", "tpu_*", "gpu_ids", "dynamo_config.*", "deepspeed_config.deepspeed_hostfile",
        "deepspeed_config.deepspeed_multinode_launcher", "deepspeed_config.zero3_*",
        "fsdp_config.fsdp_state_dict_type", "fsdp_config.fsdp_cpu_ram_efficient_loading",
        "fsdp_config.fsdp_sync_module_states", "fsdp_config.fsdp_use_orig_params",
        "fsdp_config.fsdp_transformer_layer_cls_to_wrap", "megatron_lm_config", "command_file", "commands",
        "mpirun_*", "fp8_config.*", NULL};
/* clang-format on */

static int count(const struct launch *l, const char *key)
{
        int64_t value = 0;
        const char *text = launch_value(l, key);
        return text && parse_int(key, text, 1, 1 << 20, &value, NULL) == 0 ? (int)value : 0;
}

/* How replicas share, by FSDP's strategies, or their numbers. */
static int read_fsdp(struct launch *l, struct rv_error_info *err)
{
        static const char key[] = FSDP "fsdp_sharding_strategy", when[] = FSDP "fsdp_reshard_after_forward",
                          offload[] = FSDP "fsdp_offload_params",
                          parts[] = GRID "parallelism_config_dp_shard_size",
                          copies[] = GRID "parallelism_config_dp_replicate_size";
        static const char *const names[] = {"FULL_SHARD",   "SHARD_GRAD_OP",      "NO_SHARD",
                                            "HYBRID_SHARD", "HYBRID_SHARD_ZERO2", NULL};
        const char *strategy = launch_value(l, key), *reshard = launch_value(l, when);
        const int machines = count(l, "num_machines"), shards = count(l, parts), groups = count(l, copies);
        int which = 0, rc = 0;
        if (strategy && strategy[0] >= '1' && strategy[0] <= '5' && !strategy[1])
                which = strategy[0] - '1';
        else if (strategy && parse_name(key, strategy, names, &which, NULL))
                return launch_wrong(l, key, RV_EINPUT, err, "one of %s, %s, %s and %s was expected", names[0],
                                    names[1], names[2], names[3]);
        const bool shares = which != 2 && shards != 1;
        const bool keeps =
                which == 1 || which == 4 ||
                (reshard && (strcmp(reshard, "false") == 0 || strcmp(reshard, "SHARD_GRAD_OP") == 0));
        l->share_groups = groups ? groups : which >= 3 && machines > 1 ? machines : 0;
        rc = launch_say(l, "zero", shares ? "3" : "0", strategy ? key : NULL, err);
        if (rc == 0 && shares && strcmp(launch_said(l, "precision"), "fp32") != 0)
                rc = launch_say(l, "reduce-dtype", "16-bit", NULL,
                                err); /* accelerate's policy of mixed precision */
        if (rc == 0 && shares && keeps)
                rc = launch_say(l, "reshard-after-forward", "off", reshard ? when : key, err);
        if (rc == 0 && shares && launch_is_on(l, offload))
                rc = launch_say(l, "offload-parameters", "yes", offload, err);
        if (rc == 0 && shares && launch_is_on(l, offload) && strcmp(launch_said(l, "precision"), "fp32") != 0)
                rc = launch_say(l, "offload", "yes", offload, err);
        if (rc == 0 && launch_said(l, "cp") && strcmp(launch_said(l, "cp"), "1") &&
            !launch_said(l, "cp-exchange"))
                rc = launch_say(l, "cp-exchange", "all-gather", NULL, err);
        return rc;
}

static int read_plan(struct launch *l, struct rv_error_info *err)
{
        const char *type = launch_value(l, "distributed_type");
        const int deep = count(l, DEEP "gradient_accumulation_steps"),
                  steps = count(l, "gradient_accumulation_steps");
        l->gpus = count(l, "num_processes");
        l->micro_batches = deep ? deep : steps ? steps : 1;
        snprintf(l->no_model, sizeof l->no_model,
                 "%.200s: accelerate's configuration names no model: name MODEL on the "
                 "command line",
                 l->path);
        int rc = strcmp(type, "FSDP") == 0 ? read_fsdp(l, err) : 0;
        if (rc == 0 && !launch_said(l, "zero"))
                rc = launch_say(l, "zero", "0", NULL, err);
        return rc ? rc : launch_say(l, "schedule", "1f1b", NULL, err);
}

const struct launch_tool launch_accelerate = {
        .name = "accelerate", .title = "accelerate", .rows = rows, .nothing = nothing, .read = read_plan};
