#include "runtime/sched/policy.h"

#include <string.h>

static const struct policy *const policies[POLICIES] = {
        [POLICY_AXONN] = &policy_axonn,
        [POLICY_GPIPE] = &policy_gpipe,
        [POLICY_1F1B] = &policy_1f1b,
        [POLICY_INTERLEAVED] = &policy_interleaved,
        [POLICY_ZERO_BUBBLE] = &policy_zero_bubble,
};

const struct policy *policy_get(enum policy_id id)
{
        return policies[id];
}

int policy_find(const char *name)
{
        for (int id = 0; id < POLICIES; id++)
                if (strcmp(policies[id]->name, name) == 0)
                        return id;
        return -1;
}
