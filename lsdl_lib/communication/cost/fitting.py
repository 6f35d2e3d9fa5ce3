"""Fit alpha, beta and gamma to this machine.

Two ranks swap messages of many sizes: both send and both receive, as in a step of a ring. A swap
takes ``alpha + n beta``. On a network that carries both directions at once, one direction alone
takes as long. Where the link is the processor itself (ranks of one machine, whose messages are
copied by its cores), two directions cost twice as much as one, and it is the swap that tells what
a collective will cost.

The fit minimizes relative errors, so that small messages count as much as large ones. The median of
the rounds of a size stands for it: the machine does other things too.
"""

import itertools
import statistics
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lsdl_lib import launch
from lsdl_lib.communication.collectives.messages import Messages
from lsdl_lib.communication.cost.links import Link, MeasuredLink
from lsdl_lib.launch import device
from lsdl_lib.measure import timed, wall

SIZES = tuple(4**k for k in range(4, 13))  # 256 B to 16 MiB


@dataclass(frozen=True)
class Fit:
    """A fitted link and what it was fitted to.

    Attributes:
        link: the Link.
        sizes: bytes of the messages.
        seconds: median time of a swap of each size.
    """

    link: Link
    sizes: tuple
    seconds: tuple

    @property
    def measured(self):
        """The :class:`MeasuredLink` through the medians; use it where a single line is too rough.

        A larger message never takes less time: where noise says so, the smaller one's time counts.
        """
        return MeasuredLink(self.sizes, tuple(itertools.accumulate(self.seconds, max)))

    @property
    def errors(self):
        """Relative error of the fit at each size."""
        return [self.link.seconds(n) / s - 1 for n, s in zip(self.sizes, self.seconds)]


def fit_link(sizes=SIZES, *, rounds=30, timeout=300.0):
    """Launch two ranks that swap messages; return the :class:`Fit` of this machine's link.

    Args:
        sizes: bytes of the messages, multiples of 4, at least two different.
        rounds: timed swaps a size; a tenth more comes first, untimed.
        timeout: of the launch, seconds.

    Raises:
        ValueError: fewer than two sizes.
    """
    if len(set(sizes)) < 2:
        raise ValueError(f"sizes={sizes!r}: two numbers cannot be fitted to one size")
    return launch(fit_here, tuple(sizes), rounds, ranks=2, threads=1, timeout=timeout)[0]


def fit_here(sizes=SIZES, rounds=30, group=None):
    """Run on the two ranks of ``group``: return the :class:`Fit`, the same on both ranks."""
    sizes = tuple(sorted(set(sizes)))
    seconds, gamma = swap(sizes, rounds, group), reduction_seconds_a_byte()
    # One rank's fit for both: their medians differ, and even the same least squares may in a bit.
    fit = [Fit(Link(*fit_line(sizes, seconds), gamma), sizes, tuple(seconds))]
    dist.broadcast_object_list(fit, group=group, group_src=0)
    return fit[0]


def swap(sizes, rounds, group=None):
    """Run on the two ranks of ``group``: return the median seconds of a swap of each size."""
    other, medians = 1 - dist.get_rank(group), []
    for n in sizes:
        outgoing, incoming = (torch.zeros(n // 4, device=device()) for _ in range(2))

        def swap_once(outgoing=outgoing, incoming=incoming):
            messages = Messages(group)
            for handle in messages.exchange([(outgoing, other)], [(incoming, other)]):
                handle.wait()
            messages.finish()

        samples = []
        for _ in range(rounds + rounds // 10 + 1):
            dist.barrier(group)
            samples.append(timed(swap_once))
        medians.append(statistics.median(samples[-rounds:]))
    return medians


def fit_line(sizes, seconds):
    """Return (alpha, beta) that minimize the sum of ((alpha + n beta) / seconds - 1)^2.

    alpha is at least 0 and beta above 0. Where noise hides that bytes cost anything, beta is what
    the measurements allow at most: all of the largest message's time, for its bytes.
    """
    n = torch.tensor(sizes, dtype=torch.float64)
    t = torch.tensor(seconds, dtype=torch.float64)
    matrix = torch.stack([1 / t, n / t], dim=1)
    alpha, beta = (
        torch.linalg.lstsq(matrix, torch.ones_like(t).unsqueeze(1)).solution[:, 0].tolist()
    )
    if alpha < 0:  # the best line through the origin then
        alpha, beta = 0.0, ((n / t).sum() / ((n / t) ** 2).sum()).item()
    if beta <= 0:
        alpha, beta = t.min().item(), (t[n.argmax()] / n.max()).item()
    return alpha, beta


def reduction_seconds_a_byte(n_bytes=2**24, repeats=11):
    """Return gamma: seconds to add one float32 byte to another, on this process's device."""
    into, other = (torch.ones(n_bytes // 4, device=device()) for _ in range(2))
    return wall(lambda: into.add_(other), repeats=repeats).median / n_bytes
