/* The checkpoints of a folder one after the other, the newest first, as far as their indexes are whole: for
 * who looks for one to read. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_NEWEST_H
#define RANVIER_RUNTIME_CHECKPOINT_NEWEST_H

#include "runtime/base/error.h"
#include "runtime/checkpoint/folder.h"

#include <jansson.h>

struct newest {
        const char *folder; /* the caller's: of checkpoints, or one itself */
        const char
                *who; /* whose warnings name those that are passed over, "ranvier train"; or NULL: nobody's */
        int64_t *steps;
        int count, next;
        bool single; /* the folder is a checkpoint itself */
};

/* Looks at what is there. The caller frees `steps`. */
struct newest newest_begin(const char *folder, const char *who);

/* Returns the next index (state_read_index), and writes the path of its checkpoint to `name`; the caller
 * frees it. NULL with RV_EINPUT, and a sentence that begins with the folder: there is no other. Its files
 * have yet to be verified. */
json_t *newest_next(struct newest *, char name[FOLDER_CHECKPOINT], struct rv_error_info *err);

#endif
