"""``Claims.check``: what it prints, raises and records."""

import json

import numpy as np
import pytest

from lsdl_lib.claims import ClaimFailed, Claims
from lsdl_lib.claims import chapter as chapter_module


def read(folder):
    return json.loads((folder / "communication/collectives.json").read_text(encoding="utf-8"))


def test_prints_one_line_without_the_measured_value(claims, capsys):
    claims.check("the  loss\nfalls", 1.0234, 1.0, rtol=0.05, unit="nats", source="eq. 3")
    assert capsys.readouterr().out == "holds: the loss falls [expected 1 nats, within 5 %]\n"


def test_the_line_is_the_same_for_every_measured_value_that_holds(folder, capsys):
    lines = set()
    for measured in (0.971, 1.0, 1.029):
        Claims("a/b").check("speed", measured, 1.0, rtol=0.03)
        lines.add(capsys.readouterr().out)
    assert len(lines) == 1


def test_a_false_claim_raises_with_the_measured_value_and_is_recorded(claims, folder, capsys):
    with pytest.raises(ClaimFailed, match=r"sends: measured 7 B, expected 6 B, exactly"):
        claims.check("sends", 7, 6, unit="B")
    assert capsys.readouterr().out == ""
    assert [r["holds"] for r in read(folder)["claims"]] == [False]
    assert issubclass(ClaimFailed, AssertionError)


def test_the_record_says_what_ran(claims, folder, run, monkeypatch):
    monkeypatch.setenv("LSDL_TIER", "smoke")
    claims.check(
        "time", 0.123456789, at_most=1, unit="s", source="table 1", run=run, clock="virtual", seed=3
    )
    (record,) = read(folder)["claims"]
    assert record["measured"] == 0.123457
    assert record["at_most"] == 1
    assert "expected" not in record
    wanted = {
        "chapter": "communication/collectives",
        "statement": "time",
        "unit": "s",
        "holds": True,
        "source": "table 1",
        "tier": "smoke",
        "device": "gpu-or-not",
        "backend": "gloo",
        "ranks": 4,
        "clock": "virtual",
        "seed": 3,
        "rtol": 0,
        "atol": 0,
    }
    assert {name: record[name] for name in wanted} == wanted
    assert set(record["versions"]) == {"torch", "numpy", "python", "lsdl"}
    assert record["seconds"] >= 0
    assert len(record["when"]) == len("2026-01-31")


def test_without_a_run_the_device_is_this_process(claims):
    from lsdl_lib.launch import device

    claims.check("a", 1, 1)
    assert claims.records[0]["device"] == device().type
    assert claims.records[0]["backend"] is None


def test_records_are_stable_bytes(claims, folder, run):
    claims.check("b", np.arange(1000.0), at_least=0, run=run)
    claims.check("a", 2, 2)
    text = (folder / "communication/collectives.json").read_text(encoding="utf-8")
    assert text.endswith("}\n")
    content = json.loads(text)
    assert text == json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    assert [r["statement"] for r in content["claims"]] == ["b", "a"], "in the order of the checks"
    assert content["claims"][0]["measured"] == {
        "shape": [1000],
        "low": 0,
        "high": 999,
        "mean": 499.5,
    }
    assert not list(folder.rglob("*.part"))


def test_nothing_is_written_without_the_variable(claims, folder, monkeypatch):
    monkeypatch.delenv("LSDL_RECORDS")
    claims.check("a", 1, 1)
    assert not folder.exists()


def test_only_the_main_process_prints_and_writes(claims, folder, monkeypatch, capsys):
    monkeypatch.setattr(chapter_module, "on_main", lambda: False)
    claims.check("a", 1, 1)
    assert capsys.readouterr().out == ""
    assert not folder.exists()
    with pytest.raises(ClaimFailed):
        claims.check("b", 1, 2)


def test_a_rerun_of_the_chapter_replaces_its_records(folder):
    first = Claims("communication/collectives")
    first.check("old", 1, 1)
    first.check("kept", 1, 1)
    Claims("communication/collectives").check("kept", 1, 1)
    assert [r["statement"] for r in read(folder)["claims"]] == ["kept"]


def test_a_rerun_of_a_cell_replaces_its_record_in_place(claims, folder, monkeypatch):
    cell = iter([1, 2, 3])
    monkeypatch.setattr(chapter_module, "_cell", lambda: next(cell))
    claims.check("a", 1, at_most=5)
    claims.check("b", 1, 1)
    claims.check("a", 2, at_most=5)
    assert [(r["statement"], r["measured"]) for r in read(folder)["claims"]] == [("a", 2), ("b", 1)]


def test_a_loop_over_one_statement_is_refused(claims):
    claims.check("equal", 1, 1)
    with pytest.raises(ValueError, match='"equal" was checked twice'):
        claims.check("equal", 1, 1)


NONSENSE = [
    ("no expectation", ("a", 1), {}, "expected="),
    ("nan", ("a", float("nan"), 1), {}, "measured is nan"),
    ("shapes", ("a", [1, 2], [1, 2, 3]), {}, "shape"),
    ("tolerance", ("a", 1, 1), {"rtol": -1}, "rtol=-1"),
    ("empty statement", (" ", 1, 1), {}, "statement is empty"),
    ("unknown clock", ("a", 1, 1), {"clock": "cpu time"}, "clock='cpu time'"),
    ("no launch result", ("a", 1, 1), {"run": [1, 2]}, r"run=\[1, 2\]"),
]


@pytest.mark.parametrize(("name", "args", "kw", "says"), NONSENSE, ids=[n[0] for n in NONSENSE])
def test_nonsense_raises_and_leaves_no_record(claims, folder, name, args, kw, says):
    with pytest.raises(ValueError, match=says):
        claims.check(*args, **kw)
    assert claims.records == []
    assert not folder.exists()


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../b", "a//b", "A/b", "a\\b", "a/", 3]
)
def test_a_chapter_needs_a_name(name):
    with pytest.raises(ValueError, match="chapter"):
        Claims(name)


def test_the_table_shows_every_claim(claims, run):
    claims.check("sends < 3 & more", 1572864, 1572864, unit="B", source="eq. 2", run=run)
    with pytest.raises(ClaimFailed):
        claims.check("fails", 2, 1)
    text, html = repr(claims.table()), claims.table()._repr_html_()
    for piece in ("1,572,864 B", "eq. 2", "gloo, 4 ranks", "2 (fails)", "one process"):
        assert piece in text
        assert piece in html
    assert "nccl: not yet run" in text
    assert "sends &lt; 3 &amp; more" in html


def test_a_table_of_nothing_is_an_error(claims):
    with pytest.raises(ValueError, match="no claims yet"):
        claims.table()


def test_a_claim_in_one_process_says_nothing_of_nccl(claims):
    claims.check("a", 1, 1)
    assert "nccl" not in repr(claims.table())


def test_seconds_are_those_since_the_check_before(folder, monkeypatch):
    clock = iter([100.0, 103.26, 104.0])
    monkeypatch.setattr(chapter_module.time, "monotonic", lambda: next(clock))
    claims = Claims("a/b")
    claims.check("first", 1, 1)
    claims.check("second", 1, 1)
    assert [record["seconds"] for record in claims.records] == [3.3, 0.7]
