"""The generated pages say what the files say, and are up to date."""

import json
import re

import pytest

from tools import pages, toc

CHAPTERS = toc.chapters()


def test_up_to_date():
    for path, expected in pages.pages().items():
        assert path.read_text(encoding="utf-8") == expected, "run python -m tools.pages"


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_is_complete(name):
    chapter = pages.read_chapter(name, CHAPTERS[name])
    assert chapter.modules, "the chapter takes no method from the library"
    for module in chapter.modules:
        assert pages.find_tests([module]), f"no test imports {module}"
    bibliography = (toc.BOOK / "references.bib").read_text(encoding="utf-8")
    keys = set(re.findall(r"^@\w+\{([^,]+),", bibliography, flags=re.M))
    assert chapter.papers, "the chapter cites no paper"
    assert set(chapter.papers) <= keys
    assert (toc.BOOK / "records" / f"{name}.run.json").exists(), "make refresh writes it"


@pytest.fixture
def tree(tmp_path):
    """A small book: a package with two methods, a test of one, and a chapter."""
    package = tmp_path / "lsdl_lib" / "memory" / "zero"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from lsdl_lib.memory.zero.stages import Stage1 as One\n")
    (package / "stages.py").write_text("class Stage1: ...\n")
    (package / "offload.py").write_text("")
    (package.parent / "__init__.py").write_text("from lsdl_lib.memory.zero import One\n")
    tests = tmp_path / "tests" / "memory"
    tests.mkdir(parents=True)
    (tests / "test_stages.py").write_text("from lsdl_lib.memory import One\n")
    (tests / "test_other.py").write_text("import torch\nfrom lsdl_lib.memory.zero import offload\n")
    return tmp_path


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("from lsdl_lib.memory import One", {"lsdl_lib.memory.zero.stages"}),
        ("from lsdl_lib.memory.zero.stages import Stage1", {"lsdl_lib.memory.zero.stages"}),
        ("from lsdl_lib.memory.zero import offload as o", {"lsdl_lib.memory.zero.offload"}),
        ("import lsdl_lib.memory.zero.offload", {"lsdl_lib.memory.zero.offload"}),
        ("def f():\n    from lsdl_lib.memory import One", {"lsdl_lib.memory.zero.stages"}),
        ("%matplotlib inline\n!ls\nfrom lsdl_lib.launch import device", set()),
        ("import torch\nfrom lsdl_lib import launch", set()),
    ],
)
def test_modules_are_where_names_are_defined(tree, code, modules):
    assert pages.imported_modules(code, tree) == modules


def test_tests_are_those_that_import_the_module(tree):
    assert pages.find_tests(["lsdl_lib.memory.zero.stages"], tree) == [
        "tests/memory/test_stages.py"
    ]
    assert pages.find_tests(["lsdl_lib.memory.zero.offload"], tree) == [
        "tests/memory/test_other.py"
    ]
    assert pages.find_tests(["lsdl_lib.memory.none"], tree) == []
    package = tree / "tests" / "memory" / "test_package.py"
    package.write_text("from lsdl_lib.memory import zero\n")
    assert pages.find_tests(["lsdl_lib.memory.zero.offload"], tree) == [
        "tests/memory/test_other.py",
        "tests/memory/test_package.py",
    ]


def notebook(path, *cells):
    """Write a notebook of (kind, text) cells."""
    content = [{"cell_type": kind, "source": text.splitlines(True)} for kind, text in cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cells": content}))
    return path


def test_chapter_is_read_from_its_cells(tree):
    path = notebook(
        tree / "book" / "memory" / "zero.ipynb",
        ("markdown", "# What does ZeRO save?\n\nSee {cite}`b2020,a2019` and {cite:t}`c2021`."),
        ("code", "from lsdl_lib.memory import One\n# {cite}`not_prose`"),
        ("markdown", "## Again\n{cite:p}`a2019`"),
    )
    chapter = pages.read_chapter("memory/zero", path, tree)
    assert chapter.title == "What does ZeRO save?"
    assert chapter.papers == ("b2020", "a2019", "c2021")
    assert chapter.modules == ("lsdl_lib.memory.zero.stages",)
    assert (
        "## memory\n\n"
        "| chapter | modules | tests | papers |\n"
        "| --- | --- | --- | --- |\n"
        "| [What does ZeRO save?](memory/zero) | `zero.stages` "
        "| `test_stages.py` | {cite:t}`b2020`<br>{cite:t}`a2019`<br>{cite:t}`c2021` |\n"
    ) in pages.map_page([chapter], tree)


def test_a_notebook_without_a_title_is_refused(tree):
    path = notebook(tree / "book" / "x.ipynb", ("markdown", "no title"), ("code", "# not one"))
    with pytest.raises(ValueError, match="no title"):
        pages.read_chapter("x", path, tree)


def test_status_says_when_and_on_what_a_chapter_ran(tmp_path):
    chapter = pages.Chapter("memory/zero", "What does ZeRO save?", (), ())
    row = pages.status_page([chapter], tmp_path).split("\n")[8]
    assert row == (
        "| [What does ZeRO save?](memory/zero) | not yet run |  |  |  |  | nccl: not yet run |"
    )
    claim = {"statement": "s", "when": "2026-01-02", "backend": "nccl", "ranks": 8, "clock": "wall"}
    run = {
        "tier": "laptop",
        "seconds": 41.4,
        "smoke_seconds": 6.9,
        "when": "2026-01-01",
        "machine": {
            "gpus": [],
            "cores": 2,
            "system": "Linux",
            "architecture": "x86_64",
            "versions": {"python": "3.11.9", "torch": "2.13.0"},
        },
    }
    for name, content in {
        "memory/zero.run.json": run,
        "memory/zero.json": {"chapter": "memory/zero", "claims": [claim, claim]},
        "gpu/8x-h200/memory/zero.json": {"chapter": "memory/zero", "claims": [claim]},
    }.items():
        path = tmp_path / "records" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    row = pages.status_page([chapter], tmp_path).split("\n")[8]
    assert row == (
        "| [What does ZeRO save?](memory/zero) | laptop | 41 s | 2 "
        "| Linux x86_64, 2 cores, Python 3.11.9, PyTorch 2.13.0 | 2026-01-01 "
        "| nccl, 8 ranks, wall clock, 2026-01-02 |"
    )
    assert pages.running_time("memory/zero", tmp_path) == (
        "**Running time**: 41 s at the laptop tier and 7 s at the smoke tier, verified 2026-01-01 "
        "on 2 cores, no GPU, PyTorch 2.13.0; gpu tier verified 2026-01-02."
    )


def test_the_line_on_the_running_time_is_replaced_in_place(tmp_path):
    line = pages.running_time("memory/zero", tmp_path)
    assert line == "**Running time**: not yet run."
    text = json.dumps({"source": ["# T\n", "**Running time**: (by the run)\n", "```"]}, indent=1)
    expected = {"source": ["# T\n", line + "\n", "```"]}
    assert json.loads(pages.with_running_time(text, line)) == expected
    with pytest.raises(ValueError, match="0 lines begin with"):
        pages.with_running_time("{}", line)
