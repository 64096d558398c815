#include "calibrate/files.h"

#include "runtime/checkpoint/stream.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { FIRST = 1 << 20, TIMES = 16, TENSOR = 4 << 20 };

/* The largest. Of a measurement that is asked to be short, 256 MiB would be the longest part. */
static int64_t last_bytes(const struct request *request)
{
        enum { SHORT = 10, OF_SHORT = 16 << 20, LAST = 256 << 20 };
        return request->seconds > 0 && request->seconds < SHORT ? OF_SHORT : LAST;
}

static double thread_seconds(void)
{
        struct timespec time;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* As no file system makes it smaller. */
static void fill(uint64_t *words, int64_t bytes)
{
        uint64_t word = 1;
        for (int64_t i = 0; i < bytes / (int64_t)sizeof word; i++) {
                word ^= word << 13;
                word ^= word >> 7;
                word ^= word << 17;
                words[i] = word;
        }
}

/* What is copied, and where to. */
struct ends {
        struct device *device;
        int64_t bytes; /* of each */
        void *there, *host;
};

static int open_ends(struct ends *ends, const struct request *request, struct rv_error_info *err)
{
        const int64_t bytes = last_bytes(request), reserved[MEMORY_SPACES] = {[MEMORY_DEVICE] = bytes};
        ends->bytes = bytes;
        ends->device = bench_device(request, false, err);
        int rc = ends->device ? device_reserve(ends->device, reserved, err) : err->code;
        if (rc != RV_OK)
                return rc;
        ends->there = ends->device->ops->alloc(ends->device, MEMORY_DEVICE, MEMORY_WORKSPACE, bytes);
        ends->host = device_host_alloc(ends->device, bytes);
        if (!ends->there || !ends->host)
                return rv_fail(err, RV_ESYSTEM, "no memory to copy and write %lld MiB",
                               (long long)bytes >> 20);
        fill(ends->host, bytes);
        ends->device->ops->copy(ends->device, DEVICE_HOST_TO_DEVICE, ends->there, ends->host, bytes);
        ends->device->ops->synchronize(ends->device);
        return RV_OK;
}

/* Tensor by tensor, as a state is copied: one large copy may go past the caches, and be faster. */
static void copy_out(const struct ends *ends, struct net *net, int64_t bytes, struct samples *samples)
{
        struct device *device = ends->device;
        const double began = device_seconds();
        for (int64_t at = 0; at < bytes; at += TENSOR)
                device->ops->copy(device, DEVICE_DEVICE_TO_HOST, (char *)ends->host + at,
                                  (char *)ends->there + at, bytes - at < TENSOR ? bytes - at : TENSOR);
        device->ops->record(device, DEVICE_DEVICE_TO_HOST, 0);
        bench_poll_until(device, net, 0);
        samples_add_line(samples, LINE_SNAPSHOT, bytes, device_seconds() - began);
}

static int write_file(const char *path, const void *data, int64_t bytes, struct samples *samples,
                      struct rv_error_info *err)
{
        struct stream_end end;
        const double began = device_seconds(), worked = thread_seconds();
        struct stream *stream = stream_create(path, err);
        if (!stream)
                return err->code;
        const int rc = stream_close(stream, stream_put_much(stream, data, bytes, err), &end, err);
        if (rc != RV_OK)
                return rc;
        samples_add_line(samples, LINE_FILE, bytes, device_seconds() - began);
        samples_add_line(samples, LINE_FILE_WORK, bytes, thread_seconds() - worked);
        unlink(path);
        return RV_OK;
}

bool files_write(struct net *net, const struct request *request, struct samples *samples,
                 struct rv_error_info *err)
{
        char path[PATH_MAX];
        struct ends ends = {0};
        int rc = open_ends(&ends, request, err);
        snprintf(path, sizeof path, "%s.written%d", request->out, (int)getpid());
        for (int64_t bytes = ends.bytes; rc == RV_OK && bytes >= FIRST; bytes /= TIMES) {
                copy_out(&ends, net, bytes, samples);
                rc = write_file(path, ends.host, bytes, samples, err);
        }
        if (ends.device) {
                device_host_free(ends.device, ends.host);
                ends.device->ops->close(ends.device);
        }
        return rc == RV_OK;
}
