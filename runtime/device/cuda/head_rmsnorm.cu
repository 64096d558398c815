/* RMSNorm of each head of queries and of keys, forward and backward, for heads of at most 128 columns, as
 * fused attention has them. Statistics and sums are fp32.
 *
 * A head is a group of lanes', which keep it in registers: one read and one write. Backward, blocks that stay
 * go over the heads of queries, then over those of keys; a lane keeps its columns' part of dw in registers
 * until the last head. The groups' parts are added in shared memory, the blocks' by a second kernel. */
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

enum { THREADS = 256, BLOCKS_A_PROCESSOR = 8 };

/* The lanes that a head has, and accesses of W elements of each of them. */
template <int W> constexpr int lanes = W == 1 ? WARP : CUDA_WIDEST_HEAD / W;
template <int W> constexpr int held = CUDA_WIDEST_HEAD / W / lanes<W>;
template <int W> constexpr int groups = THREADS / lanes<W>;

template <typename T> struct head_operands {
        T *y; /* backward: dx, which holds dy */
        float *rstd;
        const T *x, *w;
        unsigned N, heads, queries, normalised; /* heads: of a row, and of queries and keys */
        int k;
        float epsilon;
        float *partials; /* backward: (blocks, 2, k) */
};

template <int W> static __device__ __forceinline__ float group_sum(float x)
{
#pragma unroll
        for (int step = lanes<W> / 2; step > 0; step /= 2)
                x += __shfl_xor_sync(0xffffffffU, x, step);
        return x;
}

/* The column of a lane's j-th access. */
template <int W> static __device__ __forceinline__ int column_of(int j)
{
        return ((int)threadIdx.x % lanes<W> + j * lanes<W>)*W;
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) normalise_heads(struct head_operands<T> of)
{
        const unsigned at = blockIdx.x * groups<W> + threadIdx.x / lanes<W>;
        const unsigned head = at % of.heads;
        const bool valid = at < of.N * of.heads;
        const T *x = of.x + (int64_t)at * of.k, *w = of.w + (head < of.queries ? 0 : of.k);
        pack<T, W> mine[held<W>];
        float squares = 0;
#pragma unroll
        for (int j = 0; j < held<W>; j++) {
                float f[W];
                mine[j] = valid && column_of<W>(j) < of.k ? load<W>(x + column_of<W>(j)) : zeros<T, W>();
                unpack<T, W>(f, mine[j]);
#pragma unroll
                for (int i = 0; i < W; i++)
                        squares += f[i] * f[i];
        }
        const float rstd = 1 / sqrtf(group_sum<W>(squares) / (float)of.k + of.epsilon);
        const bool normalised = head < of.normalised;
        if (valid && normalised && threadIdx.x % lanes<W> == 0)
                of.rstd[at] = rstd;
#pragma unroll
        for (int j = 0; j < held<W>; j++) {
                const int c = column_of<W>(j);
                float f[W], scale[W];
                if (!valid || c >= of.k)
                        continue;
                unpack<T, W>(f, mine[j]);
                load_floats<W>(scale, w + c);
#pragma unroll
                for (int i = 0; i < W; i++)
                        f[i] = normalised ? f[i] * rstd * scale[i] : f[i];
                store_floats<W>(of.y + (int64_t)at * of.k + c, f);
        }
}

/* One head: dx in place of dy; adds dy h to dw. */
template <typename T, int W>
static __device__ __forceinline__ void head_backward(const struct head_operands<T> &of, unsigned at,
                                                     bool valid, const float w[held<W>][W],
                                                     float dw[held<W>][W])
{
        const int64_t first = (int64_t)at * of.k;
        const float rstd = valid ? of.rstd[at] : 0;
        float dy[held<W>][W], h[held<W>][W], gh = 0;
#pragma unroll
        for (int j = 0; j < held<W>; j++) {
                const int c = column_of<W>(j);
                const bool there = valid && c < of.k;
                unpack<T, W>(dy[j], there ? load<W>((const T *)of.y + first + c) : zeros<T, W>());
                unpack<T, W>(h[j], there ? load<W>(of.x + first + c) : zeros<T, W>());
#pragma unroll
                for (int i = 0; i < W; i++) {
                        h[j][i] *= rstd;
                        dw[j][i] += dy[j][i] * h[j][i];
                        gh += dy[j][i] * w[j][i] * h[j][i];
                }
        }
        const float mean = group_sum<W>(gh) / (float)of.k;
#pragma unroll
        for (int j = 0; j < held<W>; j++) {
                const int c = column_of<W>(j);
                float dx[W];
#pragma unroll
                for (int i = 0; i < W; i++)
                        dx[i] = rstd * (dy[j][i] * w[j][i] - h[j][i] * mean);
                if (valid && c < of.k)
                        store_floats<W>(of.y + first + c, dx);
        }
}

/* The heads [begin, begin + count) of every row, all with the weight `w`; their dw goes to `partial`. */
template <typename T, int W>
static __device__ __forceinline__ void heads_backward(const struct head_operands<T> &of, unsigned begin,
                                                      unsigned count, const T *weight, float *partial,
                                                      float (*shared)[CUDA_WIDEST_HEAD])
{
        const unsigned group = threadIdx.x / lanes<W>, all = of.N * count;
        float w[held<W>][W], dw[held<W>][W] = {};
#pragma unroll
        for (int j = 0; j < held<W>; j++)
                unpack<T, W>(w[j],
                             column_of<W>(j) < of.k ? load<W>(weight + column_of<W>(j)) : zeros<T, W>());
        for (unsigned first = blockIdx.x * groups<W>; first < all; first += gridDim.x * groups<W>) {
                const unsigned nth = first + group;
                head_backward<T, W>(of, nth / count * of.heads + begin + nth % count, nth < all, w, dw);
        }
        __syncthreads(); /* the heads before are done with what is shared */
#pragma unroll
        for (int j = 0; j < held<W>; j++)
#pragma unroll
                for (int i = 0; i < W; i++)
                        shared[group][column_of<W>(j) + i] = dw[j][i];
        __syncthreads();
        for (int c = (int)threadIdx.x; c < of.k; c += THREADS) {
                float sum = 0;
                for (int g = 0; g < groups<W>; g++)
                        sum += shared[g][c];
                partial[c] = sum;
        }
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) differentiate_heads(struct head_operands<T> of)
{
        __shared__ float shared[groups<W>][CUDA_WIDEST_HEAD];
        float *partial = of.partials + (int64_t)blockIdx.x * 2 * of.k;
        heads_backward<T, W>(of, 0, of.queries, of.w, partial, shared);
        heads_backward<T, W>(of, of.queries, of.normalised - of.queries, of.w + of.k, partial + of.k, shared);
}

/* Whether the kernels can do it: rows and heads are counted in 32 bits. */
static bool can_do(const struct kernel *kernel)
{
        return kernel->k <= CUDA_WIDEST_HEAD && kernel->m * (kernel->n / kernel->k) <= INT_MAX / 2;
}

template <typename T, int W>
static cudaError_t launch_forward(cudaStream_t stream, const struct head_operands<T> &of)
{
        CUDA_LAUNCH((normalise_heads<T, W>), dim3((unsigned)ceil_div(of.N * of.heads, groups<W>)),
                    dim3(THREADS), 0, stream, of);
        return cudaGetLastError();
}

template <typename T, int W>
static cudaError_t launch_backward(cudaStream_t stream, const struct head_operands<T> &of, bool wide,
                                   void *dw, const struct cuda_work *work)
{
        const int64_t blocks = min_int64(ceil_div((int64_t)of.N * of.queries, groups<W>),
                                         (int64_t)BLOCKS_A_PROCESSOR * work->processors);
        CUDA_LAUNCH((differentiate_heads<T, W>), dim3((unsigned)blocks), dim3(THREADS), 0, stream, of);
        const cudaError_t error = cudaGetLastError();
        return error ? error : launch_add_partials<T>(stream, wide, dw, NULL, of.partials, blocks, 2 * of.k);
}

template <typename T>
static struct head_operands<T> operands_of(const struct kernel *kernel, const struct kernel_args *args) {
        struct head_operands<T> of = {
        };
        of.y = (T *)args->p[0];
        of.N = (unsigned)kernel->m;
        of.k = (int)kernel->k;
        of.heads = (unsigned)(kernel->n / kernel->k);
        of.queries = (unsigned)(args->ld[0] / kernel->k);
        of.normalised = (unsigned)(args->inner / kernel->k);
        return of;
}

template <typename T>
static cudaError_t head_rmsnorm(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args)
{
        if (!can_do(kernel))
                return cudaErrorInvalidValue;
        struct head_operands<T> of = operands_of<T>(kernel, args);
        of.rstd = (float *)args->p[1];
        of.x = (const T *)args->p[2];
        of.w = (const T *)args->p[3];
        of.epsilon = (float)args->scalar[0];
        if (of.N == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.k, of.y, of.x, of.w))
                return launch_forward<T, per_vector<T>>(stream, of);
        return launch_forward<T, 1>(stream, of);
}

template <typename T>
static cudaError_t head_rmsnorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                         const struct kernel_args *args, const struct cuda_work *work)
{
        if (!can_do(kernel))
                return cudaErrorInvalidValue;
        struct head_operands<T> of = operands_of<T>(kernel, args);
        of.x = (const T *)args->p[2];
        of.rstd = (float *)args->p[3];
        of.w = (const T *)args->p[4];
        of.partials = (float *)work->scratch;
        if (of.N == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.k, of.y, of.x, of.w))
                return launch_backward<T, per_vector<T>>(stream, of, kernel->wide, args->p[1], work);
        return launch_backward<T, 1>(stream, of, kernel->wide, args->p[1], work);
}

cudaError_t cuda_head_rmsnorm(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, head_rmsnorm, stream, kernel, args);
}

cudaError_t cuda_head_rmsnorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                       const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, head_rmsnorm_backward, stream, kernel, args, work);
}
