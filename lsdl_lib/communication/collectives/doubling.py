"""All-reduce by recursive doubling: partners at distance 1, 2, 4, … swap whole vectors.

    time = lg p (alpha + n beta + n gamma)        p a power of two

Few steps, many bytes: best for small vectors. Both partners add the same two vectors, so all ranks
end with the same bits.

For other p, let q be the largest power of two below p. First the ranks beyond q hand their vectors
to partners among the first q, and get the result at the end: two more steps.
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce


def doubling_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, by recursive doubling.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(doubling_steps, tensor, op, group, async_op)


def doubling_steps(flat, reduce, messages):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    inbox = torch.empty_like(flat)
    yield from fold_in(flat, inbox, reduce, messages)
    q = largest_power_of_two(messages.size)
    if messages.rank < q:
        distance = 1
        while distance < q:
            partner = messages.rank ^ distance
            # A copy travels: flat changes below, when the partner may not have it yet.
            yield messages.exchange(sends=[(flat.clone(), partner)], receives=[(inbox, partner)])
            reduce(flat, inbox)
            distance *= 2
    yield from fold_out(flat, messages)


def fold_in(flat, inbox, reduce, messages):
    """Ranks from q on hand their vectors to rank - q, so that q ranks hold everything."""
    q, rank, p = largest_power_of_two(messages.size), messages.rank, messages.size
    if rank >= q:
        messages.exchange(sends=[(flat, rank - q)])
    elif rank + q < p:
        yield messages.exchange(receives=[(inbox, rank + q)])
        reduce(flat, inbox)


def fold_out(flat, messages):
    """Ranks from q on get the result."""
    q, rank, p = largest_power_of_two(messages.size), messages.rank, messages.size
    if rank >= q:
        yield messages.exchange(receives=[(flat, rank - q)])
    elif rank + q < p:
        messages.exchange(sends=[(flat, rank + q)])


def largest_power_of_two(p):
    """Return the largest power of two that is at most p."""
    return 1 << (p.bit_length() - 1)
