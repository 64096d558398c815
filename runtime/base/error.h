/* Errors that a user caused or can mend. A function that can fail so returns 0 (RV_OK) or one of the negative
 * codes below, and writes one sentence for the user into a struct rv_error_info; the program's main function
 * prints it and exits with rv_exit_status. Broken invariants, which are bugs, are asserts instead. */
#ifndef RANVIER_RUNTIME_BASE_ERROR_H
#define RANVIER_RUNTIME_BASE_ERROR_H

enum rv_error {
        RV_OK = 0,
        /* A file, or a value in a file or on the command line, is wrong. */
        RV_EINPUT = -1,
        /* The plan cannot run: grid, batch and shapes do not fit together, or it needs more memory than
         * there is. */
        RV_EPLAN = -2,
        /* The operating system or a library refused: no memory, a disk that is full, a device that fails. */
        RV_ESYSTEM = -3,
        /* Something was asked for by name that is not built yet, or not on this machine. */
        RV_ENOTBUILT = -4
};

/* What a function that failed says. It has no pointers, so ranks can send it to each other (net_agree). */
struct rv_error_info {
        enum rv_error code;
        /* Where it is wrong, what was found, and what would be right; no newline at the end. */
        char sentence[1024];
};

/* Fills `err` with a sentence, formatted as printf does it, and returns `code`, so that a function can end
 * with `return rv_fail(...)`. `err` may be NULL: then only the code is returned. A sentence that is too long
 * is cut off. What a terminal would not print as it is (control characters and what is not UTF-8, from a file
 * or a name that the sentence repeats) becomes a question mark. */
int rv_fail(struct rv_error_info *err, enum rv_error code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Returns the plural ending for a noun in a sentence about `count` things: "" for one, else "s". */
static inline const char *rv_plural(long long count)
{
        return count == 1 ? "" : "s";
}

/* Returns the exit status for a command that failed: 1 for work that failed (RV_ESYSTEM), 2 for wrong usage
 * or input (any other code). */
int rv_exit_status(const struct rv_error_info *err);

#endif
