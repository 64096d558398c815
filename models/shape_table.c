#include "models/shape_table.h"

#include "runtime/base/csv.h"
#include "runtime/base/file.h"
#include "runtime/base/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char shape_table_help[] =
        "Forms of tables, told by their columns (comma separated values, a line that names them first):\n"
        "  gemm         dtype,m,n,k[,transpose_a,transpose_b]\n"
        "  attention    batch,seq_len,heads,kv_heads,head_dim[,dtype]\n"
        "  collectives  gpu,operation,gpus,elements_fp16\n"
        "  moe          gpu,routing,tokens,hidden,expert_ffn,top_k,experts,ep\n"
        "  training     gpu,kernel,pass,dtype,batch,m,n,k,heads,kv_heads,qk_head_dim,v_head_dim\n"
        "and seconds in each.";

enum { CELLS = 32 };

/* Every column of any form. */
enum column {
        GPU,
        DTYPE,
        M,
        N,
        K,
        TRANSPOSE_A,
        TRANSPOSE_B,
        BATCH,
        SEQ_LEN,
        HEADS,
        KV_HEADS,
        HEAD_DIM,
        OPERATION,
        GPUS,
        ELEMENTS,
        ROUTING,
        TOKENS,
        HIDDEN,
        EXPERT_FFN,
        TOP_K,
        EXPERTS,
        EP,
        KERNEL,
        PASS,
        QK_HEAD_DIM,
        SECONDS,
        COLUMNS
};
static const char *const column_names[COLUMNS] = {
        "gpu",         "dtype",       "m",         "n",          "k",
        "transpose_a", "transpose_b", "batch",     "seq_len",    "heads",
        "kv_heads",    "head_dim",    "operation", "gpus",       "elements_fp16",
        "routing",     "tokens",      "hidden",    "expert_ffn", "top_k",
        "experts",     "ep",          "kernel",    "pass",       "qk_head_dim",
        "seconds"};

/* What a table of a form must have, most particular first; -1 ends them. */
static const struct {
        enum shape_form form;
        const char *name;
        int needs[9];
} forms[SHAPE_FORMS] = {
        {SHAPES_TRAINING, "training", {KERNEL, PASS, DTYPE, BATCH, M, N, K, HEADS, -1}},
        {SHAPES_EXPERTS, "moe", {TOKENS, HIDDEN, EXPERT_FFN, TOP_K, EXPERTS, EP, -1}},
        {SHAPES_COLLECTIVES, "collectives", {OPERATION, GPUS, ELEMENTS, -1}},
        {SHAPES_ATTENTION, "attention", {BATCH, SEQ_LEN, HEADS, KV_HEADS, HEAD_DIM, -1}},
        {SHAPES_GEMM, "gemm", {DTYPE, M, N, K, -1}},
};

static const char *const collectives[] = {[SHAPE_ALL_REDUCE] = "all_reduce",
                                          [SHAPE_ALL_GATHER] = "all_gather",
                                          [SHAPE_REDUCE_SCATTER] = "reduce_scatter",
                                          [SHAPE_ALLTOALL] = "alltoall"};
enum { COLLECTIVES = sizeof collectives / sizeof *collectives };

struct reader {
        struct shape_table *table;
        int line, cells;
        int at[COLUMNS]; /* the cell of a column; -1: there is none */
        char *cell[CELLS];
        struct rv_error_info *err;
};

static const char *text_of(const struct reader *r, enum column column)
{
        return r->at[column] < 0 ? "" : r->cell[r->at[column]];
}

static int wrong(const struct reader *r, enum column column, const char *right)
{
        return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %s is '%.40s', must be %s", r->table->path, r->line,
                       column_names[column], text_of(r, column), right);
}

static int need_whole(const struct reader *r, enum column column, int64_t max, int64_t *value)
{
        char *end;
        const char *text = text_of(r, column);
        errno = 0;
        *value = strtoll(text, &end, 10);
        if (!isdigit((unsigned char)*text) || *end || errno || *value < 1 || *value > max)
                return wrong(r, column,
                             max == INT64_MAX ? "a whole number above 0"
                                              : "a whole number from 1 on, and not so large");
        return RV_OK;
}

static int need_dtype(const struct reader *r, struct kernel *kernel)
{
        static const struct {
                const char *name;
                enum dtype dtype;
                enum product_format format;
        } names[] = {{"fp32", DTYPE_FP32, FORMAT_STORED}, {"float32", DTYPE_FP32, FORMAT_STORED},
                     {"fp16", DTYPE_FP16, FORMAT_STORED}, {"float16", DTYPE_FP16, FORMAT_STORED},
                     {"bf16", DTYPE_BF16, FORMAT_STORED}, {"bfloat16", DTYPE_BF16, FORMAT_STORED},
                     {"fp8", DTYPE_BF16, FORMAT_FP8},     {"nvfp4", DTYPE_BF16, FORMAT_NVFP4}};
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
                if (strcmp(text_of(r, DTYPE), names[i].name) == 0) {
                        kernel->dtype = (unsigned char)names[i].dtype;
                        kernel->format = (unsigned char)names[i].format;
                        return RV_OK;
                }
        return wrong(r, DTYPE, "fp32, fp16, bf16, fp8 or nvfp4");
}

/* N, T, or nothing where the table has no such column. */
static int read_transpose(const struct reader *r, enum column column, bool without, unsigned char *transpose)
{
        const char *text = text_of(r, column);
        *transpose = *text ? *text == 'T' : without;
        return *text && strcmp(text, "N") != 0 && strcmp(text, "T") != 0 ? wrong(r, column, "N or T") : RV_OK;
}

/* ---- the forms ---- */

static int read_sizes(const struct reader *r, struct kernel *kernel)
{
        int rc = need_whole(r, M, INT64_MAX, &kernel->m);
        if (rc == RV_OK)
                rc = need_whole(r, N, INT64_MAX, &kernel->n);
        return rc == RV_OK ? need_whole(r, K, INT64_MAX, &kernel->k) : rc;
}

/* A table without transposes has the forward's, of a linear layer whose weight is (n, k). */
static int read_gemm(const struct reader *r, struct shape_row *row)
{
        struct kernel *kernel = &row->kernels[0];
        *kernel = (struct kernel){.kind = KERNEL_MATMUL, .batch = 1};
        row->kernel_count = 1;
        int rc = need_dtype(r, kernel);
        if (rc == RV_OK)
                rc = read_sizes(r, kernel);
        if (rc == RV_OK)
                rc = read_transpose(r, TRANSPOSE_A, false, &kernel->transpose_a);
        return rc == RV_OK ? read_transpose(r, TRANSPOSE_B, true, &kernel->transpose_b) : rc;
}

static int read_heads(const struct reader *r, int64_t batch, enum column width, int64_t tokens,
                      struct kernel *kernel)
{
        int64_t heads, kv_heads;
        int rc = need_whole(r, HEADS, INT_MAX, &heads);
        if (rc == RV_OK)
                rc = need_whole(r, KV_HEADS, heads, &kv_heads);
        if (rc == RV_OK)
                rc = need_whole(r, width, INT_MAX, &kernel->k);
        if (rc != RV_OK)
                return rc;
        if (heads % kv_heads || heads / kv_heads > UCHAR_MAX)
                return wrong(r, KV_HEADS, "a divisor of heads, and 255 times as many at most");
        kernel->batch = batch * heads;
        kernel->m = kernel->n = tokens;
        kernel->group = (unsigned char)(heads / kv_heads);
        return RV_OK;
}

static int read_attention(const struct reader *r, struct shape_row *row)
{
        struct kernel *kernel = &row->kernels[0];
        int64_t batch = 0, tokens = 0;
        *kernel = (struct kernel){.kind = KERNEL_ATTENTION, .dtype = DTYPE_BF16};
        row->kernel_count = 1;
        int rc = *text_of(r, DTYPE) ? need_dtype(r, kernel) : RV_OK;
        if (rc == RV_OK)
                rc = need_whole(r, BATCH, INT_MAX, &batch);
        if (rc == RV_OK)
                rc = need_whole(r, SEQ_LEN, INT_MAX, &tokens);
        return rc == RV_OK ? read_heads(r, batch, HEAD_DIM, tokens, kernel) : rc;
}

static int read_collective(const struct reader *r, struct shape_row *row)
{
        int64_t gpus, elements;
        int which = 0;
        while (which < COLLECTIVES && strcmp(text_of(r, OPERATION), collectives[which]) != 0)
                which++;
        if (which == COLLECTIVES)
                return wrong(r, OPERATION, "all_reduce, all_gather, reduce_scatter or alltoall");
        int rc = need_whole(r, GPUS, INT_MAX, &gpus);
        if (rc == RV_OK)
                rc = need_whole(r, ELEMENTS, INT64_MAX / 2, &elements);
        if (rc != RV_OK)
                return rc;
        row->collective = (enum shape_collective)which;
        row->gpus = (int)gpus;
        row->bytes = 2 * elements;
        return RV_OK;
}

/* Each of `ep` GPUs has the rows of its experts: gates and ups of them, the activation, and the way down. */
static int read_experts(const struct reader *r, struct shape_row *row)
{
        int64_t tokens, hidden, width, top_k, experts, ranks;
        int rc = need_whole(r, TOKENS, INT_MAX, &tokens);
        if (rc == RV_OK)
                rc = need_whole(r, HIDDEN, INT_MAX, &hidden);
        if (rc == RV_OK)
                rc = need_whole(r, EXPERT_FFN, INT_MAX, &width);
        if (rc == RV_OK)
                rc = need_whole(r, EXPERTS, SHRT_MAX, &experts);
        if (rc == RV_OK)
                rc = need_whole(r, TOP_K, experts, &top_k);
        if (rc == RV_OK)
                rc = need_whole(r, EP, experts, &ranks);
        if (rc != RV_OK)
                return rc;
        if (experts % ranks)
                return wrong(r, EP, "a divisor of experts");
        const int64_t rows = (tokens * top_k + ranks - 1) / ranks;
        const struct kernel product = {.kind = KERNEL_GROUPED_MATMUL,
                                       .transpose_b = 1,
                                       .dtype = DTYPE_BF16,
                                       .experts = (short)(experts / ranks),
                                       .batch = 1,
                                       .m = rows};
        row->kernels[0] = row->kernels[2] = product;
        row->kernels[0].n = 2 * width;
        row->kernels[0].k = row->kernels[2].n = hidden;
        row->kernels[2].k = width;
        row->kernels[1] = (struct kernel){
                .kind = KERNEL_SWIGLU, .dtype = DTYPE_BF16, .batch = 1, .m = rows, .n = width};
        row->kernel_count = 3;
        row->ranks = (int)ranks;
        row->uneven = *text_of(r, ROUTING) && strcmp(text_of(r, ROUTING), "balanced") != 0;
        return RV_OK;
}

enum training_pass { PASS_FORWARD, PASS_BACKWARD, PASS_INPUT, PASS_WEIGHT, TRAINING_PASSES };

static int need_pass(const struct reader *r, enum training_pass *pass)
{
        static const char *const passes[TRAINING_PASSES] = {"forward", "backward", "input gradient",
                                                            "weight gradient"};
        int which = 0;
        while (which < TRAINING_PASSES && strcmp(text_of(r, PASS), passes[which]) != 0)
                which++;
        *pass = (enum training_pass)which;
        return which == TRAINING_PASSES
                       ? wrong(r, PASS, "forward, backward, input gradient or weight gradient")
                       : RV_OK;
}

/* `batch` experts, each with the rows that m says; of a weight's gradient, that k says. */
static void group(struct kernel *kernel, int64_t experts, bool weight)
{
        kernel->kind = weight ? KERNEL_GROUPED_MATMUL_BACKWARD : KERNEL_GROUPED_MATMUL;
        kernel->experts = (short)experts;
        if (weight)
                kernel->k *= experts;
        else
                kernel->m *= experts;
        if (weight)
                kernel->transpose_a = kernel->transpose_b = 0;
}

static int read_training(const struct reader *r, struct shape_row *row)
{
        struct kernel *kernel = &row->kernels[0];
        enum training_pass pass;
        int64_t batch, tokens;
        const char *what = text_of(r, KERNEL);
        *kernel = (struct kernel){.kind = KERNEL_MATMUL, .batch = 1};
        row->kernel_count = 1;
        int rc = need_dtype(r, kernel);
        if (rc == RV_OK)
                rc = need_pass(r, &pass);
        if (rc == RV_OK)
                rc = need_whole(r, BATCH, SHRT_MAX, &batch);
        if (rc != RV_OK)
                return rc;
        if (strcmp(what, "attention") == 0) {
                kernel->kind = pass == PASS_FORWARD ? KERNEL_ATTENTION : KERNEL_ATTENTION_BACKWARD;
                rc = need_whole(r, M, INT_MAX, &tokens);
                return rc == RV_OK ? read_heads(r, batch, QK_HEAD_DIM, tokens, kernel) : rc;
        }
        if (strcmp(what, "gemm") != 0 && strcmp(what, "grouped gemm") != 0)
                return wrong(r, KERNEL, "gemm, grouped gemm or attention");
        kernel->transpose_a = pass == PASS_WEIGHT;
        kernel->transpose_b = pass == PASS_FORWARD;
        kernel->accumulate = pass == PASS_WEIGHT;
        rc = read_sizes(r, kernel);
        if (rc == RV_OK && strcmp(what, "grouped gemm") == 0)
                group(kernel, batch, pass == PASS_WEIGHT);
        else
                kernel->batch = batch;
        return rc;
}

/* ---- lines ---- */

static int read_header(struct reader *r)
{
        for (int column = 0; column < COLUMNS; column++)
                r->at[column] = -1;
        for (int i = 0; i < r->cells; i++)
                for (int column = 0; column < COLUMNS; column++)
                        if (strcmp(r->cell[i], column_names[column]) == 0) {
                                if (r->at[column] >= 0)
                                        return rv_fail(r->err, RV_EINPUT,
                                                       "%.160s:%d: column %s is there twice", r->table->path,
                                                       r->line, column_names[column]);
                                r->at[column] = i;
                        }
        r->table->timed = r->at[SECONDS] >= 0;
        for (int i = 0; i < SHAPE_FORMS; i++) {
                const int *need = forms[i].needs;
                while (*need >= 0 && r->at[*need] >= 0)
                        need++;
                if (*need < 0) {
                        r->table->form = forms[i].form;
                        return RV_OK;
                }
        }
        return rv_fail(r->err, RV_EINPUT,
                       "%.160s:%d: these columns are of no form of table; gemm needs dtype,m,n,k, attention "
                       "batch,seq_len,heads,kv_heads,head_dim, collectives operation,gpus,elements_fp16, moe "
                       "tokens,hidden,expert_ffn,top_k,experts,ep",
                       r->table->path, r->line);
}

static int read_seconds(const struct reader *r, struct shape_row *row)
{
        char *end;
        const char *text = text_of(r, SECONDS);
        row->seconds = NAN;
        if (!r->table->timed || !*text)
                return RV_OK;
        row->seconds = strtod(text, &end);
        if (*end || !isfinite(row->seconds) || row->seconds <= 0)
                return wrong(r, SECONDS, "a number of seconds above 0");
        return RV_OK;
}

/* Of all cells but the seconds (FNV-1a, with ends of cells): two rows are of one shape if it is the same. */
static uint64_t shape_of(const struct reader *r)
{
        uint64_t hash = UINT64_C(14695981039346656037);
        for (int i = 0; i < r->cells; i++)
                for (const char *text = r->cell[i]; i != r->at[SECONDS]; text++) {
                        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
                        if (!*text)
                                break;
                }
        return hash;
}

static int read_row(const struct reader *r, struct shape_row *row)
{
        static int (*const readers[SHAPE_FORMS])(const struct reader *r, struct shape_row *row) = {
                [SHAPES_GEMM] = read_gemm,
                [SHAPES_ATTENTION] = read_attention,
                [SHAPES_COLLECTIVES] = read_collective,
                [SHAPES_EXPERTS] = read_experts,
                [SHAPES_TRAINING] = read_training};
        *row = (struct shape_row){.line = r->line, .shape = shape_of(r)};
        snprintf(row->gpu, sizeof row->gpu, "%s", text_of(r, GPU));
        int rc = read_seconds(r, row);
        return rc == RV_OK ? readers[r->table->form](r, row) : rc;
}

static int add_row(struct reader *r, const struct shape_row *row)
{
        struct shape_table *table = r->table;
        struct shape_row *rows = table->rows;
        if ((table->count & (table->count - 1)) == 0) /* room doubles */
                rows = realloc(rows, (size_t)(table->count ? 2 * table->count : 1) * sizeof *rows);
        if (!rows)
                return rv_fail(r->err, RV_ESYSTEM, "no memory for %d rows of %.160s", table->count + 1,
                               table->path);
        table->rows = rows;
        rows[table->count++] = *row;
        return RV_OK;
}

static int read_line(struct reader *r, char *line)
{
        struct shape_row row;
        if (!*line || *line == '#')
                return RV_OK;
        const int count = csv_split(line, r->cell, CELLS);
        if (count < 0)
                return rv_fail(r->err, RV_EINPUT,
                               "%.160s:%d: a quote is not closed, or there are more than %d cells",
                               r->table->path, r->line, CELLS);
        if (!r->cells) {
                r->cells = count;
                return read_header(r);
        }
        if (count != r->cells)
                return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %d cells, but the header has %d",
                               r->table->path, r->line, count, r->cells);
        int rc = read_row(r, &row);
        return rc == RV_OK ? add_row(r, &row) : rc;
}

/* ---- rows of the same shape ---- */

static int by_shape(const void *a, const void *b)
{
        const struct shape_row *x = *(const struct shape_row *const *)a,
                               *y = *(const struct shape_row *const *)b;
        return x->shape == y->shape ? x->line - y->line : x->shape < y->shape ? -1 : 1;
}

static int check_repeats(const struct shape_table *table, struct rv_error_info *err)
{
        static const double LARGEST_RATIO = 2;
        const struct shape_row **rows = malloc((size_t)table->count * sizeof *rows);
        int rc = RV_OK;
        if (!rows)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d rows", table->count);
        for (int i = 0; i < table->count; i++)
                rows[i] = &table->rows[i];
        qsort(rows, (size_t)table->count, sizeof *rows, by_shape);
        for (int i = 1; i < table->count && rc == RV_OK; i++) {
                const double ratio = rows[i]->seconds / rows[i - 1]->seconds;
                if (rows[i]->shape == rows[i - 1]->shape && fmax(ratio, 1 / ratio) > LARGEST_RATIO)
                        rc = rv_fail(
                                err, RV_EINPUT,
                                "%.160s:%d: the same shape took %g s, but %g s in line %d; leave out the "
                                "one that was disturbed",
                                table->path, rows[i]->line, rows[i]->seconds, rows[i - 1]->seconds,
                                rows[i - 1]->line);
        }
        free(rows);
        return rc;
}

int shape_table_read(struct shape_table *table, const char *path, struct rv_error_info *err)
{
        *table = (struct shape_table){0};
        snprintf(table->path, sizeof table->path, "%s", path);
        struct reader reader = {.table = table, .err = err};
        struct file_lines lines = {.path = path, .stream = fopen(path, "r")};
        int rc = RV_OK;
        if (!lines.stream)
                return rv_fail(err, RV_EINPUT, "%.160s: %s", path, strerror(errno));
        while (rc == RV_OK && (rc = file_next_line(&lines, err)) > 0) {
                reader.line++;
                rc = read_line(&reader, lines.line);
        }
        if (rc == RV_OK && table->count == 0)
                rc = rv_fail(err, RV_EINPUT,
                             "%.160s:%d: there is no row: a line that names the columns, then one a shape",
                             path, reader.line);
        if (rc == RV_OK && table->timed)
                rc = check_repeats(table, err);
        free(lines.line);
        fclose(lines.stream);
        if (rc != RV_OK)
                shape_table_free(table);
        return rc;
}

void shape_table_free(struct shape_table *table)
{
        free(table->rows);
        *table = (struct shape_table){0};
}

const char *shape_form_name(enum shape_form form)
{
        for (int i = 0; i < SHAPE_FORMS; i++)
                if (forms[i].form == form)
                        return forms[i].name;
        return "";
}

const char *shape_collective_name(enum shape_collective collective)
{
        return collectives[collective];
}

double shape_row_flops(const struct shape_row *row)
{
        double flops = 0;
        for (int i = 0; i < row->kernel_count; i++)
                flops += kernel_flops(&row->kernels[i]);
        return flops;
}
