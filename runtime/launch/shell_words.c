#include "runtime/launch/shell.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void shell_end(struct shell *s)
{
        longjmp(s->over, 1);
}

void shell_deeper(struct shell *s)
{
        if (++s->nested > DEPTH)
                shell_end(s);
}

void *shell_room(struct shell *s, size_t size)
{
        const size_t whole = (size + 15) / 16 * 16;
        if (whole > ARENA - s->used)
                shell_end(s);
        void *at = s->arena + s->used;
        s->used += whole;
        return at;
}

char *shell_copy(struct shell *s, const char *text, size_t length)
{
        char *made = shell_room(s, length + 1);
        memcpy(made, text, length);
        made[length] = 0;
        return made;
}

struct words shell_new_words(struct shell *s, int most)
{
        return (struct words){shell_room(s, (size_t)most * sizeof(char *)),
                              shell_room(s, (size_t)most * sizeof(int)), 0};
}

void shell_append(struct shell *s, struct words *to, char *word, int line)
{
        if (to->count == WORDS)
                shell_end(s);
        to->lines[to->count] = line;
        to->list[to->count++] = word;
}

struct words shell_copy_words(struct shell *s, const struct words *from)
{
        struct words made = shell_new_words(s, from->count + 1);
        for (int i = 0; i < from->count; i++)
                shell_append(s, &made, from->list[i], from->lines[i]);
        return made;
}

struct variable *shell_find(struct shell *s, const char *name, size_t length)
{
        for (int i = s->variable_count - 1; i >= 0; i--)
                if (strncmp(s->variables[i].name, name, length) == 0 && !s->variables[i].name[length])
                        return &s->variables[i];
        return NULL;
}

void shell_set(struct shell *s, const char *name, size_t length, struct words values)
{
        struct variable *v = shell_find(s, name, length);
        if (!v) {
                if (s->variable_count == VARIABLES)
                        shell_end(s);
                v = &s->variables[s->variable_count++];
                v->name = shell_copy(s, name, length);
        }
        v->values = values;
}

void shell_set_text(struct shell *s, const char *name, const char *text)
{
        struct words one = shell_new_words(s, 1);
        shell_append(s, &one, shell_copy(s, text, strlen(text)), s->line);
        shell_set(s, name, strlen(name), one);
}

/* ---- words and what they expand to ---- */

static const char *close_of(struct shell *s, const char *at, char opens, char closes);

/* Behind what begins at `at`: a quoted part, an expansion, or one character. */
static const char *part_end(struct shell *s, const char *at)
{
        if (*at == '\\' && at[1])
                return at + 2;
        if (*at == '\'') {
                const char *end = strchr(at + 1, '\'');
                return end ? end + 1 : at + strlen(at);
        }
        if (*at == '"' || *at == '`') {
                const char quote = *at++;
                while (*at && *at != quote)
                        at = *at == '$' || *at == '\\' ? part_end(s, at) : at + 1;
                return at + (*at != 0);
        }
        if (*at == '$' && at[1] == '(')
                return close_of(s, at + 2, '(', ')');
        if (*at == '$' && at[1] == '{')
                return close_of(s, at + 2, '{', '}');
        return at + 1;
}

static const char *close_of(struct shell *s, const char *at, char opens, char closes)
{
        int depth = 1;
        shell_deeper(s);
        while (*at && depth > 0) {
                depth += (*at == opens) - (*at == closes);
                at = *at == opens || *at == closes ? at + 1 : part_end(s, at);
        }
        s->nested--;
        return at;
}

const char *shell_word_end(struct shell *s, const char *at)
{
        while (*at && !strchr(" \t\n;&|()<>", *at))
                at = part_end(s, at);
        return at;
}

size_t shell_name_length(const char *at)
{
        size_t length = 0;
        while (isalnum((unsigned char)at[length]) || at[length] == '_')
                length++;
        return isdigit((unsigned char)*at) ? 0 : length;
}

/* The word that is being made of a raw one, of which several may come; where there is no list for them, they
 * stay one, with blanks between. */
struct field {
        struct words *to;
        char text[FIELD];
        size_t length;
        bool open, vanishes; /* begun; and, if nothing comes of it, as if it were not there: "$@" */
};

static void put(struct shell *s, struct field *f, char c)
{
        if (f->length + 1 == FIELD)
                shell_end(s);
        f->text[f->length++] = c;
        f->open = true;
}

static void end_field(struct shell *s, struct field *f)
{
        if (!f->to) {
                put(s, f, ' ');
                return;
        }
        if (f->open && (f->length || !f->vanishes))
                shell_append(s, f->to, shell_copy(s, f->text, f->length), s->line);
        f->length = 0;
        f->open = f->vanishes = false;
}

/* A value: split at blanks if it is not quoted. */
static void put_text(struct shell *s, struct field *f, const char *text, bool quoted)
{
        bool marked = false;
        f->open |= quoted;
        for (; *text; text++) {
                marked = *text == MARK || (marked && *text != MARK_END);
                if (!quoted && !marked && isspace((unsigned char)*text))
                        end_field(s, f);
                else
                        put(s, f, *text);
        }
}

static void put_unknown(struct shell *s, struct field *f, const char *what, size_t length)
{
        put(s, f, MARK);
        for (size_t i = 0; i < length && i < 60; i++)
                put(s, f, what[i] == '\n' ? ' ' : what[i]);
        put(s, f, MARK_END);
}

static void put_values(struct shell *s, struct field *f, const struct words *values, bool quoted)
{
        f->vanishes |= values->count == 0;
        for (int i = 0; i < values->count; i++) {
                if (i > 0)
                        end_field(s, f);
                put_text(s, f, values->list[i], quoted);
        }
}

static void expand(struct shell *s, struct field *f, const char *at, const char *end, bool quoted);

char *shell_expand_one(struct shell *s, const char *at, const char *end)
{
        struct field f = {.length = 0};
        expand(s, &f, at, end, true);
        return shell_copy(s, f.text, f.length);
}

/* ---- arithmetic ---- */

struct sum {
        struct shell *s;
        const char *at;
        bool known;
};

static int64_t sum_of(struct sum *e, int least);

static int64_t operand(struct sum *e)
{
        int64_t value;
        e->at += strspn(e->at, " \t\n");
        if (*e->at == '(') {
                e->at++;
                shell_deeper(e->s);
                value = sum_of(e, 0);
                e->s->nested--;
                e->at += strspn(e->at, " \t\n");
                e->known &= *e->at == ')';
                e->at += *e->at == ')';
                return value;
        }
        if (*e->at == '-') {
                e->at++;
                shell_deeper(e->s);
                value = operand(e);
                e->s->nested--;
                e->known &= value != INT64_MIN;
                return value == INT64_MIN ? 0 : -value;
        }
        const size_t length = shell_name_length(e->at);
        char *end;
        value = strtoll(e->at, &end, 10);
        if (length > 0) { /* a variable without its dollar */
                const struct variable *v = shell_find(e->s, e->at, length);
                struct sum inner = {e->s, v && v->values.count ? v->values.list[0] : "", e->known};
                e->at += length;
                const int64_t found = v ? strtoll(inner.at, &end, 10) : 0;
                e->known &= v && end != inner.at && !*end;
                return found;
        }
        e->known &= end != e->at;
        e->at = end;
        return value;
}

/* Sums and products of operands: precedence 0 and 1. */
static int64_t sum_of(struct sum *e, int least)
{
        int64_t value = least == 1 ? operand(e) : sum_of(e, 1);
        for (;;) {
                e->at += strspn(e->at, " \t\n");
                const char sign = *e->at;
                if (!sign || !strchr(least == 1 ? "*/%" : "+-", sign))
                        return value;
                e->at++;
                const int64_t other = least == 1 ? operand(e) : sum_of(e, 1);
                int64_t made = 0;
                e->known &= strchr("/%", sign) ? other > 0 : true;
                if (sign == '*')
                        e->known &= !__builtin_mul_overflow(value, other, &made);
                else if (sign == '+')
                        e->known &= !__builtin_add_overflow(value, other, &made);
                else if (sign == '-')
                        e->known &= !__builtin_sub_overflow(value, other, &made);
                else if (other > 0)
                        made = sign == '/' ? value / other : value % other;
                value = made;
        }
}

static void put_sum(struct shell *s, struct field *f, const char *at, const char *end)
{
        const char *text = shell_expand_one(s, at + 3, end - 2);
        struct sum e = {s, text, true};
        const int64_t value = sum_of(&e, 0);
        char number[24];
        e.at += strspn(e.at, " \t\n");
        snprintf(number, sizeof number, "%lld", (long long)value);
        if (e.known && !*e.at)
                put_text(s, f, number, false);
        else
                put_unknown(s, f, at, (size_t)(end - at));
}

/* ---- variables ---- */

/* ${NAME...}: at `at` behind the brace, up to `end` before the other one. */
static void put_braces(struct shell *s, struct field *f, const char *at, const char *end, bool quoted)
{
        const size_t length = shell_name_length(at);
        const char *rest = at + length;
        const struct variable *v = length ? shell_find(s, at, length) : NULL;
        if (length == 0 && (*at == '@' || *at == '*')) { /* the script's own arguments: none */
                f->vanishes = true;
                return;
        }
        if (length == 0)
                rest += strspn(at, "0123456789");
        const bool all = strncmp(rest, "[@]", 3) == 0 || strncmp(rest, "[*]", 3) == 0;
        if (all)
                rest += 3;
        const bool empty = *rest == ':', known = v && (!empty || (v->values.count && v->values.list[0][0]));
        const char *how = rest + empty;
        if (how < end && strchr("-=?+", *how) && rest > at) {
                const bool other = *how == '+' ? known : !known && *how != '?';
                if (other)
                        expand(s, f, how + 1, end, quoted);
                else if (known && *how != '+')
                        put_values(s, f, &v->values, quoted);
                else if (*how == '?')
                        put_unknown(s, f, at - 2, (size_t)(end - at) + 3);
                if (other && *how == '=' && length)
                        shell_set_text(s, shell_copy(s, at, length), shell_expand_one(s, how + 1, end));
        } else if (v && (rest == end))
                put_values(s, f, &v->values, quoted);
        else
                put_unknown(s, f, at - 2, (size_t)(end - at) + 3);
}

/* An expansion that begins with a dollar. Returns what is behind it. */
static const char *put_dollar(struct shell *s, struct field *f, const char *at, bool quoted)
{
        const char *end = part_end(s, at);
        const size_t length = shell_name_length(at + 1);
        if (at[1] == '{')
                put_braces(s, f, at + 2, end - (end[-1] == '}'), quoted);
        else if (strncmp(at, "$((", 3) == 0 && end - at >= 5 && end[-2] == ')')
                put_sum(s, f, at, end);
        else if (at[1] == '(')
                put_unknown(s, f, at, (size_t)(end - at));
        else if (length > 0) {
                const struct variable *v = shell_find(s, at + 1, length);
                end = at + 1 + length;
                if (v)
                        put_values(s, f, &v->values, quoted);
                else
                        put_unknown(s, f, at, length + 1);
        } else if (at[1] == '@' || at[1] == '*') {
                f->vanishes = true;
                end = at + 2;
        } else if (at[1] && (isdigit((unsigned char)at[1]) || strchr("?#$!", at[1]))) {
                put_unknown(s, f, at, 2);
                end = at + 2;
        } else {
                put(s, f, '$');
                end = at + 1;
        }
        return end;
}

static void expand(struct shell *s, struct field *f, const char *at, const char *end, bool quoted)
{
        bool inside = false; /* of double quotes */
        shell_deeper(s);
        while (at < end) {
                if (*at == '"') {
                        inside = !inside;
                        f->open = true;
                        at++;
                } else if (*at == '\\' && at[1]) {
                        if (at[1] != '\n')
                                put(s, f, at[1]);
                        at += 2;
                } else if (*at == '\'' && !inside) {
                        const char *close = part_end(s, at);
                        f->open = true;
                        for (at++; at + 1 < close; at++)
                                put(s, f, *at);
                        at = close;
                } else if (*at == '$')
                        at = put_dollar(s, f, at, quoted || inside);
                else if (*at == '`') {
                        const char *close = part_end(s, at);
                        put_unknown(s, f, at, (size_t)(close - at));
                        at = close;
                } else
                        put(s, f, *at++);
        }
        s->nested--;
}

void shell_expand_words(struct shell *s, struct words *to, const char *at, const char *end)
{
        struct field f = {.to = to};
        expand(s, &f, at, end, false);
        end_field(s, &f);
}
