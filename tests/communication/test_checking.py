"""The checked mode: one error, the same on every rank, before anything is sent."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication import collectives as c
from lsdl_lib.communication.collectives.checking import Call, difference
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.measure import traffic
from tests.communication import checks

ONES = torch.ones


def pieces(*sizes):
    return [ONES(n) for n in sizes]


# What each of three ranks calls, and the one error that all get.
DIFFERENT = {
    "elements": (
        lambda r: c.ring_all_reduce(ONES(2 if r == 0 else 3)),
        "ring_all_reduce: rank 0 has 2 elements of torch.float32, "
        "ranks 1, 2 have 3 elements of torch.float32: give the same on every rank",
    ),
    "one element": (
        lambda r: c.tree_all_reduce(ONES(1 + (r == 1))),
        "tree_all_reduce: ranks 0, 2 have 1 element of torch.float32, "
        "rank 1 has 2 elements of torch.float32: give the same on every rank",
    ),
    "shape": (
        lambda r: c.star_all_reduce(ONES(2, 3) if r else ONES(3, 2)),
        "star_all_reduce: rank 0 has 6 elements in shape (3, 2) of torch.float32, "
        "ranks 1, 2 have 6 elements in shape (2, 3) of torch.float32: give the same on every rank",
    ),
    "type": (
        lambda r: c.halving_all_reduce(ONES(2, dtype=torch.int32 if r == 2 else torch.float32)),
        "halving_all_reduce: ranks 0, 1 have 2 elements of torch.float32, "
        "rank 2 has 2 elements of torch.int32: give the same on every rank",
    ),
    "operation": (
        lambda r: c.doubling_all_reduce(ONES(2), op=ReduceOp.MAX if r else ReduceOp.SUM),
        "doubling_all_reduce: rank 0 reduces by SUM, ranks 1, 2 reduce by MAX: "
        "give the same on every rank",
    ),
    "an average that one rank alone would refuse": (
        lambda r: c.ring_all_reduce(ONES(1, dtype=None if r else torch.int64), op=ReduceOp.AVG),
        "ring_all_reduce: rank 0 has 1 element of torch.int64, "
        "ranks 1, 2 have 1 element of torch.float32: give the same on every rank",
    ),
    "two differences": (
        lambda r: c.tree_reduce(ONES(2 + r % 2), dst=r % 2),
        "tree_reduce: ranks 0, 2 have 2 elements of torch.float32, "
        "rank 1 has 3 elements of torch.float32; ranks 0, 2 have root 0, rank 1 has root 1: "
        "give the same on every rank",
    ),
    "root": (
        lambda r: c.ring_broadcast(ONES(2), src=r),
        "ring_broadcast: rank 0 has root 0, rank 1 has root 1, rank 2 has root 2: "
        "give the same on every rank",
    ),
    "width": (
        lambda r: c.torus_all_reduce(ONES(2), width=1 if r else 3),
        "torus_all_reduce: rank 0 has width 3, ranks 1, 2 have width 1: "
        "give the same on every rank",
    ),
    "collective": (
        lambda r: c.star_broadcast(ONES(2)) if r == 1 else c.ring_all_reduce(ONES(2)),
        "ranks 0, 2 call ring_all_reduce, rank 1 calls star_broadcast: "
        "call the same collective on every rank",
    ),
    "algorithm": (
        lambda r: c.star_reduce(ONES(2)) if r else c.tree_reduce(ONES(2)),
        "rank 0 calls tree_reduce, ranks 1, 2 call star_reduce: "
        "call the same collective on every rank",
    ),
    "in the background": (
        lambda r: c.ring_all_reduce(ONES(2 + (r == 2)), async_op=True),
        "ring_all_reduce: ranks 0, 1 have 2 elements of torch.float32, "
        "rank 2 has 3 elements of torch.float32: give the same on every rank",
    ),
    "a scatter's piece": (
        lambda r: c.star_scatter(ONES(1 + (r == 2)), pieces(1, 1, 1) if r == 0 else None),
        "star_scatter: rank 0 has 1 element for rank 2, which takes 2 elements: "
        "give the same on every rank",
    ),
    "a scatter's list": (
        lambda r: c.tree_scatter(ONES(1)),
        "tree_scatter: rank 0 has nothing for rank 0, which takes 1 element: "
        "give the same on every rank",
    ),
    "a scatter's list on another rank": (
        lambda r: c.tree_scatter(ONES(1), pieces(1, 1, 1) if r < 2 else None),
        "tree_scatter: rank 1 has 1 element for rank 0, which takes nothing: "
        "give the same on every rank",
    ),
    "a tree's pieces": (
        lambda r: c.tree_scatter(ONES(1 + r), pieces(1, 2, 3) if r == 0 else None),
        "tree_scatter: the pieces have 1, 2, 3 elements: give the same on every rank",
    ),
    "a gather's piece": (
        lambda r: c.star_gather(ONES(2), pieces(2, 2, 5) if r == 0 else None),
        "star_gather: rank 2 has 2 elements for rank 0, which takes 5 elements: "
        "give the same on every rank",
    ),
    "a gather's list": (
        lambda r: c.tree_gather(ONES(2), pieces(2, 2) if r == 0 else None),
        "tree_gather: rank 0 has a list of 2 tensors for 3 ranks: give the same on every rank",
    ),
    "an all-gather's list": (
        lambda r: c.ring_all_gather(pieces(1, 2 + (r == 0), 3), ONES(r + 1)),
        "ring_all_gather: rank 1 has 2 elements for rank 0, which takes 3 elements: "
        "give the same on every rank",
    ),
    "a reduce-scatter's list": (
        lambda r: c.ring_reduce_scatter(ONES(2), pieces(2, 2, 2 - (r == 1))),
        "ring_reduce_scatter: rank 1 has 1 element for rank 2, which takes 2 elements: "
        "give the same on every rank",
    ),
    "an all-to-all's lists": (
        lambda r: c.pairwise_all_to_all(pieces(1, 1, 1), pieces(1, 1 + (r == 2), 1)),
        "pairwise_all_to_all: rank 2 has 2 elements for rank 1, which takes 1 element: "
        "give the same on every rank",
    ),
    "a list's type": (
        lambda r: c.direct_all_to_all(
            pieces(1, 1, 1), [t.double() if r == 1 else t for t in pieces(1, 1, 1)]
        ),
        "direct_all_to_all: ranks 0, 2 have tensors of torch.float32, "
        "rank 1 has tensors of torch.float32 and torch.float64: give the same on every rank",
    ),
}
DETAIL = dist.DebugLevel.DETAIL


def errors_of_all():
    """Return {case: the error}, and how the collectives work between and after the errors."""
    found = {}
    with traffic() as seen:
        for case, (call, _) in DIFFERENT.items():
            found[case] = checks.error_of(lambda call=call: call(dist.get_rank()))
    comparisons = seen.sent_messages / (2 * (dist.get_world_size() - 1))
    wrong = [
        name
        for name in checks.ALL_REDUCES + checks.OTHERS
        if checks.fits(name, dist.get_world_size()) and not checks.is_right(name, 5)
    ]
    return found, wrong, comparisons


@pytest.mark.parametrize("how", ["set_debug_level", "environment"])
def test_case_43_calls_that_differ_give_one_error_on_all_ranks(how, monkeypatch):
    """From the environment, torch wraps every group: messages must pass through that too."""

    def run():
        assert (dist.get_debug_level() == DETAIL) == (how == "environment")
        with checks.debug_level(DETAIL):
            return errors_of_all()

    if how == "environment":
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    expected = {case: f"ValueError: {text}" for case, (_, text) in DIFFERENT.items()}
    for found, wrong, comparisons in launch(run, ranks=3, timeout=120):
        assert found == expected
        assert wrong == []  # the ranks are still in step
        assert comparisons == len(DIFFERENT)  # and nothing more was sent


def test_sub_groups_name_ranks_by_their_global_numbers():
    def run():
        group = dist.new_group([3, 1])
        with checks.debug_level(DETAIL):
            rank = dist.get_rank()
            return checks.error_of(lambda: c.ring_all_reduce(ONES(rank + 1), group=group))

    text = "ValueError: ring_all_reduce: rank 1 has 2 elements of torch.float32, "
    text += "rank 3 has 4 elements of torch.float32: give the same on every rank"
    outside = "ValueError: rank {} is not in this group: only its members may call"
    expected = [outside.format(0), text, outside.format(2), text]
    assert launch(run, ranks=4, timeout=60) == expected


def test_it_sends_nothing_when_it_is_off():
    def run():
        with traffic() as seen:
            c.ring_all_reduce(ONES(2))
        off = dict(seen.calls)
        with checks.debug_level(DETAIL), traffic() as seen:
            c.ring_all_reduce(ONES(2))
        return off, dict(seen.calls)

    off = {"send": 2, "recv": 2}
    assert launch(run, ranks=2, timeout=60) == [(off, {"send": 4, "recv": 4})] * 2


def test_calls_that_are_alike_differ_in_nothing():
    call = Call("ring_all_reduce", "2 elements", "SUM")
    assert difference({0: call, 1: call}) == ""
    assert difference({0: call}) == ""


def test_a_rank_that_took_part_in_another_number_of_calls_is_named():
    def run():
        if dist.get_rank() == 1:
            Messages()  # as a collective that this rank alone refused, for its arguments
        with checks.debug_level(DETAIL):
            return checks.error_of(lambda: c.ring_all_reduce(ONES(2)))

    text = "ValueError: ring_all_reduce: rank 0 is at call 1 of this group, "
    text += "rank 1 is at call 2 of this group: give the same on every rank"
    assert launch(run, ranks=2, timeout=60) == [text] * 2


def test_torchs_collectives_work_between_ours_at_level_detail(monkeypatch):
    """Torch's own check would take a star's messages, which differ in number, for a mismatch."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")

    def run():
        total = ONES(2)
        for _ in range(2):
            c.star_all_reduce(total)
            dist.all_reduce(total)
        return total.tolist()

    assert launch(run, ranks=3, timeout=60) == [[81.0, 81.0]] * 3


def test_a_group_that_torch_checks_carries_our_messages():
    def run():
        with checks.debug_level(DETAIL):
            group = dist.new_group()
            total = ONES(2)
            for _ in range(2):
                c.star_all_reduce(total, group=group)
            return total.tolist()

    assert launch(run, ranks=3, timeout=60) == [[9.0, 9.0]] * 3
