/* Rotary position embedding, in place: of the columns of a head that turn, i turns with i + turned / 2.
 *
 * A block has a row at a time. Its threads first make the row's sines and cosines, once for all heads, in
 * shared memory: a thread has one frequency, which it keeps from row to row. Then each turns vectors of the
 * heads' two halves. Heads of more than 2 FREQUENCIES columns are done in parts. */
#include "runtime/device/cuda/angles.cuh"
#include "runtime/device/cuda/positions.cuh"
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

enum { FREQUENCIES = 128, THREADS = FREQUENCIES, BLOCKS_A_PROCESSOR = 16 };

template <typename T> struct rope_operands {
        T *x;
        int N; /* rows */
        struct positions positions;
        int64_t columns, rotated, head_size, turned; /* of a row; in all its heads; of a head */
        double direction;
        struct rope_rule rule;
};

/* W columns of the first half of a head, with those of the second. */
template <typename T, int W>
static __device__ __forceinline__ void turn(T *low, T *high, const float *sine, const float *cosine)
{
        float a[W], b[W], x[W], y[W];
        load_floats<W>(a, (const T *)low);
        load_floats<W>(b, (const T *)high);
#pragma unroll
        for (int j = 0; j < W; j++) {
                x[j] = a[j] * cosine[j] - b[j] * sine[j];
                y[j] = b[j] * cosine[j] + a[j] * sine[j];
        }
        store_floats<W>(low, x);
        store_floats<W>(high, y);
}

/* `count` columns of the first half of every head, with those of the second. */
template <typename T, int W>
static __device__ __forceinline__ void turn_row(const struct rope_operands<T> &of, T *x, int count,
                                                unsigned heads, const float *sine, const float *cosine)
{
        const unsigned a_head = (unsigned)count / W, accesses = heads * a_head;
        for (unsigned at = threadIdx.x; at < accesses; at += THREADS) {
                const int i = (int)(at % a_head) * W;
                T *low = x + at / a_head * of.head_size + i;
                turn<T, W>(low, low + of.turned / 2, sine + i, cosine + i);
        }
}

template <typename T, int W>
static __global__ void __launch_bounds__(THREADS) rope_rows(struct rope_operands<T> of)
{
        __shared__ __align__(16) float sine[FREQUENCIES], cosine[FREQUENCIES];
        const int mine = (int)threadIdx.x;
        const unsigned heads = (unsigned)(of.rotated / of.head_size);
        for (int64_t begin = 0; begin < of.turned / 2; begin += FREQUENCIES) {
                const int64_t left = of.turned / 2 - begin;
                const int count = left < FREQUENCIES ? (int)left : (int)FREQUENCIES;
                const double turns = of.direction * half_turns(&of.rule, of.turned, begin + mine);
                for (unsigned row = blockIdx.x; row < (unsigned)of.N; row += gridDim.x) {
                        __syncthreads(); /* the row before is done with sines and cosines */
                        if (mine < count)
                                sine_and_cosine(position_at(of.positions, row) * turns, &sine[mine],
                                                &cosine[mine]);
                        __syncthreads();
                        turn_row<T, W>(of, of.x + row * of.columns + begin, count, heads, sine, cosine);
                }
        }
}

template <typename T, int W>
static cudaError_t launch_rope(cudaStream_t stream, const struct rope_operands<T> *of,
                               const struct cuda_work *work)
{
        const int64_t blocks = min_int64(of->N, (int64_t)BLOCKS_A_PROCESSOR * work->processors);
        CUDA_LAUNCH((rope_rows<T, W>), dim3((unsigned)blocks), dim3(THREADS), 0, stream, *of);
        return cudaGetLastError();
}

template <typename T>
static cudaError_t rope(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                        const struct cuda_work *work)
{
        if (kernel->m > INT_MAX / 2 || args->inner > INT_MAX || args->ld[0] > INT_MAX / 2)
                return cudaErrorInvalidValue;
        const struct rope_operands<T> of = {
                (T *)args->p[0], (int)kernel->m,
                        positions_of(args, args->ld[1]), kernel->n, args->inner, kernel->k,
                        rope_columns(args->scalar, kernel->k), args->scalar[1], rope_rule_of(args->scalar)
        };
        if (of.N == 0 || of.rotated == 0)
                return cudaSuccess;
        if (whole_vectors<T>(of.columns, of.x) && whole_vectors<T>(of.head_size) &&
            whole_vectors<T>(of.turned / 2))
                return launch_rope<T, per_vector<T>>(stream, &of, work);
        return launch_rope<T, 1>(stream, &of, work);
}

cudaError_t cuda_rope(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                      const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, rope, stream, kernel, args, work);
}
