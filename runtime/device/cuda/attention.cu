/* Forward attention: y = softmax(scale q k^T) v with the softmax computed online (Milakov & Gimelshein 2018;
 * Dao et al. 2022): a row's sum and its part of y are relative to the largest score so far, and are scaled
 * down when a larger one comes.
 *
 * mma.sync, not Hopper's wgmma: see README.md. */
#include "runtime/device/cuda/attention.cuh"

/* Keys that a warp computes scores of at a time: half a tile of 64, because more do not fit in registers. */
enum { FORWARD_KEYS = 32 };

/* What a warp keeps of its queries. Lane 4 g + q has rows g ([.][0]) and g + 8 ([.][1]) of each strip, with
 * columns 2q, 2q + 1 of every eight. */
template <int HS> struct forward_state {
        static constexpr int strips = attention_sizes<HS>::strips;
        uint32_t query[strips][HS / 16][4];
        float out[strips][HS / 8][4];
        float top[strips][2]; /* the largest score, not yet scaled, of the row so far */
        float sum[strips][2]; /* of exp(scale (score - top)), over this lane's columns alone */
};

/* scores (16 strips, FORWARD_KEYS) = q k^T. */
template <bool bf16, int HS>
static __device__ __forceinline__ void
forward_scores(float scores[attention_sizes<HS>::strips][FORWARD_KEYS / 8][4],
               const struct forward_state<HS> *state, const unsigned char *k)
{
#pragma unroll
        for (int key = 0; key < FORWARD_KEYS; key += 16) {
#pragma unroll
                for (int column = 0; column < HS; column += 16) {
                        uint32_t right[4];
                        attention_right_transposed<HS>(right, k, key, column);
#pragma unroll
                        for (int m = 0; m < attention_sizes<HS>::strips; m++) {
                                const uint32_t *left = state->query[m][column / 16];
                                attention_mma<bf16>(scores[m][key / 8], left, right);
                                attention_mma<bf16>(scores[m][key / 8 + 1], left, right + 2);
                        }
                }
        }
}

/* Scores of keys that their query does not see become -infinity; `ahead`: the tile's first key less the last
 * that the strip's first query sees. */
template <bool causal>
static __device__ __forceinline__ void forward_mask(float scores[FORWARD_KEYS / 8][4], int ahead)
{
        int lane = (int)threadIdx.x % 32, first = ahead + lane % 4 * 2 - (causal ? lane / 4 : 0);
#pragma unroll
        for (int n = 0; n < FORWARD_KEYS / 8; n++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                        if (first + 8 * n + e % 2 - (causal ? e / 2 * 8 : 0) > 0)
                                scores[n][e] = -INFINITY;
                }
        }
}

/* Scores of one strip's rows g + 8 half become exp(scale (score - top)), with what was summed before scaled
 * to the new top. `scale` is in powers of two. */
template <int HS>
static __device__ __forceinline__ void forward_softmax(float scores[FORWARD_KEYS / 8][4],
                                                       struct forward_state<HS> *state, int m, int half,
                                                       float scale)
{
        float top = state->top[m][half], sum = 0;
#pragma unroll
        for (int n = 0; n < FORWARD_KEYS / 8; n++)
                top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        float shrink = exp2_fast((state->top[m][half] - top) * scale);
#pragma unroll
        for (int n = 0; n < FORWARD_KEYS / 8; n++) {
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                        scores[n][e] = exp2_fast(fmaf(scores[n][e], scale, -top * scale));
                        sum += scores[n][e];
                }
        }
        state->sum[m][half] = fmaf(state->sum[m][half], shrink, sum);
        state->top[m][half] = top;
#pragma unroll
        for (int n = 0; n < HS / 8; n++) {
                state->out[m][n][2 * half] *= shrink;
                state->out[m][n][2 * half + 1] *= shrink;
        }
}

/* FORWARD_KEYS keys and their values; `ahead`: the first key less the last that the warp's first query
 * sees. */
template <bool bf16, int HS, bool causal>
static __device__ __forceinline__ void forward_step(struct forward_state<HS> *state, const unsigned char *k,
                                                    const unsigned char *v, int ahead, float scale)
{
        constexpr int strips = attention_sizes<HS>::strips;
        float scores[strips][FORWARD_KEYS / 8][4] = {};
        forward_scores<bf16, HS>(scores, state, k);
#pragma unroll
        for (int m = 0; m < strips; m++) {
                if (ahead + FORWARD_KEYS > 1)
                        forward_mask<causal>(scores[m], causal ? ahead - 16 * m : ahead);
                forward_softmax<HS>(scores[m], state, m, 0, scale);
                forward_softmax<HS>(scores[m], state, m, 1, scale);
        }
#pragma unroll
        for (int key = 0; key < FORWARD_KEYS; key += 16) {
                uint32_t left[strips][4];
#pragma unroll
                for (int m = 0; m < strips; m++)
                        attention_left_from<bf16>(left[m], scores[m][key / 8], scores[m][key / 8 + 1]);
                attention_accumulate<bf16, HS, strips>(state->out, left, v, key);
        }
}

/* What y and lse hold of the warp's queries, as if of one key whose score is lse. */
template <bool bf16, int HS>
static __device__ __forceinline__ void forward_resume(struct forward_state<HS> *state,
                                                      const struct attention *a, int64_t head, int first)
{
        constexpr int strips = attention_sizes<HS>::strips;
        int lane = (int)threadIdx.x % 32;
        attention_resume<bf16, HS, strips>(state->out, a, attention_output<const uint16_t>(a, a->y, head),
                                           first, 1);
#pragma unroll
        for (int m = 0; m < strips; m++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                        int query = first + 16 * m + 8 * half + lane / 4;
                        state->top[m][half] = query < a->T ? a->lse[head * a->T + query] / a->scale : 0;
                        state->sum[m][half] = lane % 4 == 0;
                }
        }
}

/* Divides by the sums, and writes the warp's rows of y and lse. */
template <bool bf16, int HS>
static __device__ __forceinline__ void forward_finish(struct forward_state<HS> *state, unsigned char *own,
                                                      const struct attention *a, int64_t head, int first)
{
        constexpr int strips = attention_sizes<HS>::strips;
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < strips; m++) {
#pragma unroll
                for (int half = 0; half < 2; half++) {
                        float sum = state->sum[m][half];
                        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
                        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
                        int query = first + 16 * m + 8 * half + lane / 4;
                        if (lane % 4 == 0 && query < a->T)
                                a->lse[head * a->T + query] = state->top[m][half] * a->scale + logf(sum);
                        float inverse = 1 / sum;
#pragma unroll
                        for (int n = 0; n < HS / 8; n++) {
                                state->out[m][n][2 * half] *= inverse;
                                state->out[m][n][2 * half + 1] *= inverse;
                        }
                }
        }
        attention_store<bf16, HS, strips>(own, a, attention_output<uint16_t>(a, a->y, head), first,
                                          state->out);
}

/* A block computes `rows` queries of one head. Its shared memory holds two stages, each a tile of keys and
 * one of values; the queries pass through the second stage into registers before the loop. Two blocks share
 * a multiprocessor: at 128 threads each, 255 registers a thread are allowed, and with 64-element heads 2 x 36
 * KiB of shared memory are taken. */
template <bool bf16, int HS, bool causal>
static __global__ void __launch_bounds__(ATTENTION_THREADS, 2) attention_forward(const struct attention a)
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

        attention_load<HS, sizes::rows>(shared + 2 * half_stage, &a,
                                        attention_queries<const uint16_t>(&a, a.qkv, block.head), first, a.T);
        attention_load<HS, sizes::keys>(shared, &a, k, 0, a.seen);
        attention_load<HS, sizes::keys>(shared + half_stage, &a, v, 0, a.seen);
        attention_arrive();
        struct forward_state<HS> state = {
        };
        if (!causal)
                forward_resume<bf16, HS>(&state, &a, block.head, mine);
#pragma unroll
        for (int m = 0; m < sizes::strips; m++) {
                if (causal)
                        state.top[m][0] = state.top[m][1] = -INFINITY;
#pragma unroll
                for (int column = 0; column < HS; column += 16)
                        attention_left<HS>(state.query[m][column / 16], shared + 2 * half_stage, own + 16 * m,
                                           column);
        }
        __syncthreads();
        for (int key = 0, stage = 0; key < end; key += sizes::keys, stage ^= 1) {
                const unsigned char *now = shared + 2 * stage * half_stage;
                unsigned char *next = shared + 2 * (stage ^ 1) * half_stage;
                if (key + sizes::keys < end) {
                        attention_load<HS, sizes::keys>(next, &a, k, key + sizes::keys, a.seen);
                        attention_load<HS, sizes::keys>(next + half_stage, &a, v, key + sizes::keys, a.seen);
                }
#pragma unroll 1
                for (int part = 0; part < sizes::keys && key + part < my_end; part += FORWARD_KEYS)
                        forward_step<bf16, HS, causal>(
                                &state, now + part * sizes::pitch, now + half_stage + part * sizes::pitch,
                                key + part - attention_last_key<causal>(&a, mine), a.scale * ATTENTION_LOG2E);
                attention_arrive();
        }
        forward_finish<bf16, HS>(&state, shared + own * sizes::pitch, &a, block.head, mine);
}

template <bool bf16, int HS, bool causal>
static cudaError_t launch(cudaStream_t stream, const struct attention *a)
{
        using sizes = attention_sizes<HS>;
        size_t bytes = 4 * sizes::keys * sizes::pitch;
        int64_t blocks = attention_query_tiles(a, sizes::rows) * a->heads;
        if (blocks > INT32_MAX)
                return cudaErrorInvalidValue;
        CUDA_LAUNCH((attention_forward<bf16, HS, causal>), (unsigned)blocks, ATTENTION_THREADS, bytes, stream,
                    *a);
        return cudaGetLastError();
}

template <bool causal>
static cudaError_t attend(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        struct attention a = {};
        a.y = args->p[0];
        a.lse = (float *)args->p[1];
        a.qkv = args->p[2];
        a.kv = causal ? args->p[2] : args->p[3];
        if (!attention_shape(&a, kernel, args, causal))
                return cudaErrorInvalidValue;
        if (kernel->dtype == DTYPE_FP32)
                return attention_fp32(stream, &a, causal);
        a.aligned = attention_aligned(&a, a.qkv) && attention_aligned(&a, a.kv) && attention_aligned(&a, a.y);
        if (kernel->dtype == DTYPE_BF16)
                return a.hs <= 64 ? launch<true, 64, causal>(stream, &a)
                                  : launch<true, 128, causal>(stream, &a);
        return a.hs <= 64 ? launch<false, 64, causal>(stream, &a) : launch<false, 128, causal>(stream, &a);
}

extern "C" cudaError_t cuda_attention(cudaStream_t stream, const struct kernel *kernel,
                                      const struct kernel_args *args, const struct cuda_work *)
{
        return attend<true>(stream, kernel, args);
}

extern "C" cudaError_t cuda_context_attention(cudaStream_t stream, const struct kernel *kernel,
                                              const struct kernel_args *args, const struct cuda_work *)
{
        return attend<false>(stream, kernel, args);
}
