#include "calibrate/trace/share.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a place of the layers took in one direction; a product's backward is two. */
struct took {
        struct share all;
        double weight; /* of all.product: of the weight's gradient */
};

/* A step that is gone through. */
struct sharing {
        const struct layers *layers;
        const struct traced_steps *steps;
        const char *path;
        struct rv_error_info *err;
        struct took (*took)[2]; /* [places][forward, backward] */
        /* The next product of the forward, and how many of its columns were found. */
        int product;
        int64_t columns;
        bool begun, backward; /* the forward has; a backward came behind it */
        /* The place of each of autograd's numbers, from the first one on. */
        int *place_of, capacity;
        int64_t first;
        int place;    /* of the last operator of a backward */
        double now;   /* up to which the host's time is shared out, microseconds */
        double after; /* seconds between backward and optimizer */
        bool normed;
        double forward_work, backward_work; /* m n k of linear products */
        double forward_end, host_begin;     /* microseconds */
        struct shared_step *shared;
};

double share_seconds(const struct share *share)
{
        return share->product + share->quadratic + share->linear + share->constant;
}

/* ---- what an operator's time grows with ---- */

/* Of (..., S, ...) and (N, ...): sequences, or their heads, times tokens of each. */
static bool of_tokens(const struct layers *layers, const struct kineto_input *input)
{
        const int64_t N = layers->B * layers->S;
        double before = 1; /* a file may say what is too much for an integer */
        for (int i = 0; i < input->axes; i++) {
                if (input->extent[i] == N ||
                    (i > 0 && input->extent[i] == layers->S && fmod(before, (double)layers->B) == 0))
                        return true;
                before *= (double)input->extent[i];
        }
        return false;
}

static bool of_pairs(const struct layers *layers, const struct kineto_input *input)
{
        const int last = input->axes - 1;
        return last > 0 && input->extent[last] == layers->S && input->extent[last - 1] == layers->S &&
               of_tokens(layers, input);
}

static double *part_of(const struct sharing *s, const struct step_operator *of, struct share *share)
{
        const struct kineto *trace = s->steps->trace;
        const struct kineto_event *event = &trace->events[of->event];
        bool tokens = false;
        if (of->row->class == OPERATOR_ATTENTION)
                return &share->quadratic;
        if (event->kind == KINETO_RUNTIME) /* a kernel of no operator: of its size nothing is known */
                return &share->linear;
        for (int i = 0; i < kineto_input_count(trace, event); i++) {
                const struct kineto_input input = kineto_input(trace, event, i);
                if (of_pairs(s->layers, &input))
                        return &share->quadratic;
                tokens = tokens || of_tokens(s->layers, &input);
        }
        return tokens ? &share->linear : &share->constant;
}

/* ---- forward ---- */

static const struct kernel *product_at(const struct layers *layers, int product)
{
        return &layers->kernels[layers->places[2 * product + 1].forward.first];
}

static int no_shapes(const struct sharing *s)
{
        return rv_fail(s->err, RV_EINPUT,
                       "%.200s: the trace has no shapes (record_shapes was off): profile again with "
                       "record_shapes=True",
                       s->path);
}

static int other_product(const struct sharing *s, const struct kernel *found)
{
        char wanted[96] = "none any more";
        if (s->product < s->layers->products) {
                const struct kernel *next = product_at(s->layers, s->product);
                snprintf(wanted, sizeof wanted, "(%lld x %lld) by (%lld x %lld)", (long long)next->m,
                         (long long)next->k, (long long)next->k, (long long)(next->n - s->columns));
        }
        return rv_fail(s->err, RV_EINPUT,
                       "%.200s: the forward's linear product %d is (%lld x %lld) by (%lld x %lld), where the "
                       "model has %s: --model, --micro-batch-size %lld and --seq-len %lld must be those of "
                       "the trace, and nothing recomputed",
                       s->path, s->product + 1, (long long)found->m, (long long)found->k, (long long)found->k,
                       (long long)found->n, wanted, (long long)s->layers->B, (long long)s->layers->S);
}

static bool has_attention(const struct layers *layers, const struct layers_range *range)
{
        for (int i = range->first; i < range->first + range->count; i++)
                if (layers->kernels[i].kind == KERNEL_ATTENTION)
                        return true;
        return false;
}

static double work_of(const struct kernel *product)
{
        return (double)product->m * (double)product->n * (double)product->k;
}

/* Finds the place of a product of the forward. One that has hardly any work is none of the model's layers:
 * angles of rotary positions may be made by such a product. */
static int forward_product(struct sharing *s, const struct step_operator *of, int *place)
{
        static const double HARDLY_ANY = 0.01;
        const struct kernel found = operator_product(s->steps->trace, &s->steps->trace->events[of->event]);
        if (!found.batch)
                return no_shapes(s);
        const struct kernel *next =
                s->product < s->layers->products ? product_at(s->layers, s->product) : NULL;
        if (next && found.batch == 1 && found.m == next->m && found.k == next->k &&
            s->columns + found.n <= next->n) {
                *place = 2 * s->product + 1;
                s->forward_work += work_of(&found);
                s->columns += found.n;
                if (s->columns == next->n) {
                        s->product++;
                        s->columns = 0;
                }
                return RV_OK;
        }
        *place = 2 * (s->product + (s->columns > 0));
        if (has_attention(s->layers, &s->layers->places[*place].forward) ||
            (next && (double)found.batch * work_of(&found) < HARDLY_ANY * work_of(next)))
                return RV_OK;
        return other_product(s, &found);
}

/* Notes where the operator's numbers are, its own and those of what it is a part of. */
static void note_place(struct sharing *s, const struct step_operator *of, int place)
{
        enum { MOST = 1 << 26 };
        for (int event = of->event; event >= 0; event = s->steps->parent[event]) {
                const int64_t sequence = s->steps->trace->events[event].sequence;
                if (sequence < 0)
                        continue;
                if (!s->capacity)
                        s->first = sequence;
                if (sequence < s->first || sequence - s->first >= MOST)
                        continue;
                while (sequence - s->first >= s->capacity) {
                        const int more = s->capacity ? 2 * s->capacity : 1024;
                        s->place_of = realloc(s->place_of, (size_t)more * sizeof *s->place_of);
                        if (!s->place_of)
                                abort();
                        for (int i = s->capacity; i < more; i++)
                                s->place_of[i] = -1;
                        s->capacity = more;
                }
                s->place_of[sequence - s->first] = place;
        }
}

/* ---- all operators ---- */

/* What the host did up to an operator's beginning, and the operator itself. A GPU's trace counts what the GPU
 * did. */
static double idle_before(struct sharing *s, const struct step_operator *of)
{
        const double idle = fmax(0, of->start - s->now);
        s->now = fmax(s->now, of->end);
        return s->steps->trace->on_gpu ? 0 : 1e-6 * idle;
}

static int share_forward(struct sharing *s, const struct step_operator *of)
{
        const double seconds = step_seconds(s->steps, of), idle = idle_before(s, of);
        int place = 2 * (s->product + (s->columns > 0)), rc = RV_OK;
        const bool product = of->row->class == OPERATOR_PRODUCT;
        if (product && (rc = forward_product(s, of, &place)) != RV_OK)
                return rc;
        struct share *share = &s->took[place][0].all;
        share->constant += idle;
        if (product && place % 2)
                share->product += seconds;
        else if (product)
                share->quadratic += seconds;
        else
                *part_of(s, of, share) += seconds;
        note_place(s, of, place);
        s->forward_end = of->end;
        return RV_OK;
}

static int compiled(const struct sharing *s, const struct kernel *found)
{
        return rv_fail(
                s->err, RV_ENOTBUILT,
                "%.200s: the backward's product (%lld x %lld) by (%lld x %lld) is of no linear product of "
                "the forward: steps that torch.compile made are not mapped yet; trace them without it",
                s->path, (long long)found->m, (long long)found->k, (long long)found->k, (long long)found->n);
}

static int share_backward(struct sharing *s, const struct step_operator *of)
{
        const struct kineto *trace = s->steps->trace;
        const double seconds = step_seconds(s->steps, of), idle = idle_before(s, of);
        const int64_t sequence = trace->events[of->backward].sequence;
        if (sequence >= s->first && sequence - s->first < s->capacity &&
            s->place_of[sequence - s->first] >= 0)
                s->place = s->place_of[sequence - s->first];
        struct took *took = &s->took[s->place][1];
        took->all.constant += idle;
        if (of->row->class != OPERATOR_PRODUCT) {
                *part_of(s, of, &took->all) += seconds;
                return RV_OK;
        }
        const struct kernel found = operator_product(trace, &trace->events[of->event]);
        s->backward_work += found.batch == 1 ? work_of(&found) : 0;
        if (s->place % 2 == 0) {
                took->all.quadratic += seconds;
                return has_attention(s->layers, &s->layers->places[s->place].forward) ? RV_OK
                                                                                      : compiled(s, &found);
        }
        took->all.product += seconds;
        if (found.k == s->layers->B * s->layers->S && found.m != found.k)
                took->weight += seconds;
        return RV_OK;
}

/* Between the backward and the optimizer, and before the forward. */
static void share_rest(struct sharing *s, const struct step_operator *of)
{
        const double seconds = step_seconds(s->steps, of) + idle_before(s, of);
        if (!s->backward) {
                s->shared->other += seconds;
                return;
        }
        s->after += seconds;
        s->normed = s->normed || of->row->kernel == KERNEL_SQUARED_NORM;
}

static void begin_forward(struct sharing *s, const struct step_operator *of)
{
        s->begun = true;
        s->backward = false;
        s->product = 0;
        s->columns = 0;
        s->host_begin = of->start;
        s->shared->micro_batches++;
        if (!s->steps->trace->on_gpu)
                s->shared->other += 1e-6 * fmax(0, of->start - s->now);
        s->now = fmax(s->now, of->start);
}

static int not_all(const struct sharing *s)
{
        return rv_fail(s->err, RV_EINPUT,
                       "%.200s: a forward ends after %d of the %d linear products of the model: --model must "
                       "be that of the trace",
                       s->path, s->product, s->layers->products);
}

/* What scales gradients by their norm is part of the norm. */
static bool of_optimizer(const struct sharing *s, const struct step_operator *of)
{
        const bool whole = s->steps->trace->events[of->event].kind == KINETO_ANNOTATION;
        return of->row->class == OPERATOR_OPTIMIZER && of->backward < 0 &&
               (whole || !s->normed || s->shared->optimizer > 0);
}

/* The host launches from `start` to `end`, but while it waits for the GPU; without a GPU, nothing. */
static void add_host(const struct sharing *s, double start, double end)
{
        if (end > start && s->steps->trace->on_gpu)
                s->shared->host += 1e-6 * (end - start - steps_waits(s->steps, start, end));
}

static int share_operator(struct sharing *s, const struct step_operator *of)
{
        const enum operator_class class = of->row->class;
        if (of_optimizer(s, of)) {
                s->shared->optimizer += step_seconds(s->steps, of) + idle_before(s, of);
                return RV_OK;
        }
        if (of->backward >= 0 && s->begun) {
                if (s->product < s->layers->products)
                        return not_all(s);
                if (!s->backward)
                        add_host(s, s->host_begin, s->forward_end);
                add_host(s, s->now, of->end);
                s->backward = true;
                return share_backward(s, of);
        }
        if ((!s->begun || s->backward) && of->backward < 0 &&
            (class == OPERATOR_EMBEDDING || class == OPERATOR_PRODUCT))
                begin_forward(s, of);
        if (s->begun && !s->backward)
                return share_forward(s, of);
        share_rest(s, of);
        return RV_OK;
}

/* ---- to kernels ---- */

/* The kernels of a place share alike what does not grow, and by their bytes what grows with the tokens; what
 * is quadratic is attention's. */
static void give(const struct sharing *s, const struct share *share, const struct layers_range *to)
{
        const struct kernel *kernels = s->layers->kernels + to->first;
        struct share *shares = s->shared->kernels + to->first;
        double bytes = 0;
        int attention = 0;
        for (int i = 0; i < to->count; i++) {
                bytes += kernel_bytes(&kernels[i]);
                attention += kernel_descriptor(kernels[i].kind)->products > 1;
        }
        for (int i = 0; i < to->count; i++) {
                const bool attends = kernel_descriptor(kernels[i].kind)->products > 1;
                const double part = kernel_bytes(&kernels[i]) / bytes;
                shares[i].constant += share->constant / to->count;
                shares[i].linear += part * (share->linear + share->product);
                if (attention == 0)
                        shares[i].linear += part * share->quadratic;
                else if (attends)
                        shares[i].quadratic += share->quadratic / attention;
        }
}

/* A product with what is around it. */
static void give_product(const struct sharing *s, const struct share *share, int kernel)
{
        struct share *to = &s->shared->kernels[kernel];
        to->product += share->product;
        to->linear += share->linear + share->quadratic;
        to->constant += share->constant;
}

/* The two products of a backward, and the sum of a bias's gradient, which is what is linear there. */
static void give_backward(const struct sharing *s, const struct took *took, const struct layers_range *to)
{
        const struct share *all = &took->all;
        struct share *shares = s->shared->kernels + to->first;
        shares[0].product += all->product - took->weight;
        shares[1].product += took->weight;
        for (int i = 0; i < to->count; i++)
                shares[i].constant += all->constant / to->count;
        if (to->count > 2) {
                shares[2].linear += all->linear + all->quadratic;
                return;
        }
        shares[0].linear += 0.5 * (all->linear + all->quadratic);
        shares[1].linear += 0.5 * (all->linear + all->quadratic);
}

/* What stands where no kernel of ours does is part of the product that was run before it. */
static void give_places(const struct sharing *s)
{
        const struct layers_place *places = s->layers->places;
        const int last = 2 * s->layers->products;
        for (int i = 0; i <= last; i++) {
                const struct took *took = s->took[i];
                const int before = i > 0 ? i - 1 : 1, after = i < last ? i + 1 : last - 1;
                if (i % 2) {
                        give_product(s, &took[0].all, places[i].forward.first);
                        give_backward(s, &took[1], &places[i].backward);
                        continue;
                }
                if (places[i].forward.count)
                        give(s, &took[0].all, &places[i].forward);
                else
                        give_product(s, &took[0].all, places[before].forward.first);
                if (places[i].backward.count)
                        give(s, &took[1].all, &places[i].backward);
                else if (places[i].forward.count)
                        give(s, &took[1].all, &places[i].forward);
                else
                        give_product(s, &took[1].all, places[after].backward.first);
        }
}

/* ---- a step ---- */

/* Whether a step that was gone through is whole. */
static int check_step(const struct sharing *s)
{
        static const double GRADIENTS = 2, ROUNDED = 1.001;
        if (!s->begun)
                return rv_fail(s->err, RV_EINPUT,
                               "%.200s: a step has no forward: all of its products are autograd's", s->path);
        if (!s->backward)
                return s->product < s->layers->products
                               ? not_all(s)
                               : rv_fail(s->err, RV_EINPUT, "%.200s: a step has a forward without a backward",
                                         s->path);
        if (s->backward_work > ROUNDED * GRADIENTS * s->forward_work)
                return rv_fail(
                        s->err, RV_ENOTBUILT,
                        "%.200s: linear products of the backward have %.2f times the operations of the "
                        "forward's, where gradients have 2: steps that recompute activations are not "
                        "mapped yet; trace them without",
                        s->path, s->backward_work / s->forward_work);
        return RV_OK;
}

int share_dtype(const struct traced_steps *steps, const struct trace_step *step)
{
        double work[DTYPES] = {0};
        int most = -1;
        for (int i = step->first; i < step->first + step->count; i++) {
                const struct kineto_event *event = &steps->trace->events[steps->operators[i].event];
                if (steps->operators[i].row->class != OPERATOR_PRODUCT || event->dtype < 0)
                        continue;
                const struct kernel product = operator_product(steps->trace, event);
                work[event->dtype] += (double)product.batch * work_of(&product);
                if (most < 0 || work[event->dtype] > work[most])
                        most = event->dtype;
        }
        return most;
}

int share_step(struct shared_step *shared, const struct layers *layers, const struct traced_steps *steps,
               const struct trace_step *step, const char *path, struct rv_error_info *err)
{
        struct share *kernels = shared->kernels;
        *shared = (struct shared_step){.kernels = kernels, .seconds = 1e-6 * (step->end - step->start)};
        memset(kernels, 0, (size_t)layers->count * sizeof *kernels);
        struct sharing s = {.layers = layers,
                            .steps = steps,
                            .path = path,
                            .err = err,
                            .now = step->start,
                            .shared = shared,
                            .took = calloc(2 * (size_t)layers->products + 1, sizeof *s.took)};
        int rc = RV_OK;
        if (!s.took)
                abort();
        for (int i = step->first; i < step->first + step->count && rc == RV_OK; i++)
                rc = share_operator(&s, &steps->operators[i]);
        rc = rc == RV_OK ? check_step(&s) : rc;
        if (rc == RV_OK) {
                *(s.normed ? &shared->norm : &shared->other) += s.after;
                if (!steps->trace->on_gpu)
                        shared->other += 1e-6 * fmax(0, step->end - s.now);
                give_places(&s);
        }
        free(s.place_of);
        free(s.took);
        return rc;
}
