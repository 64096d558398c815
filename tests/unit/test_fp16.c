/* Conversions between 16 bits and fp32 against their definition in double arithmetic: fp16's, those of the
 * processor and the portable ones (tests/mk/models.mk compiles runtime/base/fp16.c a second time without the
 * processor's), and bf16's. */
#include "runtime/base/fp16.h"
#include "tests/unit/numbers.h"

#include <stdbool.h>
#include <string.h>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

uint16_t portable_from_float(float value);
float portable_to_float(uint16_t half);
void portable_from_floats(uint16_t *to, const float *from, int64_t count);
void portable_to_floats(float *to, const uint16_t *from, int64_t count);
void portable_add(uint16_t *sum, const uint16_t *with, int64_t count);

/* Where the fields of a format begin, and what its NaN, its quiet NaN and its infinity are by that. */
struct format {
        int fraction_bits, bias;
        unsigned infinity, quiet;
        double overflow; /* what would come after the largest finite number */
};
static const struct format fp16 = {10, 15, 0x7c00, 0x200, 0x1p16}, bf16 = {7, 127, 0x7f80, 0x40, 0x1p128};

static const struct conversions {
        const struct format *format;
        uint16_t (*from_float)(float);
        float (*to_float)(uint16_t);
        void (*from_floats)(uint16_t *, const float *, int64_t);
        void (*to_floats)(float *, const uint16_t *, int64_t);
        void (*add)(uint16_t *, const uint16_t *, int64_t);
} all[] = {
        {&fp16, fp16_from_float, fp16_to_float, fp16_from_floats, fp16_to_floats, fp16_add},
        {&fp16, portable_from_float, portable_to_float, portable_from_floats, portable_to_floats,
         portable_add},
        {&bf16, bf16_from_float, bf16_to_float, bf16_from_floats, bf16_to_floats, bf16_add},
};

enum { HALVES = 65536, CONVERSIONS = sizeof all / sizeof *all, ODD_COUNT = 8 * 37 + 5 };

/* The value of 16 bits by the definition of their format: sign, exponent, fraction. */
static double value_of(const struct format *f, unsigned half)
{
        const double sign = half >> 15 ? -1 : 1;
        const int unit = 1 << f->fraction_bits, fraction = (int)half & (unit - 1);
        const int exponent = (int)(half & 0x7fff) >> f->fraction_bits;
        if ((half & 0x7fff) >= f->infinity)
                return fraction ? NAN : sign * INFINITY;
        return sign * (exponent ? ldexp(unit + fraction, exponent - f->bias - f->fraction_bits)
                                : ldexp(fraction, 1 - f->bias - f->fraction_bits));
}

static bool is_nan(const struct format *f, unsigned half)
{
        return (half & 0x7fff) > f->infinity;
}

/* The half nearest to `value`, of two the even one: by a search among all positive finite ones and what would
 * come after them, which stands for infinity. */
static unsigned nearest(const struct format *f, double value)
{
        const unsigned sign = signbit(value) ? 0x8000 : 0;
        const double size = fabs(value);
        unsigned low = 0, high = f->infinity; /* value_of(low) <= size, and < value_of(high) */
        if (size >= f->overflow)
                return sign | f->infinity;
        while (high - low > 1) {
                const unsigned middle = (low + high) / 2;
                if (value_of(f, middle) <= size)
                        low = middle;
                else
                        high = middle;
        }
        const double above = (high == f->infinity ? f->overflow : value_of(f, high)) - size,
                     below = size - value_of(f, low);
        const bool up = above < below || (above == below && low % 2 == 1);
        return sign | (up ? high : low);
}

static uint32_t bits_of(float value)
{
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        return bits;
}

static float float_of(uint32_t bits)
{
        float value;
        memcpy(&value, &bits, sizeof value);
        return value;
}

static void every_half_has_its_value(void **state)
{
        (void)state;
        for (int c = 0; c < CONVERSIONS; c++) {
                for (unsigned half = 0; half < HALVES; half++) {
                        const float value = all[c].to_float((uint16_t)half);
                        assert_int_equal(isnan(value) != 0, is_nan(all[c].format, half));
                        assert_int_equal(signbit(value) != 0, half >> 15);
                        if (!is_nan(all[c].format, half))
                                assert_true((double)value == value_of(all[c].format, half));
                }
        }
}

static void every_half_survives_the_way_there_and_back(void **state)
{
        (void)state;
        for (int c = 0; c < CONVERSIONS; c++) {
                const struct format *f = all[c].format;
                for (unsigned half = 0; half < HALVES; half++) {
                        const unsigned back = all[c].from_float(all[c].to_float((uint16_t)half));
                        assert_int_equal(back, is_nan(f, half) ? half | f->quiet : half);
                }
        }
}

static void check_from(const struct format *f, float value)
{
        const unsigned expected = nearest(f, (double)value);
        for (int c = 0; c < CONVERSIONS; c++) {
                if (all[c].format != f)
                        continue;
                const unsigned found = all[c].from_float(value);
                if (found != expected)
                        print_error("%.9g (%a) is %04x, not %04x\n", (double)value, (double)value, found,
                                    expected);
                assert_int_equal(found, expected);
        }
}

static void check_around(const struct format *f, float value)
{
        check_from(f, value);
        check_from(f, -value);
        check_from(f, nextafterf(value, INFINITY));
        check_from(f, nextafterf(value, 0));
        check_from(f, -nextafterf(value, 0));
}

/* Between neighbours lies one tie; the floats beside it decide otherwise. */
static void check_ties(const struct format *f)
{
        for (unsigned half = 0; half < f->infinity; half++) {
                const double here = value_of(f, half),
                             next = half + 1 == f->infinity ? f->overflow : value_of(f, half + 1);
                check_around(f, (float)here);
                check_around(f, (float)((here + next) / 2)); /* exact: one bit more than a half has */
        }
}

static void floats_go_to_the_nearest_half_and_ties_to_the_even_one(void **state)
{
        (void)state;
        check_ties(&fp16);
        check_ties(&bf16);
        uint64_t random = 4711;
        print_message("seed %llu\n", (unsigned long long)random);
        for (int i = 0; i < 1000000; i++) {
                const float value = float_of((uint32_t)(random_bits(&random) >> 32));
                if (isnan(value))
                        continue;
                check_from(&fp16, value);
                check_from(&bf16, value);
        }
}

static void what_is_too_large_or_too_small_or_no_number(void **state)
{
        (void)state;
        for (int c = 0; c < 2; c++) { /* of fp16 */
                const struct conversions *k = &all[c];
                assert_int_equal(k->from_float(65504), 0x7bff);
                assert_int_equal(k->from_float(nextafterf(65520, 0)), 0x7bff);
                assert_int_equal(k->from_float(65520), 0x7c00);
                assert_int_equal(k->from_float(-65520), 0xfc00);
                assert_int_equal(k->from_float(FLT_MAX), 0x7c00);
                assert_int_equal(k->from_float(-INFINITY), 0xfc00);
                assert_int_equal(k->from_float(0x1p-24F), 1);
                assert_int_equal(k->from_float(0x1p-25F), 0); /* a tie: even */
                assert_int_equal(k->from_float(nextafterf(0x1p-25F, 1)), 1);
                assert_int_equal(k->from_float(-FLT_MIN), 0x8000);
                assert_int_equal(k->from_float(float_of(1)), 0);
                assert_true(is_nan(&fp16, k->from_float(NAN)) && is_nan(&fp16, k->from_float(-NAN)));
        }
        for (uint32_t payload = 1; payload < 1U << 23; payload += 101) { /* both keep the same of a NaN */
                const float value = float_of(0x7f800000 | payload);
                assert_true(is_nan(&fp16, portable_from_float(value)));
                assert_true(is_nan(&bf16, bf16_from_float(value)));
                assert_int_equal(fp16_from_float(value), portable_from_float(value));
        }
        for (unsigned half = fp16.infinity + 1; half < 0x8000; half++)
                assert_int_equal(bits_of(fp16_to_float((uint16_t)half)),
                                 bits_of(portable_to_float((uint16_t)half)));
}

/* What fp32 has and bf16 not: numbers beyond the largest bf16, and subnormal ones of more bits. */
static void what_is_too_large_or_too_small_for_bf16(void **state)
{
        (void)state;
        assert_int_equal(bf16_from_float(0x1.fep127F), 0x7f7f);
        assert_int_equal(bf16_from_float(nextafterf(0x1.ffp127F, 0)), 0x7f7f);
        assert_int_equal(bf16_from_float(0x1.ffp127F), 0x7f80); /* a tie: even */
        assert_int_equal(bf16_from_float(-FLT_MAX), 0xff80);
        assert_int_equal(bf16_from_float(INFINITY), 0x7f80);
        assert_int_equal(bf16_from_float(0x1p-133F), 1);
        assert_int_equal(bf16_from_float(0x1p-134F), 0); /* a tie: even */
        assert_int_equal(bf16_from_float(-0x1.8p-134F), 0x8001);
        assert_int_equal(bf16_from_float(float_of(1)), 0);
        assert_int_equal(bf16_from_float(float_of(0x7fffffff)), 0x7fff); /* no carry into the sign */
        assert_int_equal(bf16_from_float(float_of(0xff800001)), 0xffc0);
}

/* Lengths that are no multiple of a vector, from addresses that are none either; what is behind stays. */
static void arrays_are_converted_like_their_elements(void **state)
{
        (void)state;
        uint64_t random = 99;
        float from[ODD_COUNT + 3], to[ODD_COUNT + 3];
        uint16_t halves[ODD_COUNT + 3], with[ODD_COUNT + 3], sum[ODD_COUNT + 3];
        for (int c = 0; c < CONVERSIONS; c++) {
                const struct conversions *k = &all[c];
                const struct format *f = k->format;
                const unsigned quiet_nan = f->infinity | f->quiet;
                for (int count = 0; count <= ODD_COUNT; count += count < 20 ? 1 : 37) {
                        for (int i = 0; i < ODD_COUNT + 3; i++) {
                                from[i] = (float)ldexp(random_number(&random),
                                                       (int)random_below(&random, 44) - 26);
                                halves[i] = with[i] = 0x1234;
                                to[i] = 5;
                        }
                        k->from_floats(halves + 1, from + 1, count);
                        k->to_floats(to + 1, halves + 1, count);
                        for (int i = 1; i <= count; i++) {
                                assert_int_equal(halves[i], nearest(f, (double)from[i]));
                                assert_true((double)to[i] == value_of(f, halves[i]));
                                with[i] = (uint16_t)nearest(f, (double)from[count + 1 - i]);
                        }
                        memcpy(sum, halves, sizeof sum);
                        k->add(sum + 1, with + 1, count);
                        for (int i = 1; i <= count; i++) /* the sum of two halves is exact in double */
                                assert_int_equal(
                                        is_nan(f, sum[i]) ? quiet_nan : sum[i],
                                        isnan(value_of(f, halves[i]) + value_of(f, with[i]))
                                                ? quiet_nan
                                                : nearest(f, value_of(f, halves[i]) + value_of(f, with[i])));
                        assert_true(halves[0] == 0x1234 && halves[count + 1] == 0x1234 && to[0] == 5 &&
                                    to[count + 1] == 5 && sum[0] == 0x1234 && sum[count + 1] == 0x1234);
                }
        }
}

/* The lanes of a device flush subnormal floats; fp16 numbers that are subnormal are normal floats, and stay.
 * Subnormal bf16 numbers are subnormal floats: converted they stay, their sums become 0. */
static void subnormal_halves_survive_where_subnormal_floats_are_flushed(void **state)
{
        (void)state;
#ifdef __SSE__
        const unsigned before = _mm_getcsr(), flush_results = 0x8000, flush_operands = 0x0040;
        uint16_t halves[1024], sums[1024], back[1024];
        float values[1024];
        for (int c = 0; c < CONVERSIONS; c++) {
                const struct format *f = all[c].format;
                const int count = 1 << f->fraction_bits, last = count - 1; /* subnormal numbers */
                for (int i = 0; i < count; i++) {
                        halves[i] = (uint16_t)i;
                        sums[i] = (uint16_t)(last - i);
                }
                _mm_setcsr(before | flush_results | flush_operands);
                all[c].to_floats(values, halves, count);
                all[c].from_floats(back, values, count);
                all[c].add(sums, halves, count);
                const uint16_t alone = all[c].from_float(all[c].to_float(1));
                _mm_setcsr(before);
                assert_int_equal(alone, 1);
                for (int i = 0; i < count; i++) {
                        assert_true((double)values[i] == value_of(f, (unsigned)i));
                        assert_int_equal(back[i], i);
                        assert_int_equal(sums[i], f == &fp16 ? last : 0);
                }
        }
#else
        skip();
#endif
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_half_has_its_value),
                cmocka_unit_test(every_half_survives_the_way_there_and_back),
                cmocka_unit_test(floats_go_to_the_nearest_half_and_ties_to_the_even_one),
                cmocka_unit_test(what_is_too_large_or_too_small_or_no_number),
                cmocka_unit_test(what_is_too_large_or_too_small_for_bf16),
                cmocka_unit_test(arrays_are_converted_like_their_elements),
                cmocka_unit_test(subnormal_halves_survive_where_subnormal_floats_are_flushed),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
