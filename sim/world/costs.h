/* What the operations of a plan cost on a machine: the stages priced by the profile of each kind of GPU, and
 * the platform whose links messages and collectives cross. SimGrid's world (predict.c, priced.c) and the
 * world on paper (paper_batch.c) both ask here, so that they differ in how they share links, not in
 * prices. */
#ifndef RANVIER_SIM_WORLD_COSTS_H
#define RANVIER_SIM_WORLD_COSTS_H

#include "sim/collective/collective_model.h"
#include "sim/world/machine.h"
#include "runtime/engine/price.h"

/* Which kind of price is meant. */
/* Which kind of price is meant; PRICE_HOST is what a launch costs the host of the plan's framework. */
enum price_of { PRICE_KERNEL, PRICE_MESSAGE, PRICE_ALLREDUCE, PRICE_TENSOR, PRICE_COPY, PRICE_HOST };
/* Changes that are tried out on prices: factor() returns what a price is multiplied by. `kernel` is NULL
 * unless it is the price of a kernel; `bytes` are 0 for kernels, launches and collectives of
 * shards. */
struct price_nudge {
        double (*factor)(void *context, enum price_of price, const struct kernel *kernel, int64_t bytes);
        void *context;
};

struct costs {
        const struct options *options;
        const struct machine *machine;
        /* The machine's platform, with links as messages of the plan's size find them. `groups` is shared
         * with the machine's and not freed here. */
        struct platform platform;
        /* Of GPUs of the first kind of node. */
        struct price_list prices;
        /* [machine->kinds - 1]: of GPUs of the other kinds of nodes; NULL if there is one kind. */
        struct price_list *other_prices;
};

/* Prices a resolved plan. `options` and `machine` stay the caller's and must live until costs_close. `nudge`
 * changes the prices of kernels and launches; NULL means no change. `workloads` keeps workloads between plans
 * of the same model (price.h); it may be NULL. `passes_only`: nothing but forwards and backwards as wholes
 * get prices. RV_EINPUT names the kernel or line that the profile lacks, or says that its figures seem to be
 * in another unit. The caller calls costs_close, after an error too. */
int costs_open(struct costs *costs, const struct options *options, const struct machine *machine,
               const struct price_nudge *nudge, struct workloads *workloads, bool passes_only,
               struct rv_error_info *err);
void costs_close(struct costs *costs);

/* Translate a collective of the core to one of the platform's library: its kind, the format of its buffer
 * (the plan's for weights and gradients, fp32 for scalars), and its GPUs. In costs_group a group of replicas
 * has the groups of the GPUs beside it at work too, since the replicas of all stages sum their gradients at
 * about the same time. */
enum collective_kind costs_collective(const struct op *op);
enum dtype costs_format(const struct costs *costs, const struct op *op);
struct collective_group costs_group(const struct costs *costs, struct plan_group group, enum op_group kind);

/* Returns the prices of the kind of GPU that `rank` is on; they belong to `costs`. */
const struct price_list *costs_prices(const struct costs *costs, int rank);

#endif
