/* What `ranvier calibrate` is asked for: the plan family whose kernels are timed, and where the profile goes.
 */
#ifndef RANVIER_CALIBRATE_REQUEST_H
#define RANVIER_CALIBRATE_REQUEST_H

#include "models/workload.h"
#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"

enum { REQUEST_MODELS = 16 };

struct request {
        const char *out;
        const char *models; /* as written, "a,b,c" */
        struct gpt gpts[REQUEST_MODELS];
        int gpt_count;
        struct int_list micro_batch_sizes;
        struct int_list seq_lens; /* none: each model's n_positions */
        struct int_list stages;   /* pipeline stages (--pp); none given: 1 and 2 */
        struct int_list shards;   /* of each stage (--tp); never none */
        bool sequence_parallel;   /* of several shards */
        const char *device;       /* "cpu" or "cuda" */
        bool precisions[DTYPES];  /* fp32, mixed (fp16), bf16 */
        bool fused;               /* the fused kernels instead of those that they replace */
        bool offload;             /* the offloaded optimizer phase too */
        int64_t bucket_parameters;
        double host_link_bytes_per_second; /* that copies are paced to; 0: they are not */
        int threads;
        const char *cpu_kernels; /* a variant's name; NULL: the fastest that the processor runs */
        int ranks;
        int local_rank,
                local_ranks; /* this process among the ranks of its machine; 0 of 1 before there are ranks */
        bool quick;
};

/* Whether what computes is not the processor that launches it. */
bool request_gpu(const struct request *request);

/* Parses the command line (see command_line_parse: `quiet` on every rank but the first) and checks it against
 * the `ranks` that were started; 0: they are yet to be. Returns 0, COMMAND_LINE_DONE, or an error that is the
 * same on all ranks. */
int request_parse(struct request *request, int argc, char **argv, int ranks, bool quiet,
                  struct rv_error_info *err);

/* Whether the profile can be written, and does not replace a model that is read. */
int request_check_out(const struct request *request, struct rv_error_info *err);

#endif
