/* Reads launch scripts: of bash what they set variables and arrays with, and choose between them by, so that
 * the command with the most flags comes out as it would be started. Nothing is run: files are taken to exist
 * and commands to succeed, but as the condition of an if, where they fail; the script's own arguments, the
 * environment and what commands print are unknown, and so are variables of loops. An unknown value is kept
 * with a mark (table.h) and is wrong only where a flag that matters has it. */
#include "runtime/launch/table.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA = 1 << 23, FIELD = 16384, WORDS = 2048, VARIABLES = 1024, BLOCKS = 32, NESTED = 8 };

struct words {
        char **list;
        int *lines, count;
};

struct variable {
        const char *name;
        struct words values; /* of an array; else one */
};

struct shell {
        const char *at;
        int line, nested;
        char *arena;
        size_t used;
        bool full; /* something did not fit */
        struct variable variables[VARIABLES];
        int variable_count;
        struct words command, best, plain;
        /* Whether what is read is carried out: not in a branch that is not taken, nor behind && and ||. */
        bool active, skipped, negated, condition, status, declaring;
        struct block {
                enum { BLOCK_IF, BLOCK_CASE, BLOCK_LOOP } kind;
                bool outer, taken, condition;
                const char *subject;
        } blocks[BLOCKS];
        int depth;
        char heredoc[64];
};

/* Room that is freed with the shell. Where there is none left its beginning is used again, and `full` set. */
static void *room(struct shell *s, size_t size)
{
        const size_t whole = (size + 15) / 16 * 16;
        if (whole > ARENA - s->used) {
                s->full = true;
                s->used = 0;
        }
        void *at = s->arena + s->used;
        s->used += whole;
        return at;
}

static char *copy(struct shell *s, const char *text, size_t length)
{
        char *made = room(s, length + 1);
        memcpy(made, text, length);
        made[length] = 0;
        return made;
}

static struct words new_words(struct shell *s, int most)
{
        return (struct words){room(s, (size_t)most * sizeof(char *)), room(s, (size_t)most * sizeof(int)), 0};
}

static void append(struct shell *s, struct words *to, char *word, int line)
{
        if (to->count == WORDS) {
                s->full = true;
                return;
        }
        to->lines[to->count] = line;
        to->list[to->count++] = word;
}

static struct words copy_words(struct shell *s, const struct words *from)
{
        struct words made = new_words(s, from->count + 1);
        for (int i = 0; i < from->count; i++)
                append(s, &made, from->list[i], from->lines[i]);
        return made;
}

static struct variable *find(struct shell *s, const char *name, size_t length)
{
        for (int i = s->variable_count - 1; i >= 0; i--)
                if (strncmp(s->variables[i].name, name, length) == 0 && !s->variables[i].name[length])
                        return &s->variables[i];
        return NULL;
}

static void set(struct shell *s, const char *name, size_t length, struct words values)
{
        struct variable *v = find(s, name, length);
        if (!v && s->variable_count == VARIABLES) {
                s->full = true;
                return;
        }
        if (!v) {
                v = &s->variables[s->variable_count++];
                v->name = copy(s, name, length);
        }
        v->values = values;
}

static void set_text(struct shell *s, const char *name, const char *text)
{
        struct words one = new_words(s, 1);
        append(s, &one, copy(s, text, strlen(text)), s->line);
        set(s, name, strlen(name), one);
}

/* ---- words and what they expand to ---- */

static const char *close_of(const char *at, char opens, char closes);

/* Behind what begins at `at`: a quoted part, an expansion, or one character. */
static const char *part_end(const char *at)
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
                        at = *at == '$' || *at == '\\' ? part_end(at) : at + 1;
                return at + (*at != 0);
        }
        if (*at == '$' && at[1] == '(')
                return close_of(at + 2, '(', ')');
        if (*at == '$' && at[1] == '{')
                return close_of(at + 2, '{', '}');
        return at + 1;
}

static const char *close_of(const char *at, char opens, char closes)
{
        for (int depth = 1; *at; at = *at == opens || *at == closes ? at + 1 : part_end(at)) {
                depth += (*at == opens) - (*at == closes);
                if (depth == 0)
                        return at + 1;
        }
        return at;
}

static const char *word_end(const char *at)
{
        while (*at && !strchr(" \t\n;&|()<>", *at))
                at = part_end(at);
        return at;
}

static size_t name_length(const char *at)
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
        s->full |= f->length + 1 == FIELD;
        if (f->length + 1 < FIELD)
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
                append(s, f->to, copy(s, f->text, f->length), s->line);
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

/* The text that a raw word becomes if it is not split. */
static char *expand_one(struct shell *s, const char *at, const char *end)
{
        struct field f = {.length = 0};
        expand(s, &f, at, end, true);
        return copy(s, f.text, f.length);
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
        e->at += strspn(e->at, " \t\n");
        if (*e->at == '(') {
                e->at++;
                const int64_t value = sum_of(e, 0);
                e->at += strspn(e->at, " \t\n");
                e->known &= *e->at == ')';
                e->at += *e->at == ')';
                return value;
        }
        if (*e->at == '-') {
                e->at++;
                return -operand(e);
        }
        const size_t length = name_length(e->at);
        char *end;
        const int64_t value = strtoll(e->at, &end, 10);
        if (length > 0) { /* a variable without its dollar */
                const struct variable *v = find(e->s, e->at, length);
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
        const char *text = expand_one(s, at + 3, end - 2);
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
        const size_t length = name_length(at);
        const char *rest = at + length;
        const struct variable *v = length ? find(s, at, length) : NULL;
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
                        set_text(s, copy(s, at, length), expand_one(s, how + 1, end));
        } else if (v && (rest == end))
                put_values(s, f, &v->values, quoted);
        else
                put_unknown(s, f, at - 2, (size_t)(end - at) + 3);
}

/* An expansion that begins with a dollar. Returns what is behind it. */
static const char *put_dollar(struct shell *s, struct field *f, const char *at, bool quoted)
{
        const char *end = part_end(at);
        const size_t length = name_length(at + 1);
        if (at[1] == '{')
                put_braces(s, f, at + 2, end - (end[-1] == '}'), quoted);
        else if (strncmp(at, "$((", 3) == 0 && end - at >= 5 && end[-2] == ')')
                put_sum(s, f, at, end);
        else if (at[1] == '(')
                put_unknown(s, f, at, (size_t)(end - at));
        else if (length > 0) {
                const struct variable *v = find(s, at + 1, length);
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
                        const char *close = part_end(at);
                        f->open = true;
                        for (at++; at + 1 < close; at++)
                                put(s, f, *at);
                        at = close;
                } else if (*at == '$')
                        at = put_dollar(s, f, at, quoted || inside);
                else if (*at == '`') {
                        const char *close = part_end(at);
                        put_unknown(s, f, at, (size_t)(close - at));
                        at = close;
                } else
                        put(s, f, *at++);
        }
}

static void expand_words(struct shell *s, struct words *to, const char *at, const char *end)
{
        struct field f = {.to = to};
        expand(s, &f, at, end, false);
        end_field(s, &f);
}

/* ---- commands ---- */

static void count_lines(struct shell *s, const char *from, const char *to)
{
        for (; from < to; from++)
                s->line += *from == '\n';
}

/* Blanks, comments and continued lines; and ends of lines, if `lines`. */
static void skip(struct shell *s, bool lines)
{
        for (;;) {
                if (*s->at == '#')
                        s->at += strcspn(s->at, "\n");
                if (s->at[0] == '\\' && s->at[1] == '\n') {
                        s->at += 2;
                        s->line++;
                } else if (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')
                        s->at++;
                else if (lines && *s->at == '\n') {
                        s->at++;
                        s->line++;
                } else
                        return;
        }
}

static bool live(const struct shell *s)
{
        return s->active && !s->skipped;
}

/* NAME=..., NAME+=... and NAME=( ... ). Returns whether that is what stands there. */
static bool assign(struct shell *s)
{
        const char *name = s->at;
        const size_t length = name_length(name);
        const bool adds = name[length] == '+';
        const char *value = name + length + adds;
        if (!length || *value != '=')
                return false;
        const struct variable *old = adds ? find(s, name, length) : NULL;
        const bool array = *++value == '(';
        struct words made = new_words(s, array ? WORDS : 1);
        s->at = value;
        if (array) {
                if (old)
                        for (int i = 0; i < old->values.count; i++)
                                append(s, &made, old->values.list[i], old->values.lines[i]);
                s->at++;
                for (skip(s, true); *s->at && *s->at != ')'; skip(s, true)) {
                        const char *from = s->at;
                        s->at = word_end(from);
                        s->at += s->at == from; /* an operator that has no place there */
                        expand_words(s, &made, from, s->at);
                        count_lines(s, from, s->at);
                }
                s->at += *s->at == ')';
        } else {
                s->at = word_end(value);
                char *text = expand_one(s, value, s->at);
                if (old && old->values.count) {
                        char *both = room(s, strlen(old->values.list[0]) + strlen(text) + 1);
                        text = strcat(strcpy(both, old->values.list[0]), text);
                }
                append(s, &made, text, s->line);
                count_lines(s, value, s->at);
        }
        if (live(s))
                set(s, name, length, copy_words(s, &made));
        s->status = live(s) ? true : s->status;
        return true;
}

static bool is(const char *word, const char *other)
{
        return strcmp(word, other) == 0;
}

static const char *known_text(const char *word)
{
        return strchr(word, MARK) ? "" : word; /* what is not set is empty */
}

static bool test_two(const char *a, const char *how, const char *b)
{
        static const char *const numeric[] = {"-eq", "-ne", "-gt", "-lt", "-ge", "-le"};
        const long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
        const bool results[] = {x == y, x != y, x > y, x < y, x >= y, x <= y};
        if (is(how, "=") || is(how, "=="))
                return fnmatch(b, a, 0) == 0;
        if (is(how, "!="))
                return fnmatch(b, a, 0) != 0;
        for (int i = 0; i < 6; i++)
                if (is(how, numeric[i]))
                        return results[i];
        return false;
}

/* What `[`, `[[` and test say of words. */
static bool test(char **words, int count)
{
        for (int i = 0; i < count; i++)
                if (is(words[i], "||") || is(words[i], "-o"))
                        return test(words, i) || test(words + i + 1, count - i - 1);
        for (int i = 0; i < count; i++)
                if (is(words[i], "&&") || is(words[i], "-a"))
                        return test(words, i) && test(words + i + 1, count - i - 1);
        if (count > 0 && is(words[0], "!"))
                return !test(words + 1, count - 1);
        if (count == 3)
                return test_two(known_text(words[0]), words[1], known_text(words[2]));
        if (count == 2 && (is(words[0], "-z") || is(words[0], "-n")))
                return !*known_text(words[1]) == is(words[0], "-z");
        if (count == 2)
                return words[0][0] == '-'; /* -f and such: files are taken to exist */
        return count == 1 && *known_text(words[0]) && !is(words[0], "-n");
}

static void run(struct shell *s);

/* Text that a shell of its own is given. */
static void run_text(struct shell *s, const char *text)
{
        const char *at = s->at;
        const int line = s->line;
        const struct words command = s->command;
        if (++s->nested < NESTED) {
                s->command = new_words(s, WORDS);
                s->at = text;
                run(s);
                s->command = command;
        }
        s->at = at;
        s->line = line;
        s->nested--;
}

static int flags_of(const struct words *words)
{
        int flags = 0;
        for (int i = 0; i < words->count; i++)
                flags += strncmp(words->list[i], "--", 2) == 0;
        return flags;
}

static void obey(struct shell *s)
{
        struct words *c = &s->command;
        const char *first = c->list[0];
        const bool tests = is(first, "[") || is(first, "[[") || is(first, "test");
        if (tests)
                s->status = test(c->list + 1, c->count - 1 - !is(first, "test"));
        else
                s->status = is(first, "true") || (!s->condition && !is(first, "false"));
        for (int i = 0; i + 1 < c->count && !tests; i++)
                if ((is(c->list[i], "-c") && strchr(c->list[i + 1], ' ')) || (i == 0 && is(first, "eval"))) {
                        run_text(s, c->list[i + 1]);
                        return;
                }
        if (strncmp(first, "--", 2) == 0)
                for (int i = 0; i < c->count; i++)
                        append(s, &s->plain, c->list[i], c->lines[i]);
        else if (!tests && !is(first, "echo") && flags_of(c) > 0 && flags_of(c) >= flags_of(&s->best))
                s->best = copy_words(s, c);
}

/* `by`: the operator that ends the command. */
static void end_command(struct shell *s, const char *by)
{
        if (s->command.count > 0) {
                if (live(s))
                        obey(s);
                if (live(s))
                        s->status = s->status != s->negated;
                s->negated = false;
        }
        s->command.count = 0;
        s->declaring = false;
        s->skipped = (is(by, "&&") && !s->status) || (is(by, "||") && s->status);
}

/* ---- if, case and loops ---- */

static void open_block(struct shell *s, int kind)
{
        s->full |= s->depth == BLOCKS;
        if (s->depth < BLOCKS)
                s->blocks[s->depth++] =
                        (struct block){.kind = kind, .outer = s->active, .condition = s->condition};
        s->condition = kind != BLOCK_CASE;
}

static void close_block(struct shell *s)
{
        if (s->depth > 0) {
                s->active = s->blocks[--s->depth].outer;
                s->condition = s->blocks[s->depth].condition;
        }
        s->status = true;
}

static void branch(struct shell *s, bool holds)
{
        struct block *b = s->depth > 0 ? &s->blocks[s->depth - 1] : NULL;
        if (!b)
                return;
        s->active = b->outer && !b->taken && holds;
        b->taken |= s->active;
        s->condition = b->condition;
}

static char *next_word(struct shell *s)
{
        const char *from;
        skip(s, true);
        from = s->at;
        s->at = word_end(from);
        return expand_one(s, from, s->at);
}

/* Before the patterns of a case: those of the next branch. */
static void read_patterns(struct shell *s)
{
        bool fits = false;
        for (skip(s, true); *s->at && *s->at != ')'; skip(s, true)) {
                const char *from = s->at;
                if (strncmp(from, "esac", 4) == 0 && word_end(from) == from + 4)
                        return;
                const char *pattern = next_word(s);
                fits |= s->depth > 0 && fnmatch(pattern, s->blocks[s->depth - 1].subject, 0) == 0;
                s->at += *s->at == '|' || *s->at == '(' || (s->at == from);
        }
        s->at += *s->at == ')';
        branch(s, fits);
}

static void read_for(struct shell *s)
{
        const char *name = next_word(s);
        char unknown[64];
        snprintf(unknown, sizeof unknown, "%c$%.48s%c", MARK, name, MARK_END);
        open_block(s, BLOCK_LOOP);
        if (s->active)
                set_text(s, name, unknown);
        s->at += strcspn(s->at, ";\n");
        s->status = true;
}

/* Whether the raw word was one of the shell's own. */
static bool keyword(struct shell *s, const char *at, size_t length)
{
        char word[12];
        if (length >= sizeof word)
                return false;
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        if (is(word, "if"))
                open_block(s, BLOCK_IF);
        else if (is(word, "then"))
                branch(s, s->status);
        else if (is(word, "elif") && s->depth > 0) {
                s->active = s->blocks[s->depth - 1].outer && !s->blocks[s->depth - 1].taken;
                s->condition = true;
        } else if (is(word, "else"))
                branch(s, true);
        else if (is(word, "fi") || is(word, "done") || is(word, "esac"))
                close_block(s);
        else if (is(word, "for") || is(word, "select"))
                read_for(s);
        else if (is(word, "while") || is(word, "until"))
                open_block(s, BLOCK_LOOP);
        else if (is(word, "do"))
                branch(s, s->status);
        else if (is(word, "case")) {
                const char *subject = next_word(s);
                open_block(s, BLOCK_CASE);
                if (s->depth > 0)
                        s->blocks[s->depth - 1].subject = known_text(subject);
                next_word(s); /* in */
                read_patterns(s);
        } else if (is(word, "!"))
                s->negated = !s->negated;
        else
                return is(word, "{") || is(word, "}") || is(word, "time") || is(word, "function");
        return true;
}

/* ---- a text ---- */

static void skip_heredoc(struct shell *s)
{
        while (*s->at && s->heredoc[0]) {
                const size_t length = strcspn(s->at, "\n"), blanks = strspn(s->at, "\t");
                if (length - blanks == strlen(s->heredoc) &&
                    strncmp(s->at + blanks, s->heredoc, length - blanks) == 0)
                        s->heredoc[0] = 0;
                s->at += length + (s->at[length] == '\n');
                s->line++;
        }
}

/* A redirection: its file is skipped, and the number before it; of <<WORD the lines up to WORD. */
static void redirect(struct shell *s)
{
        const bool number = s->command.count > 0 && isdigit((unsigned char)s->at[-1]) &&
                            strlen(s->command.list[s->command.count - 1]) == 1;
        const size_t signs = strspn(s->at, "<>&|");
        const bool heredoc = strncmp(s->at, "<<", 2) == 0 && s->at[2] != '<';
        s->command.count -= number;
        s->at += signs + (heredoc && s->at[signs] == '-');
        skip(s, false);
        const char *from = s->at;
        s->at = word_end(from);
        if (heredoc)
                snprintf(s->heredoc, sizeof s->heredoc, "%s", expand_one(s, from, s->at));
}

static void read_operator(struct shell *s)
{
        const int words = s->command.count;
        const bool in_test =
                words > 0 && is(s->command.list[0], "[[") && !is(s->command.list[words - 1], "]]");
        const char first = *s->at;
        char by[3] = {first, s->at[1] == first && first != '(' && first != ')' ? first : 0, 0};
        if (in_test && first != '\n' && first != ';') {
                append(s, &s->command, copy(s, by, strlen(by)), s->line);
                s->at += strlen(by);
                return;
        }
        if (first == '<' || first == '>' || (first == '&' && s->at[1] == '>')) {
                redirect(s);
                return;
        }
        s->at += strlen(by);
        if (first == '(' && *s->at == ')') { /* a function: its body is read as if it stood there */
                s->command.count = 0;
                s->at++;
                return;
        }
        end_command(s, by);
        if (first == '\n') {
                s->line += (int)strlen(by);
                skip_heredoc(s);
        }
        if (is(by, ";;") && s->depth > 0 && s->blocks[s->depth - 1].kind == BLOCK_CASE)
                read_patterns(s);
}

static void run(struct shell *s)
{
        static const char declares[] = "export local declare readonly typeset";
        for (skip(s, false); *s->at; skip(s, false)) {
                const char *from = s->at;
                const int line = s->line;
                if (strchr("\n;&|()<>", *from)) {
                        read_operator(s);
                        continue;
                }
                if ((s->command.count == 0 || s->declaring) && assign(s))
                        continue;
                s->at = word_end(from);
                if (s->command.count == 0 && keyword(s, from, (size_t)(s->at - from)))
                        continue;
                const int before = s->command.count;
                expand_words(s, &s->command, from, s->at);
                if (before == 0 && s->command.count > 0)
                        s->declaring = launch_lists(declares, s->command.list[0]);
                for (int i = before; i < s->command.count; i++)
                        s->command.lines[i] = line;
                count_lines(s, from, s->at);
        }
        end_command(s, "\n");
}

/* ---- items ---- */

/* Slurm's variables, of the lines that sbatch reads. */
static void read_sbatch(struct shell *s, const char *text)
{
        static const struct {
                const char *option, *letter, *variable;
        } known[] = {{"--nodes", "-N", "SLURM_NNODES"},
                     {"--nodes", "-N", "SLURM_JOB_NUM_NODES"},
                     {"--ntasks", "-n", "SLURM_NTASKS"},
                     {"--ntasks-per-node", "--tasks-per-node", "SLURM_NTASKS_PER_NODE"},
                     {"--gpus-per-node", "--gpus-per-node", "SLURM_GPUS_PER_NODE"}};
        for (const char *at = text; (at = strstr(at, "#SBATCH")); at++) {
                char option[64], value[64];
                if (at > text && at[-1] != '\n')
                        continue;
                const size_t length = strcspn(at, "\n");
                char *line = copy(s, at, length);
                if (sscanf(line, "#SBATCH %63[^= \t]%*[= \t]%63[0-9]", option, value) != 2)
                        continue;
                for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                        if (is(option, known[i].option) || is(option, known[i].letter))
                                set_text(s, known[i].variable, value);
        }
}

static int add_item(struct launch *l, const char *word, const char *value, int line,
                    struct rv_error_info *err)
{
        char key[128];
        snprintf(key, sizeof key, "%s", word);
        for (char *at = key; *at; at++)
                *at = *at == '_' ? '-' : *at;
        return launch_add_item(l, key, value, line, err);
}

/* Flags with what follows them, up to the next flag or the program that is started. */
static int add_items(struct launch *l, const struct words *words, struct rv_error_info *err)
{
        char value[FIELD];
        int rc = 0;
        for (int i = 0, next; rc == 0 && i < words->count; i = next) {
                const char *word = words->list[i], *equals = strchr(word, '=');
                size_t length = 0;
                next = i + 1;
                if (word[0] != '-' || (word[1] != '-' && !isalpha((unsigned char)word[1])))
                        continue;
                value[0] = 0;
                for (; next < words->count && !equals; next++) {
                        const char *more = words->list[next], *dot = strrchr(more, '.');
                        if ((more[0] == '-' && (more[1] == '-' || isalpha((unsigned char)more[1]))) ||
                            (dot && is(dot, ".py")) || length + strlen(more) + 2 > sizeof value ||
                            (word[1] != '-' && next > i + 1))
                                break;
                        length += (size_t)snprintf(value + length, sizeof value - length, "%s%s",
                                                   length ? " " : "", more);
                }
                char *key = strndup(word, equals ? (size_t)(equals - word) : strlen(word));
                rc = key ? add_item(l, key, equals ? equals + 1 : value, words->lines[i], err)
                         : rv_fail(err, RV_ESYSTEM, "no memory for the flags of %s", l->path);
                free(key);
        }
        return rc;
}

/* The verb behind `ranvier`, whose place becomes the model's; 0: it is another program's command. */
static int ranvier_model(const struct words *words)
{
        for (int i = 0; i + 2 < words->count; i++) {
                const char *slash = strrchr(words->list[i], '/'), *name = slash ? slash + 1 : words->list[i];
                if (is(name, "ranvier") &&
                    (is(words->list[i + 1], "train") || is(words->list[i + 1], "simulate")))
                        return i + 2;
        }
        return 0;
}

static int make_items(struct launch *l, struct shell *s, struct rv_error_info *err)
{
        static const char *const told[] = {"WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES",
                                           "SLURM_NTASKS_PER_NODE", "SLURM_GPUS_PER_NODE"};
        const struct words *found = flags_of(&s->plain) > flags_of(&s->best) ? &s->plain : &s->best;
        const int model = ranvier_model(found);
        int rc = add_items(l, found, err);
        l->tool = model ? &launch_ranvier : &launch_megatron;
        if (rc == 0 && model && found->list[model][0] != '-')
                rc = launch_add_item(l, "MODEL", found->list[model], found->lines[model], err);
        for (size_t i = 0; rc == 0 && i < sizeof told / sizeof *told; i++) {
                const struct variable *v = find(s, told[i], strlen(told[i]));
                if (v && v->values.count && v->values.list[0][0] &&
                    !v->values.list[0][strspn(v->values.list[0], "0123456789")])
                        rc = launch_add_item(l, told[i], v->values.list[0], v->values.lines[0], err);
        }
        return rc;
}

int launch_read_shell(struct launch *l, const char *text, struct rv_error_info *err)
{
        struct shell *s = calloc(1, sizeof *s);
        int rc = 0;
        if (s)
                s->arena = malloc(ARENA);
        if (!s || !s->arena)
                rc = rv_fail(err, RV_ESYSTEM, "no memory to read %s", l->path);
        if (rc == 0) {
                s->at = text;
                s->line = 1;
                s->active = s->status = true;
                s->command = new_words(s, WORDS);
                s->best = new_words(s, 1);
                s->plain = new_words(s, WORDS);
                read_sbatch(s, text);
                run(s);
                rc = s->full ? rv_fail(err, RV_EINPUT,
                                       "%s: its variables become too long or too many to be a launch "
                                       "script's",
                                       l->path)
                             : make_items(l, s, err);
        }
        if (s)
                free(s->arena);
        free(s);
        return rc;
}
