/* The tables of a profile: surfaces (surface.h) by the kind and format of the kernels that they price. */
#ifndef RANVIER_CALIBRATE_PROFILE_TABLES_H
#define RANVIER_CALIBRATE_PROFILE_TABLES_H

#include "calibrate/profile/surface.h"
#include "runtime/base/memo.h"

/* A table prices its kind and those that do the same work with something behind it: KERNEL_MATMUL all plain
 * products, KERNEL_GROUPED_MATMUL both of experts, KERNEL_ATTENTION forward and backward. */
struct profile_table {
        enum kernel_kind kind;
        enum dtype dtype;
        enum product_format format;
        struct surface surface;
};

/* Begins as zeros: no tables. tables_free frees what it owns. */
struct profile_tables {
        struct profile_table *tables;
        int count;
        /* Kernels are priced as in the short loops that measured them, not as in a training run. */
        bool short_loops;
        /* The part of the peak's rate that kernels of a training run reach at most, where a table has no
         * training shapes; 0: no less than in short loops. */
        double sustained;
        /* What was asked before: seconds and error. */
        struct memo *asked;
};

void tables_free(struct profile_tables *tables);

/* Adds a table, whose surface the tables then own. Returns false if there is no memory. */
bool tables_add(struct profile_tables *tables, const struct profile_table *table);

/* Returns the kind of table that prices a kind of kernel, and the form of its surface; -1: none does. */
int tables_kind(enum kernel_kind kind);
enum surface_form tables_form(enum kernel_kind kind);

/* Returns the table of exactly this kind (tables_kind) and format, or NULL. */
struct profile_table *tables_of(const struct profile_tables *tables, int kind, enum dtype dtype,
                                enum product_format format);

/* Returns the table that prices a kernel, or NULL. fp16's stands for bf16's where there is none of that, and
 * the other way around: tensor cores multiply both alike. */
const struct profile_table *tables_find(const struct profile_tables *tables, const struct kernel *kernel);

/* Prices a kernel: seconds, and their relative standard error. Returns false if no table does. What a kernel
 * moves beyond its product's operands (bias, residual) is added at the memory's rate. */
bool tables_price(const struct profile_tables *tables, const struct kernel *kernel, double *seconds,
                  double *error);

#endif
