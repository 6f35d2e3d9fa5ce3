"""Delayed data parallelism: every gradient exactly d steps old, and hidden behind computation."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link, closed_forms
from lsdl_lib.communication.relaxed.delayed import DelayedDataParallel
from lsdl_lib.communication.relaxed.pace import scripted_clock, spend
from lsdl_lib.models import MLP, MLPConfig
from tests.communication.checks import error_of

LR, STEPS, SAMPLES, WIDTH = 0.1, 20, 8, 4  # an even width: chunks of a ring of two are equal
SMALL = {"bucket_mb": 0.004, "first_bucket_mb": 0.002}  # many buckets even for small models


def rows():
    """Return inputs (STEPS, SAMPLES, WIDTH) and labels (STEPS, SAMPLES, 1)."""
    random = np.random.default_rng(0)
    inputs = random.standard_normal((STEPS, SAMPLES, WIDTH))
    return inputs, inputs @ np.ones((WIDTH, 1)) + random.standard_normal((STEPS, SAMPLES, 1))


def line():
    """A model x -> w . x with w = 0, in float64."""
    model = nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)
    nn.init.zeros_(model.weight)
    return model


def step(model, number, batches, weight_lr=LR):
    """One step of SGD by hand on this rank's part of a batch; gradients that are None: none."""
    inputs, labels = (
        torch.from_numpy(b[number])[dist.get_rank() :: dist.get_world_size()] for b in batches
    )
    model.zero_grad()
    (F.mse_loss(model(inputs), labels) / 2).backward()
    update(model, weight_lr)


@torch.no_grad()
def update(model, lr=LR):
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.sub_(parameter.grad, alpha=lr)


def simulated(delay, steps=STEPS, drained=False):
    """Return the weights of the same training in one process (numpy)."""
    inputs, labels = rows()
    history, gradients = [np.zeros((WIDTH, 1))], []
    for t in range(steps):
        residual = inputs[t] @ history[-1] - labels[t]
        gradients.append(inputs[t].T @ residual / SAMPLES)
        move = gradients[t - delay] if t >= delay else 0.0
        history.append(history[-1] - LR * move)
    for gradient in gradients[max(0, steps - delay) :] if drained and delay else []:
        history.append(history[-1] - LR * gradient)
    return history[-1].T


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_each_gradient_is_exactly_so_many_steps_old(ranks):
    delays = (0, 1, 2, 5)

    def run():
        found = {}
        for delay in delays:
            for name, options in (
                ("torch's", {}),
                ("ring", {"all_reduce": ring_all_reduce}),
            ):
                model = DelayedDataParallel(line(), delay=delay, **options)
                for number in range(STEPS):
                    step(model, number, rows())
                before = model.module.weight.detach().clone()
                for _ in model.drain():
                    update(model)
                found[delay, name] = before, model.module.weight.detach()
        return found

    for found in launch(run, ranks=ranks, threads=1, timeout=60):
        for (delay, name), (before, after) in found.items():
            assert abs(before.numpy() - simulated(delay)).max() < 1e-12, (delay, name)
            expected = simulated(delay, drained=True)
            assert abs(after.numpy() - expected).max() < 1e-12, (delay, name)
    assert abs(simulated(0) - simulated(1)).max() > 1e-3


def train_mlp(model, numbers):
    """SGD by hand on a model with many buckets."""
    for number in numbers:
        random = torch.Generator().manual_seed(10 * number + dist.get_rank())
        inputs = torch.randn(4, 40, generator=random, dtype=torch.float64)
        model.zero_grad(set_to_none=number % 2 == 0)
        F.cross_entropy(model(inputs), torch.arange(4)).backward()
        update(model)


def mlp():
    return MLP(MLPConfig(hidden=(32, 32)), dtype=torch.float64)


def test_it_goes_on_bitwise_from_its_state_in_many_buckets():
    def run():
        found = []
        for delay in (0, 1, 3):
            whole = DelayedDataParallel(mlp(), delay=delay, **SMALL)
            train_mlp(whole, range(10))
            half = DelayedDataParallel(mlp(), delay=delay, **SMALL)
            train_mlp(half, range(5))
            state = {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in half.state_dict().items()
            }
            train_mlp(half, range(5, 10))  # a saved model trains on unharmed
            again = DelayedDataParallel(mlp(), delay=delay, **SMALL)
            train_mlp(again, range(2))  # what travels there is forgotten
            again.load_state_dict(state)
            train_mlp(again, range(5, 10))
            vectors = [
                torch.cat([p.detach().reshape(-1) for p in model.parameters()])
                for model in (whole, half, again)
            ]
            fresh = torch.cat([p.detach().reshape(-1) for p in mlp().parameters()])
            found.append(
                (
                    torch.equal(vectors[0], vectors[1]),
                    torch.equal(vectors[0], vectors[2]),
                    torch.equal(vectors[0], fresh),
                    len(whole.buckets) > 2,
                    list(map(len, state["_extra_state"])) == [len(whole.buckets)] * delay,
                )
            )
        return found

    for found in launch(run, ranks=2, threads=1, timeout=60):
        assert found == [(True, True, False, True, True)] * 3


@pytest.mark.parametrize("compute", [0.5, 4.0])
def test_a_step_takes_the_longer_of_computing_and_communicating(compute):
    link = Link(alpha=0.2, beta=0.05)
    steps = 8

    def run():
        times = {}
        for delay in (0, 1):
            model = DelayedDataParallel(line(), delay=delay, all_reduce=ring_all_reduce)
            with scripted_clock(link) as clock:
                marks = []
                for number in range(steps):
                    spend(compute)
                    step(model, number, rows())
                    marks.append(clock.read())
                for _ in model.drain():
                    update(model)
            times[delay] = (marks[-1] - marks[1]) / (steps - 2)
        return times

    communication = closed_forms.ALL_REDUCE["ring"](2, 8 * WIDTH, link)
    assert 0.5 < communication < 4.0
    for times in launch(run, ranks=2, threads=1, timeout=60):
        assert times[0] == pytest.approx(compute + communication, rel=0.1)
        assert times[1] == pytest.approx(max(compute, communication), rel=0.1)


def test_what_cannot_work_is_refused():
    def run():
        table = nn.Embedding(5, 2, sparse=True)
        model = DelayedDataParallel(line(), delay=1)
        return [
            error_of(lambda: DelayedDataParallel(line(), delay=-1)),
            error_of(lambda: DelayedDataParallel(line(), delay=0.5)),
            error_of(lambda: DelayedDataParallel(table)),
            error_of(lambda: model.set_extra_state([[], []])),
        ]

    for texts in launch(run, ranks=2, threads=1, timeout=30):
        assert all(text is not None and text.startswith("ValueError") for text in texts), texts
