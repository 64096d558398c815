/* Collectives of shards through host memory, over a device and a network of this file: the shards are in one
 * process, their copies and collectives happen when they are polled. The buffer holds but a few rows, so that
 * there are many pieces, and several collectives wait for each other. */
#include "runtime/real/staged.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHARDS = 3, ROWS = 11, WIDTH = 4, ELEMENTS = SHARDS * ROWS * WIDTH, TOKENS = 64 };

/* ---- a device whose copies are made when they are told of ---- */

static struct shard {
        struct device device;
        struct net net;
        struct staged *staged;
        float host[6 * WIDTH]; /* two rows of each shard, or six of a sum */
        float all[ELEMENTS], own[ROWS * WIDTH];
        int tokens[TOKENS], first, last; /* that nobody was told of yet */
        /* Copies that are queued, and for each token how many there are up to it. */
        struct {
                void *to;
                const void *from;
                size_t bytes;
        } copies[TOKENS];
        int copies_of[TOKENS], copied, queued;
        /* The collective that it has come to. */
        enum kernel_kind kind;
        float *buffer;
        int64_t elements;
        int token;
        bool here;
} shards[SHARDS];

static struct shard *of_device(struct device *device)
{
        return (struct shard *)(void *)device;
}

static struct shard *of_net(struct net *net)
{
        return (struct shard *)(void *)((char *)net - offsetof(struct shard, net));
}

static void tell(struct shard *shard, int token)
{
        assert_true(shard->last < TOKENS);
        shard->copies_of[shard->last] = shard->queued;
        shard->tokens[shard->last++] = token;
}

static void copy(struct device *device, enum device_lane lane, void *to, const void *from, int64_t bytes)
{
        struct shard *shard = of_device(device);
        const char *host = lane == DEVICE_DEVICE_TO_HOST ? to : from;
        assert_true(host >= (const char *)shard->host &&
                    host + bytes <= (const char *)(shard->host + 6 * WIDTH));
        assert_true(shard->queued < TOKENS);
        shard->copies[shard->queued].to = to;
        shard->copies[shard->queued].from = from;
        shard->copies[shard->queued++].bytes = (size_t)bytes;
}

static void record(struct device *device, enum device_lane lane, int token)
{
        (void)lane;
        tell(of_device(device), token);
}

static const struct device_ops device_ops = {.copy = copy, .record = record};

/* ---- a network that works when all shards have come ---- */

static void work_together(void)
{
        const int64_t elements = shards[0].elements, part = elements / SHARDS;
        for (int i = 0; i < SHARDS; i++) {
                if (!shards[i].here)
                        return;
                assert_true(shards[i].kind == shards[0].kind && shards[i].elements == elements);
        }
        for (int64_t e = 0; e < elements; e++) {
                float sum = 0;
                for (int i = 0; i < SHARDS; i++)
                        sum += shards[i].buffer[e];
                for (int i = 0; i < SHARDS; i++)
                        if (shards[i].kind == KERNEL_TENSOR_ALL_GATHER)
                                shards[i].buffer[e] = shards[e / part].buffer[e];
                        else if (shards[i].kind == KERNEL_TENSOR_ALLREDUCE || e / part == i)
                                shards[i].buffer[e] = sum;
        }
        for (int i = 0; i < SHARDS; i++) {
                shards[i].here = false;
                tell(&shards[i], shards[i].token);
        }
}

static void come(struct net *net, enum kernel_kind kind, void *buffer, int64_t elements, enum net_type type,
                 enum net_group group, int token)
{
        struct shard *shard = of_net(net);
        assert_false(shard->here);
        assert_ptr_equal(buffer, shard->host);
        assert_true(type == NET_FLOAT && group == NET_TENSOR);
        shard->kind = kind;
        shard->buffer = buffer;
        shard->elements = elements;
        shard->token = token;
        shard->here = true;
        work_together();
}

static void iallreduce(struct net *net, void *buffer, int64_t elements, enum net_type type,
                       enum net_group group, int token)
{
        come(net, KERNEL_TENSOR_ALLREDUCE, buffer, elements, type, group, token);
}

static void ireduce_scatter(struct net *net, void *buffer, void *own, int64_t elements, enum net_type type,
                            enum net_group group, int token)
{
        assert_null(own);
        come(net, KERNEL_TENSOR_REDUCE_SCATTER, buffer, elements, type, group, token);
}

static void iall_gather(struct net *net, void *buffer, const void *own, int64_t elements, enum net_type type,
                        enum net_group group, int token)
{
        assert_null(own);
        come(net, KERNEL_TENSOR_ALL_GATHER, buffer, elements, type, group, token);
}

static const struct net_ops net_ops = {
        .iallreduce = iallreduce, .ireduce_scatter = ireduce_scatter, .iall_gather = iall_gather};

/* ---- */

static float value(int shard, int64_t e)
{
        return (float)(1000 * shard + e);
}

static void open_all(void)
{
        memset(shards, 0, sizeof shards);
        for (int i = 0; i < SHARDS; i++) {
                struct shard *shard = &shards[i];
                shard->device.ops = &device_ops;
                shard->net.ops = &net_ops;
                shard->staged =
                        staged_new(&shard->device, &shard->net, shard->host, sizeof shard->host, SHARDS, i);
                assert_non_null(shard->staged);
                for (int64_t e = 0; e < ELEMENTS; e++)
                        shard->all[e] = value(i, e);
                for (int64_t e = 0; e < ROWS * WIDTH; e++)
                        shard->own[e] = value(i, 500 + e);
        }
}

/* Polls the shards in turns until there is nothing to tell; returns how many collectives ended on each. */
static int run_all(void)
{
        int ended[SHARDS] = {0};
        for (bool more = true; more;) {
                more = false;
                for (int i = 0; i < SHARDS; i++) {
                        struct shard *shard = &shards[i];
                        if (shard->first == shard->last)
                                continue;
                        more = true;
                        for (; shard->copied < shard->copies_of[shard->first]; shard->copied++)
                                memcpy(shard->copies[shard->copied].to, shard->copies[shard->copied].from,
                                       shard->copies[shard->copied].bytes);
                        const int token = shard->tokens[shard->first++];
                        if (shard->first == shard->last)
                                shard->first = shard->last = shard->copied = shard->queued = 0;
                        if (!staged_goes_on(shard->staged, token))
                                ended[i]++;
                }
        }
        for (int i = 1; i < SHARDS; i++)
                assert_int_equal(ended[i], ended[0]);
        return ended[0];
}

static void close_all(void)
{
        for (int i = 0; i < SHARDS; i++)
                staged_delete(shards[i].staged);
}

static void begin(enum kernel_kind kind, int64_t rows, bool own, int token)
{
        for (int i = 0; i < SHARDS; i++)
                staged_begin(shards[i].staged,
                             &(struct staged_request){.kind = kind,
                                                      .all = (char *)shards[i].all,
                                                      .own = own ? (char *)shards[i].own : NULL,
                                                      .rows = rows,
                                                      .width = WIDTH,
                                                      .type = NET_FLOAT,
                                                      .element_bytes = sizeof(float),
                                                      .token = token});
}

static float sum_at(int64_t e)
{
        float sum = 0;
        for (int i = 0; i < SHARDS; i++)
                sum += value(i, e);
        return sum;
}

static void sums_are_made_piece_by_piece(void **state)
{
        (void)state;
        open_all();
        begin(KERNEL_TENSOR_ALLREDUCE, SHARDS * ROWS, false, 7);
        assert_int_equal(run_all(), 1);
        for (int i = 0; i < SHARDS; i++)
                for (int64_t e = 0; e < ELEMENTS; e++)
                        assert_true(shards[i].all[e] == sum_at(e));
        close_all();
}

static void rows_are_gathered_from_their_places_or_from_elsewhere(void **state)
{
        (void)state;
        for (int own = 0; own < 2; own++) {
                open_all();
                begin(KERNEL_TENSOR_ALL_GATHER, ROWS, own, 7);
                assert_int_equal(run_all(), 1);
                for (int i = 0; i < SHARDS; i++)
                        for (int64_t e = 0; e < ELEMENTS; e++) {
                                const int from = (int)(e / (ROWS * WIDTH));
                                const int64_t at = e % (ROWS * WIDTH);
                                assert_true(shards[i].all[e] ==
                                            (own ? value(from, 500 + at) : value(from, e)));
                        }
                close_all();
        }
}

static void sums_are_scattered_to_their_places_or_elsewhere(void **state)
{
        (void)state;
        for (int own = 0; own < 2; own++) {
                open_all();
                begin(KERNEL_TENSOR_REDUCE_SCATTER, ROWS, own, 7);
                assert_int_equal(run_all(), 1);
                for (int i = 0; i < SHARDS; i++)
                        for (int64_t e = 0; e < ROWS * WIDTH; e++) {
                                const int64_t at = i * ROWS * WIDTH + e;
                                assert_true((own ? shards[i].own[e] : shards[i].all[at]) == sum_at(at));
                        }
                close_all();
        }
}

/* Also those of one token, as pieces of rows have it; other tokens are nobody's. */
static void one_begins_when_the_one_before_has_ended(void **state)
{
        (void)state;
        open_all();
        begin(KERNEL_TENSOR_REDUCE_SCATTER, ROWS, false, 7);
        begin(KERNEL_TENSOR_ALL_GATHER, ROWS, false, 7);
        begin(KERNEL_TENSOR_ALLREDUCE, 1, false, 8);
        for (int i = 0; i < SHARDS; i++)
                assert_false(staged_goes_on(shards[i].staged, 9));
        assert_int_equal(run_all(), 3);
        for (int i = 0; i < SHARDS; i++)
                for (int64_t e = 0; e < ELEMENTS; e++)
                        assert_true(shards[i].all[e] == (e < WIDTH ? SHARDS : 1) * sum_at(e));
        close_all();
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sums_are_made_piece_by_piece),
                cmocka_unit_test(rows_are_gathered_from_their_places_or_from_elsewhere),
                cmocka_unit_test(sums_are_scattered_to_their_places_or_elsewhere),
                cmocka_unit_test(one_begins_when_the_one_before_has_ended),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
