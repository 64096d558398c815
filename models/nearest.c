#include "models/nearest.h"

#include <ctype.h>
#include <string.h>

enum { MOST_LETTERS = 64, SHORTEST_PART = 3 };

static char plain(char letter)
{
        return letter == '_' || letter == ' ' ? '-' : (char)tolower((unsigned char)letter);
}

/* Levenshtein's distance: letters to insert, delete or replace to turn one word into the other. */
static int edit_distance(const char *from, const char *to)
{
        int row[MOST_LETTERS + 1], length = (int)strlen(to);
        for (int j = 0; j <= length; j++)
                row[j] = j;
        for (int i = 1; from[i - 1]; i++) {
                int diagonal = row[0];
                row[0] = i;
                for (int j = 1; j <= length; j++) {
                        int replace = diagonal + (plain(from[i - 1]) != plain(to[j - 1]));
                        int shorter = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
                        diagonal = row[j];
                        row[j] = replace < shorter ? replace : shorter;
                }
        }
        return row[length];
}

/* Where `word` stands in `known`; -1: nowhere. */
static int find_word(const char *word, const char *known)
{
        for (int at = 0; known[at]; at++) {
                size_t same = 0;
                while (word[same] && plain(word[same]) == plain(known[(size_t)at + same]))
                        same++;
                if (!word[same])
                        return at;
        }
        return -1;
}

void nearest_offer(struct nearest *nearest, const char *known)
{
        const size_t length = strlen(nearest->word);
        if (length == 0 || length > MOST_LETTERS || strlen(known) > MOST_LETTERS)
                return;
        const int edits = edit_distance(nearest->word, known);
        const int at = find_word(nearest->word, known);
        const int cost = at == 0 ? 0 : at > 0 && length >= SHORTEST_PART ? 1 : edits;
        if (2 * (size_t)cost > length)
                return;
        if (!nearest->known || cost < nearest->cost || (cost == nearest->cost && edits < nearest->edits)) {
                nearest->known = known;
                nearest->cost = cost;
                nearest->edits = edits;
        }
}
