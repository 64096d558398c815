/* The words of tables that others published, and what they stand for here: sim/tables/glossary.json. It says
 * which preset a model's name means, which profile and platform a GPU's, how a framework trains, and what of
 * a plan the texts of the columns zero, recompute and precision say. table.c asks it for rows of such tables.
 */
#ifndef RANVIER_SIM_EVIDENCE_GLOSSARY_H
#define RANVIER_SIM_EVIDENCE_GLOSSARY_H

#include "sim/evidence/table.h"

#include <jansson.h>

struct glossary {
        /* NULL: it was not read yet. */
        json_t *document;
};

/* Reads the glossary that comes with the program. RV_EINPUT if it is not there or is none. The caller calls
 * glossary_close; after an error too there is nothing to close. */
int glossary_open(struct glossary *glossary, struct rv_error_info *err);
void glossary_close(struct glossary *glossary);

/* Turns the words of a row into a plan on a machine: fills preset, profile, platform, gpu_name, framework,
 * schedule, plan and unit, and what of the model is not the preset's. What is not known or not built here,
 * and what contradicts itself, becomes row->reason. `common`: the member of the glossary that has what all
 * rows of the table have in common and none says; NULL: there is none. */
void glossary_translate(const struct glossary *glossary, const char *common, struct table_row *row);

#endif
