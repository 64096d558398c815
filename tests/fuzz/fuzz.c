#define _GNU_SOURCE /* memmem */
#include "tests/fuzz/fuzz.h"

#include "runtime/base/nearest.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
        const char *name;
        fuzz_target *run;
} targets[] = {{"model", fuzz_model},
               {"framework", fuzz_framework},
               {"options", fuzz_options},
               {"values", fuzz_values},
               {"profile", fuzz_profile},
               {"platform", fuzz_platform},
               {"collectives", fuzz_collectives},
               {"shapes", fuzz_shapes},
               {"import", fuzz_import},
               {"choices", fuzz_choices},
               {"launch-shell", fuzz_launch},
               {"launch-json", fuzz_launch},
               {"launch-toml", fuzz_launch},
               {"launch-yaml", fuzz_launch},
               {"toml", fuzz_toml},
               {"table", fuzz_table},
               {"runs", fuzz_runs},
               {"kineto", fuzz_kineto},
               {"trace", fuzz_trace},
               {"profiled", fuzz_profiled},
               {"report", fuzz_report},
               {"sweep", fuzz_sweep},
               {"validation", fuzz_validation},
               {"loss", fuzz_loss},
               {"page", fuzz_page},
               {"safetensors", fuzz_safetensors},
               {"weights", fuzz_weights},
               {"checkpoint", fuzz_checkpoint},
               {"tokens", fuzz_tokens}};

/* ---- words that are alike ---- */

/* A reader that finds an unknown word compares it with all that it knows, which would be most of the time.
 * The linker puts this in the place of the function of that name: the first words of each input are compared.
 */
void __wrap_nearest_offer(struct nearest *nearest, const char *known);
void __real_nearest_offer(struct nearest *nearest, const char *known);
static int offers;

void __wrap_nearest_offer(struct nearest *nearest, const char *known)
{
        enum { OFFERS = 64 };
        if (offers++ < OFFERS)
                __real_nearest_offer(nearest, known);
}

/* ---- targets ---- */

static double processor_seconds(void)
{
        struct timespec time;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Of the processor: libFuzzer's own limit is of the clock on the wall, where other programs count. */
void fuzz_run(fuzz_target *target, struct fuzz_bytes bytes)
{
        static const double LONGEST_SECONDS = 10;
        const double begin = processor_seconds();
        offers = 0;
        target(bytes);
        const double took = processor_seconds() - begin;
        if (took <= LONGEST_SECONDS)
                return;
        fprintf(stderr, "%zu bytes took %.1f s\n", bytes.size, took);
        abort();
}

fuzz_target *fuzz_find(const char *name)
{
        for (size_t i = 0; name && i < sizeof targets / sizeof *targets; i++)
                if (strcmp(targets[i].name, name) == 0)
                        return targets[i].run;
        return NULL;
}

/* ---- files ---- */

static char folder[256];

static void make_folder(void)
{
        const char *given = getenv("RANVIER_FUZZ_FOLDER"), *place = getenv("TMPDIR");
        if (given) {
                snprintf(folder, sizeof folder, "%s", given);
                return;
        }
        snprintf(folder, sizeof folder, "%s/ranvier-fuzz-XXXXXX", place ? place : "/tmp");
        if (mkdtemp(folder))
                return;
        perror(folder);
        exit(99);
}

const char *fuzz_path(const char *name)
{
        enum { PATHS = 16 };
        static char paths[PATHS][sizeof folder + 64];
        static int used;
        if (!folder[0])
                make_folder();
        char *path = paths[used++ % PATHS];
        snprintf(path, sizeof paths[0], "%s/%s", folder, name);
        return path;
}

const char *fuzz_file(const char *name, struct fuzz_bytes bytes)
{
        const char *path = fuzz_path(name);
        FILE *stream = fopen(path, "wb");
        if (!stream || (bytes.size && fwrite(bytes.at, 1, bytes.size, stream) != bytes.size) ||
            fclose(stream) != 0) {
                perror(path);
                exit(99);
        }
        return path;
}

FILE *fuzz_nowhere(void)
{
        static FILE *nowhere;
        if (!nowhere)
                nowhere = fopen("/dev/null", "w");
        if (!nowhere)
                exit(99);
        return nowhere;
}

/* ---- bytes ---- */

struct fuzz_bytes fuzz_part(struct fuzz_bytes *rest)
{
        static const char line[] = "\n%%\n";
        const struct fuzz_bytes all = *rest;
        const uint8_t *end = all.size ? memmem(all.at, all.size, line, sizeof line - 1) : NULL;
        if (!end) {
                rest->at += all.size;
                rest->size = 0;
                return all;
        }
        const size_t size = (size_t)(end - all.at);
        *rest = (struct fuzz_bytes){end + sizeof line - 1, all.size - size - (sizeof line - 1)};
        return (struct fuzz_bytes){all.at, size};
}

char *fuzz_text(struct fuzz_bytes bytes)
{
        char *text = malloc(bytes.size + 1);
        if (!text)
                exit(99);
        if (bytes.size)
                memcpy(text, bytes.at, bytes.size);
        text[bytes.size] = '\0';
        return text;
}

void fuzz_check(int rc, const struct rv_error_info *err)
{
        if (rc >= 0 || (err->code == (enum rv_error)rc && rc != RV_ESYSTEM && err->sentence[0] &&
                        !strchr(err->sentence, '\n')))
                return;
        fprintf(stderr, "a reader returned %d with the error %d and the sentence '%s'\n", rc, (int)err->code,
                err->sentence);
        abort();
}
