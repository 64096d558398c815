#include "runtime/driver_real.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>

static double real_now(void *world)
{
        return device_seconds() - ((struct driver_real *)world)->epoch;
}

static void remember(struct driver_real *d, const struct op *op)
{
        if (op->serial >= d->capacity) {
                d->capacity = 2 * op->serial + 16;
                d->ops = realloc(d->ops, (size_t)d->capacity * sizeof *d->ops);
                if (!d->ops)
                        abort();
        }
        d->ops[op->serial] = *op;
}

static void issue_load(struct driver_real *d, const struct op *op)
{
        const struct device_ops *device = d->device->ops;
        if (d->nn->stage.first)
                device->copy(d->device, DEVICE_HOST_TO_DEVICE, d->nn->tokens, d->host_tokens,
                             d->plan.load_bytes);
        if (d->nn->stage.last)
                device->copy(d->device, DEVICE_HOST_TO_DEVICE, d->nn->targets, d->host_targets,
                             d->plan.load_bytes);
        device->record(d->device, DEVICE_HOST_TO_DEVICE, op->serial);
}

static void issue_compute(struct driver_real *d, const struct op *op)
{
        switch (op->kind) {
        case OP_FORWARD:
                nn_forward(d->nn, op->micro_batch, op->input, op->slot, d->loss_scale, d->plan.forward_only);
                break;
        case OP_BACKWARD:
                assert(op->parts == (OP_INPUT_GRADIENT | OP_WEIGHT_GRADIENT)); /* no policy parts them yet */
                nn_backward(d->nn, op->micro_batch, op->input, op->slot, op->gradient);
                break;
        case OP_NORM:
                optim_norm(d->nn);
                break;
        default:
                assert(op->kind == OP_UPDATE);
                optim_update(d->nn, d->optim, d->step, op->offset, op->count);
        }
        d->device->ops->record(d->device, DEVICE_COMPUTE, op->serial);
}

static void issue_collective(struct driver_real *d, const struct op *op)
{
        const struct net_ops *net = d->net->ops;
        if (op->kind == OP_REDUCE_SCALARS) {
                if (plan_replica(&d->plan, d->net->rank) > 0)
                        d->nn->scalars[1] = 0; /* all replicas hold the same gradients: one counts */
                net->iallreduce(d->net, d->nn->scalars, 2, NET_DOUBLE, NET_WORLD, op->serial);
                return;
        }
        static const enum net_group groups[] = {[GROUP_EMBEDDING] = NET_EMBEDDING, [GROUP_DATA] = NET_DATA};
        enum net_type type = sizeof(real) == sizeof(float) ? NET_FLOAT : NET_DOUBLE;
        net->iallreduce(d->net, d->nn->gradients + op->offset, op->count, type, groups[op->group],
                        op->serial);
}

static void real_issue(void *world, const struct op *op)
{
        struct driver_real *d = world;
        const struct net_ops *net = d->net->ops;
        int rank = d->net->rank, token = op->serial;
        remember(d, op);
        switch (op->kind) {
        case OP_LOAD:
                issue_load(d, op);
                break;
        case OP_SEND_ACTIVATION:
                net->isend(d->net, nn_output(d->nn, op->slot), op->bytes, rank + 1, NET_TAG_ACTIVATION,
                           op->micro_batch, token);
                break;
        case OP_SEND_GRADIENT:
                net->isend(d->net, d->nn->gradient_buffers[op->gradient], op->bytes, rank - 1,
                           NET_TAG_GRADIENT, op->micro_batch, token);
                break;
        case OP_RECEIVE_ACTIVATION:
                net->ireceive(d->net, d->nn->inputs[op->input], op->bytes, rank - 1, NET_TAG_ACTIVATION,
                              token);
                break;
        case OP_RECEIVE_GRADIENT:
                net->ireceive(d->net, d->nn->gradient_buffers[op->gradient], op->bytes, rank + 1,
                              NET_TAG_GRADIENT, token);
                break;
        case OP_ALLREDUCE:
        case OP_REDUCE_SCALARS:
                issue_collective(d, op);
                break;
        default:
                issue_compute(d, op);
        }
}

struct driver driver_real(struct driver_real *d)
{
        return (struct driver){.issue = real_issue, .now = real_now, .world = d};
}

void driver_real_free(struct driver_real *d)
{
        free(d->ops);
}

static void finish(struct driver_real *d, struct engine *engine, int token, int micro_batch)
{
        struct op done = d->ops[token];
        if (done.kind == OP_RECEIVE_ACTIVATION || done.kind == OP_RECEIVE_GRADIENT)
                done.micro_batch = micro_batch;
        if (done.kind == OP_REDUCE_SCALARS &&
            d->plan.clip) /* without clipping, updates may be reading it: it stays 1 */
                d->nn->scalars[2] = optim_clip_factor(d->optim, d->nn->scalars[1]);
        engine_complete(engine, &done);
}

void driver_real_run(struct driver_real *d, struct engine *engine)
{
        d->nn->scalars[0] = d->nn->scalars[1] = 0;
        d->nn->scalars[2] = 1;
        engine_start(engine);
        while (!engine_done(engine)) {
                struct net_done message;
                int token = d->device->ops->poll(d->device);
                if (token >= 0)
                        finish(d, engine, token, -1);
                else if (d->net->ops->test(d->net, &message))
                        finish(d, engine, message.token, message.micro_batch);
                else
                        sched_yield();
        }
}
