/* The command `ranvier plan`: one question, which plan is best for a model on a machine, and its answer.
 * plan.c has the command line and the order of the work, plan_print.c the answer as text and as JSON. */
#ifndef RANVIER_SIM_SEARCH_PLAN_H
#define RANVIER_SIM_SEARCH_PLAN_H

#include "runtime/launch/launch.h"
#include "sim/search/answer.h"
#include "sim/search/ask.h"

/* Runs the command. argv[0] is the name that help and errors show. Returns the exit status. */
int plan_main(int argc, char **argv);

/* What the search for an answer was. */
struct plan_search {
        /* Seconds that it took to weigh the plans, and by how many processes. */
        double seconds;
        int processes;
        /* It was interrupted. */
        bool stopped;
};

/* How many devices would do for the wanted days, by the best plan on paper for them. */
struct plan_enough {
        int gpus; /* 0: not found */
        double days;
        struct options options;
};

/* The best plan with fewer or more replicas, and so devices, for the same batch, on paper. */
enum { PLAN_SCALES = 5 };
struct plan_scale {
        int gpus;
        /* Of a batch; as much above the time on paper as the answer's was when simulated. */
        double seconds;
};

/* An answer, and what it is to. Everything that a member points to stays the caller's. */
struct plan_answer {
        const struct ask *ask;
        /* The command line. */
        const char *command;
        /* Sentences on what the question left open and was assumed; an array. */
        const json_t *assumed;
        /* 0: not asked for. */
        double days_wanted, price_per_gpu_hour;
        const struct space_groups *groups;
        const struct jobs *jobs;
        struct plan_search search;
        struct plan_enough enough;
        /* [scale_count], by number of devices; the best plan itself is one. */
        struct plan_scale scales[PLAN_SCALES];
        int scale_count;
        /* Of --from: the file, its own plan as it was simulated, or NULL, and why it was not, "". NULL: no
         * file. */
        const struct launch *file;
        const struct job *own;
        const char *own_failure;
        struct answer answer;
};

/* Prints the answer for a reader. answer.best is not NULL. */
void plan_print(const struct plan_answer *answer, FILE *out);

/* Returns the same as JSON, which the caller owns; NULL if there is no memory. */
json_t *plan_json(const struct plan_answer *answer);

#endif
