/* The CPU device: host memory, and a worker thread a lane that runs its queue of commands in order. */
#include "runtime/device/cpu/arena.h"
#include "runtime/device/cpu/blas.h"
#include "runtime/device/cpu/split.h"
#include "runtime/device/cpu/variant.h"
#include "runtime/device/device.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum command_kind { COMMAND_KERNEL, COMMAND_COPY, COMMAND_EVENT };

struct command {
        enum command_kind kind;
        union {
                struct {
                        struct kernel kernel;
                        struct kernel_args args;
                } run;
                struct {
                        void *to;
                        const void *from;
                        int64_t bytes;
                        double queued_seconds;
                } copy;
                int token;
        };
};

struct lane {
        struct cpu_device *cpu;
        pthread_t thread;
        pthread_mutex_t mutex; /* of everything below */
        pthread_cond_t work, idle;
        struct command *ring;
        size_t capacity, head;
        atomic_size_t count; /* the worker also looks at it without the mutex */
        bool busy;           /* a command that is no longer in the ring is running */
        bool sleeping;       /* the worker waits for `work` */
        bool closing;
        double link_free_seconds; /* the worker's own: when its link has carried the copies so far */
};

struct cpu_device {
        struct device base;
        struct lane lanes[DEVICE_LANES];
        int lanes_started;
        struct cpu_split split;                 /* of the kernels, over a team of threads */
        struct cpu_arena arenas[MEMORY_SPACES]; /* what was reserved */
        void **blocks;                          /* what alloc gave beside it, to free */
        size_t block_count, block_capacity;
        pthread_mutex_t reached_mutex; /* of the ring of tokens */
        pthread_cond_t reached_more;   /* one was added while the host waited; on the monotonic clock */
        bool waited_for;
        atomic_int events;     /* queued and not reached */
        double queued_seconds; /* the host's own: when the last of them was */
        int *reached;
        size_t reached_capacity, reached_head;
        atomic_size_t reached_count; /* changed under the mutex; poll looks at it first, without */
};

/* Moves a full ring of `*capacity` elements into one twice as large, its head at 0. A launch has no way to
 * fail, so without memory for a few kilobytes the program ends here. */
static void *grow(void *ring, size_t *capacity, size_t *head, size_t element_bytes)
{
        const size_t larger = *capacity ? 2 * *capacity : 64;
        char *to = malloc(larger * element_bytes);
        if (!to)
                abort();
        if (*capacity) {
                const char *from = ring;
                const size_t tail = *capacity - *head;
                memcpy(to, from + *head * element_bytes, tail * element_bytes);
                memcpy(to + tail * element_bytes, from, *head * element_bytes);
        }
        free(ring);
        *capacity = larger;
        *head = 0;
        return to;
}

static void enqueue(struct lane *lane, const struct command *command)
{
        pthread_mutex_lock(&lane->mutex);
        if (lane->count == lane->capacity)
                lane->ring = grow(lane->ring, &lane->capacity, &lane->head, sizeof *lane->ring);
        lane->ring[(lane->head + lane->count) % lane->capacity] = *command;
        lane->count++;
        const bool sleeping = lane->sleeping;
        pthread_mutex_unlock(&lane->mutex);
        if (sleeping) /* it would wake to find the mutex taken */
                pthread_cond_signal(&lane->work);
}

/* Seconds for which a compute lane that has nothing to do looks for more before it sleeps: what the host
 * takes to wake and to launch the next operation. To be woken costs a lane about 0.05 ms more. */
static const double lane_awake_seconds = 2e-4;

static void stay_awake(struct lane *lane)
{
        const double until = device_seconds() + lane_awake_seconds;
        pthread_mutex_unlock(&lane->mutex);
        while (atomic_load_explicit(&lane->count, memory_order_relaxed) == 0 && device_seconds() < until)
                sched_yield();
        pthread_mutex_lock(&lane->mutex);
}

/* The next command, waiting for one; false when the lane closes. */
static bool dequeue(struct lane *lane, struct command *command)
{
        pthread_mutex_lock(&lane->mutex);
        lane->busy = false;
        if (lane->count == 0) {
                pthread_cond_broadcast(&lane->idle);
                if (lane == &lane->cpu->lanes[DEVICE_COMPUTE])
                        stay_awake(lane);
        }
        lane->sleeping = true;
        while (lane->count == 0 && !lane->closing)
                pthread_cond_wait(&lane->work, &lane->mutex);
        lane->sleeping = false;
        const bool got = lane->count > 0;
        if (got) {
                *command = lane->ring[lane->head];
                lane->head = (lane->head + 1) % lane->capacity;
                lane->count--;
                lane->busy = true;
        }
        pthread_mutex_unlock(&lane->mutex);
        return got;
}

static void run_recorded(const struct cpu_device *cpu, const struct kernel *kernel,
                         const struct kernel_args *args)
{
        const struct device *device = &cpu->base;
        if (!device->recorder) {
                cpu_split_run(&cpu->split, kernel, args);
                return;
        }
        const double start = device_seconds();
        cpu_split_run(&cpu->split, kernel, args);
        const double end = device_seconds();
        device->recorder(device->recorder_context, kernel, end - start, end);
}

/* Of device_seconds' clock. */
static struct timespec time_of(double seconds)
{
        return (struct timespec){.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
}

static void sleep_until(double seconds)
{
        const struct timespec until = time_of(seconds);
        while (device_seconds() < seconds) /* asking costs less than a sleep that is over at once */
                clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Takes as long as a link of bytes_per_second would, which carries one copy after the other: from when the
 * copy was queued or the link became free. Slices leave the processor to others between them, as a copy
 * engine would; a slice that is late does not move those that follow. */
static void copy_over_link(struct lane *lane, const struct command *command, double bytes_per_second)
{
        const int64_t bytes = command->copy.bytes, slice = 1 << 20;
        char *to = command->copy.to;
        const char *from = command->copy.from;
        double free_seconds = lane->link_free_seconds;
        if (free_seconds < command->copy.queued_seconds)
                free_seconds = command->copy.queued_seconds;
        for (int64_t at = 0; at < bytes; at += slice) {
                const int64_t count = bytes - at < slice ? bytes - at : slice;
                memcpy(to + at, from + at, (size_t)count);
                free_seconds += (double)count / bytes_per_second;
                sleep_until(free_seconds);
        }
        lane->link_free_seconds = free_seconds;
}

static void run_copy(struct lane *lane, const struct command *command)
{
        const double bytes_per_second = lane->cpu->base.host_link_bytes_per_second;
        if (bytes_per_second > 0)
                copy_over_link(lane, command, bytes_per_second);
        else
                memcpy(command->copy.to, command->copy.from, (size_t)command->copy.bytes);
}

static void reach(struct cpu_device *cpu, int token)
{
        pthread_mutex_lock(&cpu->reached_mutex);
        const size_t count = atomic_load_explicit(&cpu->reached_count, memory_order_relaxed);
        if (count == cpu->reached_capacity)
                cpu->reached =
                        grow(cpu->reached, &cpu->reached_capacity, &cpu->reached_head, sizeof *cpu->reached);
        cpu->reached[(cpu->reached_head + count) % cpu->reached_capacity] = token;
        atomic_store_explicit(&cpu->reached_count, count + 1, memory_order_release);
        atomic_fetch_sub_explicit(&cpu->events, 1, memory_order_relaxed);
        const bool waited_for = cpu->waited_for;
        pthread_mutex_unlock(&cpu->reached_mutex);
        if (waited_for)
                pthread_cond_signal(&cpu->reached_more);
}

static void *lane_main(void *argument)
{
        struct lane *lane = argument;
        cpu_flush_subnormals();
        for (struct command command; dequeue(lane, &command);) {
                switch (command.kind) {
                case COMMAND_KERNEL:
                        run_recorded(lane->cpu, &command.run.kernel, &command.run.args);
                        break;
                case COMMAND_COPY:
                        run_copy(lane, &command);
                        break;
                case COMMAND_EVENT:
                        reach(lane->cpu, command.token);
                        break;
                }
        }
        return NULL;
}

static struct cpu_device *cpu_of(struct device *device)
{
        return (struct cpu_device *)device; /* its first member */
}

static bool fits_memory(const struct device *device, enum memory_space space, int64_t bytes)
{
        const int64_t used = memory_total(&device->bytes, space);
        const int64_t other =
                memory_total(&device->bytes, space == MEMORY_HOST ? MEMORY_DEVICE : MEMORY_HOST);
        const int64_t shared = device->shared_limit_bytes;
        return bytes <= device->limit_bytes[space] - used && (shared == 0 || bytes <= shared - used - other);
}

static void close_arenas(struct cpu_device *cpu)
{
        for (int space = 0; space < MEMORY_SPACES; space++)
                cpu_arena_close(&cpu->arenas[space]);
}

/* Under a sanitizer every allocation is a block of its own, so that it sees who writes past one. */
static int cpu_reserve(struct device *device, const int64_t bytes[MEMORY_SPACES], struct rv_error_info *err)
{
#ifdef __SANITIZE_ADDRESS__
        (void)device;
        (void)bytes;
        (void)err;
#else
        struct cpu_device *cpu = cpu_of(device);
        for (int space = 0; space < MEMORY_SPACES; space++) {
                const int error = bytes[space] > 0 ? cpu_arena_open(&cpu->arenas[space], bytes[space]) : 0;
                if (error) {
                        close_arenas(cpu);
                        return rv_fail(err, RV_ESYSTEM, "the cpu device: cannot reserve %lld bytes: %s",
                                       (long long)bytes[space], strerror(error));
                }
        }
#endif
        return RV_OK;
}

static void *new_block(struct cpu_device *cpu, int64_t bytes)
{
        if (cpu->block_count == cpu->block_capacity) {
                const size_t larger = cpu->block_capacity ? 2 * cpu->block_capacity : 64;
                void **blocks = realloc(cpu->blocks, larger * sizeof *blocks);
                if (!blocks)
                        return NULL;
                cpu->blocks = blocks;
                cpu->block_capacity = larger;
        }
        void *block = aligned_alloc(MEMORY_ALIGNMENT, (size_t)bytes);
        if (block)
                cpu->blocks[cpu->block_count++] = block;
        return block;
}

/* What was not reserved, or is more than that, is a block of its own. An allocation that the machine could
 * not back with memory is refused here; later it would end in a kill. So all of it is written to: a batch
 * meets no page for the first time. */
static void *cpu_alloc(struct device *device, enum memory_space space, enum memory_category category,
                       int64_t bytes)
{
        struct cpu_device *cpu = cpu_of(device);
        if (bytes > INT64_MAX - MEMORY_ALIGNMENT)
                return NULL;
        const int64_t rounded = memory_aligned(bytes > 0 ? bytes : 1);
        if (!fits_memory(device, space, rounded))
                return NULL;
        void *memory = cpu_arena_take(&cpu->arenas[space], rounded);
        if (!memory)
                memory = new_block(cpu, rounded);
        if (!memory)
                return NULL;
        memset(memory, 0, (size_t)rounded);
        device->bytes.in[space][category] += memory_aligned(bytes);
        return memory;
}

static void cpu_launch(struct device *device, const struct kernel *kernel, const struct kernel_args *args)
{
        const struct command command = {.kind = COMMAND_KERNEL, .run = {*kernel, *args}};
        enqueue(&cpu_of(device)->lanes[DEVICE_COMPUTE], &command);
}

static void cpu_copy(struct device *device, enum device_lane lane, void *to, const void *from, int64_t bytes)
{
        assert(lane == DEVICE_HOST_TO_DEVICE || lane == DEVICE_DEVICE_TO_HOST);
        const struct command command = {.kind = COMMAND_COPY, .copy = {to, from, bytes, device_seconds()}};
        enqueue(&cpu_of(device)->lanes[lane], &command);
}

static void cpu_record(struct device *device, enum device_lane lane, int token)
{
        assert(token >= 0);
        const struct command command = {.kind = COMMAND_EVENT, .token = token};
        atomic_fetch_add_explicit(&cpu_of(device)->events, 1, memory_order_relaxed);
        cpu_of(device)->queued_seconds = device_seconds();
        enqueue(&cpu_of(device)->lanes[lane], &command);
}

static int cpu_poll(struct device *device)
{
        struct cpu_device *cpu = cpu_of(device);
        if (atomic_load_explicit(&cpu->reached_count, memory_order_acquire) == 0)
                return -1;
        pthread_mutex_lock(&cpu->reached_mutex);
        const int token = cpu->reached[cpu->reached_head];
        cpu->reached_head = (cpu->reached_head + 1) % cpu->reached_capacity;
        atomic_fetch_sub_explicit(&cpu->reached_count, 1, memory_order_relaxed);
        pthread_mutex_unlock(&cpu->reached_mutex);
        return token;
}

/* No token is missed: reach adds it under the mutex, which is held here from the look at the counts to the
 * sleep. Only who waits records events, so `events` does not rise meanwhile. */
static void cpu_wait(struct device *device, double seconds)
{
        struct cpu_device *cpu = cpu_of(device);
        const double now = device_seconds();
        if (now < cpu->queued_seconds + device->awake_seconds)
                return;
        const struct timespec until = time_of(now + seconds);
        int timed_out = 0;
        pthread_mutex_lock(&cpu->reached_mutex);
        cpu->waited_for = true;
        while (atomic_load(&cpu->reached_count) == 0 && atomic_load(&cpu->events) > 0 && !timed_out)
                timed_out = pthread_cond_timedwait(&cpu->reached_more, &cpu->reached_mutex, &until);
        cpu->waited_for = false;
        pthread_mutex_unlock(&cpu->reached_mutex);
}

static void cpu_synchronize(struct device *device)
{
        struct cpu_device *cpu = cpu_of(device);
        for (int i = 0; i < DEVICE_LANES; i++) {
                struct lane *lane = &cpu->lanes[i];
                pthread_mutex_lock(&lane->mutex);
                while (lane->count > 0 || lane->busy)
                        pthread_cond_wait(&lane->idle, &lane->mutex);
                pthread_mutex_unlock(&lane->mutex);
        }
}

/* Ends the lane after what is queued on it. */
static void lane_stop(struct lane *lane)
{
        pthread_mutex_lock(&lane->mutex);
        lane->closing = true;
        pthread_cond_signal(&lane->work);
        pthread_mutex_unlock(&lane->mutex);
        pthread_join(lane->thread, NULL);
        pthread_mutex_destroy(&lane->mutex);
        pthread_cond_destroy(&lane->work);
        pthread_cond_destroy(&lane->idle);
        free(lane->ring);
}

static void cpu_close(struct device *device)
{
        struct cpu_device *cpu = cpu_of(device);
        for (int i = 0; i < cpu->lanes_started; i++)
                lane_stop(&cpu->lanes[i]);
        for (size_t i = 0; i < cpu->block_count; i++)
                free(cpu->blocks[i]);
        free(cpu->blocks);
        close_arenas(cpu);
        free(cpu->reached);
        if (cpu->split.team)
                cpu_team_close(cpu->split.team);
        free(cpu->split.sums);
        pthread_mutex_destroy(&cpu->reached_mutex);
        pthread_cond_destroy(&cpu->reached_more);
        free(cpu);
}

static int lane_start(struct lane *lane, struct cpu_device *cpu)
{
        lane->cpu = cpu;
        pthread_mutex_init(&lane->mutex, NULL);
        pthread_cond_init(&lane->work, NULL);
        pthread_cond_init(&lane->idle, NULL);
        return pthread_create(&lane->thread, NULL, lane_main, lane);
}

struct device *device_cpu_open_with(int threads, const char *kernels, struct rv_error_info *err)
{
        static const struct device_ops ops = {
                .name = "cpu",
                .reserve = cpu_reserve,
                .alloc = cpu_alloc,
                .launch = cpu_launch,
                .copy = cpu_copy,
                .record = cpu_record,
                .poll = cpu_poll,
                .wait = cpu_wait,
                .synchronize = cpu_synchronize,
                .close = cpu_close,
        };
        const struct cpu_variant *variant = cpu_variant_choose(cpu_variants, cpu_variant_count, kernels, err);
        if (!variant)
                return NULL;
        struct cpu_device *cpu = calloc(1, sizeof *cpu);
        if (!cpu) {
                rv_fail(err, RV_ESYSTEM, "the cpu device: no memory for its queues");
                return NULL;
        }
        cpu->base.ops = &ops;
        pthread_mutex_init(&cpu->reached_mutex, NULL);
        pthread_condattr_t monotonic;
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&cpu->reached_more, &monotonic);
        pthread_condattr_destroy(&monotonic);
        cpu->split.run = variant->run;
        cpu->split.sums = aligned_alloc(MEMORY_ALIGNMENT, CPU_SCRATCH * sizeof(real));
        cpu->split.team = cpu->split.sums ? cpu_team_open(threads) : NULL;
        if (!cpu->split.team) {
                rv_fail(err, RV_ESYSTEM, "the cpu device: cannot start %d threads for its kernels: %s",
                        threads, strerror(errno));
                cpu_close(&cpu->base);
                return NULL;
        }
        const int64_t memory_bytes = device_cpu_memory_bytes();
        cpu->base.limit_bytes[MEMORY_DEVICE] = cpu->base.limit_bytes[MEMORY_HOST] = memory_bytes;
        cpu->base.shared_limit_bytes = memory_bytes;
        device_cpu_name(cpu->base.description.name, sizeof cpu->base.description.name);
        cpu->base.description.processors = threads;
        cpu->base.description.cpu_kernels = variant->name;
        cpu_blas_open();
        for (int i = 0; i < DEVICE_LANES; i++) {
                const int error = lane_start(&cpu->lanes[i], cpu);
                if (error) {
                        rv_fail(err, RV_ESYSTEM, "the cpu device: cannot start the thread of a lane: %s",
                                strerror(error));
                        cpu_close(&cpu->base);
                        return NULL;
                }
                cpu->lanes_started++;
        }
        return &cpu->base;
}

struct device *device_cpu_open(int threads, struct rv_error_info *err)
{
        return device_cpu_open_with(threads, NULL, err);
}
