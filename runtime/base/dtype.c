#include "runtime/base/dtype.h"

#include <string.h>

static const char *const precisions[DTYPES + 1] = {
        [DTYPE_FP32] = "fp32", [DTYPE_FP16] = "mixed", [DTYPE_BF16] = "bf16"};
const struct option_words dtype_precision_words = {.names = precisions, .list = true};

const char *dtype_precision(enum dtype dtype)
{
        return precisions[dtype];
}

int dtype_of_precision(const char *name)
{
        for (int dtype = 0; dtype < DTYPES; dtype++)
                if (strcmp(precisions[dtype], name) == 0)
                        return dtype;
        return -1;
}

static const char *const formats[FORMATS] = {[FORMAT_FP8] = "fp8", [FORMAT_NVFP4] = "nvfp4"};

double format_bytes(enum product_format format, double elements)
{
        enum { BLOCK = 16 };
        return format == FORMAT_FP8 ? elements : elements / 2 + elements / BLOCK;
}

const char *precision_name(enum dtype dtype, enum product_format format)
{
        return format == FORMAT_STORED ? dtype_precision(dtype) : formats[format];
}

bool precision_of_name(const char *name, enum dtype *dtype, enum product_format *format)
{
        for (int i = FORMAT_FP8; i < FORMATS; i++)
                if (strcmp(formats[i], name) == 0) {
                        *dtype = DTYPE_BF16;
                        *format = (enum product_format)i;
                        return true;
                }
        const int found = dtype_of_precision(name);
        if (found < 0)
                return false;
        *dtype = (enum dtype)found;
        *format = FORMAT_STORED;
        return true;
}
