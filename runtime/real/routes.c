#include "runtime/real/routes.h"

#include "runtime/net/nccl.h"

#include <string.h>

/* What has no way through host memory. */
static int check_direct(const struct options *o, const struct plan *plan, const struct net *net,
                        const struct rv_error_info *why, struct rv_error_info *err)
{
        const char *flag = plan->ep > 1 ? "ep" : plan->cp > 1 ? "cp" : "zero";
        const int value = plan->ep > 1 ? plan->ep : plan->cp > 1 ? plan->cp : plan->zero;
        if (net->sums_device_memory || (plan->zero < 2 && plan->ep <= 1 && plan->cp <= 1))
                return 0;
        if (o->allreduce == ROUTE_STAGED)
                return rv_fail(err, RV_ENOTBUILT,
                               "--%s %d on GPUs goes over NCCL alone: through host memory, as --allreduce "
                               "staged has it, is not built yet",
                               flag, value);
        return rv_fail(err, RV_ENOTBUILT, "--%s %d on GPUs goes over NCCL alone (%.300s)", flag, value,
                       why->sentence);
}

int routes_choose(struct options *o, const struct device *device, struct net *net, struct rv_error_info *err)
{
        const struct plan plan = options_plan(o, false);
        const bool host = strcmp(device->ops->name, "cpu") == 0,
                   sums = plan.dp > 1 || plan.tied || plan.tp > 1 || plan.cp > 1;
        struct rv_error_info why = {0}, refused;
        if (!host && sums && o->allreduce != ROUTE_STAGED)
                net_nccl_attach(net,
                                &(struct net_nccl_request){device->gpu, device->fail, device->fail_context},
                                &why);
        if (!host && check_direct(o, &plan, net, &why, err))
                return err->code;
        const bool sends = host || plan.pp == 1 || net->sends_device_memory;
        const int rc = options_choose_routes(o, sends, host || !sums || net->sums_device_memory, &refused);
        if (rc == 0)
                return 0;
        if (why.code == RV_OK || (o->messages == ROUTE_DIRECT && !sends)) /* it is about messages */
                return rv_fail(err, refused.code, "%s", refused.sentence);
        return rv_fail(err, refused.code, "%.280s (%.200s)", refused.sentence, why.sentence);
}
