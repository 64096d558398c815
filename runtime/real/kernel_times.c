#include "runtime/real/kernel_times.h"

#include "runtime/base/number.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[KERNEL_ROLES] = {
        [ROLE_NONE] = "",
        [ROLE_FORWARD] = "forward",
        [ROLE_INPUT_GRADIENT] = "input gradient",
        [ROLE_WEIGHT_GRADIENT] = "weight gradient",
        [ROLE_SCORES] = "attention",
        [ROLE_OUTPUT] = "output projection",
};

const char *kernel_role_name(enum kernel_role role)
{
        return role_names[role];
}

/* Whether a product is between the last LayerNorm's output and logits, by its shape. */
static bool is_output(const struct kernel_times *times, const struct kernel *kernel)
{
        const int64_t V = times->vocabulary, C = times->width;
        if (kernel->kind != KERNEL_MATMUL || V == 0)
                return false;
        if (kernel->part == PART_WEIGHT)
                return kernel->m == V && kernel->n == C;
        return kernel->part == PART_INPUT ? kernel->k == V && kernel->n == C
                                          : kernel->n == V && kernel->k == C;
}

static enum kernel_role role_of(const struct kernel_times *times, const struct kernel *kernel)
{
        if (kernel_descriptor(kernel->kind)->products != 1)
                return ROLE_NONE;
        if (kernel->batch > 1)
                return ROLE_SCORES;
        if (is_output(times, kernel))
                return ROLE_OUTPUT;
        if (kernel->part == PART_WEIGHT)
                return ROLE_WEIGHT_GRADIENT;
        return kernel->part == PART_INPUT ? ROLE_INPUT_GRADIENT : ROLE_FORWARD;
}

void kernel_times_init(struct kernel_times *times, const struct gpt *gpt, int shards)
{
        const struct stage stage = partition_stage(gpt, 1, 0), shard = partition_shard(&stage, shards, 0);
        const int64_t V = partition_vocabulary(gpt, &shard), C = gpt->n_embd;
        memset(times, 0, sizeof *times);
        times->width = C;
        times->vocabulary = V;
        for (int wide = 1; wide <= 4; wide++)
                if (V == wide * C || V == wide * C / shards)
                        times->vocabulary = 0;
}

void kernel_times_note(void *context, const struct kernel *kernel, double seconds, double end)
{
        (void)end;
        struct kernel_times *times = context;
        const enum kernel_role role = role_of(times, kernel);
        struct kernel_row *row = &times->now[(int)kernel->kind * KERNEL_ROLES + (int)role];
        const double flops = kernel_flops(kernel), bytes = kernel_bytes(kernel);
        row->kind = (int)kernel->kind;
        row->role = (int)role;
        row->calls++;
        row->flops += flops;
        row->bytes += bytes;
        row->roof_seconds +=
                fmax(flops / times->rates.flops_per_second, bytes / times->rates.bytes_per_second);
        row->seconds += seconds;
}

void kernel_times_begin(struct kernel_times *times, struct device *device)
{
        memset(times->now, 0, sizeof times->now);
        device->recorder = kernel_times_note;
        device->recorder_context = times;
}

void kernel_times_end(struct kernel_times *times, struct device *device, double batch_seconds)
{
        device->recorder = NULL;
        const int64_t place = times->batches++ % KERNEL_BATCHES;
        for (int i = 0; i < KERNEL_ROWS; i++)
                times->seconds[i][place] = times->now[i].seconds;
        times->batch_seconds[place] = batch_seconds;
}

static int longest_first(const void *a, const void *b)
{
        const double x = ((const struct kernel_row *)a)->seconds, y = ((const struct kernel_row *)b)->seconds;
        return (x < y) - (x > y);
}

void kernel_times_summary(struct kernel_times *times, struct kernel_summary *summary)
{
        const int batches = times->batches < KERNEL_BATCHES ? (int)times->batches : KERNEL_BATCHES;
        assert(batches > 0);
        memset(summary, 0, sizeof *summary);
        summary->rates = times->rates;
        summary->batches = batches;
        summary->batch_seconds = quantile(times->batch_seconds, batches, 0.5);
        for (int i = 0; i < KERNEL_ROWS; i++) {
                if (times->now[i].calls == 0)
                        continue;
                struct kernel_row *row = &summary->row[summary->rows++];
                *row = times->now[i];
                row->seconds = quantile(times->seconds[i], batches, 0.5);
        }
        qsort(summary->row, (size_t)summary->rows, sizeof *summary->row, longest_first);
}

static double in_kernels(const struct kernel_summary *summary)
{
        double seconds = 0;
        for (int i = 0; i < summary->rows; i++)
                seconds += summary->row[i].seconds;
        return seconds;
}

static void row_name(char *name, size_t size, const struct kernel_row *row)
{
        snprintf(name, size, "%s%s%s", kernel_name((enum kernel_kind)row->kind), row->role ? ", " : "",
                 role_names[row->role]);
}

static void print_row(const struct kernel_row *row, double batch_seconds, FILE *out)
{
        char name[80], seconds[NUMBER_TEXT];
        row_name(name, sizeof name, row);
        fprintf(out, "  %-39s %6lld %12s %6.1f %% %8.1f %8.1f %6.0f %%\n", name, (long long)row->calls,
                number_seconds(seconds, row->seconds), 100 * row->seconds / batch_seconds,
                row->flops / row->seconds / 1e9, row->bytes / row->seconds / 1e9,
                100 * row->roof_seconds / row->seconds);
}

void kernel_summary_print(const struct kernel_summary *ranks, int count, FILE *out)
{
        int slowest = 0;
        for (int rank = 1; rank < count; rank++)
                if (in_kernels(&ranks[rank]) > in_kernels(&ranks[slowest]))
                        slowest = rank;
        const struct kernel_summary *s = &ranks[slowest];
        const double kernels = in_kernels(s);
        double roof = 0;
        char seconds[NUMBER_TEXT];
        fprintf(out,
                "\nkernels of a batch on rank %d, medians of %d; roofline: products %.1f Gflop/s, memory "
                "%.1f "
                "GB/s,\nmeasured on %s before the training\n",
                slowest, s->batches, s->rates.flops_per_second / 1e9, s->rates.bytes_per_second / 1e9,
                count > 1 ? "all ranks at once" : "the same threads");
        fprintf(out, "  %-39s %6s %12s %8s %8s %8s %8s\n", "kernel", "calls", "time", "of batch", "Gflop/s",
                "GB/s", "of roof");
        for (int i = 0; i < s->rows; i++) {
                print_row(&s->row[i], s->batch_seconds, out);
                roof += s->row[i].roof_seconds;
        }
        fprintf(out, "  %-39s %6s %12s %6.1f %% %8s %8s %6.0f %%\n", "all kernels", "",
                number_seconds(seconds, kernels), 100 * kernels / s->batch_seconds, "", "",
                100 * roof / kernels);
        fprintf(out, "  %-39s %6s %12s %6.1f %%\n", "between kernels", "",
                number_seconds(seconds, s->batch_seconds - kernels), 100 * (1 - kernels / s->batch_seconds));
}

static json_t *rows_json(const struct kernel_summary *summary)
{
        json_t *rows = json_array();
        for (int i = 0; i < summary->rows; i++) {
                const struct kernel_row *row = &summary->row[i];
                json_array_append_new(rows, json_pack("{s:s, s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "kernel",
                                                      kernel_name((enum kernel_kind)row->kind), "role",
                                                      role_names[row->role], "calls", (json_int_t)row->calls,
                                                      "seconds", row->seconds, "percent_of_batch",
                                                      100 * row->seconds / summary->batch_seconds,
                                                      "flops_per_second", row->flops / row->seconds,
                                                      "bytes_per_second", row->bytes / row->seconds,
                                                      "percent_of_roofline",
                                                      100 * row->roof_seconds / row->seconds));
        }
        return rows;
}

json_t *kernel_summary_json(const struct kernel_summary *ranks, int count)
{
        json_t *list = json_array();
        for (int rank = 0; rank < count; rank++)
                json_array_append_new(list, json_pack("{s:i, s:i, s:f, s:f, s:{s:f, s:f}, s:o}", "rank", rank,
                                                      "batches", ranks[rank].batches, "batch_seconds",
                                                      ranks[rank].batch_seconds, "seconds",
                                                      in_kernels(&ranks[rank]), "roofline",
                                                      "flops_per_second", ranks[rank].rates.flops_per_second,
                                                      "bytes_per_second", ranks[rank].rates.bytes_per_second,
                                                      "kernels", rows_json(&ranks[rank])));
        return list;
}
