/* `ranvier calibrate --import`: a profile of a GPU from tables of kernels that somebody measured
 * (models/shape_table.h), and the GPU's datasheet. */
#ifndef RANVIER_CALIBRATE_IMPORT_H
#define RANVIER_CALIBRATE_IMPORT_H

#include "runtime/base/error.h"

#include <stdbool.h>

/* The most tables of one import. */
enum { IMPORT_TABLES = 64 };

/* Where the GPUs that tables may be of are described (file_find). */
#define IMPORT_DEVICES "calibrate/devices"

struct import_request {
        /* A file that describes the GPU, or a preset's name (calibrate/devices). */
        const char *device;
        const char *tables[IMPORT_TABLES];
        int table_count;
        /* The profile. */
        const char *out;
        /* Where the tables are from, for the profile's readers; NULL: not said. */
        const char *source;
        /* The profile is printed as JSON, and nothing else is. */
        bool json;
};

/* Writes the profile and prints, for each kind of kernel, how many shapes there are and how wrong the profile
 * is about shapes that it did not see. RV_EINPUT names file, line and what is wrong: an unknown device, a
 * table of other GPUs alone, seconds in another unit. */
int import_run(const struct import_request *request, struct rv_error_info *err);

#endif
