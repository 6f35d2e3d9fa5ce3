"""Scatter and gather: the root hands each rank its piece, or collects a piece from each.

    star: (p-1) alpha + (p-1)/p n beta                          n is all pieces together
    tree: ceil(lg p) alpha + (p-1)/p n beta                     binomial, p a power of two

In the binomial tree a rank passes on the pieces of its whole subtree in one message: fewer
latencies at the root, more bytes in all.
"""

import torch

from lsdl_lib.communication.collectives.calling import drive, flattened, perform, root_in
from lsdl_lib.communication.collectives.checking import agree
from lsdl_lib.communication.collectives.lists import Pieces, refuse_misfit
from lsdl_lib.communication.collectives.messages import Messages


def star_scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
    """As :func:`tree_scatter`; the root sends each piece itself. Pieces may differ in size."""
    return _scatter("star_scatter", star_scatter_steps, tensor, scatter_list, src, group, async_op)


def tree_scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
    """Write ``scatter_list[r]`` of rank ``src`` to the ``tensor`` of rank r, along a binomial tree.

    Args:
        tensor: this rank's piece, written; the same size on every rank.
        scatter_list: on ``src``, one tensor a rank; None elsewhere.
        src: the global rank that has the pieces.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: ``src`` is not in the group, or its list does not fit.
    """
    return _scatter("tree_scatter", tree_scatter_steps, tensor, scatter_list, src, group, async_op)


def star_gather(tensor, gather_list=None, dst=0, group=None, async_op=False):
    """As :func:`tree_gather`; the root receives each piece itself. Pieces may differ in size."""
    return _gather("star_gather", star_gather_steps, tensor, gather_list, dst, group, async_op)


def tree_gather(tensor, gather_list=None, dst=0, group=None, async_op=False):
    """Collect every rank's ``tensor`` in ``gather_list`` on rank ``dst``, along a binomial tree.

    Args:
        tensor: this rank's piece; the same size on every rank.
        gather_list: on ``dst``, one tensor a rank, written; None elsewhere.
        dst: the global rank that gets the pieces.
        group: process group; None is the default group.
        async_op: return a handle to ``wait()`` for instead of waiting.

    Raises:
        ValueError: ``dst`` is not in the group, or its list does not fit.
    """
    return _gather("tree_gather", tree_gather_steps, tensor, gather_list, dst, group, async_op)


def _scatter(name, steps, tensor, scatter_list, src, group, async_op):
    alike = steps is tree_scatter_steps
    agree(name, group, root=src, gives=scatter_list, takes=tensor, alike=alike)
    root, messages = root_in(group, src), Messages(group)
    pieces = None
    if messages.rank == root:
        pieces = Pieces(scatter_list, messages.size, "scatter_list", filled=True, alike=alike).views
        refuse_misfit(f"place {root} of scatter_list", pieces[root], "the root's tensor", tensor)
    elif scatter_list:
        raise ValueError(f"scatter_list belongs on rank {src} alone: leave it out here")
    mine = torch.empty_like(tensor, memory_format=torch.contiguous_format).view(-1)

    def run():
        if messages.rank == root:
            mine.copy_(pieces[root])
        drive(steps(mine, pieces, messages, root), messages)
        tensor.detach().copy_(mine.view(tensor.shape))

    return perform(run, async_op)


def _gather(name, steps, tensor, gather_list, dst, group, async_op):
    alike = steps is tree_gather_steps
    agree(name, group, root=dst, gives=tensor, takes=gather_list, alike=alike)
    root, messages = root_in(group, dst), Messages(group)
    pieces = None
    if messages.rank == root:
        pieces = Pieces(gather_list, messages.size, "gather_list", filled=False, alike=alike)
        kept = pieces.views[root]
        refuse_misfit(f"place {root} of gather_list", kept, "the root's tensor", tensor)
    elif gather_list:
        raise ValueError(f"gather_list belongs on rank {dst} alone: leave it out here")
    mine = flattened(tensor.detach())

    def run():
        if pieces is not None:
            pieces.views[root].copy_(mine)
        drive(steps(mine, pieces and pieces.views, messages, root), messages)
        if pieces is not None:
            pieces.write_back()

    return perform(run, async_op)


def star_scatter_steps(mine, pieces, messages, root):
    """The messages of one rank. ``mine``: (m,); ``pieces``: p x (m,) on the root."""
    if messages.rank != root:
        yield messages.exchange(receives=[(mine, root)])
        return
    others = [rank for rank in range(messages.size) if rank != root]
    messages.exchange(sends=[(pieces[rank], rank) for rank in others])


def star_gather_steps(mine, pieces, messages, root):
    """The messages of one rank. ``mine``: (m,); ``pieces``: p x (m,) on the root."""
    if messages.rank != root:
        messages.exchange(sends=[(mine, root)])
        return
    others = [rank for rank in range(messages.size) if rank != root]
    yield messages.exchange(receives=[(pieces[rank], rank) for rank in others])


def tree_scatter_steps(mine, pieces, messages, root):
    """The messages of one rank; ``held`` has the pieces of its subtree, this rank's first."""
    p, m = messages.size, mine.numel()
    place = (messages.rank - root) % p
    span = subtree(place, p)
    held = mine.new_empty(min(span, p - place) * m)
    if place == 0:
        held = torch.cat([pieces[(root + k) % p] for k in range(p)])
    else:
        yield messages.exchange(receives=[(held, (place - span + root) % p)])
    while span > 1:
        span //= 2
        if place + span < p:
            part = held[span * m :]
            messages.exchange(sends=[(part, (place + span + root) % p)])
            held = held[: span * m]
    mine.copy_(held[:m])


def tree_gather_steps(mine, pieces, messages, root):
    """The messages of one rank; ``held`` collects the pieces of its subtree, this rank's first."""
    p, m = messages.size, mine.numel()
    place = (messages.rank - root) % p
    whole = subtree(place, p)
    held = mine.new_empty(min(whole, p - place) * m)
    held[:m] = mine
    span = 1
    while span < whole and place + span < p:
        part = held[span * m : 2 * span * m]
        yield messages.exchange(receives=[(part, (place + span + root) % p)])
        span *= 2
    if place:
        messages.exchange(sends=[(held, (place - whole + root) % p)])
    else:
        for k in range(p):
            pieces[(root + k) % p].copy_(held[k * m : (k + 1) * m])


def subtree(place, p):
    """Return the span of the binomial subtree at ``place``: 2^k >= p at the root."""
    if place == 0:
        return 1 << (p - 1).bit_length()
    return place & -place
