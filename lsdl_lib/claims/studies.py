"""Studies: long sweeps that one command runs, stored as JSON for a chapter to load.

A chapter that shows hundreds of runs cannot make them each time it is executed. A study makes them
once, ``book/records/<chapter>.<name>.study.json`` keeps them with what ran, and the chapter runs
one of the stored points again and compares.

    {"chapter": …, "name": …, "command": …, "clock": …, "tier": …, "when": …, "machine": {…},
     <more facts, such as backend and ranks>, "points": [{…}, …]}

Keys are sorted, floats have 6 significant digits, and a point is one line: a study that is run
again changes the lines whose values changed.
"""

import datetime
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lsdl_lib.claims import bundle, numbers, records
from lsdl_lib.claims.chapter import CLOCKS
from lsdl_lib.tier import tier

OWN = ("chapter", "name", "command", "clock", "tier", "when", "machine", "points")


@dataclass(frozen=True)
class Study:
    """A stored study.

    Attributes:
        points: list of dicts, one a run: what was set and what was measured.
        facts: everything else in the file: command, clock, tier, when, machine, …
    """

    points: list
    facts: dict

    def at(self, **values):
        """Return the one point that has these values: ``study.at(method="ring", ranks=4)``.

        Raises:
            ValueError: no point has them, or more than one; names the values.
        """
        matches = self.all(**values)
        if len(matches) != 1:
            said = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise ValueError(f"{len(matches)} points of the study have {said}: one was expected")
        return matches[0]

    def all(self, **values):
        """Return the points that have these values, in the order in which they were run."""
        return [p for p in self.points if all(p.get(k) == v for k, v in values.items())]

    @property
    def where(self):
        """What ran and when, in one line: ``gloo, 2 to 8 ranks, virtual clock, 2026-01-31``."""
        facts = self.facts
        ranks = sorted(facts.get("ranks") or [])
        words = [facts["backend"]] if facts.get("backend") else []
        if ranks:
            span = f"{ranks[0]:,}" if ranks[0] == ranks[-1] else f"{ranks[0]:,} to {ranks[-1]:,}"
            words.append(f"{span} rank{'s' * (ranks[-1] > 1)}")
        words += [f"{facts['clock']} clock"] if facts["clock"] else []
        return ", ".join([*words, facts["when"]])


def write(chapter, name, points, *, command, clock, folder=None, **facts):
    """Store a study, whole or not at all; return its path.

    Args:
        chapter: as in :class:`lsdl_lib.claims.Claims`, ``"communication/collectives"``.
        name: the study's, lower case letters, digits, ``-`` and ``_``.
        points: list of dicts of numbers, strings and bools, all with the same keys.
        command: what a reader types to run the study again.
        clock: ``"wall"``, ``"virtual"``, ``"simulated"``, or None where no time was measured.
        folder: the records' folder; None is ``book/records`` of this checkout.
        facts: more to remember: ``backend="gloo"``, ``ranks=[2, 4]``, ``seed=1``.

    Raises:
        ValueError: a name, a clock or a value that cannot be kept; it is named.
        FileNotFoundError: no folder was given and this is no checkout of the book.
    """
    if clock not in (None, *CLOCKS):
        raise ValueError(f"clock={clock!r}: give one of {', '.join(CLOCKS)}, or None")
    for own in sorted(set(facts) & set(OWN)):
        raise ValueError(f"{own} is written by the study itself: give the fact another name")
    content = {
        "chapter": records.chapter_name(chapter),
        "name": name,
        "command": command,
        "clock": clock,
        "tier": tier(),
        "when": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": bundle.machine(),
        **facts,
        "points": "@points",
    }
    lines = ",\n".join(f"  {_line(point)}" for point in _checked(points))
    text = json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    path = _path(chapter, name, folder)
    records.write_text(path, text.replace('"@points"', f"[\n{lines}\n ]"))
    return path


def read(chapter, name, folder=None):
    """Return a stored :class:`Study`.

    Args:
        chapter, name: as in :func:`write`.
        folder: the records' folder; None is ``book/records`` of the checkout around the working
            folder, else of the one that holds this package.

    Raises:
        FileNotFoundError: there is none, or no folder was given and this is no checkout.
    """
    path = _path(chapter, name, folder)
    if not path.exists():
        raise FileNotFoundError(f"the study {name} of {chapter} is not there: {path}")
    facts = json.loads(path.read_text(encoding="utf-8"))
    return Study(facts.pop("points"), facts)


def _path(chapter, name, folder):
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_-]+", name):
        raise ValueError(f"study {name!r}: give lower case letters, digits, - and _")
    folder = folder or records.book_records() or records.book_records(Path(__file__).parent)
    if folder is None:
        raise FileNotFoundError("no book/records here: give folder=, or work in a checkout")
    return Path(folder) / f"{records.chapter_name(chapter)}.{name}.study.json"


def _checked(points):
    """Return the points, rounded as records are.

    Raises:
        ValueError: there is none, keys differ, two are equal, or a value is not finite.
    """
    points = [{key: _plain(key, value) for key, value in point.items()} for point in points]
    if not points:
        raise ValueError("a study needs at least one point")
    seen = set()
    for point in points:
        if set(point) != set(points[0]):
            raise ValueError(f"{point} has other keys than {points[0]}")
        if _line(point) in seen:
            raise ValueError(f"{point} is there twice")
        seen.add(_line(point))
    return points


def _plain(key, value):
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not np.isfinite(value):
        raise ValueError(f"{key}={value}: a study holds finite numbers")
    if not isinstance(value, str | bool | int | float):
        raise ValueError(f"{key}={value!r}: a study holds numbers, strings and bools")
    return numbers.recorded(value)


def _line(point):
    return json.dumps(point, sort_keys=True, ensure_ascii=False, allow_nan=False)
