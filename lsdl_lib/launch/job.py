"""Ranks that are there already: ``launch`` inside a ``torchrun`` job, on one node or many.

Every process of the job runs the same script and calls ``launch`` at the same places. The first
``ranks`` of them form a process group of their own and run the function; all of them, the others
too, get the results through the job's store. So a chapter that compares 1, 2 and 4 ranks is a job
of 4 processes with no change.
"""

import faulthandler
import functools
import itertools
import os
import pickle
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from lsdl_lib.launch.context import Place, at, cores
from lsdl_lib.launch.outcome import Failure, Results, root_cause
from lsdl_lib.launch.progress import Bars
from lsdl_lib.launch.rank import GROUP_TIMEOUT_MARGIN_S, describe, unchecked_group
from lsdl_lib.launch.wire import dump_result

CHUNK_BYTES = 4 * 2**20  # torch's store refuses values above 8 MiB
STACK_MARGIN_S = 5

_numbers = itertools.count()  # every process of the job counts its launches alike


def run_in_job(fn, args, ranks, timeout, backend, threads):
    """Run ``fn(*args)`` on the first ``ranks`` processes of this job; see :func:`lsdl_lib.launch`.

    Raises:
        ValueError: more ranks than the job has, or than its own process group when it made one.
    """
    from lsdl_lib.launch.api import choose_backend  # api imports this module

    began = time.monotonic()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    ranks = ranks or world
    if ranks > world:
        raise ValueError(
            f"ranks={ranks}, but this job has {world} processes: start it with more "
            "(torchrun --nnodes × --nproc-per-node)"
        )
    if dist.is_initialized() and ranks != world:
        raise ValueError(
            f"ranks={ranks} with a process group of {world} already initialized: "
            "leave ranks out, or let launch make the group"
        )
    if dist.is_initialized():
        backend = dist.get_backend()
    else:
        backend = choose_backend(backend, ranks_here)
    device = torch.device("cuda", local_rank) if backend == "nccl" else torch.device("cpu")
    store = dist.PrefixStore(f"lsdl_lib.launch/{next(_numbers)}", _job_store())
    if rank < ranks:
        bars = Bars()
        with at(Place(rank, device, bars.report)):
            message = _attempt(
                fn, args, (rank, ranks, backend, device, timeout), threads, store, ranks_here
            )
        bars.close()
        _put(store, f"rank {rank}", message)
    outcomes = _take_all(store, ranks, timeout + GROUP_TIMEOUT_MARGIN_S)
    _leave_together(store, rank, world)
    failures = [failure for kind, failure in outcomes if kind == "error"]
    if failures:
        raise root_cause(failures).error()
    return Results(
        [pickle.loads(data) for _, data in outcomes],
        backend=backend,
        device=device.type,
        seconds=time.monotonic() - began,
    )


@functools.cache
def _job_store():
    """Return the store of this job, the one that ``torchrun`` told its processes of."""
    if dist.is_initialized():
        return dist.distributed_c10d._get_default_store()
    return next(rendezvous("env://"))[0]


def _attempt(fn, args, place, threads, store, ranks_here):
    """Run the function as one rank of the job; return the pickled outcome."""
    rank, ranks, backend, device, timeout = place
    before = torch.get_num_threads()
    torch.set_num_threads(threads or max(1, cores() // ranks_here))
    made_group = not dist.is_initialized()
    returned = False
    # Nobody watches from outside: a rank that hangs prints its stack and ends, and torchrun ends
    # the others.
    faulthandler.dump_traceback_later(timeout + STACK_MARGIN_S, exit=True)
    try:
        if made_group:
            _make_group(rank, ranks, backend, device, timeout, store)
        result = fn(*args)
        returned = True
        dist.barrier()
        return pickle.dumps(("result", dump_result(result, rank)))
    except Exception as error:
        failure = left_alone(rank, timeout) if returned else describe(error, rank)
        return pickle.dumps(("error", failure))
    finally:
        faulthandler.cancel_dump_traceback_later()
        torch.set_num_threads(before)
        if made_group and dist.is_initialized():
            dist.destroy_process_group()


def left_alone(rank, seconds):
    """Return the failure of a rank that has returned while the others wait for something."""
    summary = f"returned, but other ranks did not within the timeout of {seconds:g} s"
    return Failure(rank, "hung", time.monotonic(), summary)


def _make_group(rank, ranks, backend, device, timeout, store):
    if backend == "nccl":
        torch.cuda.set_device(device)
    with unchecked_group():
        dist.init_process_group(
            backend,
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=timeout),
            device_id=device if backend == "nccl" else None,
        )


def _put(store, key, data):
    chunks = [data[i : i + CHUNK_BYTES] for i in range(0, len(data), CHUNK_BYTES)]
    for i, chunk in enumerate(chunks):
        store.set(f"{key}/{i}", chunk)
    store.set(f"{key}/chunks", str(len(chunks)))


def _take_all(store, ranks, timeout):
    """Return every rank's outcome, or the first error's alone when a rank failed."""
    waiting = set(range(ranks))
    outcomes = {}
    deadline = time.monotonic() + timeout
    settle = None
    while waiting and time.monotonic() < (settle or deadline):
        for rank in sorted(waiting):
            if store.check([f"rank {rank}/chunks"]):
                count = int(store.get(f"rank {rank}/chunks"))
                data = b"".join(store.get(f"rank {rank}/{i}") for i in range(count))
                outcomes[rank] = pickle.loads(data)
                waiting.discard(rank)
                if outcomes[rank][0] == "error":
                    settle = settle or time.monotonic() + 1.0
        time.sleep(0.005)
    if waiting and settle is None:
        raise TimeoutError(f"no result from ranks {sorted(waiting)} within {timeout:g} s")
    return [outcomes[rank] for rank in sorted(outcomes)]


def _leave_together(store, rank, world):
    """Rank 0 may hold the store: it waits until every process has read what it needs."""
    store.add("read", 1)
    deadline = time.monotonic() + 10
    while rank == 0 and store.add("read", 0) < world and time.monotonic() < deadline:
        time.sleep(0.005)
