/* Attention on tensor cores, what its kernels share: where the operands lie, which tiles a block takes, tiles
 * in shared memory, and fragments of them.
 *
 * No (T,T) matrix is in memory (Dao et al. 2022): a block owns the rows of one tile, of queries or of keys,
 * and steps over the tiles of the other kind, which arrive by asynchronous copies while the previous ones
 * are computed with. 4 warps each own 16 `strips` rows of the block's tile, so that sums over a row stay
 * within the four lanes that hold it.
 *
 * The kernels are in attention.cu (forward) and attention_backward.cu, for 16-bit formats; fp32 has its own
 * in attention_fp32.cu, which uses the first part of this header alone. What they compute, and how operands
 * are packed, is said under attention in runtime/device/kernels.h. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_CUH
#define RANVIER_RUNTIME_DEVICE_CUDA_ATTENTION_CUH

#include "runtime/device/cuda/launch.cuh"
#include "runtime/device/cuda/ptx.cuh"

#include <math.h>
#include <string.h>

/* Warps and threads of a block. */
enum { ATTENTION_WARPS = 4, ATTENTION_THREADS = 32 * ATTENTION_WARPS };
/* log2(e): the 16-bit kernels make exponentials as powers of 2 (exp2_fast). */
#define ATTENTION_LOG2E 1.4426950408889634f

/* One launch, as it is given to a kernel by value: operands as runtime/device/kernels.h has them (backward
 * alone uses dqkv, dkv, dy and rows), and the shape, which attention_shape fills in.
 *
 * Kernels come in two kinds. `causal`: a query sees the keys up to its own, which are in the same rows; kv is
 * qkv, dkv is dqkv. Otherwise queries from `first` on see another rank's keys before `seen`, all of them, and
 * go on with what y and lse, or dqkv, already hold. */
struct attention {
        const void *qkv, *kv, *dy;
        void *dqkv, *dkv, *y;
        float *lse, *rows;
        int64_t heads;        /* of queries, of all sequences */
        int H, KV;            /* a sequence's heads of queries, and of keys and values */
        int group;            /* H / KV: heads of queries that share one of keys and values */
        int T, hs;            /* tokens of a sequence; elements of a head */
        int first, seen;      /* the first query; keys before this one are seen: causal 0 and T */
        int64_t row, kv_row;  /* elements of a row of qkv, of kv */
        int64_t keys, values; /* from the beginning of kv's row to the keys, from there to the values */
        bool aligned;         /* every row of a head begins at a multiple of 16 bytes */
        float scale;
};

/* Queue attention of fp32 tensors, on ordinary arithmetic, for any hs <= CUDA_WIDEST_HEAD
 * (attention_fp32.cu). They return what cudaGetLastError says after the launch. */
cudaError_t attention_fp32(cudaStream_t stream, const struct attention *attention, bool causal);
cudaError_t attention_fp32_backward(cudaStream_t stream, const struct attention *attention, bool causal);

/* Which tile of which head a block takes: a head of queries, or of keys and values, counted over all
 * sequences. */
struct attention_block {
        int64_t head;
        int tile;
};

/* Returns what this block takes, of `heads` heads that have `tiles` tiles each; the grid has heads x tiles
 * blocks.
 *
 * Blocks start in the order of their index. Tiles with more steps come first, so that the last blocks to
 * run are short; ATTENTION_HEADS of all `heads` are taken at a time, so that the blocks that run together
 * read few heads' operands, which stay in the L2 cache: K and V of 16 heads of 64 with T = 1024 are 4 MiB.
 * `rank` 0 is the tile with the most steps. */
enum { ATTENTION_HEADS = 16 };
static __device__ __forceinline__ struct attention_block attention_block(int64_t heads, int tiles,
                                                                         bool last_tile_first)
{
        int64_t index = blockIdx.x, first = index / (ATTENTION_HEADS * (int64_t)tiles) * ATTENTION_HEADS;
        int within = (int)(index - first * tiles);
        int together = (int)(heads - first < ATTENTION_HEADS ? heads - first : ATTENTION_HEADS);
        int rank = within / together;
        struct attention_block block = {first + within % together, last_tile_first ? tiles - 1 - rank : rank};
        return block;
}

/* Return how many tiles of `rows` rows the queries of a head have, and its keys. */
static __host__ __device__ __forceinline__ int attention_query_tiles(const struct attention *a, int rows)
{
        return (a->T - a->first + rows - 1) / rows;
}

static __host__ __device__ __forceinline__ int attention_key_tiles(const struct attention *a, int rows)
{
        return (a->T + rows - 1) / rows;
}

/* Returns the last key that a query sees. */
template <bool causal>
static __device__ __forceinline__ int attention_last_key(const struct attention *a, int query)
{
        return causal ? query : a->seen - 1;
}

/* Returns behind which key none is seen by queries before `end`. */
template <bool causal>
static __device__ __forceinline__ int attention_keys_end(const struct attention *a, int end)
{
        return causal && end < a->seen ? end : a->seen;
}

/* Fills in the shape and scale from a launch; pointers and `aligned` are the caller's to set. Returns false
 * if the kernels cannot do them. The scale must be positive, so that the largest score is the largest
 * scaled one. */
static inline bool attention_shape(struct attention *a, const struct kernel *kernel,
                                   const struct kernel_args *args, bool causal)
{
        if (kernel->k < 1 || kernel->k > CUDA_WIDEST_HEAD || kernel->m < 1 || kernel->m > INT32_MAX / 2 ||
            kernel->batch < 1 || args->inner < 1 || args->inner > INT32_MAX || !(args->scalar[0] > 0) ||
            args->inner % kernel_group(kernel) != 0 || kernel->batch % args->inner != 0 ||
            (!causal && kernel->m % 2 != 0))
                return false;
        a->heads = kernel->batch;
        a->H = (int)args->inner;
        a->group = kernel_group(kernel);
        a->KV = a->H / a->group;
        a->T = (int)kernel->m;
        a->hs = (int)kernel->k;
        a->first = !causal && args->ld[2] ? a->T / 2 : 0;
        a->seen = causal || args->ld[2] ? a->T : a->T / 2;
        a->values = (int64_t)a->KV * a->hs;
        a->row = (int64_t)a->H * a->hs + 2 * a->values;
        a->keys = causal ? (int64_t)a->H * a->hs : 0;
        a->kv_row = a->keys + 2 * a->values;
        a->scale = (float)args->scalar[0];
        return true;
}

/* Returns whether every row of a head in `tensor` begins at a multiple of 16 bytes, of elements of 16
 * bits. */
static inline bool attention_aligned(const struct attention *a, const void *tensor)
{
        return a->hs % 8 == 0 && (uintptr_t)tensor % 16 == 0;
}

/* One head's (T, hs) matrix inside a tensor; row t begins at first + t stride. */
template <class element> struct attention_matrix {
        element *first;
        int64_t stride;
};

/* These return a head's matrix: in qkv or dqkv the queries of `head` (below a->heads); in kv or dkv the keys,
 * and the values, of `kv_head` (below a->heads / a->group). */
template <class element>
static __device__ __forceinline__ struct attention_matrix<element>
attention_queries(const struct attention *a, const void *qkv, int64_t head) {
        struct attention_matrix<element> matrix = {
                (element *)qkv + head / a->H * a->T * a->row + head % a->H * a->hs, a->row
        };
        return matrix;
}

template <class element>
static __device__ __forceinline__ struct attention_matrix<element>
attention_keys(const struct attention *a, const void *kv, int64_t kv_head) {
        struct attention_matrix<element> matrix = {
                (element *)kv + kv_head / a->KV * a->T * a->kv_row + a->keys + kv_head % a->KV * a->hs,
                        a->kv_row
        };
        return matrix;
}

template <class element>
static __device__ __forceinline__ struct attention_matrix<element>
attention_values(const struct attention *a, const void *kv, int64_t kv_head) {
        struct attention_matrix<element> matrix = attention_keys<element>(a, kv, kv_head);
        matrix.first += a->values;
        return matrix;
}

/* Returns the matrix of `head` in y or dy. */
template <class element>
static __device__ __forceinline__ struct attention_matrix<element>
attention_output(const struct attention *a, const void *y, int64_t head) {
        int64_t width = (int64_t)a->H * a->hs;
        struct attention_matrix<element> matrix = {
                (element *)y + head / a->H * a->T *width + head % a->H * a->hs, width
        };
        return matrix;
}

/* --- 16-bit formats ------------------------------------------------------------------------------------ */

/* Sizes for heads padded to HS = 64 or 128 with zeros. A warp with two strips reads a fragment of the other
 * operand once for two products: shared memory gives 128 bytes a clock and a product (2048 multiply-adds)
 * takes 256 of them, so that one strip alone could not use more than 1024 multiply-adds a clock. With HS =
 * 128 the accumulators of two strips do not fit in registers.
 *
 * Rows of a tile in shared memory are 16 bytes longer than their elements: eight rows at the same column, as
 * ldmatrix reads them, then lie in different banks. */
template <int HS>
struct attention_sizes {
        static constexpr int strips = HS == 64 ? 2 : 1;
        static constexpr int rows = ATTENTION_WARPS * 16 * strips; /* the block's own */
        static constexpr int keys = rows / 2;                      /* a step of the kernels over queries */
        static constexpr int queries = HS == 64 ? 32 : 16;         /* a step of the kernel over keys */
        static constexpr int pitch = 2 * HS + 16;                  /* bytes between a tile's rows */
};

/* Adds a product of fragments, d += a b, in the format of the kernel; see mma_fp16 in ptx.cuh. */
template <bool bf16>
static __device__ __forceinline__ void attention_mma(float d[4], const uint32_t a[4], const uint32_t b[2])
{
        if (bf16)
                mma_bf16(d, a, b);
        else
                mma_fp16(d, a, b);
}

/* Returns two elements in one word, `low` in the lower half, rounded to the nearest. */
template <bool bf16> static __device__ __forceinline__ uint32_t attention_pack(float low, float high)
{
        uint32_t bits;
        if (bf16) {
                __nv_bfloat162 pair = __float22bfloat162_rn(make_float2(low, high));
                memcpy(&bits, &pair, sizeof bits);
        } else {
                __half2 pair = __float22half2_rn(make_float2(low, high));
                memcpy(&bits, &pair, sizeof bits);
        }
        return bits;
}

/* Starts the load of rows first .. first + rows - 1 of `matrix` into a tile: zeros from row `end` and column
 * hs on. Arrived after attention_arrive. */
template <int HS, int rows>
static __device__ __forceinline__ void attention_load(unsigned char *tile, const struct attention *a,
                                                      struct attention_matrix<const uint16_t> matrix,
                                                      int first, int end)
{
        constexpr int chunks = HS / 8, step = ATTENTION_THREADS / chunks;
        int row = (int)threadIdx.x / chunks, column = (int)threadIdx.x % chunks * 8;
        const uint16_t *from = matrix.first + (first + row) * matrix.stride + column;
        unsigned char *to = tile + row * attention_sizes<HS>::pitch + 2 * column;
        if (a->aligned) {
#pragma unroll
                for (int r = 0; r < rows; r += step) {
                        copy_async_16(to + r * attention_sizes<HS>::pitch, from + r * matrix.stride,
                                      first + row + r < end && column < a->hs);
                }
                return;
        }
#pragma unroll 1
        for (int r = 0; r < rows; r += step) {
#pragma unroll 1
                for (int i = 0; i < 8; i++) {
                        bool valid = first + row + r < end && column + i < a->hs;
                        ((uint16_t *)(to + r * attention_sizes<HS>::pitch))[i] =
                                valid ? from[r * matrix.stride + i] : (uint16_t)0;
                }
        }
}

/* Waits until every load that the block started so far has arrived, and until everything that its threads
 * read before may be overwritten. All threads of the block call it. */
static __device__ __forceinline__ void attention_arrive(void)
{
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
}

/* Reads a fragment of a tile for the product's left side: rows row .. + 15, columns column .. + 15. */
template <int HS>
static __device__ __forceinline__ void attention_left(uint32_t fragment[4], const unsigned char *tile,
                                                      int row, int column)
{
        int lane = (int)threadIdx.x % 32;
        ldmatrix_x4(fragment,
                    tile + (row + lane % 16) * attention_sizes<HS>::pitch + 2 * column + lane / 16 * 16);
}

/* Reads two fragments for the right side, of the tile's transpose: inner columns column .. + 15, rows row
 * .. + 7 in the first and + 8 .. + 15 in the second. */
template <int HS>
static __device__ __forceinline__ void
attention_right_transposed(uint32_t fragments[4], const unsigned char *tile, int row, int column)
{
        int lane = (int)threadIdx.x % 32;
        ldmatrix_x4(fragments, tile + (row + lane / 16 * 8 + lane % 8) * attention_sizes<HS>::pitch +
                                       2 * column + lane / 8 % 2 * 16);
}

/* Reads two fragments for the right side, of the tile as it is: inner rows row .. + 15, columns column .. +
 * 7 in the first and + 8 .. + 15 in the second. */
template <int HS>
static __device__ __forceinline__ void attention_right(uint32_t fragments[4], const unsigned char *tile,
                                                       int row, int column)
{
        int lane = (int)threadIdx.x % 32;
        ldmatrix_x4_transposed(fragments, tile + (row + lane % 16) * attention_sizes<HS>::pitch + 2 * column +
                                                  lane / 16 * 16);
}

/* Makes a left fragment of the next product from two accumulators, of columns 0 .. 7 and 8 .. 15: a lane
 * holds the same elements in both, so no lane asks another one. */
template <bool bf16>
static __device__ __forceinline__ void attention_left_from(uint32_t fragment[4], const float low[4],
                                                           const float high[4])
{
        fragment[0] = attention_pack<bf16>(low[0], low[1]);
        fragment[1] = attention_pack<bf16>(low[2], low[3]);
        fragment[2] = attention_pack<bf16>(high[0], high[1]);
        fragment[3] = attention_pack<bf16>(high[2], high[3]);
}

/* Adds to sums (strips of 16 rows, HS) the product of each strip's `left` (16, 16) and rows row .. + 15 of
 * the tile. */
template <bool bf16, int HS, int strips>
static __device__ __forceinline__ void attention_accumulate(float sums[strips][HS / 8][4],
                                                            const uint32_t left[strips][4],
                                                            const unsigned char *tile, int row)
{
#pragma unroll
        for (int column = 0; column < HS; column += 16) {
                uint32_t right[4];
                attention_right<HS>(right, tile, row, column);
#pragma unroll
                for (int m = 0; m < strips; m++) {
                        attention_mma<bf16>(sums[m][column / 8], left[m], right);
                        attention_mma<bf16>(sums[m][column / 8 + 1], left[m], right + 2);
                }
        }
}

/* Multiplies all sums of a warp by `scale`. */
template <int HS, int strips>
static __device__ __forceinline__ void attention_scale(float sums[strips][HS / 8][4], float scale)
{
#pragma unroll
        for (int i = 0; i < strips * (HS / 8) * 4; i++)
                sums[i / (HS / 2)][i / 4 % (HS / 8)][i % 4] *= scale;
}

/* Returns an element as a number. */
template <bool bf16> static __device__ __forceinline__ float attention_number(uint16_t element)
{
        return bf16 ? __uint_as_float((uint32_t)element << 16) : __half2float(__ushort_as_half(element));
}

/* Fills a warp's sums with its rows of `matrix` from row `first` on, times `factor`: zeros from row T and
 * column hs on. */
template <bool bf16, int HS, int strips>
static __device__ __forceinline__ void
attention_resume(float sums[strips][HS / 8][4], const struct attention *a,
                 struct attention_matrix<const uint16_t> matrix, int first, float factor)
{
        int lane = (int)threadIdx.x % 32, row = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < strips * (HS / 8) * 4; i++) {
                int m = i / (HS / 2), n = i / 4 % (HS / 8), e = i % 4;
                int at_row = row + 16 * m + e / 2 * 8, at_column = column + 8 * n + e % 2;
                sums[m][n][e] = 0;
                if (at_row < a->T && at_column < a->hs)
                        sums[m][n][e] =
                                attention_number<bf16>(matrix.first[at_row * matrix.stride + at_column]) *
                                factor;
        }
}

/* Writes a warp's rows to `matrix` from row `first` on, all that are less than T, by way of `own`, memory for
 * 16 strips rows of a tile that no other warp uses: 16 bytes a lane, where the accumulators hold 4. */
template <bool bf16, int HS, int strips>
static __device__ __forceinline__ void attention_store(unsigned char *own, const struct attention *a,
                                                       struct attention_matrix<uint16_t> matrix, int first,
                                                       const float sums[strips][HS / 8][4])
{
        constexpr int pitch = attention_sizes<HS>::pitch, chunks = HS / 8;
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < strips; m++) {
#pragma unroll
                for (int n = 0; n < HS / 8; n++) {
                        uint32_t *above =
                                (uint32_t *)(own + (16 * m + lane / 4) * pitch + 16 * n + lane % 4 * 4);
                        *above = attention_pack<bf16>(sums[m][n][0], sums[m][n][1]);
                        above[8 * pitch / 4] = attention_pack<bf16>(sums[m][n][2], sums[m][n][3]);
                }
        }
        __syncwarp();
#pragma unroll 1
        for (int i = lane; i < 16 * strips * chunks; i += 32) {
                int row = i / chunks, column = i % chunks * 8;
                const uint16_t *from = (const uint16_t *)(own + row * pitch) + column;
                uint16_t *to = matrix.first + (first + row) * matrix.stride + column;
                if (first + row >= a->T)
                        continue;
                if (a->aligned && column < a->hs)
                        *(uint4 *)to = *(const uint4 *)from;
                for (int e = 0; !a->aligned && e < 8 && column + e < a->hs; e++)
                        to[e] = from[e];
        }
}

#endif
