#include "runtime/net/nccl.h"

#include "runtime/base/plugin.h"

void net_nccl_attach(struct net *net, const struct net_nccl_request *request, struct rv_error_info *why)
{
        net_nccl_plugin_fn *take_over = (net_nccl_plugin_fn *)plugin_load(
                "net_nccl.so", "RANVIER_NET_NCCL", NET_NCCL_SYMBOL, "the all-reduce by NCCL",
                "where the CUDA toolkit and NCCL are, 'make' builds it", why);
        if (net_agree(net, take_over ? 0 : RV_ENOTBUILT, why) == 0)
                take_over(net, request, why);
}
