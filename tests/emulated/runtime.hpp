/* What the files of the emulated runtime share: entering a call, memory, streams. */
#ifndef RANVIER_TESTS_EMULATED_RUNTIME_HPP
#define RANVIER_TESTS_EMULATED_RUNTIME_HPP

#include "tests/emulated/control.h"
#include "tests/emulated/execute.hpp"
#include "tests/emulated/random.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace emulated
{

extern emulated_counters counters;

/* One call of the runtime: one at a time, and device memory is out of the host's reach again when it ends. */
struct entered {
        cudaError_t error; /* what the call returns at once: an injected failure, or an earlier kernel's */
        explicit entered(const char *name);
        ~entered();
        entered(const entered &) = delete;
        entered &operator=(const entered &) = delete;
};
cudaError_t returns(cudaError_t error); /* `error`, which cudaGetLastError returns too if it is one */
void break_device(cudaError_t error);   /* every call returns it from now on */

#define ENTER()                                                                                              \
        emulated::entered enter(__func__);                                                                   \
        if (enter.error)                                                                                     \
        return emulated::returns(enter.error)

/* Until the end of the call, kernels and copies reach device memory. */
void open_device_memory(void);

enum class memory { pageable, pinned, device };
enum memory memory_of(const void *pointer);

/* Work queued on a stream: something to run, an event to mark, or one to wait for. */
struct moment {
        bool reached;
        double seconds;
};
/* What `run` returns of work that waits for another process; of a kernel that waits for the host,
 * cudaErrorNotReady. Either begins again later. */
constexpr cudaError_t WAITS_FOR_OTHERS = (cudaError_t)-1;
struct work {
        std::function<cudaError_t(void)> run;
        std::shared_ptr<moment> reach, wait;
};

/* Queues on `stream`, or on the graph that it captures. */
cudaError_t queue(cudaStream_t stream, work &&w);
void run_stream(cudaStream_t stream); /* all that is queued on it, and what that waits for */
void run_all(void);
void nap(void); /* while other processes go on */
bool is_capturing(cudaStream_t stream);
/* A call that must not be made while a stream captures: the capture is lost. */
bool breaks_capture(void);

} // namespace emulated

#endif
