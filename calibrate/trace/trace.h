/* `ranvier calibrate --from-trace`: a profile from traces of a few training steps by PyTorch's profiler, of a
 * model that is known. docs/trace.md tells users how. */
#ifndef RANVIER_CALIBRATE_TRACE_TRACE_H
#define RANVIER_CALIBRATE_TRACE_TRACE_H

#include "models/gpt.h"
#include "runtime/base/error.h"

/* The most traces of one profile. */
enum { TRACE_FILES = 64 };

struct trace_request {
        const char *files[TRACE_FILES];
        int file_count;
        /* Of which model, and with what micro-batches. NULL: no profile is made. */
        const struct gpt *gpt;
        int micro_batch_size, seq_len;
        /* Seconds of a step while nothing profiles it; 0: not known. Of a GPU's trace. */
        double step_seconds;
        /* The profile; NULL: none is made. */
        const char *out;
        /* A profile against which the trace is held, kernel by kernel; NULL: none. */
        const char *against;
        /* A JSON of what was found; NULL: none is written. */
        const char *found;
        /* What was found is printed as JSON, and nothing else is. */
        bool json;
};

/* Reads the traces, prints what was found in them, and writes what was asked for. RV_EINPUT names the file
 * and what is wrong with it; RV_ENOTBUILT: the model's operators are not mapped. */
int trace_run(const struct trace_request *request, struct rv_error_info *err);

#endif
