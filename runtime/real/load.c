#include "runtime/real/load.h"

#include <stdlib.h>
#include <string.h>

static uint64_t add_checksum(uint64_t checksum, const float *values, int64_t count)
{
        for (int64_t i = 0; i < count; i++) {
                uint32_t bits;
                memcpy(&bits, &values[i], sizeof bits);
                checksum = (checksum ^ bits) * 0x100000001b3u; /* FNV-1a */
        }
        return checksum;
}

static int load_tensor(struct nn_stage *nn, const struct weight_files *files, const struct tensor *tensor,
                       float *chunk, uint64_t checksums[LOAD_CHECKSUMS], struct rv_error_info *err)
{
        for (int64_t at = 0; at < tensor->elements; at += NN_CHUNK) {
                const int64_t left = tensor->elements - at, count = left < NN_CHUNK ? left : NN_CHUNK;
                const int rc = weight_files_read(files, tensor, at, count, chunk, err);
                if (rc)
                        return rc;
                checksums[tensor->expert] = add_checksum(checksums[tensor->expert], chunk, count);
                nn_write_parameters(nn, tensor->offset + at, count, chunk);
        }
        return 0;
}

int load_weights(struct nn_stage *nn, const struct weight_files *files, uint64_t checksums[LOAD_CHECKSUMS],
                 struct rv_error_info *err)
{
        float *chunk = malloc(NN_CHUNK * sizeof *chunk);
        int rc = chunk ? 0 : rv_fail(err, RV_ESYSTEM, "no host memory to load weights");
        checksums[0] = checksums[1] = 0xcbf29ce484222325u;
        for (int i = 0; rc == 0 && i < nn->tensor_count; i++)
                rc = load_tensor(nn, files, &nn->tensors[i], chunk, checksums, err);
        free(chunk);
        return rc;
}
