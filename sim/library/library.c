#include "sim/library/ranvier.h"

#include "runtime/base/command_line.h"
#include "runtime/base/version.h"
#include "runtime/launch/launch.h"
#include "runtime/plan/framework.h"
#include "sim/world/interval.h"
#include "sim/world/named_machine.h"
#include "sim/world/paper_batch.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(RANVIER_EINPUT == (int)RV_EINPUT && RANVIER_EPLAN == (int)RV_EPLAN &&
                       RANVIER_ESYSTEM == (int)RV_ESYSTEM && RANVIER_ENOTBUILT == (int)RV_ENOTBUILT,
               "codes are the same inside and outside");
_Static_assert(RANVIER_MESSAGE >= sizeof((struct rv_error_info *)0)->sentence, "a sentence fits");

struct ranvier_machine {
        struct named_machine named; /* profile and platform may point into it */
        char *texts[2];             /* copies of profile and platform as given, or NULL */
        const char *profile, *platform;
        struct machine machine;
};

const char *ranvier_version(void)
{
        return RANVIER_VERSION;
}

/* Ends a call: the sentence to the caller. */
static int tell(int rc, const struct rv_error_info *err, char *message, size_t size)
{
        if (message && size)
                snprintf(message, size, "%s", rc ? err->sentence : "");
        return rc;
}

/* ---- machines ---- */

static int copy_text(const char *text, char **copy, struct rv_error_info *err)
{
        *copy = text ? strdup(text) : NULL;
        return text && !*copy ? rv_fail(err, RV_ESYSTEM, "no memory for a machine") : RV_OK;
}

static int open_machine(struct ranvier_machine *m, const char *name, int gpus, struct rv_error_info *err)
{
        m->profile = m->texts[0];
        m->platform = m->texts[1];
        int rc = named_machine_take(&m->named, name, &m->profile, &m->platform, err);
        if (rc == RV_OK && name)
                rc = named_machine_check(&m->named, gpus, err);
        if (rc == RV_OK && (!m->profile || !m->platform))
                rc = rv_fail(err, RV_EINPUT,
                             "a machine needs a name, or a profile and a platform: the %s is missing",
                             m->profile ? "platform" : "profile");
        if (rc == RV_OK && gpus < 1)
                rc = rv_fail(err, RV_EINPUT, "a machine has 1 GPU or more, not %d", gpus);
        return rc ? rc : machine_open(&m->machine, m->profile, m->platform, gpus, false, err);
}

static void free_texts(struct ranvier_machine *m)
{
        free(m->texts[0]);
        free(m->texts[1]);
        free(m);
}

struct ranvier_machine *ranvier_machine_open(const char *name, const char *profile, const char *platform,
                                             int gpus, char *message, size_t size)
{
        struct rv_error_info err = {.code = RV_OK};
        struct ranvier_machine *m = calloc(1, sizeof *m);
        if (!m) {
                tell(rv_fail(&err, RV_ESYSTEM, "no memory for a machine"), &err, message, size);
                return NULL;
        }
        int rc = copy_text(profile, &m->texts[0], &err);
        if (rc == RV_OK)
                rc = copy_text(platform, &m->texts[1], &err);
        if (rc == RV_OK)
                rc = open_machine(m, name, gpus, &err);
        if (tell(rc, &err, message, size) == RV_OK)
                return m;
        free_texts(m);
        return NULL;
}

void ranvier_machine_close(struct ranvier_machine *m)
{
        if (!m)
                return;
        machine_close(&m->machine);
        free_texts(m);
}

/* ---- a batch ---- */

/* What a plan is made of beside its options, which point into it. */
struct sources {
        struct launch from; /* the file of --from */
        struct framework framework;
};

static int parse(int count, char **words, struct options *o, struct launch *from, struct rv_error_info *err)
{
        int rc = launch_open(from, count, words, true, o, err);
        if (rc == RV_OK)
                rc = command_line_parse(options_argp(), count, words, o, true, err);
        if (rc == COMMAND_LINE_DONE)
                rc = rv_fail(err, RV_EINPUT, "the plan asks for help; a model and flags were expected");
        if (rc == RV_OK && (o->report || o->trace))
                rc = rv_fail(err, RV_EINPUT, "--%s writes a file, which ranvier_predict does not",
                             o->report ? "report" : "trace");
        return rc;
}

/* The words behind a name, as argp wants them, which may reorder the pointers but not the words. */
static int parse_words(const char *const *plan, struct options *o, struct launch *from,
                       struct rv_error_info *err)
{
        int count = 0;
        while (plan[count])
                count++;
        char name[] = "ranvier", **words = calloc((size_t)count + 2, sizeof *words);
        if (!words)
                return rv_fail(err, RV_ESYSTEM, "no memory for a plan");
        words[0] = name;
        memcpy(words + 1, plan, (size_t)count * sizeof *words);
        const int rc = parse(count + 1, words, o, from, err);
        free(words);
        return rc;
}

static int resolve(const struct ranvier_machine *m, const char *const *plan, struct options *o,
                   struct sources *sources, struct rv_error_info *err)
{
        options_init(o);
        int rc = parse_words(plan, o, &sources->from, err);
        if (rc == RV_OK)
                rc = launch_settle(&sources->from, o, m->machine.gpus, err);
        if (rc == RV_OK)
                rc = launch_check_automatic(&sources->from, o, err);
        if (rc == RV_OK)
                options_fill_ranks(o, m->machine.gpus);
        if (rc == RV_OK)
                rc = framework_take(&sources->framework, o, err);
        if (rc == RV_OK)
                rc = machine_choose_precision(m->profile, o, err);
        if (rc == RV_OK)
                rc = options_resolve(o, m->machine.gpus, err);
        if (rc == RV_OK)
                rc = machine_settle(&m->machine, o, err);
        if (rc == RV_OK)
                machine_choose_logits(&m->machine, o);
        return rc;
}

static void weigh(const struct ranvier_machine *m, const struct options *o, struct ranvier_prediction *p)
{
        const struct capacity capacity = machine_capacity(&m->machine, o);
        struct capacity_need need;
        p->fits = capacity_check(o, &capacity, &need, NULL) == RV_OK;
        p->device_bytes = memory_total(&need.bytes, MEMORY_DEVICE);
        p->device_capacity_bytes = capacity.bytes[MEMORY_DEVICE];
}

static int predict(const struct ranvier_machine *m, const struct options *o, struct ranvier_prediction *p,
                   struct rv_error_info *err)
{
        const double seconds = paper_batch_priced(&m->machine, o, NULL, NULL, err);
        if (isnan(seconds))
                return (int)err->code;
        const double flops = gpt_batch_flops(&o->gpt, o->batch_size, o->seq_len, o->recompute);
        const double peak = machine_peak_flops_per_second(&m->machine, o->dtype, o->format);
        const struct interval interval = interval_of(&m->machine, o, seconds);
        *p = (struct ranvier_prediction){
                .batch_seconds = seconds,
                .low_seconds = interval.known ? interval.low_seconds : 0,
                .high_seconds = interval.known ? interval.high_seconds : 0,
                .tokens_per_second = (double)o->batch_size * o->seq_len / seconds,
                .flops_per_gpu_per_second = flops / seconds / (double)options_ranks(o),
                .ranks = (int32_t)options_ranks(o),
        };
        p->percent_of_peak = peak > 0 ? 100 * p->flops_per_gpu_per_second / peak : 0;
        weigh(m, o, p);
        return RV_OK;
}

int ranvier_predict(const struct ranvier_machine *m, const char *const *plan,
                    struct ranvier_prediction *prediction, char *message, size_t size)
{
        struct rv_error_info err = {.code = RV_OK};
        struct sources sources = {0};
        struct options options;
        int rc = resolve(m, plan, &options, &sources, &err);
        if (rc == RV_OK)
                rc = predict(m, &options, prediction, &err);
        framework_free(&sources.framework);
        launch_close(&sources.from);
        return tell(rc, &err, message, size);
}

/* ---- kernels ---- */

static int wrong(const char *what, int i, struct rv_error_info *err)
{
        return rv_fail(err, RV_EINPUT, "kernel %d: %s", i, what);
}

static int shape(const struct ranvier_kernel *given, int i, struct kernel *kernel, struct rv_error_info *err)
{
        static const struct {
                enum dtype dtype;
                enum product_format format;
        } dtypes[] = {[RANVIER_FP32] = {DTYPE_FP32, FORMAT_STORED},
                      [RANVIER_FP16] = {DTYPE_FP16, FORMAT_STORED},
                      [RANVIER_BF16] = {DTYPE_BF16, FORMAT_STORED},
                      [RANVIER_FP8] = {DTYPE_BF16, FORMAT_FP8},
                      [RANVIER_NVFP4] = {DTYPE_BF16, FORMAT_NVFP4}};
        if (given->dtype < RANVIER_FP32 || given->dtype > RANVIER_NVFP4)
                return wrong("dtype is none of enum ranvier_dtype", i, err);
        if (given->m < 1 || given->k < 1)
                return wrong("m and k must be 1 or more", i, err);
        *kernel = (struct kernel){.dtype = (unsigned char)dtypes[given->dtype].dtype,
                                  .format = (unsigned char)dtypes[given->dtype].format,
                                  .m = given->m,
                                  .n = given->n,
                                  .k = given->k,
                                  .batch = 1};
        if (given->kind == RANVIER_GEMM) {
                kernel->kind = KERNEL_MATMUL;
                kernel->transpose_b = 1;
                return given->n < 1 ? wrong("n must be 1 or more", i, err) : RV_OK;
        }
        if (given->kind != RANVIER_ATTENTION && given->kind != RANVIER_ATTENTION_BACKWARD)
                return wrong("kind is none of enum ranvier_kernel_kind", i, err);
        if (given->batch < 1 || given->heads < 1 || given->kv_heads < 1 || given->heads % given->kv_heads ||
            given->heads / given->kv_heads > UCHAR_MAX)
                return wrong("batch and heads must be 1 or more, and kv_heads a divisor of heads, of which "
                             "each has 255 at most",
                             i, err);
        kernel->kind = given->kind == RANVIER_ATTENTION ? KERNEL_ATTENTION : KERNEL_ATTENTION_BACKWARD;
        kernel->n = given->m;
        kernel->batch = given->batch * given->heads;
        kernel->group = (unsigned char)(given->heads / given->kv_heads);
        return RV_OK;
}

int ranvier_price(const struct ranvier_machine *m, const struct ranvier_kernel *kernels, int count,
                  struct ranvier_price *prices, char *message, size_t size)
{
        struct rv_error_info err = {.code = RV_OK};
        int rc = RV_OK;
        for (int i = 0; rc == RV_OK && i < count; i++) {
                struct kernel kernel;
                double seconds;
                rc = shape(&kernels[i], i, &kernel, &err);
                if (rc == RV_OK)
                        rc = profile_kernel_seconds(&m->machine.profile, m->machine.load, &kernel, false,
                                                    &seconds, NULL, &err);
                if (rc == RV_OK)
                        prices[i] = (struct ranvier_price){
                                seconds, profile_kernel_error(m->machine.load, &kernel, false)};
        }
        return tell(rc, &err, message, size);
}
