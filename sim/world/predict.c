#include "sim/world/predict.h"

#include "runtime/plan/framework.h"
#include "sim/world/copies.h"
#include "sim/world/priced.h"

#include <math.h>
#include <stdlib.h>

static int weigh(struct prediction *p, struct rv_error_info *err)
{
        const struct options *o = p->options;
        const struct plan plan = options_plan(o, false);
        int ranks = (int)options_ranks(o);
        p->rank_bytes = calloc((size_t)ranks, sizeof *p->rank_bytes);
        if (!p->rank_bytes)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d ranks", ranks);
        for (int i = 0; i < ranks; i++) {
                struct stage stage = options_stage(o, plan_stage(&plan, i));
                struct memory_plan memory = options_memory(o, stage.index);
                int first = plan_rank(&plan, 0, stage.index, 0); /* replicas and shards are equal */
                if (i == first)
                        memory_stage(&o->gpt, &stage, &memory, &p->rank_bytes[i]);
                else
                        p->rank_bytes[i] = p->rank_bytes[first];
        }
        return 0;
}

int predict_open(struct prediction *p, const struct options *options, const struct machine *machine,
                 struct rv_error_info *err)
{
        *p = (struct prediction){.options = options, .machine = machine};
        trace_init(&p->trace);
        int rc = 0;
        if (machine)
                rc = costs_open(&p->costs, options, machine, NULL, NULL, false, err);
        else
                p->costs.platform = platform_without_network((int)options_ranks(options));
        return rc ? rc : weigh(p, err);
}

void predict_close(struct prediction *p)
{
        free(p->batch_seconds);
        free(p->rank_live_peak);
        sim_world_free(&p->world);
        trace_free(&p->trace);
        costs_close(&p->costs);
        free(p->rank_bytes);
        free(p->places);
        *p = (struct prediction){0};
}

int predict_no_file_rate(const char *platform, struct rv_error_info *err)
{
        return rv_fail(
                err, RV_EINPUT,
                "--checkpoint-every needs --file-rate: what each node of platform %.160s writes to files, "
                "such as 2GB/s",
                platform);
}

int predict_save(struct prediction *p, double bytes_per_second, struct rv_error_info *err)
{
        struct platform *platform = &p->costs.platform;
        if (bytes_per_second > 0)
                platform->file_bytes_per_second = bytes_per_second;
        const struct profile *profile = &p->machine->profile;
        if (platform->copies && !platform->files)
                return profile_no_line(profile, platform->copies, LINE_SNAPSHOT, err);
        for (int line = LINE_FILE; platform->files && !(bytes_per_second > 0) && line <= LINE_FILE_WORK;
             line++)
                if (!platform->files->lines[line].fit.present)
                        return profile_no_line(profile, platform->files, (enum profile_line)line, err);
        if (!platform->copies && !(platform->file_bytes_per_second > 0))
                return predict_no_file_rate(platform->name, err);
        p->saves = true;
        return RV_OK;
}

/* The batch behind the last one that was asked for is the one beside which the checkpoint is written; if that
 * takes longer, so many more of them are slower. */
static void collect_checkpoint(struct prediction *p)
{
        const struct options *o = p->options;
        const struct sim_world *world = &p->world;
        const struct batch_times *saved = world->times + (int64_t)(p->batches - 1) * world->ranks,
                                 *beside = saved + world->ranks;
        const struct plan *plan = &world->plan;
        struct checkpoint_costs *c = &p->checkpoint;
        const double alone = phases_of(saved, world->ranks).batch_seconds;
        double ended = 0, all_saved = 0, next_ended = 0;
        for (int i = 0; i < world->ranks; i++) {
                ended = fmax(ended, saved[i].ended);
                all_saved = fmax(all_saved, saved[i].saved);
                next_ended = fmax(next_ended, beside[i].ended);
        }
        const double slower = fmax(0, next_ended - all_saved - alone);
        for (int i = 0; i < plan_ranks(plan); i++) {
                const int64_t bytes =
                        options_core_stage(o, plan_stage(plan, i), plan_shard(plan, i)).checkpoint_bytes;
                c->bytes += plan_writes(plan, plan_replica(plan, i)) ? bytes : 0;
                c->rank_bytes = bytes > c->rank_bytes ? bytes : c->rank_bytes;
        }
        c->writing_seconds =
                copies_file_seconds(&p->costs.platform, plan, 0, c->rank_bytes, p->machine->fits_only).all;
        c->exposed_seconds = all_saved - ended;
        c->slower_seconds = slower * fmax(1, c->writing_seconds / (alone + slower));
}

static int collect(struct prediction *p, struct rv_error_info *err)
{
        const struct sim_world *world = &p->world;
        const int ranks = (int)options_ranks(p->options);
        p->batch_seconds = malloc((size_t)p->batches * sizeof *p->batch_seconds);
        p->rank_live_peak = malloc((size_t)ranks * sizeof *p->rank_live_peak);
        if (!p->batch_seconds || !p->rank_live_peak)
                return rv_fail(err, RV_ESYSTEM, "no memory for the results of %d batches", p->batches);
        p->phases = phases_median(world->times, p->batches, world->ranks, p->batch_seconds);
        if (p->saves)
                collect_checkpoint(p);
        for (int i = 0; p->machine && i < p->batches; i++)
                p->batch_seconds[i] += machine_framework_step(p->machine, p->options);
        for (int i = 0; i < ranks; i++)
                p->rank_live_peak[i] = sim_find(world, i)->ledger.total_peak[MEMORY_DEVICE];
        return 0;
}

/* Decides whether one replica is simulated for all, and one shard for those of its stage. */
static int decide_fold(struct prediction *p, bool traced, struct rv_error_info *err)
{
        const enum fold asked = p->machine ? p->machine->fold : FOLD_OFF;
        const char *obstacle = fold_obstacle(&p->costs.platform, p->options);
        const char *shards_obstacle = fold_shards_obstacle(&p->costs.platform, p->options);
        if (options_whole_experts(p->options) && p->options->ep > p->options->tp) {
                /* all-to-alls go over shards and replicas: one stands for all of both, or of neither */
                obstacle = obstacle ? obstacle : shards_obstacle;
                shards_obstacle = shards_obstacle ? shards_obstacle : obstacle;
        }
        if (asked == FOLD_ON && obstacle && (options_replicas(p->options) > 1 || shards_obstacle))
                return rv_fail(err, RV_EPLAN, "--fold on: %s; leave it out, or simulate all replicas",
                               obstacle);
        if (asked == FOLD_AUTO && traced && !obstacle)
                obstacle = "a trace shows every replica";
        if (asked == FOLD_AUTO && traced && !shards_obstacle)
                shards_obstacle = "a trace shows every shard";
        p->folds = (struct sim_folds){.replicas = asked != FOLD_OFF && !obstacle,
                                      .shards = asked != FOLD_OFF && !shards_obstacle};
        /* one machine has few ranks: that they are not folded is nothing to be told */
        const bool told = asked == FOLD_AUTO && p->costs.platform.nodes > 1;
        p->not_folded = told && options_replicas(p->options) > 1 ? obstacle : NULL;
        p->shards_not_folded = told && p->options->tp > 1 ? shards_obstacle : NULL;
        return 0;
}

/* Tells the platform of folding. Returns the ranks whose hosts are needed: of the first replica, where they
 * come first; all, where replicas lie beside each other. */
static int fold_platform(struct prediction *p)
{
        const struct plan plan = options_plan(p->options, false);
        if (p->folds.shards)
                p->costs.platform.folded_tp = plan.tp;
        if (!p->folds.replicas)
                return plan_ranks(&plan);
        p->costs.platform.folded_ranks = plan_ranks(&plan);
        if (plan_stride(&plan, GRID_REPLICAS) > plan_stride(&plan, GRID_STAGES))
                return plan.pp * plan.tp;
        p->costs.platform.folded_beside = plan.dp;
        p->costs.platform.folded_shards = plan.tp;
        return plan_ranks(&plan);
}

int predict_run(struct prediction *p, const struct sim_physics *physics, const double *start_seconds,
                int batches, bool traced, struct rv_error_info *err)
{
        const struct options *o = p->options;
        struct priced priced;
        struct sim_physics own = priced_physics(&priced);
        p->batches = batches;
        int rc = decide_fold(p, traced, err);
        const int ranks = fold_platform(p);
        p->places = calloc((size_t)ranks, sizeof *p->places);
        if (!p->places)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d hosts", ranks);
        if (rc == 0)
                rc = network_open(&p->costs.platform, ranks, o->pp, p->places, err);
        if (rc == 0)
                rc = sim_world_init(&p->world, o, p->folds, physics ? physics : &own,
                                    traced ? &p->trace : NULL, batches + p->saves,
                                    p->saves ? batches - 1 : -1, p->places, err);
        if (rc == 0)
                rc = priced_init(&priced, &p->costs, o, ranks, p->saves, err);
        if (rc)
                return rc;
        for (int i = 0; start_seconds && i < ranks; i++)
                p->world.rank[i].start_seconds = start_seconds[i];
        p->world.shows = p->shows;
        rc = sim_world_run(&p->world, err);
        priced_free(&priced);
        return rc ? rc : collect(p, err);
}

struct report predict_report(const struct prediction *p, const char *command, double tokens, json_t *extra)
{
        return (struct report){
                .world = "simulated",
                .command = command,
                .options = p->options,
                .batch_seconds = p->batch_seconds,
                .batches = p->batches,
                .pipeline_seconds = p->phases.pipeline_seconds,
                .allreduce_seconds = p->phases.allreduce_seconds,
                .optimizer_seconds = p->phases.optimizer_seconds,
                .busiest_seconds = p->phases.busiest_seconds,
                .tensor_seconds = p->phases.tensor_seconds,
                .bubble_fraction = p->phases.bubble_fraction,
                .peak_flops_per_gpu_per_second =
                        p->machine ? machine_peak_flops_per_second(p->machine, p->options->dtype,
                                                                   p->options->format)
                                   : 0,
                .tokens = (int64_t)tokens,
                .ranks = (int)options_ranks(p->options),
                .rank_bytes = p->rank_bytes,
                .rank_live_peak = p->rank_live_peak,
                .extra = extra,
        };
}
