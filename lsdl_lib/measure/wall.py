"""Wall time done right: warm up, synchronize, repeat, take the median, say how sure it is.

The interval of the median is distribution-free: of n sorted samples, the k-th and the k-th from the
end enclose the true median with probability 1 - 2 P(B < k), B binomial(n, 1/2), whatever the
distribution. k is the largest for which that is at least 95 %. It needs 6 samples; below that the
interval is the whole range, and covers less.

Source: order-statistic intervals for quantiles, David and Nagaraja, Order Statistics, section 7.1.
"""

import math
import statistics
import time
from dataclasses import dataclass

import torch

from lsdl_lib.launch import device as device_here
from lsdl_lib.measure.units import format_seconds


@dataclass(frozen=True)
class Timing:
    """Seconds of repeated runs.

    Attributes:
        median: seconds.
        low, high: 95 % interval of the median, seconds.
        samples: seconds of each run, in the order of the runs.
    """

    median: float
    low: float
    high: float
    samples: tuple[float, ...]

    def __repr__(self):
        return (
            f"Timing({format_seconds(self.median)}, 95 % interval of the median "
            f"{format_seconds(self.low)} to {format_seconds(self.high)}, "
            f"{len(self.samples)} runs)"
        )


def wall(fn, *, repeats=10, warmup=2, device=None):
    """Time ``fn()``: ``warmup`` runs that do not count, then ``repeats`` runs that do.

    Args:
        fn: function without arguments; what it returns is dropped.
        repeats: runs that count, at least 1; 6 or more for a true 95 % interval.
        warmup: runs before them: allocation, caches and lazy set-up are paid there.
        device: where ``fn`` works. On a GPU each run ends with a synchronization, since kernels are
            only queued when ``fn`` returns. Left out: ``lsdl_lib.launch.device()``.

    Returns:
        Timing: in seconds.

    Raises:
        ValueError: ``repeats`` below 1 or ``warmup`` below 0.
    """
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; give at least 1")
    if warmup < 0:
        raise ValueError(f"warmup is {warmup}; give 0 or more")
    for _ in range(warmup):
        fn()
    samples = [timed(fn, device) for _ in range(repeats)]
    low, high = median_interval(samples)
    return Timing(statistics.median(samples), low, high, tuple(samples))


def timed(fn, device=None, clock=time.perf_counter):
    """Return the seconds of one ``fn()`` on ``device`` (see :func:`wall`), by ``clock``."""
    device = torch.device(device_here() if device is None else device)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.synchronize(device)
    start = clock()
    fn()
    if on_gpu:
        torch.cuda.synchronize(device)
    return clock() - start


def median_interval(samples, confidence=0.95):
    """Return (low, high), an interval that holds the true median with this confidence.

    Args:
        samples: independent numbers, in any order, at least one.
        confidence: between 0 and 1. With too few samples to reach it, the interval is (min, max).
    """
    ordered, n = sorted(samples), len(samples)
    outside, k = 0.0, 0  # outside = P(B < k)
    while True:
        step = math.comb(n, k) / 2**n
        if 2 * (outside + step) > 1 - confidence:
            break
        outside, k = outside + step, k + 1
    k = max(k, 1)
    return ordered[k - 1], ordered[n - k]
