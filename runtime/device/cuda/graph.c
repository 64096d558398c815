#include "runtime/device/cuda/graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct launch {
        struct kernel kernel;
        struct kernel_args args;
};

/* A group that was seen. */
struct entry {
        uint64_t hash;
        struct launch *launches; /* [count], its own */
        int count;
        cudaGraphExec_t graph; /* NULL: seen once */
        uint64_t last_use;
};

struct cuda_graphs {
        cudaStream_t stream;
        cuda_graph_launch_fn *launch;
        void *context;
        bool open;
        struct launch *launches; /* of the group that is open */
        int count, capacity;
        struct entry *entries; /* [max] */
        int known, max;
        uint64_t uses;
};

struct cuda_graphs *cuda_graphs_new(cudaStream_t stream, int max, cuda_graph_launch_fn *launch, void *context)
{
        struct cuda_graphs *graphs = calloc(1, sizeof *graphs);
        if (!graphs)
                return NULL;
        graphs->stream = stream;
        graphs->launch = launch;
        graphs->context = context;
        graphs->max = max;
        graphs->entries = calloc((size_t)max, sizeof *graphs->entries);
        if (!graphs->entries) {
                free(graphs);
                return NULL;
        }
        return graphs;
}

static void forget(struct entry *entry)
{
        if (entry->graph)
                cudaGraphExecDestroy(entry->graph); /* one that still runs is freed at its end */
        free(entry->launches);
        *entry = (struct entry){0};
}

void cuda_graphs_delete(struct cuda_graphs *graphs)
{
        if (!graphs)
                return;
        for (int i = 0; i < graphs->known; i++)
                forget(&graphs->entries[i]);
        free(graphs->entries);
        free(graphs->launches);
        free(graphs);
}

/* ---- content ---- */

_Static_assert(sizeof(struct kernel_args) == sizeof((struct kernel_args *)0)->p +
                                                     sizeof((struct kernel_args *)0)->ld +
                                                     sizeof((struct kernel_args *)0)->stride +
                                                     sizeof((struct kernel_args *)0)->inner +
                                                     sizeof((struct kernel_args *)0)->scalar,
               "operands have no padding: their bytes can be hashed and compared");

static bool same(const struct launch *a, const struct launch *b)
{
        return kernel_same(&a->kernel, &b->kernel) && memcmp(&a->args, &b->args, sizeof a->args) == 0;
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        return hash ^ hash >> 29;
}

/* Of what differs most between groups; `same` decides. */
static uint64_t content_hash(const struct launch *launches, int count)
{
        uint64_t hash = (uint64_t)count;
        for (int i = 0; i < count; i++) {
                hash = mixed(hash, (uint64_t)launches[i].kernel.kind);
                hash = mixed(hash, (uint64_t)launches[i].kernel.m);
                for (size_t p = 0; p < sizeof launches[i].args.p / sizeof *launches[i].args.p; p++)
                        hash = mixed(hash, (uint64_t)(uintptr_t)launches[i].args.p[p]);
        }
        return hash;
}

static struct entry *find(struct cuda_graphs *graphs, uint64_t hash)
{
        for (int i = 0; i < graphs->known; i++) {
                struct entry *entry = &graphs->entries[i];
                if (entry->hash != hash || entry->count != graphs->count)
                        continue;
                int at = 0;
                while (at < entry->count && same(&entry->launches[at], &graphs->launches[at]))
                        at++;
                if (at == entry->count)
                        return entry;
        }
        return NULL;
}

/* A place for one group more: a free one, or that of the least recently used. */
static struct entry *place(struct cuda_graphs *graphs)
{
        if (graphs->known < graphs->max)
                return &graphs->entries[graphs->known++];
        struct entry *oldest = &graphs->entries[0];
        for (int i = 1; i < graphs->known; i++)
                if (graphs->entries[i].last_use < oldest->last_use)
                        oldest = &graphs->entries[i];
        forget(oldest);
        return oldest;
}

static cudaError_t remember(struct cuda_graphs *graphs, uint64_t hash)
{
        const size_t bytes = (size_t)graphs->count * sizeof *graphs->launches;
        struct launch *launches = malloc(bytes);
        if (!launches)
                return cudaErrorMemoryAllocation;
        memcpy(launches, graphs->launches, bytes);
        *place(graphs) = (struct entry){
                .hash = hash, .launches = launches, .count = graphs->count, .last_use = graphs->uses};
        return cudaSuccess;
}

/* ---- launching ---- */

static void launch_all(const struct cuda_graphs *graphs)
{
        for (int i = 0; i < graphs->count; i++)
                graphs->launch(graphs->context, &graphs->launches[i].kernel, &graphs->launches[i].args);
}

/* Thread-local: other threads of the process (MPI's) may call CUDA meanwhile. */
static cudaError_t capture(const struct cuda_graphs *graphs, cudaGraphExec_t *executable)
{
        cudaGraph_t graph = NULL;
        cudaError_t status = cudaStreamBeginCapture(graphs->stream, cudaStreamCaptureModeThreadLocal);
        if (status != cudaSuccess)
                return status;
        launch_all(graphs);
        status = cudaStreamEndCapture(graphs->stream, &graph);
        if (status != cudaSuccess)
                return status;
        status = cudaGraphInstantiateWithFlags(executable, graph, 0);
        cudaGraphDestroy(graph);
        return status;
}

/* What is held back: as a graph if it was seen before. */
static cudaError_t flush(struct cuda_graphs *graphs)
{
        if (graphs->count < CUDA_GRAPH_KERNELS) {
                launch_all(graphs);
                graphs->count = 0;
                return cudaSuccess;
        }
        const uint64_t hash = content_hash(graphs->launches, graphs->count);
        struct entry *entry = find(graphs, hash);
        cudaError_t status = cudaSuccess;
        graphs->uses++;
        if (!entry) {
                launch_all(graphs);
                status = remember(graphs, hash);
        } else {
                entry->last_use = graphs->uses;
                if (!entry->graph)
                        status = capture(graphs, &entry->graph);
                if (status == cudaSuccess)
                        status = cudaGraphLaunch(entry->graph, graphs->stream);
        }
        graphs->count = 0;
        return status;
}

void cuda_graphs_begin(struct cuda_graphs *graphs)
{
        assert(!graphs->open && graphs->count == 0);
        graphs->open = true;
}

bool cuda_graphs_open(const struct cuda_graphs *graphs)
{
        return graphs->open;
}

cudaError_t cuda_graphs_add(struct cuda_graphs *graphs, const struct kernel *kernel,
                            const struct kernel_args *args)
{
        assert(graphs->open);
        if (!kernel_repeats(kernel->kind)) {
                const cudaError_t status = flush(graphs);
                if (status == cudaSuccess)
                        graphs->launch(graphs->context, kernel, args);
                return status;
        }
        if (graphs->count == graphs->capacity) {
                const int larger = graphs->capacity ? 2 * graphs->capacity : 256;
                struct launch *launches = realloc(graphs->launches, (size_t)larger * sizeof *launches);
                if (!launches)
                        return cudaErrorMemoryAllocation;
                graphs->launches = launches;
                graphs->capacity = larger;
        }
        graphs->launches[graphs->count++] = (struct launch){*kernel, *args};
        return cudaSuccess;
}

cudaError_t cuda_graphs_end(struct cuda_graphs *graphs)
{
        assert(graphs->open);
        graphs->open = false;
        return flush(graphs);
}
