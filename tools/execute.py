"""Executes chapters, each from a clean kernel, and keeps their outputs, widgets and records.

- ``python -m tools.execute --into _build/run --records _build/records``: in a copy (``make run``);
- ``python -m tools.execute --in-place --records book/records``: for authors (``make refresh``).

``LSDL_TIER`` chooses the size. Beside the records that the chapter's claims write, each chapter
gets ``<records>/<chapter>.run.json``: tier, seconds, date, machine, versions; in place also the
seconds of the smoke tier, run in a copy. A chapter that fails is reported with its error; the
others still run, and the exit status is 1.
"""

import argparse
import datetime
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import nbclient
import nbformat

from lsdl_lib.claims import bundle, records
from lsdl_lib.tier import tier
from tools import toc

CELL_SECONDS = 600
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"


def execute(path, records_folder):
    """Execute one notebook where it lies and store it with its outputs; return the seconds.

    A kernel of this Python runs it, in the notebook's folder. Nothing is stored when a cell fails.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised; the message has its traceback.
    """
    os.environ["LSDL_RECORDS"] = str(Path(records_folder).resolve())
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's kernel, not the user's own
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata.pop("widgets", None)
    client = nbclient.NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        store_widget_state=True,
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(Path(path).parent)}},
    )
    start = time.monotonic()
    client.execute()
    seconds = time.monotonic() - start
    text = nbformat.writes(notebook)
    for old, new in stable_ids(notebook).items():
        text = text.replace(old, new)
    text = nbformat.writes(nbformat.reads(text, as_version=4))  # sorts the new ids
    Path(path).write_text(text + "\n", encoding="utf-8")
    return seconds


def stable_ids(notebook):
    """Return ``{model id: new id}`` that numbers the widgets in order of creation.

    The kernel draws ids at random; numbered, a page that did not change is the same file again.
    """
    state = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    return {model: f"{number:032x}" for number, model in enumerate(state, start=1)}


def smoke_seconds(path):
    """Execute a copy of a notebook at the smoke tier, keep nothing, and return the seconds."""
    before = os.environ.get("LSDL_TIER")
    os.environ["LSDL_TIER"] = "smoke"
    try:
        with tempfile.TemporaryDirectory() as folder:
            return execute(shutil.copy(path, folder), folder)
    finally:
        os.environ.pop("LSDL_TIER")
        if before is not None:
            os.environ["LSDL_TIER"] = before


def run_chapter(name, path, records_folder, with_smoke=False):
    """Execute a chapter with a line of progress; return True when it ran to its end."""
    print(f"{name} ", end="", flush=True)
    try:
        seconds = execute(path, records_folder)
        smoke = {"smoke_seconds": round(smoke_seconds(path), 1)} if with_smoke else {}
    except nbclient.exceptions.CellExecutionError as error:
        print(f"failed\n{error}")
        return False
    except nbclient.exceptions.DeadKernelError:
        print("failed: its kernel died (out of memory?)")
        return False
    run = {
        "chapter": name,
        "tier": tier(),
        "seconds": round(seconds, 1),
        **smoke,
        "when": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": bundle.machine(),
    }
    records.write_json(Path(records_folder) / f"{name}.run.json", run)
    claims = records.read_all(records_folder).get(name, {"claims": []})["claims"]
    print(f"{seconds:.0f} s, {len(claims)} claims hold", flush=True)
    return True


def main(arguments=None):
    """Execute every chapter; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.execute", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--in-place", action="store_true", help="in book/ itself")
    where.add_argument("--into", type=Path, help="in a copy of book/, made in this folder")
    parser.add_argument("--records", type=Path, required=True, help="folder for the records")
    options = parser.parse_args(arguments)
    book = toc.BOOK
    if options.in_place and tier() != "laptop":
        print(f"Committed pages show the laptop tier: unset LSDL_TIER={tier()}.", file=sys.stderr)
        return 2
    if options.into:
        book = options.into
        shutil.rmtree(book, ignore_errors=True)
        ignored = shutil.ignore_patterns("records", ".ipynb_checkpoints")
        shutil.copytree(toc.BOOK, book, ignore=ignored)
    chapters = toc.chapters(book)
    print(f"Executing {len(chapters)} chapter(s) at the {tier()} tier.")
    failed = [
        name
        for name, path in chapters.items()
        if not run_chapter(name, path, options.records, with_smoke=options.in_place)
    ]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
