"""The roofline: the rate at which a machine can run an operation, from two numbers of the machine.

An operation does F floating-point operations and moves N bytes between memory and processor. Its
arithmetic intensity is I = F / N. With peak P in FLOP/s and bandwidth W in bytes/s::

    attainable(I) = min(P, W I)          FLOP/s
    seconds       = max(F / P, N / W)    computing and moving at the same time
    ridge         = P / W                FLOP/byte: below it memory is the bottleneck

The same two lines hold for any channel that carries bytes: put a link's bandwidth for W, and the
bytes that a rank sends for N.

Source: Williams, Waterman and Patterson 2009.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Roofline:
    """A machine in two numbers.

    Attributes:
        peak_flop_s: P, FLOP/s.
        bandwidth_byte_s: W, bytes/s.

    Raises:
        ValueError: one of them is not above 0.
    """

    peak_flop_s: float
    bandwidth_byte_s: float

    def __post_init__(self):
        for name in ("peak_flop_s", "bandwidth_byte_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: give a rate above 0")

    @property
    def ridge(self):
        """The intensity from which on the peak can be reached, FLOP/byte."""
        return self.peak_flop_s / self.bandwidth_byte_s

    def attainable(self, intensity):
        """Return the most FLOP/s at this intensity (FLOP/byte)."""
        return min(self.peak_flop_s, self.bandwidth_byte_s * intensity)

    def seconds(self, work):
        """Return the least time of a :class:`~lsdl_lib.foundations.operations.Work`."""
        return max(work.flops / self.peak_flop_s, work.n_bytes / self.bandwidth_byte_s)

    def bottleneck(self, intensity):
        """Return ``"memory"`` below the ridge, else ``"compute"``."""
        return "memory" if intensity < self.ridge else "compute"
