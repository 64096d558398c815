/* Tokens of text, and the batches drawn from them. */
#ifndef RANVIER_RUNTIME_DATA_DATA_H
#define RANVIER_RUNTIME_DATA_DATA_H

#include "runtime/base/error.h"

#include <stdint.h>

struct data {
        uint16_t *tokens;
        int64_t count;
        int64_t train_count; /* tokens [0, train_count) train, the rest validate */
};

/* `path`: a text file (byte-level tokens, 0..255), a nanoGPT .bin (bare little-endian uint16) or an llm.c
 * .bin (header of 256 int32, magic 20240520). Checks tokens against vocab_size and that both parts hold at
 * least one sequence of seq_len + 1 tokens (with validation_fraction 0 there is no validation part), and that
 * a bare .bin does not look like integers or NaNs of 32 bits. */
int data_open(struct data *, const char *path, int vocab_size, int seq_len, double validation_fraction,
              struct rv_error_info *err);
void data_free(struct data *);

/* A number that is the same for the same tokens, and hardly for others. */
uint64_t data_checksum(const struct data *);

/* Sequence `index` of step `step`: seq_len inputs and, one later, seq_len targets (NULL: not wanted). Its
 * place is splitmix64(seed x 0x9E3779B97F4A7C15 + (step x batch_size + index)) mod (part's tokens - seq_len):
 * it does not depend on the layout. `validation`: from the validation part. */
void data_sequence(const struct data *, uint64_t seed, int64_t step, int64_t batch_size, int64_t index,
                   int seq_len, int validation, int32_t *inputs, int32_t *targets);

/* The generator above, also used for initial weights: the first output of splitmix64 seeded with `x`, so
 * data_splitmix64(0) is 0xE220A8397B1DCDAF. */
uint64_t data_splitmix64(uint64_t x);

#endif
