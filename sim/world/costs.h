/* What the operations of a plan cost on a machine: the stages priced by the profile of each kind of GPU, and
 * the platform whose links messages and collectives cross. SimGrid's world and the world on paper both ask
 * here. */
#ifndef RANVIER_SIM_WORLD_COSTS_H
#define RANVIER_SIM_WORLD_COSTS_H

#include "sim/collective/collective_model.h"
#include "sim/world/machine.h"
#include "runtime/engine/price.h"

/* Errors of prices that are tried out: what each price is multiplied by. `kernel` is NULL for links, `bytes`
 * are 0 for kernels. */
enum price_of { PRICE_KERNEL, PRICE_MESSAGE, PRICE_ALLREDUCE, PRICE_TENSOR, PRICE_COPY };
struct price_nudge {
        double (*factor)(void *context, enum price_of price, const struct kernel *kernel, int64_t bytes);
        void *context;
};

struct costs {
        const struct options *options;
        const struct machine *machine;
        struct platform platform; /* the machine's, its links as messages of the plan's size find them */
        struct price_list prices;
        struct price_list
                *other_prices; /* [machine->kinds - 1]: of GPUs of the other kinds of nodes; or NULL */
};

/* Prices the plan. `options` and `machine` stay the caller's and must live as long. RV_EINPUT names the
 * kernel or line that the profile lacks, or figures of another unit. The caller closes, after an error too.
 * `nudge`: errors of prices that are tried out; NULL: none. `workloads`: of the model's plans, as price.h
 * takes them, or NULL. */
int costs_open(struct costs *costs, const struct options *options, const struct machine *machine,
               const struct price_nudge *nudge, struct workloads *workloads, struct rv_error_info *err);
void costs_close(struct costs *costs);

/* How a collective of the core is one of the platform's library: which, of what format, and between which
 * GPUs. Replicas of all stages sum their gradients at about the same time. */
enum collective_kind costs_collective(const struct op *op);
enum dtype costs_format(const struct costs *costs, const struct op *op);
struct collective_group costs_group(const struct costs *costs, struct plan_group group, enum op_group kind);

/* Those of the GPU that `rank` has. */
const struct price_list *costs_prices(const struct costs *costs, int rank);

#endif
