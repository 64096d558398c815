/* Groups of kernels as CUDA graphs. A group that has the content of one before it (the same kernels with the
 * same operands, in the same order) is one launch: it is captured the second time that it is seen, so that
 * what is loaded or planned at a kernel's first launch is there. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_GRAPH_H
#define RANVIER_RUNTIME_DEVICE_CUDA_GRAPH_H

#include "runtime/device/device.h"

#include <cuda_runtime_api.h>

enum { CUDA_GRAPHS = 128 }; /* groups that are known at once; then the least recently used is forgotten */

/* Launches one kernel on the stream that graphs are captured on. */
typedef void cuda_graph_launch_fn(void *context, const struct kernel *kernel, const struct kernel_args *args);

struct cuda_graphs;
/* NULL without memory. `most`: as CUDA_GRAPHS. */
struct cuda_graphs *cuda_graphs_new(cudaStream_t stream, int max, cuda_graph_launch_fn *launch,
                                    void *context);
void cuda_graphs_delete(struct cuda_graphs *);

void cuda_graphs_begin(struct cuda_graphs *);
bool cuda_graphs_open(const struct cuda_graphs *); /* between begin and end */
/* A kernel of the group. Those whose operands change from one time to the next (tokens, the optimizer's step)
 * part it: they are launched by themselves, between a graph of what came before and one of what follows. */
cudaError_t cuda_graphs_add(struct cuda_graphs *, const struct kernel *kernel,
                            const struct kernel_args *args);
cudaError_t cuda_graphs_end(struct cuda_graphs *);

#endif
