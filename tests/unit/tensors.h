/* For tests of the CPU device's kernels: a device of each variant and format of tensors, tensors that are
 * lent to it as it stores them, and bounds that count roundings: u is one of fp32, and elements of 16 bits
 * are rounded once more as they are stored. */
#ifndef RANVIER_TESTS_UNIT_TENSORS_H
#define RANVIER_TESTS_UNIT_TENSORS_H

#include "runtime/base/fp16.h"
#include "runtime/device/cpu/variant.h"
#include "runtime/device/device.h"
#include "tests/unit/numbers.h"
#include "tests/unit/sanitized.h"

static const double u = FLT_EPSILON / 2.0;
static const uint64_t seed = 20240611;
#define FLUSHED exp(-87) /* smaller exponentials are zero */

static const char *built_for; /* of the kernels that run now */

static inline int open_device(void **state, enum dtype format)
{
        static const char *const names[] = {"reals", "fp16", "bf16"};
        print_message("seed %llu, %s, tensors of %s\n", (unsigned long long)seed, built_for, names[format]);
        struct rv_error_info err = {0};
        struct device *device = device_cpu_open_with(1, built_for, &err);
        if (!device)
                return -1;
        device->dtype = format;
        *state = device;
        return 0;
}

static inline int open_real(void **state)
{
        return open_device(state, DTYPE_FP32);
}

static inline int open_fp16(void **state)
{
        return open_device(state, DTYPE_FP16);
}

static inline int open_bf16(void **state)
{
        return open_device(state, DTYPE_BF16);
}

static inline int close_device(void **state)
{
        struct device *device = *state;
        device->ops->close(device);
        return 0;
}

/* Tensors that the kernels under way work on: `x` again when they are finished. */
static struct {
        real *x;
        uint16_t *stored;
        int64_t count;
} lent[24];
static int lent_count;

static inline uint16_t half_of(const struct device *device, real x)
{
        return device->dtype == DTYPE_BF16 ? bf16_from_float(x) : fp16_from_float(x);
}

static inline real value_of(const struct device *device, uint16_t stored)
{
        return device->dtype == DTYPE_BF16 ? bf16_to_float(stored) : fp16_to_float(stored);
}

/* What a tensor of the device holds of x. */
static inline real rounded(const struct device *device, real x)
{
        return device->dtype != DTYPE_FP32 ? value_of(device, half_of(device, x)) : x;
}

/* `x` as a tensor of the device, for one kernel or several before finish(). */
static inline void *lend(const struct device *device, real *x, int64_t count)
{
        if (device->dtype == DTYPE_FP32)
                return x;
        uint16_t *stored = malloc((size_t)count * sizeof *stored);
        assert_non_null(stored);
        for (int64_t i = 0; i < count; i++)
                stored[i] = half_of(device, x[i]);
        assert_true(lent_count < 24);
        lent[lent_count].x = x;
        lent[lent_count].stored = stored;
        lent[lent_count++].count = count;
        return stored;
}

static inline void finish(struct device *device)
{
        device->ops->synchronize(device);
        for (; lent_count > 0; lent_count--) {
                const int last = lent_count - 1;
                for (int64_t i = 0; i < lent[last].count; i++)
                        lent[last].x[i] = value_of(device, lent[last].stored[i]);
                free(lent[last].stored);
        }
}

/* Random elements that a tensor of the device holds exactly. */
static inline real *random_tensor(const struct device *device, uint64_t *random, int64_t count, double size)
{
        real *x = random_reals(random, count, size);
        for (int64_t i = 0; i < count; i++)
                x[i] = rounded(device, x[i]);
        return x;
}

/* The relative error of one rounding of a tensor's element. */
static inline double unit(const struct device *device)
{
        return device->dtype == DTYPE_BF16 ? 0x1p-8 : device->dtype != DTYPE_FP32 ? 0x1p-11 : u;
}

/* The bound of a tensor's element whose error was `bound` before it was stored. Half of the smallest fp16
 * number is 2^-25; a subnormal bf16 is a subnormal float too, and those are zero on the device. */
static inline double stored(const struct device *device, double expected, double bound)
{
        const double min = device->dtype == DTYPE_BF16 ? (double)FLT_MIN : 0x1p-25;
        return device->dtype != DTYPE_FP32 ? bound + unit(device) * (fabs(expected) + bound) + min : bound;
}

#define assert_stored(device, found, expected, bound, what, index)                                           \
        assert_within(found, expected, stored(device, (double)(expected), bound), what, index)

/* Under a sanitizer, which takes its time, only the one that a run takes. */
static inline bool is_tested(const struct cpu_variant *v)
{
        return SANITIZED ? v == cpu_variant_choose(cpu_variants, cpu_variant_count, NULL, NULL) : v->runs();
}

#endif
