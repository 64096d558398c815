/* Numbers as a reader wants them, and quantiles of several. */
#ifndef RANVIER_RUNTIME_BASE_NUMBER_H
#define RANVIER_RUNTIME_BASE_NUMBER_H

/* Written into `text`, which is returned: "1.25 GiB", "12.3 ms", "1,234,567", "3.21 Tflop/s". */
enum { NUMBER_TEXT = 32 };
char *number_bytes(char text[NUMBER_TEXT], double bytes);
char *number_seconds(char text[NUMBER_TEXT], double seconds);
char *number_count(char text[NUMBER_TEXT], double count);
char *number_flops(char text[NUMBER_TEXT], double flops_per_second);

/* The q-quantile of `count` values, one or more, by linear interpolation; they are sorted in place. q in [0,
 * 1]. */
double quantile(double *values, int count, double q);

#endif
