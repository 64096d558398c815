/* Numbers as texts for tables and sentences, with a unit that suits their size; and quantiles. Numbers in
 * files are written by others, without loss of digits. */
#ifndef RANVIER_RUNTIME_BASE_NUMBER_H
#define RANVIER_RUNTIME_BASE_NUMBER_H

/* These write a number into `text` and return `text`, so that they can be arguments of printf.
 *
 * number_bytes: "1.25 GiB", with units from B to PiB, in powers of 1024;
 * number_seconds: "12.300 ms", in s, ms or us, always with three decimals;
 * number_count: "1,234,567", without decimals, and from 1e15 on as "1.23e+15";
 * number_tokens: "300B", "4.19M": three digits, as command lines take a number of tokens;
 * number_flops: "3.21 Tflop/s", or in Gflop/s below one Tflop/s. */
enum { NUMBER_TEXT = 32 };
char *number_bytes(char text[NUMBER_TEXT], double bytes);
char *number_seconds(char text[NUMBER_TEXT], double seconds);
char *number_count(char text[NUMBER_TEXT], double count);
char *number_tokens(char text[NUMBER_TEXT], double tokens);
char *number_flops(char text[NUMBER_TEXT], double flops_per_second);

/* Sorts `values` in place and returns their q-quantile by linear interpolation. `count` is at least 1 and q
 * is in [0, 1]: 0.5 gives the median. */
double quantile(double *values, int count, double q);

#endif
