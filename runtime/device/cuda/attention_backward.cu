/* Backward of attention: with p = exp(scale q k^T - lse), computed again from the row sums that forward left,
 *   dv = p^T dy,   ds = p (dy v^T - rows),   dq = scale ds k,   dk = scale ds^T q,
 * where rows = sum(dy y) is each row's sum of p dp (Dao et al. 2022). One kernel computes rows, one dk and
 * dv, a tile of keys a block, which takes the heads of its group in turn, and one dq, a tile of queries a
 * block. The last two both compute p and ds:
 * seven products where five would do, but no sum then crosses blocks, so that results do not depend on the
 * order in which blocks end. Of another rank's keys the last two go on with what dqkv holds, and rows are
 * there. */
#include "runtime/device/cuda/attention.cuh"

/* --- rows ---------------------------------------------------------------------------------------------- */

enum { ROW_LANES = 8 }; /* lanes to a row: a head of 64 elements is then 16 bytes a lane */

template <bool bf16> static __device__ __forceinline__ float element_product(uint16_t a, uint16_t b)
{
        return attention_number<bf16>(a) * attention_number<bf16>(b);
}

template <bool bf16> static __device__ __forceinline__ float word_product(uint32_t a, uint32_t b)
{
        return element_product<bf16>((uint16_t)a, (uint16_t)b) +
               element_product<bf16>((uint16_t)(a >> 16), (uint16_t)(b >> 16));
}

/* rows (B,H,T) = sum(dy y), both (B,T,H hs): row b T H + t H + h of dy goes to b, h, t. There are fewer than
 * 2^32: divisions of 64 bits would take longer than the loads. */
template <bool bf16>
static __global__ void __launch_bounds__(ATTENTION_THREADS) attention_rows(const struct attention a)
{
        int64_t row = (int64_t)blockIdx.x * (ATTENTION_THREADS / ROW_LANES) + threadIdx.x / ROW_LANES;
        int lane = (int)threadIdx.x % ROW_LANES;
        bool valid = row < a.heads * a.T;
        const uint16_t *dy = (const uint16_t *)a.dy + row * a.hs, *y = (const uint16_t *)a.y + row * a.hs;
        float sum = 0;
        for (int i = 8 * lane; valid && a.aligned && i < a.hs; i += 8 * ROW_LANES) {
                uint4 left = *(const uint4 *)(dy + i), right = *(const uint4 *)(y + i);
                sum += word_product<bf16>(left.x, right.x) + word_product<bf16>(left.y, right.y) +
                       word_product<bf16>(left.z, right.z) + word_product<bf16>(left.w, right.w);
        }
        for (int i = lane; valid && !a.aligned && i < a.hs; i += ROW_LANES)
                sum += element_product<bf16>(dy[i], y[i]);
        for (int other = 1; other < ROW_LANES; other *= 2)
                sum += __shfl_xor_sync(0xffffffffu, sum, other);
        uint32_t at = (uint32_t)row, h = at % (uint32_t)a.H, token = at / (uint32_t)a.H;
        if (valid && lane == 0)
                a.rows[((int64_t)(token / (uint32_t)a.T) * a.H + h) * a.T + token % (uint32_t)a.T] = sum;
}

/* --- dk and dv ----------------------------------------------------------------------------------------- */

/* Of one step: k q^T and v dy^T (16 strips keys, queries), which become p^T and ds^T. */
template <int HS> struct keys_step {
        static constexpr int strips = attention_sizes<HS>::strips, queries = attention_sizes<HS>::queries;
        float p[strips][queries / 8][4], ds[strips][queries / 8][4];
};

/* p += k q^T and ds += v dy^T, of the warp's rows of keys and values at `k` and `v`. */
template <bool bf16, int HS>
static __device__ __forceinline__ void keys_products(struct keys_step<HS> *step, const unsigned char *k,
                                                     const unsigned char *v, const unsigned char *q,
                                                     const unsigned char *dy)
{
        constexpr int strips = attention_sizes<HS>::strips, queries = attention_sizes<HS>::queries;
#pragma unroll
        for (int column = 0; column < HS; column += 16) {
                uint32_t key[strips][4], value[strips][4], right[4];
#pragma unroll
                for (int m = 0; m < strips; m++) {
                        attention_left<HS>(key[m], k, 16 * m, column);
                        attention_left<HS>(value[m], v, 16 * m, column);
                }
#pragma unroll
                for (int query = 0; query < queries; query += 16) {
                        attention_right_transposed<HS>(right, q, query, column);
#pragma unroll
                        for (int m = 0; m < strips; m++) {
                                attention_mma<bf16>(step->p[m][query / 8], key[m], right);
                                attention_mma<bf16>(step->p[m][query / 8 + 1], key[m], right + 2);
                        }
                        attention_right_transposed<HS>(right, dy, query, column);
#pragma unroll
                        for (int m = 0; m < strips; m++) {
                                attention_mma<bf16>(step->ds[m][query / 8], value[m], right);
                                attention_mma<bf16>(step->ds[m][query / 8 + 1], value[m], right + 2);
                        }
                }
        }
}

/* From products to p and ds. `lse` holds -lse log2(e) of the step's queries, `rows` their rows; `ahead`: the
 * warp's first key less the last that the first query sees. */
template <int HS, bool causal>
static __device__ __forceinline__ void keys_softmax(struct keys_step<HS> *step, const float *lse,
                                                    const float *rows, int ahead, float scale)
{
        constexpr int strips = attention_sizes<HS>::strips, queries = attention_sizes<HS>::queries;
        int lane = (int)threadIdx.x % 32, first = ahead + lane / 4 - (causal ? lane % 4 * 2 : 0);
        bool masked = ahead + 16 * strips > 1;
#pragma unroll
        for (int n = 0; n < queries / 8; n++) {
                float2 shift = *(const float2 *)(lse + 8 * n + lane % 4 * 2);
                float2 row = *(const float2 *)(rows + 8 * n + lane % 4 * 2);
#pragma unroll
                for (int m = 0; m < strips; m++) {
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                                float p = exp2_fast(fmaf(step->p[m][n][e], scale, e % 2 ? shift.y : shift.x));
                                if (masked && first + 16 * m + e / 2 * 8 - (causal ? 8 * n + e % 2 : 0) > 0)
                                        p = 0;
                                step->p[m][n][e] = p;
                                step->ds[m][n][e] = p * (step->ds[m][n][e] - (e % 2 ? row.y : row.x));
                        }
                }
        }
}

/* Shared memory of the kernel over keys: the block's keys and values, two stages of queries and their dy, and
 * two of the queries' statistics: -lse log2(e), then rows. */
template <int HS> struct keys_shared {
        using sizes = attention_sizes<HS>;
        static constexpr int own = sizes::rows * sizes::pitch, tile = sizes::queries * sizes::pitch;
        static constexpr int statistics = 2 * own + 4 * tile;
        static constexpr int bytes = statistics + 2 * 2 * sizes::queries * (int)sizeof(float);
};

/* The statistics that this thread brings to shared memory, a step's in each: of query threadIdx.x % queries
 * of the step, lse's by the first threads, rows' by the next. `at`: that of the step from `query` on. Where
 * there is no query, p becomes exp2(-infinity). */
template <int HS>
static __device__ __forceinline__ const float *keys_statistics(const struct attention *a, int64_t first)
{
        constexpr int queries = attention_sizes<HS>::queries;
        return (threadIdx.x < queries ? a->lse : a->rows) + first + threadIdx.x % queries;
}

template <int HS>
static __device__ __forceinline__ float keys_statistic(const struct attention *a, const float *at, int query)
{
        constexpr int queries = attention_sizes<HS>::queries;
        bool is_lse = threadIdx.x < queries;
        if (threadIdx.x >= 2 * queries || query + (int)threadIdx.x % queries >= a->T)
                return is_lse ? -INFINITY : 0;
        return *at * (is_lse ? -ATTENTION_LOG2E : 1);
}

/* A block computes dk and dv of `rows` keys of one head; the heads of queries that share them, and the tiles
 * of each from the block's own on, are one sequence of steps. With 64-element heads its 54.5 KiB of shared
 * memory let two blocks run where a multiprocessor has 112 KiB or more. */
template <bool bf16, int HS, bool causal>
static __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
        attention_backward_keys(const struct attention a)
{
        using sizes = attention_sizes<HS>;
        using place = keys_shared<HS>;
        constexpr int own_rows = 16 * sizes::strips, queries = sizes::queries;
        CUDA_DYNAMIC_SHARED(shared);
        float *statistics = (float *)(shared + place::statistics);
        struct attention_block block =
                attention_block(a.heads / a.group, attention_key_tiles(&a, sizes::rows), false);
        int64_t head = block.head * a.group;
        struct attention_matrix<const uint16_t> q = attention_queries<const uint16_t>(&a, a.qkv, head);
        struct attention_matrix<const uint16_t> dy = attention_output<const uint16_t>(&a, a.dy, head);
        int first = block.tile * sizes::rows, own = (int)threadIdx.x / 32 * own_rows, mine = first + own;
        int from = causal ? first : a.first; /* the first query that sees any of them */
        const float *at = keys_statistics<HS>(&a, head * a.T + from);

        attention_load<HS, sizes::rows>(shared, &a, attention_keys<const uint16_t>(&a, a.kv, block.head),
                                        first, a.seen);
        attention_load<HS, sizes::rows>(shared + place::own, &a,
                                        attention_values<const uint16_t>(&a, a.kv, block.head), first,
                                        a.seen);
        attention_load<HS, queries>(shared + 2 * place::own, &a, q, from, a.T);
        attention_load<HS, queries>(shared + 2 * place::own + place::tile, &a, dy, from, a.T);
        if (threadIdx.x < 2 * queries)
                statistics[threadIdx.x] = keys_statistic<HS>(&a, at, from);
        attention_arrive();
        float dk[sizes::strips][HS / 8][4] = {}, dv[sizes::strips][HS / 8][4] = {};
        for (int query = from, stage = 0, left = first < a.seen ? a.group : 0; left > 0; stage ^= 1) {
                const unsigned char *now = shared + 2 * place::own + 2 * stage * place::tile;
                unsigned char *next = shared + 2 * place::own + 2 * (stage ^ 1) * place::tile;
                int ahead = mine - attention_last_key<causal>(&a, query);
                query += queries;
                at += queries;
                if (query >= a.T) {
                        at += a.T - (query - from);
                        query = from;
                        q.first += a.hs;
                        dy.first += a.hs;
                        left--;
                }
                /* Loaded before the products and written after them, so that no warp waits for it. */
                float statistic = 0;
                if (left > 0) {
                        statistic = keys_statistic<HS>(&a, at, query);
                        attention_load<HS, queries>(next, &a, q, query, a.T);
                        attention_load<HS, queries>(next + place::tile, &a, dy, query, a.T);
                }
                if (ahead < (causal ? queries : 1)) {
                        struct keys_step<HS> step = {
                        };
                        const float *statistics_now = statistics + 2 * stage * queries;
                        keys_products<bf16, HS>(&step, shared + own * sizes::pitch,
                                                shared + place::own + own * sizes::pitch, now,
                                                now + place::tile);
                        keys_softmax<HS, causal>(&step, statistics_now, statistics_now + queries, ahead,
                                                 a.scale * ATTENTION_LOG2E);
#pragma unroll
                        for (int i = 0; i < queries; i += 16) {
                                uint32_t p[sizes::strips][4], ds[sizes::strips][4];
#pragma unroll
                                for (int m = 0; m < sizes::strips; m++) {
                                        attention_left_from<bf16>(p[m], step.p[m][i / 8],
                                                                  step.p[m][i / 8 + 1]);
                                        attention_left_from<bf16>(ds[m], step.ds[m][i / 8],
                                                                  step.ds[m][i / 8 + 1]);
                                }
                                attention_accumulate<bf16, HS, sizes::strips>(dv, p, now + place::tile, i);
                                attention_accumulate<bf16, HS, sizes::strips>(dk, ds, now, i);
                        }
                }
                if (threadIdx.x < 2 * queries)
                        statistics[2 * (stage ^ 1) * queries + threadIdx.x] = statistic;
                attention_arrive();
        }
        attention_scale<HS, sizes::strips>(dk, a.scale);
        attention_store<bf16, HS, sizes::strips>(shared + own * sizes::pitch, &a,
                                                 attention_keys<uint16_t>(&a, a.dkv, block.head), mine, dk);
        attention_store<bf16, HS, sizes::strips>(shared + place::own + own * sizes::pitch, &a,
                                                 attention_values<uint16_t>(&a, a.dkv, block.head), mine, dv);
}

/* --- dq ------------------------------------------------------------------------------------------------ */

/* What a warp keeps of its queries; rows of a lane as in attention.cu. */
template <int HS> struct queries_state {
        static constexpr int strips = attention_sizes<HS>::strips;
        uint32_t query[strips][HS / 16][4], dy[strips][HS / 16][4];
        float dq[strips][HS / 8][4];
        float lse[strips][2], rows[strips][2]; /* lse times -log2(e) */
};

/* 16 keys and their values at `k` and `v`; `ahead`: the first key less the last that the warp's first query
 * sees. */
template <bool bf16, int HS, bool causal>
static __device__ __forceinline__ void queries_step(struct queries_state<HS> *state, const unsigned char *k,
                                                    const unsigned char *v, int ahead, float scale)
{
        constexpr int strips = attention_sizes<HS>::strips;
        float p[strips][2][4] = {}, ds[strips][2][4] = {};
#pragma unroll
        for (int column = 0; column < HS; column += 16) {
                uint32_t key[4], value[4];
                attention_right_transposed<HS>(key, k, 0, column);
                attention_right_transposed<HS>(value, v, 0, column);
#pragma unroll
                for (int m = 0; m < strips; m++) {
#pragma unroll
                        for (int n = 0; n < 2; n++) {
                                attention_mma<bf16>(p[m][n], state->query[m][column / 16], key + 2 * n);
                                attention_mma<bf16>(ds[m][n], state->dy[m][column / 16], value + 2 * n);
                        }
                }
        }
        int lane = (int)threadIdx.x % 32, first = ahead + lane % 4 * 2 - (causal ? lane / 4 : 0);
        bool masked = ahead + 16 > 1;
        uint32_t left[strips][4];
#pragma unroll
        for (int m = 0; m < strips; m++) {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                        int n = i / 4, e = i % 4, half = e / 2;
                        float probability = exp2_fast(fmaf(p[m][n][e], scale, state->lse[m][half]));
                        if (masked && first + 8 * n + e % 2 - (causal ? 8 * half + 16 * m : 0) > 0)
                                probability = 0;
                        ds[m][n][e] = probability * (ds[m][n][e] - state->rows[m][half]);
                }
                attention_left_from<bf16>(left[m], ds[m][0], ds[m][1]);
        }
        attention_accumulate<bf16, HS, strips>(state->dq, left, k, 0);
}

/* The warp's rows of q and dy, at `q` and `dy`, and their statistics. */
template <int HS>
static __device__ __forceinline__ void queries_begin(struct queries_state<HS> *state, const unsigned char *q,
                                                     const unsigned char *dy, const struct attention *a,
                                                     int64_t head, int first)
{
#pragma unroll
        for (int m = 0; m < attention_sizes<HS>::strips; m++) {
#pragma unroll
                for (int column = 0; column < HS; column += 16) {
                        attention_left<HS>(state->query[m][column / 16], q, 16 * m, column);
                        attention_left<HS>(state->dy[m][column / 16], dy, 16 * m, column);
                }
#pragma unroll
                for (int half = 0; half < 2; half++) {
                        int query = first + 16 * m + 8 * half + (int)threadIdx.x % 32 / 4;
                        bool valid = query < a->T;
                        state->lse[m][half] =
                                valid ? a->lse[head * a->T + query] * -ATTENTION_LOG2E : -INFINITY;
                        state->rows[m][half] = valid ? a->rows[head * a->T + query] : 0;
                }
        }
}

/* A block computes dq of `rows` queries of one head. Both stages of keys and values first hold the queries
 * and their dy, on the way to registers. */
template <bool bf16, int HS, bool causal>
static __global__ void __launch_bounds__(ATTENTION_THREADS, 2)
        attention_backward_queries(const struct attention a)
{
        using sizes = attention_sizes<HS>;
        constexpr int half_stage = sizes::keys * sizes::pitch, own_rows = 16 * sizes::strips;
        CUDA_DYNAMIC_SHARED(shared);
        struct attention_block block = attention_block(a.heads, attention_query_tiles(&a, sizes::rows), true);
        int64_t kv_head = block.head / a.group;
        struct attention_matrix<const uint16_t> k = attention_keys<const uint16_t>(&a, a.kv, kv_head);
        struct attention_matrix<const uint16_t> v = attention_values<const uint16_t>(&a, a.kv, kv_head);
        int first = a.first + block.tile * sizes::rows, own = (int)threadIdx.x / 32 * own_rows;
        int mine = first + own, end = attention_keys_end<causal>(&a, first + sizes::rows);
        int my_end = attention_keys_end<causal>(&a, mine + own_rows);

        attention_load<HS, sizes::rows>(shared, &a, attention_queries<const uint16_t>(&a, a.qkv, block.head),
                                        first, a.T);
        attention_load<HS, sizes::rows>(shared + 2 * half_stage, &a,
                                        attention_output<const uint16_t>(&a, a.dy, block.head), first, a.T);
        attention_arrive();
        struct queries_state<HS> state = {
        };
        queries_begin<HS>(&state, shared + own * sizes::pitch, shared + 2 * half_stage + own * sizes::pitch,
                          &a, block.head, mine);
        if (!causal)
                attention_resume<bf16, HS, sizes::strips>(
                        state.dq, &a, attention_queries<const uint16_t>(&a, a.dqkv, block.head), mine,
                        1 / a.scale);
        __syncthreads();
        attention_load<HS, sizes::keys>(shared, &a, k, 0, a.seen);
        attention_load<HS, sizes::keys>(shared + half_stage, &a, v, 0, a.seen);
        attention_arrive();
        for (int key = 0, stage = 0; key < end; key += sizes::keys, stage ^= 1) {
                const unsigned char *now = shared + 2 * stage * half_stage;
                unsigned char *next = shared + 2 * (stage ^ 1) * half_stage;
                if (key + sizes::keys < end) {
                        attention_load<HS, sizes::keys>(next, &a, k, key + sizes::keys, a.seen);
                        attention_load<HS, sizes::keys>(next + half_stage, &a, v, key + sizes::keys, a.seen);
                }
#pragma unroll 1
                for (int part = 0; part < sizes::keys && key + part < my_end; part += 16)
                        queries_step<bf16, HS, causal>(
                                &state, now + part * sizes::pitch, now + half_stage + part * sizes::pitch,
                                key + part - attention_last_key<causal>(&a, mine), a.scale * ATTENTION_LOG2E);
                attention_arrive();
        }
        attention_scale<HS, sizes::strips>(state.dq, a.scale);
        attention_store<bf16, HS, sizes::strips>(shared + own * sizes::pitch, &a,
                                                 attention_queries<uint16_t>(&a, a.dqkv, block.head), mine,
                                                 state.dq);
}

/* --- launches ------------------------------------------------------------------------------------------ */

template <bool bf16> static cudaError_t launch_rows(cudaStream_t stream, const struct attention *a)
{
        int64_t blocks = (a->heads * a->T * ROW_LANES + ATTENTION_THREADS - 1) / ATTENTION_THREADS;
        if (blocks > INT32_MAX || a->heads * a->T > UINT32_MAX)
                return cudaErrorInvalidValue;
        CUDA_LAUNCH((attention_rows<bf16>), (unsigned)blocks, ATTENTION_THREADS, 0, stream, *a);
        return cudaGetLastError();
}

template <bool bf16, int HS, bool causal>
static cudaError_t launch(cudaStream_t stream, const struct attention *a)
{
        using sizes = attention_sizes<HS>;
        int64_t blocks = attention_query_tiles(a, sizes::rows) * a->heads;
        int64_t key_blocks = attention_key_tiles(a, sizes::rows) * (a->heads / a->group);
        if (key_blocks > INT32_MAX || blocks > INT32_MAX)
                return cudaErrorInvalidValue;
        cudaError_t error =
                cudaFuncSetAttribute(attention_backward_keys<bf16, HS, causal>,
                                     cudaFuncAttributeMaxDynamicSharedMemorySize, keys_shared<HS>::bytes);
        if (error != cudaSuccess)
                return error;
        error = causal ? launch_rows<bf16>(stream, a) : cudaSuccess;
        if (error != cudaSuccess)
                return error;
        CUDA_LAUNCH((attention_backward_keys<bf16, HS, causal>), (unsigned)key_blocks, ATTENTION_THREADS,
                    keys_shared<HS>::bytes, stream, *a);
        CUDA_LAUNCH((attention_backward_queries<bf16, HS, causal>), (unsigned)blocks, ATTENTION_THREADS,
                    4 * sizes::keys * sizes::pitch, stream, *a);
        return cudaGetLastError();
}

/* With the operands in `a`; without y where there is nothing to make rows of. */
template <bool causal>
static cudaError_t attend_backward(cudaStream_t stream, const struct kernel *kernel,
                                   const struct kernel_args *args, struct attention *a)
{
        if (!attention_shape(a, kernel, args, causal))
                return cudaErrorInvalidValue;
        if (kernel->dtype == DTYPE_FP32)
                return attention_fp32_backward(stream, a, causal);
        a->aligned = attention_aligned(a, a->qkv) && attention_aligned(a, a->kv) &&
                     attention_aligned(a, a->dqkv) && attention_aligned(a, a->dkv) &&
                     attention_aligned(a, a->dy) && attention_aligned(a, a->y);
        if (kernel->dtype == DTYPE_BF16)
                return a->hs <= 64 ? launch<true, 64, causal>(stream, a)
                                   : launch<true, 128, causal>(stream, a);
        return a->hs <= 64 ? launch<false, 64, causal>(stream, a) : launch<false, 128, causal>(stream, a);
}

/* The operands of attention_backward. */
static struct attention of_own_keys(const struct kernel_args *args)
{
        struct attention a = {};
        a.dqkv = a.dkv = args->p[0];
        a.rows = (float *)args->p[1];
        a.dy = args->p[2];
        a.y = args->p[3];
        a.lse = (float *)args->p[4];
        a.qkv = a.kv = args->p[5];
        return a;
}

extern "C" cudaError_t cuda_attention_backward(cudaStream_t stream, const struct kernel *kernel,
                                               const struct kernel_args *args, const struct cuda_work *)
{
        struct attention a = of_own_keys(args);
        return attend_backward<true>(stream, kernel, args, &a);
}

extern "C" cudaError_t cuda_attention_rows(cudaStream_t stream, const struct kernel *kernel,
                                           const struct kernel_args *args, const struct cuda_work *)
{
        struct attention a = of_own_keys(args);
        if (!attention_shape(&a, kernel, args, true))
                return cudaErrorInvalidValue;
        a.aligned = attention_aligned(&a, a.dy) && attention_aligned(&a, a.y);
        return kernel->dtype == DTYPE_BF16 ? launch_rows<true>(stream, &a) : launch_rows<false>(stream, &a);
}

extern "C" cudaError_t cuda_context_attention_backward(cudaStream_t stream, const struct kernel *kernel,
                                                       const struct kernel_args *args,
                                                       const struct cuda_work *)
{
        struct attention a = {};
        a.dqkv = args->p[0];
        a.dkv = args->p[1];
        a.rows = (float *)args->p[2];
        a.dy = args->p[3];
        a.lse = (float *)args->p[4];
        a.qkv = args->p[5];
        a.kv = args->p[6];
        return attend_backward<false>(stream, kernel, args, &a);
}
