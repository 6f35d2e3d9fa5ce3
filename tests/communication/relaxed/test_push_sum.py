"""Stochastic gradient push against numpy; its laws; the true average where plain gossip fails."""

import copy
import functools

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib.communication.relaxed import Gossip, PushSum, mixing
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
    starts,
    write,
)

RANKS = (1, 2, 3, 4, 5)
ROUNDS = 120


def uneven(p):
    """Rank 0 tells all others, each of them only the rank before it: out-degrees p - 1 and 1."""
    return mixing.push_weights([[*range(1, p)], *([rank - 1] for rank in range(1, p))])


def graphs(p):
    return {
        "uneven": [uneven(p)],
        "one-peer": mixing.one_peer_exponential(p),
        "both": [uneven(p), *mixing.one_peer_exponential(p)],
    }


def far_starts(p):
    return np.stack([np.random.default_rng([5, rank]).normal(size=15) for rank in range(p)])


def numerators_of(averager):
    (vector,) = averager.flat.vectors(averager.numerators)
    return vector.numpy().copy()


def rounds_and_training():
    p, rank, found = dist.get_world_size(), dist.get_rank(), {}
    for name, rounds in graphs(p).items():
        net = model()
        averager, trajectory = PushSum(net, rounds), []
        write(net, far_starts(p)[rank])
        with traffic() as t:
            for _ in range(ROUNDS if name == "uneven" else STEPS):
                n_bytes = averager.step()
                trajectory.append((read(net), numerators_of(averager), averager.weight))
        found[name, "alone"] = trajectory, n_bytes, t.sent_bytes
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.5)
        averager, trajectory = PushSum(net, rounds), []
        for step in range(STEPS):
            backward(net, rank, step)
            optimizer.step()
            averager.step()
            trajectory.append(read(net))
        found[name, "trained"] = np.stack(trajectory)
    return found


@pytest.mark.parametrize("p", RANKS)
def test_rounds_are_push_sum_and_conserve_both_sums(p):
    results = launched(rounds_and_training, p)
    for name, rounds in graphs(p).items():
        x, w = far_starts(p), np.ones(p)
        for step in range(STEPS):
            x, w = rounds[step % len(rounds)] @ x, rounds[step % len(rounds)] @ w
            parts = [results[rank][name, "alone"][0][step] for rank in range(p)]
            z, numerators, weights = (np.stack(part) for part in zip(*parts))
            assert np.abs(z - x / w[:, None]).max() < 1e-12, name
            assert np.abs(numerators - x).max() < 1e-12, name
            assert np.abs(weights - w).max() < 1e-12, name
            assert np.abs(numerators.sum(0) - far_starts(p).sum(0)).max() < 1e-12, name
            assert abs(weights.sum() - p) < 1e-12, name


@pytest.mark.parametrize("p", [3, 4, 5])
def test_push_sum_finds_the_average_where_plain_gossip_does_not(p):
    results = launched(rounds_and_training, p)
    average = far_starts(p).mean(0)
    for rank in range(p):
        z, numerators, weight = results[rank]["uneven", "alone"][0][-1]
        assert np.abs(z - average).max() < 1e-10
        # Without dividing by w, the ranks do not even agree: rank r ends at w_r times the average.
        assert np.abs(numerators - weight * average).max() < 1e-10
    weights = np.array([results[rank]["uneven", "alone"][0][-1][2] for rank in range(p)])
    assert np.abs(uneven(p) @ weights - weights).max() < 1e-10, "w is the stationary vector"
    assert weights.max() - weights.min() > 0.5
    # Averaging what one hears with equal weights agrees, but not on the average.
    rows = uneven(p) / uneven(p).sum(1, keepdims=True)
    agreed = np.linalg.matrix_power(rows, ROUNDS) @ far_starts(p)
    assert np.abs(agreed - agreed[0]).max() < 1e-10
    assert np.abs(agreed[0] - average).max() > 0.02


@pytest.mark.parametrize("p", RANKS)
def test_training_is_stochastic_gradient_push(p):
    results = launched(rounds_and_training, p)
    for name, rounds in graphs(p).items():
        x, w, v = starts(p), np.ones(p), 0
        for step in range(STEPS):
            matrix = rounds[step % len(rounds)]
            v = 0.5 * v + gradients(x / w[:, None], step)
            x, w = matrix @ (x - RATE * v), matrix @ w
            got = np.stack([results[rank][name, "trained"][step] for rank in range(p)])
            assert np.abs(got - x / w[:, None]).max() < 1e-10, name


@pytest.mark.parametrize("p", RANKS)
def test_a_message_is_the_model_and_8_bytes(p):
    results = launched(rounds_and_training, p)
    for rank in range(p):
        degree = 0 if p == 1 else p - 1 if rank == 0 else 1
        _, n_bytes, sent = results[rank]["uneven", "alone"]
        assert n_bytes == degree * (15 * 8 + 8)
        assert sent == ROUNDS * n_bytes


def cases():
    """With doubly stochastic matrices; a resumed run; several types; errors."""
    p, rank = dist.get_world_size(), dist.get_rank()
    rounds, found = mixing.one_peer_exponential(p), {}

    def parts(made=rounds, kind=PushSum):
        net = model()
        return net, torch.optim.SGD(net.parameters(), RATE, momentum=0.9), kind(net, made)

    def train(these, steps):
        net, optimizer, averager = these
        for step in steps:
            backward(net, rank, step)
            optimizer.step()
            averager.step()
        return read(net)

    pushed, gossiped = parts(), parts(kind=Gossip)
    found["twins"] = train(pushed, range(STEPS)), train(gossiped, range(STEPS)), pushed[2].weight

    whole, first, second = (parts(uneven(p)) for _ in range(3))
    train(whole, range(7))
    train(first, range(3))
    for part, saved in zip(second, first):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    train(second, range(3, 7))
    found["resumed"] = read(whole[0]), read(second[0]), whole[2].weight, second[2].weight

    net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)).requires_grad_(False)
    net[0].weight.requires_grad_(True)
    net[1].bfloat16().bias.requires_grad_(True)
    averager = PushSum(net, uneven(p))
    with torch.no_grad():
        net[0].weight.fill_(rank)
        net[1].bias.fill_(2 * rank)
        net[1].running_mean.fill_(rank)
    n_bytes = averager.step()
    for _ in range(59):
        averager.step()
    values = (net[0].weight, net[1].bias, net[1].running_mean)
    found["types"] = n_bytes, [value.item() for value in values]

    skewed = np.array([[0.5, 0.5, 0.2], [0.5, 0.5, 0], [0, 0, 0.5]])
    wrong = {
        "columns": skewed,
        "empty": np.roll(np.eye(p), 1, axis=0),
        "differ": uneven(p) if rank else mixing.ring(p),
    }
    found["errors"] = {
        name: error_of(functools.partial(PushSum, model(), weights))
        for name, weights in wrong.items()
    }
    return found


def test_doubly_stochastic_matrices_make_it_gossip():
    for result in launched(cases, 3):
        pushed, gossiped, weight = result["twins"]
        assert weight == 1.0
        assert np.abs(pushed - gossiped).max() < 1e-10


def test_a_resumed_run_is_the_same_bitwise():
    for result in launched(cases, 3):
        whole, second, weight, second_weight = result["resumed"]
        assert np.array_equal(whole, second)
        assert weight == second_weight != 1.0


def test_all_types_travel_in_one_message_and_statistics_stay():
    for rank, result in enumerate(launched(cases, 3)):
        n_bytes, (single, half, statistic) = result["types"]
        assert n_bytes == (2, 1, 1)[rank] * (4 + 2 + 8)
        assert single == pytest.approx(1, abs=1e-5)
        assert half == pytest.approx(2, abs=0.3)  # bfloat16 rounds to 3 digits, 60 times
        assert statistic == rank


def test_what_cannot_work_is_refused_by_all_ranks_alike():
    results = launched(cases, 3)
    found = results[0]["errors"]
    assert all(result["errors"] == found for result in results)
    assert "column 2 of mixing matrix 0 adds up to 0.7" in found["columns"]
    assert "push-sum" not in found["columns"]
    assert "rank 0 keeps nothing" in found["empty"]
    assert "mixing is" in found["differ"]
