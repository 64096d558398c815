/* A file that is written once, from its beginning to its end, with a checksum (XXH3, 64 bits), and past the
 * page cache where the file system lets it: what checkpoints are written by (state.h), and what calibrate
 * times. */
#ifndef RANVIER_RUNTIME_CHECKPOINT_STREAM_H
#define RANVIER_RUNTIME_CHECKPOINT_STREAM_H

#include "runtime/base/error.h"

#include <stdint.h>

/* What is written past the page cache begins in memory, and in the file, at multiples of this. */
enum { STREAM_BLOCK = 4096 };

/* What was written. */
struct stream_end {
        int64_t bytes;
        uint64_t checksum;
};

/* Creates a file, which must not be there. NULL with a sentence: RV_ESYSTEM. The caller ends it with
 * stream_close; `path` must live as long. */
struct stream;
struct stream *stream_create(const char *path, struct rv_error_info *err);
/* Writes `bytes` of `data`; of many from a multiple of STREAM_BLOCK in the file on, where `data` begins at
 * one in memory, past the page cache. RV_ESYSTEM with a sentence. */
int stream_put(struct stream *, const void *data, int64_t bytes, struct rv_error_info *err);
int stream_put_much(struct stream *, const void *data, int64_t bytes, struct rv_error_info *err);
/* Waits until all of it is on the disk, and ends it. `rc` is RV_OK or how writing failed; after that, or if
 * this fails, the file is removed. Returns `rc` or its own failure, with a sentence. */
int stream_close(struct stream *, int rc, struct stream_end *end, struct rv_error_info *err);

#endif
