#include "runtime/doctor/finding.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct finding *finding_add(struct findings *findings, const char *name, const char *use, bool has,
                            const char *format, ...)
{
        va_list values;
        assert(findings->count < FINDINGS);
        struct finding *row = &findings->rows[findings->count++];
        *row = (struct finding){.name = name, .use = use, .has = has};
        va_start(values, format);
        vsnprintf(row->says, sizeof row->says, format, values);
        va_end(values);
        return row;
}

void finding_install_library(struct finding *row, const char *text)
{
        /* The development packages bring the libraries, and have one name in every release. */
        static const char *const packages[][2] = {
                {"libmpi", "libopenmpi-dev"},           {"libsimgrid", "libsimgrid-dev"},
                {"libopenblas", "libopenblas-dev"},     {"libgsl", "libgsl-dev"},
                {"libjansson", "libjansson-dev"},       {"libcublasLt", "NVIDIA's CUDA toolkit"},
                {"libcudart", "NVIDIA's CUDA toolkit"}, {"libnccl", "libnccl2"},
                {"libcudnn", "NVIDIA's cuDNN"},
        };
        for (size_t i = 0; i < sizeof packages / sizeof *packages && !row->install[0]; i++)
                if (strstr(text, packages[i][0]))
                        snprintf(row->install, sizeof row->install, "%s", packages[i][1]);
}
