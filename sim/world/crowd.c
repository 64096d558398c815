#include "sim/world/crowd.h"

#include <math.h>
#include <stdlib.h>

/* Seconds of its own that each gets in a second. */
static double rate(const struct crowd *crowd)
{
        double wanted = crowd->waiting * fmax(crowd->ranks - crowd->count, 0);
        for (int i = 0; i < crowd->count; i++)
                wanted += crowd->jobs[i].width;
        return wanted > crowd->processors ? crowd->processors / wanted : 1;
}

/* Takes from all what they computed since the crowd changed last. */
static void settle(struct crowd *crowd, double now)
{
        const double done = (now - crowd->since) * rate(crowd);
        for (int i = 0; i < crowd->count; i++)
                crowd->jobs[i].seconds -= done;
        crowd->since = now;
}

static void say_ends(const struct crowd *crowd)
{
        const double each = rate(crowd);
        for (int i = 0; i < crowd->count; i++)
                sim_lane_ends(crowd->jobs[i].lane, crowd->since + crowd->jobs[i].seconds / each);
}

void crowd_begin(struct crowd *crowd, struct sim_lane *lane, double width, double seconds)
{
        const double now = lane->rank->world->now;
        if (crowd->processors == 0) {
                sim_lane_ends(lane, now + seconds);
                return;
        }
        settle(crowd, now);
        if (crowd->count == crowd->capacity) {
                crowd->capacity = crowd->capacity ? 2 * crowd->capacity : 16;
                crowd->jobs = realloc(crowd->jobs, (size_t)crowd->capacity * sizeof *crowd->jobs);
                if (!crowd->jobs)
                        abort(); /* a physics cannot fail */
        }
        crowd->jobs[crowd->count++] = (struct crowd_job){lane, width, seconds};
        say_ends(crowd);
}

void crowd_end(struct crowd *crowd, const struct sim_lane *lane)
{
        int i = 0;
        while (i < crowd->count && crowd->jobs[i].lane != lane)
                i++;
        if (i == crowd->count)
                return;
        settle(crowd, lane->rank->world->now);
        crowd->jobs[i] = crowd->jobs[--crowd->count];
        say_ends(crowd);
}

void crowd_free(struct crowd *crowd)
{
        free(crowd->jobs);
        *crowd = (struct crowd){0};
}
