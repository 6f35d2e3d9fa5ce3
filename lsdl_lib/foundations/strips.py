"""One matrix product at every arithmetic intensity: x (m, k) times weight (k, n) by strips of rows.

A linear layer multiplies a batch of m rows by one weight matrix. Take h rows at a time, and the
weight is read from memory m / h times (when it is larger than the caches)::

    FLOPs   2 m k n                                    whatever h is
    bytes   (ceil(m / h) k n + m k + m n) e            e bytes an element
    I       about 2 h / e FLOP/byte while h << k, n    h / 2 in float32

h = 1 is a loop of matrix-vector products, h = m one matrix product: h is the batch size of the
layer, and a dial for the intensity. The result is the same up to the order of additions.
"""

import torch

from lsdl_lib.foundations.operations import FLOAT32, Work


def product_by_rows(x, weight):
    """Return x (m, k) @ weight (k, n), one row at a time: the naive version."""
    out = x.new_empty(x.shape[0], weight.shape[1])
    for row in range(x.shape[0]):
        torch.mv(weight.T, x[row], out=out[row])
    return out


def product_by_strips(x, weight, height):
    """Return x (m, k) @ weight (k, n), ``height`` rows at a time; the last strip may be shorter.

    Raises:
        ValueError: ``height`` below 1.
    """
    if height < 1:
        raise ValueError(f"height={height!r}: a strip has at least 1 row")
    out = x.new_empty(x.shape[0], weight.shape[1])
    for strip, result in zip(x.split(height), out.split(height)):
        torch.mm(strip, weight, out=result)
    return out


def strip_work(m, k, n, height, element=FLOAT32):
    """Return the :class:`Work` of (m, k) times (k, n) by strips of ``height`` rows."""
    passes = -(-m // height)
    return Work(2 * m * k * n, (passes * k * n + m * k + m * n) * element)
