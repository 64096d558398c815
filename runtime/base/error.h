/* Errors that a user caused or can mend: a code and one sentence. Broken invariants are asserts. */
#ifndef RANVIER_RUNTIME_BASE_ERROR_H
#define RANVIER_RUNTIME_BASE_ERROR_H

enum rv_error {
        RV_OK = 0,
        RV_EINPUT = -1,   /* a file or a value in it is wrong */
        RV_EPLAN = -2,    /* the plan cannot run: grid, batch, shapes */
        RV_ESYSTEM = -3,  /* the operating system or a library refused */
        RV_ENOTBUILT = -4 /* asked for by name, and not built yet */
};

struct rv_error_info {
        enum rv_error code;
        char sentence[512]; /* where, what was found, what would be right; no final newline */
};

/* Fills `err` (may be NULL) with a printf-style sentence and returns `code`. What a terminal would not print
 * as it is (control characters and what is not UTF-8, from a file or a name that the sentence repeats)
 * becomes a question mark. */
int rv_fail(struct rv_error_info *err, enum rv_error code, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* For sentences about `count` things: the ending of their noun. */
static inline const char *rv_plural(long long count)
{
        return count == 1 ? "" : "s";
}

/* The exit status that a command ends with: 2 for wrong usage or input, 1 for work that failed. */
int rv_exit_status(const struct rv_error_info *err);

#endif
