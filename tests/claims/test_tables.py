"""The table: aligned text, escaped HTML, errors by name."""

import pytest

from lsdl_lib.claims.tables import Table


def test_text_is_aligned():
    table = Table(
        [["ring", 1572864, 0.123456], ["star", 12, 2.0]], ["method", "bytes", "ratio"], "Sent"
    )
    assert repr(table) == (
        "Sent\n"
        "method      bytes   ratio\n"
        "------  ---------  ------\n"
        "ring    1,572,864  0.1235\n"
        "star           12       2"
    )


def test_html_is_escaped_and_numbers_are_right():
    html = Table([["<b>", 1.5]], ["a&b", "x"], "<i>")._repr_html_()
    assert "<b>" not in html
    assert "<i>" not in html
    assert "a&amp;b" in html
    assert '<td style="text-align:right">1.5</td>' in html
    assert '<td style="text-align:left">&lt;b&gt;</td>' in html


def test_errors_name_the_value():
    with pytest.raises(ValueError, match="at least one row"):
        Table([], ["a"])
    with pytest.raises(ValueError, match=r"\[1, 2\] has 2 values for 1 headers"):
        Table([[1, 2]], ["a"])
