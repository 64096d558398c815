/* Device memory is host memory that host code cannot reach: its pages are protected except while the runtime
 * runs kernels and copies. Every allocation has pages of its own, with unmapped ones between. */
#include "tests/emulated/check.hpp"
#include "tests/emulated/runtime.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <unistd.h>

namespace emulated
{

enum { HUGE_PAGE = 2 << 20 };

struct block {
        size_t bytes, mapped_bytes;
        bool device;
        void *region; /* with the unmapped pages around it; null: memory of others, registered */
        size_t region_bytes;
};
static std::map<const unsigned char *, block> blocks; /* by their start */
static size_t device_bytes;
static bool opened;
static struct sigaction previous_action;

static void forget_recent(void)
{
        for (int i = RECENT; i < WRITABLE; i++)
                ranges[i] = {nullptr, 0};
}

static size_t whole_pages(size_t bytes)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        return (bytes + page - 1) / page * page;
}

static const std::pair<const unsigned char *const, block> *block_with(const void *pointer, size_t bytes)
{
        const unsigned char *p = (const unsigned char *)pointer;
        auto after = blocks.upper_bound(p);
        if (after == blocks.begin())
                return nullptr;
        --after;
        return p + bytes <= after->first + after->second.bytes ? &*after : nullptr;
}

enum memory memory_of(const void *pointer)
{
        const auto *found = block_with(pointer, 1);
        return !found ? memory::pageable : found->second.device ? memory::device : memory::pinned;
}

bool is_allocated(const void *pointer, size_t bytes)
{
        return block_with(pointer, bytes) != nullptr;
}

static void protect(int protection)
{
        for (const auto &b : blocks)
                if (b.second.device)
                        mprotect((void *)b.first, b.second.mapped_bytes, protection);
        opened = protection != PROT_NONE;
}

void open_device_memory(void)
{
        if (!opened)
                protect(PROT_READ | PROT_WRITE);
}

void close_device_memory(void)
{
        if (opened)
                protect(PROT_NONE);
}

static void say_what_was_touched(int signal, siginfo_t *info, void *)
{
        if (memory_of(info->si_addr) == memory::device) {
                static const char sentence[] = "emulated CUDA: host code touched device memory\n";
                if (write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0)
                        _exit(1);
        } else if (kernel_runs) {
                static const char sentence[] = "emulated CUDA: a kernel touched memory that does not exist\n";
                if (write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0)
                        _exit(1);
        }
        sigaction(signal, &previous_action, nullptr); /* the access is tried again, and ends there */
}

static void watch_accesses(void)
{
        static bool watching;
        if (watching)
                return;
        watching = true;
        struct sigaction action = {};
        action.sa_sigaction = say_what_was_touched;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &previous_action);
}

static size_t device_total(void)
{
        const char *given = getenv("RANVIER_EMULATED_MEMORY");
        return given ? strtoull(given, nullptr, 10) : (size_t)2 << 30;
}

static size_t device_free(void)
{
        const char *given = getenv("RANVIER_EMULATED_OTHERS");
        const size_t taken = device_bytes + (given ? strtoull(given, nullptr, 10) : 0);
        return taken < device_total() ? device_total() - taken : 0;
}

/* Fresh memory holds nothing that could be taken for zeros: as a number of any width it is NaN, or -1. */
static cudaError_t allocate(void **pointer, size_t bytes, bool device)
{
        if (!pointer)
                return cudaErrorInvalidValue;
        *pointer = nullptr;
        if (bytes == 0)
                return cudaSuccess;
        const size_t mapped = whole_pages(bytes), page = whole_pages(1);
        if (device && (mapped < bytes || mapped > device_free()))
                return cudaErrorMemoryAllocation;
        /* Huge pages, because the protection of thousands of small ones takes long to change. */
        const size_t huge = mapped < HUGE_PAGE ? page : (size_t)HUGE_PAGE, around = mapped + page + huge;
        unsigned char *region =
                (unsigned char *)mmap(nullptr, around, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (region == MAP_FAILED)
                return cudaErrorMemoryAllocation;
        unsigned char *start = (unsigned char *)(((uintptr_t)region + huge) / huge * huge);
        mprotect(start, mapped, PROT_READ | PROT_WRITE);
        madvise(start, mapped, MADV_HUGEPAGE);
        memset(start, 0xff, mapped);
        if (device && !opened)
                mprotect(start, mapped, PROT_NONE);
        blocks[start] = {bytes, mapped, device, region, around};
        forget_recent();
        if (device)
                device_bytes += mapped;
        watch_accesses();
        *pointer = start;
        return cudaSuccess;
}

static cudaError_t release(void *pointer, bool device)
{
        if (!pointer)
                return cudaSuccess;
        const auto found = blocks.find((const unsigned char *)pointer);
        if (found == blocks.end() || found->second.device != device || !found->second.region)
                return cudaErrorInvalidValue;
        run_all(); /* as a real one waits */
        const size_t mapped = found->second.mapped_bytes;
        munmap(found->second.region, found->second.region_bytes);
        blocks.erase(found);
        forget_recent();
        if (device)
                device_bytes -= mapped;
        return cudaSuccess;
}

void check_access(const void *pointer, size_t bytes, bool write)
{
        static int oldest;
        if (!kernel_runs || reach_static(pointer, bytes))
                return;
        const auto *found = block_with(pointer, bytes);
        if (!found)
                fail(cudaErrorIllegalAddress,
                     "%s of %zu bytes at %p, which is no memory of the device nor cudaHostAlloc's",
                     write ? "a write" : "a read", bytes, pointer);
        oldest = (oldest + 1) % (WRITABLE - RECENT);
        ranges[RECENT + oldest] = {found->first, found->second.bytes};
}

/* A whole range in memory that one side of a copy may be in. */
static bool is_range(const void *pointer, size_t bytes)
{
        return memory_of(pointer) == memory::pageable || is_allocated(pointer, bytes);
}

static bool is_kind(const void *pointer, bool device)
{
        return (memory_of(pointer) == memory::device) == device;
}

static bool is_direction(const void *to, const void *from, enum cudaMemcpyKind kind)
{
        switch (kind) {
        case cudaMemcpyHostToHost:
                return is_kind(to, false) && is_kind(from, false);
        case cudaMemcpyHostToDevice:
                return is_kind(to, true) && is_kind(from, false);
        case cudaMemcpyDeviceToHost:
                return is_kind(to, false) && is_kind(from, true);
        case cudaMemcpyDeviceToDevice:
                return is_kind(to, true) && is_kind(from, true);
        case cudaMemcpyDefault:
                return true;
        }
        return false;
}

/* Pageable memory is read before the call returns, and has been written when it does. */
static cudaError_t copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                        cudaStream_t stream)
{
        counters.copies++;
        if (bytes == 0)
                return cudaSuccess;
        if (!to || !from || !is_direction(to, from, kind) || !is_range(to, bytes) || !is_range(from, bytes))
                return cudaErrorInvalidValue;
        const bool from_pageable = memory_of(from) == memory::pageable;
        const bool to_pageable = memory_of(to) == memory::pageable;
        if (from_pageable || to_pageable) {
                counters.pageable_copies++;
                if (is_capturing(stream))
                        return cudaErrorStreamCaptureUnsupported;
        }
        std::shared_ptr<std::vector<unsigned char>> staged;
        if (from_pageable) {
                run_stream(stream);
                const unsigned char *start = (const unsigned char *)from;
                staged = std::make_shared<std::vector<unsigned char>>(start, start + bytes);
        }
        const cudaError_t error = queue(stream, {[=] {
                                                         memmove(to, staged ? staged->data() : from, bytes);
                                                         return cudaSuccess;
                                                 },
                                                 nullptr, nullptr});
        if (to_pageable)
                run_stream(stream);
        return error;
}

} // namespace emulated

using namespace emulated;

extern "C" {

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
        ENTER();
        *total = device_total();
        *available = device_free();
        return cudaSuccess;
}

cudaError_t cudaMalloc(void **pointer, size_t bytes)
{
        counters.mallocs++;
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        return returns(allocate(pointer, bytes, true));
}

cudaError_t cudaFree(void *pointer)
{
        counters.frees++;
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        return returns(release(pointer, true));
}

cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned int)
{
        counters.host_allocs++;
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        return returns(allocate(pointer, bytes, false));
}

cudaError_t cudaMallocHost(void **pointer, size_t bytes)
{
        return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void *pointer)
{
        counters.host_frees++;
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        return returns(release(pointer, false));
}

cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned int)
{
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureUnsupported);
        if (!pointer || bytes == 0 || memory_of(pointer) != memory::pageable)
                return returns(cudaErrorInvalidValue);
        blocks[static_cast<unsigned char *>(pointer)] = {bytes, bytes, false, nullptr, 0};
        forget_recent();
        return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *pointer)
{
        ENTER();
        const auto found = blocks.find(static_cast<const unsigned char *>(pointer));
        if (found == blocks.end() || found->second.device || found->second.region)
                return returns(cudaErrorInvalidValue);
        run_all(); /* as a real one waits */
        blocks.erase(found);
        forget_recent();
        return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int)
{
        ENTER();
        if (memory_of(host) != memory::pinned)
                return returns(cudaErrorInvalidValue);
        *device = host;
        return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *pointer)
{
        ENTER();
        const enum memory m = memory_of(pointer);
        void *p = const_cast<void *>(pointer);
        attributes->type = m == memory::device   ? cudaMemoryTypeDevice
                           : m == memory::pinned ? cudaMemoryTypeHost
                                                 : cudaMemoryTypeUnregistered;
        attributes->device = m == memory::pageable ? -1 : 0;
        attributes->devicePointer = m == memory::pageable ? nullptr : p;
        attributes->hostPointer = m == memory::device ? nullptr : p;
        return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
        ENTER();
        return returns(copy(to, from, bytes, kind, stream));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
        ENTER();
        if (breaks_capture())
                return returns(cudaErrorStreamCaptureImplicit);
        return returns(copy(to, from, bytes, kind, nullptr));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
        ENTER();
        counters.memsets++;
        if (bytes == 0)
                return cudaSuccess;
        if (memory_of(to) == memory::pageable || !is_allocated(to, bytes))
                return returns(cudaErrorInvalidValue);
        return returns(queue(stream, {[=] {
                                              memset(to, value, bytes);
                                              return cudaSuccess;
                                      },
                                      nullptr, nullptr}));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
        return cudaMemsetAsync(to, value, bytes, nullptr);
}
}
