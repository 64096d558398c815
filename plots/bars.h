/* What the figures with one bar for each report share (memory.c, phases.c): the text under a bar. */
#ifndef RANVIER_PLOTS_BARS_H
#define RANVIER_PLOTS_BARS_H

#include "plots/figure.h"
#include "plots/run.h"

/* Sets the script's variable bar_<bar>, where `bar` counts from 1, to a text such as
 * "gpt-12b, pp 6 × dp 8|axonn, micro-batch 8, offload, simulated"; the script breaks the line at "|". */
void bars_name(struct figure *figure, const struct run *run, int bar);

#endif
