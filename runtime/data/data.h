/* The data of a training: the tokens of one file, and the sequences that are drawn from them. Every rank
 * reads the whole file and draws its own sequences; which ones depends on seed, step and number alone, so
 * every grid of ranks trains on the same batches. There is no tokenizer. */
#ifndef RANVIER_RUNTIME_DATA_DATA_H
#define RANVIER_RUNTIME_DATA_DATA_H

#include "runtime/base/error.h"

#include <stdint.h>

struct data {
        uint16_t *tokens;    /* [count] */
        int64_t count;       /* of all tokens */
        int64_t train_count; /* tokens [0, train_count) are for training, the rest for validation */
};

/* Reads the file `path` into `data`. A name that ends in .bin is a file of tokens: nanoGPT's (bare
 * little-endian uint16) or llm.c's (a header of 256 int32 with magic 20240520). Any other file is a text,
 * whose bytes are the tokens (0 to 255). The last `validation_fraction` of the tokens, at least 0 and below
 * 1, are for validation.
 *
 * Checks that all tokens are below `vocab_size`; that both parts hold at least one sequence of seq_len +
 * 1 tokens (with validation_fraction 0 there is no validation part); and that a bare .bin does not look
 * like integers or NaNs of 32 bits. Returns 0, RV_EINPUT, or RV_ESYSTEM; after a failure nothing needs to
 * be freed. */
int data_open(struct data *, const char *path, int vocab_size, int seq_len, double validation_fraction,
              struct rv_error_info *err);

/* Frees the tokens and leaves all zeros. */
void data_free(struct data *);

/* Returns a checksum of the tokens, by which ranks compare what they have read. */
uint64_t data_checksum(const struct data *);

/* Copies sequence `index` (below batch_size) of step `step`: seq_len inputs, and seq_len targets, which are
 * the tokens one later. Either may be NULL: then it is not wanted. With `validation` the sequence is from the
 * validation part, else from the training part. It begins, in its part, at token splitmix64(seed x
 * 0x9E3779B97F4A7C15 + (step x batch_size + index)) mod (tokens of the part - seq_len). */
void data_sequence(const struct data *, uint64_t seed, int64_t step, int64_t batch_size, int64_t index,
                   int seq_len, int validation, int32_t *inputs, int32_t *targets);

/* The same of a sequence that is spread over `ranks` ranks, in 2 ranks pieces of equal lengths (which must
 * divide it): copies those of `rank`, which are piece `rank` and the one as far from the end. So every rank
 * has as much to attend to: what its first piece has less of before it, its second has more. */
void data_pieces(const struct data *, uint64_t seed, int64_t step, int64_t batch_size, int64_t index,
                 int seq_len, int validation, int ranks, int rank, int32_t *inputs, int32_t *targets);

/* Returns the first output of the generator splitmix64 seeded with `x`; data_splitmix64(0) is
 * 0xE220A8397B1DCDAF. Initial weights and samples are drawn with it, too. */
uint64_t data_splitmix64(uint64_t x);

#endif
