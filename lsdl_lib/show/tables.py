"""A small table of results: the paper's beside ours, one method beside another."""

from lsdl_lib.claims.tables import Table


def compare(rows, headers, *, caption=""):
    """Return a table that is HTML on a page and aligned text in a terminal.

    ``compare([["ResNet-50", 76.3, 76.1]], ["model", "the paper, %", "ours, %"])``

    Args:
        rows: one sequence a row. Numbers get 4 significant digits and stand on the right.
        headers: the columns' names, with their units.
        caption: a line above the table: what was run, and where the other numbers come from.

    Raises:
        ValueError: there is no row, or a row has another length than the headers.
    """
    return Table(rows, headers, caption)
