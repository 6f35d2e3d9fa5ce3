"""What common operations do: floating-point operations, and bytes between memory and processor.

Counted for data that starts and ends in memory and is moved once, which is the least possible:
inputs are read once, outputs written once, everything between stays in registers and caches. An
add, a multiply, a divide and a square root are one FLOP each. With e bytes an element::

    operation             FLOPs                 bytes                 FLOP/byte, float32
    matmul (m,k) (k,n)    2 m k n               (m k + k n + m n) e   m / 6 for m = k = n
    matvec (m,k) (k)      2 m k                 (m k + k + m) e       about 1/2
    add                   n                     3 n e                 1/12
    triad a = b + s c     2 n                   3 n e                 1/6
    Adam                  13 n                  7 n e                 13/28
    layer norm (r,w)      7 r w                 (2 r w + 2 w) e       about 7/8

Processors with caches often read the line that they are about to write (write-allocate), so that a
write costs twice. That is not counted here, as in STREAM (McCalpin 1995).
"""

from dataclasses import dataclass

FLOAT32 = 4  # bytes


@dataclass(frozen=True)
class Work:
    """FLOPs and bytes of one operation.

    Attributes:
        flops: F.
        n_bytes: N, bytes that cross between memory and processor.

    Raises:
        ValueError: a negative number, or no bytes.
    """

    flops: float
    n_bytes: float

    def __post_init__(self):
        if not self.flops >= 0:
            raise ValueError(f"flops={self.flops!r}: give at least 0")
        if not self.n_bytes > 0:
            raise ValueError(f"n_bytes={self.n_bytes!r}: an operation moves at least one byte")

    @property
    def intensity(self):
        """F / N, FLOP/byte."""
        return self.flops / self.n_bytes


def matmul(m, k, n, element=FLOAT32):
    """(m, k) times (k, n)."""
    return Work(2 * m * k * n, (m * k + k * n + m * n) * element)


def matvec(m, k, element=FLOAT32):
    """(m, k) times (k,): a matmul of one column."""
    return matmul(m, k, 1, element)


def add(n, element=FLOAT32):
    """a = b + c on n elements."""
    return Work(n, 3 * n * element)


def triad(n, element=FLOAT32):
    """a = b + s c on n elements, s a number."""
    return Work(2 * n, 3 * n * element)


def adam(n, element=FLOAT32):
    """One Adam update of n parameters in one pass (Kingma and Ba 2015, algorithm 1).

    Reads parameter, gradient and two means; writes parameter and means. FLOPs: 3 for the first
    mean, 4 for the second, 6 for square root, bias correction, eps, division, step size and update.
    """
    return Work(13 * n, 7 * n * element)


def layer_norm(rows, width, element=FLOAT32):
    """Normalize ``rows`` vectors of ``width``; a few FLOPs a row are left out.

    FLOPs an element: sum, subtract the mean, square, sum, scale, weight, bias.
    """
    return Work(7 * rows * width, (2 * rows * width + 2 * width) * element)
