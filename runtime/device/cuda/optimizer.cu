/* What the optimizer does with gradients: norm, search for an overflow, unscale, clear, AdamW. Each passes
 * over memory once. Blocks that stay go over the elements, so that what lies in host memory (a scale) is
 * read over the link once a block, not once a piece or a warp. */
#include "runtime/device/cuda/reduce.cuh"
#include "runtime/device/kernels.h"

#include <cfloat>
#include <cmath>

enum { THREADS = 256, BLOCKS = 8 /* a multiprocessor */, VECTORS = 4 /* that a thread reads at once */ };

static unsigned blocks_for(int64_t accesses, const struct cuda_work *work)
{
        return (unsigned)max_int64(min_int64(ceil_div(accesses, THREADS), (int64_t)work->processors * BLOCKS),
                                   1);
}

static __device__ __forceinline__ int64_t first_index(void)
{
        return (int64_t)blockIdx.x * THREADS + threadIdx.x;
}

static __device__ __forceinline__ int64_t index_stride(void)
{
        return (int64_t)gridDim.x * THREADS;
}

/* Calls visit(x) with every element of array (n) that is this thread's, as a float, in a fixed order. */
template <typename T, typename visitor>
static __device__ __forceinline__ void each_element(const T *__restrict__ array, int64_t n, visitor visit)
{
        enum { W = per_vector<T> };
        const span<const T> of = span_of(array, n);
        const int64_t stride = index_stride();
        for (int64_t i = first_index(); i < of.edge; i += stride)
                visit(to_float(of.x[of.edge_index(i)]));
        for (int64_t i = first_index(); i < of.vectors; i += VECTORS * stride) {
                pack<T, W> p[VECTORS];
#pragma unroll
                for (int k = 0; k < VECTORS; k++)
                        p[k] = i + k * stride < of.vectors ? load<W>(of.vector(i + k * stride))
                                                           : zeros<T, W>();
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
                        float x[W];
                        unpack<T, W>(x, p[k]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                visit(x[j]);
                }
        }
}

/* sums (gridDim.x): each block's part of the sum of squares. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
        squares(double *sums, const T *__restrict__ array, int64_t n)
{
        __shared__ double shared[WARP];
        double sum = 0;
        each_element(array, n, [&sum](float x) { sum += (double)x * (double)x; });
        sum = row_sum(sum, shared);
        if (threadIdx.x == 0)
                sums[blockIdx.x] = sum;
}

/* *sum = the sum of sums (count), or that more. One block. */
static __global__ void __launch_bounds__(THREADS)
        add_sums(double *sum, const double *__restrict__ sums, int count, bool accumulate)
{
        __shared__ double shared[WARP];
        double mine = 0;
        for (int i = (int)threadIdx.x; i < count; i += THREADS)
                mine += sums[i];
        mine = row_sum(mine, shared);
        if (threadIdx.x == 0)
                *sum = accumulate ? *sum + mine : mine;
}

template <typename T>
static cudaError_t squared_norm(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args, const struct cuda_work *work)
{
        double *sums = (double *)work->scratch;
        const unsigned blocks = blocks_for(ceil_div(kernel->m, per_vector<T> * VECTORS), work);
        CUDA_LAUNCH((squares<T>), dim3(blocks), dim3(THREADS), 0, stream, sums, (const T *)args->p[1],
                    kernel->m);
        CUDA_LAUNCH(add_sums, dim3(1), dim3(THREADS), 0, stream, (double *)args->p[0], (const double *)sums,
                    (int)blocks, kernel->accumulate != 0);
        return cudaGetLastError();
}

cudaError_t cuda_squared_norm(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, squared_norm, stream, kernel, args, work);
}

/* found (gridDim.x): 1 where one of a block's gradients is not in [-limit, limit], else 0. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
        beyond_limit(double *found, const T *__restrict__ array, int64_t n, float limit)
{
        __shared__ float shared[WARP];
        bool beyond = false; /* the comparison below holds for no NaN */
        each_element(array, n, [&beyond, limit](float x) { beyond |= !(fabsf(x) <= limit); });
        const float any = row_max(beyond ? 1 : 0, shared);
        if (threadIdx.x == 0)
                found[blockIdx.x] = (double)any;
}

/* *found = 1 if one of blocks (count) is, else 0. One block. */
static __global__ void __launch_bounds__(THREADS)
        any_found(double *found, const double *__restrict__ blocks, int count)
{
        __shared__ float shared[WARP];
        float mine = 0;
        for (int i = (int)threadIdx.x; i < count; i += THREADS)
                mine = fmaxf(mine, (float)blocks[i]);
        mine = row_max(mine, shared);
        if (threadIdx.x == 0)
                *found = (double)mine;
}

/* The largest finite float that is at most `limit`. */
static float float_limit(double limit)
{
        if (limit >= (double)FLT_MAX)
                return FLT_MAX;
        const float nearest = (float)limit;
        return (double)nearest > limit ? nextafterf(nearest, -FLT_MAX) : nearest;
}

template <typename T>
static cudaError_t overflow(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                            const struct cuda_work *work)
{
        double *found = (double *)work->scratch;
        const unsigned blocks = blocks_for(ceil_div(kernel->m, per_vector<T> * VECTORS), work);
        CUDA_LAUNCH((beyond_limit<T>), dim3(blocks), dim3(THREADS), 0, stream, found, (const T *)args->p[1],
                    kernel->m, float_limit(args->scalar[0]));
        CUDA_LAUNCH(any_found, dim3(1), dim3(THREADS), 0, stream, (double *)args->p[0], (const double *)found,
                    (int)blocks);
        return cudaGetLastError();
}

cudaError_t cuda_overflow(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                          const struct cuda_work *work)
{
        return CUDA_FOR_16BIT_TYPE(kernel->dtype, overflow, stream, kernel, args, work);
}

/* *scale, which is in host memory: a block reads it over the link once. */
static __device__ __forceinline__ float read_scale(const double *scale)
{
        __shared__ float shared;
        if (threadIdx.x == 0)
                shared = (float)*scale;
        __syncthreads();
        return shared;
}

/* out (n) = *scale g (n); g becomes zero. */
template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
        unscale_elements(float *__restrict__ out, T *__restrict__ g, const double *__restrict__ scale,
                         int64_t n)
{
        const float by = read_scale(scale);
        const int64_t accesses = n / W, stride = index_stride();
        for (int64_t i = first_index(); i < accesses; i += VECTORS * stride) {
                pack<T, W> p[VECTORS];
#pragma unroll
                for (int k = 0; k < VECTORS; k++)
                        p[k] = i + k * stride < accesses ? load<W>((const T *)g + (i + k * stride) * W)
                                                         : zeros<T, W>();
#pragma unroll
                for (int k = 0; k < VECTORS; k++) {
                        float x[W];
                        if (i + k * stride >= accesses)
                                break;
                        unpack<T, W>(x, p[k]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                x[j] *= by;
                        store_floats<W>(out + (i + k * stride) * W, x);
                        store<W>(g + (i + k * stride) * W, zeros<T, W>());
                }
        }
        for (int64_t i = accesses * W + first_index(); i < n; i += stride) {
                out[i] = to_float(g[i]) * by;
                g[i] = from_float<T>(0);
        }
}

template <typename T, int W>
static cudaError_t launch_unscale(cudaStream_t stream, const struct kernel_args *args, int64_t n,
                                  const struct cuda_work *work)
{
        CUDA_LAUNCH((unscale_elements<T, W>), dim3(blocks_for(ceil_div(n, W * VECTORS), work)), dim3(THREADS),
                    0, stream, (float *)args->p[0], (T *)args->p[1], (const double *)args->p[2], n);
        return cudaGetLastError();
}

static bool whole_16_bytes(const void *pointer)
{
        return pointer == NULL || (uintptr_t)pointer % 16 == 0;
}

template <typename T>
static cudaError_t unscale(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                           const struct cuda_work *work)
{
        if (whole_16_bytes(args->p[0]) && whole_16_bytes(args->p[1]))
                return launch_unscale<T, per_vector<T>>(stream, args, kernel->m, work);
        return launch_unscale<T, 1>(stream, args, kernel->m, work);
}

cudaError_t cuda_unscale(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *work)
{
        return CUDA_FOR_16BIT_TYPE(kernel->dtype, unscale, stream, kernel, args, work);
}

cudaError_t cuda_clear(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                       const struct cuda_work *)
{
        return cudaMemsetAsync(args->p[0], 0, (size_t)kernel->m * (kernel->dtype != DTYPE_FP32 ? 2 : 4),
                               stream);
}

/* Which elements of a launch are decayed: range i ends before element ends[i] / 2, and the lowest bit of
 * ends[i] says whether it is decayed. With the rest of the parameters below 4 KiB, which older toolkits
 * allow. */
enum { RANGES = 256 };
struct decay_ranges {
        int64_t ends[RANGES];
};

struct adamw_step {
        float beta1, beta2, rest1, rest2; /* rest = 1 - beta */
        float rate;                       /* lr / (1 - beta1^step) */
        float root_correction;            /* 1 / sqrt(1 - beta2^step) */
        float epsilon, shrink;            /* shrink: 1 - lr weight_decay, where a range is decayed */
};

template <typename T> struct adamw_operands {
        float *p, *g, *m, *v;
        T *weights;                   /* or NULL */
        bool clear;                   /* g is left zero */
        const double *gradient_scale; /* or NULL: 1 */
        int64_t n;
};

/* The element that range `range` ends before. */
static __device__ __forceinline__ int64_t range_end(const struct decay_ranges &ranges, int range)
{
        return ranges.ends[range] >> 1;
}

/* W elements from i on; `range` is the one that has i, or one before it. */
template <typename T, int W>
static __device__ __forceinline__ void update(const struct adamw_operands<T> &of, const struct adamw_step &s,
                                              const struct decay_ranges &ranges, float gradient_scale,
                                              int64_t i, int *range)
{
        float p[W], g[W], m[W], v[W];
        load_floats<W>(p, (const float *)of.p + i);
        load_floats<W>(g, (const float *)of.g + i);
        load_floats<W>(m, (const float *)of.m + i);
        load_floats<W>(v, (const float *)of.v + i);
#pragma unroll
        for (int j = 0; j < W; j++) {
                while (i + j >= range_end(ranges, *range))
                        ++*range;
                const float shrink = ranges.ends[*range] & 1 ? s.shrink : 1;
                const float gradient = g[j] * gradient_scale;
                m[j] = s.beta1 * m[j] + s.rest1 * gradient;
                v[j] = s.beta2 * v[j] + s.rest2 * gradient * gradient;
                p[j] = p[j] * shrink - s.rate * m[j] / (sqrtf(v[j]) * s.root_correction + s.epsilon);
        }
        store_floats<W>(of.p + i, p);
        store_floats<W>(of.m + i, m);
        store_floats<W>(of.v + i, v);
        if (of.weights)
                store_floats<W>(of.weights + i, p);
        if (of.clear)
                store<W>(of.g + i, zeros<float, W>());
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS)
        adamw_elements(const struct adamw_operands<T> of, const struct adamw_step step,
                       const struct decay_ranges ranges)
{
        const float gradient_scale = of.gradient_scale ? read_scale(of.gradient_scale) : 1;
        const int64_t whole = of.n / W * W, stride = index_stride();
        int range = 0;
        for (int64_t i = first_index() * W; i < whole; i += stride * W)
                update<T, W>(of, step, ranges, gradient_scale, i, &range);
        for (int64_t i = whole + first_index(); i < of.n; i += stride)
                update<T, 1>(of, step, ranges, gradient_scale, i, &range);
}

static struct adamw_step adamw_step_of(const struct kernel_args *args)
{
        const double lr = args->scalar[0], beta1 = args->scalar[1], beta2 = args->scalar[2];
        const double step = args->scalar[5];
        return {(float)beta1,
                (float)beta2,
                (float)(1 - beta1),
                (float)(1 - beta2),
                (float)(lr / (1 - pow(beta1, step))),
                (float)(1 / sqrt(1 - pow(beta2, step))),
                (float)args->scalar[3],
                (float)(1 - lr * args->scalar[4])};
}

/* Fills `to` with the ranges of [at, end) of the flat buffers, relative to `at`; `*range` is the first that
 * may have `at`, then the first that was not used up. Returns where `to` ends. */
static int64_t take_ranges(struct decay_ranges *to, const struct adamw_range **range, int64_t at, int64_t end)
{
        int count = 0;
        int64_t stop = at;
        while (stop < end && count < RANGES) {
                const struct adamw_range *r = *range;
                if (r->end > stop) {
                        stop = min_int64(r->end, end);
                        to->ends[count++] = (stop - at) * 2 + (r->decay != 0);
                }
                if (r->end <= end)
                        ++*range;
        }
        return stop;
}

template <typename T>
static struct adamw_operands<T> adamw_operands_of(const struct kernel *kernel, const struct kernel_args *args,
                                                  int64_t from, int64_t n) {
        T *weights = (T *)args->p[6];
        return {(float *)args->p[0] + from,      (float *)args->p[1] + from,
                (float *)args->p[2] + from,      (float *)args->p[3] + from,
                weights ? weights + from : NULL, !weights || kernel->wide,
                (const double *)args->p[5],      n};
}

template <typename T>
static cudaError_t adamw(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *work)
{
        const struct adamw_step step = adamw_step_of(args);
        const struct adamw_range *range = (const struct adamw_range *)args->p[4];
        const int64_t offset = args->ld[0], end = offset + kernel->m;
        for (int64_t at = offset; at < end;) {
                struct decay_ranges ranges;
                const int64_t stop = take_ranges(&ranges, &range, at, end);
                const struct adamw_operands<T> of =
                        adamw_operands_of<T>(kernel, args, at - offset, stop - at);
                const unsigned blocks = blocks_for(ceil_div(of.n, per_vector<T>), work);
                if (whole_16_bytes(of.p) && whole_16_bytes(of.g) && whole_16_bytes(of.m) &&
                    whole_16_bytes(of.v) && whole_16_bytes(of.weights))
                        CUDA_LAUNCH((adamw_elements<T, per_vector<T>>), dim3(blocks), dim3(THREADS), 0,
                                    stream, of, step, ranges);
                else
                        CUDA_LAUNCH((adamw_elements<T, 1>), dim3(blocks), dim3(THREADS), 0, stream, of, step,
                                    ranges);
                const cudaError_t error = cudaGetLastError();
                if (error)
                        return error;
                at = stop;
        }
        return cudaSuccess;
}

cudaError_t cuda_adamw(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                       const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, adamw, stream, kernel, args, work);
}
