#include "tests/paper/plans.h"

#include "runtime/sched/policy.h"

#include <stdio.h>
#include <string.h>

const struct plan_machine plan_machines[] = {{"a100-published", "selene", 64},
                                             {"v100-datasheet", "summit", 48},
                                             {"h100-published", "dgx-h100", 64},
                                             {"v100-datasheet", "cloud-ethernet", 32}};
const int plan_machine_count = sizeof plan_machines / sizeof *plan_machines;

/* Marsaglia's xorshift64*; never 0. */
static int64_t below(uint64_t *state, int64_t end)
{
        *state ^= *state >> 12;
        *state ^= *state << 25;
        *state ^= *state >> 27;
        return (int64_t)((*state * 2685821657736338717U) >> 33) % end;
}

static int one_of(uint64_t *seed, const int *values, int count)
{
        return values[below(seed, count)];
}
#define ONE_OF(seed, ...)                                                                                    \
        one_of(seed, (const int[]){__VA_ARGS__}, (int)(sizeof(int[]){__VA_ARGS__} / sizeof(int)))

static void draw_model(uint64_t *seed, struct gpt *gpt)
{
        const int head = ONE_OF(seed, 64, 80, 96, 128), heads = ONE_OF(seed, 8, 16, 24, 32);
        *gpt = (struct gpt){.n_layer = ONE_OF(seed, 8, 12, 16, 24, 32, 36, 48),
                            .n_head = heads,
                            .n_embd = head * heads,
                            .vocab_size = ONE_OF(seed, 32000, 50304, 51200),
                            .n_positions = ONE_OF(seed, 512, 1024, 2048),
                            .tied = below(seed, 2)};
        snprintf(gpt->name, sizeof gpt->name, "g%dx%d", gpt->n_layer, gpt->n_embd);
}

static void draw_grid(uint64_t *seed, struct options *o, int gpus)
{
        o->tp = ONE_OF(seed, 1, 1, 2, 4, 8);
        o->pp = ONE_OF(seed, 1, 2, 3, 4, 6, 8, 12, 16, 24);
        const int room = gpus / o->tp / o->pp;
        o->dp = room > 1 ? 1 + (int)below(seed, room) : 1;
        o->order = below(seed, 3) == 0 ? ORDER_REPLICAS : ORDER_STAGES;
        o->sequence_parallel = o->tp > 1 && below(seed, 2);
        uint64_t fork = *seed; /* all else is drawn as it was before there were pieces */
        o->tp_overlap = o->tp > 1 ? ONE_OF(&fork, 0, 1, 2, 4) : 0;
}

static void draw_schedule(uint64_t *seed, struct options *o)
{
        o->policy = (enum policy_id)below(seed, POLICIES);
        o->virtual_stages = o->policy == POLICY_INTERLEAVED ? ONE_OF(seed, 2, 3, 4) : 1;
        o->blocking = o->policy != POLICY_AXONN && below(seed, 3) == 0;
        o->pipeline_limit = o->policy == POLICY_AXONN && below(seed, 3) == 0 ? 2 * o->pp : 0;
        o->recompute = (enum recompute)below(seed, RECOMPUTES);
        o->offload_activations = below(seed, 4) == 0;
        o->split = below(seed, 5) == 0 ? SPLIT_BALANCED : SPLIT_EVEN;
}

static void draw_optimizer(uint64_t *seed, struct options *o)
{
        o->dtype = DTYPE_FP16;
        o->offload = below(seed, 3) == 0;
        o->zero = ONE_OF(seed, 0, 0, 1, 3);
        o->overlap_allreduce = below(seed, 5) == 0;
        o->clip = below(seed, 3) ? 1 : 0;
        o->bucket_parameters = ONE_OF(seed, 4000000, 16000000, 64000000);
}

struct options plans_random(uint64_t *seed, const struct plan_machine *machine)
{
        for (;;) {
                struct options o;
                struct rv_error_info ignored;
                options_init(&o);
                draw_model(seed, &o.gpt);
                draw_grid(seed, &o, machine->gpus);
                draw_schedule(seed, &o);
                draw_optimizer(seed, &o);
                o.micro_batch_size = ONE_OF(seed, 1, 2, 4);
                const int micro_batches = ONE_OF(seed, 1, 2, 4, 8, 16, 24, 48, 96);
                o.batch_size = (int64_t)o.dp * o.micro_batch_size * micro_batches;
                o.fusion = FUSION_OFF;
                if (options_resolve_gpt(&o, (int)options_ranks(&o), &ignored) == 0)
                        return o;
        }
}

bool plans_contend(const struct options *o, const struct platform *p)
{
        const bool copies = o->offload || o->offload_activations;
        const bool rails = p->rails < p->gpus_per_node && options_ranks(o) > p->gpus_per_node;
        return rails || (copies && (p->host_memory_bytes_per_second > 0 || p->pcie_bytes_per_second > 0)) ||
               (o->overlap_allreduce && o->dp > 1);
}

void plans_describe(const struct options *o, char *text, size_t text_size)
{
        snprintf(text, text_size,
                 "%s s%d pp %d dp %d tp %d%s o%d%s %s V%d%s L%d b%d m%lld rec %s off %d act %d zero %d "
                 "overlap "
                 "%d clip %d "
                 "bucket %lldM split %d",
                 o->gpt.name, o->seq_len, o->pp, o->dp, o->tp, o->sequence_parallel ? " sp" : "",
                 o->tp_overlap, o->order == ORDER_REPLICAS ? " replicas" : "", policy_get(o->policy)->name,
                 o->virtual_stages, o->blocking ? " blocking" : "", o->pipeline_limit, o->micro_batch_size,
                 (long long)(o->batch_size / o->dp / o->micro_batch_size), recompute_name(o->recompute),
                 o->offload, o->offload_activations, o->zero, o->overlap_allreduce, o->clip > 0,
                 (long long)o->bucket_parameters / 1000000, o->split);
}
