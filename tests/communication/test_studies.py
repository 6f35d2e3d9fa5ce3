"""The studies of the communication chapters: small sweeps, the stored files, and their commands."""

import importlib
import math

import pytest

from lsdl_lib.claims import studies
from lsdl_lib.communication.cost import PRESETS, closed_forms
from lsdl_lib.communication.studies import all_reduce_scale, all_reduce_time
from tools import toc

MODULES = [all_reduce_scale, all_reduce_time]


@pytest.mark.parametrize("p", [2, 4, 16, 36])
@pytest.mark.parametrize("method", closed_forms.ALL_REDUCE)
def test_three_counts_give_the_time_at_any_link(method, p):
    steps, vectors, sums = all_reduce_scale.coefficients(method, p)
    assert math.isclose(steps, closed_forms.steps(method, p), rel_tol=1e-12)
    for link in PRESETS.values():
        expected = closed_forms.ALL_REDUCE[method](p, 12345, link)
        time = steps * link.alpha + vectors * 12345 * link.beta
        assert math.isclose(time, expected, rel_tol=1e-12)
    n_gamma = closed_forms.ALL_REDUCE[method](p, 1.0, closed_forms.Link(0.0, 0.0, 1.0))
    assert math.isclose(sums, n_gamma, rel_tol=1e-12)


def test_the_scale_study_stores_one_point_a_method_and_number_of_ranks(tmp_path):
    all_reduce_scale.main(ranks=(2, 4), folder=tmp_path)
    study = studies.read(all_reduce_scale.CHAPTER, all_reduce_scale.NAME, tmp_path)
    assert len(study.points) == 2 * len(closed_forms.ALL_REDUCE)
    assert study.at(method="star", ranks=4) == {
        "method": "star",
        "ranks": 4,
        "steps": 6.0,
        "vectors": 6.0,
        "sums": 3.0,
    }
    assert study.where.startswith("2 to 4 ranks, simulated clock, ")


def test_the_time_study_stores_one_point_a_setting_above_the_link_s_time(tmp_path):
    sizes = (960, 245_760)
    all_reduce_time.main(ranks=(2,), sizes=sizes, folder=tmp_path)
    study = studies.read(all_reduce_time.CHAPTER, all_reduce_time.NAME, tmp_path)
    assert len(study.points) == len(sizes) * len(PRESETS) * len(closed_forms.ALL_REDUCE)
    for point in study.points:
        form = closed_forms.ALL_REDUCE[point["method"]]
        link_alone = form(2, point["bytes"], PRESETS[point["link"]])
        assert point["seconds"] >= link_alone * (1 - 1e-5)  # a study keeps 6 digits
    assert study.where.startswith("gloo, 2 ranks, virtual clock, ")


def test_the_time_of_a_call_is_that_of_its_last_rank():
    call = ("ring", "1 Gbit/s")
    ranks = [{call: [1.0, 5.0, 2.0]}, {call: [3.0, 4.0, 2.0]}]
    assert all_reduce_time.last_rank(ranks, call) == 3.0


@pytest.mark.parametrize("module", MODULES)
def test_the_stored_study_is_whole_and_its_command_runs_this_module(module):
    study = studies.read(module.CHAPTER, module.NAME, toc.BOOK / "records")
    assert study.facts["command"] == f"python -m {module.__name__}"
    assert importlib.import_module(module.__name__).main is module.main
    assert study.facts["tier"] == "laptop"
    assert study.facts["ranks"] == list(module.RANKS)
    methods = set(closed_forms.ALL_REDUCE)
    for p in module.RANKS:
        found = {point["method"] for point in study.all(ranks=p)}
        assert found == methods or p > 256


def test_every_stored_time_is_at_least_the_link_s():
    study = studies.read(all_reduce_time.CHAPTER, all_reduce_time.NAME, toc.BOOK / "records")
    for point in study.points:
        form = closed_forms.ALL_REDUCE[point["method"]]
        link_alone = form(point["ranks"], point["bytes"], PRESETS[point["link"]])
        assert point["seconds"] >= link_alone * (1 - 1e-5), point
