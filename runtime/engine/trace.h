/* What happened when: one record an operation, the same in both worlds. */
#ifndef RANVIER_RUNTIME_ENGINE_TRACE_H
#define RANVIER_RUNTIME_ENGINE_TRACE_H

#include "runtime/base/error.h"
#include "runtime/sched/op.h"
#include "runtime/sched/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct trace_record {
        int rank, batch;
        enum op_kind kind, of;
        enum op_lane lane;
        int chunk, micro_batch, bucket, segment;
        int parts; /* of a backward in two, op.parts; else 0 */
        int64_t bytes;
        double issued, start,
                end;    /* seconds; start: when its lane came to it; end: when the engine heard of it */
        uint64_t order; /* issue order on its rank */
};

/* Bytes in use on a rank from a moment on, of what comes and goes: on the device, and offloaded to the host.
 */
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
        struct plan layout; /* set by trace_read: the grid's sizes and order, of which its ranks follow, */
        char world[16];     /* and where it was recorded */
};

void trace_init(struct trace *trace);
void trace_free(struct trace *trace);
void trace_add(struct trace *trace, const struct trace_record *record);
void trace_add_memory(struct trace *trace, const struct trace_memory *memory);

/* Chrome trace JSON (chrome://tracing, Perfetto): a process a rank, a thread a lane, microseconds to the
 * nanosecond; args hold kind, micro_batch, bucket, bytes, batch, issued (seconds), order, of a staging copy
 * the kind of what it belongs to (of), of a later chunk than a rank's first its number (chunk), and of a
 * backward in two parts which one it is (part: input or weights). One event a line, written as it goes: a
 * trace of millions of events needs no more memory than it has here. `world`: "real" or "simulated"; of
 * `layout` the grid's sizes and order are kept. */
int trace_write(const struct trace *trace, const char *path, const char *world, const struct plan *layout,
                struct rv_error_info *err);

/* Reads back what trace_write wrote (line by line: a file that another program laid out anew is refused),
 * times to the nanosecond; `trace` is initialised by the call and, if it fails, empty. */
int trace_read(struct trace *trace, const char *path, struct rv_error_info *err);

#endif
