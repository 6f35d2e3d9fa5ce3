"""Local SGD against numpy, averaged gradients and torch; what becomes of momentum; the phases."""

import copy

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lsdl_lib.communication.collectives import ring_all_reduce
from lsdl_lib.communication.cost import Link
from lsdl_lib.communication.data_parallel import OverlappedDataParallel
from lsdl_lib.communication.relaxed import LocalSGD, PostLocalSGD
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
    starts,
)

RANKS = (1, 2, 3, 4, 5)
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


def trained(make_averager, steps=range(STEPS), parts=None):
    """Train on this rank; return the trajectory, (steps, 15)."""
    if parts is None:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
        parts = net, optimizer, make_averager(net, optimizer)
    net, optimizer, averager = parts
    trajectory = []
    for step in steps:
        backward(net, dist.get_rank(), step)
        optimizer.step()
        averager.step()
        trajectory.append(read(net))
    return np.stack(trajectory)


def run_all_cases():
    return {
        (period, momentum): trained(
            lambda net, optimizer, period=period, momentum=momentum: LocalSGD(
                net, optimizer, period, momentum=momentum
            )
        )
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


class Scalar(nn.Module):
    """One number per parameter; rank r's gradient is always r + 1."""

    def __init__(self, count=1):
        super().__init__()
        self.values = nn.ParameterList(torch.zeros(1, dtype=torch.float64) for _ in range(count))

    def forward(self, scale):
        return scale * sum(value.sum() for value in self.values)


def scalar_run(make_averager, steps, groups=1):
    net, scale = Scalar(groups), dist.get_rank() + 1.0
    optimizer = torch.optim.SGD([{"params": [v]} for v in net.values], lr=1, momentum=0.9)
    stepper = make_averager(net, optimizer)
    trajectory, averaged_at = [], []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        net(scale).backward()
        if isinstance(stepper, LocalSGD):
            optimizer.step()
            if stepper.step():
                averaged_at.append(step)
        else:
            stepper.step()
        trajectory.append(net.values[0].item())
    return trajectory, averaged_at


def torch_post_local(net, optimizer):
    # Imported here: the package compiles for seconds, which every rank of every launch would pay.
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    return PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=3, warmup_steps=2))


def known_cases():
    found = {
        momentum: scalar_run(lambda net, o, m=momentum: LocalSGD(net, o, 3, momentum=m), 6)[0]
        for momentum in ("local", "average", "reset")
    }
    found["torch"] = scalar_run(torch_post_local, 6)[0]
    found["two groups"] = scalar_run(lambda net, o: LocalSGD(net, o, 4), 11, groups=2)[1]
    return found


def test_case_70_two_groups_are_one_step():
    for result in launched(known_cases, 2):
        assert result["two groups"] == [4, 8]


def test_case_72_momentum_after_an_average():
    """By hand: v = 1, 1.9, 2.71 on rank 0 and twice that on rank 1; x = -5.61, -11.22: -8.415.

    Then v = 0.9 * 2.71 + 1 with momentum of its own, 0.9 * 4.065 + 1 averaged, 1 when reset.
    """
    rank_0 = launched(known_cases, 2)[0]
    known = [-1, -2.9, -8.415, -11.854, -15.9491, -26.7447]
    assert rank_0["torch"] == pytest.approx(known, abs=1e-3)
    assert rank_0["local"] == pytest.approx(rank_0["torch"], abs=1e-12)
    assert rank_0["average"][:4] == pytest.approx([-1, -2.9, -8.415, -13.0735], abs=1e-12)
    assert rank_0["reset"][:4] == pytest.approx([-1, -2.9, -8.415, -9.415], abs=1e-12)


def post_local_runs():
    """The same under our wrapper and torch's: (trajectory, messages or calls a step)."""
    found = {}
    for name, wrap in (("ours", OverlappedDataParallel), ("torch", DistributedDataParallel)):
        net = nn.Sequential(model(), nn.BatchNorm1d(3, affine=False, dtype=torch.float64))
        net = wrap(net)
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
        averager = PostLocalSGD(net, optimizer, start=3, period=4)
        trajectory, calls, means = [], [], []
        for step in range(12):
            inputs = torch.from_numpy(
                np.random.default_rng([dist.get_rank(), step]).normal(size=(5, 4))
            )
            with traffic() as t:
                optimizer.zero_grad()
                with averager.sync():
                    net(inputs).pow(4).mean().backward()
                optimizer.step()
                averager.step()
            trajectory.append(read(net.module[0]))
            means.append(net.module[1].running_mean.clone())
            calls.append(dict(t.calls))
        found[name] = np.stack(trajectory), torch.stack(means), calls
    return found


def test_post_local_sgd_communicates_gradients_first_and_parameters_later():
    results = launched(post_local_runs, 2)
    for name in ("ours", "torch"):
        (first, first_means, calls), (second, second_means, _) = (r[name] for r in results)
        alike = [bool(np.abs(a - b).max() < 1e-12) for a, b in zip(first, second)]
        assert alike == [True] * 3 + [False] * 3 + [True] + [False] * 3 + [True, False], name
        assert torch.equal(first_means[6], second_means[6]), "statistics are averaged too"
        assert not torch.equal(first_means[5], second_means[5])
        silent = [step for step in range(12) if not calls[step]]
        # torch's DDP sends the buffers once more, in the first forward pass without averages.
        assert silent == ([4, 5] if name == "torch" else [3, 4, 5]) + [7, 8, 9, 11], name
    assert np.abs(results[0]["ours"][0] - results[0]["torch"][0]).max() < 1e-10


def post_local_linear():
    net = OverlappedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    averager, trajectory = PostLocalSGD(net, optimizer, start=6, period=4), []
    for step in range(STEPS):
        with averager.sync():
            backward(net, dist.get_rank(), step)
        optimizer.step()
        averager.step()
        trajectory.append(read(net))
    return np.stack(trajectory)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_post_local_sgd_is_the_formula(p):
    expected = numpy_local_sgd(p, 4, "local", start=6)
    for rank, got in enumerate(launched(post_local_linear, p)):
        assert np.abs(got - expected[:, rank]).max() < 1e-10


def details():
    """Adam's state, running statistics, bytes, a resumed run, the virtual clock, errors."""
    rank, found = dist.get_rank(), {}
    for momentum in ("local", "average", "reset"):
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), RATE)
        averager = LocalSGD(net, optimizer, 2, momentum=momentum)
        before = []
        for step in range(2):
            backward(net, rank, step)
            optimizer.step()
            if step == 1:
                before = [copy.deepcopy(s) for s in optimizer.state.values()]
            with traffic() as t:
                n_bytes = averager.step()
        after = [copy.deepcopy(s) for s in optimizer.state.values()]
        found["adam", momentum] = before, after, n_bytes, t.calls["all_reduce"]

    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    averager = LocalSGD(net, torch.optim.SGD(net.parameters(), RATE), 1, buffers=True)
    with torch.no_grad():
        net[1].running_var.fill_(2.0**rank)
    n_bytes = averager.step()
    found["norm"] = net[1].running_var.tolist(), net[1].num_batches_tracked.item(), n_bytes

    def parts():
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
        return net, optimizer, LocalSGD(net, optimizer, 3)

    whole, first, second = parts(), parts(), parts()
    trained(None, range(8), whole)
    trained(None, range(4), first)
    for part, saved in zip(second, first):
        part.load_state_dict(copy.deepcopy(saved.state_dict()))
    trained(None, range(4, 8), second)
    found["resumed"] = (
        read(whole[0]),
        read(second[0]),
        whole[2].state_dict(),
        second[2].state_dict(),
    )

    net, optimizer, _ = parts()
    averager = LocalSGD(net, optimizer, 4, all_reduce=ring_all_reduce)
    with virtual_clock(Link(alpha=10.0, beta=0.0)) as clock, traffic() as t:
        for _ in range(8):
            averager.step()
        found["seconds"] = clock.read()
    found["sent"] = t.sent_bytes

    frozen = model().requires_grad_(False)
    tries = {
        "period": lambda: LocalSGD(model(), None, 3 + rank),
        "zero": lambda: LocalSGD(model(), None, 0),
        "half": lambda: LocalSGD(model(), None, 2.5),
        "momentum": lambda: LocalSGD(model(), None, 3, momentum="global"),
        "differs": lambda: PostLocalSGD(OverlappedDataParallel(model()), None, rank, 3),
        "negative": lambda: PostLocalSGD(OverlappedDataParallel(model()), None, -1, 3),
        "frozen": lambda: LocalSGD(frozen, None, 3),
        "shapes": lambda: LocalSGD(nn.Linear(3, 3 + rank), None, 3),
    }
    found["errors"] = {name: error_of(attempt) for name, attempt in tries.items()}
    return found


def test_adam_s_momenta_are_averaged_or_forgotten():
    results = launched(details, 2)
    for rank, result in enumerate(results):
        for momentum in ("local", "average", "reset"):
            before, after, n_bytes, calls = result["adam", momentum]
            others = results[1 - rank]["adam", momentum][0]
            assert n_bytes == 15 * 8 * (3 if momentum == "average" else 1)
            assert calls == (2 if momentum == "average" else 1), "one message a type"
            if momentum == "reset":
                assert after == []
                continue
            for mine, now, theirs in zip(before, after, others, strict=True):
                assert now["step"] == 2
                for name in ("exp_avg", "exp_avg_sq"):
                    assert not torch.equal(mine[name], theirs[name])
                    mean = (mine[name] + theirs[name]) / 2
                    expected = mean if momentum == "average" else mine[name]
                    assert torch.allclose(now[name], expected, rtol=1e-14, atol=0)


def test_running_statistics_are_averaged_and_counts_stay():
    for variance, count, n_bytes in (result["norm"] for result in launched(details, 2)):
        assert variance == [1.5, 1.5]
        assert count == 0
        assert n_bytes == 4 * (6 + 4 + 4)


def test_a_resumed_run_is_the_same_bitwise():
    for whole, second, state, second_state in (r["resumed"] for r in launched(details, 2)):
        assert np.array_equal(whole, second)
        assert state == second_state == {"steps": 8, "rounds": 2}


def test_rounds_cost_what_two_all_reduces_cost():
    for result in launched(details, 2):
        # A ring of two: one step to reduce, one to gather; 1 s for CPU time.
        assert 40 <= result["seconds"] < 41
        # Each round sends the model once: half to reduce, half to gather. The virtual clock adds
        # 8 bytes to each of the four messages.
        assert result["sent"] == 2 * 15 * 8 + 4 * 8


def test_what_cannot_work_is_refused_by_all_ranks_alike():
    first, second = (result["errors"] for result in launched(details, 2))
    assert first == second
    assert "period is 3 on rank 0 and 4 on rank 1: give every rank the same" in first["period"]
    assert "period=0: give a whole number of steps, at least 1" in first["zero"]
    assert "period=2.5" in first["half"]
    assert "give one of local, average, reset" in first["momentum"]
    assert "start is 0 on rank 0 and 1 on rank 1" in first["differs"]
    assert "start=-1" in first["negative"]
    assert "nothing to train" in first["frozen"]
    assert "build the same model" in first["shapes"]
