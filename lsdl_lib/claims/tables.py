"""A small table that is HTML on a page and aligned text in a terminal."""

import html

from lsdl_lib.claims import numbers

LOOK = (
    ".lsdl-table{overflow-x:auto}"
    ".lsdl-table :is(td,th){padding:.25em .6em;min-width:5em;vertical-align:top}"
    ".lsdl-table :is(td,th):first-child{min-width:9em}"
)


class Table:
    """Rows under headers, shown by a notebook as HTML and printed as aligned text.

    Args:
        rows: sequence of rows, each with one value a header; numbers are aligned to the right.
        headers: the columns' names.
        caption: a line above the table.

    Raises:
        ValueError: a row has another length than the headers, or there is no row.
    """

    def __init__(self, rows, headers, caption=""):
        self.headers = [str(name) for name in headers]
        self.rows = [list(row) for row in rows]
        self.caption = caption
        if not self.rows:
            raise ValueError("a table needs at least one row")
        for row in self.rows:
            if len(row) != len(self.headers):
                raise ValueError(f"{row} has {len(row)} values for {len(self.headers)} headers")

    def _repr_html_(self):
        # The class dataframe is the one that the book's theme leaves transparent in dark mode. On a
        # phone the table scrolls, by touch or keyboard, rather than break words.
        parts = [
            f"<style>{LOOK}</style>",
            '<div class="lsdl-table" tabindex="0"><table class="dataframe">',
        ]
        if self.caption:
            parts.append(f"<caption>{html.escape(self.caption)}</caption>")
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in self.headers)
        parts.append(f"<thead><tr>{head}</tr></thead>\n<tbody>")
        parts += [f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in self.rows]
        return "\n".join(parts) + "\n</tbody></table></div>"

    def __repr__(self):
        cells = [self.headers, *([_text(value) for value in row] for row in self.rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(self.headers))]
        right = [all(_is_number(row[i]) for row in self.rows) for i in range(len(widths))]

        def line(row):
            return "  ".join(
                text.rjust(width) if to_right else text.ljust(width)
                for text, width, to_right in zip(row, widths, right)
            ).rstrip()

        ruler = "  ".join("-" * width for width in widths)
        return "\n".join(
            [self.caption] * bool(self.caption) + [line(cells[0]), ruler, *map(line, cells[1:])]
        )


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value):
    return numbers.text(value, 4) if _is_number(value) else str(value)


def _cell(value):
    align = "right" if _is_number(value) else "left"
    return f'<td style="text-align:{align}">{html.escape(_text(value))}</td>'
