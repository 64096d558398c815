/* Platform files: JSON in which every figure has its unit and its source. */
#ifndef RANVIER_SIM_PLATFORM_PLATFORM_FILE_H
#define RANVIER_SIM_PLATFORM_PLATFORM_FILE_H

#include "sim/platform/platform.h"

/* Reads the file platform->path into a platform that has its defaults. Complaints name the file, the line,
 * what was found and what would be right. On failure platform_free has something to free. */
int platform_file_read(struct platform *platform, struct rv_error_info *err);

#endif
