"""Broadcast, reduce, scatter, gather, all-gather, reduce-scatter and all-to-all, at 1-8 ranks."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.launch import LaunchError

RANKS = [1, 2, 3, 4, 5, 7, 8]
SIZES = [0, 1, 3, 100]
BROADCASTS = [
    collectives.star_broadcast,
    collectives.tree_broadcast,
    collectives.ring_broadcast,
]
REDUCES = [collectives.star_reduce, collectives.tree_reduce]
SCATTERS = [collectives.star_scatter, collectives.tree_scatter]
GATHERS = [collectives.star_gather, collectives.tree_gather]
ALL_GATHERS = [collectives.ring_all_gather, collectives.doubling_all_gather]
REDUCE_SCATTERS = [collectives.ring_reduce_scatter, collectives.halving_reduce_scatter]
ALL_TO_ALLS = [collectives.direct_all_to_all, collectives.pairwise_all_to_all]
POWERS_OF_TWO = ("doubling_all_gather", "halving_reduce_scatter")


def piece(n, *key):
    """n whole numbers that differ for every element and every key."""
    start = 0
    for part in key:
        start = start * 10 + part + 1
    return torch.arange(n, dtype=torch.int64) * 1000 + start


def each_root(check):
    """Run check(n, root) for every size and root; return the settings where it was false."""
    roots = range(dist.get_world_size())
    return [(n, root) for n in SIZES for root in roots if not check(n, root)]


def everywhere(run, *arguments, ranks):
    assert launch(run, *arguments, ranks=ranks, timeout=60) == [[]] * ranks


def fits(fn, ranks):
    return fn.__name__ not in POWERS_OF_TWO or ranks & (ranks - 1) == 0


def for_ranks(functions):
    return pytest.mark.parametrize(
        ("fn", "ranks"), [(fn, p) for fn in functions for p in RANKS if fits(fn, p)]
    )


@for_ranks(BROADCASTS)
def test_broadcast(fn, ranks):
    def run():
        def check(n, root):
            tensor = piece(n, dist.get_rank())
            fn(tensor, src=root)
            return torch.equal(tensor, piece(n, root))

        return each_root(check)

    everywhere(run, ranks=ranks)


@for_ranks(REDUCES)
def test_reduce(fn, ranks):
    def run():
        def check(n, root):
            tensor = piece(n, dist.get_rank())
            fn(tensor, dst=root)
            total = sum(piece(n, rank) for rank in range(dist.get_world_size()))
            return dist.get_rank() != root or torch.equal(tensor, total)

        return each_root(check)

    everywhere(run, ranks=ranks)


@for_ranks(SCATTERS)
def test_scatter(fn, ranks):
    def run():
        def check(n, root):
            p, rank = dist.get_world_size(), dist.get_rank()
            tensor = torch.full((n,), -1)
            pieces = [piece(n, root, k) for k in range(p)]
            fn(tensor, pieces if rank == root else None, src=root)
            return torch.equal(tensor, piece(n, root, rank))

        return each_root(check)

    everywhere(run, ranks=ranks)


@for_ranks(GATHERS)
def test_gather(fn, ranks):
    def run():
        def check(n, root):
            p, rank = dist.get_world_size(), dist.get_rank()
            pieces = [torch.full((n,), -1) for _ in range(p)]
            fn(piece(n, rank), pieces if rank == root else None, dst=root)
            return rank != root or all(torch.equal(pieces[k], piece(n, k)) for k in range(p))

        return each_root(check)

    everywhere(run, ranks=ranks)


@for_ranks(ALL_GATHERS)
def test_all_gather(fn, ranks):
    def run():
        p, rank = dist.get_world_size(), dist.get_rank()
        wrong = []
        for n in SIZES:
            sizes = [n + k for k in range(p)]  # ranks' pieces may differ
            pieces = [torch.full((size,), -1) for size in sizes]
            fn(pieces, piece(sizes[rank], rank))
            wrong += [(n, k) for k in range(p) if not torch.equal(pieces[k], piece(sizes[k], k))]
        return wrong

    everywhere(run, ranks=ranks)


@for_ranks(REDUCE_SCATTERS)
def test_reduce_scatter(fn, ranks):
    def run():
        p, rank = dist.get_world_size(), dist.get_rank()
        wrong = []
        for n in SIZES:
            sizes = [n + k for k in range(p)]
            inputs = [piece(sizes[k], rank, k) for k in range(p)]
            output = torch.full((sizes[rank],), -1)
            fn(output, inputs)
            total = sum(piece(sizes[rank], source, rank) for source in range(p))
            kept = all(torch.equal(inputs[k], piece(sizes[k], rank, k)) for k in range(p))
            if not torch.equal(output, total) or not kept:
                wrong.append(n)
        return wrong

    everywhere(run, ranks=ranks)


@for_ranks(ALL_TO_ALLS)
def test_all_to_all(fn, ranks):
    def run():
        p, rank = dist.get_world_size(), dist.get_rank()
        wrong = []
        for n in SIZES:
            inputs = [piece(n + k, rank, k) for k in range(p)]
            outputs = [torch.full((n + rank,), -1) for _ in range(p)]
            fn(outputs, inputs)
            wrong += [
                (n, k) for k in range(p) if not torch.equal(outputs[k], piece(n + rank, k, rank))
            ]
        return wrong

    everywhere(run, ranks=ranks)


def test_every_one_agrees_with_torch_on_strided_tensors_in_a_sub_group():
    def run():
        group = dist.new_group([0, 2, 3])
        if dist.get_rank() == 1:
            return True
        base = (torch.arange(12.0).reshape(4, 3) * (dist.get_rank() + 1)).t()  # not contiguous
        results = []
        for ours, theirs in (
            (collectives.tree_broadcast, dist.broadcast),
            (collectives.ring_broadcast, dist.broadcast),
        ):
            mine, other = base.clone(memory_format=torch.preserve_format), base.contiguous()
            ours(mine, 2, group)
            theirs(other, 2, group)
            results.append(torch.equal(mine, other) and not mine.is_contiguous())
        mine, other = [torch.zeros(3, 4) for _ in range(3)], [torch.zeros(3, 4) for _ in range(3)]
        collectives.ring_all_gather(mine, base, group)
        dist.all_gather(other, base.contiguous(), group)
        results.append(all(torch.equal(a, b) for a, b in zip(mine, other)))
        return all(results)

    assert launch(run, ranks=4, timeout=60) == [True] * 4


def test_all_run_in_the_background_at_once():
    def run():
        p, rank = dist.get_world_size(), dist.get_rank()
        sent, total = torch.tensor([float(rank)]), torch.tensor([1.0])
        gathered = [torch.zeros(1) for _ in range(p)]
        handles = [
            collectives.tree_broadcast(sent, 1, async_op=True),
            collectives.ring_all_gather(gathered, torch.tensor([rank + 0.5]), async_op=True),
            collectives.doubling_all_reduce(total, async_op=True),
        ]
        assert all(handle.wait() for handle in handles)
        return sent.item(), total.item(), [g.item() for g in gathered]

    assert launch(run, ranks=3, timeout=60) == [(1.0, 3.0, [0.5, 1.5, 2.5])] * 3


WRONG = [
    (lambda: collectives.tree_broadcast(torch.ones(1), src=7), "root 7 is not among .*0, 1, 2"),
    (lambda: collectives.star_reduce(torch.ones(1), dst=-1), "root -1 is not among"),
    (lambda: collectives.tree_scatter(torch.ones(1)), "scatter_list has 0 tensors.*one a rank, 3"),
    (
        lambda: collectives.ring_all_gather([torch.ones(1)] * 2, torch.ones(1)),
        "tensor_list has 2 tensors: give one a rank, 3",
    ),
    (
        lambda: collectives.ring_all_gather([torch.ones(2)] * 3, torch.ones(1)),
        "place . of tensor_list has 2 elements.*this rank's tensor 1",
    ),
    (
        lambda: collectives.ring_reduce_scatter(
            torch.ones(1), [torch.ones(1), torch.ones(1), torch.ones(1).int()]
        ),
        r"input_list mixes torch.float32, torch.int32",
    ),
    (
        lambda: collectives.doubling_all_gather([torch.ones(1)] * 3, torch.ones(1)),
        "3 ranks are no power of two: use the ring",
    ),
    (
        lambda: collectives.torus_all_reduce(torch.ones(1), width=2),
        "3 ranks do not stand in rows of 2: use one of 1, 3",
    ),
    (
        lambda: collectives.ring_all_reduce(torch.ones(1), op=ReduceOp.BAND),
        r"BAND works on bits: torch.float32",
    ),
]


@pytest.mark.parametrize(("call", "words"), WRONG, ids=[words[:30] for _, words in WRONG])
def test_wrong_arguments_are_refused_before_anything_is_sent(call, words):
    with pytest.raises(LaunchError, match=words):
        launch(call, ranks=3, timeout=60)


def test_case_46_both_ranks_send_first():
    def run():
        inputs = [torch.full((2**22,), float(dist.get_rank()))] * 2  # 16 MiB each way
        outputs = [torch.zeros(2**22) for _ in range(2)]
        collectives.direct_all_to_all(outputs, inputs)
        return [output.unique().item() for output in outputs]

    assert launch(run, ranks=2, timeout=60) == [[0.0, 1.0]] * 2


def test_case_50_any_number_of_ranks():
    """Exact at 3, 5, 6, 7 ranks: test_all_reduce; here more elements' ranks than elements."""

    def run():
        tensor = torch.tensor([dist.get_rank() + 1])
        collectives.ring_all_reduce(tensor)
        collectives.halving_all_reduce(tensor)
        return tensor.item()

    assert launch(run, ranks=7, timeout=60) == [28 * 7] * 7
