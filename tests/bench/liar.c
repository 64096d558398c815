/* A machine that lies, to be preloaded into a training (LD_PRELOAD) whose seed RANVIER_LIES is: files of
 * checkpoints take less at once than they are given, and now and then a bit of what they are given is turned
 * over; the clock of the day jumps by days; messages and sums begin late. Each is what a disk, a clock or a
 * network is allowed to do, or does when it is broken. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 4096, DAY = 86400 };

/* A number below `below`, of a chance that the seed and the rank decide. */
static unsigned chance(unsigned below)
{
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static unsigned long long state;
        pthread_mutex_lock(&lock);
        if (state == 0) {
                const char *rank = getenv("OMPI_COMM_WORLD_RANK"), *seed = getenv("RANVIER_LIES");
                state = 0x9E3779B97F4A7C15u * (1 + 64 * strtoull(seed ? seed : "0", NULL, 10) +
                                               strtoull(rank ? rank : "0", NULL, 10));
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const unsigned found = (unsigned)(state >> 33) % below;
        pthread_mutex_unlock(&lock);
        return found;
}

static void *next(const char *name)
{
        void *found = dlsym(RTLD_NEXT, name);
        if (!found)
                abort();
        return found;
}

/* Of a checkpoint that is being written. */
static int is_checkpoint(int descriptor)
{
        char link[64], path[1024];
        snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
        const ssize_t length = readlink(link, path, sizeof path - 1);
        if (length <= 0)
                return 0;
        path[length] = 0;
        return strstr(path, "/step-") && strstr(path, ".tmp") && strstr(path, ".safetensors");
}

/* With one bit turned over: what is on the disk then is not what was given. */
static ssize_t write_flipped(ssize_t (*real)(int, const void *, size_t), int descriptor, const void *data,
                             size_t bytes)
{
        unsigned char *copy = aligned_alloc(BLOCK, (bytes + BLOCK - 1) / BLOCK * BLOCK);
        if (!copy)
                abort();
        memcpy(copy, data, bytes);
        copy[chance((unsigned)bytes)] ^= (unsigned char)(1 << chance(8));
        const ssize_t written = real(descriptor, copy, bytes);
        free(copy);
        return written;
}

ssize_t write(int descriptor, const void *data, size_t bytes)
{
        static ssize_t (*real)(int, const void *, size_t);
        if (!real)
                *(void **)&real = next("write");
        if (bytes == 0 || !is_checkpoint(descriptor))
                return real(descriptor, data, bytes);
        if (chance(3) == 0 && bytes > BLOCK) /* of whole blocks, as past the page cache */
                bytes = BLOCK * (1 + chance((unsigned)(bytes / BLOCK)));
        return chance(12) == 0 ? write_flipped(real, descriptor, data, bytes) : real(descriptor, data, bytes);
}

static time_t jump(void)
{
        return chance(4) == 0 ? (time_t)chance(60 * DAY) - 30 * DAY : 0;
}

int clock_gettime(clockid_t clock, struct timespec *time)
{
        static int (*real)(clockid_t, struct timespec *);
        if (!real)
                *(void **)&real = next("clock_gettime");
        const int rc = real(clock, time);
        if (rc == 0 && clock == CLOCK_REALTIME)
                time->tv_sec += jump();
        return rc;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
        static int (*real)(struct timeval *, void *);
        if (!real)
                *(void **)&real = next("gettimeofday");
        const int rc = real(time, zone);
        time->tv_sec += jump();
        return rc;
}

static void late(void)
{
        if (chance(50) == 0)
                usleep(chance(20000));
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
        late();
        return PMPI_Isend(buffer, count, type, to, tag, comm, request);
}

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
        late();
        return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}
