"""Broadcast: the root's tensor comes to every rank.

    star:                (p-1) (alpha + n beta)                   the root sends to each in turn
    tree:                ceil(lg p) (alpha + n beta)              binomial, small vectors
    scatter, all-gather: (p-1 + p-1) alpha + 2 (p-1)/p n beta     large vectors

The last (van de Geijn) hands each rank one chunk, then passes the chunks around a ring. With a star
for its scatter it takes p-1 steps there; the root still sends each byte once.
"""

from lsdl_lib.communication.collectives import ring, tree
from lsdl_lib.communication.collectives.calling import (
    chunks,
    drive,
    flattened,
    perform,
    restore,
    root_in,
)
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.messages import Messages


def star_broadcast(tensor, src=0, group=None, async_op=False):
    """Copy rank ``src``'s tensor to all ranks, one after the other; see :func:`tree_broadcast`."""
    return _broadcast("star_broadcast", star_steps, tensor, src, group, async_op)


def tree_broadcast(tensor, src=0, group=None, async_op=False):
    """Copy rank ``src``'s tensor to all ranks of ``group``, in place, along a binomial tree.

    Args:
        tensor: any shape, the same shape and type on every rank.
        src: the global rank that has the values.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: ``src`` is not in the group.
    """
    return _broadcast("tree_broadcast", tree.broadcast_steps, tensor, src, group, async_op)


def ring_broadcast(tensor, src=0, group=None, async_op=False):
    """Copy rank ``src``'s tensor by a scatter and a ring all-gather; see :func:`tree_broadcast`."""
    return _broadcast("ring_broadcast", ring_steps, tensor, src, group, async_op)


def _broadcast(name, steps, tensor, src, group, async_op):
    agree(name, group, tensor, root=src)
    root = root_in(group, src)
    messages = Messages(group)
    values = tensor.detach()

    def run():
        flat = flattened(values)
        drive(steps(flat, messages, root), messages)
        if messages.rank != root:
            restore(values, flat)

    return perform(run, async_op)


def star_steps(flat, messages, root):
    """The messages of one rank. ``flat``: (n,), in place."""
    if messages.rank != root:
        yield messages.exchange(receives=[(flat, root)])
        return
    messages.exchange(sends=[(flat, rank) for rank in range(messages.size) if rank != root])


def ring_steps(flat, messages, root):
    """The messages of one rank. ``flat``: (n,), in place."""
    chunk = chunks(flat, messages.size)
    if messages.rank == root:
        others = [rank for rank in range(messages.size) if rank != root]
        messages.exchange(sends=[(chunk[rank], rank) for rank in others])
    else:
        yield messages.exchange(receives=[(chunk[messages.rank], root)])
    if messages.rank == root:
        # The root has everything: it feeds the ring and what comes back goes to a spare copy.
        chunk = chunks(flat.clone(), messages.size)
    yield from ring.all_gather_steps(chunk, messages)
