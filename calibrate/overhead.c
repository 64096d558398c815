#include "calibrate/overhead.h"

#include "runtime/device/kernels.h"

/* Fewer than a GPU's queue holds, so that the host never waits for the device; more than the way there and
 * back takes. */
enum { KERNELS = 256, WIDTH = 64, TOKEN_LAUNCHED = 0 };

/* A device and the operands of a kernel that has nothing to do. */
struct launcher {
        struct device *device;
        void *y, *b;
};

/* A group that is launched for the third time is a graph that has been launched before. */
static const int WARM_UP = 2;

static void launch_all(const struct launcher *launcher, struct net *net, bool graph, struct samples *samples)
{
        struct device *device = launcher->device;
        const double start = device_seconds();
        if (graph && device->ops->begin_group)
                device->ops->begin_group(device);
        for (int i = 0; i < KERNELS; i++)
                kernels_bias(device, launcher->y, launcher->b, 1, WIDTH);
        if (graph && device->ops->end_group)
                device->ops->end_group(device);
        const double launched = device_seconds();
        device->ops->record(device, DEVICE_COMPUTE, TOKEN_LAUNCHED);
        bench_poll_until(device, net, TOKEN_LAUNCHED);
        if (!samples)
                return;
        series_add(&samples->launches[graph][0], (launched - start) / KERNELS);
        series_add(&samples->launches[graph][1], (device_seconds() - start) / KERNELS);
}

static void note(void *context, const struct kernel *kernel, double seconds, double end)
{
        struct samples *samples = context;
        (void)kernel;
        (void)end;
        if (samples)
                series_add(&samples->recorded, seconds);
}

/* As kernels of a pass are timed, launched together and each between two events. */
static void launch_timed(const struct launcher *launcher, struct samples *samples)
{
        enum { TIMED_KERNELS = 64 };
        struct device *device = launcher->device;
        device->recorder = note;
        device->recorder_context = samples;
        device->ops->begin_group(device);
        for (int i = 0; i < TIMED_KERNELS; i++)
                kernels_bias(device, launcher->y, launcher->b, 1, WIDTH);
        device->ops->end_group(device);
        device->ops->synchronize(device);
        device->recorder = NULL;
}

static int open_launcher(struct launcher *launcher, const struct request *request, bool graph,
                         struct rv_error_info *err)
{
        const int64_t bytes = memory_aligned(WIDTH * (int64_t)sizeof(real));
        launcher->device = bench_device(request, graph, err);
        if (!launcher->device)
                return err->code;
        struct device *device = launcher->device;
        const int64_t reserved[MEMORY_SPACES] = {[MEMORY_DEVICE] = 2 * bytes};
        if (device_reserve(device, reserved, err) != RV_OK)
                return err->code;
        launcher->y = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
        launcher->b = device->ops->alloc(device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
        if (!launcher->y || !launcher->b)
                return rv_fail(err, RV_ESYSTEM, "no memory for a kernel of %d elements", WIDTH);
        return RV_OK;
}

int overhead_launches(struct net *net, const struct request *request, int repetitions,
                      struct samples *samples, struct rv_error_info *err)
{
        int rc = RV_OK;
        if (!request_gpu(request))
                return rc;
        for (int graph = 0; graph < 2 && rc == RV_OK; graph++) {
                struct launcher launcher = {0};
                rc = open_launcher(&launcher, request, graph, err);
                for (int i = -WARM_UP; i < repetitions && rc == RV_OK; i++)
                        launch_all(&launcher, net, graph, i < 0 ? NULL : samples);
                for (int i = -WARM_UP; i < repetitions && rc == RV_OK && !graph; i++)
                        if (launcher.device->ops->begin_group)
                                launch_timed(&launcher, i < 0 ? NULL : samples);
                if (launcher.device)
                        launcher.device->ops->close(launcher.device);
        }
        return rc;
}
