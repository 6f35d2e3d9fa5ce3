"""The comparison trains every registered method, counts time as said, and predicts from no run."""

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.claims.studies import Study
from lsdl_lib.communication.compression import ErrorFeedback, Peers, TopK
from lsdl_lib.communication.cost import Link, closed_forms
from lsdl_lib.communication.studies.time_to_accuracy import (
    expected,
    methods,
    reading,
    task,
    training,
)
from lsdl_lib.communication.studies.time_to_accuracy.registration import digest, registration
from lsdl_lib.measure import traffic, virtual

PLAN = registration()


def test_every_registered_method_can_run_and_no_other():
    assert set(PLAN["methods"]) == set(training.METHODS)
    assert set(PLAN["network"]["methods"]) <= set(training.METHODS)
    tuned = set(training.METHODS) - set(PLAN["tuning"]["same"])
    assert all(len(PLAN["methods"][method]["lr"]) == 3 for method in tuned)


def test_tuning_uses_no_seed_of_the_runs():
    for setting in (*PLAN["runs"]["settings"], PLAN["network"]):
        assert PLAN["tuning"]["seed"] not in setting["seeds"]


def test_the_digest_is_of_the_file():
    assert len(digest()) == 16
    int(digest(), 16)


def short_runs():
    found = {}
    for method in training.METHODS:
        lr = PLAN["methods"][PLAN["tuning"]["same"].get(method, method)]["lr"][0]
        found[method] = training.run(method, lr, 0, gbit_s=0.1, test=True, steps=16)
    return found


@pytest.fixture(scope="module")
def found():
    return launch(short_runs, ranks=2, threads=1, timeout=300)


@pytest.mark.parametrize("method", training.METHODS)
def test_each_method_trains_and_says_what_came_out(found, method):
    first, second = (rank[method] for rank in found)
    assert first == second
    assert 0 < first["test_accuracy"] < 1
    assert first["steps_to_target"] <= 16
    assert 0 < first["seconds_to_target"] <= first["total_seconds"]
    assert first["step_seconds"] == pytest.approx(first["total_seconds"] / 16)


def test_exact_methods_end_at_the_same_accuracy(found):
    naive, overlapped = (found[0][name]["final_accuracy"] for name in ("naive", "overlapped"))
    assert naive == pytest.approx(overlapped, abs=2e-3)  # two roundings of a sample's class


def first_steps(name, steps=4):
    rank, size = dist.get_rank(), dist.get_world_size()
    trainer = methods.TRAINERS[name](methods.Setting(task.new_model(0), 0.2, 0, size))
    mine = task.batches(task.data(), 0, rank, size, 64 // size)
    for step in range(steps):
        trainer.step(step, *next(mine))
    return trainer.result()


@pytest.mark.parametrize("name", ["naive", "overlapped"])
def test_the_baseline_takes_the_steps_of_one_process(name):
    one = launch(first_steps, name, ranks=1, threads=1)[0]
    two = launch(first_steps, name, ranks=2, threads=1)[0]
    torch.testing.assert_close(one, two, rtol=0, atol=1e-5 * one.abs().max().item())


def test_ranks_share_each_global_batch():
    class Samples:
        train_x = torch.arange(100)
        train_y = torch.arange(100)

    def batch(k, rank, ranks):
        found = task.batches(Samples, 3, rank, ranks, 16 // ranks)
        return [next(found) for _ in range(k + 1)][k][0].tolist()

    for k in (0, 5, 6):  # 6 is in the second epoch: 100 samples have 6 global batches
        assert sorted(batch(k, 0, 1)) == sorted(
            sample for r in range(4) for sample in batch(k, r, 4)
        )


def test_the_learning_rate_rises_and_falls():
    rates = [task.rate(step) for step in range(PLAN["task"]["steps"])]
    assert rates[0] == pytest.approx(1 / 20)
    assert max(rates) == rates[19]
    assert rates[-1] == pytest.approx(1 / 240)


def test_a_paused_watch_does_not_count():
    def work():
        return torch.rand(300, 300) @ torch.rand(300, 300)

    def on_rank():
        with virtual.virtual_clock(Link.of(1, 50)):
            watch = task.Watch()
            with watch.paused():
                for _ in range(50):
                    work()
            return watch.read()

    assert launch(on_rank, ranks=1, threads=1)[0] < 0.01


def sent_bytes(compressor):
    vector = torch.randn(1000, generator=torch.Generator().manual_seed(dist.get_rank()))
    peers = Peers(all_reduce=methods.ring_all_reduce, all_gather=methods.ring_all_gather)
    with traffic() as seen:
        compressor.aggregate(vector, peers)
    return seen.sent_bytes


def test_rehearsed_messages_cost_what_real_ones_send():
    byte_a_second = Link(alpha=0.0, beta=1.0)
    for compressor in (TopK(0.1), ErrorFeedback(TopK(0.05))):
        peers = expected.Rehearsed(2, byte_a_second)
        compressor.aggregate(torch.randn(1000), peers)
        assert peers.seconds == pytest.approx(launch(sent_bytes, compressor, ranks=2)[0])


def test_a_rehearsed_average_costs_the_ring():
    link = Link.of(0.1, 50)
    peers = expected.Rehearsed(4, link)
    peers.mean_(torch.zeros(1000))
    assert peers.seconds == closed_forms.ring_all_reduce(4, 4000, link)


def stored():
    """Two methods, three seeds, as the study stores them."""
    points = [
        {
            "method": method,
            "ranks": 4,
            "gbit_s": 0.1,
            "seed": seed,
            "reached": True,
            "seconds_to_target": seconds * (1 + 0.1 * seed),
            "steps_to_target": 100,
            "step_seconds": seconds / 100,
            "test_accuracy": accuracy - 0.001 * seed * seconds,
        }
        for method, seconds, accuracy in (("overlapped", 8.0, 0.96), ("top_k", 4.0, 0.95))
        for seed in (1, 2, 3)
    ]
    return Study(points, {})


def test_speedups_are_paired_by_seed():
    mean, half = reading.paired(stored(), "top_k", reading.times_faster, ranks=4, gbit_s=0.1)
    assert (mean, half) == (pytest.approx(2), pytest.approx(0, abs=1e-12))
    lost = reading.paired(stored(), "top_k", reading.points_lost, ranks=4, gbit_s=0.1)
    # 1 - 0.1 (8 - 4) seed points: 0.6, 0.2, -0.2
    assert lost == (pytest.approx(0.2), pytest.approx(4.303 * 0.4 / 3**0.5, rel=1e-3))


def test_an_interval_needs_two_values():
    with pytest.raises(ValueError, match="1 values"):
        reading.mean_and_half([1.0])


def test_a_row_says_when_the_target_was_missed():
    study, setting = stored(), {"ranks": 4, "gbit_s": 0.1}
    predicted = Study(stored().all(seed=1), {})
    assert reading.row(study, predicted, "top_k", **setting)[2:5] == ["40.0", "100", "2.00 ± 0.00"]
    study.all(method="top_k", seed=2)[0]["reached"] = False
    assert reading.row(study, predicted, "top_k", **setting)[3:5] == ["2 of 3 seeds", "not reached"]
