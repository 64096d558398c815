#include "runtime/real/resume.h"

#include "runtime/checkpoint/newest.h"
#include "runtime/checkpoint/state.h"
#include "runtime/real/train_options.h"
#include "runtime/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Each rank checks some of the files: all of them are read once. */
static int verify(struct net *net, const char *folder, const json_t *index, struct rv_error_info *err)
{
        int rc = RV_OK;
        for (int file = net->rank; rc == RV_OK && file < state_files(index); file += net->ranks)
                rc = state_verify(folder, index, file, err);
        return net_agree(net, rc, err);
}

/* The newest whole checkpoint, on every rank, and its folder; NULL with a sentence, on every rank. */
static json_t *choose(struct net *net, const char *folder, char name[FOLDER_CHECKPOINT],
                      struct rv_error_info *err)
{
        struct newest newest = {0}; /* rank 0's */
        json_t *chosen = NULL;
        if (net->rank == 0)
                newest = newest_begin(folder, "ranvier train");
        while (!chosen) {
                json_t *own = net->rank == 0 ? newest_next(&newest, name, err) : NULL;
                chosen = train_options_first(net, own);
                json_decref(own);
                if (!chosen) {
                        net_agree(net, net->rank == 0 ? (int)err->code : RV_OK, err);
                        break;
                }
                net->ops->broadcast(net, name, FOLDER_CHECKPOINT, 0);
                struct rv_error_info why = {.code = RV_OK};
                if (verify(net, name, chosen, &why) == RV_OK)
                        break;
                if (net->rank == 0)
                        fprintf(stderr, "ranvier train: warning: %s\n", why.sentence);
                json_decref(chosen);
                chosen = NULL;
        }
        free(newest.steps);
        return chosen;
}

json_t *resume_data_json(const struct trainer *t)
{
        return json_pack("{s:I, s:o}", "tokens", (json_int_t)t->data.count, "checksum",
                         json_sprintf("%016llx", (unsigned long long)data_checksum(&t->data)));
}

/* What batches are made of must be the same. `here`: as the index has it, of this training. */
static int check_batches(const json_t *here, const json_t *index, const char *name, struct rv_error_info *err)
{
        static const struct {
                const char *of, *key;
        } numbers[] = {{"plan", "batch_size"},
                       {"plan", "seq_len"},
                       {"training", "seed"},
                       {"training", "validation_fraction"}};
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
                const json_t *now = json_object_get(json_object_get(here, numbers[i].of), numbers[i].key),
                             *then = json_object_get(json_object_get(index, numbers[i].of), numbers[i].key);
                if (json_number_value(now) != json_number_value(then))
                        return rv_fail(err, RV_EINPUT,
                                       "--resume %s: its %s is %.10g, here it is %.10g: the batches would be "
                                       "others",
                                       name, numbers[i].key, json_number_value(then), json_number_value(now));
        }
        return RV_OK;
}

/* It must be of this training, but for its plan and its learning rates. */
static int check_training(const struct trainer *t, const json_t *index, const char *name,
                          struct rv_error_info *err)
{
        const struct train_settings *s = t->settings;
        json_t *here = json_pack("{s:o, s:o, s:o, s:o}", "model", gpt_to_json(&s->plan.gpt), "plan",
                                 report_plan_json(&s->plan), "training", train_options_json(s), "data",
                                 resume_data_json(t));
        const char *key =
                report_first_difference(json_object_get(index, "model"), json_object_get(here, "model"));
        int rc = key ? rv_fail(err, RV_EINPUT, "--resume %s: is of another model than %s: its %s differs",
                               name, s->plan.gpt.name, key)
                     : check_batches(here, index, name, err);
        if (rc == RV_OK && !json_equal(json_object_get(here, "data"), json_object_get(index, "data")))
                rc = rv_fail(err, RV_EINPUT, "--resume %s: was trained on other data than %s", name, s->data);
        json_decref(here);
        return rc;
}

/* Kernels of the CPU divide sums among threads: with others bits differ, where else they would not. */
static void tell_threads(const struct trainer *t, const json_t *index)
{
        const struct options *o = &t->settings->plan;
        const int then = (int)json_integer_value(json_object_get(index, "threads")),
                  now = t->settings->threads;
        if (t->net->rank > 0 || then <= 0 || then == now || strcmp(t->nn->device->ops->name, "cpu") != 0)
                return;
        json_t *plan = report_plan_json(o);
        if (o->logical_dp > 0 || !report_first_difference(json_object_get(index, "plan"), plan))
                fprintf(stderr,
                        "ranvier train: a rank has %d thread%s now and had %d: losses are the same but for "
                        "rounding, and with --threads %d bit for bit\n",
                        now, rv_plural(now), then, then);
        json_decref(plan);
}

/* The numbers of an index. */
static int take_numbers(struct trainer *t, const json_t *index, const char *name, int64_t *step,
                        struct history *history, struct rv_error_info *err)
{
        const json_t *losses = json_object_get(index, "losses"),
                     *scale = json_object_get(index, "loss_scale"), *loss;
        const json_t *first = json_object_get(index, "first_validation");
        size_t i;
        *step = json_integer_value(json_object_get(index, "step"));
        if (*step < 0 || (int64_t)json_array_size(losses) != *step)
                return rv_fail(err, RV_EINPUT, "--resume %s: its index has not the losses of its %lld steps",
                               name, (long long)*step);
        if (*step > t->settings->optim.steps)
                return rv_fail(
                        err, RV_EINPUT,
                        "--resume %s: has %lld steps already, --steps %lld: as many or more were expected",
                        name, (long long)*step, (long long)t->settings->optim.steps);
        json_array_foreach((json_t *)(uintptr_t)losses, i, loss)
        {
                history->losses[i] = json_is_number(loss) ? json_number_value(loss) : NAN;
        }
        history->first_validation = first ? json_number_value(first) : NAN;
        t->optim.skipped = json_integer_value(json_object_get(index, "skipped_steps"));
        if (t->plan.mixed && json_number_value(json_object_get(scale, "scale")) > 0) {
                t->scaler.scale = json_number_value(json_object_get(scale, "scale"));
                t->scaler.clean_steps = (int)json_integer_value(json_object_get(scale, "clean_steps"));
                t->scaler.stuck = (int)json_integer_value(json_object_get(scale, "stuck"));
        }
        return RV_OK;
}

/* Elements [first, end) of a tensor: their weights, or their moments. */
static int load_range(struct trainer *t, struct state *state, const struct tensor *tensor, int kind,
                      int64_t first, int64_t end, float *chunk, struct rv_error_info *err)
{
        for (int64_t at = first; at < end; at += NN_CHUNK) {
                const int64_t count = end - at < NN_CHUNK ? end - at : NN_CHUNK;
                const int rc = state_read(state, (enum state_kind)kind, tensor, at, count, chunk, err);
                if (rc != RV_OK)
                        return rc;
                if (kind == STATE_PARAMETER)
                        nn_write_parameters(t->nn, tensor->offset + at, count, chunk);
                else
                        nn_write_moments(t->nn, (enum nn_state)kind, tensor->offset + at, count, chunk);
        }
        return RV_OK;
}

/* A rank reads what it has: with ZeRO of moments, and of weights that are spread too, its shares. */
static int load_tensor(struct trainer *t, struct state *state, const struct tensor *tensor, float *chunk,
                       struct rv_error_info *err)
{
        const struct nn_own all = {tensor->offset, tensor->elements, 0};
        const struct nn_stage *nn = t->nn;
        int rc = RV_OK;
        for (int kind = 0; kind < STATE_KINDS; kind++) {
                const bool whole = !nn->own || (kind == STATE_PARAMETER && nn_has_weights(nn));
                for (int i = 0; rc == RV_OK && i < (whole ? 1 : nn->own_count); i++) {
                        const struct nn_own *own = whole ? &all : &nn->own[i];
                        const int64_t from = own->offset - tensor->offset, to = from + own->count;
                        rc = load_range(t, state, tensor, kind, from > 0 ? from : 0,
                                        to < tensor->elements ? to : tensor->elements, chunk, err);
                }
        }
        return rc;
}

static int load(struct trainer *t, const char *name, const json_t *index, int64_t *bytes,
                struct rv_error_info *err)
{
        struct state *state = state_open(name, index, err);
        float *chunk = malloc(NN_CHUNK * sizeof *chunk);
        int rc = state ? RV_OK : (int)err->code;
        if (rc == RV_OK && !chunk)
                rc = rv_fail(err, RV_ESYSTEM, "no host memory to read a checkpoint");
        for (int i = 0; rc == RV_OK && i < t->nn->tensor_count; i++)
                rc = load_tensor(t, state, &t->nn->tensors[i], chunk, err);
        *bytes = state ? state_bytes_read(state) : 0;
        free(chunk);
        state_close(state);
        return rc;
}

/* On rank 0. */
static int64_t sum_of(struct net *net, int64_t mine)
{
        int64_t *all = calloc((size_t)net->ranks, sizeof *all), sum = 0;
        if (!all)
                abort(); /* others wait */
        net->ops->gather(net, &mine, sizeof mine, all);
        for (int i = 0; i < net->ranks; i++)
                sum += all[i];
        free(all);
        return sum;
}

int resume(struct trainer *t, int64_t *step, struct history *history, int64_t *bytes,
           struct rv_error_info *err)
{
        char name[FOLDER_CHECKPOINT];
        int64_t mine = 0;
        json_t *index = choose(t->net, t->settings->resume, name, err);
        if (!index) {
                const struct rv_error_info why = *err;
                return rv_fail(err, why.code, "--resume %s", why.sentence);
        }
        int rc = check_training(t, index, name, err);
        if (rc == RV_OK)
                rc = take_numbers(t, index, name, step, history, err);
        if (rc == RV_OK)
                tell_threads(t, index);
        if (rc == RV_OK)
                rc = load(t, name, index, &mine, err);
        json_decref(index);
        *bytes = sum_of(t->net, mine);
        return net_agree(t->net, rc, err);
}
