#include "sim/costs.h"

#include "sim/priced.h"

#include <math.h>
#include <stdlib.h>

/* A profile may price single kernels at nothing, as one made for a closed form does, but not all of them. No
 * pass takes longer than a kernel may: a rate is then far too small. */
static int check_prices(const struct costs *c, struct rv_error_info *err)
{
        double sum = 0, most = 0;
        for (int i = 0; i < c->options->pp * c->options->virtual_stages; i++) {
                const double both =
                        c->prices.stages[i].forward.seconds + c->prices.stages[i].backward.seconds;
                sum += both;
                most = fmax(most, both);
        }
        if (!(most <= MODEL_MOST_SECONDS)) /* NAN too */
                return rv_fail(err, RV_EINPUT,
                               "profile %s prices a forward and backward of this plan at %.3g s, must be at "
                               "most %g; is a rate or a number of seconds of another unit?",
                               c->machine->profile.path, most, MODEL_MOST_SECONDS);
        if (sum == 0)
                return rv_fail(
                        err, RV_EINPUT,
                        "profile %s prices every kernel of this plan at 0 s: a batch would take no time",
                        c->machine->profile.path);
        return 0;
}

/* The stages on every kind of GPU. */
static int price_kinds(struct costs *c, const struct price_nudge *nudge, struct rv_error_info *err)
{
        const struct machine *m = c->machine;
        int rc = 0;
        if (m->kinds > 1)
                c->other_prices = calloc((size_t)m->kinds - 1, sizeof *c->other_prices);
        if (m->kinds > 1 && !c->other_prices)
                return rv_fail(err, RV_ESYSTEM, "no memory for the prices of %d kinds of GPUs", m->kinds);
        for (int kind = 0; rc == 0 && kind < m->kinds; kind++) {
                const struct price_basis basis = {machine_profile(m, kind),
                                                  machine_load(m, kind),
                                                  m->fits_only,
                                                  m->local,
                                                  !m->no_graphs,
                                                  nudge};
                struct price_list *prices = kind ? &c->other_prices[kind - 1] : &c->prices;
                rc = price_stages(prices, c->options, &basis, err);
        }
        return rc;
}

static int price(struct costs *c, const struct price_nudge *nudge, struct rv_error_info *err)
{
        const struct machine *m = c->machine;
        const struct plan plan = options_plan(c->options, false);
        c->platform = m->platform;
        c->platform.staged = plan.stage_messages || plan.stage_allreduce;
        if (c->platform.messages && !m->fits_only)
                platform_meet_messages(&c->platform, plan.message_bytes);
        int rc = price_kinds(c, nudge, err);
        if (rc == 0)
                rc = priced_check_lines(&c->platform, c->options, &m->profile, err);
        return rc ? rc : check_prices(c, err);
}

int costs_open(struct costs *costs, const struct options *options, const struct machine *machine,
               const struct price_nudge *nudge, struct rv_error_info *err)
{
        *costs = (struct costs){.options = options, .machine = machine};
        return price(costs, nudge, err);
}

void costs_close(struct costs *costs)
{
        price_free(&costs->prices);
        for (int i = 0; costs->other_prices && i < costs->machine->kinds - 1; i++)
                price_free(&costs->other_prices[i]);
        free(costs->other_prices);
        *costs = (struct costs){0};
}

const struct price_list *costs_prices(const struct costs *costs, int rank)
{
        const int kind = costs->other_prices ? platform_place(&costs->platform, rank).group : 0;
        return kind ? &costs->other_prices[kind - 1] : &costs->prices;
}
