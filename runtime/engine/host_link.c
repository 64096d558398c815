#include "runtime/engine/host_link.h"

#include <math.h>

/* Seconds that all of a copy takes now. */
static double rate(const struct host_link *link, enum host_link_way way)
{
        return link->copies[host_link_back(way)].copying ? link->copies[way].both : link->copies[way].alone;
}

/* Seconds until the first of the copies under way ends, if none begins. */
static double first_end(const struct host_link *link)
{
        double first = INFINITY;
        for (int way = 0; way < 2; way++)
                if (link->copies[way].copying)
                        first = fmin(first, link->copies[way].left * rate(link, way));
        return first;
}

/* Both directions as far as they have come `elapsed` seconds later, in which none ends before the others do.
 */
static void advance(struct host_link *link, double elapsed)
{
        const double nothing = 1e-9; /* seconds: SimGrid's own precision */
        const double rates[] = {rate(link, 0), rate(link, 1)};
        for (int way = 0; way < 2; way++) {
                if (link->copies[way].copying)
                        link->copies[way].left -= elapsed / rates[way];
                link->copies[way].copying =
                        link->copies[way].copying && link->copies[way].left * rates[way] > nothing;
        }
        link->since += elapsed;
}

static void advance_to(struct host_link *link, double now)
{
        for (double first = first_end(link); link->since + first < now; first = first_end(link))
                advance(link, first);
        advance(link, now - link->since);
}

void host_link_begin(struct host_link *link, enum host_link_way way, double now, double alone, double both)
{
        advance_to(link, now);
        link->copies[way].copying = true;
        link->copies[way].left = 1;
        link->copies[way].alone = alone;
        link->copies[way].both = both;
}

double host_link_end(const struct host_link *link, enum host_link_way way)
{
        struct host_link later = *link;
        while (later.copies[way].copying)
                advance(&later, first_end(&later));
        return later.since;
}
