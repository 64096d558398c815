/* The entrance of libFuzzer: the environment's RANVIER_FUZZ says which target. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static fuzz_target *target;
        if (!target)
                target = fuzz_find(getenv("RANVIER_FUZZ"));
        if (!target) {
                fprintf(stderr, "RANVIER_FUZZ is the name of no target\n");
                exit(99);
        }
        fuzz_run(target, (struct fuzz_bytes){data, size});
        return 0;
}
