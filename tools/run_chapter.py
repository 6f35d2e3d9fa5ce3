"""Runs a chapter's code cells one after the other, as a script: on one node or, unchanged, on many.

    python tools/run_chapter.py book/communication/collectives.ipynb
    torchrun --nnodes=2 … tools/run_chapter.py book/communication/collectives.ipynb

All cells share one namespace, in an IPython shell, with the notebook's folder as working folder.
Under ``torchrun`` every process runs every cell, ``launch`` uses the processes that are there, and
only rank 0 prints. A cell that fails ends the process with status 1 after its error is printed, on
whatever rank it failed. A cell tagged ``raises-exception`` may fail. Displayed widgets and figures
appear as text.
"""

import argparse
import contextlib
import io
import os
import sys
from pathlib import Path

import nbformat
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # run as a script, Python knows only this file's folder

from lsdl_lib.launch import on_main  # noqa: E402


class Shell(InteractiveShell):
    """IPython without a terminal and without windows."""

    def enable_gui(self, gui=None):
        """Do nothing: figures appear as text. ``%matplotlib inline`` calls this."""


def run(path):
    """Run the chapter at ``path``; return the number of the cell that failed (from 1), or 0."""
    cells = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
    # No history: many processes would write to one file. No colors: the output is often a log.
    config = Config(HistoryManager={"enabled": False}, InteractiveShell={"colors": "nocolor"})
    shell = Shell.instance(config=config)
    shell.displayhook.write_output_prompt = lambda: None  # no "Out[0]:"
    for number, cell in enumerate(cells, start=1):
        printed = sys.stdout if on_main() else io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = shell.run_cell(cell.source)
        if not result.success and "raises-exception" not in cell.metadata.get("tags", []):
            if not on_main():
                sys.stderr.write(printed.getvalue())
            return number
    return 0


def main(arguments=None):
    """Run one chapter; return the exit status."""
    parser = argparse.ArgumentParser(prog="tools/run_chapter.py", description=__doc__)
    parser.add_argument("chapter", type=Path, help="the notebook, such as book/…/collectives.ipynb")
    chapter = parser.parse_args(arguments).chapter.resolve()
    if not chapter.is_file():
        parser.error(f"there is no file {chapter}")
    if os.environ.get("LSDL_RECORDS"):
        os.environ["LSDL_RECORDS"] = os.path.abspath(os.environ["LSDL_RECORDS"])
    os.environ.setdefault("MPLBACKEND", "agg")
    os.chdir(chapter.parent)
    failed = run(chapter)
    if failed:
        rank = os.environ.get("RANK", "0")
        print(f"{chapter.name}: code cell {failed} failed on rank {rank}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
