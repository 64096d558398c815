#include "runtime/device/cuda/matmul.h"

#include "runtime/device/cuda/choices.h"
#include "runtime/device/kernels.h"

#include <assert.h>
#include <cublasLt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A product in cuBLASLt's terms, where matrices are stored by columns: a row-major matrix is there its
 * transpose, and D^T = op(B)^T op(A)^T. So the first operand here is the second of kernels.h, and rows are
 * the n columns of y. D and C have one layout. */
struct product {
        const void *a, *b, *c;
        void *d;
        const void *bias; /* [rows]: along the columns of the row-major matrix; NULL: none */
        void *aux;        /* as D: what GELU is applied to, written or, backward, read; NULL: none */
};

/* What a plan depends on. Compared byte by byte: every word is set. */
struct shape {
        int64_t kind, dtype, transpose_a, transpose_b;
        int64_t rows, columns, k, batch;
        int64_t lda, ldb, ldd, stride_a, stride_b, stride_d; /* elements */
        int64_t align_a, align_b, align_d, align_bias,
                align_aux; /* bytes: the largest power of two that all
                              addresses are multiples of, at most MEMORY_ALIGNMENT */
        int64_t accumulate;
        int64_t wide; /* d is fp32 whatever the operands are stored as */
};

struct plan {
        struct shape shape;
        bool unfused; /* cuBLASLt has nothing for the fused kind */
        /* Of how many proposals the algorithm is which, as timed in this run or another, from 1; 0: the first
         * one, untimed. */
        int proposal, proposals;
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t a, b, d;
        cublasLtMatmulAlgo_t algorithm;
};

struct cuda_matmul {
        const struct cuda_work *work;
        cublasLtHandle_t handle;
        void *workspace;
        struct cuda_choices *choices;
        bool timed; /* what `choices` lacks is timed */
        struct plan *plans;
        size_t count, capacity, unfused, chosen;
};

struct cuda_matmul *cuda_matmul_new(const struct cuda_work *work, void *workspace,
                                    const struct cuda_products *products, struct rv_error_info *err)
{
        struct cuda_matmul *matmul = calloc(1, sizeof *matmul);
        if (!matmul) {
                rv_fail(err, RV_ESYSTEM, "the cuda device: no host memory for its matrix products");
                return NULL;
        }
        matmul->work = work;
        matmul->workspace = workspace;
        matmul->timed = products->timed;
        matmul->choices = cuda_choices_new(products->json, products->gpu, cublasLtGetVersion(), err);
        if (!matmul->choices) {
                free(matmul);
                return NULL;
        }
        const cublasStatus_t status = cublasLtCreate(&matmul->handle);
        if (status != CUBLAS_STATUS_SUCCESS) {
                rv_fail(err, RV_ESYSTEM, "the cuda device: cuBLASLt does not start: %s",
                        cublasLtGetStatusString(status));
                cuda_choices_delete(matmul->choices);
                free(matmul);
                return NULL;
        }
        return matmul;
}

static void plan_free(struct plan *plan)
{
        if (plan->desc)
                cublasLtMatmulDescDestroy(plan->desc);
        if (plan->a)
                cublasLtMatrixLayoutDestroy(plan->a);
        if (plan->b)
                cublasLtMatrixLayoutDestroy(plan->b);
        if (plan->d)
                cublasLtMatrixLayoutDestroy(plan->d);
}

void cuda_matmul_delete(struct cuda_matmul *matmul)
{
        if (!matmul)
                return;
        for (size_t i = 0; i < matmul->count; i++)
                plan_free(&matmul->plans[i]);
        free(matmul->plans);
        cuda_choices_delete(matmul->choices);
        cublasLtDestroy(matmul->handle);
        free(matmul);
}

void cuda_matmul_count(const struct cuda_matmul *matmul, struct device_description *description)
{
        description->products = (int)matmul->count;
        description->refused_products = (int)matmul->unfused;
        description->timed_products = (int)matmul->chosen;
}

char *cuda_matmul_products(const struct cuda_matmul *matmul)
{
        return cuda_choices_text(matmul->choices);
}

/* ---- plans ---- */

static cudaDataType_t stored_as(int64_t dtype)
{
        return dtype == DTYPE_FP16 ? CUDA_R_16F : dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

static cublasLtEpilogue_t epilogue_of(int64_t kind)
{
        switch (kind) {
        case KERNEL_MATMUL_BIAS:
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                return CUBLASLT_EPILOGUE_BIAS;
        case KERNEL_MATMUL_BIAS_GELU:
                return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
        case KERNEL_MATMUL_GELU_BACKWARD:
                return CUBLASLT_EPILOGUE_DGELU;
        default:
                return CUBLASLT_EPILOGUE_DEFAULT;
        }
}

/* The first status that is not a success. */
static void keep(cublasStatus_t *first, cublasStatus_t status)
{
        if (*first == CUBLAS_STATUS_SUCCESS)
                *first = status;
}

static cublasStatus_t make_layout(cublasLtMatrixLayout_t *layout, const struct shape *shape,
                                  cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld,
                                  int64_t stride)
{
        const int32_t batch = (int32_t)shape->batch;
        cublasStatus_t first =
                cublasLtMatrixLayoutCreate(layout, type, (uint64_t)rows, (uint64_t)columns, ld);
        if (first != CUBLAS_STATUS_SUCCESS || batch == 1)
                return first;
        keep(&first, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                      sizeof batch));
        keep(&first, cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                      &stride, sizeof stride));
        return first;
}

/* Where this product's bias and auxiliary matrix are: the only addresses that are not arguments of a call. */
static cublasStatus_t point(const struct plan *plan, const struct product *product)
{
        cublasStatus_t first = CUBLAS_STATUS_SUCCESS;
        if (product->bias)
                keep(&first, cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                            &product->bias, sizeof product->bias));
        if (product->aux)
                keep(&first,
                     cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                    &product->aux, sizeof product->aux));
        return first;
}

/* Everything is computed in fp32. fp32 tensors are multiplied in fp32 in full, not TF32: a run on a GPU is
 * compared with one on a CPU to 1e-5. */
static cublasStatus_t make_desc(struct plan *plan, const struct product *product)
{
        const struct shape *shape = &plan->shape;
        const cublasOperation_t a = shape->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                                b = shape->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
        const cublasLtEpilogue_t epilogue = epilogue_of(shape->kind);
        cublasStatus_t first = cublasLtMatmulDescCreate(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
        if (first != CUBLAS_STATUS_SUCCESS)
                return first;
        keep(&first, cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
        keep(&first, cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
        keep(&first, cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                                    sizeof epilogue));
        if (product->aux)
                keep(&first, cublasLtMatmulDescSetAttribute(plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                            &shape->ldd, sizeof shape->ldd));
        keep(&first, point(plan, product)); /* the heuristic looks at their alignment */
        return first;
}

static cublasStatus_t make_preference(cublasLtMatmulPreference_t *preference, const struct shape *shape)
{
        const size_t workspace = CUDA_MATMUL_WORKSPACE_BYTES;
        /* Parts of a sum over k are added in fp32, never in the 16 bits of the output. */
        const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        const struct {
                cublasLtMatmulPreferenceAttributes_t attribute;
                int64_t bytes;
        } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape->align_a},
                          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape->align_b},
                          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape->align_d},
                          {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape->align_d}};
        cublasStatus_t first = cublasLtMatmulPreferenceCreate(preference);
        if (first != CUBLAS_STATUS_SUCCESS)
                return first;
        keep(&first,
             cublasLtMatmulPreferenceSetAttribute(*preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof workspace));
        keep(&first,
             cublasLtMatmulPreferenceSetAttribute(*preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &reduction, sizeof reduction));
        for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++) {
                const uint32_t bytes = (uint32_t)alignments[i].bytes;
                keep(&first, cublasLtMatmulPreferenceSetAttribute(*preference, alignments[i].attribute,
                                                                  &bytes, sizeof bytes));
        }
        return first;
}

/* At most this many proposals are asked for where they are timed. */
enum { PROPOSALS = 8, PRODUCT_TEXT = 224 };

/* The names of products in a profile, and what RANVIER_CUDA_PLANS shows of a plan. */
static void name_product(char text[PRODUCT_TEXT], const struct shape *s)
{
        snprintf(text, PRODUCT_TEXT,
                 "%s, %s, m %lld n %lld k %lld batch %lld%s%s%s%s, ld %lld %lld %lld, strides %lld %lld "
                 "%lld, aligned %lld %lld %lld %lld %lld",
                 kernel_name((enum kernel_kind)s->kind), dtype_precision((enum dtype)s->dtype),
                 (long long)s->columns, (long long)s->rows, (long long)s->k, (long long)s->batch,
                 s->transpose_b ? ", A transposed" : "", s->transpose_a ? ", B transposed" : "",
                 s->accumulate ? ", added" : "", s->wide ? " in fp32" : "", (long long)s->ldb,
                 (long long)s->lda, (long long)s->ldd, (long long)s->stride_b, (long long)s->stride_a,
                 (long long)s->stride_d, (long long)s->align_b, (long long)s->align_a, (long long)s->align_d,
                 (long long)s->align_bias, (long long)s->align_aux);
}

static cublasStatus_t run_by(const struct cuda_matmul *matmul, const struct plan *plan,
                             const struct product *product, const cublasLtMatmulAlgo_t *algorithm,
                             float alpha, cudaStream_t stream)
{
        const float beta = plan->shape.accumulate ? 1 : 0;
        return cublasLtMatmul(matmul->handle, plan->desc, &alpha, product->a, plan->a, product->b, plan->b,
                              &beta, product->c, plan->d, product->d, plan->d, algorithm, matmul->workspace,
                              CUDA_MATMUL_WORKSPACE_BYTES, stream);
}

/* Milliseconds from one event to the next while the product runs some times, for each; INFINITY if it does
 * not run. What gradients are added to stays what it was: next to nothing is added. (A residual and a bias
 * are added each time, where they are not in the output's place once: only calibrations time.) */
static double time_once(const struct cuda_matmul *matmul, const struct plan *plan,
                        const struct product *product, const cublasLtMatmulAlgo_t *algorithm,
                        cudaStream_t stream, const cudaEvent_t events[2])
{
        enum { REPEATS = 5 };
        const float nothing = 1e-30F;
        float milliseconds = 0;
        bool ran = cudaEventRecord(events[0], stream) == cudaSuccess;
        for (int i = 0; i < REPEATS; i++)
                ran = ran &&
                      run_by(matmul, plan, product, algorithm, nothing, stream) == CUBLAS_STATUS_SUCCESS;
        ran = ran && cudaEventRecord(events[1], stream) == cudaSuccess &&
              cudaEventSynchronize(events[1]) == cudaSuccess &&
              cudaEventElapsedTime(&milliseconds, events[0], events[1]) == cudaSuccess;
        return ran ? (double)milliseconds / REPEATS : INFINITY;
}

/* The fastest of the proposals by the least of its times, in turns; the first unless another is faster by
 * more than times differ. */
static int fastest(const struct cuda_matmul *matmul, const struct plan *plan, const struct product *product,
                   const cublasLtMatmulHeuristicResult_t *proposals, int count, cudaStream_t stream,
                   double best[PROPOSALS])
{
        enum { TURNS = 4 }; /* the first one loads kernels */
        static const double differ = 0.01;
        cudaEvent_t events[2] = {NULL, NULL};
        int fastest = 0;
        for (int i = 0; i < count; i++)
                best[i] = INFINITY;
        if (cudaEventCreateWithFlags(&events[0], cudaEventDefault) != cudaSuccess ||
            cudaEventCreateWithFlags(&events[1], cudaEventDefault) != cudaSuccess)
                count = 0;
        for (int turn = 0; turn < TURNS; turn++)
                for (int i = 0; i < count; i++)
                        if (proposals[i].state == CUBLAS_STATUS_SUCCESS) {
                                const double once =
                                        time_once(matmul, plan, product, &proposals[i].algo, stream, events);
                                best[i] = turn > 0 ? fmin(best[i], once) : best[i];
                        }
        for (int i = 0; i < count; i++)
                if (best[i] < best[fastest] * (fastest == 0 ? 1 - differ : 1))
                        fastest = i;
        for (int i = 0; i < 2; i++)
                if (events[i])
                        cudaEventDestroy(events[i]);
        return fastest;
}

/* What was chosen before, if cuBLASLt still takes it. */
static bool choose_again(const struct cuda_matmul *matmul, struct plan *plan, const char *name)
{
        struct cuda_choice choice;
        cublasLtMatmulHeuristicResult_t result;
        if (!cuda_choices_find(matmul->choices, name, &choice))
                return false;
        memcpy(plan->algorithm.data, choice.algorithm, sizeof plan->algorithm.data);
        if (cublasLtMatmulAlgoCheck(matmul->handle, plan->desc, plan->a, plan->b, plan->d, plan->d,
                                    &plan->algorithm, &result) != CUBLAS_STATUS_SUCCESS ||
            result.workspaceSize > CUDA_MATMUL_WORKSPACE_BYTES)
                return false;
        plan->proposal = choice.proposal;
        plan->proposals = choice.proposals;
        return true;
}

/* The one that was chosen before; else cuBLASLt's first proposal, which depends on the shape and the GPU
 * alone, or where products are timed the fastest. The same bits in every run that is given the same choices.
 */
static cublasStatus_t choose(struct cuda_matmul *matmul, struct plan *plan, const struct product *product,
                             cudaStream_t stream)
{
        char name[PRODUCT_TEXT];
        cublasLtMatmulPreference_t preference = NULL;
        cublasLtMatmulHeuristicResult_t proposals[PROPOSALS];
        double milliseconds[PROPOSALS];
        int found = 0;
        name_product(name, &plan->shape);
        if (choose_again(matmul, plan, name))
                return CUBLAS_STATUS_SUCCESS;
        cublasStatus_t status = make_preference(&preference, &plan->shape);
        if (status == CUBLAS_STATUS_SUCCESS)
                status = cublasLtMatmulAlgoGetHeuristic(matmul->handle, plan->desc, plan->a, plan->b, plan->d,
                                                        plan->d, preference, matmul->timed ? PROPOSALS : 1,
                                                        proposals, &found);
        if (preference)
                cublasLtMatmulPreferenceDestroy(preference);
        if (status != CUBLAS_STATUS_SUCCESS)
                return status;
        if (found == 0 || proposals[0].state != CUBLAS_STATUS_SUCCESS)
                return CUBLAS_STATUS_NOT_SUPPORTED;
        plan->algorithm = proposals[0].algo;
        if (!matmul->timed)
                return CUBLAS_STATUS_SUCCESS;
        const int best = fastest(matmul, plan, product, proposals, found, stream, milliseconds);
        struct cuda_choice choice = {.proposal = best + 1,
                                     .proposals = found,
                                     .seconds = 1e-3 * milliseconds[best],
                                     .first_seconds = isfinite(milliseconds[0]) ? 1e-3 * milliseconds[0] : 0};
        if (!isfinite(milliseconds[best]))
                return CUBLAS_STATUS_SUCCESS; /* whoever runs it will hear why */
        memcpy(choice.algorithm, proposals[best].algo.data, sizeof choice.algorithm);
        cuda_choices_add(matmul->choices, name, &choice);
        plan->algorithm = proposals[best].algo;
        plan->proposal = choice.proposal;
        plan->proposals = choice.proposals;
        return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_plan(struct cuda_matmul *matmul, struct plan *plan, const struct product *product,
                                cudaStream_t stream)
{
        const struct shape *s = &plan->shape;
        const cudaDataType_t type = stored_as(s->dtype);
        cublasStatus_t first = make_desc(plan, product);
        keep(&first, make_layout(&plan->a, s, type, s->transpose_a ? s->k : s->rows,
                                 s->transpose_a ? s->rows : s->k, s->lda, s->stride_a));
        keep(&first, make_layout(&plan->b, s, type, s->transpose_b ? s->columns : s->k,
                                 s->transpose_b ? s->k : s->columns, s->ldb, s->stride_b));
        keep(&first,
             make_layout(&plan->d, s, s->wide ? CUDA_R_32F : type, s->rows, s->columns, s->ldd, s->stride_d));
        return first == CUBLAS_STATUS_SUCCESS ? choose(matmul, plan, product, stream) : first;
}

static struct plan *find(struct cuda_matmul *matmul, const struct shape *shape)
{
        for (size_t i = 0; i < matmul->count; i++)
                if (memcmp(&matmul->plans[i].shape, shape, sizeof *shape) == 0)
                        return &matmul->plans[i];
        return NULL;
}

static struct plan *add(struct cuda_matmul *matmul, const struct plan *plan)
{
        if (matmul->count == matmul->capacity) {
                const size_t larger = matmul->capacity ? 2 * matmul->capacity : 32;
                struct plan *plans = realloc(matmul->plans, larger * sizeof *plans);
                if (!plans)
                        return NULL;
                matmul->plans = plans;
                matmul->capacity = larger;
        }
        matmul->plans[matmul->count] = *plan;
        matmul->unfused += plan->unfused;
        matmul->chosen += plan->proposal > 0;
        return &matmul->plans[matmul->count++];
}

/* RANVIER_CUDA_PLANS: a line for each plan that is made. */
static void tell(const struct plan *plan)
{
        char name[PRODUCT_TEXT];
        if (!getenv("RANVIER_CUDA_PLANS"))
                return;
        name_product(name, &plan->shape);
        if (plan->unfused)
                fprintf(stderr, "cuda plan: %s: refused by cuBLASLt, so a product and a kernel behind it\n",
                        name);
        else if (plan->proposal > 0)
                fprintf(stderr, "cuda plan: %s: proposal %d of %d, timed\n", name, plan->proposal,
                        plan->proposals);
        else
                fprintf(stderr, "cuda plan: %s: planned\n", name);
}

/* GELU of bf16 by cuBLASLt is a fusion on the Hopper and Blackwell of data centres. On others its epilogue is
 * a second kernel, slower than ours (karpathy/llm.c pull requests 338 and 653; sgl-project/sglang 34350). */
static bool gelu_is_fused(int capability, const struct shape *shape)
{
        const bool gelu =
                shape->kind == KERNEL_MATMUL_BIAS_GELU || shape->kind == KERNEL_MATMUL_GELU_BACKWARD;
        return !gelu || shape->dtype != DTYPE_BF16 || (capability >= 90 && capability < 120);
}

/* Vectors of 16 bytes, and auxiliary matrices whose rows are multiples of them, are what epilogues take. GELU
 * in fp32 is our own kernel's: cuBLASLt's is not said to be exact to more than 16 bits need. */
static bool may_fuse(int capability, const struct shape *shape, const struct product *product)
{
        if (shape->kind == KERNEL_MATMUL)
                return true;
        const uintptr_t addresses = (uintptr_t)product->bias | (uintptr_t)product->aux;
        if (!gelu_is_fused(capability, shape))
                return false;
        return addresses % 16 == 0 && shape->rows % 8 == 0 && (shape->dtype != DTYPE_FP32 || !product->aux);
}

/* The plan of a shape, made the first time that it is met. */
static cublasStatus_t plan_of(struct cuda_matmul *matmul, const struct shape *shape,
                              const struct product *product, cudaStream_t stream, struct plan **plan)
{
        *plan = find(matmul, shape);
        if (*plan)
                return CUBLAS_STATUS_SUCCESS;
        struct plan made = {.shape = *shape};
        cublasStatus_t status = make_plan(matmul, &made, product, stream);
        if (status != CUBLAS_STATUS_SUCCESS && shape->kind != KERNEL_MATMUL) {
                plan_free(&made);
                made = (struct plan){.shape = *shape, .unfused = true};
                status = CUBLAS_STATUS_SUCCESS;
        }
        if (status == CUBLAS_STATUS_SUCCESS && !(*plan = add(matmul, &made)))
                status = CUBLAS_STATUS_ALLOC_FAILED;
        if (status == CUBLAS_STATUS_SUCCESS)
                tell(*plan);
        if (status != CUBLAS_STATUS_SUCCESS)
                plan_free(&made);
        return status;
}

/* ---- products ---- */

static cublasStatus_t run(const struct cuda_matmul *matmul, const struct plan *plan,
                          const struct product *product, cudaStream_t stream)
{
        const cublasStatus_t status = point(plan, product);
        if (status != CUBLAS_STATUS_SUCCESS)
                return status;
        return run_by(matmul, plan, product, &plan->algorithm, 1, stream);
}

/* The largest power of two, at most what allocations are aligned to, that divides all of `bytes`, given as
 * their bitwise or. */
static int64_t alignment(uint64_t bytes)
{
        const uint64_t max = MEMORY_ALIGNMENT;
        bytes |= max;
        return (int64_t)(bytes & (~bytes + 1));
}

static const char *reason(cublasStatus_t status)
{
        return status == CUBLAS_STATUS_SUCCESS ? NULL : cublasLtGetStatusString(status);
}

/* Strides of one dimension of the batch, in elements of kernels.h's a, b, c. */
struct strides {
        int64_t count, a, b, c;
};

/* Two dimensions of a batch are one where every operand's outer stride is its inner one times the count;
 * else the smaller is a loop of calls. */
static void part_batch(struct strides *loop, struct strides *batch)
{
        if (loop->a == batch->count * batch->a && loop->b == batch->count * batch->b &&
            loop->c == batch->count * batch->c) {
                batch->count *= loop->count;
                loop->count = 1;
        } else if (loop->count > batch->count) {
                const struct strides swapped = *loop;
                *loop = *batch;
                *batch = swapped;
        }
        if (loop->count == 1)
                loop->a = loop->b = loop->c = 0;
        if (batch->count == 1)
                batch->a = batch->b = batch->c = 0;
}

static const char *plain(struct cuda_matmul *matmul, cudaStream_t stream, const struct kernel *kernel,
                         const struct kernel_args *args)
{
        const int64_t element = kernel->dtype ? 2 : 4, element_of_c = kernel->wide ? 4 : element;
        const int64_t inner = args->inner;
        struct strides loop = {kernel->batch / inner, args->stride[0][0], args->stride[1][0],
                               args->stride[2][0]},
                       batch = {inner, args->stride[0][1], args->stride[1][1], args->stride[2][1]};
        part_batch(&loop, &batch);
        const struct shape shape = {
                .kind = KERNEL_MATMUL,
                .dtype = kernel->dtype,
                .transpose_a = kernel->transpose_b,
                .transpose_b = kernel->transpose_a,
                .rows = kernel->n,
                .columns = kernel->m,
                .k = kernel->k,
                .batch = batch.count,
                .lda = args->ld[1],
                .ldb = args->ld[0],
                .ldd = args->ld[2],
                .stride_a = batch.b,
                .stride_b = batch.a,
                .stride_d = batch.c,
                .align_a = alignment((uintptr_t)args->p[1] | (uint64_t)(loop.b * element)),
                .align_b = alignment((uintptr_t)args->p[0] | (uint64_t)(loop.a * element)),
                .align_d = alignment((uintptr_t)args->p[2] | (uint64_t)(loop.c * element_of_c)),
                .accumulate = kernel->accumulate,
                .wide = kernel->wide,
        };
        for (int64_t i = 0; i < loop.count; i++) {
                char *c = (char *)args->p[2] + i * loop.c * element_of_c;
                const struct product product = {.a = (const char *)args->p[1] + i * loop.b * element,
                                                .b = (const char *)args->p[0] + i * loop.a * element,
                                                .c = c,
                                                .d = c};
                struct plan *plan;
                cublasStatus_t status = plan_of(matmul, &shape, &product, stream, &plan);
                if (status == CUBLAS_STATUS_SUCCESS)
                        status = run(matmul, plan, &product, stream);
                if (status != CUBLAS_STATUS_SUCCESS)
                        return reason(status);
        }
        return NULL;
}

/* The operands of a fused kind, as kernels.h packs them. */
static struct product fused_product(const struct kernel *kernel, const struct kernel_args *args)
{
        void *const *p = args->p;
        switch (kernel->kind) {
        case KERNEL_MATMUL_BIAS_GELU:
                return (struct product){
                        .a = p[3], .b = p[2], .c = p[0], .d = p[0], .bias = p[4], .aux = p[1]};
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                return (struct product){.a = p[2], .b = p[1], .c = p[4], .d = p[0], .bias = p[3]};
        case KERNEL_MATMUL_GELU_BACKWARD:
                return (struct product){.a = p[2], .b = p[1], .c = p[0], .d = p[0], .aux = p[3]};
        default:
                assert(kernel->kind == KERNEL_MATMUL_BIAS);
                return (struct product){.a = p[2], .b = p[1], .c = p[0], .d = p[0], .bias = p[3]};
        }
}

/* The product alone, into `c`; then the elementwise kernel. */
static const char *in_two(struct cuda_matmul *matmul, cudaStream_t stream, const struct kernel *kernel,
                          const struct product *product, void *c, cuda_launch_fn *after,
                          const struct kernel_args *after_args)
{
        const struct kernel matrix = {.kind = KERNEL_MATMUL,
                                      .transpose_b = kernel->transpose_b,
                                      .dtype = kernel->dtype,
                                      .batch = 1,
                                      .m = kernel->m,
                                      .n = kernel->n,
                                      .k = kernel->k};
        const struct kernel_args args = {
                .p = {(void *)product->b, (void *)product->a, c},
                .ld = {kernel->k, kernel->transpose_b ? kernel->k : kernel->n, kernel->n},
                .inner = 1,
        };
        const struct kernel elementwise = {
                .dtype = kernel->dtype, .part = kernel->part, .batch = 1, .m = kernel->m, .n = kernel->n};
        const char *failed = plain(matmul, stream, &matrix, &args);
        if (failed)
                return failed;
        const cudaError_t status = after(stream, &elementwise, after_args, matmul->work);
        return status == cudaSuccess ? NULL : cudaGetErrorString(status);
}

static const char *unfused(struct cuda_matmul *matmul, cudaStream_t stream, const struct kernel *kernel,
                           const struct product *p)
{
        void *const bias = (void *)p->bias;
        switch (kernel->kind) {
        case KERNEL_MATMUL_BIAS_GELU:
                return in_two(matmul, stream, kernel, p, p->aux, cuda_bias_gelu,
                              &(struct kernel_args){.p = {p->d, p->aux, bias}});
        case KERNEL_MATMUL_BIAS_RESIDUAL:
                return in_two(matmul, stream, kernel, p, p->d, cuda_bias_residual,
                              &(struct kernel_args){.p = {p->d, bias, (void *)p->c}});
        case KERNEL_MATMUL_GELU_BACKWARD:
                return in_two(matmul, stream, kernel, p, p->d, cuda_gelu_backward,
                              &(struct kernel_args){.p = {p->d, p->aux}});
        default:
                return in_two(matmul, stream, kernel, p, p->d, cuda_bias,
                              &(struct kernel_args){.p = {p->d, bias}});
        }
}

static const char *fused(struct cuda_matmul *matmul, cudaStream_t stream, const struct kernel *kernel,
                         const struct kernel_args *args)
{
        const struct product product = fused_product(kernel, args);
        const struct shape shape = {
                .kind = kernel->kind,
                .dtype = kernel->dtype,
                .transpose_a = kernel->transpose_b,
                .rows = kernel->n,
                .columns = kernel->m,
                .k = kernel->k,
                .batch = 1,
                .lda = kernel->transpose_b ? kernel->k : kernel->n,
                .ldb = kernel->k,
                .ldd = kernel->n,
                .align_a = alignment((uintptr_t)product.a),
                .align_b = alignment((uintptr_t)product.b),
                .align_d = alignment((uintptr_t)product.d | (uintptr_t)product.c),
                .align_bias = alignment((uintptr_t)product.bias),
                .align_aux = alignment((uintptr_t)product.aux),
                .accumulate = kernel->kind == KERNEL_MATMUL_BIAS_RESIDUAL,
        };
        struct plan *plan;
        if (!may_fuse(matmul->work->capability, &shape, &product))
                return unfused(matmul, stream, kernel, &product);
        const cublasStatus_t status = plan_of(matmul, &shape, &product, stream, &plan);
        if (status != CUBLAS_STATUS_SUCCESS)
                return reason(status);
        return plan->unfused ? unfused(matmul, stream, kernel, &product)
                             : reason(run(matmul, plan, &product, stream));
}

/* By the kernels that each of its parts has. */
static const char *with_layernorm(struct cuda_matmul *matmul, cudaStream_t stream,
                                  const struct kernel *kernel, const struct kernel_args *args)
{
        struct kernel parts[KERNEL_PARTS];
        const struct kernel_args layernorm = kernels_layernorm_args(args);
        kernel_parts(kernel, parts);
        const char *failed = fused(matmul, stream, &parts[0], args);
        if (failed)
                return failed;
        const cudaError_t status = cuda_layernorm(stream, &parts[1], &layernorm, matmul->work);
        return status == cudaSuccess ? NULL : cudaGetErrorString(status);
}

const char *cuda_matmul(struct cuda_matmul *matmul, cudaStream_t stream, const struct kernel *kernel,
                        const struct kernel_args *args)
{
        if (kernel->kind == KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM)
                return with_layernorm(matmul, stream, kernel, args);
        return kernel->kind == KERNEL_MATMUL ? plain(matmul, stream, kernel, args)
                                             : fused(matmul, stream, kernel, args);
}
