/* How a kernel runs: its blocks one after the other in an order drawn at random, a block's threads as fibers
 * of one host thread, switched at barriers and warp operations in an order drawn at random too. */
#ifndef RANVIER_TESTS_EMULATED_EXECUTE_HPP
#define RANVIER_TESTS_EMULATED_EXECUTE_HPP

#include "cuda_runtime_api.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>

struct uint3_index {
        unsigned x, y, z;
};
struct dim3 {
        unsigned x, y, z;
        constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
        {
        }
};

namespace emulated
{

/* ---- for kernels: called on a fiber ---- */

struct indices {
        uint3_index thread, block, block_size, grid_size;
};
extern indices *current_indices; /* of the thread that runs */
static inline const indices &index(void)
{
        return *current_indices;
}
int lane(void); /* of the thread that runs, in its warp */

/* Waits until every thread of the block has come. */
void barrier(void);
/* The same; how many of them brought a predicate other than 0. */
int barrier_count(int predicate);

/* Waits until every lane of `mask` has come with the same operation; the last one calls `exchange` with what
 * each lane brought, at its lane's index. */
typedef void exchange_fn(void *const lanes[32], unsigned mask);
void warp(const char *name, exchange_fn *exchange, unsigned mask, void *mine);

/* An asynchronous copy of this thread, of 16 bytes from `from` (NULL: zeros), which arrives as late as it
 * may: until then `to` is poisoned. */
void copy_later(void *to, const void *from);
void copy_commit(void);
void copy_wait(int pending);

/* The block's dynamic shared memory; and whether memory is the block's shared memory, of either kind. */
unsigned char *dynamic_shared(void);
bool is_shared(const void *pointer, size_t bytes);

/* Ends the kernel that runs, which did nothing yet: it begins again after the host's next call. */
void wait_for_host(void);

/* Ends the kernel that runs: it did what it may not. Does not return on a fiber. */
__attribute__((format(printf, 2, 3))) void fail(cudaError_t error, const char *format, ...);

/* ---- for the runtime ---- */

struct launch {
        const char *name;
        dim3 grid, block;
        size_t shared_bytes;
        void (*thread)(const void *arguments); /* one thread's run of the kernel */
        std::shared_ptr<const void> arguments;
        size_t arguments_bytes;
};
/* Runs all of it now; cudaSuccess, what `fail` was given, or cudaErrorNotReady: it waits for the host. */
cudaError_t execute(const launch &launch);

enum {
        SHARED_BYTES = 48 << 10,
        SHARED_BYTES_OPTIN = 227 << 10
}; /* of a block: without asking, and at most */

/* Queues the kernel on the stream, or an error for cudaGetLastError. */
void queue_kernel(cudaStream_t stream, const void *function, launch &&launch);

template <typename T> struct same {
        typedef T type;
};
template <typename... Parameters> struct call {
        void (*kernel)(Parameters...);
        std::tuple<Parameters...> arguments;
        static void run(const void *call_)
        {
                const call *c = static_cast<const call *>(call_);
                std::apply(c->kernel, c->arguments);
        }
};
template <typename... Parameters>
void launch_kernel(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                   size_t shared_bytes, cudaStream_t stream, typename same<Parameters>::type... arguments)
{
        typedef call<Parameters...> this_call;
        queue_kernel(stream, reinterpret_cast<const void *>(kernel),
                     {name, grid, block, shared_bytes, this_call::run,
                      std::make_shared<this_call>(this_call{kernel, {arguments...}}), sizeof(this_call)});
}

} // namespace emulated

#endif
