/* Steps that one kernel does: a product and what follows it in place, LayerNorm behind a residual, and
 * attention's scores, softmax and their product with the values. */
#include "models/program.h"

#include <string.h>

/* What works in place on a product, and the kernel that does both. Operands of the fused kernel: from the one
 * that follows (0, 1, ...), or the product's a or b. */
enum { FROM_A = -1, FROM_B = -2 };
static const struct fusion {
        enum kernel_kind follows, fused;
        int in_place; /* the operand that was the product's result */
        int operands, from[5];
} fusions[] = {
        {KERNEL_BIAS, KERNEL_MATMUL_BIAS, 0, 4, {0, FROM_A, FROM_B, 1}},
        {KERNEL_BIAS_GELU, KERNEL_MATMUL_BIAS_GELU, 1, 5, {0, 1, FROM_A, FROM_B, 2}},
        {KERNEL_BIAS_RESIDUAL, KERNEL_MATMUL_BIAS_RESIDUAL, 0, 5, {0, FROM_A, FROM_B, 1, 2}},
        {KERNEL_GELU_BACKWARD, KERNEL_MATMUL_GELU_BACKWARD, 0, 4, {0, FROM_A, FROM_B, 1}},
};

static bool reads(const struct program *p, const struct step *step, int value)
{
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                if (step_reads(p, step, i) == value)
                        return true;
        return false;
}

static void remove_step(struct steps *steps, int at)
{
        steps->count--;
        memmove(&steps->at[at], &steps->at[at + 1], (size_t)(steps->count - at) * sizeof steps->at[0]);
}

/* The product whose result nobody but step `at` reads; -1: there is none. */
static int product_before(const struct program *p, const struct steps *steps, int at, int value)
{
        int product = -1;
        for (int s = 0; s < steps->count; s++) {
                const struct step *step = &steps->at[s];
                if (step->kind == KERNEL_MATMUL && step->view[2].value == value && s < at &&
                    !step->accumulate)
                        product = s;
                else if (s != at && reads(p, step, value))
                        return -1;
        }
        return product;
}

static void fuse_following(struct program *p, struct steps *steps, int at)
{
        const struct step follows = steps->at[at];
        for (size_t f = 0; f < sizeof fusions / sizeof *fusions; f++) {
                const struct fusion *fusion = &fusions[f];
                if (follows.kind != fusion->follows)
                        continue;
                const int whole = follows.view[fusion->in_place].value, part = p->values[whole].overwrites;
                const int product = product_before(p, steps, at, part);
                if (product < 0 || steps->at[product].chunked || follows.chunked)
                        return;
                const struct step of = steps->at[product];
                struct step fused = {.kind = fusion->fused, .part = of.part, .unit = of.unit};
                for (int i = 0; i < fusion->operands; i++)
                        fused.view[i] = fusion->from[i] == FROM_A   ? of.view[0]
                                        : fusion->from[i] == FROM_B ? of.view[1]
                                                                    : follows.view[fusion->from[i]];
                for (int i = fusion->operands; i < KERNEL_OPERANDS; i++)
                        fused.view[i].value = -1;
                p->values[whole].overwrites = -1; /* it is made at once */
                steps->at[product] = fused;
                remove_step(steps, at);
                return;
        }
}

static void fuse_layernorm(struct steps *steps, int at)
{
        struct step *product = &steps->at[at - 1];
        const struct step *layernorm = &steps->at[at];
        if (layernorm->kind != KERNEL_LAYERNORM || product->kind != KERNEL_MATMUL_BIAS_RESIDUAL ||
            layernorm->view[2].value != product->view[0].value)
                return;
        product->kind = KERNEL_MATMUL_BIAS_RESIDUAL_LAYERNORM;
        product->view[5] = layernorm->view[0];
        product->view[6] = layernorm->view[1];
        product->view[7] = layernorm->view[3];
        product->view[8] = layernorm->view[4];
        product->scalar[0] = layernorm->scalar[0];
        remove_step(steps, at);
}

static void fuse_attention(struct program *p, struct steps *steps, int at)
{
        if (at + 2 >= steps->count || steps->at[at + 1].kind != KERNEL_SOFTMAX)
                return;
        const struct step *scores = &steps->at[at], *values = &steps->at[at + 2];
        const int qkv = scores->view[0].value;
        if (scores->kind != KERNEL_MATMUL || values->kind != KERNEL_MATMUL || scores->view[1].value != qkv ||
            values->view[1].value != qkv)
                return;
        struct value lse = p->values[scores->view[2].value];
        lse.type = OPERAND_REAL;
        lse.axes = 3; /* one number a row */
        strcpy(lse.name, "lse");
        const short sums = (short)program_add_value(p, lse);
        struct step fused = {
                .kind = KERNEL_ATTENTION, .unit = scores->unit, .scalar = {steps->at[at + 1].scalar[0]}};
        for (int i = 0; i < KERNEL_OPERANDS; i++)
                fused.view[i].value = -1;
        fused.view[0] = values->view[2];
        fused.view[1] = (struct view){.value = sums, .rows = 7, .picked = -1};
        fused.view[2] = (struct view){.value = (short)qkv, .rows = 31, .picked = -1};
        steps->at[at] = fused;
        remove_step(steps, at + 1);
        remove_step(steps, at + 1);
}

void program_fuse(struct program *p, struct steps *steps)
{
        for (int at = 0; at < steps->count;) {
                const int before = steps->count;
                fuse_attention(p, steps, at);
                fuse_following(p, steps, at);
                if (at > 0 && at < steps->count)
                        fuse_layernorm(steps, at);
                if (steps->count == before)
                        at++; /* else what came behind it is here now */
        }
}
