#include "runtime/kineto/found.h"

#include "runtime/base/number.h"

#include <stdlib.h>
#include <string.h>

/* Why an operator becomes no kernel of ours; NULL: it does. */
static const char *why_not(const struct traced_steps *steps, const struct step_operator *of)
{
        const struct kineto_event *event = &steps->trace->events[of->event];
        switch (of->row->class) {
        case OPERATOR_FOREIGN:
                return "no kernel of a transformer here does it";
        case OPERATOR_COLLECTIVE:
                return "between GPUs: a platform prices it";
        case OPERATOR_UNKNOWN:
                return event->kind == KINETO_RUNTIME ? "launched by no operator of the table, or as a graph"
                                                     : "not in the table of operators";
        case OPERATOR_OPTIMIZER:
        case OPERATOR_HOST:
                return NULL;
        default:
                return event->shapes < 0 ? "it has no shapes" : NULL;
        }
}

/* An operator's name; of a call that launched something, that of what it is called in. */
static const char *name_of(const struct traced_steps *steps, const struct step_operator *of)
{
        const struct kineto_event *event = &steps->trace->events[of->event];
        const int around = steps->parent[of->event];
        return event->kind == KINETO_RUNTIME && around >= 0 ? steps->trace->events[around].name : event->name;
}

/* ---- what is counted ---- */

static json_t *entry_of(json_t *entries, const char *key)
{
        json_t *entry = json_object_get(entries, key);
        if (!entry) {
                entry = json_object();
                json_object_set_new(entries, key, entry);
        }
        return entry;
}

static void add_to(json_t *entry, const char *key, double value)
{
        json_object_set_new(entry, key, json_real(json_number_value(json_object_get(entry, key)) + value));
}

static void add_one(json_t *entry, const char *key)
{
        json_object_set_new(entry, key, json_integer(json_integer_value(json_object_get(entry, key)) + 1));
}

static void count_class(json_t *classes, const struct step_operator *of, double seconds, bool mapped)
{
        json_t *entry = entry_of(classes, operator_class_name(of->row->class));
        json_object_set_new(entry, "class", json_string(operator_class_name(of->row->class)));
        add_one(entry, "operators");
        add_to(entry, "seconds", seconds);
        add_to(entry, "mapped_seconds", mapped ? seconds : 0);
        if (of->row->kernel >= 0)
                json_object_set_new(entry, "kernel",
                                    json_string(kernel_name((enum kernel_kind)of->row->kernel)));
}

static void count_product(json_t *products, const struct traced_steps *steps, const struct step_operator *of,
                          double seconds)
{
        char key[128];
        const struct kernel product = operator_product(steps->trace, &steps->trace->events[of->event]);
        snprintf(key, sizeof key, "%lld %lld %lld %lld", (long long)product.batch, (long long)product.m,
                 (long long)product.n, (long long)product.k);
        if (!product.batch)
                return;
        json_t *entry = entry_of(products, key);
        json_object_set_new(entry, "batch", json_integer(product.batch));
        json_object_set_new(entry, "m", json_integer(product.m));
        json_object_set_new(entry, "n", json_integer(product.n));
        json_object_set_new(entry, "k", json_integer(product.k));
        add_one(entry, "count");
        add_to(entry, "seconds", seconds);
}

static void count_unmapped(json_t *unmapped, const char *name, double seconds, const char *why)
{
        json_t *entry = entry_of(unmapped, name);
        json_object_set_new(entry, "operator", json_string(name));
        add_one(entry, "count");
        add_to(entry, "seconds", seconds);
        json_object_set_new(entry, "why", json_string(why));
}

static int by_seconds(const void *a, const void *b)
{
        const double x = json_number_value(json_object_get(*(json_t *const *)a, "seconds")),
                     y = json_number_value(json_object_get(*(json_t *const *)b, "seconds"));
        return (x < y) - (x > y);
}

/* The entries of an object, those of most seconds first; frees the object. */
static json_t *sorted(json_t *entries)
{
        const size_t count = json_object_size(entries);
        json_t **list = malloc((count + 1) * sizeof *list), *entry, *array = json_array();
        const char *key;
        size_t i = 0;
        if (!list)
                abort();
        json_object_foreach(entries, key, entry)
        {
                list[i++] = entry;
        }
        qsort(list, count, sizeof *list, by_seconds);
        for (i = 0; i < count; i++)
                json_array_append(array, list[i]);
        free(list);
        json_decref(entries);
        return array;
}

json_t *found_json(const struct traced_steps *steps)
{
        json_t *classes = json_object(), *products = json_object(), *unmapped = json_object();
        double all = 0, mapped = 0;
        for (int i = 0; i < steps->operator_count; i++) {
                const struct step_operator *of = &steps->operators[i];
                const double seconds = step_seconds(steps, of);
                const char *why = why_not(steps, of);
                all += seconds;
                mapped += why ? 0 : seconds;
                count_class(classes, of, seconds, !why);
                if (of->row->class == OPERATOR_PRODUCT)
                        count_product(products, steps, of, seconds);
                if (why)
                        count_unmapped(unmapped, name_of(steps, of), seconds, why);
        }
        return json_pack("{s:i, s:s, s:f, s:f, s:{s:i, s:f}, s:o, s:o, s:o}", "steps", steps->count, "device",
                         steps->trace->on_gpu ? steps->trace->gpu[0] ? steps->trace->gpu : "a GPU" : "cpu",
                         "seconds", all, "mapped", all > 0 ? mapped / all : 0, "launched_outside", "kernels",
                         steps->lost, "seconds", 1e-6 * steps->lost_time, "classes", sorted(classes),
                         "products", sorted(products), "not_mapped", sorted(unmapped));
}

/* ---- what is printed ---- */

static double number_at(const json_t *object, const char *key)
{
        return json_number_value(json_object_get(object, key));
}

static const char *text_at(const json_t *object, const char *key)
{
        const char *text = json_string_value(json_object_get(object, key));
        return text ? text : "";
}

void found_print(const json_t *found, FILE *stream)
{
        enum { MOST = 8 };
        const double all = number_at(found, "seconds");
        char number[NUMBER_TEXT];
        size_t i;
        json_t *entry;
        fprintf(stream, "%d step%s on %s: %s of operators, %.1f %% of them mapped\n\n",
                (int)number_at(found, "steps"), rv_plural((int)number_at(found, "steps")),
                text_at(found, "device"), number_seconds(number, all), 100 * number_at(found, "mapped"));
        fprintf(stream, "  %-22s %9s %13s %7s %7s\n", "class", "operators", "time", "share", "mapped");
        json_array_foreach(json_object_get(found, "classes"), i, entry)
        {
                const double seconds = number_at(entry, "seconds");
                fprintf(stream, "  %-22s %9d %13s %5.1f %% %5.1f %%\n", text_at(entry, "class"),
                        (int)number_at(entry, "operators"), number_seconds(number, seconds),
                        all > 0 ? 100 * seconds / all : 0,
                        seconds > 0 ? 100 * number_at(entry, "mapped_seconds") / seconds : 0);
        }
        const json_t *unmapped = json_object_get(found, "not_mapped"),
                     *outside = json_object_get(found, "launched_outside");
        if (json_array_size(unmapped))
                fprintf(stream, "\nnot mapped:\n");
        json_array_foreach((json_t *)unmapped, i, entry)
        {
                if (i < MOST)
                        fprintf(stream, "  %-46.46s %7d %13s  %s\n", text_at(entry, "operator"),
                                (int)number_at(entry, "count"),
                                number_seconds(number, number_at(entry, "seconds")), text_at(entry, "why"));
        }
        if (json_array_size(unmapped) > MOST)
                fprintf(stream, "  and %zu more\n", json_array_size(unmapped) - MOST);
        if (number_at(outside, "kernels") > 0)
                fprintf(stream,
                        "\n%d kernels and copies of the GPU (%s) were launched outside of these steps\n",
                        (int)number_at(outside, "kernels"),
                        number_seconds(number, number_at(outside, "seconds")));
}
