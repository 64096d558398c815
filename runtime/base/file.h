/* Files. This module finds the files that are installed with the program, reads JSON and lines of text with
 * errors that name file and line, writes files so that they appear complete or not at all, and checks before
 * a long run that its outputs can be written. All programs use it. Paths are NUL-terminated and relative to
 * the current folder unless they begin with a slash. */
#ifndef RANVIER_RUNTIME_BASE_FILE_H
#define RANVIER_RUNTIME_BASE_FILE_H

#include "runtime/base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- files that come with the program ---- */

/* Writes the folder of the running program, without a final slash. Returns 0, or -1 if it cannot be told. */
int file_program_folder(char *folder, size_t folder_size);

/* Finds a preset or a script by name. It looks for <folder>/<name><suffix>, where the folder is `tree_folder`
 * (such as "models/presets") in the folder that the environment variable RANVIER_DATA names, in the source
 * tree if the running program (or the library that this is part of) was built there, and else the installed
 * one, PREFIX/share/ranvier/`tree_folder`. Writes the first such file that exists to `path` and
 * returns 0. Returns RV_EINPUT, without a sentence, if there is none, as there is for a name with a slash:
 * files name presets, and do not leave their folder so; `path` is then undefined. */
int file_find(char *path, size_t path_size, const char *tree_folder, const char *name, const char *suffix);

/* Writes the names, without `suffix`, of the files that file_find could find, sorted, as one line "a b c".
 * Only the first of its folders that exists is listed, and names that do not fit are left out. */
void file_list(char *line, size_t line_size, const char *tree_folder, const char *suffix);

/* Writes "; the nearest is NAME" if the name of such a file is near to `name` (nearest_is_likely), else "".
 * Returns `text`. */
enum { FILE_NEAREST = 96 };
char *file_nearest(char text[FILE_NEAREST], const char *tree_folder, const char *name, const char *suffix);

/* ---- reading: JSON, and lines of text ---- */

/* Reads a file that holds one JSON object, in which no key may be there twice. Returns it; the caller owns it
 * (json_decref). On failure returns NULL with RV_EINPUT; the sentence names the line, and asks whether the
 * file is cut short if it ends where more was expected. */
json_t *file_read_json(const char *path, struct rv_error_info *err);

/* Returns the line (from 1) of the first `"key"` in the file that is followed by a colon, or by the end of
 * the line, for error messages. Returns 1 if there is none or the file cannot be read. */
int file_line_of(const char *path, const char *key);

/* Reads the member `key` of a JSON object that came from the file `path`: a whole number, or any finite
 * number, that must be there and lie in [min, max]. Returns 0, or RV_EINPUT with a sentence that names file,
 * line and key; `value` is then left alone. */
int file_need_int(const char *path, const json_t *object, const char *key, int64_t min, int64_t max,
                  int64_t *value, struct rv_error_info *err);
int file_need_real(const char *path, const json_t *object, const char *key, double min, double max,
                   double *value, struct rv_error_info *err);

/* A text that is read line by line. The caller sets `path` (for error messages) and `stream`, and everything
 * else to zero; in the end it closes the stream and frees `line`. */
struct file_lines {
        const char *path;
        FILE *stream;
        char *line;              /* the last line that was read, without its end, NUL-terminated */
        size_t length, capacity; /* bytes of `line`: without the NUL, and allocated */
        int64_t number;          /* of the last line, from 1; 0 before the first */
};

/* Reads the next line into lines->line. Returns 1, or 0 at the end of the file. Returns RV_EINPUT if the file
 * cannot be read or the line has more than 1 MiB (a device or a damaged file was read as text), and
 * RV_ESYSTEM if there is no memory. */
int file_next_line(struct file_lines *lines, struct rv_error_info *err);

/* Refuses a key of `object` that is not one of `known` but looks like one of them misspelt (nearest.h), which
 * would otherwise be ignored if that member may be left out. Other unknown keys are left alone. `where` names
 * the object in the sentence. Returns 0 or RV_EINPUT. */
int file_check_keys(const char *path, const char *where, const json_t *object, const char *const *known,
                    size_t known_count, struct rv_error_info *err);

/* ---- writing ---- */

/* A file that is being written. Its content goes to a temporary file in the same folder, which commit renames
 * to the final name, so nobody ever sees half a file, and an older file of that name stays until then. Pipes,
 * terminals and /dev/null are written directly. Every open must be followed by a commit or an abandon. */
struct file_writer {
        FILE *stream; /* the caller writes to it; NULL when nothing is open */
        /* The path that was asked for, and the one that is written until commit: "" if the final one is
         * written directly. */
        char final[1024], temporary[1056];
        int reason; /* errno of the first flush that failed; 0: none */
};

/* Opens a file for writing. Returns 0, or RV_EINPUT with nothing left behind. */
int file_writer_open(struct file_writer *writer, const char *path, struct rv_error_info *err);

/* Lets other processes see what was written so far (in the temporary file). If that fails, file_writer_commit
 * will report it. */
void file_writer_flush(struct file_writer *writer);

/* Flushes the file to disk, checks that every earlier write worked, closes it and gives it its final name.
 * Returns 0, or RV_ESYSTEM; then the temporary file is removed. */
int file_writer_commit(struct file_writer *writer, struct rv_error_info *err);

/* Closes the file and removes the temporary one. It does nothing after a commit or a second time. */
void file_writer_abandon(struct file_writer *writer);

/* Waits until the names in a folder are on the disk, as they are after a rename in it. Returns 0, or
 * RV_ESYSTEM. */
int file_settle(const char *folder, struct rv_error_info *err);

/* Makes a new file for data that is needed for a while only, in the folder that TMPDIR names or else in /tmp.
 * It is open for reading and writing and accessible to its owner alone. Writes its name to `path` and returns
 * the stream; the caller closes the stream and unlinks `path`. A caller may unlink it at once: then nothing
 * is left however the process ends, and the process can still open it as /dev/fd/N. Returns NULL with
 * RV_ESYSTEM on failure. */
FILE *file_open_temporary(char *path, size_t path_size, struct rv_error_info *err);

/* Makes a new, empty folder for files that are needed for a while only, in the folder that TMPDIR names or
 * else in /tmp, accessible to its owner alone. Writes its name to `path`; the caller removes the folder.
 * Returns 0, or RV_ESYSTEM. */
int file_make_temporary_folder(char *path, size_t path_size, struct rv_error_info *err);

/* ---- checks before the work ---- */

/* Returns whether writing a file at `path` would replace the one at `other`: both are the same name in the
 * same folder, or the same existing file. Pipes, terminals and /dev/null are written as they are and never
 * replaced, so for them the answer is false. */
bool file_would_replace(const char *path, const char *other);

/* Checks that a file could be written at `path` later: the name is not empty, not a folder's and not too
 * long, and its folder exists and allows it. Writes nothing. Returns 0 or RV_EINPUT. */
int file_check_writable(const char *path, struct rv_error_info *err);

/* A file that a command line names. */
struct file_use {
        const char *name; /* the option, as the user knows it: "--report" */
        const char *path; /* NULL: the option was not given */
        bool written;     /* the program writes this file; else it reads it */
};

/* Returns whether writing one of two files would replace the other. A name that is read and is no file
 * clashes with nothing: it is a preset's, or will be complained of by who reads it. */
bool file_uses_clash(const struct file_use *, const struct file_use *);

/* Checks the files of a command line before the work begins: every file that will be written can be
 * (file_check_writable), and replaces neither one that is read nor another one that is written. Returns 0
 * or RV_EINPUT. */
int file_check_uses(const struct file_use *uses, int count, struct rv_error_info *err);

/* Flushes standard output and checks that all that was printed to it arrived; commands call it at their end.
 * Returns 0 or RV_ESYSTEM. */
int file_check_printed(struct rv_error_info *err);

/* Prints a JSON document, indented, to standard output, with 17 significant digits. Returns 0 or RV_ESYSTEM.
 */
int file_print_json(const json_t *document, struct rv_error_info *err);

/* Writes a JSON document through a struct file_writer, indented, with 17 significant digits, which is enough
 * to read every double back exactly. Returns 0, RV_EINPUT if the file cannot be opened, or RV_ESYSTEM. */
int file_write_json(const char *path, const json_t *document, struct rv_error_info *err);

#endif
