#define _DEFAULT_SOURCE /* madvise */
#include "runtime/real/keep.h"

#include "runtime/base/file.h"
#include "runtime/base/version.h"
#include "runtime/checkpoint/state.h"
#include "runtime/real/train_options.h"
#include "runtime/report/report.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(real) == sizeof(float), "checkpoints hold fp32");
_Static_assert((int)STATE_PARAMETER == (int)NN_PARAMETERS && (int)STATE_MOMENT == (int)NN_MOMENTS &&
                       (int)STATE_SQUARE == (int)NN_SQUARES && (int)STATE_KINDS == (int)NN_STATES,
               "what a file has of a parameter is its state");

/* The lengths of paths: the folder of all, of one checkpoint, of a file in it. */
enum { FOLDER = 900, CHECKPOINT = 960, IN_CHECKPOINT = 1000, STEP_DIGITS = 12, FILE_NAME = 32 };

/* What the ranks tell rank 0 of their part of a checkpoint. */
struct part {
        struct state_file file;
        struct rv_error_info err; /* code RV_OK: it was written */
};

struct keeper {
        struct trainer *trainer;
        char folder[FOLDER];
        struct state_piece *pieces; /* of this rank's file */
        int piece_count;
        int64_t elements; /* of all pieces, of one kind */
        float *copy;      /* [STATE_KINDS x elements] */
        /* The checkpoint that is being written; the same on every rank, but for the thread. */
        bool writing;
        int64_t step; /* so many steps are in it */
        char name[CHECKPOINT], temporary[CHECKPOINT];
        json_t *index; /* on rank 0 */
        pthread_t thread;
        atomic_bool written; /* the thread is at its end */
        struct part mine;
        /* Rank 0's thread that completes it. */
        bool completing;
        pthread_t completion;
        struct part *parts; /* [ranks] */
        struct rv_error_info completed;
        double due; /* on device_seconds' clock; of checkpoints by time */
        double thread_seconds;
        struct keeper_done done;
};

/* ---- folders ---- */

static void name_step(char name[CHECKPOINT], const char *folder, int64_t step)
{
        snprintf(name, CHECKPOINT, "%s/step-%0*lld", folder, STEP_DIGITS, (long long)step);
}

static void name_file(char name[FILE_NAME], int rank)
{
        snprintf(name, FILE_NAME, "rank-%05d.safetensors", rank);
}

/* The steps of a checkpoint by the name of its folder; -1: it is none's. `*half`: it was not completed. */
static int64_t steps_of(const char *name, bool *half)
{
        char *end;
        if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != STEP_DIGITS)
                return -1;
        const int64_t step = strtoll(name + 5, &end, 10);
        *half = strncmp(end, ".tmp", 4) == 0;
        return *end && !*half ? -1 : step;
}

static void remove_checkpoint(const char *path)
{
        DIR *stream = opendir(path);
        char inside[IN_CHECKPOINT + 260];
        for (const struct dirent *entry; stream && (entry = readdir(stream));) {
                snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        unlink(inside);
        }
        if (stream)
                closedir(stream);
        rmdir(path);
}

static int newest_first(const void *left, const void *right)
{
        const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
        return (a < b) - (a > b);
}

/* The checkpoints of a folder, newest first, as an array [*count], which is NULL if there are none. With
 * `sweeping` those that were not completed are removed. */
static int64_t *list_steps(const char *folder, bool sweeping, int *count)
{
        DIR *stream = opendir(folder);
        int64_t *steps = NULL;
        *count = 0;
        for (const struct dirent *entry; stream && (entry = readdir(stream));) {
                bool half = false;
                const int64_t step = steps_of(entry->d_name, &half);
                char path[CHECKPOINT + 260];
                snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
                if (step >= 0 && half && sweeping)
                        remove_checkpoint(path);
                if (step < 0 || half)
                        continue;
                int64_t *longer = realloc(steps, ((size_t)*count + 1) * sizeof *steps);
                if (!longer)
                        abort();
                steps = longer;
                steps[(*count)++] = step;
        }
        if (stream)
                closedir(stream);
        if (steps)
                qsort(steps, (size_t)*count, sizeof *steps, newest_first);
        return steps;
}

int keeper_check_folder(const char *folder, struct rv_error_info *err)
{
        struct stat info;
        int count;
        if (strlen(folder) >= FOLDER)
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %d bytes", folder,
                               FOLDER - 1);
        if (stat(folder, &info) != 0)
                return file_check_writable(folder, err);
        if (!S_ISDIR(info.st_mode))
                return rv_fail(err, RV_EINPUT,
                               "--checkpoint %s: is a file; with --checkpoint-every a folder is expected",
                               folder);
        int64_t *steps = list_steps(folder, false, &count);
        const int64_t newest = count ? steps[0] : 0;
        free(steps);
        if (count)
                return rv_fail(
                        err, RV_EINPUT,
                        "--checkpoint %s: has checkpoints of a training, the newest of step %lld: --resume "
                        "%s goes on from there, and another training needs another folder",
                        folder, (long long)newest, folder);
        return access(folder, W_OK) == 0
                       ? RV_OK
                       : rv_fail(err, RV_EINPUT, "%s: cannot be written: %s", folder, strerror(errno));
}

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

/* ---- writing ---- */

static double seconds(void)
{
        return device_seconds();
}

static void *write_mine(void *context)
{
        struct keeper *k = context;
        char path[IN_CHECKPOINT], name[FILE_NAME];
        const double began = seconds();
        name_file(name, k->trainer->net->rank);
        snprintf(path, sizeof path, "%s/%s", k->temporary, name);
        k->mine = (struct part){.err = {.code = RV_OK}};
        state_write_part(path, k->pieces, k->piece_count, k->copy, &k->mine.file, &k->mine.err);
        k->thread_seconds = seconds() - began;
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

/* The oldest ones go, but for as many as are kept. */
static void remove_old(const struct keeper *k)
{
        int count;
        int64_t *steps = list_steps(k->folder, false, &count);
        char path[CHECKPOINT];
        int older = 0;
        for (int i = 0; i < count; i++)
                if (steps[i] <= k->step && ++older > k->trainer->settings->checkpoints_kept) {
                        name_step(path, k->folder, steps[i]);
                        remove_checkpoint(path);
                }
        free(steps);
}

/* On rank 0, when all parts are written. */
static void *complete(void *context)
{
        struct keeper *k = context;
        const int ranks = k->trainer->net->ranks;
        char(*names)[FILE_NAME] = calloc((size_t)ranks, sizeof *names);
        const char **list = calloc((size_t)ranks, sizeof *list);
        struct state_file *files = calloc((size_t)ranks, sizeof *files);
        int rc =
                names && list && files ? RV_OK : rv_fail(&k->completed, RV_ESYSTEM, "no memory for an index");
        for (int i = 0; rc == RV_OK && i < ranks; i++) {
                name_file(names[i], i);
                list[i] = names[i];
                files[i] = k->parts[i].file;
        }
        if (rc == RV_OK)
                rc = state_write_index(k->temporary, k->index, list, files, ranks, &k->completed);
        if (rc == RV_OK) {
                remove_checkpoint(k->name); /* one that was damaged */
                if (rename(k->temporary, k->name) != 0)
                        rc = rv_fail(&k->completed, RV_ESYSTEM, "%s: could not be written: %s", k->name,
                                     strerror(errno));
        }
        if (rc == RV_OK)
                rc = file_settle(k->folder, &k->completed);
        if (rc == RV_OK)
                remove_old(k);
        else
                remove_checkpoint(k->temporary);
        free(files);
        free(list);
        free(names);
        return NULL;
}

static void warn(struct keeper *k, const struct rv_error_info *why)
{
        if (k->trainer->net->rank == 0)
                fprintf(stderr, "ranvier train: warning: the checkpoint of step %lld was not kept: %s\n",
                        (long long)k->step, why->sentence);
}

/* Rank 0 ends what it began with the parts of all. Its outcome is told by `finish_parts`, or the next save.
 */
static void join_completion(struct keeper *k)
{
        if (!k->completing)
                return;
        pthread_join(k->completion, NULL);
        k->completing = false;
        if (k->completed.code == RV_OK) {
                k->done.checkpoints++;
                k->done.step = k->step;
        } else {
                k->done.failed++;
                warn(k, &k->completed);
        }
}

/* All parts are written, or have failed: rank 0 begins to complete the checkpoint, or gives it up.
 * Collective; waits for this rank's thread. */
static void finish_parts(struct keeper *k)
{
        struct net *net = k->trainer->net;
        struct rv_error_info err = {.code = RV_OK};
        if (!k->writing)
                return;
        pthread_join(k->thread, NULL);
        k->done.writing_seconds += k->thread_seconds;
        k->done.bytes = k->mine.file.bytes;
        k->writing = false;
        net->ops->gather(net, &k->mine, sizeof k->mine, k->parts);
        if (net->rank != 0)
                return;
        for (int i = 0; i < net->ranks && err.code == RV_OK; i++)
                err = k->parts[i].err;
        if (err.code == RV_OK) {
                k->completed = (struct rv_error_info){.code = RV_OK};
                k->completing = start_thread(&k->completion, complete, k) == 0;
                if (k->completing)
                        return;
                rv_fail(&err, RV_ESYSTEM, "no thread could be started");
        }
        k->done.failed++;
        warn(k, &err);
        remove_checkpoint(k->temporary);
}

/* ---- what a checkpoint says of the training ---- */

static json_t *losses_json(const double *losses, int64_t count)
{
        json_t *list = json_array();
        for (int64_t i = 0; i < count; i++)
                json_array_append_new(list, isfinite(losses[i]) ? json_real(losses[i]) : json_null());
        return list;
}

static json_t *data_json(const struct trainer *t)
{
        return json_pack("{s:I, s:o}", "tokens", (json_int_t)t->data.count, "checksum",
                         json_sprintf("%016llx", (unsigned long long)data_checksum(&t->data)));
}

static json_t *index_json(const struct trainer *t, int64_t step, const struct keep_history *history)
{
        json_t *index = json_pack(
                "{s:s, s:s, s:I, s:o, s:o, s:o, s:o, s:{s:f, s:i, s:i}, s:I, s:o}", "ranvier",
                RANVIER_VERSION, "kind", "checkpoint", "step", (json_int_t)step, "model",
                gpt_to_json(&t->settings->plan.gpt), "plan", report_plan_json(&t->settings->plan), "training",
                train_options_json(t->settings), "data", data_json(t), "loss_scale", "scale", t->scaler.scale,
                "clean_steps", t->scaler.clean_steps, "stuck", t->scaler.stuck, "skipped_steps",
                (json_int_t)t->optim.skipped, "losses", losses_json(history->losses, step));
        if (index && isfinite(history->first_validation))
                json_object_set_new(index, "first_validation", json_real(history->first_validation));
        return index;
}

/* ---- saving ---- */

/* Rank 0 makes the folder, and the others see it. */
static int begin_folder(struct keeper *k, int64_t step)
{
        struct net *net = k->trainer->net;
        struct rv_error_info err = {.code = RV_OK};
        int rc = RV_OK;
        name_step(k->name, k->folder, step);
        if (net->rank == 0) {
                snprintf(k->temporary, sizeof k->temporary, "%.920s.tmp%d", k->name, (int)getpid());
                remove_checkpoint(k->temporary);
                if (mkdir(k->temporary, 0777) != 0)
                        rc = rv_fail(&err, RV_ESYSTEM, "%s: cannot be written: %s", k->temporary,
                                     strerror(errno));
        }
        net->ops->broadcast(net, k->temporary, sizeof k->temporary, 0);
        rc = net_agree(net, rc, &err);
        if (rc != RV_OK) {
                k->done.failed++;
                warn(k, &err);
        }
        return rc;
}

/* Behind `step` steps. */
static void save(struct keeper *k, int64_t step, const struct keep_history *history)
{
        struct trainer *t = k->trainer;
        const double began = seconds();
        finish_parts(k);
        join_completion(k);
        k->step = step;
        if (begin_folder(k, step) != RV_OK)
                return;
        for (int kind = 0; kind < STATE_KINDS; kind++) {
                float *to = k->copy + kind * k->elements;
                for (int i = 0; i < k->piece_count; i++) {
                        const struct state_piece *piece = &k->pieces[i];
                        nn_read_state(t->nn, (enum nn_state)kind, piece->tensor->offset + piece->first,
                                      piece->count, to);
                        to += piece->count;
                }
        }
        t->device->ops->synchronize(t->device);
        if (t->net->rank == 0) {
                json_decref(k->index);
                k->index = index_json(t, step, history);
        }
        atomic_store(&k->written, false);
        k->writing = true;
        if (start_thread(&k->thread, write_mine, k) != 0) {
                fprintf(stderr, "ranvier train: rank %d: no thread could be started\n", t->net->rank);
                abort();
        }
        k->done.exposed_seconds += seconds() - began;
}

void keeper_before_step(struct keeper *k)
{
        struct driver_real *driver = &k->trainer->train.driver;
        driver->written = k->writing && atomic_load(&k->written);
        driver->saves = k->trainer->settings->checkpoint_seconds > 0 && k->trainer->net->rank == 0 &&
                        seconds() >= k->due;
}

void keeper_after_step(struct keeper *k, int64_t step, const struct trainer_result *result,
                       const struct keep_history *history)
{
        const struct train_settings *s = k->trainer->settings;
        const double began = seconds();
        const bool due = s->checkpoint_seconds > 0 ? result->saves : (step + 1) % s->checkpoint_steps == 0;
        if (k->writing && result->written == k->trainer->net->ranks) {
                join_completion(k);
                finish_parts(k);
                k->done.exposed_seconds += seconds() - began;
        }
        if (due || result->stops > 0 || step + 1 == s->optim.steps) {
                save(k, step + 1, history);
                k->due = seconds() + s->checkpoint_seconds;
        }
}

struct keeper_done keeper_finish(struct keeper *k)
{
        const double began = seconds();
        finish_parts(k);
        join_completion(k);
        k->trainer->net->ops->broadcast(k->trainer->net, &k->done.checkpoints, sizeof k->done.checkpoints, 0);
        k->trainer->net->ops->broadcast(k->trainer->net, &k->done.step, sizeof k->done.step, 0);
        k->done.exposed_seconds += seconds() - began;
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
        free(list_steps(k->folder, true, &count));
        return RV_OK;
}

static int open_copy(struct keeper *k, struct rv_error_info *err)
{
        const size_t bytes = (size_t)(STATE_KINDS * k->elements + 1) * sizeof *k->copy;
        k->copy = aligned_alloc(1 << 21, (bytes + (1 << 21) - 1) & ~(size_t)((1 << 21) - 1));
        if (!k->copy)
                return rv_fail(err, RV_ESYSTEM,
                               "no host memory for the copy of %zu bytes that a checkpoint is written from",
                               bytes);
        madvise(k->copy, bytes, MADV_HUGEPAGE);
        memset(k->copy, 0, bytes); /* so that no batch waits for pages */
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
        k->due = seconds() + t->settings->checkpoint_seconds;
        return rc;
}

void keeper_close(struct keeper *k)
{
        if (!k)
                return;
        if (k->writing)
                pthread_join(k->thread, NULL);
        if (k->completing)
                pthread_join(k->completion, NULL);
        json_decref(k->index);
        free(k->pieces);
        free(k->copy);
        free(k->parts);
        free(k);
}

/* ---- going on ---- */

/* Text of rank 0 on every rank, the caller's to free; NULL: rank 0's is. */
static char *share_text(struct net *net, const char *text)
{
        int64_t length = text ? (int64_t)strlen(text) : -1;
        net->ops->broadcast(net, &length, sizeof length, 0);
        char *all = length >= 0 ? calloc(1, (size_t)length + 1) : NULL;
        if (length >= 0 && !all)
                abort();
        if (length >= 0 && net->rank == 0)
                memcpy(all, text, (size_t)length);
        if (length > 0)
                net->ops->broadcast(net, all, length, 0);
        return all;
}

/* Each rank checks some of the files: all of them are read once. */
static int verify(struct net *net, const char *folder, const json_t *index, struct rv_error_info *err)
{
        int rc = RV_OK;
        for (int file = net->rank; rc == RV_OK && file < state_files(index); file += net->ranks)
                rc = state_verify(folder, index, file, err);
        return net_agree(net, rc, err);
}

/* Rank 0's candidates. */
struct candidates {
        int64_t *steps;
        int count, next;
        bool single; /* the folder is a checkpoint itself */
};

static struct candidates find_candidates(const char *folder)
{
        char path[IN_CHECKPOINT];
        struct stat info;
        struct candidates found = {0};
        snprintf(path, sizeof path, "%.900s/%s", folder, STATE_INDEX);
        found.single = stat(path, &info) == 0;
        if (found.single)
                found.count = 1;
        else
                found.steps = list_steps(folder, false, &found.count);
        return found;
}

/* On rank 0: the next index that is whole; NULL: there is no other. Names those that are not. */
static json_t *next_index(struct candidates *candidates, const char *folder, char name[CHECKPOINT],
                          struct rv_error_info *err)
{
        while (candidates->next < candidates->count) {
                struct rv_error_info why = {.code = RV_OK};
                if (candidates->single)
                        snprintf(name, CHECKPOINT, "%.900s", folder);
                else
                        name_step(name, folder, candidates->steps[candidates->next]);
                candidates->next++;
                json_t *index = state_read_index(name, &why);
                if (index)
                        return index;
                fprintf(stderr, "ranvier train: warning: %s\n", why.sentence);
        }
        rv_fail(err, RV_EINPUT,
                candidates->count ? "--resume %s: no checkpoint in it is whole"
                                  : "--resume %s: there is no checkpoint of ranvier train in it",
                folder);
        return NULL;
}

/* The newest whole checkpoint, on every rank, and its folder; NULL with a sentence, on every rank. */
static json_t *choose(struct net *net, const char *folder, char name[CHECKPOINT], struct rv_error_info *err)
{
        struct candidates candidates = {0};
        json_t *chosen = NULL;
        if (net->rank == 0)
                candidates = find_candidates(folder);
        while (!chosen) {
                json_t *own = net->rank == 0 ? next_index(&candidates, folder, name, err) : NULL;
                char *text = own ? json_dumps(own, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
                char *shared = share_text(net, text);
                free(text);
                json_decref(own);
                if (!shared) {
                        net_agree(net, net->rank == 0 ? (int)err->code : RV_OK, err);
                        break;
                }
                net->ops->broadcast(net, name, CHECKPOINT, 0);
                chosen = json_loads(shared, 0, NULL);
                free(shared);
                struct rv_error_info why = {.code = RV_OK};
                if (chosen && verify(net, name, chosen, &why) == RV_OK)
                        break;
                if (net->rank == 0)
                        fprintf(stderr, "ranvier train: warning: %s\n", why.sentence);
                json_decref(chosen);
                chosen = NULL;
        }
        free(candidates.steps);
        return chosen;
}

/* What must be the same for the sums to be. */
static int check_training(const struct trainer *t, const json_t *index, const char *name,
                          struct rv_error_info *err)
{
        static const char *const of_plan[] = {"batch_size", "seq_len"}, *const of_training[] = {
                                                                                "seed",
                                                                                "validation_fraction"};
        const struct train_settings *s = t->settings;
        json_t *plan = report_plan_json(&s->plan), *training = train_options_json(s),
               *model = gpt_to_json(&s->plan.gpt), *data = data_json(t);
        const char *key = report_first_difference(json_object_get(index, "model"), model);
        int rc = RV_OK;
        if (key)
                rc = rv_fail(err, RV_EINPUT, "--resume %s: is of another model than %s: its %s differs", name,
                             s->plan.gpt.name, key);
        for (size_t i = 0; rc == RV_OK && i < sizeof of_plan / sizeof *of_plan; i++)
                if (!json_equal(json_object_get(plan, of_plan[i]),
                                json_object_get(json_object_get(index, "plan"), of_plan[i])))
                        rc = rv_fail(err, RV_EINPUT,
                                     "--resume %s: %s was %lld there, and is %lld here: the batches would be "
                                     "others",
                                     name, of_plan[i],
                                     (long long)json_integer_value(
                                             json_object_get(json_object_get(index, "plan"), of_plan[i])),
                                     (long long)json_integer_value(json_object_get(plan, of_plan[i])));
        for (size_t i = 0; rc == RV_OK && i < sizeof of_training / sizeof *of_training; i++)
                if (json_number_value(json_object_get(training, of_training[i])) !=
                    json_number_value(json_object_get(json_object_get(index, "training"), of_training[i])))
                        rc = rv_fail(
                                err, RV_EINPUT,
                                "--resume %s: %s was %g there, and is %g here: the batches would be others",
                                name, of_training[i],
                                json_number_value(
                                        json_object_get(json_object_get(index, "training"), of_training[i])),
                                json_number_value(json_object_get(training, of_training[i])));
        if (rc == RV_OK && !json_equal(data, json_object_get(index, "data")))
                rc = rv_fail(err, RV_EINPUT, "--resume %s: was trained on other data than %s", name, s->data);
        json_decref(plan);
        json_decref(training);
        json_decref(model);
        json_decref(data);
        return rc;
}

/* The numbers of an index. */
static int take_numbers(struct trainer *t, const json_t *index, const char *name, int64_t *step,
                        struct keep_history *history, struct rv_error_info *err)
{
        const json_t *losses = json_object_get(index, "losses"),
                     *scale = json_object_get(index, "loss_scale"), *loss;
        const json_t *first = json_object_get(index, "first_validation");
        size_t i;
        *step = json_integer_value(json_object_get(index, "step"));
        if (*step < 0 || (int64_t)json_array_size(losses) != *step)
                return rv_fail(err, RV_EINPUT, "--resume %s: its index has not the losses of its %lld steps",
                               name, (long long)*step);
        if (*step >= t->settings->optim.steps)
                return rv_fail(err, RV_EINPUT,
                               "--resume %s: has %lld steps already, --steps %lld: more were expected", name,
                               (long long)*step, (long long)t->settings->optim.steps);
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

static int load(struct trainer *t, const char *name, const json_t *index, struct rv_error_info *err)
{
        struct state *state = state_open(name, index, err);
        float *chunk = malloc(NN_CHUNK * sizeof *chunk);
        int rc = state ? RV_OK : (int)err->code;
        if (rc == RV_OK && !chunk)
                rc = rv_fail(err, RV_ESYSTEM, "no host memory to read a checkpoint");
        for (int i = 0; rc == RV_OK && i < t->nn->tensor_count; i++)
                rc = load_tensor(t, state, &t->nn->tensors[i], chunk, err);
        free(chunk);
        state_close(state);
        return rc;
}

int keep_resume(struct trainer *t, int64_t *step, struct keep_history *history, struct rv_error_info *err)
{
        char name[CHECKPOINT];
        json_t *index = choose(t->net, t->settings->resume, name, err);
        if (!index)
                return (int)err->code;
        int rc = check_training(t, index, name, err);
        if (rc == RV_OK)
                rc = take_numbers(t, index, name, step, history, err);
        if (rc == RV_OK)
                rc = load(t, name, index, err);
        json_decref(index);
        return net_agree(t->net, rc, err);
}
