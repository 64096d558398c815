/* Finds the known word that somebody probably meant who wrote an unknown one, such as an option, a command or
 * a member of a JSON file; error messages name it. The caller starts a struct nearest with the unknown word,
 * offers every known word to it, and then looks at `known`. */
#ifndef RANVIER_RUNTIME_BASE_NEAREST_H
#define RANVIER_RUNTIME_BASE_NEAREST_H

#include <stdbool.h>

/* The search so far. Begins as {.word = the unknown word}. */
struct nearest {
        const char *word;
        const char *known; /* the nearest known word offered so far; NULL: none was near */
        /* Of `known`: its rank, by which offers are compared (less is nearer), and its edit distance. */
        int cost, edits;
};

/* Offers a known word, which replaces nearest->known if it is near and nearer than that. The pointer is kept,
 * not the text.
 *
 * A known word is near if it begins with `word`; or if it contains `word`, which has three letters or more;
 * or if at most half as many letters as `word` has must be inserted, deleted, replaced or exchanged with
 * their neighbours. A known word that begins with `word` is nearest of all, and one that contains it counts
 * as one letter off. Of two equals, the one with fewer letters to change wins. Case does not count, nor
 * whether words are joined by "-", "_" or " ". Words of more than 64 letters are never near. */
void nearest_offer(struct nearest *nearest, const char *known);

/* Returns whether the unknown word is so near to `known` that it is probably that one misspelt, and not
 * another word: it differs by two letters at most, or `known` begins with it. */
bool nearest_is_misspelt(const struct nearest *nearest);

/* Returns whether `known` is likely enough to be meant to be proposed: it begins with the unknown word, or a
 * third of the word's letters at most are to be changed. */
bool nearest_is_likely(const struct nearest *nearest);

#endif
