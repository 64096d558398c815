/* One rank of a training run: its device, stage, schedule and share of the data. */
#ifndef RANVIER_RUNTIME_REAL_TRAINER_H
#define RANVIER_RUNTIME_REAL_TRAINER_H

#include "runtime/data/data.h"
#include "runtime/real/driver_real.h"
#include "runtime/plan/options.h"
#include "runtime/engine/phases.h"

/* What `ranvier train` wants beside the plan. */
struct train_settings {
        struct options plan;
        const char *data, *log, *checkpoint;
        struct optim optim;
        int64_t validate_every; /* steps; 0: only before the first and after the last */
        double validation_fraction;
        int validation_batches; /* a validation's loss is their mean */
        uint64_t seed;
        int threads;                       /* BLAS threads of a device */
        const char *cpu_kernels;           /* cpu: a variant's name; NULL: the fastest */
        bool no_graphs;                    /* cuda: launch every kernel by itself */
        double host_link_bytes_per_second; /* copies take as long as over it; 0: as long as they take */
        int64_t inject_step;               /* mixed: an overflow is injected in this step (from 0), or -1, */
        int inject_rank;                   /* into this rank's gradients */
        double tokens;                     /* for the report's training_days */
        bool tokens_given;
        bool kernels; /* time every kernel, for a table and the report */
};

/* A schedule and the driver that runs it: one trains, one validates. */
struct trainer_lane {
        struct driver_real driver;
        struct engine engine;
        void *core;
};

struct trainer {
        const struct train_settings *settings;
        struct net *net;
        struct plan plan; /* of training; who this rank is follows from it */
        struct device *device;
        struct nn_stage *nn;
        struct nn_own *own; /* zero: which parameters this rank updates; else NULL */
        struct data data;
        struct trainer_lane train, validate;
        struct optim optim;        /* the settings', and how many steps were skipped */
        struct loss_scaler scaler; /* mixed precision; the same on every rank */
        struct ledger ledger;
        struct trace trace;
        int64_t share;             /* sequences of a batch that this replica works on */
        struct batch_times *times; /* [steps] */
        bool *skipped;             /* [steps]: for an overflow; the same on every rank */
};

/* How this rank opens its device. */
struct device_request trainer_device_request(const struct train_settings *, const struct net *);

/* Opens this rank's device. Then the data, which must be the same on every rank: collective, and fails alike
 * on all. Then, within the limits that the device has been given, everything else, and initialises the
 * weights. trainer_close in any case. */
int trainer_open_device(struct trainer *, const struct train_settings *, struct net *,
                        struct rv_error_info *err);
int trainer_open_data(struct trainer *, struct rv_error_info *err);
int trainer_open(struct trainer *, struct rv_error_info *err);
void trainer_close(struct trainer *);

/* Sets every rank's clock to zero at the same moment. Collective; before the first step. */
void trainer_start_clock(struct trainer *);

/* One step (from 0) of training. `record`: the trace keeps this batch. The result is the same on every rank.
 */
struct trainer_result {
        double loss;         /* mean over the batch's tokens; of a skipped step it may be NaN or infinite */
        double squared_norm; /* of the gradients, if the plan clips them */
        bool skipped;        /* gradients overflowed on some rank: nothing was updated. It counts as a step */
};
struct trainer_result trainer_step(struct trainer *, int64_t step, bool record);

/* Mean loss over validation_batches batches of the validation part, always the same sequences. */
double trainer_validate(struct trainer *);

#endif
