/* The machine that a prediction is for: what its kernels take (one profile, or one for each kind of GPU), how
 * its devices are joined (a platform), and what memory they have.
 *
 * A command opens a machine for a number of GPUs, settles what of the plan depends on it, and hands both to
 * costs.h or predict.h. A machine is not changed by pricing, so that many plans can share it. */
#ifndef RANVIER_SIM_WORLD_MACHINE_H
#define RANVIER_SIM_WORLD_MACHINE_H

#include "runtime/engine/capacity.h"
#include "sim/world/fold.h"
#include "sim/platform/platform.h"

enum { MACHINE_PROFILES = 16, MACHINE_KINDS = 64 };

struct machine {
        /* The profile of the first rank's GPU. */
        struct profile profile;
        /* [other_count]: the other profiles that were named, or NULL. */
        struct profile *others;
        int other_count;
        /* The kinds of nodes that ranks are on (1 unless the platform has groups), and for each the profile
         * of its GPUs: 0, or 1 + an index into others. */
        int kinds, kind_profile[MACHINE_KINDS];
        struct platform platform;
        /* What was measured with about as many ranks as the first kind of node holds; part of `profile`. */
        const struct profile_load *load;
        /* The platform is "local": the machine that the profile was measured on. */
        bool local;
        /* Prices come from the profile's fits even where something was measured. */
        bool fits_only;
        /* Kernels are launched one by one rather than as graphs. May be set once the machine is open. */
        bool no_graphs;
        /* May be set once the machine is open. */
        enum fold fold;
        /* Ranks of the plans that the machine is for. */
        int gpus;
};

/* Opens a machine of `gpus` devices. `profile` (several names between commas) and `platform` are as the
 * command line gives them. If the platform says which GPUs it has, each kind that has a rank needs a profile
 * of such a GPU, else RV_EINPUT is returned. The other errors are those of profile_load and platform_load.
 * The caller calls machine_close; after a failure there is nothing to close. */
int machine_open(struct machine *machine, const char *profile, const char *platform, int gpus, bool fits_only,
                 struct rv_error_info *err);
void machine_close(struct machine *machine);

/* Makes an open machine one of so many devices, of the same profiles; `platform` is that of machine_open, as
 * are the errors, after which the machine can be resized again or closed, and nothing else. */
int machine_resize(struct machine *machine, const char *platform, int gpus, struct rv_error_info *err);

/* Return the profile and the load of a kind of node, which is the `group` of struct platform_place. */
const struct profile *machine_profile(const struct machine *machine, int kind);
const struct profile_load *machine_load(const struct machine *machine, int kind);

/* Chooses the precision of a plan that was given without --precision: the first of mixed, bf16 and fp32 for
 * which all of `profiles` (as --profile names them) have kernels. Must be called before the plan is resolved.
 * A plan with --offload, which needs 16 bits, is refused (RV_EINPUT) if the profiles have fp32 alone. */
int machine_choose_precision(const char *profiles, struct options *options, struct rv_error_info *err);

/* Writes what the first line of a prediction says of how far to trust it: that only `measured` of the
 * `shapes` of its kernels were measured (or are by tables of measured ones), and that more ranks of a node
 * compute than when they were measured. Writes "" if there is nothing to say. */
enum { MACHINE_CAVEAT = 128 };
void machine_caveat(const struct machine *machine, int measured, int shapes, char text[MACHINE_CAVEAT]);

/* Returns what a reader should know before the figures, as an array of sentences that the caller owns; it may
 * be empty. The sentences are about the profiles' warnings, about ranks of a node beyond those that were
 * measured, about the precision that was taken without being asked for (unless it is the fp32 that `train`
 * takes too), and about fused kernels of the profile that --fusion auto leaves alone. */
json_t *machine_remarks(const struct machine *machine, const struct options *options);

/* Settles what of a plan depends on the machine: --fusion auto becomes on where the profile has fused kernels
 * in the plan's precision and is not of runs without them. A --device that is not what the profile is of is
 * RV_EINPUT, and so is a framework's kernels where a profile's own figures are of a framework's ("like" among
 * its sources), which would count them twice. */
int machine_settle(const struct machine *machine, struct options *options, struct rv_error_info *err);

/* Settles --logits auto of resolved options, by machine_settle's answer, as the profile has it. */
void machine_choose_logits(const struct machine *machine, struct options *options);

/* Returns the seconds that the plan's framework adds to a batch: what its host does (of several kinds of
 * devices the most), and what its broadcasts of parameters take beside their bytes, which are those of a
 * gather. */
double machine_framework_step(const struct machine *machine, const struct options *options);

/* Returns the memory that a rank has: what the options say, else what the platform says; of several kinds of
 * nodes the least. */
struct capacity machine_capacity(const struct machine *machine, const struct options *options);

/* Returns the peak of one device as percent of peak counts it, the mean over all devices that have a rank:
 * the profile's of that precision if it tells precisions apart, else the platform's, else the profile's. 0
 * means that it is not known. */
double machine_peak_flops_per_second(const struct machine *machine, enum dtype dtype,
                                     enum product_format format);

#endif
