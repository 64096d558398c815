/* ranvier itself: a line that starts a training, `mpirun -n N ranvier train MODEL FLAGS`. Its table are the
 * flags of a plan. */
#include "runtime/launch/table.h"

#include "runtime/base/file.h"
#include "runtime/base/parse.h"

#include <string.h>

/* clang-format off */
static const struct launch_row rows[] = {
        {"MODEL", NULL, .how = ROW_OWN}, {"--gpus", NULL, .how = ROW_GPUS},     {"-n", NULL, .how = ROW_GPUS},
        {"-np", NULL, .how = ROW_GPUS},  {"WORLD_SIZE", NULL, .how = ROW_GPUS},
        {"--ranks", NULL, .how = ROW_GPUS}, {.theirs = NULL}};

/* Flags of commands that are no part of a plan, and of mpirun. */
static const char *const nothing[] = {
        "--data", "--init", "--steps", "--lr", "--min-lr", "--warmup", "--weight-decay", "--beta1", "--beta2",
        "--epsilon", "--seed", "--validate-every", "--validation-fraction", "--validation-batches", "--log",
        "--checkpoint", "--checkpoint-every", "--checkpoints-kept", "--resume", "--restarts", "--hosts", "--mpirun", "--hang-timeout", "--kernels", "--tokens", "--threads", "--products", "--attention", "--cuda-graphs",
        "--host-link", "--net-link", "--cpu-kernels", "--machine", "--profile", "--platform", "--batches",
        "--fits-only", "--ignore-memory", "--fold", "--launch", "--bind-to", "--map-by", "--rank-by",
        "--oversubscribe", "--hostfile", "--host", "--allow-run-as-root", "--mca", "SLURM_*", NULL};
/* clang-format on */

static const struct flag *plan_flag(const char *key)
{
        int flag_count;
        const struct flag *flags = flags_all(&flag_count);
        for (int i = 0; strncmp(key, "--", 2) == 0 && i < flag_count; i++)
                if (strcmp(flags[i].name, key + 2) == 0 && strcmp(flags[i].name, "from") != 0)
                        return &flags[i];
        return NULL;
}

static bool knows(const char *key)
{
        return plan_flag(key) != NULL;
}

static int read_plan(struct launch *l, struct rv_error_info *err)
{
        static const char *const counts[] = {"-n", "-np", "--ranks", "--gpus", "WORLD_SIZE"};
        int64_t gpus = 0;
        int rc = 0;
        for (size_t i = 0; !gpus && i < sizeof counts / sizeof *counts; i++)
                if (launch_value(l, counts[i]) &&
                    parse_int(counts[i], launch_value(l, counts[i]), 1, 1 << 20, &gpus, NULL))
                        gpus = 0;
        l->gpus = (int)gpus;
        if (launch_value(l, "MODEL"))
                snprintf(l->model, sizeof l->model, "%s", launch_value(l, "MODEL"));
        for (int i = 0; rc == 0 && i < l->item_count; i++) {
                const struct flag *flag = plan_flag(l->items[i].key);
                if (flag && flag->report != REPORT_NEVER)
                        rc = launch_say(l, flag->name,
                                        flag->argument || strcmp(l->items[i].value, "no") == 0
                                                ? l->items[i].value
                                                : "yes",
                                        l->items[i].key, err);
        }
        return rc;
}

static int write_plan(struct launch_output *out, struct rv_error_info *err)
{
        const struct options *o = out->options;
        struct options defaults;
        int flag_count, rc = 0;
        const struct flag *flags = flags_all(&flag_count);
        options_init(&defaults);
        if (!o->model || o->described)
                return rv_fail(err, RV_EPLAN,
                               "the model is described by %s alone: as a config.json, or a preset, it can be "
                               "launched",
                               o->model ? o->model : "a file");
        rc = launch_put(out, "MODEL", err, "%s", o->model);
        for (int i = 0; rc == 0 && i < flag_count; i++) {
                char text[FLAG_TEXT], key[64];
                const bool left =
                        launch_lists(launch_ranvier.ours_alone, flags[i].name) &&
                        (launch_lists("like without", flags[i].name) || !flag_is_given(&flags[i], o));
                if (left || flags[i].report == REPORT_NEVER || flag_equal(&flags[i], o, &defaults))
                        continue;
                snprintf(key, sizeof key, "--%s", flags[i].name);
                rc = launch_put(out, key, err, "%s", flags[i].argument ? flag_write(&flags[i], o, text) : "");
        }
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
                "# A plan of ranvier, to be trained by it on %d ranks. DATA is a text, or a .bin of tokens.\n"
                "mpirun -n %d ranvier train %s --data \"${DATA:?the text to train on}\"",
                out->gpus, out->gpus, out->items[0].value);
        for (int i = 1; i < out->count; i++)
                fprintf(writer.stream, " \\\n        %s%s%s", out->items[i].key,
                        *out->items[i].value ? " " : "", out->items[i].value);
        fprintf(writer.stream, " \\\n        \"$@\"\n");
        return file_writer_commit(&writer, err);
}

const struct launch_tool launch_ranvier = {
        .name = "ranvier",
        .title = "ranvier",
        .rows = rows,
        .nothing = nothing,
        .ours_alone = "like without fusion logits bucket-params messages allreduce device",
        .elsewhere = "",
        .read = read_plan,
        .write = write_plan,
        .print = print,
        .knows = knows,
};
