/* One way through the plans of a group (space.h), which several processes may share: each takes pieces of it
 * as they come, and all together go the whole way. space.c starts them and puts together what they found.
 */
#ifndef RANVIER_SIM_SEARCH_WALK_H
#define RANVIER_SIM_SEARCH_WALK_H

#include "sim/search/bounds.h"
#include "sim/search/space.h"
#include "sim/world/paper_batch.h"

#include <stdatomic.h>

/* In memory that all processes of a machine's search see; zeroed memory, then walk_begin. */
struct walk_share {
        /* Of the groups without and with offloading: the next piece that nobody has taken. */
        _Atomic int64_t next[2];
        /* How far the foremost process is, in combinations of both groups. */
        _Atomic int64_t reached[2];
        /* Seconds on paper of the best plan so far, and of the best of those that only fit larger devices
         * (space.larger); INFINITY: none. */
        _Atomic double best, larger;
        /* Set by whoever wants the walk to end where it is. */
        _Atomic bool stop;
        struct bounds bounds;
};
void walk_begin(struct walk_share *share);

/* Whether plans of so many stages are asked for and possible. */
bool walk_has_stages(const struct space *space, int gpus, int pp);

/* Returns a plan of a group from its flags but dp, which follows from them. It may be unsound. */
struct options walk_complete(const struct space_group *group, struct options plan);

/* Returns the seconds of a plan on paper. INFINITY: it is unsound, does not fit devices with `times` the
 * memory, has no price, or takes longer than `limit`. `excess` becomes by how many times it is too large for
 * the memory, or 0: that is not why. */
double walk_seconds(const struct space_group *group, const struct space *space, const struct machine *machine,
                    double times, struct paper_memo *memo, struct options *plan, double limit,
                    double *excess);

/* Returns how many combinations the way of one group has, those that are passed over too. */
int64_t walk_length(const struct space *space, int gpus);

/* Goes the pieces that come to this process, and adds what it finds to `group`, of which gpus, offload and
 * fused are set; group->candidates are in no order. `tick` (may be NULL) is called now and then; when it
 * returns false, the walk ends. An error is RV_ESYSTEM. */
int walk_group(struct space_group *group, const struct space *space, const struct machine *machine,
               struct paper_memo *memo, struct walk_share *share, bool (*tick)(void *context), void *context,
               struct rv_error_info *err);

#endif
