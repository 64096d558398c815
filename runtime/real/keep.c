#include "runtime/real/keep.h"

#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/state.h"
#include "runtime/real/train_options.h"
#include "runtime/report/report.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(real) == sizeof(float), "checkpoints hold fp32");
_Static_assert((int)STATE_PARAMETER == (int)NN_PARAMETERS && (int)STATE_MOMENT == (int)NN_MOMENTS &&
                       (int)STATE_SQUARE == (int)NN_SQUARES && (int)STATE_KINDS == (int)NN_STATES,
               "what a file has of a parameter is its state");

/* What the ranks tell rank 0 of their part of a checkpoint. */
struct part {
        struct stream_end file;
        struct rv_error_info err; /* code RV_OK: it was written */
};

struct keeper {
        struct trainer *trainer;
        char folder[FOLDER_PATH];
        int writer;                 /* rank 0's process */
        struct state_piece *pieces; /* of this rank's file */
        int piece_count;
        int64_t elements; /* of all pieces, of one kind */
        float *copy;      /* [STATE_KINDS x elements] */
        struct driver_saver saver;
        /* The checkpoint whose snapshot was made last, and the one before it, which may still have to be
         * completed; the same on every rank, but for what the thread leaves. */
        struct making {
                bool begun;                        /* and its parts are not known to be written */
                bool good;                         /* and the training went on behind that step */
                int64_t step;                      /* so many steps are in it */
                char temporary[FOLDER_CHECKPOINT]; /* its folder until it is complete */
                struct part mine;
                double seconds; /* that the thread took */
        } now, before;
        bool running; /* the thread of `now` is not joined */
        pthread_t thread;
        atomic_bool written; /* it is at its end */
        json_t *index;       /* on rank 0: of what is to be completed */
        json_t *data;        /* what every index says of the data */
        /* Rank 0's thread that completes it. */
        bool completing;
        struct making completed;
        pthread_t completion;
        struct part *parts; /* [ranks] */
        struct rv_error_info failure;
        double due; /* on device_seconds' clock; of checkpoints by time */
        struct keeper_done done;
};

/* ---- what this rank writes ---- */

static void add_piece(struct keeper *k, const struct tensor *tensor, int64_t first, int64_t end)
{
        /* What pads the vocabulary is nobody's. */
        for (int64_t at = first, run; at < end; at += run) {
                const bool padding = partition_whole_run(tensor, at, &run) < 0;
                run = run < end - at ? run : end - at;
                struct state_piece *last = k->piece_count ? &k->pieces[k->piece_count - 1] : NULL;
                if (padding)
                        continue;
                k->elements += run;
                if (last && last->tensor == tensor && last->first + last->count == at) {
                        last->count += run;
                        continue;
                }
                struct state_piece *longer =
                        realloc(k->pieces, ((size_t)k->piece_count + 1) * sizeof *k->pieces);
                if (!longer)
                        abort();
                k->pieces = longer;
                k->pieces[k->piece_count++] = (struct state_piece){tensor, at, run};
        }
}

/* Those of a tensor that this rank updates alone among its replicas; without ZeRO it is given an even part.
 */
static void add_tensor(struct keeper *k, const struct tensor *tensor)
{
        const struct trainer *t = k->trainer;
        const struct nn_stage *nn = t->nn;
        const int rank = t->net->rank;
        const struct plan_group alike =
                plan_group(&t->plan, rank, tensor->expert ? GROUP_EXPERT_DATA : GROUP_DATA);
        if (!nn->own) {
                const int64_t begin = tensor->elements * alike.index / alike.size,
                              end = tensor->elements * (alike.index + 1) / alike.size;
                add_piece(k, tensor, begin, end);
                return;
        }
        if (plan_hybrid(&t->plan) && plan_group(&t->plan, rank, GROUP_SHARE_DATA).index > 0)
                return;
        for (int i = 0; i < nn->own_count; i++) {
                const int64_t from = nn->own[i].offset - tensor->offset, to = from + nn->own[i].count;
                add_piece(k, tensor, from > 0 ? from : 0, to < tensor->elements ? to : tensor->elements);
        }
}

/* What several ranks have alike one of them writes: of shards the first, of a tied embedding the first
 * stage. */
static void list_pieces(struct keeper *k)
{
        const struct nn_stage *nn = k->trainer->nn;
        const struct stage all = partition_stage(&nn->gpt, 1, 0);
        struct tensor *tensors = calloc((size_t)partition_tensors(&nn->gpt, &all, NULL), sizeof *tensors);
        if (!tensors)
                abort();
        partition_tensors(&nn->gpt, &all, tensors);
        const uint32_t embedding = tensors[0].id;
        free(tensors);
        for (int i = 0; i < nn->tensor_count; i++) {
                const struct tensor *tensor = &nn->tensors[i];
                const bool copy =
                        nn->gpt.tied && tensor->id == embedding && nn->stage.last && !nn->stage.first;
                if (!copy && !(tensor->replicated && nn->stage.shard > 0))
                        add_tensor(k, tensor);
        }
}

/* ---- the operations of the core ---- */

static bool is_due(void *context)
{
        const struct keeper *k = context;
        const struct trainer *t = k->trainer;
        const struct train_settings *s = t->settings;
        const double *scalars = t->nn->scalars;
        const int64_t steps = t->train.driver.step + 1;
        const bool due = s->checkpoint_seconds > 0 ? scalars[NN_SAVES] > 0 : steps % s->checkpoint_steps == 0;
        /* A training that has gone wrong ends behind this step, and goes on from before it. */
        if (!t->train.driver.overflow && !(isfinite(scalars[NN_LOSS]) && isfinite(scalars[NN_SQUARED_NORM])))
                return false;
        return due || scalars[NN_STOPS] > 0 || steps == s->optim.steps;
}

static void add_begun(struct keeper *k, int64_t step)
{
        struct keeper_one *longer = realloc(k->done.each, ((size_t)k->done.begun + 1) * sizeof *k->done.each);
        if (!longer)
                abort();
        k->done.each = longer;
        k->done.each[k->done.begun++] = (struct keeper_one){.step = step};
}

/* A snapshot follows when the one before is written on this rank, and perhaps not on others. */
static void copy_mine(void *context)
{
        struct keeper *k = context;
        const int64_t steps = k->trainer->train.driver.step + 1;
        k->before = k->now;
        k->now = (struct making){.begun = true, .step = steps};
        add_begun(k, steps);
        folder_name_temporary(k->now.temporary, k->folder, steps, k->writer);
        for (int kind = 0; kind < STATE_KINDS; kind++) {
                float *to = k->copy + kind * k->elements;
                for (int i = 0; i < k->piece_count; i++) {
                        const struct state_piece *piece = &k->pieces[i];
                        nn_read_state(k->trainer->nn, (enum nn_state)kind,
                                      piece->tensor->offset + piece->first, piece->count, to);
                        to += piece->count;
                }
        }
}

/* Every rank makes the folder, so that none waits for another's. */
static void *write_mine(void *context)
{
        struct keeper *k = context;
        struct making *now = &k->now;
        char path[FOLDER_FILE], name[FOLDER_PART];
        const double began = device_seconds();
        folder_name_part(name, k->trainer->net->rank);
        snprintf(path, sizeof path, "%s/%s", now->temporary, name);
        now->mine.err.code = RV_OK;
        if (mkdir(now->temporary, 0777) != 0 && errno != EEXIST)
                rv_fail(&now->mine.err, RV_ESYSTEM, "%s: cannot be made: %s", now->temporary,
                        strerror(errno));
        else
                state_write_part(path, k->pieces, k->piece_count, k->copy, &now->mine.file, &now->mine.err);
        now->seconds = device_seconds() - began;
        atomic_store(&k->written, true);
        return NULL;
}

/* A thread that no signal of the training's goes to. */
static int start_thread(pthread_t *thread, void *(*run)(void *), struct keeper *k)
{
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        const int rc = pthread_create(thread, NULL, run, k);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return rc;
}

static void begin_to_write(void *context)
{
        struct keeper *k = context;
        atomic_store(&k->written, false);
        k->running = true;
        if (start_thread(&k->thread, write_mine, k) != 0) {
                fprintf(stderr, "ranvier train: rank %d: no thread could be started\n",
                        k->trainer->net->rank);
                abort();
        }
}

static bool is_written(void *context)
{
        struct keeper *k = context;
        if (!atomic_load(&k->written))
                return false;
        pthread_join(k->thread, NULL);
        k->running = false;
        return true;
}

/* ---- completing ---- */

/* The oldest ones go, but for as many as are kept. */
static void remove_old(const struct keeper *k)
{
        int count;
        int64_t *steps = folder_steps(k->folder, false, &count);
        char path[FOLDER_CHECKPOINT];
        int older = 0;
        for (int i = 0; i < count; i++)
                if (steps[i] <= k->completed.step && ++older > k->trainer->settings->checkpoints_kept) {
                        folder_name_step(path, k->folder, steps[i]);
                        folder_remove(path);
                }
        free(steps);
}

/* On rank 0, when all parts are written. */
static void *complete(void *context)
{
        struct keeper *k = context;
        const int ranks = k->trainer->net->ranks;
        struct stream_end *files = calloc((size_t)ranks, sizeof *files);
        int rc = files ? RV_OK : rv_fail(&k->failure, RV_ESYSTEM, "no memory for an index");
        for (int i = 0; rc == RV_OK && i < ranks; i++)
                files[i] = k->parts[i].file;
        if (rc == RV_OK)
                rc = state_complete(k->completed.temporary, k->folder, k->completed.step, k->index, files,
                                    ranks, &k->failure);
        if (rc == RV_OK)
                remove_old(k);
        free(files);
        return NULL;
}

static void note_failure(struct keeper *k, const struct making *of, const struct rv_error_info *why)
{
        k->done.failed++;
        if (k->trainer->net->rank == 0)
                fprintf(stderr, "ranvier train: warning: the checkpoint of step %lld was not kept: %s\n",
                        (long long)of->step, why->sentence);
}

/* Rank 0 ends what it began with the parts of all. */
static void join_completion(struct keeper *k)
{
        if (!k->completing)
                return;
        pthread_join(k->completion, NULL);
        k->completing = false;
        if (k->failure.code != RV_OK) {
                note_failure(k, &k->completed, &k->failure);
                return;
        }
        k->done.checkpoints++;
        k->done.step = k->completed.step;
}

static struct keeper_one *one_of(const struct keeper *k, int64_t step)
{
        struct keeper_one *one = &k->done.each[k->done.begun - 1];
        while (one->step != step)
                one--;
        return one;
}

/* All ranks have written, or have failed to: rank 0 begins to complete the checkpoint, or gives it up.
 * Collective. */
static void finish_parts(struct keeper *k, struct making *of)
{
        struct net *net = k->trainer->net;
        struct rv_error_info err = {.code = RV_OK};
        if (!of->begun)
                return;
        of->begun = false;
        one_of(k, of->step)->writing_seconds = of->seconds;
        k->done.bytes = of->mine.file.bytes;
        join_completion(k);
        net->ops->gather(net, &of->mine, sizeof of->mine, k->parts);
        if (net->rank != 0)
                return;
        for (int i = 0; i < net->ranks && err.code == RV_OK; i++)
                err = k->parts[i].err;
        if (err.code == RV_OK) {
                k->failure = (struct rv_error_info){.code = RV_OK};
                k->completed = *of;
                k->completing = start_thread(&k->completion, complete, k) == 0;
                if (k->completing)
                        return;
                rv_fail(&err, RV_ESYSTEM, "no thread could be started");
        }
        note_failure(k, of, &err);
        folder_remove(of->temporary);
}

/* ---- what a checkpoint says of the training ---- */

static json_t *losses_json(const double *losses, int64_t count)
{
        json_t *list = json_array();
        for (int64_t i = 0; i < count; i++)
                json_array_append_new(list, isfinite(losses[i]) ? json_real(losses[i]) : json_null());
        return list;
}

static json_t *index_json(const struct keeper *k, int64_t step, const struct history *history)
{
        const struct trainer *t = k->trainer;
        json_t *index =
                json_pack("{s:s, s:s, s:I, s:i, s:o, s:o, s:o, s:O, s:{s:f, s:i, s:i}, s:I, s:o}", "ranvier",
                          RANVIER_VERSION, "kind", "checkpoint", "step", (json_int_t)step, "threads",
                          t->settings->threads, "model", gpt_to_json(&t->settings->plan.gpt), "plan",
                          report_plan_json(&t->settings->plan), "training", train_options_json(t->settings),
                          "data", k->data, "loss_scale", "scale", t->scaler.scale, "clean_steps",
                          t->scaler.clean_steps, "stuck", t->scaler.stuck, "skipped_steps",
                          (json_int_t)t->optim.skipped, "losses", losses_json(history->losses, step));
        if (index && isfinite(history->first_validation))
                json_object_set_new(index, "first_validation", json_real(history->first_validation));
        return index;
}

/* ---- behind a step ---- */

/* Training has waited, for the one that was begun last. */
static void add_exposed(struct keeper *k, double seconds)
{
        if (k->done.begun)
                k->done.each[k->done.begun - 1].exposed_seconds += seconds;
}

void keeper_before_step(struct keeper *k)
{
        struct driver_real *driver = &k->trainer->train.driver;
        driver->written = k->now.begun && atomic_load(&k->written);
        driver->saves = k->trainer->settings->checkpoint_seconds > 0 && k->trainer->net->rank == 0 &&
                        device_seconds() >= k->due;
}

bool keeper_after_step(struct keeper *k, int64_t step, const struct trainer_result *result,
                       const struct history *history)
{
        const struct trainer *t = k->trainer;
        const double began = device_seconds();
        const struct batch_times *times = &t->times[step];
        const bool saved = k->now.begun && k->now.step == step + 1;
        if (saved) { /* so all have written the one before */
                k->now.good = true;
                finish_parts(k, &k->before);
                add_exposed(k, times->saved - times->ended);
        } else if (result->written == t->net->ranks) {
                finish_parts(k, &k->now);
        } else {
                return false;
        }
        if (saved) {
                join_completion(k); /* whose index it is */
                if (t->net->rank == 0) {
                        json_decref(k->index);
                        k->index = index_json(k, step + 1, history);
                }
                k->due = device_seconds() + t->settings->checkpoint_seconds;
        }
        add_exposed(k, device_seconds() - began);
        return saved;
}

/* Of a step behind which the training has failed, when all have written. Collective. */
static void give_up(struct keeper *k, struct making *of)
{
        of->begun = false;
        k->trainer->net->ops->barrier(k->trainer->net);
        if (k->trainer->net->rank == 0)
                folder_remove(of->temporary);
}

struct keeper_done keeper_finish(struct keeper *k)
{
        const double began = device_seconds();
        struct net *net = k->trainer->net;
        driver_real_finish_writing(&k->trainer->train.driver, &k->trainer->train.engine);
        finish_parts(k, &k->before);
        if (k->now.begun && !k->now.good)
                give_up(k, &k->now);
        finish_parts(k, &k->now);
        join_completion(k);
        net->ops->broadcast(net, &k->done.checkpoints, sizeof k->done.checkpoints, 0);
        net->ops->broadcast(net, &k->done.step, sizeof k->done.step, 0);
        add_exposed(k, device_seconds() - began);
        return k->done;
}

/* ---- opening and closing ---- */

/* On rank 0. */
static int make_folder(struct keeper *k, struct rv_error_info *err)
{
        int count;
        if (mkdir(k->folder, 0777) != 0 && errno != EEXIST)
                return rv_fail(err, RV_ESYSTEM, "--checkpoint %s: cannot be made: %s", k->folder,
                               strerror(errno));
        free(folder_steps(k->folder, true, &count));
        return RV_OK;
}

static int open_copy(struct keeper *k, struct rv_error_info *err)
{
        const int64_t bytes = (STATE_KINDS * k->elements + 1) * (int64_t)sizeof *k->copy;
        k->copy = device_host_alloc(k->trainer->device, bytes);
        if (!k->copy)
                return rv_fail(err, RV_ESYSTEM,
                               "no host memory for the copy of %lld bytes that a checkpoint is written from",
                               (long long)bytes);
        return RV_OK;
}

int keeper_open(struct keeper **opened, struct trainer *t, struct rv_error_info *err)
{
        struct net *net = t->net;
        struct keeper *k = *opened = calloc(1, sizeof *k);
        if (!k)
                abort(); /* others wait */
        k->trainer = t;
        snprintf(k->folder, sizeof k->folder, "%s", t->settings->checkpoint);
        k->parts = calloc((size_t)net->ranks, sizeof *k->parts);
        if (!k->parts)
                abort();
        list_pieces(k);
        k->saver = (struct driver_saver){is_due, copy_mine, begin_to_write, is_written, k};
        t->train.driver.saver = &k->saver;
        k->writer = (int)getpid();
        net->ops->broadcast(net, &k->writer, sizeof k->writer, 0);
        k->data = resume_data_json(t);
        int rc = net_agree(net, net->rank == 0 ? make_folder(k, err) : RV_OK, err);
        if (rc == RV_OK) {
                struct stat info;
                rc = stat(k->folder, &info) == 0
                             ? RV_OK
                             : rv_fail(err, RV_EINPUT,
                                       "--checkpoint %s: rank %d does not see the folder that rank 0 made: "
                                       "checkpoints need a folder that all ranks share",
                                       k->folder, net->rank);
                if (rc == RV_OK)
                        rc = open_copy(k, err);
                rc = net_agree(net, rc, err);
        }
        k->due = device_seconds() + t->settings->checkpoint_seconds;
        return rc;
}

void keeper_close(struct keeper *k)
{
        if (!k)
                return;
        if (k->running)
                pthread_join(k->thread, NULL);
        if (k->completing)
                pthread_join(k->completion, NULL);
        json_decref(k->index);
        json_decref(k->data);
        free(k->pieces);
        device_host_free(k->trainer->device, k->copy);
        free(k->parts);
        free(k->done.each);
        free(k);
}
