/* Streams are queues that run when the host asks how far they are: then what may run next is drawn from all
 * of them at random, so that an order which nothing guarantees is not always the same. */
#include "tests/emulated/runtime.hpp"
#include "tests/emulated/check.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <string>

struct CUgraph_st {
        std::vector<emulated::work> nodes;
};
struct CUgraphExec_st {
        std::vector<emulated::work> nodes;
};
struct CUstream_st {
        std::deque<emulated::work> queue;
        bool waits_for_null;
        bool waits_for_host, waits_for_others; /* its first work does, until the next call */
        CUgraph_st *capture;                   /* NULL: does not capture */
        bool capture_lost;
        cudaStreamCaptureMode mode;
};
struct CUevent_st {
        bool timing;
        std::shared_ptr<emulated::moment> recorded; /* last; NULL: never */
};

namespace emulated
{

emulated_counters counters;
static std::vector<CUstream_st *> streams;
static CUstream_st null_stream;
static std::recursive_mutex mutex;
static random_numbers choices;
static bool choices_seeded;
static cudaError_t last_error, broken;
static std::map<const void *, size_t> shared_limits; /* cudaFuncSetAttribute's, by kernel */

struct injection {
        std::string name;
        int left;
        cudaError_t error;
};
static std::vector<injection> injections;

void close_device_memory(void);

/* ---- a call ---- */

static void read_environment(void)
{
        static bool read;
        if (read)
                return;
        read = true;
        char name[80];
        int nth, error;
        const char *given = getenv("RANVIER_EMULATED_FAIL"); /* cudaMalloc:3:2 */
        if (given && sscanf(given, "%79[^:]:%d:%d", name, &nth, &error) == 3)
                injections.push_back({name, nth, (cudaError_t)error});
}

entered::entered(const char *name) : error(broken)
{
        mutex.lock();
        for (CUstream_st *stream : streams)
                stream->waits_for_host = stream->waits_for_others = false;
        read_environment();
        for (injection &i : injections)
                if (i.name == name && --i.left == 0)
                        error = i.error;
}

entered::~entered()
{
        close_device_memory();
        mutex.unlock();
}

cudaError_t returns(cudaError_t error)
{
        if (error)
                last_error = error;
        return error;
}

void break_device(cudaError_t error)
{
        if (!broken)
                broken = error;
}

/* ---- running ---- */

static double seconds_now(void)
{
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static bool is_ready(const CUstream_st *stream)
{
        return !stream->queue.empty() && !stream->waits_for_host && !stream->waits_for_others &&
               (!stream->queue.front().wait || stream->queue.front().wait->reached);
}

/* What it waits for: cudaErrorNotReady, the host, or WAITS_FOR_OTHERS. Else cudaSuccess. */
static cudaError_t run(const work &w)
{
        open_device_memory();
        if (w.run && !broken) {
                const cudaError_t error = w.run();
                if (error == cudaErrorNotReady || error == WAITS_FOR_OTHERS)
                        return error;
                if (error)
                        break_device(error);
        }
        if (w.reach) {
                w.reach->reached = true;
                w.reach->seconds = seconds_now();
        }
        return cudaSuccess;
}

static void run_next(CUstream_st *stream)
{
        work w = std::move(stream->queue.front());
        stream->queue.pop_front();
        const cudaError_t waits = run(w);
        if (!waits)
                return;
        stream->queue.push_front(std::move(w));
        stream->waits_for_host = waits == cudaErrorNotReady;
        stream->waits_for_others = waits == WAITS_FOR_OTHERS;
}

static uint64_t chosen_below(uint64_t end)
{
        if (!choices_seeded) {
                const char *given = getenv("RANVIER_EMULATED_SEED");
                choices.seed(given ? strtoull(given, nullptr, 10) : 1);
                choices_seeded = true;
        }
        return choices.below(end);
}

/* Runs the next of one stream's queue that may run; false if there is none. */
static bool run_one(void)
{
        std::vector<CUstream_st *> ready;
        for (CUstream_st *stream : streams)
                if (is_ready(stream))
                        ready.push_back(stream);
        if (ready.empty())
                return false;
        run_next(ready[chosen_below(ready.size())]);
        return true;
}

static void run_some(void)
{
        for (uint64_t left = chosen_below(4); left > 0; left--)
                if (!run_one())
                        return;
}

void nap(void)
{
        const struct timespec soon = {0, 100000};
        nanosleep(&soon, nullptr);
}

/* Whether there is something that may run now or later, when another process has gone on. */
static bool run_one_or_wait(void)
{
        bool others = false;
        if (run_one())
                return true;
        for (CUstream_st *stream : streams) {
                others |= stream->waits_for_others && !broken;
                stream->waits_for_others = false;
        }
        if (others)
                nap();
        return others;
}

/* The host waits for something that nothing is left to run before. */
static void check_deadlock(void)
{
        for (const CUstream_st *stream : streams)
                if (stream->waits_for_host && !broken) {
                        fail(cudaErrorLaunchTimeout, "the host waits for a kernel that waits for the host");
                        break_device(cudaErrorLaunchTimeout);
                }
}

void run_all(void)
{
        while (run_one_or_wait())
                continue;
        check_deadlock();
}

static void run_until(const std::function<bool(void)> &reached)
{
        while (!reached())
                if (!run_one_or_wait())
                        return check_deadlock();
}

void run_stream(cudaStream_t stream)
{
        if (stream)
                run_until([=] { return stream->queue.empty(); });
}

/* The NULL stream waits for all blocking streams and all of them wait for it. */
static void run_on_null(const work &w)
{
        counters.device_synchronizes++;
        run_until([] {
                return std::all_of(streams.begin(), streams.end(), [](const CUstream_st *stream) {
                        return !stream->waits_for_null || stream->queue.empty();
                });
        });
        if (w.wait)
                run_until([&] { return w.wait->reached; });
        if (run(w)) {
                fail(cudaErrorLaunchTimeout, "a kernel on the NULL stream waits for the host");
                break_device(cudaErrorLaunchTimeout);
        }
}

bool is_capturing(cudaStream_t stream)
{
        return stream && stream->capture;
}

bool breaks_capture(void)
{
        bool breaks = false;
        for (CUstream_st *stream : streams)
                if (stream->capture && stream->mode != cudaStreamCaptureModeRelaxed)
                        breaks = stream->capture_lost = true;
        return breaks;
}

cudaError_t queue(cudaStream_t stream, work &&w)
{
        if (!stream) {
                if (breaks_capture())
                        return cudaErrorStreamCaptureImplicit;
                run_on_null(w);
                return broken;
        }
        if (std::find(streams.begin(), streams.end(), stream) == streams.end())
                return cudaErrorInvalidResourceHandle;
        if (stream->capture) {
                if (stream->capture_lost)
                        return cudaErrorStreamCaptureInvalidated;
                if (w.reach || w.wait) {
                        stream->capture_lost = true;
                        return cudaErrorStreamCaptureUnsupported;
                }
                stream->capture->nodes.push_back(std::move(w));
                return cudaSuccess;
        }
        stream->queue.push_back(std::move(w));
        if (chosen_below(4) == 0)
                run_some();
        return cudaSuccess;
}

/* ---- kernels ---- */

static cudaError_t check_launch(const void *function, const launch &l)
{
        const uint64_t threads = (uint64_t)l.block.x * l.block.y * l.block.z;
        if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0 || threads == 0 || threads > 1024 ||
            l.block.z > 64 || l.grid.x > INT32_MAX || l.grid.y > 65535 || l.grid.z > 65535)
                return cudaErrorInvalidConfiguration;
        const auto set = shared_limits.find(function);
        const size_t limit = set == shared_limits.end() ? (size_t)SHARED_BYTES
                                                        : std::max(set->second, (size_t)SHARED_BYTES);
        return l.shared_bytes > limit ? cudaErrorInvalidValue : cudaSuccess;
}

void queue_kernel(cudaStream_t stream, const void *function, launch &&l)
{
        entered enter("cudaLaunchKernel");
        counters.kernel_launches++;
        cudaError_t error = enter.error ? enter.error : check_launch(function, l);
        if (!error) {
                auto kept = std::make_shared<launch>(std::move(l));
                error = queue(stream, {[kept] {
                                               const cudaError_t ended = execute(*kept);
                                               counters.kernels_run += ended != cudaErrorNotReady;
                                               return ended;
                                       },
                                       nullptr, nullptr});
        }
        returns(error);
}

} // namespace emulated

using namespace emulated;

extern "C" {

const emulated_counters *emulated_counts(void)
{
        return &counters;
}

/* A program's counters, for a test that runs it. */
__attribute__((destructor)) static void write_counts(void)
{
        const char *path = getenv("RANVIER_EMULATED_COUNTS");
        FILE *file = path ? fopen(path, "a") : nullptr;
        if (!file)
                return;
        const struct emulated_counters &c = counters;
        fprintf(file,
                "{\"mallocs\": %lld, \"host_allocs\": %lld, \"device_synchronizes\": %lld, "
                "\"stream_synchronizes\": %lld, \"event_synchronizes\": %lld, \"graph_captures\": %lld, "
                "\"graph_launches\": %lld, \"kernel_launches\": %lld, \"kernels_run\": %lld, \"copies\": "
                "%lld, "
                "\"pageable_copies\": %lld, \"products\": %lld}\n",
                (long long)c.mallocs, (long long)c.host_allocs, (long long)c.device_synchronizes,
                (long long)c.stream_synchronizes, (long long)c.event_synchronizes,
                (long long)c.graph_captures, (long long)c.graph_launches, (long long)c.kernel_launches,
                (long long)c.kernels_run, (long long)c.copies, (long long)c.pageable_copies,
                (long long)c.products);
        fclose(file);
}

void emulated_inject(const char *name, int nth, int error)
{
        injections.push_back({name, nth, (cudaError_t)error});
}

void emulated_forget_report(void);
void emulated_clear_report(void)
{
        emulated_forget_report();
        broken = last_error = cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
        const cudaError_t error = broken ? broken : last_error;
        last_error = cudaSuccess;
        return error;
}

cudaError_t cudaPeekAtLastError(void)
{
        return broken ? broken : last_error;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
        ENTER();
        if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
                return cudaSuccess;
        if (value < 0 || value > SHARED_BYTES_OPTIN)
                return returns(cudaErrorInvalidValue);
        shared_limits[function] = (size_t)value;
        return cudaSuccess;
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
        ENTER();
        *stream = new CUstream_st();
        (*stream)->waits_for_null = !(flags & cudaStreamNonBlocking);
        streams.push_back(*stream);
        return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
        return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int)
{
        return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *min, int *greatest)
{
        ENTER();
        *min = 0;
        *greatest = -5;
        return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
        ENTER();
        const auto found = std::find(streams.begin(), streams.end(), stream);
        if (found == streams.end())
                return returns(cudaErrorInvalidResourceHandle);
        run_stream(stream);
        streams.erase(found);
        delete stream->capture;
        delete stream;
        return returns(broken);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        run_some();
        if (broken)
                return returns(broken);
        return returns(stream && !stream->queue.empty() ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
        ENTER();
        counters.stream_synchronizes++;
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        if (!stream)
                counters.device_synchronizes++;
        if (stream)
                run_stream(stream);
        else
                run_all();
        return returns(broken);
}

cudaError_t cudaDeviceSynchronize(void)
{
        ENTER();
        counters.device_synchronizes++;
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        run_all();
        return returns(broken);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int)
{
        ENTER();
        if (!event->recorded)
                return cudaSuccess;
        return returns(queue(stream, {nullptr, nullptr, event->recorded}));
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
        ENTER();
        *event = new CUevent_st{!(flags & cudaEventDisableTiming), nullptr};
        return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
        return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
        ENTER();
        delete event;
        return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
        ENTER();
        auto moment = std::make_shared<emulated::moment>();
        const cudaError_t error = queue(stream, {nullptr, moment, nullptr});
        if (!error)
                event->recorded = moment;
        return returns(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        run_some();
        if (broken)
                return returns(broken);
        return returns(event->recorded && !event->recorded->reached ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
        ENTER();
        counters.event_synchronizes++;
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        run_until([=] { return !event->recorded || event->recorded->reached; });
        return returns(broken);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
        ENTER();
        if (!start->timing || !end->timing || !start->recorded || !end->recorded)
                return returns(cudaErrorInvalidResourceHandle);
        if (!start->recorded->reached || !end->recorded->reached)
                return returns(cudaErrorNotReady);
        *milliseconds = (float)(1e3 * (end->recorded->seconds - start->recorded->seconds));
        return cudaSuccess;
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
        ENTER();
        counters.graph_captures++;
        if (!stream)
                return returns(cudaErrorStreamCaptureUnsupported);
        if (stream->capture)
                return returns(cudaErrorInvalidValue);
        stream->capture = new CUgraph_st();
        stream->capture_lost = false;
        stream->mode = mode;
        return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
        ENTER();
        *graph = nullptr;
        if (!is_capturing(stream))
                return returns(cudaErrorInvalidValue);
        CUgraph_st *captured = stream->capture;
        stream->capture = nullptr;
        if (stream->capture_lost) {
                delete captured;
                return returns(cudaErrorStreamCaptureInvalidated);
        }
        *graph = captured;
        return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
        ENTER();
        *status = !is_capturing(stream)  ? cudaStreamCaptureStatusNone
                  : stream->capture_lost ? cudaStreamCaptureStatusInvalidated
                                         : cudaStreamCaptureStatusActive;
        return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
        ENTER();
        if (nodes)
                return returns(cudaErrorNotSupported);
        *count = graph->nodes.size();
        return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
        ENTER();
        counters.graph_instantiations++;
        *exec = new CUgraphExec_st{graph->nodes};
        return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
        ENTER();
        return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
        ENTER();
        counters.graph_launches++;
        for (const work &node : exec->nodes)
                if (cudaError_t error = queue(stream, work(node)))
                        return returns(error);
        return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
        ENTER();
        delete exec;
        return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
        ENTER();
        delete graph;
        return cudaSuccess;
}
}
