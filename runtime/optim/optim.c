#include "runtime/optim/optim.h"

#include <math.h>

double optim_lr(const struct optim *optim, int64_t step)
{
        const double pi = 3.14159265358979323846;
        if (step < optim->warmup)
                return optim->lr * (double)(step + 1) / (double)optim->warmup;
        if (step >= optim->steps)
                return optim->min_lr;
        const double progress = (double)(step - optim->warmup) / (double)(optim->steps - optim->warmup);
        return optim->min_lr + 0.5 * (1 + cos(pi * progress)) * (optim->lr - optim->min_lr);
}

void optim_norm(struct nn_stage *nn)
{
        struct kernel norm = workload_norm(&nn->gpt, &nn->stage);
        kernels_squared_norm(nn->device, &nn->scalars[1], nn->gradients, norm.m, false);
}

double optim_clip_factor(const struct optim *optim, double squared_norm)
{
        const double norm = sqrt(squared_norm);
        return optim->clip > 0 && norm > optim->clip ? optim->clip / norm : 1;
}

void optim_update(struct nn_stage *nn, const struct optim *optim, int64_t step, int64_t offset, int64_t count)
{
        kernels_adamw(nn->device, nn->weights + offset, nn->gradients + offset, nn->adam_m + offset,
                      nn->adam_v + offset, nn->ranges, &nn->scalars[2], offset, count,
                      &(struct adamw){.lr = optim_lr(optim, step),
                                      .beta1 = optim->beta1,
                                      .beta2 = optim->beta2,
                                      .epsilon = optim->epsilon,
                                      .weight_decay = optim->weight_decay,
                                      .step = step + 1});
}
