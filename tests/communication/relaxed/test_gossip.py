"""Gossip is the matrix product; D-PSGD and its twin against numpy; bytes, laws, state, errors."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.relaxed import Gossip, mixing
from lsdl_lib.communication.relaxed.consensus import consensus_distance
from lsdl_lib.measure import traffic
from lsdl_lib.measure.virtual import virtual_clock
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

RANKS = (1, 2, 3, 4, 5, 8)
ROUNDS = 9  # every graph comes round at least twice


def graphs(p):
    """{name: matrix or list of matrices} of all graphs that p ranks can have."""
    found = {
        "complete": mixing.complete(p),
        "ring": mixing.ring(p),
        "exponential": mixing.exponential(p),
        "one-peer": mixing.one_peer_exponential(p),
        "uneven": uneven(p),
    }
    if p & (p - 1) == 0:
        found["hypercube"] = mixing.hypercube(p)
    if p in (1, 2, 4, 8):
        found["bipartite"] = mixing.bipartite_exponential(p)
        found["torus"] = mixing.torus(*{1: (1, 1), 2: (1, 2), 4: (2, 2), 8: (2, 4)}[p])
    return found


def trained_graphs(p):
    return {name: graphs(p)[name] for name in ("complete", "one-peer", "uneven")}


def uneven(p):
    """A doubly stochastic matrix with no symmetry: two circles of different weight."""
    forward, back = np.roll(np.eye(p), 1, axis=0), np.roll(np.eye(p), -1, axis=0)
    return 0.55 * np.eye(p) + 0.35 * forward + 0.1 * back


def listed(rounds):
    return [rounds] if isinstance(rounds, np.ndarray) else rounds


def far_starts(p):
    """A start of its own for each rank, (p, 15)."""
    return np.stack([np.random.default_rng([5, rank]).normal(size=15) for rank in range(p)])


def rounds_alone():
    """Mix without training: {graph: (trajectory, bytes a step, traffic)}."""
    p, rank, found = dist.get_world_size(), dist.get_rank(), {}
    for name, rounds in graphs(p).items():
        net = model()
        averager = Gossip(net, rounds)
        write(net, far_starts(p)[rank])
        trajectory, sent = [], []
        with traffic() as t:
            for _ in range(ROUNDS):
                sent.append(averager.step())
                trajectory.append(read(net))
        found[name] = np.stack(trajectory), sent, (t.sent_bytes, t.sent_messages)
    return found


@pytest.mark.parametrize("p", RANKS)
def test_rounds_are_the_matrix_product_and_the_average_stays(p):
    results = launched(rounds_alone, p)
    for name, rounds in graphs(p).items():
        rounds, x = listed(rounds), far_starts(p)
        for step in range(ROUNDS):
            x = rounds[step % len(rounds)] @ x
            got = np.stack([results[rank][name][0][step] for rank in range(p)])
            assert np.abs(got - x).max() < 1e-12, name
            assert np.abs(got.mean(0) - far_starts(p).mean(0)).max() < 1e-12, name


@pytest.mark.parametrize("p", RANKS)
def test_bytes_and_messages_are_those_of_the_edges(p):
    results = launched(rounds_alone, p)
    for name, rounds in graphs(p).items():
        rounds = listed(rounds)
        for rank in range(p):
            _, sent, (n_bytes, messages) = results[rank][name]
            degrees = [
                sum(w > 0 for k, w in enumerate(rounds[step % len(rounds)][:, rank]) if k != rank)
                for step in range(ROUNDS)
            ]
            assert sent == [15 * 8 * degree for degree in degrees], name
            assert (n_bytes, messages) == (15 * 8 * sum(degrees), sum(degrees)), name
    per_round = {name: results[0][name][1][0] // 120 for name in graphs(p)}
    assert per_round["complete"] == p - 1
    assert per_round["ring"] == min(2, p - 1)
    assert per_round["exponential"] == math.ceil(math.log2(p))
    assert per_round["one-peer"] == min(1, p - 1)


def train_both_ways():
    """{(graph, form): trajectory}; "paper": mixed before the optimizer's step."""
    found = {}
    for name, rounds in trained_graphs(dist.get_world_size()).items():
        for form in ("paper", "after"):
            net = model()
            optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.5)
            averager, trajectory = Gossip(net, rounds), []
            for step in range(STEPS):
                backward(net, dist.get_rank(), step)
                if form == "paper":
                    averager.step()
                optimizer.step()
                if form == "after":
                    averager.step()
                trajectory.append(read(net))
            found[name, form] = np.stack(trajectory)
    return found


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_training_is_the_formula_s_in_both_forms(p):
    results = launched(train_both_ways, p)
    for name, rounds in trained_graphs(p).items():
        rounds = listed(rounds)
        for form in ("paper", "after"):
            x, v = starts(p), 0
            for step in range(STEPS):
                w = rounds[step % len(rounds)]
                v = 0.5 * v + gradients(x, step)
                x = w @ x - RATE * v if form == "paper" else w @ (x - RATE * v)
                got = np.stack([results[rank][name, form][step] for rank in range(p)])
                assert np.abs(got - x).max() < 1e-10, (name, form)


@pytest.mark.parametrize("p", [1, 2, 3, 4])
def test_complete_graph_is_sgd_with_averaged_gradients(p):
    results = launched(train_both_ways, p)
    x, v = start(), 0
    for step in range(STEPS):
        v = 0.5 * v + gradients([x] * p, step).mean(0)
        x = x - RATE * v
        for rank in range(p):
            assert np.abs(results[rank]["complete", "after"][step] - x).max() < 1e-10


def virtual_seconds():
    """{graph: virtual seconds of one round} where a message takes 10 s, whatever its size."""
    found = {}
    for name in ("complete", "ring", "exponential", "one-peer"):
        net = model()
        averager = Gossip(net, graphs(dist.get_world_size())[name])
        with virtual_clock(Link(alpha=10.0, beta=0.0)) as clock:
            averager.step()
            found[name] = clock.read()
    return found


def test_a_round_takes_the_time_of_its_messages_on_the_virtual_clock():
    for found in launched(virtual_seconds, 5):
        for name, messages in {"complete": 4, "ring": 2, "exponential": 3, "one-peer": 1}.items():
            # A rank sends through one port, one message after the other. 3 s for CPU time.
            assert 10 * messages <= found[name] < 10 * messages + 3, name


class Mixed(nn.Module):
    """Parameters of several types, one empty, one without dimensions, a tied and a frozen one."""

    def __init__(self):
        super().__init__()
        numbers = torch.arange(1, 6) * (1 + dist.get_rank())
        self.short = nn.Parameter(numbers[:3].bfloat16())
        self.long = nn.Parameter(numbers.double() / 3)
        self.empty = nn.Parameter(torch.zeros(0, 4))
        self.single = nn.Parameter(torch.tensor(1.5))
        self.tied = self.long
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("mask", torch.full((2,), -torch.inf), persistent=False)


def mixed_types():
    net, rank = Mixed(), dist.get_rank()
    averager = Gossip(net, mixing.ring(2))  # weights 1/3 and 2/3
    alike = [t.clone() for t in (net.short, net.long, net.single)]
    with torch.no_grad():
        net.short.fill_(3.0 * rank)
        net.long.add_(3 * rank)
        net.single.fill_(6.0 * rank)
        net.frozen.fill_(rank)
        net.norm.running_mean.fill_(9.0 * rank)
        net.norm.num_batches_tracked.fill_(5 + rank)
    n_bytes = averager.step()
    return alike, n_bytes, copy.deepcopy(net.state_dict()), net.tied is net.long, net.mask


def test_all_types_travel_in_one_message():
    results = launched(mixed_types, 2)
    for rank, (alike, n_bytes, state, tied, mask) in enumerate(results):
        share = (2 / 3, 1 / 3)[rank]  # of rank 1's value
        half, double, single = alike
        assert torch.equal(half, torch.tensor([1.0, 2.0, 3.0]).bfloat16()), "rank 0's values"
        assert torch.equal(double, torch.arange(1, 6).double() / 3)
        assert single == 1.5
        # half, double, single; weight, bias, running mean and variance of the norm
        assert n_bytes == 3 * 2 + 5 * 8 + 4 + 4 * 2 * 4
        assert torch.allclose(
            state["short"].double(), torch.tensor(3.0 * share).double(), rtol=2e-2
        )
        assert torch.allclose(state["long"], double + 3 * share, rtol=1e-12)
        assert state["single"].item() == pytest.approx(6 * share, rel=1e-6)
        assert state["norm.running_mean"].tolist() == pytest.approx([9 * share] * 2, rel=1e-6)
        assert state["norm.running_var"].tolist() == pytest.approx([1, 1], rel=1e-6)
        assert state["norm.num_batches_tracked"] == 5 + rank, "whole numbers stay"
        assert state["frozen"].tolist() == [rank, rank], "frozen parameters stay"
        assert tied
        assert torch.isinf(mask).all()


def resumed():
    """Train 7 steps; train 3, save, load into new objects, train 4."""
    rounds, rank = mixing.one_peer_exponential(3), dist.get_rank()

    def parts():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
        return net, optimizer, Gossip(net, rounds)

    def train(these, steps):
        net, optimizer, averager = these
        for step in steps:
            backward(net, rank, step)
            optimizer.step()
            averager.step()

    whole, first, second = parts(), parts(), parts()
    train(whole, range(7))
    train(first, range(3))
    for part, saved in zip(second, first):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    train(second, range(3, 7))
    return read(whole[0]), read(second[0]), second[2].state_dict()


def test_a_resumed_run_is_the_same_bitwise():
    for whole, second, state in launched(resumed, 3):
        assert np.array_equal(whole, second)
        assert state == {"steps": 7}


def distances():
    net, found = model(), [consensus_distance(model())]
    averager = Gossip(net, mixing.ring(dist.get_world_size()))
    write(net, far_starts(dist.get_world_size())[dist.get_rank()])
    for _ in range(4):
        found.append(consensus_distance(net))
        averager.step()
    return found


def test_the_ranks_come_closer_by_the_second_eigenvalue():
    p = 4
    found = launched(distances, p)
    start_points = far_starts(p)
    expected = ((start_points - start_points.mean(0)) ** 2).sum() / p
    assert all(result == found[0] for result in found), "the same on every rank"
    assert found[0][0] == 0
    assert found[0][1] == pytest.approx(expected, rel=1e-12)
    second = 1 - mixing.spectral_gap(mixing.ring(p))
    for before, after in itertools.pairwise(found[0][1:]):
        assert 0 < after <= second**2 * before * (1 + 1e-12)


def errors():
    p, rank = dist.get_world_size(), dist.get_rank()
    skewed = np.array([[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 1, 0.5]])
    other = nn.Linear(4, 3 + rank // 2, dtype=torch.float64)
    cases = {
        "ranks": lambda: Gossip(model(), mixing.ring(p + 1)),
        "columns": lambda: Gossip(model(), skewed),
        "rows": lambda: Gossip(model(), mixing.push_weights([[1, 2], [0], [0]])),
        "negative": lambda: Gossip(model(), 2 * np.eye(p) - np.roll(np.eye(p), 1, axis=0)),
        "nan": lambda: Gossip(model(), np.full((p, p), np.nan)),
        "none": lambda: Gossip(model(), []),
        "differ": lambda: Gossip(model(), uneven(p) if rank else mixing.complete(p)),
        "buffers": lambda: Gossip(model(), mixing.ring(p), buffers=rank == 1),
        "models": lambda: Gossip(other, mixing.ring(p)),
        "frozen": lambda: Gossip(model().requires_grad_(False), mixing.ring(p)),
    }
    with traffic() as t:
        found = {name: error_of(case) for name, case in cases.items()}
    return found, t.calls["send"]


def test_what_cannot_work_is_refused_by_all_ranks_alike():
    results = launched(errors, 3)
    found = results[0][0]
    assert all(result == (found, 0) for result in results), "the same text, before any message"
    assert "shape (4, 4): give (3, 3) for 3 ranks" in found["ranks"]
    assert "column 1 of mixing matrix 0 adds up to 1.5" in found["columns"]
    assert "row 0 of mixing matrix 0 adds up to 1.33333" in found["rows"]
    assert "push-sum" in found["rows"]
    assert "weight -1" in found["negative"]
    assert "nan" in found["nan"]
    assert "no mixing matrix" in found["none"]
    assert found["differ"].startswith("ValueError: mixing is ")
    assert "on rank 0 and" in found["differ"]
    assert "buffers is False on rank 0 and True on rank 1" in found["buffers"]
    assert "weight" in found["models"]
    assert "build the same model" in found["models"]
    assert "nothing to train" in found["frozen"]
