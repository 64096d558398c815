#include "models/routing.h"

#include <math.h>
#include <stdint.h>

/* A number from 0 up to `below`, of the `index`-th draw (Vigna's splitmix64). */
static int draw(uint64_t key, int index, int below)
{
        uint64_t z = key + (uint64_t)(index + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        return (int)((z ^ (z >> 31)) % (uint64_t)below);
}

/* The part of all rows that each place of the order has: by the power law, but the first ones no more than a
 * row a token, and the others then what is left. */
static void shares_of(const struct routing *routing, int experts, int chosen, double share[])
{
        double sum = 0, left = 1;
        for (int i = 0; i < experts; i++)
                sum += share[i] = pow(i + 1, -routing->exponent);
        for (int i = 0; i < experts; i++) {
                const double wanted = left * share[i] / sum;
                sum -= share[i];
                share[i] = fmin(wanted, 1.0 / chosen);
                left -= share[i];
        }
}

void routing_loads(const struct routing *routing, const struct gpt *gpt, int layer, int ranks, double load[])
{
        const int experts = gpt->n_expert, own = experts / ranks;
        double share[GPT_MAX_EXPERTS];
        int order[GPT_MAX_EXPERTS] = {0};
        shares_of(routing, experts, gpt->n_expert_chosen, share);
        for (int i = 0; i < experts; i++) { /* Fisher & Yates */
                const int at = draw((uint64_t)routing->seed << 32 | (uint32_t)layer, i, i + 1);
                order[i] = order[at];
                order[at] = i;
        }
        for (int rank = 0; rank < ranks; rank++) {
                load[rank] = 0;
                for (int i = 0; i < own; i++)
                        load[rank] += share[order[rank * own + i]] * ranks;
        }
}

double routing_slowest(const struct routing *routing, const struct gpt *gpt, int ranks)
{
        double load[GPT_MAX_EXPERTS], sum = 0;
        for (int layer = gpt->n_dense; layer < gpt->n_layer; layer++) {
                double largest = 0;
                routing_loads(routing, gpt, layer, ranks, load);
                for (int rank = 0; rank < ranks; rank++)
                        largest = fmax(largest, load[rank]);
                sum += largest;
        }
        return sum / (gpt->n_layer - gpt->n_dense);
}

double routing_exponent(const struct gpt *gpt, int ranks, double slowest)
{
        double low = 0, high = 10;
        for (int i = 0; i < 40; i++) {
                const double middle = (low + high) / 2;
                if (routing_slowest(&(struct routing){.exponent = middle}, gpt, ranks) < slowest)
                        low = middle;
                else
                        high = middle;
        }
        return low;
}
