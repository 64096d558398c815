/* Man pages, completions of shells and one page of reference, made of what the programs say of their command
 * lines (--describe, runtime/base/describe.h). A tool of the build, not installed: `manual RANVIER FOLDER`
 * runs RANVIER and writes
 *
 *     FOLDER/man/man1/ranvier.1, ranvier-COMMAND.1
 *     FOLDER/bash-completion/completions/ranvier
 *     FOLDER/zsh/site-functions/_ranvier
 *     FOLDER/reference.md, of which docs/reference.md is a copy (make reference)
 *
 * so a new option, command, preset or machine is in all of them without another line. */
#ifndef RANVIER_RUNTIME_MANUAL_MANUAL_H
#define RANVIER_RUNTIME_MANUAL_MANUAL_H

#include <jansson.h>
#include <stdio.h>

/* All commands: {"about", "more", "commands": [{"name", "summary", and what describe_options gives} ...]}.
 * The folder's files are written by these; a write that fails is the caller's to find (ferror). */
void manual_page(FILE *out, const json_t *all, const json_t *command); /* `command` NULL: of ranvier itself */
void manual_bash(FILE *out, const json_t *all);
void manual_zsh(FILE *out, const json_t *all);
void manual_markdown(FILE *out, const json_t *all);

/* The text of a member, "" if it is not there. */
const char *manual_text(const json_t *object, const char *key);

/* Calls `each` for every option of a command, in the order of --help. */
void manual_each_option(const json_t *command, void (*each)(void *context, const json_t *option),
                        void *context);

#endif
