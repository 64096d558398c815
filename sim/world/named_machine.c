#include "sim/world/named_machine.h"

#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "sim/platform/platform.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char FOLDER[] = "sim/machines";
static const char PROFILES[] = "calibrate/profiles";
const struct option_words named_machine_words = {.folder = FOLDER};

void named_machine_list(char line[NAMED_MACHINES_TEXT])
{
        file_list(line, NAMED_MACHINES_TEXT, FOLDER, ".json");
}

/* ---- the name ---- */

/* The N of "NxNAME", whose NAME `name` becomes; 0: there is none. -1: it is no number that a node could have.
 */
static int split_count(const char *text, const char **name)
{
        size_t digits = 0;
        *name = text;
        while (isdigit((unsigned char)text[digits]))
                digits++;
        if (digits == 0 || text[digits] != 'x' || !text[digits + 1])
                return 0;
        *name = text + digits + 1;
        const long count = strtol(text, NULL, 10);
        return digits < 7 && count > 0 ? (int)count : -1;
}

static int no_machine(const char *text, const char *name, struct rv_error_info *err)
{
        char all[NAMED_MACHINES_TEXT], near[256] = "", *place = NULL;
        named_machine_list(all);
        for (char *known = strtok_r(all, " ", &place); known; known = strtok_r(NULL, " ", &place)) {
                struct nearest nearest = {.word = name};
                if (strcasecmp(known, name) == 0)
                        return rv_fail(err, RV_EINPUT, "there is no machine '%.40s', but '%s'", text, known);
                nearest_offer(&nearest, known);
                const bool begins = strncmp(name, known, strlen(known)) == 0;
                if ((nearest.known || begins) && strlen(near) + strlen(known) + 3 < sizeof near)
                        snprintf(near + strlen(near), sizeof near - strlen(near), "%s%s", *near ? ", " : "",
                                 known);
        }
        return rv_fail(err, RV_EINPUT, "there is no machine '%.40s'%s%s; 'ranvier machines' lists all", text,
                       *near ? "; near are " : "", near);
}

/* ---- its file ---- */

static int wrong(const char *path, const char *key, const char *what, struct rv_error_info *err)
{
        return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" must be %s", path, file_line_of(path, key), key, what);
}

/* The first profile that is there. */
static int read_profiles(struct named_machine *m, const char *path, const json_t *list,
                         struct rv_error_info *err)
{
        char found[1024];
        size_t i;
        const json_t *value;
        if (json_array_size(list) == 0)
                return wrong(path, "profiles", "a list of names of profiles", err);
        json_array_foreach(list, i, value)
        {
                const char *name = json_string_value(value);
                if (!name || !*name || strlen(name) >= sizeof m->profile)
                        return wrong(path, "profiles", "a list of names of profiles", err);
                const size_t used = strlen(m->profiles);
                snprintf(m->profiles + used, sizeof m->profiles - used, "%s%s", used ? ", " : "", name);
                if (!m->profile[0] && file_find(found, sizeof found, PROFILES, name, ".json") == 0)
                        memcpy(m->profile, name, strlen(name) + 1);
        }
        return 0;
}

static int read_machine(struct named_machine *m, const char *path, const json_t *document,
                        struct rv_error_info *err)
{
        static const char *const known[] = {"ranvier", "kind", "what", "profiles", "platform"};
        const char *kind = json_string_value(json_object_get(document, "kind"));
        const char *what = json_string_value(json_object_get(document, "what"));
        const char *platform = json_string_value(json_object_get(document, "platform"));
        if (!kind || strcmp(kind, "machine") != 0)
                return wrong(path, "kind", "\"machine\"", err);
        if (!what || !*what)
                return wrong(path, "what", "a text", err);
        if (!platform || !*platform || strlen(platform) >= sizeof m->platform)
                return wrong(path, "platform", "the name of a platform", err);
        snprintf(m->what, sizeof m->what, "%s", what);
        memcpy(m->platform, platform, strlen(platform) + 1);
        const int rc = file_check_keys(path, "a machine", document, known, sizeof known / sizeof *known, err);
        return rc ? rc : read_profiles(m, path, json_object_get(document, "profiles"), err);
}

/* N GPUs must be of one node. */
static int check_node(const struct named_machine *m, struct rv_error_info *err)
{
        struct platform platform;
        int rc = platform_load(&platform, m->platform, NULL, 1, err);
        if (rc)
                return rc;
        if (m->gpus < 0 || m->gpus > platform.gpus_per_node)
                rc = rv_fail(
                        err, RV_EINPUT,
                        "machine %.40s: a node of %s has 1 to %d GPUs; for several nodes give --machine %s "
                        "and --gpus",
                        m->text, m->name, platform.gpus_per_node, m->name);
        platform_free(&platform);
        return rc;
}

int named_machine_load(struct named_machine *m, const char *text, struct rv_error_info *err)
{
        char path[1024];
        const char *name = text;
        *m = (struct named_machine){.gpus = 0};
        if (strchr(text, '/') || file_find(path, sizeof path, FOLDER, text, ".json") != 0) {
                m->gpus = split_count(text, &name);
                if (strchr(text, '/') || strlen(text) >= sizeof m->text || m->gpus == 0 ||
                    file_find(path, sizeof path, FOLDER, name, ".json") != 0)
                        return no_machine(text, name, err);
        }
        snprintf(m->text, sizeof m->text, "%s", text);
        snprintf(m->name, sizeof m->name, "%s", name);
        json_t *document = file_read_json(path, err);
        if (!document)
                return RV_EINPUT;
        int rc = read_machine(m, path, document, err);
        json_decref(document);
        if (rc == 0 && m->gpus)
                rc = check_node(m, err);
        return rc;
}

int named_machine_take(struct named_machine *m, const char *text, const char **profile, const char **platform,
                       struct rv_error_info *err)
{
        if (!text)
                return 0;
        int rc = named_machine_load(m, text, err);
        if (rc)
                return rc;
        if (!*profile && !m->profile[0])
                return rv_fail(err, RV_EINPUT,
                               "machine %s: its profile is not there (%s); name another with --profile, or "
                               "choose a machine that 'ranvier machines' lists",
                               m->text, m->profiles);
        *profile = *profile ? *profile : m->profile;
        *platform = *platform ? *platform : m->platform;
        return 0;
}

int named_machine_check(const struct named_machine *m, int gpus, struct rv_error_info *err)
{
        if (m->gpus == 0 || gpus <= m->gpus)
                return 0;
        return rv_fail(err, RV_EPLAN, "--gpus %d: machine %s has %d; for several nodes give --machine %s",
                       gpus, m->text, m->gpus, m->name);
}
