/* Token and position embeddings, forward and backward.
 *
 * Backward adds the rows of dx that have the same token in the order of their positions, without atomic
 * additions: positions are sorted by token, and a warp adds a token's rows, or a block those of a token that
 * has many: of English text, one in 25 tokens is a comma. The sort counts, for every position, those that
 * come before it: N^2 comparisons of integers, cheap beside dx for the tokens of a micro-batch (README.md).
 */
#include "runtime/device/cuda/positions.cuh"
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

enum { ROWS = 4, WARPS = 8, MAX_BLOCKS_Y = 65535 };

/* The rows of the table that a shard has: as many as `rows` from `first` on; all of them if `rows` is 0. */
struct part {
        int32_t first, rows;
};

static struct part part_of(const struct kernel_args *args)
{
        return {(int32_t)args->ld[1], (int32_t)args->ld[2]};
}

/* The token's row of the part; negative: it has none. */
static __device__ __forceinline__ int32_t row_in(struct part part, int32_t token)
{
        const int32_t row = token - part.first;
        return part.rows == 0 || row < part.rows ? row : -1;
}

/* x (N, C) = wte[tokens] + wpe[position of n], or, wpe NULL, wte[tokens]; 0 for a token that is not of the
 * part. A warp has 32 neighbouring vectors of ROWS rows at once. */
template <typename T, int W>
static __global__ void __launch_bounds__(WARP *WARPS)
        embedding_rows(T *__restrict__ x, const int32_t *__restrict__ tokens, const T *__restrict__ wte,
                       const T *__restrict__ wpe, int N, int64_t C, struct positions positions,
                       struct part part)
{
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        if (column >= C)
                return;
        const int stride = (int)gridDim.y * WARPS;
        for (int64_t n = (int64_t)blockIdx.y * WARPS + threadIdx.y; n < N; n += ROWS * stride) {
                int64_t row[ROWS]; /* past the last one: the last one again */
                int32_t token[ROWS];
                pack<T, W> a[ROWS], b[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        row[r] = n + (int64_t)r * stride < N ? n + (int64_t)r * stride : N - 1;
                        token[r] = row_in(part, tokens[row[r]]);
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        a[r] = token[r] >= 0 ? load<W>(wte + token[r] * C + column) : zeros<T, W>();
                        if (wpe)
                                b[r] = load<W>(wpe + position_at(positions, (unsigned)row[r]) * C + column);
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        float sum[W], position[W] = {};
                        unpack<T, W>(sum, a[r]);
                        if (wpe)
                                unpack<T, W>(position, b[r]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum[j] += position[j];
                        store_floats<W>(x + row[r] * C + column, sum);
                }
        }
}

template <typename T, int W>
static cudaError_t launch_embedding(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args)
{
        const dim3 grid((unsigned)ceil_div(kernel->n, WARP * W),
                        (unsigned)min_int64(ceil_div(kernel->m, ROWS * WARPS), MAX_BLOCKS_Y));
        CUDA_LAUNCH((embedding_rows<T, W>), grid, dim3(WARP, WARPS), 0, stream, (T *)args->p[0],
                    (const int32_t *)args->p[1], (const T *)args->p[2], (const T *)args->p[3], (int)kernel->m,
                    kernel->n, positions_of(args, 0), part_of(args));
        return cudaGetLastError();
}

template <typename T>
static cudaError_t embedding(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        if (kernel->m == 0 || kernel->n == 0)
                return cudaSuccess;
        if (kernel->m > INT_MAX / 2)
                return cudaErrorInvalidValue;
        return whole_vectors<T>(kernel->n, args->p[0], args->p[2], args->p[3])
                       ? launch_embedding<T, per_vector<T>>(stream, kernel, args)
                       : launch_embedding<T, 1>(stream, kernel, args);
}

cudaError_t cuda_embedding(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                           const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, embedding, stream, kernel, args);
}

struct occurrence {
        int32_t token, position;
};

enum { POSITIONS = 4 /* that a warp sorts in */, SORT_THREADS = 256 };

/* sorted (N): the positions by token, equal ones in order. */
static __global__ void __launch_bounds__(SORT_THREADS)
        sort_positions(struct occurrence *sorted, const int32_t *__restrict__ tokens, int N)
{
        const int lane = (int)threadIdx.x % WARP;
        const int first = ((int)blockIdx.x * (SORT_THREADS / WARP) + (int)threadIdx.x / WARP) * POSITIONS;
        if (first >= N)
                return;
        int32_t mine[POSITIONS];
        int before[POSITIONS] = {0};
#pragma unroll
        for (int p = 0; p < POSITIONS; p++) {
                mine[p] = first + p < N ? tokens[first + p] : 0;
                for (int q = 0; q < p && lane == 0; q++)
                        before[p] += mine[q] == mine[p];
        }
#pragma unroll 4
        for (int i = lane; i < first; i += WARP) {
                const int32_t token = tokens[i];
#pragma unroll
                for (int p = 0; p < POSITIONS; p++)
                        before[p] += token <= mine[p];
        }
#pragma unroll 4
        for (int i = first + lane; i < N; i += WARP) {
                const int32_t token = tokens[i];
#pragma unroll
                for (int p = 0; p < POSITIONS; p++)
                        before[p] += token < mine[p];
        }
#pragma unroll
        for (int p = 0; p < POSITIONS; p++) {
                const int at = warp_sum(before[p]);
                if (lane == p && first + p < N)
                        sorted[at] = {mine[p], first + p};
        }
}

/* sum[0..W) += rows k to k + ROWS - 1 of dx in `sorted`, then those from k + step on, and so on while they
 * have `token`. */
template <typename T, int W>
static __device__ __forceinline__ void add_rows(float sum[W], const T *__restrict__ dx, int64_t C,
                                                const struct occurrence *__restrict__ sorted, int k, int step,
                                                int N, int32_t token)
{
        for (bool more = true; more; k += step) {
                struct occurrence at[ROWS];
                pack<T, W> row[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        at[r] = sorted[k + r < N ? k + r : N - 1];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        more = k + r < N && at[r].token == token;
                        row[r] = more ? load<W>(dx + at[r].position * C) : zeros<T, W>();
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        float x[W];
                        unpack<T, W>(x, row[r]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum[j] += x[j];
                }
        }
}

/* A token that so many rows have is a block's, so that not one warp after the other waits for its loads. */
enum { MANY = 64, MANY_WARPS = 16 };

static __device__ __forceinline__ bool has_many(const struct occurrence *__restrict__ sorted, int k, int N)
{
        return k + MANY <= N && sorted[k + MANY - 1].token == sorted[k].token;
}

/* dwte += for each token the sum of its rows of dx. A warp has the token that begins at its place of
 * `sorted`, if one does, and 32 neighbouring vectors of its rows. */
template <typename T, typename G, int W>
static __global__ void __launch_bounds__(WARP *WARPS, 4)
        add_token_rows(G *dwte, const T *__restrict__ dx, const struct occurrence *__restrict__ sorted, int N,
                       int64_t C, struct part part)
{
        const int k = (int)(blockIdx.x * WARPS + threadIdx.y);
        if (k >= N || (k > 0 && sorted[k - 1].token == sorted[k].token) || has_many(sorted, k, N))
                return;
        const int64_t column = ((int64_t)blockIdx.y * WARP + threadIdx.x) * W;
        const int32_t row = row_in(part, sorted[k].token);
        if (column >= C || row < 0)
                return;
        G *to = dwte + row * C + column;
        float sum[W];
        load_floats<W>(sum, (const G *)to);
        add_rows<T, W>(sum, dx + column, C, sorted, k, ROWS, N, sorted[k].token);
        store_floats<W>(to, sum);
}

/* The same of tokens that MANY rows or more have. Their places in `sorted` have a multiple of MANY among
 * them; the block of the first one adds the rows, a warp every MANY_WARPS-th ROWS of them, then the warps'
 * sums. */
template <typename T, typename G, int W>
static __global__ void __launch_bounds__(WARP *MANY_WARPS)
        add_many_rows(G *dwte, const T *__restrict__ dx, const struct occurrence *__restrict__ sorted, int N,
                      int64_t C, struct part part)
{
        __shared__ float shared[MANY_WARPS][W][WARP];
        const int at = (int)blockIdx.x * MANY, thread = (int)(threadIdx.y * WARP + threadIdx.x);
        const int32_t token = sorted[at].token;
        const int before = __syncthreads_count(thread < MANY && at > thread &&
                                               sorted[at > thread ? at - 1 - thread : 0].token == token);
        const int32_t to_row = row_in(part, token);
        if (before == MANY || !has_many(sorted, at - before, N) || to_row < 0)
                return;
        const int64_t column = ((int64_t)blockIdx.y * WARP + threadIdx.x) * W;
        float sum[W] = {0};
        if (column < C)
                add_rows<T, W>(sum, dx + column, C, sorted, at - before + (int)threadIdx.y * ROWS,
                               MANY_WARPS * ROWS, N, token);
#pragma unroll
        for (int j = 0; j < W; j++)
                shared[threadIdx.y][j][threadIdx.x] = sum[j];
        __syncthreads();
        if (threadIdx.y != 0 || column >= C)
                return;
        G *to = dwte + to_row * C + column;
        load_floats<W>(sum, (const G *)to);
        for (int warp = 0; warp < MANY_WARPS; warp++)
#pragma unroll
                for (int j = 0; j < W; j++)
                        sum[j] += shared[warp][j][threadIdx.x];
        store_floats<W>(to, sum);
}

/* dwpe += the sums of every T-th row of dx, of the first `count`, at their positions. */
template <typename T, typename G, int W>
static __global__ void __launch_bounds__(WARP *WARPS)
        add_position_rows(G *dwpe, const T *__restrict__ dx, int64_t N, int64_t C, int64_t count,
                          struct positions positions)
{
        const int64_t column = ((int64_t)blockIdx.y * WARP + threadIdx.x) * W;
        const int64_t t = (int64_t)blockIdx.x * WARPS + threadIdx.y;
        if (t >= count || column >= C)
                return;
        G *to = dwpe + position_at(positions, (unsigned)t) * C + column;
        float sum[W];
        load_floats<W>(sum, (const G *)to);
        add_strided_rows<T, W>(sum, dx + column, t, N, positions.T, C);
        store_floats<W>(to, sum);
}

template <typename T, typename G, int W>
static cudaError_t launch_embedding_backward(cudaStream_t stream, const struct kernel *kernel,
                                             const struct kernel_args *args, const struct cuda_work *work)
{
        G *dwte = (G *)args->p[0], *dwpe = (G *)args->p[1];
        const T *dx = (const T *)args->p[2];
        const int32_t *tokens = (const int32_t *)args->p[3];
        struct occurrence *sorted = (struct occurrence *)work->scratch;
        const int64_t C = kernel->n, positions = min_int64(args->ld[0], kernel->m);
        const int N = (int)kernel->m;
        const unsigned across = (unsigned)ceil_div(C, WARP * W);
        CUDA_LAUNCH(sort_positions, dim3((unsigned)ceil_div(N, SORT_THREADS / WARP * POSITIONS)),
                    dim3(SORT_THREADS), 0, stream, sorted, tokens, N);
        CUDA_LAUNCH((add_token_rows<T, G, W>), dim3((unsigned)ceil_div(N, WARPS), across), dim3(WARP, WARPS),
                    0, stream, dwte, dx, (const struct occurrence *)sorted, N, C, part_of(args));
        if (N >= MANY)
                CUDA_LAUNCH((add_many_rows<T, G, W>), dim3((unsigned)ceil_div(N, MANY), across),
                            dim3(WARP, MANY_WARPS), 0, stream, dwte, dx, (const struct occurrence *)sorted, N,
                            C, part_of(args));
        if (dwpe)
                CUDA_LAUNCH((add_position_rows<T, G, W>), dim3((unsigned)ceil_div(positions, WARPS), across),
                            dim3(WARP, WARPS), 0, stream, dwpe, dx, kernel->m, C, positions,
                            positions_of(args, 0));
        return cudaGetLastError();
}

/* Gradients are stored as G. */
template <typename T, typename G>
static cudaError_t embedding_backward_into(cudaStream_t stream, const struct kernel *kernel,
                                           const struct kernel_args *args, const struct cuda_work *work)
{
        if (kernel->m == 0 || kernel->n == 0)
                return cudaSuccess;
        if (kernel->m > CUDA_SCRATCH_BYTES / (int64_t)sizeof(struct occurrence) ||
            kernel->n > (int64_t)MAX_BLOCKS_Y * WARP)
                return cudaErrorInvalidValue;
        return whole_vectors<T>(kernel->n, args->p[0], args->p[1], args->p[2])
                       ? launch_embedding_backward<T, G, per_vector<T>>(stream, kernel, args, work)
                       : launch_embedding_backward<T, G, 1>(stream, kernel, args, work);
}

template <typename T>
static cudaError_t embedding_backward(cudaStream_t stream, const struct kernel *kernel,
                                      const struct kernel_args *args, const struct cuda_work *work)
{
        return kernel->wide ? embedding_backward_into<T, float>(stream, kernel, args, work)
                            : embedding_backward_into<T, T>(stream, kernel, args, work);
}

cudaError_t cuda_embedding_backward(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, embedding_backward, stream, kernel, args, work);
}
