/* Causal attention without a matrix of (T,T), forward and backward: FlashAttention's recurrences (Dao et al.
 * 2022, algorithms 1 and 4) over tiles of queries and keys, in the scratch. A tile is stored densely in
 * `real` whatever the format of the tensors; its products are BLAS; tiles above the diagonal are skipped. */
#include "runtime/device/cpu_half.h"
#include "runtime/device/cpu_math.h"

#include <assert.h>

enum {
        MOST_ROWS = 64,          /* of a tile; the fastest of 32, 64, 128 and 256 at a head's size of 64 */
        MOST_ELEMENTS = 1 << 18, /* of a tile, and of the queries whose dq are summed at a time */
        TILES = 6                /* backward's: k, v, dk, dv, q, dy */
};
static_assert((TILES + 1) * MOST_ELEMENTS + 2 * MOST_ROWS * MOST_ROWS <= CPU_SCRATCH,
              "backward's tiles, its dq and two squares fit the scratch");

/* One head of one sequence. Tensors of T rows: of qkv and dqkv every third of a row has C columns. */
struct head {
        enum half format;
        int64_t T, hs, C, rows; /* rows of a tile */
        real scale;
        int64_t qkv_at, y_at; /* where the head's first row is in qkv or dqkv, and in y or dy */
        int64_t row_at;       /* and in lse and rows */
};

enum part { Q, K, V };

static struct head head_of(const struct kernel *kernel, const struct kernel_args *args, int64_t index)
{
        const int64_t T = kernel->m, hs = kernel->k, H = args->inner, b = index / H, h = index % H;
        struct head head = {.format = (enum half)kernel->half,
                            .T = T,
                            .hs = hs,
                            .C = H * hs,
                            .rows = MOST_ROWS,
                            .scale = (real)args->scalar[0],
                            .qkv_at = b * T * 3 * H * hs + h * hs,
                            .y_at = b * T * H * hs + h * hs,
                            .row_at = index * T};
        while (head.rows * hs > MOST_ELEMENTS)
                head.rows /= 2;
        assert(head.rows > 0);
        return head;
}

/* Rows [row, row + rows) of a part of qkv, to a dense tile. */
static void load_part(const struct head *head, real *tile, const void *qkv, enum part part, int64_t row,
                      int64_t rows)
{
        const int64_t ld = 3 * head->C;
        tile_from(head->format, tile, qkv, head->qkv_at + part * head->C + row * ld, ld, rows, head->hs);
}

static void store_part(const struct head *head, void *dqkv, const real *tile, enum part part, int64_t row,
                       int64_t rows)
{
        const int64_t ld = 3 * head->C;
        tile_to(head->format, dqkv, tile, head->qkv_at + part * head->C + row * ld, ld, rows, head->hs);
}

/* The same of y or dy. */
static void load_y(const struct head *head, real *tile, const void *y, int64_t row, int64_t rows)
{
        tile_from(head->format, tile, y, head->y_at + row * head->C, head->C, rows, head->hs);
}

static void store_y(const struct head *head, void *y, const real *tile, int64_t row, int64_t rows)
{
        tile_to(head->format, y, tile, head->y_at + row * head->C, head->C, rows, head->hs);
}

/* c (m,n) = a b^T with rows of k: scores of queries and keys. */
static void product_of_rows(int64_t m, int64_t n, int64_t k, const real *a, const real *b, real *c)
{
        cpu_gemm(&(struct kernel){.transpose_b = 1, .m = m, .n = n, .k = k}, a, k, b, k, c, n);
}

/* c (m,n) (+)= a b. */
static void product(int64_t m, int64_t n, int64_t k, const real *a, const real *b, real *c, bool accumulate)
{
        cpu_gemm(&(struct kernel){.accumulate = accumulate, .m = m, .n = n, .k = k}, a, k, b, n, c, n);
}

/* c (m,n) (+)= a^T b with a (k,m). */
static void product_of_columns(int64_t m, int64_t n, int64_t k, const real *a, const real *b, real *c,
                               bool accumulate)
{
        cpu_gemm(&(struct kernel){.transpose_a = 1, .accumulate = accumulate, .m = m, .n = n, .k = k}, a, m,
                 b, n, c, n);
}

/* Of the keys [key, key + keys), how many a query sees. */
static int64_t visible(int64_t query, int64_t key, int64_t keys)
{
        return least(query - key + 1, keys);
}

/* Rows of softmax(scale q k^T) v, up to some key: maximum of the scaled scores, sum of exp(score - maximum),
 * and that sum's v. */
struct sums {
        real most[MOST_ROWS], sum[MOST_ROWS];
        real *v;
};

/* A row of scores becomes exp(scale s - maximum), zeros after the `width` that its query sees; what was
 * summed under a lower maximum is made smaller. */
static void add_scores(const struct head *head, struct sums *sums, int64_t i, real *s, int64_t width,
                       int64_t keys, bool first)
{
        const real in_tile = row_max(s, width) * head->scale;
        const real most = first || in_tile > sums->most[i] ? in_tile : sums->most[i];
        for (int64_t j = 0; j < width; j++)
                s[j] = real_exp(s[j] * head->scale - most);
        for (int64_t j = width; j < keys; j++)
                s[j] = 0;
        const real sum = row_sum(s, width);
        if (first) {
                sums->sum[i] = sum;
        } else {
                const real shrink = real_exp(sums->most[i] - most);
                real *v = sums->v + i * head->hs;
                sums->sum[i] = sums->sum[i] * shrink + sum;
                for (int64_t c = 0; shrink != 1 && c < head->hs; c++)
                        v[c] *= shrink;
        }
        sums->most[i] = most;
}

/* y and lse of `queries` rows. */
static void finish_queries(const struct head *head, struct sums *sums, void *y, real *lse, int64_t query,
                           int64_t queries)
{
        for (int64_t i = 0; i < queries; i++) {
                const real share = 1 / sums->sum[i];
                real *v = sums->v + i * head->hs;
                for (int64_t c = 0; c < head->hs; c++)
                        v[c] *= share;
                lse[head->row_at + query + i] = (real)((double)sums->most[i] + log((double)sums->sum[i]));
        }
        store_y(head, y, sums->v, query, queries);
}

static void attend(const struct head *head, void *y, real *lse, const void *qkv, real *scratch)
{
        const int64_t hs = head->hs, each = head->rows * hs;
        real *q = scratch, *k = q + each, *v = k + each, *s = v + 2 * each;
        struct sums sums = {.v = v + each};
        for (int64_t query = 0; query < head->T; query += head->rows) {
                const int64_t queries = least(head->rows, head->T - query);
                load_part(head, q, qkv, Q, query, queries);
                for (int64_t key = 0; key < query + queries; key += head->rows) {
                        const int64_t keys = least(head->rows, head->T - key);
                        load_part(head, k, qkv, K, key, keys);
                        load_part(head, v, qkv, V, key, keys);
                        product_of_rows(queries, keys, hs, q, k, s);
                        for (int64_t i = 0; i < queries; i++)
                                add_scores(head, &sums, i, s + i * keys, visible(query + i, key, keys), keys,
                                           key == 0);
                        product(queries, hs, keys, s, v, sums.v, key > 0);
                }
                finish_queries(head, &sums, y, lse, query, queries);
        }
}

void cpu_attention(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        for (int64_t index = 0; index < kernel->batch; index++) {
                const struct head head = head_of(kernel, args, args->ld[1] + index);
                attend(&head, args->p[0], args->p[1], args->p[2], scratch);
        }
}

/* Backward's operands, and its places in the scratch. */
struct backward {
        void *dqkv;
        real *rows;
        const void *dy, *y;
        const real *lse;
        const void *qkv;
        real *q, *k, *v, *dy_tile, *dk, *dv; /* tiles */
        real *p, *ds;                        /* queries x keys */
        real *dq;                            /* of a chunk of queries */
};

static struct backward backward_of(const struct head *head, const struct kernel_args *args, real *scratch)
{
        const int64_t each = head->rows * head->hs;
        struct backward b = {.dqkv = args->p[0],
                             .rows = args->p[1],
                             .dy = args->p[2],
                             .y = args->p[3],
                             .lse = args->p[4],
                             .qkv = args->p[5]};
        b.q = scratch;
        b.k = b.q + each;
        b.v = b.k + each;
        b.dy_tile = b.v + each;
        b.dk = b.dy_tile + each;
        b.dv = b.dk + each;
        b.p = b.dv + each;
        b.ds = b.p + head->rows * head->rows;
        b.dq = b.ds + head->rows * head->rows;
        return b;
}

/* rows = sum(dy y), which is each row's sum of dp p. */
static void sum_rows(const struct head *head, const struct backward *b)
{
        real *dy = b->dy_tile, *y = b->q;
        for (int64_t row = 0; row < head->T; row += head->rows) {
                const int64_t rows = least(head->rows, head->T - row);
                load_y(head, dy, b->dy, row, rows);
                load_y(head, y, b->y, row, rows);
                for (int64_t i = 0; i < rows; i++)
                        b->rows[head->row_at + row + i] =
                                row_dot(dy + i * head->hs, y + i * head->hs, head->hs);
        }
}

/* p holds scores, ds holds dp: row by row p = exp(scale s - lse), ds = scale p (dp - rows), zeros after what
 * a query sees. */
static void scores_backward(const struct head *head, const struct backward *b, int64_t query, int64_t queries,
                            int64_t key, int64_t keys)
{
        for (int64_t i = 0; i < queries; i++) {
                real *restrict p = b->p + i * keys, *restrict ds = b->ds + i * keys;
                const int64_t width = visible(query + i, key, keys), at = head->row_at + query + i;
                const real lse = b->lse[at], sum = b->rows[at], scale = head->scale;
                for (int64_t j = 0; j < width; j++) {
                        p[j] = real_exp(p[j] * scale - lse);
                        ds[j] = scale * p[j] * (ds[j] - sum);
                }
                for (int64_t j = width; j < keys; j++)
                        p[j] = ds[j] = 0;
        }
}

/* What the queries of a chunk give to dk and dv of a tile of keys, and that tile to their dq. The sums of
 * keys before the chunk are those of earlier chunks. */
static void tile_backward(const struct head *head, const struct backward *b, int64_t first, int64_t end,
                          int64_t key)
{
        const int64_t hs = head->hs, keys = least(head->rows, head->T - key);
        load_part(head, b->k, b->qkv, K, key, keys);
        load_part(head, b->v, b->qkv, V, key, keys);
        if (key < first) {
                load_part(head, b->dk, b->dqkv, K, key, keys);
                load_part(head, b->dv, b->dqkv, V, key, keys);
        }
        for (int64_t query = first > key ? first : key; query < end; query += head->rows) {
                const int64_t queries = least(head->rows, end - query);
                const bool sums_begin = query == key;
                load_part(head, b->q, b->qkv, Q, query, queries);
                load_y(head, b->dy_tile, b->dy, query, queries);
                product_of_rows(queries, keys, hs, b->q, b->k, b->p);
                product_of_rows(queries, keys, hs, b->dy_tile, b->v, b->ds);
                scores_backward(head, b, query, queries, key, keys);
                product_of_columns(keys, hs, queries, b->p, b->dy_tile, b->dv, !sums_begin);
                product_of_columns(keys, hs, queries, b->ds, b->q, b->dk, !sums_begin);
                product(queries, hs, keys, b->ds, b->k, b->dq + (query - first) * hs, key > 0);
        }
        store_part(head, b->dqkv, b->dk, K, key, keys);
        store_part(head, b->dqkv, b->dv, V, key, keys);
}

/* dq is summed over keys, dk and dv over queries, and only one of the two can stay in the scratch while the
 * other's loop is the inner one: dq does, of as many queries as fit. In 16 bits dk and dv are rounded once
 * for each of these chunks, dq once. */
static void attend_backward(const struct head *head, const struct backward *b)
{
        const int64_t chunk = MOST_ELEMENTS / head->hs / head->rows * head->rows;
        sum_rows(head, b);
        for (int64_t first = 0; first < head->T; first += chunk) {
                const int64_t end = least(first + chunk, head->T);
                for (int64_t key = 0; key < end; key += head->rows)
                        tile_backward(head, b, first, end, key);
                store_part(head, b->dqkv, b->dq, Q, first, end - first);
        }
}

void cpu_attention_backward(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        for (int64_t index = 0; index < kernel->batch; index++) {
                const struct head head = head_of(kernel, args, args->ld[1] + index);
                const struct backward b = backward_of(&head, args, scratch);
                attend_backward(&head, &b);
        }
}
