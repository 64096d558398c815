/* The machine that a prediction is for: what its kernels take, how its devices are joined, what memory they
 * have. */
#ifndef RANVIER_SIM_MACHINE_H
#define RANVIER_SIM_MACHINE_H

#include "runtime/engine/capacity.h"
#include "sim/fold.h"
#include "sim/platform.h"

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

/* What of a plan depends on the machine: --fusion auto is on where the profile has measured fused kernels in
 * the plan's precision, and a --device must be what the profile is of. */
int machine_settle(const struct machine *machine, struct options *options, struct rv_error_info *err);

/* What a rank has: what the options say, else the platform, of several kinds of nodes the least. */
struct capacity machine_capacity(const struct machine *machine, const struct options *options);

/* Of one device, in the mean over all that have a rank, as percent of peak counts it; 0: not known. */
double machine_peak_flops_per_second(const struct machine *machine);

#endif
