#include "sim/gathered.h"

#include "sim/collective_model.h"

#include <math.h>
#include <stdlib.h>

double gathered_seconds(const struct gathered_step *steps, int count, bool blocking)
{
        double network = 0, began = 0, computed = 0;
        for (int i = 0; i < count; i++) {
                const double reduced = i > 0 ? steps[i - 1].scatter : 0;
                double weights = 0;
                if (blocking && reduced > 0)
                        began = computed = network = fmax(network, computed) + reduced;
                if (steps[i].gather > 0)
                        weights = network = fmax(network, began) + steps[i].gather;
                if (!blocking && reduced > 0)
                        network = fmax(network, computed) + reduced;
                began = fmax(weights, computed);
                computed = began + steps[i].compute;
        }
        return fmax(network, computed) + (count > 0 ? steps[count - 1].scatter : 0);
}

struct network {
        const struct options *options;
        const struct platform *platform;
        const struct profile_load *load;
};

static double seconds(const struct network *network, enum collective_kind kind, int64_t parameters)
{
        const struct options *o = network->options;
        const struct collective_group group = {0, 1, o->dp, 1};
        const double known = profile_line_seconds(network->load, LINE_LAYER_GATHER,
                                                  parameters * options_work(o).element_bytes, false);
        if (!isnan(known)) /* of a framework whose collectives are slower than its library's */
                return parameters > 0 ? known : 0;
        return collective_seconds(network->platform, &group, kind, parameters * options_work(o).element_bytes,
                                  options_format(o));
}

/* The head's weights are there still when its backward begins. The gradient of a tied one is the embedding's,
 * which is complete, and reduced, at the end. */
static void fill(const struct network *network, const struct stage_price *price,
                 struct gathered_step *forward, struct gathered_step *backward)
{
        const struct gpt *gpt = &network->options->gpt;
        const struct partition_units u = partition_units(gpt);
        const int layers = gpt->n_layer;
        const double gather = seconds(network, COLLECTIVE_ALL_GATHER, u.block);
        const double scatter = seconds(network, COLLECTIVE_REDUCE_SCATTER, u.block);
        const double head = seconds(network, COLLECTIVE_REDUCE_SCATTER, gpt->tied ? 2 * gpt->n_embd : u.head);
        forward[0] = (struct gathered_step){price->units[PRICE_EMBEDDING].forward,
                                            seconds(network, COLLECTIVE_ALL_GATHER, u.embedding), 0};
        backward[layers + 1] =
                (struct gathered_step){price->units[PRICE_EMBEDDING].backward, 0,
                                       seconds(network, COLLECTIVE_REDUCE_SCATTER, u.embedding)};
        for (int i = 1; i <= layers; i++) {
                forward[i] = (struct gathered_step){price->units[PRICE_BLOCK].forward, gather, 0};
                backward[i] = (struct gathered_step){price->units[PRICE_BLOCK].backward, gather, scatter};
        }
        forward[layers + 1] = (struct gathered_step){price->units[PRICE_HEAD].forward,
                                                     seconds(network, COLLECTIVE_ALL_GATHER, u.head), 0};
        backward[0] = (struct gathered_step){price->units[PRICE_HEAD].backward, 0, head};
}

static double work_of(const struct gathered_step *steps, int count)
{
        double sum = 0;
        for (int i = 0; i < count; i++)
                sum += steps[i].compute;
        return sum;
}

int gathered_price(struct price_list *list, const struct options *options, const struct platform *platform,
                   const struct profile_load *load, struct rv_error_info *err)
{
        const int count = options->gpt.n_layer + 2;
        struct gathered_step *forward = malloc(2 * (size_t)count * sizeof *forward);
        if (!forward)
                return rv_fail(err, RV_ESYSTEM, "no memory for the %d layers of %s", count,
                               options->gpt.name);
        struct gathered_step *backward = forward + count;
        struct stage_price *price = &list->stages[0];
        const struct network network = {options, platform, load};
        const bool blocking = options->blocking;
        fill(&network, price, forward, backward);
        const double waits[] = {gathered_seconds(forward, count, blocking) - work_of(forward, count),
                                gathered_seconds(backward, count, blocking) - work_of(backward, count)};
        price->forward.seconds += waits[0];
        price->backward.seconds += waits[1];
        ((double *)price->forward.part_seconds)[0] += waits[0];
        ((double *)price->backward.part_seconds)[0] += waits[1];
        list->gathered_waits = waits[0] + waits[1];
        list->gathered = list->gathered_waits / (price->forward.seconds + price->backward.seconds);
        free(forward);
        return 0;
}
