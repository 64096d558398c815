#include "runtime/base/dtype.h"

#include <string.h>

static const char *const precisions[DTYPES] = {
        [DTYPE_FP32] = "fp32", [DTYPE_FP16] = "mixed", [DTYPE_BF16] = "bf16"};

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
