/* Reads YAML with libyaml (https://pyyaml.org/wiki/LibYAML): mappings become keys with points between, lists
 * become values with commas between. */
#include "runtime/launch/table.h"

#include <string.h>
#include <yaml.h>

enum { DEEP = 16, KEY = 512, VALUE = 4096 };

struct reader {
        yaml_parser_t parser;
        struct launch *launch;
        char key[KEY], value[VALUE];
        struct {
                size_t length; /* of `key` outside it */
                bool list;
        } nodes[DEEP];
        int depth;
        bool has_key;
        int line;
};

static int line_of(const yaml_mark_t *mark)
{
        return (int)mark->line + 1;
}

static bool in_list(const struct reader *r)
{
        return r->depth > 0 && r->nodes[r->depth - 1].list;
}

/* Behind a value: the key is that of the mapping again. */
static void forget_key(struct reader *r)
{
        r->key[r->depth > 0 ? r->nodes[r->depth - 1].length : 0] = 0;
        r->has_key = false;
}

static int take_scalar(struct reader *r, const yaml_event_t *event, struct rv_error_info *err)
{
        const char *text = (const char *)event->data.scalar.value;
        const size_t key = strlen(r->key), value = strlen(r->value);
        if (in_list(r)) {
                snprintf(r->value + value, VALUE - value, "%s%s", value ? "," : "", text);
                return 0;
        }
        if (!r->has_key) {
                snprintf(r->key + key, KEY - key, "%s%s", key ? "." : "", text);
                r->has_key = true;
                r->line = line_of(&event->start_mark);
                return 0;
        }
        const int rc = launch_add_item(r->launch, r->key, text, r->line, err);
        forget_key(r);
        return rc;
}

static int open_node(struct reader *r, const yaml_event_t *event, bool list, struct rv_error_info *err)
{
        if (r->depth == DEEP)
                return rv_fail(err, RV_EINPUT, "%s:%d: more than %d levels inside each other",
                               r->launch->path, line_of(&event->start_mark), DEEP);
        if (list && !in_list(r))
                r->value[0] = 0;
        r->nodes[r->depth].length = strlen(r->key);
        r->nodes[r->depth++].list = list;
        r->has_key = false;
        return 0;
}

static int close_node(struct reader *r, struct rv_error_info *err)
{
        int rc = 0;
        r->depth--;
        if (r->nodes[r->depth].list && !in_list(r) && r->key[0])
                rc = launch_add_item(r->launch, r->key, r->value, r->line, err);
        forget_key(r);
        return rc;
}

static int take_event(struct reader *r, const yaml_event_t *event, struct rv_error_info *err)
{
        switch (event->type) {
        case YAML_SCALAR_EVENT:
                return take_scalar(r, event, err);
        case YAML_MAPPING_START_EVENT:
        case YAML_SEQUENCE_START_EVENT:
                return open_node(r, event, event->type == YAML_SEQUENCE_START_EVENT, err);
        case YAML_MAPPING_END_EVENT:
        case YAML_SEQUENCE_END_EVENT:
                return close_node(r, err);
        case YAML_ALIAS_EVENT:
                return rv_fail(err, RV_ENOTBUILT, "%s:%d: YAML's aliases are not built", r->launch->path,
                               line_of(&event->start_mark));
        default:
                return 0;
        }
}

int launch_read_yaml(struct launch *l, const char *text, struct rv_error_info *err)
{
        struct reader r = {.launch = l};
        bool ended = false;
        int rc = 0;
        if (!yaml_parser_initialize(&r.parser))
                return rv_fail(err, RV_ESYSTEM, "no memory to read %s", l->path);
        yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, strlen(text));
        while (rc == 0 && !ended) {
                yaml_event_t event;
                if (!yaml_parser_parse(&r.parser, &event)) {
                        rc = rv_fail(err, RV_EINPUT, "%s:%d: no YAML: %s", l->path,
                                     line_of(&r.parser.problem_mark),
                                     r.parser.problem ? r.parser.problem : "it cannot be read");
                        break;
                }
                rc = take_event(&r, &event, err);
                ended = event.type == YAML_STREAM_END_EVENT;
                yaml_event_delete(&event);
        }
        yaml_parser_delete(&r.parser);
        return rc;
}
