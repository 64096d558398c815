/* Data: the three formats and what is said about wrong ones; draws that depend on no layout. */
#include "runtime/data/data.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>

#include <cmocka.h>
#include <math.h>

enum { HEADER_INTS = 256 };

static void the_generator_is_splitmix64(void **state)
{
        (void)state;
        /* The first outputs for these seeds, of the generator's reference implementation. */
        assert_true(data_splitmix64(0) == 0xE220A8397B1DCDAFu);
        assert_true(data_splitmix64(1234567) == 6457827717110365317u);
}

static void text_becomes_bytes_and_the_last_part_validates(void **state)
{
        (void)state;
        struct scratch scratch;
        struct data data;
        struct rv_error_info err = {0};
        char text[1000];
        for (int i = 0; i < 1000; i++)
                text[i] = (char)(i * 7);
        scratch_open(&scratch);
        assert_int_equal(data_open(&data, scratch_write(&scratch, "a.txt", text, 1000), 256, 16, 0.1, &err),
                         RV_OK);
        assert_int_equal(data.count, 1000);
        assert_int_equal(data.train_count, 900);
        for (int i = 0; i < 1000; i++)
                assert_int_equal(data.tokens[i], i * 7 % 256);
        data_free(&data);
        assert_int_equal(data_open(&data, scratch.path, 256, 16, 0, &err), RV_OK);
        assert_int_equal(data.train_count, 1000);
        data_free(&data);
        scratch_close(&scratch);
}

/* An llm.c file in memory: the header and `tokens` tokens 0, 3, 6 ... below 50257. Returns its size. */
static size_t llmc_file(unsigned char *bytes, int magic, int version, int count, int tokens)
{
        int32_t header[HEADER_INTS] = {magic, version, count};
        memcpy(bytes, header, sizeof header);
        for (int i = 0; i < tokens; i++) {
                uint16_t token = (uint16_t)(i * 3 % 50257);
                memcpy(bytes + sizeof header + 2 * i, &token, 2);
        }
        return sizeof header + 2 * (size_t)tokens;
}

static void both_binary_formats_give_the_same_tokens(void **state)
{
        (void)state;
        struct scratch scratch;
        struct data with, bare;
        struct rv_error_info err = {0};
        unsigned char bytes[HEADER_INTS * 4 + 2 * 5000];
        size_t size = llmc_file(bytes, 20240520, 1, 5000, 5000);
        scratch_open(&scratch);
        assert_int_equal(
                data_open(&with, scratch_write(&scratch, "a.bin", bytes, size), 50257, 64, 0.1, &err), RV_OK);
        scratch_write(&scratch, "b.bin", bytes + HEADER_INTS * 4, size - HEADER_INTS * 4);
        assert_int_equal(data_open(&bare, scratch.path, 50257, 64, 0.1, &err), RV_OK);
        assert_int_equal(with.count, 5000);
        assert_int_equal(bare.count, 5000);
        assert_int_equal(bare.train_count, with.train_count);
        assert_memory_equal(with.tokens, bare.tokens, 5000 * sizeof *bare.tokens);
        for (int i = 0; i < 5000; i++)
                assert_int_equal(bare.tokens[i], i * 3 % 50257);
        data_free(&with);
        data_free(&bare);
        scratch_close(&scratch);
}

/* What data_open says about a file of these bytes. */
static void check_refused(const char *name, const void *bytes, size_t size, int vocab_size, int seq_len,
                          const char *expected)
{
        struct scratch scratch;
        struct data data;
        struct rv_error_info err = {0};
        char sentence[700];
        scratch_open(&scratch);
        const char *path = scratch_write(&scratch, name, bytes, size);
        int status = data_open(&data, path, vocab_size, seq_len, 0.1, &err);
        snprintf(sentence, sizeof sentence, "%s: %s", path, expected);
        scratch_close(&scratch);
        assert_int_equal(status, RV_EINPUT);
        assert_null(data.tokens);
        if (strncmp(err.sentence, sentence, strlen(sentence)) != 0)
                fail_msg("\"%s\" was expected, found \"%s\"", sentence, err.sentence);
}

static void wrong_binary_files_are_refused(void **state)
{
        (void)state;
        static unsigned char bytes[HEADER_INTS * 4 + 2 * 5000];
        size_t size = llmc_file(bytes, 20240520, 1, 5000, 5000);
        check_refused(
                "a.bin", bytes, size - 2, 50257, 64,
                "the header counts 5000 tokens (11024 bytes with it), the file has 11022 bytes: truncated");
        check_refused("a.bin", bytes, size - 1, 50257, 64, "the header counts 5000 tokens (11024 bytes");
        check_refused("a.bin", bytes, 1000, 50257, 64,
                      "truncated: 1000 bytes, an llm.c header alone has 1024");
        check_refused("a.bin", bytes, 4, 50257, 64, "truncated: 4 bytes");
        check_refused("a.bin", bytes + HEADER_INTS * 4, 9999, 50257, 64,
                      "truncated: 9999 bytes, an even number");
        check_refused("a.bin", bytes, size, 256, 64,
                      "token 258 at position 86 is outside the model's vocab_size 256");
        llmc_file(bytes, 20240520, 1, 4000, 5000);
        check_refused(
                "a.bin", bytes, size, 50257, 64,
                "the header counts 4000 tokens (9024 bytes with it), the file has 11024 bytes: too long");
        llmc_file(bytes, 20240520, 1, -1, 5000);
        check_refused("a.bin", bytes, size, 50257, 64, "the header counts -1 tokens");
        llmc_file(bytes, 20240520, 2, 5000, 5000);
        check_refused("a.bin", bytes, size, 50257, 64, "llm.c data of version 2, version 1 was expected");
        llmc_file(bytes, 20240801, 7, 5000, 5000);
        check_refused("a.bin", bytes, size, 50257, 64,
                      "bad magic 20240801 (llm.c's Llama 3 tokens of 32 bits)");
        llmc_file(bytes, (int)__builtin_bswap32(20240520), 1, 5000, 5000);
        check_refused("a.bin", bytes, size, 50257, 64,
                      "bad magic: it is big-endian, little-endian was expected");
        check_refused("a.bin", bytes, 0, 50257, 64, "is empty");
}

/* Whatever the vocabulary: NaN is the tokens 0 and 32704, both GPT-2's. */
static void numbers_of_32_bits_are_refused(void **state)
{
        (void)state;
        float floats[200];
        uint32_t tokens[200];
        uint16_t sound[400];
        for (int i = 0; i < 200; i++) {
                floats[i] = i % 4 == 1 ? INFINITY : NAN;
                tokens[i] = (uint32_t)(i * 97 % 50257);
                sound[2 * i] = sound[2 * i + 1] = (uint16_t)(i % 5);
        }
        check_refused("a.bin", floats, sizeof floats, 50257, 16,
                      "holds floating-point numbers, most of them NaN or infinite");
        check_refused("a.bin", tokens, sizeof tokens, 50257, 16,
                      "every second token is 0, as in a file of 32-bit");
        for (int i = 0; i < 200; i++)
                floats[i] = (float)i / 7;
        check_refused("a.bin", floats, sizeof floats, 256, 16,
                      "token 18725 at position 2 is outside the model's vocab_size 256: a .bin is read as "
                      "tokens of 16 bits");
        /* What only resembles these: tokens that are often 0 or as large as a NaN's, and nothing but 0. */
        struct scratch scratch;
        struct data data;
        struct rv_error_info err = {0};
        scratch_open(&scratch);
        for (int sort = 0; sort < 3; sort++) {
                for (int i = 0; i < 200 && sort == 1; i++)
                        sound[2 * i + 1] = i % 3 ? 0 : 32704;
                if (sort == 2)
                        memset(sound, 0, sizeof sound);
                const char *path = scratch_write(&scratch, "a.bin", sound, sizeof sound);
                if (data_open(&data, path, 50257, 16, 0.1, &err))
                        fail_msg("%d: %s", sort, err.sentence);
                data_free(&data);
        }
        scratch_close(&scratch);
}

static void text_that_does_not_fit_is_refused(void **state)
{
        (void)state;
        static char text[400];
        memset(text, 'a', sizeof text);
        check_refused("a.txt", text, 0, 256, 64, "is empty, a text or tokens were expected");
        check_refused("a.txt", text, 71, 256, 64, "too short: 71 tokens leave 64 for training");
        check_refused("a.txt", text, 72, 256, 64,
                      "too short: 72 tokens leave 7 for validation (validation fraction 0.1)");
        text[33] = (char)200;
        check_refused("a.txt", text, 400, 128, 16,
                      "token 200 at position 33 is outside the model's vocab_size 128");
        struct data data;
        struct rv_error_info err = {0};
        assert_int_equal(data_open(&data, "/no/such.txt", 256, 8, 0.1, &err), RV_EINPUT);
        assert_string_equal(err.sentence, "/no/such.txt: cannot be read: No such file or directory");
        assert_int_equal(data_open(&data, "/tmp", 256, 8, 0.1, &err), RV_EINPUT);
        assert_non_null(strstr(err.sentence, "/tmp: is a folder"));
}

/* Tokens that say where they lie. */
static struct data counting(uint16_t *tokens, int count, int train_count)
{
        for (int i = 0; i < count; i++)
                tokens[i] = (uint16_t)i;
        return (struct data){.tokens = tokens, .count = count, .train_count = train_count};
}

static void a_draw_depends_on_its_place_in_the_run_only(void **state)
{
        (void)state;
        uint16_t tokens[1000];
        struct data data = counting(tokens, 1000, 900);
        enum { STEPS = 5, BATCH = 12, T = 16 };
        int32_t whole[STEPS * BATCH][T], inputs[T], targets[T];
        for (int64_t step = 0; step < STEPS; step++)
                for (int64_t index = 0; index < BATCH; index++) {
                        data_sequence(&data, 42, step, BATCH, index, T, 0, inputs, targets);
                        memcpy(whole[step * BATCH + index], inputs, sizeof inputs);
                        uint64_t place =
                                data_splitmix64(42 * 0x9E3779B97F4A7C15u + (uint64_t)(step * BATCH + index)) %
                                (900 - T);
                        for (int t = 0; t < T; t++) {
                                assert_int_equal(inputs[t], place + (uint64_t)t);
                                assert_int_equal(targets[t], inputs[t] + 1);
                        }
                }
        /* Replicas that each draw their share, last replica first, get the same batches. */
        for (int replicas = 1; replicas <= 4; replicas++)
                for (int replica = replicas - 1; replica >= 0; replica--)
                        for (int step = 0; step < STEPS; step++)
                                for (int i = 0; i < BATCH / replicas; i++) {
                                        int index = replica * (BATCH / replicas) + i;
                                        data_sequence(&data, 42, step, BATCH, index, T, 0, inputs, targets);
                                        assert_memory_equal(inputs, whole[step * BATCH + index],
                                                            sizeof inputs);
                                }
        int same = 0;
        for (int i = 0; i < STEPS * BATCH; i++) {
                data_sequence(&data, 43, i / BATCH, BATCH, i % BATCH, T, 0, inputs, targets);
                same += memcmp(inputs, whole[i], sizeof inputs) == 0;
        }
        assert_in_range(same, 0, 5); /* another seed draws other places */
}

static void training_and_validation_never_share_a_token(void **state)
{
        (void)state;
        uint16_t tokens[200];
        struct data data = counting(tokens, 200, 180);
        int32_t inputs[19], targets[19];
        bool seen[200] = {false};
        for (int i = 0; i < 20000; i++) {
                data_sequence(&data, 7, i, 1, 0, 19, 0, inputs, targets);
                assert_in_range(inputs[0], 0, 179);
                assert_in_range(targets[18], 0, 179);
                seen[inputs[0]] = seen[targets[18]] = true;
                data_sequence(&data, 7, i, 1, 0, 19, 1, inputs, targets);
                assert_int_equal(inputs[0], 180); /* the only place of a part with one sequence */
                assert_int_equal(targets[18], 199);
        }
        /* Every place is drawn, the first and the last with it. */
        for (int i = 0; i < 180; i++)
                assert_true(seen[i]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_generator_is_splitmix64),
                cmocka_unit_test(text_becomes_bytes_and_the_last_part_validates),
                cmocka_unit_test(both_binary_formats_give_the_same_tokens),
                cmocka_unit_test(wrong_binary_files_are_refused),
                cmocka_unit_test(numbers_of_32_bits_are_refused),
                cmocka_unit_test(text_that_does_not_fit_is_refused),
                cmocka_unit_test(a_draw_depends_on_its_place_in_the_run_only),
                cmocka_unit_test(training_and_validation_never_share_a_token),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
