/* What the figures with one bar for each report share (memory.c, phases.c): the text beside a bar. */
#ifndef RANVIER_PLOTS_BARS_H
#define RANVIER_PLOTS_BARS_H

#include "plots/figure.h"
#include "plots/run.h"

/* Sets the script's variables for the three lines beside bar number `bar`, which counts from 1: bar_<bar>,
 * such as "gpt-12b, pp 6 × dp 8", how_<bar>, "axonn, micro-batch 8", and saving_<bar>, "full recomputation,
 * offload, simulated". bars.gp writes them. */
void bars_name(struct figure *figure, const struct run *run, int bar);

#endif
