"""What a process knows about its place: which rank, which device, who prints.

A process has one place at a time, so this is kept once a process. ``launch`` enters it around the
function that it runs; everything else only reads it.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch

JOB_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Place:
    """A rank's place inside one ``launch``: its number, its device, where its progress goes."""

    rank: int
    device: torch.device
    report: Callable[[str, int, int | None], None]  # (description, done, total or None)


_here: list[Place] = []


@contextlib.contextmanager
def at(place):
    """Run the body as the rank that ``place`` describes."""
    _here.append(place)
    try:
        yield
    finally:
        _here.pop()


def here():
    """Return this process's :class:`Place` inside ``launch``, or None outside."""
    return _here[-1] if _here else None


def in_job():
    """Tell whether ``torchrun`` (or Slurm with the same variables) started this process."""
    return all(name in os.environ for name in JOB_VARIABLES)


def ranks_that_fit(counts):
    """Return those of ``counts`` that ``launch`` can run here.

    On one machine all of them; in a ``torchrun`` job those up to the job's size. A chapter that
    compares numbers of ranks asks this, and so runs unchanged in a job of any size.

    Raises:
        ValueError: none fits.
    """
    most = int(os.environ["WORLD_SIZE"]) if in_job() else max(counts)
    fitting = [count for count in counts if count <= most]
    if not fitting:
        raise ValueError(f"none of {list(counts)} ranks fits in this job of {most} processes")
    return fitting


def on_main():
    """Tell whether this process speaks for all: a plain process, a kernel, or rank 0.

    Only that process prints results and writes records.
    """
    if here() is not None:
        return here().rank == 0
    return not in_job() or int(os.environ["RANK"]) == 0


def device():
    """Return this rank's ``torch.device``: its own GPU under nccl, else the CPU.

    Outside ``launch``: the process's GPU when there is one, else the CPU.
    """
    if here() is not None:
        return here().device
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) if in_job() else 0)
    return torch.device("cpu")


def cores():
    """Return the number of cores that this process may use (``taskset`` is respected)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
