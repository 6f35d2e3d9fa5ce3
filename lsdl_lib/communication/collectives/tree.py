"""Along a binomial tree: reduce to one rank, broadcast from one rank, and both: an all-reduce.

    reduce or broadcast:   ceil(lg p) (alpha + n beta)  (+ ceil(lg p) n gamma)
    all-reduce:          2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma

In round k of a broadcast every rank that has the vector sends it to the rank 2^k further on: the
number of ranks that have it doubles. A reduce is the same in reverse. Any p.
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce


def tree_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, along a binomial tree.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(tree_steps, tensor, op, group, async_op)


def tree_steps(flat, reduce, messages):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    yield from reduce_steps(flat, reduce, messages, root=0)
    yield from broadcast_steps(flat, messages, root=0)


def reduce_steps(flat, reduce, messages, root):
    """Reduce ``flat`` into the root's; elsewhere it ends as a partial result."""
    p, place = messages.size, (messages.rank - root) % messages.size
    inbox = torch.empty_like(flat)
    distance = 1
    while distance < p:
        if place & distance:
            messages.exchange(sends=[(flat, (place - distance + root) % p)])
            return
        if place + distance < p:
            yield messages.exchange(receives=[(inbox, (place + distance + root) % p)])
            reduce(flat, inbox)
        distance *= 2


def broadcast_steps(flat, messages, root):
    """Bring the root's ``flat`` to all ranks."""
    p, place = messages.size, (messages.rank - root) % messages.size
    distance = 1
    while distance < p:
        if place < distance and place + distance < p:
            messages.exchange(sends=[(flat, (place + distance + root) % p)])
        elif distance <= place < 2 * distance:
            yield messages.exchange(receives=[(flat, (place - distance + root) % p)])
        distance *= 2
