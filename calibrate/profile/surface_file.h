/* Surfaces (surface.h) in a profile's file: its "tables". Shapes that differ in m alone (of attention: in
 * batch) are one text, "pass batch n k group: m us, m us, ...", microseconds with four digits, so that tens
 * of thousands of points fit. */
#ifndef RANVIER_CALIBRATE_PROFILE_SURFACE_FILE_H
#define RANVIER_CALIBRATE_PROFILE_SURFACE_FILE_H

#include "calibrate/profile/surface.h"
#include "runtime/base/error.h"

#include <jansson.h>

/* Reads a surface and prepares it. `path` and `where` name file and place for errors. RV_EINPUT says what is
 * missing or wrong; then there is nothing to free. */
int surface_read(struct surface *surface, const json_t *object, enum surface_form form, const char *path,
                 const char *where, struct rv_error_info *err);

/* Returns the object that surface_read reads; the caller owns it. */
json_t *surface_json(const struct surface *surface);

#endif
