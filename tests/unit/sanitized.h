/* How many of its cases a test takes. With the sanitizers it takes three times as long, and they look at the
 * code that runs and not at numbers: what has hundreds of cases has fewer there. `make test-all` has all. */
#ifndef RANVIER_TESTS_UNIT_SANITIZED_H
#define RANVIER_TESTS_UNIT_SANITIZED_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#ifdef __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static inline bool is_every_case_taken(void)
{
        const char *tests = getenv("RANVIER_TESTS");
        return tests && strcmp(tests, "all") == 0;
}

#endif
