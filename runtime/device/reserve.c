#include "runtime/device/device.h"

int device_reserve(struct device *device, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err)
{
        if (device->reserved || !device->ops->reserve)
                return RV_OK;
        device->reserved = true;
        return device->ops->reserve(device, bytes, err);
}
