/* Devices by name. The CUDA device is a plugin: a program runs where neither CUDA nor a GPU is. */
#include "runtime/base/parse.h"
#include "runtime/base/plugin.h"
#include "runtime/device/device.h"

#include <string.h>

static const char *const attentions[] = {
        [ATTENTION_OURS] = "ours", [ATTENTION_CUDNN] = "cudnn", [ATTENTION_AUTO] = "auto", NULL};
const struct option_words device_attention_words = {.names = attentions};

int device_parse_attention(void *source, const char *option, const char *text, struct rv_error_info *err)
{
        int which = 0;
        const int rc = parse_name(option, text, attentions, &which, err);
        if (rc == RV_OK)
                *(enum attention_source *)source = (enum attention_source)which;
        return rc;
}

int device_check_attention(enum attention_source source, bool gpu, bool fused, bool fp32,
                           struct rv_error_info *err)
{
        if (source != ATTENTION_OURS && !gpu)
                return rv_fail(err, RV_EINPUT, "--attention is for --device cuda; the CPU has its own");
        if (source == ATTENTION_CUDNN && (!fused || fp32))
                return rv_fail(err, RV_EINPUT,
                               "--attention cudnn is of fused attention in 16 bits: it does not go with %s",
                               fused ? "--precision fp32" : "--fusion off");
        return RV_OK;
}

static device_plugin_fn *load_plugin(struct rv_error_info *err)
{
        return (device_plugin_fn *)plugin_load(
                "device_cuda.so", "RANVIER_DEVICE_CUDA", DEVICE_CUDA_SYMBOL, "--device cuda",
                "where the CUDA toolkit's nvcc is, 'make CUDA=1' builds it", err);
}

/* To wake a host takes some 0.04 ms where its processor has gone idle: much for an operation of a
 * millisecond, nothing for one of a hundred. One that kernels leave a processor to stays awake for the
 * former. */
static const double short_operation_seconds = 3e-3;

struct device *device_open(const char *name, const struct device_request *request, struct rv_error_info *err)
{
        if (strcmp(name, "cpu") == 0) {
                struct device *device = device_cpu_open_with(request->threads, request->cpu_kernels, err);
                if (!device)
                        return NULL;
                device->host_link_bytes_per_second = request->host_link_bytes_per_second;
                if (request->threads < device_cpu_share(request->local_ranks))
                        device->awake_seconds = short_operation_seconds;
                return device;
        }
        if (strcmp(name, "cuda") == 0) {
                if (request->cpu_kernels) {
                        rv_fail(err, RV_EINPUT, "--cpu-kernels is for --device cpu; a GPU has its own");
                        return NULL;
                }
                device_plugin_fn *open = load_plugin(err);
                return open ? open(request, err) : NULL;
        }
        rv_fail(err, RV_EINPUT, "--device '%.64s': there is no such device, only cpu and cuda", name);
        return NULL;
}
