"""The studies of the chapter: small sweeps, and the stored files."""

import itertools

import pytest

from lsdl_lib import launch
from lsdl_lib.claims import studies
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.data_parallel import Profile
from lsdl_lib.communication.studies import communication_share, overlap, remedies
from tools import toc

RECORDS = toc.BOOK / "records"


def test_the_overlap_study_stores_the_bars_of_a_step(tmp_path):
    overlap.main(ranks=(2,), links=("200 Mbit/s",), buckets=(0.2,), steps=1, folder=tmp_path)
    study = studies.read(overlap.CHAPTER, overlap.NAME, tmp_path)
    steps = {bar["version"]: bar["end"] for bar in study.all(lane="step")}
    assert set(steps) == {"naive", "bucketed", "overlapped"}
    forward, backward = study.all(lane="compute")
    assert (forward["name"], backward["name"]) == ("forward", "backward")
    assert 0 <= forward["start"] < forward["end"] <= backward["start"] < backward["end"]
    network = study.all(lane="network")
    assert [bar["name"] for bar in network] == [str(k) for k in range(len(network))]
    assert len(network) > 2
    for before, after in itertools.pairwise(network):
        assert before["start"] < before["end"] <= after["start"]
    assert network[0]["start"] > forward["end"]
    assert network[-1]["end"] <= steps["overlapped"] * 1.05  # rank 0 may end after the median


def basis(alpha=0.0, beta=0.0, alone=None, sent=None):
    """A basis by hand: two parameters of 500 bytes each, 1 s forward, 2 s backward, 1 s more."""
    profile = Profile(layers=(0.0, 0.5), forward=1.0, backward=3.0, ready={1: 2.0, 0: 3.0})
    facts = {
        "update": 1.0,
        "parameters": [([0], 500), ([1], 500)],
        "buckets": [([1], 500), ([0], 500)],
        "layers": [([0], [500]), ([1], [500])],
    }
    profiles = {remedies.BATCH: profile, remedies.LARGER: profile}
    alone = dict.fromkeys(remedies.REMEDIES, (4.0, 4.0)) | (alone or {})
    return communication_share.Basis(profiles, Link(alpha, beta), facts, alone, sent or {})


@pytest.mark.parametrize(
    ("remedy", "step"),
    [
        # Each all-reduce of 500 bytes takes 2 lg 4 * 0.1 + 1.5 * 0.5 = 1.15 s on four ranks.
        ("naive", 1 + 2 + 2.3 + 1),
        ("bucketed", 1 + 2 + 2.3 + 1),
        ("overlapped", 2 + 1.15 + 1.15 + 1),  # ready at 2 and at 3
        # Backward ends at 0: layer 1 travels from -1 to 0.15, layer 0 to 1.3; then both layers run.
        ("priority", 3 + 1.3 + 1),
        ("local SGD H=8", 3 + (0.4 + 1.5) / 8 + 1),
    ],
)
def test_simulated_steps_by_hand(remedy, step):
    found = communication_share.simulate(remedy, 4, basis(alpha=0.1, beta=1e-3))
    assert found[1] == 4.0
    assert found[0] == pytest.approx(step)
    assert found[2] == pytest.approx(1 - 4.0 / step)


def test_a_simulated_compressed_step_pays_its_messages_and_its_processor_time():
    """Two buckets: each 60 bytes from every other rank, and 0.1 s of compressing."""
    alone, sent = {"top-k 1 %": (4.2, 4.0)}, {"top-k 1 %": 120}
    step, _, _ = communication_share.simulate(
        "top-k 1 %", 4, basis(alpha=0.1, beta=1e-3, alone=alone, sent=sent)
    )
    bucket = 2 * 0.1 + 3 * 60e-3 + 0.1
    assert step == pytest.approx(3 + bucket + 1)


def test_every_remedy_trains_and_gives_a_share():
    """One step of each on two ranks; a step with messages is longer than one without."""
    names = list(remedies.REMEDIES)
    run = launch(communication_share.measure, names, 1, ranks=2, threads=1, timeout=300)
    for name, (step, bare, share) in communication_share.shares(run).items():
        assert bare > 0, name
        assert 0 <= share < 1, name
        assert step > 0.5 * bare, name


@pytest.mark.parametrize("module", [communication_share, overlap])
def test_the_stored_study_is_whole(module):
    study = studies.read(module.CHAPTER, module.NAME, RECORDS)
    assert study.facts["command"] == f"python -m {module.__name__}"
    assert study.facts["tier"] == "laptop"
    if module is overlap:
        for p in overlap.RANKS:
            for link in overlap.LINKS:
                for size in overlap.BUCKETS_MB:
                    setting = {"ranks": p, "link": link, "bucket_mb": size}
                    assert len(study.all(lane="step", **setting)) == 3
    else:
        for clock, ranks in (
            ("virtual", communication_share.MEASURED),
            ("simulated", communication_share.SIMULATED),
        ):
            for p in ranks:
                found = {point["remedy"] for point in study.all(clock=clock, ranks=p)}
                assert found == set(remedies.REMEDIES)
