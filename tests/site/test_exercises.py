"""Each checked exercise of a chapter: the starter fails it, the solution passes it."""

import ast
import re

import nbformat
import pytest

from lsdl_lib.show import ExerciseFailed, check_exercise
from tools import toc

TAGS = ("exercise-starter", "exercise-checker", "exercise-solution")
CHAPTERS = toc.chapters()


def cells(name, kind="code"):
    """Return the cells of a chapter of one kind."""
    notebook = nbformat.read(CHAPTERS[name], as_version=4)
    return [cell for cell in notebook.cells if cell.cell_type == kind]


def tagged(name, tag):
    """Return the code of the cells with a tag, in their order."""
    return [cell.source for cell in cells(name) if tag in cell.metadata.get("tags", [])]


IMPORTS = (ast.Import, ast.ImportFrom)


def only(kinds, code):
    """Return the statements of these kinds of a cell, as code."""
    body = [node for node in ast.parse(code).body if isinstance(node, kinds)]
    return ast.unparse(ast.Module(body=body, type_ignores=[]))


def exercises():
    """Return (chapter, starter, checker, solution) of every checked exercise."""
    return [
        (name, *codes)
        for name in CHAPTERS
        for codes in zip(*(tagged(name, tag) for tag in TAGS), strict=True)
    ]


@pytest.mark.parametrize("name", CHAPTERS)
def test_a_chapter_has_four_exercises_with_solutions_two_of_them_checked(name):
    prose = "\n".join(cell.source for cell in cells(name, "markdown"))
    count = prose.count("{exercise-start}")
    assert count >= 4
    assert prose.count("{solution-start}") == prose.count("{solution-end}") == count
    assert len(tagged(name, "exercise-checker")) >= 2


@pytest.mark.parametrize(("name", "starter", "checker", "solution"), exercises())
def test_the_starter_fails_and_the_solution_passes(name, starter, checker, solution, capsys):
    what = re.search(r"def check_(\w+)", checker)[1]
    namespace = {"__name__": "__main__"}
    for cell in cells(name):
        exec(only(IMPORTS, cell.source), namespace)
    for code in (starter, checker, solution):
        exec(only((*IMPORTS, ast.FunctionDef), code), namespace)  # nothing that the cell calls
    with pytest.raises(ExerciseFailed):
        check_exercise(namespace[f"check_{what}"], namespace[what])
    check_exercise(namespace[f"check_{what}"], namespace[f"{what}_solution"])
    assert "passed on 2 ranks" in capsys.readouterr().out
