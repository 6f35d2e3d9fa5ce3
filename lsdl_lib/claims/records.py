"""Records: what a check measured and what ran, as JSON that changes only where a value changed.

One file a chapter, ``<folder>/<chapter>.json``: ``{"chapter": …, "claims": [record, …]}``, keys
sorted, floats with 6 significant digits, a newline at the end. A record holds: chapter,
statement, measured, expected or at_most and at_least, rtol, atol, unit, holds, source, tier,
device, backend, ranks, clock, seed, seconds since the previous check, when (UTC date), versions.

Runs on GPUs, from other people's machines, lie under ``<folder>/gpu/<machine>/`` in the same form
plus a ``machine`` entry.
"""

import importlib.metadata
import json
import os
import platform
import re
from pathlib import Path

import numpy as np
import torch

from lsdl_lib.claims import numbers
from lsdl_lib.claims.expectation import Expectation, margin_text

BOUNDS = ("at_most", "at_least")


def chapter_name(name):
    """Return ``name`` if it can be a chapter's: lower case letters, digits, ``-_``, ``/`` between.

    Raises:
        ValueError: it cannot; it may come from a file that someone sent.
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_-]+(/[a-z0-9_-]+)*", name):
        raise ValueError(
            f"chapter {name!r}: give its path under book/ without ending, "
            "such as communication/collectives"
        )
    return name


def record(statement, measured, expectation, holds, **context):
    """Return the record of one check as a dict that JSON can hold."""
    entry = {
        "statement": statement,
        "measured": numbers.recorded(measured),
        "rtol": float(expectation.rtol),
        "atol": float(expectation.atol),
        "unit": expectation.unit,
        "holds": holds,
        "versions": versions(),
        **context,
    }
    entry["seconds"] = round(entry["seconds"], 1)
    for name in ("expected", *BOUNDS):
        value = getattr(expectation, name)
        if value is not None:
            entry[name] = numbers.recorded(value)
    return entry


def versions():
    """Return the versions of what a measured value may depend on."""
    try:
        own = importlib.metadata.version("lsdl-lib")
    except importlib.metadata.PackageNotFoundError:
        own = "not installed"
    return {
        "lsdl": own,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def write(folder, chapter, claims, machine=None):
    """Write a chapter's records below ``folder``, whole or not at all; return the path."""
    path = Path(folder) / f"{chapter_name(chapter)}.json"
    content = {"chapter": chapter, "claims": claims} | ({"machine": machine} if machine else {})
    write_json(path, content)
    return path


def write_json(path, content):
    """Write JSON with sorted keys and a newline at the end, whole or not at all."""
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    write_text(path, text)


def write_text(path, text):
    """Write a text and a newline, whole or not at all; make its folder if need be."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    unfinished.write_text(text + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_all(folder):
    """Return ``{chapter: content}`` of the records in ``folder``, runs on GPUs left out."""
    folder = Path(folder)
    found = {}
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name.startswith(("gpu/", "studies/")):
            continue
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("chapter") == name:
            found[name] = content
    return found


def book_records(start=None):
    """Return ``book/records`` of the checkout around ``start`` (the working folder), or None."""
    start = Path(start or os.getcwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "book" / "records").is_dir():
            return folder / "book" / "records"
    return None


def newest_gpu_run(chapter, folder=None):
    """Return a chapter's newest imported run on GPUs (of one day: with most ranks), or None."""
    folder = folder or book_records()
    runs = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (sorted((Path(folder) / "gpu").glob(f"*/{chapter}.json")) if folder else [])
    ]
    return max(runs, key=_newest, default=None)


def _newest(run):
    return max((r["when"], r["ranks"] or 1) for r in run["claims"])


def what_ran(entry):
    """Return what ran, in words: ``"gloo, 4 ranks, virtual clock"``, ``"one process"``."""
    if entry["backend"]:
        words = f"{entry['backend']}, {entry['ranks']} rank{'s' * (entry['ranks'] > 1)}"
    else:
        words = "one process"
    return words + (f", {entry['clock']} clock" if entry["clock"] else "")


def measured_text(entry):
    """Return a record's measured value with its unit, and a mark if the claim failed."""
    shown = numbers.text(entry["measured"], 4, entry["unit"])
    return shown if entry["holds"] else f"{shown} (fails)"


def expectation_text(entry):
    """Return a record's expectation in words."""
    if isinstance(entry.get("expected"), dict):  # the summary of a long array
        wanted = numbers.text(entry["expected"], 4, entry["unit"])
        return f"{wanted}, {margin_text(entry['rtol'], entry['atol'], entry['unit'])}"
    given = {name: entry[name] for name in ("expected", *BOUNDS) if name in entry}
    return Expectation(**given, rtol=entry["rtol"], atol=entry["atol"], unit=entry["unit"]).text()
