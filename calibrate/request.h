/* What `ranvier calibrate` is asked for: the plan family whose kernels are timed, the device that runs them,
 * and where the profile goes. request_parse makes it from the command line and checks it; everything else in
 * calibrate reads it. */
#ifndef RANVIER_CALIBRATE_REQUEST_H
#define RANVIER_CALIBRATE_REQUEST_H

#include "calibrate/import.h"
#include "calibrate/trace/trace.h"
#include "models/workload.h"
#include "runtime/base/command_line.h"
#include "runtime/base/parse.h"
#include "runtime/device/device.h"

/* The most models of one request. */
enum { REQUEST_MODELS = 16 };

/* Its texts belong to the command line, or are static. */
struct request {
        /* The file that the profile is written to. */
        const char *out;
        /* The models as written, "a,b,c", and as read. */
        const char *models;
        struct gpt gpts[REQUEST_MODELS];
        int gpt_count;
        /* Sequences of a micro-batch. */
        struct int_list micro_batch_sizes;
        /* Tokens of a sequence; an empty list stands for each model's n_positions. */
        struct int_list seq_lens;
        /* Pipeline stages (--pp); an empty list stands for 1, and 2 if the model has two blocks. */
        struct int_list stages;
        /* Shards of each stage (--tp); the list is never empty. */
        struct int_list shards;
        /* Over how many ranks the experts of a layer are spread (--ep); the list is never empty. Of models
         * without experts it is passed over. */
        struct int_list expert_ranks;
        /* Over how many ranks each sequence is spread (--cp); the list is never empty. */
        struct int_list context_ranks;
        /* Stages of several shards also split the sequence. */
        bool sequence_parallel;
        const char *device; /* "cpu" or "cuda" */
        /* Which formats are measured: fp32, fp16 (mixed), bf16. */
        bool precisions[DTYPES];
        /* The fused kernels are measured, instead of those that they replace. */
        bool fused;
        /* The offloaded optimizer phase is measured too. */
        bool offload;
        /* Parameters of one optimizer update; offloaded, of three. */
        int64_t bucket_parameters;
        /* The rate that the CPU device's copies are paced to; 0: they are not. */
        double host_link_bytes_per_second;
        /* Threads of each rank's kernels; 0: not given on the command line. */
        int threads;
        /* The name of a variant of the CPU device's kernels; NULL: the fastest that the processor runs. */
        const char *cpu_kernels;
        int ranks;
        /* What --ranks says, which may be more than can compute at once; 0: it is not there. */
        int asked_ranks;
        /* This process among the ranks of its machine: 0 of 1 before there are ranks. */
        int local_rank, local_ranks;
        /* cuda: algorithms of products are timed against each other, and those that are known so far
         * (device_request.products). */
        bool time_products;
        enum attention_source attention;
        const char *products;
        /* The profile is printed as JSON, or of a trace what was found, and nothing else is. */
        bool json;
        /* Fewer repetitions. */
        bool quick;
        int seconds; /* that measuring may take, but for its least; 0: as it needs */
        /* Tables to make the profile of, instead of measuring; without any table it is not asked for. */
        struct import_request import;
        /* Traces of PyTorch to make it of; without any it is not asked for. */
        struct trace_request trace;
};

/* Whether something else computes than the processor that launches the kernels. */
bool request_gpu(const struct request *request);

/* Parses the command line, reads the models, and checks that every model can have every sequence length and
 * number of stages and shards. `ranks` is the number of ranks that were started; 0: they are yet to be, and
 * request->ranks becomes the number to start. `quiet` keeps all ranks but the first from printing
 * (command_line_parse). Returns 0, COMMAND_LINE_DONE where the command line asked for nothing but a text
 * such as the help, or an error, which is the same on all ranks. */
int request_parse(struct request *request, int argc, char **argv, int ranks, bool quiet,
                  struct rv_error_info *err);

/* Checks that the profile can be written, and would not replace a model that is read. Returns RV_OK or an
 * error with a sentence. */
int request_check_out(const struct request *request, struct rv_error_info *err);

#endif
