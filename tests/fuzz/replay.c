/* Gives each of the files named on its command line to the target that is named first, and ends: what a
 * fuzzer once found stays mended. Files that are compressed by gzip are uncompressed. What readers print goes
 * nowhere; how many files there were is the only line. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

enum { LONGEST = 1 << 22, MOST_MEMORY = 1 << 30 };

/* What asks for more memory gets none, says so, and fuzz_check ends the program. The sanitizers need more. */
static void limit_memory(void)
{
#ifndef __SANITIZE_ADDRESS__
        const struct rlimit limit = {MOST_MEMORY, MOST_MEMORY};
        setrlimit(RLIMIT_DATA, &limit);
#endif
}

static struct fuzz_bytes read_all(const char *path)
{
        uint8_t *bytes = malloc(LONGEST);
        const gzFile file = gzopen(path, "rb");
        const int size = file && bytes ? gzread(file, bytes, LONGEST) : -1;
        if (size < 0) {
                perror(path);
                exit(99);
        }
        gzclose(file);
        uint8_t *shorter = realloc(bytes, size > 0 ? (size_t)size : 1); /* what reads too far is then found */
        return (struct fuzz_bytes){shorter ? shorter : bytes, (size_t)size};
}

int main(int argc, char **argv)
{
        fuzz_target *target = argc > 1 ? fuzz_find(argv[1]) : NULL;
        const int out = dup(STDOUT_FILENO);
        if (!target || out < 0 || !freopen("/dev/null", "w", stdout)) {
                fprintf(stderr, "usage: replay TARGET FILE...\n");
                return 99;
        }
        limit_memory();
        for (int i = 2; i < argc; i++) {
                const struct fuzz_bytes bytes = read_all(argv[i]);
                fprintf(stderr, "%s\n", argv[i]);
                fuzz_run(target, bytes);
                free((void *)(uintptr_t)bytes.at);
        }
        dprintf(out, "%d\n", argc - 2);
        return 0;
}
