/* A command line as data: every option with its argument, heading, help and the words that it takes, from the
 * tables that argp parses. Man pages and completions of shells are made of it (runtime/manual). */
#ifndef RANVIER_RUNTIME_BASE_DESCRIBE_H
#define RANVIER_RUNTIME_BASE_DESCRIBE_H

#include <argp.h>
#include <jansson.h>

/* Describes the options of `argp` and its children; the caller owns the result, which is NULL without memory:
 *
 *     {"about": text, "more": text,              what stands before and after the options in --help
 *      "usage": text,                            args_doc
 *      "operands": [WORDS ...],                  the words of args_doc, in order; "repeated" of the last one
 *      "groups": [{"heading": text,              in the order of --help; "" has no heading
 *                  "options": [{"name": text, "letter": text, "argument": text, "help": text,
 *                               "values": WORDS} ...]} ...]}
 *     WORDS: {"name": text, "names": [text ...], "files": bool, "list": bool}
 *
 * "letter" is there for options with a short form, "argument" for those that take one, "optional" instead of
 * it for those that may have one behind an equals sign, and "values" where it is known which words are right;
 * "name" is of operands alone. Hidden options are left out. */
json_t *describe_options(const struct argp *argp);

#endif
