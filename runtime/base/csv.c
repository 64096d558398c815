#include "runtime/base/csv.h"

#include <stdbool.h>

int csv_split(char *line, char **cells, int max)
{
        char *from = line;
        int count = 0;
        for (bool more = true; more; count++) {
                if (count == max)
                        return -1;
                char *to = from;
                cells[count] = from;
                bool quoted = *from == '"';
                from += quoted;
                while (*from && (quoted || *from != ',')) {
                        if (quoted && *from == '"' && *++from != '"') {
                                quoted = false;
                                continue;
                        }
                        *to++ = *from++;
                }
                if (quoted)
                        return -1;
                more = *from != 0;
                from += more;
                *to = 0;
        }
        return count;
}
