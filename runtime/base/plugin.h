/* Parts of the program that are loaded when they are asked for: they need libraries that not every machine
 * has. */
#ifndef RANVIER_RUNTIME_BASE_PLUGIN_H
#define RANVIER_RUNTIME_BASE_PLUGIN_H

#include "runtime/base/error.h"

/* A function's symbol in the plugin `file` ("device_cuda.so"), which lies beside the program that runs, or
 * where the environment's `variable` says. It stays loaded. NULL with RV_ENOTBUILT and a sentence that begins
 * with `what`: there is none, and `how` one comes to be; or it does not load. */
typedef void plugin_fn(void);
plugin_fn *plugin_load(const char *file, const char *variable, const char *symbol, const char *what,
                       const char *how, struct rv_error_info *err);

#endif
