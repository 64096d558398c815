/* Figures of one bar a report. */
#ifndef RANVIER_PLOTS_BARS_H
#define RANVIER_PLOTS_BARS_H

#include "plots/figure.h"
#include "plots/run.h"

/* Sets bar_<bar>: "gpt-12b, pp 6 × dp 8|axonn, micro-batch 8, offload, simulated". */
void bars_name(struct figure *figure, const struct run *run, int bar);

#endif
