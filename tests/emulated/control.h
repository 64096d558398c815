/* What tests ask of the emulated CUDA beside its runtime: how often it was called, failures on demand, what
 * it found wrong. The plugin exports these, so that a test finds them by dlsym; all but the counters can be
 * set by environment variables too, for programs (see README.md). */
#ifndef RANVIER_TESTS_EMULATED_CONTROL_H
#define RANVIER_TESTS_EMULATED_CONTROL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Calls so far; those that returned an error count too. */
struct emulated_counters {
        int64_t mallocs, frees, host_allocs, host_frees;
        int64_t device_synchronizes; /* cudaDeviceSynchronize, and the NULL stream, which waits for all others
                                      */
        int64_t stream_synchronizes, event_synchronizes;
        int64_t graph_captures, graph_instantiations, graph_launches;
        int64_t kernel_launches; /* by the host, captured or queued; a launched graph's kernels are no more */
        int64_t kernels_run;
        int64_t copies, pageable_copies; /* the second: with host memory that is not pinned */
        int64_t memsets, products, product_refusals;
};
const struct emulated_counters *emulated_counts(void);

/* The seed of everything that a real device leaves open: the order of threads, blocks and streams. */
void emulated_set_seed(uint64_t seed);

/* The `nth` call (from 1, counted from now) of the runtime function `name` fails with `error`. */
void emulated_inject(const char *name, int nth, int error);

/* What the first kernel that did wrong did, as printed to stderr; "" if none did. `clear` forgets it, and
 * with it the error that every call returned since. */
const char *emulated_report(void);
void emulated_clear_report(void);

#ifdef __cplusplus
}
#endif
#endif
