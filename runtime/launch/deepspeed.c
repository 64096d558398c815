/* DeepSpeed: the JSON that deepspeed.initialize takes. What it does not say (the model, its sequences,
 * shards, stages, and which layers are recomputed) is in the training script. Meanings and defaults are those
 * of deepspeed/runtime/config.py and deepspeed/runtime/zero/config.py. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"
#include "runtime/base/parse.h"

#include <string.h>
#include <unistd.h>

/* clang-format off */
static const struct launch_row rows[] = {
        {"train_batch_size", "batch-size", .how = ROW_VALUE},
        {"train_micro_batch_size_per_gpu", "micro-batch-size", .how = ROW_VALUE},
        {"gradient_accumulation_steps", NULL, .how = ROW_OWN},
        {"gradient_clipping", "clip", .how = ROW_VALUE, .absent = "0"},
        {"bf16.enabled", "precision", .how = ROW_SWITCH, "bf16", "fp32"},
        {"fp16.enabled", "precision", .how = ROW_SWITCH, "mixed"},
        {"zero_optimization.stage", "zero", .how = ROW_VALUE, .absent = "0"},
        {"zero_optimization.overlap_comm", "overlap-allreduce", .how = ROW_OWN},
        {"zero_optimization.offload_optimizer.device", "offload", .how = ROW_CHOICE, "cpu=yes none=no", "no"},
        {"zero_optimization.cpu_offload", "offload", .how = ROW_OWN},
        {"zero_optimization.offload_param.device", "offload-parameters", .how = ROW_CHOICE, "cpu=yes none=no", "no"},
        {"zero_optimization.mics_shard_size", "shard-replicas", .how = ROW_OWN},
        {"zero_optimization.zero_hpz_partition_size", NULL, .how = ROW_ONLY, "1",
         .why = "a second copy of the shares within nodes is not built"},
        {"zero_optimization.zero_quantized_weights", NULL, .how = ROW_ONLY, "false", .why = "collectives of bf16 are built"},
        {"zero_optimization.zero_quantized_gradients", NULL, .how = ROW_ONLY, "false",
         .why = "collectives of bf16 are built"},
        {"zero_optimization.reduce_bucket_size", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.allgather_bucket_size", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.stage3_prefetch_bucket_size", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.stage3_max_live_parameters", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.stage3_max_reuse_distance", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.stage3_param_persistence_threshold", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.stage3_param_persitence_threshold", NULL, .how = ROW_UNMODELLED},
        {"zero_optimization.sub_group_size", NULL, .how = ROW_UNMODELLED},
        {"data_types.grad_accum_dtype", "gradients", .how = ROW_OWN},
        {"communication_data_type", NULL, .how = ROW_UNMODELLED},
        {"activation_checkpointing.cpu_checkpointing", "offload-activations", .how = ROW_SWITCH, "yes", "no"},
        {"activation_checkpointing.partition_activations", NULL, .how = ROW_UNMODELLED},
        {"tensor_parallel.autotp_size", "tp", .how = ROW_OWN},
        {"optimizer.type", NULL, .how = ROW_ONLY, "Adam AdamW FusedAdam DeepSpeedCPUAdam adam adamw",
         .why = "AdamW is the optimizer that is built"},
        {"sparse_attention.mode", NULL, .how = ROW_ONLY, "dense", .why = "dense attention is built"},
        {"curriculum_learning.enabled", NULL, .how = ROW_ONLY, "false", .why = "sequences of one length are built"},
        {"data_efficiency.enabled", NULL, .how = ROW_ONLY, "false", .why = "sequences of one length are built"},
        {"progressive_layer_drop.enabled", NULL, .how = ROW_ONLY, "false", .why = "layers that are all computed are built"},
        {"compression_training.enabled", NULL, .how = ROW_ONLY, "false", .why = "weights of 16 bits are built"},
        {"autotuning.enabled", NULL, .how = ROW_ONLY, "false", .why = "a plan was expected, not a search for one"},
        {"amp.enabled", NULL, .how = ROW_ONLY, "false", .why = "bf16 and fp16 are built"},
        {.theirs = NULL},
};

static const char *const nothing[] = {
        "optimizer.*", "scheduler.*", "steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown",
        "tensorboard.*", "wandb.*", "csv_monitor.*", "comet.*", "flops_profiler.*", "comms_logger.*",
        "monitor_config.*", "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "prescale_gradients",
        "gradient_predivide_factor", "sparse_gradients", "checkpoint.*", "elasticity.*", "seed", "fp16.*", "bf16.*",
        "aio.*", "data_types.*", "zero_optimization.contiguous_gradients", "zero_optimization.reduce_scatter",
        "zero_optimization.allgather_partitions", "zero_optimization.round_robin_gradients",
        "zero_optimization.offload_optimizer.*", "zero_optimization.offload_param.*",
        "zero_optimization.stage3_gather_*", "zero_optimization.ignore_unused_parameters",
        "zero_optimization.load_from_fp32_weights", "zero_optimization.elastic_checkpoint",
        "zero_optimization.cpu_offload_*", "activation_checkpointing.*", "sparse_attention.*",
        "curriculum_learning.*", "data_efficiency.*", "progressive_layer_drop.*", "compression_training.*",
        "autotuning.*", "amp.*", "disable_allgather", "dataloader_drop_last", "use_node_local_storage", NULL};
/* clang-format on */

/* ---- reading ---- */

static int read_zero(struct launch *l, struct rv_error_info *err)
{
        static const char overlap[] = "zero_optimization.overlap_comm",
                          kept[] = "data_types.grad_accum_dtype",
                          group[] = "zero_optimization.mics_shard_size",
                          shards[] = "tensor_parallel.autotp_size";
        const char *zero = launch_said(l, "zero"), *grads = launch_value(l, kept),
                   *precision = launch_said(l, "precision"); /* NULL: "auto" */
        const bool layers = zero && strcmp(zero, "1") > 0, fp32 = grads && strcmp(grads, "fp32") == 0;
        int64_t size = -1;
        int rc = launch_number(l, group, &size, err);
        if (rc == 0 && size > 0)
                rc = launch_say(l, "shard-replicas", launch_value(l, group), group, err);
        if (rc == 0 && launch_is_on(l, shards))
                rc = launch_say(l, "tp", launch_value(l, shards), shards, err);
        if (rc == 0 && launch_is_on(l, "zero_optimization.cpu_offload"))
                rc = launch_say(l, "offload", "yes", "zero_optimization.cpu_offload", err);
        if (rc == 0)
                rc = launch_say(l, "overlap-allreduce", !layers && launch_is_on(l, overlap) ? "yes" : "no",
                                overlap, err);
        if (rc == 0 && grads && (!precision || strcmp(precision, "fp32") != 0))
                rc = launch_say(l, layers ? "reduce-dtype" : "gradients", fp32 ? "fp32" : "16-bit", kept,
                                err);
        return rc;
}

/* The config.json beside the configuration, which names the model, if there is one. */
static void find_model(struct launch *l)
{
        const char *slash = strrchr(l->path, '/');
        snprintf(l->model, sizeof l->model, "%.*sconfig.json", slash ? (int)(slash + 1 - l->path) : 0,
                 l->path);
        if (access(l->model, R_OK) == 0 && strcmp(l->model, l->path) != 0)
                return;
        snprintf(l->no_model, sizeof l->no_model,
                 "%.200s: DeepSpeed's configuration names no model, and there is no config.json beside it: "
                 "name MODEL on "
                 "the command line",
                 l->path);
        l->model[0] = 0;
}

static int read_plan(struct launch *l, struct rv_error_info *err)
{
        int64_t steps = 1;
        if (launch_number(l, "gradient_accumulation_steps", &steps, err))
                return RV_EINPUT;
        if (steps < 1 || steps > 1 << 20)
                return launch_wrong(l, "gradient_accumulation_steps", RV_EINPUT, err,
                                    "a number from 1 on was expected");
        l->micro_batches = (int)steps;
        find_model(l);
        int rc = read_zero(l, err);
        if (rc == 0)
                rc = launch_say(l, "schedule", "1f1b", NULL, err);
        return rc ? rc : launch_say(l, "order", "replicas", NULL, err);
}

/* ---- writing ---- */

static int write_plan(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const bool layers = o->zero >= 2, wide = layers ? options_reduces_fp32(o) : options_wide_gradients(o);
        const char *half = o->dtype == DTYPE_BF16 ? "bf16" : "fp16";
        int rc = launch_put(out, "gradient_accumulation_steps", err, "%lld",
                            (long long)(o->batch_size / ((int64_t)o->dp * o->micro_batch_size)));
        if (rc == 0 && o->overlap_allreduce && !layers)
                rc = launch_put(out, "zero_optimization.overlap_comm", err, "true");
        if (rc == 0 && o->shard_replicas)
                rc = launch_put(out, "zero_optimization.mics_shard_size", err, "%d", o->shard_replicas);
        if (rc == 0 && options_mixed(o))
                rc = launch_put(out, "data_types.grad_accum_dtype", err, "%s", wide ? "fp32" : half);
        return rc;
}

static int print(const struct launch_output *out, const char *path, struct rv_error_info *err)
{
        json_t *document = json_object();
        for (int i = 0; i < out->count; i++) {
                char key[128];
                json_t *object = document, *value = json_loads(out->items[i].value, JSON_DECODE_ANY, NULL);
                char *name = key, *point;
                snprintf(key, sizeof key, "%s", out->items[i].key);
                for (; (point = strchr(name, '.')); name = point + 1) {
                        *point = 0;
                        if (!json_object_get(object, name))
                                json_object_set_new(object, name, json_object());
                        object = json_object_get(object, name);
                }
                json_object_set_new(object, name, value ? value : json_string(out->items[i].value));
        }
        const int rc = file_write_json(path, document, err);
        json_decref(document);
        return rc;
}

const struct launch_tool launch_deepspeed = {
        .name = "deepspeed",
        .title = "DeepSpeed",
        .rows = rows,
        .nothing = nothing,
        .ours_alone = "like without fusion logits bucket-params allreduce-buckets messages allreduce device "
                      "prefetch "
                      "unit-layers p2p",
        .elsewhere =
                "seq-len recompute pp tp cp cp-exchange ep etp dispatcher expert-capacity sequence-parallel "
                "tp-overlap split "
                "reshard-after-forward",
        .read = read_plan,
        .write = write_plan,
        .print = print,
        .like = NULL,
};
