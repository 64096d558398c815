/* The emulated CUDA itself: kernels whose result is known, kernels that do wrong and must be found out, and
 * what streams, events, memory and graphs guarantee. */
#include "runtime/device/cuda/ptx.cuh"
#include "tests/emulated/control.h"

#include <cublasLt.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

enum { SEEDS = 20 };

#define check(call) assert_int_equal(call, cudaSuccess)

template <typename T> static T *device_array(size_t count)
{
        void *memory;
        check(cudaMalloc(&memory, count * sizeof(T)));
        return (T *)memory;
}

template <typename T> static T *host_array(size_t count)
{
        void *memory;
        check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocDefault));
        return (T *)memory;
}

static cudaStream_t new_stream(void)
{
        cudaStream_t stream;
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        return stream;
}

static int forget(void **state)
{
        (void)state;
        emulated_clear_report();
        emulated_set_seed(1);
        return 0;
}

/* ---- kernels ---- */

static __global__ void reverse(int *x, bool barrier)
{
        __shared__ int shared[256];
        shared[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
        if (barrier)
                __syncthreads();
        x[blockIdx.x * blockDim.x + threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

/* Whether 3 blocks of 256 threads were reversed. */
static bool reverses(bool barrier)
{
        cudaStream_t stream = new_stream();
        int *x = host_array<int>(768);
        bool right = true;
        for (int i = 0; i < 768; i++)
                x[i] = i;
        CUDA_LAUNCH(reverse, 3, 256, 0, stream, x, barrier);
        check(cudaGetLastError());
        check(cudaStreamSynchronize(stream));
        for (int i = 0; i < 768; i++)
                right = right && x[i] == i / 256 * 256 + 255 - i % 256;
        check(cudaFreeHost(x));
        check(cudaStreamDestroy(stream));
        return right;
}

static void a_barrier_orders_threads_and_its_lack_is_seen(void **)
{
        for (int seed = 1; seed <= SEEDS; seed++) {
                emulated_set_seed(seed);
                assert_true(reverses(true));
                assert_false(reverses(false));
        }
}

static __global__ void sums(float *out, const float *in, int skip)
{
        float x = in[threadIdx.y * 32 + threadIdx.x];
        for (int with = 16; with > 0; with /= 2)
                if ((int)threadIdx.x != skip)
                        x += __shfl_xor_sync(0xffffffffU, x, with);
        out[threadIdx.y * 32 + threadIdx.x] = x;
}

static void shuffles_add_up_in_every_lane(void **)
{
        cudaStream_t stream = new_stream();
        float *in = host_array<float>(96), *out = device_array<float>(96), *found = host_array<float>(96);
        for (int i = 0; i < 96; i++)
                in[i] = (float)(i % 32 + i / 32);
        CUDA_LAUNCH(sums, 1, dim3(32, 3), 0, stream, out, in, -1);
        check(cudaMemcpyAsync(found, out, 96 * sizeof *out, cudaMemcpyDeviceToHost, stream));
        check(cudaStreamSynchronize(stream));
        for (int i = 0; i < 96; i++)
                assert_true(found[i] == 496 + 32 * (i / 32));
        check(cudaFree(out));
        check(cudaFreeHost(in));
        check(cudaFreeHost(found));
        check(cudaStreamDestroy(stream));
}

static __global__ void neighbours(int *out)
{
        const int lane = (int)threadIdx.x;
        out[lane] = __shfl_down_sync(0xffffffffU, lane, 1);
        out[32 + lane] = __shfl_up_sync(0xffffffffU, lane, 3);
        out[64 + lane] = __shfl_sync(0xffffffffU, lane, 5, 8);
        out[96 + lane] = (int)__ballot_sync(0xffffffffU, lane % 3 == 0);
        out[128 + lane] = lane < 16 ? __shfl_sync(0xffffU, lane, 15) : -lane;
}

static void shuffles_and_votes_are_those_of_cuda(void **)
{
        cudaStream_t stream = new_stream();
        int *out = host_array<int>(160);
        unsigned thirds = 0;
        for (int lane = 0; lane < 32; lane += 3)
                thirds |= 1U << lane;
        CUDA_LAUNCH(neighbours, 1, 32, 0, stream, out);
        check(cudaStreamSynchronize(stream));
        for (int lane = 0; lane < 32; lane++) {
                assert_int_equal(out[lane], lane == 31 ? 31 : lane + 1);
                assert_int_equal(out[32 + lane], lane < 3 ? lane : lane - 3);
                assert_int_equal(out[64 + lane], lane / 8 * 8 + 5);
                assert_int_equal(out[96 + lane], (int)thirds);
                assert_int_equal(out[128 + lane], lane < 16 ? 15 : -lane);
        }
        check(cudaFreeHost(out));
        check(cudaStreamDestroy(stream));
}

/* ---- kernels that do wrong ---- */

static __global__ void exits_early(void)
{
        if (threadIdx.x == 7)
                return;
        __syncthreads();
}

static __global__ void counts_barriers_otherwise(void)
{
        for (unsigned i = 0; i < 2 + threadIdx.x / 64; i++)
                __syncthreads();
}

static __global__ void leaves_its_mask(int *out)
{
        out[threadIdx.x] = __shfl_sync(0xfffffffeU, (int)threadIdx.x, 1);
}

static __global__ void reads_outside_its_mask(int *out)
{
        if (threadIdx.x < 16)
                out[threadIdx.x] = __shfl_sync(0xffffU, (int)threadIdx.x, 20);
}

static __global__ void writes_dynamic(int at)
{
        CUDA_DYNAMIC_SHARED(shared);
        if (threadIdx.x == 0)
                shared[at] = 1;
}

/* Waits for the kernel that was launched: it must have failed, saying `words`. */
static void expect_report(cudaStream_t stream, const char *words)
{
        assert_int_not_equal(cudaStreamSynchronize(stream), cudaSuccess);
        if (!strstr(emulated_report(), words))
                fail_msg("not in the report: %s", words);
        assert_int_not_equal(cudaGetLastError(), cudaSuccess); /* and so does every call after it */
        emulated_clear_report();
        check(cudaStreamSynchronize(stream));
}

static void divergence_is_reported(void **)
{
        cudaStream_t stream = new_stream();
        int *out = host_array<int>(64);
        float *numbers = host_array<float>(64);
        for (int seed = 1; seed <= SEEDS; seed++) {
                emulated_set_seed(seed);
                CUDA_LAUNCH(exits_early, 2, 64, 0, stream);
                expect_report(stream, "63 threads wait at __syncthreads");
                CUDA_LAUNCH(counts_barriers_otherwise, 2, 128, 0, stream);
                expect_report(stream, "64 threads wait at __syncthreads");
                CUDA_LAUNCH(sums, 1, dim3(32, 2), 0, stream, numbers, numbers, 9);
                expect_report(stream, "__shfl_xor_sync of lanes 0xffffffff");
                CUDA_LAUNCH(sums, 1, 24, 0, stream, numbers, numbers, -1); /* 8 lanes are not there */
                expect_report(stream, "24 wait at a warp operation");
                CUDA_LAUNCH(leaves_its_mask, 1, 32, 0, stream, out);
                expect_report(stream, "is not in its own mask");
                CUDA_LAUNCH(reads_outside_its_mask, 1, 32, 0, stream, out);
                expect_report(stream, "shuffles from lane 20");
                assert_true(reverses(true)); /* the next kernel is not harmed */
        }
        check(cudaFreeHost(out));
        check(cudaFreeHost(numbers));
        check(cudaStreamDestroy(stream));
}

static void writes_beyond_dynamic_shared_memory_are_reported(void **)
{
        cudaStream_t stream = new_stream();
        CUDA_LAUNCH(writes_dynamic, 1, 32, 100, stream, 99);
        check(cudaStreamSynchronize(stream));
        CUDA_LAUNCH(writes_dynamic, 1, 32, 100, stream, 100);
        expect_report(stream, "");
        CUDA_LAUNCH(writes_dynamic, 1, 32, 100, stream, -1);
        expect_report(stream, "");
        check(cudaStreamDestroy(stream));
}

#ifndef EMULATED_SAN /* which finds these itself, or ends the process where it does not */
static __global__ void writes(int *x, int64_t at)
{
        if (threadIdx.x == 0)
                x[at] = 1;
}

static __global__ void loads_vector(float4 *to, const float *from, int at)
{
        if (threadIdx.x == 0)
                *to = *(const float4 *)(from + at);
}

static void accesses_of_memory_that_is_not_the_device_s_are_reported(void **)
{
        cudaStream_t stream = new_stream();
        static int own[4];
        int *x = device_array<int>(10), *pinned = host_array<int>(10), on_stack[4], *heap = new int[4];
        CUDA_LAUNCH(writes, 1, 32, 0, stream, x, 9);
        CUDA_LAUNCH(writes, 1, 32, 0, stream, pinned, 9);
        check(cudaStreamSynchronize(stream));
        int *const wrong[] = {x + 10, x - 1, pinned + 10, on_stack, heap, own, nullptr};
        for (int *place : wrong) {
                CUDA_LAUNCH(writes, 1, 32, 0, stream, place, 0);
                expect_report(stream, "which is no memory of the device");
        }
        delete[] heap;
        check(cudaFree(x));
        check(cudaFreeHost(pinned));
        check(cudaStreamDestroy(stream));
}

static void accesses_that_are_not_aligned_are_reported(void **)
{
        cudaStream_t stream = new_stream();
        float *x = device_array<float>(16);
        float4 *to = host_array<float4>(1);
        CUDA_LAUNCH(loads_vector, 1, 32, 0, stream, to, x, 4);
        check(cudaStreamSynchronize(stream));
        CUDA_LAUNCH(loads_vector, 1, 32, 0, stream, to, x, 2);
        expect_report(stream, "not aligned to 16");
        check(cudaFree(x));
        check(cudaFreeHost(to));
        check(cudaStreamDestroy(stream));
}
#endif

static void launches_beyond_a_gpu_s_limits_are_refused(void **)
{
        cudaStream_t stream = new_stream();
        CUDA_LAUNCH(exits_early, 0, 32, 0, stream);
        assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
        CUDA_LAUNCH(exits_early, 1, 1025, 0, stream);
        assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
        CUDA_LAUNCH(exits_early, dim3(1, 65536), 32, 0, stream);
        assert_int_equal(cudaGetLastError(), cudaErrorInvalidConfiguration);
        CUDA_LAUNCH(writes_dynamic, 1, 32, 50000, stream, 0);
        assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
        check(cudaGetLastError());
        check(cudaFuncSetAttribute(writes_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 50000));
        CUDA_LAUNCH(writes_dynamic, 1, 32, 50000, stream, 0);
        check(cudaGetLastError());
        check(cudaStreamSynchronize(stream));
        check(cudaStreamDestroy(stream));
}

/* ---- tensor cores ---- */

template <bool bf16> static uint32_t pair(float low, float high)
{
        if (bf16)
                return __nv_bfloat16(low).__x | (uint32_t)__nv_bfloat16(high).__x << 16;
        return __half(low).__x | (uint32_t)__half(high).__x << 16;
}

/* out (16,8) = a (16,16) b (16,8): a and b in shared memory, row by row, b read through its transpose. */
template <bool bf16> static __global__ void product(float *out, const float *a, const float *b)
{
        __shared__ __align__(16) uint32_t as[16][8],
                bs[16][8]; /* b has 8 columns beside those that are used */
        const int lane = (int)threadIdx.x;
        for (int i = lane; i < 128; i += 32) {
                as[i / 8][i % 8] = pair<bf16>(a[2 * i], a[2 * i + 1]);
                bs[i / 8][i % 8] =
                        i % 8 < 4 ? pair<bf16>(b[i / 8 * 8 + 2 * (i % 8)], b[i / 8 * 8 + 2 * (i % 8) + 1])
                                  : 0;
        }
        __syncwarp();
        uint32_t a_registers[4], b_registers[4];
        ldmatrix_x4(a_registers, (unsigned char *)as[lane % 16] + lane / 16 * 16);
        ldmatrix_x4_transposed(b_registers, (unsigned char *)bs[lane % 16] + lane / 16 * 16);
        float d[4] = {1, 2, 3, 4};
        if (bf16)
                mma_bf16(d, a_registers, b_registers);
        else
                mma_fp16(d, a_registers, b_registers);
        for (int i = 0; i < 4; i++)
                out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i] - (float)(i + 1);
}

static void tensor_cores_multiply(void **)
{
        cudaStream_t stream = new_stream();
        float *a = host_array<float>(256), *b = host_array<float>(128), *out = host_array<float>(128);
        for (int i = 0; i < 256; i++)
                a[i] = (float)(i * 7 % 23 - 11);
        for (int i = 0; i < 128; i++)
                b[i] = (float)(i * 5 % 19 - 9);
        for (int bf16 = 0; bf16 < 2; bf16++) {
                if (bf16)
                        CUDA_LAUNCH(product<true>, 1, 32, 0, stream, out, a, b);
                else
                        CUDA_LAUNCH(product<false>, 1, 32, 0, stream, out, a, b);
                check(cudaStreamSynchronize(stream));
                for (int i = 0; i < 128; i++) {
                        float sum = 0;
                        for (int k = 0; k < 16; k++)
                                sum += a[i / 8 * 16 + k] * b[k * 8 + i % 8];
                        assert_true(out[i] == sum);
                }
        }
        check(cudaFreeHost(a));
        check(cudaFreeHost(b));
        check(cudaFreeHost(out));
        check(cudaStreamDestroy(stream));
}

static __global__ void copies_late(uint32_t *out, const uint32_t *in, int pending)
{
        __shared__ __align__(16) uint32_t shared[2][32][4];
        const int lane = (int)threadIdx.x;
        copy_async_16(shared[0][lane], in + 4 * lane, true);
        copy_async_commit();
        copy_async_16(shared[1][lane], in + 4 * lane, lane % 2 == 0);
        copy_async_commit();
        if (pending == 1)
                copy_async_wait<1>();
        else if (pending == 0)
                copy_async_wait<0>();
        for (int i = 0; i < 8; i++)
                out[8 * lane + i] = shared[i / 4][lane][i % 4];
}

static void asynchronous_copies_arrive_when_they_are_waited_for(void **)
{
        cudaStream_t stream = new_stream();
        uint32_t *in = host_array<uint32_t>(128), *out = host_array<uint32_t>(256);
        for (uint32_t i = 0; i < 128; i++)
                in[i] = i;
        for (int pending = 0; pending < 3; pending++) {
                CUDA_LAUNCH(copies_late, 1, 32, 0, stream, out, in, pending);
                check(cudaStreamSynchronize(stream));
                for (uint32_t i = 0; i < 256; i++) {
                        const uint32_t lane = i / 8, value = lane * 4 + i % 4;
                        const bool arrived = i % 8 < 4 ? pending < 2 : pending < 1;
                        assert_int_equal(out[i], !arrived                     ? 0xffffffffU
                                                 : i % 8 < 4 || lane % 2 == 0 ? value
                                                                              : 0);
                }
        }
        check(cudaFreeHost(in));
        check(cudaFreeHost(out));
        check(cudaStreamDestroy(stream));
}

/* ---- streams ---- */

static __global__ void add(int *x, int what)
{
        *x = 10 * *x + what;
}

static void a_missing_dependency_is_seen_and_an_event_is_one(void **)
{
        cudaStream_t first = new_stream(), second = new_stream();
        cudaEvent_t event;
        int *x = host_array<int>(1), wrong = 0;
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        for (int i = 0; i < 200; i++) {
                const bool waits = i % 2;
                *x = 0;
                CUDA_LAUNCH(add, 1, 1, 0, first, x, 1);
                check(cudaEventRecord(event, first));
                if (waits)
                        check(cudaStreamWaitEvent(second, event, 0));
                CUDA_LAUNCH(add, 1, 1, 0, second, x, 2);
                check(cudaStreamSynchronize(second));
                check(cudaStreamSynchronize(first));
                assert_true(!waits || *x == 12);
                wrong += *x != 12;
        }
        assert_true(wrong > 20);
        check(cudaEventDestroy(event));
        check(cudaFreeHost(x));
        check(cudaStreamDestroy(first));
        check(cudaStreamDestroy(second));
}

static void queries_make_progress_and_say_not_ready_before(void **)
{
        cudaStream_t stream = new_stream();
        cudaEvent_t start, end;
        int *x = host_array<int>(1), not_ready = 0;
        float milliseconds;
        check(cudaEventCreate(&start));
        check(cudaEventCreate(&end));
        check(cudaEventQuery(end)); /* never recorded: nothing to wait for */
        for (int round = 0; round < 50; round++) {
                *x = 0;
                check(cudaEventRecord(start, stream));
                for (int i = 0; i < 5; i++)
                        CUDA_LAUNCH(add, 1, 1, 0, stream, x, 0);
                CUDA_LAUNCH(add, 1, 1, 0, stream, x, 1);
                check(cudaEventRecord(end, stream));
                cudaError_t error;
                while ((error = cudaEventQuery(end)) == cudaErrorNotReady) {
                        not_ready++;
                        assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
                }
                check(error);
                assert_int_equal(*x, 1);
                check(cudaEventElapsedTime(&milliseconds, start, end));
                assert_true(milliseconds >= 0);
        }
        assert_true(not_ready > 20);
        check(cudaEventDestroy(start));
        check(cudaEventDestroy(end));
        check(cudaFreeHost(x));
        check(cudaStreamDestroy(stream));
}

/* ---- memory ---- */

static void fresh_memory_is_not_zero_and_the_size_is_held(void **)
{
        size_t before, after, total;
        void *all;
        check(cudaMemGetInfo(&before, &total));
        unsigned char *x = device_array<unsigned char>(5000), copy[5000];
        check(cudaMemGetInfo(&after, &total));
        assert_int_equal(before - after, 8192);
        check(cudaMemcpy(copy, x, 5000, cudaMemcpyDeviceToHost));
        for (int i = 0; i < 5000; i++)
                assert_int_equal(copy[i], 255);
        assert_int_equal(cudaMemcpy(copy, x + 1, 5000, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
        assert_int_equal(cudaMemcpy(copy, x, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
        assert_int_equal(cudaMalloc(&all, total), cudaErrorMemoryAllocation);
        assert_null(all);
        check(cudaFree(x));
        assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
}

static void host_code_that_touches_device_memory_crashes(void **)
{
        int *x = device_array<int>(1);
        const pid_t child = fork();
        if (child == 0) {
                signal(SIGSEGV, SIG_DFL); /* not the test's own */
                *(volatile int *)x = 1;
                _exit(0);
        }
        int status;
        assert_true(waitpid(child, &status, 0) == child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        check(cudaFree(x));
}

static void pageable_memory_is_read_at_once(void **)
{
        cudaStream_t stream = new_stream();
        int *x = device_array<int>(1), *pinned = host_array<int>(1), pageable = 1, found;
        const int64_t before = emulated_counts()->pageable_copies;
        check(cudaMemcpyAsync(x, &pageable, sizeof *x, cudaMemcpyHostToDevice, stream));
        pageable = 2;
        check(cudaMemcpyAsync(&found, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
        assert_int_equal(found, 1);
        assert_int_equal(emulated_counts()->pageable_copies - before, 2);
        int changed = 0;
        for (int i = 0; i < 50; i++) { /* pinned memory is read later */
                *pinned = 1;
                check(cudaMemcpyAsync(x, pinned, sizeof *x, cudaMemcpyHostToDevice, stream));
                *pinned = 2;
                check(cudaMemcpyAsync(&found, x, sizeof *x, cudaMemcpyDeviceToHost, stream));
                changed += found == 2;
        }
        assert_true(changed > 10);
        check(cudaFree(x));
        check(cudaFreeHost(pinned));
        check(cudaStreamDestroy(stream));
}

static void registered_memory_is_pinned_until_it_is_unregistered(void **)
{
        int *x = device_array<int>(1), *mine = new int[2]{1, 2};
        const int64_t before = emulated_counts()->pageable_copies;
        check(cudaHostRegister(mine, 2 * sizeof *mine, cudaHostRegisterPortable));
        check(cudaMemcpy(x, mine + 1, sizeof *x, cudaMemcpyHostToDevice));
        assert_int_equal(emulated_counts()->pageable_copies, before);
        assert_int_equal(cudaHostRegister(mine, sizeof *mine, cudaHostRegisterPortable),
                         cudaErrorInvalidValue);
        assert_int_equal(cudaFreeHost(mine), cudaErrorInvalidValue);
        check(cudaHostUnregister(mine));
        assert_int_equal(cudaHostUnregister(mine), cudaErrorInvalidValue);
        (void)cudaGetLastError();
        check(cudaMemcpy(mine, x, sizeof *x, cudaMemcpyDeviceToHost));
        assert_int_equal(mine[0], 2);
        assert_int_equal(emulated_counts()->pageable_copies, before + 1);
        check(cudaFree(x));
        delete[] mine;
}

/* ---- products ---- */

/* What every product here has: a (4,3) by columns and transposed b (8,3), d (4,8), in fp32; d and aux may be
 * elsewhere. */
struct product_case {
        cublasLtMatmulDesc_t desc;
        cublasLtMatrixLayout_t a, b, d;
        cublasLtMatmulPreference_t preference;
        cublasLtHandle_t handle;
};

static product_case new_product(cublasLtEpilogue_t epilogue, const void *bias, const void *aux,
                                int64_t aux_ld, uint32_t alignment)
{
        product_case p;
        const int32_t transposed = CUBLAS_OP_T;
        check(cublasLtCreate(&p.handle));
        check(cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &transposed,
                                             sizeof transposed));
        check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                             sizeof epilogue));
        check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
        check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux,
                                             sizeof aux));
        check(cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld,
                                             sizeof aux_ld));
        check(cublasLtMatrixLayoutCreate(&p.a, CUDA_R_32F, 4, 3, 4));
        check(cublasLtMatrixLayoutCreate(&p.b, CUDA_R_32F, 8, 3, 8));
        check(cublasLtMatrixLayoutCreate(&p.d, CUDA_R_32F, 4, 8, 4));
        check(cublasLtMatmulPreferenceCreate(&p.preference));
        for (int i = CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
             i <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES; i++)
                check(cublasLtMatmulPreferenceSetAttribute(
                        p.preference, (cublasLtMatmulPreferenceAttributes_t)i, &alignment, sizeof alignment));
        return p;
}

static void delete_product(const product_case *p)
{
        cublasLtMatmulPreferenceDestroy(p->preference);
        cublasLtMatrixLayoutDestroy(p->a);
        cublasLtMatrixLayoutDestroy(p->b);
        cublasLtMatrixLayoutDestroy(p->d);
        cublasLtMatmulDescDestroy(p->desc);
        cublasLtDestroy(p->handle);
}

static cublasStatus_t heuristic(const product_case *p, cublasLtMatmulHeuristicResult_t *result)
{
        int found;
        return cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->a, p->b, p->d, p->d, p->preference, 1,
                                              result, &found);
}

static void products_are_right_and_what_was_not_promised_is_refused(void **)
{
        cudaStream_t stream = new_stream();
        float *a = host_array<float>(16), *b = host_array<float>(32), *d = host_array<float>(64);
        float *bias = host_array<float>(16), *aux = host_array<float>(64), one = 1, zero = 0;
        cublasLtMatmulHeuristicResult_t result;
        for (int i = 0; i < 32; i++) {
                a[i % 16] = (float)(i % 16) - 7;
                b[i] = (float)(i * 3 % 11) - 5;
                bias[i % 16] = (float)(i % 16) / 2;
        }
        const struct {
                cublasLtEpilogue_t epilogue;
                const void *bias, *aux;
                int64_t aux_ld;
                uint32_t alignment;
                bool refused;
        } cases[] = {{CUBLASLT_EPILOGUE_DEFAULT, nullptr, nullptr, 0, 4, false},
                     {CUBLASLT_EPILOGUE_BIAS, bias, nullptr, 0, 16, false},
                     {CUBLASLT_EPILOGUE_BIAS, bias + 1, nullptr, 0, 16, true},
                     {CUBLASLT_EPILOGUE_BIAS, bias, nullptr, 0, 8, true},
                     {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias, aux, 8, 16, false},
                     {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias, aux, 4, 16, true},
                     {CUBLASLT_EPILOGUE_GELU_AUX_BIAS, bias, aux + 1, 8, 16, true}};
        for (const auto &c : cases) {
                const product_case p = new_product(c.epilogue, c.bias, c.aux, c.aux_ld, c.alignment);
                assert_int_equal(heuristic(&p, &result),
                                 c.refused ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS);
                if (!c.refused) {
                        check(cublasLtMatmul(p.handle, p.desc, &one, a, p.a, b, p.b, &zero, d, p.d, d, p.d,
                                             &result.algo, nullptr, 0, stream));
                        check(cudaStreamSynchronize(stream));
                        for (int i = 0; i < 32; i++) {
                                float sum = c.bias ? bias[i % 4] : 0;
                                for (int k = 0; k < 3; k++)
                                        sum += a[k * 4 + i % 4] * b[k * 8 + i / 4];
                                const float gelu =
                                        0.5F * sum *
                                        (1 + tanhf(0.7978845608F * (sum + 0.044715F * sum * sum * sum)));
                                assert_true(!c.aux || aux[i / 4 * 8 + i % 4] == sum);
                                assert_true(fabsf(d[i] - (c.aux ? gelu : sum)) <= 1e-5F);
                        }
                        assert_int_equal(cublasLtMatmul(p.handle, p.desc, &one, a, p.a, b, p.b, &zero, d, p.d,
                                                        (char *)d + c.alignment / 2, p.d, &result.algo,
                                                        nullptr, 0, stream),
                                         CUBLAS_STATUS_INVALID_VALUE);
                }
                delete_product(&p);
        }
        float *const all[] = {a, b, d, bias, aux};
        for (float *array : all)
                check(cudaFreeHost(array));
        check(cudaStreamDestroy(stream));
}

/* ---- graphs, failures ---- */

static void a_graph_repeats_what_was_captured_and_nothing_else(void **)
{
        cudaStream_t stream = new_stream();
        int *x = host_array<int>(1);
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        *x = 0;
        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        CUDA_LAUNCH(add, 1, 1, 0, stream, x, 1);
        CUDA_LAUNCH(add, 1, 1, 0, stream, x, 2);
        check(cudaStreamEndCapture(stream, &graph));
        check(cudaStreamSynchronize(stream));
        assert_int_equal(*x, 0);
        check(cudaGraphInstantiateWithFlags(&exec, graph, 0));
        check(cudaGraphDestroy(graph));
        check(cudaGraphLaunch(exec, stream));
        check(cudaGraphLaunch(exec, stream));
        check(cudaStreamSynchronize(stream));
        assert_int_equal(*x, 1212);
        check(cudaGraphExecDestroy(exec));

        check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        void *memory;
        assert_int_equal(cudaMalloc(&memory, 8), cudaErrorStreamCaptureUnsupported);
        assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
        check(cudaFreeHost(x));
        check(cudaStreamDestroy(stream));
        (void)cudaGetLastError();
}

static void the_nth_call_fails_on_demand(void **)
{
        void *memory[3];
        emulated_inject("cudaMalloc", 2, cudaErrorMemoryAllocation);
        check(cudaMalloc(&memory[0], 8));
        assert_int_equal(cudaMalloc(&memory[1], 8), cudaErrorMemoryAllocation);
        check(cudaMalloc(&memory[2], 8));
        assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
        check(cudaGetLastError());
        check(cudaFree(memory[0]));
        check(cudaFree(memory[2]));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(a_barrier_orders_threads_and_its_lack_is_seen, forget),
                cmocka_unit_test_setup(shuffles_add_up_in_every_lane, forget),
                cmocka_unit_test_setup(shuffles_and_votes_are_those_of_cuda, forget),
                cmocka_unit_test_setup(divergence_is_reported, forget),
                cmocka_unit_test_setup(writes_beyond_dynamic_shared_memory_are_reported, forget),
#ifndef EMULATED_SAN
                cmocka_unit_test_setup(accesses_of_memory_that_is_not_the_device_s_are_reported, forget),
                cmocka_unit_test_setup(accesses_that_are_not_aligned_are_reported, forget),
#endif
                cmocka_unit_test_setup(launches_beyond_a_gpu_s_limits_are_refused, forget),
                cmocka_unit_test_setup(tensor_cores_multiply, forget),
                cmocka_unit_test_setup(asynchronous_copies_arrive_when_they_are_waited_for, forget),
                cmocka_unit_test_setup(a_missing_dependency_is_seen_and_an_event_is_one, forget),
                cmocka_unit_test_setup(queries_make_progress_and_say_not_ready_before, forget),
                cmocka_unit_test_setup(fresh_memory_is_not_zero_and_the_size_is_held, forget),
                cmocka_unit_test_setup(host_code_that_touches_device_memory_crashes, forget),
                cmocka_unit_test_setup(pageable_memory_is_read_at_once, forget),
                cmocka_unit_test_setup(registered_memory_is_pinned_until_it_is_unregistered, forget),
                cmocka_unit_test_setup(products_are_right_and_what_was_not_promised_is_refused, forget),
                cmocka_unit_test_setup(a_graph_repeats_what_was_captured_and_nothing_else, forget),
                cmocka_unit_test_setup(the_nth_call_fails_on_demand, forget),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
