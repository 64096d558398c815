#include "runtime/base/plugin.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *environment(const char *variable)
{
        const char *given = getenv(variable);
        return given && *given ? given : NULL;
}

static bool find(char *path, size_t bytes, const char *file, const char *variable)
{
        const char *given = environment(variable);
        if (given) /* dlopen would look for a name without a slash in the folders of libraries */
                return (size_t)snprintf(path, bytes, "%s%s", strchr(given, '/') ? "" : "./", given) < bytes;
        const ssize_t length = readlink("/proc/self/exe", path, bytes);
        if (length < 0 || (size_t)length >= bytes)
                return false;
        path[length] = '\0';
        char *name = strrchr(path, '/') + 1;
        if ((size_t)(name - path) + strlen(file) + 1 > bytes)
                return false;
        strcpy(name, file);
        return true;
}

void *plugin_open(const char *file, const char *variable, const char *what, const char *how,
                  struct rv_error_info *err)
{
        char path[4096];
        const bool known = find(path, sizeof path, file, variable);
        if ((!known || access(path, F_OK)) && environment(variable)) {
                rv_fail(err, RV_ENOTBUILT, "%s: %s is %.300s, and there is no such file", what, variable,
                        environment(variable));
                return NULL;
        }
        if (!known || access(path, F_OK)) {
                rv_fail(err, RV_ENOTBUILT, "%s was not built here (there is no %.300s): %s", what,
                        known ? path : file, how);
                return NULL;
        }
        void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!plugin)
                rv_fail(err, RV_ENOTBUILT, "%s does not load: %.400s", what, dlerror());
        return plugin;
}

plugin_fn *plugin_load(const char *file, const char *variable, const char *symbol, const char *what,
                       const char *how, struct rv_error_info *err)
{
        void *plugin = plugin_open(file, variable, what, how, err);
        void *found = plugin ? dlsym(plugin, symbol) : NULL;
        if (!found) {
                if (plugin)
                        rv_fail(err, RV_ENOTBUILT, "%s does not load: %.400s", what, dlerror());
                return NULL;
        }
        plugin_fn *function;
        memcpy(&function, &found,
               sizeof function); /* POSIX's way around ISO C, which knows no such conversion */
        return function;
}
