#include "sim/world/kinds.h"

#include <string.h>

enum { PASSES = 2, BATCHED = 2 };

struct total {
        int64_t number;
        double seconds, flops;
};

/* What one stage does. */
struct totals {
        struct total of[PASSES][KERNEL_KINDS][BATCHED];
};

static void add_kernel(void *context, enum op_kind of, const struct price *price)
{
        struct totals *totals = context;
        const struct kernel *kernel = &price->kernel;
        struct total *total = &totals->of[of == OP_BACKWARD][kernel->kind]
                                         [kernel->kind == KERNEL_MATMUL && kernel->batch > 1];
        total->number++;
        total->seconds += price->seconds;
        total->flops += kernel_flops(kernel);
}

static json_t *total_json(const struct total *total, enum kernel_kind kind, bool batched, int pass,
                          int64_t micro_batches)
{
        const double times = (double)micro_batches;
        return json_pack("{s:s, s:b, s:s, s:I, s:f, s:f}", "kernel", kernel_name(kind), "batched", batched,
                         "pass", op_name(pass ? OP_BACKWARD : OP_FORWARD), "number",
                         (json_int_t)(total->number * micro_batches), "seconds", times * total->seconds,
                         "flops", times * total->flops);
}

static json_t *stage_json(const struct totals *totals, int64_t micro_batches)
{
        json_t *list = json_array();
        for (int pass = 0; pass < PASSES; pass++)
                for (int kind = 0; kind < KERNEL_KINDS; kind++)
                        for (int batched = 0; batched < BATCHED; batched++) {
                                const struct total *total = &totals->of[pass][kind][batched];
                                if (total->number)
                                        json_array_append_new(list, total_json(total, (enum kernel_kind)kind,
                                                                               batched, pass, micro_batches));
                        }
        return list;
}

json_t *kinds_json(const struct costs *costs, struct rv_error_info *err)
{
        json_t *stages = json_array(), *last = NULL;
        const struct plan plan = options_plan(costs->options, false);
        struct totals before = {0};
        for (int stage = 0; stage < costs->options->pp; stage++) {
                struct totals totals = {0};
                if (price_each(&costs->prices, costs->options, stage, add_kernel, &totals, err)) {
                        json_decref(stages);
                        return NULL;
                }
                if (!last || memcmp(&before, &totals, sizeof totals) != 0) {
                        last = json_pack("{s:i, s:o}", "first", stage, "kernels",
                                         stage_json(&totals, plan.micro_batches));
                        json_array_append_new(stages, last);
                }
                json_object_set_new(last, "last", json_integer(stage));
                before = totals;
        }
        return stages;
}
