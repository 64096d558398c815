/* Biases, the residual, GELU and squared ReLU with their gradients, and the gradient of a bias: one pass over
 * their rows.
 *
 * A warp has 32 neighbouring vectors of a row and as many of the rows below it, so that what it needs of the
 * bias stays in registers and ROWS loads an operand are under way at a time. */
#include "runtime/device/cuda/reduce.cuh"

enum elementwise {
        BIAS,
        BIAS_GELU,
        GELU_BACKWARD,
        BIAS_RESIDUAL,
        RESIDUAL,
        SQUARED_RELU,
        SQUARED_RELU_BACKWARD
};

/* Whether there are rows x beside y; whether there is a bias; whether rows g are written; whether y is. */
template <enum elementwise kind>
constexpr bool has_x =
        kind == GELU_BACKWARD || kind == BIAS_RESIDUAL || kind == RESIDUAL || kind == SQUARED_RELU_BACKWARD;
template <enum elementwise kind>
constexpr bool has_bias = kind == BIAS || kind == BIAS_GELU || kind == BIAS_RESIDUAL;
template <enum elementwise kind> constexpr bool has_g = kind == BIAS_GELU || kind == SQUARED_RELU;
template <enum elementwise kind> constexpr bool writes_y = kind != SQUARED_RELU;

enum { ROWS = 4, WARPS = 8 }; /* rows that a thread has at once; warps of a block, one below the other */

/* GELU with the tanh approximation is x s with the logistic s = 1 / (1 + e^(-2u)), 2u = TWO_ROOT x (1 + CUBIC
 * x^2): see cpu/kernels/gelu.c. */
#define CUBIC    0.044715F
#define TWO_ROOT 1.5957691216057308F /* 2 sqrt(2 / pi) */

/* e^(-2u). The bound keeps it and 1 + it finite; NaN comes back through x. */
template <typename T> static __device__ __forceinline__ float gelu_exponential(float x)
{
        return exponential<T>(fminf(-TWO_ROOT * x * (1 + CUBIC * x * x), 80));
}

template <typename T> static __device__ __forceinline__ float gelu(float x)
{
        return quotient<T>(x, 1 + gelu_exponential<T>(x));
}

/* s + x s (1 - s) 2u', with 1 - s as e^(-2u) s so that nothing cancels. */
template <typename T> static __device__ __forceinline__ float gelu_gradient(float x)
{
        const float e = gelu_exponential<T>(x), s = quotient<T>(1, 1 + e);
        return s + x * s * (e * s) * TWO_ROOT * (1 + 3 * CUBIC * x * x);
}

/* y (m,n) is read, and written (writes_y). x (m,n): what is read beside it (has_x); g (m,n): what is written
 * beside it (has_g). */
template <typename T> struct elementwise_operands {
        T *y;
        const T *x, *b;
        T *g;
        int64_t m, n;
};

template <typename T, int W, enum elementwise kind>
static __device__ __forceinline__ void apply(const struct elementwise_operands<T> &of, int64_t at,
                                             const float b[W], const pack<T, W> &stored_y,
                                             const pack<T, W> &stored_x)
{
        float y[W], x[W], g[W];
        unpack<T, W>(y, stored_y);
        if constexpr (has_x<kind>)
                unpack<T, W>(x, stored_x);
#pragma unroll
        for (int i = 0; i < W; i++) {
                if constexpr (kind == GELU_BACKWARD)
                        y[i] *= gelu_gradient<T>(x[i]);
                else if constexpr (kind == BIAS_RESIDUAL)
                        y[i] += b[i] + x[i];
                else if constexpr (kind == RESIDUAL)
                        y[i] += x[i];
                else if constexpr (kind == SQUARED_RELU_BACKWARD)
                        y[i] *= x[i] < 0 ? 0 : 2 * x[i];
                else if constexpr (has_bias<kind>)
                        y[i] += b[i];
                if constexpr (kind == BIAS_GELU)
                        g[i] = gelu<T>(y[i]);
                if constexpr (kind == SQUARED_RELU)
                        g[i] = y[i] < 0 ? 0 : y[i] * y[i];
        }
        if constexpr (writes_y<kind>)
                store_floats<W>(of.y + at, y);
        if constexpr (has_g<kind>)
                store_floats<W>(of.g + at, g);
}

template <typename T, int W, enum elementwise kind>
static __global__ void __launch_bounds__(WARP *WARPS) elementwise_rows(struct elementwise_operands<T> of)
{
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        if (column >= of.n)
                return;
        float b[W] = {0};
        if constexpr (has_bias<kind>)
                load_floats<W>(b, of.b + column);
        const int64_t stride = (int64_t)gridDim.y * WARPS;
        for (int64_t row = (int64_t)blockIdx.y * WARPS + threadIdx.y; row < of.m; row += ROWS * stride) {
                pack<T, W> y[ROWS], x[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        if (row + r * stride >= of.m)
                                continue;
                        const int64_t at = (row + r * stride) * of.n + column;
                        y[r] = load<W>((const T *)of.y + at);
                        if constexpr (has_x<kind>)
                                x[r] = load<W>(of.x + at);
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        if (row + r * stride < of.m)
                                apply<T, W, kind>(of, (row + r * stride) * of.n + column, b, y[r], x[r]);
        }
}

enum { MAX_BLOCKS_Y = 65535 }; /* gridDim.y's limit */

template <typename T, int W, enum elementwise kind>
static cudaError_t launch_rows(cudaStream_t stream, const struct elementwise_operands<T> *of)
{
        if (of->m == 0 || of->n == 0)
                return cudaSuccess;
        const dim3 grid((unsigned)ceil_div(of->n, WARP * W),
                        (unsigned)min_int64(ceil_div(of->m, ROWS * WARPS), MAX_BLOCKS_Y));
        CUDA_LAUNCH((elementwise_rows<T, W, kind>), grid, dim3(WARP, WARPS), 0, stream, *of);
        return cudaGetLastError();
}

template <typename T, enum elementwise kind>
static cudaError_t launch_elementwise(cudaStream_t stream, struct elementwise_operands<T> of)
{
        if (whole_vectors<T>(of.n, of.y, of.x, of.b, of.g))
                return launch_rows<T, per_vector<T>, kind>(stream, &of);
        return launch_rows<T, 1, kind>(stream, &of);
}

template <typename T>
static cudaError_t bias(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return launch_elementwise<T, BIAS>(
                stream, {(T *)args->p[0], NULL, (const T *)args->p[1], NULL, kernel->m, kernel->n});
}

template <typename T>
static cudaError_t bias_gelu(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return launch_elementwise<T, BIAS_GELU>(stream, {(T *)args->p[1], NULL, (const T *)args->p[2],
                                                         (T *)args->p[0], kernel->m, kernel->n});
}

template <typename T>
static cudaError_t gelu_backward(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args)
{
        return launch_elementwise<T, GELU_BACKWARD>(
                stream, {(T *)args->p[0], (const T *)args->p[1], NULL, NULL, kernel->m, kernel->n});
}

template <typename T>
static cudaError_t bias_residual(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args)
{
        return launch_elementwise<T, BIAS_RESIDUAL>(
                stream,
                {(T *)args->p[0], (const T *)args->p[2], (const T *)args->p[1], NULL, kernel->m, kernel->n});
}

template <typename T>
static cudaError_t residual(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return launch_elementwise<T, RESIDUAL>(
                stream, {(T *)args->p[0], (const T *)args->p[1], NULL, NULL, kernel->m, kernel->n});
}

template <typename T>
static cudaError_t squared_relu(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args)
{
        return launch_elementwise<T, SQUARED_RELU>(
                stream, {(T *)args->p[1], NULL, NULL, (T *)args->p[0], kernel->m, kernel->n});
}

template <typename T>
static cudaError_t squared_relu_backward(cudaStream_t stream, const struct kernel *kernel,
                                         const struct kernel_args *args)
{
        return launch_elementwise<T, SQUARED_RELU_BACKWARD>(
                stream, {(T *)args->p[0], (const T *)args->p[1], NULL, NULL, kernel->m, kernel->n});
}

cudaError_t cuda_bias(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                      const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, bias, stream, kernel, args);
}

cudaError_t cuda_bias_gelu(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                           const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, bias_gelu, stream, kernel, args);
}

cudaError_t cuda_gelu_backward(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, gelu_backward, stream, kernel, args);
}

cudaError_t cuda_bias_residual(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, bias_residual, stream, kernel, args);
}

cudaError_t cuda_residual(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                          const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, residual, stream, kernel, args);
}

cudaError_t cuda_squared_relu(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, squared_relu, stream, kernel, args);
}

cudaError_t cuda_squared_relu_backward(cudaStream_t stream, const struct kernel *kernel,
                                       const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, squared_relu_backward, stream, kernel, args);
}

/* The first half of column sums: row p of partials (gridDim.y, n) is the sum of every gridDim.y-th group of
 * WARPS rows of dy (m,n), a warp a row; the warps' sums are added from the first to the last. */
template <typename T, int W>
static __global__ void __launch_bounds__(WARP *WARPS)
        column_sums(float *partials, const T *__restrict__ dy, int64_t m, int64_t n)
{
        __shared__ float shared[WARPS][W][WARP];
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        float sum[W] = {0};
        if (column < n)
                add_strided_rows<T, W>(sum, dy + column, (int64_t)blockIdx.y * WARPS + threadIdx.y, m,
                                       (int64_t)gridDim.y * WARPS, n);
#pragma unroll
        for (int i = 0; i < W; i++)
                shared[threadIdx.y][i][threadIdx.x] = sum[i];
        __syncthreads();
        for (int j = (int)(threadIdx.y * WARP + threadIdx.x); j < W * WARP; j += WARP * WARPS) {
                const int64_t to = (int64_t)blockIdx.x * WARP * W + j;
                if (to >= n)
                        continue;
                float total = 0;
                for (int warp = 0; warp < WARPS; warp++)
                        total += shared[warp][j % W][j / W];
                partials[blockIdx.y * n + to] = total;
        }
}

template <typename T, int W>
static cudaError_t launch_bias_backward(cudaStream_t stream, const struct kernel *kernel, void *db,
                                        const T *dy, const struct cuda_work *work)
{
        const int64_t m = kernel->m, n = kernel->n;
        const int64_t fit = CUDA_SCRATCH_BYTES / (int64_t)sizeof(float) / n, across = ceil_div(n, WARP * W);
        if (fit == 0)
                return cudaErrorInvalidValue;
        /* Half of the blocks that could be under way: fewer sums of theirs to add up. Faster on an H200 by up
         * to a fifth. */
        const int64_t wanted =
                min_int64(ceil_div((int64_t)work->processors * 4, across), ceil_div(m, 8 * WARPS));
        const int64_t below = min_int64(min_int64(wanted, fit), MAX_BLOCKS_Y);
        float *partials = (float *)work->scratch;
        CUDA_LAUNCH((column_sums<T, W>), dim3((unsigned)across, (unsigned)below), dim3(WARP, WARPS), 0,
                    stream, partials, dy, m, n);
        return launch_add_partials<T>(stream, kernel->wide, db, NULL, partials, below, n);
}

template <typename T>
static cudaError_t bias_backward(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args, const struct cuda_work *work)
{
        void *db = args->p[0];
        const T *dy = (const T *)args->p[1];
        if (kernel->m == 0 || kernel->n == 0)
                return cudaSuccess;
        if (whole_vectors<T>(kernel->n, dy))
                return launch_bias_backward<T, per_vector<T>>(stream, kernel, db, dy, work);
        return launch_bias_backward<T, 1>(stream, kernel, db, dy, work);
}

cudaError_t cuda_bias_backward(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, bias_backward, stream, kernel, args, work);
}
