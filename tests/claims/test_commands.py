"""``python -m lsdl_lib.claims``: compare, bundle, import, from records that checks wrote."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lsdl_lib.claims import Claims, bundle, records
from lsdl_lib.claims.__main__ import main
from lsdl_lib.launch import Results

NAME = "communication/collectives"


@pytest.fixture
def gpu_run(folder, monkeypatch):
    """Records of a run at the gpu tier in ``folder``; a book with empty records beside it."""
    (folder.parent / "book/records").mkdir(parents=True)
    monkeypatch.setenv("LSDL_TIER", "gpu")
    monkeypatch.setattr(bundle, "machine", lambda: {"gpus": ["NVIDIA H100 80GB"] * 8})
    claims = Claims(NAME)
    run = Results(range(8), backend="nccl", device="gpu", seconds=1.0)
    claims.check("sends", 12, 12, unit="B", run=run)
    claims.check("time", 0.25, at_most=1, unit="s", run=run, clock="wall")
    monkeypatch.delenv("LSDL_TIER")
    return folder


def test_compare_shows_the_book_beside_yours(gpu_run, capsys):
    book = gpu_run.parent / "book/records" / f"{NAME}.json"
    content = json.loads((gpu_run / f"{NAME}.json").read_text())
    content["claims"][1] |= {"measured": 0.5, "at_most": 9}
    content["claims"][0]["statement"] = "only in the book"
    book.parent.mkdir(parents=True)
    book.write_text(json.dumps(content))
    assert main(["compare"]) == 0
    lines = {line.split("  ")[1]: line for line in capsys.readouterr().out.splitlines()[2:]}
    assert "0.5 s (nccl, 8 ranks, wall clock; gpu)" in lines["time"]
    assert "at most 1 s" in lines["time"], "your run's expectation"
    assert lines["time"].rindex("0.25 s") > lines["time"].index("0.5 s")
    assert "not run  " in lines["sends"]
    assert lines["only in the book"].endswith("not run")


def test_commands_say_what_is_missing(folder, capsys):
    assert main(["compare"]) == 2
    assert "run the chapters first" in capsys.readouterr().err
    assert main(["bundle", "out.json"]) == 2
    assert "run the chapters first" in capsys.readouterr().err
    assert main(["import", "nowhere.json"]) == 2
    assert "nowhere.json" in capsys.readouterr().err


def test_a_bundle_comes_back_into_the_book(gpu_run, capsys):
    assert main(["bundle", "out.json"]) == 0
    assert main(["import", "out.json"]) == 0
    assert f"{NAME}: 2 claims, 0 of them fail" in capsys.readouterr().out
    stored = gpu_run.parent / f"book/records/gpu/8x-nvidia-h100-80gb/{NAME}.json"
    content = json.loads(stored.read_text())
    assert content["machine"] == {"gpus": ["NVIDIA H100 80GB"] * 8}
    assert content["claims"] == json.loads((gpu_run / f"{NAME}.json").read_text())["claims"]


def test_the_chapter_shows_the_imported_run(gpu_run, run, monkeypatch):
    claims = Claims(NAME)
    claims.check("sends", 12, 12, unit="B", run=run)
    claims.check("new", 1, 1)
    assert "nccl: not yet run" in repr(claims.table())
    bundle.make(gpu_run, "out.json")  # holds the laptop records now: refused
    with pytest.raises(ValueError, match="laptop tier"):
        bundle.merge("out.json", "book/records")
    monkeypatch.setenv("LSDL_TIER", "gpu")
    again = Claims(NAME)
    again.check(
        "sends", 12, 12, unit="B", run=Results(range(8), backend="nccl", device="g", seconds=1)
    )
    bundle.make(gpu_run, "out.json")
    bundle.merge("out.json", "book/records")
    (gpu_run.parent / "book/communication").mkdir()
    monkeypatch.chdir(gpu_run.parent / "book/communication")  # where the notebook runs
    text = repr(claims.table())
    assert f"12 B (nccl, 8 ranks, {again.records[0]['when']})" in text
    assert "not run" in next(line for line in text.splitlines() if line.startswith("new"))
    assert "not yet run" not in text


def test_an_older_bundle_does_not_replace_a_newer_run(gpu_run):
    bundle.make(gpu_run, "new.json")
    old = json.loads(Path("new.json").read_text())
    for record in old["chapters"][NAME]["claims"]:
        record |= {"when": "2001-01-01", "measured": 99}
    Path("old.json").write_text(json.dumps(old))
    bundle.merge("old.json", "book/records")
    bundle.merge("new.json", "book/records")
    assert bundle.merge("old.json", "book/records") == [f"{NAME}: kept the newer run that is there"]
    stored = json.loads(Path(f"book/records/gpu/8x-nvidia-h100-80gb/{NAME}.json").read_text())
    assert [r["measured"] for r in stored["claims"]] == [12, 0.25]


def _without(field):
    return lambda b: b["chapters"][NAME]["claims"][0].pop(field)


def _with(**fields):
    return lambda b: b["chapters"][NAME]["claims"][0].update(fields)


BROKEN = [
    ("format", lambda b: b.update(format=2), "format 1"),
    ("no chapters", lambda b: b.update(chapters={}), "no chapters"),
    ("a path for a name", lambda b: b["chapters"].update({"../../x": {}}), "../../x"),
    ("no claims", lambda b: b["chapters"][NAME].update(claims=[]), "no claims"),
    ("claims are text", lambda b: b["chapters"][NAME].update(claims=["x"]), "'x'"),
    ("no measured value", _without("measured"), "measured"),
    ("no verdict", _without("holds"), "holds"),
    ("a verdict in words", _with(holds="yes"), "holds"),
    ("no date", _with(when="yesterday"), "yesterday"),
    ("nothing expected", _without("expected"), "nothing to compare with"),
    ("a malformed summary", _with(measured={"low": 1}), "malformed"),
    ("another tier", _with(tier="laptop"), "laptop"),
    ("no machine", lambda b: b.update(machine={}), "gpus"),
]


@pytest.mark.parametrize(("name", "change", "says"), BROKEN, ids=[b[0] for b in BROKEN])
def test_an_import_trusts_nothing(gpu_run, name, change, says):
    bundle.make(gpu_run, "out.json")
    content = copy.deepcopy(json.loads(Path("out.json").read_text()))
    change(content)
    Path("out.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=says):
        bundle.merge("out.json", "book/records")
    assert list((gpu_run.parent / "book/records").iterdir()) == []


def test_a_file_that_is_no_json_is_named(gpu_run):
    Path("out.json").write_text("{")
    with pytest.raises(ValueError, match=r"out\.json is no JSON"):
        bundle.merge("out.json", "book/records")


def test_the_machine_is_described_without_names():
    described = bundle.machine()
    assert described["cores"] == os.cpu_count()
    assert bundle.machine_key(described)
    assert os.uname().nodename not in json.dumps(described).split('"')


def test_the_command_line(gpu_run):
    command = [sys.executable, "-m", "lsdl_lib.claims", "compare"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=True)
    assert "the book's run" in done.stdout


def test_the_newest_gpu_run_is_shown_and_of_one_day_the_one_with_most_ranks(tmp_path):
    runs = {"a": ("2026-01-02", 8), "b": ("2026-03-01", 2), "c": ("2026-03-01", 4)}
    for machine, (when, ranks) in runs.items():
        claims = [{"when": when, "ranks": ranks}, {"when": when, "ranks": None}]
        records.write(tmp_path / "gpu" / machine, NAME, claims)
    assert records.newest_gpu_run(NAME, tmp_path)["claims"][0] == {"when": "2026-03-01", "ranks": 4}
    assert records.newest_gpu_run("other/chapter", tmp_path) is None
