#include "runtime/sched/policy.h"

#include "runtime/base/minmax.h"

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

int policy_in_turn_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)chunks;
        (void)limit;
        return min_int(plan->pp - stage, plan->micro_batches);
}

int policy_in_turn_received(const struct plan *plan, int stage, int limit)
{
        (void)limit;
        return min_int(plan->pp - stage + 1, plan->micro_batches);
}

int policy_kept_back_stored(const struct plan *plan, int stage, struct policy_chunks chunks, int limit)
{
        (void)stage;
        (void)chunks;
        (void)limit;
        return min_int(plan->pp, plan->micro_batches);
}

int policy_kept_back_received(const struct plan *plan, int stage, int limit)
{
        (void)stage;
        (void)limit;
        return min_int(plan->pp + 2, plan->micro_batches);
}

int policy_kept_back_deferred(const struct plan *plan, int stage)
{
        return min_int(stage + 1, plan->micro_batches);
}
