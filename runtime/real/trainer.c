#include "runtime/real/trainer.h"

#include "runtime/base/minmax.h"
#include "runtime/real/load.h"
#include "runtime/sched/regions.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This replica's sequences of a batch, from the training or the validation part: what its stage needs of
 * them, and of sequences that several ranks have parts of its own pieces. */
static void draw(struct trainer *t, int64_t step, bool validation)
{
        const struct options *o = &t->settings->plan;
        const int ranks = plan_context_ranks(&t->plan), replica = plan_replica(&t->plan, t->net->rank);
        const int64_t own = o->seq_len / ranks, first = replica / ranks * t->share;
        int32_t *inputs = t->nn->host_tokens, *targets = t->nn->host_targets;
        for (int64_t i = 0; i < t->share; i++) {
                int32_t *to = inputs ? inputs + i * own : NULL, *next = targets ? targets + i * own : NULL;
                if (ranks > 1)
                        data_pieces(&t->data, t->settings->seed, step, o->batch_size, first + i, o->seq_len,
                                    validation, ranks, replica % ranks, to, next);
                else
                        data_sequence(&t->data, t->settings->seed, step, o->batch_size, first + i, o->seq_len,
                                      validation, to, next);
        }
}

static struct core_stage core_stage(const struct trainer *t)
{
        const int rank = t->net->rank;
        struct core_stage part = options_core_stage(&t->settings->plan, plan_stage(&t->plan, rank),
                                                    plan_shard(&t->plan, rank));
        part.replica = plan_replica(&t->plan, rank);
        return part;
}

/* Zero 3: of a unit, elements [begin, end) of which are the flat ones from `offset` on, this replica's. */
static void add_piece(struct trainer *t, struct plan_range own, int64_t begin, int64_t end, int64_t offset,
                      int64_t place)
{
        const int64_t from = own.begin > begin ? own.begin : begin,
                      to = own.begin + own.count < end ? own.begin + own.count : end;
        if (from < to)
                t->own[t->own_count++] =
                        (struct nn_own){offset + from - begin, to - from, place + from - own.begin};
}

/* Of each unit, in the order of places. */
static void share_units(struct trainer *t, const struct core_stage *stage)
{
        const struct core_units *units = &stage->units;
        const int replica = plan_replica(&t->plan, t->net->rank), each = max_int(t->plan.unit_layers, 1);
        for (int unit = 0; unit < core_units_of(&t->plan, units).all; unit++) {
                const struct partition_span layers = partition_unit(&t->nn->stage, each, unit);
                struct core_unit_part parts[CORE_UNIT_PARTS];
                struct partition_piece pieces[PARTITION_PIECES];
                const int part_count = core_unit_parts(&t->plan, units, unit, parts);
                const int count =
                        part_count > 0 ? partition_pieces(&t->nn->gpt, &t->nn->stage, &layers, pieces) : 0;
                for (int part = 0; part < part_count; part++) {
                        struct plan_range own =
                                plan_own(&t->plan, parts[part].group, replica, parts[part].count);
                        own.begin += parts[part].offset;
                        for (int i = 0; i < count; i++)
                                add_piece(t, own, pieces[i].place, pieces[i].place + pieces[i].count,
                                          pieces[i].offset, parts[part].place);
                }
        }
}

static void share_chunks(struct trainer *t, const struct core_stage *stage)
{
        const struct regions regions = regions_of(&t->plan, stage);
        for (int i = 0; i < regions_chunks(&regions); i++) {
                const struct region_range own = regions_own(&regions, i);
                t->own[t->own_count++] = (struct nn_own){own.offset, own.count, own.place};
        }
}

/* Zero: tells the stage which parameters it updates, with zero 2 and 3 those that it keeps. */
static int open_shares(struct trainer *t, struct rv_error_info *err)
{
        if (!t->plan.zero)
                return 0;
        const struct core_stage stage = core_stage(t);
        const struct regions regions = regions_of(&t->plan, &stage);
        const int most = t->plan.zero >= 2 ? PARTITION_PIECES * core_units_of(&t->plan, &stage.units).all
                                           : regions_chunks(&regions);
        t->own = calloc((size_t)most, sizeof *t->own);
        if (!t->own)
                return rv_fail(err, RV_ESYSTEM, "no host memory for the shares of %d ranges", most);
        if (t->plan.zero >= 2)
                share_units(t, &stage);
        else
                share_chunks(t, &stage);
        if (!nn_set_own(t->nn, t->own, t->own_count))
                return rv_fail(err, RV_ESYSTEM, "no host memory for what %d ranges are decayed", most);
        return 0;
}

static int open_lane(struct trainer *t, struct trainer_lane *lane, bool forward_only,
                     struct rv_error_info *err)
{
        const struct options *o = &t->settings->plan;
        lane->driver = (struct driver_real){
                .device = t->device,
                .net = t->net,
                .nn = t->nn,
                .optim = &t->optim,
                .plan = options_plan(o, forward_only),
                .mean = 1.0 / ((double)o->batch_size * o->seq_len),
                .loss_scale = 1,
        };
        if (t->nn->host_shards) {
                const struct plan_group shards = plan_group(&lane->driver.plan, t->net->rank, GROUP_TENSOR);
                lane->driver.staged = staged_new(t->device, t->net, t->nn->host_shards, MEMORY_STAGED_SHARDS,
                                                 shards.size, shards.index);
                if (!lane->driver.staged)
                        return rv_fail(err, RV_ESYSTEM, "no host memory for the collectives of shards");
        }
        const struct core_stage stage = core_stage(t);
        lane->driver.units = stage.units;
        lane->core = malloc(core_bytes(&lane->driver.plan, &stage));
        if (!lane->core)
                return rv_fail(err, RV_ESYSTEM, "no host memory for the schedule");
        struct core *core = core_init(lane->core, &lane->driver.plan, &stage);
        engine_init(&lane->engine, core, driver_real(&lane->driver), NULL, NULL, t->net->rank);
        return 0;
}

static int open_records(struct trainer *t, struct rv_error_info *err)
{
        const int64_t steps = t->settings->optim.steps;
        t->times = calloc((size_t)steps + 1, sizeof *t->times);
        t->skipped = calloc((size_t)steps + 1, sizeof *t->skipped);
        return t->times && t->skipped ? 0
                                      : rv_fail(err, RV_ESYSTEM, "no host memory for the times of %lld steps",
                                                (long long)steps);
}

/* What the ledger counts beside activations and messages is there from the beginning. */
static void open_ledger(struct trainer *t)
{
        ledger_init(&t->ledger);
        ledger_add_fixed(&t->ledger, &t->device->bytes);
        t->train.engine.ledger = &t->ledger;
        t->train.engine.message_bytes = t->nn->layout.message;
        t->train.engine.deferred_bytes = t->nn->layout.deferred;
}

struct device_request trainer_device_request(const struct train_settings *settings, const struct net *net)
{
        return (struct device_request){.threads = settings->threads,
                                       .host_link_bytes_per_second = settings->host_link_bytes_per_second,
                                       .local_rank = net->local_rank,
                                       .local_ranks = net->local_ranks,
                                       .no_graphs = settings->no_graphs,
                                       .products = settings->product_algorithms,
                                       .attention = settings->attention,
                                       .cpu_kernels = settings->cpu_kernels};
}

int trainer_open_device(struct trainer *t, const struct train_settings *settings, struct net *net,
                        struct rv_error_info *err)
{
        const struct device_request request = trainer_device_request(settings, net);
        *t = (struct trainer){.settings = settings,
                              .net = net,
                              .plan = options_plan(&settings->plan, false),
                              .optim = settings->optim};
        t->device = device_open(options_device(&settings->plan), &request, err);
        if (!t->device && err->code == RV_EINPUT && settings->products) { /* all else was looked at */
                const struct rv_error_info why = *err;
                rv_fail(err, RV_EINPUT, "--products %s: %.400s", settings->products, why.sentence);
        }
        return t->device ? 0 : err->code;
}

/* What a rank has read, for others to compare. */
struct read_data {
        char path[128];
        int64_t tokens;
        uint64_t checksum;
};

/* Every rank reads for itself: from another host's disk, a stale copy, or a file that still grows. */
static int compare_data(const struct trainer *t, struct rv_error_info *err)
{
        struct read_data mine = {.tokens = t->data.count, .checksum = data_checksum(&t->data)};
        snprintf(mine.path, sizeof mine.path, "%s", t->settings->data);
        struct read_data first = mine;
        t->net->ops->broadcast(t->net, &first, sizeof first, 0);
        if (mine.tokens == first.tokens && mine.checksum == first.checksum)
                return 0;
        const bool other = mine.tokens == first.tokens;
        return rv_fail(
                err, RV_EINPUT,
                "--data: rank %d read %lld tokens from %s, rank 0 %lld%s from %s: all ranks of a training "
                "need the same data",
                t->net->rank, (long long)mine.tokens, mine.path, (long long)first.tokens,
                other ? " others" : "", first.path);
}

int trainer_open_data(struct trainer *t, struct rv_error_info *err)
{
        const struct options *o = &t->settings->plan;
        int rc = data_open(&t->data, t->settings->data, o->gpt.vocab_size, o->seq_len,
                           t->settings->validation_fraction, err);
        rc = net_agree(t->net, rc, err);
        return rc ? rc : net_agree(t->net, compare_data(t, err), err);
}

int trainer_open_init(struct trainer *t, struct rv_error_info *err)
{
        if (!t->settings->init)
                return 0;
        t->init = weight_files_open(t->settings->init, err);
        return t->init ? weight_files_check(t->init, &t->settings->plan.gpt, err) : (int)err->code;
}

/* The files are not needed any more afterwards. */
static int set_weights(struct trainer *t, struct rv_error_info *err)
{
        if (t->settings->resume)
                return 0;
        if (!t->init) {
                nn_initialize(t->nn, t->settings->seed, t->settings->threads);
                return 0;
        }
        const int rc = load_weights(t->nn, t->init, t->init_checksums, err);
        weight_files_close(t->init);
        t->init = NULL;
        return rc;
}

/* `checksums`: of every rank. Experts are the same on some replicas only. */
static int compare_checksums(const struct plan *plan, uint64_t (*checksums)[LOAD_CHECKSUMS],
                             struct rv_error_info *err)
{
        for (int rank = 0; rank < plan->pp * plan->dp * plan->tp; rank++)
                for (int of = 0; of < LOAD_CHECKSUMS; of++) {
                        const int replica = of ? plan_replica(plan, rank) % plan_expert_replicas(plan) : 0;
                        const int first =
                                plan_rank(plan, replica, plan_stage(plan, rank), plan_shard(plan, rank));
                        if (checksums[rank][of] != checksums[first][of])
                                return rv_fail(err, RV_EINPUT,
                                               "--init: rank %d has read other weights than rank %d, of "
                                               "which it is a replica: all ranks of a training need the same "
                                               "files",
                                               rank, first);
                }
        return 0;
}

int trainer_compare_init(const struct trainer *t, struct rv_error_info *err)
{
        struct net *net = t->net;
        if (!t->settings->init)
                return 0;
        uint64_t(*checksums)[LOAD_CHECKSUMS] = calloc((size_t)net->ranks, sizeof *checksums);
        if (!checksums)
                abort(); /* others wait in the gathering */
        net->ops->gather(net, t->init_checksums, sizeof t->init_checksums, checksums);
        const int rc = net->rank == 0 ? compare_checksums(&t->plan, checksums, err) : 0;
        free(checksums);
        return net_agree(net, rc, err);
}

int trainer_open(struct trainer *t, struct rv_error_info *err)
{
        const struct train_settings *settings = t->settings;
        const struct options *o = &settings->plan;
        t->plan = options_plan(o, false); /* routes were open when the device was opened */
        t->share = o->batch_size / o->dp;
        loss_scaler_init(&t->scaler, o->dtype);
        trace_init(&t->trace);
        struct stage first = options_stage(o, plan_stage(&t->plan, t->net->rank));
        struct stage stage = partition_shard(&first, o->tp, plan_shard(&t->plan, t->net->rank));
        stage = partition_experts(&stage, o->ep, plan_group(&t->plan, t->net->rank, GROUP_EXPERTS).index,
                                  t->plan.whole_experts);
        struct memory_plan memory = options_memory(o, stage.index);
        stage.context_rank = plan_group(&t->plan, t->net->rank, GROUP_CONTEXT).index;
        t->nn = nn_open(t->device, &o->gpt, &stage, &memory, true, err);
        if (!t->nn)
                return err->code;
        int rc = open_records(t, err);
        if (rc == 0)
                rc = open_shares(t, err);
        if (rc)
                return rc;
        rc = set_weights(t, err);
        if (rc)
                return rc;
        rc = open_lane(t, &t->train, false, err);
        if (rc == 0)
                rc = open_lane(t, &t->validate, true, err);
        if (rc == 0)
                open_ledger(t);
        return rc;
}

/* Rank 0's zero, and the boot of the kernel whose monotonic clock shows it. */
struct zero {
        char boot[40];
        double epoch;
};

static struct zero zero_now(void)
{
        struct zero zero = {.epoch = device_seconds()};
        FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
        if (file) {
                if (!fgets(zero.boot, sizeof zero.boot, file))
                        zero.boot[0] = '\0';
                fclose(file);
        }
        return zero;
}

/* Ranks under one kernel share its monotonic clock, so rank 0's zero is theirs, exactly. On other machines it
 * is the moment at which the barrier let this rank go, which is as near as a barrier is. */
void trainer_start_clock(struct trainer *t)
{
        t->net->ops->barrier(t->net);
        struct zero mine = zero_now(), first = mine;
        t->net->ops->broadcast(t->net, &first, sizeof first, 0);
        bool shared = first.boot[0] && strcmp(first.boot, mine.boot) == 0;
        t->train.driver.epoch = t->validate.driver.epoch = shared ? first.epoch : mine.epoch;
}

static void close_lane(struct trainer_lane *lane)
{
        engine_free(&lane->engine);
        driver_real_free(&lane->driver);
        free(lane->core);
}

void trainer_close(struct trainer *t)
{
        close_lane(&t->train);
        close_lane(&t->validate);
        nn_close(t->nn);
        weight_files_close(t->init);
        free(t->own);
        if (t->device)
                t->device->ops->close(t->device);
        data_free(&t->data);
        trace_free(&t->trace);
        free(t->times);
        free(t->skipped);
}

static double mean_loss(const struct trainer *t)
{
        const struct options *o = &t->settings->plan;
        return t->nn->scalars[NN_LOSS] / ((double)o->batch_size * o->seq_len);
}

struct trainer_result trainer_step(struct trainer *t, int64_t step, bool record)
{
        struct engine *engine = &t->train.engine;
        struct driver_real *driver = &t->train.driver;
        draw(t, step, false);
        engine->trace = record ? &t->trace : NULL;
        driver->step = step;
        driver->loss_scale = t->plan.mixed ? t->scaler.scale : 1;
        driver->inject_overflow =
                step == t->settings->inject_step && t->net->rank == t->settings->inject_rank;
        driver_real_run(driver, engine);
        if (t->plan.mixed)
                loss_scaler_step(&t->scaler, driver->overflow);
        t->optim.skipped += driver->overflow;
        t->skipped[step] = driver->overflow;
        t->times[step] = engine_times(engine);
        const double *scalars = t->nn->scalars;
        return (struct trainer_result){.loss = mean_loss(t),
                                       .squared_norm = scalars[NN_SQUARED_NORM],
                                       .skipped = driver->overflow,
                                       .stops = (int)scalars[NN_STOPS],
                                       .written = (int)scalars[NN_WRITTEN]};
}

double trainer_validate(struct trainer *t)
{
        double sum = 0;
        for (int batch = 0; batch < t->settings->validation_batches; batch++) {
                draw(t, batch, true);
                driver_real_run(&t->validate.driver, &t->validate.engine);
                sum += mean_loss(t);
        }
        return sum / t->settings->validation_batches;
}
