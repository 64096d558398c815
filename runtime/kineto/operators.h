/* What PyTorch's operators do, in our words: ONE table of names. A row says of what class an operator is,
 * which kernel of ours (models/kernels/kernel.h) does that work, and of a product which of its inputs are the
 * two matrices; from their extents follows the shape of our kernel. */
#ifndef RANVIER_RUNTIME_KINETO_OPERATORS_H
#define RANVIER_RUNTIME_KINETO_OPERATORS_H

#include "runtime/kineto/kineto.h"
#include "models/workload.h"

enum operator_class {
        OPERATOR_PRODUCT,     /* a matrix product, or a batch of them */
        OPERATOR_ATTENTION,   /* attention as one operator, forward or backward */
        OPERATOR_SOFTMAX,     /* of scores */
        OPERATOR_NORM,        /* LayerNorm, RMSNorm */
        OPERATOR_ACTIVATION,  /* GELU, SiLU, ... */
        OPERATOR_EMBEDDING,   /* rows of a table */
        OPERATOR_LOSS,        /* log-softmax and what follows it */
        OPERATOR_DROPOUT,     /* and its masks */
        OPERATOR_ELEMENTWISE, /* sums, products, functions of elements */
        OPERATOR_COPY,        /* copies, casts, concatenations */
        OPERATOR_REDUCTION,   /* sums and means over axes */
        OPERATOR_FILL,        /* zeros, ones, random numbers */
        OPERATOR_OPTIMIZER,   /* updates of parameters */
        OPERATOR_COLLECTIVE,  /* between GPUs */
        OPERATOR_FOREIGN,     /* what no kernel of ours does, such as convolutions */
        OPERATOR_HOST,        /* views, allocations, sizes: no work on elements */
        OPERATOR_UNKNOWN,     /* not in the table */
        OPERATOR_CLASSES
};

struct operator_row {
        const char *name; /* "aten::addmm"; with a star at its end: all names that begin so */
        enum operator_class class;
        int kernel;      /* enum kernel_kind of what does this work here; -1: part of others, or none */
        int left, right; /* of a product: which inputs are the matrices */
};

/* Returns the row of an operator; one of OPERATOR_UNKNOWN if it has none. It is static. */
const struct operator_row *operator_of(const char *name);
/* A class in the words of a table: "products", "attention", ... */
const char *operator_class_name(enum operator_class class);

/* Returns the class of operators that do what one of our kernels does. A product of many matrices is
 * attention's, as OPERATOR_ATTENTION. */
enum operator_class operator_class_of(enum kernel_kind kind, bool batched);

/* Returns the product that an operator of OPERATOR_PRODUCT is, as a kernel of one batch or several; batch 0:
 * the event has no shapes. `transpose` is not known and 0. */
struct kernel operator_product(const struct kineto *trace, const struct kineto_event *event);

#endif
