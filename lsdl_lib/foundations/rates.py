"""Measure a device: floating-point operations a second, and bytes a second at several sizes.

The peak is that of the fastest matrix product, the operation that comes nearest to a device's
limit. Bandwidth is STREAM's copy and triad: 2 or 3 arrays, each element read or written once. While
the arrays fit a cache, the rate is the cache's; memory's shows once they are several times larger
than the last cache. Write-allocate traffic is not counted (see ``operations``), so the channel
itself may carry up to 3/2 (copy) or 4/3 (triad) of it.

The best of several runs counts, as in STREAM: both numbers are bounds, and whatever else the
machine does can only hide them.

Source: McCalpin 1995 for copy and triad.
"""

import torch

from lsdl_lib.foundations.operations import matmul
from lsdl_lib.launch import device as device_here
from lsdl_lib.measure import wall

KERNELS = {"copy": 2, "triad": 3}  # arrays that are read or written
LEAST_BYTES = 2**24  # a timed run repeats its kernel until it has moved this much


def peak(sizes=(256, 512, 1024), *, dtype=torch.float32, repeats=7, device=None):
    """Return {m: FLOP/s} of m by m matrix products; the device's peak is the largest.

    Args:
        sizes: of the matrices.
        dtype: of the elements.
        repeats: timed runs; the best counts.
        device: left out, ``lsdl_lib.launch.device()``.

    Raises:
        ValueError: a size below 1.
    """
    device = device or device_here()
    rates = {}
    for m in sizes:
        if m < 1:
            raise ValueError(f"sizes={sizes!r}: a matrix has at least 1 row")
        a, b = torch.rand(2, m, m, device=device).to(dtype)
        out = torch.empty_like(a)
        timing = wall(lambda: torch.mm(a, b, out=out), repeats=repeats, device=device)  # noqa: B023
        rates[m] = matmul(m, m, m).flops / min(timing.samples)
    return rates


def bandwidths(sizes, kernel="triad", *, repeats=7, device=None):
    """Return {bytes of one array: bytes/s} of ``kernel`` on float32 arrays.

    Args:
        sizes: bytes of one array, at least 4.
        kernel: ``"copy"``, a = b, or ``"triad"``, a = b + s c.
        repeats: timed runs; the best counts.
        device: left out, ``lsdl_lib.launch.device()``.

    Raises:
        ValueError: another kernel, or a size below one element.
    """
    if kernel not in KERNELS:
        raise ValueError(f"kernel={kernel!r}: give one of {', '.join(KERNELS)}")
    device = device or device_here()
    rates = {}
    for size in sizes:
        if size < 4:
            raise ValueError(f"sizes={sizes!r}: an array has at least one element of 4 bytes")
        moved = KERNELS[kernel] * (size // 4 * 4)
        times = max(1, LEAST_BYTES // moved)
        run = _repeated(kernel, size // 4, times, device)
        rates[size] = times * moved / min(wall(run, repeats=repeats, device=device).samples)
    return rates


def _repeated(kernel, n, times, device):
    """Return a function that runs ``kernel`` on arrays of n elements ``times`` times."""
    # Written once before, so that every page of memory is there and is its own.
    a, b, c = (torch.full((n,), float(value), device=device) for value in (1, 2, 3))

    def copy():
        for _ in range(times):
            a.copy_(b)

    def triad():
        for _ in range(times):
            torch.add(b, c, alpha=3.0, out=a)

    return {"copy": copy, "triad": triad}[kernel]
