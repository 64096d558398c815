/* Gates: kernels that are timed wait behind one until some of them are queued, so that they run one after
 * the other and the time of a small one is not that of its launch. A gate is a kernel of one thread that
 * asks a word in host memory whether it may end.
 *
 * cuda.c uses them where a recorder is set, and only there. It calls cuda_gate_hold before each timed
 * kernel, and cuda_gate_release at the end of a group of kernels, before anything that may wait for the
 * stream, and after each kernel outside a group. A gate that the host forgets gives up after seconds, so
 * that nothing waits for ever; the device then fails, because what it measured would not be the kernels'
 * times. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_GATE_H
#define RANVIER_RUNTIME_DEVICE_CUDA_GATE_H

#include "runtime/device/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>

/* How many kernels one gate holds back. The gate before it opens when the next is queued, so that at most
 * two times as many are held back: with two events and up to four launches each (a library's attention, of
 * which a gate has a few, may be more), fewer than half of the 1024 commands that a stream takes before a
 * launch waits for it, which would never end. */
enum { CUDA_GATE_KERNELS = 32 };

/* What decides which code a kernel runs as: its shapes and the alignment of its operands. Defined in
 * gate.c. */
struct cuda_gate_form;

/* The gates of one stream. To be zero-initialised; the first cuda_gate_hold takes its memory,
 * cuda_gate_free returns it. */
struct cuda_gate {
        /* Two words of pinned memory, NULL at first: the number of the last gate that is open, which the
         * host writes, and that of one that gave up, or 0, which the gate writes. */
        volatile uint32_t *words;
        uint32_t last; /* gates so far, numbered from 1 */
        int behind;    /* kernels queued behind the last one */
        bool closed;   /* the last gate is closed */
        /* Launches wait until all before them have run (CUDA_LAUNCH_BLOCKING), so a gate would hold up the
         * host: none are put. */
        bool useless;
        struct cuda_gate_form *met; /* [capacity], of which `count` are used: kernels that ran before */
        size_t count, capacity;
};

/* Is to be called before a kernel is queued: puts a closed gate before it, unless there is room behind the
 * one that is closed. A kernel that was not met before finds all gates open, since loading its code may
 * wait for the device. The first call waits for the stream. Returns cudaSuccess, or why a gate could not be
 * put. */
cudaError_t cuda_gate_hold(struct cuda_gate *, cudaStream_t stream, const struct kernel *kernel,
                           const struct kernel_args *args);
/* Opens all gates. To be called before anything that may wait for the stream; allowed if none is closed. */
void cuda_gate_release(struct cuda_gate *);
/* Returns whether a gate gave up: the host did not open it for seconds. */
bool cuda_gate_gave_up(const struct cuda_gate *);
/* Frees what the gates have. The stream must be idle. */
void cuda_gate_free(struct cuda_gate *);

/* Queues the kernel that is a gate (gate.cu): it ends when words[0] is `turn` or a later one, or sets
 * words[1] to `turn` after `tries` looks, which take a microsecond or two each. */
cudaError_t cuda_wait_for_host(cudaStream_t stream, volatile uint32_t *words, uint32_t turn, int64_t tries);

#ifdef __cplusplus
}
#endif
#endif
