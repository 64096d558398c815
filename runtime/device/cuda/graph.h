/* Groups of kernels as CUDA graphs. A group that has the content of one before it (the same kernels with
 * the same operands, in the same order) is one launch: it is captured the second time that it is seen, so
 * that what is loaded or planned at a kernel's first launch is there.
 *
 * cuda.c calls cuda_graphs_begin and _end for the device's begin_group and end_group, and hands the kernels
 * between them to cuda_graphs_add. What groups there are is not said in advance: they are found again by
 * their content, since the slots and buffers of a schedule come back in any order. With a recorder, which
 * times kernels one by one, graphs are not used. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_GRAPH_H
#define RANVIER_RUNTIME_DEVICE_CUDA_GRAPH_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

/* How many groups the device knows at once; then the least recently used is forgotten. */
enum { CUDA_GRAPHS = 128 };
/* A group of fewer kernels is launched kernel by kernel, and not remembered: a graph of so few gains nothing,
 * and would take the place of one that does. */
enum { CUDA_GRAPH_KERNELS = 8 };

/* Launches one kernel on the stream that graphs are captured on. It handles its own failures: there is no
 * result. */
typedef void cuda_graph_launch_fn(void *context, const struct kernel *kernel, const struct kernel_args *args);

/* The groups that are known, and the kernels of the one that is open. */
struct cuda_graphs;
/* Makes one without groups, of which it will know `max` at once. `launch` is called with `context`. NULL
 * without memory. */
struct cuda_graphs *cuda_graphs_new(cudaStream_t stream, int max, cuda_graph_launch_fn *launch,
                                    void *context);
/* Frees all groups and their graphs; NULL is allowed. */
void cuda_graphs_delete(struct cuda_graphs *);

/* Opens a group, of which none may be open. */
void cuda_graphs_begin(struct cuda_graphs *);
/* Returns whether a group is open: between begin and end. */
bool cuda_graphs_open(const struct cuda_graphs *);
/* Adds a kernel to the open group; shapes and operands are copied, and the launch is held back. Kernels
 * whose operands change from one time to the next (tokens, the optimizer's step; see kernel_repeats) part
 * the group: they are launched by themselves, between a graph of what came before and one of what follows.
 * Returns cudaSuccess, or the error of a launch, a capture or of host memory. */
cudaError_t cuda_graphs_add(struct cuda_graphs *, const struct kernel *kernel,
                            const struct kernel_args *args);
/* Closes the group and launches what is still held back, with the same errors. */
cudaError_t cuda_graphs_end(struct cuda_graphs *);

#endif
