/* One rank of a training run. A trainer owns what a rank trains with: its device, its stage of the model, its
 * share of the data, the schedules of training and validation, and the loss scale. `ranvier train` (train.c)
 * opens it in three steps, calls trainer_step once a step and trainer_validate now and then, and closes it;
 * progress, log, report and checkpoint are train.c's matter.
 *
 * What is said to be collective must be called by every rank, in the same order. */
#ifndef RANVIER_RUNTIME_REAL_TRAINER_H
#define RANVIER_RUNTIME_REAL_TRAINER_H

#include "runtime/checkpoint/weight_files.h"
#include "runtime/data/data.h"
#include "runtime/real/driver_real.h"
#include "runtime/real/hosts.h"
#include "runtime/real/load.h"
#include "runtime/launch/launch.h"
#include "runtime/plan/options.h"
#include "runtime/engine/phases.h"

/* How the ranks are started, if not by the user (supervise.h). */
struct start_settings {
        int restarts;       /* how often again, in a row without a new checkpoint; -1: the user starts them */
        int ranks;          /* 0: not given */
        struct hosts hosts; /* none: mpirun's choice; the settings' own */
        const char *hosts_option; /* that named them */
        const char *mpirun;       /* words with blanks between; NULL: "mpirun" */
        double hang_seconds;      /* without a word from the ranks, after which they hang; 0: not given */
};

/* The options of `ranvier train`, as train_options_parse completes them. */
struct train_settings {
        struct options plan;
        struct launch from; /* what the file of --from says, which the plan points into; the settings' own */
        /* Files: the tokens that are read; the initial weights (weight_files.h), or NULL for random ones; and
         * the CSV log and the checkpoint that rank 0 writes, which may be NULL. */
        const char *data, *init, *log, *checkpoint;
        /* Behind every so many steps, or seconds (one of them is 0), the state of the training is kept in the
         * folder `checkpoint` (keep.h), the last few of them; the model is then `checkpoint`/model. Both 0:
         * it is not. */
        int64_t checkpoint_steps;
        double checkpoint_seconds;
        int checkpoints_kept;
        const char *resume; /* the folder of checkpoints, or one of them, that the training goes on from, or
                               NULL */
        struct optim optim;
        int64_t validate_every;     /* steps; 0: only before the first and after the last */
        double validation_fraction; /* of the tokens, at their end; 0: there is no validation */
        /* A validation has so many batches, of the same size as those of training; its loss is their mean. */
        int validation_batches;
        /* Of the initial weights and of the order of the data. The same seed trains the same model on any
         * grid of ranks. */
        uint64_t seed;
        /* For the CPU device: how many threads the kernels of one rank run on, and which variant of the
         * kernels, by name; NULL and "auto" are the fastest that this processor runs. */
        int threads;
        const char *cpu_kernels;
        /* For the CUDA device: every kernel is launched by itself, not in a graph. */
        bool no_graphs;
        enum attention_source attention;
        /* And a profile whose products were timed, with what it says of them (device_request.products), which
         * is the settings' own; NULL: none. */
        const char *products;
        char *product_algorithms;
        /* cpu: copies take as long as over a link of this rate; 0: as long as they take. */
        double host_link_bytes_per_second;
        /* Messages and collectives take at least as long as over a link of this rate; 0: as long as they
         * take. */
        double net_link_bytes_per_second;
        /* For experiments with 16-bit gradients: in this step (from 0; -1: in none) one of this rank's
         * becomes infinite. */
        int64_t inject_step;
        int inject_rank;
        double tokens; /* --tokens of the whole training, for the report's training_days; 0: not given */
        bool kernels;  /* every kernel is timed, for a table and the report */
        bool json;     /* the report is printed as JSON, and nothing else is */
        struct start_settings start;
};

/* A schedule and the driver that runs it. */
struct trainer_lane {
        struct driver_real driver;
        struct engine engine;
        void *core; /* the memory of the engine's struct core */
};

struct trainer {
        const struct train_settings *settings; /* the caller's */
        struct net *net;                       /* the caller's */
        struct plan plan; /* of training; this rank's place follows from it and net->rank */
        struct device *device;
        struct nn_stage *nn;
        struct nn_own *own; /* [own_count], with ZeRO: which parameters this rank updates; else NULL */
        int own_count;
        struct weight_files *init;               /* until they are loaded; NULL: initial weights are random */
        uint64_t init_checksums[LOAD_CHECKSUMS]; /* of what this rank loaded */
        struct data data;                        /* all of it; each replica draws its own sequences */
        struct trainer_lane train, validate;
        struct optim optim;        /* the settings', and how many steps were skipped so far */
        struct loss_scaler scaler; /* for mixed precision; the same on every rank */
        struct ledger ledger;      /* bytes that are in use, while training */
        struct trace trace;        /* of the steps that were recorded */
        int64_t share;             /* sequences of a batch that this replica works on */
        /* [steps]: when each step began and ended, and whether it was skipped for an overflow, which is the
         * same on every rank. */
        struct batch_times *times;
        bool *skipped;
};

/* Returns how this rank opens its device. */
struct device_request trainer_device_request(const struct train_settings *, const struct net *);

/* These open a trainer, in this order; each returns 0 or a negative rv_error with a sentence. trainer_close
 * must follow, also after a failure.
 *
 * trainer_open_device opens this rank's device. The caller then settles the routes (routes.h) and the limits
 * of memory (limits.h). trainer_open_data reads the data, which must be the same on every rank; it is
 * collective, and fails alike on all of them. trainer_open_init opens the files of initial
 * weights, if there are any, and checks that they are of the model. trainer_open allocates everything else
 * within the device's limits and sets the initial weights, unless the training goes on from a checkpoint,
 * which resume then reads. The results of these two are this rank's own. */
int trainer_open_device(struct trainer *, const struct train_settings *, struct net *,
                        struct rv_error_info *err);
int trainer_open_data(struct trainer *, struct rv_error_info *err);
int trainer_open_init(struct trainer *, struct rv_error_info *err);
int trainer_open(struct trainer *, struct rv_error_info *err);

/* Checks that replicas have loaded the same initial weights, as each rank reads them for itself. Collective,
 * after trainer_open; fails alike on every rank. */
int trainer_compare_init(const struct trainer *, struct rv_error_info *err);

/* Frees everything and closes the device. A trainer of all zeros is fine. */
void trainer_close(struct trainer *);

/* Sets every rank's clock to zero at the same moment: exactly on one machine, as exactly as a barrier is
 * between several. Collective; before the first step. */
void trainer_start_clock(struct trainer *);

/* What a step brought; the same on every rank. */
struct trainer_result {
        double loss;         /* mean over the batch's tokens; of a skipped step it may be NaN or infinite */
        double squared_norm; /* of the gradients, if the plan clips them */
        /* Gradients overflowed on some rank, so nothing was updated. It counts as a step. */
        bool skipped;
        /* How many ranks were asked to stop; and how many have written their part of the last checkpoint. */
        int stops, written;
};
/* Trains on one batch. `step` counts from 0. With `record` the trace keeps the operations of this batch.
 * Collective. */
struct trainer_result trainer_step(struct trainer *, int64_t step, bool record);

/* Returns the mean loss of a token over settings->validation_batches batches of the validation part, which
 * are always the same sequences. Nothing is updated. Collective. */
double trainer_validate(struct trainer *);

#endif
