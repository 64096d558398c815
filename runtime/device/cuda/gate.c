#include "runtime/device/cuda/gate.h"

#include <stdlib.h>
#include <string.h>

enum {
        TRIES_AT_FIRST = 1 << 14, /* some 20 milliseconds */
        FIRST_GATES = 3,          /* of which one must have been opened in that time */
        TRIES = 1 << 23           /* some 10 seconds */
};

/* Shapes and, of each operand, the alignment: what the choice of a kernel's code depends on. */
struct cuda_gate_form {
        struct kernel kernel;
        uint64_t alignments;       /* four bits an operand */
        struct kernel_args layout; /* leading dimensions, strides and inner batches; else zeros */
};

/* ---- kernels that were met ---- */

/* The largest power of two, at most 256, that divides an address, as its exponent; 15: there is none. */
static uint64_t alignment_of(const void *pointer)
{
        uint64_t exponent = 0;
        if (!pointer)
                return 15;
        while (exponent < 8 && !((uintptr_t)pointer >> exponent & 1))
                exponent++;
        return exponent;
}

static struct cuda_gate_form form_of(const struct kernel *kernel, const struct kernel_args *args)
{
        struct cuda_gate_form form = {.kernel = *kernel, .layout = *args};
        memset(form.layout.p, 0, sizeof form.layout.p);
        memset(form.layout.scalar, 0, sizeof form.layout.scalar);
        for (size_t i = 0; i < sizeof args->p / sizeof *args->p; i++)
                form.alignments |= alignment_of(args->p[i]) << 4 * i;
        return form;
}

static bool was_met(const struct cuda_gate *gate, const struct cuda_gate_form *form)
{
        for (size_t i = 0; i < gate->count; i++)
                if (gate->met[i].alignments == form->alignments &&
                    kernel_same(&gate->met[i].kernel, &form->kernel) &&
                    memcmp(&gate->met[i].layout, &form->layout, sizeof form->layout) == 0)
                        return true;
        return false;
}

static cudaError_t remember(struct cuda_gate *gate, const struct cuda_gate_form *form)
{
        if (gate->count == gate->capacity) {
                const size_t larger = gate->capacity ? 2 * gate->capacity : 64;
                struct cuda_gate_form *met = realloc(gate->met, larger * sizeof *met);
                if (!met)
                        return cudaErrorMemoryAllocation;
                gate->met = met;
                gate->capacity = larger;
        }
        gate->met[gate->count++] = *form;
        return cudaSuccess;
}

/* ---- gates ---- */

/* Queues a closed gate and opens the one before it. */
static cudaError_t put(struct cuda_gate *gate, cudaStream_t stream, int64_t tries)
{
        const cudaError_t status = cuda_wait_for_host(stream, gate->words, gate->last + 1, tries);
        if (status != cudaSuccess)
                return status;
        gate->words[0] = gate->last++;
        gate->closed = true;
        gate->behind = 0;
        return cudaSuccess;
}

void cuda_gate_release(struct cuda_gate *gate)
{
        if (gate->closed)
                gate->words[0] = gate->last;
        gate->closed = false;
}

/* Where the launch of a gate itself waits for its end, as under some debuggers, it gives up; so it does where
 * the host was away for that long, so more than one is tried. */
static cudaError_t try_one(struct cuda_gate *gate, cudaStream_t stream)
{
        void *words = NULL;
        cudaError_t status = cudaHostAlloc(&words, 2 * sizeof *gate->words, cudaHostAllocPortable);
        if (status != cudaSuccess)
                return status;
        gate->words = words;
        gate->words[0] = 0;
        gate->useless = true;
        for (int i = 0; i < FIRST_GATES && status == cudaSuccess && gate->useless; i++) {
                gate->words[1] = 0;
                status = put(gate, stream, TRIES_AT_FIRST);
                cuda_gate_release(gate);
                if (status == cudaSuccess)
                        status = cudaStreamSynchronize(stream);
                gate->useless = gate->words[1] != 0;
        }
        return status;
}

cudaError_t cuda_gate_hold(struct cuda_gate *gate, cudaStream_t stream, const struct kernel *kernel,
                           const struct kernel_args *args)
{
        const struct cuda_gate_form form = form_of(kernel, args);
        cudaError_t status = gate->words ? cudaSuccess : try_one(gate, stream);
        if (status != cudaSuccess || gate->useless)
                return status;
        if (!was_met(gate, &form)) {
                cuda_gate_release(gate);
                return remember(gate, &form);
        }
        if (!gate->closed || gate->behind == CUDA_GATE_KERNELS)
                status = put(gate, stream, TRIES);
        gate->behind++;
        return status;
}

bool cuda_gate_gave_up(const struct cuda_gate *gate)
{
        return gate->words && !gate->useless && gate->words[1] != 0;
}

void cuda_gate_free(struct cuda_gate *gate)
{
        if (gate->words)
                cudaFreeHost((void *)gate->words);
        free(gate->met);
        *gate = (struct cuda_gate){0};
}
