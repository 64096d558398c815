#include "runtime/base/error.h"

#include <stdarg.h>
#include <stdio.h>

/* Bytes of the printable UTF-8 character that begins at `at`; 0: there is none, but a control character, a
 * byte that is not UTF-8, or one that is cut off. */
static int printable(const unsigned char *at)
{
        const int bytes = at[0] < 0x80 ? 1 : at[0] < 0xC2 ? 0 : at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
        if (bytes == 1)
                return at[0] >= 0x20 && at[0] != 0x7F;
        if (at[0] > 0xF4 || (at[0] == 0xC2 && at[1] < 0xA0)) /* the second: U+0080 to U+009F */
                return 0;
        for (int i = 1; i < bytes; i++)
                if ((at[i] & 0xC0) != 0x80)
                        return 0;
        return bytes;
}

static void make_printable(char *sentence)
{
        for (unsigned char *at = (unsigned char *)sentence; *at;) {
                const int bytes = printable(at);
                if (bytes == 0)
                        *at = '?';
                at += bytes ? bytes : 1;
        }
}

int rv_fail(struct rv_error_info *err, enum rv_error code, const char *format, ...)
{
        if (err) {
                err->code = code;
                va_list args;
                va_start(args, format);
                vsnprintf(err->sentence, sizeof err->sentence, format, args);
                va_end(args);
                make_printable(err->sentence);
        }
        return code;
}

int rv_exit_status(const struct rv_error_info *err)
{
        return err->code == RV_ESYSTEM ? 1 : 2;
}
