#include "runtime/device/cpu/team.h"
#include "models/memory.h"
#include "runtime/device/cpu/kernels/kernels.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

/* Looks at a counter before a thread that waits for it lets others run in between, and before it sleeps: some
 * 0.1 ms, longer than the lane is between two kernels. */
enum { LOOKS_AWAKE = 1000, LOOKS_YIELDING = 200 };

struct member {
        struct cpu_team *team;
        pthread_t thread;
        real *scratch;
};

/* What is seen by whom. `parts` says of the kernel that runs how many parts there are and how many were
 * taken, in one word, so that who takes one knows that it is of that kernel, however late it comes. A
 * kernel's `run` and `context` are written before its word is, and read by who has taken a part of it
 * (release, acquire). They are written again only after `unfinished` was seen to be 0: then every part has
 * been taken, and who took it has read them for the last time and released what it wrote. So nobody waits for
 * a helper that has taken nothing, as one that another process keeps from its processor. Of a helper that
 * goes to sleep and the caller, one sees the other: it increments `sleeping` and then looks at `kernels`, the
 * caller increments `kernels` and then looks at `sleeping`, all in one order (sequentially consistent). If it
 * is the caller, the mutex makes it wait until the helper does. */
struct cpu_team {
        int threads, started;   /* started: helpers, members[1 .. started] */
        struct member *members; /* [0]: who calls cpu_team_run */
        cpu_part_fn *run;       /* of the kernel that runs */
        void *context;
        atomic_ullong parts;   /* of it: how many << TAKEN_BITS, and how many were taken, or a few more */
        atomic_int unfinished; /* of its parts */
        atomic_uint kernels;   /* split so far: a helper looks for work when it changes */
        atomic_int sleeping;   /* helpers that wait for `work` */
        atomic_bool closing;
        pthread_mutex_t mutex; /* of `work` */
        pthread_cond_t work;
};
enum { TAKEN_BITS = 32 };

void cpu_flush_subnormals(void)
{
#if defined(__SSE__) && !defined(RANVIER_DOUBLE)
        const unsigned flush_results = 0x8000, flush_operands = 0x0040;
        _mm_setcsr(_mm_getcsr() | flush_results | flush_operands);
#endif
}

/* Between two looks: a hint to the processor, and later to the scheduler. */
static void pause_before(int look)
{
        if (look > LOOKS_AWAKE)
                sched_yield();
#ifdef __SSE__
        else
                _mm_pause();
#endif
}

static unsigned taken_of(unsigned long long parts)
{
        return (unsigned)parts; /* TAKEN_BITS of it */
}

static bool are_left(unsigned long long parts)
{
        return taken_of(parts) < parts >> TAKEN_BITS;
}

/* Takes a part of the kernel that runs; -1: there is none left. */
static int take_part(struct cpu_team *team)
{
        if (!are_left(atomic_load_explicit(&team->parts, memory_order_relaxed)))
                return -1;
        const unsigned long long parts = atomic_fetch_add_explicit(&team->parts, 1, memory_order_acquire);
        return are_left(parts) ? (int)taken_of(parts) : -1;
}

static void work_on_parts(struct cpu_team *team, real *scratch)
{
        for (int part; (part = take_part(team)) >= 0;) {
                team->run(team->context, part, scratch);
                atomic_fetch_sub_explicit(&team->unfinished, 1, memory_order_release);
        }
}

/* Sleeps until there is a kernel after the `seen`-th. */
static void sleep_for_work(struct cpu_team *team, unsigned seen)
{
        pthread_mutex_lock(&team->mutex);
        atomic_fetch_add(&team->sleeping, 1);
        while (atomic_load(&team->kernels) == seen)
                pthread_cond_wait(&team->work, &team->mutex);
        atomic_fetch_sub(&team->sleeping, 1);
        pthread_mutex_unlock(&team->mutex);
}

static void wait_for_work(struct cpu_team *team, unsigned seen)
{
        for (int look = 0; look < LOOKS_AWAKE + LOOKS_YIELDING; look++) {
                if (atomic_load_explicit(&team->kernels, memory_order_acquire) != seen)
                        return;
                pause_before(look);
        }
        sleep_for_work(team, seen);
}

static void *helper_main(void *argument)
{
        const struct member *member = argument;
        struct cpu_team *team = member->team;
        cpu_flush_subnormals();
        for (unsigned seen = 0;;) {
                wait_for_work(team, seen);
                if (atomic_load(&team->closing))
                        return NULL;
                seen = atomic_load(&team->kernels);
                work_on_parts(team, member->scratch);
        }
}

static void wake(struct cpu_team *team)
{
        atomic_fetch_add(&team->kernels, 1);
        if (atomic_load(&team->sleeping) == 0)
                return;
        pthread_mutex_lock(&team->mutex);
        pthread_cond_broadcast(&team->work);
        pthread_mutex_unlock(&team->mutex);
}

void cpu_team_run(struct cpu_team *team, int parts, cpu_part_fn *run, void *context)
{
        real *scratch = team->members[0].scratch;
        if (team->started == 0 || parts == 1) {
                for (int part = 0; part < parts; part++)
                        run(context, part, scratch);
                return;
        }
        team->run = run;
        team->context = context;
        atomic_store_explicit(&team->unfinished, parts, memory_order_relaxed);
        atomic_store_explicit(&team->parts, (unsigned long long)parts << TAKEN_BITS, memory_order_release);
        wake(team);
        work_on_parts(team, scratch);
        for (int look = 0; atomic_load_explicit(&team->unfinished, memory_order_acquire) > 0;
             look += look <= LOOKS_AWAKE)
                pause_before(look);
}

int cpu_team_threads(const struct cpu_team *team)
{
        return team->threads;
}

void cpu_team_close(struct cpu_team *team)
{
        atomic_store(&team->closing, true);
        wake(team);
        for (int i = 1; i <= team->started; i++)
                pthread_join(team->members[i].thread, NULL);
        for (int i = 0; team->members && i < team->threads; i++)
                free(team->members[i].scratch);
        free(team->members);
        pthread_mutex_destroy(&team->mutex);
        pthread_cond_destroy(&team->work);
        free(team);
}

/* RV_OK's 0, or an errno. */
static int start_members(struct cpu_team *team)
{
        team->members = calloc((size_t)team->threads, sizeof *team->members);
        if (!team->members)
                return ENOMEM;
        for (int i = 0; i < team->threads; i++) {
                struct member *member = &team->members[i];
                member->team = team;
                member->scratch = aligned_alloc(MEMORY_ALIGNMENT, CPU_SCRATCH * sizeof *member->scratch);
                if (!member->scratch)
                        return ENOMEM;
                const int error = i > 0 ? pthread_create(&member->thread, NULL, helper_main, member) : 0;
                if (error)
                        return error;
                team->started = i;
        }
        return 0;
}

struct cpu_team *cpu_team_open(int threads)
{
        struct cpu_team *team = calloc(1, sizeof *team);
        if (!team)
                return NULL;
        team->threads = threads;
        pthread_mutex_init(&team->mutex, NULL);
        pthread_cond_init(&team->work, NULL);
        const int error = start_members(team);
        if (error) {
                cpu_team_close(team);
                errno = error;
                return NULL;
        }
        return team;
}
