/* `ranvier sample`: text from a checkpoint of a byte-level model, one token at a time. */
#include "runtime/base/file.h"
#include "runtime/base/command_line.h"
#include "runtime/base/setting.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/data.h"
#include "runtime/plan/options.h"
#include "runtime/nn/nn.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(real) == sizeof(float), "checkpoints hold fp32, as do the programs' kernels");
enum { BYTES = 256 }; /* the vocabulary of a byte-level model */

struct arguments {
        const char *checkpoint, *prompt, *device, *cpu_kernels;
        int64_t tokens, top_k;
        double temperature;
        uint64_t seed;
};

static int parse_device(void *at, const char *option, const char *text, struct rv_error_info *err)
{
        (void)option;
        return options_parse_device(text, at, err);
}

#define AT(member) .offset = offsetof(struct arguments, member)

/* clang-format off */
static const struct setting option_rows[] = {
        {SETTING_TEXT, "prompt", 'p', "TEXT", "Text to go on from (default: a new line)", AT(prompt)},
        {SETTING_WHOLE, "tokens", 'n', "N", "Bytes to write after the prompt (default 256)", AT(tokens),
         .min = 0, .max = 1000000000},
        {SETTING_REAL, "temperature", 't', "T",
         "Below 1 prefers likely bytes, 0 takes always the likeliest (default 0.8)", AT(temperature),
         .low = 0, .high = 100},
        {SETTING_WHOLE, "top-k", 'k', "K", "Choose among the K likeliest bytes only (default: all)", AT(top_k),
         .min = 1, .max = BYTES},
        {SETTING_WHOLE, "seed", 's', "S",
         "Start of the random numbers; the same seed gives the same text (default 1)", AT(seed),
         .min = 0, .max = INT64_MAX},
        {SETTING_OWN, "device", 'd', "NAME", "What computes: cpu, the default, or cuda", AT(device), .parse = parse_device},
        {SETTING_TEXT, "cpu-kernels", 0, "NAME",
         "As of ranvier train: auto (the default), avx512, avx2, baseline or scalar; cpu only", AT(cpu_kernels)},
        {.help = NULL},
};
/* clang-format on */

static error_t parse_option(int key, char *text, struct argp_state *state)
{
        struct arguments *arguments = state->input;
        if (key != ARGP_KEY_ARG)
                return settings_take(option_rows, arguments, key, text, command_line_error(state));
        if (arguments->checkpoint)
                return ARGP_ERR_UNKNOWN;
        arguments->checkpoint = text;
        return 0;
}

/* The model on a device, and what it reads: the last `filled` bytes of the text. */
struct sampler {
        struct device *device;
        struct nn_stage *nn;
        int32_t *window; /* [T]; what follows the filled part does not matter, attention is causal */
        int T, filled;
};

/* `seq_len`: what the model was trained on; it knows no positions beyond. */
static int sampler_open(struct sampler *sampler, const struct arguments *arguments, const struct gpt *gpt,
                        int seq_len, const float *weights, struct rv_error_info *err)
{
        struct stage whole = partition_stage(gpt, 1, 0);
        struct memory_plan plan = {
                .work = {.micro_batch_size = 1, .seq_len = seq_len, .real_bytes = sizeof(real)},
                .micro_batches = 1,
                .slots = 1,
        };
        sampler->T = seq_len;
        sampler->window = calloc((size_t)sampler->T, sizeof *sampler->window);
        if (!sampler->window)
                return rv_fail(err, RV_ESYSTEM, "no memory for a window of %d tokens", sampler->T);
        const struct device_request request = {.threads = device_cpu_threads(1, err),
                                               .local_ranks = 1,
                                               .cpu_kernels = arguments->cpu_kernels};
        if (request.threads < 0)
                return err->code;
        sampler->device = device_open(arguments->device, &request, err);
        if (!sampler->device)
                return err->code;
        sampler->nn = nn_open(sampler->device, gpt, &whole, &plan, false, err);
        if (!sampler->nn)
                return RV_ESYSTEM;
        nn_write_parameters(sampler->nn, 0, sampler->nn->parameters, weights);
        return RV_OK;
}

static void sampler_close(struct sampler *sampler)
{
        if (sampler->nn)
                nn_close(sampler->nn);
        if (sampler->device)
                sampler->device->ops->close(sampler->device);
        free(sampler->window);
}

/* Appends a byte to the window; a full window loses its oldest. */
static void sampler_push(struct sampler *sampler, int byte)
{
        if (sampler->filled == sampler->T)
                memmove(sampler->window, sampler->window + 1,
                        (size_t)--sampler->filled * sizeof *sampler->window);
        sampler->window[sampler->filled++] = byte;
}

/* The logits (BYTES) of what follows the window. */
static void sampler_logits(struct sampler *sampler, real *logits)
{
        struct device *device = sampler->device;
        memcpy(sampler->nn->host_tokens, sampler->window, (size_t)sampler->T * sizeof *sampler->window);
        nn_load(sampler->nn);
        device->ops->synchronize(device);
        nn_forward(sampler->nn, 0, 0, -1, 0, true);
        device->ops->synchronize(device);
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, logits,
                          nn_at(sampler->nn, nn_logits(sampler->nn, 0), (sampler->filled - 1) * BYTES),
                          BYTES * (int64_t)sizeof *logits);
        device->ops->synchronize(device);
}

/* A byte drawn with probability softmax(logits / temperature) among the top_k likeliest. `uniform` in [0, 1).
 */
static int draw(const real *logits, double temperature, int64_t top_k, double uniform)
{
        int order[BYTES] = {0}; /* likeliest first: an insertion sort, of 256 */
        double weights[BYTES], sum = 0;
        for (int byte = 0; byte < BYTES; byte++) {
                int at = byte;
                for (; at > 0 && logits[order[at - 1]] < logits[byte]; at--)
                        order[at] = order[at - 1];
                order[at] = byte;
        }
        if (temperature == 0)
                return order[0];
        for (int i = 0; i < top_k; i++)
                sum += weights[i] = exp((logits[order[i]] - logits[order[0]]) / temperature);
        double left = uniform * sum;
        for (int i = 0; i < top_k; i++)
                if ((left -= weights[i]) < 0)
                        return order[i];
        return order[top_k - 1];
}

/* Text on its way to a terminal: a UTF-8 character is held until it is whole. */
struct printer {
        unsigned char held[4];
        int count, expected;
};

static void print_escaped(struct printer *printer)
{
        for (int i = 0; i < printer->count; i++)
                printf("\\x%02x", printer->held[i]);
        printer->count = 0;
}

/* Bytes of the UTF-8 character that begins with `byte`; 0 if none does. */
static int utf8_length(unsigned char byte)
{
        if (byte < 0x80)
                return 1;
        if (byte < 0xc2 || byte > 0xf4)
                return 0;
        return byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

/* Control characters would be obeyed by a terminal, so they and broken UTF-8 are written as \xHH. */
static void print_byte(struct printer *printer, unsigned char byte)
{
        bool continues = (byte & 0xc0) == 0x80;
        if (printer->count > 0 && !continues)
                print_escaped(printer);
        if (printer->count == 0)
                printer->expected = utf8_length(byte);
        printer->held[printer->count++] = byte;
        if (printer->count < printer->expected)
                return;
        const unsigned char *held = printer->held;
        bool control = printer->expected == 0 || (held[0] < 0x20 && held[0] != '\n' && held[0] != '\t') ||
                       held[0] == 0x7f || (held[0] == 0xc2 && held[1] < 0xa0);
        bool surrogate_or_overlong =
                (held[0] == 0xe0 && held[1] < 0xa0) || (held[0] == 0xed && held[1] >= 0xa0) ||
                (held[0] == 0xf0 && held[1] < 0x90) || (held[0] == 0xf4 && held[1] >= 0x90);
        if (control || surrogate_or_overlong) {
                print_escaped(printer);
                return;
        }
        fwrite(held, 1, (size_t)printer->count, stdout);
        printer->count = 0;
}

static int write_text(struct sampler *sampler, const struct arguments *arguments, struct rv_error_info *err)
{
        struct printer printer = {0};
        const char *prompt = arguments->prompt[0] ? arguments->prompt : "\n";
        for (const char *at = prompt; *at; at++) {
                sampler_push(sampler, (unsigned char)*at);
                if (arguments->prompt[0])
                        print_byte(&printer, (unsigned char)*at);
        }
        for (int64_t i = 0; i < arguments->tokens; i++) {
                real logits[BYTES];
                fflush(stdout);
                sampler_logits(sampler, logits);
                uint64_t random = data_splitmix64(arguments->seed * 0x9E3779B97F4A7C15u + (uint64_t)i);
                int byte = draw(logits, arguments->temperature, arguments->top_k,
                                (double)(random >> 11) * 0x1p-53);
                sampler_push(sampler, byte);
                print_byte(&printer, (unsigned char)byte);
        }
        print_escaped(&printer);
        putchar('\n');
        return file_check_printed(err);
}

static int sample(const struct arguments *arguments, struct rv_error_info *err)
{
        struct gpt gpt;
        struct checkpoint_training training;
        struct sampler sampler = {0};
        float *weights = NULL;
        int status = checkpoint_read(arguments->checkpoint, &gpt, &training, NULL, err);
        if (status != RV_OK)
                goto out;
        if (gpt.vocab_size != BYTES) {
                status = rv_fail(
                        err, RV_ENOTBUILT,
                        "%s: its vocab_size is %d; a tokenizer is not built yet, only byte-level models "
                        "(vocab_size %d) can be sampled",
                        arguments->checkpoint, gpt.vocab_size, BYTES);
                goto out;
        }
        status = checkpoint_read(arguments->checkpoint, &gpt, NULL, &weights, err);
        if (status == RV_OK)
                status = sampler_open(&sampler, arguments, &gpt, training.seq_len, weights, err);
        if (status == RV_OK)
                status = write_text(&sampler, arguments, err);
out:
        sampler_close(&sampler);
        free(weights);
        return status;
}

int main(int argc, char **argv)
{
        struct argp_option options[SETTINGS + 1];
        const struct argp argp = {
                .options = options,
                .parser = parse_option,
                .args_doc = "CHECKPOINT",
                .doc = "Writes text that goes on from a prompt, with a byte-level model that 'ranvier train' "
                       "saved."
                       "\vBytes that are no printable UTF-8 text are written as \\xHH.\n\n"
                       "  ranvier sample demo.safetensors --prompt 'It was ' --tokens 500",
        };
        struct arguments arguments = {
                .prompt = "", .device = "cpu", .tokens = 256, .top_k = BYTES, .temperature = 0.8, .seed = 1};
        struct rv_error_info err = {0};
        settings_options(option_rows, options, 0);
        int status = command_line_parse(&argp, argc, argv, &arguments, false, &err);
        if (status == COMMAND_LINE_DONE)
                return 0;
        if (status == RV_OK && !arguments.checkpoint)
                status = rv_fail(&err, RV_EINPUT,
                                 "CHECKPOINT is missing: the file that ranvier train --checkpoint wrote");
        if (status == RV_OK)
                status = sample(&arguments, &err);
        if (status == RV_OK)
                return 0;
        fprintf(stderr, "ranvier sample: %s\n", err.sentence);
        return rv_exit_status(&err);
}
