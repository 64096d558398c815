/* What a GPU can do, measured through the device that training uses, as JSON: the bounds that
 * tests/bench/gpu.py holds everything else against.
 *
 *     gpu describe                        what the device says of itself
 *     gpu rate [SIZE]                     products of bf16 matrices, passes over its memory, copies to and
 * from the host gpu kernels PROFILE RATE BANDWIDTH  each measured kernel against max(flops / RATE, bytes /
 * BANDWIDTH)
 */
#include "calibrate/profile/profile.h"
#include "runtime/device/kernels.h"
#include "runtime/base/number.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 15, TOKEN = 0 };

/* Seconds of what was measured, one after another. */
struct spread {
        double seconds[BLOCKS];
        int count;
};

static struct device *open_device(struct rv_error_info *err)
{
        const struct device_request request = {.threads = 1, .local_ranks = 1};
        return device_open("cuda", &request, err);
}

static int failed(const struct rv_error_info *err)
{
        fprintf(stderr, "gpu: %s\n", err->sentence);
        return rv_exit_status(err);
}

static int print_json(json_t *document)
{
        if (!document)
                return 1;
        json_dumpf(document, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
        printf("\n");
        json_decref(document);
        return ferror(stdout) ? 1 : 0;
}

static json_t *device_json(const struct device *device)
{
        const struct device_description *d = &device->description;
        return json_pack("{s:s, s:s, s:i, s:f, s:f, s:I, s:I}", "name", d->name, "driver", d->driver,
                         "processors", d->processors, "clock_hertz", d->clock_hertz, "memory_clock_hertz",
                         d->memory_clock_hertz, "limit_bytes", (json_int_t)device->limit_bytes[MEMORY_DEVICE],
                         "overhead_bytes", (json_int_t)device->overhead_bytes);
}

static int describe(void)
{
        struct rv_error_info err = {0};
        struct device *device = open_device(&err);
        if (!device)
                return failed(&err);
        json_t *document = device_json(device);
        device->ops->close(device);
        return print_json(document);
}

/* ---- rates ---- */

/* Passes over memory read and write at least so much, of which a GPU's cache holds little; but where matrices
 * are smaller than LARGE, as tests have them. */
enum { PASS_BYTES = 512 << 20, LARGE = 4096 };

/* The device and its memory: three matrices, and the host's end of copies. */
struct bench {
        struct device *device;
        int64_t size, bytes; /* rows and columns of a matrix; bytes of one */
        int64_t pass_rows;   /* of `size` columns: what a pass reads, and writes */
        void *matrices[3], *host[2];
};

static void wait_for(struct device *device, int tokens)
{
        while (tokens > 0)
                if (device->ops->poll(device) >= 0)
                        tokens--;
                else
                        sched_yield();
}

static int open_bench(struct bench *b, int64_t size, struct rv_error_info *err)
{
        const int64_t bytes = memory_aligned(size * size * 2);
        const int64_t rows = size < LARGE || bytes > PASS_BYTES ? size : PASS_BYTES / 2 / size;
        const int64_t pass_bytes = memory_aligned(rows * size * 2);
        const int64_t reserved[MEMORY_SPACES] = {2 * pass_bytes + bytes, 2 * bytes};
        *b = (struct bench){.device = open_device(err), .size = size, .bytes = bytes, .pass_rows = rows};
        if (!b->device || device_reserve(b->device, reserved, err) != RV_OK)
                return err->code;
        struct device *device = b->device;
        device->dtype = DTYPE_BF16;
        bool all = true;
        for (int i = 0; i < 3; i++)
                all &= (b->matrices[i] = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE,
                                                            i == 1 ? bytes : pass_bytes)) != NULL;
        for (int i = 0; i < 2; i++)
                all &= (b->host[i] = device->ops->alloc(device, MEMORY_HOST, MEMORY_WORKSPACE, bytes)) !=
                       NULL;
        return all ? RV_OK : rv_fail(err, RV_ESYSTEM, "no memory for matrices of %lld rows", (long long)size);
}

/* Random numbers of magnitude 0.5 to 1: a GPU multiplies zeros faster, since it then draws less power. */
static void fill(struct bench *b)
{
        uint64_t state = 1;
        uint16_t *numbers = b->host[0];
        for (int matrix = 0; matrix < 2; matrix++) {
                for (int64_t i = 0; i < b->size * b->size; i++) {
                        state = state * 6364136223846793005u + 1442695040888963407u;
                        numbers[i] = (uint16_t)(0x3f00 | (state >> 57) | (state >> 40 & 0x8000));
                }
                b->device->ops->copy(b->device, DEVICE_HOST_TO_DEVICE, b->matrices[matrix], numbers,
                                     b->bytes);
                b->device->ops->synchronize(b->device);
        }
}

static void multiply(struct bench *b)
{
        const struct matmul mm = {.m = b->size, .n = b->size, .k = b->size, .transpose_b = 1};
        kernels_matmul(b->device, &mm, b->matrices[0], b->matrices[1], b->matrices[2]);
}

/* Reads rows and writes them. */
static void pass(struct bench *b)
{
        kernels_bias(b->device, b->matrices[2], b->matrices[0], b->pass_rows, b->size);
}

static void copy_down(struct bench *b)
{
        b->device->ops->copy(b->device, DEVICE_HOST_TO_DEVICE, b->matrices[0], b->host[0], b->bytes);
}

static void copy_up(struct bench *b)
{
        b->device->ops->copy(b->device, DEVICE_DEVICE_TO_HOST, b->host[1], b->matrices[1], b->bytes);
}

typedef void work_fn(struct bench *);

/* Seconds of `work`, `times` of it at once, without what is paid once; and of `beside`, if any, at the same
 * time. */
static struct spread measure(struct bench *b, work_fn *work, enum device_lane lane, work_fn *beside,
                             enum device_lane other, int times)
{
        struct spread spread = {.count = 0};
        for (int block = -2; block < BLOCKS; block++) { /* two warm up */
                const double start = device_seconds();
                for (int i = 0; i < times; i++) {
                        work(b);
                        if (beside)
                                beside(b);
                }
                b->device->ops->record(b->device, lane, TOKEN);
                if (beside)
                        b->device->ops->record(b->device, other, TOKEN);
                wait_for(b->device, beside ? 2 : 1);
                if (block >= 0)
                        spread.seconds[spread.count++] = (device_seconds() - start) / times;
        }
        return spread;
}

/* {"median", "p10", "p90"} of amount / seconds. */
static json_t *rate_json(struct spread *spread, double amount)
{
        return json_pack("{s:f, s:f, s:f}", "median", amount / quantile(spread->seconds, spread->count, 0.5),
                         "p10", amount / quantile(spread->seconds, spread->count, 0.9), "p90",
                         amount / quantile(spread->seconds, spread->count, 0.1));
}

static json_t *rates_json(struct bench *b)
{
        const double size = (double)b->size, bytes = (double)b->bytes;
        fill(b);
        struct spread product = measure(b, multiply, DEVICE_COMPUTE, NULL, DEVICE_COMPUTE, 20);
        struct spread memory = measure(b, pass, DEVICE_COMPUTE, NULL, DEVICE_COMPUTE, 20);
        struct spread down = measure(b, copy_down, DEVICE_HOST_TO_DEVICE, NULL, DEVICE_COMPUTE, 4);
        struct spread up = measure(b, copy_up, DEVICE_DEVICE_TO_HOST, NULL, DEVICE_COMPUTE, 4);
        struct spread both = measure(b, copy_down, DEVICE_HOST_TO_DEVICE, copy_up, DEVICE_DEVICE_TO_HOST, 4);
        return json_pack("{s:o, s:I, s:o, s:o, s:o, s:o, s:o}", "device", device_json(b->device), "matrix",
                         (json_int_t)b->size, "flops_per_second", rate_json(&product, 2 * size * size * size),
                         "memory_bytes_per_second", rate_json(&memory, 4 * size * (double)b->pass_rows),
                         "host_to_device", rate_json(&down, bytes), "device_to_host", rate_json(&up, bytes),
                         "each_of_both", rate_json(&both, bytes));
}

static int rate(int64_t size)
{
        struct rv_error_info err = {0};
        struct bench b;
        json_t *document = open_bench(&b, size, &err) == RV_OK ? rates_json(&b) : NULL;
        if (b.device)
                b.device->ops->close(b.device);
        return document ? print_json(document) : failed(&err);
}

/* ---- kernels against their rooflines ---- */

static json_t *kernel_json(const struct kernel_point *point, double flops_per_second, double bytes_per_second)
{
        const struct kernel *k = &point->kernel;
        const double flops = kernel_flops(k), bytes = kernel_bytes(k);
        const double bound = fmax(flops / flops_per_second, bytes / bytes_per_second);
        char name[PROFILE_NAME];
        profile_kernel_name(name, k->kind, (enum dtype)k->dtype);
        return json_pack("{s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "kernel", name, "batch",
                         (json_int_t)k->batch, "m", (json_int_t)k->m, "n", (json_int_t)k->n, "k",
                         (json_int_t)k->k, "seconds", point->seconds, "p10", point->p10, "p90", point->p90,
                         "flops", flops, "bytes", bytes, "bound_seconds", bound);
}

static int show_kernels(const char *path, double flops_per_second, double bytes_per_second)
{
        struct rv_error_info err = {0};
        struct profile profile;
        if (profile_load(&profile, path, &err) != RV_OK)
                return failed(&err);
        json_t *kernels = json_array();
        const struct profile_load *load = &profile.loads[0];
        for (int i = 0; i < load->point_count; i++)
                json_array_append_new(kernels,
                                      kernel_json(&load->points[i], flops_per_second, bytes_per_second));
        profile_free(&profile);
        return print_json(kernels);
}

int main(int argc, char **argv)
{
        enum { LARGEST = 8192 };
        if (argc == 2 && strcmp(argv[1], "describe") == 0)
                return describe();
        if (argc >= 2 && argc <= 3 && strcmp(argv[1], "rate") == 0)
                return rate(argc == 3 ? atoll(argv[2]) : LARGEST);
        if (argc == 5 && strcmp(argv[1], "kernels") == 0)
                return show_kernels(argv[2], atof(argv[3]), atof(argv[4]));
        fprintf(stderr,
                "gpu: gpu describe | rate [SIZE] | kernels PROFILE FLOPS_PER_SECOND BYTES_PER_SECOND\n");
        return 2;
}
