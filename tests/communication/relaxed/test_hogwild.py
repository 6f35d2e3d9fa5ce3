"""Hogwild: where no two ranks meet nothing is lost, and where they do it still converges."""

import os

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from lsdl_lib import launch
from lsdl_lib.communication.relaxed.hogwild import Sparsity, share_parameters, sparsity
from lsdl_lib.communication.relaxed.shared_memory import shared_bytes
from tests.communication.checks import error_of

STEPS = 200


def test_all_ranks_see_rank_0_s_values_and_each_other_s_writes():
    def run():
        rank = dist.get_rank()
        module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1, dtype=torch.float64))
        module.register_parameter("nothing", nn.Parameter(torch.empty(0)))
        module.register_parameter("scalar", nn.Parameter(torch.tensor(2.0)))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(rank + 5)
        files = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        share_parameters(module.parameters())
        first = [parameter.detach().clone() for parameter in module.parameters()]
        dist.barrier()
        with torch.no_grad():
            module[0].weight[0, rank] = 100 + rank
        dist.barrier()
        left = set(os.listdir("/dev/shm")) - files if files else set()
        shapes = [tuple(parameter.shape) for parameter in module.parameters()]
        return first, module[0].weight.detach().clone(), shapes, [f for f in left if "lsdl" in f]

    for first, weight, shapes, left in launch(run, ranks=3, threads=1, timeout=30):
        assert all(bool((values == 5).all()) for values in first)
        assert weight.tolist() == [[100, 101, 102], [5, 5, 5]]
        assert shapes == [(0,), (), (2, 3), (2,), (1, 2), (1,)]
        assert left == []


def test_ranks_that_touch_different_numbers_lose_nothing():
    # 4 ranks, each with columns of its own: whatever the order, each number has one writer.
    def run(ranks):
        rank = dist.get_rank()
        weights = nn.Parameter(torch.zeros(ranks, 5, dtype=torch.float64))
        share_parameters([weights])
        for step in range(STEPS):
            target = torch.arange(5, dtype=torch.float64) * (rank + 1) + step % 3
            with torch.no_grad():
                weights[rank].sub_(weights[rank] - target, alpha=0.1)
        dist.barrier()
        return weights.detach().clone()

    for ranks in (1, 4):
        expected = np.zeros((ranks, 5))
        for rank in range(ranks):
            for step in range(STEPS):
                target = np.arange(5) * (rank + 1) + step % 3
                expected[rank] -= 0.1 * (expected[rank] - target)
        for found in launch(run, ranks, ranks=ranks, threads=1, timeout=30):
            assert np.allclose(found.numpy(), expected, rtol=0, atol=1e-12)


def equations(seed=0, rows=300, numbers=60, each=3):
    """Return (indices (rows, each), coefficients, right sides) that the weights 0, 1, … solve."""
    random = np.random.default_rng(seed)
    indices = np.stack([random.choice(numbers, each, replace=False) for _ in range(rows)])
    coefficients = random.standard_normal((rows, each))
    sides = (coefficients * indices).sum(1)
    return tuple(map(torch.from_numpy, (indices, coefficients, sides)))


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_races_or_not_a_sparse_problem_is_solved(ranks):
    # Kaczmarz steps: each solves an equation, so a lost or late addition is a step to take again.
    def run():
        indices, coefficients, sides = equations()
        weights = nn.Parameter(torch.zeros(60, dtype=torch.float64))
        share_parameters([weights])
        random = torch.Generator().manual_seed(dist.get_rank())
        with torch.no_grad():
            for row in torch.randint(len(sides), (12000 // ranks,), generator=random).tolist():
                at, a = indices[row], coefficients[row]
                residual = a @ weights[at] - sides[row]
                weights.index_add_(0, at, a, alpha=-0.5 * (residual / (a @ a)).item())
        dist.barrier()
        return (weights.detach() - torch.arange(60, dtype=torch.float64)).norm().item()

    begun = np.linalg.norm(np.arange(60))
    for error in launch(run, ranks=ranks, threads=1, timeout=60):
        assert error < 1e-3 * begun


def test_torch_s_sgd_trains_the_shared_parameters():
    # A table with a row a rank, and sparse gradients: SGD touches only that row.
    def run():
        rank = dist.get_rank()
        table = nn.Embedding(4, 2, sparse=True)
        nn.init.zeros_(table.weight)
        share_parameters(table.parameters())
        for _ in range(10):
            table.zero_grad()
            table(torch.tensor([rank])).sum().backward()
            with torch.no_grad():
                table.weight.add_(table.weight.grad, alpha=-0.5)
        dist.barrier()
        return table.weight.detach().clone()

    for weight in launch(run, ranks=3, threads=1, timeout=30):
        assert weight.tolist() == [[-5, -5], [-5, -5], [-5, -5], [0, 0]]


def test_sparsity_is_the_paper_s():
    disjoint = sparsity([(0, 1), (2, 3), (4, 5)])
    assert disjoint == Sparsity(size=2, degree=1 / 3, overlap=1 / 3)
    chain = sparsity([(0, 1), (1, 2), (2, 3), (3, 4)])
    assert chain == Sparsity(size=2, degree=2 / 4, overlap=3 / 4)
    dense = sparsity([range(7)] * 5)
    assert dense == Sparsity(size=7, degree=1.0, overlap=1.0)


def test_what_cannot_work_is_refused():
    def run():
        return [
            error_of(lambda: shared_bytes(0)),
            error_of(lambda: share_parameters([])),
            error_of(lambda: sparsity([])),
        ]

    for texts in launch(run, ranks=2, threads=1, timeout=30):
        assert all(text is not None and text.startswith("ValueError") for text in texts), texts
