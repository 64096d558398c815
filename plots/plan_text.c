#include "plots/plan_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends one more part, with a comma before it unless it is the first. */
__attribute__((format(printf, 2, 3))) static void append(char text[PLAN_TEXT], const char *format, ...)
{
        size_t length = strlen(text);
        va_list arguments;
        if (length)
                length += (size_t)snprintf(text + length, PLAN_TEXT - length, ", ");
        if (length >= PLAN_TEXT)
                return;
        va_start(arguments, format);
        vsnprintf(text + length, PLAN_TEXT - length, format, arguments);
        va_end(arguments);
}

static int number_of(const json_t *plan, const char *key)
{
        return (int)json_integer_value(json_object_get(plan, key));
}

static const char *word_of(const json_t *plan, const char *key)
{
        const char *word = json_string_value(json_object_get(plan, key));
        return word ? word : "";
}

char *plan_text_schedule(char text[PLAN_TEXT], const json_t *plan)
{
        *text = 0;
        append(text, "%.32s", word_of(plan, "schedule"));
        if (number_of(plan, "virtual_stages") > 1)
                append(text, "V %d", number_of(plan, "virtual_stages"));
        if (strcmp(word_of(plan, "p2p"), "blocking") == 0)
                append(text, "blocking");
        if (number_of(plan, "zero") > 0)
                append(text, "ZeRO-%d", number_of(plan, "zero"));
        if (number_of(plan, "ep") > 1)
                append(text, "ep %d", number_of(plan, "ep"));
        if (number_of(plan, "cp") > 1)
                append(text, "cp %d", number_of(plan, "cp"));
        return text;
}

char *plan_text_memory(char text[PLAN_TEXT], const json_t *plan)
{
        const char *recompute = word_of(plan, "recompute");
        *text = 0;
        if (*recompute && strcmp(recompute, "none") != 0)
                append(text, "%.16s recomputation", recompute);
        if (json_is_true(json_object_get(plan, "offload")))
                append(text, "offload");
        if (json_is_true(json_object_get(plan, "offload_activations")))
                append(text, "activations offloaded");
        if (json_is_true(json_object_get(plan, "offload_parameters")))
                append(text, "parameters offloaded");
        return text;
}
