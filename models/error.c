#include "models/error.h"

#include <stdarg.h>
#include <stdio.h>

int rv_fail(struct rv_error_info *err, enum rv_error code, const char *format, ...)
{
        if (err) {
                err->code = code;
                va_list args;
                va_start(args, format);
                vsnprintf(err->sentence, sizeof err->sentence, format, args);
                va_end(args);
        }
        return code;
}

int rv_exit_status(const struct rv_error_info *err)
{
        return err->code == RV_ESYSTEM ? 1 : 2;
}
