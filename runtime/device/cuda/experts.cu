/* Mixture of experts: which experts a token goes to, their rows in order, and rows that move between the two
 * orders. What these compute, and how operands are packed, is said in runtime/device/kernels.h.
 *
 * Nothing depends on timing: a warp chooses the experts of a token, the best first, and a warp finds the rows
 * of an expert by counting those of the experts before it, then going over all choices in the order of
 * tokens. */
#include "runtime/device/cuda/reduce.cuh"

#include <limits.h>

/* MAX_EXPERTS, and half as many groups, are what 48 KB of shared memory have room for. */
enum { WARPS = 8, ROWS = 4, MAX_BLOCKS_Y = 65535, MAX_EXPERTS = 1024 };

/* N tokens with K experts each of E, how their logits (N,E) become weights, and who is chosen. */
template <typename T> struct routing {
        const T *logits, *correction; /* correction (E), or NULL */
        int N, E, K;
        bool logistic, normalised;
        float factor;
        int groups, chosen_groups;
        bool best; /* of groups: by their largest number; else by the sum of two */
};

/* The token that this warp has; N or more: none. */
static __device__ __forceinline__ int warp_token(void)
{
        return (int)(blockIdx.x * WARPS + threadIdx.y);
}

static unsigned token_blocks(int N)
{
        return (unsigned)ceil_div(N, WARPS);
}

/* What makes scores of a token's logits: softmax's maximum and sum, which the logistic function does not
 * use. */
struct scores {
        float max, sum;
};

template <typename T>
static __device__ __forceinline__ struct scores scores_of(const struct routing<T> &of, const T *logits)
{
        struct scores s = {-INFINITY, 0};
        if (of.logistic)
                return s;
        for (int e = (int)threadIdx.x; e < of.E; e += WARP)
                s.max = fmaxf(s.max, to_float(logits[e]));
        s.max = warp_max(s.max);
        for (int e = (int)threadIdx.x; e < of.E; e += WARP)
                s.sum += expf(to_float(logits[e]) - s.max);
        s.sum = warp_sum(s.sum);
        return s;
}

template <typename T>
static __device__ __forceinline__ float score(const struct routing<T> &of, const struct scores &s,
                                              float logit)
{
        return of.logistic ? 1 / (1 + expf(-logit)) : expf(logit - s.max) / s.sum;
}

/* What scores are divided by: their sum, but not 0, which it is of scores too small for a float. */
static __device__ __forceinline__ float divisor(float sum)
{
        return sum + 1e-20F;
}

/* ---- route ---- */

/* An expert of a token, with what it is chosen by, and then its weight; or a group of experts. */
struct choice {
        float value;
        int32_t expert;
};

/* Whether a is chosen before b: of equal ones the first. */
static __device__ __forceinline__ bool before(const struct choice &a, const struct choice &b)
{
        return a.value > b.value || (a.value == b.value && a.expert < b.expert);
}

/* The first choice among `by` (count) that comes after `last`. What is not a number counts as -infinity. */
static __device__ __forceinline__ struct choice next_choice(const float *by, int count,
                                                            const struct choice &last)
{
        struct choice best = {-INFINITY, INT_MAX};
        for (int e = (int)threadIdx.x; e < count; e += WARP) {
                const struct choice c = {isnan(by[e]) ? -INFINITY : by[e], e};
                if (before(last, c) && before(c, best))
                        best = c;
        }
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2) {
                const struct choice other = {__shfl_xor_sync(0xffffffffU, best.value, step),
                                             __shfl_xor_sync(0xffffffffU, best.expert, step)};
                if (before(other, best))
                        best = other;
        }
        return best;
}

/* What a group is chosen by: the sum of its two largest, or its largest. */
static __device__ __forceinline__ float of_group(bool best, const float *x, int count)
{
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < count; i++) {
                second = fmaxf(second, fminf(first, x[i]));
                first = fmaxf(first, x[i]);
        }
        return best ? first : first + second;
}

/* What a token's experts are chosen by becomes 0 in the groups that are not. `sums` is scratch, one a group.
 */
template <typename T>
static __device__ __forceinline__ void choose_groups(const struct routing<T> &of, float *by, float *sums)
{
        const int each = of.E / of.groups;
        struct choice last = {INFINITY, -1};
        for (int g = (int)threadIdx.x; g < of.groups; g += WARP)
                sums[g] = of_group(of.best, by + g * each, each);
        __syncwarp();
        for (int i = 0; i < of.chosen_groups; i++)
                last = next_choice(sums, of.groups, last);
        for (int e = (int)threadIdx.x; e < of.E; e += WARP) {
                const struct choice group = {sums[e / each], e / each};
                if (before(last, group))
                        by[e] = 0;
        }
        __syncwarp();
}

/* Writes what a token's experts are chosen by to `by` (E), behind which is room for the groups. */
template <typename T>
static __device__ __forceinline__ void choose_by(const struct routing<T> &of, const struct scores &s,
                                                 const T *logits, float *by)
{
        for (int e = (int)threadIdx.x; e < of.E; e += WARP) {
                const float logit = to_float(logits[e]);
                by[e] = of.correction   ? score(of, s, logit) + to_float(of.correction[e])
                        : of.groups > 1 ? score(of, s, logit)
                                        : logit;
        }
        __syncwarp();
        if (of.groups > 1)
                choose_groups(of, by, by + of.E);
}

/* choices (N,K), the best first. A warp has of.E + of.groups numbers of the shared memory. */
template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS)
        choose_experts(struct choice *choices, struct routing<T> of)
{
        CUDA_DYNAMIC_SHARED(shared);
        const int t = warp_token();
        if (t >= of.N)
                return;
        const T *logits = of.logits + (int64_t)t * of.E;
        float *by = (float *)shared + (of.E + of.groups) * (int)threadIdx.y;
        struct choice *mine = choices + (int64_t)t * of.K, last = {INFINITY, -1};
        const struct scores s = scores_of(of, logits);
        float sum = 0;
        choose_by(of, s, logits, by);
        for (int i = 0; i < of.K; i++) {
                last = next_choice(by, of.E, last);
                const float chosen = score(of, s, to_float(logits[last.expert]));
                sum += chosen;
                if (threadIdx.x == 0)
                        mine[i] = {chosen, last.expert};
        }
        __syncwarp();
        for (int i = (int)threadIdx.x; i < of.K; i += WARP)
                mine[i].value *= of.normalised ? of.factor / divisor(sum) : of.factor;
}

struct order {
        float *weights;
        int32_t *place, *source, *ends;
};

/* A warp has an expert, and all `count` choices pass by in the order of tokens. */
static __global__ void __launch_bounds__(WARP *WARPS)
        place_rows(struct order to, const struct choice *__restrict__ choices, int count, int E)
{
        const int expert = (int)(blockIdx.x * WARPS + threadIdx.y), lane = (int)threadIdx.x;
        if (expert >= E)
                return;
        int row = 0;
        for (int i = lane; i < count; i += WARP)
                row += choices[i].expert < expert;
        row = warp_sum(row);
        for (int first = 0; first < count; first += WARP) {
                const int i = first + lane;
                const struct choice c = i < count ? choices[i] : choice{0, -1};
                const unsigned same = __ballot_sync(0xffffffffU, c.expert == expert);
                if (c.expert == expert) {
                        const int mine = row + __popc(same & ((1U << lane) - 1));
                        to.weights[mine] = c.value;
                        to.source[mine] = i;
                        to.place[i] = mine;
                }
                row += __popc(same);
        }
        if (lane == 0)
                to.ends[expert] = row;
}

template <typename T>
static struct routing<T> routing_of(const struct kernel *kernel, const struct kernel_args *args,
                                    const void *logits) {
        return {(const T *)logits,    NULL,
                (int)kernel->m,       (int)kernel->n,
                (int)kernel->k,       args->scalar[0] != 0,
                args->scalar[1] != 0, (float)args->scalar[2],
                (int)args->scalar[4], (int)args->scalar[5],
                args->scalar[6] != 0};
}

/* Whether rows can be counted in an int, choices fit the scratch, and what they are made by shared memory. */
static bool
can_route(const struct kernel *kernel)
{
        return kernel->n <= MAX_EXPERTS && kernel->k <= kernel->n &&
               kernel->m <= CUDA_SCRATCH_BYTES / (int64_t)sizeof(struct choice) / kernel->k;
}

template <typename T>
static cudaError_t route(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *work)
{
        enum { WEIGHTS, PLACE, SOURCE, ENDS, LOGITS, CORRECTION };
        struct routing<T> of = routing_of<T>(kernel, args, args->p[LOGITS]);
        const size_t shared_bytes = sizeof(float) * WARPS * (size_t)(of.E + of.groups);
        const struct order to = {(float *)args->p[WEIGHTS], (int32_t *)args->p[PLACE],
                                 (int32_t *)args->p[SOURCE], (int32_t *)args->p[ENDS]};
        struct choice *choices = (struct choice *)work->scratch;
        of.correction = (const T *)args->p[CORRECTION];
        if (!can_route(kernel))
                return cudaErrorInvalidValue;
        if (of.N > 0)
                CUDA_LAUNCH((choose_experts<T>), dim3(token_blocks(of.N)), dim3(WARP, WARPS), shared_bytes,
                            stream, choices, of);
        CUDA_LAUNCH(place_rows, dim3((unsigned)ceil_div(of.E, WARPS)), dim3(WARP, WARPS), 0, stream, to,
                    (const struct choice *)choices, of.N * of.K, of.E);
        return cudaGetLastError();
}

cudaError_t cuda_route(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                       const struct cuda_work *work)
{
        return CUDA_FOR_TYPE(kernel->dtype, route, stream, kernel, args, work);
}

/* ---- its gradient ---- */

template <typename T> struct route_gradient {
        T *dlogits;
        const float *dweights, *weights;
        const int32_t *place, *ends;
        float balance; /* scalar[3] E K; over the rows of all tokens it is scalar[3] E / N */
};

/* What the gradients of a token's scores are made of: the sum of the chosen scores, and of dw w. */
struct chosen_sums {
        float scores, past;
};

/* The row of a token that is expert e's; -1: it has none. */
static __device__ __forceinline__ int row_at(const int32_t *place, int K, int32_t begin, int32_t end)
{
        for (int i = 0; i < K; i++)
                if (place[i] >= begin && place[i] < end)
                        return place[i];
        return -1;
}

static __device__ __forceinline__ int32_t begin_of(const int32_t *ends, int e)
{
        return e > 0 ? ends[e - 1] : 0;
}

template <typename T>
static __device__ __forceinline__ struct chosen_sums
chosen_sums_of(const struct routing<T> &of, const struct route_gradient<T> &g, const T *logits,
               const int32_t *place, const struct scores &s)
{
        struct chosen_sums sums = {0, 0};
        for (int e = (int)threadIdx.x; e < of.E; e += WARP) {
                const int row = row_at(place, of.K, begin_of(g.ends, e), g.ends[e]);
                if (row < 0)
                        continue;
                sums.scores += score(of, s, to_float(logits[e]));
                sums.past += g.dweights[row] * g.weights[row];
        }
        return {warp_sum(sums.scores), warp_sum(sums.past)};
}

/* The gradient of expert e's score. */
template <typename T>
static __device__ __forceinline__ float
score_gradient(const struct routing<T> &of, const struct route_gradient<T> &g, const int32_t *place,
               const struct chosen_sums &sums, int e)
{
        const int32_t begin = begin_of(g.ends, e), end = g.ends[e];
        const int row = row_at(place, of.K, begin, end);
        const float balance = g.balance * (float)(end - begin) / (float)g.ends[of.E - 1];
        if (row < 0)
                return balance;
        const float dw = of.factor * g.dweights[row];
        return balance + (of.normalised ? (dw - sums.past) / divisor(sums.scores) : dw);
}

/* A warp has a token. */
template <typename T>
static __global__ void __launch_bounds__(WARP *WARPS)
        route_gradients(struct routing<T> of, struct route_gradient<T> g)
{
        const int t = warp_token();
        if (t >= of.N)
                return;
        const T *logits = of.logits + (int64_t)t * of.E;
        const int32_t *place = g.place + (int64_t)t * of.K;
        const struct scores s = scores_of(of, logits);
        const struct chosen_sums sums = chosen_sums_of(of, g, logits, place, s);
        float inner = 0; /* of scores and their gradients */
        for (int e = (int)threadIdx.x; e < of.E && !of.logistic; e += WARP)
                inner += score(of, s, to_float(logits[e])) * score_gradient(of, g, place, sums, e);
        inner = warp_sum(inner);
        for (int e = (int)threadIdx.x; e < of.E; e += WARP) {
                const float p = score(of, s, to_float(logits[e]));
                const float slope = score_gradient(of, g, place, sums, e);
                g.dlogits[(int64_t)t * of.E + e] =
                        from_float<T>(of.logistic ? p * (1 - p) * slope : p * (slope - inner));
        }
}

template <typename T>
static cudaError_t route_backward(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args)
{
        enum { DLOGITS, DWEIGHTS, WEIGHTS, PLACE, ENDS, LOGITS };
        const struct routing<T> of = routing_of<T>(kernel, args, args->p[LOGITS]);
        if (!can_route(kernel))
                return cudaErrorInvalidValue;
        if (of.N == 0)
                return cudaSuccess;
        const struct route_gradient<T> g = {
                (T *)args->p[DLOGITS], (const float *)args->p[DWEIGHTS], (const float *)args->p[WEIGHTS],
                        (const int32_t *)args->p[PLACE], (const int32_t *)args->p[ENDS],
                        (float)(args->scalar[3] * of.E * of.K)
        };
        CUDA_LAUNCH((route_gradients<T>), dim3(token_blocks(of.N)), dim3(WARP, WARPS), 0, stream, of, g);
        return cudaGetLastError();
}

cudaError_t cuda_route_backward(cudaStream_t stream, const struct kernel *kernel,
                                const struct kernel_args *args, const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, route_backward, stream, kernel, args);
}

/* ---- rows in the order of experts, and back ---- */

/* y (rows, C): row r is row source[r] / K of x. A warp has 32 neighbouring vectors of ROWS rows at once. */
template <typename T, int W>
static __global__ void __launch_bounds__(WARP *WARPS)
        permute_rows(T *__restrict__ y, const T *__restrict__ x, const int32_t *__restrict__ source, int rows,
                     int64_t C, int K)
{
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        if (column >= C)
                return;
        const int stride = (int)gridDim.y * WARPS;
        for (int64_t n = (int64_t)blockIdx.y * WARPS + threadIdx.y; n < rows; n += (int64_t)ROWS * stride) {
                int64_t row[ROWS]; /* past the last one: the last one again */
                pack<T, W> some[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        row[r] = n + (int64_t)r * stride < rows ? n + (int64_t)r * stride : rows - 1;
                        some[r] = load<W>(x + source[row[r]] / K * C + column);
                }
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        store<W>(y + row[r] * C + column, some[r]);
        }
}

/* sum[0..W) += K rows of x, in the order of `place`; ROWS loads are under way at once. */
template <typename T, int W>
static __device__ __forceinline__ void add_placed_rows(float sum[W], const T *__restrict__ x,
                                                       const int32_t *__restrict__ place, int K, int64_t C)
{
        for (int first = 0; first < K; first += ROWS) {
                pack<T, W> some[ROWS];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                        some[r] = first + r < K ? load<W>(x + place[first + r] * C) : zeros<T, W>();
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                        float y[W];
                        unpack<T, W>(y, some[r]);
#pragma unroll
                        for (int j = 0; j < W; j++)
                                sum[j] += y[j];
                }
        }
}

/* y (N, C): row t is, or has added, the sum of rows place[t K ...] of x. */
template <typename T, int W, bool accumulate>
static __global__ void __launch_bounds__(WARP *WARPS)
        unpermute_rows(T *__restrict__ y, const T *__restrict__ x, const int32_t *__restrict__ place, int N,
                       int64_t C, int K)
{
        const int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * W;
        if (column >= C)
                return;
        for (int64_t t = (int64_t)blockIdx.y * WARPS + threadIdx.y; t < N; t += (int64_t)gridDim.y * WARPS) {
                float sum[W] = {0};
                if constexpr (accumulate)
                        load_floats<W>(sum, (const T *)y + t * C + column);
                add_placed_rows<T, W>(sum, x + column, place + t * K, K, C);
                store_floats<W>(y + t * C + column, sum);
        }
}

/* A grid for so many rows of C columns, of which a thread has `at_once` x W. */
static dim3 rows_grid(int64_t rows, int64_t C, int W, int at_once)
{
        return dim3((unsigned)ceil_div(C, WARP * W),
                    (unsigned)min_int64(ceil_div(rows, at_once * WARPS), MAX_BLOCKS_Y));
}

template <typename T, int W>
static cudaError_t launch_permute(cudaStream_t stream, const struct kernel *kernel,
                                  const struct kernel_args *args)
{
        CUDA_LAUNCH((permute_rows<T, W>), rows_grid(kernel->m, kernel->n, W, ROWS), dim3(WARP, WARPS), 0,
                    stream, (T *)args->p[0], (const T *)args->p[1], (const int32_t *)args->p[2],
                    (int)kernel->m, kernel->n, (int)kernel->k);
        return cudaGetLastError();
}

template <typename T, int W, bool accumulate>
static cudaError_t launch_unpermute(cudaStream_t stream, const struct kernel *kernel,
                                    const struct kernel_args *args)
{
        CUDA_LAUNCH((unpermute_rows<T, W, accumulate>), rows_grid(kernel->m, kernel->n, W, 1),
                    dim3(WARP, WARPS), 0, stream, (T *)args->p[0], (const T *)args->p[1],
                    (const int32_t *)args->p[2], (int)kernel->m, kernel->n, (int)kernel->k);
        return cudaGetLastError();
}

template <typename T>
static cudaError_t permute(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        if (kernel->m == 0 || kernel->n == 0)
                return cudaSuccess;
        if (kernel->m > INT_MAX / 2)
                return cudaErrorInvalidValue;
        return whole_vectors<T>(kernel->n, args->p[0], args->p[1])
                       ? launch_permute<T, per_vector<T>>(stream, kernel, args)
                       : launch_permute<T, 1>(stream, kernel, args);
}

template <typename T>
static cudaError_t unpermute(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args)
{
        if (kernel->m == 0 || kernel->n == 0)
                return cudaSuccess;
        if (kernel->m > INT_MAX / 2 / kernel->k)
                return cudaErrorInvalidValue;
        if (whole_vectors<T>(kernel->n, args->p[0], args->p[1]))
                return kernel->accumulate ? launch_unpermute<T, per_vector<T>, true>(stream, kernel, args)
                                          : launch_unpermute<T, per_vector<T>, false>(stream, kernel, args);
        return kernel->accumulate ? launch_unpermute<T, 1, true>(stream, kernel, args)
                                  : launch_unpermute<T, 1, false>(stream, kernel, args);
}

/* Of E experts `own` from `first` on: their rows are all rows of every rank up to theirs, but for those of
 * the experts before. */
static __global__ void expert_ends(int32_t *ends, const int32_t *all_ends, int own, int ranks, int first,
                                   int E)
{
        for (int i = (int)(threadIdx.y * WARP + threadIdx.x); i < own; i += WARP * WARPS) {
                int32_t end = 0;
                for (int of = 0; of < ranks; of++) {
                        const int32_t *of_rank = all_ends + (ptrdiff_t)of * E + first;
                        end += of_rank[i] - (first > 0 ? of_rank[-1] : 0);
                }
                ends[i] = end;
        }
}

cudaError_t cuda_expert_ends(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                             const struct cuda_work *)
{
        CUDA_LAUNCH(expert_ends, dim3(1), dim3(WARP, WARPS), 0, stream, (int32_t *)args->p[0],
                    (const int32_t *)args->p[1], (int)kernel->m, (int)kernel->k, (int)args->ld[0],
                    (int)args->ld[1]);
        return cudaGetLastError();
}

cudaError_t cuda_permute(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                         const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, permute, stream, kernel, args);
}

cudaError_t cuda_unpermute(cudaStream_t stream, const struct kernel *kernel, const struct kernel_args *args,
                           const struct cuda_work *)
{
        return CUDA_FOR_TYPE(kernel->dtype, unpermute, stream, kernel, args);
}
