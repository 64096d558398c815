/* `ranvier sample`: text from a checkpoint of a byte-level model, or of any other the numbers of tokens, one
 * at a time. */
#include "runtime/base/file.h"
#include "runtime/base/command_line.h"
#include "runtime/base/setting.h"
#include "runtime/base/parse.h"
#include "runtime/data/data.h"
#include "runtime/plan/options.h"
#include "runtime/real/load.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 }; /* the vocabulary of a byte-level model */

struct arguments {
        const char *checkpoint, *prompt, *prompt_tokens, *device, *cpu_kernels;
        int64_t tokens, top_k; /* top_k 0: all */
        double temperature;
        uint64_t seed;
        bool logits, json;
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
        {SETTING_TEXT, "prompt-tokens", 0, "IDS",
         "Numbers of tokens to go on from, such as 464,3290, as the model's tokenizer has them; what follows is written "
         "as numbers too. For models whose tokens are not bytes", AT(prompt_tokens)},
        {SETTING_WHOLE, "tokens", 'n', "N", "Tokens (bytes) to write after the prompt (default 256)", AT(tokens),
         .min = 0, .max = 1000000000},
        {SETTING_SET, "logits", .help = "Write the logits of what would come next instead, one a line, in the order of "
                                        "the vocabulary", AT(logits)},
        {SETTING_SET, "json", .help = "Write JSON: the prompt's tokens and the new ones, and of a model of bytes the text; or the "
                                      "logits", AT(json)},
        {SETTING_REAL, "temperature", 't', "T",
         "Below 1 prefers likely tokens, 0 takes always the likeliest (default 0.8)", AT(temperature),
         .low = 0, .high = 100},
        {SETTING_WHOLE, "top-k", 'k', "K", "Choose among the K likeliest tokens only (default: all)", AT(top_k),
         .min = 1, .max = GPT_MAX_VOCABULARY},
        {SETTING_WHOLE, "seed", 's', "S",
         "Start of the random numbers; the same seed gives the same text (default 1)", AT(seed),
         .min = 0, .max = INT64_MAX},
        {SETTING_OWN, "device", 'd', "NAME", "What computes: cpu, the default, or cuda", AT(device), .parse = parse_device,
         .words = &options_device_words},
        {SETTING_WORD, "cpu-kernels", 0, "NAME",
         "As of ranvier train: auto (the default), avx512, avx2, baseline or scalar; cpu only", AT(cpu_kernels),
         .words = &device_cpu_kernels_words},
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

/* The model on a device, and what it reads: the last `filled` tokens of the text. */
struct sampler {
        struct device *device;
        struct nn_stage *nn;
        int32_t *window; /* [T]; what follows the filled part does not matter, attention is causal */
        int T, filled;
        int vocabulary;
        real *logits;          /* [vocabulary] */
        struct likely *likely; /* [vocabulary] */
};

/* A token that may come next, and how likely. */
struct likely {
        int token;
        real logit;
};

/* `seq_len`: as much of the text as the model sees at once. */
static int sampler_open(struct sampler *sampler, const struct arguments *arguments, const struct gpt *gpt,
                        int seq_len, const struct weight_files *files, struct rv_error_info *err)
{
        uint64_t checksums[LOAD_CHECKSUMS];
        struct stage whole = partition_stage(gpt, 1, 0);
        struct memory_plan plan = {
                .work = {.micro_batch_size = 1, .seq_len = seq_len, .real_bytes = sizeof(real)},
                .micro_batches = 1,
                .slots = 1,
        };
        sampler->T = seq_len;
        sampler->vocabulary = gpt->vocab_size;
        sampler->window = calloc((size_t)sampler->T, sizeof *sampler->window);
        sampler->logits = calloc((size_t)gpt->vocab_size, sizeof *sampler->logits);
        sampler->likely = calloc((size_t)gpt->vocab_size, sizeof *sampler->likely);
        if (!sampler->window || !sampler->logits || !sampler->likely)
                return rv_fail(err, RV_ESYSTEM, "no memory for a window of %d tokens and %d logits",
                               sampler->T, gpt->vocab_size);
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
        return load_weights(sampler->nn, files, checksums, err);
}

static void sampler_close(struct sampler *sampler)
{
        if (sampler->nn)
                nn_close(sampler->nn);
        if (sampler->device)
                sampler->device->ops->close(sampler->device);
        free(sampler->window);
        free(sampler->logits);
        free(sampler->likely);
}

/* Appends a token to the window; a full window loses its oldest. */
static void sampler_push(struct sampler *sampler, int token)
{
        if (sampler->filled == sampler->T)
                memmove(sampler->window, sampler->window + 1,
                        (size_t)--sampler->filled * sizeof *sampler->window);
        sampler->window[sampler->filled++] = token;
}

/* Computes the logits of what follows the window. */
static void sampler_logits(struct sampler *sampler)
{
        struct device *device = sampler->device;
        const int64_t vocabulary = sampler->vocabulary;
        memcpy(sampler->nn->host_tokens, sampler->window, (size_t)sampler->T * sizeof *sampler->window);
        nn_load(sampler->nn);
        device->ops->synchronize(device);
        nn_forward(sampler->nn, 0, 0, -1, 0, true);
        device->ops->synchronize(device);
        int64_t apart;
        void *logits = nn_logits(sampler->nn, 0, &apart);
        device->ops->copy(device, DEVICE_DEVICE_TO_HOST, sampler->logits,
                          nn_at(sampler->nn, logits, (sampler->filled - 1) * apart),
                          vocabulary * (int64_t)sizeof *sampler->logits);
        device->ops->synchronize(device);
}

/* Likeliest first; of equal ones the first in the vocabulary. */
static int by_likelihood(const void *a, const void *b)
{
        const struct likely *one = a, *other = b;
        if (one->logit != other->logit)
                return one->logit > other->logit ? -1 : 1;
        return (one->token > other->token) - (one->token < other->token);
}

/* A token drawn with probability softmax(logits / temperature) among the likeliest. `uniform` in [0, 1). */
static int draw(struct sampler *sampler, double temperature, int64_t top_k, double uniform)
{
        struct likely *likely = sampler->likely;
        const int64_t count = top_k ? top_k : sampler->vocabulary;
        double sum = 0;
        for (int token = 0; token < sampler->vocabulary; token++)
                likely[token] = (struct likely){token, sampler->logits[token]};
        qsort(likely, (size_t)sampler->vocabulary, sizeof *likely, by_likelihood);
        if (temperature == 0)
                return likely[0].token;
        for (int64_t i = 0; i < count; i++)
                sum += exp((likely[i].logit - likely[0].logit) / temperature);
        double left = uniform * sum;
        for (int64_t i = 0; i < count; i++)
                if ((left -= exp((likely[i].logit - likely[0].logit) / temperature)) < 0)
                        return likely[i].token;
        return likely[count - 1].token;
}

/* Text on its way to a terminal: a UTF-8 character is held until it is whole. */
struct printer {
        FILE *stream;
        unsigned char held[4];
        int count, expected;
};

static void print_escaped(struct printer *printer)
{
        for (int i = 0; i < printer->count; i++)
                fprintf(printer->stream, "\\x%02x", printer->held[i]);
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
        fwrite(held, 1, (size_t)printer->count, printer->stream);
        printer->count = 0;
}

/* The prompt as tokens. */
struct prompt {
        int32_t *tokens; /* [count] */
        int64_t count;
};

/* Draws token number `i` of what is written. */
static int next_token(struct sampler *sampler, const struct arguments *arguments, int64_t i)
{
        const uint64_t random = data_splitmix64(arguments->seed * 0x9E3779B97F4A7C15u + (uint64_t)i);
        sampler_logits(sampler);
        const int token =
                draw(sampler, arguments->temperature, arguments->top_k, (double)(random >> 11) * 0x1p-53);
        sampler_push(sampler, token);
        return token;
}

/* Bytes as text, the prompt among them. */
static void write_text(struct sampler *sampler, const struct arguments *arguments)
{
        struct printer printer = {.stream = stdout};
        for (const char *at = arguments->prompt; *at; at++)
                print_byte(&printer, (unsigned char)*at);
        for (int64_t i = 0; i < arguments->tokens; i++) {
                fflush(stdout);
                print_byte(&printer, (unsigned char)next_token(sampler, arguments, i));
        }
        print_escaped(&printer);
        putchar('\n');
}

/* Numbers of tokens as they may be given again, the prompt among them. */
static void write_numbers(struct sampler *sampler, const struct arguments *arguments, const int32_t *prompt,
                          int64_t count)
{
        for (int64_t i = 0; i < count; i++)
                printf("%s%d", i ? "," : "", prompt[i]);
        for (int64_t i = 0; i < arguments->tokens; i++) {
                fflush(stdout);
                printf(",%d", next_token(sampler, arguments, i));
        }
        putchar('\n');
}

static void write_logits(struct sampler *sampler)
{
        sampler_logits(sampler);
        for (int token = 0; token < sampler->vocabulary; token++)
                printf("%.9g\n", (double)sampler->logits[token]);
}

/* The bytes of tokens as text, the prompt's and the new ones. */
static json_t *text_json(const json_t *prompt, const json_t *written)
{
        char *text = NULL;
        size_t size;
        struct printer printer = {.stream = open_memstream(&text, &size)};
        const json_t *const both[] = {prompt, written};
        if (!printer.stream)
                return NULL;
        for (int part = 0; part < 2; part++)
                for (size_t i = 0; i < json_array_size(both[part]); i++)
                        print_byte(&printer,
                                   (unsigned char)json_integer_value(json_array_get(both[part], i)));
        print_escaped(&printer);
        fclose(printer.stream);
        json_t *json = json_string(text);
        free(text);
        return json;
}

static int write_json(struct sampler *sampler, const struct arguments *arguments, const struct prompt *prompt,
                      struct rv_error_info *err)
{
        json_t *given = json_array(), *written = json_array(), *logits = NULL;
        for (int64_t i = 0; i < prompt->count; i++)
                json_array_append_new(given, json_integer(prompt->tokens[i]));
        if (arguments->logits) {
                logits = json_array();
                sampler_logits(sampler);
                for (int token = 0; token < sampler->vocabulary; token++)
                        json_array_append_new(logits, json_real((double)sampler->logits[token]));
        } else {
                for (int64_t i = 0; i < arguments->tokens; i++)
                        json_array_append_new(written, json_integer(next_token(sampler, arguments, i)));
        }
        json_t *json = json_pack("{s:s, s:O}", "checkpoint", arguments->checkpoint, "prompt_tokens", given);
        if (logits)
                json_object_set_new(json, "logits", logits);
        else
                json_object_set(json, "tokens", written);
        if (!logits && !arguments->prompt_tokens)
                json_object_set_new(json, "text", text_json(given, written));
        const int rc =
                json ? file_print_json(json, err) : rv_fail(err, RV_EINPUT, "CHECKPOINT must be UTF-8");
        json_decref(json);
        json_decref(given);
        json_decref(written);
        return rc;
}

static int take_bytes(struct prompt *prompt, const char *text)
{
        for (text = *text ? text : "\n"; *text; text++)
                prompt->tokens[prompt->count++] = (unsigned char)*text;
        return RV_OK;
}

static int take_numbers(struct prompt *prompt, const char *text, int vocabulary, struct rv_error_info *err)
{
        while (true) {
                char word[16];
                int64_t token;
                const size_t length = strcspn(text, ",");
                snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word), text);
                if (length >= sizeof word || parse_int("", word, 0, vocabulary - 1, &token, NULL))
                        return rv_fail(
                                err, RV_EINPUT,
                                "--prompt-tokens: '%.*s' is not a token of the model, a whole number from 0 "
                                "to %d",
                                (int)(length < 40 ? length : 40), text, vocabulary - 1);
                prompt->tokens[prompt->count++] = (int32_t)token;
                if (!text[length])
                        return RV_OK;
                text += length + 1;
        }
}

/* `prompt->tokens` becomes the caller's to free, also after a failure. */
static int take_prompt(struct prompt *prompt, const struct arguments *arguments, const struct gpt *gpt,
                       struct rv_error_info *err)
{
        const char *text = arguments->prompt_tokens ? arguments->prompt_tokens : arguments->prompt;
        if (arguments->prompt_tokens && arguments->prompt[0])
                return rv_fail(err, RV_EINPUT,
                               "--prompt and --prompt-tokens are two prompts: one was expected");
        if (!arguments->prompt_tokens && gpt->vocab_size != BYTES)
                return rv_fail(err, RV_EINPUT,
                               "%s: its vocab_size is %d, so its tokens are not bytes, and no tokenizer is "
                               "read here: "
                               "give --prompt-tokens the numbers that the model's own makes of a text",
                               arguments->checkpoint, gpt->vocab_size);
        prompt->tokens = malloc((strlen(text) + 1) * sizeof *prompt->tokens);
        if (!prompt->tokens)
                return rv_fail(err, RV_ESYSTEM, "no memory for a prompt of %zu bytes", strlen(text));
        return arguments->prompt_tokens ? take_numbers(prompt, text, gpt->vocab_size, err)
                                        : take_bytes(prompt, text);
}

/* The window need not be longer than all that is ever in it; the model knows no positions beyond those that
 * it was trained on. */
static int window(const struct weight_files *files, const struct gpt *gpt, int64_t tokens)
{
        const int64_t known = weight_files_number(files, "seq_len", 1, gpt->n_positions, gpt->n_positions);
        return (int)(tokens < known ? tokens : known);
}

static int write_sample(const struct arguments *arguments, struct weight_files *files, const struct gpt *gpt,
                        const struct prompt *prompt, struct rv_error_info *err)
{
        struct sampler sampler = {0};
        const int T = window(files, gpt, prompt->count + (arguments->logits ? 0 : arguments->tokens));
        int status = sampler_open(&sampler, arguments, gpt, T, files, err);
        if (status == RV_OK) {
                for (int64_t i = 0; i < prompt->count; i++)
                        sampler_push(&sampler, prompt->tokens[i]);
                if (arguments->json)
                        status = write_json(&sampler, arguments, prompt, err);
                else if (arguments->logits)
                        write_logits(&sampler);
                else if (arguments->prompt_tokens)
                        write_numbers(&sampler, arguments, prompt->tokens, prompt->count);
                else
                        write_text(&sampler, arguments);
                if (status == RV_OK)
                        status = file_check_printed(err);
        }
        sampler_close(&sampler);
        return status;
}

static int sample(const struct arguments *arguments, struct rv_error_info *err)
{
        struct gpt gpt;
        struct prompt prompt = {0};
        struct weight_files *files = weight_files_open(arguments->checkpoint, err);
        int status = files ? weight_files_model(files, &gpt, err) : (int)err->code;
        if (status == RV_OK && arguments->top_k > gpt.vocab_size)
                status = rv_fail(err, RV_EINPUT,
                                 "--top-k: '%lld' is more than the %d tokens of the vocabulary",
                                 (long long)arguments->top_k, gpt.vocab_size);
        if (status == RV_OK)
                status = weight_files_check(files, &gpt, err);
        if (status == RV_OK)
                status = take_prompt(&prompt, arguments, &gpt, err);
        if (status == RV_OK)
                status = write_sample(arguments, files, &gpt, &prompt, err);
        free(prompt.tokens);
        weight_files_close(files);
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
                       "saved; or tokens by their numbers, with any model in a folder as transformers saves "
                       "them."
                       "\vBytes that are no printable UTF-8 text are written as \\xHH.\n\n"
                       "  ranvier sample demo.safetensors --prompt 'It was ' --tokens 500\n"
                       "  ranvier sample gpt2 --prompt-tokens 464,3290 --tokens 20",
        };
        struct arguments arguments = {
                .prompt = "", .device = "cpu", .tokens = 256, .temperature = 0.8, .seed = 1};
        struct rv_error_info err = {0};
        settings_options(option_rows, options, 0);
        int status = command_line_parse(&argp, argc, argv, &arguments, false, &err);
        if (status == COMMAND_LINE_DONE)
                return 0;
        if (status == RV_OK && !arguments.checkpoint)
                status = rv_fail(
                        &err, RV_EINPUT,
                        "CHECKPOINT is missing: what ranvier train --checkpoint or transformers wrote");
        if (status == RV_OK)
                status = sample(&arguments, &err);
        if (status == RV_OK)
                return 0;
        fprintf(stderr, "ranvier sample: %s\n", err.sentence);
        return rv_exit_status(&err);
}
