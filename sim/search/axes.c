#define _DEFAULT_SOURCE /* strsep */
#include "sim/search/axes.h"

#include "runtime/sched/policy.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[AXES] = {
        "tp", "sequence-parallel", "schedule", "virtual-stages", "p2p", "zero", "order"};

static int value_of(const struct options *o, enum axis axis)
{
        switch (axis) {
        case AXIS_SHARDS:
                return o->tp;
        case AXIS_SEQUENCE_PARALLEL:
                return o->sequence_parallel;
        case AXIS_SCHEDULE:
                return (int)o->policy;
        case AXIS_VIRTUAL_STAGES:
                return o->virtual_stages;
        case AXIS_P2P:
                return o->blocking;
        case AXIS_ZERO:
                return o->zero;
        default:
                return (int)o->order;
        }
}

static void set_value(struct options *o, enum axis axis, int value)
{
        switch (axis) {
        case AXIS_SHARDS:
                o->tp = value;
                break;
        case AXIS_SEQUENCE_PARALLEL:
                o->sequence_parallel = value;
                break;
        case AXIS_SCHEDULE:
                o->policy = (enum policy_id)value;
                break;
        case AXIS_VIRTUAL_STAGES:
                o->virtual_stages = value;
                break;
        case AXIS_P2P:
                o->blocking = value;
                break;
        case AXIS_ZERO:
                o->zero = value;
                break;
        default:
                o->order = (enum plan_order)value;
        }
}

void axes_init(struct axes *axes)
{
        struct options defaults;
        options_init(&defaults);
        for (enum axis axis = 0; axis < AXES; axis++)
                axes->axis[axis] = (struct axis_values){{value_of(&defaults, axis)}, 1};
}

/* A flag without a value has yes and no here. */
static int parse_word(enum axis axis, char *word, int *value, struct rv_error_info *err)
{
        char flag[96];
        char *arguments[] = {"ranvier sweep", flag, "tiny", NULL};
        struct options probe;
        if (axis == AXIS_SEQUENCE_PARALLEL) {
                *value = strcmp(word, "yes") == 0;
                return *value || strcmp(word, "no") == 0
                               ? 0
                               : rv_fail(err, RV_EINPUT, "--%s: '%.32s' must be no or yes", names[axis],
                                         word);
        }
        snprintf(flag, sizeof flag, "--%s=%.64s", names[axis], word);
        options_init(&probe);
        int rc = options_parse(&options_argp, 3, arguments, &probe, true, err);
        *value = value_of(&probe, axis);
        return rc;
}

int axes_parse(struct axes *axes, enum axis axis, const char *text, struct rv_error_info *err)
{
        struct axis_values *list = &axes->axis[axis];
        char *copy = strdup(text), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for --%s", names[axis]);
        list->count = 0;
        for (char *word; rc == 0 && (word = strsep(&rest, ","));) {
                int value = 0;
                if (list->count == AXIS_VALUES)
                        rc = rv_fail(err, RV_EINPUT, "--%s: more than %d values", names[axis], AXIS_VALUES);
                else
                        rc = parse_word(axis, word, &value, err);
                for (int i = 0; rc == 0 && i < list->count; i++)
                        if (list->values[i] == value)
                                rc = rv_fail(err, RV_EINPUT, "--%s: %s is there twice", names[axis], word);
                if (rc == 0)
                        list->values[list->count++] = value;
        }
        free(copy);
        return rc;
}

int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err)
{
        for (enum axis axis = 0; axis < AXES; axis++)
                for (int i = 0; i < axes->axis[axis].count; i++) {
                        struct options probe = *base;
                        struct rv_error_info why; /* else than that: of some grids only */
                        set_value(&probe, axis, axes->axis[axis].values[i]);
                        if (options_resolve(&probe, (int)options_ranks(&probe), &why) &&
                            why.code == RV_ENOTBUILT) {
                                *err = why;
                                return why.code;
                        }
                }
        return 0;
}

bool axes_next(const struct axes *axes, int place[AXES])
{
        for (int axis = AXES - 1; axis >= 0; axis--) {
                if (++place[axis] < axes->axis[axis].count)
                        return true;
                place[axis] = 0;
        }
        return false;
}

bool axes_differ(const struct axes *axes, const int place[AXES], const struct options *o)
{
        const bool schedules =
                axes->axis[AXIS_SCHEDULE].count > 1 || axes->axis[AXIS_VIRTUAL_STAGES].count > 1;
        const bool shards = axes->axis[AXIS_SHARDS].count > 1 || axes->axis[AXIS_SEQUENCE_PARALLEL].count > 1;
        if (o->pp == 1 && (place[AXIS_SCHEDULE] || place[AXIS_P2P] || place[AXIS_VIRTUAL_STAGES]))
                return false;
        if (o->dp == 1 && place[AXIS_ZERO])
                return false;
        if (schedules && o->pp > 1 && (o->policy == POLICY_INTERLEAVED) != (o->virtual_stages > 1))
                return false;
        if (shards && o->sequence_parallel && o->tp == 1)
                return false;
        return (o->pp > 1 && o->dp > 1) || !place[AXIS_ORDER];
}

/* ---- presets ---- */

/* What there is of each axis, and which of it Megatron-LM has. */
static const struct {
        struct axis_values all, megatron;
} presets[AXES] = {
        [AXIS_SHARDS] = {{{1, 2, 4, 8}, 4}, {{1, 2, 4, 8}, 4}},
        [AXIS_SEQUENCE_PARALLEL] = {{{0, 1}, 2}, {{0, 1}, 2}},
        [AXIS_SCHEDULE] = {{{POLICY_AXONN, POLICY_1F1B, POLICY_INTERLEAVED, POLICY_ZERO_BUBBLE, POLICY_GPIPE},
                            5},
                           {{POLICY_1F1B, POLICY_INTERLEAVED}, 2}},
        [AXIS_VIRTUAL_STAGES] = {{{1, 2, 4}, 3}, {{1, 2, 4}, 3}},
        [AXIS_P2P] = {{{false}, 1}, {{true}, 1}},
        [AXIS_ZERO] = {{{0, 1, 3}, 3}, {{0, 1}, 2}},
        [AXIS_ORDER] = {{{ORDER_STAGES, ORDER_REPLICAS}, 2}, {{ORDER_REPLICAS}, 1}},
};

bool axes_preset(struct axes *axes, const char *preset, unsigned given)
{
        const bool all = strcmp(preset, "all") == 0;
        if (!all && strcmp(preset, "megatron") != 0)
                return false;
        for (enum axis axis = 0; axis < AXES; axis++)
                if (!(given & 1u << axis))
                        axes->axis[axis] = all ? presets[axis].all : presets[axis].megatron;
        return true;
}

static bool has_value(const struct axis_values *list, int value)
{
        for (int i = 0; i < list->count; i++)
                if (list->values[i] == value)
                        return true;
        return false;
}

/* A value as the command line has it. */
static void write_value(enum axis axis, int value, char *text, size_t text_size)
{
        switch (axis) {
        case AXIS_SEQUENCE_PARALLEL:
                snprintf(text, text_size, "%s", value ? "yes" : "no");
                break;
        case AXIS_SCHEDULE:
                snprintf(text, text_size, "%s", policy_get((enum policy_id)value)->name);
                break;
        case AXIS_P2P:
                snprintf(text, text_size, "%s", value ? "blocking" : "async");
                break;
        case AXIS_ORDER:
                snprintf(text, text_size, "%s", value == ORDER_STAGES ? "stages" : "replicas");
                break;
        default:
                snprintf(text, text_size, "%d", value);
        }
}

void axes_untried(const struct axes *axes, enum axis axis, char *text, size_t text_size)
{
        const struct axis_values *all = &presets[axis].all;
        text[0] = 0;
        for (int i = 0; i < all->count; i++) {
                const size_t length = strlen(text);
                char value[32];
                if (has_value(&axes->axis[axis], all->values[i]))
                        continue;
                write_value(axis, all->values[i], value, sizeof value);
                snprintf(text + length, text_size - length, length ? ",%s" : "--%s ",
                         length ? value : names[axis]);
                if (length == 0)
                        snprintf(text + strlen(text), text_size - strlen(text), "%s", value);
        }
}

void axes_set(struct options *options, const struct axes *axes, const int place[AXES])
{
        for (enum axis axis = 0; axis < AXES; axis++)
                set_value(options, axis, axes->axis[axis].values[place[axis]]);
}

static void describe(enum axis axis, int value, char *text, size_t text_size)
{
        switch (axis) {
        case AXIS_SEQUENCE_PARALLEL:
                snprintf(text, text_size, "%s", value ? "sequence parallel" : "");
                break;
        case AXIS_SCHEDULE:
        case AXIS_P2P:
                write_value(axis, value, text, text_size);
                break;
        case AXIS_ORDER:
                write_value(axis, value, text, text_size);
                snprintf(text + strlen(text), text_size - strlen(text), " first");
                break;
        case AXIS_VIRTUAL_STAGES:
                snprintf(text, text_size, value > 1 ? "%d virtual" : "", value);
                break;
        default:
                snprintf(text, text_size, "%s %d", names[axis], value);
        }
}

void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size)
{
        struct axes defaults;
        axes_init(&defaults);
        text[0] = 0;
        for (enum axis axis = 0; axis < AXES; axis++) {
                const struct axis_values *list = &axes->axis[axis];
                char part[64];
                if (list->count == 1 && list->values[0] == defaults.axis[axis].values[0])
                        continue;
                describe(axis, value_of(options, axis), part, sizeof part);
                if (part[0])
                        snprintf(text + strlen(text), text_size - strlen(text), "%s%s", text[0] ? ", " : "",
                                 part);
        }
}

void axes_write(const struct options *options, FILE *out)
{
        struct axes defaults;
        axes_init(&defaults);
        for (enum axis axis = 0; axis < AXES; axis++) {
                const int value = value_of(options, axis);
                char text[32];
                write_value(axis, value, text, sizeof text);
                if (value == defaults.axis[axis].values[0])
                        continue;
                if (axis == AXIS_SEQUENCE_PARALLEL)
                        fprintf(out, " --%s", names[axis]);
                else
                        fprintf(out, " --%s %s", names[axis], text);
        }
}
