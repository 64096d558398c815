#include "runtime/base/nearest.h"

#include "runtime/base/minmax.h"

#include <ctype.h>
#include <string.h>

enum { MAX_LETTERS = 64, SHORTEST_PART = 3, MISSPELT = 2 };

static char plain(char letter)
{
        return letter == '_' || letter == ' ' ? '-' : (char)tolower((unsigned char)letter);
}

/* Letters to insert, delete or replace, or pairs of neighbours to exchange, to turn one word into the other.
 */
static int edit_distance(const char *from, const char *to)
{
        int rows[3][MAX_LETTERS + 1], length = (int)strlen(to), i;
        char plain_to[MAX_LETTERS + 1];
        for (int j = 0; j <= length; j++) {
                rows[0][j] = j;
                plain_to[j] = plain(to[j]);
        }
        for (i = 1; from[i - 1]; i++) {
                int *row = rows[i % 3], *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
                const char a = plain(from[i - 1]), a_before = i > 1 ? plain(from[i - 2]) : 0;
                row[0] = i;
                for (int j = 1; j <= length; j++) {
                        const char b = plain_to[j - 1];
                        row[j] = min_int(above[j - 1] + (a != b), min_int(above[j], row[j - 1]) + 1);
                        if (i > 1 && j > 1 && a == plain_to[j - 2] && b == a_before)
                                row[j] = min_int(row[j], before[j - 2] + 1);
                }
        }
        return rows[(i - 1) % 3][length];
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
        const size_t length = strlen(nearest->word), other = strlen(known);
        if (length == 0 || length > MAX_LETTERS || other > MAX_LETTERS)
                return;
        const int at = find_word(nearest->word, known);
        if (at < 0 && 2 * (other > length ? other - length : length - other) > length)
                return; /* each letter more or less is an edit */
        const int edits = edit_distance(nearest->word, known);
        const int cost = at == 0 ? 0 : at > 0 && length >= SHORTEST_PART ? 1 : edits;
        if (2 * (size_t)cost > length)
                return;
        if (!nearest->known || cost < nearest->cost || (cost == nearest->cost && edits < nearest->edits)) {
                nearest->known = known;
                nearest->cost = cost;
                nearest->edits = edits;
        }
}

bool nearest_is_likely(const struct nearest *nearest)
{
        return nearest->known && (nearest->cost == 0 || 3 * (size_t)nearest->edits <= strlen(nearest->word));
}

bool nearest_is_misspelt(const struct nearest *nearest)
{
        return nearest->known && strcmp(nearest->word, nearest->known) != 0 &&
               (nearest->cost == 0 || nearest->edits <= MISSPELT);
}
