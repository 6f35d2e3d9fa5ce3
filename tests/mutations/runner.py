"""The claims of a chapter under mutations: each claim must fail when its code is made wrong.

A claim that holds whatever the code does proves nothing. So a chapter has a table of mutations: one
line of the library, or of the chapter's own cells, changed to something wrong, and the claims that
must notice. The chapter's cells then run at the smoke tier against a changed copy of the library.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent.parent
PLAY = Path(__file__).with_name("play.py")
CELL = "cell"  # in place of a file: a line of the chapter's own cells
LIMIT_S = 300


@dataclass(frozen=True)
class Mutation:
    """One change, and the claims that it must break.

    Attributes:
        file: path in ``lsdl_lib``, or ``CELL``.
        old: text that occurs exactly once in the file (in the chapter's code cells).
        new: what takes its place.
        breaks: regular expressions; every claim of the run that begins like one of them must fail.
    """

    file: str
    old: str
    new: str
    breaks: tuple

    def __post_init__(self):
        assert isinstance(self.breaks, tuple), f"{self.breaks!r}: give a tuple of expressions"


@dataclass(frozen=True)
class Outcome:
    """What a chapter's claims did.

    Attributes:
        held: statements.
        failed: {statement: measured and expected}.
        errors: {code cell, from 1: exception} of cells that raised.
        cell_of: {statement: code cell}.
        seconds: {code cell: wall time}.
    """

    held: list
    failed: dict
    errors: dict
    cell_of: dict
    seconds: dict


def play(chapter, mutations, folder, cells=()):
    """Run ``chapter`` at the smoke tier with all ``mutations`` made; return its :class:`Outcome`.

    Args:
        chapter: name, such as ``communication/collectives``.
        mutations: several at once, if none hides another's effect.
        folder: an empty folder for the changed copies.
        cells: code cells to run, from 1, with the earlier ones that they need; none: all.
    """
    skip = shutil.ignore_patterns("__pycache__", "*.ipynb", "_static")
    for name in ("lsdl_lib", "tools", "book", "benchmarks"):
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    notebook = nbformat.read(ROOT / "book" / f"{chapter}.ipynb", as_version=4)
    for mutation in mutations:
        if mutation.file == CELL:
            change_cell(notebook, mutation)
        else:
            change_file(folder / "lsdl_lib" / mutation.file, mutation)
    path = folder / "book" / f"{chapter}.ipynb"
    nbformat.write(notebook, path)
    result = folder / "result.json"
    environment = {**os.environ, "LSDL_TIER": "smoke", "PYTHONPATH": str(folder)}
    environment.pop("LSDL_RECORDS", None)
    command = [sys.executable, "-B", str(PLAY), str(path), str(result), *map(str, cells)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert result.exists(), done.stdout + done.stderr
    return Outcome(**json.loads(result.read_text()))


def change_file(path, mutation):
    """Make one change in a file."""
    path.write_text(replaced(path.read_text(encoding="utf-8"), mutation), encoding="utf-8")


def change_cell(notebook, mutation):
    """Make one change in the chapter's code cells."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    places = [cell for cell in cells if mutation.old in cell.source]
    assert len(places) == 1, f"{mutation.old!r} is in {len(places)} cells: give text of one"
    places[0].source = replaced(places[0].source, mutation)


def replaced(text, mutation):
    """Return ``text`` with the change, which must have one place."""
    times = text.count(mutation.old)
    assert times == 1, f"{mutation.old!r} occurs {times} times in {mutation.file}: must be once"
    return text.replace(mutation.old, mutation.new)


def unbroken(mutations, outcome):
    """Return what the mutations should have broken and did not, as lines; empty when all did."""
    lines = []
    for mutation in mutations:
        for pattern in mutation.breaks:
            held = [s for s in outcome.held if re.match(pattern, s)]
            failed = [s for s in outcome.failed if re.match(pattern, s)]
            lines += [f"{mutation.new!r} in {mutation.file}: still holds: {s}" for s in held]
            if not held and not failed:
                lines.append(f"{mutation.new!r} in {mutation.file}: no claim like {pattern!r}")
    if lines:
        lines += [f"cell {cell}: {error}" for cell, error in outcome.errors.items()]
    return lines


def uncovered(chapter, mutations, baseline):
    """Return the chapter's claims, here and in its committed record, that no mutation breaks."""
    record = json.loads((ROOT / "book" / "records" / f"{chapter}.json").read_text())
    statements = {claim["statement"] for claim in record["claims"]} | set(baseline.cell_of)
    patterns = [pattern for mutation in mutations for pattern in mutation.breaks]
    return sorted(s for s in statements if not any(re.match(pattern, s) for pattern in patterns))


def cells_for(mutations, baseline):
    """Return the code cells that check what the mutations must break."""
    patterns = [pattern for mutation in mutations for pattern in mutation.breaks]
    return sorted(
        {
            cell
            for statement, cell in baseline.cell_of.items()
            if any(re.match(pattern, statement) for pattern in patterns)
        }
    )
