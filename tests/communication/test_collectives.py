"""Broadcast, reduce, scatter, gather, all-gather, reduce-scatter and all-to-all, at 1-8 ranks."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication import collectives as c
from lsdl_lib.measure import traffic
from tests.communication.checks import OTHERS, WHOLE, error_of, fits, is_right

RANKS = [1, 2, 3, 4, 5, 6, 7, 8]
ROOTED = ("broadcast", "reduce", "scatter", "gather")
LARGE = 10**6


def wrong_results():
    """Return what is wrong, over all collectives, sizes, roots and three layouts."""
    p, wrong = dist.get_world_size(), []
    for name in OTHERS:
        if not fits(name, p):
            continue
        roots = range(p) if name.split("_", 1)[1] in ROOTED else [0]
        cases = [(n, root, "slice") for n in (0, 1, 3, 100) for root in roots]
        cases += [(6, 0, "column"), (6, 0, "transposed")]
        for n, root, layout in cases:
            if not is_right(name, n, root=root, layout=layout):
                wrong.append(f"{name}, {p} ranks, {n} elements, root {root}, {layout}")
        if not is_right(name, LARGE // p, torch.float32, root=p - 1):
            wrong.append(f"{name}, {p} ranks, {LARGE // p} elements")
    return wrong


@pytest.mark.parametrize("ranks", RANKS)
def test_every_rank_gets_what_it_should(ranks):
    assert launch(wrong_results, ranks=ranks, timeout=240) == [[]] * ranks


def test_every_type_travels():
    def run():
        types = (*WHOLE, torch.float64, torch.bfloat16, torch.complex64)
        return [f"{name} {t}" for t in types for name in OTHERS if not is_right(name, 5, t)]

    assert launch(run, ranks=4, timeout=120) == [[]] * 4


def test_torch_says_the_same_on_strided_tensors_in_a_sub_group():
    def run():
        group = dist.new_group([0, 2, 3])
        if dist.get_rank() == 1:
            return True
        base = (torch.arange(12.0).reshape(4, 3) * (dist.get_rank() + 1)).t()  # not contiguous
        results = []
        for ours in (c.star_broadcast, c.tree_broadcast, c.ring_broadcast):
            mine, other = base.clone(memory_format=torch.preserve_format), base.contiguous()
            ours(mine, 2, group)
            dist.broadcast(other, 2, group)
            results.append(torch.equal(mine, other) and not mine.is_contiguous())
        mine, other = [torch.zeros(3, 4) for _ in range(3)], [torch.zeros(3, 4) for _ in range(3)]
        c.ring_all_gather(mine, base, group)
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
            c.tree_broadcast(sent, 1, async_op=True),
            c.ring_all_gather(gathered, torch.tensor([rank + 0.5]), async_op=True),
            c.doubling_all_reduce(total, async_op=True),
        ]
        assert all(handle.wait() for handle in handles)
        return sent.item(), total.item(), [g.item() for g in gathered]

    assert launch(run, ranks=3, timeout=60) == [(1.0, 3.0, [0.5, 1.5, 2.5])] * 3


ONES = torch.ones
WRONG = {  # what each of three ranks calls, and the error
    "root": (
        lambda: c.tree_broadcast(ONES(1), src=7),
        "ValueError: root 7 is not among the group's ranks [0, 1, 2]",
    ),
    "negative root": (
        lambda: c.star_reduce(ONES(1), dst=-1),
        "ValueError: root -1 is not among the group's ranks [0, 1, 2]",
    ),
    "short list": (
        lambda: c.ring_all_gather([ONES(1)] * 2, ONES(1)),
        "ValueError: tensor_list has 2 tensors: give one a rank, 3",
    ),
    "place of another size": (
        lambda: c.ring_all_gather([ONES(2)] * 3, ONES(1)),
        "ValueError: place {rank} of tensor_list has 2 elements of torch.float32, "
        "this rank's tensor 1 of torch.float32",
    ),
    "place of another type": (
        lambda: c.pairwise_all_to_all([ONES(1)] * 3, [ONES(1).int()] * 3),
        "ValueError: place {rank} of input_list has 1 elements of torch.int32, "
        "that of output_list 1 of torch.float32",
    ),
    "mixed types": (
        lambda: c.ring_reduce_scatter(ONES(1), [ONES(1), ONES(1), ONES(1).int()]),
        "TypeError: input_list mixes torch.float32, torch.int32: give one type",
    ),
    "no power of two": (
        lambda: c.doubling_all_gather([ONES(1)] * 3, ONES(1)),
        "ValueError: 3 ranks are no power of two: use the ring",
    ),
    "width": (
        lambda: c.torus_all_reduce(ONES(1), width=2),
        "ValueError: 3 ranks do not stand in rows of 2: use one of 1, 3",
    ),
    "bits of floats": (
        lambda: c.ring_all_reduce(ONES(1), op=ReduceOp.BAND),
        "TypeError: RedOpType.BAND works on bits: torch.float32 is not an integer type",
    ),
    "order of complex numbers": (
        lambda: c.tree_reduce(ONES(1, dtype=torch.complex64), op=ReduceOp.MAX),
        "TypeError: RedOpType.MAX needs an order: torch.complex64 has none",
    ),
}
# The root alone can know these; the others would wait: rank 0 calls alone.
WRONG_ON_THE_ROOT = {
    "no list": (
        lambda: c.tree_scatter(ONES(1)),
        "ValueError: scatter_list has 0 tensors: give one a rank, 3",
    ),
    "list of another size": (
        lambda: c.star_gather(ONES(1), [ONES(2)] * 3),
        "ValueError: place 0 of gather_list has 2 elements of torch.float32, "
        "the root's tensor 1 of torch.float32",
    ),
    "pieces of several sizes": (
        lambda: c.tree_gather(ONES(1), [ONES(1), ONES(2), ONES(1)]),
        "ValueError: gather_list has pieces of 1, 2 elements: a tree needs one size",
    ),
    "list elsewhere": (
        lambda: c.star_scatter(ONES(1), [ONES(1)] * 3, src=1),
        "ValueError: scatter_list belongs on rank 1 alone: leave it out here",
    ),
}


def test_wrong_arguments_are_refused_before_anything_is_sent():
    def run():
        rank = dist.get_rank()
        cases = {**WRONG, **WRONG_ON_THE_ROOT} if rank == 0 else WRONG
        with traffic() as seen:
            found = {case: error_of(call) for case, (call, _) in cases.items()}
        return found, dict(seen.calls)

    for rank, (found, sent) in enumerate(launch(run, ranks=3, timeout=60)):
        cases = {**WRONG, **WRONG_ON_THE_ROOT} if rank == 0 else WRONG
        assert found == {case: text.format(rank=rank) for case, (_, text) in cases.items()}
        assert sent == {}
