/* Sums and maxima over warps and blocks, each in one fixed order: by halves within a warp, then by halves
 * over the warps. Every thread that takes part gets the result. There are no atomic additions, so the same
 * input gives the same bits. For the kernels that work on rows of a matrix: normalisations, softmax, the
 * loss, and sums of columns (gradients of biases and norms), which are made in two halves: add_strided_rows
 * by many blocks, then add_partials over what each of them left in the scratch. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_REDUCE_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_REDUCE_CUH

#include "runtime/device/cuda/element.cuh"

/* Threads of a warp, and the most of a block. */
enum { WARP = 32, MAX_THREADS = 1024 };

/* These return the sum, and the maximum, of the x of a warp's threads, all of which must call. */
template <typename T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
                x += __shfl_xor_sync(0xffffffffU, x, step);
        return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
                x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, step));
        return x;
}

/* A kernel that works on rows has a warp for each row, blockDim (32, rows), or a block for each row,
 * blockDim (threads, 1) with whole warps. row_sum and row_max are over the threads of a row, all of which
 * must call. `shared` is shared memory of WARP elements, free again for the next call; one warp alone does
 * not use it.
 *
 * share_warps writes each warp's x into `shared`, from where all threads may read it when it returns. */
template <typename T> static __device__ __forceinline__ void share_warps(T x, T *shared)
{
        __syncthreads();
        if (threadIdx.x % WARP == 0)
                shared[threadIdx.x / WARP] = x;
        __syncthreads();
}

template <typename T> static __device__ __forceinline__ T row_sum(T x, T *shared)
{
        x = warp_sum(x);
        if (blockDim.x == WARP)
                return x;
        const unsigned lane = threadIdx.x % WARP;
        share_warps(x, shared);
        return warp_sum(lane < blockDim.x / WARP ? shared[lane] : T(0));
}

static __device__ __forceinline__ float row_max(float x, float *shared)
{
        x = warp_max(x);
        if (blockDim.x == WARP)
                return x;
        const unsigned lane = threadIdx.x % WARP;
        share_warps(x, shared);
        return warp_max(shared[lane < blockDim.x / WARP ? lane : 0]);
}

/* Adds rows first, first + stride, ... of x (rows, C) to `sum`. The thread has W columns: x points to them
 * in row 0, and they are whole vectors, or W is 1. STRIDED_ROWS loads are under way at once. */
enum { STRIDED_ROWS = 4 };
template <typename T, int W>
static __device__ __forceinline__ void add_strided_rows(float sum[W], const T *__restrict__ x, int64_t first,
                                                        int64_t rows, int64_t stride, int64_t C)
{
        for (int64_t row = first; row < rows; row += STRIDED_ROWS * stride) {
                pack<T, W> some[STRIDED_ROWS];
#pragma unroll
                for (int r = 0; r < STRIDED_ROWS; r++)
                        some[r] =
                                row + r * stride < rows ? load<W>(x + (row + r * stride) * C) : zeros<T, W>();
#pragma unroll
                for (int r = 0; r < STRIDED_ROWS; r++) {
                        float y[W];
                        unpack<T, W>(y, some[r]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum[j] += y[j];
                }
        }
}

/* Makes the second half of column sums: adds to first (C), and second (C) unless it is NULL, the sum over
 * `count` rows of partials (count, columns), columns being C or 2 C. blockDim (32, 32): a block has 32
 * columns, each thread adds every 32nd row. */
template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
        add_partials(T *first, T *second, const float *__restrict__ partials, int count, int64_t C)
{
        __shared__ float shared[WARP][WARP + 1];
        const int64_t columns = second ? 2 * C : C, begin = (int64_t)blockIdx.x * WARP;
        const int64_t column = begin + threadIdx.x;
        float sum = 0;
        if (column < columns) {
#pragma unroll 4
                for (int row = (int)threadIdx.y; row < count; row += WARP)
                        sum += partials[row * columns + column];
        }
        shared[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        sum = warp_sum(shared[threadIdx.x][threadIdx.y]);
        const int64_t mine = begin + threadIdx.y;
        if (threadIdx.x != 0 || mine >= columns)
                return;
        T *to = mine < C ? first + mine : second + (mine - C);
        *to = from_float<T>(to_float(*to) + sum);
}

template <typename T>
static cudaError_t launch_add_partials_to(cudaStream_t stream, void *first, void *second,
                                          const float *partials, int64_t count, int64_t C)
{
        const int64_t columns = second ? 2 * C : C;
        CUDA_LAUNCH((add_partials<T>), dim3((unsigned)ceil_div(columns, WARP)), dim3(WARP, WARP), 0, stream,
                    (T *)first, (T *)second, partials, (int)count, C);
        return cudaGetLastError();
}

/* Launches it for gradients that are stored as T or, `wide`, in fp32. Returns what cudaGetLastError says
 * afterwards. */
template <typename T>
static cudaError_t launch_add_partials(cudaStream_t stream, bool wide, void *first, void *second,
                                       const float *partials, int64_t count, int64_t C)
{
        return wide ? launch_add_partials_to<float>(stream, first, second, partials, count, C)
                    : launch_add_partials_to<T>(stream, first, second, partials, count, C);
}

#endif
