#include "runtime/device/cpu/variant.h"

#include "runtime/device/device.h"

#include <stdio.h>
#include <string.h>

/* cpu_run under the names that variants.mk gives it. */
cpu_scratch_fn cpu_run_scalar, cpu_run_baseline;

static bool always(void)
{
        return true;
}

#ifdef __x86_64__
cpu_scratch_fn cpu_run_avx2, cpu_run_avx512;

static bool has_avx2(void)
{
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
               __builtin_cpu_supports("f16c");
}

static bool has_avx512(void)
{
        return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}
#endif

const struct cpu_variant cpu_variants[] = {
        {"scalar", cpu_run_scalar, always, ""},
        {"baseline", cpu_run_baseline, always, ""},
#ifdef __x86_64__
        {"avx2", cpu_run_avx2, has_avx2, "AVX2, FMA and F16C"},
        {"avx512", cpu_run_avx512, has_avx512, "AVX-512 F, VL, BW and DQ"},
#endif
};
/* The same names, and the one that chooses. */
static const char *const variant_names[] = {"auto", "scalar", "baseline",
#ifdef __x86_64__
                                            "avx2", "avx512",
#endif
                                            NULL};
const struct option_words device_cpu_kernels_words = {.names = variant_names};

const int cpu_variant_count = sizeof cpu_variants / sizeof *cpu_variants;

/* "auto, scalar and baseline": those that run, or all. */
static void list_names(const struct cpu_variant *variants, int count, bool running, char *names, size_t size)
{
        int last = 0;
        for (int i = 0; i < count; i++)
                if (!running || variants[i].runs())
                        last = i;
        size_t used = (size_t)snprintf(names, size, "auto");
        for (int i = 0; i <= last && used < size; i++)
                if (!running || variants[i].runs())
                        used += (size_t)snprintf(names + used, size - used, "%s%s",
                                                 i == last ? " and " : ", ", variants[i].name);
}

const struct cpu_variant *cpu_variant_choose(const struct cpu_variant *variants, int count, const char *name,
                                             struct rv_error_info *err)
{
        char names[128], processor[96];
        const struct cpu_variant *best = NULL, *asked = NULL;
        for (int i = 0; i < count; i++) {
                if (variants[i].runs())
                        best = &variants[i];
                if (name && strcmp(variants[i].name, name) == 0)
                        asked = &variants[i];
        }
        if (!name || strcmp(name, "auto") == 0)
                return best;
        if (asked && asked->runs())
                return asked;
        list_names(variants, count, asked != NULL, names, sizeof names);
        if (!asked) {
                rv_fail(err, RV_EINPUT, "--cpu-kernels '%.64s': there are none of that name, only %s", name,
                        names);
                return NULL;
        }
        device_cpu_name(processor, sizeof processor);
        rv_fail(err, RV_EINPUT, "--cpu-kernels %s needs %s, which this processor (%s) has not; it runs %s",
                name, asked->it_needs, processor, names);
        return NULL;
}
