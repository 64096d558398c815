/* Cross-entropy of logits (N, V) with integer targets, and its gradient in the logits' place: no probability
 * is stored. A row is a block's: one read for its largest logit and the sum of exponentials below it, a
 * second, which the caches can serve (100 KB a row of GPT-2 in 16 bits), for the gradient. Rows may begin at
 * any element. */
#include "runtime/device/cuda/reduce.cuh"

enum { THREADS = 512, VECTORS = 4 /* that a thread reads at once */, SUM_THREADS = 256 };

#define LOWEST (-3.4e38F) /* below all logits; finite, so that differences of two are numbers */

/* The sum of e^(x - most) over the x seen. */
struct exp_sum {
        float max, sum;
};

/* Adds x[0..n) to the sum: one more exponential for each call. */
template <typename T, int n>
static __device__ __forceinline__ void add_exponentials(struct exp_sum *to, const float x[n])
{
        float max = to->max, sum;
#pragma unroll
        for (int j = 0; j < n; j++)
                max = fmaxf(max, x[j]);
        sum = to->sum * exponential<T>(to->max - max);
#pragma unroll
        for (int j = 0; j < n; j++)
                sum += exponential<T>(x[j] - max);
        *to = {max, sum};
}

/* Over this thread's part of the row. */
template <typename T> static __device__ __forceinline__ struct exp_sum thread_exp_sum(const span<T> &row)
{
        enum { W = per_vector<T> };
        struct exp_sum of = {LOWEST, 0};
        for (int64_t i = threadIdx.x; i < row.edge; i += blockDim.x) {
                const float x[1] = {to_float(row.x[row.edge_index(i)])};
                add_exponentials<T, 1>(&of, x);
        }
        int64_t i = threadIdx.x;
        for (; i + (VECTORS - 1) * (int64_t)blockDim.x < row.vectors; i += VECTORS * (int64_t)blockDim.x) {
                pack<T, W> p[VECTORS];
                float x[VECTORS * W];
#pragma unroll
                for (int k = 0; k < VECTORS; k++)
                        p[k] = load<W>((const T *)row.vector(i + k * (int64_t)blockDim.x));
#pragma unroll
                for (int k = 0; k < VECTORS; k++)
                        unpack<T, W>(x + k * W, p[k]);
                add_exponentials<T, VECTORS * W>(&of, x);
        }
        for (; i < row.vectors; i += blockDim.x) {
                float x[W];
                load_floats<W>(x, (const T *)row.vector(i));
                add_exponentials<T, W>(&of, x);
        }
        return of;
}

/* `count` vectors of the row, i and every blockDim.x-th after it, become scale (softmax - onehot). */
template <typename T, int count>
static __device__ __forceinline__ void store_vectors(const span<T> &row, int64_t i, const struct exp_sum &of,
                                                     int64_t target, float scale)
{
        enum { W = per_vector<T> };
        const float rescale = scale / of.sum;
        pack<T, W> p[count];
#pragma unroll
        for (int k = 0; k < count; k++)
                p[k] = load<W>((const T *)row.vector(i + k * (int64_t)blockDim.x));
#pragma unroll
        for (int k = 0; k < count; k++) {
                const int64_t at = i + k * (int64_t)blockDim.x;
                const int64_t hot = target - (row.head + at * W); /* 0 to W - 1 if this vector has it */
                float x[W];
                unpack<T, W>(x, p[k]);
#pragma unroll
                for (int j = 0; j < W; j++) {
                        x[j] = exponential<T>(x[j] - of.max) * rescale;
                        x[j] = j == hot ? x[j] - scale : x[j];
                }
                store_floats<W>(row.vector(at), x);
        }
}

/* This thread's part of the row, the same as thread_exp_sum's. */
template <typename T>
static __device__ __forceinline__ void store_gradients(const span<T> &row, const struct exp_sum &of,
                                                       int64_t target, float scale)
{
        for (int64_t i = threadIdx.x; i < row.edge; i += blockDim.x) {
                const int64_t at = row.edge_index(i);
                const float p = exponential<T>(to_float(row.x[at]) - of.max) * (scale / of.sum);
                row.x[at] = from_float<T>(at == target ? p - scale : p);
        }
        int64_t i = threadIdx.x;
        for (; i + (VECTORS - 1) * (int64_t)blockDim.x < row.vectors; i += VECTORS * (int64_t)blockDim.x)
                store_vectors<T, VECTORS>(row, i, of, target, scale);
        for (; i < row.vectors; i += blockDim.x)
                store_vectors<T, 1>(row, i, of, target, scale);
}

/* Over the whole row. */
template <typename T>
static __device__ __forceinline__ struct exp_sum row_exp_sum(const span<T> &row, float *shared)
{
        const struct exp_sum mine = thread_exp_sum<T>(row);
        const float max = row_max(mine.max, shared);
        return {max, row_sum(mine.sum * exponential<T>(mine.max - max), shared)};
}

/* -log softmax(row)[target] = log(sum e^(x - max)) + max - x[target]. */
static __device__ __forceinline__ double row_loss(const struct exp_sum &of, float logit)
{
        return log((double)of.sum) + ((double)of.max - (double)logit);
}

/* The losses of rows, to losses (N). */
template <typename T, bool loss_only>
static __global__ void __launch_bounds__(THREADS)
        cross_entropy_rows(double *losses, T *logits, const int32_t *__restrict__ targets, int64_t V,
                           int64_t apart, float scale)
{
        __shared__ float shared[WARP];
        const int64_t n = blockIdx.x, target = targets[n];
        const span<T> row = span_of(logits + n * apart, V);
        const float logit = to_float(row.x[target]); /* read by all before any writes */
        const struct exp_sum of = row_exp_sum<T>(row, shared);
        if (threadIdx.x == 0)
                losses[n] = row_loss(of, logit);
        __syncthreads();
        if constexpr (!loss_only)
                store_gradients<T>(row, of, target, scale);
}

/* ---- over the parts of the vocabulary that shards have: see runtime/device/kernels.h ---- */

/* What a row's softmax and loss are made of. */
struct numbers {
        float max, sum, logit;
};

/* Of `valid` logits of each row, of which one may be the target's. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
        number_rows(struct numbers *__restrict__ numbers, T *logits, const int32_t *__restrict__ targets,
                    int64_t first, int64_t valid, int64_t apart)
{
        __shared__ float shared[WARP];
        const int64_t n = blockIdx.x, target = targets[n] - first;
        const span<T> row = span_of(logits + n * apart, valid);
        const struct exp_sum of = row_exp_sum<T>(row, shared);
        if (threadIdx.x == 0)
                numbers[n] = {valid > 0 ? of.max : -INFINITY, valid > 0 ? of.sum : 0,
                              target >= 0 && target < valid ? to_float(row.x[target]) : 0};
}

/* Of the whole row, from those of its parts, `rows` apart, first to last. */
static __device__ __forceinline__ struct numbers all_numbers(const struct numbers *part, int shards,
                                                             int64_t rows)
{
        struct numbers all = {LOWEST, 0, 0};
        for (int shard = 0; shard < shards; shard++) {
                all.max = fmaxf(all.max, part[shard * rows].max);
                all.logit += part[shard * rows].logit;
        }
        for (int shard = 0; shard < shards; shard++)
                all.sum += part[shard * rows].sum * expf(part[shard * rows].max - all.max);
        return all;
}

/* The part's gradients, in the place of V logits of which `valid` count. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
        part_rows(double *losses, T *logits, const int32_t *__restrict__ targets,
                  const struct numbers *__restrict__ numbers, int shards, int64_t rows, int64_t first,
                  int64_t valid, int64_t V, int64_t apart, float scale)
{
        const int64_t n = blockIdx.x, target = targets[n] - first;
        T *x = logits + n * apart;
        const struct numbers all = all_numbers(numbers + n, shards, rows);
        store_gradients<T>(span_of(x, valid), {all.max, all.sum}, target >= 0 && target < valid ? target : -1,
                           scale);
        for (int64_t v = valid + threadIdx.x; v < V; v += blockDim.x)
                x[v] = from_float<T>(0);
        if (threadIdx.x == 0)
                losses[n] = row_loss({all.max, all.sum}, all.logit);
}

static __global__ void __launch_bounds__(SUM_THREADS)
        losses_of_numbers(double *losses, const struct numbers *__restrict__ numbers, int shards,
                          int64_t rows, int64_t N)
{
        const int64_t n = (int64_t)blockIdx.x * SUM_THREADS + threadIdx.x;
        if (n >= N)
                return;
        const struct numbers all = all_numbers(numbers + n, shards, rows);
        losses[n] = row_loss({all.max, all.sum}, all.logit);
}

/* ---- */

/* *loss += the sum of losses (N). One block. */
static __global__ void __launch_bounds__(SUM_THREADS)
        add_losses(double *loss, const double *__restrict__ losses, int64_t N)
{
        __shared__ double shared[WARP];
        double sum = 0;
#pragma unroll 4
        for (int64_t n = threadIdx.x; n < N; n += SUM_THREADS)
                sum += losses[n];
        sum = row_sum(sum, shared);
        if (threadIdx.x == 0)
                *loss += sum;
}

/* Rows [n, n + rows), with several shards; those of one that writes its numbers have no loss. */
template <typename T>
static cudaError_t launch_part(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, double *losses, int64_t n, int64_t rows)
{
        const int64_t first = args->ld[0], of_shard = args->ld[2],
                      valid = args->stride[0][0] > 0 ? args->stride[0][0] : 0, apart = args->stride[0][1];
        T *logits = args->p[1] ? (T *)args->p[1] + n * apart : NULL;
        const int32_t *targets = (const int32_t *)args->p[2] + (logits ? n : 0);
        struct numbers *numbers = (struct numbers *)args->p[3] + args->ld[1] + n;
        const unsigned threads = whole_warps(ceil_div(valid > 0 ? valid : 1, per_vector<T>), THREADS);
        if (!logits)
                CUDA_LAUNCH(losses_of_numbers, dim3((unsigned)ceil_div(rows, SUM_THREADS)), dim3(SUM_THREADS),
                            0, stream, losses, (const struct numbers *)numbers, (int)args->inner, of_shard,
                            rows);
        else if (kernel->kind == KERNEL_CROSS_ENTROPY_LOSS)
                CUDA_LAUNCH((number_rows<T>), dim3((unsigned)rows), dim3(threads), 0, stream, numbers, logits,
                            targets, first, valid, apart);
        else
                CUDA_LAUNCH((part_rows<T>), dim3((unsigned)rows), dim3(threads), 0, stream, losses, logits,
                            targets, (const struct numbers *)numbers, (int)args->inner, of_shard, first,
                            valid, kernel->n, apart, (float)args->scalar[0]);
        return cudaGetLastError();
}

template <typename T>
static cudaError_t launch_whole(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args, double *losses, int64_t n, int64_t rows)
{
        const int64_t V = kernel->n, apart = args->stride[0][1];
        T *logits = (T *)args->p[1] + n * apart;
        const int32_t *targets = (const int32_t *)args->p[2] + n;
        const unsigned threads = whole_warps(ceil_div(V, per_vector<T>), THREADS);
        const float scale = (float)args->scalar[0];
        if (kernel->kind == KERNEL_CROSS_ENTROPY_LOSS)
                CUDA_LAUNCH((cross_entropy_rows<T, true>), dim3((unsigned)rows), dim3(threads), 0, stream,
                            losses, logits, targets, V, apart, scale);
        else
                CUDA_LAUNCH((cross_entropy_rows<T, false>), dim3((unsigned)rows), dim3(threads), 0, stream,
                            losses, logits, targets, V, apart, scale);
        return cudaGetLastError();
}

/* Rows [n, n + rows). */
template <typename T>
static cudaError_t launch_rows(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, double *losses, int64_t n, int64_t rows)
{
        const cudaError_t error = args->p[3] ? launch_part<T>(stream, kernel, args, losses, n, rows)
                                             : launch_whole<T>(stream, kernel, args, losses, n, rows);
        if (error || !args->p[0])
                return error;
        CUDA_LAUNCH(add_losses, dim3(1), dim3(SUM_THREADS), 0, stream, (double *)args->p[0],
                    (const double *)losses, rows);
        return cudaGetLastError();
}

/* As many rows at a time as the scratch has losses for. */
template <typename T>
static cudaError_t cross_entropy(cudaStream_t stream, const struct kernel *kernel,
                                 const struct kernel_args *args, const struct cuda_work *work)
{
        const int64_t at_once = CUDA_SCRATCH_BYTES / (int64_t)sizeof(double);
        cudaError_t error = cudaSuccess;
        for (int64_t n = 0; n < kernel->m && !error; n += at_once)
                error = launch_rows<T>(stream, kernel, args, (double *)work->scratch, n,
                                       min_int64(at_once, kernel->m - n));
        return error;
}

cudaError_t cuda_cross_entropy(cudaStream_t stream, const struct kernel *kernel,
                               const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, cross_entropy, stream, kernel, args, work);
}
