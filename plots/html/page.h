/* A page of HTML that needs nothing else: its style and its script (page.css, page.js) and its figures are in
 * the file. This module writes the parts that pages are made of; report.c says what stands where. Texts are
 * escaped here, so callers hand over what they have. What fails to be written is told by page_end. */
#ifndef RANVIER_PLOTS_HTML_PAGE_H
#define RANVIER_PLOTS_HTML_PAGE_H

#include "runtime/base/file.h"

struct page {
        struct file_writer writer;
        FILE *out;         /* of the writer */
        char folder[1024]; /* where figures are drawn, one after the other */
        int rows;          /* of the table that is open */
};

/* Opens the page that will be written to `path`, up to its title. Returns 0, or a negative rv_error with a
 * sentence; then there is nothing to abandon. */
int page_begin(struct page *, const char *path, const char *title, const char *subtitle,
               struct rv_error_info *err);

/* Ends the page and gives the file its name. Returns 0, or RV_ESYSTEM. Or leaves no file. */
int page_end(struct page *, struct rv_error_info *err);
void page_abandon(struct page *);

/* Write a text, escaped; a formatted text; a heading with a line below it (NULL: none); a formatted text as a
 * paragraph. */
void page_text(struct page *, const char *text);
void page_format(struct page *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_section(struct page *, const char *heading, const char *lead);
void page_heading(struct page *, const char *heading);
void page_paragraph(struct page *, const char *format, ...) __attribute__((format(printf, 2, 3)));
void page_command(struct page *, const char *command);

/* Figures that matter most, in cards: page_cards, then one page_card each, then page_cards_end. `note` may be
 * NULL or "". */
void page_cards(struct page *);
void page_card(struct page *, const char *label, const char *value, const char *note);
void page_cards_end(struct page *);

/* A table that can be sorted by a click on a column's name and, if `filter` is not NULL, searched by the
 * words of a field with that label. `columns` ends with NULL. Then page_row before the cells of each row; a
 * number is sorted by its value and shown as its text. */
void page_table(struct page *, const char *const *columns, const char *filter);
void page_row(struct page *);
void page_cell(struct page *, const char *text);
void page_number(struct page *, double value, const char *text);
void page_table_end(struct page *);

/* Draws a figure into a file whose name ends in .svg or .png, as plots/figures.h does. */
typedef int page_draw(const char *out, const void *context, struct rv_error_info *err);

/* Puts a figure into the page, with what it shows. `zoom`: it can be made wider by buttons. Of a figure whose
 * SVG is large there is a PNG. Returns 0, or a negative rv_error with a sentence. */
int page_figure(struct page *, const char *caption, bool zoom, page_draw *figure, const void *context,
                struct rv_error_info *err);

#endif
