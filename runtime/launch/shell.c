/* Reads launch scripts: of bash what they set variables and arrays with, and choose between them by, so that
 * the command with the most flags comes out as it would be started. Nothing is run: files are taken to exist
 * and commands to succeed, but as the condition of an if, where they fail; the script's own arguments, the
 * environment and what commands print are unknown, and so are variables of loops. An unknown value is kept
 * with a mark (table.h) and is wrong only where a flag that matters has it. */
#include "runtime/launch/shell.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

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
        const size_t length = shell_name_length(name);
        const bool adds = name[length] == '+';
        const char *value = name + length + adds;
        if (!length || *value != '=')
                return false;
        const struct variable *old = adds ? shell_find(s, name, length) : NULL;
        const bool array = *++value == '(';
        struct words made = shell_new_words(s, array ? WORDS : 1);
        s->at = value;
        if (array) {
                if (old)
                        for (int i = 0; i < old->values.count; i++)
                                shell_append(s, &made, old->values.list[i], old->values.lines[i]);
                s->at++;
                for (skip(s, true); *s->at && *s->at != ')'; skip(s, true)) {
                        const char *from = s->at;
                        s->at = shell_word_end(s, from);
                        s->at += s->at == from; /* an operator that has no place there */
                        shell_expand_words(s, &made, from, s->at);
                        count_lines(s, from, s->at);
                }
                s->at += *s->at == ')';
        } else {
                s->at = shell_word_end(s, value);
                char *text = shell_expand_one(s, value, s->at);
                if (old && old->values.count) {
                        char *both = shell_room(s, strlen(old->values.list[0]) + strlen(text) + 1);
                        text = strcat(strcpy(both, old->values.list[0]), text);
                }
                shell_append(s, &made, text, s->line);
                count_lines(s, value, s->at);
        }
        if (live(s))
                shell_set(s, name, length, shell_copy_words(s, &made));
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
        shell_deeper(s);
        s->command = shell_new_words(s, WORDS);
        s->at = text;
        run(s);
        s->command = command;
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
                        shell_append(s, &s->plain, c->list[i], c->lines[i]);
        else if (!tests && !is(first, "echo") && flags_of(c) > 0 && flags_of(c) >= flags_of(&s->best))
                s->best = shell_copy_words(s, c);
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
        if (s->depth == BLOCKS)
                shell_end(s);
        s->blocks[s->depth++] = (struct block){.kind = kind, .outer = s->active, .condition = s->condition};
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
        s->at = shell_word_end(s, from);
        return shell_expand_one(s, from, s->at);
}

/* Before the patterns of a case: those of the next branch. */
static void read_patterns(struct shell *s)
{
        bool fits = false;
        for (skip(s, true); *s->at && *s->at != ')'; skip(s, true)) {
                const char *from = s->at;
                if (strncmp(from, "esac", 4) == 0 && shell_word_end(s, from) == from + 4)
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
                shell_set_text(s, name, unknown);
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
        s->at = shell_word_end(s, from);
        if (heredoc)
                snprintf(s->heredoc, sizeof s->heredoc, "%s", shell_expand_one(s, from, s->at));
}

static void read_operator(struct shell *s)
{
        const int words = s->command.count;
        const bool in_test =
                words > 0 && is(s->command.list[0], "[[") && !is(s->command.list[words - 1], "]]");
        const char first = *s->at;
        char by[3] = {first, s->at[1] == first && first != '(' && first != ')' ? first : 0, 0};
        if (in_test && first != '\n' && first != ';') {
                shell_append(s, &s->command, shell_copy(s, by, strlen(by)), s->line);
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
                s->at = shell_word_end(s, from);
                if (s->command.count == 0 && keyword(s, from, (size_t)(s->at - from)))
                        continue;
                const int before = s->command.count;
                shell_expand_words(s, &s->command, from, s->at);
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
                char *line = shell_copy(s, at, length);
                if (sscanf(line, "#SBATCH %63[^= \t]%*[= \t]%63[0-9]", option, value) != 2)
                        continue;
                for (size_t i = 0; i < sizeof known / sizeof *known; i++)
                        if (is(option, known[i].option) || is(option, known[i].letter))
                                shell_set_text(s, known[i].variable, value);
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
                const struct variable *v = shell_find(s, told[i], strlen(told[i]));
                if (v && v->values.count && v->values.list[0][0] &&
                    !v->values.list[0][strspn(v->values.list[0], "0123456789")])
                        rc = launch_add_item(l, told[i], v->values.list[0], v->values.lines[0], err);
        }
        return rc;
}

/* Reads the whole text. Returns false when something of it does not fit. */
static bool read_all(struct shell *s, const char *text)
{
        if (setjmp(s->over))
                return false;
        s->at = text;
        s->line = 1;
        s->active = s->status = true;
        s->command = shell_new_words(s, WORDS);
        s->best = shell_new_words(s, 1);
        s->plain = shell_new_words(s, WORDS);
        read_sbatch(s, text);
        run(s);
        return true;
}

int launch_read_shell(struct launch *l, const char *text, struct rv_error_info *err)
{
        struct shell *s = calloc(1, sizeof *s);
        int rc;
        if (s)
                s->arena = malloc(ARENA);
        if (!s || !s->arena)
                rc = rv_fail(err, RV_ESYSTEM, "no memory to read %s", l->path);
        else if (!read_all(s, text))
                rc = rv_fail(err, RV_EINPUT,
                             "%s: its variables become too long, too many or too deep to be a launch "
                             "script's",
                             l->path);
        else
                rc = make_items(l, s, err);
        if (s)
                free(s->arena);
        free(s);
        return rc;
}
