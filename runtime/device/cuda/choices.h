/* Which of cuBLASLt's proposals is the fastest for a product, as it was timed: looked up, added, and kept as
 * JSON in a profile of ranvier calibrate (--time-products), so that other runs take the same and have the
 * same bits. For matmul.c.
 *
 * The JSON: {"library": cuBLASLt's version, "gpu": name, "chosen": {PRODUCT: {"algorithm": 128 hexadecimal
 * digits, "proposal": of "proposals", from 1, "seconds": its own, "first_seconds": the first proposal's (0:
 * it did not run)}}}. An algorithm is what cuBLASLt makes of one, which means something to the same version
 * of it alone. */
#ifndef RANVIER_RUNTIME_DEVICE_CUDA_CHOICES_H
#define RANVIER_RUNTIME_DEVICE_CUDA_CHOICES_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_choices;

/* What was found for a product. */
struct cuda_choice {
        uint64_t algorithm[8]; /* cublasLtMatmulAlgo_t's data */
        int proposal, proposals;
        double seconds, first_seconds;
};

/* Reads `json`, or begins with none if it is NULL. The caller ends it with cuda_choices_delete. NULL with a
 * sentence: RV_EINPUT where the text is not such JSON, or was timed on another kind of GPU than `gpu` or with
 * another version of cuBLASLt than `library`. */
struct cuda_choices *cuda_choices_new(const char *json, const char *gpu, size_t library,
                                      struct rv_error_info *err);
/* NULL is allowed. */
void cuda_choices_delete(struct cuda_choices *);

/* Whether there is a choice for the product of that name, which is then stored in `choice`. */
bool cuda_choices_find(const struct cuda_choices *, const char *product, struct cuda_choice *choice);
/* Adds one; what is there for this product is replaced. */
void cuda_choices_add(struct cuda_choices *, const char *product, const struct cuda_choice *choice);

/* Returns all of them as JSON, which the caller frees; NULL: there is none, or no memory. */
char *cuda_choices_text(const struct cuda_choices *);

#endif
