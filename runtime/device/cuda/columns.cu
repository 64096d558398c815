/* Columns of rows, copied: split and joined, narrowed and widened. Each is rows and their two parts, of which
 * one may be missing.
 *
 * A warp has 32 neighbouring vectors of a row and as many of the rows below it, as in elementwise.cu. */
#include "runtime/device/cuda/reduce.cuh"

enum { ROWS = 4, WARPS = 8, MAX_BLOCKS_Y = 65535 }; /* rows that a thread has at once; warps of a block */

/* Rows `all` (m, n + k) are `left` (m,n) beside `right` (m,k). Without a right part its columns are left out,
 * or, where `all` is written, are zeros. Without a left part its columns are left as they are. */
template <typename T> struct column_operands {
        T *all, *left, *right;
        int64_t m, n, k;
};

/* The part of a row that has this column, from there on; NULL: none. */
template <typename T>
static __device__ __forceinline__ T *part_at(const struct column_operands<T> &of, int64_t row, int64_t column)
{
        if (column < of.n)
                return of.left + row * of.n + column;
        return of.right ? of.right + row * of.k + (column - of.n) : NULL;
}

template <typename T, int W, bool joins>
static __global__ void __launch_bounds__(WARP *WARPS)
        copy_columns(struct column_operands<T> of, int64_t begin, int64_t end)
{
        const int64_t column = begin + ((int64_t)blockIdx.x * WARP + threadIdx.x) * W, wide = of.n + of.k;
        if (column >= end)
                return;
        const int64_t stride = (int64_t)gridDim.y * WARPS;
        for (int64_t row = (int64_t)blockIdx.y * WARPS + threadIdx.y; row < of.m; row += ROWS * stride) {
                pack<T, W> copied[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const int64_t at = row + r * stride;
                        if (at >= of.m)
                                continue;
                        const T *from = joins ? part_at(of, at, column) : of.all + at * wide + column;
                        copied[r] = from ? load<W>(from) : zeros<T, W>();
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        const int64_t at = row + r * stride;
                        if (at < of.m)
                                store<W>(joins ? of.all + at * wide + column : part_at(of, at, column),
                                         copied[r]);
                }
        }
}

template <typename T, int W, bool joins>
static cudaError_t launch_columns(cudaStream_t stream, const struct column_operands<T> *of)
{
        const int64_t begin = of->left ? 0 : of->n, end = joins || of->right ? of->n + of->k : of->n;
        const int64_t below = min_int64(ceil_div(of->m, ROWS * WARPS), MAX_BLOCKS_Y);
        const dim3 blocks((unsigned)ceil_div(end - begin, WARP * W), (unsigned)below);
        CUDA_LAUNCH((copy_columns<T, W, joins>), blocks, dim3(WARP, WARPS), 0, stream, *of, begin, end);
        return cudaGetLastError();
}

template <typename T, bool joins>
static cudaError_t columns(cudaStream_t stream, const struct column_operands<T> &of)
{
        if (of.m == 0 || of.n + of.k == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.n, of.all, of.left, of.right) && whole_vectors<T>(of.k))
                return launch_columns<T, per_vector<T>, joins>(stream, &of);
        return launch_columns<T, 1, joins>(stream, &of);
}

template <typename T>
static cudaError_t split_columns(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args)
{
        return columns<T, false>(
                stream, {(T *)args->p[2], (T *)args->p[0], (T *)args->p[1], kernel->m, kernel->n, kernel->k});
}

template <typename T>
static cudaError_t join_columns(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args)
{
        return columns<T, true>(
                stream, {(T *)args->p[0], (T *)args->p[1], (T *)args->p[2], kernel->m, kernel->n, kernel->k});
}

template <typename T>
static cudaError_t narrow(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return columns<T, false>(stream, {(T *)args->p[1], (T *)args->p[0], NULL, kernel->m, kernel->n,
                                          kernel->k - kernel->n});
}

template <typename T>
static cudaError_t last_columns(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args)
{
        return columns<T, false>(stream, {(T *)args->p[1], NULL, (T *)args->p[0], kernel->m,
                                          kernel->k - kernel->n, kernel->n});
}

template <typename T>
static cudaError_t set_last_columns(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args)
{
        return columns<T, true>(stream, {(T *)args->p[0], NULL, (T *)args->p[1], kernel->m,
                                         kernel->k - kernel->n, kernel->n});
}

template <typename T>
static cudaError_t widen(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return columns<T, true>(stream, {(T *)args->p[0], (T *)args->p[1], NULL, kernel->m, kernel->n,
                                         kernel->k - kernel->n});
}

cudaError_t cuda_split_columns(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, split_columns, stream, kernel, args);
}

cudaError_t cuda_join_columns(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, join_columns, stream, kernel, args);
}

cudaError_t cuda_narrow(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                        const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, narrow, stream, kernel, args);
}

cudaError_t cuda_last_columns(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, last_columns, stream, kernel, args);
}

cudaError_t cuda_set_last_columns(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, set_last_columns, stream, kernel, args);
}

cudaError_t cuda_widen(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                       const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, widen, stream, kernel, args);
}
