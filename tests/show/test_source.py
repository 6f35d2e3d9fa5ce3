"""Source on the page: the library's own lines, the same on every machine."""

import ast
import json
from pathlib import Path

import pytest

from lsdl_lib import show
from lsdl_lib.claims import Claims, numbers
from lsdl_lib.launch import Results
from lsdl_lib.tier import by_tier

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "lsdl_lib/tier.py").read_text().splitlines()


def test_it_is_the_file_with_its_lines():
    text = repr(show.source(by_tier))
    first = LINES.index("def by_tier(*, smoke, laptop, gpu):") + 1
    caption, *code = text.splitlines()
    assert caption == f"# lsdl_lib/tier.py, lines {first}-{first + 2}"
    assert code == LINES[first - 1 : first + 2]


def test_a_module_is_its_whole_file():
    lines = (ROOT / "lsdl_lib/claims/numbers.py").read_text().splitlines()
    text = repr(show.source(numbers))
    assert text.splitlines() == [f"# lsdl_lib/claims/numbers.py, lines 1-{len(lines)}", *lines]


def test_a_method_is_moved_to_the_left():
    code = show.source(Results.where.fget).code
    assert code.startswith("@property\ndef where(self):\n")
    ast.parse(code)


def test_a_part_by_its_words():
    part = show.source(Claims.check, start="statement = ", stop="raise ValueError")
    assert part.code.startswith('statement = " ".join')
    lines = part.code.splitlines()
    assert "raise ValueError" in lines[-1]
    assert len(lines) == 3
    file = (ROOT / "lsdl_lib/claims/chapter.py").read_text().splitlines()
    first, last = map(int, part.caption.rsplit(" ", 1)[1].split("-"))
    assert [line.strip() for line in file[first - 1 : last]] == [line.strip() for line in lines]


def test_docstrings_can_be_left_out():
    whole, short = show.source(Claims), show.source(Claims, docstrings=False)
    assert '"""' in whole.code
    assert '"""' not in short.code
    assert _statements(short.code) == _statements(whole.code)
    assert short.caption == f"{whole.caption}, docstrings left out"
    assert show.source(Claims._keep, docstrings=False).caption.endswith(tuple("0123456789"))


def _statements(code):
    nodes = ast.walk(ast.parse(code))
    return [type(n) for n in nodes if not isinstance(n, ast.Constant | ast.Expr)]


def test_html_is_highlighted_and_scrolls_by_keyboard():
    html = show.source(by_tier)._repr_html_()
    assert '<span class="k">def</span>' in html
    assert "<figcaption>lsdl_lib/tier.py, lines " in html
    assert '<pre tabindex="0" aria-label="lsdl_lib/tier.py' in html
    assert str(ROOT) not in html
    assert html == show.source(by_tier)._repr_html_()


REFUSED = [
    (json.loads, {}, "only the library's own source"),
    (len, {}, "has no Python source"),
    (3, {}, "has no Python source"),
    (by_tier, {"start": "no such words"}, "holds 'no such words'"),
    (by_tier, {"start": "return", "stop": "def by_tier"}, "holds 'def by_tier'"),
    (by_tier, {"start": 3}, "3: give a piece of the line's text"),
]


@pytest.mark.parametrize(("obj", "arguments", "says"), REFUSED, ids=[r[2] for r in REFUSED])
def test_what_cannot_be_shown_is_refused(obj, arguments, says):
    with pytest.raises(ValueError, match=says):
        show.source(obj, **arguments)
