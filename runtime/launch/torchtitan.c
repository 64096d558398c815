/* torchtitan: the TOML of a job. Meanings and defaults are those of torchtitan/config/job_config.py and
 * torchtitan/distributed (versions 0.1 and 0.2; from 0.3 on jobs are Python). */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"

#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const struct launch_row rows[] = {
        {"model.name", NULL, .how = ROW_OWN},
        {"model.flavor", NULL, .how = ROW_OWN},
        {"model.converters", "precision", .how = ROW_OWN},
        {"model.print_after_conversion", NULL, .how = ROW_UNMODELLED},
        {"training.local_batch_size", "micro-batch-size", .how = ROW_OWN},
        {"training.batch_size", NULL, .how = ROW_OWN}, /* of versions before 0.1 */
        {"training.global_batch_size", "batch-size", .how = ROW_OWN},
        {"training.seq_len", "seq-len", .how = ROW_VALUE, .absent = "2048"},
        {"training.max_norm", "clip", .how = ROW_VALUE, .absent = "1"},
        {"training.mixed_precision_param", "precision", .how = ROW_CHOICE, "bfloat16=bf16 float32=fp32", "bf16"},
        {"training.mixed_precision_reduce", NULL, .how = ROW_ONLY, "float32"},
        {"training.enable_cpu_offload", "offload", .how = ROW_OWN},
        {"training.compile", NULL, .how = ROW_OWN},
        {"training.dtype", NULL, .how = ROW_ONLY, "float32",
         .why = "float32 is built, beside which weights are used in bf16"},
        {"parallelism.data_parallel_replicate_degree", "dp", .how = ROW_OWN},
        {"parallelism.data_parallel_shard_degree", "zero", .how = ROW_OWN},
        {"parallelism.fsdp_reshard_after_forward", "reshard-after-forward", .how = ROW_OWN},
        {"parallelism.tensor_parallel_degree", "tp", .how = ROW_VALUE, .absent = "1"},
        {"parallelism.enable_async_tensor_parallel", NULL, .how = ROW_ONLY, "false",
         .why = "it is --tp-overlap here, of a number of pieces that the file does not say, and not "
                "translated"},
        {"parallelism.disable_loss_parallel", NULL, .how = ROW_ONLY, "false", .why = "a loss of split logits is built"},
        {"parallelism.pipeline_parallel_degree", "pp", .how = ROW_VALUE, .absent = "1"},
        {"parallelism.pipeline_parallel_schedule", "schedule", .how = ROW_CHOICE,
         "1F1B=1f1b GPipe=gpipe Interleaved1F1B=interleaved", "1f1b"},
        {"parallelism.pipeline_parallel_microbatch_size", NULL, .how = ROW_OWN},
        {"parallelism.pipeline_parallel_layers_per_stage", "virtual-stages", .how = ROW_OWN},
        {"parallelism.pipeline_parallel_first_stage_less_layers", NULL, .how = ROW_UNMODELLED},
        {"parallelism.pipeline_parallel_last_stage_less_layers", NULL, .how = ROW_UNMODELLED},
        {"parallelism.pipeline_parallel_split_points", NULL, .how = ROW_ONLY, "", .why = "stages of even sizes are built"},
        {"parallelism.module_fqns_per_model_part", NULL, .how = ROW_ONLY, "", .why = "stages of even sizes are built"},
        {"parallelism.pipeline_parallel_schedule_csv", NULL, .how = ROW_ONLY, "",
         .why = "a schedule of one's own is a file runtime/sched/policies/NAME.c here"},
        {"parallelism.pipeline_parallel_expert_parallel_overlap", NULL, .how = ROW_UNMODELLED},
        {"parallelism.context_parallel_degree", "cp", .how = ROW_VALUE, .absent = "1"},
        {"parallelism.context_parallel_rotate_method", "cp-exchange", .how = ROW_OWN},
        {"parallelism.context_parallel_load_balancer", NULL, .how = ROW_UNMODELLED},
        {"parallelism.expert_parallel_degree", "ep", .how = ROW_VALUE, .absent = "1"},
        {"parallelism.expert_tensor_parallel_degree", "etp", .how = ROW_OWN},
        {"parallelism.expert_parallel_comm_backend", "dispatcher", .how = ROW_CHOICE,
         "standard=all-to-all deepep=deepep", "all-to-all"},
        {"debug.moe_force_load_balance", "expert-capacity", .how = ROW_SWITCH, "1"},
        {"training.debug_moe_force_load_balance", NULL, .how = ROW_OWN}, /* of version 0.2.0 */
        {"parallelism.enable_compiled_autograd", NULL, .how = ROW_UNMODELLED},
        {"activation_checkpoint.mode", "recompute", .how = ROW_OWN},
        {"activation_checkpoint.selective_ac_option", "recompute", .how = ROW_OWN},
        {"compile.enable", NULL, .how = ROW_OWN},
        {"optimizer.name", NULL, .how = ROW_ONLY, "AdamW Adam", .why = "AdamW is the optimizer that is built"},
        {"optimizer.early_step_in_backward", NULL, .how = ROW_ONLY, "false",
         .why = "an update behind all backwards is built"},
        {.theirs = NULL},
};

static const char *const nothing[] = {
        "job.*", "profiling.*", "metrics.*", "optimizer.*", "lr_scheduler.*", "checkpoint.*", "comm.*",
        "validation.*", "fault_tolerance.*", "memory_estimation.*", "debug.*", "experimental.*", "compile.*",
        "float8.*", "mx.*", "quantize.*", "activation_checkpoint.*", "model.tokenizer_path", "model.hf_assets_path",
        "model.norm_type", "training.steps", "training.dataset", "training.dataset_path", "training.data_parallel_*",
        "training.warmup_steps", "training.gc_freq", "training.gc_debug", "training.seed", "training.deterministic",
        "training.dataloader.*", NULL};
/* clang-format on */

/* Their names of the models that are presets here, the ones with shorter sequences first. */
static const struct {
        const char *name, *flavor, *preset;
} models[] = {
        {"llama3", "8B", "llama3-8b"},          {"llama3", "8B", "llama3.1-8b"},
        {"llama3", "70B", "llama3-70b"},        {"llama3", "70B", "llama3.1-70b"},
        {"llama3", "405B", "llama3.1-405b"},    {"llama2", "7B", "llama2-7b"},
        {"llama2", "13B", "llama2-13b"},        {"llama2", "70B", "llama2-70b"},
        {"qwen3", "0.6B", "qwen3-0.6b"},        {"qwen3", "8B", "qwen3-8b"},
        {"qwen3", "30B-A3B", "qwen3-30b-a3b"},  {"qwen3", "235B-A22B", "qwen3-235b-a22b"},
        {"deepseek_v3", "671B", "deepseek-v3"},
};
enum { MODELS = sizeof models / sizeof *models };

/* ---- reading ---- */

/* The model, whose layers it returns; 0: there is none here. */
static int read_model(struct launch *l, int64_t length)
{
        const char *name = launch_value(l, "model.name"), *flavor = launch_value(l, "model.flavor");
        struct rv_error_info why;
        struct gpt gpt = {.n_layer = 0};
        for (int i = 0; i < MODELS; i++)
                if (name && strcmp(name, models[i].name) == 0 && strcmp(flavor, models[i].flavor) == 0 &&
                    gpt_load(&gpt, models[i].preset, &why) == 0) {
                        snprintf(l->model, sizeof l->model, "%s", models[i].preset);
                        if (gpt_longest(&gpt) >= length)
                                break;
                }
        if (!l->model[0])
                snprintf(l->no_model, sizeof l->no_model,
                         "%.200s: its model, %.40s %.40s, is no preset here: name MODEL on the command line",
                         l->path, name ? name : "without a name", flavor);
        return l->model[0] ? gpt.n_layer : 0;
}

static int64_t degree(const struct launch *l, const char *key, int64_t otherwise, struct rv_error_info *err)
{
        return launch_number(l, key, &otherwise, err) ? -2 : otherwise;
}

/* Micro-batches and what of a batch is said; with stages a batch is cut into micro-batches of their own size.
 */
static int read_batch(struct launch *l, struct rv_error_info *err)
{
        static const char global[] = "training.global_batch_size";
        const char *local =
                launch_item(l, "training.batch_size") ? "training.batch_size" : "training.local_batch_size";
        const bool stages = strcmp(launch_said(l, "pp"), "1") != 0;
        const int64_t sequences = degree(l, local, 8, err), batch = degree(l, global, -1, err);
        const int64_t part =
                stages ? degree(l, "parallelism.pipeline_parallel_microbatch_size", 1, err) : sequences;
        char text[24];
        if (sequences < 1 || part < 1 || batch < -1 || sequences > 1 << 20 || sequences % part)
                return launch_wrong(l, local, RV_EINPUT, err,
                                    "a whole number from 1 on was expected, and with stages a multiple of "
                                    "pipeline_parallel_microbatch_size");
        snprintf(text, sizeof text, "%lld", (long long)part);
        l->micro_batches = (int)(sequences / part);
        const int rc = launch_say(l, "micro-batch-size", text, local, err);
        if (rc || batch < 1)
                return rc;
        if (stages)
                return launch_wrong(
                        l, global, RV_ENOTBUILT, err,
                        "with stages a batch of one local_batch_size, which is the default, is built");
        return launch_say(l, "batch-size", launch_value(l, global), global, err);
}

static int read_sharing(struct launch *l, struct rv_error_info *err)
{
        static const char replicas[] = "parallelism.data_parallel_replicate_degree",
                          shards[] = "parallelism.data_parallel_shard_degree",
                          reshard[] = "parallelism.fsdp_reshard_after_forward";
        const int64_t groups = degree(l, replicas, 1, err), parts = degree(l, shards, -1, err);
        const bool context = strcmp(launch_said(l, "cp"), "1") != 0, shares = parts != 1 || context;
        const char *when = launch_value(l, reshard);
        char text[24];
        if (groups < 1 || parts < -1 || parts == 0)
                return launch_wrong(l, groups < 1 ? replicas : shards, RV_EINPUT, err,
                                    "a whole number from 1 on (or, of shards, -1) was expected");
        l->share_groups = (int)groups;
        int rc = launch_say(l, "zero", shares ? "3" : "0", shards, err);
        if (rc == 0 && shares)
                rc = launch_say(l, "reduce-dtype", "fp32", NULL, err);
        if (rc == 0 && parts > 0) {
                snprintf(text, sizeof text, "%lld", (long long)(groups * parts));
                rc = launch_say(l, "dp", text, shards, err);
        }
        if (rc == 0 && shares && when && strcmp(when, "default") != 0)
                rc = launch_say(l, "reshard-after-forward", strcmp(when, "never") == 0 ? "off" : "on",
                                reshard, err);
        if (rc == 0 && shares && launch_is_on(l, "training.enable_cpu_offload"))
                rc = launch_say(l, "offload", "yes", "training.enable_cpu_offload", err);
        if (rc == 0 && shares && launch_is_on(l, "training.enable_cpu_offload"))
                rc = launch_say(l, "offload-parameters", "yes", "training.enable_cpu_offload", err);
        return rc;
}

static int read_stages(struct launch *l, int layers, struct rv_error_info *err)
{
        static const char key[] = "parallelism.pipeline_parallel_layers_per_stage";
        const int64_t pp = degree(l, "parallelism.pipeline_parallel_degree", 1, err),
                      each = degree(l, key, 0, err);
        const bool interleaved = strcmp(launch_said(l, "schedule"), "interleaved") == 0;
        int64_t chunks = 2; /* torchtitan's default */
        char text[24];
        if (pp < 1 || each < 0)
                return launch_wrong(l, pp < 1 ? "parallelism.pipeline_parallel_degree" : key, RV_EINPUT, err,
                                    "a whole number from 1 on was expected");
        if (pp == 1 && interleaved)
                return launch_say(l, "schedule", "1f1b", NULL, err);
        if (!interleaved)
                return 0;
        if (each > 0 && layers > 0)
                chunks = (layers + pp * each - 1) / (pp * each);
        snprintf(text, sizeof text, "%lld", (long long)chunks);
        return launch_say(l, "virtual-stages", text,
                          each > 0 ? key : "parallelism.pipeline_parallel_schedule", err);
}

static int read_recompute(struct launch *l, struct rv_error_info *err)
{
        static const char mode[] = "activation_checkpoint.mode",
                          option[] = "activation_checkpoint.selective_ac_option";
        const char *what = launch_value(l, mode), *which = launch_value(l, option);
        if (!what)
                what = "selective";
        if (strcmp(what, "full") == 0 || strcmp(what, "none") == 0)
                return launch_say(l, "recompute", *what == 'f' ? "layer" : "none", mode, err);
        if (strcmp(what, "selective") != 0)
                return launch_wrong(l, mode, RV_ENOTBUILT, err, "none, selective and full are built");
        if (which && strcmp(which, "op") != 0 && strcmp(which, "1") != 0)
                return launch_wrong(l, option, RV_ENOTBUILT, err,
                                    "op is built (and 1, which is every layer)");
        return launch_say(l, "recompute", which && *which == '1' ? "layer" : "norms,swiglu", mode, err);
}

static int read_rest(struct launch *l, struct rv_error_info *err)
{
        static const char method[] = "parallelism.context_parallel_rotate_method",
                          made[] = "model.converters", balanced[] = "training.debug_moe_force_load_balance";
        const char *how = launch_value(l, method), *converters = launch_value(l, made);
        const bool compiled = launch_is_on(l, "compile.enable") || launch_is_on(l, "training.compile");
        const bool ring = how && strcmp(how, "alltoall") == 0;
        int rc = launch_say(l, "like", compiled ? "torchtitan-compiled" : "torchtitan",
                            compiled ? "compile.enable" : NULL, err);
        if (rc == 0)
                rc = launch_say(l, "order", "replicas", NULL, err);
        if (rc == 0)
                rc = launch_say(l, "p2p", "async", NULL, err);
        if (rc == 0)
                rc = launch_say(l, "sequence-parallel", strcmp(launch_said(l, "tp"), "1") ? "yes" : "no",
                                NULL, err);
        if (rc == 0)
                rc = launch_say(l, "cp-exchange", ring ? "ring" : "all-gather", ring ? method : NULL, err);
        if (rc == 0 && strcmp(launch_said(l, "ep"), "1") && strcmp(launch_said(l, "tp"), "1"))
                rc = launch_say(l, "etp",
                                launch_item(l, "parallelism.expert_tensor_parallel_degree")
                                        ? launch_value(l, "parallelism.expert_tensor_parallel_degree")
                                        : "1",
                                "parallelism.expert_tensor_parallel_degree", err);
        if (rc == 0 && launch_is_on(l, balanced))
                rc = launch_say(l, "expert-capacity", "1", balanced, err);
        if (rc || !converters || !*converters)
                return rc;
        if (!strstr(converters, "float8"))
                return launch_wrong(l, made, RV_ENOTBUILT, err, "float8 is built");
        rc = launch_say(l, "precision", "fp8", made, err);
        return rc ? rc : launch_say(l, "scaling", "current", made, err);
}

static int read_plan(struct launch *l, struct rv_error_info *err)
{
        const int64_t length = degree(l, "training.seq_len", 2048, err);
        const int layers = read_model(l, length);
        int rc = read_batch(l, err);
        if (rc == 0)
                rc = read_sharing(l, err);
        if (rc == 0)
                rc = read_stages(l, layers, err);
        if (rc == 0)
                rc = read_recompute(l, err);
        return rc ? rc : read_rest(l, err);
}

/* ---- writing ---- */

/* Which of `models` it is; MODELS: none. */
static int find_model(const struct gpt *gpt)
{
        int i = 0;
        struct gpt preset;
        while (i < MODELS && (gpt_load(&preset, models[i].preset, NULL) || !gpt_same(&preset, gpt)))
                i++;
        return i;
}

static int no_model(const struct gpt *gpt, struct rv_error_info *err)
{
        return rv_fail(err, RV_EPLAN,
                       "%s is no model that torchtitan has by name: a flavor of its own is code there",
                       gpt->name);
}

static int check_model(const struct gpt *gpt, struct rv_error_info *err)
{
        return find_model(gpt) < MODELS ? 0 : no_model(gpt, err);
}

static int put_model(struct launch_output *out, struct rv_error_info *err)
{
        const int which = find_model(&out->options->gpt);
        int rc = which < MODELS ? 0 : no_model(&out->options->gpt, err);
        if (rc == 0)
                rc = launch_put(out, "model.name", err, "%s", models[which].name);
        return rc ? rc : launch_put(out, "model.flavor", err, "%s", models[which].flavor);
}

static int put_batch(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const int64_t local = o->pp > 1 ? o->batch_size / o->dp : o->micro_batch_size;
        int rc = launch_put(out, "training.local_batch_size", err, "%lld", (long long)local);
        if (rc == 0 && local * o->dp != o->batch_size)
                rc = launch_put(out, "training.global_batch_size", err, "%lld", (long long)o->batch_size);
        if (rc == 0 && o->offload)
                rc = launch_put(out, "training.enable_cpu_offload", err, "true");
        return rc;
}

static int put_parallelism(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const bool shares = o->zero == 3;
        const int shards = !shares ? 1 : o->shard_replicas ? o->shard_replicas : o->dp;
        int rc = launch_put(out, "parallelism.data_parallel_replicate_degree", err, "%d", o->dp / shards);
        if (rc == 0)
                rc = launch_put(out, "parallelism.data_parallel_shard_degree", err, "%d", shards);
        if (rc == 0 && !o->reshard)
                rc = launch_put(out, "parallelism.fsdp_reshard_after_forward", err, "never");
        if (rc == 0 && o->cp > 1)
                rc = launch_put(out, "parallelism.context_parallel_rotate_method", err, "%s",
                                o->cp_exchange == CONTEXT_RING ? "alltoall" : "allgather");
        if (rc == 0 && o->pp > 1)
                rc = launch_put(out, "parallelism.pipeline_parallel_microbatch_size", err, "%d",
                                o->micro_batch_size);
        if (rc == 0 && o->pp > 1)
                rc = launch_put(out, "parallelism.pipeline_parallel_layers_per_stage", err, "%d",
                                (o->gpt.n_layer + o->pp * o->virtual_stages - 1) /
                                        (o->pp * o->virtual_stages));
        if (rc == 0 && o->pp > 1)
                rc = launch_put(out, "parallelism.pipeline_parallel_first_stage_less_layers", err, "0");
        if (rc == 0 && o->pp > 1)
                rc = launch_put(out, "parallelism.pipeline_parallel_last_stage_less_layers", err, "0");
        if (rc == 0 && o->ep > 1 && o->tp > 1)
                rc = launch_put(out, "parallelism.expert_tensor_parallel_degree", err, "%d",
                                o->etp ? o->etp : o->tp);
        return rc;
}

static int write_plan(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        const char *mode = o->recompute == RECOMPUTE_LAYER  ? "full"
                           : o->recompute == RECOMPUTE_NONE ? "none"
                                                            : "selective";
        const bool fp8 = o->format == FORMAT_FP8,
                   compiled = o->like && strcmp(o->like, "torchtitan-compiled") == 0;
        int rc = put_model(out, err);
        if (rc == 0 && fp8)
                rc = launch_put(out, "model.converters", err, "[\"quantize.linear.float8\"]");
        if (rc == 0 && fp8)
                rc = launch_put(out, "training.mixed_precision_param", err, "bfloat16");
        if (rc == 0)
                rc = put_batch(out, err);
        if (rc == 0)
                rc = put_parallelism(out, err);
        if (rc == 0)
                rc = launch_put(out, "activation_checkpoint.mode", err, "%s", mode);
        if (rc == 0 && *mode == 's')
                rc = launch_put(out, "activation_checkpoint.selective_ac_option", err, "op");
        return rc ? rc : launch_put(out, "compile.enable", err, "%s", compiled ? "true" : "false");
}

/* A value as TOML has it: numbers, truths and lists are bare. */
static void print_value(FILE *stream, const char *value)
{
        char *end;
        strtod(value, &end);
        const bool bare = *value == '[' || strcmp(value, "true") == 0 || strcmp(value, "false") == 0 ||
                          (end != value && !*end);
        fprintf(stream, bare ? "%s\n" : "\"%s\"\n", value);
}

static int print(const struct launch_output *out, const char *path, struct rv_error_info *err)
{
        static const char *const tables[] = {"model",   "training", "parallelism", "activation_checkpoint",
                                             "compile", "debug"};
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fprintf(writer.stream,
                "# A plan of ranvier for torchtitan, on %d GPUs, as its version 0.2 reads it. What it says "
                "nothing of\n"
                "# (data set, tokenizer, optimizer, steps, checkpoints) is torchtitan's default: add "
                "yours.\n",
                out->gpus);
        for (size_t table = 0; table < sizeof tables / sizeof *tables; table++) {
                const size_t length = strlen(tables[table]);
                bool begun = false;
                for (int i = 0; i < out->count; i++) {
                        const char *key = out->items[i].key;
                        if (strncmp(key, tables[table], length) != 0 || key[length] != '.')
                                continue;
                        if (!begun)
                                fprintf(writer.stream, "\n[%s]\n", tables[table]);
                        begun = true;
                        fprintf(writer.stream, "%s = ", key + length + 1);
                        print_value(writer.stream, out->items[i].value);
                }
        }
        return file_writer_commit(&writer, err);
}

const struct launch_tool launch_torchtitan = {
        .name = "torchtitan",
        .title = "torchtitan",
        .rows = rows,
        .nothing = nothing,
        .ours_alone = "like without fusion logits bucket-params allreduce-buckets messages allreduce device "
                      "prefetch "
                      "unit-layers",
        .elsewhere = "",
        .read = read_plan,
        .write = write_plan,
        .print = print,
        .like = NULL, /* read says which */
        .check_model = check_model,
};
