#include "models/ahead.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

void ahead_count(struct ahead *ahead, const struct kernel *kernel)
{
        ahead->gathers += kernel->kind == KERNEL_TENSOR_Z_ALL_GATHER;
        ahead->scatters += kernel->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER;
}

int ahead_joins(const struct ahead *ahead, const struct work *work)
{
        return (work_gathers_ahead(work) && ahead->gathers > 0) +
               (work_scatters_beside(work) && ahead->scatters > 0);
}

static void insert(struct kernel *list, int *count, int at, struct kernel kernel)
{
        memmove(&list[at + 1], &list[at], (size_t)(*count - at) * sizeof *list);
        list[at] = kernel;
        ++*count;
}

static const struct kernel join = {.kind = KERNEL_TENSOR_Z_JOIN, .batch = 1};

/* In the place of each gather comes the next one, and in that of the last a join. */
static void gather_ahead(struct kernel *list, int *count)
{
        int place = -1;
        for (int i = 0; i < *count; i++) {
                if (list[i].kind != KERNEL_TENSOR_Z_ALL_GATHER)
                        continue;
                if (place >= 0) {
                        list[place] = list[i];
                } else {
                        insert(list, count, i, list[i]);
                        i++;
                }
                place = i;
        }
        if (place >= 0)
                list[place] = join;
}

/* Behind each reduce-scatter comes what adds the result of the one before to the gradient. */
static void add_behind(struct kernel *list, int *count)
{
        struct kernel before = {0};
        for (int i = 0; i < *count; i++) {
                if (list[i].kind != KERNEL_TENSOR_Z_REDUCE_SCATTER)
                        continue;
                const struct kernel adds = list[i + 1];
                assert(i + 1 < *count && adds.kind == KERNEL_RESIDUAL);
                if (before.kind)
                        list[i + 1] = before;
                else
                        memmove(&list[i + 1], &list[i + 2], (size_t)(--*count - i - 1) * sizeof *list);
                before = adds;
        }
        if (before.kind) {
                insert(list, count, *count, join);
                insert(list, count, *count, before);
        }
}

/* How many collectives were issued behind those that are awaited, which are counted from 1. */
static unsigned char left_of(int issued, int awaited)
{
        assert(issued - awaited <= UCHAR_MAX);
        return (unsigned char)(issued - awaited);
}

/* The kernels behind a reduce-scatter await the one before it; those in the place of a gather await the one
 * that was begun ahead. What is last is awaited by joins. */
static void count_left(struct kernel *list, int count, bool ahead)
{
        int issued = 0, gathered = 0, scattered = 0;
        for (int i = 0; i < count; i++) {
                struct kernel *k = &list[i];
                if (!kernel_of_shards_z(k->kind))
                        continue;
                k->beside = k->kind != KERNEL_TENSOR_Z_JOIN;
                issued += k->beside;
                if (k->kind == KERNEL_TENSOR_Z_REDUCE_SCATTER) {
                        k->left = left_of(issued, scattered);
                        scattered = issued;
                } else if (k->kind == KERNEL_TENSOR_Z_ALL_GATHER) {
                        k->left = left_of(issued, ahead ? gathered : issued);
                        gathered = issued;
                } else {
                        k->left = left_of(issued, i + 2 == count && scattered ? scattered : gathered);
                }
        }
}

void ahead_order(struct kernel *list, int count, const struct work *work)
{
        if (!work_scatters_beside(work))
                return;
        add_behind(list, &count);
        if (work_gathers_ahead(work))
                gather_ahead(list, &count);
        count_left(list, count, work_gathers_ahead(work));
}
