/* Matrix products as cuBLASLt's documentation describes them: matrices by columns, sums in fp32, one rounding
 * at the end. What the library is likely to have no algorithm for is refused, so that fallbacks are tried. */
#include <cublasLt.h>

#include "tests/emulated/bf16.hpp"
#include "tests/emulated/check.hpp"
#include "tests/emulated/fp16.hpp"
#include "tests/emulated/runtime.hpp"

#include <cmath>
#include <cstring>
#include <vector>

using namespace emulated;

struct cublasLtContext {
        int unused;
};
struct emulated_matmul_desc {
        int32_t transpose_a, transpose_b;
        uint32_t epilogue;
        void *bias, *aux;
        int64_t aux_ld;
        int32_t bias_type; /* -1: D's */
};
struct emulated_matrix_layout {
        cudaDataType_t type;
        int64_t rows, columns, ld, stride;
        int32_t batch;
};
struct emulated_preference {
        uint64_t workspace;
        uint32_t reduction, alignments[4]; /* of a, b, c, d */
};

/* What the heuristic promised to do, kept in an algorithm: a product that is another is refused. */
struct promise {
        int64_t rows, columns, k;
        uint32_t alignments[4], epilogue, batch;
};
static_assert(sizeof(promise) <= sizeof(cublasLtMatmulAlgo_t), "fits");

static size_t element_bytes(cudaDataType_t type)
{
        return type == CUDA_R_32F ? 4 : 2;
}

static float element(const void *matrix, cudaDataType_t type, int64_t i)
{
        switch (type) {
        case CUDA_R_16F:
                return (float)static_cast<const __half *>(matrix)[i];
        case CUDA_R_16BF:
                return (float)static_cast<const __nv_bfloat16 *>(matrix)[i];
        default:
                return static_cast<const float *>(matrix)[i];
        }
}

static void store(void *matrix, cudaDataType_t type, int64_t i, float x)
{
        if (type == CUDA_R_16F)
                static_cast<__half *>(matrix)[i] = __half(x);
        else if (type == CUDA_R_16BF)
                static_cast<__nv_bfloat16 *>(matrix)[i] = __nv_bfloat16(x);
        else
                static_cast<float *>(matrix)[i] = x;
}

/* One matrix of the batch in fp32, op() applied, dense: (rows, columns) by columns. */
static std::vector<float> expand(const void *matrix, const emulated_matrix_layout &l, bool transposed,
                                 int64_t batch)
{
        const int64_t rows = transposed ? l.columns : l.rows, columns = transposed ? l.rows : l.columns;
        std::vector<float> dense((size_t)(rows * columns));
        for (int64_t j = 0; j < columns; j++)
                for (int64_t i = 0; i < rows; i++)
                        dense[(size_t)(j * rows + i)] =
                                element(matrix, l.type,
                                        batch * l.stride + (transposed ? i * l.ld + j : j * l.ld + i));
        return dense;
}

static float logistic_argument(float x) /* of GELU's tanh form: gelu(x) = x / (1 + exp(-this)) */
{
        return 2 * 0.7978845608F * (x + 0.044715F * x * x * x);
}
static float gelu(float x)
{
        return 0.5F * x * (1 + std::tanh(logistic_argument(x) / 2));
}
static float gelu_slope(float x)
{
        const float t = std::tanh(logistic_argument(x) / 2);
        return 0.5F * (1 + t) + 0.5F * x * (1 - t * t) * 0.7978845608F * (1 + 3 * 0.044715F * x * x);
}

struct operation {
        emulated_matmul_desc desc;
        emulated_matrix_layout a_layout, b_layout, c_layout, d_layout;
        const void *a, *b, *c;
        void *d;
        float alpha, beta;
};

static float finish(const operation &o, float sum, int64_t row, int64_t column, int64_t batch)
{
        const cudaDataType_t type = o.d_layout.type;
        float x = o.alpha * sum;
        if (o.beta != 0)
                x += o.beta *
                     element(o.c, o.c_layout.type, batch * o.c_layout.stride + column * o.c_layout.ld + row);
        if (o.desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
                x += element(o.desc.bias, o.desc.bias_type < 0 ? type : (cudaDataType_t)o.desc.bias_type,
                             row);
        const int64_t aux_at = column * o.desc.aux_ld + row;
        if (o.desc.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
                store(o.desc.aux, type, aux_at, x);
                x = gelu(x);
        } else if (o.desc.epilogue == CUBLASLT_EPILOGUE_DGELU)
                x *= gelu_slope(element(o.desc.aux, type, aux_at));
        return x;
}

static cudaError_t run(const operation &o)
{
        const int64_t rows = o.d_layout.rows, columns = o.d_layout.columns;
        const int64_t k = o.desc.transpose_a ? o.a_layout.rows : o.a_layout.columns;
        std::vector<float> sum((size_t)rows);
        for (int64_t batch = 0; batch < o.d_layout.batch; batch++) {
                const std::vector<float> a = expand(o.a, o.a_layout, o.desc.transpose_a, batch);
                const std::vector<float> b = expand(o.b, o.b_layout, o.desc.transpose_b, batch);
                for (int64_t column = 0; column < columns; column++) {
                        std::fill(sum.begin(), sum.end(), 0.0F);
                        for (int64_t l = 0; l < k; l++) {
                                const float factor = b[(size_t)(column * k + l)];
                                const float *from = &a[(size_t)(l * rows)];
                                for (int64_t row = 0; row < rows; row++)
                                        sum[(size_t)row] += from[row] * factor;
                        }
                        for (int64_t row = 0; row < rows; row++)
                                store(o.d, o.d_layout.type,
                                      batch * o.d_layout.stride + column * o.d_layout.ld + row,
                                      finish(o, sum[(size_t)row], row, column, batch));
                }
        }
        return cudaSuccess;
}

static bool is_aligned(const void *pointer, size_t bytes)
{
        return (uintptr_t)pointer % bytes == 0;
}

/* All of a matrix is in one allocation. */
static bool is_there(const void *matrix, const emulated_matrix_layout &l)
{
        const int64_t last = (l.batch - 1) * l.stride + (l.columns - 1) * l.ld + l.rows;
        return is_allocated(matrix, (size_t)last * element_bytes(l.type));
}

static bool shapes_fit(const emulated_matmul_desc &desc, const emulated_matrix_layout &a,
                       const emulated_matrix_layout &b, const emulated_matrix_layout &c,
                       const emulated_matrix_layout &d)
{
        const int64_t rows = desc.transpose_a ? a.columns : a.rows, k = desc.transpose_a ? a.rows : a.columns;
        const int64_t inner = desc.transpose_b ? b.columns : b.rows,
                      columns = desc.transpose_b ? b.rows : b.columns;
        return rows == d.rows && columns == d.columns && k == inner && c.rows == d.rows &&
               c.columns == d.columns && a.batch == d.batch && b.batch == d.batch && c.batch == d.batch &&
               a.ld >= a.rows && b.ld >= b.rows && c.ld >= c.rows && d.ld >= d.rows;
}

/* Epilogues take vectors of 16 bytes, and auxiliary matrices whose leading dimension is a multiple of 8. */
static bool has_algorithm(const emulated_matmul_desc &desc, const emulated_matrix_layout &d,
                          const uint32_t alignments[4])
{
        if (desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT)
                return true;
        if (alignments[3] < 16 || d.ld * (int64_t)element_bytes(d.type) % 16 != 0)
                return false;
        if (desc.epilogue & CUBLASLT_EPILOGUE_BIAS && (!desc.bias || !is_aligned(desc.bias, 16)))
                return false;
        return !(desc.epilogue & 128) || (desc.aux && is_aligned(desc.aux, 16) && desc.aux_ld % 8 == 0 &&
                                          desc.aux_ld >= d.rows && d.batch == 1);
}

static promise promise_of(const emulated_matmul_desc &desc, const emulated_matrix_layout &a,
                          const emulated_matrix_layout &d, const uint32_t alignments[4])
{
        promise p = {d.rows, d.columns,     desc.transpose_a ? a.rows : a.columns,
                     {},     desc.epilogue, (uint32_t)d.batch};
        memcpy(p.alignments, alignments, sizeof p.alignments);
        return p;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
        *handle = new cublasLtContext();
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
        delete handle;
        return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
        return 120000;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
        switch (status) {
        case CUBLAS_STATUS_SUCCESS:
                return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_INVALID_VALUE:
                return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_NOT_SUPPORTED:
                return "CUBLAS_STATUS_NOT_SUPPORTED";
        default:
                return "CUBLAS_STATUS_INTERNAL_ERROR";
        }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
        if ((compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC) || scale != CUDA_R_32F)
                return CUBLAS_STATUS_NOT_SUPPORTED;
        *desc = new emulated_matmul_desc{0, 0, CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0, -1};
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
        delete desc;
        return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *to, size_t to_bytes, const void *value, size_t bytes)
{
        if (!value || bytes != to_bytes)
                return CUBLAS_STATUS_INVALID_VALUE;
        memcpy(to, value, bytes);
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes)
{
        switch (attribute) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
                return set(&desc->transpose_a, sizeof desc->transpose_a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
                return set(&desc->transpose_b, sizeof desc->transpose_b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
                return set(&desc->epilogue, sizeof desc->epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
                return set(&desc->bias, sizeof desc->bias, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
                return set(&desc->aux, sizeof desc->aux, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
                return set(&desc->aux_ld, sizeof desc->aux_ld, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
                return set(&desc->bias_type, sizeof desc->bias_type, value, bytes);
        default:
                return CUBLAS_STATUS_NOT_SUPPORTED;
        }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
        *layout = new emulated_matrix_layout{type, (int64_t)rows, (int64_t)columns, ld, 0, 1};
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
        delete layout;
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes)
{
        switch (attribute) {
        case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
                return set(&layout->batch, sizeof layout->batch, value, bytes);
        case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
                return set(&layout->stride, sizeof layout->stride, value, bytes);
        }
        return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
        *preference = new emulated_preference{0, ~0U, {256, 256, 256, 256}};
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
        delete preference;
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
        switch (attribute) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
                return set(&preference->workspace, sizeof preference->workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
                return set(&preference->reduction, sizeof preference->reduction, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
                return set(&preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES],
                           sizeof preference->alignments[0], value, bytes);
        }
        return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
        *found = 0;
        if (requested < 1 || !shapes_fit(*desc, *a, *b, *c, *d))
                return CUBLAS_STATUS_INVALID_VALUE;
        /* Of the table in cuBLAS's documentation of cublasLtMatmul: fp32 out of 16 bits, too. */
        const bool widens = d->type == CUDA_R_32F && desc->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
        const bool types = a->type == b->type && c->type == d->type && (a->type == d->type || widens);
        if (!types || !has_algorithm(*desc, *d, preference->alignments)) {
                counters.product_refusals++;
                return CUBLAS_STATUS_NOT_SUPPORTED;
        }
        const promise p = promise_of(*desc, *a, *d, preference->alignments);
        static_assert(sizeof p <= sizeof results[0].algo.data - sizeof results[0].algo.data[0],
                      "room for a number");
        for (*found = 0; *found < requested && *found < 3; ++*found) {
                cublasLtMatmulHeuristicResult_t &result = results[*found];
                memset(&result, 0, sizeof result);
                memcpy(result.algo.data, &p, sizeof p);
                result.algo.data[7] = (uint64_t)*found; /* they differ in this alone */
                result.state = CUBLAS_STATUS_SUCCESS;
        }
        return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                       cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
        promise made;
        memcpy(&made, algo->data, sizeof made);
        const promise asked = promise_of(*desc, *a, *d, made.alignments);
        memset(result, 0, sizeof *result);
        result->algo = *algo;
        return shapes_fit(*desc, *a, *b, *c, *d) && memcmp(&made, &asked, sizeof made) == 0
                       ? CUBLAS_STATUS_SUCCESS
                       : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *,
                              size_t, cudaStream_t stream)
{
        entered enter("cublasLtMatmul");
        if (enter.error)
                return CUBLAS_STATUS_EXECUTION_FAILED;
        if (!algo || !shapes_fit(*desc, *a_layout, *b_layout, *c_layout, *d_layout))
                return CUBLAS_STATUS_INVALID_VALUE;
        promise made;
        memcpy(&made, algo->data, sizeof made);
        const promise asked = promise_of(*desc, *a_layout, *d_layout, made.alignments);
        const operation o = {*desc,
                             *a_layout,
                             *b_layout,
                             *c_layout,
                             *d_layout,
                             a,
                             b,
                             c,
                             d,
                             *static_cast<const float *>(alpha),
                             *static_cast<const float *>(beta)};
        if (memcmp(&made, &asked, sizeof made) != 0 || !is_aligned(a, made.alignments[0]) ||
            !is_aligned(b, made.alignments[1]) || (o.beta != 0 && !is_aligned(c, made.alignments[2])) ||
            !is_aligned(d, made.alignments[3]) || !has_algorithm(*desc, *d_layout, made.alignments))
                return CUBLAS_STATUS_INVALID_VALUE;
        if (!is_there(a, *a_layout) || !is_there(b, *b_layout) || !is_there(d, *d_layout) ||
            (o.beta != 0 && !is_there(c, *c_layout)))
                return CUBLAS_STATUS_INVALID_VALUE;
        counters.products++;
        counters.kernel_launches++;
        const cudaError_t error = queue(stream, {[o] {
                                                         counters.kernels_run++;
                                                         return run(o);
                                                 },
                                                 nullptr, nullptr});
        return error ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
}
