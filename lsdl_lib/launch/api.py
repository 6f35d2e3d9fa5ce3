"""The one function that starts ranks."""

import torch
import torch.distributed as dist

from lsdl_lib.launch.context import here, in_job
from lsdl_lib.launch.job import run_in_job
from lsdl_lib.launch.local import run_here
from lsdl_lib.tier import by_tier


def launch(fn, *args, ranks=None, timeout=300.0, backend=None, threads=None):
    """Run ``fn(*args)`` in several processes that share a process group; return their results.

    ``fn`` may be any function, a closure or a notebook cell's function too. Inside it,
    ``torch.distributed`` is ready, ``lsdl_lib.launch.device()`` is the rank's device and
    ``lsdl_lib.progress(iterable)`` shows rank 0's progress. Each rank starts with torch's default
    seed. What ranks print is collected and printed once, in rank order. No process is left behind,
    whatever happens; a small fork server stays, so that the next launch is fast, and ends with the
    calling process.

    Under ``torchrun`` the ranks are there already: every process calls ``launch``, the first
    ``ranks`` of them run ``fn``, and all get the results.

    Args:
        fn: the function. It and ``args`` are sent to the ranks by cloudpickle.
        ranks: number of ranks, at least 1. Left out: the number of GPUs where there are at least
            two, else 4 (2 at the smoke tier); under ``torchrun`` the size of the job.
        timeout: seconds after which ranks that are still running are ended.
        backend: ``"nccl"`` or ``"gloo"``. Left out: nccl when there are as many GPUs as ranks.
        threads: threads a rank. Left out: cores // ranks, at least 1. Ask for 1 where results
            must not depend on the number of cores.

    Returns:
        Results: a list in rank order; ``.where`` says what ran.

    Raises:
        LaunchError: a rank raised, exited, was killed or hung; names it and holds its traceback.
        ValueError, TypeError: an argument cannot work; nothing was started.
    """
    if not callable(fn):
        raise TypeError(f"launch runs a function, got {fn!r}")
    if ranks is not None and (not isinstance(ranks, int) or isinstance(ranks, bool) or ranks < 1):
        raise ValueError(f"ranks={ranks!r}: give a whole number of ranks, at least 1")
    if not timeout > 0:
        raise ValueError(f"timeout={timeout!r}: give seconds above 0")
    if threads is not None and (not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads={threads!r}: give a whole number of threads a rank, at least 1")
    if backend not in (None, "nccl", "gloo"):
        raise ValueError(f"backend={backend!r}: give 'nccl' or 'gloo', or leave it out")
    if here() is not None:
        raise RuntimeError(
            f"launch was called inside rank {here().rank} of another launch: call it outside"
        )
    if in_job():
        return run_in_job(fn, args, ranks, timeout, backend, threads)
    ranks = ranks or default_ranks()
    backend = choose_backend(backend, ranks_here=ranks)
    return run_here(fn, args, ranks, timeout, backend, threads)


def default_ranks():
    """Return the number of GPUs where there are at least two, else 4 (2 at the smoke tier)."""
    gpus = torch.cuda.device_count()
    return gpus if gpus >= 2 else by_tier(smoke=2, laptop=4, gpu=4)


def choose_backend(backend, ranks_here):
    """Return the backend for a job that has ``ranks_here`` ranks on this machine.

    Raises:
        ValueError: nccl was asked for, with more ranks here than GPUs.
    """
    gpus = torch.cuda.device_count() if dist.is_nccl_available() else 0
    if backend == "nccl" and ranks_here > gpus:
        raise ValueError(
            f"{ranks_here} nccl ranks on this machine need {ranks_here} GPUs, it has {gpus}: "
            f"use ranks={gpus or 1} or backend='gloo'"
        )
    return backend or ("nccl" if 0 < ranks_here <= gpus else "gloo")
