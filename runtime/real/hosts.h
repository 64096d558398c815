/* The hosts that `ranvier train --restarts` may start ranks on, as mpirun's --host or a hostfile has them,
 * and which of them answer. */
#ifndef RANVIER_RUNTIME_REAL_HOSTS_H
#define RANVIER_RUNTIME_REAL_HOSTS_H

#include "runtime/base/error.h"

#include <stdbool.h>

struct host {
        char *name;
        int slots; /* how many ranks it takes */
        bool gone; /* it did not answer */
};

/* Begins as zeros: no hosts. */
struct hosts {
        struct host *list;
        int count;
};

/* These append the hosts of a list "a:4,b:4" (without a number one slot; a name that is there again adds its
 * slots), or of a file with a line "a slots=4" a host, in which # begins a remark. They return 0, RV_EINPUT
 * or RV_ESYSTEM, with a sentence in which `option` is what the user knows it by. */
int hosts_parse(struct hosts *, const char *option, const char *list, struct rv_error_info *err);
int hosts_read(struct hosts *, const char *option, const char *path, struct rv_error_info *err);

/* Returns the slots of those that are not gone. */
int hosts_slots(const struct hosts *);

/* Returns those that are not gone as mpirun's --host takes them, each with its slots or, if `each` is not 0,
 * with so many. The caller frees it; NULL: there is no memory. */
char *hosts_text(const struct hosts *, int each);

void hosts_free(struct hosts *);

#endif
