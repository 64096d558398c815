/* Plugins: parts of the program in shared libraries of their own, which are loaded when they are asked for,
 * because they need libraries that not every machine has. There are three, device_cuda.so (--device cuda),
 * net_nccl.so (collectives by NCCL) and attention_cudnn.so (--attention cudnn). */
#ifndef RANVIER_RUNTIME_BASE_PLUGIN_H
#define RANVIER_RUNTIME_BASE_PLUGIN_H

#include "runtime/base/error.h"

/* Loads the plugin `file` and returns its function `symbol`, which the caller converts to the right type. The
 * file is looked for in the folder of the running program, or, if the environment variable `variable` is set
 * and not empty, at the path that it gives. A plugin is never unloaded. If the file is not there or does not
 * load, returns NULL with RV_ENOTBUILT and a sentence: it begins with `what`, the thing that was asked for,
 * and if the plugin was not built it ends with `how`, which says how to build it. */
typedef void plugin_fn(void);
plugin_fn *plugin_load(const char *file, const char *variable, const char *symbol, const char *what,
                       const char *how, struct rv_error_info *err);

/* The same without a function: returns the plugin's handle, for dlsym, which finds what the libraries that it
 * needs have, too. */
void *plugin_open(const char *file, const char *variable, const char *what, const char *how,
                  struct rv_error_info *err);

#endif
