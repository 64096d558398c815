/* The CPU device's kernels are built several times, each for processors with other instructions
 * (variants.mk). Which of them this processor runs, and runs best, is asked of it when the device is opened.
 */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_VARIANT_H
#define RANVIER_RUNTIME_DEVICE_CPU_VARIANT_H

#include "runtime/device/cpu/kernels/kernels.h"

#include <stdbool.h>

struct cpu_variant {
        const char *name;
        cpu_scratch_fn *run;  /* any kernel, in this variant */
        bool (*runs)(void);   /* whether this processor has the instructions */
        const char *it_needs; /* what it needs of a processor, for who asks for it on another */
};

/* Those that were built, from the slowest to the fastest. */
extern const struct cpu_variant cpu_variants[];
extern const int cpu_variant_count;

/* Of `variants` the one called `name`; NULL or "auto": the last that runs. NULL with a sentence (RV_EINPUT)
 * if there is none of that name, or it does not run on this processor. */
const struct cpu_variant *cpu_variant_choose(const struct cpu_variant *variants, int count, const char *name,
                                             struct rv_error_info *err);

#endif
