/* Where in its sequence a rank's row is: embeddings and rotary positions. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_POSITIONS_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_POSITIONS_CUH

#include "runtime/device/cuda/launch.cuh"

/* Of `T` rows of every sequence, of which the first T / 2 are `moved` from where they would begin, the others
 * `moved_later`; `first`: the number of the first row. */
struct positions {
        int T, first, moved, moved_later;
};

/* As runtime/device/kernels.h has them with embedding; T 0, where positions are not asked for, is 1. */
static inline struct positions positions_of(const struct kernel_args *args, int64_t first_row)
{
        const int64_t T = args->ld[0] > 0 ? args->ld[0] : 1;
        return {(int)T, (int)(first_row % T), (int)args->stride[0][0], (int)args->stride[0][1]};
}

/* Returns the position of row `row`. */
static __device__ __forceinline__ int position_at(struct positions of, unsigned row)
{
        const int t = (int)(((unsigned)of.first + row) % (unsigned)of.T);
        return t + (t < of.T / 2 ? of.moved : of.moved_later);
}

#endif
