/* LayerNorm and RMSNorm, forward and backward. Statistics and sums are fp32. RMSNorm is LayerNorm without
 * mean and shift: the same kernels, with less to do.
 *
 * Forward: a thread keeps its vectors of a row, up to HELD, in registers, so that mean, variance and result
 * take one read; there is a kernel for each number of them, since loops over as many as there may be leave
 * room for fewer warps. A row is a warp's if that holds it, else a block's.
 *
 * Backward: dx and the sums over rows, dw and db, come from one read of dy and x. Blocks that stay (a few a
 * multiprocessor) go over the rows; each thread has a vector of columns, whose part of dw and db it keeps in
 * registers until its last row. A second kernel adds the blocks' parts.
 *
 * Rows too long for this take kernels that read them again from the caches; so do rows that are not whole
 * vectors, in the backward pass the long ones alone. */
#include "runtime/device/cuda/reduce.cuh"

#define EPSILON 1e-5F /* LayerNorm's, as GPT-2 */

enum norm { LAYERNORM, RMSNORM };

enum { HELD = 8, HELD_THREADS = 512 /* at most, so that a thread may have 128 registers */ };
enum { ROWS_A_BLOCK = 4 /* where a row is a warp's */ };

/* RMSNorm has neither mean nor b, and nothing that is added to w. */
template <typename T> struct norm_operands {
        T *y;
        float *mean, *rstd;
        const T *x, *w, *b;
        int64_t N, C;
        float epsilon, more; /* added to w */
};

/* W elements of w, with `more`. */
template <int W, enum norm norm> static __device__ __forceinline__ void add_to_weights(float w[W], float more)
{
        if constexpr (norm == LAYERNORM)
#pragma unroll
                for (int j = 0; j < W; j++)
                        w[j] += more;
}

template <typename T, int W, enum norm norm>
static __device__ __forceinline__ void store_normalised(const struct norm_operands<T> &of, int64_t row,
                                                        int64_t column, const pack<T, W> &stored, float mean,
                                                        float rstd)
{
        float x[W], w[W], b[W];
        unpack<T, W>(x, stored);
        load_floats<W>(w, of.w + column);
        add_to_weights<W, norm>(w, of.more);
        if constexpr (norm == LAYERNORM)
                load_floats<W>(b, of.b + column);
#pragma unroll
        for (int j = 0; j < W; j++) {
                if constexpr (norm == LAYERNORM)
                        x[j] = (x[j] - mean) * rstd * w[j] + b[j];
                else
                        x[j] = x[j] * rstd * w[j];
        }
        store_floats<W>(of.y + row * of.C + column, x);
}

template <typename T, enum norm norm>
static __device__ __forceinline__ void store_statistics(const struct norm_operands<T> &of, int64_t row,
                                                        float mean, float rstd)
{
        if (threadIdx.x != 0)
                return;
        if constexpr (norm == LAYERNORM)
                of.mean[row] = mean;
        of.rstd[row] = rstd;
}

template <typename T, int W> static __device__ __forceinline__ float sum_of(const pack<T, W> &p)
{
        float x[W], sum = 0;
        unpack<T, W>(x, p);
#pragma unroll
        for (int j = 0; j < W; j++)
                sum += x[j];
        return sum;
}

template <typename T, int W>
static __device__ __forceinline__ float squares_of(const pack<T, W> &p, float mean)
{
        float x[W], sum = 0;
        unpack<T, W>(x, p);
#pragma unroll
        for (int j = 0; j < W; j++)
                sum += (x[j] - mean) * (x[j] - mean);
        return sum;
}

static __device__ __forceinline__ float rstd_of(float squares, int64_t C, float epsilon)
{
        return 1 / sqrtf(squares / (float)C + epsilon);
}

/* For rows of whole vectors, at most `count` blockDim.x of them. */
template <typename T, enum norm norm, int count>
static __global__ void __launch_bounds__(HELD_THREADS) norm_held(struct norm_operands<T> of)
{
        constexpr int W = per_vector<T>;
        __shared__ float shared[WARP];
        const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
        if (row >= of.N)
                return; /* a whole warp: a block of one row has one */
        const T *x = of.x + row * of.C;
        const int accesses = (int)(of.C / W), mine = (int)threadIdx.x, stride = (int)blockDim.x;
        pack<T, W> held[count];
#pragma unroll
        for (int k = 0; k < count; k++)
                if (mine + k * stride < accesses)
                        held[k] = load<W>(x + (mine + k * stride) * W);
        float mean = 0, squares = 0;
        if constexpr (norm == LAYERNORM) {
                float sum = 0;
#pragma unroll
                for (int k = 0; k < count; k++)
                        if (mine + k * stride < accesses)
                                sum += sum_of<T, W>(held[k]);
                mean = row_sum(sum, shared) / (float)of.C;
        }
#pragma unroll
        for (int k = 0; k < count; k++)
                if (mine + k * stride < accesses)
                        squares += squares_of<T, W>(held[k], mean);
        const float rstd = rstd_of(row_sum(squares, shared), of.C, of.epsilon);
        store_statistics<T, norm>(of, row, mean, rstd);
#pragma unroll
        for (int k = 0; k < count; k++)
                if (mine + k * stride < accesses)
                        store_normalised<T, W, norm>(of, row, (mine + k * stride) * W, held[k], mean, rstd);
}

/* For longer rows: a block a row, read three times (RMSNorm: twice). */
template <typename T, int W, enum norm norm>
static __global__ void __launch_bounds__(MAX_THREADS) norm_long(struct norm_operands<T> of)
{
        __shared__ float shared[WARP];
        const int64_t row = blockIdx.x, first = (int64_t)threadIdx.x * W, stride = (int64_t)blockDim.x * W;
        const T *x = of.x + row * of.C;
        float mean = 0, squares = 0;
        if constexpr (norm == LAYERNORM) {
                float sum = 0;
#pragma unroll 4
                for (int64_t c = first; c < of.C; c += stride)
                        sum += sum_of<T, W>(load<W>(x + c));
                mean = row_sum(sum, shared) / (float)of.C;
        }
#pragma unroll 4
        for (int64_t c = first; c < of.C; c += stride)
                squares += squares_of<T, W>(load<W>(x + c), mean);
        const float rstd = rstd_of(row_sum(squares, shared), of.C, of.epsilon);
        store_statistics<T, norm>(of, row, mean, rstd);
        for (int64_t c = first; c < of.C; c += stride)
                store_normalised<T, W, norm>(of, row, c, load<W>(x + c), mean, rstd);
}

template <typename T, enum norm norm, int count>
static void launch_rows_of_warps(cudaStream_t stream, const struct norm_operands<T> *of)
{
        CUDA_LAUNCH((norm_held<T, norm, count>), dim3((unsigned)ceil_div(of->N, ROWS_A_BLOCK)),
                    dim3(WARP, ROWS_A_BLOCK), 0, stream, *of);
}

template <typename T, enum norm norm, int count>
static void launch_rows_of_blocks(cudaStream_t stream, const struct norm_operands<T> *of)
{
        CUDA_LAUNCH((norm_held<T, norm, count>), dim3((unsigned)of->N),
                    dim3(whole_warps(ceil_div(of->C / per_vector<T>, HELD / 2), HELD_THREADS)), 0, stream,
                    *of);
}

template <typename T, int W, enum norm norm>
static cudaError_t launch_long_rows(cudaStream_t stream, const struct norm_operands<T> *of)
{
        CUDA_LAUNCH((norm_long<T, W, norm>), dim3((unsigned)of->N), dim3(whole_warps(of->C / W, MAX_THREADS)),
                    0, stream, *of);
        return cudaGetLastError();
}

template <typename T, enum norm norm>
static cudaError_t launch_vectors(cudaStream_t stream, const struct norm_operands<T> *of)
{
        const int64_t accesses = of->C / per_vector<T>;
        if (accesses <= WARP)
                launch_rows_of_warps<T, norm, 1>(stream, of);
        else if (accesses <= WARP * 2)
                launch_rows_of_warps<T, norm, 2>(stream, of);
        else if (accesses <= WARP * 3)
                launch_rows_of_warps<T, norm, 3>(stream, of);
        else if (accesses <= WARP * 4)
                launch_rows_of_warps<T, norm, 4>(stream, of);
        else if (accesses <= WARP * 6)
                launch_rows_of_warps<T, norm, 6>(stream, of);
        else if (accesses <= WARP * HELD)
                launch_rows_of_warps<T, norm, HELD>(stream, of);
        else if (accesses <= HELD_THREADS * HELD / 2)
                launch_rows_of_blocks<T, norm, HELD / 2>(stream, of);
        else if (accesses <= HELD_THREADS * HELD)
                launch_rows_of_blocks<T, norm, HELD>(stream, of);
        else
                return launch_long_rows<T, per_vector<T>, norm>(stream, of);
        return cudaGetLastError();
}

template <typename T, enum norm norm>
static cudaError_t launch_forward(cudaStream_t stream, const struct norm_operands<T> &of)
{
        if (of.N == 0 || of.C == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.C, of.y, of.x, of.w, of.b))
                return launch_vectors<T, norm>(stream, &of);
        return launch_long_rows<T, 1, norm>(stream, &of);
}

template <typename T>
static cudaError_t layernorm(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        float *stats = (float *)args->p[1];
        return launch_forward<T, LAYERNORM>(stream, {(T *)args->p[0], stats, stats + args->ld[0],
                                                     (const T *)args->p[2], (const T *)args->p[3],
                                                     (const T *)args->p[4], kernel->m, kernel->n, EPSILON,
                                                     (float)args->scalar[0]});
}

template <typename T>
static cudaError_t rmsnorm(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        return launch_forward<T, RMSNORM>(stream, {(T *)args->p[0], NULL, (float *)args->p[1],
                                                   (const T *)args->p[2], (const T *)args->p[3], NULL,
                                                   kernel->m, kernel->n, (float)args->scalar[0], 0});
}

cudaError_t cuda_layernorm(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                           const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, layernorm, stream, kernel, args);
}

cudaError_t cuda_rmsnorm(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, rmsnorm, stream, kernel, args);
}

template <typename T> struct norm_backward_operands {
        T *dx;
        const T *dy, *x, *w;
        const float *mean, *rstd;
        int64_t N, C;
        bool accumulate;
        float more;      /* added to w */
        float *partials; /* (blocks, 2, C): each block's dw, then its db; RMSNorm (blocks, C): dw */
};

/* dw and db, or dw alone. */
template <enum norm norm> constexpr int summed_vectors = norm == LAYERNORM ? 2 : 1;

/* With h = (x - mean) rstd and g = dy w: the sums of g (RMSNorm: 0) and g h over a row. */
struct row_sums {
        float g, gh;
};

/* h, and a vector's part of its row's sums. */
template <typename T, int W, enum norm norm>
static __device__ __forceinline__ struct row_sums
normalised_sums(float h[W], const float dy[W], const pack<T, W> &x, const float w[W], float mean, float rstd)
{
        struct row_sums sums = {0, 0};
        unpack<T, W>(h, x);
#pragma unroll
        for (int j = 0; j < W; j++) {
                h[j] = (h[j] - mean) * rstd;
                if constexpr (norm == LAYERNORM)
                        sums.g += dy[j] * w[j];
                sums.gh += dy[j] * w[j] * h[j];
        }
        return sums;
}

/* dx = before + rstd (g - mean(g) - h mean(g h)). */
template <typename T, int W>
static __device__ __forceinline__ void store_dx(T *dx, const pack<T, W> &before, const float h[W],
                                                const float dy[W], const float w[W], float rstd, float mean_g,
                                                float mean_gh)
{
        float to[W];
        unpack<T, W>(to, before);
#pragma unroll
        for (int j = 0; j < W; j++)
                to[j] += rstd * (dy[j] * w[j] - mean_g - h[j] * mean_gh);
        store_floats<W>(dx, to);
}

/* The sums over the row of blockDim.x threads that this thread is in. `shared`: a value a warp of the block;
 * a call may use what the call before the last one used. */
template <enum norm norm>
static __device__ __forceinline__ struct row_sums group_sums(struct row_sums mine, float2 *shared)
{
        const int warps = (int)blockDim.x / WARP, first = (int)threadIdx.y * warps;
        if constexpr (norm == LAYERNORM)
                mine.g = warp_sum(mine.g);
        mine.gh = warp_sum(mine.gh);
        if (threadIdx.x % WARP == 0)
                shared[first + (int)threadIdx.x / WARP] = make_float2(mine.g, mine.gh);
        __syncthreads();
        struct row_sums sums = {0, 0};
#pragma unroll 4
        for (int i = 0; i < warps; i++) {
                sums.g += shared[first + i].x;
                sums.gh += shared[first + i].y;
        }
        return sums;
}

/* Adds the groups' sums, from the first to the last, and stores them as this block's. */
template <int W>
static __device__ __forceinline__ void store_partial(float *to, const float mine[W], float *shared,
                                                     bool inside)
{
        const int threads = (int)blockDim.x, row = threads * W;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < W; j++)
                shared[(int)threadIdx.y * row + j * threads + (int)threadIdx.x] = mine[j];
        __syncthreads();
        if (threadIdx.y != 0 || !inside)
                return;
#pragma unroll
        for (int j = 0; j < W; j++) {
                float sum = 0;
#pragma unroll 1
                for (int group = 0; group < (int)blockDim.y; group++)
                        sum += shared[group * row + j * threads + (int)threadIdx.x];
                to[j] = sum;
        }
}

/* What a thread reads of a row; zeros beside the matrix, and for RMSNorm's mean. */
template <typename T, int W> struct row_vectors {
        pack<T, W> dy, x;
        float mean, rstd;
};

template <typename T, int W, enum norm norm>
static __device__ __forceinline__ struct row_vectors<T, W>
row_vectors_of(const struct norm_backward_operands<T> &of, int64_t row, int64_t column) {
        struct row_vectors<T, W> v = {
                zeros<T, W>(), zeros<T, W>(), 0, 0
        };
        if (row >= of.N || column >= of.C)
                return v;
        const int64_t at = row * of.C + column;
        v.dy = load<W>(of.dy + at);
        v.x = load<W>(of.x + at);
        if constexpr (norm == LAYERNORM)
                v.mean = of.mean[row];
        v.rstd = of.rstd[row];
        return v;
}

/* At most, so that a thread may have 80 registers; and that many of a multiprocessor's stay. */
enum { BACKWARD_THREADS = 768 };

/* blockDim (threads of a row, groups): a thread has one vector of columns, blockDim.y rows are under way in
 * the block. Dynamic shared memory: W floats a thread. */
template <typename T, int W, enum norm norm>
static __global__ void __launch_bounds__(BACKWARD_THREADS)
        norm_backward_held(struct norm_backward_operands<T> of)
{
        CUDA_DYNAMIC_SHARED(shared);
        __shared__ float2 sums_of_warps[2][WARP];
        const int64_t column = (int64_t)threadIdx.x * W;
        const bool inside = column < of.C;
        const pack<T, W> stored_w = inside ? load<W>(of.w + column) : zeros<T, W>();
        float dw[W] = {0}, db[W] = {0};
        const int64_t stride = (int64_t)gridDim.x * blockDim.y;
        struct row_vectors<T, W> next =
                row_vectors_of<T, W, norm>(of, (int64_t)blockIdx.x * blockDim.y + threadIdx.y, column);
        const float scale = 1 / (float)of.C;
        int turn = 0;
        for (int64_t first = (int64_t)blockIdx.x * blockDim.y; first < of.N; first += stride) {
                const int64_t row = first + threadIdx.y;
                const struct row_vectors<T, W> now = next;
                T *dx = of.dx + row * of.C + column;
                const bool mine = inside && row < of.N;
                const pack<T, W> before = mine && of.accumulate ? load<W>((const T *)dx) : zeros<T, W>();
                next = row_vectors_of<T, W, norm>(of, row + stride, column);
                float h[W], dy[W], w[W];
                unpack<T, W>(w, stored_w);
                add_to_weights<W, norm>(w, of.more);
                unpack<T, W>(dy, now.dy);
                const struct row_sums sums =
                        group_sums<norm>(normalised_sums<T, W, norm>(h, dy, now.x, w, now.mean, now.rstd),
                                         sums_of_warps[turn]);
                turn ^= 1;
#pragma unroll
                for (int j = 0; j < W; j++) {
                        dw[j] += dy[j] * h[j];
                        if constexpr (norm == LAYERNORM)
                                db[j] += dy[j];
                }
                if (mine)
                        store_dx<T, W>(dx, before, h, dy, w, now.rstd, sums.g * scale, sums.gh * scale);
        }
        float *to = of.partials + (int64_t)blockIdx.x * summed_vectors<norm> * of.C + column;
        store_partial<W>(to, dw, (float *)shared, inside);
        if constexpr (norm == LAYERNORM)
                store_partial<W>(to + of.C, db, (float *)shared, inside);
}

/* For longer rows: the block's sums stay in its part of `partials`, which are read and written for every
 * LONG_ROWS rows. */
enum { LONG_ROWS = 4, LONG_THREADS = 512 };

template <typename T, enum norm norm>
static __device__ __forceinline__ float mean_of(const struct norm_backward_operands<T> &of, int64_t row)
{
        if constexpr (norm == LAYERNORM)
                return of.mean[row];
        else
                return 0;
}

template <typename T, int W, enum norm norm>
static __device__ __forceinline__ void long_row_sums(const struct norm_backward_operands<T> &of,
                                                     int64_t first, struct row_sums sums[LONG_ROWS],
                                                     float *shared)
{
#pragma unroll
        for (int r = 0; r < LONG_ROWS; r++)
                sums[r] = {0, 0};
        for (int64_t c = (int64_t)threadIdx.x * W; c < of.C; c += (int64_t)blockDim.x * W) {
                float w[W], dy[W], h[W];
                load_floats<W>(w, of.w + c);
                add_to_weights<W, norm>(w, of.more);
#pragma unroll
                for (int r = 0; r < LONG_ROWS; r++) {
                        if (first + r >= of.N)
                                continue;
                        const int64_t row = first + r, at = row * of.C + c;
                        load_floats<W>(dy, of.dy + at);
                        const struct row_sums part = normalised_sums<T, W, norm>(
                                h, dy, load<W>(of.x + at), w, mean_of<T, norm>(of, row), of.rstd[row]);
                        sums[r].g += part.g;
                        sums[r].gh += part.gh;
                }
        }
#pragma unroll
        for (int r = 0; r < LONG_ROWS; r++) {
                if constexpr (norm == LAYERNORM)
                        sums[r].g = row_sum(sums[r].g, shared) / (float)of.C;
                sums[r].gh = row_sum(sums[r].gh, shared) / (float)of.C;
        }
}

template <typename T, int W, enum norm norm>
static __device__ __forceinline__ void long_rows(const struct norm_backward_operands<T> &of, int64_t first,
                                                 const struct row_sums means[LONG_ROWS], float *partial,
                                                 bool fresh)
{
        for (int64_t c = (int64_t)threadIdx.x * W; c < of.C; c += (int64_t)blockDim.x * W) {
                float w[W], dy[W], h[W], dw[W] = {0}, db[W] = {0};
                load_floats<W>(w, of.w + c);
                add_to_weights<W, norm>(w, of.more);
#pragma unroll
                for (int j = 0; j < W && !fresh; j++) {
                        dw[j] = partial[c + j];
                        if constexpr (norm == LAYERNORM)
                                db[j] = partial[of.C + c + j];
                }
#pragma unroll
                for (int r = 0; r < LONG_ROWS; r++) {
                        if (first + r >= of.N)
                                continue;
                        const int64_t row = first + r, at = row * of.C + c;
                        const float rstd = of.rstd[row];
                        load_floats<W>(dy, of.dy + at);
                        normalised_sums<T, W, norm>(h, dy, load<W>(of.x + at), w, mean_of<T, norm>(of, row),
                                                    rstd);
                        const pack<T, W> before =
                                of.accumulate ? load<W>((const T *)of.dx + at) : zeros<T, W>();
                        store_dx<T, W>(of.dx + at, before, h, dy, w, rstd, means[r].g, means[r].gh);
#pragma unroll
                        for (int j = 0; j < W; j++) {
                                dw[j] += dy[j] * h[j];
                                if constexpr (norm == LAYERNORM)
                                        db[j] += dy[j];
                        }
                }
#pragma unroll
                for (int j = 0; j < W; j++) {
                        partial[c + j] = dw[j];
                        if constexpr (norm == LAYERNORM)
                                partial[of.C + c + j] = db[j];
                }
        }
}

template <typename T, int W, enum norm norm>
static __global__ void __launch_bounds__(LONG_THREADS) norm_backward_long(struct norm_backward_operands<T> of)
{
        __shared__ float shared[WARP];
        float *partial = of.partials + (int64_t)blockIdx.x * summed_vectors<norm> * of.C;
        bool fresh = true;
        for (int64_t first = (int64_t)blockIdx.x * LONG_ROWS; first < of.N;
             first += (int64_t)gridDim.x * LONG_ROWS) {
                struct row_sums means[LONG_ROWS];
                long_row_sums<T, W, norm>(of, first, means, shared);
                long_rows<T, W, norm>(of, first, means, partial, fresh);
                fresh = false;
        }
}

template <typename T, int W, enum norm norm>
static cudaError_t launch_norm_backward(cudaStream_t stream, const struct norm_backward_operands<T> *of,
                                        bool wide, void *dw, void *db, const struct cuda_work *work)
{
        const int64_t row_bytes = summed_vectors<norm> * (int64_t)sizeof(float) * of->C;
        const int64_t fit = CUDA_SCRATCH_BYTES / row_bytes, accesses = of->C / W;
        if (fit == 0)
                return cudaErrorInvalidValue;
        int64_t blocks;
        if (accesses <= BACKWARD_THREADS) {
                const int64_t threads = whole_warps(accesses, BACKWARD_THREADS);
                const int64_t groups = max_int64(BACKWARD_THREADS / 2 / threads, 1);
                const int64_t resident = work->processors * (BACKWARD_THREADS / (threads * groups));
                blocks = min_int64(min_int64(resident, fit), ceil_div(of->N, groups));
                CUDA_LAUNCH((norm_backward_held<T, W, norm>), dim3((unsigned)blocks),
                            dim3((unsigned)threads, (unsigned)groups),
                            (size_t)(threads * groups * W) * sizeof(float), stream, *of);
        } else {
                blocks = min_int64(min_int64(2 * (int64_t)work->processors, fit), ceil_div(of->N, LONG_ROWS));
                CUDA_LAUNCH((norm_backward_long<T, W, norm>), dim3((unsigned)blocks), dim3(LONG_THREADS), 0,
                            stream, *of);
        }
        const cudaError_t error = cudaGetLastError();
        return error ? error : launch_add_partials<T>(stream, wide, dw, db, of->partials, blocks, of->C);
}

template <typename T, enum norm norm>
static cudaError_t launch_backward(cudaStream_t stream, const struct norm_backward_operands<T> &of, bool wide,
                                   void *dw, void *db, const struct cuda_work *work)
{
        if (of.N == 0 || of.C == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.C, of.dx, of.dy, of.x, of.w))
                return launch_norm_backward<T, per_vector<T>, norm>(stream, &of, wide, dw, db, work);
        return launch_norm_backward<T, 1, norm>(stream, &of, wide, dw, db, work);
}

template <typename T>
static cudaError_t layernorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                      const struct kernel_args *args, const struct cuda_work *work)
{
        const float *stats = (const float *)args->p[5];
        return launch_backward<T, LAYERNORM>(stream,
                                             {(T *)args->p[0], (const T *)args->p[3], (const T *)args->p[4],
                                              (const T *)args->p[6], stats, stats + args->ld[0], kernel->m,
                                              kernel->n, kernel->accumulate != 0, (float)args->scalar[0],
                                              (float *)work->scratch},
                                             kernel->wide, args->p[1], args->p[2], work);
}

template <typename T>
static cudaError_t rmsnorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args, const struct cuda_work *work)
{
        return launch_backward<T, RMSNORM>(stream,
                                           {(T *)args->p[0], (const T *)args->p[2], (const T *)args->p[3],
                                            (const T *)args->p[5], NULL, (const float *)args->p[4], kernel->m,
                                            kernel->n, kernel->accumulate != 0, 0, (float *)work->scratch},
                                           kernel->wide, args->p[1], NULL, work);
}

cudaError_t cuda_layernorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, layernorm_backward, stream, kernel, args, work);
}

cudaError_t cuda_rmsnorm_backward(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, rmsnorm_backward, stream, kernel, args, work);
}
