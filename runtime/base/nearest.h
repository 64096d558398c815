/* Which known word somebody may have meant who wrote an unknown one. */
#ifndef RANVIER_RUNTIME_BASE_NEAREST_H
#define RANVIER_RUNTIME_BASE_NEAREST_H

#include <stdbool.h>

/* The candidates so far. Starts as {.word = the unknown word}. */
struct nearest {
        const char *word;
        const char *known; /* the nearest one offered; NULL: none is near */
        int cost, edits;   /* of `known` */
};

/* Offers a known word. It is near if `word` begins it or, of three letters or more, is a part of it, or if at
 * most half of the letters of `word` have to be inserted, deleted, replaced or exchanged with their
 * neighbours. A word that `word` begins is nearest of all, one that it is a part of counts as one letter off;
 * of equals the one with fewer letters to change comes first. Case, and whether words are joined by "-", "_"
 * or " ", does not count. Words of more than 64 letters are never near. Keeps the pointer `known`. */
void nearest_offer(struct nearest *nearest, const char *known);

/* Whether the unknown word is so near to `known` that it is rather that one misspelt than another word: two
 * letters off at most, or its beginning. */
bool nearest_is_misspelt(const struct nearest *nearest);

#endif
