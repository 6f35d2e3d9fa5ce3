"""Every all-reduce against sums computed apart, in float64 or in exact integers."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from lsdl_lib import launch
from lsdl_lib.communication import collectives
from lsdl_lib.launch import LaunchError

ALGORITHMS = [
    collectives.star_all_reduce,
    collectives.ring_all_reduce,
    collectives.doubling_all_reduce,
    collectives.halving_all_reduce,
    collectives.tree_all_reduce,
    collectives.torus_all_reduce,
]
RANKS = [1, 2, 3, 4, 5, 6, 7, 8]


def sizes(p):
    return sorted({0, 1, p - 1, p, p + 1, 1000})


def values(n, rank, dtype):
    """A different value for every element and every rank."""
    numbers = torch.arange(n, dtype=torch.float64) * 7 + 3 * rank + 1
    if dtype.is_floating_point or dtype.is_complex:
        numbers = torch.sin(numbers)
        return (numbers * (1 + 2j) if dtype.is_complex else numbers).to(dtype)
    return numbers.to(torch.int64).to(dtype)  # wraps around modulo 2^bits


def expected_sum(n, p, dtype):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    wide = wide if dtype.is_floating_point or dtype.is_complex else torch.int64
    total = sum(values(n, rank, dtype).to(wide) for rank in range(p))
    bound = sum(values(n, rank, dtype).to(wide).abs() for rank in range(p))
    return total, bound


def sums_are_right(algorithm, dtypes):
    p, rank = dist.get_world_size(), dist.get_rank()
    wrong = []
    for dtype in dtypes:
        for n in sizes(p):
            got = values(n, rank, dtype)
            assert algorithm(got) is None
            total, bound = expected_sum(n, p, dtype)
            if dtype.is_floating_point or dtype.is_complex:
                eps = torch.finfo(dtype).eps
                right = ((got.to(total.dtype) - total).abs() <= p * eps * bound).all()
            else:
                right = torch.equal(got, total.to(dtype))
            if not right:
                wrong.append((dtype, n, got, total))
    return wrong


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sums_on_every_rank_for_every_size_and_type(algorithm, ranks):
    dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.complex64)
    dtypes += (torch.int64, torch.int32, torch.int8, torch.uint8)
    assert launch(sums_are_right, algorithm, dtypes, ranks=ranks, timeout=60) == [[]] * ranks


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_operation(algorithm):
    def run():
        rank, results = dist.get_rank(), {}
        for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
            tensor = torch.tensor([rank + 1, 6 - rank, 5])
            algorithm(tensor, op=getattr(ReduceOp, op))
            results[op] = tensor.tolist()
        average = torch.tensor([1.0, 2.0]) * (rank + 1)
        algorithm(average, op=ReduceOp.AVG)
        return results, average.tolist()

    for results, average in launch(run, ranks=3, timeout=60):
        assert results == {
            "SUM": [6, 15, 15],
            "PRODUCT": [6, 120, 125],
            "MIN": [1, 4, 5],
            "MAX": [3, 6, 5],
            "BAND": [0, 4, 5],
            "BOR": [3, 7, 5],
            "BXOR": [0, 7, 5],
        }
        assert average == [2.0, 4.0]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_two_calls_in_flight_do_not_mix(algorithm):
    def run():
        tensors = [torch.full((1000,), float(10**i)) for i in range(4)]
        handles = [algorithm(tensor, async_op=True) for tensor in tensors]
        assert all(handle.wait() for handle in reversed(handles))
        assert all(handle.is_completed() for handle in handles)
        return [tensor.unique().tolist() for tensor in tensors]

    assert launch(run, ranks=3, timeout=60) == [[[3.0], [30.0], [300.0], [3000.0]]] * 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_sub_groups_and_who_may_call(algorithm):
    def run():
        pair, rest = dist.new_group([1, 3]), dist.new_group([0, 2])
        mine = pair if dist.get_rank() in (1, 3) else rest
        tensor = torch.tensor([dist.get_rank() + 1.0])
        algorithm(tensor, group=mine)
        try:
            algorithm(tensor, group=rest if mine is pair else pair)
        except ValueError as error:
            return tensor.item(), "is not in this group" in str(error)

    results = launch(run, ranks=4, timeout=60)
    assert results == [(4.0, True), (6.0, True), (4.0, True), (6.0, True)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_case_37_strided_view(algorithm):
    def run():
        base = torch.zeros(4, 2)
        base[:, 0], base[:, 1] = dist.get_rank() + 1, 100
        algorithm(base[:, 0])
        matrix = torch.arange(6.0).reshape(2, 3)
        algorithm(matrix.t())
        return base.tolist(), matrix.tolist()

    expected = ([[3.0, 100.0]] * 4, [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]])
    assert launch(run, ranks=2, timeout=60) == [expected] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_neighboring_storage_is_untouched(algorithm):
    def run():
        base = torch.full((1000,), -1.0)
        base[100:103] = dist.get_rank()
        algorithm(base[100:103])
        return base[:100].eq(-1).all() & base[103:].eq(-1).all(), base[100:103].tolist()

    assert launch(run, ranks=3, timeout=60) == [(True, [3.0] * 3)] * 3


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_case_40_empty_tensors_keep_their_shape(algorithm):
    def run():
        tensors = torch.zeros(0), torch.zeros(1, 0, 2), torch.tensor(2.0)
        for tensor in tensors:
            algorithm(tensor)
        return [tuple(tensor.shape) for tensor in tensors], tensors[2].item()

    expected = ([(0,), (1, 0, 2), ()], 4.0)
    assert launch(run, ranks=2, timeout=60) == [expected] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_case_42_an_average_of_whole_numbers_is_refused_before_sending(algorithm):
    with pytest.raises(LaunchError, match=r"an average of torch.int64 is not a torch.int64"):
        launch(lambda: algorithm(torch.tensor([1]), op=ReduceOp.AVG), ranks=2, timeout=60)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_case_47_an_average_does_not_overflow(algorithm):
    def run():
        tensor = torch.full((3,), 40000.0, dtype=torch.float16)
        algorithm(tensor, op=ReduceOp.AVG)
        return tensor.tolist()

    assert launch(run, ranks=2, timeout=60) == [[40000.0] * 3] * 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parameters_that_require_gradients_are_reduced_in_place(algorithm):
    def run():
        parameter = torch.nn.Parameter(torch.ones(3))
        algorithm(parameter)
        return parameter.tolist()

    assert launch(run, ranks=2, timeout=60) == [[2.0] * 3] * 2
