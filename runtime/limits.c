#include "runtime/limits.h"

void limits_apply(struct device *device, const struct options *o, const struct net *net)
{
        device->shared_limit_bytes /= net->local_ranks;
        for (int space = 0; space < MEMORY_SPACES; space++)
                device->limit_bytes[space] =
                        o->memory[space] ? o->memory[space] : device->limit_bytes[space] / net->local_ranks;
}
