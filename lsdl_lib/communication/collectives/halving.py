"""All-reduce by recursive halving and doubling (Rabenseifner 2004).

    time = 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma        p a power of two

Partners at distance p/2, p/4, …, 1 swap halves of what they still have, and reduce the half that
they keep: a reduce-scatter in lg p steps. Then the same partners in reverse order swap what is
finished. As few bytes as a ring, as few steps as a tree.

For other p the ranks beyond the largest power of two fold their vectors in first, and get the
result at the end, as in recursive doubling.
"""

import torch
from torch.distributed import ReduceOp

from lsdl_lib.communication.collectives.calling import all_reduce
from lsdl_lib.communication.collectives.doubling import fold_in, fold_out, largest_power_of_two


def halving_all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Reduce ``tensor`` over all ranks of ``group``, in place, by halving and doubling.

    Args:
        tensor: any shape, the same shape and type on every rank.
        op: ``torch.distributed.ReduceOp``.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.
    """
    return all_reduce(halving_steps, tensor, op, group, async_op)


def halving_steps(flat, reduce, messages):
    """The messages and reductions of one rank. ``flat``: (n,), reduced in place."""
    inbox = torch.empty_like(flat)
    yield from fold_in(flat, inbox, reduce, messages)
    q = largest_power_of_two(messages.size)
    if messages.rank < q:
        edges = chunk_edges(flat.numel(), q)
        yield from reduce_scatter_steps(flat, inbox, edges, reduce, messages)
        yield from all_gather_steps(flat, edges, messages)
    yield from fold_out(flat, messages)


def reduce_scatter_steps(flat, inbox, edges, reduce, messages):
    """Leave the reduced chunk ``flat[edges[rank] : edges[rank + 1]]`` on each of q ranks."""
    distance = (len(edges) - 1) // 2
    while distance:
        partner = messages.rank ^ distance
        kept, given = block(edges, messages.rank, distance), block(edges, partner, distance)
        arrived = inbox[kept]
        yield messages.exchange(sends=[(flat[given], partner)], receives=[(arrived, partner)])
        reduce(flat[kept], arrived)
        distance //= 2


def all_gather_steps(flat, edges, messages):
    """Bring every chunk to all of q ranks, in place."""
    distance = 1
    while distance < len(edges) - 1:
        partner = messages.rank ^ distance
        mine, theirs = block(edges, messages.rank, distance), block(edges, partner, distance)
        yield messages.exchange(sends=[(flat[mine], partner)], receives=[(flat[theirs], partner)])
        distance *= 2


def block(edges, rank, size):
    """Return the slice of the ``size`` chunks (aligned to ``size``) that hold chunk ``rank``."""
    first = rank // size * size
    return slice(edges[first], edges[first + size])


def chunk_edges(n, parts):
    """Return parts + 1 positions that cut n elements in chunks differing by at most one."""
    size, longer = divmod(n, parts)
    return [i * size + min(i, longer) for i in range(parts + 1)]
