"""Elastic averaging against the paper's equations in numpy, its laws, and its state."""

import copy
import itertools

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.relaxed import EAMSGD, EASGD
from lsdl_lib.measure import traffic
from tests.communication.checks import error_of
from tests.communication.relaxed.problem import (
    RATE,
    STEPS,
    backward,
    gradients,
    launched,
    model,
    read,
    start,
    starts,
    write,
)

RANKS = (1, 2, 3, 4)
CASES = [(period, beta) for period in (1, 4) for beta in (0.9, 0.3, 0.0)]
DELTA = 0.9


def numpy_easgd(p, period, beta):
    """(all ranks' vectors after each step, (STEPS, p, 15); the centers, (STEPS, 15))."""
    x, c, trajectory, centers = starts(p), start(), [], []
    for step in range(STEPS):
        g, pull = gradients(x, step), np.zeros_like(x)
        if step % period == 0:
            pull = beta / p * (x - c)
        x, c = x - RATE * g - pull, c + pull.sum(0)
        trajectory.append(x)
        centers.append(c)
    return np.stack(trajectory), np.stack(centers)


def numpy_eamsgd(p, period, beta):
    """(where the next gradients are taken, (STEPS, p, 15); the centers, (STEPS, 15))."""
    x, c, v, trajectory, centers = starts(p), start(), np.zeros((p, 15)), [], []
    for step in range(STEPS):
        g, pull = gradients(x + DELTA * v, step), np.zeros_like(x)
        if step % period == 0:
            pull = beta / p * (x - c)
        v = DELTA * v - RATE * g
        x, c = x + v - pull, c + pull.sum(0)
        trajectory.append(x + DELTA * v)
        centers.append(c)
    return np.stack(trajectory), np.stack(centers)


def center_of(averager):
    (vector,) = averager.flat.vectors(averager.center)
    return vector.numpy().copy()


def train(averager, net, optimizer, steps=range(STEPS)):
    trajectory, centers = [], []
    for step in steps:
        backward(net, dist.get_rank(), step)
        averager.step()
        optimizer.step()
        trajectory.append(read(net))
        centers.append(center_of(averager))
    return np.stack(trajectory), np.stack(centers)


def make(momentum, period, beta, net=None):
    net = net or model()
    if momentum:
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=DELTA, nesterov=True)
        return EAMSGD(net, optimizer, period, beta=beta), net, optimizer
    return EASGD(net, period, beta=beta), net, torch.optim.SGD(net.parameters(), RATE)


def run_all_cases():
    return {
        (momentum, *case): train(*make(momentum, *case))
        for momentum in (False, True)
        for case in CASES
    }


@pytest.mark.parametrize("p", RANKS)
def test_ranks_and_center_take_the_steps_of_the_paper(p):
    results = launched(run_all_cases, p)
    for momentum, oracle in ((False, numpy_easgd), (True, numpy_eamsgd)):
        for case in CASES:
            expected, expected_centers = oracle(p, *case)
            for rank in range(p):
                got, centers = results[rank][(momentum, *case)]
                assert np.abs(got - expected[:, rank]).max() < 1e-10, (momentum, case)
                assert np.abs(centers - expected_centers).max() < 1e-10, (momentum, case)
                assert np.array_equal(centers, results[0][(momentum, *case)][1]), "centers part"


def details():
    """Exchanges alone, bytes, statistics, the center in use, a resumed run, errors."""
    rank, found = dist.get_rank(), {}
    net = model()
    averager = EASGD(net, beta=0.6)
    write(net, np.random.default_rng([5, rank]).normal(size=15))
    trajectory = [(read(net), center_of(averager))]
    for _ in range(10):
        averager.step()
        trajectory.append((read(net), center_of(averager)))
    found["alone"] = trajectory
    with averager.at_center() as inside:
        found["center"] = read(inside), center_of(averager), read(net)
    found["center"] += (read(net), trajectory[-1][0])

    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    averager = EASGD(net, 2, beta=0.5, all_reduce=ring_all_reduce)
    with torch.no_grad():
        net[1].running_var.fill_(1 + 3.0 * rank)
    with traffic() as t:
        n_bytes = [averager.step() for _ in range(7)]
    found["bytes"] = n_bytes, t.sent_bytes
    with averager.at_center():
        found["variance"] = net[1].running_var.tolist()

    found["resumed"] = []
    for momentum in (False, True):
        whole, first, second = (make(momentum, 3, 0.9) for _ in range(3))
        train(*whole, range(8))
        train(*first, range(4))
        for part, saved in zip(second, first):
            part.load_state_dict(copy.deepcopy(saved.state_dict()))
        train(*second, range(4, 8))
        found["resumed"].append(
            (read(whole[1]), read(second[1]), center_of(whole[0]), center_of(second[0]))
        )

    plain = torch.optim.SGD(model().parameters(), RATE, momentum=0.9)
    tries = {
        "period": lambda: EASGD(model(), 3 + rank),
        "beta": lambda: EASGD(model(), beta=0.9 / (1 + rank)),
        "zero": lambda: EASGD(model(), 0),
        "above": lambda: EASGD(model(), beta=1.5),
        "nan": lambda: EASGD(model(), beta=float("nan")),
        "optimizer": lambda: EAMSGD(model(), plain),
    }
    found["errors"] = {name: error_of(attempt) for name, attempt in tries.items()}
    return found


@pytest.mark.parametrize("p", [1, 3])
def test_exchanges_conserve_the_sum_and_pull_together(p):
    results = launched(details, p)
    beta, alpha = 0.6, 0.6 / p
    sums, gaps, spreads = [], [], []
    for step in range(1, 11):  # the first call is before any step: no exchange
        x = np.stack([result["alone"][step][0] for result in results])
        c = results[0]["alone"][step][1]
        sums.append(x.sum(0) + c)
        gaps.append(x.mean(0) - c)
        spreads.append(x - x.mean(0))
    assert np.abs(np.diff(sums, axis=0)).max() < 1e-12
    for before, after in itertools.pairwise(gaps):
        assert np.abs(after - (1 - alpha - beta) * before).max() < 1e-12
    for before, after in itertools.pairwise(spreads):
        assert np.abs(after - (1 - alpha) * before).max() < 1e-12
    assert np.abs(gaps[0]).max() > 0.1
    assert p == 1 or np.abs(spreads[0]).max() > 0.1


def test_the_center_can_be_used_in_the_model():
    for inside, center, too, outside, before in (r["center"] for r in launched(details, 3)):
        assert np.array_equal(inside, center)
        assert np.array_equal(inside, too)
        assert np.array_equal(outside, before)
        assert not np.array_equal(inside, outside)


def test_exchanges_come_after_each_period_and_send_the_model():
    n = 4 * (6 + 4 + 4)  # weights, norm, statistics in float32
    for rank, result in enumerate(launched(details, 3)):
        n_bytes, sent = result["bytes"]
        assert n_bytes == [0, 0, n, 0, n, 0, n]
        chunks = [5, 5, 4]  # 14 numbers on a ring of three
        once = 4 * (2 * 14 - chunks[rank] - chunks[(rank + 1) % 3])
        assert sent == 3 * once


def test_running_statistics_are_tied_too():
    x, c, beta = np.array([1.0, 4.0, 7.0]), 1.0, 0.5
    for _ in range(3):
        pull = beta / 3 * (x - c)
        x, c = x - pull, c + pull.sum()
    for result in launched(details, 3):
        assert result["variance"] == pytest.approx([c, c], rel=1e-6)


def test_a_resumed_run_is_the_same_bitwise():
    for result in launched(details, 3):
        for whole, second, center, second_center in result["resumed"]:
            assert np.array_equal(whole, second)
            assert np.array_equal(center, second_center)


def test_what_cannot_work_is_refused_by_all_ranks_alike():
    results = launched(details, 3)
    errors = results[0]["errors"]
    assert all(result["errors"] == errors for result in results)
    assert "period is 3 on rank 0 and 4 on rank 1" in errors["period"]
    assert "beta is 0.9 on rank 0 and 0.45 on rank 1" in errors["beta"]
    assert "period=0: give a whole number of steps" in errors["zero"]
    assert "beta=1.5: give a share from 0 to 1" in errors["above"]
    assert "beta=nan" in errors["nan"]
    assert "nesterov=True" in errors["optimizer"]
