#include "sim/world/costs.h"

#include "runtime/plan/framework.h"
#include "sim/world/copies.h"

#include <math.h>
#include <stdlib.h>

/* A profile may price single kernels at nothing, as one made for a closed form does, but not all of them. No
 * pass takes longer than a kernel may: a rate is then far too small. */
static int check_prices(const struct costs *c, struct rv_error_info *err)
{
        double sum = 0, max = 0;
        for (int i = 0; i < c->options->pp * c->options->virtual_stages; i++) {
                const double both = price_pass_seconds(&c->prices.stages[i].forward, 0) +
                                    price_pass_seconds(&c->prices.stages[i].backward, 0);
                sum += both;
                max = fmax(max, both);
        }
        if (!(max <= MODEL_MAX_SECONDS)) /* NAN too */
                return rv_fail(err, RV_EINPUT,
                               "profile %s prices a forward and backward of this plan at %.3g s, must be at "
                               "most %g; is a rate or a number of seconds of another unit?",
                               c->machine->profile.path, max, MODEL_MAX_SECONDS);
        if (sum == 0)
                return rv_fail(
                        err, RV_EINPUT,
                        "profile %s prices every kernel of this plan at 0 s: a batch would take no time",
                        c->machine->profile.path);
        return 0;
}

/* What one kind of GPU takes. */
struct kind {
        const struct machine *machine;
        const struct profile *profile;
        const struct profile_load *load;
        const struct price_nudge *nudge;
        struct workloads *workloads;
        const struct framework *framework; /* of the plan, or NULL */
        double sustained_rate;             /* which it says, of the peak; 0: none */
        bool passes_only;
};

/* What power allows in a run like the framework's; 0: nothing is said. */
static double sustained_seconds(const struct kind *kind, const struct kernel *kernel)
{
        const double peak = machine_peak_flops_per_second(kind->machine, (enum dtype)kernel->dtype,
                                                          (enum product_format)kernel->format);
        if (kind->sustained_rate == 0 || peak == 0 || kernel_descriptor(kernel->kind)->products == 0)
                return 0;
        return kernel_flops(kernel) / (kind->sustained_rate * peak);
}

static int price_kernel(void *context, struct price *price, struct rv_error_info *err)
{
        const struct kind *kind = context;
        const bool fits_only = kind->machine->fits_only;
        enum profile_source source = PROFILE_MODEL;
        const int rc = profile_kernel_seconds(kind->profile, kind->load, &price->kernel, fits_only,
                                              &price->seconds, &source, err);
        if (rc)
                return rc;
        price->seconds = fmax(price->seconds, sustained_seconds(kind, &price->kernel));
        price->seconds =
                fmax(price->seconds,
                     framework_least_seconds(kind->framework, kind->profile->device.name, &price->kernel));
        if (kind->nudge)
                price->seconds *= kind->nudge->factor(kind->nudge->context, PRICE_KERNEL, &price->kernel, 0);
        price->measured = source == PROFILE_POINT;
        price->tabled = source == PROFILE_TABLE;
        price->fit_error = profile_fit_error(kind->load, &price->kernel, fits_only);
        return 0;
}

static int price_offloaded_update(void *context, int64_t parameters, double *seconds,
                                  struct rv_error_info *err)
{
        const struct kind *kind = context;
        *seconds = profile_line_seconds(kind->load, LINE_OFFLOADED_UPDATE, plan_offloaded_bytes(parameters),
                                        kind->machine->fits_only);
        return isnan(*seconds) ? profile_no_line(kind->profile, kind->load, LINE_OFFLOADED_UPDATE, err) : 0;
}

static int price_kind(const struct kind *kind, const struct options *options, struct price_list *prices,
                      struct rv_error_info *err)
{
        bool eager;
        double host = framework_host_seconds(options->framework, kind->profile->device.name, &eager);
        if (kind->nudge && host > 0)
                host *= kind->nudge->factor(kind->nudge->context, PRICE_HOST, NULL, 0);
        const struct profile_launch *pass =
                kind->machine->no_graphs || eager ? &kind->load->launch : &kind->load->graph;
        const double pass_host = pass == &kind->load->launch ? host : 0;
        const struct price_basis basis = {.kernel = price_kernel,
                                          .offloaded_update =
                                                  kind->machine->local ? price_offloaded_update : NULL,
                                          .context = (void *)kind,
                                          .workloads = kind->workloads,
                                          .start_seconds = kind->load->op_overhead_seconds,
                                          .host_seconds = fmax(kind->load->launch.host_seconds, host),
                                          .pass_host_seconds = fmax(pass->host_seconds, pass_host),
                                          .host_ahead = pass_host > 0,
                                          .passes_only = kind->passes_only};
        return price_stages(prices, options, &basis, err);
}

/* The stages on every kind of GPU. */
static int price_kinds(struct costs *c, const struct price_nudge *nudge, struct workloads *workloads,
                       bool passes_only, struct rv_error_info *err)
{
        const struct machine *m = c->machine;
        int rc = 0;
        if (m->kinds > 1)
                c->other_prices = calloc((size_t)m->kinds - 1, sizeof *c->other_prices);
        if (m->kinds > 1 && !c->other_prices)
                return rv_fail(err, RV_ESYSTEM, "no memory for the prices of %d kinds of GPUs", m->kinds);
        for (int i = 0; rc == 0 && i < m->kinds; i++) {
                const struct profile *profile = machine_profile(m, i);
                const struct kind kind = {
                        m,
                        profile,
                        machine_load(m, i),
                        nudge,
                        workloads,
                        c->options->framework,
                        framework_sustained_rate(c->options->framework, profile->device.name),
                        passes_only};
                rc = price_kind(&kind, c->options, i ? &c->other_prices[i - 1] : &c->prices, err);
        }
        return rc;
}

int costs_open(struct costs *costs, const struct options *options, const struct machine *machine,
               const struct price_nudge *nudge, struct workloads *workloads, bool passes_only,
               struct rv_error_info *err)
{
        const struct plan plan = options_plan(options, false);
        *costs = (struct costs){.options = options, .machine = machine, .platform = machine->platform};
        costs->platform.staged = plan.stage_messages || plan.stage_allreduce;
        costs->platform.stages_shards = plan.stage_shards;
        if (costs->platform.messages && !machine->fits_only)
                platform_meet_messages(&costs->platform, plan.message_bytes);
        int rc = price_kinds(costs, nudge, workloads, passes_only, err);
        if (rc == 0)
                rc = copies_check_lines(&costs->platform, options, &machine->profile, err);
        return rc ? rc : check_prices(costs, err);
}

void costs_close(struct costs *costs)
{
        price_free(&costs->prices);
        for (int i = 0; costs->other_prices && i < costs->machine->kinds - 1; i++)
                price_free(&costs->other_prices[i]);
        free(costs->other_prices);
        *costs = (struct costs){0};
}

enum collective_kind costs_collective(const struct op *op)
{
        return op->kind == OP_REDUCE_SCATTER ? COLLECTIVE_REDUCE_SCATTER
               : op->kind == OP_ALL_GATHER   ? COLLECTIVE_ALL_GATHER
                                             : COLLECTIVE_ALLREDUCE;
}

/* Gradients or weights; scalars are double. */
enum dtype costs_format(const struct costs *costs, const struct op *op)
{
        const struct options *o = costs->options;
        const bool fp32 = (options_reduces_fp32(o) || options_wide_gradients(o)) && op->kind != OP_ALL_GATHER;
        return op->lane != LANE_SCALARS && !fp32 ? o->dtype : DTYPE_FP32;
}

struct collective_group costs_group(const struct costs *costs, struct plan_group group, enum op_group kind)
{
        const int node = costs->platform.gpus_per_node;
        const bool shares = kind == GROUP_DATA || kind == GROUP_SHARE_DATA || plan_group_of_shards(kind);
        const int beside = !shares ? 1 : group.stride < node ? group.stride : node;
        return (struct collective_group){group.first, group.stride, group.size, beside};
}

const struct price_list *costs_prices(const struct costs *costs, int rank)
{
        const int kind = costs->other_prices ? platform_place(&costs->platform, rank).group : 0;
        return kind ? &costs->other_prices[kind - 1] : &costs->prices;
}
