/* Queries, keys and values of multi-head latent attention, and back.
 *
 * A block has a row at a time, as in rope.cu: its threads first make the row's sines and cosines, once for
 * all heads, in shared memory, then turn the last columns of queries and keys, a vector of both halves at a
 * time, and copy the others. More than FREQUENCIES pairs that turn are done in parts.
 *
 * What all heads share has a gradient that is a sum over heads. Rotating is linear, so the gradients are
 * added first, by as many threads side by side as there are vectors, and by several for each of them, in an
 * order that shapes alone decide; the sum is turned back. */
#include "runtime/device/cuda/angles.cuh"
#include "runtime/device/cuda/positions.cuh"
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

enum { FREQUENCIES = 128, THREADS = 2 * FREQUENCIES, BLOCKS_A_PROCESSOR = 8 };

/* Rows of `heads` heads: queries, keys and values beside each other in qkv, each head `width` columns; q
 * alike; of a head in kv `copied` columns of its key, then its value; shared, of `turned` columns. */
template <typename T> struct latent_operands {
        T *qkv, *q, *kv, *shared;
        int N; /* rows */
        struct positions positions;
        int heads, width, copied, turned, values;
        bool interleaved;
        float length;
        struct rope_rule rule;
};

/* One row's. */
template <typename T> struct latent_row {
        T *query, *key, *value, *q, *kv, *shared;
};

template <typename T>
static __device__ __forceinline__ struct latent_row<T> row_of(const struct latent_operands<T> &of,
                                                              int64_t row) {
        const int64_t n = (int64_t)of.heads * of.width, l = (int64_t)of.heads * (of.copied + of.values);
        T *query = of.qkv + row * 3 * n;
        return {query, query + n, query + 2 * n, of.q + row *n, of.kv + row *l, of.shared + row *of.turned};
}

/* W pairs that turn, from pair i on, before they have turned: they lie side by side, or half the columns
 * apart. */
template <typename T, int W>
static __device__ __forceinline__ void load_pairs(const struct latent_operands<T> &of, const T *from, int i,
                                                  float x[W], float y[W])
{
        if (!of.interleaved) {
                load_floats<W>(x, from + i);
                load_floats<W>(y, from + of.turned / 2 + i);
                return;
        }
        float both[2 * W];
        load_floats<W>(both, from + 2 * i);
        load_floats<W>(both + W, from + 2 * i + W);
#pragma unroll
        for (int j = 0; j < W; j++) {
                x[j] = both[2 * j];
                y[j] = both[2 * j + 1];
        }
}

template <typename T, int W>
static __device__ __forceinline__ void store_pairs(const struct latent_operands<T> &of, T *to, int i,
                                                   const float x[W], const float y[W])
{
        if (!of.interleaved) {
                store_floats<W>(to + i, x);
                store_floats<W>(to + of.turned / 2 + i, y);
                return;
        }
        float both[2 * W];
#pragma unroll
        for (int j = 0; j < W; j++) {
                both[2 * j] = x[j];
                both[2 * j + 1] = y[j];
        }
        store_floats<W>(to + 2 * i, both);
        store_floats<W>(to + 2 * i + W, both + W);
}

/* W pairs, from pair i on, written to a head of queries or keys, where they lie half the columns apart. */
template <typename T, int W>
static __device__ __forceinline__ void turn(const struct latent_operands<T> &of, T *to, const T *from, int i,
                                            const float *sine, const float *cosine)
{
        float a[W], b[W], x[W], y[W];
        load_pairs<T, W>(of, from, i, a, b);
#pragma unroll
        for (int j = 0; j < W; j++) {
                x[j] = of.length * (a[j] * cosine[j] - b[j] * sine[j]);
                y[j] = of.length * (b[j] * cosine[j] + a[j] * sine[j]);
        }
        store_floats<W>(to + i, x);
        store_floats<W>(to + of.turned / 2 + i, y);
}

/* The gradients of W pairs a, b of those of what they were turned to, in place. */
template <int W>
static __device__ __forceinline__ void turn_back(float length, float a[W], float b[W], const float *sine,
                                                 const float *cosine)
{
#pragma unroll
        for (int j = 0; j < W; j++) {
                const float x = a[j], y = b[j];
                a[j] = length * (x * cosine[j] + y * sine[j]);
                b[j] = length * (y * cosine[j] - x * sine[j]);
        }
}

/* Sines and cosines of `count` frequencies, of a row; the block's threads all call. `turns`: this thread's
 * half turns a position. */
template <typename T>
static __device__ __forceinline__ void make_angles(const struct latent_operands<T> &of, unsigned row,
                                                   int count, double turns, float *sine, float *cosine)
{
        const int mine = (int)threadIdx.x;
        __syncthreads(); /* the row before is done with them */
        if (mine < count)
                sine_and_cosine(position_at(of.positions, row) * turns, &sine[mine], &cosine[mine]);
        __syncthreads();
}

template <typename T, int W, bool backward>
static __device__ __forceinline__ void copy_row(const struct latent_operands<T> &of,
                                                const struct latent_row<T> &row)
{
        const unsigned keys = (unsigned)of.copied / W, a_head = 2 * keys + (unsigned)of.width / W;
        for (unsigned at = threadIdx.x; at < (unsigned)of.heads * a_head; at += THREADS) {
                const int64_t head = at / a_head;
                const unsigned which = at % a_head;
                T *kv = row.kv + head * (of.copied + of.values), *one, *other;
                if (which < keys) {
                        one = row.query + head * of.width + which * W;
                        other = row.q + head * of.width + which * W;
                } else if (which < 2 * keys) {
                        one = row.key + head * of.width + (which - keys) * W;
                        other = kv + (which - keys) * W;
                } else {
                        const int i = (int)(which - 2 * keys) * W;
                        one = row.value + head * of.width + i;
                        other = i < of.values ? kv + of.copied + i : NULL;
                }
                if constexpr (backward) {
                        if (other)
                                store<W>(other, load<W>((const T *)one));
                } else {
                        store<W>(one, other ? load<W>((const T *)other) : zeros<T, W>());
                }
        }
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) latent_rows(struct latent_operands<T> of)
{
        __shared__ __align__(16) float sine[FREQUENCIES], cosine[FREQUENCIES];
        const int half = of.turned / 2;
        for (int begin = 0; begin < half; begin += FREQUENCIES) {
                const int count = half - begin < FREQUENCIES ? half - begin : (int)FREQUENCIES;
                const double turns = half_turns(&of.rule, of.turned, begin + (int)threadIdx.x);
                const unsigned a_head = (unsigned)count / W;
                for (unsigned at = blockIdx.x; at < (unsigned)of.N; at += gridDim.x) {
                        const struct latent_row<T> row = row_of(of, at);
                        make_angles(of, at, count, turns, sine, cosine);
                        for (unsigned i = threadIdx.x; i < (unsigned)of.heads * a_head; i += THREADS) {
                                const int64_t head = i / a_head * of.width + of.copied;
                                const int pair = (int)(i % a_head) * W;
                                turn<T, W>(of, row.query + head, row.q + head, begin + pair, sine + pair,
                                           cosine + pair);
                                turn<T, W>(of, row.key + head, row.shared, begin + pair, sine + pair,
                                           cosine + pair);
                        }
                        if (begin == 0)
                                copy_row<T, W, false>(of, row);
                }
        }
}

/* The gradient of `count` pairs of what heads share, from pair `begin` on: the sum of theirs, turned back.
 * `sums`: THREADS x W floats of shared memory. */
template <typename T, int W>
static __device__ __forceinline__ void add_heads(const struct latent_operands<T> &of,
                                                 const struct latent_row<T> &row, int begin, int count,
                                                 const float *sine, const float *cosine, float *sums)
{
        const int vectors = 2 * count / W, slices = THREADS / vectors, mine = (int)threadIdx.x;
        const int vector = mine % vectors, slice = mine / vectors;
        const int column = vector < vectors / 2 ? vector * W : of.turned / 2 + (vector - vectors / 2) * W;
        float sum[W] = {0};
        if (slice < slices) {
                for (int head = slice; head < of.heads; head += slices) {
                        float x[W];
                        load_floats<W>(x, (const T *)row.key + (int64_t)head * of.width + of.copied + begin +
                                                  column);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum[j] += x[j];
                }
#pragma unroll
                for (int j = 0; j < W; j++)
                        sums[(slice * vectors + vector) * W + j] = sum[j];
        }
        __syncthreads();
        if (mine < count) {
                float x[1] = {0}, y[1] = {0};
                for (int s = 0; s < slices; s++) {
                        x[0] += sums[s * 2 * count + mine];
                        y[0] += sums[s * 2 * count + count + mine];
                }
                turn_back<1>(of.length, x, y, sine + mine, cosine + mine);
                store_pairs<T, 1>(of, row.shared, begin + mine, x, y);
        }
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) latent_gradients(struct latent_operands<T> of)
{
        __shared__ __align__(16) float sine[FREQUENCIES], cosine[FREQUENCIES], sums[THREADS * W];
        const int half = of.turned / 2;
        for (int begin = 0; begin < half; begin += FREQUENCIES) {
                const int count = half - begin < FREQUENCIES ? half - begin : (int)FREQUENCIES;
                const double turns = half_turns(&of.rule, of.turned, begin + (int)threadIdx.x);
                const unsigned a_head = (unsigned)count / W;
                for (unsigned at = blockIdx.x; at < (unsigned)of.N; at += gridDim.x) {
                        const struct latent_row<T> row = row_of(of, at);
                        make_angles(of, at, count, turns, sine, cosine);
                        for (unsigned i = threadIdx.x; i < (unsigned)of.heads * a_head; i += THREADS) {
                                const int64_t head = i / a_head * of.width + of.copied;
                                const int pair = (int)(i % a_head) * W;
                                const T *from = row.query + head + begin + pair;
                                float x[W], y[W];
                                load_floats<W>(x, from);
                                load_floats<W>(y, from + half);
                                turn_back<W>(of.length, x, y, sine + pair, cosine + pair);
                                store_pairs<T, W>(of, row.q + head, begin + pair, x, y);
                        }
                        add_heads<T, W>(of, row, begin, count, sine, cosine, sums);
                        if (begin == 0)
                                copy_row<T, W, true>(of, row);
                }
        }
}

template <typename T, int W, bool backward>
static cudaError_t launch_latent(cudaStream_t stream, const struct latent_operands<T> *of,
                                 const struct cuda_work *work)
{
        const dim3 blocks((unsigned)min_int64(of->N, (int64_t)BLOCKS_A_PROCESSOR * work->processors));
        if constexpr (backward)
                CUDA_LAUNCH((latent_gradients<T, W>), blocks, dim3(THREADS), 0, stream, *of);
        else
                CUDA_LAUNCH((latent_rows<T, W>), blocks, dim3(THREADS), 0, stream, *of);
        return cudaGetLastError();
}

template <typename T, bool backward>
static cudaError_t latent(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                          const struct cuda_work *work, void *const p[4])
{
        const int64_t heads = args->inner;
        if (kernel->m > INT_MAX / 2 || 3 * kernel->n > INT_MAX || kernel->l > INT_MAX ||
            args->ld[0] > INT_MAX / 2)
                return cudaErrorInvalidValue;
        const int width = (int)(kernel->n / heads), turned = (int)kernel->k, copied = width - turned,
                  values = (int)(kernel->l / heads) - copied;
        const struct latent_operands<T> of = {
                (T *)p[0], (T *)p[1], (T *)p[2], (T *)p[3], (int)kernel->m, positions_of(args, args->ld[1]),
                        (int)heads, width, copied, turned, values, args->scalar[6] != 0,
                        (float)args->scalar[1], rope_rule_of(args->scalar)
        };
        if (of.N == 0)
                return cudaSuccess;
        if (whole_vectors<T>(turned / 2, of.qkv, of.q, of.kv, of.shared) && whole_vectors<T>(copied) &&
            whole_vectors<T>(values))
                return launch_latent<T, per_vector<T>, backward>(stream, &of, work);
        return launch_latent<T, 1, backward>(stream, &of, work);
}

template <typename T>
static cudaError_t latent_qkv(cudaStream_t stream, const struct kernel *kernel,
                              const struct kernel_args *args, const struct cuda_work *work)
{
        void *const p[] = {args->p[0], args->p[1], args->p[2], args->p[3]};
        return latent<T, false>(stream, kernel, args, work, p);
}

template <typename T>
static cudaError_t latent_qkv_backward(cudaStream_t stream, const struct kernel *kernel,
                                       const struct kernel_args *args, const struct cuda_work *work)
{
        void *const p[] = {args->p[3], args->p[0], args->p[1], args->p[2]};
        return latent<T, true>(stream, kernel, args, work, p);
}

cudaError_t cuda_latent_qkv(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                            const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, latent_qkv, stream, kernel, args, work);
}

cudaError_t cuda_latent_qkv_backward(cudaStream_t stream, const struct kernel *kernel,
                                     const struct kernel_args *args, const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, latent_qkv_backward, stream, kernel, args, work);
}
