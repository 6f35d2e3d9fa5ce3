"""Runs a chapter's code cells; a false claim is written down and the run goes on.

    python tests/mutations/play.py CHAPTER.ipynb RESULT.json [CELL …]

It runs in a folder that ``runner.py`` has prepared, with that folder's ``lsdl_lib`` and ``tools``.
With numbers of code cells (from 1) it runs these, and the earlier ones whose names they use.
Figures and exercises are left out: they make no claims.
"""

import ast
import builtins
import contextlib
import json
import os
import sys
import time
from pathlib import Path

import nbformat

FOLDER = Path.cwd()
os.environ.setdefault("MPLBACKEND", "agg")


def main(notebook, result, wanted):
    """Run the cells and write what ``runner.Outcome`` holds."""
    import lsdl_lib
    from lsdl_lib import show
    from lsdl_lib.claims import ClaimFailed, Claims
    from tools.run_chapter import Shell

    assert Path(lsdl_lib.__file__).is_relative_to(FOLDER), f"wrong lsdl_lib: {lsdl_lib.__file__}"
    held, failed, errors, cell_of, seconds = [], {}, {}, {}, {}
    check = Claims.check

    def noting(self, statement, *args, **options):
        name = " ".join(str(statement).split())
        cell_of[name] = number
        try:
            check(self, statement, *args, **options)
        except ClaimFailed as error:
            failed[name] = str(error)
        else:
            held.append(name)

    Claims.check = noting
    for name in show.__all__:
        setattr(show, name, lambda *args, **options: None)
    shell = Shell.instance()
    shell.history_manager.enabled = False
    cells = [c.source for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"]
    chosen = needed(cells, wanted) if wanted else range(1, len(cells) + 1)
    os.chdir(notebook.parent)
    for number in chosen:
        began = time.monotonic()
        with contextlib.redirect_stdout(sys.stderr):
            outcome = shell.run_cell(cells[number - 1])
        seconds[number] = round(time.monotonic() - began, 1)
        error = outcome.error_before_exec or outcome.error_in_exec
        if error is not None:
            errors[number] = f"{type(error).__name__}: {error}"
    found = {"held": held, "failed": failed, "errors": errors, "cell_of": cell_of}
    result.write_text(json.dumps({**found, "seconds": seconds}))


def needed(cells, wanted):
    """Return the numbers of ``wanted`` cells and of those that they need, in order."""
    used, made = zip(*(names(cell) for cell in cells))
    chosen, waiting = set(), list(wanted)
    while waiting:
        number = waiting.pop()
        if number in chosen:
            continue
        chosen.add(number)
        # A name may be made by several cells: the last one before counts, and what that uses.
        for name in used[number - 1]:
            makers = [k + 1 for k in range(number - 1) if name in made[k]]
            waiting += makers[-1:]
    return sorted(chosen)


def names(cell):
    """Return the names that a cell uses and the names that it makes at its top level."""
    tree = ast.parse(cell)
    used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(dir(builtins))
    made = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            made.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            made.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            made |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return used, made


if __name__ == "__main__":
    main(*(Path(name).resolve() for name in sys.argv[1:3]), [int(cell) for cell in sys.argv[3:]])
