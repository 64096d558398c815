#include "runtime/net/net.h"

#include <stdlib.h>

int net_agree(struct net *net, int rc, struct rv_error_info *err)
{
        struct rv_error_info mine = {0}, *all = NULL, first = {0};
        if (rc)
                mine = *err;
        if (net->rank == 0 && !(all = calloc((size_t)net->ranks, sizeof *all)))
                abort();
        net->ops->gather(net, &mine, sizeof mine, all);
        for (int i = 0; all && i < net->ranks && first.code == RV_OK; i++)
                first = all[i];
        free(all);
        net->ops->broadcast(net, &first, sizeof first, 0);
        if (first.code != RV_OK)
                *err = first;
        return first.code;
}
