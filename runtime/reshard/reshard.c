/* `ranvier reshard`: a checkpoint of a training as a model for transformers, or as a checkpoint in other
 * parts. */
#include "runtime/base/command_line.h"
#include "runtime/base/file.h"
#include "runtime/base/number.h"
#include "runtime/base/setting.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/newest.h"
#include "runtime/checkpoint/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PARTS = 65536 };

struct settings {
        const char *from, *to;
        int parts; /* 0: a model */
        bool json;
};

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_INT, "parts", .argument = "N", .offset = offsetof(struct settings, parts), .min = 1, .max = MAX_PARTS,
         .help = "Write a checkpoint in N files, each with an even part of every tensor, into the folder TO of checkpoints "
                 "(default: the model, for transformers, ranvier sample and --init: the folder TO, or a file if it ends in "
                 ".safetensors)"},
        {SETTING_SET, "json", .offset = offsetof(struct settings, json), .help = "Print what was done as JSON"},
        {.help = NULL},
};
/* clang-format on */

static const char documentation[] =
        "Reads a checkpoint that ranvier train --checkpoint-every wrote, the newest whole one in the folder "
        "FROM or "
        "FROM itself, verifies it, and writes its model, or the same checkpoint in other parts. A training "
        "goes on from a checkpoint in any parts, on any grid, so that it need not be resharded for that.\v"
        "  ranvier reshard run model-so-far\n"
        "  ranvier reshard run run-in-one --parts 1\n";

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct settings *s = state->input;
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, s, key, text, command_line_error(state));
        if (s->to)
                return ARGP_ERR_UNKNOWN;
        *(s->from ? &s->to : &s->from) = text;
        return 0;
}

/* A checkpoint that was opened, and the tensors of its model. */
struct source {
        char name[FOLDER_CHECKPOINT];
        json_t *index;
        struct gpt gpt;
        struct state *state;
        struct tensor *tensors; /* [count] */
        int count;
        int64_t step, written; /* bytes */
};

static int verify(const char *name, const json_t *index, struct rv_error_info *err)
{
        int rc = RV_OK;
        for (int i = 0; rc == RV_OK && i < state_files(index); i++)
                rc = state_verify(name, index, i, err);
        return rc;
}

/* The newest one whose files are whole, too. */
static int choose(struct source *source, const char *folder, struct rv_error_info *err)
{
        struct newest newest = newest_begin(folder, "ranvier reshard");
        while (!source->index && (source->index = newest_next(&newest, source->name, err))) {
                struct rv_error_info why = {.code = RV_OK};
                if (verify(source->name, source->index, &why) == RV_OK)
                        break;
                fprintf(stderr, "ranvier reshard: warning: %s\n", why.sentence);
                json_decref(source->index);
                source->index = NULL;
        }
        free(newest.steps);
        return source->index ? RV_OK : (int)err->code;
}

static int source_open(struct source *source, const char *folder, struct rv_error_info *err)
{
        int rc = choose(source, folder, err);
        if (rc == RV_OK)
                rc = gpt_from_json(&source->gpt, source->name, json_object_get(source->index, "model"), err);
        if (rc != RV_OK)
                return rc;
        source->step = json_integer_value(json_object_get(source->index, "step"));
        source->state = state_open(source->name, source->index, err);
        if (!source->state)
                return (int)err->code;
        const struct stage all = partition_stage(&source->gpt, 1, 0);
        source->count = partition_tensors(&source->gpt, &all, NULL);
        source->tensors = calloc((size_t)source->count, sizeof *source->tensors);
        if (!source->tensors)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d tensors", source->count);
        partition_tensors(&source->gpt, &all, source->tensors);
        return RV_OK;
}

static void source_close(struct source *source)
{
        free(source->tensors);
        state_close(source->state);
        json_decref(source->index);
}

/* ---- a model ---- */

static int write_model(struct source *source, const char *path, struct rv_error_info *err)
{
        const json_t *plan = json_object_get(source->index, "plan");
        const struct checkpoint_training training = {
                .step = source->step, .seq_len = (int)json_integer_value(json_object_get(plan, "seq_len"))};
        struct checkpoint_writer *writer = checkpoint_begin(path, &source->gpt, &training, err);
        int rc = writer ? RV_OK : (int)err->code;
        for (int i = 0; rc == RV_OK && i < source->count; i++) {
                const struct tensor *tensor = &source->tensors[i];
                float *elements = malloc((size_t)tensor->elements * sizeof *elements);
                if (!elements)
                        rc = rv_fail(err, RV_ESYSTEM, "no memory for the %lld elements of %s",
                                     (long long)tensor->elements, tensor->name);
                if (rc == RV_OK)
                        rc = state_read(source->state, STATE_PARAMETER, tensor, 0, tensor->elements, elements,
                                        err);
                if (rc == RV_OK)
                        rc = checkpoint_append(writer, elements, err);
                source->written += tensor->elements * (int64_t)sizeof *elements;
                free(elements);
        }
        struct rv_error_info late = {.code = RV_OK};
        if (writer && checkpoint_commit(writer, &late) != RV_OK && rc == RV_OK) {
                *err = late;
                rc = late.code;
        }
        return rc;
}

/* ---- a checkpoint ---- */

/* Number `part` of `parts`, in memory for all of its elements. */
static int write_part(struct source *source, const char *path, int part, int parts, struct stream_end *file,
                      struct rv_error_info *err)
{
        struct state_piece *pieces = calloc((size_t)source->count, sizeof *pieces);
        int64_t each = 0, at = 0;
        int count = 0, rc = RV_OK;
        for (int i = 0; pieces && i < source->count; i++) {
                const int64_t elements = source->tensors[i].elements, first = elements * part / parts,
                              end = elements * (part + 1) / parts;
                if (first < end)
                        pieces[count++] = (struct state_piece){&source->tensors[i], first, end - first};
                each += end - first;
        }
        float *all = pieces ? malloc((size_t)(STATE_KINDS * each + 1) * sizeof *all) : NULL;
        if (!all)
                rc = rv_fail(err, RV_ESYSTEM,
                             "no memory for a part of %lld elements: more --parts are smaller",
                             (long long)each);
        for (int kind = 0; kind < STATE_KINDS; kind++)
                for (int i = 0; rc == RV_OK && i < count; at += pieces[i].count, i++)
                        rc = state_read(source->state, (enum state_kind)kind, pieces[i].tensor,
                                        pieces[i].first, pieces[i].count, all + at, err);
        if (rc == RV_OK)
                rc = state_write_part(path, pieces, count, all, file, err);
        source->written += file->bytes;
        free(all);
        free(pieces);
        return rc;
}

static int write_checkpoint(struct source *source, const char *folder, int parts, struct rv_error_info *err)
{
        char temporary[FOLDER_CHECKPOINT], path[FOLDER_FILE], name[FOLDER_PART];
        int rc = folder_check_new(folder, err);
        if (rc != RV_OK)
                return rc;
        folder_name_temporary(temporary, folder, source->step, (int)getpid());
        if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || mkdir(temporary, 0777) != 0)
                return rv_fail(err, RV_ESYSTEM, "%s: cannot be written: %s", folder, strerror(errno));
        struct stream_end *files = calloc((size_t)parts, sizeof *files);
        if (!files)
                rc = rv_fail(err, RV_ESYSTEM, "no memory for %d parts", parts);
        for (int i = 0; rc == RV_OK && i < parts; i++) {
                folder_name_part(name, i);
                snprintf(path, sizeof path, "%s/%s", temporary, name);
                rc = write_part(source, path, i, parts, &files[i], err);
        }
        if (rc == RV_OK)
                rc = state_complete(temporary, folder, source->step, source->index, files, parts, err);
        else
                folder_remove(temporary);
        free(files);
        return rc;
}

/* ---- the command ---- */

static int tell(const struct settings *s, const struct source *source, struct rv_error_info *err)
{
        char read[NUMBER_TEXT], written[NUMBER_TEXT];
        const int64_t bytes = state_bytes_read(source->state);
        const int files = state_files(source->index);
        if (!s->json) {
                printf("%s, behind step %lld: %s read from %s; %s written to %s\n", source->gpt.name,
                       (long long)source->step, number_bytes(read, (double)bytes), source->name,
                       number_bytes(written, (double)source->written), s->to);
                return file_check_printed(err);
        }
        json_t *json = json_pack("{s:s, s:I, s:s, s:s, s:i, s:I, s:I}", "model", source->gpt.name, "step",
                                 (json_int_t)source->step, "from", source->name, "to", s->to, "files",
                                 s->parts ? files : 0, "bytes_read", (json_int_t)bytes, "bytes_written",
                                 (json_int_t)source->written);
        const int rc = json ? file_print_json(json, err) : rv_fail(err, RV_EINPUT, "TO must be UTF-8");
        json_decref(json);
        return rc;
}

static int reshard(const struct settings *s, struct rv_error_info *err)
{
        struct source source = {.index = NULL};
        int rc = s->parts ? RV_OK : checkpoint_check_writable(s->to, err);
        if (rc == RV_OK)
                rc = source_open(&source, s->from, err);
        if (rc == RV_OK)
                rc = s->parts ? write_checkpoint(&source, s->to, s->parts, err)
                              : write_model(&source, s->to, err);
        if (rc == RV_OK)
                rc = tell(s, &source, err);
        source_close(&source);
        return rc;
}

int main(int argc, char **argv)
{
        struct argp_option options[SETTINGS + 1];
        const struct argp argp = {options, parse_option, "FROM TO", documentation, NULL, NULL, NULL};
        struct settings s = {.parts = 0};
        struct rv_error_info err = {.code = RV_OK};
        settings_options(option_rows, options, 0);
        int rc = command_line_parse(&argp, argc, argv, &s, false, &err);
        if (rc == RV_OK && !s.to)
                rc = rv_fail(&err, RV_EINPUT,
                             "%s is missing: a checkpoint of ranvier train, and what to write",
                             s.from ? "TO" : "FROM");
        if (rc == RV_OK)
                rc = reshard(&s, &err);
        return command_line_end("reshard", rc, &err);
}
