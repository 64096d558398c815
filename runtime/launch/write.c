/* Writing: flags of a plan become items by a tool's table, and these the tool's file. What was written is
 * read back before it is printed, so a file that would be another plan is never there. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "runtime/base/parse.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const struct launch_tool *const tools[] = {&launch_megatron, &launch_torchtitan, &launch_deepspeed,
                                                  &launch_ranvier};
enum { TOOLS = sizeof tools / sizeof *tools, TARGETS = TOOLS + 1 };
static const char slurm[] = "slurm";

/* The list of --launch, taken apart. */
struct targets {
        struct {
                const struct launch_tool *tool; /* NULL: slurm */
                char path[1024];
        } list[TARGETS];
        int count;
};

int launch_put(struct launch_output *out, const char *key, struct rv_error_info *err, const char *format, ...)
{
        char value[256];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(value, sizeof value, format, arguments);
        va_end(arguments);
        struct launch_item *more = realloc(out->items, (size_t)(out->count + 1) * sizeof *more);
        if (more)
                out->items = more;
        struct launch_item item = {more ? strdup(key) : NULL, more ? strdup(value) : NULL, 0};
        if (!item.key || !item.value) {
                free(item.key);
                free(item.value);
                return rv_fail(err, RV_ESYSTEM, "no memory for what is launched");
        }
        out->items[out->count++] = item;
        return 0;
}

static bool matters(const struct flag *flag, const struct options *o)
{
        return !flag->axis || !flag->axis->matters || flag->axis->matters(o);
}

/* The rows that say all by themselves; what is the tool's default is not written. */
static int put_rows(struct launch_output *out, const struct launch_tool *tool, struct rv_error_info *err)
{
        struct options defaults;
        int rc = 0;
        options_init(&defaults);
        for (const struct launch_row *row = tool->rows; rc == 0 && row->theirs; row++) {
                const bool whole = row->how == ROW_VALUE, choice = row->how == ROW_CHOICE;
                if (!whole && !choice && row->how != ROW_SWITCH)
                        continue;
                const struct flag *flag = flag_named(row->ours);
                char text[FLAG_TEXT], usual[FLAG_TEXT], theirs[FLAG_TEXT];
                flag_write(flag, out->options, text);
                flag_write(flag, &defaults, usual);
                if (!matters(flag, out->options) || strcmp(text, row->absent ? row->absent : usual) == 0)
                        continue;
                if (choice && launch_choice(row->values, text, false, theirs)[0])
                        rc = launch_put(out, row->theirs, err, "%s", theirs);
                else if (whole || (!choice && launch_lists(row->values, text)))
                        rc = launch_put(out, row->theirs, err, "%s",
                                        whole                      ? text
                                        : tool == &launch_megatron ? ""
                                                                   : "true");
        }
        return rc;
}

/* ---- what was written, read back ---- */

static int stage_layers(const struct options *o)
{
        return options_stage(o, o->pp - 1).layers;
}

/* Whether two plans do the same as far as this flag goes: values that a plan makes nothing of are alike. */
static bool same(const struct flag *flag, const struct options *a, const struct options *b)
{
        const char *name = flag->name;
        if (flag_equal(flag, a, b) || !matters(flag, a))
                return true;
        if (strcmp(name, "gradients") == 0)
                return a->zero >= 2 || a->dtype == DTYPE_FP32 ||
                       options_wide_gradients(a) == options_wide_gradients(b);
        if (strcmp(name, "reduce-dtype") == 0)
                return options_reduces_fp32(a) == options_reduces_fp32(b);
        if (strcmp(name, "recompute") == 0)
                return options_work(a).recompute == options_work(b).recompute;
        if (launch_lists("dispatcher expert-capacity", name))
                return a->ep == 1;
        if (strcmp(name, "etp") == 0)
                return a->ep == 1 || a->tp == 1 || (a->etp ? a->etp : a->tp) == (b->etp ? b->etp : b->tp);
        if (strcmp(name, "overlap-allreduce") == 0)
                return options_replicas(a) == 1 || a->zero >= 2;
        if (strcmp(name, "shard-replicas") == 0)
                return a->zero == 0 || (a->shard_replicas ? a->shard_replicas : options_replicas(a)) ==
                                               (b->shard_replicas ? b->shard_replicas : options_replicas(b));
        return strcmp(name, "split") == 0 && (a->pp == 1 || stage_layers(a) == stage_layers(b));
}

/* Whether a model that was read back has the parameters of the plan's. */
static bool same_model(const struct launch *l, const struct options *o)
{
        struct gpt gpt = o->gpt;
        struct rv_error_info why;
        const int rc = l->described  ? gpt_from_json(&gpt, l->path, l->described, &why)
                       : l->model[0] ? gpt_load(&gpt, l->model, &why)
                                     : 0;
        return rc == 0 && gpt_parameters(&gpt) == gpt_parameters(&o->gpt);
}

static int compare(const struct launch_tool *tool, const struct options *o, const struct options *back,
                   struct rv_error_info *err)
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++) {
                char text[FLAG_TEXT], other[FLAG_TEXT];
                if (flags[i].report == REPORT_NEVER || launch_lists(tool->ours_alone, flags[i].name) ||
                    launch_lists(tool->elsewhere, flags[i].name) || same(&flags[i], o, back))
                        continue;
                return rv_fail(
                        err, RV_EPLAN,
                        "--launch %s: --%s %s is nothing that %s can be told: as far as it can be, it would "
                        "have --%s %s",
                        tool->name, flags[i].name, flag_write(&flags[i], o, text), tool->title, flags[i].name,
                        flag_write(&flags[i], back, other));
        }
        return 0;
}

static int read_back(const struct launch_output *out, const struct launch_tool *tool,
                     struct rv_error_info *err)
{
        struct launch l = {.tool = tool};
        struct options back;
        struct rv_error_info why = {.code = RV_OK};
        int count, rc = 0;
        const struct flag *flags = flags_all(&count);
        snprintf(l.path, sizeof l.path, "--launch %s", tool->name);
        options_init(&back);
        for (int i = 0; rc == 0 && i < count; i++) {
                char text[FLAG_TEXT];
                if (launch_lists(tool->elsewhere, flags[i].name) &&
                    !flag_equal(&flags[i], out->options, &back))
                        rc = flag_parse(&flags[i], &back, flag_write(&flags[i], out->options, text), &why);
        }
        for (int i = 0; rc == 0 && i < out->count; i++)
                rc = launch_add_item(&l, out->items[i].key, out->items[i].value, 0, &why);
        if (rc == 0)
                rc = launch_take(&l, false, &back, &why);
        back.model = out->options->gpt.name; /* of tools that have it elsewhere */
        if (rc == 0)
                rc = launch_settle(&l, &back, out->gpus, &why);
        back.gpt = out->options->gpt;
        back.fused = out->options->fused;
        if (rc)
                rc = rv_fail(err, why.code == RV_ESYSTEM ? RV_ESYSTEM : RV_EPLAN, "%.900s", why.sentence);
        else if (!same_model(&l, out->options))
                rc = rv_fail(err, RV_EPLAN, "--launch %s: %s is no model that %s can be told", tool->name,
                             out->options->gpt.name, tool->title);
        else
                rc = compare(tool, out->options, &back, err);
        launch_close(&l);
        return rc;
}

/* ---- the list ---- */

static int parse_targets(const char *list, struct targets *targets, struct rv_error_info *err)
{
        char names[96] = "";
        for (int i = 0; i < TOOLS; i++)
                snprintf(names + strlen(names), sizeof names - strlen(names), "%s, ", tools[i]->name);
        *targets = (struct targets){.count = 0};
        for (const char *at = list; *at; at += *at == ',') {
                const size_t length = strcspn(at, ","), name = strcspn(at, "=,");
                const struct launch_tool *tool = NULL;
                for (int i = 0; i < TOOLS; i++)
                        if (strlen(tools[i]->name) == name && strncmp(at, tools[i]->name, name) == 0)
                                tool = tools[i];
                if (!tool && !(strlen(slurm) == name && strncmp(at, slurm, name) == 0))
                        return rv_fail(err, RV_EINPUT, "--launch: '%.*s' is not known; there are %sand slurm",
                                       (int)(name < 40 ? name : 40), at, names);
                if (at[name] != '=' || name + 1 == length || length - name > sizeof targets->list[0].path)
                        return rv_fail(err, RV_EINPUT, "--launch %.*s: a file was expected, %.*s=FILE",
                                       (int)name, at, (int)name, at);
                for (int i = 0; i < targets->count; i++)
                        if (targets->list[i].tool == tool)
                                return rv_fail(err, RV_EINPUT, "--launch: %.*s is there twice", (int)name,
                                               at);
                targets->list[targets->count].tool = tool;
                snprintf(targets->list[targets->count++].path, sizeof targets->list[0].path, "%.*s",
                         (int)(length - name - 1), at + name + 1);
                at += length;
        }
        return targets->count
                       ? 0
                       : rv_fail(err, RV_EINPUT, "--launch: TOOL=FILE was expected, of %sand slurm", names);
}

/* What Slurm's job starts: the other target; NULL: there is none or there are several. */
static const struct launch_tool *started(const struct targets *targets, const char **path)
{
        const struct launch_tool *tool = NULL;
        for (int i = 0; i < targets->count; i++)
                if (targets->list[i].tool) {
                        if (tool)
                                return NULL;
                        tool = targets->list[i].tool;
                        *path = targets->list[i].path;
                }
        return tool;
}

int launch_check(const char *list, const struct file_use *uses, int count, struct rv_error_info *err)
{
        struct targets targets = {.count = 0};
        const char *path;
        int rc = list ? parse_targets(list, &targets, err) : 0;
        for (int i = 0; rc == 0 && i < targets.count; i++) {
                rc = file_check_writable(targets.list[i].path, err);
                if (rc == 0 && !targets.list[i].tool && !started(&targets, &path))
                        rc = rv_fail(err, RV_EINPUT,
                                     "--launch slurm: its job starts one other tool of the list, such as "
                                     "megatron=train.sh,slurm=job.sh");
                for (int j = 0; rc == 0 && j < i; j++)
                        if (file_would_replace(targets.list[i].path, targets.list[j].path))
                                rc = rv_fail(err, RV_EINPUT, "--launch: two files are the same, %s",
                                             targets.list[i].path);
                const struct file_use written = {"--launch", targets.list[i].path, true};
                for (int j = 0; rc == 0 && j < count; j++)
                        if (file_uses_clash(&uses[j], &written))
                                rc = rv_fail(err, RV_EINPUT, "%s and --launch are the same file, %s",
                                             uses[j].name, written.path);
        }
        return rc;
}

static int print_slurm(const struct launch_output *out, const char *path, const struct launch_tool *tool,
                       const char *file, struct rv_error_info *err)
{
        const int each = out->gpus_a_node, nodes = out->gpus / each;
        const bool ranks = tool == &launch_ranvier;
        struct file_writer writer;
        int rc = file_writer_open(&writer, path, err);
        if (rc)
                return rc;
        fprintf(writer.stream,
                "#!/bin/bash\n"
                "# Starts a plan of ranvier with %s.\n"
                "#SBATCH --job-name=%s\n"
                "#SBATCH --nodes=%d\n"
                "#SBATCH --ntasks-per-node=%d\n"
                "#SBATCH --gpus-per-node=%d\n",
                tool->title, tool->name, nodes, ranks ? each : 1, each);
        if (ranks)
                fprintf(writer.stream, "bash '%s'\n", file);
        else
                fprintf(writer.stream,
                        "MASTER_ADDR=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | head -n 1)\n"
                        "export MASTER_ADDR\n");
        if (tool == &launch_megatron)
                fprintf(writer.stream, "srun bash -c 'NODE_RANK=$SLURM_NODEID bash %s'\n", file);
        else if (!ranks)
                fprintf(writer.stream,
                        "srun torchrun --nnodes %d --nproc_per_node %d --rdzv_backend c10d --rdzv_id "
                        "\"$SLURM_JOB_ID\" \\\n"
                        "        --rdzv_endpoint \"$MASTER_ADDR:29500\" %s '%s'\n",
                        nodes, each,
                        tool == &launch_torchtitan ? "-m torchtitan.train --job.config_file"
                                                   : "\"${SCRIPT:?the training script}\" --deepspeed_config",
                        file);
        return file_writer_commit(&writer, err);
}

/* ---- all of it ---- */

/* The flags of the plan that are said elsewhere, for the user to say there. */
static void list_elsewhere(struct launch_output *out, const struct launch_tool *tool)
{
        struct options defaults;
        int count;
        const struct flag *flags = flags_all(&count);
        options_init(&defaults);
        out->left[0] = 0;
        for (int i = 0; i < count; i++) {
                char text[FLAG_TEXT];
                const size_t length = strlen(out->left);
                if (launch_lists(tool->elsewhere, flags[i].name) &&
                    !flag_equal(&flags[i], out->options, &defaults))
                        snprintf(out->left + length, sizeof out->left - length, " --%s%s%s", flags[i].name,
                                 flags[i].argument ? " " : "",
                                 flags[i].argument ? flag_write(&flags[i], out->options, text) : "");
        }
}

static void forget(struct launch_output *out)
{
        for (int i = 0; i < out->count; i++) {
                free(out->items[i].key);
                free(out->items[i].value);
        }
        free(out->items);
        out->items = NULL;
        out->count = 0;
}

/* The items of the plan, which say the same when they are read. */
static int make_items(struct launch_output *out, const struct launch_tool *tool, struct rv_error_info *err)
{
        int rc = put_rows(out, tool, err);
        if (rc == 0)
                rc = tool->write(out, err);
        return rc ? rc : read_back(out, tool, err);
}

static int write_tool(struct launch_output *out, const struct launch_tool *tool, const char *path,
                      FILE *notes, struct rv_error_info *err)
{
        int rc = make_items(out, tool, err);
        if (rc == 0)
                rc = tool->print(out, path, err);
        list_elsewhere(out, tool);
        if (rc == 0 && notes)
                fprintf(notes, "launch     %s: %s%s%s\n", tool->title, path,
                        out->left[0] ? "; the training script says" : "", out->left);
        if (rc == 0 && notes && !out->options->like && !out->options->framework && tool != &launch_ranvier)
                fprintf(notes,
                        "           its time is that of ranvier's own kernels; --like %s predicts %s's\n",
                        tool->name, tool->title);
        forget(out);
        return rc;
}

/* As many GPUs on each node, at most eight. */
static int usual_gpus_a_node(int gpus)
{
        int each = gpus < 8 ? gpus : 8;
        while (gpus % each)
                each--;
        return each;
}

static struct launch_output output_of(const struct options *o, int gpus, int gpus_a_node)
{
        const bool fits = gpus_a_node > 0 && gpus_a_node <= gpus && gpus % gpus_a_node == 0;
        return (struct launch_output){
                .options = o, .gpus = gpus, .gpus_a_node = fits ? gpus_a_node : usual_gpus_a_node(gpus)};
}

int launch_check_model(const char *list, const struct gpt *gpt, struct rv_error_info *err)
{
        struct targets targets;
        int rc = parse_targets(list, &targets, err);
        for (int i = 0; rc == 0 && i < targets.count; i++)
                if (targets.list[i].tool && targets.list[i].tool->check_model)
                        rc = targets.list[i].tool->check_model(gpt, err);
        return rc;
}

int launch_can_write(const struct options *o, int gpus, int gpus_a_node, const char *list,
                     struct rv_error_info *err)
{
        struct targets targets;
        struct launch_output out = output_of(o, gpus, gpus_a_node);
        int rc = parse_targets(list, &targets, err);
        for (int i = 0; rc == 0 && i < targets.count; i++)
                if (targets.list[i].tool) {
                        rc = make_items(&out, targets.list[i].tool, err);
                        forget(&out);
                }
        return rc;
}

int launch_write(const struct options *o, int gpus, int gpus_a_node, const char *list, FILE *notes,
                 struct rv_error_info *err)
{
        struct targets targets;
        const char *path = "";
        struct launch_output out = output_of(o, gpus, gpus_a_node);
        int rc = launch_can_write(o, gpus, gpus_a_node, list, err); /* all, before any file is written */
        if (rc == 0)
                rc = parse_targets(list, &targets, err);
        for (int i = 0; rc == 0 && i < targets.count; i++) {
                const struct launch_tool *tool = targets.list[i].tool;
                if (tool) {
                        rc = write_tool(&out, tool, targets.list[i].path, notes, err);
                        continue;
                }
                const struct launch_tool *other = started(&targets, &path);
                rc = print_slurm(&out, targets.list[i].path, other, path, err);
                if (rc == 0 && notes)
                        fprintf(notes, "launch     Slurm: sbatch %s\n", targets.list[i].path);
        }
        return rc;
}
