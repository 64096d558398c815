#include "plots/html/inputs.h"

#include "runtime/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The first character that is no blank, and whether events of a trace stand near the beginning. */
static int look(const char *path, bool *traced, struct rv_error_info *err)
{
        char text[65536];
        FILE *file = fopen(path, "rb");
        if (!file)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        const size_t length = fread(text, 1, sizeof text - 1, file);
        const bool failed = ferror(file);
        fclose(file);
        if (failed)
                return rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
        text[length] = 0;
        const char *at = text;
        while (isspace((unsigned char)*at))
                at++;
        if (!*at)
                return rv_fail(err, RV_EINPUT,
                               "%s: is empty or no text; a report, a trace or a CSV was expected", path);
        *traced = *at == '[' || strstr(at, "\"traceEvents\"");
        return (unsigned char)*at;
}

static int take_json(struct inputs *in, const char *path, struct rv_error_info *err)
{
        json_t *document = file_read_json(path, err);
        const char *kind = json_string_value(json_object_get(document, "kind"));
        if (!document)
                return RV_EINPUT;
        if (kind && strcmp(kind, "plan") == 0) {
                in->plan_paths[in->plans] = path;
                in->plan[in->plans++] = document;
                return 0;
        }
        const bool run = json_object_get(document, "world") != NULL;
        json_decref(document);
        if (!run)
                return rv_fail(err, RV_EINPUT,
                               "%s: a JSON, but no report of ranvier plan, simulate or train, and no trace",
                               path);
        in->run_paths[in->runs++] = path;
        return 0;
}

int inputs_open(struct inputs *in, char *const *files, int count, struct rv_error_info *err)
{
        const char **paths = calloc((size_t)count * 4, sizeof *paths);
        *in = (struct inputs){.run_paths = paths};
        in->plan = calloc((size_t)count, sizeof *in->plan);
        if (!paths || !in->plan)
                return rv_fail(err, RV_ESYSTEM, "no memory for %d files", count);
        in->trace_paths = paths + count;
        in->table_paths = paths + 2 * count;
        in->plan_paths = paths + 3 * count;
        for (int i = 0; i < count; i++) {
                bool traced = false;
                int rc = look(files[i], &traced, err);
                if (rc > 0 && traced)
                        in->trace_paths[in->traces++] = files[i];
                else if (rc > 0 && rc != '{')
                        in->table_paths[in->tables++] = files[i];
                else if (rc > 0)
                        rc = take_json(in, files[i], err);
                if (rc < 0)
                        return rc;
        }
        if (in->runs)
                in->run = runs_read((char *const *)in->run_paths, in->runs, err);
        return in->runs && !in->run ? (int)err->code : 0;
}

void inputs_close(struct inputs *in)
{
        if (in->run)
                runs_free(in->run, in->runs);
        for (int i = 0; i < in->plans; i++)
                json_decref(in->plan[i]);
        free(in->plan);
        free(in->run_paths);
}

const struct run *inputs_partner(const struct inputs *in, const struct run *predicted)
{
        struct rv_error_info why;
        for (int i = 0; i < in->runs; i++)
                if (!in->run[i].simulated && runs_check_pair(predicted, &in->run[i], &why) == 0)
                        return &in->run[i];
        return NULL;
}
