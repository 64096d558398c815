#include "runtime/sched/policy.h"

#include <string.h>

#define DECLARE(id, object) extern const struct policy policy_##object;
POLICY_LIST(DECLARE)

#define ENTRY(id, object) [POLICY_##id] = &policy_##object,
static const struct policy *const policies[POLICIES] = {POLICY_LIST(ENTRY)};

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
