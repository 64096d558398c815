#define _DEFAULT_SOURCE /* strsep */
#include "sim/search/axes.h"

#include "runtime/sched/policy.h"

#include <stdlib.h>
#include <string.h>

static const struct flag *flag_of(enum axis axis)
{
        static const char *const names[AXES] = {
                "tp", "sequence-parallel", "schedule", "virtual-stages", "p2p", "zero", "order"};
        return flag_named(names[axis]);
}

void axes_init(struct axes *axes)
{
        struct options defaults;
        options_init(&defaults);
        for (enum axis axis = 0; axis < AXES; axis++)
                axes->axis[axis] = (struct axis_values){{flag_value(flag_of(axis), &defaults)}, 1};
}

/* A switch has yes and no here. */
static int parse_word(const struct flag *flag, char *word, int *value, struct rv_error_info *err)
{
        struct options probe;
        if (!flag->argument) {
                *value = strcmp(word, "yes") == 0;
                return *value || strcmp(word, "no") == 0
                               ? 0
                               : rv_fail(err, RV_EINPUT, "--%s: '%.32s' must be no or yes", flag->name, word);
        }
        options_init(&probe);
        int rc = flag_parse(flag, &probe, word, err);
        *value = flag_value(flag, &probe);
        return rc;
}

int axes_parse(struct axes *axes, enum axis axis, const char *text, struct rv_error_info *err)
{
        struct axis_values *list = &axes->axis[axis];
        char *copy = strdup(text), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for --%s", flag_of(axis)->name);
        list->count = 0;
        for (char *word; rc == 0 && (word = strsep(&rest, ","));) {
                int value = 0;
                if (list->count == AXIS_VALUES)
                        rc = rv_fail(err, RV_EINPUT, "--%s: more than %d values", flag_of(axis)->name,
                                     AXIS_VALUES);
                else
                        rc = parse_word(flag_of(axis), word, &value, err);
                for (int i = 0; rc == 0 && i < list->count; i++)
                        if (list->values[i] == value)
                                rc = rv_fail(err, RV_EINPUT, "--%s: %s is there twice", flag_of(axis)->name,
                                             word);
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
                        flag_set(flag_of(axis), &probe, axes->axis[axis].values[i]);
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
static char *write_value(enum axis axis, int value, char text[FLAG_TEXT])
{
        struct options probe;
        options_init(&probe);
        flag_set(flag_of(axis), &probe, value);
        return flag_write(flag_of(axis), &probe, text);
}

void axes_untried(const struct axes *axes, enum axis axis, char *text, size_t text_size)
{
        const struct axis_values *all = &presets[axis].all;
        text[0] = 0;
        for (int i = 0; i < all->count; i++) {
                const size_t length = strlen(text);
                char value[FLAG_TEXT];
                if (has_value(&axes->axis[axis], all->values[i]))
                        continue;
                write_value(axis, all->values[i], value);
                snprintf(text + length, text_size - length, length ? ",%s" : "--%s ",
                         length ? value : flag_of(axis)->name);
                if (length == 0)
                        snprintf(text + strlen(text), text_size - strlen(text), "%s", value);
        }
}

void axes_set(struct options *options, const struct axes *axes, const int place[AXES])
{
        for (enum axis axis = 0; axis < AXES; axis++)
                flag_set(flag_of(axis), options, axes->axis[axis].values[place[axis]]);
}

static void describe(enum axis axis, int value, char *text, size_t text_size)
{
        char word[FLAG_TEXT];
        write_value(axis, value, word);
        switch (axis) {
        case AXIS_SEQUENCE_PARALLEL:
                snprintf(text, text_size, "%s", value ? "sequence parallel" : "");
                break;
        case AXIS_SCHEDULE:
        case AXIS_P2P:
                snprintf(text, text_size, "%s", word);
                break;
        case AXIS_ORDER:
                snprintf(text, text_size, "%s first", word);
                break;
        case AXIS_VIRTUAL_STAGES:
                snprintf(text, text_size, value > 1 ? "%d virtual" : "", value);
                break;
        default:
                snprintf(text, text_size, "%s %s", flag_of(axis)->name, word);
        }
}

void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size)
{
        struct axes defaults;
        axes_init(&defaults);
        text[0] = 0;
        for (enum axis axis = 0; axis < AXES; axis++) {
                const struct axis_values *list = &axes->axis[axis];
                char part[FLAG_TEXT + 32];
                if (list->count == 1 && list->values[0] == defaults.axis[axis].values[0])
                        continue;
                describe(axis, flag_value(flag_of(axis), options), part, sizeof part);
                if (part[0])
                        snprintf(text + strlen(text), text_size - strlen(text), "%s%s", text[0] ? ", " : "",
                                 part);
        }
}

void axes_write(const struct options *options, FILE *out)
{
        struct options defaults;
        options_init(&defaults);
        for (enum axis axis = 0; axis < AXES; axis++) {
                const struct flag *flag = flag_of(axis);
                char text[FLAG_TEXT];
                if (flag_equal(flag, options, &defaults))
                        continue;
                if (flag->argument)
                        fprintf(out, " --%s %s", flag->name, flag_write(flag, options, text));
                else
                        fprintf(out, " --%s", flag->name);
        }
}
