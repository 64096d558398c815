#include "sim/world/machine.h"

#include "runtime/plan/framework.h"
#include "sim/collective/collective_model.h"
#include "sim/world/tensor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- profiles ---- */

const struct profile *machine_profile(const struct machine *m, int kind)
{
        const int index = m->kind_profile[kind];
        return index ? &m->others[index - 1] : &m->profile;
}

const struct profile_load *machine_load(const struct machine *m, int kind)
{
        const struct platform *nodes = m->platform.group_count ? &m->platform.groups[kind] : &m->platform;
        const int here = nodes->gpus_per_node < m->gpus ? nodes->gpus_per_node : m->gpus;
        return profile_load_for(machine_profile(m, kind), nodes->processors ? nodes->processors : here);
}

/* A device's name without its vendor's. */
static const char *bare_name(const char *name)
{
        static const char *const vendors[] = {"NVIDIA ", "Tesla "};
        for (size_t i = 0; i < sizeof vendors / sizeof *vendors; i++)
                if (strncmp(name, vendors[i], strlen(vendors[i])) == 0)
                        name += strlen(vendors[i]);
        return name;
}

static size_t family_length(const char *name)
{
        return strcspn(name, "- ");
}

/* How well a profile's device is a platform's GPU: 3 the same, 2 the beginning of its name, 1 the same family
 * (another memory or plug), 0 not at all. */
static int likeness(const char *device, const char *gpu)
{
        const char *a = bare_name(device), *b = bare_name(gpu);
        const size_t length = strlen(a), family = family_length(a);
        if (strcmp(a, b) == 0)
                return 3;
        if (length < strlen(b) && strncmp(a, b, length) == 0 && b[length] == '-')
                return 2;
        return family == family_length(b) && strncmp(a, b, family) == 0;
}

/* The profile that is most like a GPU, 0 or 1 + one of the others; -1: none is. */
static int find_profile(const struct machine *m, const char *gpu)
{
        int best = -1, max = 0;
        for (int i = 0; i <= m->other_count; i++) {
                const struct profile *profile = i ? &m->others[i - 1] : &m->profile;
                const int like = likeness(profile->device.name, gpu);
                if (like > max) {
                        max = like;
                        best = i;
                }
        }
        return best;
}

static int no_profile(const struct machine *m, const char *gpu, struct rv_error_info *err)
{
        return rv_fail(
                err, RV_EINPUT,
                "platform %s has %.64s, but %s is of %.64s; name a profile of that GPU (--profile A,B for "
                "several kinds)",
                m->platform.name, gpu, m->other_count ? "no --profile is: the first one" : "--profile",
                m->profile.device.name);
}

static int match_profiles(struct machine *m, struct rv_error_info *err)
{
        const struct platform *p = &m->platform;
        m->kinds = p->group_count ? platform_place(p, m->gpus - 1).group + 1 : 1;
        if (!p->gpu[0] && m->other_count > 0)
                return rv_fail(err, RV_EINPUT,
                               "--profile names %d profiles, but platform %s does not say which GPUs it has "
                               "(\"gpu\"); name one",
                               m->other_count + 1, p->name);
        for (int kind = 0; kind < m->kinds && p->gpu[0]; kind++) {
                const char *gpu = p->group_count ? p->groups[kind].gpu : p->gpu;
                m->kind_profile[kind] = find_profile(m, gpu);
                if (m->kind_profile[kind] < 0)
                        return no_profile(m, gpu, err);
        }
        if (m->kind_profile[0] > 0) { /* the first ranks' is the first */
                struct profile *other = &m->others[m->kind_profile[0] - 1], first = m->profile;
                const int swapped = m->kind_profile[0];
                m->profile = *other;
                *other = first;
                for (int kind = 0; kind < m->kinds; kind++)
                        if (m->kind_profile[kind] == 0 || m->kind_profile[kind] == swapped)
                                m->kind_profile[kind] = swapped - m->kind_profile[kind];
        }
        return 0;
}

/* `names` between commas. */
static int load_profiles(struct machine *m, const char *names, struct rv_error_info *err)
{
        char name[256];
        for (int i = 0;; i++) {
                const size_t length = strcspn(names, ",");
                if (length >= sizeof name || i == MACHINE_PROFILES)
                        return rv_fail(err, RV_EINPUT,
                                       "--profile: more than %d profiles, or a name longer than %zu",
                                       MACHINE_PROFILES, sizeof name - 1);
                memcpy(name, names, length);
                name[length] = 0;
                if (i > 0) {
                        struct profile *grown = realloc(m->others, (size_t)i * sizeof *grown);
                        if (!grown)
                                return rv_fail(err, RV_ESYSTEM, "no memory for %d profiles", i + 1);
                        m->others = grown;
                }
                int rc = profile_load(i ? &m->others[i - 1] : &m->profile, name, err);
                if (rc)
                        return rc;
                m->other_count = i;
                if (!names[length])
                        return 0;
                names += length + 1;
        }
}

/* ---- the precision ---- */

static bool all_have(const struct machine *m, enum dtype dtype)
{
        bool all = profile_has_precision(&m->profile, dtype);
        for (int i = 0; i < m->other_count; i++)
                all = all && profile_has_precision(&m->others[i], dtype);
        return all;
}

/* The first is taken. */
static const enum dtype preferred[DTYPES] = {DTYPE_FP16, DTYPE_BF16, DTYPE_FP32};

int machine_choose_precision(const char *profiles, struct options *o, struct rv_error_info *err)
{
        struct machine m = {0};
        if (o->precision_given)
                return 0;
        int rc = load_profiles(&m, profiles, err), i = 0;
        while (rc == 0 && i < DTYPES - 1 && !all_have(&m, preferred[i]))
                i++;
        o->dtype = preferred[i];
        if (rc == 0 && o->offload && !options_mixed(o))
                rc = rv_fail(
                        err, RV_EINPUT,
                        "--offload needs --precision mixed or bf16, and profile %.160s has kernels of fp32 "
                        "only: leave --offload out, or name a profile that has them",
                        m.profile.path);
        machine_close(&m);
        return rc;
}

/* The precisions that all profiles have, in the order in which one is taken; returns how many. */
static int list_precisions(const struct machine *m, char *text, size_t size)
{
        int count = 0;
        text[0] = 0;
        for (int i = 0; i < DTYPES; i++)
                if (all_have(m, preferred[i]))
                        snprintf(text + strlen(text), size - strlen(text), "%s%s", count++ ? ", " : "",
                                 dtype_precision(preferred[i]));
        return count;
}

static void add_warnings(json_t *remarks, const struct profile *profile)
{
        for (size_t i = 0; i < json_array_size(profile->warnings); i++)
                json_array_append_new(remarks,
                                      json_sprintf("WARNING of profile %s: %s", profile->path,
                                                   json_string_value(json_array_get(profile->warnings, i))));
}

/* Ranks of a node that are predicted from a measurement with fewer; 0: there are not more. */
static int ranks_beyond(const struct machine *m)
{
        const struct platform *nodes = m->platform.group_count ? &m->platform.groups[0] : &m->platform;
        const int here = nodes->gpus_per_node < m->gpus ? nodes->gpus_per_node : m->gpus;
        return m->profile.measured && here > m->load->ranks && !nodes->processors ? here : 0;
}

void machine_caveat(const struct machine *m, int measured, int shapes, char text[MACHINE_CAVEAT])
{
        const int ranks = ranks_beyond(m);
        int length = 0;
        text[0] = 0;
        if (measured < shapes && !m->fits_only)
                length = snprintf(text, MACHINE_CAVEAT, "%d of %d kernel shapes %s", measured, shapes,
                                  m->profile.measured ? "measured" : "from measurements");
        if (ranks)
                snprintf(text + length, MACHINE_CAVEAT - (size_t)length,
                         "%s%d ranks of a node predicted from %d", length ? ", " : "", ranks, m->load->ranks);
}

json_t *machine_remarks(const struct machine *m, const struct options *o)
{
        json_t *remarks = json_array();
        add_warnings(remarks, &m->profile);
        for (int i = 0; i < m->other_count; i++)
                add_warnings(remarks, &m->others[i]);
        if (ranks_beyond(m))
                json_array_append_new(
                        remarks,
                        json_sprintf(
                                "%d ranks of a node are predicted from what %d took: profile %s was measured "
                                "with "
                                "no more, and ranks that share a node's memory or cores slow each other down",
                                ranks_beyond(m), m->load->ranks, m->profile.path));
        if (m->platform.processors)
                json_array_append_new(
                        remarks,
                        m->platform.waiting > 0
                                ? json_sprintf(
                                          "%d ranks share %d processors: what computes at once is slowed "
                                          "down alike, and one that waits takes %.2f of what one that "
                                          "computes takes, as profile %s says",
                                          m->gpus, m->platform.processors, m->platform.waiting,
                                          m->profile.path)
                                : json_sprintf(
                                          "%d ranks share %d processors: what computes at once is slowed "
                                          "down alike; what ranks take that wait is left out, because "
                                          "profile %s does not say (calibrate --ranks %d measures it)",
                                          m->gpus, m->platform.processors, m->profile.path, m->gpus));
        char precisions[64];
        const char *taken = dtype_precision(o->dtype);
        const int count = list_precisions(m, precisions, sizeof precisions);
        if (!o->precision_given && count > 1)
                json_array_append_new(remarks,
                                      json_sprintf("--precision was not given: %s is taken, the first of %s, "
                                                   "which profile %s has",
                                                   taken, precisions, m->profile.path));
        else if (!o->precision_given && options_mixed(o))
                json_array_append_new(
                        remarks, json_sprintf("--precision was not given: %s is taken, the only one that "
                                              "profile %s has",
                                              taken, m->profile.path));
        if (m->profile.unfused && !o->fused && o->fusion == FUSION_AUTO &&
            profile_has_fused(m->load, o->dtype))
                json_array_append_new(
                        remarks,
                        json_sprintf("kernels are not fused, as in the runs that profile %s is from: "
                                     "--fusion on asks for fused ones",
                                     m->profile.path));
        return remarks;
}

int machine_open(struct machine *m, const char *profile, const char *platform, int gpus, bool fits_only,
                 struct rv_error_info *err)
{
        *m = (struct machine){.fits_only = fits_only, .local = strcmp(platform, "local") == 0};
        int rc = load_profiles(m, profile, err);
        if (rc == 0)
                rc = machine_resize(m, platform, gpus, err);
        if (rc)
                machine_close(m);
        return rc;
}

int machine_resize(struct machine *m, const char *platform, int gpus, struct rv_error_info *err)
{
        platform_free(&m->platform);
        m->platform = (struct platform){0};
        m->gpus = gpus;
        int rc = platform_load(&m->platform, platform, &m->profile, gpus, err);
        if (rc == 0)
                rc = match_profiles(m, err);
        if (rc == 0)
                m->load = machine_load(m, 0);
        return rc;
}

void machine_close(struct machine *m)
{
        for (int i = 0; i < m->other_count; i++)
                profile_free(&m->others[i]);
        free(m->others);
        profile_free(&m->profile);
        platform_free(&m->platform);
        *m = (struct machine){0};
}

/* Each goes round the ring behind the one before. */
static double broadcast_seconds(const struct machine *m, const struct options *options)
{
        const int broadcasts = framework_broadcasts(options);
        if (broadcasts == 0)
                return 0;
        const struct plan plan = options_plan(options, false);
        const struct plan_group sharers =
                plan_neighbours(plan_group_along(&plan, 0, GRID_REPLICAS), plan_share_ranks(&plan));
        const struct collective_group gpus = {sharers.first, sharers.stride, sharers.size, 1};
        const struct collective_shape shape = collective_shape(&m->platform, &gpus);
        return broadcasts * collective_ring_fill(&m->platform, &shape);
}

double machine_framework_step(const struct machine *m, const struct options *options)
{
        double most = 0;
        for (int kind = 0; options->framework && kind < m->kinds; kind++)
                most = fmax(most,
                            framework_host_step(options->framework, machine_profile(m, kind)->device.name));
        return most + broadcast_seconds(m, options);
}

/* The figures of a profile that was fitted on a framework's runs have its kernels in them. */
static int check_framework(const struct profile *profile, const struct options *o, struct rv_error_info *err)
{
        const char *like = json_string_value(json_object_get(profile->sources, "like"));
        if (!like || !framework_prices(o->framework))
                return 0;
        return rv_fail(err, RV_EINPUT,
                       "--like %.64s with profile %.160s would count a framework's kernels twice (%.160s): "
                       "name a profile of measured kernels or of a datasheet, or add --without kernels",
                       o->like, profile->path, like);
}

int machine_settle(const struct machine *m, struct options *options, struct rv_error_info *err)
{
        int rc = check_framework(&m->profile, options, err);
        for (int i = 0; rc == 0 && i < m->other_count; i++)
                rc = check_framework(&m->others[i], options, err);
        if (rc)
                return rc;
        const char *device = strcmp(m->profile.device.name, "cpu") == 0 ? "cpu" : "cuda";
        if (options->device && strcmp(options->device, device) != 0)
                return rv_fail(err, RV_EINPUT,
                               "--device %s: profile %.160s is of %.64s; leave --device out, or name another "
                               "profile",
                               options->device, m->profile.path, m->profile.device.name);
        const char *precision = precision_name(options->dtype, options->format);
        if (options->format != FORMAT_STORED && !profile_has_products(m->load, options->format))
                return rv_fail(
                        err, RV_EINPUT,
                        "profile %.160s knows no products in %s (kernel matmul_%s): take --precision bf16, "
                        "or a profile that does",
                        m->profile.path, precision, precision);
        if (options->fusion == FUSION_AUTO)
                options->fused = (!m->profile.unfused || options->cp > 1) &&
                                 profile_has_fused(m->load, options->dtype);
        if (!options->fused && options->cp > 1)
                return rv_fail(err, RV_ENOTBUILT,
                               "--cp %d needs fused attention, whose kernels profile %.160s has not measured",
                               options->cp, m->profile.path);
        return 0;
}

struct capacity machine_capacity(const struct machine *m, const struct options *options)
{
        const int64_t *given = options->memory;
        bool same = m->local &&
                    strcmp(m->profile.device.name, "cpu") == 0; /* a CPU device's memory is the host's */
        int64_t device = m->platform.gpu_memory_bytes;
        for (int kind = 1; kind < m->kinds; kind++)
                if (m->platform.groups[kind].gpu_memory_bytes < device)
                        device = m->platform.groups[kind].gpu_memory_bytes;
        int64_t host = same ? device : platform_host_share(&m->platform, m->gpus);
        return (struct capacity){{
                [MEMORY_DEVICE] = given[MEMORY_DEVICE] ? given[MEMORY_DEVICE] : device,
                [MEMORY_HOST] = given[MEMORY_HOST] ? given[MEMORY_HOST] : host,
                [CAPACITY_SHARED] = same ? device : 0,
        }};
}

void machine_choose_logits(const struct machine *m, struct options *options)
{
        const struct capacity capacity = machine_capacity(m, options);
        if (m->profile.whole_logits && !options->framework)
                capacity_choose_logits(options, &capacity);
}

double machine_peak_flops_per_second(const struct machine *m, enum dtype dtype, enum product_format format)
{
        const int which = profile_format(dtype, format);
        double sum = 0;
        for (int first = 0; first < m->gpus;) {
                const struct platform_place place = platform_place(&m->platform, first);
                const int64_t of_kind = (int64_t)place.figures->nodes * place.figures->gpus_per_node;
                const int64_t here = of_kind < m->gpus - first ? of_kind : m->gpus - first;
                const struct profile *profile = machine_profile(m, place.group);
                const double stated = place.figures->gpu_peak_flops_per_second;
                const double peak = profile->peaks[which] > 0 ? profile->peaks[which] : profile->peaks[dtype];
                sum += (double)here * (peak > 0     ? peak
                                       : stated > 0 ? stated
                                                    : profile->peak_flops_per_second);
                first += (int)here;
        }
        return sum / m->gpus;
}
