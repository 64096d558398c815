/* Causal softmax of stored attention scores, forward and backward, for attention that is not fused. A row is
 * a warp's, or a block's where it is long; it is read a second time, from the caches, to be written. */
#include "runtime/device/cuda/reduce.cuh"

enum { WARP_VECTORS = 512, ROWS_A_BLOCK = 4, THREADS = 256 }; /* accesses of a row that a warp does alone */

/* The row of this thread, of matrices (T, T) one below the other; columns 0..t of it count. */
struct causal_row {
        int64_t at; /* of its first element */
        int64_t t;
};

static __device__ __forceinline__ struct causal_row causal_row_of(int64_t row, int64_t T, int64_t first)
{
        return {row * T, (first + row) % T};
}

/* A vector of scores, those after the diagonal as -infinity. */
template <typename T, int W>
static __device__ __forceinline__ void load_scores(float x[W], const T *row, int64_t c, int64_t t,
                                                   float scale)
{
        load_floats<W>(x, row + c);
#pragma unroll
        for (int j = 0; j < W; j++)
                x[j] = c + j <= t ? x[j] * scale : -INFINITY;
}

template <typename T, int W>
static __global__ void softmax_rows(T *s, int64_t rows, int64_t columns, int64_t first, float scale)
{
        __shared__ float shared[WARP];
        const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
        if (row >= rows)
                return; /* a whole warp: a block of one row has one */
        const struct causal_row r = causal_row_of(row, columns, first);
        const int64_t begin = (int64_t)threadIdx.x * W, stride = (int64_t)blockDim.x * W;
        float x[W], max = -INFINITY, sum = 0;
#pragma unroll 4
        for (int64_t c = begin; c <= r.t; c += stride) {
                load_scores<T, W>(x, s + r.at, c, r.t, scale);
#pragma unroll
                for (int j = 0; j < W; j++)
                        max = fmaxf(max, x[j]);
        }
        max = row_max(max, shared);
#pragma unroll 4
        for (int64_t c = begin; c <= r.t; c += stride) {
                load_scores<T, W>(x, s + r.at, c, r.t, scale);
#pragma unroll
                for (int j = 0; j < W; j++)
                        sum += exponential<T>(x[j] - max);
        }
        const float rescale = 1 / row_sum(sum, shared);
        for (int64_t c = begin; c < columns; c += stride) {
                if (c <= r.t)
                        load_scores<T, W>(x, s + r.at, c, r.t, scale);
#pragma unroll
                for (int j = 0; j < W; j++)
                        x[j] = c <= r.t ? exponential<T>(x[j] - max) * rescale : 0;
                store_floats<W>(s + r.at + c, x);
        }
}

/* dp becomes scale p (dp - sum(dp p)). */
template <typename T, int W>
static __global__ void softmax_backward_rows(T *dp, const T *__restrict__ p, int64_t rows, int64_t columns,
                                             int64_t first, float scale)
{
        __shared__ float shared[WARP];
        const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
        if (row >= rows)
                return;
        const struct causal_row r = causal_row_of(row, columns, first);
        const int64_t begin = (int64_t)threadIdx.x * W, stride = (int64_t)blockDim.x * W;
        float x[W], y[W], sum = 0;
#pragma unroll 4
        for (int64_t c = begin; c <= r.t; c += stride) {
                load_floats<W>(x, (const T *)dp + r.at + c);
                load_floats<W>(y, p + r.at + c);
#pragma unroll
                for (int j = 0; j < W; j++)
                        sum += c + j <= r.t ? x[j] * y[j] : 0;
        }
        sum = row_sum(sum, shared);
        for (int64_t c = begin; c < columns; c += stride) {
                if (c <= r.t) {
                        load_floats<W>(x, (const T *)dp + r.at + c);
                        load_floats<W>(y, p + r.at + c);
                }
#pragma unroll
                for (int j = 0; j < W; j++)
                        x[j] = c + j <= r.t ? scale * y[j] * (x[j] - sum) : 0;
                store_floats<W>(dp + r.at + c, x);
        }
}

/* How rows of `accesses` accesses are dealt out. */
struct row_grid {
        dim3 blocks, threads;
};

static struct row_grid row_grid_of(int64_t rows, int64_t accesses)
{
        if (accesses <= WARP_VECTORS)
                return {dim3((unsigned)ceil_div(rows, ROWS_A_BLOCK)), dim3(WARP, ROWS_A_BLOCK)};
        return {dim3((unsigned)rows), dim3(THREADS)};
}

template <typename T, int W>
static cudaError_t launch_softmax(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args)
{
        const int64_t rows = kernel->batch * kernel->m;
        const struct row_grid grid = row_grid_of(rows, kernel->n / W);
        CUDA_LAUNCH((softmax_rows<T, W>), grid.blocks, grid.threads, 0, stream, (T *)args->p[0], rows,
                    kernel->n, args->ld[1], (float)args->scalar[0]);
        return cudaGetLastError();
}

template <typename T>
static cudaError_t softmax(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        if (kernel->batch * kernel->m * kernel->n == 0)
                return cudaSuccess;
        return whole_vectors<T>(kernel->n, args->p[0])
                       ? launch_softmax<T, per_vector<T>>(stream, kernel, args)
                       : launch_softmax<T, 1>(stream, kernel, args);
}

cudaError_t cuda_softmax(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, softmax, stream, kernel, args);
}

template <typename T, int W>
static cudaError_t launch_softmax_backward(cudaStream_t stream, const struct kernel *kernel,
                                           const struct kernel_args *args)
{
        const int64_t rows = kernel->batch * kernel->m;
        const struct row_grid grid = row_grid_of(rows, kernel->n / W);
        CUDA_LAUNCH((softmax_backward_rows<T, W>), grid.blocks, grid.threads, 0, stream, (T *)args->p[0],
                    (const T *)args->p[1], rows, kernel->n, args->ld[1], (float)args->scalar[0]);
        return cudaGetLastError();
}

template <typename T>
static cudaError_t softmax_backward(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args)
{
        if (kernel->batch * kernel->m * kernel->n == 0)
                return cudaSuccess;
        return whole_vectors<T>(kernel->n, args->p[0], args->p[1])
                       ? launch_softmax_backward<T, per_vector<T>>(stream, kernel, args)
                       : launch_softmax_backward<T, 1>(stream, kernel, args);
}

cudaError_t cuda_softmax_backward(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, softmax_backward, stream, kernel, args);
}
