/* The CUDA device's host side, over the emulated CUDA (tests/emulated) with its real kernels: memory,
 * streams, events, graphs, plans of products, failures. */
#include "runtime/device/cuda/cuda.h"
#include "tests/unit/launches.h"
#include "tests/emulated/control.h"
#include "tests/unit/numbers.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

static struct device *open_shared(int local_rank, int local_ranks, bool no_graphs)
{
        const struct device_request request = {
                .local_rank = local_rank, .local_ranks = local_ranks, .no_graphs = no_graphs};
        struct rv_error_info err = {0};
        struct device *device = device_cuda_open(&request, &err);
        if (!device)
                fail_msg("%s", err.sentence);
        return device;
}

static struct device *open_alone(void)
{
        return open_shared(0, 1, false);
}

static float *floats(struct device *device, enum memory_space space, int64_t count)
{
        float *memory = device->ops->alloc(device, space, MEMORY_WORKSPACE, count * (int64_t)sizeof(float));
        assert_non_null(memory);
        return memory;
}

static void read_back(struct device *device, float *to, const float *from, int64_t count)
{
        device->ops->synchronize(device);
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, to, from, count * (int64_t)sizeof(float));
        device->ops->synchronize(device);
}

static void write_to(struct device *device, float *to, const float *from, int64_t count)
{
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, to, from, count * (int64_t)sizeof(float));
        device->ops->synchronize(device);
}

/* ---- memory ---- */

static void what_is_reserved_is_one_allocation_a_space_and_is_carved(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct emulated_counters before = *emulated_counts();
        struct rv_error_info err = {0};
        float zeros[64], *on_device[8], *on_host[8];
        assert_int_equal(device_reserve(device, (int64_t[]){8 * 64, 8 * 64}, &err), RV_OK);
        for (int i = 0; i < 8; i++) {
                on_device[i] = floats(device, MEMORY_DEVICE, i < 4 ? 16 : 1); /* 1 is rounded up to 16 */
                on_host[i] = floats(device, MEMORY_HOST, 16);
                assert_int_equal((uintptr_t)on_device[i] % MEMORY_ALIGNMENT, 0);
                assert_ptr_equal((char *)on_device[0] + 64 * i, on_device[i]);
                assert_ptr_equal((char *)on_host[0] + 64 * i, on_host[i]);
        }
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, 1));
        assert_null(device->ops->alloc(device, MEMORY_HOST, MEMORY_WEIGHTS, 1));
        assert_int_equal(emulated_counts()->mallocs - before.mallocs, 1);
        assert_int_equal(emulated_counts()->host_allocs - before.host_allocs, 1);
        assert_int_equal(memory_total(&device->bytes, MEMORY_DEVICE), 8 * 64);
        assert_int_equal(memory_total(&device->bytes, MEMORY_HOST), 8 * 64);
        read_back(device, zeros, on_device[0], 64);
        for (int i = 0; i < 64; i++)
                assert_true(zeros[i] == 0 && on_host[0][i] == 0);
        device->ops->close(device);
}

static void without_a_reservation_memory_is_taken_piece_by_piece_and_all_is_freed(void **state)
{
        (void)state;
        const struct emulated_counters before = *emulated_counts();
        struct device *device = open_alone();
        for (int i = 0; i < 40; i++) /* more than the list of pieces holds at first */
                floats(device, i % 2 ? MEMORY_HOST : MEMORY_DEVICE, 100);
        device->ops->close(device);
        const struct emulated_counters *after = emulated_counts();
        assert_int_equal(after->mallocs - before.mallocs, 1 + 20); /* the first: products and kernels */
        assert_int_equal(after->host_allocs - before.host_allocs, 20);
        assert_int_equal(after->frees - before.frees, 1 + 20);
        assert_int_equal(after->host_frees - before.host_frees, 20);
}

static void allocations_end_at_the_limit(void **state)
{
        (void)state;
        struct device *device = open_alone();
        device->limit_bytes[MEMORY_DEVICE] = 1024;
        floats(device, MEMORY_DEVICE, 16 * 15);
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, 65));
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, INT64_MAX));
        floats(device, MEMORY_DEVICE, 16);
        assert_null(device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WEIGHTS, 1));
        device->ops->close(device);
}

static void ranks_that_share_a_gpu_share_its_memory(void **state)
{
        (void)state;
        int64_t alone = 0;
        for (int ranks = 1; ranks <= 3; ranks++) {
                struct device *device = open_shared(ranks - 1, ranks, false);
                int64_t free_bytes, total_bytes;
                device->ops->memory(device, &free_bytes, &total_bytes);
                assert_int_equal(device->sharing, ranks);
                assert_int_equal(device->limit_bytes[MEMORY_DEVICE],
                                 free_bytes / ranks - device->later_bytes);
                assert_true(device->overhead_bytes >= device->later_bytes + (64 << 20) / ranks);
                assert_int_equal(device->shared_limit_bytes, 0);
                if (ranks == 1)
                        alone = device->limit_bytes[MEMORY_DEVICE];
                else
                        assert_true(device->limit_bytes[MEMORY_DEVICE] <= alone / ranks);
                device->ops->close(device);
        }
        setenv("RANVIER_EMULATED_DEVICES", "2", 1); /* ranks 0 and 2 of 3 have the first, rank 1 the second */
        for (int rank = 0; rank < 3; rank++) {
                struct device *device = open_shared(rank, 3, false);
                assert_int_equal(((struct cuda_device *)device)->gpu, rank % 2);
                assert_int_equal(device->sharing, rank == 1 ? 1 : 2);
                device->ops->close(device);
        }
        unsetenv("RANVIER_EMULATED_DEVICES");
}

static void a_reservation_beyond_the_memory_is_one_sentence(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct rv_error_info err = {0};
        assert_int_equal(device_reserve(device, (int64_t[]){INT64_C(1) << 40, 64}, &err), RV_ESYSTEM);
        assert_non_null(strstr(err.sentence, "1024.00 GiB of device memory"));
        device->ops->close(device);
}

/* ---- streams and events ---- */

static void every_lane_s_tokens_come_in_order_and_nothing_waits(void **state)
{
        (void)state;
        enum { EACH = 700 }; /* more than there are events at first */
        struct device *device = open_alone();
        const struct device_ops *ops = device->ops;
        float *memory = floats(device, MEMORY_DEVICE, 64), *host = floats(device, MEMORY_HOST, 64);
        const struct emulated_counters before = *emulated_counts();
        int next[DEVICE_LANES] = {0}, reached = 0;
        for (int i = 0; i < EACH; i++) {
                ops->copy(device, DEVICE_HOST_TO_DEVICE, memory, host, 64);
                ops->copy(device, DEVICE_DEVICE_TO_HOST, host + 32, memory + 32, 64);
                kernels_squared_norm(device, (void *)(memory + 60), memory + 40, 8, false);
                for (int lane = 0; lane < DEVICE_LANES; lane++)
                        ops->record(device, (enum device_lane)lane, DEVICE_LANES * i + lane);
        }
        while (reached < DEVICE_LANES * EACH) {
                const int token = ops->poll(device);
                if (token < 0)
                        continue;
                assert_int_equal(token / DEVICE_LANES, next[token % DEVICE_LANES]++);
                reached++;
        }
        assert_int_equal(ops->poll(device), -1);
        const struct emulated_counters *after = emulated_counts();
        assert_int_equal(after->device_synchronizes, before.device_synchronizes);
        assert_int_equal(after->stream_synchronizes, before.stream_synchronizes);
        assert_int_equal(after->event_synchronizes, before.event_synchronizes);
        assert_int_equal(after->mallocs, before.mallocs);
        assert_int_equal(after->pageable_copies, before.pageable_copies);
        ops->close(device);
}

/* What a recorder was told. */
struct recording {
        int64_t m[300];
        double seconds[300], end[300];
        int count;
};

static void record_kernel(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct recording *recording = context;
        recording->m[recording->count] = kernel->m;
        recording->seconds[recording->count] = seconds;
        recording->end[recording->count++] = end;
}

static void the_recorder_hears_of_kernels_in_order_and_before_a_later_token(void **state)
{
        (void)state;
        struct device *device = open_alone();
        struct recording *recording = calloc(1, sizeof *recording);
        float *memory = floats(device, MEMORY_DEVICE, 512);
        const double began = device_seconds();
        device->recorder = record_kernel;
        device->recorder_context = recording;
        device->ops->begin_group(device);
        for (int i = 0; i < 300; i++)
                kernels_squared_norm(device, (void *)memory, memory + 2, i + 1, false);
        device->ops->end_group(device);
        assert_int_equal(emulated_counts()->graph_captures, 0); /* each was launched by itself */
        device->ops->record(device, DEVICE_COMPUTE, 5);
        while (device->ops->poll(device) != 5)
                ;
        assert_int_equal(recording->count, 300);
        for (int i = 0; i < 300; i++) {
                assert_int_equal(recording->m[i], i + 1);
                assert_true(recording->seconds[i] >= 0);
                assert_true(recording->end[i] >= (i ? recording->end[i - 1] : began));
        }
        device->ops->close(device);
        free(recording);
}

/* ---- graphs ---- */

/* As many additions of b to y as make a graph. */
static void add_times(struct device *device, float *y, const float *b)
{
        device->ops->begin_group(device);
        for (int i = 0; i < CUDA_GRAPH_KERNELS; i++)
                kernels_bias(device, y, b, 4, 16);
        device->ops->end_group(device);
}

struct launches {
        int64_t captures, graphs, kernels;
};

static struct launches launches(void)
{
        const struct emulated_counters *c = emulated_counts();
        return (struct launches){c->graph_captures, c->graph_launches, c->kernels_run};
}

static void assert_launches(struct launches *before, int captures, int graphs, int kernels)
{
        const struct launches now = launches();
        assert_int_equal(now.captures - before->captures, captures);
        assert_int_equal(now.graphs - before->graphs, graphs);
        assert_int_equal(now.kernels - before->kernels, kernels);
        *before = now;
}

static void a_group_is_captured_the_second_time_and_replayed(void **state)
{
        (void)state;
        struct device *device = open_alone();
        float *y = floats(device, MEMORY_DEVICE, 64), *b = floats(device, MEMORY_DEVICE, 32), got[64];
        float ones[16];
        for (int i = 0; i < 16; i++)
                ones[i] = 1;
        write_to(device, b, ones, 16);
        struct launches before = launches();
        for (int time = 1; time <= 5; time++) {
                add_times(device, y, b);
                read_back(device, got, y, 64);
                assert_launches(&before, time == 2, time >= 2, CUDA_GRAPH_KERNELS);
                for (int i = 0; i < 64; i++)
                        assert_true(got[i] == (float)(CUDA_GRAPH_KERNELS * time));
        }
        add_times(device, y, b + 16); /* zeros: other operands are another group */
        read_back(device, got, y, 64);
        assert_launches(&before, 0, 0, CUDA_GRAPH_KERNELS);
        assert_true(got[5] == 5 * CUDA_GRAPH_KERNELS);
        device->ops->close(device);
}

static void no_graphs_are_made_when_they_are_off(void **state)
{
        (void)state;
        struct device *device = open_shared(0, 1, true);
        float *y = floats(device, MEMORY_DEVICE, 64), *b = floats(device, MEMORY_DEVICE, 16);
        struct launches before = launches();
        for (int time = 0; time < 3; time++)
                add_times(device, y, b);
        device->ops->synchronize(device);
        assert_launches(&before, 0, 0, 3 * CUDA_GRAPH_KERNELS);
        device->ops->close(device);
}

static void kernels_that_read_other_tokens_each_time_part_a_group(void **state)
{
        (void)state;
        struct device *device = open_alone();
        float *x = floats(device, MEMORY_DEVICE, 64), *w = floats(device, MEMORY_DEVICE, 64),
              *b = floats(device, MEMORY_DEVICE, 16);
        int32_t *tokens = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_TOKENS, 4 * 4 * sizeof *tokens);
        struct launches before = launches();
        for (int time = 0; time < 4; time++) {
                device->ops->begin_group(device);
                for (int i = 0; i < CUDA_GRAPH_KERNELS; i++)
                        kernels_bias(device, w, b, 4, 16);
                kernels_embedding(device, x, tokens + 4 * time, w, w, 1, 4, 16);
                for (int i = 0; i < CUDA_GRAPH_KERNELS; i++)
                        kernels_bias(device, x, b, 4, 16);
                device->ops->end_group(device);
                device->ops->synchronize(device);
                assert_launches(&before, time == 1 ? 2 : 0, time >= 1 ? 2 : 0, 2 * CUDA_GRAPH_KERNELS + 1);
        }
        device->ops->close(device);
}

static void groups_of_few_kernels_are_no_graphs(void **state)
{
        (void)state;
        struct device *device = open_alone();
        float *y = floats(device, MEMORY_DEVICE, 64), *b = floats(device, MEMORY_DEVICE, 16);
        struct launches before = launches();
        for (int time = 0; time < 3; time++) {
                device->ops->begin_group(device);
                for (int i = 0; i < CUDA_GRAPH_KERNELS - 1; i++)
                        kernels_bias(device, y, b, 4, 16);
                device->ops->end_group(device);
                device->ops->synchronize(device);
                assert_launches(&before, 0, 0, CUDA_GRAPH_KERNELS - 1);
        }
        device->ops->close(device);
}

static void count_launch(void *context, const struct kernel *kernel, const struct kernel_args *args)
{
        (void)kernel, (void)args;
        ++*(int *)context;
}

/* `m` tells groups apart. */
static void group(struct cuda_graphs *graphs, int64_t m)
{
        const struct kernel kernel = {.kind = KERNEL_BIAS, .batch = 1, .m = m, .n = 1};
        cuda_graphs_begin(graphs);
        for (int i = 0; i < CUDA_GRAPH_KERNELS; i++)
                assert_int_equal(cuda_graphs_add(graphs, &kernel, &(struct kernel_args){0}), cudaSuccess);
        assert_int_equal(cuda_graphs_end(graphs), cudaSuccess);
}

static void the_least_recently_used_group_is_forgotten(void **state)
{
        (void)state;
        struct cuda_lane lane = {0};
        int launched = 0;
        assert_int_equal(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking), cudaSuccess);
        struct cuda_graphs *graphs = cuda_graphs_new(lane.stream, 2, count_launch, &launched);
        const struct {
                int64_t m;
                int launched; /* 1: for the first time, or for the capture; 0: replayed */
        } steps[] = {{1, 1},
                     {1, 1},
                     {1, 0},
                     {2, 1},
                     {2, 1},
                     {1, 0},
                     {2, 0},
                     {1, 0},
                     {3, 1} /* in the place of 2 */,
                     {1, 0},
                     {2, 1} /* of 3 */,
                     {1, 0},
                     {3, 1},
                     {3, 1},
                     {1, 0}};
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
                launched = 0;
                group(graphs, steps[i].m);
                if (launched != CUDA_GRAPH_KERNELS * steps[i].launched)
                        fail_msg("step %zu (group %lld) launched %d times", i, (long long)steps[i].m,
                                 launched);
        }
        cuda_graphs_begin(graphs); /* an empty group is nothing */
        assert_int_equal(cuda_graphs_end(graphs), cudaSuccess);
        cuda_graphs_delete(graphs);
        cudaStreamDestroy(lane.stream);
}

/* ---- products ---- */

/* y = x w^T + b + r of m x n and the same on the host; y and b begin so many elements from an aligned
 * address. */
static void check_residual(struct device *device, int64_t m, int64_t n, int64_t k, int y_shift, int b_shift)
{
        float *x = floats(device, MEMORY_HOST, m * k), *w = floats(device, MEMORY_HOST, n * k),
              *b = floats(device, MEMORY_HOST, n + b_shift) + b_shift,
              *r = floats(device, MEMORY_HOST, m * n),
              *y = floats(device, MEMORY_HOST, m * n + y_shift) + y_shift;
        for (int64_t i = 0; i < m * k; i++)
                x[i] = (float)(i % 7) - 3;
        for (int64_t i = 0; i < n * k; i++)
                w[i] = (float)(i % 5) - 2;
        for (int64_t i = 0; i < n; i++)
                b[i] = (float)i;
        for (int64_t i = 0; i < m * n; i++)
                r[i] = (float)(i % 3);
        kernels_matmul_bias_residual(device, y, x, w, b, r, m, n, k);
        device->ops->synchronize(device);
        for (int64_t i = 0; i < m * n; i++) {
                float sum = b[i % n] + r[i];
                for (int64_t j = 0; j < k; j++)
                        sum += x[i / n * k + j] * w[i % n * k + j];
                assert_true(y[i] == sum); /* small whole numbers: exact in any order */
        }
}

/* Shapes that ran so far, and those that cuBLASLt refused. */
static void assert_products(struct device *device, int products, int refused)
{
        device->ops->synchronize(device);
        assert_int_equal(device->description.products, products);
        assert_int_equal(device->description.refused_products, refused);
}

static void a_shape_is_planned_once_and_odd_ones_are_two_kernels(void **state)
{
        (void)state;
        struct device *device = open_alone();
        const int64_t refusals = emulated_counts()->product_refusals;
        struct launches before = launches();
        check_residual(device, 8, 16, 8, 0, 0);
        assert_launches(&before, 0, 0, 1); /* the bias and the residual go with the product */
        check_residual(device, 8, 16, 8, 0, 0);
        assert_launches(&before, 0, 0, 1);
        assert_products(device, 1, 0);
        check_residual(device, 5, 7, 3, 0, 0); /* cuBLASLt is not asked: n is odd */
        check_residual(device, 5, 7, 3, 0, 0);
        assert_launches(&before, 0, 0, 4);
        assert_products(device, 2, 0);
        check_residual(device, 8, 16, 8, 1, 0); /* it is asked, and has nothing for these addresses */
        check_residual(device, 8, 16, 8, 1, 0);
        assert_launches(&before, 0, 0, 4);
        assert_products(device, 4, 1);
        assert_int_equal(emulated_counts()->product_refusals - refusals, 1);
        check_residual(device, 8, 16, 8, 0, 4); /* fused, but not with the first plan */
        assert_launches(&before, 0, 0, 1);
        assert_products(device, 5, 1);
        device->ops->close(device);
}

/* A device that times products, or takes those of `products`; NULL with the sentence in `err`. */
static struct device *open_timing(bool times, const char *products, struct rv_error_info *err)
{
        const struct device_request request = {
                .local_ranks = 1, .time_products = times, .products = products};
        return device_cuda_open(&request, err);
}

static void refuses_products(const char *products, const char *sentence)
{
        struct rv_error_info err = {0};
        assert_null(open_timing(false, products, &err));
        if (!strstr(err.sentence, sentence))
                fail_msg("'%s' instead of '%s'", err.sentence, sentence);
}

/* `text` with the first `from` replaced; the caller frees it. */
static char *with(const char *text, const char *from, const char *to)
{
        const char *at = strstr(text, from);
        const size_t before = (size_t)(at - text);
        char *other = malloc(strlen(text) + strlen(to) + 1);
        assert_non_null(at);
        assert_non_null(other);
        memcpy(other, text, before);
        strcpy(other + before, to);
        strcat(other, at + strlen(from));
        return other;
}

static void products_that_were_timed_are_taken_again(void **state)
{
        (void)state;
        struct rv_error_info err = {0};
        struct device *device = open_timing(true, NULL, &err);
        assert_non_null(device);
        check_residual(device, 8, 16, 8, 0, 0); /* right as well, whichever was the fastest */
        check_residual(device, 16, 32, 8, 0, 0);
        device->ops->synchronize(device);
        assert_int_equal(device->description.timed_products, 2);
        char *products = device->ops->products(device);
        assert_non_null(products);
        assert_non_null(strstr(products, "\"proposals\": 3"));
        device->ops->close(device);

        device = open_timing(false, products, &err);
        assert_non_null(device);
        check_residual(device, 8, 16, 8, 0, 0);
        check_residual(device, 16, 32, 16, 0, 0); /* was not timed */
        device->ops->synchronize(device);
        assert_int_equal(device->description.products, 2);
        assert_int_equal(device->description.timed_products, 1);
        device->ops->close(device);

        char *elsewhere = with(products, "\"gpu\": \"", "\"gpu\": \"another than ");
        char *later = with(products, "\"library\": ", "\"library\": 9");
        char *cut = with(products, "\"algorithm\": \"0", "\"algorithm\": \"");
        refuses_products(elsewhere, "the products were timed on another than ");
        refuses_products(later, "ranvier calibrate --time-products times them anew");
        refuses_products(cut, "has no \"algorithm\" of 128 hexadecimal digits");
        refuses_products("[]", "\"products\" of a profile has \"gpu\", \"library\" and \"chosen\"");
        free(elsewhere);
        free(later);
        free(cut);
        free(products);
}

/* Of bf16 with GELU: how many kernels it is on a GPU of this compute capability. */
static int64_t kernels_with_gelu(const char *capability)
{
        enum { SIDE = 64 };
        setenv("RANVIER_EMULATED_CAPABILITY", capability, 1);
        struct device *device = open_alone();
        device->dtype = DTYPE_BF16;
        float *x = floats(device, MEMORY_DEVICE, SIDE * SIDE),
              *y = floats(device, MEMORY_DEVICE, SIDE * SIDE),
              *h = floats(device, MEMORY_DEVICE, SIDE * SIDE);
        const struct launches before = launches();
        kernels_matmul_bias_gelu(device, y, h, x, x, x, SIDE, SIDE, SIDE);
        device->ops->synchronize(device);
        const int64_t kernels = launches().kernels - before.kernels;
        device->ops->close(device);
        unsetenv("RANVIER_EMULATED_CAPABILITY");
        return kernels;
}

static void gelu_goes_with_a_product_where_that_is_a_fusion(void **state)
{
        (void)state;
        assert_int_equal(kernels_with_gelu("80"), 2);
        assert_int_equal(kernels_with_gelu("89"), 2);
        assert_int_equal(kernels_with_gelu("90"), 1);
        assert_int_equal(kernels_with_gelu("100"), 1);
        assert_int_equal(kernels_with_gelu("120"), 2);
}

/* a (outer, m, inner, k), as attention has queries in it: the strides of both dimensions of a batch. */
static void batches_of_two_dimensions_reach_every_matrix(void **state)
{
        (void)state;
        enum { M = 3, K = 4 };
        const int64_t sizes[][2] = {{1, 1}, {1, 5}, {5, 1}, {2, 4}, {4, 2}, {3, 3}};
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                const int64_t outer = sizes[s][0], inner = sizes[s][1], count = outer * inner * M * K;
                struct device *device = open_alone();
                float *a = floats(device, MEMORY_HOST, count), *c = floats(device, MEMORY_HOST, count);
                for (int64_t i = 0; i < count; i++)
                        a[i] = (float)(i % 11) - 5;
                kernels_matmul(device,
                               &(struct matmul){.m = M,
                                                .n = M,
                                                .k = K,
                                                .transpose_b = true,
                                                .lda = inner * K,
                                                .ldb = inner * K,
                                                .outer = outer,
                                                .inner = inner,
                                                .stride_a = {M * inner * K, K},
                                                .stride_b = {M * inner * K, K},
                                                .stride_c = {inner * M * M, M * M}},
                               a, a, c);
                device->ops->synchronize(device);
                for (int64_t o = 0; o < outer; o++)
                        for (int64_t i = 0; i < inner; i++)
                                for (int64_t e = 0; e < M * M; e++) {
                                        const float *first = a + ((o * M + e / M) * inner + i) * K,
                                                    *second = a + ((o * M + e % M) * inner + i) * K;
                                        float sum = 0;
                                        for (int k = 0; k < K; k++)
                                                sum += first[k] * second[k];
                                        assert_true(c[(o * inner + i) * M * M + e] == sum);
                                }
                device->ops->close(device);
        }
}

/* ---- failures ---- */

static jmp_buf failed;
static char said[512];

static void catch_failure(void *context, const char *sentence)
{
        (void)context;
        snprintf(said, sizeof said, "%s", sentence);
        longjmp(failed, 1);
}

static void fail_in_copy(struct device *device, float *memory)
{
        emulated_inject("cudaMemcpyAsync", 1, cudaErrorIllegalAddress);
        device->ops->copy(device, DEVICE_HOST_TO_DEVICE, memory, memory, 4);
}

static void fail_in_launch(struct device *device, float *memory)
{
        emulated_inject("cudaLaunchKernel", 1, cudaErrorInvalidConfiguration);
        kernels_bias(device, memory, memory, 4, 2);
}

static void fail_in_product(struct device *device, float *memory)
{
        emulated_inject("cublasLtMatmul", 1, 13); /* CUBLAS_STATUS_EXECUTION_FAILED */
        kernels_matmul(device, &(struct matmul){.m = 2, .n = 2, .k = 2}, memory, memory + 16, memory + 32);
}

static void fail_in_poll(struct device *device, float *memory)
{
        (void)memory;
        device->ops->record(device, DEVICE_COMPUTE, 1);
        emulated_inject("cudaEventQuery", 1, cudaErrorIllegalAddress);
        device->ops->poll(device);
}

static void fail_in_capture(struct device *device, float *memory)
{
        emulated_inject("cudaGraphInstantiateWithFlags", 1, cudaErrorMemoryAllocation);
        add_times(device, memory, memory);
        add_times(device, memory, memory);
}

static void check_failure(void (*run)(struct device *, float *), const char *what, const char *why)
{
        struct device *device = open_alone();
        float *memory = floats(device, MEMORY_DEVICE, 64);
        device->fail = catch_failure;
        if (setjmp(failed) == 0) {
                run(device, memory);
                fail_msg("it went through: %s", what);
        }
        assert_int_equal(strncmp(said, "cuda device 0 (emulated CUDA (no GPU)): ", 40), 0);
        if (!strstr(said, what) || !strstr(said, why))
                fail_msg("'%s' and '%s' are not both in: %s", what, why, said);
        emulated_clear_report();
        device->ops->close(device);
}

static void a_call_that_fails_becomes_a_sentence(void **state)
{
        (void)state;
        check_failure(fail_in_copy, "a copy to the device failed", "an illegal memory access");
        check_failure(fail_in_launch, "kernel bias (m 4, n 2, k 0, batch 1, fp32) failed", "invalid config");
        check_failure(fail_in_product, "kernel matmul (m 2, n 2, k 2, batch 1, fp32) failed", ": ");
        check_failure(fail_in_poll, "a kernel or a copy failed", "an illegal memory access");
        check_failure(fail_in_capture, "a group of kernels as a CUDA graph failed", "out of memory");
}

static void a_machine_that_cannot_compute_is_refused_in_a_sentence(void **state)
{
        (void)state;
        const struct {
                const char *call;
                int error;
                enum rv_error code;
                const char *words;
        } cases[] = {
                {"cudaGetDeviceCount", cudaErrorNoDevice, RV_ENOTBUILT, "no NVIDIA GPU"},
                {"cudaGetDeviceCount", cudaErrorInsufficientDriver, RV_ENOTBUILT, "a newer driver"},
                {"cudaGetDeviceCount", cudaErrorInitializationError, RV_ENOTBUILT, "CUDA does not start"},
                {"cudaDriverGetVersion", cudaErrorInvalidValue, RV_ENOTBUILT, "no NVIDIA driver"},
                {"cudaGetDeviceProperties", cudaErrorInvalidDevice, RV_ESYSTEM, "cannot be opened"},
                {"cudaStreamCreateWithFlags", cudaErrorMemoryAllocation, RV_ESYSTEM, "cannot be opened"},
                {"cudaEventCreateWithFlags", cudaErrorMemoryAllocation, RV_ESYSTEM, "cannot be opened"},
                {"cudaMalloc", cudaErrorMemoryAllocation, RV_ESYSTEM, "out of memory"},
        };
        const struct device_request request = {.local_ranks = 1};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
                struct rv_error_info err = {0};
                emulated_inject(cases[i].call, 1, cases[i].error);
                assert_null(device_cuda_open(&request, &err));
                assert_int_equal(err.code, cases[i].code);
                if (!strstr(err.sentence, cases[i].words))
                        fail_msg("'%s' is not in: %s", cases[i].words, err.sentence);
                emulated_clear_report();
        }
        struct rv_error_info err = {0};
        setenv("RANVIER_EMULATED_CAPABILITY", "61", 1);
        assert_null(device_cuda_open(&request, &err));
        unsetenv("RANVIER_EMULATED_CAPABILITY");
        assert_int_equal(err.code, RV_ENOTBUILT);
        assert_non_null(strstr(err.sentence, "compute capability 6.1"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(what_is_reserved_is_one_allocation_a_space_and_is_carved),
                cmocka_unit_test(without_a_reservation_memory_is_taken_piece_by_piece_and_all_is_freed),
                cmocka_unit_test(allocations_end_at_the_limit),
                cmocka_unit_test(ranks_that_share_a_gpu_share_its_memory),
                cmocka_unit_test(a_reservation_beyond_the_memory_is_one_sentence),
                cmocka_unit_test(every_lane_s_tokens_come_in_order_and_nothing_waits),
                cmocka_unit_test(the_recorder_hears_of_kernels_in_order_and_before_a_later_token),
                cmocka_unit_test(a_group_is_captured_the_second_time_and_replayed),
                cmocka_unit_test(no_graphs_are_made_when_they_are_off),
                cmocka_unit_test(kernels_that_read_other_tokens_each_time_part_a_group),
                cmocka_unit_test(groups_of_few_kernels_are_no_graphs),
                cmocka_unit_test(the_least_recently_used_group_is_forgotten),
                cmocka_unit_test(a_shape_is_planned_once_and_odd_ones_are_two_kernels),
                cmocka_unit_test(products_that_were_timed_are_taken_again),
                cmocka_unit_test(gelu_goes_with_a_product_where_that_is_a_fusion),
                cmocka_unit_test(batches_of_two_dimensions_reach_every_matrix),
                cmocka_unit_test(a_call_that_fails_becomes_a_sentence),
                cmocka_unit_test(a_machine_that_cannot_compute_is_refused_in_a_sentence),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
