/* Preloaded into a rank: an array of REFUSED elements finds no memory, all others do. */
#include <errno.h>
#include <stddef.h>

enum { REFUSED = 1234568 };

void *calloc(size_t count, size_t size);
void *__libc_calloc(size_t count, size_t size);

void *calloc(size_t count, size_t size)
{
        if (count != REFUSED)
                return __libc_calloc(count, size);
        errno = ENOMEM;
        return NULL;
}
