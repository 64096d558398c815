/* Devices by name. The CUDA device is a plugin: a program runs where neither CUDA nor a GPU is. */
#include "runtime/device/device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Beside the program that runs, or the file that RANVIER_DEVICE_CUDA names. */
static bool plugin_path(char *path, size_t bytes)
{
        static const char plugin[] = "device_cuda.so";
        const char *given = getenv("RANVIER_DEVICE_CUDA");
        if (given && *given)
                return (size_t)snprintf(path, bytes, "%s", given) < bytes;
        const ssize_t length = readlink("/proc/self/exe", path, bytes);
        if (length < 0 || (size_t)length >= bytes)
                return false;
        path[length] = '\0';
        char *name = strrchr(path, '/') + 1;
        if ((size_t)(name - path) + sizeof plugin > bytes)
                return false;
        memcpy(name, plugin, sizeof plugin);
        return true;
}

/* The plugin stays loaded: CUDA does not like to be unloaded. */
static device_plugin_fn *load_plugin(struct rv_error_info *err)
{
        char path[4096];
        if (!plugin_path(path, sizeof path) || access(path, F_OK)) {
                rv_fail(err, RV_ENOTBUILT,
                        "--device cuda was not built here (there is no %.300s): where the CUDA toolkit's "
                        "nvcc "
                        "is, 'make CUDA=1' builds it",
                        path);
                return NULL;
        }
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        void *symbol = plugin ? dlsym(plugin, DEVICE_CUDA_SYMBOL) : NULL;
        if (!symbol) {
                rv_fail(err, RV_ENOTBUILT, "--device cuda does not load: %.400s", dlerror());
                return NULL;
        }
        device_plugin_fn *open;
        memcpy(&open, &symbol, sizeof open); /* POSIX's way around ISO C, which knows no such conversion */
        return open;
}

struct device *device_open(const char *name, const struct device_request *request, struct rv_error_info *err)
{
        if (strcmp(name, "cpu") == 0) {
                struct device *device = device_cpu_open(request->threads, err);
                if (device)
                        device->host_link_bytes_per_second = request->host_link_bytes_per_second;
                return device;
        }
        if (strcmp(name, "cuda") == 0) {
                device_plugin_fn *open = load_plugin(err);
                return open ? open(request, err) : NULL;
        }
        rv_fail(err, RV_EINPUT, "--device '%.64s': there is no such device, only cpu and cuda", name);
        return NULL;
}
