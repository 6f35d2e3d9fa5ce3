"""Stale synchronous: go ahead, but not too far ahead.

Let c_k be the number of steps that worker k has pushed, its clock. It may begin another step while

    c_k - min over workers j of c_j <= s

so the fastest leads the slowest by at most s clocks (Ho et al. 2013), and waits where it would lead
by more. Between a worker's pull and its push each other one pushes at most 2 s + 1 times, so that
with p workers

    tau <= (2 s + 1) (p - 1).

s = 0 is bulk synchronous: all begin a step on the weights that have all gradients of the step
before. s = infinity is asynchronous.
"""

from lsdl_lib.communication.relaxed.asynchronous import Asynchronous


class StaleSynchronous(Asynchronous):
    """Let the fastest worker lead the slowest by at most ``bound`` steps.

    Gradients are applied one by one as they come. With ``bound=0`` and ``PlainSGD(lr / p)`` p of
    them are a step of SGD on their average.

    Raises:
        ValueError: ``bound`` is negative.
    """

    def __init__(self, bound):
        if not bound >= 0:
            raise ValueError(f"bound={bound!r}: give a number of steps, at least 0")
        self.bound = bound

    def may_go(self, worker, done, seen, version):
        """Tell whether the worker would lead by no more than the bound."""
        return done[worker] - min(done.values()) <= self.bound
