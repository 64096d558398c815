#include "sim/platform/platform_file.h"

#include "runtime/base/file.h"
#include "runtime/base/nearest.h"
#include "sim/platform/fabric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A bandwidth must be more than nothing: a byte a second is the least that makes sense. */
static const double MIN_RATE = 1e-9;

enum dimension { COUNT, BYTES, SECONDS, RATE, FLOP_RATE, SECONDS_PER_BYTE, RATIO, POWER };

static const struct unit {
        const char *name;
        enum dimension dimension;
        double factor;
} units[] = {
        {"count", COUNT, 1},          {"B", BYTES, 1},           {"GB", BYTES, 1e9},
        {"GiB", BYTES, 1073741824.0}, {"s", SECONDS, 1},         {"us", SECONDS, 1e-6},
        {"GB/s", RATE, 1e9},          {"Gbit/s", RATE, 1e9 / 8}, {"Tflop/s", FLOP_RATE, 1e12},
        {"s/B", SECONDS_PER_BYTE, 1}, {"ratio", RATIO, 1},       {"W", POWER, 1},
        {"kW", POWER, 1e3},
};
static const char *const unit_lists[] = {
        [COUNT] = "count",       [BYTES] = "B, GB or GiB",   [SECONDS] = "s or us", [RATE] = "GB/s or Gbit/s",
        [FLOP_RATE] = "Tflop/s", [SECONDS_PER_BYTE] = "s/B", [RATIO] = "ratio",     [POWER] = "W or kW",
};

/* No machine has more, and sums and products of less are far from where numbers end. */
static const struct {
        double max;
        const char *text;
} limits[] = {
        [COUNT] = {INFINITY, ""}, /* check_count() says more */
        [BYTES] = {1152921504606846976.0, "2^60 bytes"},
        [SECONDS] = {3600, "3600 s"},
        [RATE] = {1e18, "1e9 GB/s"},
        [FLOP_RATE] = {1e21, "1e9 Tflop/s"},
        [SECONDS_PER_BYTE] = {1, "1 s/B"},
        [RATIO] = {1, "1"},
        [POWER] = {1e9, "1e6 kW"},
};

/* An object of the file that is being read. */
struct reading {
        const char *path;
        const json_t *object;
        bool sourced;       /* one "source" speaks for all of its figures */
        const char *inside; /* the member of the document that it is in; NULL: it is the document */
        struct rv_error_info *err;
};

/* Of the member, or of the one that it is in: a key may stand in several objects. */
static int line_of(const struct reading *r, const char *key)
{
        return file_line_of(r->path, r->inside ? r->inside : key);
}

/* The object `key` in another one, which may be left out: then its `object` is NULL. */
static int enter(const struct reading *outer, const char *key, struct reading *inner)
{
        *inner = (struct reading){.path = outer->path,
                                  .object = json_object_get(outer->object, key),
                                  .sourced = outer->sourced,
                                  .inside = outer->inside ? outer->inside : key,
                                  .err = outer->err};
        if (inner->object && !json_is_object(inner->object))
                return rv_fail(outer->err, RV_EINPUT, "%s:%d: \"%s\" must be an object", outer->path,
                               line_of(outer, key), key);
        const char *source = json_string_value(json_object_get(inner->object, "source"));
        inner->sourced = inner->sourced || (source && *source);
        return 0;
}

/* ---- what is misspelt is not passed over ---- */

static int check_keys(const struct reading *r, const char *where, const char *const *known,
                      size_t known_count)
{
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)r->object, key, value)
        {
                size_t i = 0;
                while (i < known_count && strcmp(known[i], key) != 0)
                        i++;
                if (i < known_count)
                        continue;
                struct nearest nearest = {.word = key};
                for (i = 0; i < known_count; i++)
                        nearest_offer(&nearest, known[i]);
                return rv_fail(r->err, RV_EINPUT, "%s:%d: %s has no member \"%.64s\"%s%s%s", r->path,
                               line_of(r, key), where, key, nearest.known ? "; the nearest is \"" : "",
                               nearest.known ? nearest.known : "", nearest.known ? "\"" : "");
        }
        return 0;
}

/* ---- figures: {"value": 300, "unit": "GB/s", "source": "datasheet"} ---- */

struct figure {
        const char *key;
        enum dimension dimension;
        double min;
        bool optional;
        double *value;
};

/* How the least value is said. */
static const char *min_text(const struct figure *figure, char text[48])
{
        if (figure->dimension == RATE)
                snprintf(text, 48, "greater than 0");
        else
                snprintf(text, 48, "at least %g", figure->min);
        return text;
}

static int wrong_value(const struct reading *r, const struct figure *figure, const json_t *value)
{
        char min[48], *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" has the value %.32s, must be a number that is %s", r->path,
                line_of(r, figure->key), figure->key, found ? found : "?", min_text(figure, min));
        free(found);
        return RV_EINPUT;
}

static int convert(const struct reading *r, const struct figure *figure, double value, const char *unit)
{
        const int line = line_of(r, figure->key);
        if (!unit)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" needs a \"unit\": %s", r->path, line,
                               figure->key, unit_lists[figure->dimension]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
                if (units[i].dimension != figure->dimension || strcmp(units[i].name, unit) != 0)
                        continue;
                *figure->value = value * units[i].factor;
                if (*figure->value > limits[figure->dimension].max)
                        return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" is %g %s, must be at most %s",
                                       r->path, line, figure->key, value, unit,
                                       limits[figure->dimension].text);
                return 0;
        }
        return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" has the unit \"%.32s\", must be %s", r->path, line,
                       figure->key, unit, unit_lists[figure->dimension]);
}

static int read_figure(const struct reading *r, const struct figure *figure)
{
        char min[48];
        const int line = line_of(r, figure->key);
        const json_t *object = json_object_get(r->object, figure->key);
        if (!object && figure->optional)
                return 0;
        if (!json_is_object(object))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s:%d: %s%s%sneeds \"%s\": {\"value\": a number, \"unit\": %s, \"source\": a text}",
                        r->path, line, r->inside ? "\"" : "", r->inside ? r->inside : "",
                        r->inside ? "\" " : "", figure->key, unit_lists[figure->dimension]);
        const json_t *value = json_object_get(object, "value");
        const char *unit = json_string_value(json_object_get(object, "unit"));
        const char *source = json_string_value(json_object_get(object, "source"));
        if (!value)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" needs a \"value\", a number that is %s",
                               r->path, line, figure->key, min_text(figure, min));
        if (!json_is_number(value) || !isfinite(json_number_value(value)) ||
            json_number_value(value) < figure->min)
                return wrong_value(r, figure, value);
        if (!(source && *source) && !r->sourced)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" needs a \"source\": where its value is from",
                               r->path, line, figure->key);
        return convert(r, figure, json_number_value(value), unit);
}

static int read_figures(const struct reading *r, const struct figure *figures, size_t count)
{
        for (size_t i = 0; i < count; i++) {
                int rc = read_figure(r, &figures[i]);
                if (rc)
                        return rc;
        }
        return 0;
}

static int check_count(const struct reading *r, const char *key, double value, int *count)
{
        if (value != floor(value) || value < 1 || value > 1e6)
                return rv_fail(r->err, RV_EINPUT,
                               "%s:%d: \"%s\" is %g, must be a whole number from 1 to 1000000", r->path,
                               line_of(r, key), key, value);
        *count = (int)value;
        return 0;
}

static int read_text(const struct reading *r, const char *key, bool optional, char *text, size_t text_size)
{
        const json_t *object = json_object_get(r->object, key);
        const char *found = json_string_value(object);
        if (!object && optional)
                return 0;
        if (!found || !*found)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: needs \"%s\", a text", r->path, line_of(r, key),
                               key);
        snprintf(text, text_size, "%s", found);
        return 0;
}

/* A list of up to FABRIC_LEVELS whole numbers or ratios. */
static int read_list(const struct reading *r, const char *key, bool whole, double values[FABRIC_LEVELS],
                     int *count)
{
        const json_t *list = json_object_get(r->object, key);
        const size_t size = json_array_size(list);
        bool right = size >= 1 && size <= FABRIC_LEVELS;
        for (size_t i = 0; right && i < size; i++) {
                const json_t *value = json_array_get(list, i);
                values[i] = json_number_value(value);
                right = json_is_number(value) && values[i] >= (whole ? 1 : 0.01) && values[i] <= 1e6 &&
                        (!whole || values[i] == floor(values[i]));
        }
        if (!right)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: needs \"%s\": a list of 1 to %d %s", r->path,
                               line_of(r, key), key, FABRIC_LEVELS,
                               whole ? "whole numbers from 1 on" : "numbers greater than 0");
        *count = (int)size;
        return 0;
}

static int read_name(const struct reading *r, const char *key, const char *const *choices, int count,
                     int *choice)
{
        const json_t *object = json_object_get(r->object, key);
        const char *found = json_string_value(object);
        char list[128] = "";
        if (!object)
                return 0;
        for (int i = 0; i < count; i++) {
                if (found && strcmp(found, choices[i]) == 0) {
                        *choice = i;
                        return 0;
                }
                size_t length = strlen(list);
                snprintf(list + length, sizeof list - length, "%s%s", i ? ", " : "", choices[i]);
        }
        return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" is \"%.32s\", must be one of: %s", r->path,
                       line_of(r, key), key, found ? found : "no text", list);
}

/* ---- the fabric ---- */

static const char *const fabrics[] = {"switch", "fat-tree", "dragonfly", "torus"};

static int read_tree(const struct reading *r, struct fabric *f)
{
        double below[FABRIC_LEVELS] = {0}, over[FABRIC_LEVELS] = {0};
        int overs = 0, rc = read_list(r, "below", true, below, &f->levels);
        if (rc == 0)
                rc = read_list(r, "oversubscription", false, over, &overs);
        if (rc == 0 && overs != f->levels)
                rc = rv_fail(
                        r->err, RV_EINPUT,
                        "%s:%d: \"oversubscription\" has %d numbers, must have one for each of the %d of "
                        "\"below\"",
                        r->path, line_of(r, "oversubscription"), overs, f->levels);
        for (int i = 0; rc == 0 && i < f->levels; i++) {
                f->below[i] = (int)below[i];
                f->oversubscription[i] = over[i];
        }
        return rc;
}

static int read_torus(const struct reading *r, struct fabric *f)
{
        const struct figure link = {"link", RATE, MIN_RATE, false, &f->link_bytes_per_second};
        double shape[FABRIC_LEVELS] = {0};
        int rc = read_list(r, "shape", true, shape, &f->levels);
        for (int i = 0; rc == 0 && i < f->levels; i++)
                f->shape[i] = (int)shape[i];
        return rc ? rc : read_figure(r, &link);
}

static int read_dragonfly(const struct reading *r, struct fabric *f)
{
        double groups, routers, nodes;
        const struct figure figures[] = {
                {"groups", COUNT, 1, false, &groups},
                {"routers", COUNT, 1, false, &routers},
                {"router_nodes", COUNT, 1, false, &nodes},
                {"link", RATE, MIN_RATE, false, &f->link_bytes_per_second},
                {"global_link", RATE, MIN_RATE, false, &f->global_link_bytes_per_second}};
        int rc = read_figures(r, figures, sizeof figures / sizeof *figures);
        if (rc == 0)
                rc = check_count(r, "groups", groups, &f->groups);
        if (rc == 0)
                rc = check_count(r, "routers", routers, &f->routers);
        if (rc == 0 && f->routers > FABRIC_MAX_ROUTERS)
                rc = rv_fail(r->err, RV_EINPUT,
                             "%s:%d: \"routers\" is %d, must be at most %d: those of a group are all joined "
                             "with each other",
                             r->path, line_of(r, "routers"), f->routers, FABRIC_MAX_ROUTERS);
        return rc ? rc : check_count(r, "router_nodes", nodes, &f->router_nodes);
}

static int read_fabric(const struct reading *document, struct fabric *f)
{
        static const char *const known[] = {
                "kind", "source", "hop_latency", "below",        "oversubscription", "shape",
                "link", "groups", "routers",     "router_nodes", "global_link"};
        struct reading r;
        int kind = FABRIC_SWITCH, rc = enter(document, "fabric", &r);
        if (rc || !r.object)
                return rc;
        const struct figure hop = {"hop_latency", SECONDS, 0, true, &f->hop_seconds};
        rc = check_keys(&r, "\"fabric\"", known, sizeof known / sizeof *known);
        if (rc == 0 && !json_object_get(r.object, "kind"))
                rc = rv_fail(r.err, RV_EINPUT,
                             "%s:%d: \"fabric\" needs \"kind\": switch, fat-tree, dragonfly or torus", r.path,
                             line_of(document, "fabric"));
        if (rc == 0)
                rc = read_name(&r, "kind", fabrics, sizeof fabrics / sizeof *fabrics, &kind);
        f->kind = (enum fabric_kind)kind;
        if (rc == 0)
                rc = read_figure(&r, &hop);
        if (rc == 0 && f->kind == FABRIC_FAT_TREE)
                rc = read_tree(&r, f);
        if (rc == 0 && f->kind == FABRIC_TORUS)
                rc = read_torus(&r, f);
        if (rc == 0 && f->kind == FABRIC_DRAGONFLY)
                rc = read_dragonfly(&r, f);
        return rc;
}

static int check_fabric(const struct reading *document, const struct platform *p)
{
        const int64_t max = fabric_nodes(&p->fabric);
        if (max > FABRIC_MAX_NODES)
                return rv_fail(document->err, RV_EINPUT, "%s:%d: \"fabric\" joins more than %d nodes",
                               p->path, line_of(document, "fabric"), FABRIC_MAX_NODES);
        if (max == 0 || p->nodes <= max)
                return 0;
        return rv_fail(document->err, RV_EINPUT,
                       "%s:%d: \"fabric\" joins %lld nodes, but the platform has %d", p->path,
                       line_of(document, "fabric"), (long long)max, p->nodes);
}

/* ---- collectives ---- */

static const char *const libraries[] = {"plain", "nccl", "open-mpi", "open-mpi-nonblocking", "ranvier"};
static const char *const protocols[COLLECTIVE_PROTOCOLS] = {"ll", "ll128", "simple"};

static int read_protocol(const struct reading *collectives, const char *key,
                         struct collective_protocol *protocol)
{
        static const char *const known[] = {
                "source",       "start",         "tree_start", "step",
                "step_between", "level_between", "efficiency", "efficiency_between"};
        struct reading r;
        int rc = enter(collectives, key, &r);
        if (rc || !r.object)
                return rc;
        const struct figure figures[] = {
                {"start", SECONDS, 0, true, &protocol->start_seconds},
                {"tree_start", SECONDS, 0, true, &protocol->tree_start_seconds},
                {"step", SECONDS, 0, true, &protocol->near_step_seconds},
                {"step_between", SECONDS, 0, true, &protocol->far_step_seconds},
                {"level_between", SECONDS, 0, true, &protocol->far_level_seconds},
                {"efficiency", RATIO, 1e-3, true, &protocol->near_efficiency},
                {"efficiency_between", RATIO, 1e-3, true, &protocol->far_efficiency},
        };
        rc = check_keys(&r, "a protocol", known, sizeof known / sizeof *known);
        return rc ? rc : read_figures(&r, figures, sizeof figures / sizeof *figures);
}

static int read_protocols(const struct reading *r, const struct platform *p, struct collective_rules *rules)
{
        double near = 1, far = 1;
        const struct figure figures[] = {
                {"efficiency", RATIO, 1e-3, true, &near},
                {"efficiency_between", RATIO, 1e-3, true, &far},
                {"copy", SECONDS_PER_BYTE, 0, true, &rules->copy_seconds_per_byte},
                {"least", SECONDS, 0, true, &rules->min_seconds},
                {"least_per_member", SECONDS, 0, true, &rules->min_seconds_per_member},
        };
        int rc = read_figures(r, figures, sizeof figures / sizeof *figures);
        if (rules->library != LIBRARY_NCCL)
                return rc;
        collective_nccl_protocols(p->gpu_link_is_pcie, rules->protocols);
        for (int i = 0; rc == 0 && i < COLLECTIVE_PROTOCOLS; i++) {
                rules->protocols[i].near_efficiency *= near;
                rules->protocols[i].far_efficiency *= far;
                rc = read_protocol(r, protocols[i], &rules->protocols[i]);
        }
        return rc;
}

static int read_collectives(const struct reading *document, struct platform *p)
{
        static const char *const known[] = {
                "source", "library", "algorithm",        "efficiency", "efficiency_between",
                "copy",   "least",   "least_per_member", "ll",         "ll128",
                "simple"};
        const char *algorithms[COLLECTIVE_ALGORITHMS];
        struct collective_rules *rules = &p->collectives;
        struct reading r;
        int library = LIBRARY_PLAIN, algorithm = COLLECTIVE_CHOICE, rc = enter(document, "collectives", &r);
        if (rc || !r.object)
                return rc;
        for (int i = 0; i < COLLECTIVE_ALGORITHMS; i++)
                algorithms[i] = collective_algorithm_name((enum collective_algorithm)i);
        rc = check_keys(&r, "\"collectives\"", known, sizeof known / sizeof *known);
        if (rc == 0)
                rc = read_name(&r, "library", libraries, sizeof libraries / sizeof *libraries, &library);
        if (rc == 0)
                rc = read_name(&r, "algorithm", algorithms, COLLECTIVE_ALGORITHMS, &algorithm);
        rules->library = (enum collective_library)library;
        rules->algorithm = (enum collective_algorithm)algorithm;
        return rc ? rc : read_protocols(&r, p, rules);
}

/* Tables of measured collectives: "measured_collectives": ["h100-sxm", "mine.csv"]. One without a suffix
 * comes with the program, the path of another begins in the folder of the platform file and stays in it. */
static const char TABLES[] = "sim/platforms/collectives";

static bool leaves_folder(const char *path)
{
        if (*path == '/')
                return true;
        for (const char *at = path; *at; at += strcspn(at, "/"), at += *at == '/')
                if (strncmp(at, "..", 2) == 0 && (at[2] == '/' || at[2] == '\0'))
                        return true;
        return false;
}

static int find_table(const struct reading *r, const char *name, char *path, size_t path_size)
{
        const char *slash = strrchr(r->path, '/'), *end = strrchr(name, '.');
        const int folder = slash ? (int)(slash + 1 - r->path) : 0;
        if (leaves_folder(name))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s:%d: \"measured_collectives\" names \"%.64s\": a table in the platform's own "
                        "folder, or below it, was expected",
                        r->path, line_of(r, "measured_collectives"), name);
        if (end && strcmp(end, ".csv") == 0) {
                if ((size_t)snprintf(path, path_size, "%.*s%s", folder, r->path, name) < path_size)
                        return 0;
                return rv_fail(r->err, RV_EINPUT,
                               "%s:%d: \"measured_collectives\": the path %.64s... is too long", r->path,
                               line_of(r, "measured_collectives"), name);
        }
        if (file_find(path, path_size, TABLES, name, ".csv") == 0)
                return 0;
        char names[256];
        file_list(names, sizeof names, TABLES, ".csv");
        return rv_fail(r->err, RV_EINPUT,
                       "%s:%d: \"measured_collectives\" names \"%.64s\", must be one of %s, or the path of a "
                       ".csv file",
                       r->path, line_of(r, "measured_collectives"), name, names);
}

static int read_measured(const struct reading *r, struct platform *p)
{
        const json_t *list = json_object_get(r->object, "measured_collectives");
        const size_t count = json_array_size(list);
        char path[1024];
        int rc = 0;
        if (!list)
                return 0;
        if (json_object_get(r->object, "groups"))
                return rv_fail(
                        r->err, RV_EINPUT,
                        "%s:%d: \"measured_collectives\" are of equal nodes, but there are \"groups\"; "
                        "leave one out",
                        r->path, line_of(r, "measured_collectives"));
        for (size_t i = 0; i < count && rc == 0; i++) {
                const char *name = json_string_value(json_array_get(list, i));
                if (!name || !*name)
                        break;
                rc = find_table(r, name, path, sizeof path);
                if (rc == 0)
                        rc = collective_table_read(&p->measured_collectives, path, r->err);
                if (rc == 0 && i == count - 1)
                        return 0;
        }
        return rc ? rc
                  : rv_fail(r->err, RV_EINPUT,
                            "%s:%d: \"measured_collectives\" must be a list of tables, such as "
                            "[\"h100-sxm\"]",
                            r->path, line_of(r, "measured_collectives"));
}

/* ---- nodes ---- */

/* Rails and sockets are shared by a node's GPUs in equal blocks. */
static int check_share(const struct reading *r, const struct platform *p, const char *key, int count)
{
        if (p->gpus_per_node % count == 0)
                return 0;
        return rv_fail(r->err, RV_EINPUT,
                       "%s:%d: \"%s\" is %d, must divide the %d GPUs of a node into equal parts", p->path,
                       line_of(r, key), key, count, p->gpus_per_node);
}

/* The link between sockets is given whole or not at all: without it GPUs reach each other past the sockets.
 */
static int check_socket_link(const struct reading *r, const struct platform *p)
{
        bool rate = json_object_get(r->object, "socket_link");
        bool latency = json_object_get(r->object, "socket_link_latency");
        if (rate != latency)
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"%s\" needs \"%s\" beside it", p->path,
                               line_of(r, rate ? "socket_link" : "socket_link_latency"),
                               rate ? "socket_link" : "socket_link_latency",
                               rate ? "socket_link_latency" : "socket_link");
        if (rate && p->sockets == 1)
                return rv_fail(r->err, RV_EINPUT,
                               "%s:%d: \"socket_link\" joins sockets, but \"sockets\" is 1; leave it out or "
                               "give their number",
                               p->path, line_of(r, "socket_link"));
        return 0;
}

static int check_counts(const struct reading *r, struct platform *p, const double counts[4])
{
        int rc = check_count(r, "gpus_per_node", counts[0], &p->gpus_per_node);
        if (rc == 0)
                rc = check_count(r, "rails", counts[1], &p->rails);
        if (rc == 0)
                rc = check_count(r, "collective_segments", counts[2], &p->collective_segments);
        if (rc == 0)
                rc = check_count(r, "sockets", counts[3], &p->sockets);
        if (rc == 0)
                rc = check_share(r, p, "rails", p->rails);
        if (rc == 0)
                rc = check_share(r, p, "sockets", p->sockets);
        return rc ? rc : check_socket_link(r, p);
}

/* What an object says of a node. Of a group of nodes it need only say what differs (`differs`). */
static int read_node(const struct reading *r, struct platform *p, bool differs)
{
        double memory = (double)p->gpu_memory_bytes, host_memory = (double)p->host_memory_bytes;
        double counts[4] = {p->gpus_per_node, p->rails, p->collective_segments, p->sockets};
        const bool pcie = json_object_get(r->object, "pcie"), nccl = p->collectives.library == LIBRARY_NCCL;
        const bool only_pcie = pcie && !json_object_get(r->object, "gpu_link");
        const struct figure figures[] = {
                {"gpus_per_node", COUNT, 1, differs, &counts[0]},
                {"gpu_memory", BYTES, 0, true, &memory},
                {"gpu_peak", FLOP_RATE, 0, true, &p->gpu_peak_flops_per_second},
                {"gpu_link", RATE, MIN_RATE, differs || pcie, &p->gpu_link_bytes_per_second},
                {"gpu_link_latency", SECONDS, 0, differs, &p->gpu_link_seconds},
                {"pcie", RATE, MIN_RATE, true, &p->pcie_bytes_per_second},
                {"nic", RATE, MIN_RATE, differs, &p->nic_bytes_per_second},
                {"nic_latency", SECONDS, 0, differs, &p->nic_seconds},
                {"rails", COUNT, 1, true, &counts[1]},
                {"host_link", RATE, MIN_RATE, differs, &p->host_link_bytes_per_second},
                {"host_link_latency", SECONDS, 0, differs, &p->host_link_seconds},
                {"sockets", COUNT, 1, true, &counts[3]},
                {"socket_link", RATE, MIN_RATE, true, &p->socket_link_bytes_per_second},
                {"socket_link_latency", SECONDS, 0, true, &p->socket_link_seconds},
                {"host_memory", BYTES, 1, true, &host_memory},
                {"host_memory_bandwidth", RATE, MIN_RATE, true, &p->host_memory_bytes_per_second},
                {"reduce", SECONDS_PER_BYTE, 0, differs || nccl, &p->reduce_seconds_per_byte},
                {"collective_step_latency", SECONDS, 0, differs || nccl, &p->collective_latency_seconds},
                {"collective_segments", COUNT, 1, true, &counts[2]},
                {"node_power", POWER, 1, true, &p->node_watts},
        };
        int rc = read_figures(r, figures, sizeof figures / sizeof *figures);
        if (rc == 0)
                rc = read_text(r, "gpu", true, p->gpu, sizeof p->gpu);
        if (rc)
                return rc;
        p->gpu_memory_bytes = (int64_t)memory;
        p->host_memory_bytes = (int64_t)host_memory;
        const char *power =
                json_string_value(json_object_get(json_object_get(r->object, "node_power"), "source"));
        if (power)
                snprintf(p->node_power_source, sizeof p->node_power_source, "%s", power);
        if (only_pcie) {
                p->gpu_link_is_pcie = true;
                p->gpu_link_bytes_per_second = p->pcie_bytes_per_second;
        }
        return check_counts(r, p, counts);
}

static int read_nodes(const struct reading *r, struct platform *p, bool optional)
{
        double nodes = 0;
        const struct figure figure = {"nodes", COUNT, 1, optional, &nodes};
        int rc = read_figure(r, &figure);
        return rc || nodes == 0 ? rc : check_count(r, "nodes", nodes, &p->nodes);
}

static const char *const node_keys[] = {
        "gpu", "nodes", "gpus_per_node", "gpu_memory", "gpu_peak", "gpu_link", "gpu_link_latency", "pcie",
        "nic", "nic_latency", "rails", "host_link", "host_link_latency", "sockets", "socket_link",
        "socket_link_latency", "host_memory", "host_memory_bandwidth", "reduce", "collective_step_latency",
        "collective_segments", "node_power",
        /* of the document, not of a group: */
        "ranvier", "kind", "name", "fabric", "collectives", "groups", "source", "like", "expandable",
        "measured_collectives"};
enum { NODE_KEYS = sizeof node_keys / sizeof *node_keys, GROUP_KEYS = NODE_KEYS - 10 };

static int read_group(const struct reading *document, const json_t *object, struct platform *group)
{
        const char *source = json_string_value(json_object_get(object, "source"));
        const struct reading r = {document->path, object, source && *source, "groups", document->err};
        const char *known[GROUP_KEYS + 1] = {"source"};
        if (!json_is_object(object))
                return rv_fail(document->err, RV_EINPUT, "%s:%d: each of \"groups\" must be an object",
                               document->path, line_of(document, "groups"));
        for (int i = 0; i < GROUP_KEYS; i++)
                known[i + 1] = node_keys[i];
        int rc = check_keys(&r, "one of \"groups\"", known, GROUP_KEYS + 1);
        if (rc == 0)
                rc = read_nodes(&r, group, false);
        if (rc == 0)
                rc = read_node(&r, group, true);
        if (rc == 0 && !group->gpu[0])
                rc = rv_fail(document->err, RV_EINPUT,
                             "%s:%d: each of \"groups\" needs \"gpu\", as profiles name it", document->path,
                             line_of(document, "groups"));
        return rc;
}

/* The nodes of several kinds; the platform's own figures become those of the first. */
static int read_groups(const struct reading *document, struct platform *p)
{
        const json_t *list = json_object_get(document->object, "groups");
        const size_t count = json_array_size(list);
        const struct platform base = *p;
        int64_t nodes = 0;
        if (!list)
                return 0;
        if (count < 1 || count > 64)
                return rv_fail(document->err, RV_EINPUT,
                               "%s:%d: \"groups\" must be a list of 1 to 64 objects: nodes of several kinds",
                               document->path, line_of(document, "groups"));
        struct platform *groups = calloc(count, sizeof *groups);
        if (!groups)
                return rv_fail(document->err, RV_ESYSTEM, "no memory for %zu groups of nodes", count);
        int rc = 0;
        for (size_t i = 0; rc == 0 && i < count; i++) {
                groups[i] = base;
                rc = read_group(document, json_array_get(list, i), &groups[i]);
                nodes += groups[i].nodes;
        }
        *p = groups[0];
        p->groups = groups;
        p->group_count = (int)count;
        if (rc == 0)
                rc = check_count(document, "groups", (double)nodes, &p->nodes);
        return rc;
}

static int check_kind(const struct reading *r)
{
        const char *kind = json_string_value(json_object_get(r->object, "kind"));
        if (kind && strcmp(kind, "platform") == 0)
                return 0;
        return rv_fail(r->err, RV_EINPUT,
                       "%s: is not a platform, which has \"kind\": \"platform\"%s%.64s%s; "
                       "sim/platforms/generic.json is an example",
                       r->path, kind ? ", not \"" : "", kind ? kind : "", kind ? "\"" : "");
}

/* ---- "like": what a platform says of itself, and the rest from a preset ---- */

/* Adds the members of the preset that `object` is like, and of the one that this is like. */
static int add_base(const struct reading *r, json_t *object, int depth)
{
        enum { MAX_DEPTH = 4 };
        const json_t *like = json_object_get(object, "like");
        const char *name = json_string_value(like);
        char path[256], names[512];
        if (!like)
                return 0;
        if (!name || strchr(name, '/') || depth == MAX_DEPTH ||
            file_find(path, sizeof path, PLATFORM_PRESETS, name, ".json") != 0) {
                file_list(names, sizeof names, PLATFORM_PRESETS, ".json");
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"like\" is %s%.64s%s, must be one of: %s", r->path,
                               line_of(r, "like"), name ? "\"" : "", name ? name : "no text",
                               name ? "\"" : "", names);
        }
        json_t *base = file_read_json(path, r->err);
        if (!base)
                return RV_EINPUT;
        const int rc = add_base(r, base, depth + 1);
        json_object_update_missing(object, base);
        json_decref(base);
        return rc;
}

static int read_expandable(const struct reading *r, struct platform *p)
{
        const json_t *expandable = json_object_get(r->object, "expandable");
        if (expandable && !json_is_boolean(expandable))
                return rv_fail(r->err, RV_EINPUT, "%s:%d: \"expandable\" must be true or false", r->path,
                               line_of(r, "expandable"));
        p->expandable = json_is_true(expandable);
        return 0;
}

int platform_file_document(const char *path, json_t **document, struct rv_error_info *err)
{
        *document = file_read_json(path, err);
        if (!*document)
                return RV_EINPUT;
        char text[256];
        const struct reading r = {path, *document, false, NULL, err};
        int rc = check_kind(&r);
        if (rc == 0)
                rc = check_keys(&r, "a platform", node_keys, NODE_KEYS);
        if (rc == 0) /* not those of the platform that it is like */
                rc = read_text(&r, "name", false, text, sizeof text);
        if (rc == 0)
                rc = read_text(&r, "source", false, text, sizeof text);
        if (rc == 0)
                rc = add_base(&r, *document, 0);
        if (rc) {
                json_decref(*document);
                *document = NULL;
        }
        return rc;
}

int platform_file_read(struct platform *p, struct rv_error_info *err)
{
        json_t *document;
        int rc = platform_file_document(p->path, &document, err);
        if (rc)
                return rc;
        const struct reading r = {p->path, document, false, NULL, err};
        rc = read_text(&r, "name", false, p->name, sizeof p->name);
        if (rc == 0)
                rc = read_text(&r, "source", false, p->source, sizeof p->source);
        if (rc == 0)
                rc = read_expandable(&r, p);
        if (rc == 0)
                rc = read_measured(&r, p);
        if (rc == 0)
                rc = read_nodes(&r, p, json_object_get(document, "groups"));
        p->gpu_link_is_pcie = json_object_get(document, "pcie") && !json_object_get(document, "gpu_link");
        if (rc == 0)
                rc = read_collectives(&r, p);
        if (rc == 0)
                rc = read_node(&r, p, false);
        if (rc == 0)
                rc = read_groups(&r, p);
        if (rc == 0)
                rc = read_fabric(&r, &p->fabric);
        if (rc == 0)
                rc = check_fabric(&r, p);
        json_decref(document);
        return rc;
}
