"""One file with all records of a machine: made by ``make gpu``, merged by ``make import-records``.

A bundle is ``{"format": 1, "machine": {…}, "chapters": {chapter: content}}``. It comes from
people who have the GPUs that the book's authors lack, so an import trusts nothing in it:
chapters' names must be names, records must be complete, and only runs of the gpu tier are taken.
"""

import json
import os
import platform
import re
from pathlib import Path

import torch

from lsdl_lib.claims import records

FORMAT = 1
NEEDED = {
    "statement": str,
    "measured": object,
    "rtol": int | float,
    "atol": int | float,
    "unit": str,
    "holds": bool,
    "source": str,
    "tier": str,
    "device": str,
    "backend": str | None,
    "ranks": int | None,
    "clock": str | None,
    "seed": int | None,
    "seconds": int | float,
    "when": str,
    "versions": dict,
}


def machine():
    """Return what matters of this machine: GPUs, cores, system, versions; no host or user."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "gpus": gpus,
        "cores": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "gpu_runtime": torch.version.cuda,
        "versions": records.versions(),
    }


def make(folder, out):
    """Write all records of ``folder`` and this machine's description to the file ``out``.

    Raises:
        ValueError: the folder holds no records.
    """
    chapters = records.read_all(folder)
    if not chapters:
        raise ValueError(
            f"no records in {folder}: run the chapters first, with LSDL_RECORDS={folder}"
        )
    records.write_json(out, {"format": FORMAT, "machine": machine(), "chapters": chapters})
    return sorted(chapters)


def merge(path, folder):
    """Merge a bundle into ``folder/gpu/<machine>/``; return a line of text for each chapter.

    A chapter's newer run replaces the older one of the same kind of machine, never the reverse.

    Raises:
        ValueError: the file is no bundle, or a record in it is incomplete; nothing was written.
    """
    bundle = _read(path)
    key = machine_key(bundle["machine"])
    for name, content in bundle["chapters"].items():
        _validate(name, content)
    lines = []
    for name, content in sorted(bundle["chapters"].items()):
        target = Path(folder) / "gpu" / key
        earlier = target / f"{name}.json"
        if earlier.exists() and _day(json.loads(earlier.read_text(encoding="utf-8"))) > _day(
            content
        ):
            lines.append(f"{name}: kept the newer run that is there")
            continue
        records.write(target, name, content["claims"], machine=bundle["machine"])
        failed = sum(not entry["holds"] for entry in content["claims"])
        lines.append(f"{name}: {len(content['claims'])} claims, {failed} of them fail")
    return lines


def machine_key(description):
    """Return a folder name for a kind of machine: ``"8x-nvidia-h100"``, ``"no-gpu"``.

    Raises:
        ValueError: the description lists no GPUs.
    """
    gpus = description.get("gpus") if isinstance(description, dict) else None
    if not isinstance(gpus, list) or not all(isinstance(name, str) for name in gpus):
        raise ValueError("the bundle's machine lists no gpus: make it with make gpu")
    if not gpus:
        return "no-gpu"
    return f"{len(gpus)}x-" + re.sub(r"[^a-z0-9]+", "-", gpus[0].lower()).strip("-")


def _read(path):
    try:
        bundle = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(bundle, dict) or bundle.get("format") != FORMAT:
        raise ValueError(f"{path} is no bundle of format {FORMAT}: make it with make gpu")
    if not isinstance(bundle.get("chapters"), dict) or not bundle["chapters"]:
        raise ValueError(f"{path} holds no chapters")
    return bundle


def _validate(name, content):
    records.chapter_name(name)
    if not isinstance(content, dict) or not isinstance(content.get("claims"), list):
        raise ValueError(f"{name} holds no list of claims")
    if not content["claims"]:
        raise ValueError(f"{name} holds no claims")
    for entry in content["claims"]:
        if not isinstance(entry, dict):
            raise ValueError(f"{name}: {entry!r} is no record")
        statement = entry.get("statement")
        for field, kind in NEEDED.items():
            if field not in entry or not isinstance(entry[field], kind):
                raise ValueError(f"{name}, {statement!r}: {field} is missing or of another type")
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", entry["when"]):
            raise ValueError(f"{name}, {statement!r}: when={entry['when']!r} is no date")
        if entry["tier"] != "gpu":
            raise ValueError(
                f"{name}, {statement!r} ran at the {entry['tier']} tier: only gpu runs are imported"
            )
        try:
            records.expectation_text(entry)  # raises ValueError when it has none
            records.measured_text(entry)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{name}, {statement!r}: a value is malformed ({error})") from None


def _day(content):
    return max(entry["when"] for entry in content["claims"])
