/* Files: found by name beside the program, read as JSON with good errors, written whole or not at all. */
#ifndef RANVIER_RUNTIME_BASE_FILE_H
#define RANVIER_RUNTIME_BASE_FILE_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* The folder of the running program, without a final slash. 0, or -1 if it cannot be told. */
int file_program_folder(char *folder, size_t folder_size);

/* Where a preset or script lives: tries, beside the running program, the source tree (`tree_folder`, such as
 * "models/presets") and then the installed place (PREFIX/share/ranvier/`tree_folder`). Fills `path` with
 * <folder>/<name><suffix> and returns 0 if that file exists, RV_EINPUT (without a sentence) if not. */
int file_find(char *path, size_t path_size, const char *tree_folder, const char *name, const char *suffix);

/* Names (without `suffix`) of the files in the folder that file_find would search, as one line "a b c". */
void file_list(char *line, size_t line_size, const char *tree_folder, const char *suffix);

/* Reads a JSON object. The caller owns the result (json_decref). NULL with a sentence that has the line, and
 * asks whether the file is cut short where what is wrong is its end. */
json_t *file_read_json(const char *path, struct rv_error_info *err);

/* The line (from 1) of the first `"key"` in the file, for error messages; 1 if it is not there. */
int file_line_of(const char *path, const char *key);

/* A number of a JSON object that must be there and lie in [least, most]; the sentence names file, line, key.
 */
int file_need_int(const char *path, const json_t *object, const char *key, int64_t min, int64_t max,
                  int64_t *value, struct rv_error_info *err);
int file_need_real(const char *path, const json_t *object, const char *key, double min, double max,
                   double *value, struct rv_error_info *err);

/* A text that is read line by line, each with its number for error messages. Set `path` and `stream`; free
 * `line` in the end. */
struct file_lines {
        const char *path;
        FILE *stream;
        char *line; /* the last one, without its end */
        size_t length, capacity;
        int64_t number; /* from 1; 0 before the first */
};
/* 1 with the next line; 0 at the end; a negative rv_error with a sentence if it cannot be read, or the line
 * has more than a mebibyte, as where a device or a damaged file is read for a text. */
int file_next_line(struct file_lines *lines, struct rv_error_info *err);

/* Refuses a key of `object`, which `where` names, that is none of `known` but one of them misspelt: where
 * that may be left out, it would be passed over. Other keys are left alone. */
int file_check_keys(const char *path, const char *where, const json_t *object, const char *const *known,
                    size_t known_count, struct rv_error_info *err);

/* A file that appears under its final name only when complete: written beside it, then renamed. */
struct file_writer {
        FILE *stream;
        char final[1024], temporary[1056];
        int reason; /* errno of a write that failed before the last; 0: none, or not known */
};
int file_writer_open(struct file_writer *writer, const char *path, struct rv_error_info *err);
/* Lets others see what was written so far; that it failed is said by file_writer_commit. */
void file_writer_flush(struct file_writer *writer);
/* Flushes, checks every earlier write and renames; on failure nothing is left. */
int file_writer_commit(struct file_writer *writer, struct rv_error_info *err);
void file_writer_abandon(struct file_writer *writer);

/* A new file for what is needed for a while only, in the folder that TMPDIR names (else /tmp): open for
 * reading and writing, for its owner's eyes alone. The caller closes the stream and unlinks `path`; unlinked
 * at once, nothing is left however the process ends, and /dev/fd/N still opens it. NULL with a sentence. */
FILE *file_open_temporary(char *path, size_t path_size, struct rv_error_info *err);

/* Whether writing a file at `path` would replace the one at `other`, or the other way round: they are one
 * name in one folder, or one existing file. Not so for pipes, terminals and /dev/null, which are written as
 * they are. */
bool file_would_replace(const char *path, const char *other);

/* Whether a file could be written at `path` later (its folder exists and allows it): fail before the work. */
int file_check_writable(const char *path, struct rv_error_info *err);

/* A file that a command line names. */
struct file_use {
        const char *name; /* as the user knows it: "--report" */
        const char *path; /* NULL: not given */
        bool written;     /* else it is read */
};

/* Before the work: every file that will be written can be, and replaces neither one that is read nor another
 * that is written. */
int file_check_uses(const struct file_use *uses, int count, struct rv_error_info *err);

/* At the end of a command: whether all that was printed to standard output arrived. */
int file_check_printed(struct rv_error_info *err);

/* Writes a JSON document through a file_writer, indented, reals with 17 significant digits. */
int file_write_json(const char *path, const json_t *document, struct rv_error_info *err);

#endif
