/* Causal attention without a matrix of (T,T), forward and backward: FlashAttention's recurrences (Dao et al.
 * 2022, algorithms 1 and 4); and, where ranks have parts of a sequence, attention to another rank's keys,
 * which goes on where those recurrences have come to. Operands of a head are packed into the scratch as
 * `real`, whatever the dtype of the tensors: rows are padded with zeros to whole vectors, and what scores are
 * computed with is transposed into panels. Products are those of cpu/tile.h, ROWS queries or keys at a time,
 * so that little above the diagonal is computed. */
#include "runtime/base/minmax.h"
#include "runtime/device/cpu/mixed/mixed.h"
#include "runtime/device/cpu/kernels/math.h"
#include "runtime/device/cpu/tile.h"

#include <assert.h>

enum {
        BLOCK = 256,           /* queries whose forward sums are kept while the keys pass */
        KEYS = 8 * PANEL,      /* of a row of scores */
        TILE = 4 * PANEL,      /* backward's queries, and keys */
        HELD = 1 << 19,        /* elements of K, and of V, that forward holds packed */
        CHUNK = 1 << 18,       /* elements of a head's dQ that backward sums at a time */
        CHUNKS = 1 << 23,      /* and of a group's, at most */
        WIDE = 4096,           /* heads that are wider get the least tiles */
        WIDE_GROUP = 8 * WIDE, /* as do groups that are wider than this */
        MIN = LANES_IN_SUM     /* rows of those */
};
static_assert(MIN % LANES == 0 && MIN % ROWS == 0 && KEYS % MIN == 0 && TILE % MIN == 0,
              "tiles are of whole vectors and of whole blocks of rows");

enum part { Q, K, V, PARTS };

/* One head of queries of one sequence, and the keys and values that it has, or shares. Tensors have T rows.
 */
struct head {
        enum dtype dtype;
        int64_t T, hs;
        int64_t group;             /* heads that share these keys and values */
        int64_t ld[PARTS], y_ld;   /* elements of a row of qkv or dqkv, or of kv or dkv, and of y or dy */
        int64_t width;             /* of a packed row: hs and zeros up to whole vectors */
        int64_t panel, keys, tile; /* as PANEL, KEYS and TILE, or less */
        real scale;
        /* Keys are another rank's: the queries from the first one on, which is `queries`, see all of
         * `keys_seen`.
         */
        bool others;
        int64_t queries, keys_seen;
        int64_t part_at[PARTS],
                y_at;   /* where the first row is in qkv or dqkv, or kv or dkv, and in y or dy */
        int64_t row_at; /* and in lse and rows */
};

static int64_t whole(int64_t count, int64_t of)
{
        return (count + of - 1) / of * of;
}

static struct head head_of(const struct kernel *kernel, const struct kernel_args *args, int64_t index)
{
        const int64_t T = kernel->m, hs = kernel->k, H = args->inner, b = index / H, h = index % H;
        const int64_t group = kernel_group(kernel), KV = H / group, kv = h / group;
        const int64_t qkv_ld = (H + 2 * KV) * hs, first = b * T * qkv_ld;
        const bool wide = hs > WIDE || group * hs > WIDE_GROUP;
        return (struct head){.dtype = (enum dtype)kernel->dtype,
                             .T = T,
                             .hs = hs,
                             .group = group,
                             .ld = {qkv_ld, qkv_ld, qkv_ld},
                             .y_ld = H * hs,
                             .width = whole(hs, LANES),
                             .panel = wide ? LANES : PANEL,
                             .keys = wide ? MIN : KEYS,
                             .tile = wide ? MIN : TILE,
                             .scale = (real)args->scalar[0],
                             .keys_seen = T,
                             .part_at = {first + h * hs, first + (H + kv) * hs, first + (H + KV + kv) * hs},
                             .y_at = b * T * H * hs + h * hs,
                             .row_at = index * T};
}

/* The same with the keys and values of another rank: kv (B,T, 2 KV hs). Of earlier pieces of the sequence,
 * the first half of them comes before all of the queries and the second after; of later ones, all come before
 * the second half of the queries, and after the first. */
static struct head head_of_others(const struct kernel *kernel, const struct kernel_args *args, int64_t index)
{
        struct head head = head_of(kernel, args, index);
        const int64_t hs = head.hs, KV = args->inner / head.group, first = index / args->inner * head.T,
                      kv = index % args->inner / head.group;
        const bool later = args->ld[2] != 0;
        head.others = true;
        head.queries = later ? head.T / 2 : 0;
        head.keys_seen = later ? head.T : head.T / 2;
        head.ld[K] = head.ld[V] = 2 * KV * hs;
        head.part_at[K] = first * 2 * KV * hs + kv * hs;
        head.part_at[V] = head.part_at[K] + KV * hs;
        return head;
}

/* The next head of queries of the same group. */
static struct head next_head(struct head head)
{
        head.part_at[Q] += head.hs;
        head.y_at += head.hs;
        head.row_at += head.T;
        return head;
}

/* ---- packing ---- */

/* Rows of a tensor, `ld` elements each from element `at` on, to packed ones. */
static void load(const struct head *head, real *to, const void *from, int64_t at, int64_t ld, int64_t rows)
{
        const int64_t hs = head->hs, width = head->width;
        for (int64_t i = 0; i < rows; i++) {
                reals_from(head->dtype, to + i * width, element_of(head->dtype, from, at + i * ld), hs);
                for (int64_t c = hs; c < width; c++)
                        to[i * width + c] = 0;
        }
}

static void store(const struct head *head, void *to, const real *from, int64_t at, int64_t ld, int64_t rows)
{
        for (int64_t i = 0; i < rows; i++)
                reals_to(head->dtype, element_of(head->dtype, to, at + i * ld), from + i * head->width,
                         head->hs);
}

/* Rows [row, row + rows) of a part of qkv, or of another rank's kv. */
static void load_part(const struct head *head, real *to, const void *qkv, enum part part, int64_t row,
                      int64_t rows)
{
        load(head, to, qkv, head->part_at[part] + row * head->ld[part], head->ld[part], rows);
}

static void store_part(const struct head *head, void *dqkv, const real *from, enum part part, int64_t row,
                       int64_t rows)
{
        store(head, dqkv, from, head->part_at[part] + row * head->ld[part], head->ld[part], rows);
}

/* The same of y or dy. */
static void load_y(const struct head *head, real *to, const void *y, int64_t row, int64_t rows)
{
        load(head, to, y, head->y_at + row * head->y_ld, head->y_ld, rows);
}

static void store_y(const struct head *head, void *y, const real *from, int64_t row, int64_t rows)
{
        store(head, y, from, head->y_at + row * head->y_ld, head->y_ld, rows);
}

/* Zeros after the last of `rows` packed rows, up to a whole number of `of` rows. */
static void pad(const struct head *head, real *packed, int64_t rows, int64_t of)
{
        for (int64_t i = rows * head->width; i < whole(rows, of) * head->width; i++)
                packed[i] = 0;
}

static void multiply(real *x, int64_t count, real by)
{
        for (int64_t i = 0; i < count; i++)
                x[i] *= by;
}

/* Queries, times the scale, and zeros up to whole blocks of rows. */
static void load_queries(const struct head *head, real *q, const void *qkv, int64_t query, int64_t queries)
{
        load_part(head, q, qkv, Q, query, queries);
        multiply(q, queries * head->width, head->scale);
        pad(head, q, queries, ROWS);
}

/* LANES packed rows, which are keys [key, key + LANES) of those held, into their columns of a panel. A panel
 * is (width, panel). */
static void transpose_keys(const struct head *head, real *panels, int64_t key, const real *rows)
{
        const int64_t panel = head->panel, width = head->width;
        real *to = panels + key / panel * panel * width + key % panel;
        for (int64_t c = 0; c < width; c += LANES)
                transpose_block(to + c * panel, panel, rows + c, width);
}

/* s (ROWS, keys up to whole vectors) = packed rows times keys [key, key + keys) of the panels. */
static void scores_of(const struct head *head, real *s, int64_t lds, const real *rows, const real *panels,
                      int64_t key, int64_t keys)
{
        const int64_t panel = head->panel;
        for (int64_t j = 0; j < keys; j += panel)
                rows_product(whole(min_int64(panel, keys - j), LANES), head->hs, rows, head->width,
                             panels + (key + j) * head->width, panel, s + j, lds, false);
}

/* Of the keys [key, key + keys), how many a query sees. */
static int64_t visible(const struct head *head, int64_t query, int64_t key, int64_t keys)
{
        return head->others ? keys : min_int64(query - key + 1, keys);
}

/* Where the keys end that queries before `end` see. */
static int64_t seen_before(const struct head *head, int64_t end)
{
        return head->others ? head->keys_seen : end;
}

/* ---- forward ---- */

/* Forward's places in the scratch. Of each query of a block: the maximum of its scaled scores so far, the sum
 * of exp(score - maximum), and that sum's v. */
struct forward {
        real *k, *v; /* panels; rows */
        real *q, *s; /* ROWS */
        real *sums;  /* BLOCK */
        real max[BLOCK], sum[BLOCK];
};

static int64_t block_of(const struct head *head)
{
        return head->tile < TILE ? MIN : BLOCK;
}

/* Keys that are held packed. */
static int64_t held_of(const struct head *head)
{
        const int64_t fit = HELD / head->width / head->keys * head->keys;
        return fit > 0 ? fit : head->keys;
}

static void hold_keys(const struct head *head, const struct forward *f, const void *qkv, int64_t key,
                      int64_t keys)
{
        load_part(head, f->v, qkv, V, key, keys);
        for (int64_t j = 0; j < keys; j += LANES) {
                const int64_t rows = min_int64(LANES, keys - j);
                load_part(head, f->q, qkv, K, key + j, rows);
                pad(head, f->q, rows, LANES);
                transpose_keys(head, f->k, j, f->q);
        }
}

/* A row of scores becomes exp(s - maximum), zeros after the `width` that its query sees; what was summed
 * under a lower maximum is made smaller. */
static void add_scores(const struct head *head, struct forward *f, int64_t i, real *s, int64_t width,
                       int64_t keys, bool first)
{
        const int64_t lanes = whole(width, LANES_IN_SUM);
        for (int64_t j = width; j < lanes; j++)
                s[j] = -INFINITY;
        const real in_tile = row_max(s, lanes);
        const real max = first || in_tile > f->max[i] ? in_tile : f->max[i];
        const real sum = row_exp(s, lanes, max);
        for (int64_t j = lanes; j < keys; j++)
                s[j] = 0;
        if (first) {
                f->sum[i] = sum;
        } else {
                const real shrink = real_exp(f->max[i] - max);
                f->sum[i] = f->sum[i] * shrink + sum;
                if (shrink != 1)
                        multiply(f->sums + i * head->width, head->width, shrink);
        }
        f->max[i] = max;
}

/* ROWS queries, row i of the block on, with the held keys [key, end). */
static void attend_rows(const struct head *head, struct forward *f, int64_t query, int64_t i, int64_t held,
                        int64_t end)
{
        const int64_t width = head->width;
        for (int64_t key = held; key < end; key += head->keys) {
                const int64_t keys = min_int64(head->keys, end - key);
                scores_of(head, f->s, KEYS, f->q, f->k, key - held, keys);
                for (int64_t row = 0; row < ROWS; row++)
                        add_scores(head, f, i + row, f->s + row * KEYS, visible(head, query + row, key, keys),
                                   keys, key == 0 && !head->others);
                rows_product(width, keys, f->s, KEYS, f->v + (key - held) * width, width, f->sums + i * width,
                             width, key > 0 || head->others);
        }
}

/* What a block of queries has summed so far: y, as it would be under the logarithm of its sum as maximum. */
static void resume_queries(const struct head *head, struct forward *f, const void *y, const real *lse,
                           int64_t query, int64_t queries)
{
        load_y(head, f->sums, y, query, queries);
        pad(head, f->sums, queries, ROWS);
        for (int64_t i = 0; i < whole(queries, ROWS); i++) {
                f->max[i] = i < queries ? lse[head->row_at + query + i] : 0;
                f->sum[i] = 1;
        }
}

/* y and lse of a block of queries. */
static void finish_queries(const struct head *head, struct forward *f, void *y, real *lse, int64_t query,
                           int64_t queries)
{
        for (int64_t i = 0; i < queries; i++) {
                multiply(f->sums + i * head->width, head->width, 1 / f->sum[i]);
                lse[head->row_at + query + i] = (real)((double)f->max[i] + log((double)f->sum[i]));
        }
        store_y(head, y, f->sums, query, queries);
}

static void attend(const struct head *head, void *y, real *lse, const void *qkv, const void *kv,
                   real *scratch)
{
        const int64_t T = head->T, all = head->keys_seen, held = held_of(head), block = block_of(head);
        struct forward f = {.q = scratch};
        f.s = f.q + MIN * head->width;
        f.sums = f.s + ROWS * KEYS;
        f.v = f.sums + block * head->width;
        f.k = f.v + held * head->width;
        assert(f.k + held * head->width <= scratch + CPU_SCRATCH);
        for (int64_t first = head->queries; first < T; first += block) {
                const int64_t end = min_int64(first + block, T), seen = seen_before(head, end);
                if (head->others)
                        resume_queries(head, &f, y, lse, first, end - first);
                for (int64_t key = 0; key < seen; key += held) {
                        if (all > held)
                                hold_keys(head, &f, kv, key, min_int64(held, seen - key));
                        else if (first == head->queries)
                                hold_keys(head, &f, kv, 0, all);
                        for (int64_t query = first; query < end; query += ROWS) {
                                load_queries(head, f.q, qkv, query, min_int64(ROWS, end - query));
                                attend_rows(head, &f, query, query - first, key,
                                            min_int64(seen_before(head, min_int64(query + ROWS, end)),
                                                      key + held));
                        }
                }
                finish_queries(head, &f, y, lse, first, end - first);
        }
}

void cpu_attention(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        for (int64_t index = 0; index < kernel->batch; index++) {
                const struct head head = head_of(kernel, args, args->ld[1] + index);
                attend(&head, args->p[0], args->p[1], args->p[2], args->p[2], scratch);
        }
}

void cpu_context_attention(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        for (int64_t index = 0; index < kernel->batch; index++) {
                const struct head head = head_of_others(kernel, args, args->ld[1] + index);
                attend(&head, args->p[0], args->p[1], args->p[2], args->p[3], scratch);
        }
}

/* ---- backward ---- */

/* Backward's operands, and its places in the scratch. */
struct backward {
        void *dqkv;
        real *rows;
        const void *dy, *y;
        const real *lse;
        const void *qkv;
        void *dkv; /* where the keys' and values' gradients go, and they are */
        const void *kv;
        real *k_panels, *v_panels, *k; /* a tile of keys */
        real *dk, *dv;
        real *q, *dy_tile; /* a tile of queries; q times the scale */
        real *p, *ds;      /* queries x keys */
        real *dq;          /* of a chunk of queries of each head of the group, without the scale */
};

/* Queries of each head whose dq is summed at a time. */
static int64_t chunk_of(const struct head *head)
{
        const int64_t elements = min_int64(CHUNK, CHUNKS / head->group);
        const int64_t fit = elements / head->width / head->tile * head->tile;
        return fit > 0 ? fit : head->tile;
}

static struct backward with_places(const struct head *head, struct backward b, real *scratch)
{
        const int64_t each = head->tile * head->width, square = head->tile * head->tile;
        real **const tiles[] = {&b.k_panels, &b.v_panels, &b.k, &b.dk, &b.dv, &b.q, &b.dy_tile};
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++, scratch += each)
                *tiles[i] = scratch;
        b.p = scratch;
        b.ds = b.p + square;
        b.dq = b.ds + square;
        return b;
}

/* rows = sum(dy y), which is each row's sum of dp p. */
static void sum_rows(const struct head *head, const struct backward *b)
{
        real *dy = b->dy_tile, *y = b->q;
        for (int64_t row = 0; row < head->T; row += head->tile) {
                const int64_t rows = min_int64(head->tile, head->T - row);
                load_y(head, dy, b->dy, row, rows);
                load_y(head, y, b->y, row, rows);
                for (int64_t i = 0; i < rows; i++)
                        b->rows[head->row_at + row + i] =
                                row_dot(dy + i * head->width, y + i * head->width, head->width);
        }
}

/* k, its panels, and those of v (dv is room for v until it is summed). */
static void load_keys(const struct head *head, const struct backward *b, int64_t key, int64_t keys)
{
        load_part(head, b->k, b->kv, K, key, keys);
        load_part(head, b->dv, b->kv, V, key, keys);
        pad(head, b->k, keys, LANES);
        pad(head, b->dv, keys, LANES);
        for (int64_t j = 0; j < keys; j += LANES) {
                transpose_keys(head, b->k_panels, j, b->k + j * head->width);
                transpose_keys(head, b->v_panels, j, b->dv + j * head->width);
        }
}

/* A row: p holds scores, ds holds dp; p = exp(s - lse), ds = p (dp - sum), zeros after the `width` that its
 * query sees. */
static void row_backward(real *restrict p, real *restrict ds, int64_t width, int64_t keys, real lse, real sum)
{
        for (int64_t j = 0; j < width; j++) {
                p[j] = real_exp(p[j] - lse);
                ds[j] = p[j] * (ds[j] - sum);
        }
        for (int64_t j = width; j < keys; j++)
                p[j] = ds[j] = 0;
}

/* Of ROWS queries, the first of which is row i of the tile: p, ds, and what the keys give to dq. */
static void rows_backward(const struct head *head, const struct backward *b, real *dq, int64_t query,
                          int64_t i, int64_t queries, int64_t key, int64_t keys)
{
        const int64_t width = head->width, ld = head->tile;
        real *p = b->p + i * ld, *ds = b->ds + i * ld;
        scores_of(head, p, ld, b->q + i * width, b->k_panels, 0, keys);
        scores_of(head, ds, ld, b->dy_tile + i * width, b->v_panels, 0, keys);
        for (int64_t row = 0; row < ROWS; row++) {
                const int64_t at = head->row_at + query + i + row;
                const bool exists = i + row < queries;
                row_backward(p + row * ld, ds + row * ld,
                             exists ? visible(head, query + i + row, key, keys) : 0, keys,
                             exists ? b->lse[at] : 0, exists ? b->rows[at] : 0);
        }
        rows_product(width, keys, ds, ld, b->k, width, dq + i * width, width, key > 0);
}

/* A tile of queries with a tile of keys. Of keys and queries of the same place, a block of queries sees those
 * up to its own, a block of keys is seen from its own on. `begin`: dk and dv hold no sums yet. */
static void square_backward(const struct head *head, const struct backward *b, real *dq, int64_t query,
                            int64_t queries, int64_t key, int64_t keys, bool begin)
{
        const int64_t width = head->width, ld = head->tile;
        load_queries(head, b->q, b->qkv, query, queries);
        load_y(head, b->dy_tile, b->dy, query, queries);
        pad(head, b->dy_tile, queries, ROWS);
        for (int64_t i = 0; i < queries; i += ROWS)
                rows_backward(head, b, dq, query, i, queries, key,
                              visible(head, query + i + ROWS - 1, key, keys));
        for (int64_t j = 0; j < keys; j += ROWS) {
                const int64_t i = query == key && !head->others ? j : 0, seen = i * ld + j;
                columns_product(width, queries - i, b->p + seen, ld, b->dy_tile + i * width, width,
                                b->dv + j * width, width, !begin);
                columns_product(width, queries - i, b->ds + seen, ld, b->q + i * width, width,
                                b->dk + j * width, width, !begin);
        }
}

/* Where dq of a chunk begins, of one head of the group. */
static real *chunk_dq(const struct head *head, const struct backward *b, int64_t index)
{
        return b->dq + index * chunk_of(head) * head->width;
}

/* What the queries of a chunk, of all heads of the group in turn, give to dk and dv of a tile of keys, and
 * that tile to their dq. The sums of keys before the chunk are those of earlier chunks. */
static void tile_backward(const struct head *head, const struct backward *b, int64_t first, int64_t end,
                          int64_t key)
{
        const int64_t keys = min_int64(head->tile, head->keys_seen - key);
        const int64_t from = head->others || first > key ? first : key;
        const bool more = head->others ? first > head->queries : key < first;
        struct head own = *head;
        load_keys(head, b, key, keys);
        if (more) {
                load_part(head, b->dk, b->dkv, K, key, keys);
                load_part(head, b->dv, b->dkv, V, key, keys);
        }
        for (int64_t i = 0; i < head->group; i++, own = next_head(own))
                for (int64_t query = from; query < end; query += head->tile)
                        square_backward(&own, b, chunk_dq(head, b, i) + (query - first) * head->width, query,
                                        min_int64(head->tile, end - query), key, keys,
                                        i == 0 && query == from && !more);
        store_part(head, b->dkv, b->dk, K, key, keys);
        store_part(head, b->dkv, b->dv, V, key, keys);
}

/* Adds the dq of a tile of queries that there is already. */
static void add_part(const struct head *head, const struct backward *b, real *dq, int64_t query,
                     int64_t queries)
{
        load_part(head, b->q, b->dqkv, Q, query, queries);
        for (int64_t i = 0; i < queries * head->width; i++)
                dq[i] += b->q[i];
}

static void finish_dq(const struct head *head, const struct backward *b, int64_t first, int64_t end)
{
        struct head own = *head;
        for (int64_t i = 0; i < head->group; i++, own = next_head(own)) {
                real *dq = chunk_dq(head, b, i);
                multiply(dq, (end - first) * head->width, head->scale);
                for (int64_t query = first; head->others && query < end; query += head->tile)
                        add_part(&own, b, dq + (query - first) * head->width, query,
                                 min_int64(head->tile, end - query));
                store_part(&own, b->dqkv, dq, Q, first, end - first);
        }
}

/* All heads of a group, of which `head` is the first. dq is summed over keys, dk and dv over queries, and
 * only one of the two can stay in the scratch while the other's loop is the inner one: dq does, of as many
 * queries as fit. In 16 bits dk and dv are rounded once for each of these chunks, dq once. */
static void attend_backward(const struct head *head, const struct backward *b)
{
        const int64_t chunk = chunk_of(head);
        for (int64_t first = head->queries; first < head->T; first += chunk) {
                const int64_t end = min_int64(first + chunk, head->T);
                for (int64_t key = 0; key < seen_before(head, end); key += head->tile)
                        tile_backward(head, b, first, end, key);
                finish_dq(head, b, first, end);
        }
}

/* What one group of heads is given, from its first head on. */
static void group_backward(const struct head *head, const struct backward *operands, real *scratch)
{
        const struct backward b = with_places(head, *operands, scratch);
        struct head own = *head;
        assert(chunk_dq(head, &b, head->group) <= scratch + CPU_SCRATCH);
        for (int64_t i = 0; i < head->group && !head->others; i++, own = next_head(own))
                sum_rows(&own, &b);
        attend_backward(head, &b);
}

void cpu_attention_backward(const struct kernel *kernel, const struct kernel_args *args, real *scratch)
{
        const int64_t group = kernel_group(kernel);
        void *const *p = args->p;
        const struct backward operands = {.dqkv = p[0],
                                          .rows = p[1],
                                          .dy = p[2],
                                          .y = p[3],
                                          .lse = p[4],
                                          .qkv = p[5],
                                          .dkv = p[0],
                                          .kv = p[5]};
        assert(kernel->batch % group == 0 && args->ld[1] % group == 0);
        for (int64_t index = 0; index < kernel->batch; index += group) {
                const struct head head = head_of(kernel, args, args->ld[1] + index);
                group_backward(&head, &operands, scratch);
        }
}

/* Of keys that no query sees, the gradient is zero. */
static void clear_unseen(const struct head *head, const struct backward *b, real *zeros)
{
        const int64_t tile = head->tile;
        for (int64_t i = 0; i < tile * head->width; i++)
                zeros[i] = 0;
        for (int64_t key = head->keys_seen; key < head->T; key += tile)
                for (enum part part = K; part <= V; part++)
                        store_part(head, b->dkv, zeros, part, key, min_int64(tile, head->T - key));
}

void cpu_context_attention_backward(const struct kernel *kernel, const struct kernel_args *args,
                                    real *scratch)
{
        const int64_t group = kernel_group(kernel);
        void *const *p = args->p;
        const struct backward operands = {
                .dqkv = p[0], .dkv = p[1], .rows = p[2], .dy = p[3], .lse = p[4], .qkv = p[5], .kv = p[6]};
        assert(kernel->batch % group == 0 && args->ld[1] % group == 0);
        for (int64_t index = 0; index < kernel->batch; index += group) {
                const struct head head = head_of_others(kernel, args, args->ld[1] + index);
                group_backward(&head, &operands, scratch);
                clear_unseen(&head, &operands, scratch);
        }
}
