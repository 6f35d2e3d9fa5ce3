"""The product by strips: the same product at any height, and the traffic that its passes cause."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from lsdl_lib.foundations import operations, product_by_rows, product_by_strips, strip_work

HEIGHTS = [1, 2, 3, 7, 20, 21, 1000]


def matrices(m=20, k=9, n=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(4)
    return (
        torch.randn(m, k, generator=generator, dtype=dtype),
        torch.randn(k, n, generator=generator, dtype=dtype),
    )


@pytest.mark.parametrize("height", HEIGHTS)
def test_every_height_gives_the_product(height):
    x, weight = matrices()
    assert torch.allclose(product_by_strips(x, weight, height), x @ weight, rtol=0, atol=1e-13)


def test_row_by_row_gives_the_product():
    x, weight = matrices()
    assert torch.allclose(product_by_rows(x, weight), x @ weight, rtol=0, atol=1e-13)
    assert product_by_rows(x[:0], weight).shape == (0, 6)


@pytest.mark.parametrize("height", HEIGHTS)
def test_flops_do_not_depend_on_the_height(height):
    x, weight = matrices()
    with FlopCounterMode(display=False) as counter:
        product_by_strips(x, weight, height)
    assert strip_work(20, 9, 6, height).flops == counter.get_total_flops() == 2 * 20 * 9 * 6


class Traffic(TorchDispatchMode):
    """Adds up the bytes of every tensor that a product reads or writes."""

    n_bytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ == "mm":
            self.n_bytes += sum(tensor.nbytes for tensor in (*args, kwargs["out"]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("height", HEIGHTS)
def test_bytes_are_those_of_the_matrices_that_each_pass_touches(height):
    x, weight = matrices(dtype=torch.float32)
    with Traffic() as traffic:
        product_by_strips(x, weight, height)
    assert strip_work(20, 9, 6, height).n_bytes == traffic.n_bytes


def test_one_strip_is_one_product_and_one_row_is_a_matvec():
    assert strip_work(20, 9, 6, 20) == strip_work(20, 9, 6, 99) == operations.matmul(20, 9, 6)
    assert strip_work(1, 9, 6, 1) == operations.matvec(6, 9)


def test_intensity_grows_with_the_height():
    big = 10**6
    for height in (1, 2, 16):
        work = strip_work(64, big, big, height)
        assert work.intensity == pytest.approx(height / 2, rel=1e-3)  # float32
        half = strip_work(64, big, big, height, element=2)
        assert half.intensity == pytest.approx(height, rel=1e-3)


@pytest.mark.parametrize("height", [0, -3])
def test_a_strip_without_rows_is_refused(height):
    with pytest.raises(ValueError, match=f"height={height}"):
        product_by_strips(*matrices(), height)
