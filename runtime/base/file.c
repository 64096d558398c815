#define _GNU_SOURCE /* dladdr */
#include "runtime/base/file.h"

#include "runtime/base/nearest.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Leaves the folder of a path. Returns 0, or -1 if it is in none. */
static int strip_name(char *path)
{
        char *slash = strrchr(path, '/');
        if (!slash)
                return -1;
        *slash = '\0';
        return 0;
}

int file_program_folder(char *folder, size_t folder_size)
{
        ssize_t length = readlink("/proc/self/exe", folder, folder_size - 1);
        if (length <= 0)
                return -1;
        folder[length] = '\0';
        return strip_name(folder);
}

/* The folder of the shared library that this code is in, or else of the program. */
static int code_folder(char folder[PATH_MAX])
{
        static const char place;
        Dl_info info;
        if (!dladdr(&place, &info) || !info.dli_fname || !strstr(info.dli_fname, ".so") ||
            !realpath(info.dli_fname, folder))
                return file_program_folder(folder, PATH_MAX);
        return strip_name(folder);
}

/* Candidate `which` for the folder that holds `tree_folder`'s files; -1 if there is no such candidate. The
 * first is what RANVIER_DATA says. Programs and libraries are built into TREE/build/... and installed into
 * PREFIX/bin, PREFIX/lib, PREFIX/libexec/ranvier and PREFIX/lib/ARCHITECTURE. */
static int search_folder(int which, const char *tree_folder, char *folder, size_t folder_size)
{
        char place[PATH_MAX];
        const char *given = getenv("RANVIER_DATA"), *below = which < 2 ? "" : "/share/ranvier";
        if (which == 0) {
                if (!given || !*given || strlen(given) >= sizeof place)
                        return -1;
                strcpy(place, given);
        } else if (code_folder(place) != 0)
                return -1;
        if (which == 1) {
                char *build = NULL;
                for (char *at = place; (at = strstr(at, "/build/")); at++)
                        build = at;
                if (!build)
                        return -1;
                *build = '\0';
        }
        for (int up = which; up >= 2; up--)
                if (strip_name(place) != 0)
                        return -1;
        int length = snprintf(folder, folder_size, "%s%s/%s", place, below, tree_folder);
        return length > 0 && (size_t)length < folder_size ? 0 : -1;
}

enum { SEARCH_FOLDERS = 4 };

int file_find(char *path, size_t path_size, const char *tree_folder, const char *name, const char *suffix)
{
        for (int which = 0; which < SEARCH_FOLDERS && !strchr(name, '/'); which++) {
                char folder[PATH_MAX];
                struct stat info;
                if (search_folder(which, tree_folder, folder, sizeof folder) != 0)
                        continue;
                int length = snprintf(path, path_size, "%s/%s%s", folder, name, suffix);
                if (length > 0 && (size_t)length < path_size && stat(path, &info) == 0 &&
                    S_ISREG(info.st_mode))
                        return RV_OK;
        }
        return RV_EINPUT;
}

static void append_word(char *line, size_t line_size, const char *word, size_t word_length)
{
        size_t used = strlen(line), space = used ? 1 : 0;
        if (used + space + word_length + 1 > line_size)
                return;
        if (space)
                line[used] = ' ';
        memcpy(line + used + space, word, word_length);
        line[used + space + word_length] = '\0';
}

void file_list(char *line, size_t line_size, const char *tree_folder, const char *suffix)
{
        line[0] = '\0';
        for (int which = 0; which < SEARCH_FOLDERS; which++) {
                char folder[PATH_MAX];
                struct dirent **entries;
                int count = search_folder(which, tree_folder, folder, sizeof folder) == 0
                                    ? scandir(folder, &entries, NULL, alphasort)
                                    : -1;
                if (count < 0)
                        continue;
                for (int i = 0; i < count; i++) {
                        size_t length = strlen(entries[i]->d_name), tail = strlen(suffix);
                        if (length > tail && strcmp(entries[i]->d_name + length - tail, suffix) == 0)
                                append_word(line, line_size, entries[i]->d_name, length - tail);
                        free(entries[i]);
                }
                free(entries);
                return;
        }
}

char *file_nearest(char text[FILE_NEAREST], const char *tree_folder, const char *name, const char *suffix)
{
        char line[4096], *place = NULL;
        struct nearest nearest = {.word = name};
        file_list(line, sizeof line, tree_folder, suffix);
        for (char *known = strtok_r(line, " ", &place); known; known = strtok_r(NULL, " ", &place))
                nearest_offer(&nearest, known);
        text[0] = '\0';
        if (nearest_is_likely(&nearest))
                snprintf(text, FILE_NEAREST, "; the nearest is %.64s", nearest.known);
        return text;
}

/* The mark that some editors and spreadsheets begin UTF-8 with. */
static void file_skip_mark(FILE *stream)
{
        static const int mark[] = {0xef, 0xbb, 0xbf};
        for (size_t i = 0; i < sizeof mark / sizeof *mark; i++) {
                const int found = getc(stream);
                if (found == mark[i])
                        continue;
                if (i == 0) /* a pipe gives one back */
                        ungetc(found, stream);
                else
                        rewind(stream);
                return;
        }
}

json_t *file_read_json(const char *path, struct rv_error_info *err)
{
        struct stat info;
        enum { LONGEST_JSON = 256 << 20 }; /* in memory it takes many times as much */
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
                rv_fail(err, RV_EINPUT, "%s: is a folder, a JSON file was expected", path);
                return NULL;
        }
        if (stat(path, &info) == 0 && info.st_size > LONGEST_JSON) {
                rv_fail(err, RV_EINPUT, "%s: has %lld bytes, a JSON file of at most 256 MiB was expected",
                        path, (long long)info.st_size);
                return NULL;
        }
        FILE *stream = fopen(path, "rb");
        if (!stream) {
                rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
                return NULL;
        }
        file_skip_mark(stream);
        json_error_t wrong;
        json_t *object = json_loadf(stream, JSON_REJECT_DUPLICATES, &wrong);
        bool at_end = feof(stream) != 0;
        fclose(stream);
        if (!object) {
                /* The file ends where more was expected, not with more than was expected. */
                bool cut = at_end && json_error_code(&wrong) != json_error_end_of_input_expected;
                rv_fail(err, RV_EINPUT, "%s:%d: not valid JSON: %s%s", path, wrong.line > 0 ? wrong.line : 1,
                        wrong.text, cut ? " (is the file cut short?)" : "");
        } else if (!json_is_object(object)) {
                rv_fail(err, RV_EINPUT, "%s:1: a JSON object { ... } was expected", path);
                json_decref(object);
                object = NULL;
        }
        return object;
}

static int grow_line(struct file_lines *lines, struct rv_error_info *err)
{
        const size_t capacity = lines->capacity ? 2 * lines->capacity : 256;
        char *line = realloc(lines->line, capacity);
        if (!line)
                return rv_fail(err, RV_ESYSTEM, "%s:%lld: no memory for a line of %zu bytes", lines->path,
                               (long long)lines->number, capacity);
        lines->line = line;
        lines->capacity = capacity;
        return RV_OK;
}

int file_next_line(struct file_lines *lines, struct rv_error_info *err)
{
        enum { MAX_BYTES = 1 << 20 };
        int character = 0, rc = RV_OK;
        lines->length = 0;
        if (lines->number++ == 0)
                file_skip_mark(lines->stream);
        errno = 0;
        while (character != '\n' && (character = getc_unlocked(lines->stream)) != EOF) {
                if (lines->length + 1 >= lines->capacity && (rc = grow_line(lines, err)) != RV_OK)
                        return rc;
                if (lines->length == MAX_BYTES)
                        return rv_fail(err, RV_EINPUT, "%s:%lld: a line of more than 1 MiB is no text",
                                       lines->path, (long long)lines->number);
                lines->line[lines->length++] = (char)character;
        }
        if (ferror(lines->stream))
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", lines->path, strerror(errno));
        if (lines->length == 0) {
                lines->number--;
                return 0;
        }
        while (lines->length > 0 &&
               (lines->line[lines->length - 1] == '\n' || lines->line[lines->length - 1] == '\r'))
                lines->length--;
        lines->line[lines->length] = 0;
        return 1;
}

/* Whether the first thing in the rest of `line`, after the quoted key, is the colon that makes it a key. */
static bool followed_by_colon(const char *rest)
{
        return rest[strspn(rest, " \t\r\n")] == ':' || rest[strspn(rest, " \t\r\n")] == '\0';
}

int file_line_of(const char *path, const char *key)
{
        FILE *stream = fopen(path, "rb");
        char quoted[128], *line = NULL;
        size_t capacity = 0;
        int number = 0, found = 1;
        if (!stream)
                return 1;
        snprintf(quoted, sizeof quoted, "\"%s\"", key);
        while (getline(&line, &capacity, stream) > 0) {
                number++;
                const char *at = strstr(line, quoted);
                if (at && followed_by_colon(at + strlen(quoted))) {
                        found = number;
                        break;
                }
        }
        free(line);
        fclose(stream);
        return found;
}

/* Fills `text` with a short rendering of a JSON value for an error sentence. */
static void describe(const json_t *value, char *text, size_t text_size)
{
        char *dumped = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        snprintf(text, text_size, "%.60s", dumped ? dumped : "?");
        free(dumped);
}

int file_need_int(const char *path, const json_t *object, const char *key, int64_t min, int64_t max,
                  int64_t *value, struct rv_error_info *err)
{
        const json_t *found = json_object_get(object, key);
        if (!found)
                return rv_fail(err, RV_EINPUT,
                               "%s: %s is missing, a whole number from %lld to %lld was expected", path, key,
                               (long long)min, (long long)max);
        if (!json_is_integer(found) || json_integer_value(found) < min || json_integer_value(found) > max) {
                char text[64];
                describe(found, text, sizeof text);
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: %s is %s, a whole number from %lld to %lld was expected", path,
                               file_line_of(path, key), key, text, (long long)min, (long long)max);
        }
        *value = json_integer_value(found);
        return RV_OK;
}

int file_need_real(const char *path, const json_t *object, const char *key, double min, double max,
                   double *value, struct rv_error_info *err)
{
        const json_t *found = json_object_get(object, key);
        if (!found)
                return rv_fail(err, RV_EINPUT, "%s: %s is missing, a number from %g to %g was expected", path,
                               key, min, max);
        double number = json_number_value(found);
        if (!json_is_number(found) || !isfinite(number) || number < min || number > max) {
                char text[64];
                describe(found, text, sizeof text);
                return rv_fail(err, RV_EINPUT, "%s:%d: %s is %s, a number from %g to %g was expected", path,
                               file_line_of(path, key), key, text, min, max);
        }
        *value = number;
        return RV_OK;
}

int file_check_keys(const char *path, const char *where, const json_t *object, const char *const *known,
                    size_t known_count, struct rv_error_info *err)
{
        enum { MOST_MEMBERS = 1024 }; /* each is compared with all that are known */
        const char *key;
        json_t *value;
        if (json_object_size(object) > MOST_MEMBERS)
                return rv_fail(err, RV_EINPUT, "%s:1: %s has %zu members, at most %d were expected", path,
                               where, json_object_size(object), MOST_MEMBERS);
        json_object_foreach((json_t *)(uintptr_t)object, key, value)
        {
                struct nearest nearest = {.word = key};
                for (size_t i = 0; i < known_count; i++)
                        nearest_offer(&nearest, known[i]);
                if (nearest_is_misspelt(&nearest))
                        return rv_fail(err, RV_EINPUT,
                                       "%s:%d: %s has no member \"%.64s\"; the nearest is \"%s\"", path,
                                       file_line_of(path, key), where, key, nearest.known);
        }
        return RV_OK;
}

/* A pipe, terminal or /dev/null is written as it is: to rename a file over it would replace it. */
static bool written_in_place(const char *path)
{
        struct stat info;
        return stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
}

/* Opens a file that was not there, beside the final one: never one that somebody else has put in its place,
 * be it a symbolic link or the temporary of a process of the same number on another machine. -1 with errno.
 */
static int open_beside(struct file_writer *writer)
{
        enum { TRIES = 1000 };
        int descriptor = -1;
        for (int try = 0; try < TRIES && descriptor < 0; try++) {
                int length = snprintf(writer->temporary, sizeof writer->temporary, "%s.tmp%d", writer->final,
                                      (int)getpid());
                if (try > 0)
                        snprintf(writer->temporary + length, sizeof writer->temporary - (size_t)length, "-%d",
                                 try);
                descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
                if (descriptor < 0 && errno != EEXIST)
                        break;
        }
        return descriptor;
}

int file_writer_open(struct file_writer *writer, const char *path, struct rv_error_info *err)
{
        writer->stream = NULL;
        writer->reason = 0;
        writer->temporary[0] = '\0';
        int length = snprintf(writer->final, sizeof writer->final, "%s", path);
        if (length < 0 || (size_t)length >= sizeof writer->final)
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %zu bytes", path,
                               sizeof writer->final - 1);
        if (file_check_writable(path, err) != RV_OK)
                return RV_EINPUT;
        /* Of a link to a file, what it names is replaced, and the link stays. */
        char linked[PATH_MAX];
        struct stat before;
        if (lstat(path, &before) == 0 && S_ISLNK(before.st_mode) && !written_in_place(path) &&
            realpath(path, linked) && strlen(linked) < sizeof writer->final)
                memcpy(writer->final, linked, strlen(linked) + 1);
        int descriptor = written_in_place(path) ? open(path, O_WRONLY | O_CLOEXEC) : open_beside(writer);
        if (descriptor >= 0 && writer->temporary[0] && stat(writer->final, &before) == 0)
                fchmod(descriptor, before.st_mode & 0777); /* as the file was that it replaces */
        writer->stream = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
        if (writer->stream)
                return RV_OK;
        int reason = errno;
        if (descriptor >= 0)
                close(descriptor);
        if (descriptor >= 0 && writer->temporary[0])
                unlink(writer->temporary);
        writer->temporary[0] = '\0';
        return rv_fail(err, RV_EINPUT, "%s: cannot be written: %s", path, strerror(reason));
}

void file_writer_flush(struct file_writer *writer)
{
        if (fflush(writer->stream) != 0 && writer->reason == 0)
                writer->reason = errno;
}

int file_writer_commit(struct file_writer *writer, struct rv_error_info *err)
{
        errno = 0;
        bool failed = ferror(writer->stream) != 0;
        failed |= fflush(writer->stream) != 0;
        /* Without this a crash of the machine could leave the new name with old or no content. */
        if (!failed && writer->temporary[0])
                failed = fsync(fileno(writer->stream)) != 0;
        int reason = writer->reason ? writer->reason : errno;
        if (fclose(writer->stream) != 0 && !failed) {
                failed = true;
                reason = errno;
        }
        writer->stream = NULL;
        if (!failed && writer->temporary[0] && rename(writer->temporary, writer->final) != 0) {
                failed = true;
                reason = errno;
        }
        if (failed) {
                file_writer_abandon(writer);
                return rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", writer->final,
                               reason ? strerror(reason) : "an earlier write failed");
        }
        writer->temporary[0] = '\0';
        return RV_OK;
}

void file_writer_abandon(struct file_writer *writer)
{
        if (writer->stream)
                fclose(writer->stream);
        writer->stream = NULL;
        if (writer->temporary[0])
                unlink(writer->temporary);
        writer->temporary[0] = '\0';
}

int file_settle(const char *folder, struct rv_error_info *err)
{
        const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* A file system that cannot settle a folder by itself says EINVAL. */
        const bool failed = descriptor < 0 || (fsync(descriptor) != 0 && errno != EINVAL);
        const int reason = errno;
        if (descriptor >= 0)
                close(descriptor);
        return failed ? rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", folder, strerror(reason))
                      : RV_OK;
}

/* The folder that TMPDIR names. */
static const char *temporary_folder(void)
{
        const char *folder = getenv("TMPDIR");
        return folder && *folder ? folder : "/tmp";
}

/* A name for mkstemp or mkdtemp. If it is too long, errno says so. */
static bool temporary_name(char *path, size_t path_size)
{
        const int length = snprintf(path, path_size, "%s/ranvier-XXXXXX", temporary_folder());
        errno = ENAMETOOLONG;
        return length >= 0 && (size_t)length < path_size;
}

int file_make_temporary_folder(char *path, size_t path_size, struct rv_error_info *err)
{
        return temporary_name(path, path_size) && mkdtemp(path)
                       ? 0
                       : rv_fail(err, RV_ESYSTEM, "no temporary folder in %s: %s", temporary_folder(),
                                 strerror(errno));
}

FILE *file_open_temporary(char *path, size_t path_size, struct rv_error_info *err)
{
        const int descriptor = temporary_name(path, path_size) ? mkstemp(path) : -1;
        FILE *stream = descriptor >= 0 ? fdopen(descriptor, "w+") : NULL;
        if (stream)
                return stream;
        rv_fail(err, RV_ESYSTEM, "no temporary file in %s: %s", temporary_folder(), strerror(errno));
        if (descriptor >= 0) {
                close(descriptor);
                unlink(path);
        }
        return NULL;
}

/* The folder that `path` lies in; false if that is too long for `folder`. */
static bool folder_of(const char *path, char *folder, size_t folder_size)
{
        const char *slash = strrchr(path, '/');
        size_t length = slash ? (size_t)(slash - path) + (slash == path) : 0;
        if (length >= folder_size)
                return false;
        snprintf(folder, folder_size, "%.*s", slash ? (int)length : 1, slash ? path : ".");
        return true;
}

/* Whether two paths, of files that need not be there, end in one name in one folder. */
static bool same_name(const char *path, const char *other)
{
        char folder[1024], other_folder[1024];
        const char *slash = strrchr(path, '/'), *other_slash = strrchr(other, '/');
        struct stat first, second;
        return strcmp(slash ? slash + 1 : path, other_slash ? other_slash + 1 : other) == 0 &&
               folder_of(path, folder, sizeof folder) &&
               folder_of(other, other_folder, sizeof other_folder) && stat(folder, &first) == 0 &&
               stat(other_folder, &second) == 0 && first.st_dev == second.st_dev &&
               first.st_ino == second.st_ino;
}

bool file_would_replace(const char *path, const char *other)
{
        struct stat first, second;
        if (stat(path, &first) == 0 && stat(other, &second) == 0)
                return (S_ISREG(first.st_mode) || S_ISDIR(first.st_mode)) && first.st_dev == second.st_dev &&
                       first.st_ino == second.st_ino;
        return same_name(path, other) && !written_in_place(path);
}

bool file_uses_clash(const struct file_use *a, const struct file_use *b)
{
        if (!a->path || !b->path || !(a->written || b->written))
                return false;
        if (a->written && b->written)
                return file_would_replace(a->path, b->path);
        return access(a->written ? b->path : a->path, F_OK) == 0 && file_would_replace(a->path, b->path);
}

int file_check_uses(const struct file_use *uses, int count, struct rv_error_info *err)
{
        for (int i = 0; i < count; i++)
                for (int j = i + 1; j < count; j++)
                        if (file_uses_clash(&uses[i], &uses[j]))
                                return rv_fail(err, RV_EINPUT, "%s and %s are the same file, %s",
                                               uses[i].name, uses[j].name,
                                               uses[uses[i].written ? i : j].path);
        for (int i = 0; i < count; i++) {
                int rc = uses[i].written && uses[i].path ? file_check_writable(uses[i].path, err) : RV_OK;
                if (rc != RV_OK)
                        return rc;
        }
        return RV_OK;
}

int file_check_writable(const char *path, struct rv_error_info *err)
{
        char folder[1024];
        struct stat info;
        if (path[0] == '\0')
                return rv_fail(err, RV_EINPUT, "an output file has an empty name");
        if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
                return rv_fail(err, RV_EINPUT, "%s: is a folder, a file to write was expected", path);
        if (written_in_place(path))
                return access(path, W_OK) == 0
                               ? RV_OK
                               : rv_fail(err, RV_EINPUT, "%s: cannot be written: %s", path, strerror(errno));
        if (!folder_of(path, folder, sizeof folder))
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %zu bytes", path,
                               sizeof folder - 1);
        if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
                return rv_fail(err, RV_EINPUT, "%s: cannot be written: %s is not a folder", path, folder);
        if (access(folder, W_OK | X_OK) != 0)
                return rv_fail(err, RV_EINPUT, "%s: cannot be written: folder %s: %s", path, folder,
                               strerror(errno));
        return RV_OK;
}

int file_check_printed(struct rv_error_info *err)
{
        errno = 0;
        if (fflush(stdout) == 0 && !ferror(stdout))
                return RV_OK;
        return rv_fail(err, RV_ESYSTEM, "standard output could not be written%s%s", errno ? ": " : "",
                       errno ? strerror(errno) : "");
}

int file_print_json(const json_t *document, struct rv_error_info *err)
{
        if (!document || json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0)
                return rv_fail(err, RV_ESYSTEM, "the result could not be printed as JSON");
        putchar('\n');
        return file_check_printed(err);
}

int file_write_json(const char *path, const json_t *document, struct rv_error_info *err)
{
        struct file_writer writer;
        int status = file_writer_open(&writer, path, err);
        if (status != RV_OK)
                return status;
        errno = 0;
        if (json_dumpf(document, writer.stream, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) != 0) {
                int reason = errno;
                file_writer_abandon(&writer);
                return rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", path,
                               reason ? strerror(reason) : "it is no JSON document");
        }
        fputc('\n', writer.stream);
        return file_writer_commit(&writer, err);
}
