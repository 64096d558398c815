#include "runtime/data/data.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* llm.c's header: 256 int32, of which the first three say what follows. */
enum { HEADER_BYTES = 256 * 4, MAGIC_GPT2 = 20240520, MAGIC_LLAMA3 = 20240801, VERSION = 1 };

uint64_t data_splitmix64(uint64_t x)
{
        x += 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
        x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
        return x ^ (x >> 31);
}

/* Reads all of a stream into a malloc'ed buffer; NULL if memory or the stream fails (errno says which). */
static unsigned char *read_all(FILE *stream, size_t *size)
{
        size_t capacity = 1 << 20, used = 0, got;
        unsigned char *bytes = malloc(capacity);
        while (bytes && (got = fread(bytes + used, 1, capacity - used, stream)) > 0) {
                used += got;
                if (used < capacity)
                        continue;
                unsigned char *grown = realloc(bytes, capacity *= 2);
                if (!grown)
                        free(bytes);
                bytes = grown;
        }
        if (bytes && ferror(stream)) {
                free(bytes);
                return NULL;
        }
        *size = used;
        return bytes;
}

static unsigned char *read_file(const char *path, size_t *size, struct rv_error_info *err)
{
        struct stat info;
        if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) { /* each rank reads it, to its end */
                rv_fail(err, RV_EINPUT, "%s: is a %s, a text file or a token .bin file was expected", path,
                        S_ISDIR(info.st_mode) ? "folder" : "pipe or device");
                return NULL;
        }
        FILE *stream = fopen(path, "rb");
        if (!stream) {
                rv_fail(err, RV_EINPUT, "%s: cannot be read: %s", path, strerror(errno));
                return NULL;
        }
        unsigned char *bytes = read_all(stream, size);
        if (!bytes)
                rv_fail(err, RV_ESYSTEM, "%s: cannot be read: %s", path, strerror(errno));
        fclose(stream);
        return bytes;
}

static uint32_t little_endian_32(const unsigned char *bytes)
{
        return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
               (uint32_t)bytes[3] << 24;
}

/* Checks an llm.c header, if there is one. `skip`: its bytes, 0 for a bare file. */
static int check_header(const char *path, const unsigned char *bytes, size_t size, size_t *skip,
                        struct rv_error_info *err)
{
        *skip = 0;
        uint32_t magic = size >= 4 ? little_endian_32(bytes) : 0;
        if (magic == MAGIC_LLAMA3)
                return rv_fail(err, RV_EINPUT,
                               "%s: bad magic %d (llm.c's Llama 3 tokens of 32 bits), %d (GPT-2, 16 bits) "
                               "was expected",
                               path, MAGIC_LLAMA3, MAGIC_GPT2);
        if (magic == __builtin_bswap32(MAGIC_GPT2))
                return rv_fail(err, RV_EINPUT, "%s: bad magic: it is big-endian, little-endian was expected",
                               path);
        if (magic != MAGIC_GPT2)
                return RV_OK;
        if (size < HEADER_BYTES)
                return rv_fail(err, RV_EINPUT, "%s: truncated: %zu bytes, an llm.c header alone has %d", path,
                               size, HEADER_BYTES);
        uint32_t version = little_endian_32(bytes + 4);
        if (version != VERSION)
                return rv_fail(err, RV_EINPUT, "%s: llm.c data of version %u, version %d was expected", path,
                               version, VERSION);
        int64_t count = (int32_t)little_endian_32(bytes + 8);
        int64_t expected = HEADER_BYTES + 2 * count;
        if (count < 0 || (int64_t)size != expected)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: the header counts %lld tokens (%lld bytes with it), the file has %zu bytes: %s",
                        path, (long long)count, (long long)expected, size,
                        (int64_t)size < expected ? "truncated" : "too long");
        *skip = HEADER_BYTES;
        return RV_OK;
}

/* A bare file says nothing of what it holds. Numbers of 32 bits would be trained on as pairs of tokens, of
 * which the second shows what they are: 0 behind every token (integers), or the exponent of NaN and infinity
 * (floats). Among tokens neither is likely, so that it takes a few of them to tell. */
static int check_width(const struct data *data, const char *path, struct rv_error_info *err)
{
        enum { FEWEST_PAIRS = 16 };
        int64_t pairs = data->count / 2, zeros = 0, not_numbers = 0;
        bool any = false;
        for (int64_t i = 0; i < pairs; i++) {
                const uint16_t *pair = data->tokens + 2 * i;
                any = any || pair[0] != 0;
                zeros += pair[1] == 0;
                not_numbers += (pair[1] & 0x7F80) == 0x7F80;
        }
        if (pairs < FEWEST_PAIRS || data->count % 2)
                return RV_OK;
        if (2 * not_numbers >= pairs)
                return rv_fail(err, RV_EINPUT,
                               "%s: holds floating-point numbers, most of them NaN or infinite: tokens, "
                               "integers of 16 bits, were expected",
                               path);
        if (any && zeros == pairs)
                return rv_fail(
                        err, RV_EINPUT,
                        "%s: every second token is 0, as in a file of 32-bit tokens: tokens of 16 bits "
                        "were expected",
                        path);
        return RV_OK;
}

/* Turns the bytes of a .bin file into tokens, in place; `bytes` then belongs to `data`. */
static int take_bin(struct data *data, const char *path, unsigned char *bytes, size_t size,
                    struct rv_error_info *err)
{
        size_t skip;
        int status = check_header(path, bytes, size, &skip, err);
        if (status != RV_OK)
                return status;
        if (size % 2 != 0)
                return rv_fail(err, RV_EINPUT,
                               "%s: truncated: %zu bytes, an even number (tokens of 16 bits) was expected",
                               path, size);
        data->tokens = (uint16_t *)(void *)bytes;
        data->count = (int64_t)(size - skip) / 2;
        for (int64_t i = 0; i < data->count; i++) {
                const unsigned char *token = bytes + skip + 2 * i;
                data->tokens[i] = (uint16_t)(token[0] | token[1] << 8);
        }
        return skip ? RV_OK : check_width(data, path, err);
}

/* Every byte of a text is a token. `bytes` stays the caller's. */
static int copy_text(struct data *data, const char *path, const unsigned char *bytes, size_t size,
                     struct rv_error_info *err)
{
        data->tokens = malloc((size ? size : 1) * sizeof *data->tokens);
        if (!data->tokens)
                return rv_fail(err, RV_ESYSTEM, "%s: no memory for its %zu tokens", path, size);
        for (size_t i = 0; i < size; i++)
                data->tokens[i] = bytes[i];
        data->count = (int64_t)size;
        return RV_OK;
}

static bool ends_in_bin(const char *path)
{
        size_t length = strlen(path);
        return length >= 4 && strcmp(path + length - 4, ".bin") == 0;
}

static int check_tokens(const struct data *data, const char *path, int vocab_size, struct rv_error_info *err)
{
        for (int64_t i = 0; i < data->count; i++)
                if (data->tokens[i] >= vocab_size)
                        return rv_fail(err, RV_EINPUT,
                                       "%s: token %d at position %lld is outside the model's vocab_size %d%s",
                                       path, data->tokens[i], (long long)i, vocab_size,
                                       ends_in_bin(path)
                                               ? ": a .bin is read as tokens of 16 bits, of the model's "
                                                 "vocabulary"
                                               : ": the tokens of a text are its bytes, 0 to 255");
        return RV_OK;
}

/* Cuts off the validation part, and checks that each part holds a sequence and the token after it. */
static int split(struct data *data, const char *path, int seq_len, double validation_fraction,
                 struct rv_error_info *err)
{
        if (data->count == 0)
                return rv_fail(err, RV_EINPUT, "%s: is empty, a text or tokens were expected", path);
        int64_t validation = (int64_t)((double)data->count * validation_fraction);
        data->train_count = data->count - validation;
        const struct {
                const char *name;
                int64_t count;
                bool needed;
        } parts[] = {
                {"training", data->train_count, true},
                {"validation", validation, validation_fraction > 0},
        };
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
                if (parts[i].needed && parts[i].count < (int64_t)seq_len + 1)
                        return rv_fail(
                                err, RV_EINPUT,
                                "%s: too short: %lld tokens leave %lld for %s (validation fraction %g), a "
                                "sequence of %d needs %lld",
                                path, (long long)data->count, (long long)parts[i].count, parts[i].name,
                                validation_fraction, seq_len, (long long)seq_len + 1);
        return RV_OK;
}

int data_open(struct data *data, const char *path, int vocab_size, int seq_len, double validation_fraction,
              struct rv_error_info *err)
{
        assert(validation_fraction >= 0 && validation_fraction < 1);
        memset(data, 0, sizeof *data);
        size_t size = 0;
        unsigned char *bytes = read_file(path, &size, err);
        if (!bytes)
                return err ? err->code : RV_EINPUT;
        int status = ends_in_bin(path) ? take_bin(data, path, bytes, size, err)
                                       : copy_text(data, path, bytes, size, err);
        if ((void *)data->tokens != (void *)bytes)
                free(bytes);
        if (status == RV_OK)
                status = check_tokens(data, path, vocab_size, err);
        if (status == RV_OK)
                status = split(data, path, seq_len, validation_fraction, err);
        if (status != RV_OK)
                data_free(data);
        return status;
}

/* Four tokens at a time: a file may have billions of them. */
uint64_t data_checksum(const struct data *data)
{
        uint64_t sum = (uint64_t)data->count;
        for (int64_t i = 0; i < data->count; i += 4) {
                uint64_t word = 0;
                const int64_t left = data->count - i;
                memcpy(&word, data->tokens + i, (size_t)(left < 4 ? left : 4) * sizeof *data->tokens);
                sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
                sum ^= sum >> 32;
        }
        return data_splitmix64(sum);
}

void data_free(struct data *data)
{
        free(data->tokens);
        memset(data, 0, sizeof *data);
}

/* Where a sequence begins. */
static const uint16_t *sequence_at(const struct data *data, uint64_t seed, int64_t step, int64_t batch_size,
                                   int64_t index, int seq_len, int validation)
{
        int64_t begin = validation ? data->train_count : 0;
        int64_t places = (validation ? data->count - begin : data->train_count) - seq_len;
        assert(places >= 1);
        uint64_t draw = data_splitmix64(seed * 0x9E3779B97F4A7C15u + (uint64_t)(step * batch_size + index));
        return data->tokens + begin + (int64_t)(draw % (uint64_t)places);
}

static void copy_tokens(const uint16_t *at, int count, int32_t *inputs, int32_t *targets)
{
        for (int t = 0; t < count; t++) {
                if (inputs)
                        inputs[t] = at[t];
                if (targets)
                        targets[t] = at[t + 1];
        }
}

void data_sequence(const struct data *data, uint64_t seed, int64_t step, int64_t batch_size, int64_t index,
                   int seq_len, int validation, int32_t *inputs, int32_t *targets)
{
        copy_tokens(sequence_at(data, seed, step, batch_size, index, seq_len, validation), seq_len, inputs,
                    targets);
}

void data_pieces(const struct data *data, uint64_t seed, int64_t step, int64_t batch_size, int64_t index,
                 int seq_len, int validation, int ranks, int rank, int32_t *inputs, int32_t *targets)
{
        const uint16_t *at = sequence_at(data, seed, step, batch_size, index, seq_len, validation);
        const int piece = seq_len / (2 * ranks), second = 2 * ranks - 1 - rank;
        copy_tokens(at + (int64_t)rank * piece, piece, inputs, targets);
        copy_tokens(at + (int64_t)second * piece, piece, inputs ? inputs + piece : NULL,
                    targets ? targets + piece : NULL);
}
