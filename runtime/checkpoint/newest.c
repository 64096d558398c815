#include "runtime/checkpoint/newest.h"

#include "runtime/checkpoint/state.h"

#include <stdio.h>
#include <sys/stat.h>

struct newest newest_begin(const char *folder, const char *who)
{
        char path[FOLDER_FILE];
        struct stat info;
        struct newest found = {.folder = folder, .who = who, .count = 1, .single = true};
        snprintf(path, sizeof path, "%.900s/%s", folder, STATE_INDEX);
        if (stat(path, &info) == 0)
                return found;
        found.single = false;
        found.steps = folder_steps(folder, false, &found.count);
        return found;
}

json_t *newest_next(struct newest *newest, char name[FOLDER_CHECKPOINT], struct rv_error_info *err)
{
        while (newest->next < newest->count) {
                struct rv_error_info why = {.code = RV_OK};
                if (newest->single)
                        snprintf(name, FOLDER_CHECKPOINT, "%.900s", newest->folder);
                else
                        folder_name_step(name, newest->folder, newest->steps[newest->next]);
                newest->next++;
                json_t *index = state_read_index(name, &why);
                if (index)
                        return index;
                if (newest->who)
                        fprintf(stderr, "%s: warning: %s\n", newest->who, why.sentence);
        }
        rv_fail(err, RV_EINPUT, "%s: %s", newest->folder,
                newest->count ? "no checkpoint in it is whole"
                              : "there is no checkpoint of ranvier train in it");
        return NULL;
}
