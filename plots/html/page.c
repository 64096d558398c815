#include "plots/html/page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Larger SVGs are replaced by PNGs, so that pages stay below 1.5 MB; longer cells (in characters) have
 * several lines. */
enum { LARGEST_SVG = 200 << 10, WIDE = 48 };

void page_text(struct page *p, const char *text)
{
        for (; *text; text++)
                switch (*text) {
                case '&':
                        fputs("&amp;", p->out);
                        break;
                case '<':
                        fputs("&lt;", p->out);
                        break;
                case '>':
                        fputs("&gt;", p->out);
                        break;
                case '"':
                        fputs("&quot;", p->out);
                        break;
                default:
                        fputc(*text, p->out);
                }
}

static void put_format(struct page *p, const char *format, va_list arguments)
{
        char text[2048];
        vsnprintf(text, sizeof text, format, arguments);
        page_text(p, text);
}

void page_format(struct page *p, const char *format, ...)
{
        va_list arguments;
        va_start(arguments, format);
        put_format(p, format, arguments);
        va_end(arguments);
}

/* Copies a file that comes with the program into the page. */
static int put_installed(struct page *p, const char *suffix, struct rv_error_info *err)
{
        char path[1024], part[4096];
        size_t got;
        if (file_find(path, sizeof path, "plots/html", "page", suffix))
                return rv_fail(err, RV_ESYSTEM,
                               "the file plots/html/page%s is not beside this program; is it installed?",
                               suffix);
        FILE *file = fopen(path, "rb");
        if (!file)
                return rv_fail(err, RV_ESYSTEM, "%s: cannot be read: %s", path, strerror(errno));
        while ((got = fread(part, 1, sizeof part, file)) > 0)
                fwrite(part, 1, got, p->out);
        fclose(file);
        return 0;
}

int page_begin(struct page *p, const char *path, const char *title, const char *subtitle,
               struct rv_error_info *err)
{
        *p = (struct page){.out = NULL};
        int rc = file_make_temporary_folder(p->folder, sizeof p->folder, err);
        if (rc)
                return rc;
        rc = file_writer_open(&p->writer, path, err);
        if (rc) {
                rmdir(p->folder);
                return rc;
        }
        p->out = p->writer.stream;
        fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
              "<meta name=\"color-scheme\" content=\"light dark\">\n"
              "<link rel=\"icon\" href=\"data:,\">\n<title>",
              p->out);
        page_text(p, title);
        fputs("</title>\n<style>\n", p->out);
        rc = put_installed(p, ".css", err);
        fputs("</style>\n</head>\n<body>\n<main>\n<header>\n<h1>", p->out);
        page_text(p, title);
        fputs("</h1>\n<p>", p->out);
        page_text(p, subtitle);
        fputs("</p>\n</header>\n", p->out);
        if (rc)
                page_abandon(p);
        return rc;
}

int page_end(struct page *p, struct rv_error_info *err)
{
        fputs("</main>\n<script>\n", p->out);
        int rc = put_installed(p, ".js", err);
        fputs("</script>\n</body>\n</html>\n", p->out);
        if (rc)
                page_abandon(p);
        else {
                rmdir(p->folder);
                rc = file_writer_commit(&p->writer, err);
        }
        return rc;
}

void page_abandon(struct page *p)
{
        rmdir(p->folder);
        file_writer_abandon(&p->writer);
}

void page_heading(struct page *p, const char *heading)
{
        fputs("<h3>", p->out);
        page_text(p, heading);
        fputs("</h3>\n", p->out);
}

void page_section(struct page *p, const char *heading, const char *lead)
{
        fputs("<h2>", p->out);
        page_text(p, heading);
        fputs("</h2>\n", p->out);
        if (lead)
                page_paragraph(p, "%s", lead);
}

void page_paragraph(struct page *p, const char *format, ...)
{
        va_list arguments;
        fputs("<p>", p->out);
        va_start(arguments, format);
        put_format(p, format, arguments);
        va_end(arguments);
        fputs("</p>\n", p->out);
}

void page_command(struct page *p, const char *command)
{
        fputs("<pre><code>", p->out);
        page_text(p, command);
        fputs("</code></pre>\n", p->out);
}

void page_cards(struct page *p)
{
        fputs("<dl class=\"cards\">\n", p->out);
}

void page_card(struct page *p, const char *label, const char *value, const char *note)
{
        fputs("<div><dt>", p->out);
        page_text(p, label);
        fputs("</dt><dd>", p->out);
        page_text(p, value);
        if (note && *note) {
                fputs("<small>", p->out);
                page_text(p, note);
                fputs("</small>", p->out);
        }
        fputs("</dd></div>\n", p->out);
}

void page_cards_end(struct page *p)
{
        fputs("</dl>\n", p->out);
}

void page_table(struct page *p, const char *const *columns, const char *filter)
{
        fputs("<div class=\"table\">\n", p->out);
        if (filter) {
                fputs("<label class=\"filter\">", p->out);
                page_text(p, filter);
                fputs(" <input type=\"search\" placeholder=\"words\"></label>\n", p->out);
        }
        fputs("<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>", p->out);
        for (; *columns; columns++) {
                fputs("<th scope=\"col\"><button type=\"button\">", p->out);
                page_text(p, *columns);
                fputs("</button></th>", p->out);
        }
        fputs("</tr></thead>\n<tbody>", p->out);
        p->rows = 0;
}

void page_row(struct page *p)
{
        fputs(p->rows++ ? "</tr>\n<tr>" : "\n<tr>", p->out);
}

void page_cell(struct page *p, const char *text)
{
        fputs(strlen(text) > WIDE ? "<td class=\"text\">" : "<td>", p->out);
        page_text(p, text);
        fputs("</td>", p->out);
}

void page_number(struct page *p, double value, const char *text)
{
        fprintf(p->out, "<td class=\"number\" data-value=\"%.9g\">", value);
        page_text(p, text);
        fputs("</td>", p->out);
}

void page_table_end(struct page *p)
{
        fputs(p->rows ? "</tr>\n</tbody></table></div>\n</div>\n" : "</tbody></table></div>\n</div>\n",
              p->out);
}

/* ---- figures ---- */

static void put_base64(FILE *out, const unsigned char *bytes, size_t count)
{
        static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for (size_t i = 0; i < count; i += 3) {
                const size_t left = count - i;
                const unsigned value = (unsigned)bytes[i] << 16 |
                                       (left > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                                       (left > 2 ? bytes[i + 2] : 0);
                fputc(digits[value >> 18], out);
                fputc(digits[value >> 12 & 63], out);
                fputc(left > 1 ? digits[value >> 6 & 63] : '=', out);
                fputc(left > 2 ? digits[value & 63] : '=', out);
        }
}

/* Draws a figure and reads it; the caller frees it. NULL with a sentence. */
static unsigned char *draw(const struct page *p, const char *name, size_t *size, page_draw *figure,
                           const void *context, struct rv_error_info *err)
{
        char path[1100];
        unsigned char *bytes = NULL;
        snprintf(path, sizeof path, "%s/%s", p->folder, name);
        if (figure(path, context, err))
                return NULL;
        FILE *file = fopen(path, "rb");
        if (file && fseek(file, 0, SEEK_END) == 0) {
                const long length = ftell(file);
                rewind(file);
                bytes = length > 0 ? malloc((size_t)length) : NULL;
                *size = bytes ? fread(bytes, 1, (size_t)length, file) : 0;
        }
        if (file)
                fclose(file);
        unlink(path);
        if (!bytes)
                rv_fail(err, RV_ESYSTEM, "%s: the figure cannot be read", path);
        return bytes;
}

int page_figure(struct page *p, const char *caption, bool zoom, page_draw *figure, const void *context,
                struct rv_error_info *err)
{
        size_t size;
        const char *type = "svg+xml";
        unsigned char *bytes = draw(p, "figure.svg", &size, figure, context, err);
        if (bytes && size > LARGEST_SVG) {
                free(bytes);
                type = "png";
                bytes = draw(p, "figure.png", &size, figure, context, err);
        }
        if (!bytes)
                return (int)err->code;
        fprintf(p->out, "<figure%s><div class=\"scroll\" tabindex=\"0\"><img src=\"data:image/%s;base64,",
                zoom ? " class=\"zoom\"" : "", type);
        put_base64(p->out, bytes, size);
        free(bytes);
        fputs("\" alt=\"", p->out);
        page_text(p, caption);
        fputs("\"></div><figcaption>", p->out);
        page_text(p, caption);
        fputs("</figcaption></figure>\n", p->out);
        return 0;
}
