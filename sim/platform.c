/* Where the figures of a platform come from: its JSON file, or the profile of the machine itself. */
#include "sim/platform.h"

#include "models/file.h"
#include "sim/collective.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char PRESETS[] = "sim/platforms";

/* An exbibyte, 2^60: far from the end of an int64_t. */
static const double MOST_BYTES = 1152921504606846976.0;

enum dimension { COUNT, BYTES, SECONDS, RATE, FLOP_RATE, SECONDS_PER_BYTE };

static const struct unit {
        const char *name;
        enum dimension dimension;
        double factor;
} units[] = {
        {"count", COUNT, 1},
        {"B", BYTES, 1},
        {"GB", BYTES, 1e9},
        {"GiB", BYTES, 1073741824.0},
        {"s", SECONDS, 1},
        {"us", SECONDS, 1e-6},
        {"GB/s", RATE, 1e9},
        {"Tflop/s", FLOP_RATE, 1e12},
        {"s/B", SECONDS_PER_BYTE, 1},
};
static const char *const unit_lists[] = {
        [COUNT] = "count", [BYTES] = "B, GB or GiB", [SECONDS] = "s or us",
        [RATE] = "GB/s",   [FLOP_RATE] = "Tflop/s",  [SECONDS_PER_BYTE] = "s/B",
};

/* One figure of a platform file: {"value": 300, "unit": "GB/s", "source": "datasheet"}. */
struct figure {
        const char *key;
        enum dimension dimension;
        double least;
        bool optional;
        double *value;
};

static int wrong_value(const char *path, int line, const struct figure *figure, const json_t *value,
                       struct rv_error_info *err)
{
        char *found = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
        rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" has the value %.32s, must be a number that is at least %g",
                path, line, figure->key, found ? found : "?", figure->least);
        free(found);
        return RV_EINPUT;
}

static int convert(const char *path, int line, const struct figure *figure, double value, const char *unit,
                   struct rv_error_info *err)
{
        if (!unit)
                return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" needs a \"unit\": %s", path, line, figure->key,
                               unit_lists[figure->dimension]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
                if (units[i].dimension != figure->dimension || strcmp(units[i].name, unit) != 0)
                        continue;
                *figure->value = value * units[i].factor;
                if (figure->dimension == BYTES && *figure->value > MOST_BYTES)
                        return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" is %g %s, must be at most 2^60 bytes",
                                       path, line, figure->key, value, unit);
                return 0;
        }
        return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" has the unit \"%.32s\", must be %s", path, line,
                       figure->key, unit, unit_lists[figure->dimension]);
}

static int read_figure(const char *path, const json_t *document, const struct figure *figure,
                       struct rv_error_info *err)
{
        int line = file_line_of(path, figure->key);
        const json_t *object = json_object_get(document, figure->key);
        if (!object && figure->optional)
                return 0;
        if (!json_is_object(object))
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: needs \"%s\": {\"value\": a number, \"unit\": %s, \"source\": a text}",
                               path, line, figure->key, unit_lists[figure->dimension]);
        const json_t *value = json_object_get(object, "value");
        const char *unit = json_string_value(json_object_get(object, "unit"));
        const char *source = json_string_value(json_object_get(object, "source"));
        if (!value)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: \"%s\" needs a \"value\", a number that is at least %g", path, line,
                               figure->key, figure->least);
        if (!json_is_number(value) || !isfinite(json_number_value(value)) ||
            json_number_value(value) < figure->least)
                return wrong_value(path, line, figure, value, err);
        if (!source || !*source)
                return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" needs a \"source\": where its value is from",
                               path, line, figure->key);
        return convert(path, line, figure, json_number_value(value), unit, err);
}

static int read_count(const char *path, const char *key, double value, int *count, struct rv_error_info *err)
{
        if (value != floor(value) || value > 1e6)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: \"%s\" is %g, must be a whole number from 1 to 1000000", path,
                               file_line_of(path, key), key, value);
        *count = (int)value;
        return 0;
}

static int read_text(const char *path, const json_t *document, const char *key, char *text, size_t text_size,
                     struct rv_error_info *err)
{
        const char *found = json_string_value(json_object_get(document, key));
        if (!found || !*found)
                return rv_fail(err, RV_EINPUT, "%s:%d: needs \"%s\", a text", path, file_line_of(path, key),
                               key);
        snprintf(text, text_size, "%s", found);
        return 0;
}

/* Rails and sockets are shared by a node's GPUs in equal blocks. */
static int check_share(const struct platform *p, const char *key, int count, struct rv_error_info *err)
{
        if (p->gpus_per_node % count == 0)
                return 0;
        return rv_fail(err, RV_EINPUT,
                       "%s:%d: \"%s\" is %d, must divide the %d GPUs of a node into equal parts", p->path,
                       file_line_of(p->path, key), key, count, p->gpus_per_node);
}

/* The link between sockets is given whole or not at all: without it GPUs reach each other past the sockets.
 */
static int check_socket_link(const struct platform *p, const json_t *document, struct rv_error_info *err)
{
        bool rate = json_object_get(document, "socket_link");
        bool latency = json_object_get(document, "socket_link_latency");
        if (rate != latency)
                return rv_fail(err, RV_EINPUT, "%s:%d: \"%s\" needs \"%s\" beside it", p->path,
                               file_line_of(p->path, rate ? "socket_link" : "socket_link_latency"),
                               rate ? "socket_link" : "socket_link_latency",
                               rate ? "socket_link_latency" : "socket_link");
        if (rate && p->sockets == 1)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: \"socket_link\" joins sockets, but \"sockets\" is 1; leave it out or "
                               "give their number",
                               p->path, file_line_of(p->path, "socket_link"));
        return 0;
}

static int read_figures(struct platform *p, const json_t *document, struct rv_error_info *err)
{
        double memory = 0, host_memory = 0, gpus = 0, nodes = 0, rails = 1, segments = 1, sockets = 1;
        const struct figure figures[] = {
                {"gpus_per_node", COUNT, 1, false, &gpus},
                {"nodes", COUNT, 1, false, &nodes},
                {"gpu_memory", BYTES, 0, true, &memory},
                {"gpu_peak", FLOP_RATE, 0, true, &p->gpu_peak_flops_per_second},
                {"gpu_link", RATE, 1e-6, false, &p->gpu_link_bytes_per_second},
                {"gpu_link_latency", SECONDS, 0, false, &p->gpu_link_seconds},
                {"nic", RATE, 1e-6, false, &p->nic_bytes_per_second},
                {"nic_latency", SECONDS, 0, false, &p->nic_seconds},
                {"rails", COUNT, 1, true, &rails},
                {"host_link", RATE, 1e-6, false, &p->host_link_bytes_per_second},
                {"host_link_latency", SECONDS, 0, false, &p->host_link_seconds},
                {"sockets", COUNT, 1, true, &sockets},
                {"socket_link", RATE, 1e-6, true, &p->socket_link_bytes_per_second},
                {"socket_link_latency", SECONDS, 0, true, &p->socket_link_seconds},
                {"host_memory", BYTES, 1, true, &host_memory},
                {"host_memory_bandwidth", RATE, 1e-6, true, &p->host_memory_bytes_per_second},
                {"reduce", SECONDS_PER_BYTE, 0, false, &p->reduce_seconds_per_byte},
                {"collective_step_latency", SECONDS, 0, false, &p->collective_latency_seconds},
                {"collective_segments", COUNT, 1, true, &segments},
        };
        for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
                int rc = read_figure(p->path, document, &figures[i], err);
                if (rc)
                        return rc;
        }
        p->gpu_memory_bytes = (int64_t)memory;
        p->host_memory_bytes = (int64_t)host_memory;
        int rc = read_count(p->path, "gpus_per_node", gpus, &p->gpus_per_node, err);
        if (rc == 0)
                rc = read_count(p->path, "nodes", nodes, &p->nodes, err);
        if (rc == 0)
                rc = read_count(p->path, "rails", rails, &p->rails, err);
        if (rc == 0)
                rc = read_count(p->path, "collective_segments", segments, &p->collective_segments, err);
        if (rc == 0)
                rc = read_count(p->path, "sockets", sockets, &p->sockets, err);
        if (rc == 0)
                rc = check_share(p, "rails", p->rails, err);
        if (rc == 0)
                rc = check_share(p, "sockets", p->sockets, err);
        return rc ? rc : check_socket_link(p, document, err);
}

static int read_json(struct platform *p, struct rv_error_info *err)
{
        json_t *document = file_read_json(p->path, err);
        if (!document)
                return RV_EINPUT;
        int rc = 0;
        const char *kind = json_string_value(json_object_get(document, "kind"));
        if (!kind || strcmp(kind, "platform") != 0)
                rc = rv_fail(err, RV_EINPUT,
                             "%s: is not a platform, which has \"kind\": \"platform\"%s%.64s%s; "
                             "sim/platforms/generic.json is an example",
                             p->path, kind ? ", not \"" : "", kind ? kind : "", kind ? "\"" : "");
        if (rc == 0)
                rc = read_text(p->path, document, "name", p->name, sizeof p->name, err);
        if (rc == 0)
                rc = read_text(p->path, document, "source", p->source, sizeof p->source, err);
        if (rc == 0)
                rc = read_figures(p, document, err);
        json_decref(document);
        return rc;
}

/* A preset's name if there is such a preset and the text is no path; else the path itself. */
static int find_path(struct platform *p, const char *name_or_path, struct rv_error_info *err)
{
        if (!strchr(name_or_path, '/') &&
            file_find(p->path, sizeof p->path, PRESETS, name_or_path, ".json") == 0)
                return 0;
        FILE *stream = fopen(name_or_path, "r");
        if (!stream) {
                char names[256];
                file_list(names, sizeof names, PRESETS, ".json");
                return rv_fail(
                        err, RV_EINPUT,
                        "platform \"%.160s\" is neither \"local\", a preset (%.160s), nor a file that can be "
                        "read",
                        name_or_path, names);
        }
        fclose(stream);
        if (strlen(name_or_path) >= sizeof p->path)
                return rv_fail(err, RV_EINPUT,
                               "platform \"%.64s...\": the path is longer than %zu characters", name_or_path,
                               sizeof p->path - 1);
        memcpy(p->path, name_or_path, strlen(name_or_path) + 1);
        return 0;
}

struct platform platform_without_network(int ranks)
{
        return (struct platform){.name = "none",
                                 .gpus_per_node = 1,
                                 .nodes = ranks,
                                 .rails = 1,
                                 .sockets = 1,
                                 .collective_segments = 1};
}

int platform_socket(const struct platform *p, int gpu)
{
        return (int)((int64_t)gpu * p->sockets / p->gpus_per_node);
}

int platform_rail(const struct platform *p, int gpu)
{
        return (int)((int64_t)gpu * p->rails / p->gpus_per_node);
}

int64_t platform_host_share(const struct platform *p, int ranks)
{
        const int sharing = ranks < p->gpus_per_node ? ranks : p->gpus_per_node;
        const int64_t share = p->host_memory_bytes / sharing;
        return share || !p->host_memory_bytes ? share : 1; /* 0 would be: not known */
}

void platform_meet_messages(struct platform *p, int64_t bytes)
{
        double line = 2 * p->gpu_link_seconds + (double)bytes / p->gpu_link_bytes_per_second;
        double measured = profile_line_seconds(p->messages, LINE_MESSAGE, bytes, false);
        if (measured <= 0) /* as in a profile made for a closed form: the line's links are fast enough */
                return;
        double slower = measured / line;
        p->gpu_link_seconds *= slower;
        p->gpu_link_bytes_per_second /= slower;
}

/* With p ranks measured, ring(n) = 2 (p - 1) message(n / p) + (p - 1) reduce n / p, and recursive doubling
 * takes log2(p) steps of (step + message(n)): both are solved for what the measured time leaves. */
struct platform_collective platform_collective(const struct platform *p, int ranks, int64_t bytes,
                                               enum half half)
{
        enum half measured = half; /* else another sort, which suits a few scalars as well */
        for (enum half other = HALF_NONE; !p->allreduces[measured] && other < HALF_FORMATS; other++)
                measured = p->allreduces[other] ? other : measured;
        const struct profile_load *load = p->allreduces[measured];
        enum profile_line line = profile_allreduce_line(measured);
        if (!load)
                return (struct platform_collective){p->collective_latency_seconds,
                                                    p->reduce_seconds_per_byte};
        double message_seconds = 2 * p->gpu_link_seconds, block = ceil((double)bytes / ranks);
        if (bytes < COLLECTIVE_RING_FROM_BYTES) {
                double all = profile_line_seconds(load, line, bytes, false);
                double step = all / ceil(log2(load->ranks)) - message_seconds -
                              (double)bytes / p->gpu_link_bytes_per_second;
                return (struct platform_collective){.step_seconds = fmax(step, 0)};
        }
        double all = profile_line_seconds(load, line, (int64_t)block * load->ranks, false);
        double left = all / (load->ranks - 1) - 2 * (message_seconds + block / p->gpu_link_bytes_per_second);
        return (struct platform_collective){.reduce_seconds_per_byte = fmax(left, 0) / block};
}

/* The load nearest to `ranks` that has messages and `line` fitted (all-reduces: between more than one). */
static const struct profile_load *fitted_load(const struct profile *profile, int ranks,
                                              enum profile_line line)
{
        const struct profile_load *best = NULL;
        for (int i = 0; i < profile->load_count; i++) {
                const struct profile_load *load = &profile->loads[i];
                if (load->lines[LINE_MESSAGE].fit.present && load->lines[line].fit.present &&
                    (line == LINE_MESSAGE || load->ranks > 1) &&
                    (!best || abs(load->ranks - ranks) < abs(best->ranks - ranks)))
                        best = load;
        }
        return best;
}

/* The machine that the profile was measured on: one node, whose links are the messages that were measured. */
static int load_local(struct platform *p, const struct profile *profile, int ranks, struct rv_error_info *err)
{
        const struct profile_load *load = profile_load_for(profile, ranks);
        *p = platform_without_network(ranks);
        snprintf(p->name, sizeof p->name, "local");
        snprintf(p->path, sizeof p->path, "%s", profile->path);
        snprintf(p->source, sizeof p->source, "links from the messages of %.200s", profile->path);
        p->nodes = 1;
        p->gpus_per_node = ranks;
        p->gpu_memory_bytes = profile->device_memory_bytes;
        p->gpu_peak_flops_per_second = profile->peak_flops_per_second;
        if (!load->lines[LINE_COPY].fit.present)
                return profile_no_line(profile, load, LINE_COPY, err);
        p->copies = load;
        if (ranks == 1)
                return 0;
        p->messages = fitted_load(profile, ranks, LINE_MESSAGE);
        bool reduces = false;
        for (enum half half = HALF_NONE; half < HALF_FORMATS; half++) {
                p->allreduces[half] = fitted_load(profile, ranks, profile_allreduce_line(half));
                reduces |= p->allreduces[half] != NULL;
        }
        if (!p->messages)
                return profile_no_line(profile, load, LINE_MESSAGE, err);
        const struct line_fit *message = &p->messages->lines[LINE_MESSAGE].fit;
        p->gpu_link_seconds = message->latency_seconds / 2; /* a message crosses two links */
        p->gpu_link_bytes_per_second = 1 / fmax(message->seconds_per_byte, 1e-15);
        if (!reduces)
                snprintf(p->note, sizeof p->note,
                         "the profile has no fit of all-reduces: they are predicted from its messages alone, "
                         "without arithmetic");
        return 0;
}

int platform_load(struct platform *p, const char *name_or_path, const struct profile *profile, int ranks,
                  struct rv_error_info *err)
{
        *p = (struct platform){.rails = 1, .sockets = 1, .collective_segments = 1};
        if (strcmp(name_or_path, "local") == 0)
                return load_local(p, profile, ranks, err);
        int rc = find_path(p, name_or_path, err);
        if (rc)
                return rc;
        size_t length = strlen(p->path);
        if (length > 4 && strcmp(p->path + length - 4, ".xml") == 0) {
                *p = platform_without_network(ranks);
                snprintf(p->name, sizeof p->name, "xml");
                snprintf(p->path, sizeof p->path, "%s", name_or_path);
                snprintf(p->xml, sizeof p->xml, "%s", name_or_path);
                snprintf(p->source, sizeof p->source, "a SimGrid platform file, taken as it is");
                snprintf(p->note, sizeof p->note,
                         "a SimGrid file says nothing of host links and of the arithmetic of all-reduces: "
                         "both are "
                         "predicted to take no time");
                return 0;
        }
        rc = read_json(p, err);
        if (rc == 0 && ranks > (int64_t)p->nodes * p->gpus_per_node)
                rc = rv_fail(err, RV_EPLAN, "--gpus %d: platform %s has %lld (%d nodes of %d)", ranks,
                             p->name, (long long)p->nodes * p->gpus_per_node, p->nodes, p->gpus_per_node);
        return rc;
}
