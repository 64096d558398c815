/* What `ranvier doctor` finds: one row a thing that this machine has or lacks. */
#ifndef RANVIER_RUNTIME_DOCTOR_FINDING_H
#define RANVIER_RUNTIME_DOCTOR_FINDING_H

#include <jansson.h>
#include <stdbool.h>

struct finding {
        const char *name; /* "training" */
        bool has;         /* it is here, and works */
        bool needed;      /* without it the machine neither trains on its CPU nor predicts: status 1 */
        char says[640];   /* what was found, or what is wrong, in words */
        const char *use;  /* what it is for: "for figures" */
        char install[96]; /* where it is missing: what to install, a Debian package's name; "" is unknown */
};

enum { FINDINGS = 16 };
struct findings {
        struct finding rows[FINDINGS];
        int count;
        json_t *machine; /* "processor", "processors", "memory_bytes", "gpus": [{"name", "memory_bytes"}] */
};

/* Adds a row, whose words are formatted as printf does it, and returns it. */
struct finding *finding_add(struct findings *, const char *name, const char *use, bool has,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Writes into row->install the package of the library that the text of a loader's error names. */
void finding_install_library(struct finding *row, const char *text);

#endif
