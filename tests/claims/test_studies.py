"""Studies: what is stored comes back, with what ran; what cannot be kept is refused by name."""

import json

import pytest

from lsdl_lib.claims import records, studies

POINTS = [
    {"method": "ring", "ranks": 2, "seconds": 0.123456789},
    {"method": "ring", "ranks": 4, "seconds": 0.25},
    {"method": "star", "ranks": 4, "seconds": 1.0},
]
CHAPTER = "communication/collectives"


def stored(folder, points=POINTS, **facts):
    facts = {"command": "python -m x", "clock": "virtual", **facts}
    return studies.write(CHAPTER, "time", points, folder=folder, **facts)


def test_a_study_comes_back_with_what_ran(tmp_path):
    path = stored(tmp_path, backend="gloo", ranks=[4, 2])
    assert path == tmp_path / "communication" / "collectives.time.study.json"
    study = studies.read(CHAPTER, "time", tmp_path)
    assert study.points == [{**POINTS[0], "seconds": 0.123457}, *POINTS[1:]]
    facts = study.facts
    assert study.where == f"gloo, 2 to 4 ranks, virtual clock, {facts['when']}"
    assert (facts["command"], facts["tier"]) == ("python -m x", "laptop")
    assert facts["machine"]["versions"] == records.versions()
    assert "points" not in facts


def test_where_says_only_what_is_known(tmp_path):
    stored(tmp_path, clock=None)
    study = studies.read(CHAPTER, "time", tmp_path)
    assert study.where == study.facts["when"]
    stored(tmp_path, clock="simulated", ranks=[1024])
    assert studies.read(CHAPTER, "time", tmp_path).where.startswith("1,024 ranks, simulated clock")


def test_one_point_is_found_by_its_values(tmp_path):
    stored(tmp_path)
    study = studies.read(CHAPTER, "time", tmp_path)
    assert study.at(method="star")["seconds"] == 1.0
    assert study.at(method="ring", ranks=4)["seconds"] == 0.25
    assert [p["ranks"] for p in study.all(method="ring")] == [2, 4]
    with pytest.raises(ValueError, match="2 points of the study have method='ring': one"):
        study.at(method="ring")
    with pytest.raises(ValueError, match="0 points of the study have ranks=3, method='ring'"):
        study.at(ranks=3, method="ring")


def test_the_file_is_the_same_for_the_same_points_and_has_one_line_a_point(tmp_path):
    text = stored(tmp_path).read_text()
    assert stored(tmp_path).read_text() == text
    assert '  {"method": "ring", "ranks": 2, "seconds": 0.123457},\n' in text
    assert list(json.loads(text)) == sorted(json.loads(text))


def test_records_take_no_study_for_a_chapter(tmp_path):
    stored(tmp_path)
    assert records.read_all(tmp_path) == {}


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([], "at least one point"),
        ([{"x": float("nan")}], "x=nan: a study holds finite"),
        ([{"x": float("inf")}], "x=inf"),
        ([{"x": [1, 2]}], r"x=\[1, 2\]: a study holds numbers"),
        ([{"x": None}], "x=None"),
        ([{"x": 1}, {"y": 1}], r"\{'y': 1\} has other keys"),
        ([{"x": 1}, {"x": 1}], "there twice"),
    ],
)
def test_points_that_cannot_be_kept_are_refused_and_nothing_is_written(tmp_path, points, message):
    with pytest.raises(ValueError, match=message):
        stored(tmp_path, points)
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(
    ("chapter", "name", "facts", "message"),
    [
        ("../out", "time", {}, "chapter '../out'"),
        (CHAPTER, "a/b", {}, "study 'a/b'"),
        (CHAPTER, "time", {"clock": "sundial"}, "clock='sundial'"),
        (CHAPTER, "time", {"when": "2026-01-01"}, "when is written by the study itself"),
        (CHAPTER, "time", {"seed": float("nan")}, "nan"),
    ],
)
def test_names_and_facts_are_checked(tmp_path, chapter, name, facts, message):
    facts = {"command": "x", "clock": None, **facts}
    with pytest.raises(ValueError, match=message):
        studies.write(chapter, name, POINTS, folder=tmp_path, **facts)


def test_without_a_folder_it_is_the_book_s(tmp_path, monkeypatch):
    checkout = tmp_path / "book" / "records"
    checkout.mkdir(parents=True)
    (tmp_path / "_build" / "run").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "_build" / "run")
    path = studies.write(CHAPTER, "time", POINTS, command="x", clock=None)
    assert path.resolve().is_relative_to(checkout.resolve())
    assert studies.read(CHAPTER, "time").points[1] == POINTS[1]
    with pytest.raises(FileNotFoundError, match="the study other of communication/collectives"):
        studies.read(CHAPTER, "other")


def test_without_a_checkout_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "book_records", lambda start=None: None)
    with pytest.raises(FileNotFoundError, match="give folder="):
        studies.read(CHAPTER, "time")
