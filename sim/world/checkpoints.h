/* What checkpoints cost a training that keeps one so often, and how often it had better keep one: the price
 * of one is a prediction's (predict.h), the rest is arithmetic. */
#ifndef RANVIER_SIM_WORLD_CHECKPOINTS_H
#define RANVIER_SIM_WORLD_CHECKPOINTS_H

#include "sim/world/predict.h"

/* What is asked. */
struct checkpoints_asked {
        const char *text;    /* as given, for a command that asks the same; NULL: there are no checkpoints */
        int64_t steps;       /* every so many batches, */
        double seconds;      /* or so often; both 0: there are no checkpoints */
        double file_rate;    /* bytes a second that each node writes; 0: as known */
        double mtbf_seconds; /* mean time between failures of the whole training; 0: not given */
};

/* Parse --checkpoint-every and --mtbf into a struct checkpoints_asked (SETTING_OWN). */
int checkpoints_parse_every(void *asked, const char *option, const char *text, struct rv_error_info *err);
int checkpoints_parse_mtbf(void *asked, const char *option, const char *text, struct rv_error_info *err);

/* RV_EINPUT where the rate of files or the time between failures is given, and no checkpoints are. */
int checkpoints_check(const struct checkpoints_asked *asked, struct rv_error_info *err);

/* The answer. Shares are of the time that passes. */
struct checkpoints {
        struct checkpoint_costs one;
        double batch_seconds; /* without checkpoints */
        int64_t steps;        /* batches between two */
        double interval_seconds;
        double waits_seconds; /* on slow files: until the one before is written */
        double share;         /* what they cost */
        /* With a mean time M between failures. Young (1974): an interval of sqrt(2 C M), where a checkpoint
         * costs C; Daly (2006): its refinement. A failure loses what was done since the last checkpoint that
         * was complete: half an interval and the time that one is written in, on average. `lost` is all of
         * that with the interval that was asked for, `least` with Daly's. Starting anew is not in it. */
        double mtbf_seconds, young_seconds, daly_seconds, lost, least;
};

/* Works it out of a prediction for which predict_save was called, and that was run. */
struct checkpoints checkpoints_of(const struct prediction *p, const struct checkpoints_asked *asked);
/* Print it for people, two lines; and return it as JSON, the caller's to free. */
void checkpoints_print(const struct checkpoints *c);
json_t *checkpoints_json(const struct checkpoints *c);

#endif
