/* The machine that a prediction is for: what its kernels take, how its devices are joined, what memory they
 * have. */
#ifndef RANVIER_SIM_WORLD_MACHINE_H
#define RANVIER_SIM_WORLD_MACHINE_H

#include "runtime/engine/capacity.h"
#include "sim/world/fold.h"
#include "sim/platform/platform.h"

enum { MACHINE_PROFILES = 16, MACHINE_KINDS = 64 };

struct machine {
        struct profile profile; /* of the first ranks' GPUs */
        struct profile *others; /* of the GPUs of other nodes, or NULL */
        int other_count;
        int kinds, kind_profile[MACHINE_KINDS]; /* of each kind of node that ranks are on: 0 or 1 + one of
                                                   others */
        struct platform platform;
        const struct profile_load *load; /* of as many ranks as a node holds */
        bool local;                      /* the machine that the profile was measured on */
        bool fits_only;                  /* by fits even where something was measured */
        bool no_graphs;                  /* kernels are launched one by one; may be set once it is open */
        enum fold fold;                  /* may be set once it is open */
        int gpus;
};

/* `gpus` devices of a machine; `profile` (several between commas) and `platform` as the command line names
 * them. Every GPU that has a rank needs a profile of it, if the platform says what it is. On failure there is
 * nothing to close. */
int machine_open(struct machine *machine, const char *profile, const char *platform, int gpus, bool fits_only,
                 struct rv_error_info *err);
void machine_close(struct machine *machine);

/* Profile and load of a kind of node (struct platform_place's group). */
const struct profile *machine_profile(const struct machine *machine, int kind);
const struct profile_load *machine_load(const struct machine *machine, int kind);

/* Without --precision a prediction takes the profiles' own: of what all of `profiles` (as --profile names
 * them) have kernels in, mixed, else bf16, else fp32. Called before the plan is resolved. A plan with
 * --offload, which needs 16 bits, is refused here if they have fp32 alone. */
int machine_choose_precision(const char *profiles, struct options *options, struct rv_error_info *err);

/* What the first line of a prediction says of what it rests on, "" if there is nothing: that of the `shapes`
 * of its kernels only `measured` were, and that more ranks of a node compute than when they were measured. */
enum { MACHINE_CAVEAT = 128 };
void machine_caveat(const struct machine *machine, int measured, int shapes, char text[MACHINE_CAVEAT]);

/* What a reader should know before the figures, as an array of sentences; never NULL, the caller owns it:
 * the profiles' warnings; ranks of a node beyond those that were measured; which precision was taken without
 * being asked for, unless it is the fp32 that `train` takes too; and whether the profile has fused kernels
 * that --fusion auto leaves alone. */
json_t *machine_remarks(const struct machine *machine, const struct options *options);

/* What of a plan depends on the machine: --fusion auto is on where the profile has fused kernels in the
 * plan's precision and does not say that it is of runs without, and a --device must be what the profile is
 * of. */
int machine_settle(const struct machine *machine, struct options *options, struct rv_error_info *err);

/* What a rank has: what the options say, else the platform, of several kinds of nodes the least. */
struct capacity machine_capacity(const struct machine *machine, const struct options *options);

/* Of one device, in the mean over all that have a rank, as percent of peak counts it: the profile's of that
 * precision, if it tells them apart, else the platform's, else the profile's; 0: not known. */
double machine_peak_flops_per_second(const struct machine *machine, enum dtype dtype);

#endif
