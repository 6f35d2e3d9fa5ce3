"""Fit alpha, beta and gamma to this machine.

Two ranks play ping-pong with messages of many sizes. Half a round trip is ``alpha + n beta``; the
fit minimizes relative errors, so that small messages count as much as large ones. The median of
the rounds of a size stands for it: the machine does other things too.
"""

import statistics
import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.cost.links import Link

SIZES = tuple(4**k for k in range(4, 13))  # 256 B to 16 MiB


@dataclass(frozen=True)
class Fit:
    """A fitted link and what it was fitted to.

    Attributes:
        link: the Link.
        sizes: bytes of the messages.
        seconds: median one-way time of each size.
    """

    link: Link
    sizes: tuple
    seconds: tuple

    @property
    def errors(self):
        """Relative error of the fit at each size."""
        return [self.link.seconds(n) / s - 1 for n, s in zip(self.sizes, self.seconds)]


def fit_link(sizes=SIZES, *, rounds=30, timeout=300.0):
    """Launch two ranks, play ping-pong, and return the :class:`Fit` of this machine's link.

    Args:
        sizes: bytes of the messages, multiples of 4, at least two different.
        rounds: timed round trips a size; a tenth more comes first, untimed.
        timeout: of the launch, seconds.

    Raises:
        ValueError: fewer than two sizes.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"sizes={sizes!r}: two numbers cannot be fitted to one size")
    seconds = launch(ping_pong, tuple(sizes), rounds, ranks=2, threads=1, timeout=timeout)[0]
    alpha, beta = fit_line(sizes, seconds)
    return Fit(Link(alpha, beta, reduction_seconds_a_byte()), tuple(sizes), tuple(seconds))


def ping_pong(sizes, rounds, group=None):
    """Run on the two ranks of ``group``: return the median one-way seconds of each size."""
    rank, medians = dist.get_rank(group), []
    for n in sizes:
        buffer = torch.zeros(n // 4)
        samples = []
        for _ in range(rounds + rounds // 10 + 1):
            began = time.perf_counter()
            for sender in (0, 1):
                messages = Messages(group)
                if rank == sender:
                    messages.exchange(sends=[(buffer, 1 - rank)])
                else:
                    for handle in messages.exchange(receives=[(buffer, 1 - rank)]):
                        handle.wait()
                messages.finish()
            samples.append((time.perf_counter() - began) / 2)
        medians.append(statistics.median(samples[-rounds:]))
    return medians


def fit_line(sizes, seconds):
    """Return (alpha, beta) >= 0 that minimize the sum of ((alpha + n beta) / seconds - 1)^2."""
    n = torch.tensor(sizes, dtype=torch.float64)
    t = torch.tensor(seconds, dtype=torch.float64)
    matrix = torch.stack([1 / t, n / t], dim=1)
    alpha, beta = (
        torch.linalg.lstsq(matrix, torch.ones_like(t).unsqueeze(1)).solution[:, 0].tolist()
    )
    if alpha < 0:  # the best line through the origin then
        alpha, beta = 0.0, ((n / t).sum() / ((n / t) ** 2).sum()).item()
    return alpha, max(beta, 0.0)


def reduction_seconds_a_byte(n_bytes=2**24, repeats=10):
    """Return gamma: seconds to add one float32 byte to another, in this process."""
    into, other = torch.zeros(n_bytes // 4), torch.ones(n_bytes // 4)
    samples = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        into.add_(other)
        samples.append(time.perf_counter() - began)
    return statistics.median(samples[1:]) / n_bytes
