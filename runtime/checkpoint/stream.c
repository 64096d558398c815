#define _GNU_SOURCE /* O_DIRECT */
#include "runtime/checkpoint/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL /* no library to link */
#include <xxhash.h>

struct stream {
        const char *path;
        int descriptor;
        bool direct; /* past the page cache */
        XXH3_state_t *hash;
        int64_t bytes;
};

/* Copying to the page cache would take the processors from the training for as long as the disk takes. Where
 * a file system has no other way, it is left at that. */
static void set_direct(struct stream *stream, bool direct)
{
        const int flags = fcntl(stream->descriptor, F_GETFL);
        const int wanted = direct ? flags | O_DIRECT : flags & ~O_DIRECT;
        stream->direct = fcntl(stream->descriptor, F_SETFL, wanted) == 0 && direct;
}

struct stream *stream_create(const char *path, struct rv_error_info *err)
{
        struct stream *stream = calloc(1, sizeof *stream);
        XXH3_state_t *hash = stream ? XXH3_createState() : NULL;
        const int descriptor = hash ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
        if (descriptor < 0) {
                rv_fail(err, RV_ESYSTEM, "%s: cannot be written: %s", path, strerror(hash ? errno : ENOMEM));
                XXH3_freeState(hash);
                free(stream);
                return NULL;
        }
        XXH3_64bits_reset(hash);
        *stream = (struct stream){.path = path, .descriptor = descriptor, .hash = hash};
        return stream;
}

int stream_put(struct stream *stream, const void *data, int64_t bytes, struct rv_error_info *err)
{
        enum { AT_ONCE = 8 << 20 };
        const char *from = data;
        while (bytes > 0) {
                const ssize_t written =
                        write(stream->descriptor, from, (size_t)(bytes < AT_ONCE ? bytes : AT_ONCE));
                if (written < 0 && errno == EINTR)
                        continue;
                if (written < 0 && errno == EINVAL && stream->direct) {
                        set_direct(stream, false);
                        continue;
                }
                if (written <= 0)
                        return rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", stream->path,
                                       written < 0 ? strerror(errno) : "nothing is taken");
                XXH3_64bits_update(stream->hash, from, (size_t)written);
                from += written;
                bytes -= written;
                stream->bytes += written;
        }
        return RV_OK;
}

int stream_put_much(struct stream *stream, const void *data, int64_t bytes, struct rv_error_info *err)
{
        const int64_t blocks = (uintptr_t)data % STREAM_BLOCK ? 0 : bytes / STREAM_BLOCK * STREAM_BLOCK;
        if (blocks > 0)
                set_direct(stream, true);
        int rc = stream_put(stream, data, blocks, err);
        if (stream->direct)
                set_direct(stream, false);
        return rc != RV_OK ? rc : stream_put(stream, (const char *)data + blocks, bytes - blocks, err);
}

int stream_close(struct stream *stream, int rc, struct stream_end *end, struct rv_error_info *err)
{
        if (rc == RV_OK && fsync(stream->descriptor) != 0)
                rc = rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", stream->path, strerror(errno));
        if (close(stream->descriptor) != 0 && rc == RV_OK)
                rc = rv_fail(err, RV_ESYSTEM, "%s: could not be written: %s", stream->path, strerror(errno));
        *end = (struct stream_end){stream->bytes, XXH3_64bits_digest(stream->hash)};
        if (rc != RV_OK)
                unlink(stream->path);
        XXH3_freeState(stream->hash);
        free(stream);
        return rc;
}
