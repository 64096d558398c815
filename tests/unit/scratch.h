/* A folder of its own for a test's files, gone with the test. */
#ifndef RANVIER_TESTS_UNIT_SCRATCH_H
#define RANVIER_TESTS_UNIT_SCRATCH_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scratch {
        char folder[256], path[600]; /* path: of the file named last */
};

static inline void scratch_open(struct scratch *scratch)
{
        const char *place = getenv("TMPDIR");
        snprintf(scratch->folder, sizeof scratch->folder, "%s/ranvier-test-XXXXXX", place ? place : "/tmp");
        if (!mkdtemp(scratch->folder)) {
                perror(scratch->folder);
                exit(99);
        }
}

static inline const char *scratch_path(struct scratch *scratch, const char *name)
{
        snprintf(scratch->path, sizeof scratch->path, "%s/%s", scratch->folder, name);
        return scratch->path;
}

/* Writes a file and returns its path. */
static inline const char *scratch_write(struct scratch *scratch, const char *name, const void *bytes,
                                        size_t size)
{
        FILE *stream = fopen(scratch_path(scratch, name), "wb");
        if (!stream || fwrite(bytes, 1, size, stream) != size || fclose(stream) != 0) {
                perror(scratch->path);
                exit(99);
        }
        return scratch->path;
}

/* How many files lie in the folder. */
static inline int scratch_count(const struct scratch *scratch)
{
        int count = 0;
        DIR *folder = opendir(scratch->folder);
        for (struct dirent *entry; folder && (entry = readdir(folder));)
                count += entry->d_name[0] != '.';
        if (folder)
                closedir(folder);
        return count;
}

static inline void scratch_close(struct scratch *scratch)
{
        DIR *folder = opendir(scratch->folder);
        for (struct dirent *entry; folder && (entry = readdir(folder));)
                unlink(scratch_path(scratch, entry->d_name));
        if (folder)
                closedir(folder);
        rmdir(scratch->folder);
}

#endif
