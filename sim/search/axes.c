#define _DEFAULT_SOURCE /* strsep */
#include "sim/search/axes.h"

#include "runtime/plan/framework.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void axes_init(struct axes *axes)
{
        struct options defaults;
        int flags;
        const struct flag *flag = flags_all(&flags);
        options_init(&defaults);
        axes->count = 0;
        for (int i = 0; i < flags; i++) {
                if (flag[i].sweep != SWEEP_LIST)
                        continue;
                assert(axes->count < AXES);
                axes->axis[axes->count++] =
                        (struct axis){.flag = &flag[i], .list = {{flag_value(&flag[i], &defaults)}, 1}};
        }
}

struct axis *axes_named(struct axes *axes, const char *flag)
{
        int i = 0;
        while (i < axes->count && strcmp(axes->axis[i].flag->name, flag) != 0)
                i++;
        assert(i < axes->count);
        return &axes->axis[i];
}

const struct flag_values *axes_values(const struct axes *axes, const char *flag)
{
        return &axes_named((struct axes *)axes, flag)->list;
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

static bool has_value(const struct flag_values *list, int value)
{
        for (int i = 0; i < list->count; i++)
                if (list->values[i] == value)
                        return true;
        return false;
}

int axis_parse(struct axis *axis, const char *text, struct rv_error_info *err)
{
        const char *name = axis->flag->name;
        struct flag_values *list = &axis->list;
        char *copy = strdup(text), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for --%s", name);
        axis->given = true;
        list->count = 0;
        for (char *word; rc == 0 && (word = strsep(&rest, ","));) {
                int value = 0;
                if (list->count == FLAG_VALUES)
                        rc = rv_fail(err, RV_EINPUT, "--%s: more than %d values", name, FLAG_VALUES);
                else
                        rc = parse_word(axis->flag, word, &value, err);
                if (rc == 0 && has_value(list, value))
                        rc = rv_fail(err, RV_EINPUT, "--%s: %s is there twice", name, word);
                if (rc == 0)
                        list->values[list->count++] = value;
        }
        free(copy);
        return rc;
}

int axes_check_built(const struct axes *axes, const struct options *base, struct rv_error_info *err)
{
        for (const struct axis *axis = axes->axis; axis < axes->axis + axes->count; axis++)
                for (int i = 0; i < axis->list.count; i++) {
                        struct options probe = *base;
                        struct rv_error_info why; /* else than that: of some grids only */
                        flag_set(axis->flag, &probe, axis->list.values[i]);
                        if (options_resolve(&probe, (int)options_ranks(&probe), &why) &&
                            why.code == RV_ENOTBUILT) {
                                *err = why;
                                return why.code;
                        }
                }
        return 0;
}

bool axes_next(const struct axes *axes, int place[AXES], int at)
{
        for (int axis = at + 1; axis < axes->count; axis++)
                place[axis] = 0;
        for (int axis = at; axis >= 0; axis--) {
                if (++place[axis] < axes->axis[axis].list.count)
                        return true;
                place[axis] = 0;
        }
        return false;
}

int64_t axes_index(const struct axes *axes, const int place[AXES])
{
        int64_t index = 0;
        for (int axis = 0; axis < axes->count; axis++)
                index = index * axes->axis[axis].list.count + place[axis];
        return index;
}

int64_t axes_combinations(const struct axes *axes)
{
        int64_t combinations = 1;
        for (int axis = 0; axis < axes->count; axis++)
                combinations *= axes->axis[axis].list.count;
        return combinations;
}

int axes_of_grid(const struct axes *axes)
{
        const struct axis *tp = axes_named((struct axes *)axes, "tp"),
                          *cp = axes_named((struct axes *)axes, "cp");
        return (int)((tp > cp ? tp : cp) - axes->axis);
}

/* Whether another value of the axis of `flag` would do. */
static bool has_another(const struct axes *axes, const struct flag *flag,
                        const struct flag_conflict *conflict, const struct options *o)
{
        for (int i = 0; i < axes->count; i++)
                for (int k = 0; axes->axis[i].flag == flag && k < axes->axis[i].list.count; k++) {
                        struct options probe = *o;
                        flag_set(flag, &probe, axes->axis[i].list.values[k]);
                        if (!flag_conflicts(conflict, &probe))
                                return true;
                }
        return false;
}

/* Of values that are not for each other, each of which is tried with another value of the other's list, the
 * last axis; else AXES_WORTH. */
static int find_unpaired(const struct axes *axes, const struct flag_conflict *conflict,
                         const struct options *o)
{
        int last = AXES_WORTH;
        if (!conflict->unpaired || !flag_conflicts(conflict, o))
                return AXES_WORTH;
        for (int i = 0; i < FLAG_CONDITIONS && conflict->flags[i]; i++) {
                const struct flag *flag = conflict->flags[i];
                if (!has_another(axes, flag, conflict, o))
                        return AXES_WORTH;
                for (int axis = last + 1; axis < axes->count; axis++)
                        last = axes->axis[axis].flag == flag ? axis : last;
        }
        return conflict->also ? axes->count - 1 : last;
}

int axes_needless(const struct axes *axes, const int place[AXES], const struct options *o)
{
        for (int i = 0; i < axes->count; i++) {
                bool (*matters)(const struct options *) = axes->axis[i].flag->axis->matters;
                if (place[i] && matters && !matters(o))
                        return i;
        }
        for (int i = 0; i < axes->count; i++)
                for (const struct flag_conflict *c = axes->axis[i].flag->conflicts; c && c->sentence; c++) {
                        const int at = find_unpaired(axes, c, o);
                        if (at != AXES_WORTH)
                                return at;
                }
        return AXES_WORTH;
}

/* ---- presets ---- */

bool axes_preset(struct axes *axes, const char *preset)
{
        const bool all = strcmp(preset, "all") == 0;
        if (!all && strcmp(preset, "megatron") != 0)
                return false;
        for (struct axis *axis = axes->axis; axis < axes->axis + axes->count; axis++)
                if (!axis->given)
                        axis->list = all ? axis->flag->axis->all : axis->flag->axis->megatron;
        return true;
}

/* A value as the command line has it. */
static char *write_value(const struct flag *flag, int value, char text[FLAG_TEXT])
{
        struct options probe;
        options_init(&probe);
        flag_set(flag, &probe, value);
        return flag_write(flag, &probe, text);
}

void axis_untried(const struct axis *axis, const struct options *base, char *text, size_t text_size)
{
        const struct flag_values *all = &axis->flag->axis->all;
        struct options large = *base; /* a grid in which what depends on grids matters */
        large.pp = large.dp = 2;
        text[0] = 0;
        if (axis->flag->axis->matters && !axis->flag->axis->matters(&large))
                return;
        for (int i = 0; i < all->count; i++) {
                const size_t length = strlen(text);
                char value[FLAG_TEXT];
                if (has_value(&axis->list, all->values[i]))
                        continue;
                write_value(axis->flag, all->values[i], value);
                if (length == 0)
                        snprintf(text, text_size, "--%s %s", axis->flag->name, value);
                else
                        snprintf(text + length, text_size - length, ",%s", value);
        }
}

void axes_set(struct options *options, const struct axes *axes, const int place[AXES])
{
        for (int i = 0; i < axes->count; i++)
                flag_set(axes->axis[i].flag, options, axes->axis[i].list.values[place[i]]);
}

/* ---- words ---- */

/* A label has one %s at most. */
static void add_label(const struct flag *flag, const struct options *options, char *text, size_t text_size)
{
        const char *label = flag->axis->label, *value_at = strstr(label, "%s");
        const int before = value_at ? (int)(value_at - label) : (int)strlen(label);
        const size_t length = strlen(text);
        char value[FLAG_TEXT];
        snprintf(text + length, text_size - length, "%s%.*s%s%s", length ? ", " : "", before, label,
                 value_at ? flag_write(flag, options, value) : "", value_at ? value_at + 2 : "");
}

void axes_describe(const struct axes *axes, const struct options *options, char *text, size_t text_size)
{
        struct options defaults;
        options_init(&defaults);
        text[0] = 0;
        for (const struct axis *axis = axes->axis; axis < axes->axis + axes->count; axis++) {
                const int usual = flag_value(axis->flag, &defaults);
                const bool fixed = axis->list.count == 1 && axis->list.values[0] == usual;
                if (!fixed && (axis->flag->axis->label_default || flag_value(axis->flag, options) != usual))
                        add_label(axis->flag, options, text, text_size);
        }
}

/* A switch that is off is only written where a framework would turn it on. */
static void write_flag(const struct flag *flag, const struct options *options, FILE *out)
{
        char text[FLAG_TEXT];
        if (flag->argument)
                fprintf(out, " --%s %s", flag->name, flag_write(flag, options, text));
        else
                fprintf(out, " --%s%s", flag->name, flag_value(flag, options) ? "" : "=no");
}

void axes_write(const struct options *options, FILE *out)
{
        struct options defaults, read = *options;
        struct axes axes;
        options_init(&defaults);
        axes_init(&axes);
        for (int i = 0; i < axes.count; i++) {
                const struct flag *flag = axes.axis[i].flag;
                if (!flag_equal(flag, options, &defaults)) {
                        write_flag(flag, options, out);
                        flag_give(flag, &read);
                } else {
                        flag_take_back(flag, &read);
                }
        }
        framework_flags(&read); /* what simulate makes of that */
        for (int i = 0; i < axes.count; i++) {
                const struct flag *flag = axes.axis[i].flag;
                const bool matters = !flag->axis->matters || flag->axis->matters(options);
                if (matters && !flag_equal(flag, options, &read))
                        write_flag(flag, options, out);
        }
}
