/* Conversions between fp16 and fp32, those of the processor and the portable ones (tests/mk/models.mk
 * compiles models/half.c a second time without the processor's), against their definition in double
 * arithmetic. */
#include "models/half.h"
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

static const struct conversions {
        uint16_t (*from_float)(float);
        float (*to_float)(uint16_t);
        void (*from_floats)(uint16_t *, const float *, int64_t);
        void (*to_floats)(float *, const uint16_t *, int64_t);
        void (*add)(uint16_t *, const uint16_t *, int64_t);
} both[] = {
        {half_from_float, half_to_float, half_from_floats, half_to_floats, half_add},
        {portable_from_float, portable_to_float, portable_from_floats, portable_to_floats, portable_add},
};

enum { HALVES = 65536, NAN_BITS = 0x7c00, ODD_COUNT = 8 * 37 + 5 };

/* The value of a half by its definition: 1 bit of sign, 5 of exponent (bias 15), 10 of fraction. */
static double value_of(unsigned half)
{
        const double sign = half >> 15 ? -1 : 1;
        const int exponent = half >> 10 & 31, fraction = half & 1023;
        if (exponent == 31)
                return fraction ? NAN : sign * INFINITY;
        return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static bool is_nan(unsigned half)
{
        return (half & 0x7fff) > NAN_BITS;
}

/* The half nearest to `value`, of two the even one: by a search among all positive finite ones and what would
 * come after them, 65536, which stands for infinity. */
static unsigned nearest(double value)
{
        const unsigned sign = signbit(value) ? 0x8000 : 0;
        const double size = fabs(value);
        unsigned low = 0, high = NAN_BITS; /* value_of(low) <= size, and < value_of(high) */
        if (size >= 65536)
                return sign | NAN_BITS;
        while (high - low > 1) {
                const unsigned middle = (low + high) / 2;
                if (value_of(middle) <= size)
                        low = middle;
                else
                        high = middle;
        }
        const double above = (high == NAN_BITS ? 65536 : value_of(high)) - size, below = size - value_of(low);
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
        for (int c = 0; c < 2; c++) {
                for (unsigned half = 0; half < HALVES; half++) {
                        const float value = both[c].to_float((uint16_t)half);
                        assert_int_equal(isnan(value) != 0, is_nan(half));
                        assert_int_equal(signbit(value) != 0, half >> 15);
                        if (!is_nan(half))
                                assert_true((double)value == value_of(half));
                }
        }
}

static void every_half_survives_the_way_there_and_back(void **state)
{
        (void)state;
        for (int c = 0; c < 2; c++) {
                for (unsigned half = 0; half < HALVES; half++) {
                        const unsigned back = both[c].from_float(both[c].to_float((uint16_t)half));
                        assert_int_equal(back, is_nan(half) ? half | 0x200 : half); /* NaN becomes quiet */
                }
        }
}

static void check_from(float value)
{
        const unsigned expected = nearest((double)value);
        for (int c = 0; c < 2; c++) {
                const unsigned found = both[c].from_float(value);
                if (found != expected)
                        print_error("%.9g (%a) is %04x, not %04x\n", (double)value, (double)value, found,
                                    expected);
                assert_int_equal(found, expected);
        }
}

static void check_around(float value)
{
        check_from(value);
        check_from(-value);
        check_from(nextafterf(value, INFINITY));
        check_from(nextafterf(value, 0));
        check_from(-nextafterf(value, 0));
}

/* Between neighbours lies one tie; the floats beside it decide otherwise. */
static void floats_go_to_the_nearest_half_and_ties_to_the_even_one(void **state)
{
        (void)state;
        for (unsigned half = 0; half < NAN_BITS; half++) {
                const double here = value_of(half), next = half + 1 == NAN_BITS ? 65536 : value_of(half + 1);
                check_around((float)here);
                check_around((float)((here + next) / 2)); /* exact: one bit more than a half has */
        }
        uint64_t random = 4711;
        for (int i = 0; i < 1000000; i++) {
                const float value = float_of((uint32_t)(random_bits(&random) >> 32));
                if (!isnan(value))
                        check_from(value);
        }
}

static void what_is_too_large_or_too_small_or_no_number(void **state)
{
        (void)state;
        for (int c = 0; c < 2; c++) {
                const struct conversions *k = &both[c];
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
                assert_true(is_nan(k->from_float(NAN)) && is_nan(k->from_float(-NAN)));
        }
        for (uint32_t payload = 1; payload < 1U << 23; payload += 101) { /* both keep the same of a NaN */
                const float value = float_of(0x7f800000 | payload);
                assert_true(is_nan(portable_from_float(value)));
                assert_int_equal(half_from_float(value), portable_from_float(value));
        }
        for (unsigned half = NAN_BITS + 1; half < 0x8000; half++)
                assert_int_equal(bits_of(half_to_float((uint16_t)half)),
                                 bits_of(portable_to_float((uint16_t)half)));
}

/* Lengths that are no multiple of a vector, from addresses that are none either; what is behind stays. */
static void arrays_are_converted_like_their_elements(void **state)
{
        (void)state;
        uint64_t random = 99;
        float from[ODD_COUNT + 3], to[ODD_COUNT + 3];
        uint16_t halves[ODD_COUNT + 3], with[ODD_COUNT + 3], sum[ODD_COUNT + 3];
        for (int c = 0; c < 2; c++) {
                const struct conversions *k = &both[c];
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
                                assert_int_equal(halves[i], nearest((double)from[i]));
                                assert_true((double)to[i] == value_of(halves[i]));
                                with[i] = (uint16_t)nearest((double)from[count + 1 - i]);
                        }
                        memcpy(sum, halves, sizeof sum);
                        k->add(sum + 1, with + 1, count);
                        for (int i = 1; i <= count; i++) /* the sum of two halves is exact in double */
                                assert_int_equal(is_nan(sum[i]) ? 0x7e00 : sum[i],
                                                 isnan(value_of(halves[i]) + value_of(with[i]))
                                                         ? 0x7e00
                                                         : nearest(value_of(halves[i]) + value_of(with[i])));
                        assert_true(halves[0] == 0x1234 && halves[count + 1] == 0x1234 && to[0] == 5 &&
                                    to[count + 1] == 5 && sum[0] == 0x1234 && sum[count + 1] == 0x1234);
                }
        }
}

/* The lanes of a device flush subnormal floats; halves that are subnormal are normal floats, and stay. */
static void subnormal_halves_survive_where_subnormal_floats_are_flushed(void **state)
{
        (void)state;
#ifdef __SSE__
        const unsigned before = _mm_getcsr(), flush_results = 0x8000, flush_operands = 0x0040;
        uint16_t halves[1024], sums[1024], back[1024];
        float values[1024];
        for (int c = 0; c < 2; c++) {
                for (int i = 0; i < 1024; i++) {
                        halves[i] = (uint16_t)i;
                        sums[i] = (uint16_t)(1023 - i);
                }
                _mm_setcsr(before | flush_results | flush_operands);
                both[c].to_floats(values, halves, 1024);
                both[c].from_floats(back, values, 1024);
                both[c].add(sums, halves, 1024);
                const uint16_t alone = both[c].from_float(both[c].to_float(1));
                _mm_setcsr(before);
                assert_int_equal(alone, 1);
                for (int i = 0; i < 1024; i++) {
                        assert_true((double)values[i] == i * 0x1p-24);
                        assert_int_equal(back[i], i);
                        assert_int_equal(sums[i], 1023);
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
                cmocka_unit_test(arrays_are_converted_like_their_elements),
                cmocka_unit_test(subnormal_halves_survive_where_subnormal_floats_are_flushed),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
