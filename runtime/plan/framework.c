#define _DEFAULT_SOURCE /* strsep */
#include "runtime/plan/framework.h"

#include "models/workload.h"
#include "runtime/base/file.h"
#include "runtime/base/minmax.h"
#include "runtime/base/nearest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char folder[] = "runtime/plan/frameworks";
const struct option_words framework_words = {.folder = folder, .files = true};

/* ---- the file ---- */

struct reader {
        struct framework *f;
        struct rv_error_info *err;
        const char *term; /* the name of the one that is read */
};

static int wrong(const struct reader *r, const char *key, const char *sentence)
{
        return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %.240s", r->f->path, file_line_of(r->f->path, key),
                       sentence);
}

static int wrong_term(const struct reader *r, const char *sentence)
{
        char text[320];
        snprintf(text, sizeof text, "term '%.40s' %.240s", r->term, sentence);
        return rv_fail(r->err, RV_EINPUT, "%.160s:%d: %s", r->f->path, file_line_of(r->f->path, r->term),
                       text);
}

/* Every key is one of `known`, which ends with NULL. */
static int check_keys(const struct reader *r, const json_t *object, const char *const *known)
{
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)object, key, value)
        {
                struct nearest nearest = {.word = key};
                int i = 0;
                for (; known[i] && strcmp(known[i], key) != 0; i++)
                        nearest_offer(&nearest, known[i]);
                if (known[i])
                        continue;
                char text[160];
                snprintf(text, sizeof text, "has '%.40s', which is not known%s%s", key,
                         nearest.known ? "; the nearest is " : "", nearest.known ? nearest.known : "");
                return wrong_term(r, text);
        }
        return 0;
}

/* A number from 0 up, which may be missing. */
static int read_number(const struct reader *r, const json_t *object, const char *key, double *number)
{
        const json_t *value = json_object_get(object, key);
        if (!value)
                return 0;
        *number = json_number_value(value);
        if (json_is_number(value) && *number >= 0 && isfinite(*number))
                return 0;
        char text[96];
        snprintf(text, sizeof text, "has a '%.40s' that is not a number from 0 up", key);
        return wrong_term(r, text);
}

/* A switch, which may be missing. */
static int read_switch(const struct reader *r, const json_t *object, const char *key, bool *on)
{
        const json_t *value = json_object_get(object, key);
        *on = json_is_true(value);
        if (!value || json_is_boolean(value))
                return 0;
        char text[96];
        snprintf(text, sizeof text, "has a '%.40s' that is neither true nor false", key);
        return wrong_term(r, text);
}

/* An object of flags, which may be missing. */
static int check_object(const struct reader *r, const json_t *term, const char *key)
{
        const json_t *value = json_object_get(term, key);
        char text[96];
        snprintf(text, sizeof text, "has '%.40s' that are no object of flags", key);
        return !value || json_is_object(value) ? 0 : wrong_term(r, text);
}

static int add_rule(const struct reader *r, struct framework_rule rule, const char *kind)
{
        const int known = kind ? kernel_kind_of(kind) : -1;
        if (known < 0) {
                struct nearest nearest = {.word = kind ? kind : ""};
                for (int i = 0; kind && i < KERNEL_KINDS; i++)
                        nearest_offer(&nearest, kernel_name((enum kernel_kind)i));
                char text[160];
                snprintf(text, sizeof text, "is of kernel '%.40s', and there is none of that name%s%s",
                         kind ? kind : "", nearest.known ? "; the nearest is " : "",
                         nearest.known ? nearest.known : "");
                return wrong_term(r, text);
        }
        if (r->f->rule_count == FRAMEWORK_RULES)
                return wrong_term(r, "has more kernels than there is room for");
        rule.kind = (enum kernel_kind)known;
        r->f->rules[r->f->rule_count++] = rule;
        return 0;
}

static int read_rule(const struct reader *r, const json_t *object)
{
        static const char *const keys[] = {
                "of",       "instead", "accumulating", "launches",   "launches_an_expert",
                "elements", "bytes",   "kept_bytes",   "held_bytes", "cached_bytes",
                "width",    NULL};
        struct framework_rule rule = {.term = r->f->term_count, .launches = 1};
        const json_t *of = json_object_get(object, "of");
        double launches = 1, an_expert = 0;
        int rc = check_keys(r, object, keys);
        if (rc == 0 && !json_is_array(of))
                rc = wrong_term(r, "has a kernel without 'of', the list of the kinds that it is of");
        if (rc == 0)
                rc = read_number(r, object, "launches", &launches);
        if (rc == 0)
                rc = read_number(r, object, "launches_an_expert", &an_expert);
        if (rc == 0)
                rc = read_number(r, object, "elements", &rule.elements);
        if (rc == 0)
                rc = read_number(r, object, "bytes", &rule.bytes);
        if (rc == 0)
                rc = read_number(r, object, "kept_bytes", &rule.kept_bytes);
        if (rc == 0)
                rc = read_number(r, object, "held_bytes", &rule.held_bytes);
        if (rc == 0)
                rc = read_number(r, object, "cached_bytes", &rule.cached_bytes);
        if (rc == 0)
                rc = read_switch(r, object, "instead", &rule.instead);
        if (rc == 0)
                rc = read_switch(r, object, "width", &rule.width);
        if (rc == 0)
                rc = read_switch(r, object, "accumulating", &rule.accumulating);
        rule.launches = (int)fmin(launches, 1000);
        rule.launches_an_expert = (int)fmin(an_expert, 1000);
        if (rc == 0 && rule.instead && rule.launches == 0)
                rc = wrong_term(r, "is instead of a kernel, by no launch");
        for (size_t i = 0; rc == 0 && i < json_array_size(of); i++)
                rc = add_rule(r, rule, json_string_value(json_array_get(of, i)));
        return rc;
}

static int read_rules(const struct reader *r, const json_t *term)
{
        const json_t *rules = json_object_get(term, "kernels");
        int rc = 0;
        if (rules && !json_is_array(rules))
                return wrong_term(r, "has 'kernels' that are not a list");
        for (size_t i = 0; rc == 0 && i < json_array_size(rules); i++)
                rc = read_rule(r, json_array_get(rules, i));
        return rc;
}

static const struct flag *find_flag(const char *name)
{
        int count;
        const struct flag *flags = flags_all(&count);
        for (int i = 0; i < count; i++)
                if (strcmp(flags[i].name, name) == 0 && strcmp(name, "like") != 0 &&
                    strcmp(name, "without") != 0)
                        return &flags[i];
        return NULL;
}

/* Flags as a command line has them; a switch has the value true. */
static int read_flags(const struct reader *r, const json_t *term)
{
        static const char other_than[] = "not ";
        const char *name;
        json_t *value;
        struct framework_when whens[FRAMEWORK_WHENS] = {{0}};
        int conditions = 0;
        json_object_foreach(json_object_get(term, "when"), name, value)
        {
                const char *text = json_string_value(value);
                const struct flag *flag = find_flag(name);
                const size_t skipped = sizeof other_than - 1;
                if (!flag || !text || conditions == FRAMEWORK_WHENS)
                        return wrong_term(r, "has a 'when' that is not one flag or two, each with a text");
                const bool other = strncmp(text, other_than, skipped) == 0;
                whens[conditions++] = (struct framework_when){flag, other ? text + skipped : text, other};
        }
        json_object_foreach(json_object_get(term, "flags"), name, value)
        {
                const struct flag *flag = find_flag(name);
                struct options probe;
                struct rv_error_info why;
                char text[240];
                options_init(&probe);
                if (!flag || flag->scope != FLAG_OF_MANY) {
                        snprintf(text, sizeof text, "has flag '%.40s', which is none of many plans", name);
                        return wrong_term(r, text);
                }
                if (flag->argument ? !json_is_string(value) : !json_is_true(value)) {
                        snprintf(text, sizeof text, "has flag '%.40s', whose value must be %s", name,
                                 flag->argument ? "a text, as on a command line" : "true");
                        return wrong_term(r, text);
                }
                if (flag_parse(flag, &probe, json_string_value(value), &why))
                        return wrong_term(r, why.sentence);
                if (r->f->flag_count == FRAMEWORK_FLAGS)
                        return wrong_term(r, "has more flags than there is room for");
                struct framework_flag *has = &r->f->flags[r->f->flag_count++];
                *has = (struct framework_flag){
                        .term = r->f->term_count, .flag = flag, .text = json_string_value(value)};
                memcpy(has->whens, whens, sizeof whens);
        }
        return 0;
}

/* Switches that say how launches and updates are done. */
static int read_switches(const struct reader *r, const json_t *term)
{
        struct framework *f = r->f;
        bool eager, broadcasts;
        if (read_switch(r, term, "eager", &eager) || read_switch(r, term, "broadcasts", &broadcasts))
                return r->err->code;
        if (eager)
                f->eager_term = f->term_count;
        if (broadcasts)
                f->broadcast_term = f->term_count;
        return 0;
}

static const char *const value_names[FRAMEWORK_VALUES] = {
        [FRAMEWORK_SUSTAINED_RATE] = "sustained_rate",
        [FRAMEWORK_HOST_SECONDS_A_STEP] = "host_seconds_a_step",
        [FRAMEWORK_HOST_SECONDS_A_KERNEL] = "host_seconds_a_kernel",
        [FRAMEWORK_UNALIGNED_FLOPS_PER_SECOND] = "unaligned_flops_per_second",
        [FRAMEWORK_ATTENTION_FLOPS_PER_SECOND] = "attention_flops_per_second",
        [FRAMEWORK_ATTENTION_BACKWARD_FLOPS_PER_SECOND] = "attention_backward_flops_per_second",
        [FRAMEWORK_HOST_ERROR] = "host_error",
        [FRAMEWORK_RUN_ERROR] = "run_error",
};

/* Whether a figure may be of all GPUs. */
static bool is_of_all(enum framework_value which)
{
        return which == FRAMEWORK_HOST_SECONDS_A_KERNEL || which == FRAMEWORK_HOST_ERROR ||
               which == FRAMEWORK_RUN_ERROR;
}

/* Figures are of a GPU, or of all. */
static int read_figure(const struct reader *r, const json_t *term)
{
        struct framework *f = r->f;
        const char *gpu = json_string_value(json_object_get(term, "gpu"));
        struct framework_figure figure = {.term = f->term_count, .gpu = gpu};
        int rc = 0;
        bool said = false, of_all = true;
        for (int i = 0; rc == 0 && i < FRAMEWORK_VALUES; i++) {
                rc = read_number(r, term, value_names[i], &figure.values[i]);
                said |= figure.values[i] > 0;
                of_all &= figure.values[i] == 0 || is_of_all((enum framework_value)i);
        }
        if (rc || (!said && !gpu))
                return rc;
        if (!said || !(gpu || of_all))
                return wrong_term(r, "must say of which 'gpu' a figure is, and which figure");
        if (f->figure_count == FRAMEWORK_FIGURES)
                return wrong_term(r, "has more figures than there is room for");
        f->figures[f->figure_count++] = figure;
        return 0;
}

/* Facts have a source, or are called an assumption, or were fitted. */
static int check_source(const struct reader *r, const json_t *term)
{
        static const char *const kinds[] = {"source", "assumption", "fitted_on"};
        int found = 0;
        for (int i = 0; i < 3; i++)
                found += json_is_string(json_object_get(term, kinds[i]));
        if (!json_is_string(json_object_get(term, "says")))
                return wrong_term(r, "does not say in a sentence what it is ('says')");
        return found ? 0
                     : wrong_term(r, "has neither a 'source' nor an 'assumption' nor what it is "
                                     "'fitted_on'");
}

static int read_term(struct reader *r, const json_t *term)
{
        static const char *const keys[] = {"name",
                                           "says",
                                           "source",
                                           "assumption",
                                           "fitted_on",
                                           "flags",
                                           "kernels",
                                           "eager",
                                           "host_seconds_a_kernel",
                                           "gpu",
                                           "sustained_rate",
                                           "host_seconds_a_step",
                                           "unaligned_flops_per_second",
                                           "attention_flops_per_second",
                                           "attention_backward_flops_per_second",
                                           "host_error",
                                           "run_error",
                                           "broadcasts",
                                           "when",
                                           NULL};
        struct framework *f = r->f;
        r->term = json_string_value(json_object_get(term, "name"));
        if (!r->term || strcspn(r->term, ", ") != strlen(r->term) || strcmp(r->term, "kernels") == 0)
                return wrong(r, "terms",
                             "a term without a 'name', or one with a blank, a comma or the name kernels");
        if (f->term_count == FRAMEWORK_TERMS)
                return wrong_term(r, "is one too many");
        for (int i = 0; i < f->term_count; i++)
                if (strcmp(f->terms[i].name, r->term) == 0)
                        return wrong_term(r, "is there twice");
        int rc = check_keys(r, term, keys);
        if (rc == 0)
                rc = check_object(r, term, "flags");
        if (rc == 0)
                rc = check_object(r, term, "when");
        if (rc == 0)
                rc = check_source(r, term);
        if (rc == 0)
                rc = read_flags(r, term);
        if (rc == 0)
                rc = read_rules(r, term);
        if (rc == 0)
                rc = read_switches(r, term);
        if (rc == 0)
                rc = read_figure(r, term);
        f->terms[f->term_count++].name = r->term;
        return rc;
}

static int read_document(struct framework *f, struct rv_error_info *err)
{
        struct reader r = {.f = f, .err = err};
        const json_t *terms = json_object_get(f->document, "terms");
        const char *key;
        json_t *value;
        int rc = 0;
        json_object_foreach(f->document, key, value)
        {
                if (strcmp(key, "title") != 0 && strcmp(key, "aliases") != 0 && strcmp(key, "terms") != 0 &&
                    strcmp(key, "like") != 0 && strcmp(key, "without") != 0)
                        return wrong(
                                &r, key,
                                "a framework has a title, aliases, like, without and terms, and no other "
                                "member");
        }
        if (!json_is_string(json_object_get(f->document, "title")))
                return wrong(&r, "title", "a framework has a 'title'");
        if (!json_is_array(terms))
                return wrong(&r, "terms", "a framework has a list of 'terms', which may be empty");
        for (size_t i = 0; rc == 0 && i < json_array_size(terms); i++)
                rc = read_term(&r, json_array_get(terms, i));
        return rc;
}

/* ---- by name ---- */

char *framework_list(char *line, size_t size)
{
        file_list(line, size, folder, ".json");
        return line;
}

/* Whether a list of words has this one; NULL, what is no word, it has not. */
static bool has_word(const json_t *words, const char *word)
{
        for (size_t i = 0; i < json_array_size(words); i++) {
                const char *one = json_string_value(json_array_get(words, i));
                if (one && word && strcmp(one, word) == 0)
                        return true;
        }
        return false;
}

static int unknown(const char *name, const char *names, struct rv_error_info *err)
{
        char copy[512], *rest = copy;
        struct nearest nearest = {.word = name};
        snprintf(copy, sizeof copy, "%s", names);
        for (char *word; (word = strsep(&rest, " "));)
                nearest_offer(&nearest, word);
        return rv_fail(err, RV_EINPUT, "--like: no framework '%.64s' is known%s%s; there are %.320s", name,
                       nearest.known ? "; the nearest is " : "", nearest.known ? nearest.known : "", names);
}

/* Opens the file of a name or alias, and writes its path and its own name. */
static int open_document(struct framework *f, const char *name, struct rv_error_info *err)
{
        const size_t length = strlen(name);
        const bool path = strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".json") == 0);
        char names[512], *rest = framework_list(names, sizeof names), copy[512];
        snprintf(f->name, sizeof f->name, "%.63s", name);
        snprintf(f->path, sizeof f->path, "%.1000s", name);
        if (path || file_find(f->path, sizeof f->path, folder, name, ".json") == RV_OK) {
                f->document = file_read_json(f->path, err);
                return f->document ? 0 : err->code;
        }
        snprintf(copy, sizeof copy, "%s", names);
        for (char *word; (word = strsep(&rest, " "));) {
                if (file_find(f->path, sizeof f->path, folder, word, ".json"))
                        continue;
                f->document = file_read_json(f->path, err);
                if (!f->document)
                        return err->code;
                snprintf(f->name, sizeof f->name, "%.63s", word);
                if (has_word(json_object_get(f->document, "aliases"), name))
                        return 0;
                json_decref(f->document);
                f->document = NULL;
        }
        return unknown(name, copy, err);
}

/* ---- like another framework ---- */

static const json_t *term_named(const json_t *terms, const char *name)
{
        for (size_t i = 0; name && i < json_array_size(terms); i++) {
                const json_t *term = json_array_get(terms, i);
                const char *other = json_string_value(json_object_get(term, "name"));
                if (other && strcmp(other, name) == 0)
                        return term;
        }
        return NULL;
}

/* The other's terms, each with what is said of it here, and then those that are here alone. */
static json_t *merge(const json_t *theirs, const json_t *own, const json_t *without)
{
        json_t *terms = json_array();
        for (size_t i = 0; i < json_array_size(theirs); i++) {
                const json_t *their = json_array_get(theirs, i);
                const char *name = json_string_value(json_object_get(their, "name"));
                json_t *term = json_copy((json_t *)their);
                if (!name || !has_word(without, name)) {
                        json_object_update(term, (json_t *)term_named(own, name));
                        json_array_append(terms, term);
                }
                json_decref(term);
        }
        for (size_t i = 0; i < json_array_size(own); i++) {
                json_t *term = json_array_get(own, i);
                const char *name = json_string_value(json_object_get(term, "name"));
                if (!term_named(theirs, name) || has_word(without, name))
                        json_array_append(terms, term);
        }
        return terms;
}

/* Each word of "without" names a term that one of the others has. */
static int check_without(const struct reader *r, const json_t *without, const json_t *left_out)
{
        if (without && !json_is_array(without))
                return wrong(r, "without",
                             "'without' is a list of terms of the framework that this one is like");
        for (size_t i = 0; i < json_array_size(without); i++)
                if (!has_word(left_out, json_string_value(json_array_get(without, i))))
                        return wrong(r, "without", "'without' names a term that the other framework has not");
        return 0;
}

static int take_base(struct framework *f, int depth, struct rv_error_info *err);

/* Puts the terms of the framework `name` before those that are there. `names` gets the names of its own. */
static int take_one(struct framework *f, const char *name, int depth, json_t *names,
                    struct rv_error_info *err)
{
        struct framework base = {0};
        int rc = open_document(&base, name, err);
        if (rc == 0)
                rc = take_base(&base, depth + 1, err);
        if (rc == 0) {
                const json_t *theirs = json_object_get(base.document, "terms");
                for (size_t i = 0; i < json_array_size(theirs); i++)
                        json_array_append(names, json_object_get(json_array_get(theirs, i), "name"));
                json_object_set_new(f->document, "terms",
                                    merge(theirs, json_object_get(f->document, "terms"),
                                          json_object_get(f->document, "without")));
        }
        json_decref(base.document);
        return rc;
}

/* "like" is one name or a list of names, of which the later ones say more. */
static int take_base(struct framework *f, int depth, struct rv_error_info *err)
{
        enum { DEEPEST = 4 };
        const struct reader r = {.f = f, .err = err};
        const json_t *own = json_object_get(f->document, "terms"),
                     *without = json_object_get(f->document, "without");
        json_t *like = json_object_get(f->document, "like");
        if (!like)
                return without ? wrong(&r, "without", "'without' goes with 'like'") : 0;
        json_t *likes = json_is_array(like) ? json_incref(like) : json_pack("[O]", like),
               *names = json_array();
        int rc = own && !json_is_array(own) ? 1 : 0;
        for (size_t i = 0; i < json_array_size(likes); i++)
                rc |= !json_is_string(json_array_get(likes, i));
        if (rc || depth == DEEPEST || json_array_size(likes) == 0)
                rc = wrong(
                        &r, "like",
                        "'like' is the name of a framework that is not like this one, whose terms this one "
                        "has too, or a list of such names");
        for (size_t i = json_array_size(likes); rc == 0 && i-- > 0;)
                rc = take_one(f, json_string_value(json_array_get(likes, i)), depth, names, err);
        if (rc == 0)
                rc = check_without(&r, without, names);
        json_decref(likes);
        json_decref(names);
        return rc;
}

/* ---- what is left out ---- */

static bool term_prices(const struct framework *f, int term)
{
        bool prices = f->eager_term == term || f->broadcast_term == term;
        for (int i = 0; i < f->rule_count; i++)
                prices |= f->rules[i].term == term;
        for (int i = 0; i < f->figure_count; i++)
                prices |= f->figures[i].term == term;
        return prices;
}

static int leave_out(struct framework *f, const char *word, struct rv_error_info *err)
{
        const bool all = strcmp(word, "kernels") == 0;
        bool found = all;
        char names[512] = "kernels";
        struct nearest nearest = {.word = word};
        for (int i = 0; i < f->term_count; i++) {
                const bool same = strcmp(f->terms[i].name, word) == 0;
                found |= same;
                f->terms[i].left_out |= same || (all && term_prices(f, i));
                nearest_offer(&nearest, f->terms[i].name);
                snprintf(names + strlen(names), sizeof names - strlen(names), " %s", f->terms[i].name);
        }
        return found ? 0
                     : rv_fail(err, RV_EINPUT, "--without: %s has no term '%.40s'%s%s; it has %.320s",
                               f->name, word, nearest.known ? "; the nearest is " : "",
                               nearest.known ? nearest.known : "", names);
}

static int leave_all_out(struct framework *f, const char *without, struct rv_error_info *err)
{
        char *copy = strdup(without), *rest = copy;
        int rc = copy ? 0 : rv_fail(err, RV_ESYSTEM, "no memory for --without");
        for (char *word; rc == 0 && (word = strsep(&rest, ","));)
                rc = leave_out(f, word, err);
        free(copy);
        return rc;
}

int framework_load(struct framework *f, const char *name, const char *without, struct rv_error_info *err)
{
        static _Thread_local int64_t loaded;
        *f = (struct framework){.number = ++loaded, .eager_term = -1, .broadcast_term = -1};
        int rc = open_document(f, name, err);
        if (rc == 0)
                rc = take_base(f, 0, err);
        if (rc == 0)
                rc = read_document(f, err);
        if (rc == 0 && without)
                rc = leave_all_out(f, without, err);
        if (rc)
                framework_free(f);
        return rc;
}

void framework_free(struct framework *f)
{
        json_decref(f->document);
        *f = (struct framework){0};
}

/* ---- flags ---- */

static uint64_t bit_of(const struct flag *flag)
{
        int count;
        return UINT64_C(1) << (flag - flags_all(&count));
}

static bool is_when(const struct framework_flag *has, const struct options *o)
{
        char text[FLAG_TEXT];
        for (int i = 0; i < FRAMEWORK_WHENS && has->whens[i].flag; i++) {
                const struct framework_when *when = &has->whens[i];
                if ((strcmp(flag_write(when->flag, o, text), when->text) == 0) == when->other)
                        return false;
        }
        return true;
}

void framework_flags(struct options *o)
{
        const struct framework *f = o->framework;
        o->of_framework = 0;
        for (int i = 0; f && i < f->flag_count; i++) {
                const struct framework_flag *has = &f->flags[i];
                struct options changed = *o;
                struct rv_error_info ignored;
                if (f->terms[has->term].left_out || o->given & bit_of(has->flag) || !is_when(has, o) ||
                    flag_parse(has->flag, &changed, has->text, &ignored) ||
                    (flags_conflict(&changed) && !flags_conflict(o)))
                        continue;
                changed.given = o->given;
                *o = changed;
                o->of_framework |= bit_of(has->flag);
        }
}

int framework_take(struct framework *f, struct options *o, struct rv_error_info *err)
{
        *f = (struct framework){0};
        if (!o->like)
                return o->without ? rv_fail(err, RV_EINPUT,
                                            "--without %.64s leaves terms of a framework out: --like NAME is "
                                            "missing",
                                            o->without)
                                  : 0;
        const int rc = framework_load(f, o->like, o->without, err);
        if (rc)
                return rc;
        o->framework = f;
        framework_flags(o);
        return 0;
}

/* Whether the plan is one that a flag is said for, and no later term says the same flag. */
static bool counts(const struct framework *f, int i, const struct options *o)
{
        const struct framework_flag *has = &f->flags[i];
        bool last = true;
        for (int j = i + 1; j < f->flag_count; j++)
                last &= f->flags[j].flag != has->flag || f->terms[f->flags[j].term].left_out ||
                        !is_when(&f->flags[j], o);
        return last && !f->terms[has->term].left_out && is_when(has, o);
}

/* Whether a plan has a flag's value, wherever it is from. */
static bool is_value(const struct framework_flag *has, const struct options *o)
{
        struct options changed = *o;
        return flag_parse(has->flag, &changed, has->text, NULL) == 0 && flag_equal(has->flag, &changed, o);
}

void framework_write_flags(const struct options *o, bool left_out, char *text, size_t size)
{
        const struct framework *f = o->framework;
        size_t used = 0;
        text[0] = 0;
        for (int i = 0; f && i < f->flag_count && used < size; i++) {
                const struct framework_flag *has = &f->flags[i];
                const bool taken = o->of_framework & bit_of(has->flag);
                if (!counts(f, i, o) || taken == left_out || (left_out && is_value(has, o)))
                        continue;
                used += (size_t)snprintf(text + used, size - used, "%s--%s%s%s", used ? " " : "",
                                         has->flag->name, has->text ? " " : "", has->text ? has->text : "");
        }
}

void framework_write_terms(const struct framework *f, bool held, char *text, size_t size)
{
        size_t used = 0;
        text[0] = 0;
        for (int i = 0; i < f->term_count && used < size; i++)
                if (f->terms[i].left_out != held)
                        used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
                                                 f->terms[i].name);
}

json_t *framework_json(const struct options *o)
{
        const struct framework *f = o->framework;
        char flags[FRAMEWORK_TEXT], others[FRAMEWORK_TEXT], terms[FRAMEWORK_TEXT], left[FRAMEWORK_TEXT];
        framework_write_flags(o, false, flags, sizeof flags);
        framework_write_flags(o, true, others, sizeof others);
        framework_write_terms(f, true, terms, sizeof terms);
        framework_write_terms(f, false, left, sizeof left);
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "name", f->name, "path", f->path, "flags", flags,
                         "flags_not_taken", others, "terms", terms, "terms_left_out", left);
}

/* ---- costs ---- */

static bool holds(const struct framework *f, int term)
{
        return term >= 0 && !f->terms[term].left_out;
}

bool framework_prices(const struct framework *f)
{
        for (int i = 0; f && i < f->term_count; i++)
                if (holds(f, i) && term_prices(f, i))
                        return true;
        return false;
}

static double elements_of(const struct framework_rule *rule, const struct kernel *k)
{
        const int64_t across = rule->width ? k->k : k->n;
        return (double)k->batch * (double)k->m * (double)(across > 0 ? across : 1);
}

struct framework_cost framework_cost(const struct framework *f, const struct kernel *k)
{
        struct framework_cost cost = {.own_launches = 1};
        for (int i = 0; f && i < f->rule_count; i++) {
                const struct framework_rule *rule = &f->rules[i];
                if (rule->kind != k->kind || !holds(f, rule->term) || (rule->accumulating && !k->accumulate))
                        continue;
                const double bytes = elements_of(rule, k) *
                                     (rule->elements * dtype_bytes((enum dtype)k->dtype) + rule->bytes);
                cost.instead |= rule->instead;
                cost.launches += rule->launches;
                if (rule->launches_an_expert && k->experts)
                        cost.own_launches = rule->launches_an_expert * k->experts;
                *(rule->launches ? &cost.bytes : &cost.within_bytes) += bytes;
        }
        return cost;
}

/* The last that says it, so that a later term is of a more special GPU; 0: none does. */
static double figure_of(const struct framework *f, const char *device, enum framework_value which)
{
        double figure = 0;
        for (int i = 0; f && i < f->figure_count; i++) {
                const struct framework_figure *has = &f->figures[i];
                if (has->values[which] > 0 && holds(f, has->term) && (!has->gpu || strstr(device, has->gpu)))
                        figure = has->values[which];
        }
        return figure;
}

double framework_host_seconds(const struct framework *f, const char *device, bool *eager)
{
        *eager = f && holds(f, f->eager_term);
        return figure_of(f, device, FRAMEWORK_HOST_SECONDS_A_KERNEL);
}

double framework_sustained_rate(const struct framework *f, const char *device)
{
        return figure_of(f, device, FRAMEWORK_SUSTAINED_RATE);
}

bool framework_fitted_on(const struct framework *f, const char *device, const char *run)
{
        const json_t *terms = f ? json_object_get(f->document, "terms") : NULL;
        for (int i = 0; f && i < f->figure_count; i++) {
                const struct framework_figure *has = &f->figures[i];
                const char *on = json_string_value(
                        json_object_get(json_array_get(terms, (size_t)has->term), "fitted_on"));
                if (on && holds(f, has->term) && has->gpu && strstr(device, has->gpu) &&
                    strncmp(on, run, strlen(run)) == 0)
                        return true;
        }
        return false;
}

double framework_host_error(const struct framework *f, const char *device)
{
        return figure_of(f, device, FRAMEWORK_HOST_ERROR);
}

double framework_run_error(const struct framework *f, const char *device)
{
        return figure_of(f, device, FRAMEWORK_RUN_ERROR);
}

double framework_host_step(const struct framework *f, const char *device)
{
        return figure_of(f, device, FRAMEWORK_HOST_SECONDS_A_STEP);
}

/* Whole tensors belong to replicas, so there are no more owners than tensors. */
int framework_broadcasts(const struct options *o)
{
        int most = 0;
        if (!o->framework || !holds(o->framework, o->framework->broadcast_term) || o->zero != 1)
                return 0;
        for (int i = 0; i < o->pp; i++) {
                const struct stage stage = options_stage(o, i);
                const int tensors = partition_tensors(&o->gpt, &stage, NULL);
                most = tensors > most ? tensors : most;
        }
        const struct plan plan = options_plan(o, false);
        const int owners = plan_share_ranks(&plan);
        return owners < most ? owners : most;
}

static bool is_aligned(const struct kernel *k)
{
        enum { ALIGNED = 8 };
        return k->m % ALIGNED == 0 && k->n % ALIGNED == 0 && k->k % ALIGNED == 0;
}

/* Which figure says how fast a kernel is at most; FRAMEWORK_VALUES: none does. */
static enum framework_value limit_of(const struct kernel *k)
{
        switch (k->kind) {
        case KERNEL_ATTENTION:
        case KERNEL_CONTEXT_ATTENTION:
                return FRAMEWORK_ATTENTION_FLOPS_PER_SECOND;
        case KERNEL_ATTENTION_BACKWARD:
        case KERNEL_CONTEXT_ATTENTION_BACKWARD:
                return FRAMEWORK_ATTENTION_BACKWARD_FLOPS_PER_SECOND;
        default:
                return kernel_descriptor(k->kind)->products > 0 && k->dtype != DTYPE_FP32 && !is_aligned(k)
                               ? FRAMEWORK_UNALIGNED_FLOPS_PER_SECOND
                               : FRAMEWORK_VALUES;
        }
}

double framework_least_seconds(const struct framework *f, const char *device, const struct kernel *k)
{
        const enum framework_value limit = limit_of(k);
        const double rate = limit < FRAMEWORK_VALUES ? figure_of(f, device, limit) : 0;
        return rate > 0 ? kernel_flops(k) / rate : 0;
}

/* ---- memory ---- */

/* Bytes for what a list of kernels makes: kept by a micro-batch, held once, and kept for each shape. */
struct beside {
        double kept, held, cached;
};

static bool is_of(const struct framework *f, const struct framework_rule *rule, const struct kernel *kernel)
{
        return rule->kind == kernel->kind && holds(f, rule->term) &&
               (!rule->accumulating || kernel->accumulate);
}

/* Whether an earlier kernel of the rule has a matrix of the same shape. */
static bool is_cached(const struct framework *f, const struct framework_rule *rule,
                      const struct kernel *kernels, int at)
{
        for (int i = 0; i < at; i++)
                if (is_of(f, rule, &kernels[i]) && kernels[i].m == kernels[at].m &&
                    kernels[i].n == kernels[at].n)
                        return true;
        return false;
}

static struct beside beside_of(const struct framework *f, const struct kernel *kernels, int count)
{
        struct beside beside = {0};
        for (int i = 0; i < count; i++)
                for (int j = 0; j < f->rule_count; j++) {
                        const struct framework_rule *rule = &f->rules[j];
                        if (!is_of(f, rule, &kernels[i]))
                                continue;
                        const double elements = elements_of(rule, &kernels[i]);
                        beside.kept += elements * rule->kept_bytes;
                        beside.held = fmax(beside.held, elements * rule->held_bytes);
                        if (rule->cached_bytes > 0 && !is_cached(f, rule, kernels, i))
                                beside.cached += elements * rule->cached_bytes;
                }
        return beside;
}

/* Zeros where there is no memory to tell. */
static struct beside derive_beside(const struct options *o, const struct stage *stage,
                                   const struct work *work, bool backward)
{
        struct beside beside = {0};
        const int count = backward ? workload_backward(&o->gpt, stage, work, NULL)
                                   : workload_forward(&o->gpt, stage, work, false, NULL);
        struct kernel *kernels = malloc(((size_t)count + 1) * sizeof *kernels);
        if (!kernels)
                return beside;
        if (backward)
                workload_backward(&o->gpt, stage, work, kernels);
        else
                workload_forward(&o->gpt, stage, work, false, kernels);
        beside = beside_of(o->framework, kernels, count);
        free(kernels);
        return beside;
}

/* All that it follows from, beside the model. What lies between members may differ between equal ones, which
 * are then derived twice. */
struct beside_key {
        int64_t framework; /* its number */
        struct stage stage;
        struct work work;
        bool backward;
};

static unsigned hash_of(const struct beside_key *key)
{
        const unsigned char *bytes = (const unsigned char *)key;
        unsigned hash = 2166136261u; /* FNV-1a */
        for (size_t i = 0; i < sizeof *key; i++)
                hash = (hash ^ bytes[i]) * 16777619u;
        return hash;
}

/* What a forward has beside, or a backward. Each thread remembers what it derived lately, of one model: a
 * search asks the same of many plans. */
static struct beside beside_pass(const struct options *o, const struct stage *stage, bool backward)
{
        enum { REMEMBERED = 512 };
        static _Thread_local struct gpt model;
        static _Thread_local int models; /* that were asked for */
        static _Thread_local struct {
                struct beside_key key;
                int model; /* 0: nothing yet */
                struct beside beside;
        } memo[REMEMBERED];
        struct beside_key key;
        memset(&key, 0, sizeof key);
        key.framework = o->framework->number;
        key.stage = *stage;
        key.work = options_work(o);
        key.backward = backward;
        const unsigned at = hash_of(&key) % REMEMBERED;
        if (models == 0 || !gpt_same(&model, &o->gpt)) {
                model = o->gpt;
                models++;
        }
        if (memo[at].model != models || memcmp(&memo[at].key, &key, sizeof key) != 0) {
                memcpy(&memo[at].key, &key, sizeof key);
                memo[at].model = models;
                memo[at].beside = derive_beside(o, stage, &key.work, backward);
        }
        return memo[at].beside;
}

static bool keeps_memory(const struct framework *f)
{
        for (int i = 0; f && i < f->rule_count; i++) {
                const struct framework_rule *rule = &f->rules[i];
                if (holds(f, rule->term) && rule->kept_bytes + rule->held_bytes + rule->cached_bytes > 0)
                        return true;
        }
        return false;
}

/* Of a chunk: its blocks, of which a recomputed stage keeps what one has, while it runs again; the embedding;
 * the head, whose loss may be part of its backward. Shapes are those of a block. */
int64_t framework_memory(const struct options *o, const struct stage *stage, int slots)
{
        if (!keeps_memory(o->framework))
                return 0;
        struct stage chunk = partition_chunk(stage, 0), head = chunk;
        const bool again = recompute_depth(o->recompute) >= recompute_depth(RECOMPUTE_FULL);
        head.first = false;
        head.layers = 0;
        head.last = stage->last;
        chunk.last = false;
        struct stage kinds = chunk; /* a layer of each kind, whose weights are those of the others */
        kinds.layers = min_int(chunk.layers, partition_dense(&o->gpt, &chunk) + 1);
        const struct beside weights = beside_pass(o, &kinds, true);
        chunk.layers = again && chunk.layers > 1 ? 1 : chunk.layers;
        const struct beside blocks = beside_pass(o, &chunk, false);
        const struct beside none = {0}, loss = stage->last ? beside_pass(o, &head, false) : none,
                            back = stage->last ? beside_pass(o, &head, true) : none;
        const double kept = again ? blocks.kept : slots * blocks.kept;
        return (int64_t)(kept + slots * (loss.kept + back.kept) + weights.cached +
                         fmax(blocks.held, fmax(loss.held, back.held)));
}
