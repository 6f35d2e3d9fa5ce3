"""Links: what a message costs between two ranks.

A message of n bytes takes ``alpha + n beta`` seconds (Hockney 1994), and reducing what arrived into
what is there takes ``gamma`` seconds a byte. The presets are round numbers for thinking, not
measurements; fit your own with :func:`lsdl_lib.communication.cost.fit_link`.
"""

import bisect
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """One kind of link.

    Attributes:
        alpha: latency, seconds a message.
        beta: seconds a byte.
        gamma: seconds to reduce a byte.

    Raises:
        ValueError: one of them is negative.
    """

    alpha: float
    beta: float
    gamma: float = 0.0

    def __post_init__(self):
        for name in ("alpha", "beta", "gamma"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r}: give seconds, at least 0")

    @classmethod
    def of(cls, gbit_s, latency_us, gamma=0.0):
        """Return the link with a bandwidth in Gbit/s and a latency in microseconds."""
        if not gbit_s > 0:
            raise ValueError(f"gbit_s={gbit_s!r}: give a bandwidth above 0")
        return cls(alpha=latency_us * 1e-6, beta=8 / (gbit_s * 1e9), gamma=gamma)

    @property
    def gbit_s(self):
        """The bandwidth in Gbit/s."""
        return 8 / self.beta / 1e9 if self.beta else float("inf")

    def seconds(self, n_bytes):
        """Return the time of one message of ``n_bytes``."""
        return self.alpha + n_bytes * self.beta

    def between(self, source, to):
        """Return the link between two ranks: always this one."""
        return self


@dataclass(frozen=True)
class MeasuredLink:
    """A link as it was measured: straight lines between the measured sizes, and on beyond.

    A single line misses what real links do: caches that large messages leave, buckets that short
    ones slip through. SMPI models links by pieces too (Degomme et al. 2017, section 4).

    Attributes:
        sizes: bytes, ascending, at least two.
        times: seconds of one message of each size, not descending.

    Raises:
        ValueError: sizes or times are not as said.
    """

    sizes: tuple
    times: tuple
    gamma = 0.0  # reductions are timed where they run

    def __post_init__(self):
        for name in ("sizes", "times"):
            values = getattr(self, name)
            if len(values) < 2 or list(values) != sorted(values):
                raise ValueError(f"{name}={values!r}: give at least two, in ascending order")
        if len(self.sizes) != len(self.times) or len(set(self.sizes)) != len(self.sizes):
            raise ValueError(
                f"sizes={self.sizes!r} and times={self.times!r}: give one time a different size"
            )

    def seconds(self, n_bytes):
        """Return the time of one message of ``n_bytes``; below the smallest, the smallest's."""
        if n_bytes <= self.sizes[0]:
            return self.times[0]
        k = min(bisect.bisect(self.sizes, n_bytes), len(self.sizes) - 1)
        (n0, n1), (t0, t1) = self.sizes[k - 1 : k + 1], self.times[k - 1 : k + 1]
        return t0 + (n_bytes - n0) * (t1 - t0) / (n1 - n0)

    def between(self, source, to):
        """Return the link between two ranks: always this one."""
        return self


@dataclass(frozen=True)
class TwoLevels:
    """Fast links inside a node, slower ones between nodes.

    Attributes:
        inside, outside: the two links.
        ranks_per_node: ranks 0 … ranks_per_node - 1 share the first node, and so on.
    """

    inside: Link
    outside: Link
    ranks_per_node: int

    def __post_init__(self):
        if self.ranks_per_node < 1:
            raise ValueError(f"ranks_per_node={self.ranks_per_node}: give at least 1")

    def between(self, source, to):
        """Return the link between two ranks."""
        same = source // self.ranks_per_node == to // self.ranks_per_node
        return self.inside if same else self.outside


PRESETS = {
    "100 Mbit/s": Link.of(0.1, 100),
    "1 Gbit/s": Link.of(1, 50),
    "10 Gbit/s": Link.of(10, 20),
    "100 Gbit/s": Link.of(100, 5),
    "NVLink-like": Link.of(2400, 2),
}
