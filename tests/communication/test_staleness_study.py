"""The study of staleness: its points are real runs or replays of them, and the stored file."""

import pytest
import torch

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.studies import staleness
from lsdl_lib.data import digits
from tools import toc


@pytest.fixture(scope="module")
def data():
    return digits().standardized()


def test_a_replay_finds_what_real_ranks_with_that_rule_and_rate_find(data):
    def run():
        found = {}
        for rule in staleness.RULES:
            plain, _ = staleness.serve(data, "1", 4, gradients=24) or (None, None)
            real = staleness.serve(data, "1", 4, rule, 0.4, gradients=24)
            if real:
                again = staleness.replayed(data, plain, rule, 0.4)
                found[rule] = real[1], again, plain.leads(), real[0].staleness()
        return found

    found = launch(run, ranks=4, threads=1, backend="gloo", timeout=120)[0]
    assert set(found) == set(staleness.RULES)
    for rule, (real, again, leads, ages) in found.items():
        assert torch.equal(real, again), rule
        assert max(leads) == 1
        assert max(ages) > 1
    assert not torch.equal(found["plain"][0], found["staleness-aware"][0])
    assert not torch.equal(found["plain"][0], found["compensated"][0])


def test_a_small_sweep_stores_one_point_a_setting(tmp_path):
    staleness.main(
        rules=("plain",),
        bounds=("0", "none"),
        slow=(4,),
        rates=(0.1,),
        folder=tmp_path,
        gradients=24,
    )
    study = studies.read(staleness.CHAPTER, staleness.NAME, tmp_path)
    waits, goes = (study.at(bound=bound) for bound in ("0", "none"))
    assert waits["oldest"] == staleness.WORKERS - 1
    assert goes["oldest"] > waits["oldest"]
    # 6 steps of the slow worker, and messages; without a bound the others make most gradients.
    assert waits["seconds"] > 6 * 4 * staleness.STEP_SECONDS > 2 * goes["seconds"]


def test_the_stored_study_is_whole():
    study = studies.read(staleness.CHAPTER, staleness.NAME, toc.BOOK / "records")
    assert study.facts["command"] == staleness.COMMAND == f"python -m {staleness.__name__}"
    assert study.facts["tier"] == "laptop"
    assert study.facts["ranks"] == [staleness.WORKERS + 1]
    for slow in staleness.SLOW:
        for bound in staleness.BOUNDS:
            points = study.all(slow=slow, bound=bound)
            settings = {(point["rule"], point["lr"]) for point in points}
            assert settings == {(r, lr) for r in staleness.RULES for lr in staleness.RATES}
            # Order and age do not depend on rule and rate.
            assert len({(p["seconds"], p["staleness"], p["oldest"]) for p in points}) == 1
            if bound != "none":
                assert points[0]["oldest"] <= (2 * int(bound) + 1) * (staleness.WORKERS - 1)
