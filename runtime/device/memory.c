#define _DEFAULT_SOURCE /* madvise */
#include "runtime/device/device.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

int device_reserve(struct device *device, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err)
{
        if (device->reserved || !device->ops->reserve)
                return RV_OK;
        device->reserved = true;
        return device->ops->reserve(device, bytes, err);
}

void *device_host_alloc(struct device *device, int64_t bytes)
{
        const size_t whole = ((size_t)bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
        void *memory = aligned_alloc(HUGE_PAGE, whole);
        if (!memory)
                return NULL;
        madvise(memory, whole, MADV_HUGEPAGE);
        memset(memory, 0, whole); /* takes the pages */
        if (device->ops->pin)
                device->ops->pin(device, memory, (int64_t)whole);
        return memory;
}

void device_host_free(struct device *device, void *memory)
{
        if (memory && device->ops->unpin)
                device->ops->unpin(device, memory);
        free(memory);
}
