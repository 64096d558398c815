#include "runtime/base/setting.h"

#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Keys of rows without a short form; those of a plan's flags begin elsewhere. */
enum { KEY_SETTINGS = 0x800 };

static int key_of(const struct setting *rows, int i)
{
        return rows[i].letter ? rows[i].letter : KEY_SETTINGS + i;
}

static const struct option_words *words_of(const struct setting *row)
{
        static const char *const switched[] = {"on", "off", NULL};
        static const struct option_words any_file = {.files = true}, a_switch = {.names = switched};
        return row->words                   ? row->words
               : row->kind == SETTING_PATH  ? &any_file
               : row->kind == SETTING_CLEAR ? &a_switch
                                            : NULL;
}

void settings_options(const struct setting *rows, struct argp_option options[SETTINGS + 1], int from)
{
        int count = 0, group = from;
        for (int i = 0; rows[i].help; i++) {
                const struct setting *row = &rows[i];
                assert(count + 2 <= SETTINGS);
                if (row->kind == SETTING_HEADING)
                        group += i > 0;
                options[count++] = row->kind == SETTING_HEADING
                                           ? (struct argp_option){.doc = row->help, .group = group}
                                           : (struct argp_option){.name = row->name,
                                                                  .key = key_of(rows, i),
                                                                  .arg = row->argument,
                                                                  .doc = row->help,
                                                                  .group = group};
                if (row->kind != SETTING_HEADING && words_of(row))
                        options[count++] = (struct argp_option)OPTION_WORDS(row->name, words_of(row));
        }
        options[count] = (struct argp_option){0};
}

static int parse_real(const char *option, const char *text, const struct setting *row, double *value,
                      struct rv_error_info *err)
{
        char *end;
        const double number = strtod(text, &end);
        if (end == text || *end || !(number >= row->low && number <= row->high))
                return rv_fail(err, RV_EINPUT, "%s: '%s' is not a number from %.10g to %.10g", option, text,
                               row->low, row->high);
        *value = number;
        return 0;
}

static int take(const struct setting *row, void *settings, const char *text, struct rv_error_info *err)
{
        void *at = (char *)settings + row->offset;
        char option[64];
        bool on = true;
        int rc, which;
        snprintf(option, sizeof option, "--%s", row->name);
        switch (row->kind) {
        case SETTING_SET:
                *(bool *)at = true;
                return 0;
        case SETTING_CLEAR:
                rc = parse_switch(option, text, &on, err);
                *(bool *)at = !on;
                return rc;
        case SETTING_PATH:
                return parse_path(option, text, at, err);
        case SETTING_TEXT:
                *(const char **)at = text;
                return 0;
        case SETTING_WORD:
                rc = parse_name(option, text, row->words->names, &which, err);
                if (rc == 0)
                        *(const char **)at = text;
                return rc;
        case SETTING_INT:
                return parse_count(option, text, (int)row->min, (int)row->max, at, err);
        case SETTING_WHOLE:
                return parse_int(option, text, row->min, row->max, at, err);
        case SETTING_REAL:
                return parse_real(option, text, row, at, err);
        case SETTING_RATE:
                return parse_rate(option, text, at, err);
        case SETTING_LIST:
                return parse_list(option, text, (int)row->min, (int)row->max, at, err);
        case SETTING_TOKENS:
                return parse_tokens(option, text, at, err);
        default:
                return row->parse(at, option, text, err);
        }
}

error_t settings_take(const struct setting *rows, void *settings, int key, const char *text,
                      struct rv_error_info *err)
{
        for (int i = 0; rows[i].help; i++)
                if (rows[i].kind != SETTING_HEADING && key_of(rows, i) == key)
                        return take(&rows[i], settings, text, err) ? EINVAL : 0;
        return ARGP_ERR_UNKNOWN;
}
