#include "sim/machine.h"

#include "sim/collective_model.h"
#include "sim/tensor.h"

#include <math.h>
#include <string.h>

int machine_open(struct machine *m, const char *profile, const char *platform, int gpus, bool fits_only,
                 struct rv_error_info *err)
{
        *m = (struct machine){.gpus = gpus, .fits_only = fits_only, .local = strcmp(platform, "local") == 0};
        int rc = profile_load(&m->profile, profile, err);
        if (rc)
                return rc;
        rc = platform_load(&m->platform, platform, &m->profile, gpus, err);
        if (rc) {
                machine_close(m);
                return rc;
        }
        int here = m->platform.gpus_per_node < gpus ? m->platform.gpus_per_node : gpus;
        m->load = profile_load_for(&m->profile, here);
        return 0;
}

void machine_close(struct machine *m)
{
        profile_free(&m->profile);
        platform_free(&m->platform);
        *m = (struct machine){0};
}

int machine_settle(const struct machine *m, struct options *options, struct rv_error_info *err)
{
        const char *device = strcmp(m->profile.device.name, "cpu") == 0 ? "cpu" : "cuda";
        if (options->device && strcmp(options->device, device) != 0)
                return rv_fail(err, RV_EINPUT,
                               "--device %s: profile %.160s is of %.64s; leave --device out, or name another "
                               "profile",
                               options->device, m->profile.path, m->profile.device.name);
        if (options->fusion == FUSION_AUTO)
                options->fused = profile_has_fused(m->load, options_format(options));
        return 0;
}

struct capacity machine_capacity(const struct machine *m, const struct options *options)
{
        const int64_t *given = options->memory;
        bool same = m->local &&
                    strcmp(m->profile.device.name, "cpu") == 0; /* a CPU device's memory is the host's */
        int64_t device = m->platform.gpu_memory_bytes;
        int64_t host = same ? device : platform_host_share(&m->platform, m->gpus);
        return (struct capacity){{
                [MEMORY_DEVICE] = given[MEMORY_DEVICE] ? given[MEMORY_DEVICE] : device,
                [MEMORY_HOST] = given[MEMORY_HOST] ? given[MEMORY_HOST] : host,
                [CAPACITY_SHARED] = same ? device : 0,
        }};
}

double machine_peak_flops_per_second(const struct machine *m)
{
        double platform = m->platform.gpu_peak_flops_per_second;
        return platform > 0 ? platform : m->profile.peak_flops_per_second;
}

/* ---- rough prices ---- */

struct estimate_context {
        const struct machine *machine;
        const struct options *options;
        const struct machine_nudge *nudge; /* NULL: prices are as they are */
};

static double nudged(const struct estimate_context *c, enum machine_price price, const struct kernel *kernel,
                     int64_t bytes, double seconds)
{
        return c->nudge ? seconds * c->nudge->factor(c->nudge->context, price, kernel, bytes) : seconds;
}

static double kernel_seconds(void *context, const struct kernel *kernel)
{
        const struct estimate_context *c = context;
        const struct machine *m = c->machine;
        double seconds;
        if (profile_kernel_seconds(&m->profile, m->load, kernel, m->fits_only, &seconds, NULL, NULL))
                return NAN;
        return nudged(c, PRICE_KERNEL, kernel, 0, seconds);
}

static double inside_seconds(const struct platform *p, double bytes)
{
        return 2 * p->gpu_link_seconds + bytes / p->gpu_link_bytes_per_second;
}

/* Between nodes, while `sharing` GPUs of a node do the same. */
static double between_seconds(const struct platform *p, double bytes, int sharing)
{
        return 2 * p->nic_seconds + bytes * sharing / p->nic_bytes_per_second;
}

static double plain_message_seconds(const struct machine *m, int64_t bytes)
{
        const struct platform *p = &m->platform;
        if (p->messages)
                return profile_line_seconds(p->messages, LINE_MESSAGE, bytes, m->fits_only);
        if (p->gpu_link_bytes_per_second == 0) /* a SimGrid file: its links are not ours to read */
                return 0;
        if (p->gpus_per_node >= m->gpus)
                return inside_seconds(p, (double)bytes);
        int n = p->gpus_per_node;
        return ((n - 1) * inside_seconds(p, (double)bytes) + between_seconds(p, (double)bytes, 1)) / n;
}

static double message_seconds(void *context, int64_t bytes)
{
        const struct estimate_context *c = context;
        return nudged(c, PRICE_MESSAGE, NULL, bytes, plain_message_seconds(c->machine, bytes));
}

/* Between replicas, all of whose stages do the same at once, or between the ends of a pipeline. */
static double allreduce_seconds(void *context, int64_t bytes, int ranks)
{
        const struct estimate_context *c = context;
        const struct platform *p = &c->machine->platform;
        const struct plan plan = options_plan(c->options, false);
        const enum half half = options_format(c->options);
        const int stride = ranks == plan.dp             ? plan_replica_stride(&plan)
                           : ranks == plan_ranks(&plan) ? 1
                                                        : plan_stage_stride(&plan) * (plan.pp - 1);
        if (ranks < 2)
                return 0;
        const struct collective_group group = {0, stride > 0 ? stride : 1, ranks,
                                               stride < 1                  ? 1
                                               : stride < p->gpus_per_node ? stride
                                                                           : p->gpus_per_node};
        return nudged(c, PRICE_ALLREDUCE, NULL, bytes,
                      collective_seconds(p, &group, COLLECTIVE_ALLREDUCE, bytes, half));
}

/* Shards are neighbours. */
static double shards_seconds(void *context, enum kernel_kind collective, int64_t bytes, int shards)
{
        const struct estimate_context *c = context;
        return nudged(c, PRICE_TENSOR, NULL, bytes,
                      tensor_collective_seconds(&c->machine->platform, collective, bytes, shards,
                                                options_format(c->options)));
}

static double plain_copy_seconds(const struct machine *m, int64_t bytes)
{
        const struct platform *p = &m->platform;
        if (p->copies)
                return profile_line_seconds(p->copies, LINE_COPY, bytes, m->fits_only);
        if (p->host_link_bytes_per_second == 0)
                return 0;
        int here = p->gpus_per_node < m->gpus ? p->gpus_per_node : m->gpus;
        double rate = p->host_link_bytes_per_second;
        if (p->host_memory_bytes_per_second > 0)
                rate = fmin(rate, p->host_memory_bytes_per_second * p->sockets / (2 * here));
        return p->host_link_seconds + (double)bytes / rate;
}

static double copy_seconds(void *context, int64_t bytes)
{
        const struct estimate_context *c = context;
        return nudged(c, PRICE_COPY, NULL, bytes, plain_copy_seconds(c->machine, bytes));
}

double machine_estimate_nudged(const struct machine *machine, const struct options *options,
                               const struct machine_nudge *nudge)
{
        struct estimate_context context = {machine, options, nudge};
        const struct estimate_prices prices = {kernel_seconds, message_seconds, allreduce_seconds,
                                               copy_seconds,   &context,        shards_seconds};
        return estimate_batch(options, &prices).batch_seconds;
}

double machine_estimate(void *machine, const struct options *options)
{
        return machine_estimate_nudged(machine, options, NULL);
}
