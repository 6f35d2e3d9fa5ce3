"""Gossip equals the matrix product; D-PSGD and its twin against numpy; bytes, laws, state, errors."""

import math

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lsdl_lib.communication.relaxed import Gossip, mixing
from lsdl_lib.measure import traffic
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
            for _ in range(STEPS):
                sent.append(averager.step())
                trajectory.append(read(net))
        found[name] = np.stack(trajectory), sent, (t.sent_bytes, t.sent_messages)
    return found


@pytest.mark.parametrize("p", RANKS)
def test_rounds_are_the_matrix_product_and_the_average_stays(p):
    results = launched(rounds_alone, p)
    for name, rounds in graphs(p).items():
        rounds, x = listed(rounds), far_starts(p)
        for step in range(STEPS):
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
                for step in range(STEPS)
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


@pytest.mark.parametrize("p", (1, 2, 3, 4))
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


@pytest.mark.parametrize("p", (1, 2, 3, 4))
def test_complete_graph_is_sgd_with_averaged_gradients(p):
    results = launched(train_both_ways, p)
    x, v = start(), 0
    for step in range(STEPS):
        v = 0.5 * v + gradients([x] * p, step).mean(0)
        x = x - RATE * v
        for rank in range(p):
            assert np.abs(results[rank]["complete", "after"][step] - x).max() < 1e-10
