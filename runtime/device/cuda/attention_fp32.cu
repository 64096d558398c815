/* Attention in fp32, for tests of equivalence: the algorithms of attention.cu and attention_backward.cu on
 * tiles of 16 queries by 16 keys, without tensor cores. A block has a thread for each pair of query and key;
 * a thread then sums a row of the output at every 16th column. Half a warp holds a row. */
#include "runtime/device/cuda/attention.cuh"

enum { TILE = 16, TILE_THREADS = TILE * TILE, TILE_COLUMNS = CUDA_WIDEST_HEAD / TILE };

/* Rows are one longer than the largest head, so that 16 rows at the same column lie in different banks. */
struct fp32_tile {
        float at[TILE][CUDA_WIDEST_HEAD + 1];
};

/* Zeros from row `end` on. */
static __device__ __forceinline__ void load(struct fp32_tile *tile, const struct attention *a,
                                            struct attention_matrix<const float> matrix, int first, int end)
{
        int row = (int)threadIdx.x / TILE;
        for (int i = (int)threadIdx.x % TILE; i < a->hs; i += TILE)
                tile->at[row][i] = first + row < end ? matrix.first[(first + row) * matrix.stride + i] : 0;
}

static __device__ __forceinline__ float dot(const float *x, const float *y, int n)
{
        float sum = 0;
        for (int i = 0; i < n; i++)
                sum = fmaf(x[i], y[i], sum);
        return sum;
}

/* sums[j] += the sum over i of weights[i stride] tile[i], of this thread's columns. */
static __device__ __forceinline__ void accumulate(float sums[TILE_COLUMNS], const float *weights, int stride,
                                                  const struct fp32_tile *tile, int hs)
{
        int first = (int)threadIdx.x % TILE;
        for (int i = 0; i < TILE; i++) {
#pragma unroll
                for (int j = 0; j < TILE_COLUMNS; j++) {
                        if (first + TILE * j < hs)
                                sums[j] = fmaf(weights[i * stride], tile->at[i][first + TILE * j], sums[j]);
                }
        }
}

/* This thread's columns of a row, times `factor`. */
static __device__ __forceinline__ void fetch(const struct attention *a,
                                             struct attention_matrix<const float> matrix, int row,
                                             float sums[TILE_COLUMNS], float factor)
{
        int first = (int)threadIdx.x % TILE;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS; j++) {
                if (row < a->T && first + TILE * j < a->hs)
                        sums[j] = matrix.first[row * matrix.stride + first + TILE * j] * factor;
        }
}

static __device__ __forceinline__ void store(const struct attention *a, struct attention_matrix<float> matrix,
                                             int row, const float sums[TILE_COLUMNS], float factor)
{
        int first = (int)threadIdx.x % TILE;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS; j++) {
                if (row < a->T && first + TILE * j < a->hs)
                        matrix.first[row * matrix.stride + first + TILE * j] = sums[j] * factor;
        }
}

/* What y and lse hold of a query, as if of one key whose score is lse; half a warp's sums are added up. */
static __device__ __forceinline__ void resume(const struct attention *a, int64_t head, int query,
                                              float out[TILE_COLUMNS], float *top, float *sum)
{
        fetch(a, attention_output<const float>(a, a->y, head), query, out, 1);
        *top = query < a->T ? a->lse[head * a->T + query] : 0;
        *sum = threadIdx.x % TILE == 0;
}

template <bool causal>
static __global__ void __launch_bounds__(TILE_THREADS, 2) attention_forward_fp32(const struct attention a)
{
        __shared__ struct fp32_tile q, k, v;
        __shared__ float p[TILE][TILE + 1];
        struct attention_block block = attention_block(a.heads, attention_query_tiles(&a, TILE), true);
        int row = (int)threadIdx.x / TILE, column = (int)threadIdx.x % TILE;
        int first = a.first + block.tile * TILE, query = first + row;
        int end = attention_keys_end<causal>(&a, first + TILE);
        float out[TILE_COLUMNS] = {}, top = -INFINITY, sum = 0;

        int64_t kv_head = block.head / a.group;

        if (!causal)
                resume(&a, block.head, query, out, &top, &sum);
        load(&q, &a, attention_queries<const float>(&a, a.qkv, block.head), first, a.T);
        for (int key = 0; key < end; key += TILE) {
                __syncthreads();
                load(&k, &a, attention_keys<const float>(&a, a.kv, kv_head), key, a.seen);
                load(&v, &a, attention_values<const float>(&a, a.kv, kv_head), key, a.seen);
                __syncthreads();
                bool seen = key + column <= attention_last_key<causal>(&a, query);
                float score = seen ? dot(q.at[row], k.at[column], a.hs) * a.scale : -INFINITY;
                float old = top;
                top = fmaxf(top, score);
                for (int other = 1; other < TILE; other *= 2)
                        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, other));
                float shrink = expf(old - top);
                p[row][column] = expf(score - top);
                sum = fmaf(sum, shrink, p[row][column]);
                for (int j = 0; j < TILE_COLUMNS; j++)
                        out[j] *= shrink;
                __syncwarp();
                accumulate(out, p[row], 1, &v, a.hs);
        }
        for (int other = 1; other < TILE; other *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, other);
        store(&a, attention_output<float>(&a, a.y, block.head), query, out, 1 / sum);
        if (column == 0 && query < a.T)
                a.lse[block.head * a.T + query] = top + logf(sum);
}

/* rows = sum(dy y), half a warp each: see attention_backward.cu. */
static __global__ void __launch_bounds__(TILE_THREADS, 2) attention_rows_fp32(const struct attention a)
{
        int64_t row = (int64_t)blockIdx.x * TILE + threadIdx.x / TILE;
        bool valid = row < a.heads * a.T;
        float sum = 0;
        for (int i = (int)threadIdx.x % TILE; valid && i < a.hs; i += TILE)
                sum = fmaf(((const float *)a.dy)[row * a.hs + i], ((const float *)a.y)[row * a.hs + i], sum);
        for (int other = 1; other < TILE; other *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, other);
        int64_t sequence = row / a.H / a.T, t = row / a.H % a.T, h = row % a.H;
        if (valid && threadIdx.x % TILE == 0)
                a.rows[(sequence * a.H + h) * a.T + t] = sum;
}

/* A tile of queries and one of keys, and what backward makes of them. */
struct fp32_pair {
        struct fp32_tile q, dy, k, v;
        float p[TILE][TILE + 1], ds[TILE][TILE + 1];
};

static __device__ __forceinline__ void load_queries(struct fp32_pair *pair, const struct attention *a,
                                                    int64_t head, int first)
{
        load(&pair->q, a, attention_queries<const float>(a, a->qkv, head), first, a->T);
        load(&pair->dy, a, attention_output<const float>(a, a->dy, head), first, a->T);
}

static __device__ __forceinline__ void load_keys(struct fp32_pair *pair, const struct attention *a,
                                                 int64_t kv_head, int first)
{
        load(&pair->k, a, attention_keys<const float>(a, a->kv, kv_head), first, a->seen);
        load(&pair->v, a, attention_values<const float>(a, a->kv, kv_head), first, a->seen);
}

/* p and ds of the pair, whose first query and key are given; every thread sees them. */
template <bool causal>
static __device__ __forceinline__ void probabilities(struct fp32_pair *pair, const struct attention *a,
                                                     int64_t head, int query, int key)
{
        int row = (int)threadIdx.x / TILE, column = (int)threadIdx.x % TILE;
        float p = 0, ds = 0;
        if (query + row < a->T && key + column <= attention_last_key<causal>(a, query + row)) {
                int64_t statistic = head * a->T + query + row;
                p = expf(dot(pair->q.at[row], pair->k.at[column], a->hs) * a->scale - a->lse[statistic]);
                ds = p * (dot(pair->dy.at[row], pair->v.at[column], a->hs) - a->rows[statistic]);
        }
        pair->p[row][column] = p;
        pair->ds[row][column] = ds;
        __syncthreads();
}

template <bool causal>
static __global__ void __launch_bounds__(TILE_THREADS, 2)
        attention_backward_keys_fp32(const struct attention a)
{
        __shared__ struct fp32_pair pair;
        struct attention_block block =
                attention_block(a.heads / a.group, attention_key_tiles(&a, TILE), false);
        int row = (int)threadIdx.x / TILE, first = block.tile * TILE;
        float dk[TILE_COLUMNS] = {}, dv[TILE_COLUMNS] = {};

        load_keys(&pair, &a, block.head, first);
        for (int left = a.group, head = (int)block.head * a.group; left > 0; left--, head++) {
                for (int query = causal ? first : a.first; query < a.T; query += TILE) {
                        __syncthreads();
                        load_queries(&pair, &a, head, query);
                        __syncthreads();
                        probabilities<causal>(&pair, &a, head, query, first);
                        accumulate(dv, &pair.p[0][row], TILE + 1, &pair.dy, a.hs);
                        accumulate(dk, &pair.ds[0][row], TILE + 1, &pair.q, a.hs);
                }
        }
        store(&a, attention_keys<float>(&a, a.dkv, block.head), first + row, dk, a.scale);
        store(&a, attention_values<float>(&a, a.dkv, block.head), first + row, dv, 1);
}

template <bool causal>
static __global__ void __launch_bounds__(TILE_THREADS, 4)
        attention_backward_queries_fp32(const struct attention a)
{
        __shared__ struct fp32_pair pair;
        struct attention_block block = attention_block(a.heads, attention_query_tiles(&a, TILE), true);
        int row = (int)threadIdx.x / TILE, first = a.first + block.tile * TILE;
        int end = attention_keys_end<causal>(&a, first + TILE);
        float dq[TILE_COLUMNS] = {};

        load_queries(&pair, &a, block.head, first);
        if (!causal)
                fetch(&a, attention_queries<const float>(&a, a.dqkv, block.head), first + row, dq,
                      1 / a.scale);
        for (int key = 0; key < end; key += TILE) {
                __syncthreads();
                load_keys(&pair, &a, block.head / a.group, key);
                __syncthreads();
                probabilities<causal>(&pair, &a, block.head, first, key);
                accumulate(dq, pair.ds[row], 1, &pair.k, a.hs);
        }
        store(&a, attention_queries<float>(&a, a.dqkv, block.head), first + row, dq, a.scale);
}

template <bool causal> static cudaError_t forward(cudaStream_t stream, const struct attention *a)
{
        int64_t blocks = attention_query_tiles(a, TILE) * a->heads;
        if (blocks > INT32_MAX)
                return cudaErrorInvalidValue;
        CUDA_LAUNCH((attention_forward_fp32<causal>), (unsigned)blocks, TILE_THREADS, 0, stream, *a);
        return cudaGetLastError();
}

template <bool causal> static cudaError_t backward(cudaStream_t stream, const struct attention *a)
{
        int64_t blocks = attention_query_tiles(a, TILE) * a->heads;
        int64_t key_blocks = attention_key_tiles(a, TILE) * (a->heads / a->group);
        if (blocks > INT32_MAX || key_blocks > INT32_MAX)
                return cudaErrorInvalidValue;
        if (causal)
                CUDA_LAUNCH(attention_rows_fp32, (unsigned)((a->heads * a->T + TILE - 1) / TILE),
                            TILE_THREADS, 0, stream, *a);
        CUDA_LAUNCH((attention_backward_keys_fp32<causal>), (unsigned)key_blocks, TILE_THREADS, 0, stream,
                    *a);
        CUDA_LAUNCH((attention_backward_queries_fp32<causal>), (unsigned)blocks, TILE_THREADS, 0, stream, *a);
        return cudaGetLastError();
}

cudaError_t attention_fp32(cudaStream_t stream, const struct attention *a, bool causal)
{
        return causal ? forward<true>(stream, a) : forward<false>(stream, a);
}

cudaError_t attention_fp32_backward(cudaStream_t stream, const struct attention *a, bool causal)
{
        return causal ? backward<true>(stream, a) : backward<false>(stream, a);
}
