/* What targets of the fuzzer share. A target is a function that takes any bytes and gives them to a reader of
 * ours as the file, or command line, that it reads. It must return, whatever the bytes are: without a crash,
 * a leak, or more time and memory than a file of that size can need. fuzz.c has the list of targets, and
 * docs/fuzzing.md says how they are run. */
#ifndef RANVIER_TESTS_FUZZ_FUZZ_H
#define RANVIER_TESTS_FUZZ_FUZZ_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* What a target is given, or a part of it. */
struct fuzz_bytes {
        const uint8_t *at;
        size_t size;
};

/* The targets by name: of the model's config.json, and so on. */
typedef void fuzz_target(struct fuzz_bytes bytes);
fuzz_target fuzz_model, fuzz_framework, fuzz_options, fuzz_values;
fuzz_target fuzz_profile, fuzz_platform, fuzz_collectives, fuzz_shapes, fuzz_import, fuzz_choices;
fuzz_target fuzz_launch, fuzz_toml, fuzz_table, fuzz_runs;
fuzz_target fuzz_kineto, fuzz_trace, fuzz_profiled;
fuzz_target fuzz_report, fuzz_sweep, fuzz_validation, fuzz_loss, fuzz_page;
fuzz_target fuzz_safetensors, fuzz_weights, fuzz_checkpoint, fuzz_tokens;

/* Returns the target of that name, or NULL; and gives bytes to one. */
fuzz_target *fuzz_find(const char *name);
void fuzz_run(fuzz_target *target, struct fuzz_bytes bytes);

/* Writes a file of that name in the target's folder, which is in memory where /dev/shm is, and returns its
 * path, which stays valid until the end. A name may have one folder before it. */
const char *fuzz_file(const char *name, struct fuzz_bytes bytes);
/* The path alone; the file need not be there. */
const char *fuzz_path(const char *name);

/* Takes the bytes up to the next line "%%" off `rest`, which begins behind that line then; without such a
 * line all of them. */
struct fuzz_bytes fuzz_part(struct fuzz_bytes *rest);

/* Returns the bytes as a text that the caller frees, with a zero byte behind them. */
char *fuzz_text(struct fuzz_bytes bytes);

/* Checks what a reader returned: an error has a sentence of one line, and blames the input and not the
 * system, as a reader does that asks for more memory than there is. */
void fuzz_check(int rc, const struct rv_error_info *err);

/* Returns a stream to which everything can be printed, and nothing is kept. */
FILE *fuzz_nowhere(void);

#endif
