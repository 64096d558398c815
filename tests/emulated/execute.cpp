/* One kernel at a time, on one host thread. A fiber runs thread after thread; only one that has to wait keeps
 * its fiber, and the others go on on another. */
#include "tests/emulated/execute.hpp"
#include "tests/emulated/check.hpp"
#include "tests/emulated/control.h"
#include "tests/emulated/random.hpp"

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <link.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated
{

namespace context = boost::context::detail;

enum { STACK_BYTES = 256 << 10, WARP_LANES = 32, MAX_THREADS = 1024 };
/* Of a page, stacks of a warp begin at places of their own: at the same one they would share a few lines of
 * cache. */
enum { STACK_STEP = 1088 };
/* Static shared memory is poisoned in steps of so many bytes. */
enum { POISON_STEP = 4096 };

enum state { UNSTARTED, READY, AT_BARRIER, AT_WARP, DONE };

struct late_copy {
        unsigned char *to;
        const void *from;
        int group;
};

struct fiber;
struct thread {
        indices at;
        int linear;
        enum state state;
        fiber *on;
        int predicate, counted; /* __syncthreads_count */
        const char *operation;  /* AT_WARP: its name, mask, */
        exchange_fn *exchange;  /* what is to be done, */
        unsigned mask;          /* which lanes it waits for, */
        void *operand;          /* and what this one brought */
        std::vector<late_copy> copies;
        int open_group;
};

struct fiber {
        unsigned char *stack; /* its lowest byte that may be written */
        context::fcontext_t context;
};

/* Of the kernel that runs. */
static struct {
        const launch *of;
        thread threads[MAX_THREADS]; /* the first thread_count */
        std::vector<fiber *> idle;
        std::deque<thread *> ready;
        thread *running;
        fiber *on; /* NULL: the scheduler */
        int thread_count, unstarted, done, at_barrier;
        unsigned at_warp[MAX_THREADS / WARP_LANES]; /* lanes that are AT_WARP */
        std::unique_ptr<order> starts;
        bool last_first; /* of the threads that are ready, the last to become so runs next */
        bool start_first;
        random_numbers random;
        context::fcontext_t scheduler;
        context::fcontext_t *left; /* where that of who jumped last belongs */
        fiber *before;             /* who that was; NULL: the scheduler */
        unsigned char *shared;     /* page-aligned, a guard page after SHARED_BYTES_OPTIN */
        unsigned char *dynamic;
        unsigned char *static_shared;
        size_t static_shared_bytes;
        const unsigned char *module; /* the plugin's own code and constants */
        size_t module_bytes;
        unsigned char *stacks;
        size_t stacks_bytes;
        uint64_t seed, kernels;
        bool seeded;
        const void *scheduler_stack;
        size_t scheduler_stack_bytes;
} now;

indices *current_indices;
range ranges[RANGES];
bool kernel_runs;

static char report[1024];
static cudaError_t failure; /* of the kernel that runs */

/* ---- switching ---- */

static void switching_to(void **fake_stack, const void *stack, size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#else
        (void)fake_stack, (void)stack, (void)bytes;
#endif
}

static void switched(void *fake_stack, const void **from, size_t *bytes)
{
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#else
        (void)fake_stack, (void)from, (void)bytes;
#endif
}

/* Where a fiber or the scheduler begins, or goes on, after a jump. */
static void arrived(void *fake_stack, context::fcontext_t from)
{
        *now.left = from;
        if (now.before)
                switched(fake_stack, nullptr, nullptr);
        else
                switched(fake_stack, &now.scheduler_stack, &now.scheduler_stack_bytes);
}

/* Goes on with a fiber, or the scheduler (NULL); returns when somebody goes on with this one. */
static void go_on_with(fiber *to)
{
        fiber *mine = now.on;
        void *fake_stack = nullptr;
        const context::fcontext_t where = to ? to->context : now.scheduler;
        now.before = mine;
        now.left = mine ? &mine->context : &now.scheduler;
        now.on = to;
        kernel_runs = to != nullptr;
        if (to)
                switching_to(&fake_stack, to->stack, STACK_BYTES);
        else
                switching_to(&fake_stack, now.scheduler_stack, now.scheduler_stack_bytes);
        const context::fcontext_t from = context::jump_fcontext(where, nullptr).fctx;
        arrived(fake_stack, from);
}

static thread *next_ready(void)
{
        if (now.ready.empty())
                return nullptr;
        thread *t = now.last_first ? now.ready.back() : now.ready.front();
        if (now.last_first)
                now.ready.pop_back();
        else
                now.ready.pop_front();
        return t;
}

static fiber *idle_fiber(void);

/* The one that goes on next; NULL: the kernel failed, or nobody can. */
static fiber *next_fiber(void)
{
        if (failure)
                return nullptr;
        const thread *t = now.start_first && now.unstarted ? nullptr : next_ready();
        return t ? t->on : now.unstarted ? idle_fiber() : nullptr;
}

/* Lets others go on, at once, without the scheduler; returns when somebody goes on with this fiber. */
static void yield(void)
{
        fiber *to = next_fiber();
        if (to != now.on)
                go_on_with(to);
}

static thread *next_unstarted(void)
{
        if (now.unstarted == 0)
                return nullptr;
        now.unstarted--;
        return &now.threads[now.starts->next()];
}

static void finish_copies(thread *t, int groups_left)
{
        size_t kept = 0;
        for (const late_copy &copy : t->copies) {
                if (copy.group >= t->open_group - groups_left) {
                        t->copies[kept++] = copy;
                        continue;
                }
                if (copy.from)
                        check_quickly(copy.from, 16, false);
                if (copy.from)
                        memcpy(copy.to, copy.from, 16);
                else
                        memset(copy.to, 0, 16);
        }
        t->copies.resize(kept);
}

/* Threads of the block one after the other, until there are none to start. */
static void run_threads(void)
{
        fiber *mine = now.on;
        for (thread *t; (t = next_unstarted());) {
                t->state = READY;
                t->on = mine;
                now.running = t;
                current_indices = &t->at;
                now.of->thread(now.of->arguments.get());
                t->state = DONE;
                t->copies.clear();
                now.done++;
                if (!now.start_first && !now.ready.empty())
                        break;
        }
}

static void fiber_main(context::transfer_t from)
{
        arrived(nullptr, from.fctx);
        for (;;) {
                fiber *mine = now.on;
                run_threads();
                now.idle.push_back(mine);
                yield();
        }
}

/* All stacks lie in one region, so that an address is known to be on one. */
static fiber *new_fiber(size_t index)
{
        const size_t page = (size_t)sysconf(_SC_PAGESIZE), each = STACK_BYTES + page;
        if (!now.stacks) {
                now.stacks_bytes = each * MAX_THREADS;
                now.stacks = (unsigned char *)mmap(nullptr, now.stacks_bytes, PROT_READ | PROT_WRITE,
                                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        }
        if (now.stacks == MAP_FAILED || mprotect(now.stacks + index * each, page, PROT_NONE) != 0) {
                fprintf(stderr, "emulated CUDA: no memory for the stack of a thread\n");
                abort();
        }
        ranges[STACKS] = {now.stacks, now.stacks_bytes};
        fiber *f = new fiber();
        f->stack = now.stacks + index * each + page;
        return f;
}

static void reset_fiber(fiber *f)
{
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(f->stack, STACK_BYTES); /* of what was left in the middle */
#endif
        const size_t index = (size_t)(f->stack - now.stacks) / STACK_BYTES;
        const size_t skipped = index % WARP_LANES * STACK_STEP;
        f->context =
                context::make_fcontext(f->stack + STACK_BYTES - skipped, STACK_BYTES - skipped, fiber_main);
}

/* Kept to the process's end, when a leak checker still finds them here. */
static std::vector<fiber *> &all_fibers(void)
{
        static auto *const all = new std::vector<fiber *>;
        return *all;
}

static fiber *idle_fiber(void)
{
        if (now.idle.empty()) {
                fiber *f = new_fiber(all_fibers().size());
                reset_fiber(f);
                all_fibers().push_back(f);
                return f;
        }
        fiber *f = now.idle.back();
        now.idle.pop_back();
        return f;
}

/* ---- waiting ---- */

static void make_ready(thread *t)
{
        t->state = READY;
        now.at_warp[t->linear / WARP_LANES] &= ~(1U << t->linear % WARP_LANES);
        now.ready.push_back(t);
}

static void wait(enum state state)
{
        thread *mine = now.running;
        mine->state = state;
        yield();
        now.running = mine;
        current_indices = &mine->at;
}

int lane(void)
{
        return now.running->linear % WARP_LANES;
}

void barrier(void)
{
        barrier_count(0);
}

int barrier_count(int predicate)
{
        thread *mine = now.running;
        mine->predicate = predicate;
        if (++now.at_barrier < now.thread_count) {
                wait(AT_BARRIER);
                return mine->counted;
        }
        int counted = 0;
        for (int i = 0; i < now.thread_count; i++)
                counted += now.threads[i].predicate != 0;
        mine->counted = counted;
        now.at_barrier = 0;
        order o((uint64_t)now.thread_count, now.random);
        for (int i = 0; i < now.thread_count; i++) {
                thread &t = now.threads[o.next()];
                t.counted = counted;
                if (&t != mine)
                        make_ready(&t);
        }
        make_ready(mine);
        wait(READY);
        return counted;
}

void warp(const char *name, exchange_fn *exchange, unsigned mask, void *operand)
{
        thread *mine = now.running;
        const int first = mine->linear - mine->linear % WARP_LANES, lane = mine->linear - first;
        if (!(mask >> lane & 1))
                fail(cudaErrorLaunchFailure, "%s: lane %d is not in its own mask 0x%08x", name, lane, mask);
        mine->operation = name;
        mine->exchange = exchange;
        mine->mask = mask;
        mine->operand = operand;
        mine->state = AT_WARP;
        now.at_warp[first / WARP_LANES] |= 1U << lane;
        if (mask & ~now.at_warp[first / WARP_LANES]) {
                wait(AT_WARP);
                return;
        }
        void *operands[WARP_LANES]; /* of the lanes in the mask */
        for (int i = 0; i < WARP_LANES; i++) {
                if (!(mask >> i & 1))
                        continue;
                const thread *t = &now.threads[first + i];
                if (t->exchange != exchange || t->mask != mask) {
                        wait(AT_WARP);
                        return;
                }
                operands[i] = t->operand;
        }
        exchange(operands, mask);
        order o(WARP_LANES, now.random);
        for (int i = 0; i < WARP_LANES; i++) {
                const int other = (int)o.next();
                if (mask >> other & 1)
                        make_ready(&now.threads[first + other]);
        }
        wait(READY);
}

void copy_later(void *to, const void *from)
{
        memset(to, 0xff, 16);
        now.running->copies.push_back({(unsigned char *)to, from, now.running->open_group});
}

void copy_commit(void)
{
        now.running->open_group++;
}

void copy_wait(int pending)
{
        finish_copies(now.running, pending);
}

/* ---- shared memory ---- */

/* Variables of the thread of the module that this is part of: what __shared__ declares, and nothing else. */
static int find_module(struct dl_phdr_info *info, size_t, void *)
{
        const ElfW(Addr) here = (ElfW(Addr)) & find_module;
        bool inside = false;
        size_t bytes = 0, end = 0;
        for (int i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Phdr) &p = info->dlpi_phdr[i];
                const ElfW(Addr) start = info->dlpi_addr + p.p_vaddr;
                inside = inside || (p.p_type == PT_LOAD && here >= start && here < start + p.p_memsz);
                if (p.p_type == PT_LOAD)
                        end = p.p_vaddr + p.p_memsz;
                if (p.p_type == PT_TLS)
                        bytes = p.p_memsz;
        }
        if (!inside)
                return 0;
        now.static_shared = (unsigned char *)info->dlpi_tls_data;
        now.static_shared_bytes = bytes;
        now.module = (const unsigned char *)info->dlpi_addr;
        now.module_bytes = end;
        return 1;
}

static thread_local volatile char touched; /* makes sure that there are such variables, and their memory */

static void prepare_shared(void)
{
        touched = 1;
        dl_iterate_phdr(find_module, nullptr);
        if (now.shared)
                return;
        const size_t page = (size_t)sysconf(_SC_PAGESIZE),
                     bytes = (SHARED_BYTES_OPTIN + page - 1) / page * page;
        now.shared = (unsigned char *)mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (now.shared == MAP_FAILED || mprotect(now.shared + bytes, page, PROT_NONE) != 0) {
                fprintf(stderr, "emulated CUDA: no memory for shared memory\n");
                abort();
        }
        now.shared += bytes; /* allocations end at the guard page */
}

static bool within(const unsigned char *p, size_t bytes, const void *start, size_t length)
{
        const unsigned char *s = (const unsigned char *)start;
        return p >= s && p + bytes <= s + length;
}

/* All kernels' static shared memory is some megabytes, and a block uses little of it: only that much is
 * poisoned, at the first access, where accesses are checked. */
#if defined(__SANITIZE_ADDRESS__)
static void poison_static(void)
{
        memset(now.static_shared, 0xff, now.static_shared_bytes);
        ranges[STATIC_SHARED] = {now.static_shared, now.static_shared_bytes};
}
#else
static void poison_static(void)
{
        ranges[STATIC_SHARED] = {now.static_shared, 0};
}
#endif

bool reach_static(const void *pointer, size_t bytes)
{
        const unsigned char *p = (const unsigned char *)pointer;
        range &poisoned = ranges[STATIC_SHARED];
        if (within(p, bytes, poisoned.start, poisoned.bytes))
                return true;
        if (!within(p, bytes, now.static_shared, now.static_shared_bytes))
                return false;
        const size_t at = (size_t)(p - now.static_shared), from = at / POISON_STEP * POISON_STEP,
                     end = (at + bytes + POISON_STEP - 1) / POISON_STEP * POISON_STEP,
                     to = end < now.static_shared_bytes ? end : now.static_shared_bytes;
        if (poisoned.bytes == 0)
                poisoned.start = now.static_shared + from;
        const size_t first = (size_t)(poisoned.start - now.static_shared), last = first + poisoned.bytes;
        if (from < first)
                memset(now.static_shared + from, 0xff, first - from);
        if (to > last)
                memset(now.static_shared + last, 0xff, to - last);
        const size_t start = std::min(from, first);
        poisoned = {now.static_shared + start, std::max(to, last) - start};
        return true;
}

static void poison_shared(void)
{
        poison_static();
        const size_t padded = (now.of->shared_bytes + 15) / 16 * 16;
        now.dynamic = now.shared - padded;
        memset(now.dynamic - 16, 0xff, padded + 16);
        ranges[DYNAMIC_SHARED] = {now.dynamic, now.of->shared_bytes};
        ranges[MODULE] = {now.module, now.module_bytes};
        ranges[ARGUMENTS] = {(const unsigned char *)now.of->arguments.get(), now.of->arguments_bytes};
}

/* The bytes before the dynamic shared memory, and after it up to its alignment, hold what was put there. */
static void check_shared(void)
{
        const size_t bytes = now.of->shared_bytes;
        for (const unsigned char *p = now.dynamic - 16; p < now.shared; p++) {
                if (p == now.dynamic)
                        p += bytes;
                if (p < now.shared && *p != 0xff)
                        fail(cudaErrorIllegalAddress,
                             "a thread wrote byte %td of %zu bytes of dynamic shared memory", p - now.dynamic,
                             bytes);
        }
}

unsigned char *dynamic_shared(void)
{
        return now.dynamic;
}

bool is_shared(const void *pointer, size_t bytes)
{
        const unsigned char *p = (const unsigned char *)pointer;
        return within(p, bytes, now.dynamic, now.of->shared_bytes) || reach_static(p, bytes);
}

/* ---- failing ---- */

void fail(cudaError_t error, const char *format, ...)
{
        char sentence[600], where[160] = "";
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(sentence, sizeof sentence, format, arguments);
        va_end(arguments);
        if (now.running) {
                const uint3_index &t = now.running->at.thread, &b = now.running->at.block;
                snprintf(where, sizeof where, ", block (%u,%u,%u), thread (%u,%u,%u)", b.x, b.y, b.z, t.x,
                         t.y, t.z);
        }
        if (!failure) {
                failure = error;
                snprintf(report, sizeof report, "kernel %s%s, seed %llu: %s", now.of ? now.of->name : "-",
                         where, (unsigned long long)now.seed, sentence);
                fprintf(stderr, "emulated CUDA: %s\n", report);
        }
        if (now.running) {
                yield();
                abort(); /* nobody resumes a thread that failed */
        }
}

void wait_for_host(void)
{
        failure = cudaErrorNotReady;
        yield();
        abort(); /* nobody resumes it */
}

static const char *thread_name(const thread &t, char *text, size_t bytes)
{
        snprintf(text, bytes, "(%u,%u,%u)", t.at.thread.x, t.at.thread.y, t.at.thread.z);
        return text;
}

/* Nobody can go on, and not all are done. */
static void report_stuck(void)
{
        int count[DONE + 1] = {};
        const thread *first[DONE + 1] = {};
        for (int i = 0; i < now.thread_count; i++) {
                const thread &t = now.threads[i];
                if (count[t.state]++ == 0)
                        first[t.state] = &t;
        }
        char barrier[64] = "", done[64] = "", text[500];
        size_t at = 0;
        const thread *at_warp = first[AT_WARP];
        if (count[AT_BARRIER])
                at += (size_t)snprintf(text + at, sizeof text - at,
                                       "%d threads wait at __syncthreads (first: %s)", count[AT_BARRIER],
                                       thread_name(*first[AT_BARRIER], barrier, sizeof barrier));
        if (at_warp)
                at += (size_t)snprintf(
                        text + at, sizeof text - at,
                        "%s%d wait at a warp operation (first: (%u,%u,%u), at %s of lanes 0x%08x)",
                        at ? ", " : "", count[AT_WARP], at_warp->at.thread.x, at_warp->at.thread.y,
                        at_warp->at.thread.z, at_warp->operation, at_warp->mask);
        if (count[DONE])
                at += (size_t)snprintf(text + at, sizeof text - at, ", %d have exited (first: %s)",
                                       count[DONE], thread_name(*first[DONE], done, sizeof done));
        const uint3_index &b = now.threads[0].at.block;
        fail(cudaErrorLaunchFailure, "block (%u,%u,%u) diverged: %s", b.x, b.y, b.z, text);
}

/* ---- running ---- */

static void run_block(const uint3_index &block)
{
        for (int i = 0; i < now.thread_count; i++) {
                thread &t = now.threads[i];
                t.at.block = block;
                t.state = UNSTARTED;
                t.open_group = 0;
                t.predicate = 0;
        }
        poison_shared();
        now.unstarted = now.thread_count;
        now.done = now.at_barrier = 0;
        memset(now.at_warp, 0, sizeof now.at_warp);
        now.ready.clear();
        now.starts = std::make_unique<order>((uint64_t)now.thread_count, now.random);
        now.last_first = now.random.below(2);
        now.start_first = now.random.below(2);
        while (!failure && now.done < now.thread_count) {
                fiber *to = next_fiber();
                if (to)
                        go_on_with(to);
                else
                        report_stuck();
                now.running = nullptr;
        }
        check_shared();
}

static void prepare_threads(const launch &l)
{
        now.thread_count = (int)(l.block.x * l.block.y * l.block.z);
        for (int i = 0; i < now.thread_count; i++) {
                thread &t = now.threads[i];
                const unsigned u = (unsigned)i;
                t.linear = i;
                t.at.thread = {u % l.block.x, u / l.block.x % l.block.y, u / l.block.x / l.block.y};
                t.at.block_size = {l.block.x, l.block.y, l.block.z};
                t.at.grid_size = {l.grid.x, l.grid.y, l.grid.z};
                t.copies.clear();
        }
}

/* Fibers of threads that were left in the middle begin anew. */
static void abandon(void)
{
        now.idle = all_fibers();
        for (fiber *f : now.idle)
                reset_fiber(f);
}

static void seed(void)
{
        if (!now.seeded) {
                const char *given = getenv("RANVIER_EMULATED_SEED");
                now.seed = given ? strtoull(given, nullptr, 10) : 1;
                now.seeded = true;
        }
        now.random.seed(now.seed + 1000003 * ++now.kernels);
}

cudaError_t execute(const launch &l)
{
        seed();
        now.of = &l;
        failure = cudaSuccess;
        prepare_shared();
        prepare_threads(l);
        const uint64_t blocks = (uint64_t)l.grid.x * l.grid.y * l.grid.z;
        order o(blocks, now.random);
        for (uint64_t i = 0; i < blocks && !failure; i++) {
                const uint64_t b = o.next();
                run_block({(unsigned)(b % l.grid.x), (unsigned)(b / l.grid.x % l.grid.y),
                           (unsigned)(b / l.grid.x / l.grid.y)});
        }
        const cudaError_t ended = failure;
        if (ended)
                abandon();
        failure = cudaSuccess;
        now.of = nullptr;
        return ended;
}

} // namespace emulated

extern "C" {

void emulated_set_seed(uint64_t seed)
{
        emulated::now.seed = seed;
        emulated::now.seeded = true;
        emulated::now.kernels = 0;
}

const char *emulated_report(void)
{
        return emulated::report;
}

void emulated_forget_report(void)
{
        emulated::report[0] = 0;
}
}
