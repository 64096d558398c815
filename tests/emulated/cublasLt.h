/* The part of cuBLASLt that runtime/device/cuda/matmul.c uses, emulated on the CPU: names, values and
 * meanings are those of NVIDIA's library. */
#ifndef RANVIER_TESTS_EMULATED_CUBLASLT_H
#define RANVIER_TESTS_EMULATED_CUBLASLT_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
        CUBLAS_STATUS_SUCCESS = 0,
        CUBLAS_STATUS_NOT_INITIALIZED = 1,
        CUBLAS_STATUS_ALLOC_FAILED = 3,
        CUBLAS_STATUS_INVALID_VALUE = 7,
        CUBLAS_STATUS_ARCH_MISMATCH = 8,
        CUBLAS_STATUS_EXECUTION_FAILED = 13,
        CUBLAS_STATUS_INTERNAL_ERROR = 14,
        CUBLAS_STATUS_NOT_SUPPORTED = 15
} cublasStatus_t;
typedef enum { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 } cublasOperation_t;
typedef enum { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC = 69 } cublasComputeType_t;
typedef enum { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 } cudaDataType_t;
typedef cudaDataType_t cudaDataType;

typedef enum {
        CUBLASLT_MATMUL_DESC_COMPUTE_TYPE = 0,
        CUBLASLT_MATMUL_DESC_SCALE_TYPE = 1,
        CUBLASLT_MATMUL_DESC_TRANSA = 3,
        CUBLASLT_MATMUL_DESC_TRANSB = 4,
        CUBLASLT_MATMUL_DESC_EPILOGUE = 7,
        CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,
        CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
        CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,
        CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
} cublasLtMatmulDescAttributes_t;
typedef enum {
        CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,
        CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6
} cublasLtMatrixLayoutAttribute_t;
typedef enum {
        CUBLASLT_EPILOGUE_DEFAULT = 1,
        CUBLASLT_EPILOGUE_BIAS = 4,
        CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 32 | 128 | 4,
        CUBLASLT_EPILOGUE_DGELU = 64 | 128
} cublasLtEpilogue_t;
typedef enum {
        CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,
        CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
} cublasLtMatmulPreferenceAttributes_t;
typedef enum {
        CUBLASLT_REDUCTION_SCHEME_NONE = 0,
        CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2
} cublasLtReductionScheme_t;

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct emulated_matmul_desc *cublasLtMatmulDesc_t;
typedef struct emulated_matrix_layout *cublasLtMatrixLayout_t;
typedef struct emulated_preference *cublasLtMatmulPreference_t;
typedef struct {
        uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
        cublasLtMatmulAlgo_t algo;
        size_t workspaceSize;
        cublasStatus_t state;
        float wavesCount;
        int reserved[4];
} cublasLtMatmulHeuristicResult_t;

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle);
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle);
size_t cublasLtGetVersion(void);
const char *cublasLtGetStatusString(cublasStatus_t status);
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale);
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc);
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t bytes);
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld);
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout);
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t bytes);
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference);
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference);
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes);
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found);
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result);
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
