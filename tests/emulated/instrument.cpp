/* What -fsanitize=kernel-address,alignment makes kernels call: every access to memory is checked, as NVIDIA's
 * compute-sanitizer does, and one that is not aligned to its vector ends the kernel, as it does on a GPU. */
#include "tests/emulated/check.hpp"
#include "tests/emulated/execute.hpp"

extern "C" {

#define ACCESS(bytes)                                                                                        \
        void __asan_load##bytes##_noabort(const void *pointer)                                               \
        {                                                                                                    \
                emulated::check_quickly(pointer, bytes, false);                                              \
        }                                                                                                    \
        void __asan_store##bytes##_noabort(void *pointer)                                                    \
        {                                                                                                    \
                emulated::check_quickly(pointer, bytes, true);                                               \
        }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
#undef ACCESS

void __asan_loadN_noabort(const void *pointer, size_t bytes)
{
        emulated::check_quickly(pointer, bytes, false);
}

void __asan_storeN_noabort(void *pointer, size_t bytes)
{
        emulated::check_quickly(pointer, bytes, true);
}

void __asan_handle_no_return(void)
{
}

/* The compiler's description of the access (UndefinedBehaviorSanitizer's). */
struct access {
        const char *file;
        unsigned line, column;
        const void *type;
        unsigned char log_alignment, kind;
};

static void misaligned(const struct access *access, const void *pointer)
{
        emulated::fail(cudaErrorMisalignedAddress, "%s:%u: an access of %p, which is not aligned to %u",
                       access->file, access->line, pointer, 1U << access->log_alignment);
}
void __ubsan_handle_type_mismatch_v1(const struct access *access, const void *pointer)
{
        misaligned(access, pointer);
}
void __ubsan_handle_type_mismatch_v1_abort(const struct access *access, const void *pointer)
{
        misaligned(access, pointer);
}
}
