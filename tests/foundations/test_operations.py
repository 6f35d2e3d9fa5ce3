"""FLOPs and bytes of operations, against torch's counter and against what really is computed."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lsdl_lib.foundations import Work, operations

SIZES = [(1, 1, 1), (7, 5, 3), (64, 32, 16), (1, 100, 9)]


class Elementwise(TorchDispatchMode):
    """Counts one FLOP for every element of every arithmetic operation, and of every sum's input."""

    FLOPS = ("add", "sub", "mul", "div", "sqrt")

    def __init__(self):
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__.rstrip("_")
        if name in self.FLOPS:
            self.flops += result.numel()
        elif name == "sum":
            self.flops += args[0].numel()
        else:
            assert name in ("view", "detach", "unsqueeze", "expand"), name
        return result


def counted(fn):
    with Elementwise() as counter:
        fn()
    return counter.flops


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_matmul_does_the_flops_that_torch_counts(m, k, n):
    with FlopCounterMode(display=False) as counter:
        torch.rand(m, k) @ torch.rand(k, n)
    assert operations.matmul(m, k, n).flops == counter.get_total_flops()


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_matmul_moves_its_three_matrices(m, k, n, dtype):
    a, b = torch.zeros(m, k, dtype=dtype), torch.zeros(k, n, dtype=dtype)
    moved = sum(tensor.nbytes for tensor in (a, b, a @ b))
    assert operations.matmul(m, k, n, a.element_size()).n_bytes == moved


def test_matvec_is_a_matmul_of_one_column():
    assert operations.matvec(30, 70) == operations.matmul(30, 70, 1)
    assert operations.matvec(10**6, 10**6).intensity == pytest.approx(1 / 2, rel=1e-5)
    assert operations.matmul(600, 600, 600).intensity == pytest.approx(100)


def test_add_and_triad():
    a, b = torch.rand(2, 11)
    assert operations.add(11).flops == counted(lambda: a + b)
    assert operations.triad(11).flops == counted(lambda: a + 3 * b)
    for work in (operations.add(11), operations.triad(11)):
        assert work.n_bytes == 3 * a.nbytes
    assert operations.add(11).intensity == pytest.approx(1 / 12)
    assert operations.triad(11).intensity == pytest.approx(1 / 6)


def adam_by_hand(parameter, gradient, mean, square, step=3, lr=0.1, b1=0.9, b2=0.99, eps=1e-3):
    """Algorithm 1 with its scalars folded; returns what is written."""
    mean = b1 * mean + (1 - b1) * gradient  # 3
    square = b2 * square + (1 - b2) * (gradient * gradient)  # 4
    root = square.sqrt() / (1 - b2**step) ** 0.5 + eps  # 3
    return parameter - lr / (1 - b1**step) * (mean / root), mean, square  # 3


def test_adam_s_count_is_that_of_the_real_update():
    n = 13
    torch.manual_seed(0)
    start, *gradients = torch.rand(4, n)
    parameter = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.Adam([parameter], lr=0.1, betas=(0.9, 0.99), eps=1e-3)
    ours, mean, square = start, torch.zeros(n), torch.zeros(n)
    for step, gradient in enumerate(gradients, 1):
        parameter.grad = gradient
        optimizer.step()
        with Elementwise() as counter:
            ours, mean, square = adam_by_hand(ours, gradient, mean, square, step)
        assert operations.adam(n).flops == counter.flops
    assert torch.allclose(ours, parameter, atol=1e-6)  # so it is Adam that was counted
    read, written = (start, start, mean, square), (ours, mean, square)
    assert operations.adam(n).n_bytes == sum(tensor.nbytes for tensor in read + written)


def layer_norm_by_hand(x, weight, bias, eps=1e-5):
    width = x.shape[1]
    centered = x - x.sum(1, keepdim=True) / width  # 2 an element
    variance = (centered * centered).sum(1, keepdim=True) / width  # 2
    return centered / (variance + eps).sqrt() * weight + bias  # 3


def test_layer_norm_s_count_is_that_of_the_real_one():
    rows, width = 6, 10
    torch.manual_seed(0)
    x, weight, bias = torch.rand(rows, width), torch.rand(width), torch.rand(width)
    flops = counted(lambda: layer_norm_by_hand(x, weight, bias))
    a_few_a_row = 4  # two divisions, eps, the root
    assert operations.layer_norm(rows, width).flops == flops - a_few_a_row * rows
    theirs = torch.nn.functional.layer_norm(x, (width,), weight, bias)
    assert torch.allclose(layer_norm_by_hand(x, weight, bias), theirs, atol=1e-6)
    moved = sum(tensor.nbytes for tensor in (x, weight, bias, theirs))
    assert operations.layer_norm(rows, width).n_bytes == moved


def test_work_that_makes_no_sense_is_named():
    assert Work(0, 8).intensity == 0
    with pytest.raises(ValueError, match="flops=-1"):
        Work(-1, 8)
    with pytest.raises(ValueError, match="n_bytes=0"):
        Work(1, 0)
