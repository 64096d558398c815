/* The physics of a prediction: operations take what a profile and a platform say. Kernels are priced by the
 * profile; messages, copies and all-reduces of gradients are flows over SimGrid's links (copies of the local
 * platform take what was measured); collectives of shards and (unless the platform is a SimGrid file) of a
 * few scalars take their closed form.
 *
 * predict.c uses it unless a trace is replayed (replay.h). The structs below are caches of what was looked up
 * last. */
#ifndef RANVIER_SIM_WORLD_PRICED_H
#define RANVIER_SIM_WORLD_PRICED_H

#include "sim/world/collective.h"
#include "sim/platform/platform.h"
#include "sim/world/costs.h"
#include "sim/world/crowd.h"

enum { PRICED_SHAPES = 256, PRICED_TENSORS = 1024, PRICED_UNITS = 1024 };

/* How a group lies on the platform, and the last choice of an algorithm for it. */
struct priced_shape {
        /* First rank of the group. */
        int id;
        /* Its size is 0 as long as nothing was looked up. */
        struct collective_shape shape;
        /* The collective that `costs` were chosen for; bytes are -1 if there is none yet. */
        enum collective_kind kind;
        enum dtype dtype;
        int64_t bytes;
        struct collective_costs costs;
};

/* A collective of shards and its seconds; the entry is overwritten by another group or collective in its
 * place. */
struct priced_tensor {
        /* Size and first rank of the group; size 0 means that the entry is empty. */
        int size, id;
        struct kernel collective;
        double seconds;
};

/* ZeRO-3: the gather or the reduction of a unit of so many bytes. There are thousands of the same a batch, so
 * where nothing else crosses the links of a plan the first one is simulated step by step and the others take
 * as long. */
struct priced_unit {
        enum op_kind kind;
        enum op_group group;
        /* First rank of the group. */
        int first;
        int64_t bytes;
        /* Which of the group's collectives is the first one, how many simulated members have ended it, and
         * when the last of them began it. */
        int collective, ended;
        double began;
        /* From when the last member has come. NAN as long as the first one is under way. */
        double seconds;
};

/* All zero at the beginning; priced_init and priced_free begin and end it. */
struct priced {
        const struct costs *costs;
        int ranks;
        /* The format that weights and gradients are stored in. */
        enum dtype dtype;
        struct crowd crowd;
        /* [ranks] Of an offloaded optimizer whose copies are work for the rank's own processors; else NULL.
         */
        struct crowd *lanes;
        struct priced_shape shapes[SIM_GROUPS][PRICED_SHAPES];
        struct priced_tensor tensors[PRICED_TENSORS];
        struct priced_unit units[PRICED_UNITS];
        int unit_count;
};

/* Fills it for simulated ranks (as many as there are places) that train with these options, and, if `saves`,
 * with a checkpoint. RV_ESYSTEM: no memory. */
int priced_init(struct priced *priced, const struct costs *costs, const struct options *options, int ranks,
                bool saves, struct rv_error_info *err);
void priced_free(struct priced *priced);
/* Returns the physics. `priced` must live as long as it. */
struct sim_physics priced_physics(struct priced *priced);

#endif
