"""Every all-reduce, on every rank, at every size and type: one launch a world size."""

import pytest
import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from tests.communication.checks import (
    ALL_REDUCES,
    FLOATS,
    LAYOUTS,
    WHOLE,
    all_reduce_is_right,
    operations,
    reduced,
    values,
)

RANKS = [1, 2, 3, 4, 5, 6, 7, 8]
LARGE = 10**6


def sizes(p):
    return sorted({0, 1, p - 1, p, p + 1, 1000})


def wrong_sums():
    """Return what is wrong: all algorithms at the small sizes of all types, and the large of two.

    The oracle of a size and type is computed once for all algorithms.
    """
    p, wrong = dist.get_world_size(), []
    cases = [(n, dtype) for dtype in (*FLOATS, *WHOLE, torch.complex64) for n in sizes(p)]
    for n, dtype in [*cases, (LARGE, torch.float32), (LARGE, torch.int32)]:
        expected = reduced([values(n, rank, dtype) for rank in range(p)], "SUM")
        for name in ALL_REDUCES:
            fn = getattr(collectives, name)
            if not all_reduce_is_right(fn, n, dtype, layout="slice", expected=expected):
                wrong.append(f"{name}, {p} ranks, {n} elements of {dtype}")
    return wrong


@pytest.mark.parametrize("ranks", RANKS)
def test_sums_are_right_on_every_rank_at_every_size_and_type(ranks):
    assert launch(wrong_sums, ranks=ranks, timeout=240) == [[]] * ranks


def wrong_operations():
    wrong = []
    for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8):
        for op in operations(dtype):
            for name in ALL_REDUCES:
                if not all_reduce_is_right(getattr(collectives, name), 11, dtype, op):
                    wrong.append(f"{name}, {op} of {dtype}")
    return wrong


def test_every_operation_on_every_type_that_has_it():
    assert launch(wrong_operations, ranks=3, timeout=120) == [[]] * 3


def wrong_layouts():
    wrong = []
    for layout in LAYOUTS:
        for name in ALL_REDUCES:
            if not all_reduce_is_right(getattr(collectives, name), 12, torch.int32, layout=layout):
                wrong.append(f"{name}, {layout}")
    return wrong


def test_results_come_in_any_memory_layout_and_what_lies_beside_stays():
    assert launch(wrong_layouts, ranks=3, timeout=120) == [[]] * 3


def mixed_calls():
    wrong = []
    for name in ALL_REDUCES:
        tensors = [torch.full((1000,), float(10**i)) for i in range(4)]
        handles = [getattr(collectives, name)(tensor, async_op=True) for tensor in tensors]
        ended = [handle.wait() for handle in reversed(handles)]
        ended += [handle.is_completed() for handle in handles]
        if not all(ended) or [t.unique().tolist() for t in tensors] != [[3], [30], [300], [3000]]:
            wrong.append(name)
    return wrong


def test_calls_in_flight_do_not_mix():
    assert launch(mixed_calls, ranks=3, timeout=120) == [[]] * 3


def test_parameters_that_require_gradients_are_reduced_in_place():
    def run():
        wrong = []
        for name in ALL_REDUCES:
            parameter = torch.nn.Parameter(torch.ones(3))
            getattr(collectives, name)(parameter)
            if parameter.tolist() != [2.0] * 3:
                wrong.append(name)
        return wrong

    assert launch(run, ranks=2, timeout=120) == [[]] * 2
