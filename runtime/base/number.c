#include "runtime/base/number.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static int compare_doubles(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;
        return (x > y) - (x < y);
}

double quantile(double *values, int count, double q)
{
        assert(count > 0 && q >= 0 && q <= 1);
        qsort(values, (size_t)count, sizeof *values, compare_doubles);
        double place = q * (count - 1);
        int below = (int)place;
        if (below >= count - 1)
                return values[count - 1];
        return values[below] + (place - below) * (values[below + 1] - values[below]);
}

char *number_bytes(char text[NUMBER_TEXT], double bytes)
{
        static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
        int unit = 0;
        for (; fabs(bytes) >= 1023.995 && unit < 5; unit++)
                bytes /= 1024;
        snprintf(text, NUMBER_TEXT, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
        return text;
}

char *number_seconds(char text[NUMBER_TEXT], double seconds)
{
        double size = fabs(seconds);
        if (size >= 1 || size == 0)
                snprintf(text, NUMBER_TEXT, "%.3f s", seconds);
        else if (size >= 1e-3)
                snprintf(text, NUMBER_TEXT, "%.3f ms", seconds * 1e3);
        else
                snprintf(text, NUMBER_TEXT, "%.3f us", seconds * 1e6);
        return text;
}

char *number_count(char text[NUMBER_TEXT], double count)
{
        char digits[NUMBER_TEXT];
        if (fabs(count) >= 1e15) {
                snprintf(text, NUMBER_TEXT, "%.3g", count);
                return text;
        }
        int length = snprintf(digits, sizeof digits, "%.0f", count), out = 0;
        for (int i = 0; i < length; i++) {
                text[out++] = digits[i];
                int left = length - 1 - i;
                if (left && left % 3 == 0 && digits[i] != '-')
                        text[out++] = ',';
        }
        text[out] = 0;
        return text;
}

char *number_tokens(char text[NUMBER_TEXT], double tokens)
{
        static const struct {
                double factor;
                const char *letter;
        } units[] = {{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1, ""}};
        size_t i = 0;
        while (units[i].factor > 1 && tokens < units[i].factor)
                i++;
        snprintf(text, NUMBER_TEXT, "%.3g%s", tokens / units[i].factor, units[i].letter);
        return text;
}

char *number_flops(char text[NUMBER_TEXT], double flops_per_second)
{
        const bool tera = flops_per_second >= 1e12;
        snprintf(text, NUMBER_TEXT, "%.2f %s", flops_per_second / (tera ? 1e12 : 1e9),
                 tera ? "Tflop/s" : "Gflop/s");
        return text;
}
