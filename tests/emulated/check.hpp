/* Which memory a kernel may touch. */
#ifndef RANVIER_TESTS_EMULATED_CHECK_HPP
#define RANVIER_TESTS_EMULATED_CHECK_HPP

#include <cstddef>

namespace emulated
{

/* Ends the kernel that runs if it may not read, or write, these bytes. Does nothing outside a kernel. */
void check_access(const void *pointer, size_t bytes, bool write);

bool in_kernel(void); /* on a fiber of a kernel that runs */
/* Threads' stacks, the block's shared memory; to read: the kernel's arguments and constants. */
bool is_kernels_own(const void *pointer, size_t bytes, bool write);
/* Memory of one allocation, of the device or cudaHostAlloc's. */
bool is_allocated(const void *pointer, size_t bytes);

} // namespace emulated

#endif
