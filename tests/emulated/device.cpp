/* What the emulated device says of itself. Its compute capability is 9.0, so that the paths of new GPUs are
 * taken; everything else is made up, and its name says so. */
#include "tests/emulated/runtime.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace emulated;

static int current;

static int number(const char *variable, int otherwise)
{
        const char *given = getenv(variable);
        return given ? atoi(given) : otherwise;
}

static int device_count(void)
{
        return number("RANVIER_EMULATED_DEVICES", 1);
}

static int capability(void)
{
        return number("RANVIER_EMULATED_CAPABILITY", 90);
}

extern "C" {

cudaError_t cudaGetDeviceCount(int *count)
{
        ENTER();
        *count = device_count();
        return returns(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}

cudaError_t cudaSetDevice(int device)
{
        ENTER();
        if (device < 0 || device >= device_count())
                return returns(cudaErrorInvalidDevice);
        current = device;
        return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned int)
{
        ENTER();
        return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
        ENTER();
        *device = current;
        return cudaSuccess;
}

cudaError_t cudaDeviceReset(void)
{
        ENTER();
        run_all();
        return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
        ENTER();
        *version = CUDART_VERSION;
        return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
        ENTER();
        *version = CUDART_VERSION;
        return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int length, int device)
{
        ENTER();
        snprintf(id, (size_t)length, "0000:%02x:00.0", device);
        return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
        ENTER();
        if (device < 0 || device >= device_count())
                return returns(cudaErrorInvalidDevice);
        switch (attr) {
        case cudaDevAttrMaxThreadsPerBlock:
                *value = 1024;
                break;
        case cudaDevAttrMaxSharedMemoryPerBlock:
                *value = SHARED_BYTES;
                break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
                *value = SHARED_BYTES_OPTIN;
                break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
                *value = SHARED_BYTES_OPTIN + 1024;
                break;
        case cudaDevAttrWarpSize:
                *value = 32;
                break;
        case cudaDevAttrMultiProcessorCount:
                *value = 4;
                break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
                *value = 2048;
                break;
        case cudaDevAttrComputeCapabilityMajor:
                *value = capability() / 10;
                break;
        case cudaDevAttrComputeCapabilityMinor:
                *value = capability() % 10;
                break;
        case cudaDevAttrAsyncEngineCount:
                *value = 2;
                break;
        case cudaDevAttrClockRate: /* not known */
        case cudaDevAttrMemoryClockRate:
        case cudaDevAttrGlobalMemoryBusWidth:
        case cudaDevAttrL2CacheSize:
        case cudaDevAttrIntegrated:
                *value = 0;
                break;
        default:
                return returns(cudaErrorInvalidValue);
        }
        return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
        ENTER();
        if (device < 0 || device >= device_count())
                return returns(cudaErrorInvalidDevice);
        memset(prop, 0, sizeof *prop);
        snprintf(prop->name, sizeof prop->name, "emulated CUDA (no GPU)");
        prop->uuid.bytes[0] = (char)(device + 1);
        size_t available;
        cudaMemGetInfo(&available, &prop->totalGlobalMem);
        prop->sharedMemPerBlock = SHARED_BYTES;
        prop->sharedMemPerBlockOptin = SHARED_BYTES_OPTIN;
        prop->sharedMemPerMultiprocessor = SHARED_BYTES_OPTIN + 1024;
        prop->warpSize = 32;
        prop->maxThreadsPerBlock = 1024;
        prop->maxThreadsPerMultiProcessor = 2048;
        prop->major = capability() / 10;
        prop->minor = capability() % 10;
        prop->multiProcessorCount = 4;
        prop->asyncEngineCount = 2;
        return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
        switch (error) {
        case cudaSuccess:
                return "cudaSuccess";
        case cudaErrorMemoryAllocation:
                return "cudaErrorMemoryAllocation";
        case cudaErrorNotReady:
                return "cudaErrorNotReady";
        case cudaErrorLaunchFailure:
                return "cudaErrorLaunchFailure";
        default:
                return "cudaError";
        }
}

const char *cudaGetErrorString(cudaError_t error)
{
        switch (error) {
        case cudaSuccess:
                return "no error";
        case cudaErrorInvalidValue:
                return "invalid argument";
        case cudaErrorMemoryAllocation:
                return "out of memory";
        case cudaErrorInvalidConfiguration:
                return "invalid configuration argument";
        case cudaErrorNoDevice:
                return "no CUDA-capable device is detected";
        case cudaErrorInvalidDevice:
                return "invalid device ordinal";
        case cudaErrorInvalidResourceHandle:
                return "invalid resource handle";
        case cudaErrorNotReady:
                return "device not ready";
        case cudaErrorIllegalAddress:
                return "an illegal memory access was encountered";
        case cudaErrorMisalignedAddress:
                return "misaligned address";
        case cudaErrorLaunchFailure:
                return "unspecified launch failure";
        case cudaErrorStreamCaptureUnsupported:
                return "operation not permitted when stream is capturing";
        case cudaErrorStreamCaptureInvalidated:
                return "operation failed due to a previous error during capture";
        default:
                return "unrecognized error code";
        }
}
}
