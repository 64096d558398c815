/* What figures call a plan, from the object "plan" that reports and traces have. */
#ifndef RANVIER_PLOTS_PLAN_TEXT_H
#define RANVIER_PLOTS_PLAN_TEXT_H

#include <jansson.h>

enum { PLAN_TEXT = 160 };

/* Writes how the work is shared and ordered, beside the sizes of the grid, such as "interleaved, V 4, ZeRO-1,
 * cp 2". What an older file does not have is left out. Returns `text`. */
char *plan_text_schedule(char text[PLAN_TEXT], const json_t *plan);

/* Writes what is recomputed and offloaded to save memory, such as "full recomputation, offload"; "" if
 * nothing is. Returns `text`. */
char *plan_text_memory(char text[PLAN_TEXT], const json_t *plan);

#endif
