/* The CPU device's kernels are built several times, each for processors with other instructions
 * (variants.mk). Which of them this processor runs, and runs best, is asked of it when the device is
 * opened. All variants compute the same, but not the same bits: some fuse a multiplication and an addition.
 * The variant "scalar" is the reference, in which nothing is vectorised; it is chosen by name only. */
#ifndef RANVIER_RUNTIME_DEVICE_CPU_VARIANT_H
#define RANVIER_RUNTIME_DEVICE_CPU_VARIANT_H

#include "runtime/device/cpu/kernels/kernels.h"

#include <stdbool.h>

/* One build of the kernels. */
struct cpu_variant {
        const char *name;     /* of --cpu-kernels: "scalar", "baseline", "avx2", "avx512" */
        cpu_scratch_fn *run;  /* runs any kernel, in this variant */
        bool (*runs)(void);   /* returns whether this processor has the instructions */
        const char *it_needs; /* what it needs of a processor, in words, for the message to who asks for it */
};

/* The variants that were built, from the slowest to the fastest, and how many they are. */
extern const struct cpu_variant cpu_variants[];
extern const int cpu_variant_count;

/* Returns the one of `variants` (an array of `count`) that is called `name`; if `name` is NULL or "auto",
 * the last that runs on this processor. NULL with a sentence (RV_EINPUT) if there is none of that name, or
 * it does not run on this processor. */
const struct cpu_variant *cpu_variant_choose(const struct cpu_variant *variants, int count, const char *name,
                                             struct rv_error_info *err);

#endif
