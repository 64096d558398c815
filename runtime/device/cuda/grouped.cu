/* Products of experts: each expert's rows with its own matrix, and the gradients of those matrices. Where an
 * expert's rows end is in device memory and not known to the host, so the grid has as many tiles as there are
 * if rows are as many as expected, and a block finds out which expert's tile it has; those that are too many
 * end at once. Of experts that are spread over ranks there may be more rows: blocks then have several tiles.
 *
 * A block owns a tile of c and steps over the inner dimension, parts of both operands in shared memory: in 16
 * bits by tensor cores, the next parts arriving while these are multiplied; in fp32 by ordinary arithmetic.
 * All sums are in fp32, in the order of the inner dimension. These kernels are written to be right: they are
 * not tuned. */
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/ptx.cuh"

#include <limits.h>

enum { MAX_BLOCKS_YZ = 65535 };

/* c = a b_e, b_e as it is or stored transposed; c_e += a^T b. */
enum form { FORWARD, FORWARD_TRANSPOSED, BACKWARD };

/* One launch, by the names of runtime/device/kernels.h; `each`: elements from one expert's matrix to the
 * next's. */
template <typename T> struct grouped {
        const T *a, *b;
        void *c;
        const int32_t *ends;
        int64_t m, n, k, lda, ldb, ldc, each;
        int experts;
        bool aligned; /* vectors of either operand begin at multiples of 16 bytes, and none is cut off */
        bool wide;    /* c is fp32 whatever T is; of gradients alone */
};

/* The rows of c that a block computes, from `first` on those below `end`; its columns begin at `column`; and
 * what of the inner dimension is summed: of the gradients' that is an expert's rows. */
struct block_place {
        int expert;
        int64_t first, end, column, inner, inner_end;
};

static __device__ __forceinline__ int begin_of(const int32_t *ends, int expert)
{
        return expert > 0 ? ends[expert - 1] : 0;
}

/* Of the tile of rows `at`; false: there is none. Experts' tiles follow each other. */
template <enum form form, int tile, typename T>
static __device__ __forceinline__ bool find_place(struct block_place *p, const struct grouped<T> &of,
                                                  int64_t at)
{
        p->column = (int64_t)blockIdx.y * tile;
        if (form == BACKWARD) {
                p->expert = (int)blockIdx.z;
                p->first = at * tile;
                p->end = of.m;
                p->inner = begin_of(of.ends, p->expert);
                p->inner_end = of.ends[p->expert];
                return p->first < p->end && p->inner < p->inner_end;
        }
        p->inner = 0;
        p->inner_end = of.k;
        int64_t before = at; /* tiles, of this expert and later ones */
        for (p->expert = 0; p->expert < of.experts; p->expert++) {
                const int begin = begin_of(of.ends, p->expert);
                const int64_t tiles = (of.ends[p->expert] - begin + tile - 1) / tile;
                p->first = begin + before * tile;
                p->end = of.ends[p->expert];
                if (before < tiles)
                        return true;
                before -= tiles;
        }
        return false;
}

/* A block's part of an operand: `outer` indices, rows or columns of c, from `first` to `end`. Of what is
 * stored, rows are outer and columns inner indices (`inner_columns`), or the other way round. */
template <typename T> struct operand {
        const T *x;
        int64_t ld, first, end;
};

template <enum form form> constexpr bool left_inner_columns = form != BACKWARD;
template <enum form form> constexpr bool right_inner_columns = form == FORWARD_TRANSPOSED;

template <typename T>
static __device__ __forceinline__ struct operand<T> left_of(const struct grouped<T> &of,
                                                            const struct block_place &p) {
        return {of.a, of.lda, p.first, p.end};
}

template <enum form form, typename T>
static __device__ __forceinline__ struct operand<T> right_of(const struct grouped<T> &of,
                                                             const struct block_place &p) {
        return {form == BACKWARD ? of.b : of.b + p.expert * of.each, of.ldb, p.column, of.n};
}

/* Writes a sum to row and column of c, or adds it to what is there, if that is in the block's part. */
template <enum form form, typename T>
static __device__ __forceinline__ void store_sum(const struct grouped<T> &of, const struct block_place &p,
                                                 int64_t row, int64_t column, float sum)
{
        if (row >= p.end || column >= of.n)
                return;
        const int64_t at = (form == BACKWARD ? p.expert * of.each : 0) + row * of.ldc + column;
        if (form == BACKWARD && of.wide) {
                ((float *)of.c)[at] += sum;
                return;
        }
        T *to = (T *)of.c + at;
        *to = from_float<T>(form == BACKWARD ? to_float(*to) + sum : sum);
}

/* ---- fp32 ---- */

/* A thread has 4 x 4 sums, of rows that follow each other and of columns 16 apart. A row of a part has one
 * element more, so that neither way to write it meets one bank. */
enum { TILE = 64, STEP = 16, SIDE = 16, THREADS = SIDE * SIDE, EACH = TILE / SIDE };
typedef float part[STEP][TILE + 1];

template <bool inner_columns>
static __device__ __forceinline__ void load_part(part to, const struct operand<float> &of, int64_t inner,
                                                 int64_t inner_end)
{
#pragma unroll
        for (int at = (int)threadIdx.x; at < STEP * TILE; at += THREADS) {
                const int i = inner_columns ? at % STEP : at / TILE,
                          o = inner_columns ? at / STEP : at % TILE;
                const bool valid = inner + i < inner_end && of.first + o < of.end;
                const int64_t row = inner_columns ? of.first + o : inner + i,
                              column = inner_columns ? inner + i : of.first + o;
                to[i][o] = valid ? of.x[row * of.ld + column] : 0;
        }
}

template <enum form form>
static __device__ __forceinline__ void multiply_tile(const struct grouped<float> &of,
                                                     const struct block_place &p, part left, part right)
{
        const int row = (int)threadIdx.x / SIDE * EACH, column = (int)threadIdx.x % SIDE;
        float sums[EACH][EACH] = {};
        for (int64_t inner = p.inner; inner < p.inner_end; inner += STEP) {
                load_part<left_inner_columns<form>>(left, left_of(of, p), inner, p.inner_end);
                load_part<right_inner_columns<form>>(right, right_of<form>(of, p), inner, p.inner_end);
                __syncthreads();
#pragma unroll
                for (int i = 0; i < STEP; i++)
#pragma unroll
                        for (int r = 0; r < EACH; r++)
#pragma unroll
                                for (int c = 0; c < EACH; c++)
                                        sums[r][c] = fmaf(left[i][row + r], right[i][column + SIDE * c],
                                                          sums[r][c]);
                __syncthreads();
        }
#pragma unroll
        for (int r = 0; r < EACH; r++)
#pragma unroll
                for (int c = 0; c < EACH; c++)
                        store_sum<form>(of, p, p.first + row + r, p.column + column + SIDE * c, sums[r][c]);
}

template <enum form form>
static __global__ void __launch_bounds__(THREADS) grouped_fp32(struct grouped<float> of)
{
        __shared__ part left, right;
        struct block_place p;
        for (int64_t at = blockIdx.x; find_place<form, TILE>(&p, of, at); at += gridDim.x)
                multiply_tile<form>(of, p, left, right);
}

/* ---- 16 bits ---- */

/* 2 x 4 warps, each with 64 rows in strips of 16 and 32 columns in blocks of 8. Rows of a part in shared
 * memory are 16 bytes longer than their elements: eight of them at one column, as ldmatrix reads them, lie in
 * different banks. */
enum {
        MMA_TILE = 128,
        MMA_STEP = 32,
        MMA_WARPS = 8,
        MMA_THREADS = 32 * MMA_WARPS,
        STRIPS = 4,
        BLOCKS = 4,
        WARPS_ACROSS = MMA_TILE / (8 * BLOCKS)
};
template <bool inner_columns> constexpr int part_columns = inner_columns ? MMA_STEP : MMA_TILE;
template <bool inner_columns> constexpr int part_pitch = 2 * part_columns<inner_columns> + 16;
/* Of the larger kind: outer rows. */
enum { PART_BYTES = MMA_TILE * (2 * MMA_STEP + 16) };

/* Starts the load of one step's part; it has arrived after `arrive`. What is outside is zero. */
template <bool inner_columns, typename T>
static __device__ __forceinline__ void load_part(unsigned char *to, const struct operand<T> &of,
                                                 int64_t inner, int64_t inner_end, bool aligned)
{
        constexpr int columns = part_columns<inner_columns>, across = columns / 8;
        const int64_t first_row = inner_columns ? of.first : inner,
                      row_end = inner_columns ? of.end : inner_end;
        const int64_t first_column = inner_columns ? inner : of.first,
                      column_end = inner_columns ? inner_end : of.end;
        for (int at = (int)threadIdx.x; at < MMA_TILE * MMA_STEP / 8; at += MMA_THREADS) {
                const int row = at / across, column = at % across * 8;
                const T *from = of.x + (first_row + row) * of.ld + first_column + column;
                unsigned char *into = to + row * part_pitch<inner_columns> + 2 * column;
                const bool row_valid = first_row + row < row_end;
                if (aligned) {
                        copy_async_16(into, from, row_valid && first_column + column < column_end);
                        continue;
                }
#pragma unroll 1
                for (int i = 0; i < 8; i++) {
                        const bool valid = row_valid && first_column + column + i < column_end;
                        ((T *)into)[i] = valid ? from[i] : from_float<T>(0);
                }
        }
}

/* Waits until what was loaded is there, and what was read before may be overwritten. */
static __device__ __forceinline__ void arrive(void)
{
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
}

/* The left side's fragment: outer indices outer .. + 15, inner ones inner .. + 15. */
template <bool inner_columns>
static __device__ __forceinline__ void load_left(uint32_t fragment[4], const unsigned char *from, int outer,
                                                 int inner)
{
        constexpr int pitch = part_pitch<inner_columns>;
        const int lane = (int)threadIdx.x % 32;
        if constexpr (inner_columns)
                ldmatrix_x4(fragment, from + (outer + lane % 16) * pitch + 2 * inner + lane / 16 * 16);
        else
                ldmatrix_x4_transposed(fragment, from + (inner + lane / 16 * 8 + lane % 8) * pitch +
                                                         2 * outer + lane / 8 % 2 * 16);
}

/* Two fragments of the right side: inner .. + 15, outer .. + 7 in the first and + 8 .. + 15 in the second. */
template <bool inner_columns>
static __device__ __forceinline__ void load_right(uint32_t fragments[4], const unsigned char *from, int outer,
                                                  int inner)
{
        constexpr int pitch = part_pitch<inner_columns>;
        const int lane = (int)threadIdx.x % 32;
        if constexpr (inner_columns)
                ldmatrix_x4(fragments, from + (outer + lane / 16 * 8 + lane % 8) * pitch + 2 * inner +
                                               lane / 8 % 2 * 16);
        else
                ldmatrix_x4_transposed(fragments,
                                       from + (inner + lane % 16) * pitch + 2 * outer + lane / 16 * 16);
}

template <typename T>
static __device__ __forceinline__ void multiply(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        if constexpr (std::is_same<T, __half>::value)
                mma_fp16(d, a, b);
        else
                mma_bf16(d, a, b);
}

/* The warp's sums += one step's product; `row` and `column` are the warp's first in the tile. */
template <enum form form, typename T>
static __device__ __forceinline__ void add_step(float sums[STRIPS][BLOCKS][4], const unsigned char *left,
                                                const unsigned char *right, int row, int column)
{
#pragma unroll
        for (int inner = 0; inner < MMA_STEP; inner += 16) {
                uint32_t a[STRIPS][4], b[BLOCKS / 2][4];
#pragma unroll
                for (int s = 0; s < STRIPS; s++)
                        load_left<left_inner_columns<form>>(a[s], left, row + 16 * s, inner);
#pragma unroll
                for (int c = 0; c < BLOCKS / 2; c++)
                        load_right<right_inner_columns<form>>(b[c], right, column + 16 * c, inner);
#pragma unroll
                for (int s = 0; s < STRIPS; s++)
#pragma unroll
                        for (int c = 0; c < BLOCKS; c++)
                                multiply<T>(sums[s][c], a[s], b[c / 2] + c % 2 * 2);
        }
}

/* Of two steps, both operands. */
typedef unsigned char parts[2][2][PART_BYTES];

template <enum form form, typename T>
static __device__ __forceinline__ void multiply_tile(const struct grouped<T> &of, const struct block_place &p,
                                                     parts shared)
{
        const struct operand<T> left = left_of(of, p), right = right_of<form>(of, p);
        const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
        const int row = warp / WARPS_ACROSS * 16 * STRIPS, column = warp % WARPS_ACROSS * 8 * BLOCKS;
        float sums[STRIPS][BLOCKS][4] = {};
        int now = 0;
        load_part<left_inner_columns<form>>(shared[now][0], left, p.inner, p.inner_end, of.aligned);
        load_part<right_inner_columns<form>>(shared[now][1], right, p.inner, p.inner_end, of.aligned);
        arrive();
        for (int64_t inner = p.inner; inner < p.inner_end; inner += MMA_STEP, now ^= 1) {
                const int64_t next = inner + MMA_STEP;
                if (next < p.inner_end) {
                        load_part<left_inner_columns<form>>(shared[now ^ 1][0], left, next, p.inner_end,
                                                            of.aligned);
                        load_part<right_inner_columns<form>>(shared[now ^ 1][1], right, next, p.inner_end,
                                                             of.aligned);
                }
                add_step<form, T>(sums, shared[now][0], shared[now][1], row, column);
                arrive();
        }
#pragma unroll
        for (int s = 0; s < STRIPS; s++)
#pragma unroll
                for (int c = 0; c < BLOCKS; c++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
                                store_sum<form>(of, p, p.first + row + 16 * s + lane / 4 + i / 2 * 8,
                                                p.column + column + 8 * c + lane % 4 * 2 + i % 2,
                                                sums[s][c][i]);
}

template <typename T, enum form form>
static __global__ void __launch_bounds__(MMA_THREADS) grouped_mma(struct grouped<T> of)
{
        __shared__ __align__(16) parts shared;
        struct block_place p;
        for (int64_t at = blockIdx.x; find_place<form, MMA_TILE>(&p, of, at); at += gridDim.x)
                multiply_tile<form>(of, p, shared);
}

/* ---- launches ---- */

/* As many tiles of rows as m can need: each expert's last one may be cut off. */
template <enum form form, typename T> static dim3 grid_of(const struct grouped<T> &of, int tile)
{
        const int64_t down = ceil_div(of.m, tile), across = ceil_div(of.n, tile);
        if (form == BACKWARD)
                return dim3((unsigned)down, (unsigned)across, (unsigned)of.experts);
        return dim3((unsigned)(down + of.experts - 1), (unsigned)across);
}

template <enum form form, typename T>
static cudaError_t launch_form(cudaStream_t stream, const struct grouped<T> &of)
{
        if constexpr (std::is_same<T, float>::value)
                CUDA_LAUNCH((grouped_fp32<form>), grid_of<form>(of, TILE), dim3(THREADS), 0, stream, of);
        else
                CUDA_LAUNCH((grouped_mma<T, form>), grid_of<form>(of, MMA_TILE), dim3(MMA_THREADS), 0, stream,
                            of);
        return cudaGetLastError();
}

/* `matrix`: which operand has one for each expert. */
template <typename T>
static struct grouped<T> grouped_of(const struct kernel *kernel, const struct kernel_args *args, int matrix) {
        struct grouped<T> of = {
                (const T *)args->p[0], (const T *)args->p[1], args->p[2],
                        (const int32_t *)args->p[3], kernel->m, kernel->n, kernel->k, args->ld[0],
                        args->ld[1], args->ld[2], args->stride[matrix][0], kernel->experts,
                        false, kernel->wide != 0
        };
        of.aligned = whole_vectors<T>(of.lda, of.a) && whole_vectors<T>(of.ldb, of.b) &&
                     (matrix == 2 || whole_vectors<T>(of.each));
        return of;
}

template <typename T>
static bool can_multiply(const struct grouped<T> &of)
{
        return of.m <= INT_MAX / 2 && ceil_div(of.n, TILE) <= MAX_BLOCKS_YZ && of.experts <= MAX_BLOCKS_YZ;
}

template <typename T>
static cudaError_t grouped_matmul(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args)
{
        struct grouped<T> of = grouped_of<T>(kernel, args, 1);
        of.aligned = of.aligned && whole_vectors<T>(of.k) && (kernel->transpose_b || whole_vectors<T>(of.n));
        if (!can_multiply(of))
                return cudaErrorInvalidValue;
        if (of.m == 0 || of.n == 0 || of.experts == 0)
                return cudaSuccess;
        return kernel->transpose_b ? launch_form<FORWARD_TRANSPOSED>(stream, of)
                                   : launch_form<FORWARD>(stream, of);
}

template <typename T>
static cudaError_t grouped_matmul_backward(cudaStream_t stream, const struct kernel *kernel,
                                           const struct kernel_args *args)
{
        struct grouped<T> of = grouped_of<T>(kernel, args, 2);
        of.aligned = of.aligned && whole_vectors<T>(of.m) && whole_vectors<T>(of.n);
        if (!can_multiply(of))
                return cudaErrorInvalidValue;
        if (of.m == 0 || of.n == 0 || of.experts == 0)
                return cudaSuccess;
        return launch_form<BACKWARD>(stream, of);
}

cudaError_t cuda_grouped_matmul(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, grouped_matmul, stream, kernel, args);
}

cudaError_t cuda_grouped_matmul_backward(cudaStream_t stream, const struct kernel *kernel,
                                         const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, grouped_matmul_backward, stream, kernel, args);
}
