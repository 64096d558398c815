#include "runtime/checkpoint/folder.h"

#include "runtime/base/file.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP_DIGITS = 12 };

void folder_name_step(char name[FOLDER_CHECKPOINT], const char *folder, int64_t step)
{
        snprintf(name, FOLDER_CHECKPOINT, "%s/step-%0*lld", folder, STEP_DIGITS, (long long)step);
}

void folder_name_temporary(char name[FOLDER_CHECKPOINT], const char *folder, int64_t step, int writer)
{
        snprintf(name, FOLDER_CHECKPOINT, "%s/step-%0*lld.tmp%d", folder, STEP_DIGITS, (long long)step,
                 writer);
}

void folder_name_part(char name[FOLDER_PART], int rank)
{
        snprintf(name, FOLDER_PART, "rank-%05d.safetensors", rank);
}

/* The steps of a checkpoint by the name of its folder; -1: it is none's. `*half`: it was not completed. */
static int64_t steps_of(const char *name, bool *half)
{
        char *end;
        if (strncmp(name, "step-", 5) != 0 || strspn(name + 5, "0123456789") != STEP_DIGITS)
                return -1;
        const int64_t step = strtoll(name + 5, &end, 10);
        *half = strncmp(end, ".tmp", 4) == 0;
        return *end && !*half ? -1 : step;
}

void folder_remove(const char *path)
{
        DIR *stream = opendir(path);
        char inside[FOLDER_FILE + 260];
        for (const struct dirent *entry; stream && (entry = readdir(stream));) {
                snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
                if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
                        unlink(inside);
        }
        if (stream)
                closedir(stream);
        rmdir(path);
}

static int newest_first(const void *left, const void *right)
{
        const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
        return (a < b) - (a > b);
}

/* The checkpoints of a folder, newest first, as an array [*count], which is NULL if there are none. With
 * `sweeping` those that were not completed are removed. */
int64_t *folder_steps(const char *folder, bool sweeping, int *count)
{
        DIR *stream = opendir(folder);
        int64_t *steps = NULL;
        *count = 0;
        for (const struct dirent *entry; stream && (entry = readdir(stream));) {
                bool half = false;
                const int64_t step = steps_of(entry->d_name, &half);
                char path[FOLDER_CHECKPOINT + 260];
                snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
                if (step >= 0 && half && sweeping)
                        folder_remove(path);
                if (step < 0 || half)
                        continue;
                int64_t *longer = realloc(steps, ((size_t)*count + 1) * sizeof *steps);
                if (!longer)
                        abort();
                steps = longer;
                steps[(*count)++] = step;
        }
        if (stream)
                closedir(stream);
        if (steps)
                qsort(steps, (size_t)*count, sizeof *steps, newest_first);
        return steps;
}

int folder_check_new(const char *folder, struct rv_error_info *err)
{
        struct stat info;
        int count;
        if (strlen(folder) >= FOLDER_PATH)
                return rv_fail(err, RV_EINPUT, "%.200s...: the path is longer than %d bytes", folder,
                               FOLDER_PATH - 1);
        if (stat(folder, &info) != 0)
                return file_check_writable(folder, err);
        if (!S_ISDIR(info.st_mode))
                return rv_fail(err, RV_EINPUT,
                               "--checkpoint %s: is a file; with --checkpoint-every a folder is expected",
                               folder);
        int64_t *steps = folder_steps(folder, false, &count);
        const int64_t newest = count ? steps[0] : 0;
        free(steps);
        if (count)
                return rv_fail(
                        err, RV_EINPUT,
                        "--checkpoint %s: has checkpoints of a training, the newest of step %lld: --resume "
                        "%s goes on from there, and another training needs another folder",
                        folder, (long long)newest, folder);
        return access(folder, W_OK) == 0
                       ? RV_OK
                       : rv_fail(err, RV_EINPUT, "%s: cannot be written: %s", folder, strerror(errno));
}
