"""Ranks that share cores: what a stopwatch says, and what the processor's own clock says.

A stopwatch counts all that passes: the work, and the time in which other processes had the core.
The processor time of a thread counts only when that thread runs. With c cores and ranks that need
t_1, ..., t_p processor seconds, no schedule ends before

    least = max(max t_i, sum t_i / c)

so that equal ranks, more than there are cores, seem slower by the factor p / c.
"""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Clocked:
    """One piece of work by two clocks.

    Attributes:
        wall: seconds by the stopwatch.
        processor: seconds in which this thread ran.
    """

    wall: float
    processor: float


def by_both_clocks(work):
    """Run ``work()`` in this thread and return its :class:`Clocked` times.

    Work that other threads do (torch uses several unless told otherwise) is in ``wall`` only: run
    one thread a rank. So is work that a GPU does.
    """
    wall, processor = time.perf_counter(), time.thread_time()
    work()
    return Clocked(time.perf_counter() - wall, time.thread_time() - processor)


def least_seconds(processor_seconds, cores):
    """Return the least wall time of ranks that need these processor seconds on ``cores`` cores.

    Raises:
        ValueError: no ranks, or fewer than 1 core.
    """
    if not processor_seconds:
        raise ValueError("processor_seconds is empty: give one number a rank")
    if cores < 1:
        raise ValueError(f"cores={cores!r}: give at least 1")
    return max(max(processor_seconds), sum(processor_seconds) / cores)
