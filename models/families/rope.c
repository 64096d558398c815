#include "models/families/rope.h"

#include "models/config.h"
#include "runtime/base/file.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

/* Of every object. */
#define COMMON_KEYS                                                                                          \
        {"rope_type", .kind = CONFIG_OTHER}, {"type", .kind = CONFIG_OTHER},                                 \
                {"rope_theta", .kind = CONFIG_OTHER},                                                        \
        {                                                                                                    \
                "partial_rotary_factor", .kind = CONFIG_OTHER                                                \
        }
#define SCALED_KEYS                                                                                          \
        COMMON_KEYS,                                                                                         \
        {                                                                                                    \
                "factor", CONFIG_NEEDED_REAL, CONFIG_AT(rope_scaling.factor), .min = 1, .max = 1e6           \
        }

static const struct config_key default_keys[] = {COMMON_KEYS};
/* By mscale_all_dim transformers multiplies latent attention's scores in every type. */
#define UNSTRETCHED_KEYS                                                                                     \
        SCALED_KEYS,                                                                                         \
        {                                                                                                    \
                "mscale_all_dim", CONFIG_ONLY, .right = { "null" }                                           \
        }
static const struct config_key linear_keys[] = {UNSTRETCHED_KEYS};
static const struct config_key llama3_keys[] = {
        UNSTRETCHED_KEYS,
        {"low_freq_factor", CONFIG_NEEDED_REAL, CONFIG_AT(rope_scaling.low), .min = 1e-6, .max = 1e6},
        {"high_freq_factor", CONFIG_NEEDED_REAL, CONFIG_AT(rope_scaling.high), .min = 1e-6, .max = 1e6},
        {"original_max_position_embeddings", CONFIG_COUNT, CONFIG_AT(rope_scaling.positions),
         .max = GPT_MAX_POSITIONS},
};
/* What transformers takes where the file does not say; of the length and the positions, see rope_read. */
#define YARN_KEYS                                                                                            \
        SCALED_KEYS, {"beta_slow", CONFIG_REAL, CONFIG_AT(rope_scaling.low),                                 \
                      .min = 1e-6, .max = 1e6,  .absent = 1},                                                \
                {"beta_fast", CONFIG_REAL, CONFIG_AT(rope_scaling.high),                                     \
                 .min = 1e-6, .max = 1e6,  .absent = 32},                                                    \
                {"attention_factor", CONFIG_REAL, CONFIG_AT(rope_scaling.length), .min = 1e-6, .max = 1e6},  \
                {"original_max_position_embeddings", CONFIG_OPTIONAL, CONFIG_AT(rope_scaling.positions),     \
                 .max = GPT_MAX_POSITIONS},                                                                  \
        {                                                                                                    \
                "truncate", CONFIG_ONLY, .right = { "true" }                                                 \
        }

static const struct config_key yarn_keys[] = {
        YARN_KEYS,
        {"mscale", CONFIG_ONLY, .right = {"null"}},
        {"mscale_all_dim", CONFIG_ONLY, .right = {"null"}},
};
/* Of latent attention, which alone has two lengths. */
static const struct config_key latent_yarn_keys[] = {
        YARN_KEYS,
        {"mscale", CONFIG_REAL, CONFIG_AT(rope_scaling.mscale), .max = 1e3},
        {"mscale_all_dim", CONFIG_REAL, CONFIG_AT(rope_scaling.mscale_all), .max = 1e3},
};

#define KEYS(keys) keys, sizeof(keys) / sizeof *(keys)
static const struct type {
        const char *name;
        const struct config_key *keys;
        int count;
} types[ROPE_TYPES] = {
        [ROPE_DEFAULT] = {"default", KEYS(default_keys)},
        [ROPE_LINEAR] = {"linear", KEYS(linear_keys)},
        [ROPE_LLAMA3] = {"llama3", KEYS(llama3_keys)},
        [ROPE_YARN] = {"yarn", KEYS(yarn_keys)},
};
static const struct type latent_yarn = {"yarn", KEYS(latent_yarn_keys)};

static const struct type *type_of(const struct gpt *gpt)
{
        const enum rope_type type = gpt->rope_scaling.type;
        return type == ROPE_YARN && gpt->kv_rank ? &latent_yarn : &types[type];
}

/* What the file says in either way; NULL: nothing. */
static const json_t *find_object(const json_t *object, const char **key)
{
        static const char *const keys[] = {"rope_scaling", "rope_parameters"};
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
                const json_t *rope = json_object_get(object, keys[i]);
                *key = keys[i];
                if (rope && !json_is_null(rope))
                        return rope;
        }
        return NULL;
}

/* `rope_type`, or, in older files, `type`; the newer object need not have one. */
static int read_type(struct gpt *gpt, const char *path, const char *where, const json_t *rope,
                     struct rv_error_info *err)
{
        const char *key =
                json_object_get(rope, "rope_type") || !json_object_get(rope, "type") ? "rope_type" : "type";
        const json_t *type = json_object_get(rope, key);
        if (!json_is_object(rope))
                return config_wrong(path, where, rope, err, "an object or null was expected");
        if (!type && strcmp(where, "rope_parameters") == 0)
                return RV_OK;
        for (int i = 0; type && i < ROPE_TYPES; i++)
                if (json_is_string(type) && strcmp(json_string_value(type), types[i].name) == 0) {
                        gpt->rope_scaling.type = (enum rope_type)i;
                        return RV_OK;
                }
        return config_wrong(path, type ? key : where, type ? type : rope, err,
                            "only the types \"default\", \"linear\", \"llama3\" and \"yarn\" are built");
}

static int check_turns(const struct gpt *gpt, const char *path, const json_t *rope, struct rv_error_info *err)
{
        const bool llama3 = gpt->rope_scaling.type == ROPE_LLAMA3;
        const char *low = llama3 ? "low_freq_factor" : "beta_slow";
        const char *high = llama3 ? "high_freq_factor" : "beta_fast";
        const struct rope_scaling *scaling = &gpt->rope_scaling;
        if (scaling->type >= ROPE_LLAMA3 &&
            (scaling->low > scaling->high || (llama3 && scaling->low == scaling->high)))
                return config_wrong(path, json_object_get(rope, low) ? low : high,
                                    json_object_get(rope, json_object_get(rope, low) ? low : high), err,
                                    llama3 ? "%s must be below %s" : "%s must not be above %s", low, high);
        return RV_OK;
}

/* By how much yarn makes queries and keys longer. */
static double longer(const struct rope_scaling *scaling, double mscale)
{
        return 0.1 * mscale * log(scaling->factor) + 1;
}

static const char share_key[] = "partial_rotary_factor";

/* Of a rope object: what does not turn all of a head is of families that call rope_read_part. */
static int check_share(const char *path, const json_t *rope, bool read, struct rv_error_info *err)
{
        const json_t *share = json_object_get(rope, share_key);
        return !share || read || json_number_value(share) == 1
                       ? RV_OK
                       : config_wrong(path, share_key, share, err, "only 1 is built");
}

static int read_objects(struct gpt *gpt, const char *path, const json_t *object, bool in_part,
                        struct rv_error_info *err)
{
        const char *where;
        const json_t *rope = find_object(object, &where);
        struct rope_scaling *scaling = &gpt->rope_scaling;
        if (!rope)
                return RV_OK;
        if (check_share(path, rope, in_part, err) != RV_OK ||
            read_type(gpt, path, where, rope, err) != RV_OK ||
            config_read(gpt, path, rope, type_of(gpt)->keys, type_of(gpt)->count, err) != RV_OK ||
            check_turns(gpt, path, rope, err) != RV_OK)
                return RV_EINPUT;
        if (scaling->type == ROPE_YARN && !scaling->positions)
                scaling->positions = gpt->n_positions;
        if (scaling->type == ROPE_YARN && scaling->length == 0)
                scaling->length =
                        scaling->mscale > 0 && scaling->mscale_all > 0
                                ? longer(scaling, scaling->mscale) / longer(scaling, scaling->mscale_all)
                                : longer(scaling, 1);
        return json_object_get(rope, "rope_theta")
                       ? file_need_real(path, rope, "rope_theta", 1, 1e12, &gpt->rope_theta, err)
                       : RV_OK;
}

int rope_read(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        return read_objects(gpt, path, object, false, err);
}

int rope_read_part(struct gpt *gpt, const char *path, const json_t *object, struct rv_error_info *err)
{
        const char *where;
        const json_t *rope = find_object(object, &where);
        const json_t *of = rope && json_object_get(rope, share_key) ? rope : object;
        double share = 0.5;
        if (json_object_get(of, share_key) &&
            file_need_real(path, of, share_key, 1e-6, 1, &share, err) != RV_OK)
                return RV_EINPUT;
        /* Whole columns, as transformers takes them; a quotient of them may be rounded to below. */
        gpt->rope_size = (int)(gpt->head_size * share + 1e-6);
        if (gpt->rope_size < 2 || gpt->rope_size % 2)
                return rv_fail(err, RV_EINPUT,
                               "%s:%d: of a head's %d columns partial_rotary_factor %g turns %d; rotary "
                               "positions need an even number of them",
                               path, file_line_of(path, share_key), gpt->head_size, share, gpt->rope_size);
        return read_objects(gpt, path, object, true, err);
}

void rope_write_part(const struct gpt *gpt, json_t *object)
{
        json_object_set_new(object, share_key, json_real((double)gpt_rope_size(gpt) / gpt->head_size));
        rope_write(gpt, object);
}

void rope_write(const struct gpt *gpt, json_t *object)
{
        const struct type *type = type_of(gpt);
        if (gpt->rope_scaling.type == ROPE_DEFAULT)
                return;
        json_t *rope = json_pack("{s:s}", "rope_type", type->name);
        config_add(gpt, rope, type->keys, type->count);
        json_object_set_new(object, "rope_scaling", rope);
}

/* The column, as a fraction, that turns so many times in `positions` tokens. */
static double column_of(const struct gpt *gpt, double turns)
{
        return gpt_rope_size(gpt) * log(gpt->rope_scaling.positions / (turns * 2 * pi)) /
               (2 * log(gpt->rope_theta));
}

struct rope_angles rope_angles_of(const struct gpt *gpt)
{
        const struct rope_scaling *s = &gpt->rope_scaling;
        struct rope_angles angles = {.theta = gpt->rope_theta};
        if (s->type == ROPE_DEFAULT)
                return angles;
        angles.taken = 1 - 1 / s->factor;
        if (s->type == ROPE_LINEAR) {
                angles.constant = 1;
        } else if (s->type == ROPE_LLAMA3) { /* by how many turns a column is short of `high` */
                angles.by_frequency = -s->positions / (2 * pi * (s->high - s->low));
                angles.constant = s->high / (s->high - s->low);
        } else {
                const double first = fmax(floor(column_of(gpt, s->high)), 0);
                const double last = fmin(ceil(column_of(gpt, s->low)), gpt_rope_size(gpt) - 1);
                angles.by_column = 1 / (last == first ? 0.001 : last - first);
                angles.constant = -first * angles.by_column;
        }
        return angles;
}

double rope_length(const struct gpt *gpt)
{
        return gpt->rope_scaling.type == ROPE_YARN ? gpt->rope_scaling.length : 1;
}

double rope_scores(const struct gpt *gpt)
{
        const struct rope_scaling *scaling = &gpt->rope_scaling;
        const double length = scaling->mscale_all > 0 ? longer(scaling, scaling->mscale_all) : 1;
        return length * length;
}
