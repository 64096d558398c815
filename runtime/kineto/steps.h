/* What the steps of a trace are made of: of each step (the annotation ProfilerStep#, which the profiler's
 * step() makes) its operators one after the other, without those that others consist of, and with what each
 * took on the GPU. */
#ifndef RANVIER_RUNTIME_KINETO_STEPS_H
#define RANVIER_RUNTIME_KINETO_STEPS_H

#include "runtime/kineto/operators.h"

/* An operator of the table (operators.h), or one that is not in it and consists of no others; or the calls of
 * the optimizer as one. */
struct step_operator {
        const struct operator_row *row;
        int event; /* of the trace */
        /* The function of autograd that it is run for, in a backward; -1: it is of no backward. */
        int backward;
        double start, end; /* of the host, microseconds */
        double gpu;        /* microseconds that the GPU's kernels and copies take which it launches */
};

struct trace_step {
        double start, end; /* microseconds */
        int first, count;  /* of steps.operators, by time */
};

/* Zeros are none; steps_free frees what it owns. */
struct traced_steps {
        const struct kineto *trace;
        /* [trace->count]: the event of the same thread around each event; -1: there is none. */
        int *parent;
        /* [trace->count]: the function of autograd that it is run for, in a backward, or is itself; -1. */
        int *backward;
        struct step_operator *operators;
        int operator_count;
        struct trace_step *steps;
        int count;
        /* What no step has: kernels and copies of GPUs, and microseconds of them, whose launches are in no
         * operator of a step. */
        int lost;
        double lost_time;
        /* When calls of the runtime within steps wait for the GPU. */
        struct trace_wait {
                double start, end; /* microseconds */
        } * waits;
        int wait_count;
};

/* Finds the steps. `trace` must live as long. RV_EINPUT: it has none, which a sentence says of the file
 * `path`; steps_free is called after that too. */
int steps_find(struct traced_steps *steps, const struct kineto *trace, const char *path,
               struct rv_error_info *err);
void steps_free(struct traced_steps *steps);

/* Says which of [count] steps are to be taken: not those over a twentieth longer than the quarter that took
 * least, beside which something else was running. Of less than four all are. Returns how many are not. */
int steps_steady(const double *seconds, int count, bool *taken);

/* The seconds that an operator counts as: of the GPU, if the trace has one, else of the host. */
double step_seconds(const struct traced_steps *steps, const struct step_operator *of);

/* Returns how many of the microseconds from `start` to `end` the host waits for the GPU. */
double steps_waits(const struct traced_steps *steps, double start, double end);

#endif
