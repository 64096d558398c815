#include "sim/world/checkpoints.h"

#include "runtime/base/number.h"
#include "runtime/base/parse.h"

#include <math.h>
#include <string.h>

int checkpoints_parse_every(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        struct checkpoints_asked *asked = at;
        asked->text = text;
        return parse_every(option, text, INT64_MAX, &asked->steps, &asked->seconds, err);
}

int checkpoints_parse_mtbf(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        return parse_seconds(option, text, &((struct checkpoints_asked *)at)->mtbf_seconds, err);
}

int checkpoints_check(const struct checkpoints_asked *asked, struct rv_error_info *err)
{
        if (asked->text || (asked->file_rate <= 0 && asked->mtbf_seconds <= 0))
                return RV_OK;
        return rv_fail(err, RV_EINPUT,
                       "%s needs --checkpoint-every: how often a checkpoint is kept, such as 10min",
                       asked->file_rate > 0 ? "--file-rate" : "--mtbf");
}

static double one_costs(const struct checkpoints *c)
{
        return c->one.exposed_seconds + c->one.slower_seconds;
}

/* Of the time, with so many seconds of training between two checkpoints. */
static double lost_with(const struct checkpoints *c, double training)
{
        const double costs = one_costs(c) + fmax(0, c->one.writing_seconds - training),
                     interval = training + costs;
        return fmin(1, costs / interval + (interval / 2 + c->one.writing_seconds) / c->mtbf_seconds);
}

/* J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006),
 * (37).
 */
static double daly(double cost, double mtbf)
{
        const double ratio = cost / (2 * mtbf);
        return ratio >= 1 ? mtbf : sqrt(2 * cost * mtbf) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost;
}

struct checkpoints checkpoints_of(const struct prediction *p, const struct checkpoints_asked *asked)
{
        double *batches = p->batch_seconds;
        struct checkpoints c = {.one = p->checkpoint,
                                .batch_seconds = quantile(batches, p->batches, 0.5),
                                .mtbf_seconds = asked->mtbf_seconds};
        c.steps = asked->steps > 0 ? asked->steps : (int64_t)fmax(1, ceil(asked->seconds / c.batch_seconds));
        const double training = (double)c.steps * c.batch_seconds;
        c.waits_seconds = fmax(0, c.one.writing_seconds - training);
        c.interval_seconds = training + one_costs(&c) + c.waits_seconds;
        c.share = 1 - training / c.interval_seconds;
        if (c.mtbf_seconds > 0) {
                c.young_seconds = sqrt(2 * one_costs(&c) * c.mtbf_seconds);
                c.daly_seconds = fmax(daly(one_costs(&c), c.mtbf_seconds), c.one.writing_seconds);
                c.lost = lost_with(&c, training);
                c.least = lost_with(&c, c.daly_seconds);
        }
        return c;
}

enum { TIME_TEXT = 32 };

/* Of a time that may be hours. */
static char *time_text(char text[TIME_TEXT], double seconds)
{
        char small[NUMBER_TEXT];
        if (seconds >= 2 * 3600)
                snprintf(text, TIME_TEXT, "%.1f h", seconds / 3600);
        else if (seconds >= 120)
                snprintf(text, TIME_TEXT, "%.1f min", seconds / 60);
        else
                snprintf(text, TIME_TEXT, "%s", number_seconds(small, seconds));
        return text;
}

void checkpoints_print(const struct checkpoints *c)
{
        char interval[TIME_TEXT], other[TIME_TEXT], all[NUMBER_TEXT], rank[NUMBER_TEXT], exposed[NUMBER_TEXT],
                slower[NUMBER_TEXT], writing[NUMBER_TEXT], waits[NUMBER_TEXT + 64] = "";
        if (c->waits_seconds > 0) {
                number_seconds(other, c->waits_seconds);
                snprintf(waits, sizeof waits, "; each waits %s until the one before is written", other);
        }
        printf("checkpoints every %lld batch%s, %s: %.2f %% of the time. %s each, %s of a rank: training "
               "waits "
               "%s for the copy and is %s longer beside %s of writing%s\n",
               (long long)c->steps, c->steps == 1 ? "" : "es", time_text(interval, c->interval_seconds),
               100 * c->share, number_bytes(all, (double)c->one.bytes),
               number_bytes(rank, (double)c->one.rank_bytes), number_seconds(exposed, c->one.exposed_seconds),
               number_seconds(slower, c->one.slower_seconds), number_seconds(writing, c->one.writing_seconds),
               waits);
        if (c->mtbf_seconds <= 0)
                return;
        printf("failures    every %s on average: checkpoints and what failures undo take %.2f %% of the "
               "time;",
               time_text(other, c->mtbf_seconds), 100 * c->lost);
        printf(" with one every %s (Daly; %s by Young) %.2f %%, without starting anew\n",
               time_text(interval, c->daly_seconds), time_text(other, c->young_seconds), 100 * c->least);
}

json_t *checkpoints_json(const struct checkpoints *c)
{
        json_t *json = json_pack(
                "{s:I, s:f, s:f, s:I, s:I, s:f, s:f, s:f, s:f}", "every_batches", (json_int_t)c->steps,
                "interval_seconds", c->interval_seconds, "share_of_time", c->share, "bytes",
                (json_int_t)c->one.bytes, "bytes_of_a_rank", (json_int_t)c->one.rank_bytes, "exposed_seconds",
                c->one.exposed_seconds, "slower_seconds", c->one.slower_seconds, "writing_seconds",
                c->one.writing_seconds, "waits_seconds", c->waits_seconds);
        if (c->mtbf_seconds > 0)
                json_object_set_new(json, "failures",
                                    json_pack("{s:f, s:f, s:f, s:f, s:f}", "mean_seconds_between",
                                              c->mtbf_seconds, "young_seconds", c->young_seconds,
                                              "daly_seconds", c->daly_seconds, "share_lost", c->lost,
                                              "least_share_lost", c->least));
        return json;
}
