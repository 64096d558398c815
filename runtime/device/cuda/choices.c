#include "runtime/device/cuda/choices.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = sizeof((struct cuda_choice *)NULL)->algorithm / sizeof(uint64_t), DIGITS = 16 };

struct cuda_choices {
        json_t *document, *chosen; /* the latter is the former's */
};

static bool read_choice(const json_t *from, struct cuda_choice *choice)
{
        const char *digits = json_string_value(json_object_get(from, "algorithm"));
        if (!digits || strlen(digits) != WORDS * DIGITS ||
            strspn(digits, "0123456789abcdef") != WORDS * DIGITS)
                return false;
        for (int i = 0; i < WORDS; i++) {
                char word[DIGITS + 1] = "";
                memcpy(word, digits + i * DIGITS, DIGITS);
                choice->algorithm[i] = strtoull(word, NULL, 16);
        }
        choice->proposal = (int)json_integer_value(json_object_get(from, "proposal"));
        choice->proposals = (int)json_integer_value(json_object_get(from, "proposals"));
        choice->seconds = json_number_value(json_object_get(from, "seconds"));
        choice->first_seconds = json_number_value(json_object_get(from, "first_seconds"));
        return true;
}

static int check(const json_t *document, const char *gpu, size_t library, struct rv_error_info *err)
{
        const char *name = json_string_value(json_object_get(document, "gpu")), *product;
        const json_int_t version = json_integer_value(json_object_get(document, "library"));
        json_t *chosen = json_object_get(document, "chosen"), *each;
        struct cuda_choice choice;
        if (!name || version <= 0 || !json_is_object(chosen))
                return rv_fail(err, RV_EINPUT,
                               "\"products\" of a profile has \"gpu\", \"library\" and \"chosen\"");
        if (strcmp(name, gpu) != 0 || version != (json_int_t)library)
                return rv_fail(err, RV_EINPUT,
                               "the products were timed on %s with cuBLASLt %lld, and this is %s with %zu: "
                               "ranvier calibrate --time-products times them anew",
                               name, (long long)version, gpu, library);
        json_object_foreach(chosen, product, each)
        {
                if (!read_choice(each, &choice))
                        return rv_fail(
                                err, RV_EINPUT,
                                "\"products\": \"%.120s\" has no \"algorithm\" of %d hexadecimal digits",
                                product, WORDS * DIGITS);
        }
        return RV_OK;
}

struct cuda_choices *cuda_choices_new(const char *json, const char *gpu, size_t library,
                                      struct rv_error_info *err)
{
        struct cuda_choices *choices = calloc(1, sizeof *choices);
        if (choices)
                choices->document = json ? json_loads(json, JSON_REJECT_DUPLICATES, NULL)
                                         : json_pack("{s:I, s:s, s:{}}", "library", (json_int_t)library,
                                                     "gpu", gpu, "chosen");
        if (!choices || (!json && !choices->document))
                rv_fail(err, RV_ESYSTEM, "the cuda device: no host memory for timed products");
        else if (!choices->document)
                rv_fail(err, RV_EINPUT, "\"products\" of a profile is a JSON object");
        else if (check(choices->document, gpu, library, err) == RV_OK) {
                choices->chosen = json_object_get(choices->document, "chosen");
                return choices;
        }
        cuda_choices_delete(choices);
        return NULL;
}

void cuda_choices_delete(struct cuda_choices *choices)
{
        if (!choices)
                return;
        json_decref(choices->document);
        free(choices);
}

bool cuda_choices_find(const struct cuda_choices *choices, const char *product, struct cuda_choice *choice)
{
        return read_choice(json_object_get(choices->chosen, product), choice);
}

void cuda_choices_add(struct cuda_choices *choices, const char *product, const struct cuda_choice *choice)
{
        char digits[WORDS * DIGITS + 1];
        for (int i = 0; i < WORDS; i++)
                snprintf(digits + i * DIGITS, DIGITS + 1, "%016" PRIx64, choice->algorithm[i]);
        json_object_set_new(choices->chosen, product,
                            json_pack("{s:s, s:i, s:i, s:f, s:f}", "algorithm", digits, "proposal",
                                      choice->proposal, "proposals", choice->proposals, "seconds",
                                      choice->seconds, "first_seconds", choice->first_seconds));
}

char *cuda_choices_text(const struct cuda_choices *choices)
{
        return json_object_size(choices->chosen) ? json_dumps(choices->document, JSON_REAL_PRECISION(5))
                                                 : NULL;
}
