/* The state of a script that is read, and its words: what quotes, variables, arrays and sums make of them.
 * shell.c reads commands with them. */
#ifndef RANVIER_RUNTIME_LAUNCH_SHELL_H
#define RANVIER_RUNTIME_LAUNCH_SHELL_H

#include "runtime/launch/table.h"

#include <setjmp.h>

/* DEPTH: of expansions, sums and shells within each other. */
enum { ARENA = 1 << 23, FIELD = 16384, WORDS = 2048, VARIABLES = 1024, BLOCKS = 32, DEPTH = 64 };

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
        jmp_buf over; /* where reading goes on when something does not fit: shell_end */
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

/* Something does not fit: ends the reading of the script. Does not return. */
_Noreturn void shell_end(struct shell *);

/* Begins what may stand within itself, and ends the reading where that is too deep; its end is `nested--`. */
void shell_deeper(struct shell *);

/* Returns room that is freed with the shell. */
void *shell_room(struct shell *, size_t size);
char *shell_copy(struct shell *, const char *text, size_t length);

/* Lists of words: empty, with room for so many (WORDS at most); and one more, or a copy. */
struct words shell_new_words(struct shell *, int most);
void shell_append(struct shell *, struct words *to, char *word, int line);
struct words shell_copy_words(struct shell *, const struct words *from);

/* Variables: by name (NULL: it is not set), and setting one. */
struct variable *shell_find(struct shell *, const char *name, size_t length);
void shell_set(struct shell *, const char *name, size_t length, struct words values);
void shell_set_text(struct shell *, const char *name, const char *text);

/* Return what is behind a raw word, and the length of a name that a variable can have; 0: there is none. */
const char *shell_word_end(struct shell *, const char *at);
size_t shell_name_length(const char *at);

/* Return the text that a raw word becomes if it is not split; or append those that it becomes. */
char *shell_expand_one(struct shell *, const char *at, const char *end);
void shell_expand_words(struct shell *, struct words *to, const char *at, const char *end);

#endif
