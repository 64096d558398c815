#include "runtime/real/routes.h"

#include "runtime/net/nccl.h"

#include <string.h>

int routes_choose(struct options *o, const struct device *device, struct net *net, struct rv_error_info *err)
{
        const struct plan plan = options_plan(o, false);
        const bool host = strcmp(device->ops->name, "cpu") == 0,
                   sums = plan.dp > 1 || plan.tied || plan.tp > 1;
        struct rv_error_info why = {0}, refused;
        const bool groups = plan_hybrid(&plan);
        if (!host && groups && o->allreduce == ROUTE_DIRECT)
                return rv_fail(
                        err, RV_ENOTBUILT,
                        "--allreduce direct: what a GPU's replicas share in groups (--shard-replicas) is "
                        "not built yet; staged (or auto) goes through host memory");
        if (!host && sums && !groups && o->allreduce != ROUTE_STAGED)
                net_nccl_attach(net,
                                &(struct net_nccl_request){device->gpu, device->fail, device->fail_context},
                                &why);
        const bool sends = host || plan.pp == 1 || net->sends_device_memory;
        const int rc = options_choose_routes(o, sends, host || !sums || net->sums_device_memory, &refused);
        if (rc == 0)
                return 0;
        if (why.code == RV_OK || (o->messages == ROUTE_DIRECT && !sends)) /* it is about messages */
                return rv_fail(err, refused.code, "%s", refused.sentence);
        return rv_fail(err, refused.code, "%.280s (%.200s)", refused.sentence, why.sentence);
}
