#include "sim/evidence/frameworks.h"

#include <stdlib.h>
#include <string.h>

enum { LONGEST = 1024 };

struct frameworks_one {
        struct frameworks_one *next;
        char like[LONGEST], without[LONGEST];
        struct framework framework;
};

static struct frameworks_one *find(const struct frameworks *list, const char *like, const char *without)
{
        struct frameworks_one *one = list->first;
        while (one && (strcmp(one->like, like) != 0 || strcmp(one->without, without) != 0))
                one = one->next;
        return one;
}

static struct frameworks_one *add(struct frameworks *list, const struct options *o, struct rv_error_info *err)
{
        struct frameworks_one *one = calloc(1, sizeof *one);
        if (!one) {
                rv_fail(err, RV_ESYSTEM, "no memory for framework %.64s", o->like);
                return NULL;
        }
        if (framework_load(&one->framework, o->like, o->without, err)) {
                free(one);
                return NULL;
        }
        strncpy(one->like, o->like, LONGEST - 1);
        strncpy(one->without, o->without ? o->without : "", LONGEST - 1);
        one->next = list->first;
        list->first = one;
        return one;
}

int frameworks_take(struct frameworks *list, struct options *o, struct rv_error_info *err)
{
        struct framework none;
        if (!o->like)
                return framework_take(&none, o, err);
        struct frameworks_one *one = find(list, o->like, o->without ? o->without : "");
        if (!one)
                one = add(list, o, err);
        if (!one)
                return err->code;
        o->like = one->like;
        o->without = one->without[0] ? one->without : NULL;
        o->framework = &one->framework;
        framework_flags(o);
        return 0;
}

void frameworks_free(struct frameworks *list)
{
        for (struct frameworks_one *one = list->first; one;) {
                struct frameworks_one *next = one->next;
                framework_free(&one->framework);
                free(one);
                one = next;
        }
        list->first = NULL;
}
