"""The hard cases of collectives: faults that users of well-known libraries met, by their numbers.

Case 43 is in ``test_checking.py``.
"""

import gc
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.launch import LaunchError, local
from lsdl_lib.measure import traffic
from tests.communication import checks
from tests.communication.checks import ALL_REDUCES, FLOATS, WHOLE, error_of, values

IN_PLACE = [
    name
    for name in collectives.__all__
    if name.endswith(("_all_reduce", "_broadcast", "_reduce")) and "hierarchical" not in name
]
ALL = [name for name in collectives.__all__ if name != "hierarchical_all_reduce"]
LIMIT_S = 5  # from a rank's death to the error


def failing(names, check, ranks):
    """Launch ``check(fn)`` for all names at once; return the names for which it was false."""

    def run():
        return [name for name in names if not check(getattr(collectives, name))]

    return sorted({name for wrong in launch(run, ranks=ranks, timeout=120) for name in wrong})


def test_case_37_strided_view():
    def check(fn):
        base = torch.zeros(4, 2)
        base[:, 0], base[:, 1] = dist.get_rank() + 1, 100
        fn(base[:, 0])
        total = {"broadcast": 1}.get(fn.__name__.split("_")[-1], 3)
        if fn.__name__.endswith("_reduce") and "all" not in fn.__name__ and dist.get_rank() == 1:
            return base[:, 1].tolist() == [100] * 4  # only the root has the result
        return base.tolist() == [[total, 100]] * 4

    assert failing(IN_PLACE, check, ranks=2) == []


def test_case_37_one_element_of_a_strided_view():
    """It counts as contiguous, whatever its stride."""

    def run():
        names = [name for name in ALL if checks.fits(name, dist.get_world_size())]
        cases = [(name, 1, torch.int16, "SUM", "column", 0, False) for name in names]
        return [case[0] for case in cases if not checks.is_right(*case)]

    assert launch(run, ranks=3, timeout=60) == [[]] * 3


def test_case_37_torch_s_own_all_reduce_is_still_wrong_on_strided_views():
    """The peer's value, so that a repair there is noticed; gloo of torch 2.13."""

    def run():
        base = torch.zeros(4, 2)
        base[:, 0], base[:, 1] = dist.get_rank() + 1, 100
        dist.all_reduce(base[:, 0])
        return base.tolist()

    got, *_ = launch(run, ranks=2, timeout=60, backend="gloo")
    assert got == [[3, 200], [3, 200], [1, 100], [1, 100]]


def test_case_38_transposed_input_is_itself_reduced():
    def check(fn):
        matrix = torch.arange(6.0).reshape(2, 3) * (dist.get_rank() + 1)
        fn(matrix.t())
        return matrix.tolist() == [[0, 3, 6], [9, 12, 15]]

    assert failing(ALL_REDUCES, check, ranks=2) == []


@pytest.mark.parametrize("dtype", [*FLOATS[:2], *WHOLE[:2]], ids=str)
def test_case_39_values_differ_for_every_element_and_rank(dtype):
    drawn = torch.cat([values(1000, rank, dtype) for rank in range(checks.MOST_RANKS)])
    assert drawn.unique().numel() == 1000 * checks.MOST_RANKS


def test_case_39_a_wrong_order_of_chunks_is_seen_here_and_not_with_equal_elements():
    def rotated(tensor, op=ReduceOp.SUM):
        """A wrong all-reduce: every chunk lands one place too far."""
        dist.all_reduce(tensor, op=op)
        tensor.copy_(torch.roll(tensor, tensor.numel() // 2))

    def run():
        equal = torch.ones(8)
        rotated(equal)
        return equal.tolist(), checks.all_reduce_is_right(rotated, 8, torch.float32)

    assert launch(run, ranks=2, timeout=60) == [([2.0] * 8, False)] * 2


def test_case_40_empty_tensors_keep_their_shape():
    def check(fn):
        tensors = torch.zeros(0), torch.zeros(1, 0, 2)
        for tensor in tensors:
            fn(tensor)
        scalar = torch.tensor(2.0)
        fn(scalar)
        shapes = [tuple(t.shape) for t in (*tensors, scalar)]
        return shapes == [(0,), (1, 0, 2), ()]

    assert failing(IN_PLACE, check, ranks=2) == []
    assert failing(IN_PLACE, check, ranks=3) == []


def test_case_40_empty_pieces():
    def run():
        names = [name for name in checks.OTHERS if checks.fits(name, dist.get_world_size())]
        return [name for name in names if not checks.is_right(name, 0, uneven=False)]

    assert launch(run, ranks=4, timeout=60) == [[]] * 4


def test_case_42_an_average_of_whole_numbers_is_refused_before_sending():
    text = "TypeError: an average of torch.int64 is not a torch.int64: "
    text += "sum and divide, or convert to float first"

    def check(fn):
        whole, real = torch.tensor([1 + 2 * dist.get_rank()]), torch.ones(5) + dist.get_rank()
        with traffic() as seen:
            refused = error_of(lambda: fn(whole, op=ReduceOp.AVG)) == text
        fn(real, op=ReduceOp.AVG)
        root_only = not fn.__name__.endswith("all_reduce") and dist.get_rank() > 0
        return refused and not seen.calls and (root_only or real.tolist() == [1.5] * 5)

    reducing = [name for name in IN_PLACE if name.endswith("_reduce")]
    assert failing(reducing, check, ranks=2) == []


def test_case_44_a_dropped_handle_still_serves_the_peers():
    """As isend and return: nobody keeps what the call returned, and rank 0 does not wait."""

    def check(fn):
        rank = dist.get_rank()
        tensor = torch.full((10**6,), float(rank + 1))
        handle = fn(tensor, async_op=True)
        if rank == 0:
            del handle
            gc.collect()
            return True
        handle.wait()
        total = {"broadcast": 1, "reduce": 6}[fn.__name__.split("_")[-1]]
        only_root = fn.__name__ in ("star_reduce", "tree_reduce")
        return only_root or tensor.unique().tolist() == [total]

    assert failing(IN_PLACE, check, ranks=3) == []


def test_case_44_the_rank_that_dropped_its_handle_gets_the_result_too():
    def check(fn):
        tensor = torch.full((1000,), float(dist.get_rank() + 1))
        fn(tensor, async_op=True)
        gc.collect()
        deadline = time.monotonic() + 60
        while tensor.unique().tolist() != [6.0] and time.monotonic() < deadline:
            time.sleep(0.01)
        return tensor.unique().tolist() == [6.0]

    assert failing(ALL_REDUCES, check, ranks=3) == []


def test_case_46_both_ranks_send_first():
    """16 MB each way, in every collective in which two ranks send to each other."""

    def run():
        rank = dist.get_rank()
        ramp = torch.arange(4_000_000, dtype=torch.float32)
        ours = ramp * (rank + 1)
        right = {}
        for name in ALL_REDUCES:
            tensor = ours.clone()
            getattr(collectives, name)(tensor)
            right[name] = torch.equal(tensor, 3 * ramp)
        for name in ("ring_all_gather", "doubling_all_gather"):
            both = [torch.zeros_like(ramp) for _ in range(2)]
            getattr(collectives, name)(both, ours)
            right[name] = torch.equal(both[1], 2 * both[0]) and torch.equal(both[0], ramp)
        for name in ("direct_all_to_all", "pairwise_all_to_all"):
            both = [torch.zeros_like(ramp) for _ in range(2)]
            getattr(collectives, name)(both, [ours, ours])
            right[name] = torch.equal(both[1], 2 * both[0]) and torch.equal(both[0], ramp)
        for name in ("ring_reduce_scatter", "halving_reduce_scatter"):
            total = torch.zeros_like(ramp)
            getattr(collectives, name)(total, [ours, 2 * ours])
            right[name] = torch.equal(total, 3 * (rank + 1) * ramp)
        return [name for name, good in right.items() if not good], len(right)

    assert launch(run, ranks=2, timeout=120) == [([], 12)] * 2


def test_case_47_an_average_does_not_overflow():
    def check(fn):
        tensor = torch.full((3,), 40000.0, dtype=torch.float16)
        fn(tensor, op=ReduceOp.AVG)
        root_only = not fn.__name__.endswith("all_reduce") and dist.get_rank() > 0
        return root_only or tensor.tolist() == [40000.0] * 3

    reducing = [name for name in IN_PLACE if name.endswith("_reduce")]
    assert failing(reducing, check, ranks=2) == []


def test_case_49_only_members_may_call_and_groups_do_not_meet():
    def run():
        rank = dist.get_rank()
        groups = [dist.new_group(members) for members in ([0, 1], [2, 3])]
        mine, other = groups[rank // 2], groups[1 - rank // 2]
        text = f"ValueError: rank {rank} is not in this group: only its members may call"
        with traffic() as seen:
            errors = {name: error_of(lambda name=name: checks.call(name, other)) for name in ALL}
        wrong = [f"{name}: {error}" for name, error in errors.items() if error != text]
        for name in ALL_REDUCES:
            tensor = torch.tensor([rank + 1.0])
            getattr(collectives, name)(tensor, group=mine)
            if tensor.item() != (3, 7)[rank // 2]:
                wrong.append(f"{name}: {tensor.item()}")
        for name in ALL:
            checks.call(name, mine)
        return wrong, dict(seen.calls)

    assert launch(run, ranks=4, timeout=120) == [([], {})] * 4


@pytest.mark.parametrize("ranks", [1, 3, 5, 6, 7])
def test_case_50_any_number_of_ranks(ranks):
    """Also fewer elements than ranks; one rank keeps what it has."""

    def run():
        names = [name for name in ALL if checks.fits(name, dist.get_world_size())]
        cases = [(name, n) for name in names for n in (1, 2, 5)]
        return [case for case in cases if not checks.is_right(*case)]

    assert launch(run, ranks=ranks, timeout=120) == [[]] * ranks


@pytest.mark.usefixtures("no_rank_left")
def test_case_51_a_rank_killed_in_a_collective_is_named_and_every_survivor_gets_an_error(
    tmp_path, monkeypatch
):
    # Time for the survivors to write: launch ends them soon after the first failure.
    monkeypatch.setattr(local, "SETTLE_S", 20.0)

    def run():
        rank, calls, died = dist.get_rank(), 0, tmp_path / "died"
        try:
            while True:
                calls += 1
                if rank == 1 and calls == 20:
                    died.write_text(repr(time.monotonic()))
                    os.kill(os.getpid(), signal.SIGKILL)
                collectives.ring_all_reduce(torch.ones(300_000))
        except RuntimeError as error:
            after = time.monotonic() - float(died.read_text())
            (tmp_path / f"rank {rank}").write_text(f"{after} {error}")
            raise

    with pytest.raises(LaunchError, match="rank 1 was killed by SIGKILL") as caught:
        launch(run, ranks=3, timeout=60)
    assert (caught.value.rank, caught.value.kind) == (1, "killed")
    for rank in (0, 2):
        after, text = (tmp_path / f"rank {rank}").read_text().split(" ", 1)
        assert float(after) < LIMIT_S, text


@pytest.mark.usefixtures("no_rank_left")
def test_case_51_a_straggler_is_an_error_on_every_waiting_rank_at_the_groups_timeout():
    def run():
        group = dist.new_group(timeout=timedelta(seconds=2))
        collectives.ring_all_reduce(torch.ones(3), group=group)
        if dist.get_rank() == 2:
            time.sleep(8)
            return None
        began = time.monotonic()
        error = error_of(lambda: collectives.ring_all_reduce(torch.ones(3), group=group))
        return time.monotonic() - began, error

    first, second, _ = launch(run, ranks=3, timeout=60)
    for seconds, error in (first, second):
        assert 1 < seconds < 2 + LIMIT_S
        assert error.startswith("RuntimeError:")
