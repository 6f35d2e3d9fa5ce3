"""The book's run beside yours, claim by claim: ``make compare``."""

from lsdl_lib.claims import records
from lsdl_lib.claims.tables import Table


def compare(book_folder, your_folder):
    """Return a table of the claims that were run here: expectation, the book's value, yours.

    Chapters of the book that were not run here are left out.

    Raises:
        ValueError: there are no records in ``your_folder``.
    """
    yours = records.read_all(your_folder)
    if not yours:
        raise ValueError(
            f"no records in {your_folder}: run the chapters first (make run or make test)"
        )
    book = records.read_all(book_folder)
    rows = []
    for chapter, content in yours.items():
        theirs = {r["statement"]: r for r in book.get(chapter, {"claims": []})["claims"]}
        for entry in content["claims"]:
            rows.append(
                [chapter, *_row(entry["statement"], theirs.pop(entry["statement"], None), entry)]
            )
        rows += [[chapter, *_row(statement, entry, None)] for statement, entry in theirs.items()]
    return Table(rows, ["chapter", "claim", "expected", "the book's run", "yours"])


def _row(statement, book, yours):
    shown = [
        "not run"
        if entry is None
        else f"{records.measured_text(entry)} ({records.what_ran(entry)}; {entry['tier']})"
        for entry in (book, yours)
    ]
    return [statement, records.expectation_text(yours or book), *shown]
