/* Which memory a kernel may touch. */
#ifndef RANVIER_TESTS_EMULATED_CHECK_HPP
#define RANVIER_TESTS_EMULATED_CHECK_HPP

#include <cstddef>

namespace emulated
{

/* Memory that the kernel may read and write, as far as it is known at once: threads' stacks, shared memory of
 * both kinds, the blocks that were accessed last. */
struct range {
        const unsigned char *start;
        size_t bytes;
};
enum {
        STACKS,
        DYNAMIC_SHARED,
        STATIC_SHARED,
        RECENT,
        WRITABLE = RECENT + 4,
        MODULE = WRITABLE,
        ARGUMENTS,
        RANGES
};
extern range ranges[RANGES];
extern bool kernel_runs; /* on a fiber */

/* Ends the kernel that runs if it may not read, or write, these bytes. Does nothing outside a kernel. */
void check_access(const void *pointer, size_t bytes, bool write);

static inline void check_quickly(const void *pointer, size_t bytes, bool write)
{
        const unsigned char *p = static_cast<const unsigned char *>(pointer);
        if (!kernel_runs)
                return;
        for (int i = 0; i < (write ? (int)WRITABLE : (int)RANGES); i++)
                if (p >= ranges[i].start && p + bytes <= ranges[i].start + ranges[i].bytes)
                        return;
        check_access(pointer, bytes, write);
}

/* Whether these bytes are static shared memory, of any kernel: they may be read and written from here on. */
bool reach_static(const void *pointer, size_t bytes);

/* Memory of one allocation, of the device or cudaHostAlloc's. */
bool is_allocated(const void *pointer, size_t bytes);

} // namespace emulated

#endif
