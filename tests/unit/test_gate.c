/* Kernels that are timed wait behind gates until others are queued behind them (runtime/device/cuda/gate.h),
 * on the emulated device, whose streams run when they are polled. */
#include "runtime/device/cuda/cuda.h"
#include "runtime/device/kernels.h"
#include "tests/emulated/control.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4, COLUMNS = 64, POLLS = 2000 /* more than what is queued, which a poll runs a part of */ };

struct timed {
        struct device *device;
        void *y, *b;
        int recorded; /* kernels that the recorder was told of */
        int64_t rows; /* of the last one */
        jmp_buf failed;
        char sentence[512];
};

static void record(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct timed *timed = context;
        (void)end;
        assert_true(seconds >= 0);
        timed->recorded++;
        timed->rows = kernel->m;
}

static void keep_sentence(void *context, const char *sentence)
{
        struct timed *timed = context;
        strncpy(timed->sentence, sentence, sizeof timed->sentence - 1);
        longjmp(timed->failed, 1);
}

static void launch(struct timed *timed, int count, int rows)
{
        for (int i = 0; i < count; i++)
                kernels_bias(timed->device, timed->y, timed->b, rows, COLUMNS);
}

/* How many of the kernels launched so far run without another call than polls. */
static int recorded_by_polls(struct timed *timed)
{
        for (int i = 0; i < POLLS; i++)
                assert_int_equal(timed->device->ops->poll(timed->device), -1);
        return timed->recorded;
}

/* The kernel of ROWS rows has been met. */
static int open_device(void **state)
{
        static struct timed timed;
        struct device_request request = {.local_ranks = 1};
        struct rv_error_info err;
        memset(&timed, 0, sizeof timed);
        struct device *device = device_cuda_open(&request, &err);
        assert_non_null(device);
        timed.device = device;
        device->recorder = record;
        device->recorder_context = &timed;
        device->fail = keep_sentence;
        device->fail_context = &timed;
        timed.y = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, ROWS * COLUMNS * sizeof(float));
        timed.b = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, COLUMNS * sizeof(float));
        launch(&timed, 1, ROWS);
        device->ops->synchronize(device);
        assert_int_equal(timed.recorded, 1);
        timed.recorded = 0;
        *state = &timed;
        return 0;
}

static int close_device(void **state)
{
        struct timed *timed = *state;
        timed->device->ops->close(timed->device);
        assert_string_equal(emulated_report(), "");
        return 0;
}

static void kernels_of_a_group_wait_for_its_end(void **state)
{
        struct timed *timed = *state;
        timed->device->ops->begin_group(timed->device);
        launch(timed, 10, ROWS);
        assert_int_equal(recorded_by_polls(timed), 0);
        timed->device->ops->end_group(timed->device);
        assert_int_equal(recorded_by_polls(timed), 10);
}

static void a_gate_opens_when_the_next_is_queued(void **state)
{
        struct timed *timed = *state;
        timed->device->ops->begin_group(timed->device);
        launch(timed, CUDA_GATE_KERNELS, ROWS);
        assert_int_equal(recorded_by_polls(timed), 0);
        launch(timed, 1, ROWS);
        assert_int_equal(recorded_by_polls(timed), CUDA_GATE_KERNELS);
        launch(timed, 3 * CUDA_GATE_KERNELS, ROWS);
        assert_int_equal(recorded_by_polls(timed), 4 * CUDA_GATE_KERNELS);
        timed->device->ops->end_group(timed->device);
        timed->device->ops->synchronize(timed->device);
        assert_int_equal(timed->recorded, 4 * CUDA_GATE_KERNELS + 1);
}

static void a_kernel_without_a_group_waits_for_nothing(void **state)
{
        struct timed *timed = *state;
        const int64_t before = emulated_counts()->kernels_run;
        launch(timed, 3, ROWS);
        assert_int_equal(recorded_by_polls(timed), 3);
        assert_int_equal(emulated_counts()->kernels_run - before, 2 * 3); /* each with its gate */
}

/* Loading its code may wait for the device. */
static void a_kernel_not_met_before_opens_the_gate(void **state)
{
        struct timed *timed = *state;
        timed->device->ops->begin_group(timed->device);
        launch(timed, 3, ROWS);
        launch(timed, 1, ROWS - 1);
        assert_int_equal(recorded_by_polls(timed), 4);
        assert_int_equal(timed->rows, ROWS - 1);
        launch(timed, 1, ROWS - 1); /* is known by now */
        assert_int_equal(recorded_by_polls(timed), 4);
        timed->device->ops->end_group(timed->device);
        timed->device->ops->synchronize(timed->device);
        assert_int_equal(timed->recorded, 5);
}

/* A product of 4 x 4 whose rows of A are so far apart. */
static void multiply(struct timed *timed, int64_t apart)
{
        const struct matmul product = {.m = 4, .n = 4, .k = 4, .lda = apart};
        kernels_matmul(timed->device, &product, timed->y, timed->y, timed->b);
}

/* The library plans and loads another kernel for other leading dimensions, though shapes and addresses are
 * the same. */
static void a_product_of_other_strides_opens_the_gate(void **state)
{
        struct timed *timed = *state;
        multiply(timed, 4);
        timed->device->ops->synchronize(timed->device);
        timed->recorded = 0;
        timed->device->ops->begin_group(timed->device);
        launch(timed, 3, ROWS);
        multiply(timed, 4);
        assert_int_equal(recorded_by_polls(timed), 0);
        multiply(timed, 8);
        assert_int_equal(recorded_by_polls(timed), 5);
        timed->device->ops->end_group(timed->device);
        timed->device->ops->synchronize(timed->device);
        assert_int_equal(timed->recorded, 5);
}

static void kernels_with_no_recorder_have_no_gates(void **state)
{
        struct timed *timed = *state;
        timed->device->recorder = NULL;
        const int64_t before = emulated_counts()->kernels_run;
        launch(timed, 3, ROWS);
        timed->device->ops->synchronize(timed->device);
        assert_int_equal(emulated_counts()->kernels_run - before, 3);
}

/* The test of the tests above: where the host waits while a gate is closed, the emulation says so and ends.
 */
static void a_host_that_waits_within_a_group_is_found(void **state)
{
        struct timed *timed = *state;
        timed->device->ops->begin_group(timed->device);
        launch(timed, 1, ROWS);
        if (setjmp(timed->failed) == 0) {
                timed->device->ops->synchronize(timed->device);
                fail();
        }
        assert_non_null(strstr(emulated_report(), "waits for the host"));
        emulated_clear_report();
        timed->device->ops->end_group(timed->device);
        timed->device->ops->synchronize(timed->device);
        assert_int_equal(timed->recorded, 1);
}

static void a_gate_that_gave_up_ends_the_program(void **state)
{
        struct timed *timed = *state;
        struct cuda_device *cuda = (struct cuda_device *)timed->device;
        cuda->gate.words[1] = cuda->gate.last; /* as the kernel that is a gate does after seconds */
        if (setjmp(timed->failed) == 0) {
                timed->device->ops->poll(timed->device);
                fail();
        }
        assert_non_null(strstr(timed->sentence, "waited seconds for the host"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_device, close_device)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(kernels_of_a_group_wait_for_its_end),
                TEST(a_gate_opens_when_the_next_is_queued),
                TEST(a_kernel_without_a_group_waits_for_nothing),
                TEST(a_kernel_not_met_before_opens_the_gate),
                TEST(a_product_of_other_strides_opens_the_gate),
                TEST(kernels_with_no_recorder_have_no_gates),
                TEST(a_host_that_waits_within_a_group_is_found),
                TEST(a_gate_that_gave_up_ends_the_program),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
