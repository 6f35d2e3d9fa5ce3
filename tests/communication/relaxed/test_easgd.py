"""Elastic averaging against the paper's equations in numpy, its laws, and its state."""

import numpy as np
import pytest
import torch
import torch.distributed as dist

from lsdl_lib.communication.relaxed import EAMSGD, EASGD
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
