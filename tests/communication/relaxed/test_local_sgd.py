"""Local SGD against numpy, averaged gradients and torch; what becomes of momentum; the phases."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lsdl_lib.communication.relaxed import LocalSGD
from tests.communication.relaxed.problem import (
    RATE,
    STEPS,
    backward,
    gradients,
    launched,
    model,
    read,
    starts,
)

RANKS = (1, 2, 4)
CASES = [(period, momentum) for period in (1, 3, 7) for momentum in ("local", "average", "reset")]


def numpy_local_sgd(p, period, momentum, delta=0.9, start=0):
    """All ranks' vectors after each step, (STEPS, p, 15)."""
    x, v, trajectory = starts(p), np.zeros((p, 15)), []
    for step in range(STEPS):
        g = gradients(x, step)
        if step < start:
            g[:] = g.mean(0)
        v = delta * v + g
        x = x - RATE * v
        done = step + 1 - start
        if done > 0 and done % period == 0:
            x = np.tile(x.mean(0), (p, 1))
            v = {"local": v, "average": np.tile(v.mean(0), (p, 1)), "reset": 0 * v}[momentum]
        trajectory.append(x)
    return np.stack(trajectory)


def trained(make_averager, steps=range(STEPS), net=None, optimizer=None, load=None):
    """Train on this rank; return (trajectory, averager, model, optimizer)."""
    net = net or model()
    optimizer = optimizer or torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    averager = make_averager(net, optimizer)
    if load:
        for what, state in zip((net, optimizer, averager), load):
            what.load_state_dict(state)
    trajectory = []
    for step in steps:
        backward(net, dist.get_rank(), step)
        optimizer.step()
        averager.step()
        trajectory.append(read(net))
    return np.stack(trajectory), averager, net, optimizer


def run_all_cases():
    return {
        (period, momentum): trained(
            lambda net, optimizer, period=period, momentum=momentum: LocalSGD(
                net, optimizer, period, momentum=momentum
            )
        )[0]
        for period, momentum in CASES
    }


@pytest.mark.parametrize("p", RANKS)
def test_each_rank_takes_the_steps_of_the_formula(p):
    results = launched(run_all_cases, p)
    for case in CASES:
        expected = numpy_local_sgd(p, *case)
        for rank in range(p):
            assert np.abs(results[rank][case] - expected[:, rank]).max() < 1e-10, case


@pytest.mark.parametrize("p", RANKS)
def test_period_1_is_averaged_gradients(p):
    """So it is with local momentum too: the average of linear steps is the step of the average."""
    results = launched(run_all_cases, p)
    x, v = starts(1)[0], 0
    for step in range(STEPS):
        v = 0.9 * v + gradients([x] * p, step).mean(0)
        x = x - RATE * v
        for momentum in ("local", "average"):
            for rank in range(p):
                assert np.abs(results[rank][1, momentum][step] - x).max() < 1e-10
