"""One data-parallel step: does the gradient's all-reduce hide behind the backward pass?

A rank with b examples computes F_f b FLOPs forward and F_b b backward, at P FLOP/s; the gradient's
all-reduce takes T_c, whatever b is, and can run while the backward pass goes on::

    exposed = max(0, T_c - F_b b / P)
    step    = (F_f + F_b) b / P + exposed
    b*      = ceil(T_c P / F_b)               the least batch that hides all communication

For a network in which every weight is used once a token, F_b is about 4 Psi FLOPs a token. A ring
on p ranks sends 2 (p-1)/p n bytes of an n-byte gradient at beta seconds a byte. In float32 n is
4 Psi: Psi cancels, and b* is about 2 (p-1)/p beta P tokens a rank, for small networks and large
ones alike. beta P is the ridge point of the roofline of the link.

This is the best case: communication that starts with the backward pass and never disturbs it.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """The times of one step on one rank, in seconds.

    Attributes:
        forward: of the forward pass.
        backward: of the backward pass.
        communication: of the gradient's all-reduce.

    Raises:
        ValueError: a negative time.
    """

    forward: float
    backward: float
    communication: float

    def __post_init__(self):
        for name in ("forward", "backward", "communication"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: give seconds, at least 0")

    @classmethod
    def of(cls, flops, peak_flop_s, communication):
        """Return the step of a pass of ``flops`` (with ``forward`` and ``backward``) at a rate."""
        return cls(flops.forward / peak_flop_s, flops.backward / peak_flop_s, communication)

    @property
    def exposed(self):
        """Communication that does not hide behind the backward pass."""
        return max(0.0, self.communication - self.backward)

    @property
    def seconds(self):
        """The whole step."""
        return self.forward + self.backward + self.exposed

    @property
    def exposed_share(self):
        """The share of the step in which the rank only waits for communication."""
        return self.exposed / self.seconds


def hiding_examples(backward_flops, peak_flop_s, communication):
    """Return b*, the least number of examples a rank that hide the all-reduce.

    Args:
        backward_flops: F_b, of one example.
        peak_flop_s: P, the rate of the rank.
        communication: T_c, seconds.

    Raises:
        ValueError: FLOPs or rate not above 0, or a negative time.
    """
    for name, value in {"backward_flops": backward_flops, "peak_flop_s": peak_flop_s}.items():
        if not value > 0:
            raise ValueError(f"{name}={value!r}: give a number above 0")
    if not communication >= 0:
        raise ValueError(f"communication={communication!r}: give seconds, at least 0")
    return max(1, math.ceil(communication * peak_flop_s / backward_flops))
