/* Gates: kernels that are timed wait behind one until some of them are queued, so that they run one after the
 * other and the time of a small one is not that of its launch. A gate is a kernel of one thread that asks
 * a word in host memory whether it may end. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_GATE_H
#define RANVIER_RUNTIME_DEVICE_CUDA_GATE_H

#include "runtime/device/cuda/launch.h"

#ifdef __cplusplus
extern "C" {
#endif

#include <stdbool.h>
#include <stddef.h>

/* Kernels behind a gate. The one before it opens when the next is queued, so that at most two times as many
 * are held back: with two events and up to four launches each, fewer than half of the 1024 commands that a
 * stream takes before a launch waits for it, which would never end. */
enum { CUDA_GATE_KERNELS = 32 };

struct cuda_gate_form; /* which of its variants a kernel runs as */

/* Zero-initialise. Gates are on one stream. */
struct cuda_gate {
        volatile uint32_t *words; /* pinned: the last gate that is open; one that gave up, or 0 */
        uint32_t last;            /* gates so far, numbered from 1 */
        int behind;               /* kernels queued behind the last one */
        bool closed;              /* the last one is */
        bool useless;             /* launches wait until all before them have run (CUDA_LAUNCH_BLOCKING) */
        struct cuda_gate_form *met;
        size_t count, capacity;
};

/* Before a kernel is queued: closes a gate before it, unless enough room is behind the one that is closed. A
 * kernel that was not met before finds all gates open, since loading its code may wait for the device. The
 * first call waits for the stream. */
cudaError_t cuda_gate_hold(struct cuda_gate *, cudaStream_t stream, const struct kernel *kernel,
                           const struct kernel_args *args);
/* Opens all gates: before anything that may wait for the stream. */
void cuda_gate_release(struct cuda_gate *);
/* Whether a gate gave up: the host did not open it for seconds. */
bool cuda_gate_gave_up(const struct cuda_gate *);
/* The stream is idle. */
void cuda_gate_free(struct cuda_gate *);

/* gate.cu. The kernel that is a gate: it ends when words[0] is `turn` or a later one, or sets words[1] to
 * `turn` after `tries` looks, which take a microsecond or two each. */
cudaError_t cuda_wait_for_host(cudaStream_t stream, volatile uint32_t *words, uint32_t turn, int64_t tries);

#ifdef __cplusplus
}
#endif
#endif
