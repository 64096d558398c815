/* What happened when: one record for each operation, the same in real runs and in simulations. The engine
 * appends records while a batch runs, trace_write stores them in a file that browsers can show, and plots
 * and sim/world/replay.c read them back. */
#ifndef RANVIER_RUNTIME_ENGINE_TRACE_H
#define RANVIER_RUNTIME_ENGINE_TRACE_H

#include "runtime/base/error.h"
#include "runtime/sched/op.h"
#include "runtime/sched/plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* One operation. Members that struct op (op.h) has too mean what they mean there. */
struct trace_record {
        int rank, batch;
        enum op_kind kind, of;
        enum op_lane lane;
        int chunk, micro_batch, bucket, segment, range;
        int parts; /* of a backward in two parts op.parts, else 0 */
        enum op_group
                group; /* of an OP_TENSOR: one of shards, GROUP_EXPERTS or GROUP_CONTEXT; else GROUP_TENSOR */
        bool beside;   /* an OP_TENSOR that runs beside the part behind it */
        int64_t bytes;
        /* In seconds of the world's clock: when it was issued, when its lane came to it, and when the engine
         * heard of its end. */
        double issued, start, end;
        uint64_t order; /* its number among the operations that its rank issued */
};

/* The bytes in use on a rank from a moment on, of what comes and goes: on the device, and offloaded to the
 * host. */
struct trace_memory {
        int rank;
        double seconds;
        int64_t activations, messages, host_activations;
};

struct trace {
        struct trace_record *records;
        int64_t count, capacity;
        struct trace_memory *memory;
        int64_t memory_count, memory_capacity;
        /* Set by trace_read: the grid's sizes and order, from which its ranks follow, and the world in which
         * it was recorded. */
        struct plan layout;
        char world[16];
        /* And the object of all that its file says of itself: the members of struct trace_origin under their
         * names, as far as they were known. Else NULL. */
        json_t *about;
};

/* What a trace's file says of itself. */
struct trace_origin {
        const char *world; /* "real" or "simulated" */
        const struct plan *layout;
        /* For readers; each may be NULL. `model` and `machine` are names, `plan` is that of a report, and
         * `kernels` is what kernels of each stage take (sim/world/kinds.h). */
        const char *model, *machine;
        json_t *plan, *kernels;
};

/* Begins with no records; trace_free frees them, and leaves an empty trace. The two that add copy their
 * argument, and abort the program without memory. */
void trace_init(struct trace *trace);
void trace_free(struct trace *trace);
void trace_add(struct trace *trace, const struct trace_record *record);
void trace_add_memory(struct trace *trace, const struct trace_memory *memory);

/* The number of lane 0's thread in a file; the other lanes' follow. It is beyond the numbers of all
 * processes, also of a merged trace's (plots/merge.c). */
enum { TRACE_FIRST_THREAD = 10000000 };
/* The most ranks of a grid in a file that is read, as many as --gpus takes: readers have arrays of them, and
 * count them in an int. */
enum { TRACE_MAX_RANKS = 1 << 20 };

/* Writes Chrome trace JSON (chrome://tracing, Perfetto), whole or not at all: a process a rank, a thread a
 * lane, microseconds to the nanosecond, and counters of the memory in use. The args of an event hold kind,
 * micro_batch, bucket, bytes, batch, issued (seconds) and order; where they apply also chunk (of a later
 * chunk than a rank's first, its number), of (the kind of operation that it is a part of or belongs to),
 * segment (of a later part of a forward or backward, its number), range (of a later one of a backward, its
 * number), part (which one of a backward in two:
 * input or weights) and group ("experts": of a collective in a pass that those have who share experts). An
 * arrow (flow events) goes from each send to its receive, unless there would be more than
 * TRACE_MAX_ARROWS, or the clocks of two ranks differ so much that one would go back in time. One
 * event a line, written as it goes: a trace of millions of events needs little more memory than it has here.
 * Of the layout the grid's sizes and order are kept. Returns 0 or an error with a sentence. */
enum { TRACE_MAX_ARROWS = 100000 };
int trace_write(const struct trace *trace, const char *path, const struct trace_origin *origin,
                struct rv_error_info *err);

/* Reads the records that trace_write wrote, times to the nanosecond; memory is not read. It goes line by
 * line: a file that another program laid out anew is refused. `trace` is initialised by the call and, if it
 * fails, empty. Returns 0, or RV_EINPUT (RV_ESYSTEM without memory) with a sentence that names the line. */
int trace_read(struct trace *trace, const char *path, struct rv_error_info *err);

#endif
