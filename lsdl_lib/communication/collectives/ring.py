"""Around a ring: reduce-scatter, all-gather, and both together, the ring all-reduce.

    reduce-scatter, all-gather:  (p-1) alpha + (p-1)/p n beta  (+ (p-1)/p n gamma)
    all-reduce:                2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma

The vector is cut in p chunks. In each step every rank sends one chunk to its right and receives one
from its left, so all links carry n/p bytes at once. After p-1 steps each rank holds one finished
chunk; p-1 more steps pass the finished chunks on. A rank sends 2 (p-1)/p n bytes, less than 2 n
whatever p is: no all-reduce sends less (Patarasuk & Yuan 2009).
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce, chunks


def ring_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, around a ring.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(ring_steps, tensor, op, group, async_op)


def ring_steps(flat, reduce, messages):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    chunk = chunks(flat, messages.size)  # p views of (n/p,)
    yield from reduce_scatter_steps(chunk, reduce, messages)
    yield from all_gather_steps(chunk, messages)


def reduce_scatter_steps(chunk, reduce, messages):
    """Leave the reduced ``chunk[rank]`` on each rank; the other chunks hold partial results."""
    p, rank = messages.size, messages.rank
    left, right = (rank - 1) % p, (rank + 1) % p
    inbox = torch.empty_like(max(chunk, key=torch.numel))
    # What arrives has one more rank's share each time it is passed on; the last is this rank's own.
    for step in range(p - 1):
        mine, coming = chunk[(rank - step - 1) % p], chunk[(rank - step - 2) % p]
        arrived = inbox[: coming.numel()]
        yield messages.exchange(sends=[(mine, right)], receives=[(arrived, left)])
        reduce(coming, arrived)


def all_gather_steps(chunk, messages):
    """Bring every rank's ``chunk[rank]`` to all ranks, in place."""
    p, rank = messages.size, messages.rank
    left, right = (rank - 1) % p, (rank + 1) % p
    for step in range(p - 1):
        mine, coming = chunk[(rank - step) % p], chunk[(rank - step - 1) % p]
        yield messages.exchange(sends=[(mine, right)], receives=[(coming, left)])
