/* Text against a file that the tree keeps; with GOLDEN in the environment the file is rewritten first. */
#ifndef RANVIER_TESTS_UNIT_GOLDEN_H
#define RANVIER_TESTS_UNIT_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static inline void assert_golden(const char *found, const char *path)
{
        static char expected[32768];
        FILE *stream = getenv("GOLDEN") ? fopen(path, "w") : NULL;
        if (stream) {
                fputs(found, stream);
                fclose(stream);
        }
        stream = fopen(path, "r");
        if (!stream)
                fail_msg("%s is missing: run from the root of the tree", path);
        expected[fread(expected, 1, sizeof expected - 1, stream)] = 0;
        fclose(stream);
        assert_string_equal(found, expected);
}

#endif
