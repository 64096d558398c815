/* Reads platform files: JSON in which every figure has its value, its unit and its source, such as
 * {"value": 300, "unit": "GB/s", "source": "datasheet"}. sim/README.md lists the members.
 *
 * platform_load (platform.h) is the one caller; it finds the path of a preset first. Figures are converted to
 * bytes, seconds and flops, so that nothing behind this module knows of units. */
#ifndef RANVIER_SIM_PLATFORM_PLATFORM_FILE_H
#define RANVIER_SIM_PLATFORM_PLATFORM_FILE_H

#include "sim/platform/platform.h"

/* The folder of the presets, in the source tree. */
#define PLATFORM_PRESETS "sim/platforms"

/* Reads a platform file as JSON, and adds the members that it leaves out and the preset it is "like" has. The
 * caller owns `document` (json_decref). Checked are what it is, the names of its members, its name and its
 * source; errors are as below, after which `document` is NULL. */
int platform_file_document(const char *path, json_t **document, struct rv_error_info *err);

/* Reads the file platform->path. The caller has set the path and the defaults of what a file may leave out
 * (one rail, one socket, one segment). A member that is missing, misspelt, without a unit or source, or out
 * of range is RV_EINPUT with a sentence that names the file, the line, what was found and what would be
 * right; RV_ESYSTEM means that memory ran out. After a failure, too, the caller must call platform_free,
 * since `groups` may be allocated. */
int platform_file_read(struct platform *platform, struct rv_error_info *err);

#endif
