/* SwiGLU and its gradient, with a weight for each row or without: one pass over their rows, which
 * elementwise.cu says more of. The gradient of a row's weight is a sum over the row, so that there a block
 * has whole rows. */
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

enum { WARPS = 8, MAX_BLOCKS_Y = 65535, WEIGHTED_THREADS = 256 };

/* Rows that a thread has at once. */
template <bool backward> constexpr int rows_at_once = backward ? 2 : 4;

/* gu and, backward, dgu are (m, 2 n): a row has n gates, then n of what they are for. Forward writes y (m,n),
 * backward reads dy (m,n). Weights w (m), and dw (m), which backward writes, are NULL where there are none.
 */
template <typename T> struct swiglu_operands {
        T *y;
        const T *gu, *dy;
        T *dgu;
        int64_t m, n;
        const float *w;
        float *dw;
        const int32_t *ends; /* [experts] */
        int experts;         /* 0: there are m rows */
};

/* 1 / (1 + e^-g) is quotient(1, 1 + this). The bound keeps it and 1 + it finite; NaN comes back through g. */
template <typename T> static __device__ __forceinline__ float gate_exponential(float g)
{
        return exponential<T>(fminf(-g, 80));
}

/* The row's weight is 1 where there is none. */
template <typename T, int W>
static __device__ __forceinline__ void store_forward(T *y, const pack<T, W> &gate, const pack<T, W> &up,
                                                     float weight)
{
        float g[W], u[W];
        unpack<T, W>(g, gate);
        unpack<T, W>(u, up);
#pragma unroll
        for (int i = 0; i < W; i++)
                u[i] *= quotient<T>(g[i], 1 + gate_exponential<T>(g[i])) * weight;
        store_floats<W>(y, u);
}

/* The slope of silu at g is s + g s (1 - s) with the logistic s, and 1 - s as e^-g s so that nothing cancels.
 * Returns what these elements add to the gradient of the row's weight. */
template <typename T, int W>
static __device__ __forceinline__ float store_backward(T *dgate, T *dup, const pack<T, W> &stored_dy,
                                                       const pack<T, W> &gate, const pack<T, W> &up,
                                                       float weight)
{
        float dy[W], g[W], u[W];
        unpack<T, W>(dy, stored_dy);
        unpack<T, W>(g, gate);
        unpack<T, W>(u, up);
        float dw = 0;
#pragma unroll
        for (int i = 0; i < W; i++) {
                const float e = gate_exponential<T>(g[i]), s = quotient<T>(1, 1 + e), silu = g[i] * s;
                dw += dy[i] * silu * u[i];
                g[i] = weight * dy[i] * u[i] * (s + silu * (e * s));
                u[i] = weight * dy[i] * silu;
        }
        store_floats<W>(dgate, g);
        store_floats<W>(dup, u);
        return dw;
}

/* Those that there are, which may be more than m: the grid goes on until none is left. */
template <typename T> static __device__ __forceinline__ int64_t rows_of(const struct swiglu_operands<T> &of)
{
        return of.experts > 0 ? of.ends[of.experts - 1] : of.m;
}

template <typename T, int W, bool backward, bool weighted>
static __global__ void __launch_bounds__(WARP *WARPS) swiglu_rows(struct swiglu_operands<T> of)
{
        constexpr int rows = rows_at_once<backward>;
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        if (column >= of.n)
                return;
        const int64_t stride = (int64_t)gridDim.y * WARPS;
        const int64_t m = rows_of(of);
        for (int64_t row = (int64_t)blockIdx.y * WARPS + threadIdx.y; row < m; row += rows * stride) {
                pack<T, W> gate[rows], up[rows], dy[rows];
#pragma unroll
                for (int r = 0; r < rows; r++) {
                        if (row + r * stride >= m)
                                continue;
                        const int64_t at = (row + r * stride) * of.n + column, wide = 2 * at - column;
                        gate[r] = load<W>(of.gu + wide);
                        up[r] = load<W>(of.gu + wide + of.n);
                        if constexpr (backward)
                                dy[r] = load<W>(of.dy + at);
                }
#pragma unroll
                for (int r = 0; r < rows; r++) {
                        if (row + r * stride >= m)
                                continue;
                        const int64_t at = (row + r * stride) * of.n + column, wide = 2 * at - column;
                        if constexpr (backward)
                                store_backward<T, W>(of.dgu + wide, of.dgu + wide + of.n, dy[r], gate[r],
                                                     up[r], 1);
                        else
                                store_forward<T, W>(of.y + at, gate[r], up[r],
                                                    weighted ? of.w[row + r * stride] : 1);
                }
        }
}

/* Backward with weights: a block has whole rows, of each of which it makes dw. */
template <typename T, int W>
static __global__ void __launch_bounds__(WEIGHTED_THREADS)
        weighted_swiglu_gradients(struct swiglu_operands<T> of)
{
        __shared__ float shared[WARP];
        const int64_t m = rows_of(of);
        for (int64_t row = blockIdx.x; row < m; row += gridDim.x) {
                const T *gate = of.gu + row * 2 * of.n, *dy = of.dy + row * of.n;
                T *dgate = of.dgu + row * 2 * of.n;
                const float weight = of.w[row];
                float dw = 0;
                for (int64_t column = (int64_t)threadIdx.x * W; column < of.n; column += blockDim.x * W)
                        dw += store_backward<T, W>(dgate + column, dgate + of.n + column,
                                                   load<W>(dy + column), load<W>(gate + column),
                                                   load<W>(gate + of.n + column), weight);
                dw = row_sum(dw, shared);
                if (threadIdx.x == 0)
                        of.dw[row] = dw;
        }
}

template <typename T, int W, bool backward, bool weighted>
static cudaError_t launch_rows(cudaStream_t stream, const struct swiglu_operands<T> *of)
{
        const int64_t below = ceil_div(of->m, rows_at_once<backward> * WARPS);
        CUDA_LAUNCH((swiglu_rows<T, W, backward, weighted>),
                    dim3((unsigned)ceil_div(of->n, WARP * W), (unsigned)min_int64(below, MAX_BLOCKS_Y)),
                    dim3(WARP, WARPS), 0, stream, *of);
        return cudaGetLastError();
}

template <typename T, int W>
static cudaError_t launch_weighted_gradients(cudaStream_t stream, const struct swiglu_operands<T> *of)
{
        CUDA_LAUNCH((weighted_swiglu_gradients<T, W>), dim3((unsigned)min_int64(of->m, INT_MAX)),
                    dim3(whole_warps(ceil_div(of->n, W), WEIGHTED_THREADS)), 0, stream, *of);
        return cudaGetLastError();
}

template <typename T, int W, bool backward>
static cudaError_t launch_vectors(cudaStream_t stream, const struct swiglu_operands<T> *of)
{
        if constexpr (backward)
                return of->w ? launch_weighted_gradients<T, W>(stream, of)
                             : launch_rows<T, W, true, false>(stream, of);
        else
                return of->w ? launch_rows<T, W, false, true>(stream, of)
                             : launch_rows<T, W, false, false>(stream, of);
}

template <typename T, bool backward>
static cudaError_t launch_swiglu(cudaStream_t stream, const struct swiglu_operands<T> &of)
{
        if (of.m == 0 || of.n == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.n, of.y, of.gu, of.dy, of.dgu))
                return launch_vectors<T, per_vector<T>, backward>(stream, &of);
        return launch_vectors<T, 1, backward>(stream, &of);
}

template <typename T>
static cudaError_t swiglu(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return launch_swiglu<T, false>(stream, {(T *)args->p[0], (const T *)args->p[1], NULL, NULL, kernel->m,
                                                kernel->n, NULL, NULL, NULL, 0});
}

template <typename T>
static cudaError_t swiglu_backward(cudaStream_t stream, const struct kernel *kernel,
                                   const struct kernel_args *args)
{
        return launch_swiglu<T, true>(stream, {NULL, (const T *)args->p[2], (const T *)args->p[1],
                                               (T *)args->p[0], kernel->m, kernel->n, NULL, NULL, NULL, 0});
}

template <typename T>
static cudaError_t weighted_swiglu(cudaStream_t stream, const struct kernel *kernel,
                                   const struct kernel_args *args)
{
        return launch_swiglu<T, false>(stream, {(T *)args->p[0], (const T *)args->p[1], NULL, NULL, kernel->m,
                                                kernel->n, (const float *)args->p[2], NULL,
                                                (const int32_t *)args->p[3], kernel->experts});
}

template <typename T>
static cudaError_t weighted_swiglu_backward(cudaStream_t stream, const struct kernel *kernel,
                                            const struct kernel_args *args)
{
        return launch_swiglu<T, true>(stream,
                                      {NULL, (const T *)args->p[3], (const T *)args->p[2], (T *)args->p[0],
                                       kernel->m, kernel->n, (const float *)args->p[4], (float *)args->p[1],
                                       (const int32_t *)args->p[5], kernel->experts});
}

cudaError_t cuda_swiglu(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                        const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, swiglu, stream, kernel, args);
}

cudaError_t cuda_swiglu_backward(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, swiglu_backward, stream, kernel, args);
}

cudaError_t cuda_weighted_swiglu(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, weighted_swiglu, stream, kernel, args);
}

cudaError_t cuda_weighted_swiglu_backward(cudaStream_t stream, const struct kernel *kernel,
                                          const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, weighted_swiglu_backward, stream, kernel, args);
}
