/* The folder of a training's checkpoints: each is a folder in it, step-000000000100 behind 100 steps, of
 * files by runtime/checkpoint/state.h. While it is written its name has .tmp and more behind it. Paths that
 * are too long for their arrays are refused by folder_check_new. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_FOLDER_H
#define RANVIER_RUNTIME_CHECKPOINT_FOLDER_H

#include "runtime/base/error.h"

#include <stdbool.h>
#include <stdint.h>

/* The lengths of paths: of the folder of all, of one checkpoint, of a file in it; and of that file's name. */
enum { FOLDER_PATH = 900, FOLDER_CHECKPOINT = 960, FOLDER_FILE = 1000, FOLDER_PART = 32 };

/* Write the path of a checkpoint, that while it is written by the processes of which `writer` is one's id,
 * and the name of a rank's file in it. */
void folder_name_step(char name[FOLDER_CHECKPOINT], const char *folder, int64_t step);
void folder_name_temporary(char name[FOLDER_CHECKPOINT], const char *folder, int64_t step, int writer);
void folder_name_part(char name[FOLDER_PART], int rank);

/* Returns the steps of the checkpoints of a folder, the newest first, as an array [*count] that the caller
 * frees; NULL if there are none. With `sweeping`, those that were not completed are removed. */
int64_t *folder_steps(const char *folder, bool sweeping, int *count);

/* Removes a checkpoint and its files, if it is there. */
void folder_remove(const char *path);

/* Checks that a training that begins may keep its checkpoints in a folder: it can be made, or is there and
 * can be written, and has none of another training. RV_EINPUT. */
int folder_check_new(const char *folder, struct rv_error_info *err);

#endif
